//! The modification times of the snapshot and of the append-only file.
//!
//! A start compares them: it loads the newer one, and keeps the other aside unless it is older. A
//! save therefore dates the append-only file after the snapshot that it has written.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use persist::aof::files::Files;

use crate::shared::Shared;
use crate::snapshots::{DataFolder, data_file};

/// The coarsest unit of a file system's times: two seconds on FAT.
const COARSEST: Duration = Duration::from_secs(2);

/// Returns the modification time of a file; `None` if it cannot be read.
pub(super) fn changed_at(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

/// Returns the latest modification time of the parts of an append-only file, if any is there.
pub(super) fn files_changed_at(folder: &DataFolder, files: &Files) -> Option<SystemTime> {
    files.manifest().parts().filter_map(|part| changed_at(&folder.file(&part.name))).max()
}

/// Dates the last part of the append-only file after the snapshot, if changes are written to it.
///
/// The next start then knows that the snapshot holds no more than the append-only file. Without
/// this it would keep the snapshot aside.
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
        tracing::warn!("The time of {} cannot be set: {error}", path.display());
    }
}

/// Sets the modification time of a file to `now`, or later, unless it is after `before` already.
///
/// A file system may round times down, and the clock may have been set back since `before`: then
/// `now` is not after it.
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
