//! The record of a command: everything that is known about the command. Dispatch (arity, flags,
//! keys), access control (categories), COMMAND (everything) and the documentation read it.
//!
//! A record is a `static` above its handler. `H` is the handler's type: [`crate::Handler`] for
//! commands on keys, [`crate::Walker`] for commands on whole databases. A crate that owns other
//! commands has its own handler type. [`Command::map`] converts records to another handler type, so
//! that one table can hold all commands.

use bitflags::bitflags;

use crate::record::forms::{KnownSince, RecordedForm};

/// The record of one command or subcommand in the command table.
#[derive(Clone, Copy)]
pub struct Command<H: 'static = crate::Handler> {
    /// The name in upper case; for a subcommand its second word (`LIST` of `CLIENT LIST`).
    pub name: &'static str,
    /// The summary of the command, one line, for COMMAND DOCS and the documentation.
    pub summary: &'static str,
    /// The versions of Redis and Valkey that have the command, with their changes to it.
    pub history: History,
    /// The command's group in COMMAND DOCS: `string`, `sorted-set`, `connection`, …
    pub group: Group,
    /// The time complexity of the command, as COMMAND DOCS reports it.
    pub complexity: &'static str,
    /// The number of arguments, the command's name included.
    pub arity: Arity,
    /// The properties of the command, such as that it may write.
    pub flags: Flags,
    /// The access-control categories of the command except FAST and SLOW, which follow from the
    /// flags.
    pub acl: Acl,
    /// The places of the command's keys among its arguments, and its use of them.
    pub keys: &'static [KeySpec],
    /// The hints for clients of a cluster, as COMMAND INFO reports them.
    pub tips: &'static [&'static str],
    /// The arguments of the command, for COMMAND DOCS.
    pub args: &'static [Arg],
    /// The forms of the command that Redis 6.2 or Valkey 7.2 does not know. Each form states the
    /// servers that can apply it, or that it is never recorded.
    pub recorded_forms: &'static [RecordedForm],
    /// The subcommands of a container command. The container's own `run` replies to an unknown
    /// subcommand.
    pub subcommands: &'static [&'static Command<H>],
    /// The function that runs the command, its handler.
    pub run: H,
}

/// A type of the functions that run commands. Each crate that owns commands has one or more.
pub trait Run: Copy + 'static {
    /// The handler in [`Command::DEFAULT`]. It is a placeholder: every command's record replaces it
    /// with its own handler.
    const UNNAMED: Self;
}

impl Run for crate::Handler {
    const UNNAMED: Self = |_, _| Err(crate::CommandError::Line("ERR this command has no handler"));
}

impl Run for crate::Walker {
    const UNNAMED: Self = |_, _| Err(crate::CommandError::Line("ERR this command has no handler"));
}

impl<H: Run> Command<H> {
    /// The defaults of a command's record: no keys, no tips, no documented arguments, no recorded
    /// forms newer than Redis 6.2, no subcommands.
    pub const DEFAULT: Self = Command {
        name: "",
        summary: "",
        history: History::since(""),
        group: Group::Generic,
        complexity: "",
        arity: Arity::AtLeast(1),
        flags: Flags::empty(),
        acl: Acl::empty(),
        keys: &[],
        tips: &[],
        args: &[],
        recorded_forms: &[],
        subcommands: &[],
        run: H::UNNAMED,
    };

    /// The defaults of a HELP subcommand's record, which adds only its group and handler.
    pub const HELP: Self = Command {
        name: "HELP",
        summary: "Lists the subcommands.",
        history: History::since("5.0.0"),
        complexity: "O(1)",
        arity: Arity::Exactly(2),
        flags: Flags::LOADING.union(Flags::STALE),
        ..Self::DEFAULT
    };
}

