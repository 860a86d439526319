//! `saker-check aof`: reads the files of an append-only file as a starting server does, and reports
//! on them. It can also cut off a damaged end, or write the state of an earlier time.
//!
//! ```text
//!   files::find ─► each file: rdb::check of its RDB part ─► Reader ─► batches ─► Tally
//!                                                             └─► how it ends ─► Problem
//! ```
//! One thread cuts a file into batches. Another thread counts the batches in order, because the
//! database of a key depends on the commands before it.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::time::Instant;

use persist::aof::reader::{AofError, Batch, End, Next, Reader, starts_with_rdb};

use crate::rdb::file::FileSource;
use crate::{progress, rdb};

mod files;
mod fix;
mod lost;
mod report;
mod tally;
mod until;

use files::{Found, ListedFile};
use tally::Tally;

pub use fix::{apply, truncate_to_time};
use report::{CheckedFile, FileProblem, Place};
pub use report::{CommandCount, FileReport, Fix, Problem, Report, Role, State, TouchedKey};
pub use until::{Until, UntilError, Written, write_until};

/// The maximum number of batches of commands that wait to be counted: a few megabytes.
const BATCHES_WAITING_MAX: usize = 4;

/// The options of a check of an append-only file.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The maximum number of keys, and of commands, that the report lists.
    pub listed_max: usize,
}

/// Checks the append-only file at `path`: its folder, its manifest, or a single file. O(bytes).
///
/// # Errors
/// If a file cannot be opened or read. Problems within the files are in the report.
pub fn check(path: &Path, options: &Options) -> io::Result<Report> {
    let begun = Instant::now();
    let Found { manifest, files, problem, unlisted, .. } = files::find(path)?;
    let mut report = Report::new(path.display().to_string(), manifest.map(|(name, _)| name));
    report.unlisted = unlisted;
    report.problems.extend(problem);
    let mut tally = Tally::new();
    // A server writes to a new file only after the file before it is complete. So if the new file
    // is empty, the file before it may be torn. A base was complete before the manifest named it.
    let has_bytes = |file: &ListedFile| std::fs::metadata(&file.path).is_ok_and(|found| found.len() > 0);
    let last_of = files.iter().rposition(|file| file.role.is_loaded() && has_bytes(file)).unwrap_or(0);
    let has_incr = files.iter().any(|file| file.role == Role::Incr);
    for (number, file) in files.iter().enumerate() {
        let of_file = check_file(file, options, &mut tally)?;
        let is_last = number >= last_of && !(file.role == Role::Base && has_incr);
        let place = if is_last { Place::Last } else { Place::Earlier };
        report.take_file(of_file, place);
    }
    report.take_tally(tally, options.listed_max);
    report.is_good = report.problems.is_empty();
    report.seconds = begun.elapsed().as_secs_f64();
    Ok(report)
}

fn check_file(listed: &ListedFile, options: &Options, tally: &mut Tally) -> io::Result<CheckedFile> {
    let mut report = FileReport::new(listed.name.clone(), listed.role);
    let mut file = match File::open(&listed.path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            report.state = if listed.role.is_loaded() { State::Missing } else { State::Removed };
            let problem = listed.role.is_loaded().then_some(FileProblem::Missing);
            return Ok(CheckedFile { report, problem });
        }
        opened => opened?,
    };
    report.len_bytes = file.metadata()?.len();
    if !listed.role.is_loaded() {
        report.state = State::NotLoaded;
        return Ok(CheckedFile { report, problem: None });
    }
    let mut begin = 0;
    if begins_with_rdb(&mut file)? {
        let rdb_options = rdb::Options { big_keys_max: options.listed_max, findings_max: 20 };
        let rdb = rdb::check(&listed.path, &rdb_options)?;
        begin = rdb.len_bytes.saturating_sub(rdb.trailing_len_bytes);
        let is_good = rdb.is_good;
        report.rdb = Some(rdb);
        if !is_good {
            report.state = State::Broken;
            return Ok(CheckedFile { report, problem: Some(FileProblem::Rdb) });
        }
    }
    file.seek(SeekFrom::Start(begin))?;
    report.aof_len_bytes = report.len_bytes.saturating_sub(begin);
    let bar = progress::bar(&listed.name, report.aof_len_bytes);
    let mut source = FileSource::new(file.try_clone()?, bar.clone());
    let commands_before = tally.counts();
    let end = count(Reader::behind(&mut source, Vec::new(), begin), tally);
    bar.finish_and_clear();
    source.finish()?;
    report.take_counts(tally.counts_since(commands_before));
    let problem = match end {
        Ok(End::Whole) => None,
        Ok(End::TornTail(torn)) => Some(FileProblem::Torn(torn)),
        Err(AofError::Broken(broken)) => Some(FileProblem::Broken(broken)),
        Err(AofError::Reading(trouble)) => return Err(io::Error::other(trouble)),
    };
    (report.good_len_bytes, report.state) = match &problem {
        Some(FileProblem::Torn(torn)) => (torn.good_len_bytes, State::Torn),
        Some(FileProblem::Broken(broken)) => (broken.good_len_bytes, State::Broken),
        _ => (report.len_bytes, State::Good),
    };
    let from = match &problem {
        Some(FileProblem::Torn(torn)) => torn.request_within,
        Some(FileProblem::Broken(broken)) => Some(broken.offset),
        _ => None,
    };
    if let Some(from) = from {
        report.lost_commands = lost::commands_behind(&mut file, from)?;
    }
    Ok(CheckedFile { report, problem })
}

/// Returns true if a file of the append-only file begins with an RDB part. Leaves the read position
/// at the beginning of the file.
fn begins_with_rdb(file: &mut File) -> io::Result<bool> {
    let mut first = Vec::new();
    file.take(9).read_to_end(&mut first)?;
    file.rewind()?;
    Ok(starts_with_rdb(&first))
}

/// Reads the commands of one file to its end, while another thread counts them into `tally`.
/// Returns the way in which the file ends.
fn count(mut reader: Reader<&mut FileSource>, tally: &mut Tally) -> Result<End, AofError> {
    let (batches, to_count) = sync_channel(BATCHES_WAITING_MAX);
    let (counted, used) = channel();
    tally.begin_file();
    std::thread::scope(move |scope| {
        scope.spawn(move || count_batches(&to_count, &counted, tally));
        loop {
            while let Ok(batch) = used.try_recv() {
                reader.recycle(batch);
            }
            match reader.next_batch()? {
                Next::Batch(batch) => {
                    batches.send(batch).expect("the other thread takes batches as long as there are some");
                }
                Next::End(end) => return Ok(end),
            }
        }
    })
}

fn count_batches(batches: &Receiver<Batch>, used: &Sender<Batch>, tally: &mut Tally) {
    for batch in batches {
        tally.take(&batch);
        // After the end of the file, the receiver of used batches no longer exists.
        let _ = used.send(batch);
    }
}
