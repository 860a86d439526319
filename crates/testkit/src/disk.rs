//! A folder on a simulated disk, to test the decisions of `persist::folder`: power can fail at any
//! moment, and the disk can be full or broken.
//!
//! **State after a power failure.** All synced bytes of a file remain. Any number of the unsynced
//! bytes after them remains; each of their sectors is either intact or all zeros. Each name in the
//! folder refers to its file at the last sync of the folder, or to the file of any later change. A
//! later change of a name can survive although an earlier change is lost. A rename leaves no
//! partial file, but its two changes (the new name set, the old one removed) can survive
//! separately.
//!
//! **Failures.** Each operation has a number: a creation, an opening, each part of an append (short
//! writes), a cut, a sync of a file, a link, a rename, a removal, a sync of the folder. A fault is
//! planned for a number, or occurs at random. A failed write may leave a part of its bytes. A
//! failed sync of a file loses a random part of the unsynced bytes, and a later sync does not
//! restore them.
//!
//! **Bytes that must stay.** An operation panics if it removes bytes that are still needed because
//! no synced file replaces them: see [`ledger`].
//!
//! All choices come from a seed. The module has no yield point of the simulator. Its lock is a
//! leaf: no other lock is taken under it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use persist::folder::{DataFile, FileError, Folder, LogFile, Stamp, Unwritten};

use crate::Rng;

mod ledger;

/// The size of a sector in bytes; the disk writes a sector as a whole.
const SECTOR_BYTES: usize = 512;
/// The maximum number of writes into which an append is divided.
const WRITES_MAX: usize = 3;

/// The cause for which an operation of the simulated disk fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The operation fails because the disk is full.
    NoSpace,
    /// The operation fails because the disk cannot be read or written.
    Io,
}

impl Fault {
    fn trouble(self) -> FileError {
        FileError(match self {
            Self::NoSpace => "No space left on device (os error 28)".to_owned(),
            Self::Io => "Input/output error (os error 5)".to_owned(),
        })
    }
}

/// The plan of a disk's faults: it decides which operations fail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Plan {
    /// No operation of the disk fails.
    #[default]
    Never,
    /// The operation with this number, counted from 0, fails.
    Once(u64, Fault),
    /// The operation with this number and all later ones fail.
    From(u64, Fault),
    /// Each operation of the disk fails with this probability, in thousandths.
    Chance(usize),
}

/// An operation of the simulated disk that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A file is created on the simulated disk.
    Create,
    /// Some bytes are appended to a file of the disk.
    Write,
    /// A file of the disk is synced.
    SyncFile,
    /// A file is renamed.
    Rename,
    /// A file of the disk is removed.
    Remove,
    /// The folder is synced.
    SyncFolder,
    /// An existing log file is opened for appending.
    Open,
    /// The end of a file is cut off.
    Cut,
    /// A file gets a further name (a hard link).
    Link,
}

/// The content of a file. Copies of the disk's state share it until one of them changes it.
#[derive(Clone, Debug, Default)]
struct File {
    /// The present bytes of the file, synced or not, as processes read them.
    bytes: Arc<Vec<u8>>,
    /// The bytes of the file that were synced, which every crash leaves.
    safe: Arc<Vec<u8>>,
    /// True if the present process has created or loaded the file. See [`ledger`].
    is_known: bool,
}

impl File {
    fn append(&mut self, bytes: &[u8]) {
        Arc::make_mut(&mut self.bytes).extend_from_slice(bytes);
    }

    fn cut(&mut self, len_bytes: u64) {
        for bytes in [&mut self.bytes, &mut self.safe] {
            Arc::make_mut(bytes).truncate(len_bytes as usize);
        }
    }
}

/// The state of the simulated disk at one moment.
#[derive(Clone, Debug)]
struct State {
    rng: Rng,
    files: Vec<File>,
    names: BTreeMap<String, usize>,
    safe_names: BTreeMap<String, usize>,
    /// The changes of names since the last sync of the folder, which a crash may undo, in order.
    /// Each is a name and the number of its new file; `None` if the name was removed.
    unsafe_names: Vec<(String, Option<usize>)>,
    operations: u64,
    failed: Vec<Operation>,
    plan: Plan,
    /// A description of the violation if the present operation removes bytes that must stay: see
    /// [`ledger`].
    broken: Option<String>,
}

