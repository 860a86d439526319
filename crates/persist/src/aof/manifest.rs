//! The manifest: a list of the files of the append-only file, in their order.
//!
//! ```text
//!   file NAME.2.base.rdb seq 2 type b                 the base: the state before the other files
//!   file NAME.1.incr.aof seq 1 type h replacedat 9    history: of an earlier base, not loaded
//!   file NAME.2.incr.aof seq 2 type i startoffset 9   later changes; the last file is appended to
//! ```
//! A line consists of pairs of a key and a value. `file`, `seq` and `type` are required; unknown
//! keys are ignored. A name with blanks, quotes or bytes beyond ASCII is in double quotes. A line
//! that begins with `#` is a comment. There is at most one base, and the sequence numbers of the
//! incremental files ascend. `startoffset` and `endoffset` are keys of Redis 8: the replication
//! offsets at which the file begins and, once it is closed, ends. Three keys are Saker's own; Redis
//! and Valkey ignore them, and drop them when they write the manifest:
//!
//! | key | of | value, in Unix seconds |
//! |---|---|---|
//! | `replacedat` | history | when the file became history |
//! | `restoreduntil` | the base | the time to which the data was last restored |
//! | `leftout` | history | the same time, in files that the restored base replaced |
//!
//! The changes in files with `leftout` were undone by the restore. So these files and those written
//! after the restore are never loaded together ([`Manifest::generations`]).
//!
//! Errors and their texts are those of Redis 8.0.6 and Valkey 9.1.2. Three more things are
//! rejected: a name that is empty, `.` or `..` or contains a NUL, a name that is not UTF-8, and a
//! number beyond 2^62.
//!
//! A manifest is changed in memory, and its whole text then replaces the old file:
//! [`Manifest::to_text`] is written to the file [`temp_manifest_name`], which is synced and renamed
//! to [`manifest_name`].

use std::collections::BTreeSet;
use std::fmt;

use stdx::quoted::split_quoted;

/// The maximum length of a line in bytes, including its end, as in Redis.
const LINE_LEN_BYTES_MAX: usize = 1024;

/// The largest number of a file that is accepted, so that there is always a next one.
const SEQ_MAX: i64 = 1 << 62;

/// A file of the append-only file, as one line of the manifest describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The name of the file in the folder of the append-only file.
    pub name: String,
    /// The sequence number of the file among the files of its kind (base or incremental); never 0.
    pub seq: i64,
    /// The replication offset at the beginning of the file, in bytes; `None` if it is unknown.
    pub start_offset: Option<i64>,
    /// The replication offset at the end of the file, in bytes; `None` before the file is closed.
    pub end_offset: Option<i64>,
    /// The time when a file of the history became history, in Unix seconds; `None` if unknown.
    pub replaced_s: Option<i64>,
    /// The time to which a base's data was last restored, in Unix seconds; `None` if it was not.
    pub restored_until_s: Option<i64>,
    /// The Unix time in seconds to which the data was restored by the restore that replaced this
    /// file of the history; `None` if none did.
    pub left_out_s: Option<i64>,
}

impl Part {
    fn new(name: String, seq: i64) -> Self {
        Self {
            name,
            seq,
            start_offset: None,
            end_offset: None,
            replaced_s: None,
            restored_until_s: None,
            left_out_s: None,
        }
    }

    /// Returns the optional numbers of the file's line in the manifest, each with its key.
    fn numbers(&self) -> [(&'static str, Option<i64>); 5] {
        [
            ("startoffset", self.start_offset),
            ("endoffset", self.end_offset),
            ("replacedat", self.replaced_s),
            ("restoreduntil", self.restored_until_s),
            ("leftout", self.left_out_s),
        ]
    }

    /// Borrows mutably the number of [`Part::numbers`] with this key; `None` for another key.
    fn number_mut(&mut self, key: &[u8]) -> Option<&mut Option<i64>> {
        Some(match &key.to_ascii_lowercase()[..] {
            b"startoffset" => &mut self.start_offset,
            b"endoffset" => &mut self.end_offset,
            b"replacedat" => &mut self.replaced_s,
            b"restoreduntil" => &mut self.restored_until_s,
            b"leftout" => &mut self.left_out_s,
            _ => return None,
        })
    }

    fn is_incr(&self) -> bool {
        self.name.ends_with(".incr.aof")
    }

    fn is_expired(&self, now_s: i64, ttl_s: i64) -> bool {
        ttl_s <= 0 || self.replaced_s.is_some_and(|at_s| at_s.saturating_add(ttl_s) <= now_s)
    }
}

/// The format of a base file of the append-only file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaseKind {
    /// A snapshot in RDB format: `aof-use-rdb-preamble yes`.
    Rdb,
    /// Commands in the format of the append-only file: `aof-use-rdb-preamble no`.
    Aof,
}

/// The incremental files that stay in use when a new base replaces the old one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptIncrs {
    /// No incremental file: nothing has changed since the new base, or no file records the changes.
    None,
    /// The incremental file that was begun at the new base's moment, and all later ones.
    From {
        /// The number [`Part::seq`] of the first incremental file that stays in use.
        seq: i64,
    },
}

/// The files of an append-only file, as its manifest lists them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// The base file; `None` if there is none. It is loaded first.
    pub base: Option<Part>,
    /// The files that a newer base has replaced, newest first. They are not loaded.
    pub history: Vec<Part>,
    /// The incremental files in the order in which they are loaded.
    pub incr: Vec<Part>,
    /// The largest sequence number of a base file so far.
    base_seq: i64,
    /// The sequence number of the last incremental file; 0 before the first one.
    incr_seq: i64,
}

