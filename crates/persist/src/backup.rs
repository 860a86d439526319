//! An online backup (BACKUP): its states, and the order in which its files are written and removed.
//!
//! ```text
//!            START          the snapshot begins        it is complete             SEAL
//!   idle ───────────► pending ─────────► snapshotting ─────────► incrementing ───────────► sealed
//!    ▲                   └───────────────────┴─────────────────────────┘                      │
//!    │                                       │ ABORT, an error                                │
//!    │              CLEANUP                  ▼                                                │
//!    ├──────────────────────────────────── failed ──── START ───► pending                     │
//!    └──────────────────────────────── CLEANUP, backup-sealed-ttl ────────────────────────────┘
//! ```
//! A backup is an append-only file in a folder of its own: a base with the data of one moment, an
//! incremental file with all changes from that moment to the seal, and a manifest. A server that
//! loads it has exactly the data of the seal.
//!
//! The manifest is written last and removed first. So a folder with a manifest holds a whole
//! backup, also after a crash, and a folder without one is never loaded.
//!
//! [`Backup`] decides; it has no clock, no thread and no folder. Threads work on a backup while
//! clients change its state. So each backup has a number, and what a thread reports about an
//! earlier backup changes nothing.

use crate::aof::manifest::{Manifest, Part, manifest_name, temp_manifest_name};
use crate::folder::{FileError, Folder as _, Place, create_temporary, rename_into_place};

mod own_folder;

pub use own_folder::{OwnFolder, OwnNames};

/// The error that BACKUP STATUS shows after BACKUP ABORT, as in Redis.
const ABORTED: &str = "aborted by user";

/// The state of a server's backup, as BACKUP STATUS shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// There is no backup.
    Idle,
    /// A backup was requested. Its snapshot waits for the end of a save or a rewrite.
    Pending,
    /// The base is being written, and the changes since its moment are recorded.
    Snapshotting,
    /// The base is complete. The changes since its moment are recorded until the seal.
    Incrementing,
    /// All files of the backup are complete.
    Sealed,
    /// The backup was aborted or has failed.
    Failed,
}

impl State {
    /// Returns the name of the state in the reply of BACKUP STATUS.
    pub fn name(self) -> &'static str {
        match self {
            State::Idle => "idle",
            State::Pending => "pending",
            State::Snapshotting => "snapshotting",
            State::Incrementing => "incrementing",
            State::Sealed => "sealed",
            State::Failed => "failed",
        }
    }

    /// Returns true from BACKUP START until the backup is sealed or has failed.
    pub fn is_in_progress(self) -> bool {
        matches!(self, State::Pending | State::Snapshotting | State::Incrementing)
    }
}

/// The reason why a subcommand of BACKUP is not possible in the present state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A backup is in progress, so BACKUP START and CLEANUP are not possible.
    InProgress,
    /// A sealed backup exists, so BACKUP START is not possible.
    Sealed,
    /// No backup is in the state [`State::Incrementing`], so BACKUP SEAL is not possible.
    NotIncrementing,
    /// No backup is in progress, so BACKUP ABORT is not possible.
    NotInProgress,
}

/// The state of a server's backup, with its times and its error. There is at most one backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backup {
    state: State,
    /// The number of the last backup since the start of the server; 0 before the first one.
    number: i64,
    error: String,
    started_s: i64,
    sealed_s: i64,
}

impl Default for Backup {
    fn default() -> Self {
        Self { state: State::Idle, number: 0, error: String::new(), started_s: 0, sealed_s: 0 }
    }
}

impl Backup {
    /// Returns the state of the backup.
    pub fn state(&self) -> State {
        self.state
    }

    /// Returns the number of the last backup since the start of the server; 0 before the first one.
    pub fn number(&self) -> i64 {
        self.number
    }

    /// Returns the reason why the backup has failed; empty in the other states.
    pub fn error(&self) -> &str {
        &self.error
    }

    /// Returns the time of the backup's start, in Unix seconds; 0 without a backup.
    pub fn started_s(&self) -> i64 {
        self.started_s
    }

    /// Returns the time of the backup's seal, in Unix seconds; 0 before it.
    pub fn sealed_s(&self) -> i64 {
        self.sealed_s
    }

    /// Checks that a backup can be started.
    ///
    /// # Errors
    /// If a backup is in progress or sealed.
    pub fn check_start(&self) -> Result<(), Refusal> {
        match self.state {
            State::Idle | State::Failed => Ok(()),
            State::Sealed => Err(Refusal::Sealed),
            State::Pending | State::Snapshotting | State::Incrementing => Err(Refusal::InProgress),
        }
    }

