//! The report of a check of an append-only file, as data that becomes JSON and as text for people.

use std::fmt::Write;

use persist::aof::reader::{Broken, TornTail};
use serde::Serialize;
use stdx::utc::utc;

use super::tally::{Counts, Tally};
use crate::rdb;
use crate::text::{self, Align, counted, grouped, size, table};

/// The role of a file in an append-only file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The base: the data set before the changes of the incremental files.
    Base,
    /// An incremental file: it holds the changes after the base.
    Incr,
    /// A history file: it belongs to an earlier base, and servers no longer load it.
    History,
    /// An append-only file that is a single file, without a manifest.
    Single,
}

impl Role {
    /// Returns true if a server that starts reads a file with this role.
    pub(crate) fn is_loaded(self) -> bool {
        self != Role::History
    }
}

/// The report of a check of an append-only file.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The path of the append-only file, as the user gave it.
    pub path: String,
    /// The name of the append-only file's manifest; `None` for a single file.
    pub manifest: Option<String>,
    /// True if the check found no problem: a server can load the append-only file without losing
    /// data.
    pub is_good: bool,
    /// The reports on the files in the order in which they were written: history, base, incremental
    /// files.
    pub files: Vec<FileReport>,
    /// Files in the same folder that look like parts of the append-only file but are not in the
    /// manifest.
    pub unlisted: Vec<String>,
    /// The number of commands in all files of the append-only file.
    pub commands: u64,
    /// The number of transactions in all files of the append-only file.
    pub transactions: u64,
    /// The counts of the commands by name, most bytes first.
    pub by_command: Vec<CommandCount>,
    /// The keys named by the most commands, in descending order of the count.
    pub keys_touched_most: Vec<TouchedKey>,
    /// The maximum number by which each count in `keys_touched_most` may be too low. It is 0 unless
    /// there are too many keys to count all of them.
    pub uncounted_max: u64,
    /// The problems that the check found.
    pub problems: Vec<Problem>,
    /// The time that the check took, in seconds.
    pub seconds: f64,
    /// The change that `--fix` would make; `None` if it would change nothing.
    #[serde(skip)]
    pub fix: Option<Fix>,
}

/// The report on one file of an append-only file.
#[derive(Debug, Serialize)]
pub struct FileReport {
    /// The name of the file.
    pub name: String,
    /// The role of the file: base, incremental, history or single.
    pub role: Role,
    /// The result of checking the file: good, damaged, missing or not read.
    pub state: State,
    /// The size of the file, in bytes.
    pub len_bytes: u64,
    /// The size of the undamaged beginning of the file, in bytes: its RDB part and the whole
    /// commands before the damage. 0 if its commands were not read.
    pub good_len_bytes: u64,
    /// The minimum number of whole commands after the damage; cutting the file at the damage loses
    /// them.
    pub lost_commands: u64,
    /// The report on the RDB part at the beginning of the file; `None` if the file has none.
    pub rdb: Option<rdb::Report>,
    /// The size of the part of the file that contains commands, in bytes.
    pub aof_len_bytes: u64,
    /// The number of commands in the file.
    pub commands: u64,
    /// The number of transactions in the file.
    pub transactions: u64,
    /// The time of the file's first annotation, in seconds since 1970; `None` without annotations.
    pub first_time_s: Option<i64>,
    /// The time of the file's last annotation, in seconds since 1970; `None` without annotations.
    pub last_time_s: Option<i64>,
}

/// The result of checking one file of an append-only file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// The file has no damage.
    Good,
    /// The file ends within a command or transaction.
    Torn,
    /// The file contains bytes other than commands, or has a broken RDB part.
    Broken,
    /// The file is in the manifest but does not exist.
    Missing,
    /// The file is a history file, which servers no longer load. It was not read.
    NotLoaded,
    /// The file is a history file that no longer exists.
    Removed,
}

/// The number and the size of the occurrences of one command in the append-only file.
#[derive(Debug, Serialize)]
pub struct CommandCount {
    /// The name of the command whose occurrences are counted.
    pub name: String,
    /// The number of times that the command occurs.
    pub count: u64,
    /// The size of all occurrences of the command, in bytes.
    pub len_bytes: u64,
}

/// A key that commands of the append-only file name, with the number of times that they do.
#[derive(Debug, Serialize)]
pub struct TouchedKey {
    /// The number of the database that contains the key.
    pub db: u64,
    /// The name of the key; characters that are not printable are escaped.
    pub key: String,
    /// The number of times that commands of the append-only file name the key.
    pub count: u64,
}

/// The change that `--fix` would make: to cut off the end of the last file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fix {
    /// The name of the file whose end would be cut off.
    pub name: String,
    /// The present size of the file to cut, in bytes.
    pub len_bytes: u64,
    /// The size of the file after its end was cut off, in bytes.
    pub good_len_bytes: u64,
    /// A description of the data that is lost if the file is cut.
    pub loss: String,
}

