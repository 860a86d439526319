//! Options of scripts, and options for finding slow commands.

use super::{NO_SCRIPTS, OTHER_DESIGN};
use crate::config::handle::Handle;
use crate::config::option::{ANY, BYTES, FollowUp, INT, OnChange, Opt};
use crate::config::value::Kind;
use crate::config::words;

/// The range of thresholds, with -1 for "off".
const OFF_OR_ANY: (i64, i64) = (-1, i64::MAX);

/// The reason why options for the tests of Redis have no effect.
const FOR_TESTS: &str = "it is for tests of Redis itself";

/// The options of this theme.
pub static OPTIONS: &[&Opt] = &[
    &BUSY_REPLY_THRESHOLD.opt,
    &LUA_MEMORY_LIMIT.opt,
    &SLOWLOG_LOG_SLOWER_THAN.opt,
    &SLOWLOG_MAX_LEN.opt,
    &COMMANDLOG_REQUEST_LARGER_THAN.opt,
    &COMMANDLOG_LARGE_REQUEST_MAX_LEN.opt,
    &COMMANDLOG_REPLY_LARGER_THAN.opt,
    &COMMANDLOG_LARGE_REPLY_MAX_LEN.opt,
    &LATENCY_MONITOR_THRESHOLD.opt,
    &LATENCY_TRACKING.opt,
    &LATENCY_TRACKING_INFO_PERCENTILES.opt,
    &HOTKEYS_TOP_K.opt,
    &HOTKEYS_SAMPLING_PERCENTAGE.opt,
    &HOTKEYS_WINDOW_SECONDS.opt,
    &HZ.opt,
    &Opt::flag("dynamic-hz", "yes", "Raise `hz` with the number of clients.").accepted(OTHER_DESIGN),
    &Opt::new(
        "locale-collate",
        Kind::Checked(words::byte_locale),
        "",
        "The order of strings in scripts and SORT.",
    )
    .accepted("strings are compared byte by byte"),
    &Opt::flag(
        "extended-redis-compatibility",
        "no",
        "Call the server Redis where clients look for its name.",
    )
    .accepted("INFO and HELLO name Redis' version in any case"),
    &Opt::integer("watchdog-period", "0", INT, "Milliseconds from which on a slow turn is described.")
        .hidden()
        .accepted(FOR_TESTS),
    &Opt::flag("use-exit-on-panic", "no", "End without a core file after a broken invariant.")
        .hidden()
        .accepted(FOR_TESTS),
    &Opt::integer(
        "loading-process-events-interval-bytes",
        "524288",
        (1024, i32::MAX as i64),
        "Loaded bytes after which requests are looked at.",
    )
    .hidden()
    .accepted(FOR_TESTS),
    &Opt::integer("cluster-ping-interval", "0", ANY, "Milliseconds between pings of nodes.")
        .hidden()
        .accepted(FOR_TESTS),
    &Opt::integer("events-per-io-thread", "2", INT, "Events from which on another I/O thread is used.")
        .hidden()
        .accepted(FOR_TESTS),
    &Opt::text("debug-context", "", "A remark for the log.").hidden().accepted(FOR_TESTS),
    &Opt::flag("lua-enable-deprecated-api", "no", "Offer old functions to scripts.")
        .at_start()
        .hidden()
        .accepted(NO_SCRIPTS),
    &Opt::flag("lua-enable-insecure-api", "no", "Offer risky functions to scripts.")
        .protected()
        .hidden()
        .accepted(NO_SCRIPTS),
];

/// The maximum memory of the Lua state of a thread, in bytes; 0 for no limit.
pub static LUA_MEMORY_LIMIT: Handle<usize> = Opt::memory(
    "lua-memory-limit",
    "0",
    BYTES,
    "Bytes that the Lua of an I/O thread may take: a script that needs more fails; 0 for no limit.",
)
.typed();

/// The milliseconds after which a running script counts as busy; 0 or less for never.
pub static BUSY_REPLY_THRESHOLD: Handle<i64> = Opt::integer(
    "busy-reply-threshold",
    "5000",
    ANY,
    "Milliseconds after which a script that others wait for makes them get `-BUSY`; 0 for never.",
)
.also(&["lua-time-limit"])
.typed();

