//! The store of the values of all options, and the only way to change a value.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use stdx::glob::glob_match_any_case;

use super::Refusal;
use super::handle::{Handle, Number, OptionType};
use super::option::{Change, Opt};
use super::readable_secrets::ReadableSecret;
use super::renames::{IsCommand, Renames};
use super::table::persistence::DIR;
use super::table::{self, Named, OptId};
use super::value::{Kind, Value};

/// The values of all options. A running server has one store, protected by a lock under which no
/// other lock is taken. The lock is held only while a request reads or changes options.
#[derive(Clone, Debug)]
pub struct ConfigStore {
    values: Vec<Value>,
    /// The default values of all options. Computed defaults depend on the machine.
    defaults: Vec<Value>,
    /// The options whose lines add words to their values
    /// ([`WordsKind::accumulates`](super::words::WordsKind::accumulates)) and of which a line was
    /// read already.
    begun: HashSet<OptId>,
    /// The options that the configuration file or the command line sets.
    named: HashSet<OptId>,
    /// The absolute path of the configuration file; `None` if the server was started without one.
    file: Option<PathBuf>,
    /// The configuration file, if another process cannot read its contents again, as with a pipe;
    /// otherwise `None`.
    unrepeatable: Option<PathBuf>,
    /// The configuration files that contain passwords and that every user of the machine may read.
    readable_secrets: Vec<ReadableSecret>,
    /// The new names of commands, and the disabled commands, of the `rename-command` lines.
    renames: Renames,
    /// The words after `user` of each `user` line of the configuration.
    users: Vec<Vec<Vec<u8>>>,
    /// The working folder at the start, and the sources of the configuration besides the file.
    start: Start,
    /// The folder to which relative file names in the configuration refer, if the configuration is
    /// read while the server runs. `None` at the start: relative names then refer to the working
    /// folder.
    base: Option<PathBuf>,
}

/// The working folder at the start, and the sources of the configuration besides the file.
#[derive(Clone, Debug, Default)]
pub struct Start {
    /// The working folder, to which relative names in the configuration refer.
    pub folder: PathBuf,
    /// The part of the configuration that was read from standard input.
    pub input: Vec<u8>,
    /// The arguments of the command line that set options.
    pub options: Vec<Vec<u8>>,
}

/// The reason why CONFIG SET changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetError {
    /// The server has no option of this name.
    Unknown(Vec<u8>),
    /// The server refuses the option or its value.
    Refused {
        /// The option's name, as the client wrote it or as in the table.
        name: Vec<u8>,
        /// The reason why the option or its value is refused.
        reason: Refusal,
    },
}

/// The permission of the client that sends CONFIG SET.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// The client may also change protected options ([`Change::Protected`]).
    Protected,
    /// The client may not change protected options.
    Plain,
}

/// Directives of older versions of Redis. They are ignored, as in Redis.
const IGNORED: &[&[u8]] =
    &[b"list-max-ziplist-entries", b"list-max-ziplist-value", b"lua-replicate-commands"];

/// Returns true if `name` is a directive that the store accepts although it is not an option, such
/// as `user`.
pub fn is_directive(name: &[u8]) -> bool {
    name == b"rename-command" || name == b"user" || IGNORED.contains(&name)
}

impl ConfigStore {
    /// Creates a store with the default values. `is_command` returns true for the command names
    /// that `rename-command` accepts. O(options).
    pub fn new(is_command: IsCommand) -> Self {
        let defaults: Vec<Value> = table::all().map(|(_, option)| option.default_value()).collect();
        let values = defaults.clone();
        Self {
            values,
            defaults,
            begun: HashSet::new(),
            named: HashSet::new(),
            file: None,
            unrepeatable: None,
            readable_secrets: Vec::new(),
            renames: Renames::new(is_command),
            users: Vec::new(),
            start: Start::default(),
            base: None,
        }
    }

    /// Creates a store with the default values of this store, into which the configuration is read
    /// again while the server runs. Relative file names in it refer to the working folder at the
    /// start. O(options).
    pub fn fresh(&self) -> Self {
        Self {
            values: self.defaults.clone(),
            defaults: self.defaults.clone(),
            begun: HashSet::new(),
            named: HashSet::new(),
            file: self.file.clone(),
            unrepeatable: None,
            readable_secrets: Vec::new(),
            renames: self.renames.without_any(),
            users: Vec::new(),
            start: self.start.clone(),
            base: Some(self.start.folder.clone()),
        }
    }