/// A folder on a simulated disk: see the module. Clones share the folder.
#[derive(Clone, Debug)]
pub struct SimulatedFolder {
    state: Arc<Mutex<State>>,
    /// The state of the disk after each operation; `None` unless [`SimulatedFolder::note_moments`]
    /// was called.
    moments: Option<Arc<Mutex<Vec<State>>>>,
}

impl SimulatedFolder {
    /// Creates an empty folder on a simulated disk, whose random choices follow from `seed`.
    pub fn new(seed: u64) -> Self {
        Self::holding(Rng::new(seed), BTreeMap::new())
    }

    fn holding(rng: Rng, contents: BTreeMap<String, Vec<u8>>) -> Self {
        let names: BTreeMap<_, _> = contents.keys().cloned().zip(0..).collect();
        let files = contents.into_values().map(Arc::new);
        let files = files.map(|bytes| File { safe: Arc::clone(&bytes), bytes, is_known: false }).collect();
        let state = State {
            rng,
            files,
            safe_names: names.clone(),
            names,
            unsafe_names: Vec::new(),
            operations: 0,
            failed: Vec::new(),
            plan: Plan::Never,
            broken: None,
        };
        Self::of(state)
    }

    fn of(state: State) -> Self {
        Self { state: Arc::new(Mutex::new(state)), moments: None }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it is locked")
    }

    /// Returns an independent copy of the folder. Its operations are counted from 0 and fail
    /// according to `plan`.
    pub fn fork(&self, plan: Plan) -> Self {
        let state = self.state().clone();
        Self::of(State { operations: 0, failed: Vec::new(), plan, ..state })
    }

    /// Sets the plan of faults for all later operations of the disk.
    pub fn plan(&self, plan: Plan) {
        self.state().plan = plan;
    }

    /// Returns the number of operations on the simulated disk so far.
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// Returns the operations that have failed by a planned fault, in order.
    pub fn failed(&self) -> Vec<Operation> {
        self.state().failed.clone()
    }

    /// Returns the content of a file as processes read it.
    pub fn file(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.state();
        state.names.get(name).map(|&file| state.files[file].bytes.to_vec())
    }

    /// Returns the names of the folder's files.
    pub fn names(&self) -> Vec<String> {
        self.state().names.keys().cloned().collect()
    }

    /// Returns the folder after a power failure at this moment: one of the possible states, chosen
    /// by `rng`.
    pub fn after_crash(&self, rng: &mut Rng) -> Self {
        self.state().after_crash(rng)
    }

    /// Starts to record the state of the disk after each operation, for [`crashes`](Self::crashes).
    pub fn note_moments(&mut self) {
        let now = self.state().clone();
        self.moments = Some(Arc::new(Mutex::new(vec![now])));
    }

    /// Returns one possible state of the folder after a power failure at each recorded moment,
    /// chosen by `rng`.
    pub fn crashes(&self, rng: &mut Rng) -> Vec<Self> {
        let Some(moments) = &self.moments else { return Vec::new() };
        let moments = moments.lock().expect("nothing panics while it is locked");
        moments.iter().map(|state| state.after_crash(rng)).collect()
    }

    /// Returns the folder after a kill of the process at each recorded moment. Nothing is lost, not
    /// even unsynced bytes.
    pub fn kills(&self) -> Vec<Self> {
        let Some(moments) = &self.moments else { return Vec::new() };
        let moments = moments.lock().expect("nothing panics while it is locked");
        let next = |state: &State| {
            let mut state = State { plan: Plan::Never, ..state.clone() };
            state.files.iter_mut().for_each(|file| file.is_known = false);
            Self::of(state)
        };
        moments.iter().map(next).collect()
    }

    /// Marks a file as loaded by the present process. The process may then remove it or replace it
    /// by another file.
    pub fn note_loaded(&self, name: &str) {
        let mut state = self.state();
        if let Some(&number) = state.names.get(name) {
            state.files[number].is_known = true;
        }
    }

