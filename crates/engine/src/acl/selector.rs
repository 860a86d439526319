//! A selector: the commands, keys, channels and databases that a set of rules permits. A user has
//! one selector for its rules outside parentheses, and one for each pair of parentheses. A request
//! may run if one of the selectors permits all of it.

use commands::Args;
use commands::table::{Acl, Flags, KeyFlags};
use stdx::number::parse_i64;

use super::denial::Denial;
use super::keys::{actual_flags, for_each_used};
use super::pattern::{Name, Pattern};
use crate::table::{Channels, CommandTable, Databases, KeyPlan, Registered};

/// A request whose rights are checked, and the database in which it would run.
#[derive(Clone, Copy)]
pub struct AclRequest<'a> {
    /// The command or, for a container command, its subcommand.
    pub registered: &'static Registered,
    /// The request's arguments. Their number was checked.
    pub args: &'a Args<'a>,
    /// The number of the client's selected database.
    pub db: usize,
}

/// The bit of the right to read a key.
const READ: u8 = 1;
const WRITE: u8 = 2;
/// The bits of both kinds of access to a key, read and write.
pub(super) const READ_WRITE: u8 = READ | WRITE;

/// The number of command ids for which a [`CommandSet`] has bits.
const COMMANDS_MAX: usize = 1024;

/// A set of commands: one bit for each command id.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CommandSet([u64; COMMANDS_MAX / 64]);

impl CommandSet {
    #[inline]
    fn has(&self, id: usize) -> bool {
        self.0[id / 64 % self.0.len()] & (1 << (id % 64)) != 0
    }

    fn set(&mut self, id: usize, allow: Permit) {
        assert!(id < COMMANDS_MAX, "there is a bit for each command");
        let (word, bit) = (&mut self.0[id / 64], 1 << (id % 64));
        match allow {
            Permit::Yes => *word |= bit,
            Permit::No => *word &= !bit,
        }
    }
}

/// The sign of an access control rule about commands: `+` or `-`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Permit {
    Yes,
    No,
}

/// An access control rule about commands, as ACL LIST shows it. `name` is without the sign.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CommandRule {
    permit: Permit,
    name: Box<[u8]>,
}

/// A pattern of keys, and the access that it permits.
#[derive(Clone, Debug, PartialEq, Eq)]
struct KeyPattern {
    access: u8,
    pattern: Pattern,
}

/// The databases that a selector permits: all, or a list.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Permitted {
    All,
    /// The numbers of the permitted databases, in ascending order.
    Only(Vec<u32>),
}

impl Permitted {
    fn has(&self, db: usize) -> bool {
        match self {
            Self::All => true,
            Self::Only(list) => u32::try_from(db).is_ok_and(|db| list.binary_search(&db).is_ok()),
        }
    }
}

/// A selector: the rights that one set of a user's rules gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    /// True if the selector permits all commands, so that the bits of the single commands need not
    /// be checked.
    all_commands: bool,
    /// True if the selector's rules begin with `+@all`.
    begins_with_all: bool,
    commands: CommandSet,
    /// Command ids with a permitted first argument, for commands that are not permitted with every
    /// first argument.
    first_args: Vec<(usize, Box<[u8]>)>,
    /// The rules about commands, from which [`Selector::command_text`] formats the text.
    rules: Vec<CommandRule>,
    all_keys: bool,
    keys: Vec<KeyPattern>,
    all_channels: bool,
    channels: Vec<Pattern>,
    databases: Permitted,
}

impl Selector {
    /// Creates a selector that permits all databases but no command, key or channel.
    pub(super) fn new() -> Self {
        Self {
            all_commands: false,
            begins_with_all: false,
            commands: CommandSet([0; COMMANDS_MAX / 64]),
            first_args: Vec::new(),
            rules: Vec::new(),
            all_keys: false,
            keys: Vec::new(),
            all_channels: false,
            channels: Vec::new(),
            databases: Permitted::All,
        }
    }

    /// Creates a selector that permits every command, key, channel and database.
    pub(super) fn everything() -> Self {
        let mut all = Self::new();
        all.set_all_commands(Permit::Yes);
        all.set_all_keys();
        all.set_all_channels();
        all
    }

    /// Returns true if this selector permits every request.
    pub(super) fn is_everything(&self) -> bool {
        self.all_commands && self.all_keys && self.all_channels && self.databases == Permitted::All
    }
}