/// A generation: a base file and the incremental files with the changes after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generation<'m> {
    /// The base file, loaded first; `None` if loading starts with an empty server.
    pub base: Option<&'m Part>,
    /// The incremental files after the base, up to the present or to a restore, in loading order.
    pub incr: Vec<&'m Part>,
    /// True if a restore replaced the state to which the files of this generation lead.
    pub is_left_out: bool,
    /// The time of the restore that replaced it, in Unix seconds; `None` if none or unknown.
    pub replaced_s: Option<i64>,
}

impl Generation<'_> {
    /// Returns the files of the generation in the order in which they are loaded.
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        self.base.into_iter().chain(self.incr.iter().copied())
    }
}

/// The time of the data that a base file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaseTime {
    /// The Unix time in seconds: the base has all changes before this second and none after it.
    At(i64),
    /// The base file does not state the time of its data.
    Unknown,
    /// The base file has been removed.
    Missing,
}

/// The files that lead to the data of a requested time, or the reason why there are none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chosen<'m> {
    /// The files of this generation lead to the data of the requested time.
    Generation(Generation<'m>),
    /// No files: every base is later than the requested time.
    TooEarly {
        /// The time of the oldest base, in Unix seconds; `None` if there is no base.
        oldest_s: Option<i64>,
    },
    /// No files: the files written after the restore were removed, and those from before it lead to
    /// a different state.
    BehindRestore {
        /// The time of the last restore, in Unix seconds.
        restored_s: i64,
        /// The time of the oldest base after the restore, in Unix seconds.
        oldest_s: Option<i64>,
    },
}

/// A file of the append-only file that is loaded at start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToLoad<'m> {
    /// The entry of the manifest for the file.
    pub part: &'m Part,
    /// True if the file is the base, which is loaded first.
    pub is_base: bool,
    /// True if a crash may have left an incomplete request at the end of the file.
    pub may_be_torn: bool,
}

/// The description of an error in a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestError {
    /// The number of the wrong line in the manifest, from 1.
    pub line: usize,
    /// The text of the line without blanks at its ends; `None` if the line was not parsed.
    pub text: Option<Box<[u8]>>,
    /// The kind of the error in the manifest.
    pub kind: ManifestErrorKind,
}

/// The kinds of errors of a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManifestErrorKind {
    /// The manifest is empty.
    Empty,
    /// A line of the manifest is too long, contains a NUL, or is the last one and has no line end.
    LongLine,
    /// A line of the manifest does not consist of keys and values, or a required key is missing.
    Format,
    /// A name in the manifest is not a plain file name in the folder.
    Path,
    /// A file name in the manifest is not UTF-8.
    NameNotText,
    /// The manifest names a second base file.
    DuplicateBase,
    /// The sequence number of an incremental file is not above those of the files before it.
    NonMonotonic,
    /// A type of file other than `b` (base), `h` (history) and `i` (incremental).
    UnknownType,
}

impl fmt::Display for ManifestErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ManifestErrorKind::Empty => "Found an empty AOF manifest",
            ManifestErrorKind::LongLine => "The AOF manifest file contains too long line",
            ManifestErrorKind::Format => "Invalid AOF manifest file format",
            ManifestErrorKind::Path => "File can't be a path, just a filename",
            ManifestErrorKind::NameNotText => "File name is not valid UTF-8",
            ManifestErrorKind::DuplicateBase => "Found duplicate base file information",
            ManifestErrorKind::NonMonotonic => "Found a non-monotonic sequence number",
            ManifestErrorKind::UnknownType => "Unknown AOF file type",
        })
    }
}