    /// Starts a backup at `now_s`, in Unix seconds. Returns its number, which all reports about it
    /// must name.
    ///
    /// # Errors
    /// Those of [`check_start`](Self::check_start).
    pub fn start(&mut self, now_s: i64) -> Result<i64, Refusal> {
        self.check_start()?;
        let number = self.number + 1;
        *self = Self { state: State::Pending, number, error: String::new(), started_s: now_s, sealed_s: 0 };
        Ok(number)
    }

    /// Changes the state of backup `number` from `from` to `to`. Returns false if that backup is
    /// not in the state `from`, and changes nothing then.
    fn advance(&mut self, number: i64, from: State, to: State) -> bool {
        let is_there = self.number == number && self.state == from;
        if is_there {
            self.state = to;
        }
        is_there
    }

    /// Records that the moment of the snapshot of backup `number` is fixed. Returns false if that
    /// backup is not pending any more; then it must get no snapshot.
    pub fn begin_snapshot(&mut self, number: i64) -> bool {
        self.advance(number, State::Pending, State::Snapshotting)
    }

    /// Records that the base of backup `number` is complete. Returns false if that backup has ended
    /// meanwhile; then its files must be removed.
    pub fn end_snapshot(&mut self, number: i64) -> bool {
        self.advance(number, State::Snapshotting, State::Incrementing)
    }

    /// Checks that the backup can be sealed.
    ///
    /// # Errors
    /// If no backup is in the state [`State::Incrementing`].
    pub fn check_seal(&self) -> Result<(), Refusal> {
        match self.state {
            State::Incrementing => Ok(()),
            _ => Err(Refusal::NotIncrementing),
        }
    }

    /// Records that all files of backup `number` are complete, at `now_s` in Unix seconds. Returns
    /// false if that backup has ended meanwhile; then its files must be removed.
    pub fn seal(&mut self, number: i64, now_s: i64) -> bool {
        let is_sealed = self.advance(number, State::Incrementing, State::Sealed);
        if is_sealed {
            self.sealed_s = now_s;
        }
        is_sealed
    }

    /// Aborts the backup in progress, because a client requests it.
    ///
    /// # Errors
    /// If no backup is in progress. A sealed backup counts as ended.
    pub fn abort(&mut self) -> Result<(), Refusal> {
        match self.fail(self.number, ABORTED) {
            true => Ok(()),
            false => Err(Refusal::NotInProgress),
        }
    }

    /// Records that backup `number` has failed, for `reason`. Returns false, and changes nothing,
    /// if that backup is not in progress any more.
    pub fn fail(&mut self, number: i64, reason: &str) -> bool {
        let is_there = self.number == number && self.state.is_in_progress();
        if is_there {
            (self.state, self.error) = (State::Failed, reason.to_owned());
        }
        is_there
    }

    /// Checks that the backup can be cleaned up. Without a backup there is nothing to clean up, and
    /// that is no error.
    ///
    /// # Errors
    /// If a backup is in progress.
    pub fn check_clean_up(&self) -> Result<(), Refusal> {
        match self.state.is_in_progress() {
            true => Err(Refusal::InProgress),
            false => Ok(()),
        }
    }

    /// Records that the files of the backup are removed.
    ///
    /// # Errors
    /// Those of [`check_clean_up`](Self::check_clean_up).
    pub fn clean_up(&mut self) -> Result<(), Refusal> {
        self.check_clean_up()?;
        *self = Self { number: self.number, ..Self::default() };
        Ok(())
    }

    /// Returns true if the backup was sealed `age_s` seconds ago and must be cleaned up, because
    /// `ttl_s` seconds have passed since. With a `ttl_s` of 0, a sealed backup stays. The caller
    /// measures the age, because the clock of the Unix times may be set.
    pub fn is_expired(&self, age_s: i64, ttl_s: i64) -> bool {
        self.state == State::Sealed && ttl_s > 0 && age_s >= ttl_s
    }

    /// Returns the names of those files that do not change any more, in the order in which a server
    /// loads them. Clients may copy them.
    pub fn fixed_files<'n>(&self, names: &'n FileNames) -> Vec<&'n str> {
        match self.state {
            State::Incrementing => vec![&names.base],
            State::Sealed => vec![&names.base, &names.incr, &names.manifest],
            State::Idle | State::Pending | State::Snapshotting | State::Failed => Vec::new(),
        }
    }
}

