//! The joined table of all commands, and how dispatch finds one by name.
//!
//! Built once at start from the tables of all crates; everything it hands out lives as long as the
//! process, so a command is a plain reference everywhere.

use std::collections::HashMap;

use commands::CommandError;
use commands::table::{Arg, ArgKind, Begin, Command, Find, Flags, Run};

use crate::context::ServerHandler;
use crate::transaction::Verb;

/// What runs a command.
#[derive(Clone, Copy)]
pub enum Runner {
    /// A data command: gets its locked keys.
    Data(commands::Handler),
    /// A command about the server or the connection.
    Server(ServerHandler),
    /// A command about the session's transaction.
    Transaction(Verb),
}

impl Run for Runner {
    const UNNAMED: Self = Self::Server(|_, _| Err(CommandError::Line("ERR this command has no handler")));
}

/// How dispatch finds a command's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyPlan {
    /// It has none.
    None,
    /// Exactly one, at this argument: the hot path.
    One(usize),
    /// By its key specs.
    Specs,
}

/// Which argument names the member (of a hash, the field) that a command with one key looks for first.
/// A hint for fetching ahead: it is read from the documented arguments and may be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberPlan {
    /// None, or nobody can tell without parsing.
    None,
    /// This one.
    At(usize),
    /// The last one.
    Last,
}

impl MemberPlan {
    /// The place among `len` arguments, if there are so many. O(1).
    #[inline]
    pub fn place(self, len: usize) -> Option<usize> {
        match self {
            MemberPlan::None => None,
            MemberPlan::At(at) => (at < len).then_some(at),
            MemberPlan::Last => len.checked_sub(1),
        }
    }
}

/// A command as dispatch sees it.
pub struct Registered {
    /// Its record.
    pub command: Command<Runner>,
    /// Index into per-command counters: `0..CommandTable::id_count`.
    pub id: usize,
    /// Lower-case name, `container|sub` for a subcommand.
    pub full_name: &'static str,
    /// Where its keys are.
    pub key_plan: KeyPlan,
    /// Where the member is that it looks for.
    pub member_plan: MemberPlan,
    /// One call with few arguments cannot take long by itself: it is timed with its neighbours.
    pub is_short: bool,
    /// Its subcommands.
    pub subcommands: Vec<&'static Registered>,
}

/// A longer name is no command's, unless the configuration gave it.
const NAME_LEN_MAX: usize = 32;

/// All commands by name.
pub struct CommandTable {
    by_name: HashMap<Box<[u8]>, &'static Registered, ahash::RandomState>,
    by_id: Vec<&'static Registered>,
    /// The length of the longest name that the configuration gave, in bytes.
    given_len_max: usize,
}

impl CommandTable {
    /// Joins the tables of all crates.
    ///
    /// # Panics
    /// If two commands share a name.
    pub fn new() -> Self {
        let mut table = Self {
            by_name: HashMap::with_hasher(ahash::RandomState::with_seeds(1, 2, 3, 4)),
            by_id: Vec::new(),
            given_len_max: 0,
        };
        for command in commands::all() {
            table.add(command.map(Runner::Data));
        }
        for command in crate::commands::all() {
            table.add(*command);
        }
        table
    }

    fn add(&mut self, command: Command<Runner>) {
        let registered = self.register(command, None);
        let name = command.name.to_ascii_uppercase().into_bytes().into_boxed_slice();
        let earlier = self.by_name.insert(name, registered);
        assert!(earlier.is_none(), "two commands are called {}", command.name);
    }

    /// Calls the command `from` by the name `to` from now on; nobody can call it when that is empty. Both names
    /// are in capitals, as [`Renames`](crate::config::renames::Renames) has checked them. Its id and its full
    /// name, which counters and errors show, stay.
    ///
    /// # Panics
    /// If `from` is no command or `to` is another.
    pub fn rename(&mut self, from: &str, to: &str) {
        let old = self.by_name.remove(from.as_bytes()).expect("the names were checked");
        if to.is_empty() {
            return;
        }
        self.given_len_max = self.given_len_max.max(to.len());
        let mut command = old.command;
        command.name = Box::leak(to.into());
        let renamed: &'static Registered =
            Box::leak(Box::new(Registered { command, subcommands: old.subcommands.clone(), ..*old }));
        self.by_id[old.id] = renamed;
        let earlier = self.by_name.insert(to.as_bytes().into(), renamed);
        assert!(earlier.is_none(), "two commands are called {to}");
    }

