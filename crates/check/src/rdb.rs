//! `saker-check rdb`: reads a whole snapshot and reports on it.
//!
//! The work is divided as in a server that loads the file. One thread cuts the file into batches of
//! whole keys. The other threads decode them, each with counts and findings of its own ([`Facts`]).
//! At the end these are added up. The report does not depend on the number of threads. A broken
//! value within a whole record does not end the check; a record whose end cannot be found does.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use keyspace::{Access, Hasher, ListLimits, Object, PackLimits, SetLimits, StreamLimits};
use persist::load::{
    Batch, DecodeOptions, FileChecksum, Inspected, LoadError, LoadErrorKind, LoadOptions, Part, Record,
    Splitter, Unsupported, inspect_batch,
};
use persist::rdb::{FormatErrorKind, Rules, VersionCheck};
use structures::entry::View;

mod duplicates;
mod facts;
pub(crate) mod file;
mod format;
mod report;

use crate::{progress, text};
use facts::{Facts, Form, KeyExpiry, KeyFacts, Limits, ModuleCount};
use file::FileSource;

pub use facts::Finding;
pub use format::Format;
pub use report::{Aux, Checksum, Database, Function, Module, Report, ReportedKey, Total, TypeOfKeys};

/// The maximum number of batches of keys that wait for a decoding thread: a few megabytes.
const BATCHES_WAITING_MAX: usize = 32;

/// The options of a check of an RDB file.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The maximum number of biggest keys that the report lists, by each measure.
    pub big_keys_max: usize,
    /// The maximum number of problems that the report lists; more are only counted.
    pub findings_max: usize,
}

/// Checks the RDB file at `path`, whatever its contents. O(bytes), on all cores.
///
/// # Errors
/// If the file cannot be opened or read. Problems within the file are in the report.
pub fn check(path: &Path, options: &Options) -> io::Result<Report> {
    let begun = Instant::now();
    let (file, len_bytes) = file::open(path)?;
    let again = file.try_clone()?;
    let name = path.display().to_string();
    let bar = progress::bar(&name, len_bytes.unwrap_or(0));
    let mut source = FileSource::new(file, bar.clone());
    let limits = Limits { big_keys_max: options.big_keys_max, findings_max: options.findings_max };
    let mut cut =
        SplitterState { report: Report::new(name), facts: Facts::new(limits), databases: Vec::new() };
    let (hasher, now_ms) = (hasher(), now_ms());
    let rules = rules(&hasher);
    let decode = DecodeOptions { rules: &rules, access: Access::Lru { clock_s: 0 }, now_ms };
    let found = read(&mut source, &mut cut, &decode, limits);
    bar.finish_and_clear();
    let read_len_bytes = source.finish()?;
    let SplitterState { mut report, mut facts, databases } = cut;
    report.len_bytes = len_bytes.unwrap_or(0).max(read_len_bytes);
    found.into_iter().for_each(|found| facts.merge(found));
    let version = report.format.as_ref().map_or(0, |format| format.version);
    duplicates::find(&mut facts, &databases, &again, version);
    facts.count_good_keys_before();
    report.take_facts(&facts);
    report.seconds = begun.elapsed().as_secs_f64();
    Ok(report)
}

/// Reads the RDB file and decodes its keys on all cores. Returns the counts and findings of each
/// decoding thread.
fn read(
    source: &mut FileSource,
    cut: &mut SplitterState,
    decode: &DecodeOptions<'_>,
    limits: Limits,
) -> Vec<Facts> {
    let (sender, receiver) = sync_channel(BATCHES_WAITING_MAX);
    let receiver = Mutex::new(receiver);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let workers: Vec<_> =
            (0..cores).map(|_| scope.spawn(|| decode_batches(&receiver, decode, limits))).collect();
        cut.file(source, &sender);
        drop(sender);
        workers.into_iter().map(|worker| worker.join().expect("a worker does not panic")).collect()
    })
}