/// The names of a backup's files in their folder: those of the append-only file, so that a server
/// can load them as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileNames {
    /// The name of the base, a snapshot in RDB format.
    pub base: String,
    /// The name of the incremental file, which gets all changes from the snapshot to the seal.
    pub incr: String,
    /// The name of the manifest, which names the other two files.
    pub manifest: String,
    /// The name of the base until it is complete.
    pub temporary_base: String,
    temporary_manifest: String,
    number: i64,
}

impl FileNames {
    /// Returns the names of the files of backup `number`, which must be positive.
    pub fn new(appendfilename: &str, number: i64) -> Self {
        Self {
            base: format!("{appendfilename}.{number}.base.rdb"),
            incr: format!("{appendfilename}.{number}.incr.aof"),
            manifest: manifest_name(appendfilename),
            temporary_base: format!("temp-backup-{number}.rdb"),
            temporary_manifest: temp_manifest_name(appendfilename),
            number,
        }
    }

    fn manifest_text(&self) -> String {
        let part = |name: &str| Part {
            name: name.to_owned(),
            seq: self.number,
            start_offset: None,
            end_offset: None,
            replaced_s: None,
            restored_until_s: None,
            left_out_s: None,
        };
        let mut manifest = Manifest::default();
        manifest.base.replace(part(&self.base));
        manifest.incr.push(part(&self.incr));
        manifest.to_text()
    }

    /// Writes the manifest, after the base and the incremental file are complete and synced.
    ///
    /// # Errors
    /// An error of the system, or another program has created a file with the name. The folder then
    /// holds no backup that can be loaded. Exception: if only the last sync of the folder fails,
    /// the manifest may be there.
    pub fn write_manifest(&self, folder: &OwnFolder<'_>) -> Result<(), FileError> {
        let mut file = create_temporary(folder, &self.temporary_manifest)?;
        file.append(self.manifest_text().as_bytes())?;
        file.sync()?;
        // The names of the other files must be on the disk before the manifest names them.
        folder.sync()?;
        rename_into_place(folder, (&self.temporary_manifest, &self.manifest), Place::Free)?;
        folder.sync()
    }

