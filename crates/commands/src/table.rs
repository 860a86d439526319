//! What a command is: one record with everything that is known about it, read by dispatch (arity,
//! flags, keys), by access control (categories), by COMMAND (all of it) and by the documentation.
//!
//! A record is a `static` above its handler. `H` is the handler's type: commands on keys
//! (this crate) get a [`crate::Ctx`], those on whole databases are [`crate::Walker`]s; a
//! crate that owns other commands brings its own handler type. [`Command::map`] joins tables
//! of several types into one.

use bitflags::bitflags;

/// Everything known about one command or subcommand.
#[derive(Clone, Copy)]
pub struct Command<H: 'static = crate::Handler> {
    /// The name in upper case; a subcommand's is its second word (`LIST` of `CLIENT LIST`).
    pub name: &'static str,
    /// One line for COMMAND DOCS and the documentation.
    pub summary: &'static str,
    /// Which versions of Redis have it, and what they changed.
    pub history: History,
    /// The group COMMAND DOCS names: `string`, `sorted-set`, `connection`, …
    pub group: Group,
    /// What it costs.
    pub complexity: &'static str,
    /// How many arguments it takes, the command's name included.
    pub arity: Arity,
    /// How it behaves.
    pub flags: Flags,
    /// Access-control categories beside FAST or SLOW, which follow from the flags.
    pub acl: Acl,
    /// Where its keys are and what it does with them.
    pub keys: &'static [KeySpec],
    /// Hints for clients of a cluster, as COMMAND INFO gives them.
    pub tips: &'static [&'static str],
    /// Its arguments, for COMMAND DOCS.
    pub args: &'static [Arg],
    /// Its subcommands. A container's own `run` answers an unknown one.
    pub subcommands: &'static [&'static Command<H>],
    /// What runs it.
    pub run: H,
}

/// What runs a command: the handler type of the crate that owns the command.
pub trait Run: Copy + 'static {
    /// The handler of [`Command::DEFAULT`]; a record names its own.
    const UNNAMED: Self;
}

impl Run for crate::Handler {
    const UNNAMED: Self = |_, _| Err(crate::CommandError::Line("ERR this command has no handler"));
}

impl Run for crate::Walker {
    const UNNAMED: Self = |_, _| Err(crate::CommandError::Line("ERR this command has no handler"));
}

impl<H: Run> Command<H> {
    /// What a record leaves out: no keys, no tips, no documented arguments, no subcommands.
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
        subcommands: &[],
        run: H::UNNAMED,
    };
}

impl<H: Copy> Command<H> {
    /// The same record with another kind of handler, so that tables of
    /// several crates can be joined.
    /// Meant for start-up: the subcommands of the result are leaked.
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
            subcommands: Box::leak(subcommands.collect()),
            run: run(self.run),
        }
    }

    /// The same record for the container of another crate, run by that crate's kind of handler. For
    /// records without subcommands.
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
            subcommands: &[],
            run,
        }
    }

    /// Whether a request with these arguments has the keyspace to itself, whatever
    /// its command is run by.
    #[inline]
    pub fn runs_alone(&self, args: &crate::Args<'_>) -> bool {
        self.flags.intersects(Flags::EXCLUSIVE | Flags::PATTERN_KEYS)
            && (self.flags.contains(Flags::EXCLUSIVE) || names_keys_by_pattern(args))
    }

    /// Whether the arguments, name included, are as many as the command takes.
    #[inline]
    pub const fn accepts(&self, argument_count: usize) -> bool {
        match self.arity {
            Arity::Exactly(count) => argument_count == count as usize,
            Arity::AtLeast(count) => argument_count >= count as usize,
        }
    }

    /// All access-control categories, FAST or SLOW included.
    pub fn categories(&self) -> Acl {
        self.acl | if self.flags.contains(Flags::FAST) { Acl::FAST } else { Acl::SLOW }
    }

    /// First key, last key and step as COMMAND gives them: what can be said with three numbers.
    pub fn legacy_key_range(&self) -> (i64, i64, i64) {
        self.legacy_keys().0
    }

    /// Whether [`Command::legacy_key_range`] may miss keys: what clients know as `movablekeys`.
    pub fn has_movable_keys(&self) -> bool {
        self.legacy_keys().1
    }

    /// The legacy range, and whether it misses keys. A single range is told as it is; of several,
    /// those that follow one another key by key make one range, the others are missed.
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