    /// Counts and runs an operation. `run` receives the fault if the operation must fail.
    ///
    /// # Panics
    /// Panics if the operation removes bytes that must stay: see [`ledger`].
    fn operate<T>(
        &self,
        operation: Operation,
        run: impl FnOnce(&mut State, Option<Fault>) -> Result<T, FileError>,
    ) -> Result<T, FileError> {
        let mut state = self.state();
        let fault = state.next_fault();
        state.failed.extend(fault.map(|_| operation));
        let result = run(&mut state, fault);
        if let Some(moments) = &self.moments {
            moments.lock().expect("nothing panics while it is locked").push(state.clone());
        }
        let broken = state.broken.take();
        drop(state);
        assert!(broken.is_none(), "{}", broken.unwrap_or_default());
        result
    }
}

impl State {
    /// Counts an operation on the simulated disk. Returns the fault if the operation must fail.
    fn next_fault(&mut self) -> Option<Fault> {
        let number = self.operations;
        self.operations += 1;
        match self.plan {
            Plan::Never => None,
            Plan::Once(at, fault) => (number == at).then_some(fault),
            Plan::From(at, fault) => (number >= at).then_some(fault),
            Plan::Chance(thousandths) => {
                let fails = self.rng.below(1000) < thousandths;
                fails.then(|| *self.rng.pick(&[Fault::NoSpace, Fault::Io]))
            }
        }
    }

    fn name(&mut self, name: &str, file: Option<usize>) {
        match file {
            Some(file) => drop(self.names.insert(name.to_owned(), file)),
            None => drop(self.names.remove(name)),
        }
        self.unsafe_names.push((name.to_owned(), file));
    }

    /// Creates the file `name` and returns its number. With a fault, creates nothing and returns
    /// the error of this fault.
    fn create(&mut self, name: &str, fault: Option<Fault>) -> Result<usize, FileError> {
        if let Some(fault) = fault {
            return Err(fault.trouble());
        }
        if self.names.contains_key(name) {
            return Err(taken());
        }
        self.files.push(File { is_known: true, ..File::default() });
        let number = self.files.len() - 1;
        self.name(name, Some(number));
        Ok(number)
    }

    fn after_crash(&self, rng: &mut Rng) -> SimulatedFolder {
        let mut names = self.safe_names.clone();
        let set = |names: &mut BTreeMap<String, usize>, (name, file): &(String, Option<usize>)| match file {
            Some(file) => drop(names.insert(name.clone(), *file)),
            None => drop(names.remove(name)),
        };
        if rng.percent(50) {
            // A file system with a journal: all changes up to one of them survive.
            let kept = rng.below(self.unsafe_names.len() + 1);
            self.unsafe_names[..kept].iter().for_each(|change| set(&mut names, change));
        } else {
            for change in &self.unsafe_names {
                if rng.percent(60) {
                    set(&mut names, change);
                }
            }
        }
        let contents = names.into_iter().map(|(name, file)| {
            let File { bytes, safe, .. } = &self.files[file];
            (name, [&safe[..], &torn(&bytes[safe.len()..], safe.len(), rng)].concat())
        });
        SimulatedFolder::holding(self.rng.clone(), contents.collect())
    }
}

/// Returns a part of the unsynced `bytes` as a power failure leaves them: sectors are intact or
/// zeros. `offset` is their place in the file.
fn torn(bytes: &[u8], offset: usize, rng: &mut Rng) -> Vec<u8> {
    let len = match rng.below(4) {
        0 => 0,
        1 => return bytes.to_vec(),
        2 => bytes.len(),
        _ => rng.below(bytes.len() + 1),
    };
    let mut left = bytes[..len].to_vec();
    let mut at = 0;
    while at < len {
        let end = (at + SECTOR_BYTES - (offset + at) % SECTOR_BYTES).min(len);
        if rng.percent(40) {
            left[at..end].fill(0);
        }
        at = end;
    }
    left
}

impl Folder for SimulatedFolder {
    fn has(&self, name: &str) -> bool {
        self.state().names.contains_key(name)
    }

    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, FileError> {
        Ok(self.file(name))
    }