/// The methods of a selector that change it.
impl Selector {
    pub(super) fn set_all_commands(&mut self, permit: Permit) {
        self.all_commands = permit == Permit::Yes;
        self.begins_with_all = self.all_commands;
        self.commands.0.fill(if self.all_commands { u64::MAX } else { 0 });
        self.first_args.clear();
        self.rules.clear();
    }

    /// Permits or forbids a command, with its subcommands, in this selector.
    pub(super) fn set_command(&mut self, registered: &Registered, permit: Permit) {
        self.set_bits(registered, permit);
        self.note_rule(registered.full_name.as_bytes(), permit);
    }

    /// Permits or forbids all commands of a category in this selector.
    pub(super) fn set_category(
        &mut self,
        table: &CommandTable,
        (name, category): (&[u8], Acl),
        permit: Permit,
    ) {
        self.note_rule(name, permit);
        for command in (0..table.id_count()).map(|id| table.by_id(id)) {
            if command.command.categories().intersects(category) {
                self.set_bits(command, permit);
            }
        }
    }

    /// Permits a command with the first argument `first` in this selector.
    pub(super) fn add_first_arg(&mut self, registered: &Registered, first: &[u8]) {
        let is_it =
            |(id, known): &(usize, Box<[u8]>)| *id == registered.id && known.eq_ignore_ascii_case(first);
        if !self.first_args.iter().any(is_it) {
            self.first_args.push((registered.id, first.into()));
        }
        self.note_rule(&[registered.full_name.as_bytes(), b"|", first].concat(), Permit::Yes);
    }

    fn set_bits(&mut self, registered: &Registered, permit: Permit) {
        self.first_args.retain(|(id, _)| *id != registered.id);
        self.all_commands &= permit == Permit::Yes;
        self.commands.set(registered.id, permit);
        registered.subcommands.iter().for_each(|sub| self.commands.set(sub.id, permit));
    }

    /// Adds a rule about commands as the selector's last one. Removes earlier rules about the same
    /// command or category and about its subcommands, because the new rule overrides them.
    pub(super) fn note_rule(&mut self, name: &[u8], permit: Permit) {
        let name = name.to_ascii_lowercase();
        self.rules.retain(|rule| {
            let behind = rule.name.strip_prefix(name.as_slice());
            !behind.is_some_and(|behind| behind.is_empty() || behind[0] == b'|')
        });
        self.rules.push(CommandRule { permit, name: name.into() });
    }

    pub(super) fn set_all_keys(&mut self) {
        self.all_keys = true;
        self.keys.clear();
    }

    pub(super) fn reset_keys(&mut self) {
        self.all_keys = false;
        self.keys.clear();
    }

    pub(super) fn has_all_keys(&self) -> bool {
        self.all_keys
    }

    /// Adds a pattern of keys to the selector. If the selector already has the pattern, adds
    /// `access` to its permitted accesses.
    pub(super) fn add_keys(&mut self, text: &[u8], access: u8) {
        let known = self.keys.iter_mut().find(|known| known.pattern.text() == text);
        let access = access | known.as_ref().map_or(0, |known| known.access);
        if let Some(known) = known {
            known.access = access;
        } else {
            self.keys.push(KeyPattern { access, pattern: Pattern::new(text) });
        }
    }

    pub(super) fn set_all_channels(&mut self) {
        self.all_channels = true;
        self.channels.clear();
    }

    pub(super) fn reset_channels(&mut self) {
        self.all_channels = false;
        self.channels.clear();
    }

    pub(super) fn has_all_channels(&self) -> bool {
        self.all_channels
    }

    pub(super) fn add_channels(&mut self, text: &[u8]) {
        if !self.channels.iter().any(|known| known.text() == text) {
            self.channels.push(Pattern::new(text));
        }
    }

    pub(super) fn set_all_databases(&mut self) {
        self.databases = Permitted::All;
    }

    /// Permits these databases, and no others, in this selector.
    pub(super) fn set_databases(&mut self, mut databases: Vec<u32>) {
        databases.sort_unstable();
        databases.dedup();
        self.databases = Permitted::Only(databases);
    }
}