impl<H: Copy> Command<H> {
    /// Returns the same command record with handlers of another type: `run` converts each of them.
    /// Used to join the tables of several crates at the start: the subcommands of the result are
    /// leaked.
    pub fn map<T: Copy + 'static>(&self, run: impl Fn(H) -> T + Copy) -> Command<T> {
        let subcommands = self.subcommands.iter().map(|sub| &*Box::leak(Box::new(sub.map(run))));
        Command {
            name: self.name,
            summary: self.summary,
            history: self.history,
            group: self.group,
            complexity: self.complexity,
            arity: self.arity,
            flags: self.flags,
            acl: self.acl,
            keys: self.keys,
            tips: self.tips,
            args: self.args,
            recorded_forms: self.recorded_forms,
            subcommands: Box::leak(subcommands.collect()),
            run: run(self.run),
        }
    }

    /// Returns the same command record with `run` as its handler. The container command that the
    /// result belongs to is in another crate, which has its own handler type.
    ///
    /// # Panics
    /// If the record has subcommands.
    pub const fn run_by<T: 'static>(&self, run: T) -> Command<T> {
        assert!(self.subcommands.is_empty());
        Command {
            name: self.name,
            summary: self.summary,
            history: self.history,
            group: self.group,
            complexity: self.complexity,
            arity: self.arity,
            flags: self.flags,
            acl: self.acl,
            keys: self.keys,
            tips: self.tips,
            args: self.args,
            recorded_forms: self.recorded_forms,
            subcommands: &[],
            run,
        }
    }

    /// Returns true if a request of this command with these arguments runs as the exclusive owner
    /// of the keyspace.
    #[inline]
    pub fn runs_alone(&self, args: &crate::Args<'_>) -> bool {
        self.flags.intersects(Flags::EXCLUSIVE | Flags::PATTERN_KEYS)
            && (self.flags.contains(Flags::EXCLUSIVE) || names_keys_by_pattern(args))
    }

    /// Returns true if the command takes this number of arguments, the name included.
    #[inline]
    pub const fn accepts(&self, argument_count: usize) -> bool {
        match self.arity {
            Arity::Exactly(count) => argument_count == count as usize,
            Arity::AtLeast(count) => argument_count >= count as usize,
        }
    }

    /// Returns the first versions of Redis and Valkey that can apply a recorded form of this
    /// command. `words` are the recorded command's words, its name included. O(words × forms).
    pub fn known_since<'w>(&self, words: impl Iterator<Item = &'w [u8]> + Clone) -> KnownSince {
        let name = words.clone().nth(1).filter(|_| !self.subcommands.is_empty());
        let named = |sub: &&&Self| name.is_some_and(|name| name.eq_ignore_ascii_case(sub.name.as_bytes()));
        let forms = self.subcommands.iter().find(named).map_or(&[][..], |sub| sub.recorded_forms);
        let marked = self.recorded_forms.iter().chain(forms);
        let known = marked.filter(|form| form.is_form_of(words.clone())).filter_map(|form| form.known);
        known.fold(KnownSince::ALL, KnownSince::and)
    }

    /// Returns all access-control categories of the command, FAST or SLOW included.
    pub fn categories(&self) -> Acl {
        self.acl | if self.flags.contains(Flags::FAST) { Acl::FAST } else { Acl::SLOW }
    }

    /// Returns the indexes of the first key and the last key and the step between keys, as COMMAND
    /// reports them. Three numbers cannot describe all keys of some commands: see
    /// [`Command::has_movable_keys`].
    pub fn legacy_key_range(&self) -> (i64, i64, i64) {
        self.legacy_keys().0
    }

    /// Returns true if [`Command::legacy_key_range`] may miss keys: clients know this as
    /// `movablekeys`.
    pub fn has_movable_keys(&self) -> bool {
        self.legacy_keys().1
    }

    /// Returns the range of keys that COMMAND reports (first, last, step), and true if the range
    /// misses keys. A single key spec with a range is reported as it is. If there are several
    /// specs, adjacent ones are joined into one range, and the others are missed.
    fn legacy_keys(&self) -> ((i64, i64, i64), bool) {
        if let [KeySpec { begin: Begin::Index(first), find: Find::Range { last, step, .. }, flags, .. }] =
            self.keys
        {
            let first = i64::from(*first);
            let last = if *last < 0 { i64::from(*last) } else { first + i64::from(*last) };
            return ((first, last, i64::from(*step)), flags.contains(KeyFlags::INCOMPLETE));
        }
        let (mut range, mut missed) = (None, false);
        for spec in self.keys {
            let (Begin::Index(at), Find::Range { last, step: 1, .. }) = (spec.begin, spec.find) else {
                missed = true;
                continue;
            };
            let at = i64::from(at);
            if range.is_some_and(|(_, end)| end != at - 1) {
                missed = true;
                continue;
            }
            let end = if last < 0 { i64::from(last) } else { at + i64::from(last) };
            range = Some((range.map_or(at, |(first, _)| first), end));
            missed |= spec.flags.contains(KeyFlags::INCOMPLETE);
        }
        (range.map_or((0, 0, 0), |(first, last)| (first, last, 1)), missed)
    }
}