impl fmt::Display for ManifestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        if self.kind != ManifestErrorKind::Empty {
            write!(f, ", at line {}", self.line)?;
        }
        match &self.text {
            Some(text) => write!(f, ": '{}'", text.escape_ascii()),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ManifestError {}

/// Returns the name of the manifest of the append-only file `appendfilename`.
pub fn manifest_name(appendfilename: &str) -> String {
    format!("{appendfilename}.manifest")
}

/// Returns the name of a manifest while it is being written, before it is renamed.
pub fn temp_manifest_name(appendfilename: &str) -> String {
    format!("temp-{appendfilename}.manifest")
}

/// Returns the name of the file with the changes made while the first base is written. The manifest
/// names it once the base is complete.
pub fn temp_incr_name(appendfilename: &str) -> String {
    format!("temp-{appendfilename}.incr")
}

/// The type of a file in the manifest: base, history (replaced by a newer base) or incremental.
#[derive(Clone, Copy)]
enum Type {
    Base,
    History,
    Incr,
}

impl Manifest {
    /// Parses the text of a manifest. O(bytes).
    ///
    /// # Errors
    /// The first invalid line.
    pub fn parse(text: &[u8]) -> Result<Self, ManifestError> {
        if text.is_empty() {
            return Err(ManifestError { line: 1, text: None, kind: ManifestErrorKind::Empty });
        }
        let mut manifest = Self::default();
        let (mut rest, mut number) = (text, 0);
        while !rest.is_empty() {
            let newline = rest.iter().take(LINE_LEN_BYTES_MAX).position(|&byte| byte == b'\n');
            let line;
            (line, rest) = rest.split_at(newline.map_or(rest.len().min(LINE_LEN_BYTES_MAX), |at| at + 1));
            number += 1;
            if line.starts_with(b"#") {
                continue;
            }
            if newline.is_none() || line.contains(&0) {
                return Err(ManifestError { line: number, text: None, kind: ManifestErrorKind::LongLine });
            }
            let line = trim(line);
            manifest.take_line(line).map_err(|kind| ManifestError {
                line: number,
                text: Some(line.into()),
                kind,
            })?;
        }
        Ok(manifest)
    }

    fn take_line(&mut self, line: &[u8]) -> Result<(), ManifestErrorKind> {
        let (kind, part) = parse_line(line)?;
        match kind {
            Type::Base if self.base.is_some() => return Err(ManifestErrorKind::DuplicateBase),
            Type::Base => {
                self.base_seq = part.seq;
                self.base = Some(part);
            }
            Type::History => self.history.push(part),
            Type::Incr if part.seq <= self.incr_seq => return Err(ManifestErrorKind::NonMonotonic),
            Type::Incr => {
                self.incr_seq = part.seq;
                self.incr.push(part);
            }
        }
        Ok(())
    }

    /// Creates the manifest for the single append-only file of Redis 6 or earlier, moved into the
    /// folder.
    pub fn of_single_file(appendfilename: &str) -> Self {
        let base = Part::new(appendfilename.to_owned(), 1);
        Self { base: Some(base), base_seq: 1, ..Self::default() }
    }

    /// Returns true if the manifest names no file to load.
    pub fn is_empty(&self) -> bool {
        self.base.is_none() && self.incr.is_empty()
    }

    /// Returns the files that are loaded, in order: the base, then the incremental files.
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        self.base.iter().chain(&self.incr)
    }

    /// Returns the files to load, in order; `lens_bytes` has their lengths in bytes. O(files).
    pub fn to_load(&self, lens_bytes: &[u64]) -> Vec<ToLoad<'_>> {
        // A file is empty until the one before it is complete, so the one before it may be torn.
        let last = lens_bytes.iter().rposition(|&len_bytes| len_bytes > 0).unwrap_or(0);
        let parts = self.parts().enumerate().map(|(number, part)| {
            let is_base = number == 0 && self.base.is_some();
            // A base was complete before the manifest named it.
            let may_be_torn = number >= last && (!is_base || self.incr.is_empty());
            ToLoad { part, is_base, may_be_torn }
        });
        parts.collect()
    }

    /// Returns the groups of files that each lead to a state of the data. The first group, the base
    /// with its incremental files, leads to the current state. One group follows for each base of
    /// the history, newest first, with all incremental files after it. Files from before a restore
    /// lead to the state that the restore replaced. Files of the history may be missing in the
    /// folder. O(bases × files).
    pub fn generations(&self) -> Vec<Generation<'_>> {
        let (mut generations, mut follow) = (Vec::new(), self.incr.iter().collect::<Vec<_>>());
        if !self.is_empty() {
            let (base, incr) = (self.base.as_ref(), follow.clone());
            generations.push(Generation { base, incr, is_left_out: false, replaced_s: None });
        }
        // In the history, the incremental files of a base precede it, and files of newer bases
        // precede these.
        let (mut own, mut is_left_out, mut replaced_s) = (Vec::new(), false, None);
        for part in &self.history {
            let is_end = part.left_out_s.is_some();
            if part.is_incr() {
                if is_end && own.iter().all(|own: &&Part| own.left_out_s.is_none()) {
                    // These files are of a newer generation without a base.
                    own.clear();
                }
                own.push(part);
                continue;
            }
            let ends_here = is_end || own.iter().any(|own| own.left_out_s.is_some());
            let mut incr = std::mem::take(&mut own);
            incr.sort_by_key(|part| part.seq);
            is_left_out |= ends_here;
            if ends_here {
                replaced_s = part.replaced_s;
            } else {
                incr.extend(&follow);
            }
            follow.clone_from(&incr);
            generations.push(Generation { base: Some(part), incr, is_left_out, replaced_s });
        }
        generations
    }

    /// Returns the newest generation whose base is not later than `time_s`, in Unix seconds.
    /// `base_time` returns the time of a base's state; it is called from the newest base to older
    /// ones. A base with an unknown time counts as early enough; a removed base is skipped. Returns
    /// [`Chosen::BehindRestore`] if the time is after a restore and no base written after it fits.
    ///
    /// # Errors
    /// The error of `base_time`.
    pub fn generation_at<E>(
        &self,
        time_s: i64,
        mut base_time: impl FnMut(&Part) -> Result<BaseTime, E>,
    ) -> Result<Chosen<'_>, E> {
        let mut oldest_s = None;
        for generation in self.generations() {
            if let Some(restored_s) = generation.replaced_s.filter(|&restored_s| restored_s <= time_s) {
                return Ok(Chosen::BehindRestore { restored_s, oldest_s });
            }
            let Some(base) = generation.base else { return Ok(Chosen::Generation(generation)) };
            match base_time(base)? {
                BaseTime::At(at_s) if at_s > time_s => oldest_s = Some(at_s),
                BaseTime::Missing => {}
                BaseTime::At(_) | BaseTime::Unknown => return Ok(Chosen::Generation(generation)),
            }
        }
        Ok(Chosen::TooEarly { oldest_s })
    }

    /// Formats the manifest as the text of its file.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        self.base.iter().for_each(|part| add_line(&mut text, part, 'b'));
        self.history.iter().for_each(|part| add_line(&mut text, part, 'h'));
        self.incr.iter().for_each(|part| add_line(&mut text, part, 'i'));
        text
    }

    /// Returns an entry for a new file: the first number above `seq` and 0 whose `name` is unused.
    fn free_name(&self, seq: i64, name: impl Fn(i64) -> String) -> Part {
        let parts = self.parts().chain(&self.history);
        let taken: BTreeSet<&str> = parts.map(|part| &part.name[..]).collect();
        let mut seq = seq.max(0) + 1;
        let mut free = name(seq);
        // If the manifest names no incremental file, a file of the history may have that name.
        while taken.contains(&free[..]) {
            seq += 1;
            free = name(seq);
        }
        Part::new(free, seq)
    }

    /// Skips the numbers of bases whose files exist according to `has`, although the manifest does
    /// not name them. So a file that another program wrote, or that a crash left, is never
    /// overwritten. O(skipped files).
    pub fn skip_unnamed_bases(&mut self, appendfilename: &str, has: impl Fn(&str) -> bool) {
        // Names of the history count too: a file may exist after the number of a removed one.
        let is_taken = |file: String| has(&file) || self.names(&file);
        let file = |seq: i64, suffix| format!("{appendfilename}.{seq}.base.{suffix}");
        let is_there = |seq: i64| ["rdb", "aof"].iter().any(|suffix| is_taken(file(seq, suffix)));
        self.base_seq = (self.base_seq.max(0)..).find(|seq| !is_there(seq + 1)).expect("one is free");
    }

    /// Skips the numbers of incremental files that exist according to `has`, although the manifest
    /// does not name them. O(skipped files).
    pub fn skip_unnamed_incrs(&mut self, appendfilename: &str, has: impl Fn(&str) -> bool) {
        let is_taken = |file: String| has(&file) || self.names(&file);
        let is_there = |seq: i64| is_taken(format!("{appendfilename}.{seq}.incr.aof"));
        self.incr_seq = (self.incr_seq.max(0)..).find(|seq| !is_there(seq + 1)).expect("one is free");
    }

    /// Returns true if the manifest has an entry for the file named `file`.
    pub fn names(&self, file: &str) -> bool {
        self.parts().chain(&self.history).any(|part| part.name == file)
    }

    /// Adds an incremental file to the manifest, to which changes are appended from then on.
    pub fn add_incr(&mut self, appendfilename: &str) -> &mut Part {
        let part = self.free_name(self.incr_seq, |seq| format!("{appendfilename}.{seq}.incr.aof"));
        self.incr_seq = part.seq;
        self.incr.push(part);
        let last = self.incr.len() - 1;
        &mut self.incr[last]
    }

    /// Returns the last incremental file, to which a started server appends, and removes its end
    /// offset. `None` if there is no incremental file.
    pub fn open_last_incr(&mut self) -> Option<&mut Part> {
        let part = self.incr.last_mut()?;
        part.end_offset = None;
        Some(part)
    }

    /// Replaces the base by a new one. The old base becomes history, and so do the incremental
    /// files whose changes the new base contains.
    pub fn replace_base(&mut self, appendfilename: &str, kind: BaseKind, kept: KeptIncrs) -> &mut Part {
        let suffix = match kind {
            BaseKind::Rdb => "rdb",
            BaseKind::Aof => "aof",
        };
        let part = self.free_name(self.base_seq, |seq| format!("{appendfilename}.{seq}.base.{suffix}"));
        let rewritten = match kept {
            KeptIncrs::None => self.incr.len(),
            KeptIncrs::From { seq } => self.incr.partition_point(|incr| incr.seq < seq),
        };
        let restored_until_s = self.base.as_ref().and_then(|base| base.restored_until_s);
        let old = self.incr.drain(..rewritten).chain(self.base.take()).collect::<Vec<Part>>();
        self.history.splice(0..0, old);
        self.base_seq = part.seq;
        self.base.insert(Part { restored_until_s, ..part })
    }

    /// Records that the base holds the restored state of `until_s`, and that the restore replaced
    /// the first `replaced` files of the history, which hold later changes.
    pub fn note_restore(&mut self, until_s: i64, replaced: usize) {
        self.base.iter_mut().for_each(|base| base.restored_until_s = Some(until_s));
        self.history.iter_mut().take(replaced).for_each(|part| part.left_out_s = Some(until_s));
    }

    /// Returns true if the data was already restored to exactly this time, as far as the manifest
    /// shows.
    pub fn was_restored(&self, until_s: i64) -> bool {
        let mut parts = self.base.iter().chain(&self.history);
        parts.any(|part| [part.restored_until_s, part.left_out_s].contains(&Some(until_s)))
    }

    /// Sets missing `replacedat` times of the history to `now_s`. Returns true if one was missing.
    pub fn date_history(&mut self, now_s: i64) -> bool {
        let mut undated = self.history.iter_mut().filter(|part| part.replaced_s.is_none()).peekable();
        let has_some = undated.peek().is_some();
        undated.for_each(|part| part.replaced_s = Some(now_s));
        has_some
    }

    /// Returns true if [`take_expired`](Self::take_expired) would remove a file from the history,
    /// or the history's oldest file has no `replacedat` time. O(files of the history).
    pub fn has_expired(&self, now_s: i64, ttl_s: i64) -> bool {
        let last = self.history[..self.left_out_from()].last();
        last.is_some_and(|last| last.is_expired(now_s, ttl_s) || last.replaced_s.is_none())
    }

    /// Returns the history's index of the first file that a restore replaced; its length if none.
    fn left_out_from(&self) -> usize {
        self.history.iter().position(|part| part.left_out_s.is_some()).unwrap_or(self.history.len())
    }

    /// Removes from the history, and returns, the files that became history at least `ttl_s`
    /// seconds ago. They may be deleted once the new manifest is in place. The first file that a
    /// restore replaced and all files after it stay. Of these, missing files (`has` returns false)
    /// at the end of the history are dropped. A missing file in the middle stays, because it marks
    /// a gap in the data.
    pub fn take_expired(&mut self, now_s: i64, ttl_s: i64, has: impl Fn(&str) -> bool) -> Vec<Part> {
        let mut left_out = self.history.split_off(self.left_out_from());
        while left_out.last().is_some_and(|part| !has(&part.name)) {
            left_out.pop();
        }
        let mut expired = Vec::new();
        while let Some(last) = self.history.pop_if(|last| last.is_expired(now_s, ttl_s)) {
            expired.push(last);
        }
        self.history.append(&mut left_out);
        expired
    }
}