/// The methods of a selector that check a request.
impl Selector {
    /// Checks that this selector permits a request: first the database, then the command, its keys
    /// and its channels.
    ///
    /// # Errors
    /// The reason for which the request is refused.
    #[inline]
    pub(super) fn check(&self, asked: AclRequest<'_>) -> Result<(), Denial> {
        if self.databases != Permitted::All {
            self.check_databases(asked)?;
        }
        let AclRequest { registered, args, .. } = asked;
        if !self.all_commands && !self.commands.has(registered.id) && !self.permits_command(asked) {
            return Err(Denial::Command);
        }
        if !self.all_keys {
            self.check_keys(registered, args)?;
        }
        if registered.channels != Channels::None && !self.all_channels {
            self.check_channels(asked)?;
        }
        Ok(())
    }

    /// Returns true if a command outside the set of permitted commands is permitted nevertheless:
    /// by its first argument, or because it needs no authentication.
    #[cold]
    fn permits_command(&self, asked: AclRequest<'_>) -> bool {
        let AclRequest { registered, args, .. } = asked;
        let first = args.try_get(1);
        let matches = |(id, word): &(usize, Box<[u8]>)| {
            *id == registered.id && first.is_some_and(|first| first.eq_ignore_ascii_case(word))
        };
        registered.command.flags.contains(Flags::NO_AUTH) || self.first_args.iter().any(matches)
    }

    #[inline]
    fn check_keys(&self, registered: &Registered, args: &Args<'_>) -> Result<(), Denial> {
        match registered.key_plan {
            KeyPlan::None => Ok(()),
            KeyPlan::One(at) => {
                let spec = &registered.command.keys[0];
                let is_key = !spec.flags.contains(KeyFlags::NOT_KEY);
                match is_key && !self.permits_key(args.get(at), actual_flags(registered, spec, args)) {
                    true => Err(Denial::Key(at)),
                    false => Ok(()),
                }
            }
            KeyPlan::Specs => self.check_many_keys(registered, args),
        }
    }

    #[inline(never)]
    fn check_many_keys(&self, registered: &Registered, args: &Args<'_>) -> Result<(), Denial> {
        let mut result = Ok(());
        for_each_used(registered, args, |at, flags| {
            if result.is_ok() && !self.permits_key(args.get(at), flags) {
                result = Err(Denial::Key(at));
            }
        });
        result
    }

    /// Returns true if this selector permits the access in `flags` to a key. O(patterns × key).
    #[inline]
    fn permits_key(&self, key: &[u8], flags: KeyFlags) -> bool {
        let (wanted, key) = (wanted_access(flags), Name::new(key));
        let permits = |known: &KeyPattern| known.access & wanted == wanted && known.pattern.matches(key);
        self.all_keys || self.keys.iter().any(permits)
    }

    /// Returns true if this selector permits reading every key.
    pub(super) fn reads_all_keys(&self) -> bool {
        let permits = |known: &KeyPattern| known.access & READ != 0 && known.pattern.text() == b"*";
        self.all_keys || self.keys.iter().any(permits)
    }

    fn check_channels(&self, asked: AclRequest<'_>) -> Result<(), Denial> {
        let AclRequest { registered, args, .. } = asked;
        let (places, permits): (_, fn(&Self, &[u8]) -> bool) = match registered.channels {
            Channels::None => return Ok(()),
            Channels::First => (1..2, Self::permits_channel),
            Channels::All => (1..args.len(), Self::permits_channel),
            Channels::Patterns => (1..args.len(), Self::permits_channel_pattern),
        };
        let mut places = places;
        places.find(|&at| !permits(self, args.get(at))).map_or(Ok(()), |at| Err(Denial::Channel(at)))
    }

    /// Returns true if this selector permits the channel `name`.
    pub(super) fn permits_channel(&self, name: &[u8]) -> bool {
        let name = Name::new(name);
        self.all_channels || self.channels.iter().any(|known| known.matches(name))
    }

    /// Returns true if this selector permits a subscription to the pattern `pattern` of channels:
    /// one of the selector's rules must be exactly this pattern.
    pub(super) fn permits_channel_pattern(&self, pattern: &[u8]) -> bool {
        self.all_channels || self.channels.iter().any(|known| known.text() == pattern)
    }