/// Returns true if a request of a command with [`Flags::PATTERN_KEYS`] may use keys that no
/// argument names: an argument from index 2 on contains `*`.
fn names_keys_by_pattern(args: &crate::Args<'_>) -> bool {
    args.from(2).any(|arg| arg.contains(&b'*'))
}

/// The number of arguments that a command takes, its name included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arity {
    /// The command takes exactly this number of arguments.
    Exactly(u8),
    /// The command takes this number of arguments or more.
    AtLeast(u8),
}

impl Arity {
    /// Returns the arity as the number that COMMAND reports: negative for "at least".
    pub const fn as_number(self) -> i64 {
        match self {
            Arity::Exactly(count) => count as i64,
            Arity::AtLeast(count) => -(count as i64),
        }
    }
}

/// The server whose version introduced or changed a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A version of Redis.
    Redis,
    /// A version of Valkey.
    Valkey,
    /// A version of Saker, for commands that neither Redis nor Valkey has.
    Saker,
}

impl Origin {
    /// Returns the name of the server as documents write it.
    pub const fn name(self) -> &'static str {
        match self {
            Origin::Redis => "Redis",
            Origin::Valkey => "Valkey",
            Origin::Saker => "Saker",
        }
    }
}

/// A version of a server, and a few words about its change to a command.
pub type Change = (&'static str, &'static str);

/// The history of a command in versions of Redis and Valkey. Most commands have a first version
/// only: `History::since("1.0.0")`.
#[derive(Clone, Copy, Debug)]
pub struct History {
    /// The first version of the server that has the command.
    pub since: &'static str,
    /// The server whose version [`History::since`] is.
    pub origin: Origin,
    /// The versions of Redis that changed the command's arguments, reply or effect, oldest first.
    pub changes: &'static [Change],
    /// The versions of Valkey that changed the command's arguments, reply or effect, oldest first.
    pub valkey_changes: &'static [Change],
    /// The version that deprecated the command, and the command's replacement; `None` if it is not
    /// deprecated.
    pub deprecated: Option<Deprecated>,
}

impl History {
    /// Returns the history of a command that exists since this version of Redis.
    pub const fn since(version: &'static str) -> Self {
        History { since: version, origin: Origin::Redis, changes: &[], valkey_changes: &[], deprecated: None }
    }
    /// Returns the history of a command that exists since this version of Valkey.
    pub const fn since_valkey(version: &'static str) -> Self {
        History { origin: Origin::Valkey, ..Self::since(version) }
    }
    /// Returns the history of a command that neither Redis nor Valkey has. COMMAND DOCS reports it
    /// as introduced in 8.0.0, the version of Redis that Saker itself reports.
    pub const fn only_here() -> Self {
        History { origin: Origin::Saker, ..Self::since("8.0.0") }
    }
    /// Sets the versions of Redis that changed the command. The words about a change follow a
    /// pattern: `takes GET`, `takes several keys`, `returns user`.
    pub const fn changed(self, changes: &'static [Change]) -> Self {
        History { changes, ..self }
    }
    /// Sets the versions of Valkey that changed the command.
    pub const fn changed_by_valkey(self, valkey_changes: &'static [Change]) -> Self {
        History { valkey_changes, ..self }
    }
    /// Returns all changes to the command with the server of their version, changes of Redis first.
    pub fn all_changes(&self) -> impl Iterator<Item = (Origin, Change)> {
        let of = |origin| move |change: &Change| (origin, *change);
        self.changes.iter().map(of(Origin::Redis)).chain(self.valkey_changes.iter().map(of(Origin::Valkey)))
    }
    /// Sets the version that deprecated the command, and the command's replacement in the words of
    /// COMMAND DOCS.
    pub const fn deprecated(self, since: &'static str, replaced_by: &'static str) -> Self {
        History { deprecated: Some(Deprecated { since, replaced_by }), ..self }
    }
}

