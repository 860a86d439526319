//! The server's table of all commands, with those of every crate, and the look-up by name.
//!
//! It is built once at start from the tables of all crates. Its entries live as long as the
//! process, so a command is a `'static` reference everywhere.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};

use commands::table::{Acl, Arg, ArgKind, Begin, Command, Find, Flags, KeyFlags, Run};

/// The code that runs a command, by the kind of the command.
#[derive(Clone, Copy)]
pub enum Runner {
    /// The handler of a command on keys; the keys are locked before the command runs.
    Data(commands::Handler),
    /// The handler of a command on whole databases; it gets the keyspace, with no shard locked.
    Walk(commands::Walker),
    /// A command that controls the session's transaction.
    Transaction(Verb),
    /// A command that runs a script or a function.
    Script(ScriptVerb),
    /// A command about the server or the connection, which the engine's host runs.
    Host(HostCommand),
}

impl Runner {
    /// Returns true for a data command, on keys or on whole databases. Clients that use MONITOR
    /// receive these from the executor.
    pub fn is_on_data(self) -> bool {
        matches!(self, Self::Data(_) | Self::Walk(_))
    }
}

impl Run for Verb {
    const UNNAMED: Self = Self::Multi;
}

impl Run for ScriptVerb {
    const UNNAMED: Self = Self::Eval;
}

/// The kind of a command that runs a script: by text, digest or function name, with or without the
/// right to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptVerb {
    /// EVAL: runs a script by its text.
    Eval,
    /// EVALSHA: runs a script by the digest of its text.
    EvalSha,
    /// EVAL_RO: runs a script by its text; it may only read.
    EvalRo,
    /// EVALSHA_RO: runs a script by the digest of its text; it may only read.
    EvalShaRo,
    /// FCALL: runs a function by its name.
    Fcall,
    /// FCALL_RO: runs a function by its name; it may only read.
    FcallRo,
}

/// The commands of transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// MULTI: begins a transaction.
    Multi,
    /// EXEC: runs the queued commands of the transaction.
    Exec,
    /// DISCARD: removes the queued commands of the transaction.
    Discard,
    /// WATCH: makes the next EXEC depend on keys that stay unchanged.
    Watch,
    /// UNWATCH: removes the client's watched keys.
    Unwatch,
}

/// A command that the engine's host runs, by its index in the host's table of handlers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostCommand(pub u16);

/// The method by which the keys of a command's requests are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyPlan {
    /// The command has no keys.
    None,
    /// The command has exactly one key, at this argument index: the most frequent case.
    One(usize),
    /// The keys are found by the key specifications in the command's entry.
    Specs,
}

/// The position of the member or hash field that a command with one key looks up first. A hint for
/// prefetching: it is derived from the documented arguments and may be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberPlan {
    /// The command looks up no member, or one that only parsing of the arguments can find.
    None,
    /// The member is the argument with this index.
    At(usize),
    /// The member is the last argument.
    Last,
}

impl MemberPlan {
    /// Returns the index of the argument that is the member in a request of `len` words; `None` if
    /// there is none. O(1).
    #[inline]
    pub fn place(self, len: usize) -> Option<usize> {
        match self {
            MemberPlan::None => None,
            MemberPlan::At(at) => (at < len).then_some(at),
            MemberPlan::Last => len.checked_sub(1),
        }
    }
}

/// The arguments of a command that name channels, for access control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channels {
    /// No argument of the command names a channel.
    None,
    /// The first argument of the command is a channel.
    First,
    /// All arguments of the command are channels.
    All,
    /// All arguments of the command are patterns of channels.
    Patterns,
}

/// The databases that a command uses; access control checks the client's right to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Databases {
    /// The command uses no database, so no right to one is checked.
    None,
    /// The command uses the client's selected database.
    Selected,
    /// The command uses all databases.
    All,
    /// The command uses the databases that its first arguments name; contains the number of these
    /// arguments.
    Named(usize),
    /// The command uses the selected database, and the one in its last argument.
    SelectedAndLast,
    /// The command uses the selected database, and the databases named after each word `DB` in its
    /// arguments.
    SelectedAndBehindDb,
}

