//! The table of options for the process and its log.

use std::path::Path;

use tracing_subscriber::filter::LevelFilter;

use super::OTHER_DESIGN;
use crate::config::handle::{Choice as _, Handle};
use crate::config::option::{INT, OnChange, Opt, Prepare};
use crate::config::value::Kind;
use crate::config::words;
use crate::logging::{Format, TimeFormat};
use crate::supervisor::Supervision;

/// The kind of the options `shutdown-on-sigint` and `shutdown-on-sigterm`.
const SHUTDOWN: Kind = Kind::Words(&words::SHUTDOWN);

/// The options of this file, in the order of docs/options.md.
pub static OPTIONS: &[&Opt] = &[
    &DAEMONIZE.opt,
    &PIDFILE.opt,
    &LOGLEVEL.opt,
    &LOGFILE.opt,
    &LOG_FORMAT.opt,
    &LOG_TIMESTAMP_FORMAT.opt,
    &Opt::flag("syslog-enabled", "no", "Write the log to syslog.").at_start().accepted(NO_SYSLOG),
    &Opt::text("syslog-ident", "saker", "The name of the server in syslog.").at_start().accepted(NO_SYSLOG),
    &Opt::choice(
        "syslog-facility",
        "local0",
        &["user", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7"],
        "The syslog facility.",
    )
    .at_start()
    .accepted(NO_SYSLOG),
    &SUPERVISED.opt,
    &SHUTDOWN_ON_SIGINT.opt,
    &SHUTDOWN_ON_SIGTERM.opt,
    &SHUTDOWN_TIMEOUT.opt,
    &Opt::flag("set-proc-title", "yes", "Show the server's address and mode in the process title.")
        .at_start()
        .accepted(NO_TITLE),
    &Opt::new(
        "proc-title-template",
        Kind::Checked(words::title_template),
        "{title} {listen-addr} {server-mode}",
        "The template of the process title.",
    )
    .accepted(NO_TITLE),
    &Opt::text("server-cpulist", "", "The cores of threads that serve clients.")
        .also(&["server_cpulist"])
        .at_start()
        .accepted(NO_PINNING),
    &Opt::text("bio-cpulist", "", "The cores of background threads.")
        .also(&["bio_cpulist"])
        .at_start()
        .accepted(NO_PINNING),
    &Opt::text("aof-rewrite-cpulist", "", "The cores for rewrites of the append-only file.")
        .also(&["aof_rewrite_cpulist"])
        .at_start()
        .accepted(NO_PINNING),
    &Opt::text("bgsave-cpulist", "", "The cores for saving snapshots.")
        .also(&["bgsave_cpulist"])
        .at_start()
        .accepted(NO_PINNING),
    &Opt::choice(
        "oom-score-adj",
        "no",
        &["no", "yes", "relative", "absolute"],
        "Adjust the scores by which the kernel chooses a process to kill when memory is short.",
    )
    .accepted(NO_OOM_SCORE),
    &Opt::new(
        "oom-score-adj-values",
        Kind::Words(&words::OOM_SCORES),
        "0 200 800",
        "The scores of a primary, a replica and a background process.",
    )
    .accepted(NO_OOM_SCORE),
    &Opt::flag("crash-log-enabled", "yes", "Write a crash report to the log.").accepted(OTHER_DESIGN),
    &Opt::flag("crash-memcheck-enabled", "yes", "Test the memory after a crash.").accepted(OTHER_DESIGN),
    &Opt::text("ignore-warnings", "", "The warnings to suppress at the start.")
        .accepted("Saker writes no such warnings"),
];

/// `daemonize`: true if the server runs in the background.
pub static DAEMONIZE: Handle<bool> =
    Opt::flag("daemonize", "no", "Run in the background, as a daemon.").at_start().typed();

/// The file with the process id. If empty, only a background server writes one, to
/// `/var/run/saker.pid`.
pub static PIDFILE: Handle<Path> =
    Opt::file("pidfile", "", "The file that contains the process ID while the server runs; empty for none.")
        .at_start()
        .typed();

/// The lowest level of the lines in the server's log.
pub static LOGLEVEL: Handle<LevelFilter> = Opt::choice(
    "loglevel",
    "notice",
    LevelFilter::WORDS,
    "The lowest level of messages that are logged. `debug` logs the most, `nothing` logs none.",
)
.on_change(OnChange::Prepare(Prepare::LogLevel))
.typed();

/// The file of the server's log; empty for standard output.
pub static LOGFILE: Handle<Path> =
    Opt::file("logfile", "", "The log file, relative to `dir`; empty for standard output.")
        .at_start()
        .typed();

/// The format of the lines in the server's log.
pub static LOG_FORMAT: Handle<Format> = Opt::choice(
    "log-format",
    "legacy",
    Format::WORDS,
    "The format of log lines: `legacy` as in Redis, `logfmt` (`name=value` pairs), or `json` (an \
         object per line).",
)
.on_change(OnChange::Prepare(Prepare::LogForm))
.typed();

/// The format of times in the server's log.
pub static LOG_TIMESTAMP_FORMAT: Handle<TimeFormat> = Opt::choice(
    "log-timestamp-format",
    "legacy",
    TimeFormat::WORDS,
    "The format of timestamps in the log, in UTC: `legacy` as in Redis, `iso8601`, or \
         `milliseconds` since 1970.",
)
.on_change(OnChange::Prepare(Prepare::LogForm))
.typed();

/// The supervisor that the server notifies of its state.
pub static SUPERVISED: Handle<Supervision> = Opt::choice(
    "supervised",
    "no",
    Supervision::WORDS,
    "The service manager that the server notifies. `systemd` is notified when the server is \
         ready, reloads or stops. `auto` detects the service manager that started the server.",
)
.at_start()
.typed();

const NO_SYSLOG: &str = "Saker writes its log to a file or to standard output";
const NO_TITLE: &str = "Saker does not change the process title";
const NO_PINNING: &str = "Saker does not bind threads to cores";
const NO_OOM_SCORE: &str = "Saker has one process and does not change its score";

/// The words that state how SIGINT ends the server; see [`words::SHUTDOWN`].
pub static SHUTDOWN_ON_SIGINT: Handle<[Vec<u8>]> = Opt::new(
    "shutdown-on-sigint",
    SHUTDOWN,
    "default",
    "The options of SHUTDOWN that SIGINT uses: `default`, or a combination of `save`, `nosave`, \
         `now`, `force` and `failover`. With `failover`, a primary first makes a replica the primary.",
)
.typed();

/// The words that state how SIGTERM ends the server; see [`words::SHUTDOWN`].
pub static SHUTDOWN_ON_SIGTERM: Handle<[Vec<u8>]> = Opt::new(
    "shutdown-on-sigterm",
    SHUTDOWN,
    "default",
    "The options of SHUTDOWN that SIGTERM uses: `default`, or a combination of `save`, `nosave`, \
         `now`, `force` and `failover`. With `failover`, a primary first makes a replica the primary.",
)
.typed();

/// `shutdown-timeout`: the seconds for which a shutdown waits for replicas; 0 for no wait.
pub static SHUTDOWN_TIMEOUT: Handle<u64> = Opt::integer(
    "shutdown-timeout",
    "10",
    INT,
    "The maximum time, in seconds, to wait for replicas at shutdown.",
)
.typed();
