//! The log: one line per event, in the format of `log-format` and `log-timestamp-format`.
//!
//! ```text
//! 4711:M 21 Nov 2026 01:07:06.209 * Ready to accept connections tcp
//! pid=4711 role=primary timestamp="2026-11-21T01:07:06.209+00:00" level=notice message="Ready …"
//! {"pid":4711,"role":"primary","timestamp":1795223226209,"level":"notice","message":"Ready …"}
//! ```
//! `legacy` is the format of Redis, which existing tools read: the process id, the role (`M` for a
//! primary, `S` for a replica), the time, the level (`.` debug, `-` verbose, `*` notice, `#`
//! warning), the message.
//! `logfmt` has Valkey's names and order. `json` has the same names, one object per line. The
//! fields of an event follow its message, under their own names. Times are in UTC. The level and
//! the formats may change while the server runs, because each line reads them again.

use std::fmt::{self, Write as _};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::{LookupSpan, Registry};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, reload};

use crate::log_file::LogFile;

/// The format of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Format {
    /// The format of Redis: process id, role, time, level and message.
    Legacy,
    /// The format logfmt: `name=value` pairs.
    Logfmt,
    /// The format JSON: one object per line.
    Json,
}

/// The format of times in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TimeFormat {
    /// The format of Redis: `21 Nov 2026 01:07:06.209`.
    Legacy,
    /// The format of ISO 8601, with milliseconds.
    Iso8601,
    /// Milliseconds since 1970 in UTC, as a number.
    Milliseconds,
}

/// The filter of the process's log by level; empty before [`start`].
static FILTER: OnceLock<reload::Handle<LevelFilter, Registry>> = OnceLock::new();
/// The destination of the process's log; empty before [`start`].
static TARGET: OnceLock<Target> = OnceLock::new();
/// The current [`Format`], as a number. Like `TIME_FORMAT`, it is accessed Relaxed: a line that is
/// written during a change may have the old or the new format.
static FORMAT: AtomicU8 = AtomicU8::new(Format::Legacy as u8);
static TIME_FORMAT: AtomicU8 = AtomicU8::new(TimeFormat::Legacy as u8);
/// True if log lines show the role of a replica; false for a primary.
static IS_REPLICA: AtomicBool = AtomicBool::new(false);

enum Target {
    StandardOutput,
    File(Arc<LogFile>),
}

/// Starts logging lines of `level` and above to `file` or standard output. Called once per process;
/// an embedded server leaves logging to its host. Lines that cannot be written are lost; the
/// process continues.
pub fn start(level: LevelFilter, file: Option<&Path>) -> io::Result<()> {
    let (writer, target) = match file {
        None => (BoxMakeWriter::new(io::stdout), Target::StandardOutput),
        Some(path) => {
            let file = Arc::new(LogFile::open(path, loss)?);
            (BoxMakeWriter::new(Arc::clone(&file)), Target::File(file))
        }
    };
    let (filter, handle) = reload::Layer::new(level);
    // `log_internal_errors` is off, because it panics if standard error was closed with the
    // terminal.
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .event_format(Lines)
        .log_internal_errors(false)
        .with_writer(writer);
    tracing_subscriber::registry().with(filter.and_then(lines)).try_init().map_err(io::Error::other)?;
    // These cannot fail: a second call of this function has failed above.
    let _ = FILTER.set(handle);
    let _ = TARGET.set(target);
    Ok(())
}

/// Shows the role of a replica in later log lines.
pub fn show_replica() {
    IS_REPLICA.store(true, Relaxed);
}

/// Shows the role of a primary in later log lines.
pub fn show_primary() {
    IS_REPLICA.store(false, Relaxed);
}

/// Returns the letter and the name of the role for log lines.
fn role() -> (char, &'static str) {
    if IS_REPLICA.load(Relaxed) { ('S', "replica") } else { ('M', "primary") }
}