/// A command in the server's table of all commands: its declaration, and properties derived from
/// it.
pub struct Registered {
    /// The command's declaration: name, arity, flags, keys, documentation.
    pub command: Command<Runner>,
    /// The id of the command, below [`CommandTable::id_count`]: the index of its counters.
    pub id: usize,
    /// The original name in lower case; `container|sub` for a subcommand.
    pub full_name: &'static str,
    /// The method by which the keys of the command's requests are found.
    pub key_plan: KeyPlan,
    /// The position of the argument with the member that is looked up first, for prefetching.
    pub member_plan: MemberPlan,
    /// The arguments of the command that name channels, for access control.
    pub channels: Channels,
    /// The databases that the command uses, for access control.
    pub databases: Databases,
    /// True if a call of this command with few arguments cannot take long. Such calls may be timed
    /// together.
    pub is_short: bool,
    /// The minimum number of words of a request that sets an expiry relative to now; `usize::MAX`
    /// for commands that set none.
    pub lifetime_words_min: usize,
    /// The subcommands of a container command; empty for other commands.
    pub subcommands: Vec<&'static Registered>,
}

/// All commands of the server, by name and by id.
#[derive(Clone)]
pub struct CommandTable {
    by_name: HashMap<Name, &'static Registered, ahash::RandomState>,
    /// The commands with names too long for [`Name`], which only `rename-command` can create.
    by_long_name: HashMap<Box<[u8]>, &'static Registered>,
    by_id: Vec<&'static Registered>,
    /// The ids of commands by full name, which renaming does not change.
    by_full_name: HashMap<&'static str, usize>,
}

/// The name of a command in capitals, stored in machine words. Creating, hashing and comparing it
/// takes a few instructions, without a loop over its bytes. A script looks up a command by name at
/// each call.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Name {
    /// The bytes of the command's name, eight per word, the first byte lowest. Unused bytes are
    /// zero.
    words: [u64; Name::LEN_MAX / 8],
    len: usize,
}

impl Name {
    const LEN_MAX: usize = 32;

    /// Packs a command's name into words, in capitals; `None` if it is too long.
    #[inline]
    fn new(name: &[u8]) -> Option<Self> {
        if name.len() > Self::LEN_MAX {
            return None;
        }
        let mut words = [0; Self::LEN_MAX / 8];
        for (word, bytes) in words.iter_mut().zip(name.chunks(8)) {
            *word = capitals(word_of(bytes));
        }
        Some(Self { words, len: name.len() })
    }
}

impl Hash for Name {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        let [first, second, third, fourth] = self.words;
        state.write_u64(first ^ second.rotate_left(21) ^ third.rotate_left(37) ^ fourth.rotate_left(51));
    }
}

/// Packs up to eight bytes of a command's name into a number, the first byte lowest.
#[inline]
fn word_of(bytes: &[u8]) -> u64 {
    if let Some(bytes) = bytes.first_chunk() {
        return u64::from_le_bytes(*bytes);
    }
    let last_shift = |width: usize| 8 * (bytes.len() - width) as u32;
    // The two reads may overlap; the common bytes are the same in both.
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        let [first, last] = [first, last].map(|four| u64::from(u32::from_le_bytes(*four)));
        return first | last << last_shift(4);
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        let [first, last] = [first, last].map(|two| u64::from(u16::from_le_bytes(*two)));
        return first | last << last_shift(2);
    }
    bytes.first().map_or(0, |&byte| u64::from(byte))
}

/// Converts all ASCII letters among the eight bytes of a command's name in `word` to capitals.
#[inline]
fn capitals(word: u64) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let low_bits = word & (0x7f * EACH);
    // The highest bit of a byte is set if: it is 'a' or more; it is more than 'z'; it is not ASCII.
    let from_a = low_bits + (0x80 - u64::from(b'a')) * EACH;
    let above_z = low_bits + (0x7f - u64::from(b'z')) * EACH;
    let is_small = from_a & !above_z & !word & (0x80 * EACH);
    word ^ (is_small >> 2)
}

