//! The report of a check of an RDB file, as data that becomes JSON and as text for people.

use std::fmt::Write;

use persist::load::ModuleId;
use serde::Serialize;

use super::facts::{BigKey, Count, Facts, Finding, Form, ModuleCount};
use super::format::{ForeignTypes, Format};
use crate::text::{self, Align, counted, grouped, size, table};

/// The report of a check of an RDB file.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The path of the file, as the user gave it.
    pub file: String,
    /// The size of the RDB file, in bytes.
    pub len_bytes: u64,
    /// True if no problem was found, so that a server loads the file.
    pub is_good: bool,
    /// The format of the file; `None` if it is no RDB file.
    pub format: Option<Format>,
    /// The servers that load the file; empty if a problem was found.
    pub loaded_by: Vec<&'static str>,
    /// The result of checking the checksum at the end of the file.
    pub checksum: Checksum,
    /// The AUX fields, with which the file's writer describes itself, in the order of the file.
    pub aux: Vec<Aux>,
    /// The libraries of functions in the file.
    pub functions: Vec<Function>,
    /// The modules that have data in the file.
    pub modules: Vec<Module>,
    /// The counts of all keys in the file.
    pub total: Total,
    /// The counts of the keys of each database.
    pub databases: Vec<Database>,
    /// The counts of keys of each type and encoding, most bytes first.
    pub types: Vec<TypeOfKeys>,
    /// The keys with the largest records in the file, the largest first.
    pub biggest_by_bytes: Vec<ReportedKey>,
    /// The keys with the most elements, the biggest first. Keys with a single element are left out.
    pub biggest_by_elements: Vec<ReportedKey>,
    /// The number of keys with empty collections. Servers do not load them.
    pub empty_count: u64,
    /// The number of bytes after the end of the snapshot, which were not checked.
    pub trailing_len_bytes: u64,
    /// The number of bytes that could not be read: from a broken record to the end of the file.
    pub unread_len_bytes: u64,
    /// The listed problems: the first in the order of the file.
    pub findings: Vec<Finding>,
    /// The number of all problems of the file, listed or not.
    pub finding_count: u64,
    /// The time that the check took, in seconds.
    pub seconds: f64,
}

/// The result of checking the checksum at the file's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Checksum {
    /// The checksum matches the file's bytes.
    Good,
    /// The checksum does not match: bytes changed after the file was written.
    Wrong,
    /// There is no checksum: files of this version have none.
    Absent,
    /// The checksum is 0: the file was written with `rdbchecksum no`.
    NotWritten,
    /// The checksum was not reached: the file is cut off, or could not be read up to its end.
    NotReached,
}

/// An AUX field: a name and value with which the file's writer describes itself.
#[derive(Debug, Serialize)]
pub struct Aux {
    /// The name of the AUX field, such as `redis-ver`.
    pub name: String,
    /// The value of the AUX field, as text.
    pub value: String,
}

/// A library of functions in the RDB file.
#[derive(Debug, Serialize)]
pub struct Function {
    /// The name of the library, from the first line of its source.
    pub name: String,
    /// The size of the library's source, in bytes.
    pub len_bytes: u64,
}

/// The data of a module in the RDB file.
#[derive(Debug, Serialize)]
pub struct Module {
    /// The name of the module's data type, which identifies the module.
    pub name: String,
    /// The version of the module's own data format.
    pub version: u16,
    /// The number of keys with values of the module's type.
    pub keys: u64,
    /// The size of these keys' records and of the module's data outside of keys, in bytes.
    pub len_bytes: u64,
}

/// Counts of the keys in a group, such as a database or a type.
#[derive(Debug, Serialize)]
pub struct Total {
    /// The number of keys in the group.
    pub keys: u64,
    /// The number of keys with an expiry, including expired keys.
    pub expiring: u64,
    /// The number of expired keys in the group.
    pub expired: u64,
    /// The number of elements of all values in the group.
    pub elements: u64,
    /// The size of the keys' records in the file, in bytes.
    pub len_bytes: u64,
}

/// The counts of the keys of one database.
#[derive(Debug, Serialize)]
pub struct Database {
    /// The number of the database.
    pub db: u64,
    /// The counts of the keys in the database.
    #[serde(flatten)]
    pub total: Total,
}