/// The minimum duration of a command in the slow log, in microseconds; a negative value logs none.
pub static SLOWLOG_LOG_SLOWER_THAN: Handle<i64> = Opt::integer(
    "slowlog-log-slower-than",
    "10000",
    OFF_OR_ANY,
    "Commands that take at least this many microseconds are logged.",
)
.also(&["commandlog-execution-slower-than"])
.typed();

/// The maximum number of entries in the slow log.
pub static SLOWLOG_MAX_LEN: Handle<usize> =
    Opt::integer("slowlog-max-len", "128", ANY, "Maximum number of entries in the slow log.")
        .also(&["commandlog-slow-execution-max-len"])
        .typed();

/// The minimum size of a logged request, in bytes; a negative value logs none.
pub static COMMANDLOG_REQUEST_LARGER_THAN: Handle<i64> = Opt::integer(
    "commandlog-request-larger-than",
    "1048576",
    OFF_OR_ANY,
    "Requests of at least this many bytes are logged.",
)
.typed();

/// The maximum number of logged large requests.
pub static COMMANDLOG_LARGE_REQUEST_MAX_LEN: Handle<usize> =
    Opt::integer("commandlog-large-request-max-len", "128", ANY, "Maximum number of logged large requests.")
        .typed();

/// The minimum size of a logged reply, in bytes; a negative value logs none.
pub static COMMANDLOG_REPLY_LARGER_THAN: Handle<i64> = Opt::integer(
    "commandlog-reply-larger-than",
    "1048576",
    OFF_OR_ANY,
    "Replies of at least this many bytes are logged.",
)
.typed();

/// The maximum number of logged large replies.
pub static COMMANDLOG_LARGE_REPLY_MAX_LEN: Handle<usize> =
    Opt::integer("commandlog-large-reply-max-len", "128", ANY, "Maximum number of logged large replies.")
        .typed();

/// The minimum duration of a recorded latency spike, in milliseconds; 0 records none.
pub static LATENCY_MONITOR_THRESHOLD: Handle<u64> = Opt::integer(
    "latency-monitor-threshold",
    "0",
    ANY,
    "Events of at least this many milliseconds are recorded; 0 turns the latency monitor off.",
)
.typed();

/// `latency-tracking`: true if a histogram of each command's times is kept.
pub static LATENCY_TRACKING: Handle<bool> =
    Opt::flag("latency-tracking", "yes", "Keep a histogram of each command's times.").typed();

/// The percentiles that INFO latencystats shows, as decimal numbers.
pub static LATENCY_TRACKING_INFO_PERCENTILES: Handle<[Vec<u8>]> = Opt::new(
    "latency-tracking-info-percentiles",
    Kind::Words(&words::PERCENTILES),
    "50 99 99.9",
    "The percentiles that INFO latencystats shows.",
)
.typed();

/// The number of keys that HOTKEYS GET shows for a window; 0 turns the counting off.
pub static HOTKEYS_TOP_K: Handle<usize> = Opt::integer(
    "hotkeys-top-k",
    "0",
    (0, 1000),
    "Keys that HOTKEYS GET shows of the last window, those that are asked for most; 0 for counting none.",
)
.on_change(OnChange::FollowUp(FollowUp::HotKeyWindows))
.typed();

/// The percentage of commands that are counted for hot keys.
pub static HOTKEYS_SAMPLING_PERCENTAGE: Handle<u32> = Opt::integer(
    "hotkeys-sampling-percentage",
    "1",
    (1, 100),
    "Of a hundred commands, how many are counted for that.",
)
.on_change(OnChange::FollowUp(FollowUp::HotKeyWindows))
.typed();

/// The length of a window of hot keys, in seconds.
pub static HOTKEYS_WINDOW_SECONDS: Handle<u64> =
    Opt::integer("hotkeys-window-seconds", "1", (1, 300), "How long each window is, in seconds.")
        .on_change(OnChange::FollowUp(FollowUp::HotKeyWindows))
        .typed();

/// The number of housekeeping rounds per second that INFO shows.
pub static HZ: Handle<u32> = Opt::new(
    "hz",
    Kind::Clamped { min: 1, max: 500 },
    "10",
    "How often per second housekeeping runs; INFO shows it.",
)
.accepted("housekeeping runs ten times a second on a thread of its own")
.typed();