/// The deprecation of a command: its version and the replacement.
#[derive(Clone, Copy, Debug)]
pub struct Deprecated {
    /// The version of the server that deprecated the command.
    pub since: &'static str,
    /// The replacement of the deprecated command, in the words of COMMAND DOCS.
    pub replaced_by: &'static str,
}

/// A group of commands in COMMAND DOCS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // the names say it all
pub enum Group {
    Generic,
    String,
    List,
    Set,
    SortedSet,
    Hash,
    Stream,
    Bitmap,
    Hyperloglog,
    Geo,
    Pubsub,
    Transactions,
    Connection,
    Server,
    Scripting,
    Cluster,
    VectorSet,
    Array,
}

impl Group {
    /// Returns the name of the group as COMMAND DOCS writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Group::Generic => "generic",
            Group::String => "string",
            Group::List => "list",
            Group::Set => "set",
            Group::SortedSet => "sorted-set",
            Group::Hash => "hash",
            Group::Stream => "stream",
            Group::Bitmap => "bitmap",
            Group::Hyperloglog => "hyperloglog",
            Group::Geo => "geo",
            Group::Pubsub => "pubsub",
            Group::Transactions => "transactions",
            Group::Connection => "connection",
            Group::Server => "server",
            Group::Scripting => "scripting",
            Group::Cluster => "cluster",
            Group::VectorSet => "vector_set",
            Group::Array => "array",
        }
    }
}

