//! The function libraries, shared by all threads. While their lock is held, the only other lock
//! that may be acquired is that of the list of their source texts (`Persistence::functions`). Data
//! files contain this list, and loading fills it.
//!
//! The list of texts is authoritative: each look-up of a function first applies the changes of the
//! list. If the text of a data file does not load as a library, its functions cannot be called. The
//! text stays in the list, and thus in the next data file, until a FUNCTION command changes the
//! libraries.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use commands::CommandError;
use engine::scripting::Learned;
use resp::Protocol;
use script::{Commands, FunctionInfo, Library, LogLevel, NoSuchCall, Repl, Stop};

use crate::scripting::compiler::{load_library, log};
use crate::snapshots::Persistence;

/// Maximum run time of a library's code while the library is loaded, as in Redis.
const LOADING_TIME_MAX: Duration = Duration::from_millis(500);

/// A library of functions that is loaded, with its unique number.
pub struct LoadedLibrary {
    /// The unique number of the library. A later library of the same name has another number.
    pub id: u64,
    /// The name, the source text and the functions of the library.
    pub library: Library,
}

/// A function of a loaded library.
#[derive(Clone)]
pub struct LoadedFunction {
    /// The library of the function.
    pub library: Arc<LoadedLibrary>,
    /// The description with which the library registered the function.
    pub info: Arc<FunctionInfo>,
    /// The results of earlier runs of the function, which determine if the next run needs the whole
    /// keyspace.
    pub learned: Arc<Learned>,
}

/// The function libraries of the server, shared by all threads.
#[derive(Default)]
pub struct Functions {
    loaded: RwLock<Loaded>,
    last_id: AtomicU64,
}

/// The loaded libraries, and their functions, which clients can call.
#[derive(Default)]
pub struct Loaded {
    /// The version of the list of source texts from which the libraries were loaded; `None` before
    /// the first load.
    version: Option<u64>,
    /// The loaded libraries by name.
    pub libraries: BTreeMap<Vec<u8>, Arc<LoadedLibrary>>,
    /// The functions of the loaded libraries, by their names in lower case.
    functions: HashMap<Vec<u8>, LoadedFunction>,
}

impl Loaded {
    /// Finds a function by name, in upper or lower case.
    pub fn function(&self, name: &[u8]) -> Option<&LoadedFunction> {
        self.functions.get(&name.to_ascii_lowercase())
    }

    /// Returns the number of functions of all loaded libraries.
    pub fn function_count(&self) -> usize {
        self.functions.len()
    }

    fn add(&mut self, library: Arc<LoadedLibrary>) {
        for info in &library.library.functions {
            let function = LoadedFunction {
                library: Arc::clone(&library),
                info: Arc::new(info.clone()),
                learned: Arc::default(),
            };
            self.functions.insert(info.name.to_ascii_lowercase(), function);
        }
        self.libraries.insert(library.library.name.clone(), library);
    }

    fn remove(&mut self, name: &[u8]) -> Option<Arc<LoadedLibrary>> {
        let library = self.libraries.remove(name)?;
        self.functions.retain(|_, function| function.library.id != library.id);
        Some(library)
    }

    /// Checks that a library can be added: no other library has its name or one of its functions.
    /// `replaced` names the library that it may replace. An error is the reply for the client.
    fn check(&self, library: &Library, replaced: Option<&[u8]>) -> Result<(), CommandError> {
        if replaced.is_none() && self.libraries.contains_key(&library.name) {
            return Err(CommandError::quoting("ERR Library '", &library.name, "' already exists"));
        }
        self.check_functions(library, replaced)
    }

    /// Checks that no library except the one named `replaced` has a function with the name of one
    /// of `library`.
    fn check_functions(&self, library: &Library, replaced: Option<&[u8]>) -> Result<(), CommandError> {
        for function in &library.functions {
            let other = self.function(&function.name);
            if other.is_some_and(|other| Some(&*other.library.library.name) != replaced) {
                return Err(CommandError::quoting("ERR Function ", &function.name, " already exists"));
            }
        }
        Ok(())
    }
}

/// The treatment of an existing library with the name of the new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// The existing library stays, and the new library is refused.
    Kept,
    /// The new library replaces the existing one.
    Replaced,
}

/// The treatment of existing libraries by FUNCTION RESTORE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The existing libraries stay. A restored library with the name of an existing one is an
    /// error.
    Append,
    /// A restored library replaces the existing library with its name.
    Replace,
    /// All existing libraries are removed.
    Flush,
}

