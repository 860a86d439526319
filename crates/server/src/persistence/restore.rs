//! `--restore-until TIME`: a start of the server that restores the data of an earlier time.
//!
//! ```text
//!   manifest, with its history ─► the newest base before TIME ─► its later files, up to TIME
//!        ─► a new base, complete and synced ─► manifest: new base, all earlier files as history
//! ```
//! Until the new manifest is in place, the existing files do not change, so a crash or an error
//! leaves them as they were. Clients get `-LOADING` until then. After that, a start without the
//! option loads the restored data.
//!
//! No data is lost: the files that the new base replaces stay as history, and neither a rewrite nor
//! `aof-history-ttl` removes them (`Manifest::take_expired`). The manifest records the restored
//! time. If a supervisor starts the server again with the same option, the server therefore loads
//! the files as at any other start.
//!
//! The times of changes come from annotations in the files, which the server writes with
//! `aof-timestamp-enabled yes`. The server does not start if it cannot know whether a change is
//! later than TIME.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use persist::aof::files::Files;
use persist::aof::manifest::{BaseTime, Chosen, Generation, Part};
use persist::aof::reader::{Next, Reader};
use persist::folder::FileError;
use persist::load::{self, Splitter};
use persist::save::Way;
use stdx::utc::utc;

use super::loading::{FileSource, load_options};
use super::replay::{ReplayEnd, StopAt, begins_with_snapshot, replay_part};
use crate::append_only::{files_name, files_path};
use crate::config::ConfigStore;
use crate::config::table::persistence as options;
use crate::context::unix_ms;
use crate::shared::Shared;

/// Maximum time in seconds for which the restore waits for the second after the last change.
const WAIT_MAX_S: i64 = 2;
const WAIT_STEP: Duration = Duration::from_millis(20);

fn now_s() -> i64 {
    unix_ms() / 1000
}

/// Creates the error for a restore that the server refuses, with the reason `why`.
fn refused(why: impl std::fmt::Display) -> FileError {
    FileError(format!("--restore-until: {why} Nothing was changed."))
}

/// The contents of the folder of the append-only files.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// The folder contains append-only files and their manifest.
    Files,
    /// The folder contains no append-only file.
    Nothing,
}

/// Checks that the options and the contents of the folder permit a restore.
///
/// # Errors
/// The reason why they do not permit it.
pub(super) fn check_options(store: &ConfigStore, until_s: i64, found: Found) -> Result<(), FileError> {
    if !options::APPENDONLY.of(store) {
        return Err(refused("this server has no append-only file: set 'appendonly yes'."));
    }
    let now_s = now_s();
    if until_s > now_s {
        return Err(refused(format_args!(
            "{} is in the future: the time is now {}. Give the time in UTC, or in seconds since 1970.",
            utc(until_s),
            utc(now_s)
        )));
    }
    if found == Found::Nothing {
        let place = files_path(store);
        return Err(refused(format_args!("there is no append-only file in {}.", place.display())));
    }
    Ok(())
}

/// Loads the data as it was at the time of `--restore-until`. Does nothing without this option, and
/// if the files were already restored to this time. Returns true if it loaded this data. There is
/// no base file with it until [`super::aof::open`] writes one.
///
/// # Errors
/// The reason why the data cannot be loaded. The files are unchanged.
pub(super) fn restore_if_asked(shared: &Shared, files: &Files) -> Result<bool, FileError> {
    let Some(until_s) = shared.persistence.restore_until_s else { return Ok(false) };
    if files.manifest().was_restored(until_s) {
        let base = files.manifest().base.as_ref();
        let later_s = base.and_then(|base| base.restored_until_s).filter(|&later_s| later_s != until_s);
        let later = later_s.map_or(String::new(), |later_s| {
            format!(
                " A later restore went back to {}, and the server loads that state. To go back to {} again, \
                 give a time one second earlier or later.",
                utc(later_s),
                utc(until_s)
            )
        });
        tracing::warn!(
            "--restore-until {}: an earlier start already restored this time. The server loads that state \
             and all later changes. Remove the option.{later}",
            utc(until_s)
        );
        return Ok(false);
    }
    let folder = files_path(&shared.config());
    let generation = choose(shared, files, &folder, until_s)?;
    let done = load(shared, &generation, &folder, until_s)?;
    let keyspace = &shared.engine.keyspace;
    let count = || (0..keyspace.db_count()).map(|db| keyspace.reachable_db_size(db).keys).sum::<usize>();
    let keys = shared.engine.gate.exclusive(|_alone| count());
    tracing::warn!(
        "--restore-until {}: loaded {keys} keys from {}, with {} commands of these files{}.",
        utc(until_s),
        done.names.join(", "),
        done.commands,
        done.last_s.map_or(String::new(), |last_s| format!(", the last one from {}", utc(last_s))),
    );
    if let Some((name, offset, next_s)) = &done.cut {
        tracing::warn!(
            "Skipped all changes from byte {offset} of {name} on. The first of them is from {}.",
            utc(*next_s)
        );
    }
    await_next_second(files, &folder);
    shared.append_only.state().restored_until_s = Some(until_s);
    tracing::info!("Writing a new base. The existing files do not change until it is complete.");
    Ok(true)
}

