//! The table of options for scripts, and for finding slow commands.

use super::OTHER_DESIGN;
use crate::config::handle::Handle;
use crate::config::option::{ANY, BYTES, FollowUp, INT, OnChange, Opt};
use crate::config::value::Kind;
use crate::config::words;

/// The range of options that are a threshold for a log, with -1 for "off".
const OFF_OR_ANY: (i64, i64) = (-1, i64::MAX);

/// The reason why options for test suites have no effect.
const FOR_TESTS: &str = "it is for the tests of Redis and Valkey";
/// The reason why options that permit more Lua functions have no effect.
const FEWER_FUNCTIONS: &str = "Saker never offers these functions to scripts";

/// The options of this file, in the order of docs/options.md.
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
        "The locale that defines the order of strings in scripts and SORT.",
    )
    .accepted("strings are compared byte by byte"),
    &Opt::flag(
        "extended-redis-compatibility",
        "no",
        "Use the name Redis where clients read the server's name.",
    )
    .accepted("INFO and HELLO always show a version of Redis"),
    &Opt::integer(
        "watchdog-period",
        "0",
        INT,
        "The duration of an event loop turn, in milliseconds, above which it is logged.",
    )
    .hidden()
    .accepted(FOR_TESTS),
    &Opt::flag("use-exit-on-panic", "no", "Exit without a core file after a failed assertion.")
        .hidden()
        .accepted(FOR_TESTS),
    &Opt::integer(
        "loading-process-events-interval-bytes",
        "524288",
        (1024, i32::MAX as i64),
        "The number of loaded bytes after which requests are processed.",
    )
    .hidden()
    .accepted(FOR_TESTS),
    &Opt::integer("cluster-ping-interval", "0", ANY, "The interval of pings between nodes, in milliseconds.")
        .hidden()
        .accepted(FOR_TESTS),
    &Opt::integer(
        "events-per-io-thread",
        "2",
        INT,
        "The number of events above which another I/O thread is used.",
    )
    .hidden()
    .accepted(FOR_TESTS),
    &Opt::text("debug-context", "", "A note for the log.").hidden().accepted(FOR_TESTS),
    &Opt::flag("enable-debug-assert", "no", "Permit DEBUG ASSERT, which ends the server.")
        .at_start()
        .hidden()
        .accepted(FOR_TESTS),
    &Opt::flag(
        "lua-enable-deprecated-api",
        "no",
        "Offer the deprecated functions getfenv, setfenv and newproxy to scripts.",
    )
    .at_start()
    .hidden()
    .accepted(FEWER_FUNCTIONS),
    &Opt::flag(
        "lua-enable-insecure-api",
        "no",
        "Offer the insecure functions getfenv, setfenv and newproxy to scripts.",
    )
    .protected()
    .hidden()
    .accepted(FEWER_FUNCTIONS),
];

/// The maximum memory of the Lua state of a thread, in bytes; 0 for no limit.
pub static LUA_MEMORY_LIMIT: Handle<usize> = Opt::memory(
    "lua-memory-limit",
    "0",
    BYTES,
    "The maximum memory of Lua on each I/O thread, in bytes; 0 for no limit. A script that needs \
         more fails.",
)
.typed();

/// The milliseconds after which a running script counts as busy; 0 or less for never.
pub static BUSY_REPLY_THRESHOLD: Handle<i64> = Opt::integer(
    "busy-reply-threshold",
    "5000",
    ANY,
    "The time, in milliseconds, after which a running script counts as busy: requests that wait \
         for it get the error `BUSY`. 0 for never.",
)
.also(&["lua-time-limit"])
.typed();

/// The minimum duration of a command in the slow log, in microseconds; a negative value logs none.
pub static SLOWLOG_LOG_SLOWER_THAN: Handle<i64> = Opt::integer(
    "slowlog-log-slower-than",
    "10000",
    OFF_OR_ANY,
    "The minimum execution time, in microseconds, of commands in the slow log; `-1` disables the \
         slow log.",
)
.also(&["commandlog-execution-slower-than"])
.typed();

/// The maximum number of entries in the slow log.
pub static SLOWLOG_MAX_LEN: Handle<usize> =
    Opt::integer("slowlog-max-len", "128", ANY, "The maximum number of entries in the slow log.")
        .also(&["commandlog-slow-execution-max-len"])
        .typed();