impl CommandTable {
    /// Creates the table of the data commands and of `others`. In a server, `others` are the
    /// engine's commands for transactions and scripts ([`exec::commands`](crate::exec::commands),
    /// [`eval::commands`](crate::eval::commands)) and the commands of the host.
    ///
    /// # Panics
    /// If two commands share a name.
    pub fn new(others: impl Iterator<Item = Command<Runner>>) -> Self {
        let mut table = Self {
            by_name: HashMap::with_hasher(ahash::RandomState::with_seeds(1, 2, 3, 4)),
            by_long_name: HashMap::new(),
            by_id: Vec::new(),
            by_full_name: HashMap::new(),
        };
        let on_keys = commands::all().map(|command| command.map(Runner::Data));
        let walkers = commands::walkers().map(|command| command.map(Runner::Walk));
        on_keys.chain(walkers).chain(others).for_each(|command| table.add(command));
        table
    }

    fn add(&mut self, command: Command<Runner>) {
        let registered = self.register(command, None);
        self.insert(command.name, registered);
    }

    fn insert(&mut self, name: &str, registered: &'static Registered) {
        let earlier = match Name::new(name.as_bytes()) {
            Some(short) => self.by_name.insert(short, registered),
            None => self.by_long_name.insert(name.to_ascii_uppercase().into_bytes().into(), registered),
        };
        assert!(earlier.is_none(), "two commands are called {name}");
    }

    /// Renames the command `from` to `to`; an empty `to` removes it. Both names are in capitals, as
    /// the configuration has checked. The id and the full name, which counters and errors show, do
    /// not change.
    ///
    /// # Panics
    /// Panics if `from` is not a command or `to` is another command.
    pub fn rename(&mut self, from: &str, to: &str) {
        let old = match Name::new(from.as_bytes()) {
            Some(short) => self.by_name.remove(&short),
            None => self.by_long_name.remove(from.as_bytes()),
        };
        let old = old.expect("the names were checked");
        if to.is_empty() {
            return;
        }
        let mut command = old.command;
        command.name = Box::leak(to.into());
        let renamed: &'static Registered =
            Box::leak(Box::new(Registered { command, subcommands: old.subcommands.clone(), ..*old }));
        self.by_id[old.id] = renamed;
        self.insert(to, renamed);
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
            channels: channels(full_name),
            databases: databases(full_name, &command),
            is_short: is_short(&command),
            lifetime_words_min: lifetime_words_min(&command),
            subcommands,
        }));
        self.by_full_name.insert(full_name, registered.id);
        self.by_id.push(registered);
        registered
    }

    /// Finds the command called `name`, in any case. O(name).
    #[inline]
    pub fn find(&self, name: &[u8]) -> Option<&'static Registered> {
        match Name::new(name) {
            Some(name) => self.by_name.get(&name).copied(),
            None => self.find_long(name),
        }
    }

    /// Finds a command as [`CommandTable::find`] does, for names that only `rename-command` can
    /// create.
    #[cold]
    fn find_long(&self, name: &[u8]) -> Option<&'static Registered> {
        if self.by_long_name.is_empty() {
            return None;
        }
        self.by_long_name.get(name.to_ascii_uppercase().as_slice()).copied()
    }

    /// Finds a command by its original full name, `container|sub` for a subcommand, in any case.
    /// O(name).
    pub fn find_full(&self, name: &[u8]) -> Option<&'static Registered> {
        match name.iter().position(|&byte| byte == b'|') {
            None => self.find(name),
            Some(at) => self.find(&name[..at])?.subcommand(&name[at + 1..]),
        }
    }

    /// Finds a command by its original full name, even if the configuration has renamed it. The
    /// name is in lower case, `container|sub` for a subcommand. Access control uses these names.
    /// O(name).
    pub fn original(&self, full_name: &str) -> Option<&'static Registered> {
        self.by_full_name.get(full_name).map(|&id| self.by_id[id])
    }

    /// Returns the number of command ids, including those of subcommands.
    pub fn id_count(&self) -> usize {
        self.by_id.len()
    }

    /// Returns the command or subcommand with this id; the id must be valid.
    pub fn by_id(&self, id: usize) -> &'static Registered {
        self.by_id[id]
    }

    /// Lists all commands of the table without their subcommands, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &'static Registered> + '_ {
        self.by_name.values().chain(self.by_long_name.values()).copied()
    }
}

