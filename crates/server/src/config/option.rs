//! The record of an option: its name, values, default, effect and documentation.

use super::value::{Kind, Value};

/// The times at which an option may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The option may change at any time, with CONFIG SET.
    Live,
    /// The option is set only at the start of the server, in the configuration file or on the
    /// command line.
    AtStart,
    /// The option may change with CONFIG SET, if `enable-protected-configs` permits this to the
    /// client.
    Protected,
}

/// The effect of an option, or the reason why it has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The option has an effect: the server's code reads its value.
    Now,
    /// The option is checked, stored and shown, so that existing configurations work, but no code
    /// reads it. The text is the reason.
    Accepted(&'static str),
}

/// The default value of an option.
#[derive(Clone, Copy, Debug)]
pub enum DefaultValue {
    /// A default value that is the same on all machines, in the syntax of a configuration file.
    Fixed(&'static str),
    /// A default value that is computed from the machine or the process when the server starts.
    Computed {
        /// A description of the computed default value, for the documentation.
        shown: &'static str,
        /// The function that computes the default value, or returns `None` if the system does not
        /// provide it. O(1), a system call.
        compute: fn() -> Option<Value>,
        /// The default value to use when `compute` returns `None`, in the syntax of a configuration
        /// file.
        otherwise: &'static str,
    },
}

/// The action of a running server when CONFIG SET changes an option's value. `commands/config.rs`
/// runs the action. The [`Settings`](engine::settings::Settings) are derived again after every
/// change, also without an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnChange {
    /// The option needs no action: the code that uses the value reads it each time.
    Nothing,
    /// An action before the new value takes effect. The action may refuse the value.
    Prepare(Prepare),
    /// An action after the new value has taken effect.
    FollowUp(FollowUp),
    /// Two actions: the first runs before the new value takes effect and may refuse it; the second
    /// runs afterwards.
    Both(Prepare, FollowUp),
}

/// An action that CONFIG SET performs before a new value takes effect. If several changed options
/// need the same action, it runs once. The actions run in the order of [`Prepare::order`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prepare {
    /// Raises the limit of open files to fit `maxclients`.
    OpenFiles,
    /// Reads the certificates and the other files that the TLS options name, if TLS is in use.
    Tls,
    /// Applies the limit of TLS handshakes per turn of an I/O thread
    /// (`max-new-tls-connections-per-cycle`).
    TlsLimits,
    /// Listens on the addresses of `bind` at `port`. Fails if the new port is in use.
    ListenOnPort,
    /// Listens on the addresses of `bind` at `tls-port`. Fails if the TLS files cannot be read or
    /// the port is in use.
    ListenOnTlsPort,
    /// Listens on the new addresses of `bind`. Fails if this machine lacks one that is not
    /// optional.
    ListenOnAddresses,
    /// Changes the working folder to `dir`.
    WorkingFolder,
    /// Checks that the append-only file can be turned on, and locks the data folder.
    AppendOnly,
    /// Sets the lowest level of the lines in the log: `loglevel`.
    LogLevel,
    /// Sets the formats of the log: `log-format` and `log-timestamp-format`.
    LogForm,
}

impl Prepare {
    /// Returns the position of the action in the order of execution. Of several actions with the
    /// same position, only one runs, because they do the same work.
    pub fn order(self) -> u8 {
        match self {
            Prepare::OpenFiles => 0,
            Prepare::WorkingFolder => 1,
            Prepare::Tls => 2,
            Prepare::ListenOnPort | Prepare::ListenOnTlsPort | Prepare::ListenOnAddresses => 3,
            Prepare::AppendOnly => 4,
            Prepare::LogLevel => 5,
            Prepare::LogForm => 6,
            Prepare::TlsLimits => 7,
        }
    }
}

