//! What a check found, as data that becomes JSON and as text for people.

use std::fmt::Write;

use persist::load::ModuleId;
use serde::Serialize;

use super::facts::{BigKey, Count, Facts, Finding, ModuleCount};
use super::format::{ForeignTypes, Format};
use crate::text::{self, Align, counted, grouped, size, table};

/// What a check found.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The file, as it was named.
    pub file: String,
    /// Its size.
    pub len_bytes: u64,
    /// Whether a server loads it: nothing is wrong with it.
    pub is_good: bool,
    /// What its header says; `None` where it is no RDB file.
    pub format: Option<Format>,
    /// Which servers load it; none where something is wrong with it.
    pub loaded_by: Vec<&'static str>,
    /// What came of the checksum at its end.
    pub checksum: Checksum,
    /// What its writer said about itself, in the order of the file.
    pub aux: Vec<Aux>,
    /// Libraries of functions.
    pub functions: Vec<Function>,
    /// Modules that have data in it.
    pub modules: Vec<Module>,
    /// All keys.
    pub total: Total,
    /// Keys by database.
    pub databases: Vec<Database>,
    /// Keys by type and encoding, most bytes first.
    pub types: Vec<TypeOfKeys>,
    /// The keys that take the most bytes of the file.
    pub biggest_by_bytes: Vec<Big>,
    /// The keys with the most elements.
    pub biggest_by_elements: Vec<Big>,
    /// Collections without elements among the keys: servers leave them out.
    pub empty_count: u64,
    /// Bytes behind the end of the snapshot.
    pub trailing_len_bytes: u64,
    /// Bytes from a broken record on, which could not be read.
    pub unread_len_bytes: u64,
    /// The first things that are wrong, by their place in the file.
    pub findings: Vec<Finding>,
    /// How many things are wrong.
    pub finding_count: u64,
    /// How long the check took.
    pub seconds: f64,
}

/// What came of the checksum at the file's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Checksum {
    /// It is that of the file.
    Good,
    /// It is another: bytes changed after the file was written.
    Wrong,
    /// There is none in files of this version.
    Absent,
    /// It was not checked: the file's writer had `rdbchecksum no`.
    NotWritten,
    /// The file broke off or could not be read up to its end.
    NotReached,
}

/// A pair that the file's writer left.
#[derive(Debug, Serialize)]
pub struct Aux {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// A library of functions.
#[derive(Debug, Serialize)]
pub struct Function {
    /// Its name, from the first line of its source.
    pub name: String,
    /// The size of its source.
    pub len_bytes: u64,
}

/// What a module has in the file.
#[derive(Debug, Serialize)]
pub struct Module {
    /// The name of the module's type.
    pub name: String,
    /// The version of its own format.
    pub version: u16,
    /// Keys with its values.
    pub keys: u64,
    /// Bytes of these keys' records, and of what it keeps beside keys.
    pub len_bytes: u64,
}

/// Figures of keys.
#[derive(Debug, Serialize)]
pub struct Total {
    /// Keys.
    pub keys: u64,
    /// Keys that expire, those that have expired included.
    pub expiring: u64,
    /// Keys that have expired.
    pub expired: u64,
    /// Elements of all values.
    pub elements: u64,
    /// Bytes of the keys' records in the file.
    pub len_bytes: u64,
}

/// The keys of a database.
#[derive(Debug, Serialize)]
pub struct Database {
    /// Its number.
    pub db: u64,
    /// Figures of its keys.
    #[serde(flatten)]
    pub total: Total,
}

/// The keys of a type and encoding.
#[derive(Debug, Serialize)]
pub struct TypeOfKeys {
    /// As TYPE names it.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// How the values stand in the file.
    pub encoding: &'static str,
    /// Figures of its keys.
    #[serde(flatten)]
    pub total: Total,
}

/// A big key.
#[derive(Debug, Serialize)]
pub struct Big {
    /// Its database.
    pub db: u64,
    /// Its name, with what is not printable escaped.
    pub key: String,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// How it stands in the file.
    pub encoding: &'static str,
    /// Bytes of its record in the file.
    pub len_bytes: u64,
    /// Elements of its value.
    pub elements: u64,
    /// Where its record begins.
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

impl From<&BigKey> for Big {
    fn from(key: &BigKey) -> Self {
        Big {
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
    /// Nothing was read of the file of this name.
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

    /// Fills in what was learned of the keys.
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
        self.biggest_by_bytes = facts.by_len_bytes.keys().iter().map(Big::from).collect();
        let with_elements = facts.by_elements.keys().iter().filter(|key| key.elements > 1);
        self.biggest_by_elements = with_elements.map(Big::from).collect();
        self.findings.clone_from(&facts.findings);
        self.finding_count = facts.finding_count;
        self.is_good = facts.finding_count == 0;
        self.modules = facts.modules.iter().map(Module::from).collect();
        self.empty_count = facts.empty_count;
        if let Some(format) = self.format.as_ref().filter(|_| self.is_good) {
            let is_foreign = facts.types.keys().any(|form| form.is_foreign_to_valkey());
            self.loaded_by =
                format.loaded_by(if is_foreign { ForeignTypes::Some } else { ForeignTypes::None });
            if !self.modules.is_empty() {
                self.loaded_by.retain(|&server| server != "Saker");
            }
        }
    }

    /// The report for people; its last line says whether the file is good.
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

    /// What is worth knowing before the file is loaded, though nothing is wrong with it.
    fn push_notes(&self, out: &mut String) {
        let mut note = |text: std::fmt::Arguments<'_>| push(out, format_args!("NOTE: {text}\n"));
        if !self.modules.is_empty() {
            note(format_args!(
                "data of modules is not looked into. Servers load it with these modules alone, Saker never."
            ));
        }
        if let Some(highest) = self.databases.last().filter(|last| last.db >= DATABASES_BY_DEFAULT) {
            let needed = highest.db + 1;
            note(format_args!(
                "database {} is beyond the {DATABASES_BY_DEFAULT} of a server by default: it needs databases {needed}.",
                highest.db
            ));
        }
        if self.empty_count > 0 {
            let empty = counted(self.empty_count, "collection");
            note(format_args!("{empty} without elements: servers leave them out."));
        }
        if self.trailing_len_bytes > 0 {
            let bytes = counted(self.trailing_len_bytes, "byte");
            note(format_args!("{bytes} behind the end of the snapshot were not looked at."));
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
            push(out, format_args!("and {more} more that --problems left out\n"));
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

/// The option `databases` by default.
const DATABASES_BY_DEFAULT: u64 = 16;

impl Finding {
    /// Writes two lines: what is wrong, and where.
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
        push(out, format_args!(", behind {good}\n"));
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

/// What an AUX field is called in the report.
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
    /// The library whose source this is.
    pub(crate) fn of(source: &[u8]) -> Self {
        let line = source.split(|&byte| byte == b'\n').next().unwrap_or_default();
        let line = text::key(line);
        let name = line.split_whitespace().find_map(|word| word.strip_prefix("name="));
        Self { name: name.unwrap_or("without a name").to_owned(), len_bytes: source.len() as u64 }
    }
}