/// Reopens the log file by its name, after a rotation by another process. Returns `None` if the log
/// is standard output or was not started.
pub fn reopen() -> Option<io::Result<()>> {
    match TARGET.get()? {
        Target::StandardOutput => None,
        Target::File(file) => Some(file.reopen()),
    }
}

/// Returns true if the log is standard output and its level includes errors.
pub fn shows_errors_on_stdout() -> bool {
    let filter = FILTER.get().and_then(|filter| filter.clone_current());
    matches!(TARGET.get(), Some(Target::StandardOutput)) && filter.is_some_and(|level| level >= Level::ERROR)
}

/// Formats the log line that reports the number of lost lines.
fn loss(lines: u64) -> String {
    let mut line = Line::now(Level::WARN);
    line.message = format!("Log lines that could not be written and are lost: {lines}");
    line.chosen_text() + "\n"
}

/// Sets the lowest level that is logged. Has no effect in a process that has not called [`start`],
/// such as the host of an embedded server.
pub fn set_level(level: LevelFilter) {
    if let Some(handle) = FILTER.get()
        && let Err(error) = handle.reload(level)
    {
        tracing::warn!(%error, "Cannot change the log level");
    }
}

/// Sets the line format and the time format of later lines.
pub fn set_forms(format: Format, time_format: TimeFormat) {
    FORMAT.store(format as u8, Relaxed);
    TIME_FORMAT.store(time_format as u8, Relaxed);
}

/// Returns the formats of log lines and of the times in them that are set now.
fn forms() -> (Format, TimeFormat) {
    const FORMATS: [Format; 3] = [Format::Legacy, Format::Logfmt, Format::Json];
    const TIME_FORMATS: [TimeFormat; 3] = [TimeFormat::Legacy, TimeFormat::Iso8601, TimeFormat::Milliseconds];
    (FORMATS[usize::from(FORMAT.load(Relaxed))], TIME_FORMATS[usize::from(TIME_FORMAT.load(Relaxed))])
}

/// The formatter that writes events as log lines.
struct Lines;

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = Line::now(*event.metadata().level());
        event.record(&mut line);
        writeln!(writer, "{}", line.chosen_text())
    }
}

/// The value of a field of an event in the log.
enum FieldValue {
    /// A field value that is a number or a boolean, which is written without quotes.
    Plain(String),
    /// A field value that is a text, which may come from clients. It is quoted in formats that have
    /// quotes.
    Text(String),
    /// A field value that is an error or has another type, formatted by its own type.
    Shown(String),
}

/// The contents of one event for the log.
struct Line {
    level: Level,
    unix_ms: u64,
    message: String,
    fields: Vec<(&'static str, FieldValue)>,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.take(field, FieldValue::Shown(format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.take(field, FieldValue::Text(value.to_owned()));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.take(field, FieldValue::Plain(value.to_string()));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.take(field, FieldValue::Plain(value.to_string()));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.take(field, FieldValue::Plain(value.to_string()));
    }
}

