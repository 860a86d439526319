//! Output of an earlier state of an append-only file, as one file that servers load. The state is
//! that of a given time, or of a given place in the files.
//!
//! ```text
//!   base, as it stands ─► SELECT 0 ─► incremental file ─► SELECT 0 ─► the next, up to the cut
//! ```
//! The base is the newest one that is not later than the time or place: the manifest's base or one
//! of its history.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use indicatif::ProgressBar;
use persist::aof::manifest::{BaseTime, Chosen, Generation, Manifest, Part};
use persist::aof::reader::{AofError, Batch, Cut, End, Next, Reader, starts_with_rdb};
use persist::load::{self, LoadError, LoadOptions, Splitter, Unsupported};
use persist::rdb::VersionCheck;
use stdx::utc::{parse_time, utc};

use super::files::{self, Found};
use crate::progress;
use crate::rdb::file::FileSource;

/// The point up to which an earlier state of the append-only file is written: a time or a byte of a
/// file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Until {
    /// All changes that are not later than a time, by the annotations.
    Time {
        /// The time up to which changes are written, in seconds since 1970.
        time_s: i64,
    },
    /// The state contains all changes before a byte of a file.
    Offset {
        /// The name of the file with the byte; `None` for the last file.
        file: Option<String>,
        /// The offset in the file of the byte before which changes are written.
        offset: u64,
    },
}

impl Until {
    /// Parses `2026-11-23 14:05:00` (UTC), `1763906700` (seconds since 1970), `FILE:1234` or
    /// `:1234` (a byte of the last file).
    ///
    /// # Errors
    /// A description of the expected form.
    pub fn parse(word: &str) -> Result<Self, String> {
        if let Some(time_s) = parse_time(word) {
            return Ok(Until::Time { time_s });
        }
        let offset = word.rsplit_once(':').and_then(|(file, offset)| Some((file, offset.parse().ok()?)));
        let (file, offset) = offset.ok_or(
            "a time such as '2026-11-23 14:05:00' (UTC) or 1763906700, or a place such as \
             appendonly.aof.1.incr.aof:1234",
        )?;
        let file = (!file.is_empty()).then(|| file.to_owned());
        Ok(Until::Offset { file, offset })
    }
}

/// The reason why no earlier state was written and no file was cut.
#[derive(Debug)]
pub enum UntilError {
    /// The files do not allow it; contains the reason as a text for people.
    Files(String),
    /// The system reported an error.
    Io(io::Error),
}

impl From<io::Error> for UntilError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl fmt::Display for UntilError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UntilError::Files(what) => f.write_str(what),
            UntilError::Io(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for UntilError {}

/// A description of the file with an earlier state that was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// The name of the base with which the written file begins; `None` without a base.
    pub base: Option<String>,
    /// The size of the file that was written, in bytes.
    pub len_bytes: u64,
    /// The number of commands written. The keys of an RDB part and the SELECT between files do not
    /// count.
    pub commands: u64,
    /// The time of the last annotation before the cut, in seconds since 1970; `None` without
    /// annotations.
    pub last_time_s: Option<i64>,
    /// The name of the file and the offset at which reading ended; `None` if all files were written
    /// whole.
    pub cut: Option<(String, u64)>,
}

/// Writes the state that the append-only file at `path` had at the point `until` into the new file
/// `out`.
///
/// Returns an error if the files do not go back to that point, are broken before it, or cannot be
/// read. Also returns an error if `out` already exists or cannot be written. On an error, an
/// incomplete new file is removed.
pub fn write_until(path: &Path, until: &Until, out: &Path) -> Result<Written, UntilError> {
    let Found { folder, manifest, files, problem, .. } = files::find(path)?;
    if let Some(problem) = problem {
        return Err(UntilError::Files(format!("{}: {}", problem.file, problem.what)));
    }
    let (base, incr) = match &manifest {
        Some((_, Some(manifest))) => choose(manifest, &folder, until)?,
        _ => (files.first().map(|file| file.path.clone()), Vec::new()),
    };
    let file = OpenOptions::new().write(true).create_new(true).open(out)?;
    let mut writer = Writer { out: BufWriter::new(file), written: Written::default(), has_times: false };
    let result = writer.files(base, &incr, until);
    let result = result.and_then(|()| writer.finish(until));
    if result.is_err() {
        // The caller reports the error. So even if the file cannot be removed, users do not mistake
        // it for a good one.
        let _ = std::fs::remove_file(out);
    }
    result
}

type Files = (Option<PathBuf>, Vec<PathBuf>);