impl Registered {
    /// Returns true if the command begins or ends subscriptions, so that its reply is a message.
    pub fn is_subscription(&self) -> bool {
        self.command.flags.contains(Flags::SUBSCRIPTION)
    }

    /// Finds the subcommand of this command called `name`, in any case; `None` if there is none.
    pub fn subcommand(&self, name: &[u8]) -> Option<&'static Registered> {
        self.subcommands.iter().find(|sub| sub.command.name.as_bytes().eq_ignore_ascii_case(name)).copied()
    }

    /// Returns the subcommand that a request names, or the command itself if the request names
    /// none. O(subcommands).
    #[inline]
    pub fn called_by(&'static self, args: &commands::Args<'_>) -> &'static Registered {
        if self.subcommands.is_empty() || args.len() < 2 {
            return self;
        }
        self.subcommand(args.get(1)).unwrap_or(self)
    }

    /// Returns true if clients that have not authenticated may not run the command.
    #[inline]
    pub fn needs_auth(&self) -> bool {
        !self.command.flags.contains(Flags::NO_AUTH)
    }
}

/// Returns the arguments of the command `full_name` that name channels of publish/subscribe.
fn channels(full_name: &str) -> Channels {
    match full_name {
        "publish" | "spublish" => Channels::First,
        "subscribe" | "ssubscribe" => Channels::All,
        "psubscribe" => Channels::Patterns,
        _ => Channels::None,
    }
}

fn databases(full_name: &str, command: &Command<Runner>) -> Databases {
    let has_keys = command.keys.iter().any(|spec| !spec.flags.contains(KeyFlags::NOT_KEY));
    match full_name {
        "select" => Databases::Named(1),
        "swapdb" => Databases::Named(2),
        "move" => Databases::SelectedAndLast,
        "copy" => Databases::SelectedAndBehindDb,
        "flushall" => Databases::All,
        _ if has_keys || command.acl.intersects(Acl::KEYSPACE | Acl::READ | Acl::WRITE) => {
            Databases::Selected
        }
        _ => Databases::None,
    }
}

/// Returns true if the documented complexity of a command is O(1) or O(log n).
fn is_short(command: &Command<Runner>) -> bool {
    command.run.is_on_data()
        && command.flags.intersects(Flags::FAST | Flags::SHORT)
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

/// Returns the minimum number of words of a request that sets an expiry relative to now. The
/// command's documented arguments determine it: the arguments for such expiries have one of the
/// names in this function. A required argument is counted by the arity; an optional one follows the
/// word that introduces it.
fn lifetime_words_min(command: &Command<Runner>) -> usize {
    let is_lifetime =
        |arg: &Arg| arg.kind == ArgKind::Integer && matches!(arg.name, "seconds" | "milliseconds" | "ttl");
    let required_words = command.arity.as_number().unsigned_abs() as usize;
    if !command.run.is_on_data() || !command.flags.contains(Flags::WRITE) {
        usize::MAX
    } else if command.args.iter().any(is_lifetime) {
        required_words
    } else if command.args.iter().any(|arg| arg.args.iter().any(is_lifetime)) {
        required_words + 2
    } else {
        usize::MAX
    }
}

/// Returns the position of the member or hash field that a command looks up first. Returns
/// [`MemberPlan::None`] if arguments of unknown number come both before and after it.
fn member_plan(command: &Command<Runner>) -> MemberPlan {
    if !matches!(key_plan(command), KeyPlan::One(1)) {
        return MemberPlan::None;
    }
    let mut flat = Vec::new();
    flatten(command.args, Occurs::Once, &mut flat);
    // By the documented name, since it is only a hint: all commands that look up a member call it
    // so.
    let is_member = |arg: &Arg| matches!(arg.name, "member" | "field") && arg.kind == ArgKind::String;
    match flat.iter().position(|(arg, _)| is_member(arg)) {
        Some(at) if flat[..at].iter().all(|&(_, occurs)| occurs == Occurs::Once) => MemberPlan::At(at + 1),
        Some(at) if at + 1 == flat.len() => MemberPlan::Last,
        _ => MemberPlan::None,
    }
}

/// The number of times that a documented argument occurs in a request of its command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Occurs {
    /// The argument occurs exactly once in a request.
    Once,
    /// The argument occurs any number of times, including none.
    Unknown,
}