bitflags! {
    /// The properties of a command. The names and their order are those of COMMAND INFO.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Flags: u32 {
        /// The command may change the data.
        const WRITE = 1 << 0;
        /// The command only reads the data.
        const READONLY = 1 << 1;
        /// The command is rejected while memory is over its limit.
        const DENYOOM = 1 << 2;
        /// The command administers the server.
        const ADMIN = 1 << 3;
        /// The command works on channels.
        const PUBSUB = 1 << 4;
        /// The command is not allowed in scripts.
        const NOSCRIPT = 1 << 5;
        /// The command may block its client.
        const BLOCKING = 1 << 6;
        /// The command is allowed while data is being loaded.
        const LOADING = 1 << 7;
        /// The command is allowed on a replica that lost its primary.
        const STALE = 1 << 8;
        /// The command is not shown to clients that sent MONITOR.
        const SKIP_MONITOR = 1 << 9;
        /// The command is not logged in the slow log.
        const SKIP_SLOWLOG = 1 << 10;
        /// The command runs as if the client had sent ASKING first: a cluster node accepts the
        /// command for a slot that the node is importing.
        const ASKING = 1 << 11;
        /// The command takes constant or logarithmic time.
        const FAST = 1 << 12;
        /// The command is allowed before authentication.
        const NO_AUTH = 1 << 13;
        /// The command may be replicated although it is not a write.
        const MAY_REPLICATE = 1 << 14;
        /// The command needs no key: all its keys are optional.
        const NO_MANDATORY_KEYS = 1 << 15;
        /// The command is not allowed while a replica loads data in the background.
        const NO_ASYNC_LOADING = 1 << 16;
        /// The command is not allowed in transactions.
        const NO_MULTI = 1 << 17;
        /// The command is allowed while a script runs for too long.
        const ALLOW_BUSY = 1 << 18;
        /// The command runs as the exclusive owner of the keyspace: no other command runs
        /// meanwhile.
        const EXCLUSIVE = 1 << 19;
        /// The command uses keys that its arguments name by patterns. A request with patterns runs
        /// with all shards locked, as with EXCLUSIVE.
        const PATTERN_KEYS = 1 << 20;
        /// The command is used between servers and in tests. COMMAND DOCS marks it as `syscmd`.
        const INTERNAL = 1 << 21;
        /// The command begins or ends subscriptions. Its replies are messages, which CLIENT REPLY
        /// cannot turn off.
        const SUBSCRIPTION = 1 << 22;
        /// The command is allowed for subscribers that speak RESP2 although it does not change
        /// subscriptions.
        const FOR_SUBSCRIBERS = 1 << 23;
        /// The command runs at once between MULTI and EXEC, instead of being queued.
        const UNQUEUED = 1 << 24;
        /// The command inspects the storage of a key. This does not count as a use of the key.
        const INSPECTS_KEYS = 1 << 25;
        /// The command takes a short time if called with few arguments, although Redis does not
        /// mark it as fast.
        const SHORT = 1 << 26;
        /// The command does not use up the effect of CLIENT CACHING, which then applies to the next
        /// command.
        const KEEPS_CACHING = 1 << 27;
    }

    /// The access-control categories, in the order in which Redis lists them.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Acl: u32 {
        /// `@keyspace`: commands on keys of any type or on whole databases.
        const KEYSPACE = 1 << 0;
        /// `@read`: commands that read data.
        const READ = 1 << 1;
        /// `@write`: commands that may change data.
        const WRITE = 1 << 2;
        /// `@set`: commands on sets.
        const SET = 1 << 3;
        /// `@sortedset`: commands on sorted sets.
        const SORTEDSET = 1 << 4;
        /// `@list`: commands on lists.
        const LIST = 1 << 5;
        /// `@hash`: commands on hashes.
        const HASH = 1 << 6;
        /// `@string`: commands on strings.
        const STRING = 1 << 7;
        /// `@bitmap`: commands on the bits of strings.
        const BITMAP = 1 << 8;
        /// `@hyperloglog`: commands on HyperLogLogs.
        const HYPERLOGLOG = 1 << 9;
        /// `@geo`: commands on positions in sorted sets.
        const GEO = 1 << 10;
        /// `@stream`: commands on streams.
        const STREAM = 1 << 11;
        /// `@pubsub`: commands on channels and subscriptions.
        const PUBSUB = 1 << 12;
        /// `@admin`: administrative commands.
        const ADMIN = 1 << 13;
        /// `@fast`: commands with the flag FAST.
        const FAST = 1 << 14;
        /// `@slow`: commands without the flag FAST.
        const SLOW = 1 << 15;
        /// `@blocking`: commands that may block their client.
        const BLOCKING = 1 << 16;
        /// `@dangerous`: commands that may be slow, destroy data or affect other clients.
        const DANGEROUS = 1 << 17;
        /// `@connection`: commands on the client's connection or on other connections.
        const CONNECTION = 1 << 18;
        /// `@transaction`: MULTI, EXEC, WATCH and related commands.
        const TRANSACTION = 1 << 19;
        /// `@scripting`: commands on scripts and functions.
        const SCRIPTING = 1 << 20;
        /// `@array`: commands on arrays.
        const ARRAY = 1 << 21;
    }

    /// The use of a key by a command, with the names of COMMAND INFO.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct KeyFlags: u32 {
        /// The command changes the key's value and depends on the old value.
        const RW = 1 << 0;
        /// The command reads the key's value.
        const RO = 1 << 1;
        /// The command overwrites the key's value without using the old value.
        const OW = 1 << 2;
        /// The command removes the key.
        const RM = 1 << 3;
        /// The command returns or copies user data of the key.
        const ACCESS = 1 << 4;
        /// The command changes user data of the key.
        const UPDATE = 1 << 5;
        /// The command adds user data to the key without changing its present data.
        const INSERT = 1 << 6;
        /// The command removes user data from the key.
        const DELETE = 1 << 7;
        /// The argument names no key, but is routed like a key.
        const NOT_KEY = 1 << 8;
        /// The key spec may miss some of the command's keys.
        const INCOMPLETE = 1 << 9;
        /// The flags of the key depend on the command's arguments (`variable_flags`).
        const VARIABLE_FLAGS = 1 << 10;
    }
}

impl Flags {
    /// The flags that COMMAND INFO does not report.
    const UNNAMED: Self = Self::EXCLUSIVE
        .union(Self::PATTERN_KEYS)
        .union(Self::MAY_REPLICATE)
        .union(Self::INTERNAL)
        .union(Self::SUBSCRIPTION)
        .union(Self::FOR_SUBSCRIBERS)
        .union(Self::UNQUEUED)
        .union(Self::INSPECTS_KEYS)
        .union(Self::SHORT)
        .union(Self::KEEPS_CACHING);
}

/// Returns the names of a command's flags as COMMAND INFO writes them: lower case, in the order of
/// the bits.
pub fn flag_names(flags: Flags) -> impl Iterator<Item = String> {
    (flags - Flags::UNNAMED).iter_names().map(|(name, _)| name.to_ascii_lowercase())
}

/// Returns the names of access-control categories as COMMAND INFO writes them, with their `@`.
pub fn category_names(acl: Acl) -> impl Iterator<Item = String> {
    acl.iter_names().map(|(name, _)| format!("@{}", name.to_ascii_lowercase()))
}