/// Chooses the newest base that is not later than the point `until`, and the incremental files
/// after it. Returns an error if there is no such base.
fn choose(manifest: &Manifest, folder: &Path, until: &Until) -> Result<Files, UntilError> {
    let paths = |of: &Generation<'_>| {
        let path = |name: &str| folder.join(name);
        (of.base.map(|base| path(&base.name)), of.incr.iter().map(|incr| path(&incr.name)).collect())
    };
    let none = || UntilError::Files("the manifest lists no files".to_owned());
    let time_s = match until {
        Until::Time { time_s } => *time_s,
        Until::Offset { file: None, .. } => {
            return manifest.generations().first().map(paths).ok_or_else(none);
        }
        Until::Offset { file: Some(file), .. } => {
            let generations = manifest.generations();
            let found = generations.iter().find(|of| of.parts().any(|part| part.name == *file));
            return found.map(paths).ok_or_else(|| {
                let what = format!("the manifest does not list {file}, or does not list its base");
                UntilError::Files(what)
            });
        }
    };
    let mut is_first = true;
    let base_time = |base: &Part| {
        let is_newest = std::mem::take(&mut is_first);
        match AofFileReader::open(&folder.join(&base.name)).and_then(|mut base| base.begin_time_s()) {
            Ok(begin_s) => Ok(begin_s.map_or(BaseTime::Unknown, BaseTime::At)),
            // A file of the history may have been removed.
            Err(UntilError::Io(error)) if error.kind() == io::ErrorKind::NotFound && !is_newest => {
                Ok(BaseTime::Missing)
            }
            Err(error) => Err(error),
        }
    };
    match manifest.generation_at(time_s, base_time)? {
        Chosen::Generation(generation) => Ok(paths(&generation)),
        Chosen::TooEarly { oldest_s: Some(oldest_s) } => Err(UntilError::Files(format!(
            "{} is too early: the oldest available base was written at {}",
            utc(time_s),
            utc(oldest_s)
        ))),
        Chosen::BehindRestore { restored_s, .. } => Err(UntilError::Files(format!(
            "{} cannot be restored: an earlier state was restored at {}, and the base of the time before no \
             longer exists",
            utc(time_s),
            utc(restored_s)
        ))),
        Chosen::TooEarly { oldest_s: None } => Err(none()),
    }
}

/// A reader of one file of an append-only file: first its RDB part, if any, then its commands.
pub(crate) struct AofFileReader {
    name: String,
    /// The size of the RDB part, in bytes; 0 without an RDB part.
    rdb_len_bytes: u64,
    /// The time at which the RDB part was written, in seconds since 1970; `None` if unknown.
    rdb_time_s: Option<i64>,
    reader: Reader<FileSource>,
    bar: ProgressBar,
}

impl Drop for AofFileReader {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

impl AofFileReader {
    /// Opens the file at `path`, and reads its RDB part if it has one.
    pub(crate) fn open(path: &Path) -> Result<Self, UntilError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut file = File::open(path)?;
        let mut first = Vec::new();
        (&mut file).take(9).read_to_end(&mut first)?;
        file.rewind()?;
        let bar = progress::bar(&name, file.metadata()?.len());
        let source = FileSource::new(file, bar.clone());
        if !starts_with_rdb(&first) {
            let reader = Reader::new(source);
            return Ok(Self { name, rdb_len_bytes: 0, rdb_time_s: None, reader, bar });
        }
        let broken = |error: LoadError| UntilError::Files(format!("{name}: {error}"));
        let options =
            LoadOptions { versions: VersionCheck::Relaxed, checksum: true, unsupported: Unsupported::Kept };
        let mut splitter = Splitter::open(source, options, usize::MAX).map_err(broken)?;
        let mut rdb_time_s = None;
        loop {
            match splitter.next_part().map_err(broken)? {
                load::Part::Fact { name, value } if name == b"ctime" => {
                    rdb_time_s = std::str::from_utf8(&value).ok().and_then(|value| value.parse().ok());
                }
                load::Part::End => break,
                _ => {}
            }
        }
        let behind = splitter.into_behind().ok_or_else(|| io::Error::other("the snapshot has no end"))?;
        let rdb_len_bytes = behind.file_offset;
        let reader = Reader::behind(behind.source, behind.ahead, behind.file_offset);
        Ok(Self { name, rdb_len_bytes, rdb_time_s, reader, bar })
    }

    /// Reads the next batch of commands; returns `None` at the end of the file or before an
    /// incomplete command at its end.
    fn next_batch(&mut self) -> Result<Option<Batch>, UntilError> {
        match self.reader.next_batch() {
            Ok(Next::Batch(batch)) => Ok(Some(batch)),
            Ok(Next::End(End::Whole | End::TornTail(_))) => Ok(None),
            Err(error @ (AofError::Broken(_) | AofError::Reading(_))) => {
                Err(UntilError::Files(format!("{}: {error}", self.name)))
            }
        }
    }

    /// Returns the time at which the file's data begins, in seconds since 1970: the time of its RDB
    /// part, or of an annotation at offset 0. Returns `None` if it is unknown.
    fn begin_time_s(&mut self) -> Result<Option<i64>, UntilError> {
        if self.rdb_len_bytes > 0 {
            return Ok(self.rdb_time_s);
        }
        let first = self.next_batch()?;
        let first = first.as_ref().and_then(|batch| batch.annotations().first());
        Ok(first.filter(|first| first.file_offset == 0).map(|first| first.time_s))
    }