/// Decodes batches of keys until the reading thread sends no more. Returns the counts and findings
/// of these keys.
fn decode_batches(batches: &Mutex<Receiver<Batch>>, decode: &DecodeOptions<'_>, limits: Limits) -> Facts {
    let mut facts = Facts::new(limits);
    loop {
        let next = batches.lock().expect("nothing panics while it is locked").recv();
        let Ok(batch) = next else { return facts };
        inspect_batch(&batch, decode, |record| take_record(&mut facts, &record, decode));
    }
}

/// Counts the key of a decoded record in `facts`. If its value is broken, adds a finding instead.
fn take_record(facts: &mut Facts, record: &Record<'_>, decode: &DecodeOptions<'_>) {
    let (db, len_bytes) = (record.db as u64, record.len_bytes);
    let name = record.name.as_deref().unwrap_or_default();
    let mut form = record.kind.map_or(Form::UNKNOWN, format::form_of);
    let (elements, expiry_ms) = match &record.value {
        Ok(Inspected::Entry(entry)) => (element_count(&entry.view()), entry.expiry_ms()),
        Ok(Inspected::Empty) => {
            facts.empty_count += 1;
            (0, None)
        }
        Ok(Inspected::Module(id)) => {
            facts.add_module(*id, ModuleCount { keys: 1, len_bytes });
            form = Form::MODULE;
            (1, None)
        }
        Err(error) => {
            return facts.add_finding(Finding {
                file_offset: error.file_offset,
                record_offset: record.file_offset,
                db: Some(db),
                key: record.name.as_deref().map(text::key),
                form: Some(form.words()),
                what: error.kind.to_string(),
                good_keys_before: 0,
            });
        }
    };
    let expiry = match expiry_ms {
        None => KeyExpiry::Never,
        Some(at_ms) if at_ms > decode.now_ms => KeyExpiry::Later,
        Some(_) => KeyExpiry::Expired,
    };
    let key = KeyFacts { db, name, form, file_offset: record.file_offset, len_bytes, elements, expiry };
    let hash = decode.rules.hasher.key(name).hash.number() ^ db.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    facts.add_key(&key, hash);
}

/// Returns the number of elements, members, fields or entries of a value; 1 for a string.
fn element_count(value: &View<'_, Object>) -> u64 {
    match value {
        View::Bytes(_) | View::Int(_) | View::Object(Object::Blob(_)) => 1,
        View::Object(Object::Stream(stream)) => stream.len() as u64,
        View::Object(object) => object.element_count() as u64,
    }
}

/// The state of the thread that cuts the RDB file into batches of whole keys.
struct SplitterState {
    report: Report,
    /// The counts and findings about the parts of the file other than keys.
    facts: Facts,
    /// The parts of the file with the keys of one database each: pairs of the offset at which a
    /// part begins, and its database.
    databases: Vec<(u64, u64)>,
}

impl SplitterState {
    /// Cuts the file into batches of whole keys, and sends them to the decoding threads. Records
    /// everything other than keys in the report, counts and findings of this thread.
    fn file(&mut self, source: &mut FileSource, batches: &SyncSender<Batch>) {
        let options =
            LoadOptions { versions: VersionCheck::Relaxed, checksum: true, unsupported: Unsupported::Kept };
        let mut splitter = match Splitter::open(&mut *source, options, usize::MAX) {
            Ok(splitter) => splitter,
            Err(error) => return self.take_foreign(&error, source.first_bytes()),
        };
        self.report.format = Some(Format::of(splitter.version()));
        loop {
            let part = splitter.next_part();
            self.report.checksum = splitter.checksum().into();
            let part = match part {
                Ok(part) => part,
                Err(error) => {
                    let (db, begin) = (splitter.db() as u64, splitter.file_offset());
                    drop(splitter);
                    return self.take_error(&error, Broken { db, begin, end: source.len_bytes() });
                }
            };
            match part {
                Part::Fact { name, value } => {
                    self.report.aux.push(Aux { name: text::key(&name), value: text::key(&value) });
                }
                Part::Function(source) => self.report.functions.push(Function::of(&source)),
                Part::DbSize { .. } => {}
                Part::Module { id, len_bytes } => {
                    self.facts.add_module(id, ModuleCount { keys: 0, len_bytes });
                }
                Part::Batch(batch) => {
                    let db = batch.db() as u64;
                    if self.databases.last().is_none_or(|last| last.1 != db) {
                        self.databases.push((batch.file_offset(), db));
                    }
                    batches.send(batch).expect("workers take batches as long as there are some");
                }
                Part::End => {
                    let (end, is_compressed) = (splitter.file_offset(), splitter.is_compressed());
                    drop(splitter);
                    // The frame of a compressed file was read to its end.
                    if !is_compressed {
                        self.report.trailing_len_bytes = source.len_to_the_end().saturating_sub(end);
                    }
                    return;
                }
            }
        }
    }