/// The positions of some of a command's keys among its arguments, and the command's use of these
/// keys.
#[derive(Clone, Copy, Debug)]
pub struct KeySpec {
    /// The use that the command makes of the keys.
    pub flags: KeyFlags,
    /// The argument at which the search for keys starts.
    pub begin: Begin,
    /// The positions of the keys relative to the argument at which the search starts.
    pub find: Find,
    /// The function that finds the keys that the handler uses; `None` if `begin` and `find` can
    /// describe them. With a function, `begin` and `find` are only for COMMAND and equal those of
    /// Redis.
    pub found_by: Option<KeyFinder>,
    /// A remark on the keys, as COMMAND DOCS gives it.
    pub notes: &'static str,
}

/// A function that calls its second parameter with the argument index of every key that a handler
/// uses. It is a part of the handler's argument parsing.
pub type KeyFinder = fn(&crate::Args<'_>, &mut dyn FnMut(usize));

impl KeySpec {
    /// Returns the key spec of one key at this argument (1 is the first after the name).
    pub const fn at(index: u8, flags: KeyFlags) -> Self {
        Self::range(index, 0, 1, flags)
    }

    /// Returns the key spec of every `step`-th argument, from `first` to the last.
    pub const fn from(first: u8, step: u8, flags: KeyFlags) -> Self {
        Self::range(first, -1, step, flags)
    }

    /// Returns the key spec of every `step`-th argument from `first` to `last`. `last` is relative
    /// to `first`, or to the end of the arguments if negative.
    pub const fn range(first: u8, last: i8, step: u8, flags: KeyFlags) -> Self {
        let find = Find::Range { last, step, limit: 0 };
        Self { begin: Begin::Index(first), find, ..Self::unknown(flags) }
    }

    /// Returns the key spec of counted keys. Argument `begin + keynum` is the number of keys, and
    /// argument `begin + first` is the first key.
    pub const fn counted(begin: u8, keynum: u8, first: u8, flags: KeyFlags) -> Self {
        let find = Find::KeyNum { keynum, first, step: 1 };
        Self { begin: Begin::Index(begin), find, ..Self::unknown(flags) }
    }

    /// Returns the key spec of counted keys like [`KeySpec::counted`], but with a value after every
    /// key.
    pub const fn counted_pairs(begin: u8, keynum: u8, first: u8, flags: KeyFlags) -> Self {
        let find = Find::KeyNum { keynum, first, step: 2 };
        Self { begin: Begin::Index(begin), find, ..Self::unknown(flags) }
    }

    /// Returns the key spec of keys after a keyword. The search for the keyword starts at argument
    /// `start`, counted from the end if negative. `last` and `limit` are those of [`Find::Range`].
    pub const fn keyword(keyword: &'static str, start: i8, last: i8, limit: u8, flags: KeyFlags) -> Self {
        let find = Find::Range { last, step: 1, limit };
        Self { begin: Begin::Keyword { keyword, start }, find, ..Self::unknown(flags) }
    }

    /// Returns the key spec of keys that only the command's own code can find.
    pub const fn unknown(flags: KeyFlags) -> Self {
        Self { flags, begin: Begin::Unknown, find: Find::Unknown, found_by: None, notes: "" }
    }

    /// Returns the same key spec with `found_by` as the function that finds the handler's keys.
    pub const fn found_by(self, found_by: KeyFinder) -> Self {
        Self { found_by: Some(found_by), ..self }
    }

    /// Returns the same key spec with a remark for COMMAND DOCS.
    pub const fn noting(self, notes: &'static str) -> Self {
        Self { notes, ..self }
    }
}

/// The argument at which the search for a command's keys starts.
#[derive(Clone, Copy, Debug)]
pub enum Begin {
    /// The search for keys starts at the argument with this index.
    Index(u8),
    /// The search for keys starts at the argument after a keyword. The search for the word starts
    /// at argument `start`, counted from the end if negative.
    Keyword {
        /// The keyword, in upper case.
        keyword: &'static str,
        /// The index of the argument at which the search for the word starts, counted from the end
        /// if negative.
        start: i8,
    },
    /// The search for keys starts at an argument that only the command's own code can find.
    Unknown,
}

/// The positions of a command's keys relative to the start of the search, which [`Begin`] gives.
#[derive(Clone, Copy, Debug)]
pub enum Find {
    /// The keys are every `step`-th argument from the start to `last`. `last` is relative to the
    /// start, or to the end of the arguments if negative. If `last` is negative and `limit` is 2 or
    /// more, only the first `1 / limit` of the remaining arguments are keys. In XREAD, for example,
    /// one ID follows for each key.
    Range {
        /// The index of the last key: relative to the start of the search, or to the end of the
        /// arguments if negative.
        last: i8,
        /// The distance from one key to the next, in arguments.
        step: u8,
        /// The divisor of the number of remaining arguments; 0 and 1 have no effect.
        limit: u8,
    },
    /// The arguments are a number of keys, and that number of keys after it.
    KeyNum {
        /// The index of the argument with the number of keys, relative to the start of the search.
        keynum: u8,
        /// The index of the argument that is the first key, relative to the start of the search.
        first: u8,
        /// The distance from one key to the next, in arguments.
        step: u8,
    },
    /// The keys are at positions that only the command's own code can find.
    Unknown,
}

/// An argument of a command, as COMMAND DOCS describes it.
#[derive(Clone, Copy, Debug)]
pub struct Arg {
    /// The name of the argument in the syntax line.
    pub name: &'static str,
    /// The kind of the argument, such as integer or key.
    pub kind: ArgKind,
    /// The word before the argument, such as COUNT; `None` if there is no such word.
    pub token: Option<&'static str>,
    /// The first version of Redis that has the argument; `None` if that is the command's first
    /// version.
    pub since: Option<&'static str>,
    /// The version of Redis that deprecated the argument; `None` if it is not deprecated.
    pub deprecated_since: Option<&'static str>,
    /// True if the argument may be left out.
    pub optional: bool,
    /// True if the argument may be repeated.
    pub multiple: bool,
    /// True if the argument's token is repeated with the argument.
    pub multiple_token: bool,
    /// The index of the key spec that finds the argument; `None` if the argument is not a key.
    pub key_spec: Option<u8>,
    /// `display_text` of COMMAND DOCS: the text that stands for the argument in the command's
    /// syntax; `None` if `name` does.
    pub shown_as: Option<&'static str>,
    /// The choices of a `OneOf`, or the parts of a `Block`; empty for other kinds.
    pub args: &'static [Arg],
}

/// The kind of a documented argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // named as in COMMAND DOCS
pub enum ArgKind {
    String,
    Integer,
    Double,
    Key,
    Pattern,
    UnixTime,
    PureToken,
    OneOf,
    Block,
}

impl ArgKind {
    /// Returns the name of the argument's kind as COMMAND DOCS writes it.
    pub const fn name(self) -> &'static str {
        match self {
            ArgKind::String => "string",
            ArgKind::Integer => "integer",
            ArgKind::Double => "double",
            ArgKind::Key => "key",
            ArgKind::Pattern => "pattern",
            ArgKind::UnixTime => "unix-time",
            ArgKind::PureToken => "pure-token",
            ArgKind::OneOf => "oneof",
            ArgKind::Block => "block",
        }
    }
}