/// The counts of the keys with one type and encoding.
#[derive(Debug, Serialize)]
pub struct TypeOfKeys {
    /// The name of the type in the reply to TYPE, such as `set`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The encoding of the keys' values in the file, such as `listpack`.
    pub encoding: &'static str,
    /// The counts of the keys with this type and encoding.
    #[serde(flatten)]
    pub total: Total,
}

/// A key in one of the report's lists of the biggest keys.
#[derive(Debug, Serialize)]
pub struct ReportedKey {
    /// The number of the database that contains the key.
    pub db: u64,
    /// The name of the key; characters that are not printable are escaped.
    pub key: String,
    /// The type of the key's value, such as `set`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The encoding of the key's value in the file.
    pub encoding: &'static str,
    /// The size of the key's record in the file, in bytes.
    pub len_bytes: u64,
    /// The number of elements of the key's value; 1 for a string.
    pub elements: u64,
    /// The offset of the key's record in the RDB file.
    pub file_offset: u64,
}

impl From<Count> for Total {
    fn from(count: Count) -> Self {
        let Count { keys, expiring, expired, elements, len_bytes } = count;
        Total { keys, expiring, expired, elements, len_bytes }
    }
}

impl From<(&ModuleId, &ModuleCount)> for Module {
    fn from((id, count): (&ModuleId, &ModuleCount)) -> Self {
        let ModuleCount { keys, len_bytes } = *count;
        Module { name: id.to_string(), version: id.version(), keys, len_bytes }
    }
}

impl From<&BigKey> for ReportedKey {
    fn from(key: &BigKey) -> Self {
        ReportedKey {
            db: key.db,
            key: text::key(&key.name),
            kind: key.form.kind,
            encoding: key.form.encoding,
            len_bytes: key.len_bytes,
            elements: key.elements,
            file_offset: key.file_offset,
        }
    }
}

impl Report {
    /// Creates an empty report on the file with the path `file`.
    pub(crate) fn new(file: String) -> Self {
        Self {
            file,
            len_bytes: 0,
            is_good: false,
            format: None,
            loaded_by: Vec::new(),
            checksum: Checksum::NotReached,
            aux: Vec::new(),
            functions: Vec::new(),
            modules: Vec::new(),
            total: Count::default().into(),
            databases: Vec::new(),
            types: Vec::new(),
            biggest_by_bytes: Vec::new(),
            biggest_by_elements: Vec::new(),
            empty_count: 0,
            trailing_len_bytes: 0,
            unread_len_bytes: 0,
            findings: Vec::new(),
            finding_count: 0,
            seconds: 0.0,
        }
    }

    /// Adds the counts of the keys, the biggest keys and the problems found to the report.
    pub(crate) fn take_facts(&mut self, facts: &Facts) {
        self.total = facts.total().into();
        let databases = facts.databases.iter();
        self.databases = databases.map(|(&db, &count)| Database { db, total: count.into() }).collect();
        let types = facts.types.iter();
        self.types = types
            .map(|(form, &count)| TypeOfKeys {
                kind: form.kind,
                encoding: form.encoding,
                total: count.into(),
            })
            .collect();
        self.types.sort_by_key(|kind| u64::MAX - kind.total.len_bytes);
        self.biggest_by_bytes = facts.by_len_bytes.keys().iter().map(ReportedKey::from).collect();
        let with_elements = facts.by_elements.keys().iter().filter(|key| key.elements > 1);
        self.biggest_by_elements = with_elements.map(ReportedKey::from).collect();
        self.findings.clone_from(&facts.findings);
        self.finding_count = facts.finding_count;
        self.is_good = facts.finding_count == 0;
        self.modules = facts.modules.iter().map(Module::from).collect();
        self.empty_count = facts.empty_count;
        if let Some(format) = self.format.as_ref().filter(|_| self.is_good) {
            let has = |is_such: fn(Form) -> bool| facts.types.keys().any(|&form| is_such(form));
            self.loaded_by = format.loaded_by(if has(Form::is_array) {
                ForeignTypes::Arrays
            } else if has(Form::is_vector_set) {
                ForeignTypes::VectorSets
            } else if has(Form::is_foreign_to_valkey) {
                ForeignTypes::Some
            } else {
                ForeignTypes::None
            });
            if !self.modules.is_empty() {
                self.loaded_by.retain(|&server| server != "Saker");
            }
        }
    }