    /// Returns the working folder at the start, and the sources of the configuration besides the
    /// file.
    pub fn start(&self) -> &Start {
        &self.start
    }

    /// Sets the working folder in which the server was started, and the sources of the
    /// configuration other than the file.
    pub fn set_start(&mut self, start: Start) {
        self.start = start;
    }

    /// Returns the folder to which relative file names in the configuration refer; `None` for the
    /// present working folder.
    pub fn base(&self) -> Option<&Path> {
        self.base.as_deref()
    }

    /// Returns the present value of an option.
    pub fn value(&self, id: OptId) -> &Value {
        &self.values[id.index()]
    }

    /// Returns the default value of an option on this machine.
    pub fn default_of(&self, id: OptId) -> &Value {
        &self.defaults[id.index()]
    }

    /// Returns true if the configuration file, standard input or the command line sets the option.
    pub fn is_named(&self, option: &Opt) -> bool {
        self.named.iter().any(|id| id.option().name == option.name)
    }

    /// Returns the path of the configuration file; `None` if the server was started without one.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Stores the path of the configuration file, which must be absolute.
    pub fn set_file(&mut self, path: PathBuf) {
        self.file = Some(path);
    }

    /// Returns the configuration file if another process cannot read its contents again, as with a
    /// pipe; otherwise `None`.
    pub fn unrepeatable_file(&self) -> Option<&Path> {
        self.unrepeatable.as_deref()
    }

    /// Records a configuration file that another process cannot read again.
    pub fn set_unrepeatable_file(&mut self, path: PathBuf) {
        self.unrepeatable = Some(path);
    }

    /// Returns the configuration files that contain passwords and that every user of the machine
    /// may read.
    pub fn readable_secrets(&self) -> &[ReadableSecret] {
        &self.readable_secrets
    }

    /// Records a configuration file that contains a password and that every user of the machine may
    /// read.
    pub fn add_readable_secret(&mut self, secret: ReadableSecret) {
        self.readable_secrets.push(secret);
    }

    /// Returns the users of the configuration: for each user the name, then the rules.
    pub fn users(&self) -> &[Vec<Vec<u8>>] {
        &self.users
    }

    /// Returns the new names of commands, and the disabled commands, of the `rename-command` lines.
    pub fn renames(&self) -> &Renames {
        &self.renames
    }

    /// Applies a directive of the configuration file or the command line. Unlike CONFIG SET, it can
    /// also set options that may not change at run time. The error is the reason for a refusal.
    pub fn load(&mut self, name: &[u8], words: &[Vec<u8>]) -> Result<(), Refusal> {
        if name == b"rename-command" {
            return self.renames.add(words);
        }
        if name == b"user" {
            return self.add_user(words);
        }
        if IGNORED.contains(&name) {
            return Ok(());
        }
        let Some(Named { id, .. }) = table::find(name) else {
            return Err("Bad directive or wrong number of arguments".into());
        };
        let mut all: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let old = self.value(id).clone();
        // As in Redis, a line of an option with several words may have no words: `save` means `save
        // ""`.
        if words.is_empty() && !matches!(id.option().kind, Kind::Words(_)) {
            let refusal = id.option().kind.parse(&[], &old).err();
            return Err(refusal.unwrap_or("wrong number of arguments".into()));
        }
        if let (Kind::Words(kind), Value::Words(earlier)) = (id.option().kind, &old) {
            let adds =
                kind.accumulates && !self.begun.insert(id) && words.iter().all(|word| !word.is_empty());
            if adds {
                all.splice(0..0, earlier.iter().map(Vec::as_slice));
            }
        }
        let absolute = match (&self.base, all.as_slice()) {
            (Some(base), [folder]) if id == table::id_of(&DIR.opt) => {
                Some(base.join(OsStr::from_bytes(folder)))
            }
            _ => None,
        };
        if let Some(absolute) = &absolute {
            all = vec![absolute.as_os_str().as_bytes()];
        }
        self.values[id.index()] = id.option().kind.parse(&all, &old)?;
        self.named.insert(id);
        Ok(())
    }