impl Arg {
    const fn new(name: &'static str, kind: ArgKind) -> Self {
        Arg {
            name,
            kind,
            token: None,
            since: None,
            deprecated_since: None,
            optional: false,
            multiple: false,
            multiple_token: false,
            key_spec: None,
            shown_as: None,
            args: &[],
        }
    }
    /// Creates the description of an argument of any bytes, for COMMAND DOCS.
    pub const fn string(name: &'static str) -> Self {
        Self::new(name, ArgKind::String)
    }
    /// Creates the description of an argument that is an integer.
    pub const fn integer(name: &'static str) -> Self {
        Self::new(name, ArgKind::Integer)
    }
    /// Creates the description of an argument that is a floating-point number.
    pub const fn double(name: &'static str) -> Self {
        Self::new(name, ArgKind::Double)
    }
    /// Creates the description of an argument that is a key, found by the command's key spec with
    /// the index `key_spec`.
    pub const fn key(name: &'static str, key_spec: u8) -> Self {
        Arg { key_spec: Some(key_spec), ..Self::new(name, ArgKind::Key) }
    }
    /// Creates the description of an argument that is a glob pattern.
    pub const fn pattern(name: &'static str) -> Self {
        Self::new(name, ArgKind::Pattern)
    }
    /// Creates the description of an argument that is a Unix time.
    pub const fn unix_time(name: &'static str) -> Self {
        Self::new(name, ArgKind::UnixTime)
    }
    /// Creates the description of an argument that is only a fixed word, the token.
    pub const fn word(name: &'static str, token: &'static str) -> Self {
        Self::new(name, ArgKind::PureToken).token(token)
    }
    /// Creates the description of an argument that is one of several choices.
    pub const fn one_of(name: &'static str, args: &'static [Arg]) -> Self {
        Arg { args, ..Self::new(name, ArgKind::OneOf) }
    }
    /// Creates the description of an argument that is several arguments in a row.
    pub const fn block(name: &'static str, args: &'static [Arg]) -> Self {
        Arg { args, ..Self::new(name, ArgKind::Block) }
    }
    /// Sets the token: the word before the argument, such as COUNT.
    pub const fn token(self, token: &'static str) -> Self {
        Arg { token: Some(token), ..self }
    }
    /// Sets the text that stands for the argument in the command's syntax line.
    pub const fn shown_as(self, text: &'static str) -> Self {
        Arg { shown_as: Some(text), ..self }
    }
    /// Sets the first version of Redis that has the argument.
    pub const fn since(self, version: &'static str) -> Self {
        Arg { since: Some(version), ..self }
    }
    /// Sets the version of Redis that deprecated the argument.
    pub const fn deprecated_since(self, version: &'static str) -> Self {
        Arg { deprecated_since: Some(version), ..self }
    }
    /// Sets the index of the key spec that finds the keys which the argument names.
    pub const fn of_key_spec(self, key_spec: u8) -> Self {
        Arg { key_spec: Some(key_spec), ..self }
    }
    /// Marks the argument as optional.
    pub const fn optional(self) -> Self {
        Arg { optional: true, ..self }
    }
    /// Marks the argument as repeatable.
    pub const fn multiple(self) -> Self {
        Arg { multiple: true, ..self }
    }
    /// Marks the argument as repeatable together with its token.
    pub const fn multiple_token(self) -> Self {
        Arg { multiple: true, multiple_token: true, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::CommandError;

    fn check(keys: &[KeySpec], range: (i64, i64, i64), movable: bool) {
        fn run(_: &mut crate::Ctx<'_>, _: &crate::Args<'_>) -> Result<(), CommandError> {
            Ok(())
        }
        let command: Command = Command {
            name: "TEST",
            summary: "",
            history: History::since("1.0.0"),
            group: Group::Generic,
            complexity: "",
            arity: Arity::AtLeast(1),
            flags: Flags::empty(),
            acl: Acl::empty(),
            keys: keys.to_vec().leak(),
            run,
            ..Command::DEFAULT
        };
        assert_eq!((command.legacy_key_range(), command.has_movable_keys()), (range, movable), "{keys:?}");
    }

    #[test]
    fn three_numbers_tell_what_key_ranges_they_can() {
        const RW: KeyFlags = KeyFlags::RW;
        check(&[], (0, 0, 0), false);
        check(&[KeySpec::at(1, RW)], (1, 1, 1), false);
        check(&[KeySpec::from(1, 2, RW)], (1, -1, 2), false);
        check(&[KeySpec::range(1, -2, 1, RW)], (1, -2, 1), false);
        // RENAME, SINTERSTORE: neighbours make one range.
        check(&[KeySpec::at(1, RW), KeySpec::at(2, RW)], (1, 2, 1), false);
        check(&[KeySpec::at(1, RW), KeySpec::from(2, 1, RW)], (1, -1, 1), false);
        // ZUNIONSTORE, SORT, LMPOP: the range misses some keys.
        check(&[KeySpec::at(1, RW), KeySpec::counted(2, 0, 1, RW)], (1, 1, 1), true);
        check(&[KeySpec::at(1, RW), KeySpec::unknown(RW)], (1, 1, 1), true);
        check(&[KeySpec::counted(1, 0, 1, RW)], (0, 0, 0), true);
        check(&[KeySpec::at(1, RW.union(KeyFlags::INCOMPLETE))], (1, 1, 1), true);
    }
}