impl Functions {
    /// Locks the libraries and functions for reading. First applies the changes of the list of
    /// source texts.
    pub fn read(&self, persistence: &Persistence) -> RwLockReadGuard<'_, Loaded> {
        loop {
            let loaded = self.loaded.read().expect("nothing panics while it is locked");
            if loaded.version == Some(persistence.functions_version()) {
                return loaded;
            }
            drop(loaded);
            self.take_over(persistence);
        }
    }

    /// Makes the loaded libraries of functions, which all threads share, equal to the list of
    /// source texts: loads the new texts and removes the other libraries. Logs texts that do not
    /// load.
    fn take_over(&self, persistence: &Persistence) {
        let mut loaded = self.loaded.write().expect("nothing panics while it is locked");
        let sources = persistence.functions();
        let version = persistence.functions_version();
        let old: Vec<_> = loaded.libraries.values().map(Arc::clone).collect();
        for library in old {
            if !sources.iter().any(|source| **source == *library.library.code) {
                loaded.remove(&library.library.name);
            }
        }
        for source in &*sources {
            if loaded.libraries.values().any(|library| *library.library.code == **source) {
                continue;
            }
            match self.validate(source) {
                Ok(library) => match loaded.check(&library.library, None) {
                    Ok(()) => loaded.add(library),
                    Err(error) => warn_left_out(&error),
                },
                Err(error) => warn_left_out(&error),
            }
        }
        loaded.version = Some(version);
    }

    fn validate(&self, source: &[u8]) -> Result<Arc<LoadedLibrary>, CommandError> {
        let library = load_library(source, &mut Loader::now())?;
        let id = self.last_id.fetch_add(1, Relaxed) + 1;
        Ok(Arc::new(LoadedLibrary { id, library }))
    }

    /// Handles FUNCTION LOAD, and returns the library's name. Calls `note` after the change and
    /// before other threads can see it.
    ///
    /// # Errors
    /// The reply for the client.
    pub fn load(
        &self,
        persistence: &Persistence,
        source: &[u8],
        existing: Existing,
        note: impl FnOnce(),
    ) -> Result<Vec<u8>, CommandError> {
        drop(self.read(persistence));
        let library = self.validate(source)?;
        let name = library.library.name.clone();
        let mut loaded = self.loaded.write().expect("nothing panics while it is locked");
        let replaced = (existing == Existing::Replaced).then_some(&*name);
        loaded.check(&library.library, replaced)?;
        loaded.remove(&name);
        loaded.add(library);
        write_back(&mut loaded, persistence);
        note();
        Ok(name)
    }

    /// Handles FUNCTION DELETE. Returns true if the library existed; then it is removed, and `note`
    /// is called before other threads can see the change.
    pub fn delete(&self, persistence: &Persistence, name: &[u8], note: impl FnOnce()) -> bool {
        drop(self.read(persistence));
        let mut loaded = self.loaded.write().expect("nothing panics while it is locked");
        let found = loaded.remove(name).is_some();
        if found {
            write_back(&mut loaded, persistence);
            note();
        }
        found
    }

    /// Handles FUNCTION FLUSH: removes all libraries. Calls `note` after the change and before
    /// other threads can see it.
    pub fn flush(&self, persistence: &Persistence, note: impl FnOnce()) {
        let mut loaded = self.loaded.write().expect("nothing panics while it is locked");
        *loaded = Loaded::default();
        write_back(&mut loaded, persistence);
        note();
    }

    /// Handles FUNCTION RESTORE: adds all libraries of `sources`, or none after an error. Calls
    /// `note` after the change and before other threads can see it.
    ///
    /// # Errors
    /// The reply for the client.
    pub fn restore(
        &self,
        persistence: &Persistence,
        sources: &[Vec<u8>],
        policy: Policy,
        note: impl FnOnce(),
    ) -> Result<(), CommandError> {
        drop(self.read(persistence));
        let libraries = sources.iter().map(|source| self.validate(source)).collect::<Result<Vec<_>, _>>()?;
        let mut loaded = self.loaded.write().expect("nothing panics while it is locked");
        let mut next = Loaded::default();
        if policy != Policy::Flush {
            let stays = |library: &&Arc<LoadedLibrary>| {
                policy == Policy::Append
                    || !libraries.iter().any(|new| new.library.name == library.library.name)
            };
            loaded.libraries.values().filter(stays).for_each(|library| next.add(Arc::clone(library)));
        }
        for library in libraries {
            let name = &library.library.name;
            if next.libraries.contains_key(name) {
                return Err(CommandError::quoting("ERR Library ", name, " already exists"));
            }
            next.check_functions(&library.library, None)?;
            next.add(library);
        }
        *loaded = next;
        write_back(&mut loaded, persistence);
        note();
        Ok(())
    }
}

/// Replaces the list of source texts by those of the loaded libraries. Texts that did not load are
/// lost.
fn write_back(loaded: &mut Loaded, persistence: &Persistence) {
    let mut sources = persistence.functions();
    *sources = loaded.libraries.values().map(|library| library.library.code.as_slice().into()).collect();
    loaded.version = Some(persistence.functions_version());
}

fn warn_left_out(error: &CommandError) {
    let line = error.line();
    tracing::warn!(error = %line.escape_ascii(), "cannot load a library of functions from the data file");
}

/// The host of a library's code while the library is loaded. The code can call no commands, and its
/// run time is limited.
pub struct Loader {
    since: Instant,
}

impl Loader {
    /// Creates a host of a library's code whose time limit ([`LOADING_TIME_MAX`]) begins now.
    pub fn now() -> Self {
        Self { since: Instant::now() }
    }
}

impl Commands for Loader {
    fn call(&mut self, _: &[&[u8]], _: Protocol) -> Result<&[u8], Stop> {
        Ok(b"-ERR no command runs while a library is loaded\r\n")
    }

    fn interrupt(&mut self) -> Result<(), Stop> {
        if self.since.elapsed() > LOADING_TIME_MAX { Err(Stop::Killed) } else { Ok(()) }
    }

    fn log(&mut self, level: LogLevel, message: &[u8]) {
        log(level, message);
    }

    fn set_repl(&mut self, _: Repl) {}

    fn acl_check_cmd(&mut self, _: &[&[u8]]) -> Result<bool, NoSuchCall> {
        Err(NoSuchCall::Command)
    }
}
