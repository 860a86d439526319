//! The modification times of the snapshot and of the append-only file.
//!
//! At a start without the option `appendonly`, the server compares these times and loads the newer
//! file. A file that was not loaded may be overwritten only if it is older. Therefore, after a
//! save, the server sets the time of the append-only file to a time after that of the snapshot.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use persist::aof::files::Files;

use crate::shared::Shared;
use crate::snapshots::{DataFolder, data_file};

/// The coarsest resolution of file modification times in any file system: two seconds, on FAT.
const COARSEST: Duration = Duration::from_secs(2);

/// Returns the modification time of the file at `path`; `None` if it cannot be read.
pub(super) fn changed_at(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

/// Returns the latest modification time of the files that make up an append-only file; `None` if
/// none of them can be read.
pub(super) fn files_changed_at(folder: &DataFolder, files: &Files) -> Option<SystemTime> {
    files.manifest().parts().filter_map(|part| changed_at(&folder.file(&part.name))).max()
}

/// Sets the modification time of the last one of the append-only files to a time after that of the
/// snapshot. Does nothing if no changes are written to the append-only file.
///
/// At the next start, these times show that the snapshot has no changes that are not in the
/// append-only file. Otherwise the server would keep the snapshot under another name.
pub(super) fn date_files(shared: &Shared) {
    let path = {
        let state = shared.append_only.state();
        let Some(files) = state.files.as_ref().filter(|_| state.active.is_some()) else { return };
        let folder = state.files_path.clone();
        let last = files.manifest().incr.last().map(|part| part.name.clone());
        folder.zip(last).map(|(folder, last)| folder.join(last))
    };
    let Some(snapshot) = changed_at(&data_file(&shared.config())) else { return };
    let Some(path) = path else { return };
    if let Err(error) = date_after(&path, snapshot, SystemTime::now()) {
        tracing::warn!("Cannot set the modification time of {}: {error}", path.display());
    }
}

/// Sets the modification time of a file to `now` or, if necessary, to a time after `before`. A file
/// that is already later than `before` keeps its time.
///
/// `now` may not be after `before`, because a file system may round times down, and the clock may
/// have been set back.
fn date_after(path: &Path, before: SystemTime, now: SystemTime) -> io::Result<()> {
    let file = File::open(path)?;
    for time in [now.max(before), before + COARSEST] {
        if file.metadata()?.modified()? > before {
            break;
        }
        file.set_modified(time)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tempfile::NamedTempFile;

    use super::*;

    #[test]
    fn a_file_is_dated_after_another_whatever_the_clock_says() {
        let file = NamedTempFile::new().expect("a scratch file");
        let now = file.as_file().metadata().and_then(|metadata| metadata.modified()).expect("a time");
        let hour = Duration::from_secs(3600);
        for before in [now, now + hour] {
            date_after(file.path(), before, now).expect("it is ours");
            assert!(changed_at(file.path()) > Some(before));
        }
        // A file that is later already keeps its time.
        let dated = changed_at(file.path());
        date_after(file.path(), now, now + 2 * hour).expect("it is ours");
        assert_eq!(changed_at(file.path()), dated);
    }
}