impl Fix {
    /// Returns the question that the user has to confirm before the change.
    pub fn question(&self) -> String {
        let Self { name, len_bytes, good_len_bytes, loss } = self;
        format!(
            "This will shrink the AOF {name} from {len_bytes} bytes to {good_len_bytes} bytes.\nThis would \
             lose {loss}.\nContinue? [y/N]: "
        )
    }
}

/// The position of a file among the files that a server loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The file is before the last one.
    Earlier,
    /// The last file with data, or an empty file after it. A server may have appended to this file
    /// when it stopped, so the file may end within a command.
    Last,
}

/// The result of checking one file of an append-only file: its report, and its problem if it has
/// one.
pub(crate) struct CheckedFile {
    pub(crate) report: FileReport,
    pub(crate) problem: Option<FileProblem>,
}

/// A problem of one file: in its RDB part or in its commands.
pub(crate) enum FileProblem {
    Missing,
    /// The problem is in the RDB part of the file.
    Rdb,
    Torn(TornTail),
    Broken(Broken),
}

/// A problem that the report shows: its place, its description and advice.
#[derive(Clone, Debug, Serialize)]
pub struct Problem {
    /// The name of the file that has the problem.
    pub file: String,
    /// The offset of the problem in the file; `None` for a problem of the whole file.
    pub file_offset: Option<u64>,
    /// A description of the problem, for people.
    pub what: String,
    /// Advice to the user about repairing the file.
    pub advice: String,
}

impl Problem {
    /// Creates the problem of the broken manifest `file`; `what` describes the damage.
    pub(crate) fn of_manifest(file: String, what: String) -> Self {
        let advice = "No server starts with this manifest. Write a new one that lists the files in its \
                      folder: the base with the highest number, and the incremental files after it.";
        Self { file, file_offset: None, what, advice: advice.to_owned() }
    }
}

impl FileReport {
    pub(crate) fn new(name: String, role: Role) -> Self {
        Self {
            name,
            role,
            state: State::Good,
            len_bytes: 0,
            good_len_bytes: 0,
            lost_commands: 0,
            rdb: None,
            aof_len_bytes: 0,
            commands: 0,
            transactions: 0,
            first_time_s: None,
            last_time_s: None,
        }
    }

    pub(crate) fn take_counts(&mut self, counts: Counts) {
        self.commands = counts.commands;
        self.transactions = counts.transactions;
        (self.first_time_s, self.last_time_s) = (counts.first_time_s, counts.last_time_s);
    }

    /// Returns the number of bytes that are lost if the file is cut at the damage.
    fn lost_len_bytes(&self) -> u64 {
        self.len_bytes - self.good_len_bytes
    }

    /// Describes the data that is lost if the file is cut at the damage.
    fn loss(&self) -> String {
        let lost = counted(self.lost_len_bytes(), "byte");
        let percent = 100.0 * self.lost_len_bytes() as f64 / self.len_bytes.max(1) as f64;
        match self.lost_commands {
            0 => format!("{lost} ({percent:.1} % of the file)"),
            commands => {
                let commands = counted(commands, "whole command");
                format!("{lost} ({percent:.1} % of the file) with at least {commands}")
            }
        }
    }

    fn kind(&self) -> &'static str {
        match (&self.rdb, self.aof_len_bytes) {
            _ if self.state == State::NotLoaded => "",
            (Some(_), 0) => "RDB",
            (Some(_), _) => "RDB, AOF",
            (None, _) if self.len_bytes == 0 => "",
            (None, _) => "AOF",
        }
    }
}

impl Report {
    /// Creates an empty report on the append-only file at `path`.
    pub(crate) fn new(path: String, manifest: Option<String>) -> Self {
        Self {
            path,
            manifest,
            is_good: false,
            files: Vec::new(),
            unlisted: Vec::new(),
            commands: 0,
            transactions: 0,
            by_command: Vec::new(),
            keys_touched_most: Vec::new(),
            uncounted_max: 0,
            problems: Vec::new(),
            seconds: 0.0,
            fix: None,
        }
    }

    /// Adds the result of checking a file to the report. Proposes a fix if the end of the file can
    /// be cut off.
    pub(crate) fn take_file(&mut self, file: CheckedFile, place: Place) {
        let CheckedFile { report, problem } = file;
        if let Some(wrong) = problem {
            let can_be_cut = matches!(wrong, FileProblem::Torn(_) | FileProblem::Broken(_));
            // After an earlier problem, cutting off the end of this file does not help.
            self.fix = (can_be_cut && place == Place::Last && self.problems.is_empty()).then(|| Fix {
                name: report.name.clone(),
                len_bytes: report.len_bytes,
                good_len_bytes: report.good_len_bytes,
                loss: report.loss(),
            });
            self.problems.push(problem_of(&report, &wrong, place));
        }
        self.files.push(report);
    }