/// The minimum size of a logged request, in bytes; a negative value logs none.
pub static COMMANDLOG_REQUEST_LARGER_THAN: Handle<i64> = Opt::integer(
    "commandlog-request-larger-than",
    "1048576",
    OFF_OR_ANY,
    "The minimum size, in bytes, of requests in the log of large requests (COMMANDLOG); `-1` \
         disables it.",
)
.typed();

/// The maximum number of logged large requests.
pub static COMMANDLOG_LARGE_REQUEST_MAX_LEN: Handle<usize> = Opt::integer(
    "commandlog-large-request-max-len",
    "128",
    ANY,
    "The maximum number of entries in the log of large requests.",
)
.typed();

/// The minimum size of a logged reply, in bytes; a negative value logs none.
pub static COMMANDLOG_REPLY_LARGER_THAN: Handle<i64> = Opt::integer(
    "commandlog-reply-larger-than",
    "1048576",
    OFF_OR_ANY,
    "The minimum size, in bytes, of replies in the log of large replies (COMMANDLOG); `-1` \
         disables it.",
)
.typed();

/// The maximum number of logged large replies.
pub static COMMANDLOG_LARGE_REPLY_MAX_LEN: Handle<usize> = Opt::integer(
    "commandlog-large-reply-max-len",
    "128",
    ANY,
    "The maximum number of entries in the log of large replies.",
)
.typed();

/// The minimum duration of a recorded latency spike, in milliseconds; 0 records none.
pub static LATENCY_MONITOR_THRESHOLD: Handle<u64> = Opt::integer(
    "latency-monitor-threshold",
    "0",
    ANY,
    "The minimum duration, in milliseconds, of latency events that are recorded; 0 disables the \
         latency monitor.",
)
.typed();

/// `latency-tracking`: true if a histogram of each command's times is kept.
pub static LATENCY_TRACKING: Handle<bool> = Opt::flag(
    "latency-tracking",
    "yes",
    "Record a histogram of the execution times of each command, for LATENCY HISTOGRAM and INFO \
         latencystats.",
)
.typed();

/// The percentiles that INFO latencystats shows, as decimal numbers.
pub static LATENCY_TRACKING_INFO_PERCENTILES: Handle<[Vec<u8>]> = Opt::new(
    "latency-tracking-info-percentiles",
    Kind::Words(&words::PERCENTILES),
    "50 99 99.9",
    "The percentiles that INFO latencystats shows.",
)
.typed();

/// The number of keys that HOTKEYS GET shows for one window of counting; 0 turns the counting off.
pub static HOTKEYS_TOP_K: Handle<usize> = Opt::integer(
    "hotkeys-top-k",
    "0",
    (0, 1000),
    "The number of most frequently accessed keys that HOTKEYS GET shows for the last window; 0 \
         disables the counting.",
)
.on_change(OnChange::FollowUp(FollowUp::HotKeyWindows))
.typed();

/// The percentage of commands whose keys are counted for HOTKEYS.
pub static HOTKEYS_SAMPLING_PERCENTAGE: Handle<u32> = Opt::integer(
    "hotkeys-sampling-percentage",
    "1",
    (1, 100),
    "The percentage of commands that are sampled to count the accesses of keys for \
         `hotkeys-top-k`.",
)
.on_change(OnChange::FollowUp(FollowUp::HotKeyWindows))
.typed();

/// The length of a window, in seconds: the period for which HOTKEYS counts accesses to keys.
pub static HOTKEYS_WINDOW_SECONDS: Handle<u64> = Opt::integer(
    "hotkeys-window-seconds",
    "1",
    (1, 300),
    "The length of a window of `hotkeys-top-k`, in seconds.",
)
.on_change(OnChange::FollowUp(FollowUp::HotKeyWindows))
.typed();

/// The number that INFO shows as `hz`: in Redis, the rounds of background work per second. Here it
/// has no other effect.
pub static HZ: Handle<u32> = Opt::new(
    "hz",
    Kind::Clamped { min: 1, max: 500 },
    "10",
    "The number of housekeeping rounds per second. INFO shows this value.",
)
.accepted("housekeeping always runs ten times a second, on its own thread")
.typed();