    /// Records a `user` line. Its rules are parsed later, when the commands are known.
    fn add_user(&mut self, words: &[Vec<u8>]) -> Result<(), Refusal> {
        let Some(name) = words.first() else { return Err("wrong number of arguments".into()) };
        if self.users.iter().any(|user| user[0] == *name) {
            return Err("Duplicate user found. A user can only be defined once in config files".into());
        }
        self.users.push(words.to_vec());
        Ok(())
    }

    /// Handles CONFIG SET: applies all of `pairs` (name, value), or none if one is refused. Returns
    /// the options that were set. An option is listed twice if both its name and an alias were set.
    pub fn set(&mut self, pairs: &[(&[u8], &[u8])], permission: Permission) -> Result<Vec<OptId>, SetError> {
        let found: Vec<Option<Named>> = pairs.iter().map(|(name, _)| table::find(name)).collect();
        let mut named: Vec<Named> = Vec::new();
        for (found, (name, _)) in found.iter().zip(pairs) {
            let Some(found) = found else { return Err(SetError::Unknown(name.to_vec())) };
            let reason = match found.id.option().change {
                Change::AtStart => Some("can't set immutable config"),
                Change::Protected if permission == Permission::Plain => Some("can't set protected config"),
                _ if named.iter().any(|earlier| earlier.name == found.name) => Some("duplicate parameter"),
                _ => None,
            };
            if let Some(reason) = reason {
                return Err(SetError::Refused { name: name.to_vec(), reason: reason.into() });
            }
            named.push(*found);
        }
        let mut values = self.values.clone();
        for (named, (_, text)) in named.iter().zip(pairs) {
            let place = &mut values[named.id.index()];
            let words: Vec<&[u8]> = match named.id.option().kind {
                Kind::Words(_) => {
                    text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).collect()
                }
                _ => vec![text],
            };
            *place = named
                .id
                .option()
                .kind
                .parse(&words, place)
                .map_err(|reason| SetError::Refused { name: named.name.as_bytes().to_vec(), reason })?;
        }
        self.values = values;
        Ok(named.iter().map(|named| named.id).collect())
    }

    /// Handles CONFIG GET: returns the names and values of the options that match any of
    /// `patterns`. A pattern without wildcards is the name of one option. The reply then contains
    /// this name as the client wrote it. O(options × patterns).
    pub fn matching(&self, patterns: &[&[u8]]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut shown: HashSet<&'static str> = HashSet::new();
        let mut found = Vec::new();
        for pattern in patterns {
            let exact = !pattern.iter().any(|byte| matches!(byte, b'*' | b'?' | b'['));
            if exact {
                if let Some(named) = table::find(pattern).filter(|named| shown.insert(named.name)) {
                    found.push((pattern.to_vec(), self.value(named.id).to_text()));
                }
                continue;
            }
            for named in table::names() {
                let matches = glob_match_any_case(pattern, named.name.as_bytes());
                if matches && !named.id.option().hidden && shown.insert(named.name) {
                    found.push((named.name.as_bytes().to_vec(), self.value(named.id).to_text()));
                }
            }
        }
        found
    }

    /// Returns the value of an option as CONFIG GET shows it. `name` may be an alias.
    #[cfg(test)]
    pub fn shown(&self, name: &str) -> String {
        let named = table::find(name.as_bytes()).expect("an option has this name");
        String::from_utf8_lossy(&self.value(named.id).to_text()).into_owned()
    }
}

impl<T: OptionType + ?Sized> Handle<T> {
    /// Returns the option's value in `store`. Looks the option up by its name: O(length of the
    /// name).
    ///
    /// # Panics
    /// If no list of options in `config/table` contains the option. A test checks every handle.
    pub fn of<'s>(&self, store: &'s ConfigStore) -> T::Read<'s> {
        T::read(store.value(table::id_of(&self.opt))).expect("a handle's type holds all values of its option")
    }
}

impl<N: Number + OptionType> Handle<N> {
    /// Sets the value of an option that is a whole number. The caller passes a valid value, which
    /// is not checked. O(length of the name).
    pub fn put(&self, store: &mut ConfigStore, value: N) {
        store.values[table::id_of(&self.opt).index()] = Value::Integer(value.to_integer());
    }
}