/// An action that CONFIG SET performs after a new value has taken effect. The actions run in the
/// order of the variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FollowUp {
    /// Begins a new window of HOTKEYS: the period for which accesses to keys are counted.
    HotKeyWindows,
    /// Measures the memory of all clients, and closes the largest clients if the sum exceeds
    /// `maxmemory-clients`.
    ClientMemory,
    /// Turns the append-only file on or off, and passes its options to the writer.
    AppendOnly,
    /// Sets the password of the user `default`.
    DefaultPassword,
    /// Counts again the replicas that have acknowledged within `min-replicas-max-lag` seconds.
    /// Writes need `min-replicas-to-write` of them.
    GoodReplicas,
    /// Passes `replica-read-only`, `replica-serve-stale-data` and `replica-ignore-maxmemory` to the
    /// engine.
    ReplicaOptions,
}

/// The kind of file that an option's value names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// No kind of file: the option's values are not names of files or folders, so a shell does not
    /// complete them as paths.
    Nothing,
    /// The option's value names a file.
    File,
    /// The option's value names a folder.
    Folder,
}

/// The record of an option. Its `const` functions set one property each, so that the tables of
/// options are short.
#[derive(Clone, Copy, Debug)]
pub struct Opt {
    /// The name of the option, in lower case.
    pub name: &'static str,
    /// Older names of the option, which the configuration and CONFIG accept too.
    pub aliases: &'static [&'static str],
    /// The kind of the option's values.
    pub kind: Kind,
    /// The kind of file that the option's values name, for completions in a shell.
    pub names: Names,
    /// The value of the option when the configuration does not name it.
    pub default: DefaultValue,
    /// A value for examples in the documentation, if the default is not a useful example.
    pub example: Option<&'static str>,
    /// The times at which the option may change.
    pub change: Change,
    /// The action that the server performs when CONFIG SET changes the option.
    pub on_change: OnChange,
    /// True if CONFIG GET shows the option only by its full name and docs/options.md omits it.
    pub hidden: bool,
    /// A summary of the option in one line, for the documentation.
    pub summary: &'static str,
    /// The effect of the option, or the reason why it has none.
    pub acts: Effect,
}

impl Opt {
    /// Creates an option of any kind. The option has an effect and may change at any time.
    pub const fn new(name: &'static str, kind: Kind, default: &'static str, summary: &'static str) -> Self {
        Opt {
            name,
            aliases: &[],
            kind,
            names: Names::Nothing,
            default: DefaultValue::Fixed(default),
            example: None,
            change: Change::Live,
            on_change: OnChange::Nothing,
            hidden: false,
            summary,
            acts: Effect::Now,
        }
    }

    /// Creates an option whose value is `yes` or `no`.
    pub const fn flag(name: &'static str, default: &'static str, summary: &'static str) -> Self {
        Self::new(name, Kind::Flag, default, summary)
    }

    /// Creates an option whose value is a whole number within `range` (both ends included).
    pub const fn integer(
        name: &'static str,
        default: &'static str,
        range: (i64, i64),
        summary: &'static str,
    ) -> Self {
        Self::new(name, Kind::Integer { min: range.0, max: range.1 }, default, summary)
    }

    /// Creates an option whose value is an amount of memory within `range` bytes (both ends
    /// included).
    pub const fn memory(
        name: &'static str,
        default: &'static str,
        range: (u64, u64),
        summary: &'static str,
    ) -> Self {
        Self::new(name, Kind::Memory { min: range.0, max: range.1 }, default, summary)
    }