    /// Removes the files that the backup has created, complete or not. Other files of the folder
    /// stay, even those with a name of the backup. There may be nothing to remove, for example
    /// because a user has moved the folder.
    ///
    /// # Errors
    /// An error of the system. The next call continues.
    pub fn remove(&self, folder: &OwnFolder<'_>) -> Result<(), FileError> {
        if folder.remove_own(&self.manifest)? {
            // Otherwise a crash could leave the manifest without the files that it names.
            folder.sync()?;
        }
        let mut has_removed = false;
        for name in [&self.temporary_manifest, &self.temporary_base, &self.incr, &self.base] {
            has_removed |= folder.remove_own(name)?;
        }
        if has_removed { folder.sync() } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A step of a backup: a request of a client, or a report of the thread that works on it.
    #[derive(Clone, Copy, Debug)]
    enum Event {
        Start,
        Point,
        Complete,
        Seal,
        Abort,
        Fail,
        Cleanup,
    }

    const ALL: [Event; 7] =
        [Event::Start, Event::Point, Event::Complete, Event::Seal, Event::Abort, Event::Fail, Event::Cleanup];

    /// Applies an event at the time `now_s`; returns true if the backup accepted it.
    fn apply(backup: &mut Backup, event: Event, now_s: i64) -> bool {
        let number = backup.number();
        match event {
            Event::Start => backup.start(now_s).is_ok(),
            Event::Point => backup.begin_snapshot(number),
            Event::Complete => backup.end_snapshot(number),
            Event::Seal => backup.check_seal().is_ok() && backup.seal(number, now_s),
            Event::Abort => backup.abort().is_ok(),
            Event::Fail => backup.fail(number, "no space"),
            Event::Cleanup => backup.clean_up().is_ok(),
        }
    }

    fn after(events: &[Event]) -> Backup {
        let mut backup = Backup::default();
        for (at, &event) in events.iter().enumerate() {
            assert!(apply(&mut backup, event, 10 * (at as i64 + 1)), "{event:?} of {events:?}");
        }
        backup
    }

    #[test]
    fn each_state_accepts_the_events_of_the_diagram_and_no_others() {
        use Event::{Abort, Complete, Point, Seal, Start};
        let table: &[(&[Event], State, &str)] = &[
            (&[], State::Idle, "Start Cleanup"),
            (&[Start], State::Pending, "Point Abort Fail"),
            (&[Start, Point], State::Snapshotting, "Complete Abort Fail"),
            (&[Start, Point, Complete], State::Incrementing, "Seal Abort Fail"),
            (&[Start, Point, Complete, Seal], State::Sealed, "Cleanup"),
            (&[Start, Abort], State::Failed, "Start Cleanup"),
        ];
        for (events, state, accepted) in table {
            let backup = after(events);
            assert_eq!(backup.state(), *state);
            let mut found = Vec::new();
            for event in ALL {
                let mut next = backup.clone();
                match apply(&mut next, event, 99) {
                    true => found.push(format!("{event:?}")),
                    false => assert_eq!(next, backup, "{state:?}: a refused {event:?} changes nothing"),
                }
            }
            assert_eq!(found.join(" "), *accepted, "{state:?}");
        }
    }

    #[test]
    fn each_refusal_says_what_is_in_the_way() {
        use Event::{Complete, Point, Seal, Start};
        let (mut idle, mut pending) = (after(&[]), after(&[Start]));
        let mut sealed = after(&[Start, Point, Complete, Seal]);
        assert_eq!(pending.start(1), Err(Refusal::InProgress));
        assert_eq!(pending.clean_up(), Err(Refusal::InProgress));
        assert_eq!(pending.check_seal(), Err(Refusal::NotIncrementing));
        assert_eq!(sealed.start(1), Err(Refusal::Sealed));
        assert_eq!(sealed.abort(), Err(Refusal::NotInProgress));
        assert_eq!(sealed.check_seal(), Err(Refusal::NotIncrementing));
        assert_eq!(idle.abort(), Err(Refusal::NotInProgress));
    }

    #[test]
    fn times_and_errors_belong_to_the_last_backup() {
        use Event::{Cleanup, Complete, Fail, Point, Seal, Start};
        let of = |events: &[Event]| {
            let backup = after(events);
            (backup.started_s(), backup.sealed_s(), backup.error().to_owned())
        };
        assert_eq!(of(&[]), (0, 0, String::new()));
        assert_eq!(of(&[Start, Point]), (10, 0, String::new()));
        assert_eq!(of(&[Start, Point, Complete, Seal]), (10, 40, String::new()));
        assert_eq!(of(&[Start, Point, Complete, Seal, Cleanup]), (0, 0, String::new()));
        assert_eq!(of(&[Start, Fail]), (10, 0, "no space".to_owned()));
        assert_eq!(of(&[Start, Event::Abort]), (10, 0, ABORTED.to_owned()));
        assert_eq!(of(&[Start, Fail, Start]), (30, 0, String::new()));
    }

    #[test]
    fn reports_about_an_earlier_backup_change_nothing() {
        let mut backup = Backup::default();
        let old = backup.start(1).expect("idle");
        assert!(backup.begin_snapshot(old));
        backup.abort().expect("in progress");
        let new = backup.start(2).expect("failed");
        assert!(new > old);
        assert!(!backup.begin_snapshot(old) && !backup.end_snapshot(old) && !backup.fail(old, "late"));
        assert_eq!(backup.state(), State::Pending);
        assert!(backup.begin_snapshot(new) && backup.end_snapshot(new));
        assert!(!backup.seal(old, 3));
        assert!(backup.seal(new, 3));
    }

    #[test]
    fn a_sealed_backup_expires_only_with_a_ttl() {
        use Event::{Complete, Point, Seal, Start};
        let sealed = after(&[Start, Point, Complete, Seal]);
        assert!(!sealed.is_expired(i64::MAX, 0));
        assert!(!sealed.is_expired(9, 10));
        assert!(sealed.is_expired(10, 10));
        assert!(!sealed.is_expired(10, i64::MAX));
        assert!(!after(&[Start, Point, Complete]).is_expired(i64::MAX, 1));
    }

    #[test]
    fn only_files_that_do_not_change_any_more_are_listed() {
        use Event::{Abort, Complete, Point, Seal, Start};
        let names = FileNames::new("my file.aof", 3);
        let of = |events: &[Event]| after(events).fixed_files(&names).join(" ");
        assert_eq!(of(&[]) + &of(&[Start]) + &of(&[Start, Point]) + &of(&[Start, Abort]), "");
        assert_eq!(of(&[Start, Point, Complete]), "my file.aof.3.base.rdb");
        assert_eq!(
            of(&[Start, Point, Complete, Seal]),
            "my file.aof.3.base.rdb my file.aof.3.incr.aof my file.aof.manifest"
        );
        let manifest = Manifest::parse(names.manifest_text().as_bytes()).expect("valid");
        let parts: Vec<(&str, i64)> = manifest.parts().map(|part| (&part.name[..], part.seq)).collect();
        assert_eq!(parts, [("my file.aof.3.base.rdb", 3), ("my file.aof.3.incr.aof", 3)]);
    }
}
