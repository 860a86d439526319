//! `saker-check rdb`: reads a snapshot whole and reports on it.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use indicatif::ProgressBar;
use keyspace::{Access, Hasher, ListLimits, PackLimits, SetLimits, StreamLimits};
use persist::folder::Trouble;
use persist::load::{
    ByteSource, DecodeOptions, LoadError, LoadErrorKind, LoadOptions, Part, Record, Splitter, inspect_batch,
};
use persist::rdb::{Rules, VALKEY_VERSION, ValueType, VersionCheck};
use structures::entry::View;

mod facts;
mod report;

use crate::{progress, text};
use facts::{Count, Facts, Form, KeyExpiry, KeyFacts};
pub use facts::{FINDINGS_LISTED_MAX, Finding};
pub use report::{Aux, Big, Checksum, Database, Format, Function, Report, Total, TypeOfKeys};

/// How a file is checked.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How many of the biggest keys are listed.
    pub big_keys_max: usize,
}

/// Checks the RDB file at `path`, whatever is in it. O(bytes).
///
/// # Errors
/// The file cannot be opened or read; what is wrong within it is in the report.
pub fn check(path: &Path, options: &Options) -> io::Result<Report> {
    let begun = Instant::now();
    let file = File::open(path)?;
    let len_bytes = file.metadata()?.len();
    let name = path.display().to_string();
    let bar = progress::bar(&name, len_bytes);
    let mut checker =
        Checker { report: Report::new(name, len_bytes), facts: Facts::new(options.big_keys_max) };
    let mut failed = None;
    let source = FileSource { file, bar: bar.clone(), failed: &mut failed };
    if let Err(error) = checker.read(source) {
        checker.take_error(&error);
    }
    bar.finish_and_clear();
    if let Some(error) = failed {
        return Err(error);
    }
    checker.find_duplicates();
    let Checker { mut report, facts } = checker;
    report.take_facts(&facts);
    report.seconds = begun.elapsed().as_secs_f64();
    Ok(report)
}

/// A file that moves the bar as it is read.
struct FileSource<'a> {
    file: File,
    bar: ProgressBar,
    failed: &'a mut Option<io::Error>,
}

impl ByteSource for FileSource<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Trouble> {
        let read = loop {
            match self.file.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        match read {
            Ok(len) => {
                self.bar.inc(len as u64);
                Ok(len)
            }
            // The caller gets the error itself; for the splitter the file ends here.
            Err(error) => {
                *self.failed = Some(error);
                Ok(0)
            }
        }
    }
}

/// A check under way.
struct Checker {
    report: Report,
    facts: Facts,
}

impl Checker {
    fn read(&mut self, source: FileSource<'_>) -> Result<(), LoadError> {
        let options = LoadOptions { versions: VersionCheck::Relaxed, checksum: true, skips_modules: true };
        let mut splitter = Splitter::open(source, options, usize::MAX)?;
        self.report.format = Some(Format::of(splitter.version()));
        let hasher = Hasher::with_seed([1, 2, 3, 4]);
        let rules = rules(&hasher);
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_millis() as i64);
        let decode = DecodeOptions { rules: &rules, access: Access::Lru { clock_s: 0 }, now_ms };
        loop {
            match splitter.next_part()? {
                Part::Fact { name, value } => {
                    self.report.aux.push(Aux { name: text::key(&name), value: text::key(&value) });
                }
                Part::Function(source) => self.report.functions.push(Function::of(&source)),
                Part::DbSize { .. } => {}
                Part::Batch(batch) => {
                    inspect_batch(&batch, &decode, |record| self.take_record(&record, &decode))
                }
                Part::End => {
                    self.report.checksum =
                        if splitter.version() < 5 { Checksum::Absent } else { Checksum::Good };
                    return Ok(());
                }
            }
        }
    }

    fn take_record(&mut self, record: &Record<'_>, decode: &DecodeOptions<'_>) {
        let db = record.db as u64;
        let name = record.name.as_deref().unwrap_or_default();
        let form = record.kind.map_or(Form { kind: "unknown", encoding: "unknown" }, form_of);
        let (elements, expiry_ms) = match &record.entry {
            Ok(Some(entry)) => match entry.view() {
                View::Object(object) => (object.element_count() as u64, entry.expiry_ms()),
                View::Bytes(_) | View::Int(_) => (1, entry.expiry_ms()),
            },
            Ok(None) => (0, None),
            Err(error) => {
                self.facts.add_finding(Finding {
                    file_offset: error.file_offset,
                    db: Some(db),
                    key: Some(text::key(name)),
                    what: format!("{} ({} as {})", error.kind, form.kind, form.encoding),
                });
                return;
            }
        };
        let expiry = match expiry_ms {
            None => KeyExpiry::Never,
            Some(at_ms) if at_ms > decode.now_ms => KeyExpiry::Later,
            Some(_) => KeyExpiry::Expired,
        };
        let (file_offset, len_bytes) = (record.file_offset, record.len_bytes);
        let key = KeyFacts { db, name, form, file_offset, len_bytes, elements, expiry };
        let hash = decode.rules.hasher.key(name).hash.number() ^ db.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.facts.add_key(&key, hash);
    }

    /// Takes note of what ended the reading.
    fn take_error(&mut self, error: &LoadError) {
        let what = match &error.kind {
            LoadErrorKind::Checksum => {
                self.report.checksum = Checksum::Wrong;
                "the checksum is wrong: bytes of the file changed after it was written".to_owned()
            }
            LoadErrorKind::Format(kind) => format!("{kind}; nothing behind it can be read"),
            _ => LoadError { key: None, ..error.clone() }.to_string(),
        };
        let key = error.key.as_deref().map(text::key);
        self.facts.add_finding(Finding { file_offset: error.file_offset, db: None, key, what });
    }

    /// Finds keys that are there twice.
    fn find_duplicates(&mut self) {
        let mut names = std::mem::take(&mut self.facts.names);
        names.sort_unstable();
        for pair in names.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
            self.facts.add_finding(Finding {
                file_offset: pair[1].1,
                db: None,
                key: None,
                what: format!("a key that is there twice: first at byte {}", text::grouped(pair[0].1)),
            });
        }
    }
}