impl Line {
    fn now(level: Level) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::new(level, since.as_millis() as u64)
    }

    fn new(level: Level, unix_ms: u64) -> Self {
        Self { level, unix_ms, message: String::new(), fields: Vec::new() }
    }

    fn take(&mut self, field: &Field, value: FieldValue) {
        match value {
            FieldValue::Plain(text) | FieldValue::Text(text) | FieldValue::Shown(text)
                if field.name() == "message" =>
            {
                self.message = text;
            }
            value => self.fields.push((field.name(), value)),
        }
    }

    /// Formats the log line in the line format and the time format that are set now.
    fn chosen_text(&self) -> String {
        let (format, time_format) = forms();
        self.text(format, time_format)
    }

    /// Formats the log line in the given line format and time format.
    fn text(&self, format: Format, time_format: TimeFormat) -> String {
        let time = match time_format {
            TimeFormat::Legacy => time_text(self.unix_ms),
            TimeFormat::Iso8601 => iso_time(self.unix_ms),
            TimeFormat::Milliseconds => self.unix_ms.to_string(),
        };
        match (format, time_format) {
            (Format::Legacy, _) => self.legacy(&time),
            (Format::Logfmt, _) => self.logfmt(&time),
            // JSON has numbers, so milliseconds need no quotes.
            (Format::Json, TimeFormat::Milliseconds) => self.json(&time),
            (Format::Json, _) => {
                let mut quoted = String::new();
                push_quoted(&mut quoted, &time);
                self.json(&quoted)
            }
        }
    }

    fn legacy(&self, time: &str) -> String {
        let mark = match self.level {
            Level::TRACE => '.',
            Level::DEBUG => '-',
            Level::INFO => '*',
            Level::WARN | Level::ERROR => '#',
        };
        let mut line = format!("{}:{} {time} {mark} {}", std::process::id(), role().0, self.message);
        for (name, value) in &self.fields {
            // Writing to a String cannot fail, here and below.
            let _ = match value {
                FieldValue::Text(text) => write!(line, " {name}={text:?}"),
                FieldValue::Plain(text) | FieldValue::Shown(text) => write!(line, " {name}={text}"),
            };
        }
        line
    }

    fn logfmt(&self, time: &str) -> String {
        let (pid, level) = (std::process::id(), self.level_name());
        let role = role().1;
        let mut line = format!("pid={pid} role={role} timestamp=\"{time}\" level={level} message=");
        push_quoted(&mut line, &self.message);
        for (name, value) in &self.fields {
            let _ = write!(line, " {name}=");
            push_field_value(&mut line, value);
        }
        line
    }

    /// Formats the log line as JSON; `time` is the line's time as a JSON value.
    fn json(&self, time: &str) -> String {
        let (pid, level) = (std::process::id(), self.level_name());
        let role = role().1;
        let mut line = format!(
            "{{\"pid\":{pid},\"role\":\"{role}\",\"timestamp\":{time},\"level\":\"{level}\",\"message\":"
        );
        push_quoted(&mut line, &self.message);
        for (name, value) in &self.fields {
            let _ = write!(line, ",\"{name}\":");
            push_field_value(&mut line, value);
        }
        line.push('}');
        line
    }

    /// Returns the name of the log line's level, as in the option `loglevel`.
    fn level_name(&self) -> &'static str {
        match self.level {
            Level::TRACE => "debug",
            Level::DEBUG => "verbose",
            Level::INFO => "notice",
            Level::WARN | Level::ERROR => "warning",
        }
    }
}

fn push_field_value(line: &mut String, value: &FieldValue) {
    match value {
        FieldValue::Plain(text) => line.push_str(text),
        FieldValue::Text(text) | FieldValue::Shown(text) => push_quoted(line, text),
    }
}

/// Appends `text` in quotes, escaped for JSON and readable by logfmt parsers. No byte of it ends
/// the line or the quotes.
fn push_quoted(line: &mut String, text: &str) {
    line.push('"');
    for character in text.chars() {
        match character {
            '"' => line.push_str("\\\""),
            '\\' => line.push_str("\\\\"),
            '\n' => line.push_str("\\n"),
            '\r' => line.push_str("\\r"),
            '\t' => line.push_str("\\t"),
            // Writing to a String cannot fail.
            control if control < ' ' || control == '\u{7f}' => {
                let _ = write!(line, "\\u{:04x}", u32::from(control));
            }
            other => line.push(other),
        }
    }
    line.push('"');
}

/// A date and time of day, in UTC.
struct UtcTime {
    year: u64,
    /// The month, from 1 to 12.
    month: u64,
    day: u64,
    hour: u64,
    minute: u64,
    second: u64,
    ms: u64,
}