/// Whether a request whose record has [`Flags::PATTERN_KEYS`] may look up keys
/// that no argument names.
fn names_keys_by_pattern(args: &crate::Args<'_>) -> bool {
    args.from(2).any(|arg| arg.contains(&b'*'))
}

/// How many arguments a command takes, its name included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arity {
    /// This many.
    Exactly(u8),
    /// This many or more.
    AtLeast(u8),
}

impl Arity {
    /// As COMMAND gives it: negative for "at least".
    pub const fn as_number(self) -> i64 {
        match self {
            Arity::Exactly(count) => count as i64,
            Arity::AtLeast(count) => -(count as i64),
        }
    }
}

/// The server whose version numbers a version belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Redis.
    Redis,
    /// Valkey.
    Valkey,
    /// Saker: neither of them has it.
    Saker,
}

impl Origin {
    /// As documents write it.
    pub const fn name(self) -> &'static str {
        match self {
            Origin::Redis => "Redis",
            Origin::Valkey => "Valkey",
            Origin::Saker => "Saker",
        }
    }
}

/// A version, and what it changed in a few words.
pub type Change = (&'static str, &'static str);

/// A command's life in versions of Redis and Valkey. Most commands have a first version only:
/// `History::since("1.0.0")`.
#[derive(Clone, Copy, Debug)]
pub struct History {
    /// The first version that has it.
    pub since: &'static str,
    /// Whose version that is.
    pub origin: Origin,
    /// The versions of Redis that changed what it takes, replies or does, oldest first.
    pub changes: &'static [Change],
    /// The same of Valkey.
    pub valkey_changes: &'static [Change],
    /// Since when it is deprecated, and what replaces it.
    pub deprecated: Option<Deprecated>,
}

impl History {
    /// There since this version of Redis.
    pub const fn since(version: &'static str) -> Self {
        History { since: version, origin: Origin::Redis, changes: &[], valkey_changes: &[], deprecated: None }
    }
    /// There since this version of Valkey.
    pub const fn since_valkey(version: &'static str) -> Self {
        History { origin: Origin::Valkey, ..Self::since(version) }
    }
    /// Neither Redis nor Valkey has it. COMMAND DOCS says 8.0.0, the version of
    /// Redis that Saker reports.
    pub const fn only_here() -> Self {
        History { origin: Origin::Saker, ..Self::since("8.0.0") }
    }
    /// Changed by these versions of Redis. The words follow a pattern: `takes GET`,
    /// `takes several keys`, `returns user`.
    pub const fn changed(self, changes: &'static [Change]) -> Self {
        History { changes, ..self }
    }
    /// Changed by these versions of Valkey.
    pub const fn changed_by_valkey(self, valkey_changes: &'static [Change]) -> Self {
        History { valkey_changes, ..self }
    }
    /// All changes, those of Redis first, each with whose version it is.
    pub fn all_changes(&self) -> impl Iterator<Item = (Origin, Change)> {
        let of = |origin| move |change: &Change| (origin, *change);
        self.changes.iter().map(of(Origin::Redis)).chain(self.valkey_changes.iter().map(of(Origin::Valkey)))
    }
    /// Deprecated since this version in favour of something else, worded as COMMAND DOCS does.
    pub const fn deprecated(self, since: &'static str, replaced_by: &'static str) -> Self {
        History { deprecated: Some(Deprecated { since, replaced_by }), ..self }
    }
}

/// A command's successor.
#[derive(Clone, Copy, Debug)]
pub struct Deprecated {
    /// The version that deprecated the command.
    pub since: &'static str,
    /// What to use instead, as COMMAND DOCS words it.
    pub replaced_by: &'static str,
}

/// The group of COMMAND DOCS.
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
}

impl Group {
    /// As COMMAND DOCS writes it.
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
        }
    }
}