/// Logs the names of the replaced files and the way to restore their data. Does nothing if no data
/// was restored.
pub(super) fn note_end(shared: &Shared) {
    let Some(until_s) = shared.persistence.restore_until_s else { return };
    let manifest = shared.append_only.state().files.as_ref().map(|files| files.manifest().clone());
    let Some(manifest) = manifest else { return };
    let replaced: Vec<&Part> = manifest.history.iter().take_while(|part| part.left_out_s.is_some()).collect();
    let is_new = replaced.first().is_some_and(|part| part.left_out_s == Some(until_s));
    let Some(base) = manifest.base.as_ref().filter(|_| is_new) else { return };
    let names: Vec<&str> = manifest.history.iter().map(|part| &part.name[..]).collect();
    // The log names the second before the time of the new base, because a restore to that second
    // does not choose this base. The file states this time. The present time may be much later,
    // because writing the base takes long.
    let path = files_path(&shared.config()).join(&base.name);
    let base_s = match base_time(shared, &path) {
        Ok(BaseTime::At(base_s)) => Some(base_s),
        _ => replaced.first().and_then(|part| part.replaced_s),
    };
    tracing::warn!(
        "The data of {} is now in {}. The server keeps the previous files ({}) until you remove them; \
         rewrites do not remove them. To go back to the previous data, use --restore-until '{}'. Start \
         without --restore-until from now on.",
        utc(until_s),
        base.name,
        names.join(", "),
        utc(base_s.unwrap_or_else(now_s) - 1),
    );
}

/// Waits until the second of the last change in the append-only files is over. So the changes of
/// one second are either all before the restore or all after it.
fn await_next_second(files: &Files, folder: &Path) {
    let changed_s = |part: &Part| {
        let changed = fs::metadata(folder.join(&part.name)).and_then(|found| found.modified()).ok()?;
        let since = changed.duration_since(std::time::UNIX_EPOCH).ok()?;
        i64::try_from(since.as_secs()).ok()
    };
    let Some(last_s) = files.manifest().parts().filter_map(changed_s).max() else { return };
    let mut waited = Duration::ZERO;
    while (0..WAIT_MAX_S).contains(&(last_s - now_s())) && waited.as_secs() < WAIT_MAX_S as u64 {
        std::thread::sleep(WAIT_STEP);
        waited += WAIT_STEP;
    }
}

/// Returns the generation of files that contains the data of the time `until_s`. A generation is a
/// base and the incremental files that follow it.
fn choose<'f>(
    shared: &Shared,
    files: &'f Files,
    folder: &Path,
    until_s: i64,
) -> Result<Generation<'f>, FileError> {
    let base_time = |base: &Part| {
        let path = folder.join(&base.name);
        base_time(shared, &path).map_err(|why| refused(format_args!("{} cannot be read: {why}.", base.name)))
    };
    match files.manifest().generation_at(until_s, base_time)? {
        Chosen::Generation(generation) => Ok(generation),
        Chosen::TooEarly { oldest_s: Some(oldest_s) } => Err(refused(format_args!(
            "{} is too early: the oldest available base was written at {}. Give the time in UTC. To keep \
             older files in the future, set 'aof-history-ttl'.",
            utc(until_s),
            utc(oldest_s)
        ))),
        Chosen::BehindRestore { restored_s, oldest_s } => Err(refused(format_args!(
            "{} cannot be restored: an earlier state was restored at {}, and the files with the changes \
             after that state were removed{}. To keep such files in the future, set 'aof-history-ttl'.",
            utc(until_s),
            utc(restored_s),
            oldest_s.map_or(String::new(), |oldest_s| format!(" up to {}", utc(oldest_s)))
        ))),
        Chosen::TooEarly { oldest_s: None } => {
            let name = files_name(&shared.config());
            Err(refused(format_args!("all base files of {name}.manifest are missing.")))
        }
    }
}

/// Returns the time of the data that a base file contains.
fn base_time(shared: &Shared, path: &Path) -> Result<BaseTime, FileError> {
    let trouble = |error: io::Error| FileError(error.to_string());
    if !path.exists() {
        return Ok(BaseTime::Missing);
    }
    let source = |path: &Path| {
        let file = fs::File::open(path).map_err(trouble)?;
        Ok::<_, FileError>(FileSource { file, figures: &shared.persistence.loading })
    };
    let time_s = if begins_with_snapshot(path).map_err(trouble)? {
        let broken = |error: load::LoadError| FileError(error.to_string());
        let db_count = shared.engine.keyspace.db_count();
        let mut splitter = Splitter::open(source(path)?, load_options(shared), db_count).map_err(broken)?;
        loop {
            match splitter.next_part().map_err(broken)? {
                load::Part::Fact { name, value } if name == b"ctime" => {
                    break std::str::from_utf8(&value).ok().and_then(|value| value.parse().ok());
                }
                load::Part::Fact { .. } | load::Part::Module { .. } => {}
                _ => break None,
            }
        }
    } else {
        match Reader::new(source(path)?).next_batch().map_err(|error| FileError(error.to_string()))? {
            Next::Batch(batch) => {
                let first = batch.annotations().first();
                first.filter(|first| first.file_offset == 0).map(|first| first.time_s)
            }
            Next::End(_) => None,
        }
    };
    Ok(time_s.map_or(BaseTime::Unknown, BaseTime::At))
}