    /// Formats the report for people. The last line states if a server would load the file.
    pub fn text(&self) -> String {
        let mut out = String::new();
        self.push_head(&mut out);
        self.push_tables(&mut out);
        self.push_biggest(&mut out);
        self.push_findings(&mut out);
        out
    }

    fn push_head(&self, out: &mut String) {
        push(out, format_args!("{} ({})\n", self.file, size(self.len_bytes)));
        if let Some(Format { magic, version, written_by }) = &self.format {
            push(out, format_args!("  format      {magic} version {version}, written by {written_by}\n"));
        }
        if !self.loaded_by.is_empty() {
            push(out, format_args!("  loaded by   {}\n", self.loaded_by.join("; ")));
        }
        push(out, format_args!("  checksum    {}\n", self.checksum.words()));
        for Aux { name, value } in &self.aux {
            let meaning = match (name.as_str(), value.parse::<u64>()) {
                ("ctime", Ok(unix_s)) => i64::try_from(unix_s).map(stdx::utc::utc).unwrap_or_default(),
                ("used-mem", Ok(bytes)) => size(bytes),
                _ => value.clone(),
            };
            push(out, format_args!("  {:<11} {meaning}\n", aux_words(name)));
        }
        for Function { name, len_bytes } in &self.functions {
            push(out, format_args!("  functions   library {name}, {}\n", size(*len_bytes)));
        }
        for Module { name, version, keys, len_bytes } in &self.modules {
            let (keys, len) = (counted(*keys, "key"), size(*len_bytes));
            push(out, format_args!("  module      {name}, version {version} of its format: {keys}, {len}\n"));
        }
    }

    /// Writes notes that users should read before they load the file. The notes are not problems.
    fn push_notes(&self, out: &mut String) {
        let mut note = |text: std::fmt::Arguments<'_>| push(out, format_args!("NOTE: {text}\n"));
        if !self.modules.is_empty() {
            note(format_args!(
                "the data of modules was not checked. Only servers with these modules can load it. Saker \
                 cannot."
            ));
        }
        if let Some(highest) = self.databases.last().filter(|last| last.db >= DATABASES_BY_DEFAULT) {
            let needed = highest.db + 1;
            note(format_args!(
                "database {} is above the default of {DATABASES_BY_DEFAULT} databases: the server needs \
                 databases {needed}.",
                highest.db
            ));
        }
        if self.empty_count > 0 {
            let empty = counted(self.empty_count, "collection");
            note(format_args!("{empty} without elements: servers skip them."));
        }
        if self.trailing_len_bytes > 0 {
            let bytes = counted(self.trailing_len_bytes, "byte");
            note(format_args!("{bytes} after the end of the snapshot were not checked."));
        }
    }

    fn push_tables(&self, out: &mut String) {
        use Align::{Left, Right};
        let figures = |total: &Total| {
            [total.keys, total.expiring, total.expired, total.elements]
                .map(grouped)
                .into_iter()
                .chain([size(total.len_bytes)])
        };
        let head = |first: &[&str]| -> Vec<String> {
            let rest = ["keys", "expiring", "expired", "elements", "in the file"];
            first.iter().chain(&rest).map(ToString::to_string).collect()
        };
        if self.total.keys == 0 {
            push(out, format_args!("\nNo keys.\n"));
            return;
        }
        let mut rows = vec![head(&["database"])];
        for database in &self.databases {
            rows.push([grouped(database.db)].into_iter().chain(figures(&database.total)).collect());
        }
        if self.databases.len() > 1 {
            rows.push(["all".to_owned()].into_iter().chain(figures(&self.total)).collect());
        }
        push(out, format_args!("\n{}", table(&[Left, Right, Right, Right, Right, Right], &rows)));
        let mut rows = vec![head(&["type", "encoding"])];
        for kind in &self.types {
            let names = [kind.kind.to_owned(), kind.encoding.to_owned()];
            rows.push(names.into_iter().chain(figures(&kind.total)).collect());
        }
        push(out, format_args!("\n{}", table(&[Left, Left, Right, Right, Right, Right, Right], &rows)));
    }