/// Lists the words of a request that these documented arguments stand for, with the number of times
/// that each occurs. `outer` is the number for the enclosing argument.
fn flatten<'a>(args: &'a [Arg], outer: Occurs, flat: &mut Vec<(&'a Arg, Occurs)>) {
    for arg in args {
        let is_fixed = !arg.optional && arg.token.is_none();
        let occurs = if is_fixed { outer } else { Occurs::Unknown };
        match arg.kind {
            ArgKind::Block => flatten(arg.args, occurs, flat),
            ArgKind::OneOf => flat.push((arg, Occurs::Unknown)),
            _ => flat.push((arg, if arg.multiple { Occurs::Unknown } else { occurs })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn issue_33_lifetimes_are_where_the_documented_arguments_say() {
        let table = CommandTable::new(std::iter::empty());
        let check = |name: &str, expected| {
            let found = table.find(name.as_bytes()).map(|found| found.lifetime_words_min);
            assert_eq!(found, Some(expected), "{name}");
        };
        for (name, words) in [("EXPIRE", 3), ("PEXPIRE", 3), ("SETEX", 4), ("PSETEX", 4), ("SET", 5)] {
            check(name, words);
        }
        for (name, words) in [("GETEX", 4), ("MSETEX", 6), ("HEXPIRE", 6), ("HPEXPIRE", 6), ("HGETEX", 7)] {
            check(name, words);
        }
        check("HSETEX", 8);
        for name in ["GET", "EXPIREAT", "PEXPIREAT", "HEXPIREAT", "MSET", "BLPOP", "TTL"] {
            check(name, usize::MAX);
        }
    }

    #[test]
    fn members_are_where_the_documented_arguments_say() {
        let table = CommandTable::new(std::iter::empty());
        let check = |name: &str, expected| {
            let found = table.find(name.as_bytes()).map(|found| found.member_plan);
            assert_eq!(found, Some(expected), "{name}");
        };
        for name in ["SADD", "SREM", "SISMEMBER", "HGET", "HSET", "HINCRBY", "HMGET", "ZSCORE", "ZREM"] {
            check(name, MemberPlan::At(2));
        }
        check("ZINCRBY", MemberPlan::At(3));
        check("ZADD", MemberPlan::Last);
        for name in ["GET", "LPUSH", "SCARD", "XADD", "ZRANGE", "SINTER", "SMOVE"] {
            check(name, MemberPlan::None);
        }
        assert_eq!(MemberPlan::At(2).place(2), None);
    }

    #[test]
    fn names_are_found_in_any_case() {
        let table = CommandTable::new(std::iter::empty());
        assert_eq!(table.find(b"gEt").map(|found| found.full_name), Some("get"));
        assert!(table.find(b"nonsense").is_none());
        assert!(table.find(&[b'x'; 1000]).is_none());
    }

    #[test]
    fn names_are_read_in_capitals_whatever_their_length() {
        for start in 0..=255_u8 {
            for len in 0..=Name::LEN_MAX {
                let name: Vec<u8> =
                    (0..len as u8).map(|at| start.wrapping_add(at.wrapping_mul(37))).collect();
                let mut capitals = name.to_ascii_uppercase();
                let read = Name::new(&name).expect("it is short enough");
                assert_eq!(read.len, len);
                capitals.resize(Name::LEN_MAX, 0);
                assert_eq!(read.words.map(u64::to_le_bytes).as_flattened(), capitals, "{name:?}");
            }
        }
        assert!(Name::new(&[b'x'; Name::LEN_MAX + 1]).is_none());
        assert!(Name::new(b"GET") != Name::new(b"GET\0"));
    }
}
