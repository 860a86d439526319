//! The log: one line per event, in the form that tools for Redis read.
//!
//! ```text
//! 4711:M 21 Nov 2026 01:07:06.209 * Ready to accept connections tcp
//! ```
//! The process, the role (always `M`), the time (UTC), the level (`.` debug, `-` verbose, `*` notice, `#`
//! warning), the message. Fields of an event follow it as `name=value`.

use std::fmt;
use std::fs::OpenOptions;
use std::io;
use std::path::Path;
use std::sync::{Mutex, OnceLock};
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

/// The filter of the process's log, once there is one.
static FILTER: OnceLock<reload::Handle<LevelFilter, Registry>> = OnceLock::new();

/// Starts logging to `file`, or to standard output, from `loglevel` on. Once per process; an embedded
/// server leaves it to its host.
pub fn start(loglevel: &str, file: Option<&Path>) -> io::Result<()> {
    let writer = match file {
        None => BoxMakeWriter::new(io::stdout),
        Some(path) => {
            BoxMakeWriter::new(Mutex::new(OpenOptions::new().create(true).append(true).open(path)?))
        }
    };
    let (filter, handle) = reload::Layer::new(level_filter(loglevel));
    let lines = tracing_subscriber::fmt::layer().with_ansi(false).event_format(Lines).with_writer(writer);
    tracing_subscriber::registry().with(filter.and_then(lines)).try_init().map_err(io::Error::other)?;
    // A second start has failed above.
    let _ = FILTER.set(handle);
    Ok(())
}

/// Takes over a new `loglevel`. Nothing happens in a process that logs its own way.
pub fn set_level(loglevel: &str) {
    if let Some(handle) = FILTER.get()
        && let Err(error) = handle.reload(level_filter(loglevel))
    {
        tracing::warn!(%error, "The log level stays as it was");
    }
}

/// The least important level that `loglevel` lets through.
fn level_filter(loglevel: &str) -> LevelFilter {
    match loglevel {
        "debug" => LevelFilter::TRACE,
        "verbose" => LevelFilter::DEBUG,
        "warning" => LevelFilter::WARN,
        "nothing" => LevelFilter::OFF,
        _ => LevelFilter::INFO,
    }
}

/// Writes events as lines.
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
        let mark = match *event.metadata().level() {
            Level::TRACE => '.',
            Level::DEBUG => '-',
            Level::INFO => '*',
            Level::WARN | Level::ERROR => '#',
        };
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time = time_text(since.as_millis() as u64);
        let mut text = Text::default();
        event.record(&mut text);
        writeln!(writer, "{}:M {time} {mark} {}{}", std::process::id(), text.message, text.fields)
    }
}

/// An event's message and its other fields, as text.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        } else {
            self.fields += &format!(" {}={value:?}", field.name());
        }
    }
}

/// `21 Nov 2026 01:07:06.209`, in UTC. The days are counted from 1 March 0000, so that a leap day is a
/// year's last day (Howard Hinnant, "chrono-compatible low-level date algorithms").
fn time_text(unix_ms: u64) -> String {
    const MONTHS: [&str; 12] =
        ["Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec", "Jan", "Feb"];
    const DAYS_TO_1970: u64 = 719_468;
    let (days, ms) = (unix_ms / 86_400_000 + DAYS_TO_1970, unix_ms % 86_400_000);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let year = era * 400 + year_of_era + u64::from(month >= 10);
    let (seconds, ms) = (ms / 1000, ms % 1000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{day:02} {} {year} {hour:02}:{minute:02}:{second:02}.{ms:03}", MONTHS[month as usize])
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
    }

    #[test]
    fn levels_follow_the_option() {
        let order = ["nothing", "warning", "notice", "verbose", "debug"].map(level_filter);
        assert!(order.is_sorted());
    }
}