    /// Adds a finding about a file that does not begin as a known RDB file.
    fn take_foreign(&mut self, error: &LoadError, first_bytes: &[u8]) {
        let what = match error.kind {
            LoadErrorKind::Signature => format::foreign(first_bytes),
            _ => error.kind.to_string(),
        };
        self.add_finding(what, 0, None);
    }

    /// Adds a finding about the error that ended the reading of the file.
    fn take_error(&mut self, error: &LoadError, broken: Broken) {
        if error.kind == LoadErrorKind::Checksum {
            let what = "the checksum is wrong: bytes of the file changed after they were written";
            return self.add_finding(what.to_owned(), error.file_offset, None);
        }
        self.report.unread_len_bytes = broken.end.saturating_sub(broken.begin);
        let is_cut = error.kind == LoadErrorKind::Format(FormatErrorKind::EndOfInput);
        let (file_offset, what) = if is_cut && broken.begin >= broken.end {
            (broken.end, "the file is cut off: its end mark is missing".to_owned())
        } else if is_cut {
            let what =
                "the file ends within this record: it is cut off, or a length in the record is damaged";
            (broken.end, what.to_owned())
        } else {
            (error.file_offset, format!("{}; the data after it cannot be read", error.kind))
        };
        self.facts.add_finding(Finding {
            file_offset,
            record_offset: broken.begin,
            db: Some(broken.db),
            key: error.key.as_deref().map(text::key),
            form: None,
            what,
            good_keys_before: 0,
        });
    }

    fn add_finding(&mut self, what: String, file_offset: u64, db: Option<u64>) {
        let (key, form) = (None, None);
        let record_offset = file_offset;
        self.facts.add_finding(Finding {
            file_offset,
            record_offset,
            db,
            key,
            form,
            what,
            good_keys_before: 0,
        });
    }
}

/// The place in the RDB file at which an error ended the reading.
struct Broken {
    /// The database that was selected when the reading reached the broken record.
    db: u64,
    /// The offset in the file at which the broken record begins, in bytes.
    begin: u64,
    /// The offset of the RDB file's end, in bytes.
    end: u64,
}

impl From<FileChecksum> for Checksum {
    fn from(checksum: FileChecksum) -> Self {
        match checksum {
            FileChecksum::Good => Checksum::Good,
            FileChecksum::Wrong => Checksum::Wrong,
            FileChecksum::Absent => Checksum::Absent,
            FileChecksum::NotWritten => Checksum::NotWritten,
            FileChecksum::NotReached | FileChecksum::NotCompared => Checksum::NotReached,
        }
    }
}

/// Creates a hasher with a random seed, so that nobody can write a file whose keys collide.
fn hasher() -> Hasher {
    let chance = RandomState::new();
    Hasher::with_seed([1, 2, 3, 4].map(|number: u64| chance.hash_one(number)))
}

fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_millis() as i64)
}

/// Returns the rules by which values are decoded, with a server's default limits for compact
/// encodings. As in a server, larger collections are converted to other encodings.
fn rules(hasher: &Hasher) -> Rules<'_> {
    let pack = |entries_max| PackLimits { entries_max, value_len_bytes_max: 64 };
    Rules {
        hasher,
        list: ListLimits::from_option(-2),
        set: SetLimits { intset_entries_max: 512, pack: pack(128) },
        hash: pack(512),
        zset: pack(128),
        stream: StreamLimits { node_bytes_max: 4096, node_entries_max: 100 },
        string_len_bytes_max: persist::rdb::STRING_LEN_BYTES_MAX,
        versions: VersionCheck::Relaxed,
        skips_checksums: false,
    }
}