    fn open_log(&self, name: &str, len_bytes: u64) -> Result<Arc<dyn LogFile>, FileError> {
        self.operate(Operation::Open, |state, fault| {
            if let Some(fault) = fault {
                return Err(fault.trouble());
            }
            let Some(&number) = state.names.get(name) else { return Err(missing()) };
            state.check_end_goes(number, len_bytes);
            state.files[number].cut(len_bytes);
            let folder = self.clone();
            Ok(Arc::new(SimulatedFile { folder, number }) as Arc<dyn LogFile>)
        })
    }

    fn create_log(&self, name: &str) -> Result<Arc<dyn LogFile>, FileError> {
        let number = self.operate(Operation::Create, |state, fault| state.create(name, fault))?;
        Ok(Arc::new(SimulatedFile { folder: self.clone(), number }))
    }

    fn link(&self, from: &str, to: &str) -> Result<(), FileError> {
        self.operate(Operation::Link, |state, fault| {
            if let Some(fault) = fault {
                return Err(fault.trouble());
            }
            let Some(&file) = state.names.get(from) else { return Err(missing()) };
            if state.names.contains_key(to) {
                return Err(taken());
            }
            state.name(to, Some(file));
            Ok(())
        })
    }

    fn stamp(&self, name: &str) -> Result<Option<Stamp>, FileError> {
        let state = self.state();
        let stamp = |&number: &usize| Stamp {
            device: 1,
            inode: number as u64,
            len_bytes: state.files[number].bytes.len() as u64,
            changed_ns: 0,
        };
        Ok(state.names.get(name).map(stamp))
    }

    fn sync_file(&self, name: &str) -> Result<(), FileError> {
        let number = self.state().names.get(name).copied().ok_or_else(missing)?;
        LogFile::sync(&SimulatedFile { folder: self.clone(), number })
    }

    fn create(&self, name: &str) -> Result<Box<dyn DataFile>, FileError> {
        let number = self.operate(Operation::Create, |state, fault| state.create(name, fault))?;
        Ok(Box::new(SimulatedFile { folder: self.clone(), number }))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), FileError> {
        self.operate(Operation::Rename, |state, fault| {
            if let Some(fault) = fault {
                return Err(fault.trouble());
            }
            let Some(&file) = state.names.get(from) else { return Err(missing()) };
            state.check_name_goes(to, Some(file));
            state.name(to, Some(file));
            state.name(from, None);
            Ok(())
        })
    }

    fn remove(&self, name: &str) -> Result<(), FileError> {
        self.operate(Operation::Remove, |state, fault| match fault {
            Some(fault) => Err(fault.trouble()),
            None if !state.names.contains_key(name) => Err(missing()),
            None => {
                state.check_name_goes(name, None);
                state.name(name, None);
                Ok(())
            }
        })
    }

    fn sync(&self) -> Result<(), FileError> {
        self.operate(Operation::SyncFolder, |state, fault| match fault {
            Some(fault) => Err(fault.trouble()),
            None => {
                state.safe_names = state.names.clone();
                state.unsafe_names.clear();
                Ok(())
            }
        })
    }
}

fn taken() -> FileError {
    FileError("File exists (os error 17)".to_owned())
}

fn missing() -> FileError {
    FileError("No such file or directory (os error 2)".to_owned())
}

struct SimulatedFile {
    folder: SimulatedFolder,
    number: usize,
}

