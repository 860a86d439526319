//! What an option is: one record with everything that is known about it.

use super::value::{Kind, Value};

/// When an option may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// At any time, with CONFIG SET.
    Live,
    /// In the configuration file or on the command line only.
    AtStart,
    /// With CONFIG SET only where `enable-protected-configs` permits it.
    Protected,
}

/// Whether an option has an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acts {
    /// It has an effect.
    Now,
    /// It is checked, stored and shown, so that existing configurations work; nothing reads it. The
    /// text says why.
    Accepted(&'static str),
}

/// An option's value when nothing is said.
#[derive(Clone, Copy, Debug)]
pub enum DefaultValue {
    /// The same everywhere, as it would be written in a configuration file.
    Fixed(&'static str),
    /// Taken from the machine or the process when the server starts.
    Computed {
        /// What it is, in words, for the documentation.
        shown: &'static str,
        /// Finds it. O(1), a system call; `None` where the system does not say.
        compute: fn() -> Option<Value>,
        /// The value then, as it would be written.
        otherwise: &'static str,
    },
}

/// What happens in a running server when CONFIG SET has changed an option's value, beside that
/// [`Settings`](engine::settings::Settings) are derived anew. `commands/config.rs` carries it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnChange {
    /// Nothing: whoever needs the value reads it.
    Nothing,
    /// Before the new value holds; it may be refused.
    Prepare(Prepare),
    /// After the new value holds.
    FollowUp(FollowUp),
    /// Before, where it may be refused, and after.
    Both(Prepare, FollowUp),
}

/// What is done before a new value holds, in this order, each once for all options that ask for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prepare {
    /// Raise the limit of open files to fit `maxclients`.
    OpenFiles,
    /// Read certificates and what else the options about TLS name, where TLS is in use.
    Tls,
    /// Take the limits of TLS.
    TlsLimits,
    /// Listen where `bind` and `port` say; the new port may not be free.
    ListenOnPort,
    /// Listen where `bind` and `tls-port` say; the certificates may be missing, or the port be
    /// taken.
    ListenOnTlsPort,
    /// Listen where `bind` and `port` say; the new addresses may be missing.
    ListenOnAddresses,
    /// Go to the folder `dir`.
    WorkingFolder,
    /// Write to the append-only file, or no longer.
    AppendOnly,
    /// Write lines of the log from `loglevel` on.
    LogLevel,
    /// Write lines of the log as `log-format` and `log-timestamp-format` say.
    LogForm,
}

impl Prepare {
    /// The place in the order. Those with the same place are one and the same work.
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

/// What is done after a new value holds, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FollowUp {
    /// Begin a new window of counting hot keys.
    HotKeyWindows,
    /// Measure the memory of all clients and evict those that are too much.
    ClientMemory,
    /// Write to the append-only file as the options say.
    AppendOnly,
    /// Give the user `default` the password.
    DefaultPassword,
}

/// What of the file system an option's value names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// Nothing.
    Nothing,
    /// A file.
    File,
    /// A folder.
    Folder,
}

/// An option. Built by the `const` functions below, so that a table reads as a list.
#[derive(Clone, Copy, Debug)]
pub struct Opt {
    /// Its name, in lower case.
    pub name: &'static str,
    /// Older names of the same option.
    pub aliases: &'static [&'static str],
    /// What its values are.
    pub kind: Kind,
    /// What of the file system they name: shells complete it.
    pub names: Names,
    /// Its value when nothing is said.
    pub default: DefaultValue,
    /// A value for examples, where the default is none that anybody would write.
    pub example: Option<&'static str>,
    /// When it may change.
    pub change: Change,
    /// What happens when it does.
    pub on_change: OnChange,
    /// CONFIG GET shows it only when asked for it by its full name, and docs/options.md not at all.
    pub hidden: bool,
    /// One line for the documentation.
    pub summary: &'static str,
    /// Whether it does something.
    pub acts: Acts,
}