    fn register(&mut self, command: Command<Runner>, container: Option<&'static str>) -> &'static Registered {
        let name = command.name.to_ascii_lowercase();
        let full_name: &'static str = Box::leak(match container {
            Some(container) => format!("{container}|{name}").into_boxed_str(),
            None => name.into_boxed_str(),
        });
        let subcommands =
            command.subcommands.iter().map(|sub| self.register(**sub, Some(full_name))).collect();
        let registered: &'static Registered = Box::leak(Box::new(Registered {
            command,
            id: self.by_id.len(),
            full_name,
            key_plan: key_plan(&command),
            member_plan: member_plan(&command),
            is_short: is_short(&command),
            subcommands,
        }));
        self.by_id.push(registered);
        registered
    }

    /// The command called `name`, whatever the case. O(name).
    #[inline]
    pub fn find(&self, name: &[u8]) -> Option<&'static Registered> {
        if name.len() > NAME_LEN_MAX {
            return self.find_long(name);
        }
        let mut upper = [0; NAME_LEN_MAX];
        let upper = &mut upper[..name.len()];
        upper.copy_from_slice(name);
        upper.make_ascii_uppercase();
        self.by_name.get(&*upper).copied()
    }

    /// [`CommandTable::find`] for names that only a configuration can have given.
    #[cold]
    fn find_long(&self, name: &[u8]) -> Option<&'static Registered> {
        if name.len() > self.given_len_max {
            return None;
        }
        self.by_name.get(name.to_ascii_uppercase().as_slice()).copied()
    }

    /// The command of this full name, `container|sub` for a subcommand, whatever the case. O(name).
    pub fn find_full(&self, name: &[u8]) -> Option<&'static Registered> {
        match name.iter().position(|&byte| byte == b'|') {
            None => self.find(name),
            Some(at) => self.find(&name[..at])?.subcommand(&name[at + 1..]),
        }
    }

    /// Number of ids, subcommands included.
    pub fn id_count(&self) -> usize {
        self.by_id.len()
    }

    /// The command or subcommand with this id.
    pub fn by_id(&self, id: usize) -> &'static Registered {
        self.by_id[id]
    }

    /// All top-level commands, in no particular order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'static Registered> + '_ {
        self.by_name.values().copied()
    }
}

impl Default for CommandTable {
    fn default() -> Self {
        Self::new()
    }
}

impl Registered {
    /// Whether it begins or ends subscriptions: its reply is a message.
    pub fn is_subscription(&self) -> bool {
        self.full_name.ends_with("subscribe")
    }

    /// The subcommand called `name`, whatever the case.
    pub fn subcommand(&self, name: &[u8]) -> Option<&'static Registered> {
        self.subcommands.iter().find(|sub| sub.command.name.as_bytes().eq_ignore_ascii_case(name)).copied()
    }

    /// The subcommand that a request means, the command itself where there is none. O(subcommands).
    #[inline]
    pub fn called_by(&'static self, args: &commands::Args<'_>) -> &'static Registered {
        if self.subcommands.is_empty() || args.len() < 2 {
            return self;
        }
        self.subcommand(args.get(1)).unwrap_or(self)
    }

    /// Whether it is allowed before authentication.
    #[inline]
    pub fn needs_auth(&self) -> bool {
        !self.command.flags.contains(Flags::NO_AUTH)
    }
}

/// Whether a command's own work is O(1) or O(log n).
fn is_short(command: &Command<Runner>) -> bool {
    matches!(command.run, Runner::Data(_))
        && (command.flags.contains(Flags::FAST) || command.complexity == "O(1)")
        && command.subcommands.is_empty()
}

fn key_plan(command: &Command<Runner>) -> KeyPlan {
    match command.keys {
        [] => KeyPlan::None,
        [spec] => match (spec.begin, spec.find) {
            (Begin::Index(at), Find::Range { last: 0, .. }) => KeyPlan::One(at as usize),
            _ => KeyPlan::Specs,
        },
        _ => KeyPlan::Specs,
    }
}

/// Found where nothing of unknown length stands before the first member, or nothing behind it.
fn member_plan(command: &Command<Runner>) -> MemberPlan {
    if !matches!(key_plan(command), KeyPlan::One(1)) {
        return MemberPlan::None;
    }
    let mut flat = Vec::new();
    flatten(command.args, true, &mut flat);
    let is_member = |arg: &Arg| matches!(arg.name, "member" | "field") && arg.kind == ArgKind::String;
    match flat.iter().position(|(arg, _)| is_member(arg)) {
        Some(at) if flat[..at].iter().all(|&(_, sure)| sure) => MemberPlan::At(at + 1),
        Some(at) if at + 1 == flat.len() => MemberPlan::Last,
        _ => MemberPlan::None,
    }
}

/// The arguments that are words of a request, and whether each is there exactly once before the next.
fn flatten<'a>(args: &'a [Arg], surely: bool, flat: &mut Vec<(&'a Arg, bool)>) {
    for arg in args {
        let once = surely && !arg.optional && arg.token.is_none();
        match arg.kind {
            ArgKind::Block => flatten(arg.args, once, flat),
            _ => flat.push((arg, once && !arg.multiple && arg.kind != ArgKind::OneOf)),
        }
    }
}

#[cfg(test)]
mod tests {
    use commands::table::Origin;

    use super::*;