    /// Returns the offset at which the changes later than `time_s` (seconds since 1970) begin;
    /// `None` if there are none.
    pub(crate) fn first_behind_time(&mut self, time_s: i64) -> Result<Option<u64>, UntilError> {
        while let Some(batch) = self.next_batch()? {
            if let Some(cut) = batch.cut_behind_time(time_s) {
                return Ok(Some(batch.file_offset() + cut.len_bytes as u64));
            }
            self.reader.recycle(batch);
        }
        Ok(None)
    }
}

/// The next step after a file was written: the next file, or the end because of the cut.
#[derive(PartialEq, Eq)]
enum Then {
    GoOn,
    Cut,
}

/// The command written between two files. Each file begins in database 0.
const SELECT_0: &[u8] = b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n";

struct Writer {
    out: BufWriter<File>,
    written: Written,
    /// True if an annotation with a time was read so far in any file.
    has_times: bool,
}

impl Writer {
    fn files(&mut self, base: Option<PathBuf>, incr: &[PathBuf], until: &Until) -> Result<(), UntilError> {
        let count = usize::from(base.is_some()) + incr.len();
        for (number, path) in base.iter().chain(incr).enumerate() {
            let mut cutter = AofFileReader::open(path).map_err(|error| match error {
                UntilError::Io(error) => UntilError::Files(format!("{}: {error}", path.display())),
                error => error,
            })?;
            if number == 0 && base.is_some() {
                self.written.base = Some(cutter.name.clone());
            } else if self.written.commands > 0 {
                self.write(SELECT_0)?;
            }
            let offset = match until {
                Until::Offset { file: Some(file), offset } if *file == cutter.name => Some(*offset),
                Until::Offset { file: None, offset } if number + 1 == count => Some(*offset),
                _ => None,
            };
            let cut = Place {
                offset,
                time_s: if let Until::Time { time_s } = until { Some(*time_s) } else { None },
            };
            if self.file(&mut cutter, path, &cut)? == Then::Cut {
                break;
            }
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.written.len_bytes += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    fn file(&mut self, cutter: &mut AofFileReader, path: &Path, place: &Place) -> Result<Then, UntilError> {
        let rdb_len_bytes = cutter.rdb_len_bytes;
        if rdb_len_bytes > 0 {
            if place.offset.is_some_and(|offset| offset < rdb_len_bytes) {
                let what = format!(
                    "{}: the position is within the snapshot, which ends at byte {rdb_len_bytes}",
                    cutter.name
                );
                return Err(UntilError::Files(what));
            }
            let mut file = File::open(path)?;
            file.seek(SeekFrom::Start(0))?;
            self.written.len_bytes += io::copy(&mut file.take(rdb_len_bytes), &mut self.out)?;
        }
        let mut last = rdb_len_bytes;
        while let Some(batch) = cutter.next_batch()? {
            let cut = place.cut_of(&batch);
            let len_bytes = cut.map_or(batch.len_bytes(), |cut| cut.len_bytes);
            self.write(&batch.bytes()[..len_bytes])?;
            self.written.commands += cut.map_or(batch.len(), |cut| cut.requests) as u64;
            last = batch.file_offset() + len_bytes as u64;
            let before = batch.annotations().iter().take_while(|annotation| annotation.file_offset < last);
            self.written.last_time_s = before.last().map(|last| last.time_s).or(self.written.last_time_s);
            self.has_times |= !batch.annotations().is_empty();
            if cut.is_some() {
                self.written.cut = Some((cutter.name.clone(), last));
                return Ok(Then::Cut);
            }
            cutter.reader.recycle(batch);
        }
        if place.offset.is_some() {
            self.written.cut = Some((cutter.name.clone(), last));
            return Ok(Then::Cut);
        }
        Ok(Then::GoOn)
    }

    fn finish(self, until: &Until) -> Result<Written, UntilError> {
        let Self { out, written, has_times } = self;
        if matches!(until, Until::Time { .. }) && !has_times && written.commands > 0 {
            let what = "the files have no times, because aof-timestamp-enabled was off. Give a position instead, \
                 as FILE:BYTE";
            return Err(UntilError::Files(what.to_owned()));
        }
        out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        Ok(written)
    }
}

/// The point at which a file is cut: an offset in this file, or a time in seconds since 1970, or
/// neither.
struct Place {
    offset: Option<u64>,
    time_s: Option<i64>,
}

impl Place {
    /// Returns the place within `batch` at which the file is cut; `None` if it is not cut there.
    fn cut_of(&self, batch: &Batch) -> Option<Cut> {
        let end = batch.file_offset() + batch.len_bytes() as u64;
        let by_offset = self.offset.filter(|&offset| offset < end).map(|offset| batch.cut_at_offset(offset));
        by_offset.or_else(|| batch.cut_behind_time(self.time_s?))
    }
}