impl Opt {
    /// An option of any kind that acts and may change at any time.
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
            acts: Acts::Now,
        }
    }

    /// `yes` or `no`.
    pub const fn flag(name: &'static str, default: &'static str, summary: &'static str) -> Self {
        Self::new(name, Kind::Flag, default, summary)
    }

    /// A whole number within `range` (both ends included).
    pub const fn integer(
        name: &'static str,
        default: &'static str,
        range: (i64, i64),
        summary: &'static str,
    ) -> Self {
        Self::new(name, Kind::Integer { min: range.0, max: range.1 }, default, summary)
    }

    /// An amount of memory within `range` bytes (both ends included).
    pub const fn memory(
        name: &'static str,
        default: &'static str,
        range: (u64, u64),
        summary: &'static str,
    ) -> Self {
        Self::new(name, Kind::Memory { min: range.0, max: range.1 }, default, summary)
    }

    /// One of some words.
    pub const fn choice(
        name: &'static str,
        default: &'static str,
        words: &'static [&'static str],
        summary: &'static str,
    ) -> Self {
        Self::new(name, Kind::Choice(words), default, summary)
    }

    /// Any bytes.
    pub const fn text(name: &'static str, default: &'static str, summary: &'static str) -> Self {
        Self::new(name, Kind::Text, default, summary)
    }

    /// A file's path.
    pub const fn file(name: &'static str, default: &'static str, summary: &'static str) -> Self {
        Opt { names: Names::File, ..Self::text(name, default, summary) }
    }

    /// Its values name folders.
    pub const fn of_folder(self) -> Self {
        Opt { names: Names::Folder, ..self }
    }

    /// Known by these names too.
    pub const fn also(self, aliases: &'static [&'static str]) -> Self {
        Opt { aliases, ..self }
    }

    /// Takes its default from the machine: `shown` says what in words. The default that it was
    /// built with is for machines that do not tell.
    pub const fn computed(self, shown: &'static str, compute: fn() -> Option<Value>) -> Self {
        let DefaultValue::Fixed(otherwise) = self.default else { panic!("computed twice") };
        Opt { default: DefaultValue::Computed { shown, compute, otherwise }, ..self }
    }

    /// Shown with this value in examples.
    pub const fn example(self, value: &'static str) -> Self {
        Opt { example: Some(value), ..self }
    }

    /// Does this when CONFIG SET has changed it.
    pub const fn on_change(self, on_change: OnChange) -> Self {
        Opt { on_change, ..self }
    }

    /// Cannot change once the server runs.
    pub const fn at_start(self) -> Self {
        Opt { change: Change::AtStart, ..self }
    }

    /// Changes at run time only where that is explicitly permitted.
    pub const fn protected(self) -> Self {
        Opt { change: Change::Protected, ..self }
    }

    /// Does nothing, and why.
    pub const fn accepted(self, why: &'static str) -> Self {
        Opt { acts: Acts::Accepted(why), ..self }
    }

    /// Why it does nothing; `None` if it acts.
    pub const fn idle_reason(&self) -> Option<&'static str> {
        match self.acts {
            Acts::Now => None,
            Acts::Accepted(why) => Some(why),
        }
    }

    /// Not shown by CONFIG GET with a pattern.
    pub const fn hidden(self) -> Self {
        Opt { hidden: true, ..self }
    }

    /// Whether its value names a file that is read when CONFIG SET sets it, even to the same name.
    pub fn is_read_when_set(&self) -> bool {
        self.on_change == OnChange::Prepare(Prepare::Tls) && self.names != Names::Nothing
    }

    /// The value when nothing is said. O(length), and a system call where it is computed.
    ///
    /// # Panics
    /// If the record's default is not a value of its kind: a test looks at every record.
    pub fn default_value(&self) -> Value {
        match self.default {
            DefaultValue::Fixed(text) => self.written(text),
            DefaultValue::Computed { compute, otherwise, .. } => {
                compute().unwrap_or_else(|| self.written(otherwise))
            }
        }
    }

    /// The value that `text` stands for in a configuration file.
    fn written(&self, text: &str) -> Value {
        let words: Vec<&[u8]> = match self.kind {
            Kind::Words(_) => text.split_ascii_whitespace().map(str::as_bytes).collect(),
            _ => vec![text.as_bytes()],
        };
        let initial = self.kind.initial();
        self.kind.parse(&words, &initial).expect("every record's default is a value of its kind")
    }
}

/// No upper end: what Redis takes for a number without one.
pub const ANY: (i64, i64) = (0, i64::MAX);
/// From 0 to the largest 32-bit number.
pub const INT: (i64, i64) = (0, i32::MAX as i64);
/// From 1 to the largest 32-bit number.
pub const POSITIVE_INT: (i64, i64) = (1, i32::MAX as i64);
/// A TCP port.
pub const PORT: (i64, i64) = (0, 65535);
/// Any amount of memory Redis takes.
pub const BYTES: (u64, u64) = (0, i64::MAX as u64);