    fn push_biggest(&self, out: &mut String) {
        use Align::{Left, Right};
        for (title, keys) in [
            ("Biggest keys by bytes in the file", &self.biggest_by_bytes),
            ("Biggest keys by elements", &self.biggest_by_elements),
        ] {
            if keys.is_empty() {
                continue;
            }
            let mut rows =
                vec![["in the file", "elements", "database", "type", "key"].map(str::to_owned).to_vec()];
            for key in keys {
                rows.push(vec![
                    size(key.len_bytes),
                    grouped(key.elements),
                    grouped(key.db),
                    key.kind.to_owned(),
                    format!("\"{}\"", key.key),
                ]);
            }
            push(out, format_args!("\n{title}\n{}", table(&[Right, Right, Right, Left, Left], &rows)));
        }
    }

    fn push_findings(&self, out: &mut String) {
        out.push('\n');
        self.push_notes(out);
        for finding in &self.findings {
            finding.push(out);
        }
        let listed = self.findings.len() as u64;
        if self.finding_count > listed {
            let more = grouped(self.finding_count - listed);
            push(out, format_args!("and {more} more (--problems sets how many are listed)\n"));
        }
        let seconds = self.seconds;
        if self.is_good {
            let keys = counted(self.total.keys, "key");
            return push(out, format_args!("The file is good: {keys} read in {seconds:.1} s.\n"));
        }
        if self.unread_len_bytes > 0 {
            let (unread, percent) = (size(self.unread_len_bytes), self.unread_percent());
            push(out, format_args!("{unread} ({percent:.1} % of the file) could not be read.\n"));
        }
        let wrong = counted(self.finding_count, "problem");
        let keys = counted(self.total.keys, "good key");
        push(out, format_args!("The file is BROKEN: {wrong}; {keys} read in {seconds:.1} s.\n"));
    }

    fn unread_percent(&self) -> f64 {
        100.0 * self.unread_len_bytes as f64 / self.len_bytes.max(1) as f64
    }
}

/// The default of the server's option `databases`; a file with more databases gets a note.
const DATABASES_BY_DEFAULT: u64 = 16;

impl Finding {
    /// Appends the finding to the report `out` as two lines: the description of the problem, and
    /// the record that contains it.
    fn push(&self, out: &mut String) {
        push(out, format_args!("WRONG at byte {}", self.file_offset));
        if let Some(key) = &self.key {
            push(out, format_args!(", key \"{key}\""));
        }
        push(out, format_args!(": {}\n", self.what));
        let Some(db) = self.db else { return };
        let good = counted(self.good_keys_before, "good key");
        push(out, format_args!("      record at byte {}, database {db}", self.record_offset));
        if let Some(form) = &self.form {
            push(out, format_args!(", {form}"));
        }
        push(out, format_args!(", after {good}\n"));
    }
}

impl Checksum {
    fn words(self) -> &'static str {
        match self {
            Checksum::Good => "good",
            Checksum::Wrong => "WRONG: bytes of the file changed after it was written",
            Checksum::Absent => "none in files of this version",
            Checksum::NotWritten => "not checked: the writer had rdbchecksum off",
            Checksum::NotReached => "not reached",
        }
    }
}

/// Returns the words by which the report calls the AUX field `name`.
fn aux_words(name: &str) -> &str {
    match name {
        "redis-ver" => "Redis",
        "valkey-ver" => "Valkey",
        "saker-ver" => "Saker",
        "redis-bits" => "bits",
        "ctime" => "written",
        "used-mem" => "used memory",
        other => other,
    }
}

fn push(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("writing to a string cannot fail");
}

impl Function {
    /// Creates the report's entry of a library of functions from the library's source.
    pub(crate) fn of(source: &[u8]) -> Self {
        let line = source.split(|&byte| byte == b'\n').next().unwrap_or_default();
        let line = text::key(line);
        let name = line.split_whitespace().find_map(|word| word.strip_prefix("name="));
        Self { name: name.unwrap_or("without a name").to_owned(), len_bytes: source.len() as u64 }
    }
}
