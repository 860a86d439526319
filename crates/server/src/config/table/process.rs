//! Options of the process and its log.

use std::path::Path;

use tracing_subscriber::filter::LevelFilter;

use super::OTHER_DESIGN;
use crate::config::handle::{Choice as _, Handle};
use crate::config::option::{INT, OnChange, Opt, Prepare};
use crate::config::value::Kind;
use crate::config::words;
use crate::logging::{Format, TimeFormat};
use crate::supervisor::Supervision;

/// The kind of the options for the shutdown that a signal causes.
const SHUTDOWN: Kind = Kind::Words(&words::SHUTDOWN);

/// The options of this theme.
pub static OPTIONS: &[&Opt] = &[
    &DAEMONIZE.opt,
    &PIDFILE.opt,
    &LOGLEVEL.opt,
    &LOGFILE.opt,
    &LOG_FORMAT.opt,
    &LOG_TIMESTAMP_FORMAT.opt,
    &Opt::flag("syslog-enabled", "no", "Log to the system's log.").at_start().accepted(NO_SYSLOG),
    &Opt::text("syslog-ident", "saker", "The name in the system's log.").at_start().accepted(NO_SYSLOG),
    &Opt::choice(
        "syslog-facility",
        "local0",
        &["user", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7"],
        "The facility in the system's log.",
    )
    .at_start()
    .accepted(NO_SYSLOG),
    &SUPERVISED.opt,
    &SHUTDOWN_ON_SIGINT.opt,
    &SHUTDOWN_ON_SIGTERM.opt,
    &Opt::integer("shutdown-timeout", "10", INT, "Seconds to wait for replicas at the end.")
        .accepted("there are no replicas to wait for"),
    &Opt::flag("set-proc-title", "yes", "Describe the server in its process title.")
        .at_start()
        .accepted(NO_TITLE),
    &Opt::new(
        "proc-title-template",
        Kind::Checked(words::title_template),
        "{title} {listen-addr} {server-mode}",
        "What the process title says.",
    )
    .accepted(NO_TITLE),
    &Opt::text("server-cpulist", "", "The cores for threads that serve clients.")
        .also(&["server_cpulist"])
        .at_start()
        .accepted(NO_PINNING),
    &Opt::text("bio-cpulist", "", "The cores for background threads.")
        .also(&["bio_cpulist"])
        .at_start()
        .accepted(NO_PINNING),
    &Opt::text("aof-rewrite-cpulist", "", "The cores for rewriting the append-only file.")
        .also(&["aof_rewrite_cpulist"])
        .at_start()
        .accepted(NO_PINNING),
    &Opt::text("bgsave-cpulist", "", "The cores for writing snapshots.")
        .also(&["bgsave_cpulist"])
        .at_start()
        .accepted(NO_PINNING),
    &Opt::choice(
        "oom-score-adj",
        "no",
        &["no", "yes", "relative", "absolute"],
        "Tell the kernel which process to end when memory is short.",
    )
    .accepted(NO_OOM_SCORE),
    &Opt::new(
        "oom-score-adj-values",
        Kind::Words(&words::OOM_SCORES),
        "0 200 800",
        "The scores of primary, replica and background process.",
    )
    .accepted(NO_OOM_SCORE),
    &Opt::flag("crash-log-enabled", "yes", "Describe a crash in the log.").accepted(OTHER_DESIGN),
    &Opt::flag("crash-memcheck-enabled", "yes", "Test memory after a crash.").accepted(OTHER_DESIGN),
    &Opt::text("ignore-warnings", "", "Warnings at the start that are not to be given.")
        .accepted("no such warning is given"),
];

/// `daemonize`: true if the server runs in the background.
pub static DAEMONIZE: Handle<bool> =
    Opt::flag("daemonize", "no", "Run in the background.").at_start().typed();

/// The file with the process id; empty for none.
pub static PIDFILE: Handle<Path> =
    Opt::file("pidfile", "", "A file to write the process id to; removed at the end.").at_start().typed();

/// The lowest level of lines that are logged.
pub static LOGLEVEL: Handle<LevelFilter> =
    Opt::choice("loglevel", "notice", LevelFilter::WORDS, "The least important lines of the log.")
        .on_change(OnChange::Prepare(Prepare::LogLevel))
        .typed();

/// The file of the log; empty for standard output.
pub static LOGFILE: Handle<Path> =
    Opt::file("logfile", "", "The file of the log, relative to `dir`; empty for standard output.")
        .at_start()
        .typed();

/// The format of the log's lines.
pub static LOG_FORMAT: Handle<Format> =
    Opt::choice("log-format", "legacy", Format::WORDS, "How lines of the log are written.")
        .on_change(OnChange::Prepare(Prepare::LogForm))
        .typed();

/// The format of times in the log.
pub static LOG_TIMESTAMP_FORMAT: Handle<TimeFormat> = Opt::choice(
    "log-timestamp-format",
    "legacy",
    TimeFormat::WORDS,
    "How times are written in the log, in UTC.",
)
.on_change(OnChange::Prepare(Prepare::LogForm))
.typed();

/// The supervisor that the server notifies of its state.
pub static SUPERVISED: Handle<Supervision> = Opt::choice(
    "supervised",
    "no",
    Supervision::WORDS,
    "Who waits for news of the server: `systemd` is notified when it is ready, reloads and stops.",
)
.at_start()
.typed();

const NO_SYSLOG: &str = "the log goes to a file or to standard output";
const NO_TITLE: &str = "the process keeps its title";
const NO_PINNING: &str = "threads are not tied to cores";
const NO_OOM_SCORE: &str = "the score is left as it is: one process does everything";

/// The words of SHUTDOWN that apply when SIGINT ends the server.
pub static SHUTDOWN_ON_SIGINT: Handle<[Vec<u8>]> =
    Opt::new("shutdown-on-sigint", SHUTDOWN, "default", "How SIGINT ends the server.").typed();

/// The words of SHUTDOWN that apply when SIGTERM ends the server.
pub static SHUTDOWN_ON_SIGTERM: Handle<[Vec<u8>]> =
    Opt::new("shutdown-on-sigterm", SHUTDOWN, "default", "How SIGTERM ends the server.").typed();