    pub(crate) fn take_tally(&mut self, mut tally: Tally, listed_max: usize) {
        let counts = tally.counts();
        (self.commands, self.transactions) = (counts.commands, counts.transactions);
        self.uncounted_max = tally.uncounted_max;
        let touched = tally.keys_touched_most(listed_max);
        let touched = touched.into_iter().map(|of| TouchedKey { db: of.db, key: of.key, count: of.count });
        self.keys_touched_most = touched.collect();
        let counts = tally.names.iter().map(|of| CommandCount {
            name: text::key(&of.name),
            count: of.count,
            len_bytes: of.len_bytes,
        });
        self.by_command = counts.collect();
        self.by_command.sort_by(|one, other| {
            other.len_bytes.cmp(&one.len_bytes).then_with(|| one.name.cmp(&other.name))
        });
    }

    /// Formats the report for people. The last line states if a server can load the append-only
    /// file without losing data. The table of commands has at most `listed_max` commands.
    pub fn text(&self, listed_max: usize) -> String {
        let mut out = String::new();
        self.push_files(&mut out);
        self.push_commands(&mut out, listed_max);
        self.push_keys(&mut out);
        self.push_problems(&mut out);
        out
    }

    fn push_files(&self, out: &mut String) {
        let len_bytes = self.files.iter().map(|file| file.len_bytes).sum();
        push(out, format_args!("{} ({})\n", self.path, size(len_bytes)));
        if let Some(manifest) = &self.manifest {
            push(out, format_args!("  manifest    {manifest}\n"));
        }
        for (file, rdb) in self.files.iter().filter_map(|file| Some((file, file.rdb.as_ref()?))) {
            if let Some(format) = &rdb.format {
                let name = if self.files.len() > 1 { format!("{}: ", file.name) } else { String::new() };
                let (keys, state) =
                    (counted(rdb.total.keys, "key"), if rdb.is_good { "" } else { ", BROKEN" });
                push(
                    out,
                    format_args!(
                        "  snapshot    {name}{} version {}, written by {}, {keys}{state}\n",
                        format.magic, format.version, format.written_by
                    ),
                );
                let written = rdb.aux.iter().find(|aux| aux.name == "ctime");
                if let Some(time_s) = written.and_then(|aux| aux.value.parse().ok()) {
                    push(out, format_args!("  written     {}\n", utc(time_s)));
                }
            }
        }
        let head = ["file", "role", "format", "size", "commands", "transactions", "times", "state"];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        for file in &self.files {
            rows.push(vec![
                file.name.clone(),
                file.role.words().to_owned(),
                file.kind().to_owned(),
                size(file.len_bytes),
                grouped(file.commands),
                grouped(file.transactions),
                times(file),
                file.state.words().to_owned(),
            ]);
        }
        use Align::{Left, Right};
        let aligns = [Left, Left, Left, Right, Right, Right, Left, Left];
        push(out, format_args!("\n{}", table(&aligns, &rows)));
    }

    fn push_commands(&self, out: &mut String, listed_max: usize) {
        if self.by_command.is_empty() {
            return;
        }
        let mut rows = vec![["command", "count", "in the files"].map(str::to_owned).to_vec()];
        for CommandCount { name, count, len_bytes } in self.by_command.iter().take(listed_max) {
            rows.push(vec![name.clone(), grouped(*count), size(*len_bytes)]);
        }
        let rest = self.by_command.get(listed_max..).unwrap_or_default();
        if !rest.is_empty() {
            let (count, len_bytes) =
                rest.iter().fold((0, 0), |sum, of| (sum.0 + of.count, sum.1 + of.len_bytes));
            rows.push(vec![counted(rest.len() as u64, "other"), grouped(count), size(len_bytes)]);
        }
        push(out, format_args!("\n{}", table(&[Align::Left, Align::Right, Align::Right], &rows)));
    }

    fn push_keys(&self, out: &mut String) {
        if self.keys_touched_most.is_empty() {
            return;
        }
        let mut rows = vec![["commands", "database", "key"].map(str::to_owned).to_vec()];
        for TouchedKey { db, key, count } in &self.keys_touched_most {
            rows.push(vec![grouped(*count), grouped(*db), format!("\"{key}\"")]);
        }
        let exact = match self.uncounted_max {
            0 => String::new(),
            more => format!(" (approximate: each count may be too low by up to {})", grouped(more)),
        };
        let rows = table(&[Align::Right, Align::Right, Align::Left], &rows);
        push(out, format_args!("\nKeys that most commands name{exact}\n{rows}"));
    }