    /// Returns true if `selectors` together permit all channels that `other` permits. Compares the
    /// texts of the patterns only, so it may return false although the patterns match the same
    /// channels.
    pub(super) fn has_channels_of(selectors: &[Self], other: &Self) -> bool {
        selectors.iter().any(|selector| selector.all_channels)
            || !other.all_channels
                && other.channels.iter().all(|channel| {
                    selectors.iter().any(|selector| selector.permits_channel_pattern(channel.text()))
                })
    }

    #[cold]
    fn check_databases(&self, asked: AclRequest<'_>) -> Result<(), Denial> {
        let AclRequest { registered, args, db } = asked;
        let selected = || if self.databases.has(db) { Ok(()) } else { Err(Denial::Database(0)) };
        // The command itself refuses an argument that is not a number.
        let named = |at: usize| {
            let db = args.try_get(at).and_then(parse_i64).and_then(|db| usize::try_from(db).ok());
            if db.is_none_or(|db| self.databases.has(db)) { Ok(()) } else { Err(Denial::Database(at)) }
        };
        match registered.databases {
            Databases::None => Ok(()),
            Databases::Selected => selected(),
            Databases::All => Err(Denial::Database(0)),
            Databases::Named(count) => (1..=count).try_for_each(named),
            Databases::SelectedAndLast => selected().and_then(|()| named(args.len() - 1)),
            Databases::SelectedAndBehindDb => selected()
                .and_then(|()| (4..args.len()).filter(|&at| args.is(at - 1, "DB")).try_for_each(named)),
        }
    }
}

/// Returns the access bits that a command's use of a key needs.
#[inline]
fn wanted_access(flags: KeyFlags) -> u8 {
    let writes = flags.intersects(KeyFlags::INSERT | KeyFlags::DELETE | KeyFlags::UPDATE);
    let reads = flags.contains(KeyFlags::ACCESS);
    (if reads { READ } else { 0 }) | (if writes { WRITE } else { 0 })
}

/// The methods of a selector that format it as text.
impl Selector {
    /// Formats the selector's rules about commands, as ACL LIST shows them.
    pub fn command_text(&self) -> Vec<u8> {
        let mut text = if self.begins_with_all { b"+@all".to_vec() } else { b"-@all".to_vec() };
        for rule in &self.rules {
            text.extend_from_slice(if rule.permit == Permit::Yes { b" +" } else { b" -" });
            text.extend_from_slice(&rule.name);
        }
        text
    }

    /// Formats the selector's patterns of keys and their access, as ACL LIST shows them.
    pub fn key_text(&self) -> Vec<u8> {
        if self.all_keys {
            return b"~*".to_vec();
        }
        let with_access = |known: &KeyPattern| {
            let access: &[u8] = match known.access {
                READ => b"%R~",
                WRITE => b"%W~",
                // Not `~*`, which no other pattern may follow: an ACL file must load again.
                _ if known.pattern.text() == b"*" => b"%RW~",
                _ => b"~",
            };
            [access, known.pattern.text()].concat()
        };
        self.keys.iter().map(with_access).collect::<Vec<_>>().join(&b' ')
    }

    /// Formats the selector's patterns of channels, as ACL LIST shows them.
    pub fn channel_text(&self) -> Vec<u8> {
        if self.all_channels {
            return b"&*".to_vec();
        }
        let texts = self.channels.iter().map(|channel| [b"&", channel.text()].concat());
        texts.collect::<Vec<_>>().join(&b' ')
    }

    /// Formats the databases that the selector permits: `None` if all are permitted, an empty text
    /// if none is.
    pub fn database_text(&self) -> Option<Vec<u8>> {
        let Permitted::Only(databases) = &self.databases else { return None };
        if databases.is_empty() {
            return Some(Vec::new());
        }
        let numbers: Vec<String> = databases.iter().map(u32::to_string).collect();
        Some(format!("db={}", numbers.join(",")).into_bytes())
    }

    /// Formats the whole selector as rules. Applied to a new selector, they create an equal one.
    pub(super) fn text(&self) -> Vec<u8> {
        let mut words = Vec::new();
        if self.all_keys || !self.keys.is_empty() {
            words.push(self.key_text());
        }
        if !self.all_channels {
            words.push(b"resetchannels".to_vec());
        }
        if self.all_channels || !self.channels.is_empty() {
            words.push(self.channel_text());
        }
        words.extend(
            self.database_text().map(|text| if text.is_empty() { b"resetdbs".to_vec() } else { text }),
        );
        words.push(self.command_text());
        words.join(&b' ')
    }
}