impl DataFile for SimulatedFile {
    fn append(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        let mut rest = bytes;
        for write in 1.. {
            rest = self.folder.operate(Operation::Write, |state, fault| {
                let is_last = write == WRITES_MAX || state.rng.percent(60);
                let short = state.rng.below(rest.len() + 1);
                let len = if is_last && fault.is_none() { rest.len() } else { short };
                state.files[self.number].append(&rest[..len]);
                fault.map_or(Ok(&rest[len..]), |fault| Err(fault.trouble()))
            })?;
            if rest.is_empty() {
                break;
            }
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), FileError> {
        self.folder.operate(Operation::SyncFile, |state, fault| {
            let File { bytes, safe, .. } = &mut state.files[self.number];
            let unsafe_bytes = &bytes[safe.len()..];
            match fault {
                None => {
                    Arc::make_mut(safe).extend_from_slice(unsafe_bytes);
                    Ok(())
                }
                Some(fault) => {
                    let mut lost = torn(unsafe_bytes, safe.len(), &mut state.rng);
                    lost.resize(unsafe_bytes.len(), 0);
                    Arc::make_mut(safe).extend_from_slice(&lost);
                    Err(fault.trouble())
                }
            }
        })
    }
}

impl LogFile for SimulatedFile {
    fn append(&self, bytes: &[u8]) -> Result<(), Unwritten> {
        let mut written_bytes = 0;
        for write in 1.. {
            let rest = &bytes[written_bytes..];
            let written = self.folder.operate(Operation::Write, |state, fault| {
                let is_last = write == WRITES_MAX || state.rng.percent(60);
                let short = state.rng.below(rest.len() + 1);
                let len = if is_last && fault.is_none() { rest.len() } else { short };
                state.files[self.number].append(&rest[..len]);
                written_bytes += len;
                fault.map_or(Ok(()), |fault| Err(fault.trouble()))
            });
            written.map_err(|trouble| Unwritten { written_bytes, trouble })?;
            if written_bytes == bytes.len() {
                break;
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), FileError> {
        let Self { folder, number } = self;
        DataFile::sync(&mut Self { folder: folder.clone(), number: *number })
    }

    fn cut(&self, len_bytes: u64) -> Result<(), FileError> {
        self.folder.operate(Operation::Cut, |state, fault| match fault {
            Some(fault) => Err(fault.trouble()),
            None => {
                state.files[self.number].cut(len_bytes);
                Ok(())
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the different contents of the file `f` that a power failure can leave, found by many
    /// trials.
    fn left(folder: &SimulatedFolder) -> Vec<Option<Vec<u8>>> {
        let mut rng = Rng::new(3);
        let mut all: Vec<_> = (0..300).map(|_| folder.after_crash(&mut rng).file("f")).collect();
        all.sort();
        all.dedup();
        all
    }

    #[test]
    fn a_crash_leaves_what_was_synced_and_any_part_of_the_rest() {
        let folder = SimulatedFolder::new(1);
        let mut file = folder.create("f").expect("works");
        folder.sync().expect("works");
        file.append(&[1; 3]).expect("works");
        file.sync().expect("works");
        assert_eq!(left(&folder), [Some(vec![1; 3])]);
        file.append(&[2; 2000]).expect("works");
        let left = left(&folder);
        assert!(left.iter().all(|left| left.as_ref().is_some_and(|left| left.starts_with(&[1; 3]))));
        assert!(left.contains(&Some([vec![1; 3], vec![2; 2000]].concat())));
        assert!(left.contains(&Some(vec![1; 3])));
        assert!(left.iter().flatten().any(|left| left.len() == 2003 && left.contains(&0)));
    }

    #[test]
    fn a_name_is_safe_once_the_folder_is_synced() {
        let folder = SimulatedFolder::new(1);
        for (name, byte) in [("f", 1), ("g", 2)] {
            let mut file = folder.create(name).expect("works");
            file.append(&[byte]).expect("works");
            file.sync().expect("works");
        }
        assert_eq!(left(&folder), [None, Some(vec![1])]);
        folder.sync().expect("works");
        folder.rename("g", "f").expect("works");
        assert_eq!(left(&folder), [Some(vec![1]), Some(vec![2])]);
        folder.sync().expect("works");
        assert_eq!(left(&folder), [Some(vec![2])]);
    }

    #[test]
    fn a_failed_sync_loses_bytes_for_good() {
        let folder = SimulatedFolder::new(1);
        let mut file = folder.create("f").expect("works");
        folder.sync().expect("works");
        file.append(&[1; 2000]).expect("works");
        folder.plan(Plan::Once(folder.operations(), Fault::Io));
        assert!(file.sync().is_err());
        file.sync().expect("works");
        assert_eq!(left(&folder).len(), 1);
        assert_ne!(left(&folder), [folder.file("f")]);
    }
}