impl Handle<[Vec<u8>]> {
    /// Sets the value of an option of several words. The caller passes a valid value, which is not
    /// checked. O(length of the name).
    pub fn put_words(&self, store: &mut ConfigStore, words: Vec<Vec<u8>>) {
        store.values[table::id_of(&self.opt).index()] = Value::Words(words);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(store: &mut ConfigStore, pairs: &[(&str, &str)]) -> Result<(), String> {
        let pairs: Vec<(&[u8], &[u8])> =
            pairs.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        store.set(&pairs, Permission::Plain).map(|_| ()).map_err(|error| match error {
            SetError::Unknown(name) => format!("{}: unknown", text(name)),
            SetError::Refused { name, reason } => format!("{}: {reason}", text(name)),
        })
    }

    fn get(store: &ConfigStore, patterns: &[&str]) -> Vec<String> {
        let patterns: Vec<&[u8]> = patterns.iter().map(|pattern| pattern.as_bytes()).collect();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        store.matching(&patterns).into_iter().map(|(name, value)| text(name) + "=" + &text(value)).collect()
    }

    #[test]
    fn all_pairs_are_set_or_none() {
        let mut store = ConfigStore::new(crate::commands::is_command);
        assert_eq!(set(&mut store, &[("timeout", "5"), ("maxmemory", "1gb")]), Ok(()));
        let refusal = "maxmemory: argument must be a memory value".to_owned();
        assert_eq!(set(&mut store, &[("timeout", "9"), ("MAXMEMORY", "x")]), Err(refusal));
        assert_eq!(get(&store, &["timeout", "maxmemory"]), ["timeout=5", "maxmemory=1073741824"]);
        assert_eq!(set(&mut store, &[("timeout", "9"), ("foo", "1")]), Err("foo: unknown".into()));
    }

    #[test]
    fn options_fixed_at_the_start_protected_and_repeated_ones_are_refused() {
        let mut store = ConfigStore::new(crate::commands::is_command);
        let immutable = Err("DATABASES: can't set immutable config".to_owned());
        assert_eq!(set(&mut store, &[("DATABASES", "16"), ("foo", "1")]), immutable);
        assert_eq!(set(&mut store, &[("dir", "/")]), Err("dir: can't set protected config".into()));
        let twice = Err("Timeout: duplicate parameter".to_owned());
        assert_eq!(set(&mut store, &[("timeout", "1"), ("Timeout", "1")]), twice);
        let aliases = [("hash-max-listpack-entries", "1"), ("hash-max-ziplist-entries", "2")];
        assert_eq!(set(&mut store, &aliases), Ok(()));
        assert_eq!(
            get(&store, &["hash-max-*-entries"]),
            ["hash-max-listpack-entries=2", "hash-max-ziplist-entries=2"]
        );
    }

    #[test]
    fn names_are_shown_as_asked_for_and_once() {
        let store = ConfigStore::new(crate::commands::is_command);
        assert_eq!(get(&store, &["PORT", "port", "por?"]), ["PORT=6379"]);
        assert_eq!(get(&store, &["nonsense", "non*"]), [""; 0]);
        assert!(get(&store, &["*"]).len() > 220);
    }

    #[test]
    fn save_points_of_several_lines_add_up() {
        let mut store = ConfigStore::new(crate::commands::is_command);
        let mut load = |line: &str| {
            let words: Vec<Vec<u8>> = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
            assert_eq!(store.load(b"save", &words), Ok(()));
            store.shown("save")
        };
        assert_eq!(load("900 1"), "900 1");
        assert_eq!(load("300 10 60 5"), "900 1 300 10 60 5");
        assert_eq!(load(""), "");
        assert_eq!(load("1 1"), "1 1");
    }

    #[test]
    fn a_value_wants_words() {
        let mut store = ConfigStore::new(crate::commands::is_command);
        let missing: Result<(), Refusal> = Err("wrong number of arguments".into());
        assert_eq!(store.load(b"port", &[]), missing);
        assert_eq!(store.load(b"port", &[b"1".to_vec(), b"2".to_vec()]), missing);
        let unknown: Result<(), Refusal> = Err("Bad directive or wrong number of arguments".into());
        assert_eq!(store.load(b"foo", &[b"1".to_vec()]), unknown);
        assert_eq!(store.load(b"databases", &[b"4".to_vec()]), Ok(()));
    }
}