/// The limits of a server by default.
fn rules(hasher: &Hasher) -> Rules<'_> {
    let pack = PackLimits { entries_max: 512, value_len_bytes_max: 64 };
    Rules {
        hasher,
        list: ListLimits::from_option(-2),
        set: SetLimits { intset_entries_max: 512, pack },
        hash: pack,
        zset: pack,
        stream: StreamLimits { node_bytes_max: 4096, node_entries_max: 100 },
        string_len_bytes_max: persist::rdb::STRING_LEN_BYTES_MAX,
        versions: VersionCheck::Relaxed,
    }
}

impl Format {
    fn of(version: u16) -> Self {
        let magic = if version >= VALKEY_VERSION { "VALKEY" } else { "REDIS" };
        let written_by = match version {
            0..=5 => "Redis 2.4 and older",
            6 => "Redis 2.6 to 3.0",
            7 => "Redis 3.2",
            8 => "Redis 4.0",
            9 => "Redis 5.0 to 6.2",
            10 => "Redis 7.0",
            11 => "Redis 7.2, Valkey 7.2 to 8.1",
            12 => "Redis 7.4 to 8.4",
            13 => "Redis 8.6",
            80 => "Valkey 9.0 and 9.1",
            81 => "Valkey 9.2",
            _ => "a newer server",
        };
        Self { magic: magic.to_owned(), version, written_by: written_by.to_owned() }
    }
}

impl Function {
    fn of(source: &[u8]) -> Self {
        let line = source.split(|&byte| byte == b'\n').next().unwrap_or_default();
        let line = text::key(line);
        let name = line.split_whitespace().find_map(|word| word.strip_prefix("name="));
        Self { name: name.unwrap_or("without a name").to_owned(), len_bytes: source.len() as u64 }
    }
}

impl Report {
    fn new(file: String, len_bytes: u64) -> Self {
        Self {
            file,
            len_bytes,
            is_good: false,
            format: None,
            checksum: Checksum::NotReached,
            aux: Vec::new(),
            functions: Vec::new(),
            total: Count::default().into(),
            databases: Vec::new(),
            types: Vec::new(),
            biggest_by_bytes: Vec::new(),
            biggest_by_elements: Vec::new(),
            findings: Vec::new(),
            finding_count: 0,
            seconds: 0.0,
        }
    }
}

/// How values of a type stand in the file.
fn form_of(kind: ValueType) -> Form {
    use ValueType::*;
    let (kind, encoding) = match kind {
        String => ("string", "string"),
        List => ("list", "elements"),
        ListZiplist => ("list", "ziplist"),
        ListQuicklist => ("list", "quicklist of ziplists"),
        ListQuicklist2 => ("list", "quicklist"),
        Set => ("set", "members"),
        SetIntset => ("set", "intset"),
        SetListpack => ("set", "listpack"),
        Zset | Zset2 => ("zset", "members"),
        ZsetZiplist => ("zset", "ziplist"),
        ZsetListpack => ("zset", "listpack"),
        Hash => ("hash", "fields"),
        HashZipmap => ("hash", "zipmap"),
        HashZiplist => ("hash", "ziplist"),
        HashListpack => ("hash", "listpack"),
        HashMetadata | HashMetadataEarly | HashValkey => ("hash", "fields that expire"),
        HashListpackEx | HashListpackExEarly => ("hash", "listpack of fields that expire"),
        StreamListpacks => ("stream", "Redis 5"),
        StreamListpacks2 => ("stream", "Redis 7.0"),
        StreamListpacks3 => ("stream", "Redis 7.2"),
        #[allow(unreachable_patterns, reason = "types of newer versions of the format")]
        _ => ("other", "other"),
    };
    Form { kind, encoding }
}