    /// Creates an option whose value is one of `words`.
    pub const fn choice(
        name: &'static str,
        default: &'static str,
        words: &'static [&'static str],
        summary: &'static str,
    ) -> Self {
        Self::new(name, Kind::Choice(words), default, summary)
    }

    /// Creates an option whose value is a text of any bytes.
    pub const fn text(name: &'static str, default: &'static str, summary: &'static str) -> Self {
        Self::new(name, Kind::Text, default, summary)
    }

    /// Creates an option whose value is the path of a file.
    pub const fn file(name: &'static str, default: &'static str, summary: &'static str) -> Self {
        Opt { names: Names::File, ..Self::text(name, default, summary) }
    }

    /// Marks the option's values as names of folders.
    pub const fn of_folder(self) -> Self {
        Opt { names: Names::Folder, ..self }
    }

    /// Adds other names (aliases) of the option.
    pub const fn also(self, aliases: &'static [&'static str]) -> Self {
        Opt { aliases, ..self }
    }

    /// Replaces the fixed default by a computed one, which `shown` describes. The fixed default
    /// remains for machines on which `compute` returns `None`.
    pub const fn computed(self, shown: &'static str, compute: fn() -> Option<Value>) -> Self {
        let DefaultValue::Fixed(otherwise) = self.default else { panic!("computed twice") };
        Opt { default: DefaultValue::Computed { shown, compute, otherwise }, ..self }
    }

    /// Sets the value of the option that examples in the documentation show.
    pub const fn example(self, value: &'static str) -> Self {
        Opt { example: Some(value), ..self }
    }

    /// Sets the action that the server performs when CONFIG SET changes the option.
    pub const fn on_change(self, on_change: OnChange) -> Self {
        Opt { on_change, ..self }
    }

    /// Forbids changes of the option while the server runs.
    pub const fn at_start(self) -> Self {
        Opt { change: Change::AtStart, ..self }
    }

    /// Restricts changes at run time to the clients that `enable-protected-configs` permits.
    pub const fn protected(self) -> Self {
        Opt { change: Change::Protected, ..self }
    }

    /// Marks the option as one without effect, for the reason `why`.
    pub const fn accepted(self, why: &'static str) -> Self {
        Opt { acts: Effect::Accepted(why), ..self }
    }

    /// Returns the reason why the option has no effect; `None` if it has an effect.
    pub const fn idle_reason(&self) -> Option<&'static str> {
        match self.acts {
            Effect::Now => None,
            Effect::Accepted(why) => Some(why),
        }
    }

    /// Hides the option from CONFIG GET with wildcards, and from docs/options.md.
    pub const fn hidden(self) -> Self {
        Opt { hidden: true, ..self }
    }

    /// Returns true if the value names a file that CONFIG SET reads again even if the name does not
    /// change.
    pub fn is_read_when_set(&self) -> bool {
        self.on_change == OnChange::Prepare(Prepare::Tls) && self.names != Names::Nothing
    }

    /// Returns the default value. O(length of its text); a computed default also takes a system
    /// call.
    ///
    /// # Panics
    /// If the record's default is not a value of its kind. A test checks every record.
    pub fn default_value(&self) -> Value {
        match self.default {
            DefaultValue::Fixed(text) => self.written(text),
            DefaultValue::Computed { compute, otherwise, .. } => {
                compute().unwrap_or_else(|| self.written(otherwise))
            }
        }
    }

    /// Parses `text`, in the syntax of a configuration file, as a value of this option.
    fn written(&self, text: &str) -> Value {
        let words: Vec<&[u8]> = match self.kind {
            Kind::Words(_) => text.split_ascii_whitespace().map(str::as_bytes).collect(),
            _ => vec![text.as_bytes()],
        };
        let initial = self.kind.initial();
        self.kind.parse(&words, &initial).expect("every record's default is a value of its kind")
    }
}

/// The range from 0 to the largest 64-bit signed number. Redis accepts it for options without an
/// upper limit.
pub const ANY: (i64, i64) = (0, i64::MAX);
/// The range from 0 to the largest 32-bit signed number.
pub const INT: (i64, i64) = (0, i32::MAX as i64);
/// The range from 1 to the largest 32-bit signed number.
pub const POSITIVE_INT: (i64, i64) = (1, i32::MAX as i64);
/// The range of TCP ports.
pub const PORT: (i64, i64) = (0, 65535);
/// The range of amounts of memory that Redis accepts.
pub const BYTES: (u64, u64) = (0, i64::MAX as u64);