    #[test]
    fn members_are_where_the_documented_arguments_say() {
        let table = CommandTable::new();
        let check = |name: &str, expected| {
            let found = table.find(name.as_bytes()).map(|found| found.member_plan);
            assert_eq!(found, Some(expected), "{name}");
        };
        for name in ["SADD", "SREM", "SISMEMBER", "HGET", "HSET", "HINCRBY", "HMGET", "ZSCORE", "ZREM"] {
            check(name, MemberPlan::At(2));
        }
        check("ZINCRBY", MemberPlan::At(3));
        check("ZADD", MemberPlan::Last);
        for name in ["GET", "LPUSH", "SCARD", "XADD", "ZRANGE", "SINTER", "SMOVE", "PING"] {
            check(name, MemberPlan::None);
        }
        assert_eq!(MemberPlan::At(2).place(2), None);
    }

    #[test]
    fn names_are_found_in_any_case() {
        let table = CommandTable::new();
        assert_eq!(table.find(b"gEt").map(|found| found.full_name), Some("get"));
        assert!(table.find(b"nonsense").is_none());
        assert!(table.find(&[b'x'; 1000]).is_none());
    }

    #[test]
    fn a_renamed_command_keeps_its_id_and_full_name() {
        let mut table = CommandTable::new();
        let (get, long) = (table.find(b"GET").expect("it exists").id, "X".repeat(2 * NAME_LEN_MAX));
        table.rename("GET", &long);
        table.rename("CONFIG", "");
        assert!(table.find(b"get").is_none() && table.find_full(b"config|get").is_none());
        let found = table.find(long.to_ascii_lowercase().as_bytes()).expect("it was renamed");
        assert_eq!((found.id, found.full_name, found.command.name), (get, "get", long.as_str()));
        assert_eq!(table.by_id(get).command.name, long);
        table.rename("CLIENT", "GET");
        assert_eq!(table.find_full(b"get|id").expect("a subcommand").full_name, "client|id");
    }

    #[test]
    fn a_command_writes_exactly_if_one_of_its_keys_is_written() {
        use commands::table::KeyFlags;
        let written = KeyFlags::RW | KeyFlags::OW | KeyFlags::RM;
        for registered in CommandTable::new().iter() {
            let command = &registered.command;
            // The first keeps its answer in the value, which changes nothing that a reader could tell; the
            // second changes what its group has read, and Redis calls that reading the key.
            if ["pfcount", "xreadgroup"].contains(&registered.full_name) {
                continue;
            }
            if command.keys.is_empty()
                || command.keys.iter().any(|spec| spec.flags.contains(KeyFlags::NOT_KEY))
            {
                continue;
            }
            let writes = command.keys.iter().any(|spec| spec.flags.intersects(written));
            assert_eq!(command.flags.contains(Flags::WRITE), writes, "{}", registered.full_name);
        }
    }

    #[test]
    fn histories_go_from_version_to_version_and_tell_nothing_twice() {
        fn version(text: &str) -> Vec<u32> {
            let parts: Vec<u32> = text.split('.').filter_map(|part| part.parse().ok()).collect();
            assert!(parts.len() == 3 && parts.iter().map(u32::to_string).eq(text.split('.')), "{text:?}");
            parts
        }
        let table = CommandTable::new();
        for registered in (0..table.id_count()).map(|id| table.by_id(id)) {
            let (name, history) = (registered.full_name, &registered.command.history);
            let first = version(history.since);
            assert!(history.deprecated.is_none_or(|it| version(it.since) >= first), "{name}");
            for of_one in [history.changes, history.valkey_changes] {
                assert!(of_one.is_sorted_by_key(|(since, _)| version(since)), "{name}: oldest first");
            }
            // Redis has no 8.1 and no 9; Valkey forked from Redis 7.2.4.
            let is_possible = |origin, number: &[u32]| match origin {
                Origin::Redis => !number.starts_with(&[8, 1]) && number < &[9][..],
                Origin::Valkey => number > &[7, 2, 4][..],
                Origin::Saker => true,
            };
            assert!(is_possible(history.origin, &first), "{name}: since {}", history.since);
            let changes: Vec<_> = history.all_changes().collect();
            for (at, (origin, (since, change))) in changes.iter().enumerate() {
                assert!(is_possible(*origin, &version(since)), "{name}: {since} {change}");
                let is_sentence = change.ends_with('.') || !change.starts_with(|c: char| c.is_lowercase());
                assert!(!is_sentence, "{name}: the change is told as a verb and what follows it: {change}");
                assert!(changes[..at].iter().all(|(_, (_, earlier))| earlier != change), "{name}: {change}");
            }
        }
    }

    #[test]
    fn the_smallest_accepted_request_has_room_for_the_first_key() {
        for registered in CommandTable::new().iter() {
            let smallest = registered.command.arity.as_number().unsigned_abs() as usize;
            if let KeyPlan::One(at) = registered.key_plan {
                assert!(at < smallest, "{}", registered.full_name);
            }
        }
    }
}