    fn push_problems(&self, out: &mut String) {
        out.push('\n');
        for name in &self.unlisted {
            push(out, format_args!("NOTE: {name} is not in the manifest: no server loads it.\n"));
        }
        for Problem { file, file_offset, what, advice } in &self.problems {
            push(out, format_args!("WRONG in {file}"));
            if let Some(file_offset) = file_offset {
                push(out, format_args!(" at byte {file_offset}"));
            }
            push(out, format_args!(": {what}\n      {advice}\n"));
        }
        let (commands, seconds) = (counted(self.commands, "command"), self.seconds);
        let verdict = match self.problems.len() as u64 {
            0 => "good".to_owned(),
            count => format!("BROKEN: {}", counted(count, "problem")),
        };
        let sign = if self.problems.is_empty() { ':' } else { ';' };
        push(
            out,
            format_args!("The append-only file is {verdict}{sign} {commands} read in {seconds:.1} s.\n"),
        );
    }
}

/// Formats the times of the first and the last annotation of a file.
fn times(file: &FileReport) -> String {
    match (file.first_time_s, file.last_time_s) {
        (Some(first), Some(last)) if first == last => utc(first),
        (Some(first), Some(last)) => format!("{} to {}", utc(first), utc(last)),
        _ => "-".to_owned(),
    }
}

/// Describes the problem `wrong` of a file, with advice to the user. `place` is the position of the
/// file.
fn problem_of(report: &FileReport, wrong: &FileProblem, place: Place) -> Problem {
    let loss = report.loss();
    let (file_offset, what) = match wrong {
        FileProblem::Missing => (None, "the file is missing".to_owned()),
        FileProblem::Rdb => (None, "the snapshot at the start of the file is broken".to_owned()),
        FileProblem::Torn(torn) => (Some(torn.good_len_bytes), torn_words(torn)),
        FileProblem::Broken(broken) => (Some(broken.offset), broken.what.to_string()),
    };
    let copy = "Make a copy of the folder first.";
    let advice = match wrong {
        FileProblem::Missing => {
            "A server refuses to start. Put the file back, or restore a backup.".to_owned()
        }
        FileProblem::Rdb => {
            format!(
                "A server refuses to start. Run `saker-check rdb {}` for details. Restore a backup.",
                report.name
            )
        }
        _ if place == Place::Earlier => format!(
            "A server refuses to start, because this is not the last file. saker-check cannot repair it: a \
             cut would lose {loss} and the changes of the later files. Restore a backup."
        ),
        FileProblem::Torn(TornTail { request_within: Some(within), .. }) => format!(
            "There are whole commands after it, from byte {within}: probably a length is damaged, and the \
             file is not cut off. {copy} Repair the length by hand, or let --fix cut off {loss}. Redis and \
             Valkey with aof-load-truncated yes cut it off when they start."
        ),
        FileProblem::Torn(TornTail { zeros_offset: Some(_), .. }) => format!(
            "Saker with aof-load-truncated yes (the default) cuts off {loss} when it starts. Redis and \
             Valkey refuse to start. --fix makes the same cut now."
        ),
        FileProblem::Torn(_) => format!(
            "This is usual after a crash. A server with aof-load-truncated yes (the default) cuts off \
             {loss} when it starts. --fix makes the same cut now."
        ),
        FileProblem::Broken(Broken { .. }) => format!(
            "A server refuses to start. {copy} Repair the damage by hand, or let --fix cut off {loss} from \
             there on."
        ),
    };
    Problem { file: report.name.clone(), file_offset, what, advice }
}

fn torn_words(torn: &TornTail) -> String {
    let zeros = torn.zeros_offset.map_or(String::new(), |zeros| {
        format!(": from byte {zeros} on there are only zeros, as usual after a power failure")
    });
    match torn.multi_offset {
        Some(_) => format!("the file ends within the transaction that begins here{zeros}"),
        None if torn.zeros_offset == Some(torn.good_len_bytes) => {
            "from here on there are only zeros, as usual after a power failure".to_owned()
        }
        None => format!("the file ends within the command that begins here{zeros}"),
    }
}

impl Role {
    fn words(self) -> &'static str {
        match self {
            Role::Base => "base",
            Role::Incr => "incremental",
            Role::History => "history",
            Role::Single => "single",
        }
    }
}

impl State {
    fn words(self) -> &'static str {
        match self {
            State::Good => "good",
            State::Torn => "TORN",
            State::Broken => "BROKEN",
            State::Missing => "MISSING",
            State::NotLoaded => "not loaded",
            State::Removed => "removed",
        }
    }
}

fn push(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("writing to a string cannot fail");
}