/// Converts Unix milliseconds to a date and time of day. Days are counted from 1 March 0000, so
/// that a leap day is the last day of a year (Howard Hinnant, "chrono-compatible low-level date
/// algorithms").
fn moment(unix_ms: u64) -> UtcTime {
    const DAYS_TO_1970: u64 = 719_468;
    let (days, ms) = (unix_ms / 86_400_000 + DAYS_TO_1970, unix_ms % 86_400_000);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let months_since_march = (5 * day_of_year + 2) / 153;
    let (seconds, ms) = (ms / 1000, ms % 1000);
    UtcTime {
        year: era * 400 + year_of_era + u64::from(months_since_march >= 10),
        month: (months_since_march + 2) % 12 + 1,
        day: day_of_year - (153 * months_since_march + 2) / 5 + 1,
        hour: seconds / 3600,
        minute: seconds / 60 % 60,
        second: seconds % 60,
        ms,
    }
}

/// Formats a time as `21 Nov 2026 01:07:06.209`.
fn time_text(unix_ms: u64) -> String {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let UtcTime { year, month, day, hour, minute, second, ms } = moment(unix_ms);
    let month = MONTHS[month as usize - 1];
    format!("{day:02} {month} {year} {hour:02}:{minute:02}:{second:02}.{ms:03}")
}

/// Formats a time as `2026-11-21T01:07:06.209+00:00`.
fn iso_time(unix_ms: u64) -> String {
    let UtcTime { year, month, day, hour, minute, second, ms } = moment(unix_ms);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}+00:00")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_redis_does() {
        assert_eq!(time_text(0), "01 Jan 1970 00:00:00.000");
        assert_eq!(time_text(951_782_400_000), "29 Feb 2000 00:00:00.000");
        assert_eq!(time_text(951_868_799_999), "29 Feb 2000 23:59:59.999");
        assert_eq!(time_text(1_795_223_226_209), "21 Nov 2026 01:07:06.209");
        assert_eq!(time_text(4_107_542_399_000), "28 Feb 2100 23:59:59.000");
        assert_eq!(time_text(4_107_542_400_000), "01 Mar 2100 00:00:00.000");
        assert_eq!(iso_time(1_795_223_226_209), "2026-11-21T01:07:06.209+00:00");
        assert_eq!(iso_time(1_767_225_599_999), "2025-12-31T23:59:59.999+00:00");
    }

    #[test]
    fn a_line_has_the_chosen_form() {
        let mut line = Line::new(Level::WARN, 1_795_223_226_209);
        line.message = "a \"quoted\"\nmessage".to_owned();
        line.fields = vec![
            ("reason", FieldValue::Shown("no space".to_owned())),
            ("name", FieldValue::Text("a b\u{1}".to_owned())),
            ("thread", FieldValue::Plain("3".to_owned())),
        ];
        let check = |format: Format, time_format: TimeFormat, expected: &str| {
            let expected = expected.replace("PID", &std::process::id().to_string());
            assert_eq!(line.text(format, time_format), expected);
        };
        let legacy = "PID:M 21 Nov 2026 01:07:06.209 # a \"quoted\"\nmessage reason=no space \
                      name=\"a b\\u{1}\" thread=3";
        check(Format::Legacy, TimeFormat::Legacy, legacy);
        let logfmt = "pid=PID role=primary timestamp=\"2026-11-21T01:07:06.209+00:00\" level=warning \
                      message=\"a \\\"quoted\\\"\\nmessage\" reason=\"no space\" name=\"a b\\u0001\" thread=3";
        check(Format::Logfmt, TimeFormat::Iso8601, logfmt);
        let json = "{\"pid\":PID,\"role\":\"primary\",\"timestamp\":1795223226209,\"level\":\"warning\",\
                    \"message\":\"a \\\"quoted\\\"\\nmessage\",\"reason\":\"no space\",\"name\":\"a b\\u0001\",\
                    \"thread\":3}";
        check(Format::Json, TimeFormat::Milliseconds, json);
    }
}