/// The result of loading the append-only files of a generation (a base and the files that follow
/// it) up to a time.
#[derive(Default)]
struct Done {
    /// The names of the append-only files that were loaded.
    names: Vec<String>,
    /// The number of commands that were run from the loaded files.
    commands: u64,
    /// The last known time of a loaded change, in Unix seconds.
    last_s: Option<i64>,
    /// True if changes without a known time were loaded after `last_s`.
    has_untimed: bool,
    /// The first change that was not loaded: the name of its file, its offset there, and its time
    /// in Unix seconds.
    cut: Option<(String, u64, i64)>,
}

impl Done {
    /// Creates the error for a time whose place in the files is unknown, because the changes around
    /// it have no times. `next_s` is the first known time after these changes.
    fn untimed(&self, until_s: i64, next_s: Option<i64>) -> FileError {
        let from = self.last_s.map_or("the base".to_owned(), utc);
        let to = next_s.map_or("the end".to_owned(), utc);
        refused(format_args!(
            "the position of {} in the files is unknown: changes between {from} and {to} have no time, \
             because 'aof-timestamp-enabled' was off. To go back to a byte position, use 'saker-check aof \
             DIR --until FILE:BYTE'.",
            utc(until_s)
        ))
    }
}

/// An append-only file that is to be loaded, with its length.
struct Listed<'m> {
    part: &'m Part,
    path: PathBuf,
    /// The length of the append-only file in bytes; `None` if the file is missing.
    len_bytes: Option<u64>,
}

/// Loads the append-only files of a generation (a base and the files that follow it) up to the time
/// `until_s`.
fn load(shared: &Shared, of: &Generation<'_>, folder: &Path, until_s: i64) -> Result<Done, FileError> {
    let listed = |part| {
        let path = folder.join(&Part::clone(part).name);
        let len_bytes = fs::metadata(&path).ok().map(|found| found.len());
        Listed { part, path, len_bytes }
    };
    let files: Vec<Listed<'_>> = of.parts().map(listed).collect();
    let total = files.iter().filter_map(|file| file.len_bytes).sum();
    let last = files.iter().rposition(|file| file.len_bytes.is_some_and(|len_bytes| len_bytes > 0));
    shared.persistence.loading.begin(now_s(), total);
    let mut done = Done::default();
    for (number, Listed { part, path, len_bytes }) in files.iter().enumerate() {
        let name = &part.name;
        if len_bytes.is_none() {
            let why = "is needed to go back to that time, but is missing: put it back.";
            return Err(refused(format_args!("the file {name} {why}")));
        }
        let replayed = replay_part(shared, path, Way::Gate, Some(StopAt::TimeS(until_s)))?;
        done.names.push(name.clone());
        done.commands += replayed.commands;
        done.has_untimed |= replayed.untimed > 0;
        if let (true, Some(next_s)) =
            (done.has_untimed && replayed.last_time_s.is_none(), replayed.next_time_s)
        {
            return Err(done.untimed(until_s, Some(next_s)));
        }
        if replayed.last_time_s.is_some() {
            (done.last_s, done.has_untimed) = (replayed.last_time_s, false);
        }
        match replayed.end {
            ReplayEnd::Whole => {}
            ReplayEnd::Stopped(offset) => {
                let next_s = replayed.next_time_s.unwrap_or(until_s);
                done.cut = Some((name.clone(), offset, next_s));
                return Ok(done);
            }
            ReplayEnd::Abandoned => return Err(FileError("the server is shutting down".to_owned())),
            ReplayEnd::Torn(torn) if last == Some(number) && torn.request_within.is_none() => {
                tracing::warn!("{name} ends within a request, which is skipped: {torn}");
            }
            ReplayEnd::Torn(torn) => {
                return Err(refused(format_args!(
                    "{name} ends within a request: {torn}. Run saker-check aof for details."
                )));
            }
        }
    }
    if done.has_untimed {
        return Err(done.untimed(until_s, None));
    }
    // The error applies only to files of the present state. Files that an earlier restore replaced
    // always lead to a different state.
    if !of.is_left_out {
        return Err(refused(format_args!(
            "no change is later than {}{}, so nothing would be skipped. Give the time in UTC. Start without \
             --restore-until to load everything.",
            utc(until_s),
            done.last_s.map_or(String::new(), |last_s| format!(" (the last change is from {})", utc(last_s))),
        )));
    }
    Ok(done)
}