/// Returns a line of the manifest without blanks at both ends.
fn trim(line: &[u8]) -> &[u8] {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
    let start = line.iter().position(|byte| !is_blank(byte)).unwrap_or(line.len());
    let end = line.iter().rposition(|byte| !is_blank(byte)).map_or(start, |last| last + 1);
    &line[start..end]
}

fn parse_line(line: &[u8]) -> Result<(Type, Part), ManifestErrorKind> {
    use ManifestErrorKind::{Format, NameNotText, Path, UnknownType};
    let words = split_quoted(line).filter(|words| words.len() >= 6).ok_or(Format)?;
    let (pairs, rest) = words.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(Format);
    }
    let (mut kind, mut part) = (None, Part::new(String::new(), 0));
    for [key, value] in pairs {
        if key.eq_ignore_ascii_case(b"file") {
            let is_path = value.iter().any(|byte| matches!(byte, b'/' | b'\\' | 0));
            if is_path || matches!(&value[..], b"" | b"." | b"..") {
                return Err(Path);
            }
            part.name = String::from_utf8(value.clone()).map_err(|_| NameNotText)?;
        } else if key.eq_ignore_ascii_case(b"seq") {
            part.seq = leading_number(value);
        } else if key.eq_ignore_ascii_case(b"type") {
            kind = value.first().filter(|&&kind| kind != 0);
        } else if let Some(number) = part.number_mut(key) {
            *number = Some(leading_number(value));
        }
    }
    let Some(kind) = kind.filter(|_| !part.name.is_empty()) else { return Err(Format) };
    if part.seq == 0 || part.seq > SEQ_MAX {
        return Err(Format);
    }
    let kind = match kind {
        b'b' => Type::Base,
        b'h' => Type::History,
        b'i' => Type::Incr,
        _ => return Err(UnknownType),
    };
    Ok((kind, part))
}