bitflags! {
    /// How a command behaves. The names and their order are those of COMMAND INFO.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Flags: u32 {
        /// May change the data.
        const WRITE = 1 << 0;
        /// Only reads the data.
        const READONLY = 1 << 1;
        /// Refused while memory is over its limit.
        const DENYOOM = 1 << 2;
        /// Administrative.
        const ADMIN = 1 << 3;
        /// Concerns channels.
        const PUBSUB = 1 << 4;
        /// Not allowed in scripts.
        const NOSCRIPT = 1 << 5;
        /// May block its client.
        const BLOCKING = 1 << 6;
        /// Allowed while data is being loaded.
        const LOADING = 1 << 7;
        /// Allowed on a replica that lost its primary.
        const STALE = 1 << 8;
        /// Not shown to monitors.
        const SKIP_MONITOR = 1 << 9;
        /// Not noted in the slow log.
        const SKIP_SLOWLOG = 1 << 10;
        /// Takes the one-off ASKING permission of a cluster's migration.
        const ASKING = 1 << 11;
        /// Constant or logarithmic.
        const FAST = 1 << 12;
        /// Allowed before authentication.
        const NO_AUTH = 1 << 13;
        /// May be replicated although not a write.
        const MAY_REPLICATE = 1 << 14;
        /// Keys are optional.
        const NO_MANDATORY_KEYS = 1 << 15;
        /// Not while a replica loads in the background.
        const NO_ASYNC_LOADING = 1 << 16;
        /// Not in transactions.
        const NO_MULTI = 1 << 17;
        /// Allowed while a script runs too long.
        const ALLOW_BUSY = 1 << 18;
        /// A walker that runs with the whole keyspace to itself (the gate closed).
        const EXCLUSIVE = 1 << 19;
        /// Reaches keys that its arguments name by patterns: with patterns it runs with all shards
        /// locked, and like EXCLUSIVE.
        const PATTERN_KEYS = 1 << 20;
        /// For servers among themselves and for tests, which COMMAND DOCS marks as `syscmd`.
        const INTERNAL = 1 << 21;
        /// Begins or ends subscriptions: its replies are messages, which no client silences.
        const SUBSCRIPTION = 1 << 22;
        /// Not about subscriptions, yet allowed for subscribers that speak RESP2.
        const FOR_SUBSCRIBERS = 1 << 23;
        /// Runs at once where a transaction is being queued.
        const UNQUEUED = 1 << 24;
        /// Looks at how a key is kept, which is no use of the key.
        const INSPECTS_KEYS = 1 << 25;
        /// One call with few arguments cannot take long by itself, though Redis
        /// does not call it fast.
        const SHORT = 1 << 26;
        /// Leaves what CLIENT CACHING gave to the command behind it.
        const KEEPS_CACHING = 1 << 27;
    }

    /// Access-control categories, in the order Redis lists them.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Acl: u32 {
        /// `@keyspace`
        const KEYSPACE = 1 << 0;
        /// `@read`
        const READ = 1 << 1;
        /// `@write`
        const WRITE = 1 << 2;
        /// `@set`
        const SET = 1 << 3;
        /// `@sortedset`
        const SORTEDSET = 1 << 4;
        /// `@list`
        const LIST = 1 << 5;
        /// `@hash`
        const HASH = 1 << 6;
        /// `@string`
        const STRING = 1 << 7;
        /// `@bitmap`
        const BITMAP = 1 << 8;
        /// `@hyperloglog`
        const HYPERLOGLOG = 1 << 9;
        /// `@geo`
        const GEO = 1 << 10;
        /// `@stream`
        const STREAM = 1 << 11;
        /// `@pubsub`
        const PUBSUB = 1 << 12;
        /// `@admin`
        const ADMIN = 1 << 13;
        /// `@fast`
        const FAST = 1 << 14;
        /// `@slow`
        const SLOW = 1 << 15;
        /// `@blocking`
        const BLOCKING = 1 << 16;
        /// `@dangerous`
        const DANGEROUS = 1 << 17;
        /// `@connection`
        const CONNECTION = 1 << 18;
        /// `@transaction`
        const TRANSACTION = 1 << 19;
        /// `@scripting`
        const SCRIPTING = 1 << 20;
    }

    /// What a command does with a key, as COMMAND INFO names it.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct KeyFlags: u32 {
        /// Changes the value and its replaced content matters.
        const RW = 1 << 0;
        /// Reads the value.
        const RO = 1 << 1;
        /// Overwrites the value whatever it was.
        const OW = 1 << 2;
        /// Removes the key.
        const RM = 1 << 3;
        /// Gives user data back or copies it.
        const ACCESS = 1 << 4;
        /// Changes user data.
        const UPDATE = 1 << 5;
        /// Adds user data without changing what is there.
        const INSERT = 1 << 6;
        /// Removes user data.
        const DELETE = 1 << 7;
        /// Not a key, only routed like one.
        const NOT_KEY = 1 << 8;
        /// The spec may miss some keys.
        const INCOMPLETE = 1 << 9;
        /// The flags depend on the arguments.
        const VARIABLE_FLAGS = 1 << 10;
    }
}