/// Parses the number at the start of a word, limited to the largest `i64`; 0 if there is none.
fn leading_number(word: &[u8]) -> i64 {
    let (is_negative, digits) = match word {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    let digits = digits.iter().take_while(|byte| byte.is_ascii_digit()).map(|byte| i64::from(byte - b'0'));
    let number = digits.fold(0_i64, |number, digit| number.saturating_mul(10).saturating_add(digit));
    if is_negative { -number } else { number }
}

fn add_line(text: &mut String, part: &Part, kind: char) {
    text.push_str("file ");
    add_word(text, &part.name);
    text.push_str(&format!(" seq {} type {kind}", part.seq));
    for (key, number) in part.numbers() {
        if let Some(number) = number {
            text.push_str(&format!(" {key} {number}"));
        }
    }
    text.push('\n');
}

/// Appends a file name to the manifest's text, in quotes if it needs them.
fn add_word(text: &mut String, name: &str) {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'' | b'\\');
    if !name.is_empty() && name.bytes().all(is_plain) {
        return text.push_str(name);
    }
    text.push('"');
    for byte in name.bytes() {
        match byte {
            b'"' | b'\\' => text.extend(['\\', byte.into()]),
            b'\n' => text.push_str("\\n"),
            b'\r' => text.push_str("\\r"),
            b'\t' => text.push_str("\\t"),
            0x07 => text.push_str("\\a"),
            0x08 => text.push_str("\\b"),
            b' '..=b'~' => text.push(byte.into()),
            _ => text.push_str(&format!("\\x{byte:02x}")),
        }
    }
    text.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use ManifestErrorKind as Kind;

    const NAME: &str = "appendonly.aof";

    fn check(text: &str, expected: Result<&[&str], (usize, Kind)>) {
        let found = Manifest::parse(text.as_bytes());
        let names = found.as_ref().map(|manifest| manifest.parts().map(|part| &part.name[..]).collect());
        let names = names.map_err(|error| (error.line, error.kind));
        assert_eq!(names, expected.map(<[&str]>::to_vec), "{text:?}");
        if let Ok(manifest) = found {
            let again = Manifest::parse(manifest.to_text().as_bytes());
            assert_eq!(again.is_err(), manifest.to_text().is_empty());
            assert_eq!(again.unwrap_or_default(), manifest, "{text:?}");
        }
    }

    #[test]
    fn a_manifest_of_redis_is_read_and_written_the_same() {
        let text = "file appendonly.aof.3.base.rdb seq 3 type b\n\
                    file appendonly.aof.2.incr.aof seq 2 type h startoffset 1 endoffset 52\n\
                    file appendonly.aof.2.base.rdb seq 2 type h\n\
                    file appendonly.aof.3.incr.aof seq 3 type i startoffset 52\n\
                    file appendonly.aof.4.incr.aof seq 4 type i\n";
        let manifest = Manifest::parse(text.as_bytes()).unwrap();
        assert_eq!(manifest.to_text(), text);
        assert_eq!(manifest.base.as_ref().unwrap().seq, 3);
        assert_eq!(manifest.history[0].start_offset, Some(1));
        assert_eq!(manifest.history[0].end_offset, Some(52));
        assert_eq!(manifest.incr.len(), 2);
        check(
            text,
            Ok(&["appendonly.aof.3.base.rdb", "appendonly.aof.3.incr.aof", "appendonly.aof.4.incr.aof"]),
        );
    }

    /// Compares the errors with those of Redis 8.0.2, 8.0.6 and Valkey 8.1.1, 9.1.2 for each of
    /// these files.
    #[test]
    fn files_are_refused_as_redis_does() {
        check("", Err((1, Kind::Empty)));
        check("file a seq 1 type i", Err((1, Kind::LongLine)));
        check("\n", Err((1, Kind::Format)));
        check("file a seq 1 type i\n\n", Err((2, Kind::Format)));
        check("file a/b seq 1 type i\n", Err((1, Kind::Path)));
        check("file a\\b seq 1 type i\n", Err((1, Kind::Path)));
        check("#x\nfile b seq 1 type i\nfile a seq 1 type i\n", Err((3, Kind::NonMonotonic)));
        check("file a seq -1 type i\n", Err((1, Kind::NonMonotonic)));
        check("file x seq 1 type b\nfile y seq 2 type b\n", Err((2, Kind::DuplicateBase)));
        check("file x seq 1 type q\n", Err((1, Kind::UnknownType)));
        check("file x seq 0 type i\n", Err((1, Kind::Format)));
        check("file x seq x type i\n", Err((1, Kind::Format)));
        check("file x seq 1 type i x\n", Err((1, Kind::Format)));
        check("file x seq 1\n", Err((1, Kind::Format)));
        check("file x seq 1 kind i\n", Err((1, Kind::Format)));
        check("file x seq 1 type ''\n", Err((1, Kind::Format)));
        check("file \"x seq 1 type i\n", Err((1, Kind::Format)));
        check("file x seq 1 type i a\0\n", Err((1, Kind::LongLine)));
        check(&format!("{}x\nfile a seq 1 type i\n", "#".repeat(1024)), Err((2, Kind::Format)));
        check(&format!("file a seq 1 type i x {}\n", "y".repeat(1024)), Err((1, Kind::LongLine)));
    }

    #[test]
    fn names_that_lead_nowhere_or_are_no_text_are_refused() {
        for name in ["\"\"", ".", "..", "\"a\\x00b\""] {
            check(&format!("file {name} seq 1 type i\n"), Err((1, Kind::Path)));
        }
        check("file \"\\xff\" seq 1 type i\n", Err((1, Kind::NameNotText)));
        check("file a seq 99999999999999999999 type i\n", Err((1, Kind::Format)));
    }

    #[test]
    fn files_are_read_as_leniently_as_in_redis() {
        check("#c\n", Ok(&[]));
        check("#c", Ok(&[]));
        check("FILE a SEQ 1 TYPE incr foo bar\n", Ok(&["a"]));
        check("  type i\tfile a seq 1x  \r\n", Ok(&["a"]));
        check("file a seq 1 type i startoffset 0 endoffset 33\n", Ok(&["a"]));
        check("file a seq -1 type b\nfile a seq 1 type i\n", Ok(&["a", "a"]));
        check(&format!("{}\nfile a seq 1 type i\n", "#".repeat(1023)), Ok(&["a"]));
        check("file \"a b\" seq 1 type i\nfile 'c d' seq 2 type i\n", Ok(&["a b", "c d"]));
    }

    #[test]
    fn odd_names_are_written_as_redis_does() {
        let mut manifest = Manifest::default();
        manifest.replace_base("a b'é.aof", BaseKind::Rdb, KeptIncrs::None);
        manifest.add_incr("a b'é.aof").start_offset = Some(0);
        let text = "file \"a b'\\xc3\\xa9.aof.1.base.rdb\" seq 1 type b\n\
                    file \"a b'\\xc3\\xa9.aof.1.incr.aof\" seq 1 type i startoffset 0\n";
        assert_eq!(manifest.to_text(), text);
        check(text, Ok(&["a b'é.aof.1.base.rdb", "a b'é.aof.1.incr.aof"]));
        for byte in 1..=127_u8 {
            let byte = char::from(byte);
            let name = format!("x{byte}y");
            let mut manifest = Manifest::default();
            manifest.add_incr(&name);
            let again = Manifest::parse(manifest.to_text().as_bytes());
            let is_path = matches!(byte, '/' | '\\');
            assert_eq!(again.is_ok(), !is_path, "{byte:?}");
            assert!(is_path || again.unwrap() == manifest);
        }
    }

    #[test]
    fn a_rewrite_makes_history_of_what_it_replaces() {
        let mut manifest = Manifest::default();
        assert!(manifest.is_empty());
        manifest.replace_base(NAME, BaseKind::Aof, KeptIncrs::None);
        manifest.add_incr(NAME);
        let text =
            "file appendonly.aof.1.base.aof seq 1 type b\nfile appendonly.aof.1.incr.aof seq 1 type i\n";
        assert_eq!(manifest.to_text(), text);

        let seq = manifest.add_incr(NAME).seq;
        assert_eq!(manifest.replace_base(NAME, BaseKind::Rdb, KeptIncrs::From { seq }).seq, 2);
        let text = "file appendonly.aof.2.base.rdb seq 2 type b\n\
                    file appendonly.aof.1.incr.aof seq 1 type h\n\
                    file appendonly.aof.1.base.aof seq 1 type h\n\
                    file appendonly.aof.2.incr.aof seq 2 type i\n";
        assert_eq!(manifest.to_text(), text);
        assert_eq!(Manifest::parse(text.as_bytes()).unwrap(), manifest);

        let history = manifest.take_expired(0, 0, |_| true);
        let names: Vec<&str> = history.iter().map(|part| &part.name[..]).collect();
        assert_eq!(names, ["appendonly.aof.1.base.aof", "appendonly.aof.1.incr.aof"]);
        assert_eq!(manifest.parts().count(), 2);
        assert_eq!(manifest.replace_base(NAME, BaseKind::Rdb, KeptIncrs::None).seq, 3);
        assert!(manifest.incr.is_empty());
        assert_eq!(manifest.add_incr(NAME).name, "appendonly.aof.3.incr.aof");
    }

    #[test]
    fn no_new_base_has_the_number_that_counts_as_missing() {
        for old in ["-1", "-7"] {
            let old = format!("file old.aof seq {old} type b\n");
            let mut manifest = Manifest::parse(old.as_bytes()).unwrap();
            assert_eq!(manifest.replace_base(NAME, BaseKind::Rdb, KeptIncrs::None).seq, 1);
            assert_eq!(Manifest::parse(manifest.to_text().as_bytes()).unwrap(), manifest);
        }
    }

    #[test]
    fn each_base_of_the_history_has_the_files_that_came_after_it() {
        let mut manifest = Manifest::default();
        assert!(manifest.generations().is_empty());
        manifest.replace_base(NAME, BaseKind::Aof, KeptIncrs::None);
        manifest.add_incr(NAME);
        for _ in 0..2 {
            manifest.add_incr(NAME);
            let seq = manifest.add_incr(NAME).seq;
            manifest.replace_base(NAME, BaseKind::Rdb, KeptIncrs::From { seq });
        }
        let names: Vec<(&str, Vec<i64>)> = manifest
            .generations()
            .iter()
            .map(|of| (&of.base.unwrap().name[15..], of.incr.iter().map(|part| part.seq).collect()))
            .collect();
        let expected =
            [("3.base.rdb", vec![5]), ("2.base.rdb", vec![3, 4, 5]), ("1.base.aof", vec![1, 2, 3, 4, 5])];
        assert_eq!(names, expected);
    }

    /// Changes a manifest as a rewrite of the append-only file at the time `now_s` does.
    fn rewrite(manifest: &mut Manifest, now_s: i64) {
        let seq = manifest.add_incr(NAME).seq;
        manifest.replace_base(NAME, BaseKind::Rdb, KeptIncrs::From { seq });
        manifest.date_history(now_s);
    }

    /// Changes a manifest as a restore of the data of the Unix time `until_s` does.
    fn restore(manifest: &mut Manifest, until_s: i64, now_s: i64) {
        let replaced = manifest.parts().count();
        manifest.replace_base(NAME, BaseKind::Rdb, KeptIncrs::None);
        manifest.add_incr(NAME);
        manifest.date_history(now_s);
        manifest.note_restore(until_s, replaced);
    }

    /// Formats each generation of the manifest as one line of file names, `base: incr incr`.
    fn stories(manifest: &Manifest) -> Vec<String> {
        let story = |of: &Generation<'_>| {
            let incr: Vec<String> = of.incr.iter().map(|part| part.seq.to_string()).collect();
            let left_out = if of.is_left_out { " left out" } else { "" };
            format!("{}: {}{left_out}", of.base.unwrap().seq, incr.join(" "))
        };
        manifest.generations().iter().map(story).collect()
    }

    #[test]
    fn what_a_restore_left_out_does_not_go_on_with_what_came_after_it() {
        let mut manifest = Manifest::default();
        manifest.replace_base(NAME, BaseKind::Rdb, KeptIncrs::None);
        manifest.add_incr(NAME);
        rewrite(&mut manifest, 10);
        restore(&mut manifest, 15, 20);
        assert_eq!(stories(&manifest), ["3: 3", "2: 2 left out", "1: 1 2 left out"]);
        rewrite(&mut manifest, 30);
        rewrite(&mut manifest, 40);
        let expected = ["5: 5", "4: 4 5", "3: 3 4 5", "2: 2 left out", "1: 1 2 left out"];
        assert_eq!(stories(&manifest), expected);
        restore(&mut manifest, 35, 50);
        let left_out = ["5: 5 left out", "4: 4 5 left out", "3: 3 4 5 left out"];
        let expected = [&["6: 6"], &left_out[..], &expected[3..]].concat();
        assert_eq!(stories(&manifest), expected);
        for until_s in [15, 35] {
            assert!(manifest.was_restored(until_s));
        }
        assert!(!manifest.was_restored(50));
        rewrite(&mut manifest, 60);
        let again = Manifest::parse(manifest.to_text().as_bytes()).unwrap();
        assert_eq!(again, manifest);
        assert!(again.was_restored(35), "the base has it from the one before");
        assert!(
            manifest.to_text().starts_with("file appendonly.aof.7.base.rdb seq 7 type b restoreduntil 35\n")
        );
    }

    #[test]
    fn files_of_the_history_leave_by_age_and_those_left_out_never() {
        let mut manifest = Manifest::default();
        manifest.replace_base(NAME, BaseKind::Rdb, KeptIncrs::None);
        manifest.add_incr(NAME);
        rewrite(&mut manifest, 10);
        rewrite(&mut manifest, 20);
        assert!(!manifest.has_expired(19, 10));
        assert!(manifest.has_expired(20, 10));
        let names =
            |parts: Vec<Part>| parts.iter().map(|part| part.name[15..].to_owned()).collect::<Vec<_>>();
        assert_eq!(names(manifest.take_expired(20, 10, |_| true)), ["1.base.rdb", "1.incr.aof"]);
        assert_eq!(stories(&manifest), ["3: 3", "2: 2 3"]);
        restore(&mut manifest, 25, 30);
        rewrite(&mut manifest, 40);
        assert!(!manifest.has_expired(49, 10));
        assert_eq!(names(manifest.take_expired(1000, 10, |_| true)), ["4.base.rdb", "4.incr.aof"]);
        assert!(!manifest.has_expired(1000, 10));
        assert!(manifest.take_expired(1000, 0, |_| true).is_empty());
        assert_eq!(stories(&manifest), ["5: 5", "3: 3 left out", "2: 2 3 left out"]);
        // The files are removed one by one, a file of the older base last.
        let middle = |name: &str| !name.contains(".3.");
        manifest.take_expired(1000, 0, middle);
        assert_eq!(stories(&manifest), ["5: 5", "3: 3 left out", "2: 2 3 left out"], "no gap");
        manifest.take_expired(1000, 0, |name| name.contains(".3."));
        assert_eq!(stories(&manifest), ["5: 5", "3: 3 left out"]);
        manifest.take_expired(1000, 0, |_| false);
        assert_eq!(stories(&manifest), ["5: 5"]);
    }

    #[test]
    fn files_that_are_not_dated_stay_until_they_are() {
        let text = b"file b.2.base.rdb seq 2 type b\nfile b.1.incr.aof seq 1 type h\n\
                     file b.1.base.rdb seq 1 type h\n";
        let mut manifest = Manifest::parse(text).unwrap();
        assert!(manifest.has_expired(1000, 10), "they have to be dated");
        assert!(manifest.take_expired(1000, 10, |_| true).is_empty());
        assert!(manifest.date_history(1000));
        assert!(!manifest.date_history(1001));
        assert!(!manifest.has_expired(1009, 10));
        assert_eq!(manifest.take_expired(1010, 10, |_| true).len(), 2);
    }

    #[test]
    fn the_newest_base_that_is_early_enough_is_chosen() {
        let mut manifest = Manifest::default();
        manifest.replace_base(NAME, BaseKind::Rdb, KeptIncrs::None);
        manifest.add_incr(NAME);
        rewrite(&mut manifest, 20);
        restore(&mut manifest, 25, 30);
        let chosen_of = |manifest: &Manifest, time_s: i64, removed: &[i64]| {
            let base_time = |base: &Part| {
                Ok::<_, ()>(match base.seq {
                    seq if removed.contains(&seq) => BaseTime::Missing,
                    seq => BaseTime::At(seq * 10),
                })
            };
            match manifest.generation_at(time_s, base_time).unwrap() {
                Chosen::Generation(of) => Ok(of.base.unwrap().seq),
                Chosen::TooEarly { oldest_s } => Err(oldest_s),
                Chosen::BehindRestore { restored_s, oldest_s } => {
                    assert_eq!(restored_s, 30);
                    Err(oldest_s.map(|oldest_s| oldest_s + 1000))
                }
            }
        };
        let chosen = |time_s: i64, removed: &[i64]| chosen_of(&manifest, time_s, removed);
        assert_eq!(chosen(9, &[]), Err(Some(10)));
        assert_eq!(chosen(10, &[]), Ok(1));
        assert_eq!(chosen(19, &[]), Ok(1));
        assert_eq!(chosen(20, &[]), Ok(2));
        assert_eq!(chosen(29, &[]), Ok(2));
        assert_eq!(chosen(30, &[]), Ok(3));
        assert_eq!(chosen(29, &[2]), Ok(1));
        assert_eq!(chosen(29, &[1, 2]), Err(Some(30)));
        assert_eq!(chosen(29, &[1, 2, 3]), Err(None));
        rewrite(&mut manifest, 40);
        let chosen = |time_s: i64, removed: &[i64]| chosen_of(&manifest, time_s, removed);
        assert_eq!(chosen(35, &[]), Ok(3));
        assert_eq!(chosen(29, &[3]), Ok(2));
        assert_eq!(chosen(30, &[3]), Err(Some(1040)), "another state than that of then");
        assert_eq!(chosen(35, &[2, 3]), Err(Some(1040)));
    }

    #[test]
    fn a_new_file_never_gets_the_name_of_one_in_the_history() {
        let text = b"file appendonly.aof.5.base.rdb seq 5 type b\n\
                     file appendonly.aof.1.incr.aof seq 1 type h\n\
                     file appendonly.aof.2.incr.aof seq 2 type h\n\
                     file appendonly.aof.6.base.rdb seq 6 type h\n";
        let mut manifest = Manifest::parse(text).unwrap();
        assert_eq!(manifest.add_incr(NAME).name, "appendonly.aof.3.incr.aof");
        assert_eq!(manifest.add_incr(NAME).name, "appendonly.aof.4.incr.aof");
        let base = manifest.replace_base(NAME, BaseKind::Rdb, KeptIncrs::None);
        assert_eq!(base.name, "appendonly.aof.7.base.rdb");
    }

    #[test]
    fn the_file_that_is_appended_to_has_no_end() {
        let text = b"file a seq 1 type i endoffset 7\nfile b seq 2 type i startoffset 7 endoffset 9\n";
        let mut manifest = Manifest::parse(text).unwrap();
        assert_eq!(manifest.open_last_incr().unwrap().name, "b");
        assert_eq!(manifest.incr[0].end_offset, Some(7));
        assert_eq!(manifest.incr[1].end_offset, None);
        assert_eq!(manifest.incr[1].start_offset, Some(7));
        assert!(Manifest::default().open_last_incr().is_none());
    }

    #[test]
    fn one_file_of_redis_6_becomes_a_base() {
        let text = Manifest::of_single_file(NAME).to_text();
        assert_eq!(text, "file appendonly.aof seq 1 type b\n");
        assert_eq!(manifest_name(NAME), "appendonly.aof.manifest");
        assert_eq!(temp_manifest_name(NAME), "temp-appendonly.aof.manifest");
        assert_eq!(temp_incr_name(NAME), "temp-appendonly.aof.incr");
    }
}