impl Flags {
    /// What COMMAND INFO does not name.
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

/// Names as COMMAND INFO writes them: lower case, in the order of the bits.
pub fn flag_names(flags: Flags) -> impl Iterator<Item = String> {
    (flags - Flags::UNNAMED).iter_names().map(|(name, _)| name.to_ascii_lowercase())
}

/// Category names as COMMAND INFO writes them, with their `@`.
pub fn category_names(acl: Acl) -> impl Iterator<Item = String> {
    acl.iter_names().map(|(name, _)| format!("@{}", name.to_ascii_lowercase()))
}

/// Where some of a command's keys are, and what happens to them.
#[derive(Clone, Copy, Debug)]
pub struct KeySpec {
    /// What it does with them.
    pub flags: KeyFlags,
    /// Where the search starts.
    pub begin: Begin,
    /// How keys follow from there.
    pub find: Find,
    /// Finds the keys that the handler uses, if `begin` and `find` cannot. These are then for
    /// COMMAND only, and are those of Redis.
    pub found_by: Option<KeyFinder>,
    /// A remark, as COMMAND DOCS gives it.
    pub notes: &'static str,
}

/// Calls the function with the argument index of every key that a handler uses: a part of how the
/// handler reads its arguments.
pub type KeyFinder = fn(&crate::Args<'_>, &mut dyn FnMut(usize));

impl KeySpec {
    /// One key at this argument (1 is the first after the name).
    pub const fn at(index: u8, flags: KeyFlags) -> Self {
        Self::range(index, 0, 1, flags)
    }

    /// Keys from `first` to the last argument, every `step`-th.
    pub const fn from(first: u8, step: u8, flags: KeyFlags) -> Self {
        Self::range(first, -1, step, flags)
    }

    /// Keys from `first` to `last` (relative to `first`, or to the end when negative).
    pub const fn range(first: u8, last: i8, step: u8, flags: KeyFlags) -> Self {
        let find = Find::Range { last, step, limit: 0 };
        Self { begin: Begin::Index(first), find, ..Self::unknown(flags) }
    }

    /// A count at `begin + keynum_index`, then that many keys from `begin + first_key` on.
    pub const fn counted(begin: u8, keynum: u8, first: u8, flags: KeyFlags) -> Self {
        let find = Find::KeyNum { keynum, first, step: 1 };
        Self { begin: Begin::Index(begin), find, ..Self::unknown(flags) }
    }

    /// The same where every key is followed by a value.
    pub const fn counted_pairs(begin: u8, keynum: u8, first: u8, flags: KeyFlags) -> Self {
        let find = Find::KeyNum { keynum, first, step: 2 };
        Self { begin: Begin::Index(begin), find, ..Self::unknown(flags) }
    }

    /// Keys behind a keyword, looked for from argument `start` on (from the end when negative).
    pub const fn keyword(keyword: &'static str, start: i8, last: i8, limit: u8, flags: KeyFlags) -> Self {
        let find = Find::Range { last, step: 1, limit };
        Self { begin: Begin::Keyword { keyword, start }, find, ..Self::unknown(flags) }
    }

    /// Keys that no rule finds.
    pub const fn unknown(flags: KeyFlags) -> Self {
        Self { flags, begin: Begin::Unknown, find: Find::Unknown, found_by: None, notes: "" }
    }

    /// The same for a handler whose keys this function finds.
    pub const fn found_by(self, found_by: KeyFinder) -> Self {
        Self { found_by: Some(found_by), ..self }
    }

    /// The same with a remark.
    pub const fn noting(self, notes: &'static str) -> Self {
        Self { notes, ..self }
    }
}

/// Where the search for keys starts.
#[derive(Clone, Copy, Debug)]
pub enum Begin {
    /// At this argument.
    Index(u8),
    /// Behind this word, looked for from argument `start` on (counted from the end when negative).
    Keyword {
        /// The word, in upper case.
        keyword: &'static str,
        /// Where to start looking.
        start: i8,
    },
    /// Only the command's own rules know.
    Unknown,
}

/// How keys follow from where the search starts.
#[derive(Clone, Copy, Debug)]
pub enum Find {
    /// From the start to `last` (relative; from the end when negative), every `step`-th, at most
    /// one `limit`-th of the rest when `limit` is over one.
    Range {
        /// Relative index of the last key.
        last: i8,
        /// Distance between keys.
        step: u8,
        /// Divisor of the remaining arguments.
        limit: u8,
    },
    /// A count, then keys.
    KeyNum {
        /// Relative index of the count.
        keynum: u8,
        /// Relative index of the first key.
        first: u8,
        /// Distance between keys.
        step: u8,
    },
    /// Only the command's own rules know.
    Unknown,
}

/// One documented argument.
#[derive(Clone, Copy, Debug)]
pub struct Arg {
    /// Its name in the syntax line.
    pub name: &'static str,
    /// What it is.
    pub kind: ArgKind,
    /// The word that introduces it.
    pub token: Option<&'static str>,
    /// The first version that has it, where that is not the command's own.
    pub since: Option<&'static str>,
    /// The version that deprecated it.
    pub deprecated_since: Option<&'static str>,
    /// May be left out.
    pub optional: bool,
    /// May be repeated.
    pub multiple: bool,
    /// The token is repeated with it.
    pub multiple_token: bool,
    /// Which key spec it belongs to.
    pub key_spec: Option<u8>,
    /// How the syntax line shows it, where that is not its name.
    pub shown_as: Option<&'static str>,
    /// Choices of a `OneOf`, parts of a `Block`.
    pub args: &'static [Arg],
}

/// What a documented argument is.
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
    /// As COMMAND DOCS writes it.
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
    /// Any bytes.
    pub const fn string(name: &'static str) -> Self {
        Self::new(name, ArgKind::String)
    }
    /// A whole number.
    pub const fn integer(name: &'static str) -> Self {
        Self::new(name, ArgKind::Integer)
    }
    /// A floating-point number.
    pub const fn double(name: &'static str) -> Self {
        Self::new(name, ArgKind::Double)
    }
    /// A key, found by the key spec of that index.
    pub const fn key(name: &'static str, key_spec: u8) -> Self {
        Arg { key_spec: Some(key_spec), ..Self::new(name, ArgKind::Key) }
    }
    /// A glob pattern.
    pub const fn pattern(name: &'static str) -> Self {
        Self::new(name, ArgKind::Pattern)
    }
    /// A point in time.
    pub const fn unix_time(name: &'static str) -> Self {
        Self::new(name, ArgKind::UnixTime)
    }
    /// A bare word.
    pub const fn word(name: &'static str, token: &'static str) -> Self {
        Self::new(name, ArgKind::PureToken).token(token)
    }
    /// One of several.
    pub const fn one_of(name: &'static str, args: &'static [Arg]) -> Self {
        Arg { args, ..Self::new(name, ArgKind::OneOf) }
    }
    /// Several in a row.
    pub const fn block(name: &'static str, args: &'static [Arg]) -> Self {
        Arg { args, ..Self::new(name, ArgKind::Block) }
    }
    /// Introduced by this word.
    pub const fn token(self, token: &'static str) -> Self {
        Arg { token: Some(token), ..self }
    }
    /// Shown in the syntax line as this.
    pub const fn shown_as(self, text: &'static str) -> Self {
        Arg { shown_as: Some(text), ..self }
    }
    /// In Redis since this version.
    pub const fn since(self, version: &'static str) -> Self {
        Arg { since: Some(version), ..self }
    }
    /// Deprecated since this version.
    pub const fn deprecated_since(self, version: &'static str) -> Self {
        Arg { deprecated_since: Some(version), ..self }
    }
    /// Names keys, which the key spec of that index stands for.
    pub const fn of_key_spec(self, key_spec: u8) -> Self {
        Arg { key_spec: Some(key_spec), ..self }
    }
    /// May be left out.
    pub const fn optional(self) -> Self {
        Arg { optional: true, ..self }
    }
    /// May be repeated.
    pub const fn multiple(self) -> Self {
        Arg { multiple: true, ..self }
    }
    /// May be repeated, its token with it.
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
        // ZUNIONSTORE, SORT, LMPOP: some keys are missed.
        check(&[KeySpec::at(1, RW), KeySpec::counted(2, 0, 1, RW)], (1, 1, 1), true);
        check(&[KeySpec::at(1, RW), KeySpec::unknown(RW)], (1, 1, 1), true);
        check(&[KeySpec::counted(1, 0, 1, RW)], (0, 0, 0), true);
        check(&[KeySpec::at(1, RW.union(KeyFlags::INCOMPLETE))], (1, 1, 1), true);
    }
}
