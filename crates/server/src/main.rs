//! `saker-server`: reads the configuration, starts the server and runs it until a signal or SHUTDOWN.
#![forbid(unsafe_code)]

use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use server::config::option::Acts;
use server::config::{ConfigStore, Loaded, apply, load, table};
use server::shared::Shared;
use server::{Builder, Server, logging, process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

mod daemon;

fn main() -> ExitCode {
    // Small servers stay small: the housekeeper allows huge pages once there is data to fill them. First of
    // all, because what the allocator touches from here on would be of pages of 2 MiB.
    process::allow_huge_pages(false);
    let args: Vec<Vec<u8>> = std::env::args_os().skip(1).map(OsStringExt::into_vec).collect();
    // Read here and not by `load`, because a process that goes to the background hands it on.
    let mut input = Vec::new();
    if args.iter().any(|arg| arg == b"-")
        && let Err(error) = io::stdin().read_to_end(&mut input)
    {
        eprintln!("Fatal error, can't read config from stdin: {error}");
        return ExitCode::FAILURE;
    }
    match load::load(&args, &mut input.as_slice()) {
        Ok(Loaded::Version) => print(&version()),
        Ok(Loaded::Help) => print(&help()),
        Ok(Loaded::Run(store)) => match run(*store, &input) {
            Ok(()) => ExitCode::SUCCESS,
            Err(problem) => {
                tracing::error!("{problem}");
                eprintln!("saker-server: {problem}");
                ExitCode::FAILURE
            }
        },
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Prints what was asked for. A reader that is gone does not want it.
fn print(text: &str) -> ExitCode {
    match writeln!(io::stdout(), "{text}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn version() -> String {
    let bits = usize::BITS;
    format!("Saker server v={} malloc=mimalloc bits={bits}", env!("CARGO_PKG_VERSION"))
}

fn help() -> String {
    "Usage: saker-server [/path/to/saker.conf] [options] [-]
       saker-server - (read the configuration from standard input)
       saker-server -v or --version
       saker-server -h or --help

Options are those of the configuration file, with two dashes: --port 7000.

Examples:
       saker-server
       saker-server /etc/saker/6379.conf --loglevel verbose
       saker-server --port 7777 --save \"\" --bind 127.0.0.1 ::1
       echo 'maxmemory 128mb' | saker-server -"
        .to_owned()
}

/// Runs a server with these options until it is told to stop; `input` is what standard input held. An
/// error is for people.
fn run(store: ConfigStore, input: &[u8]) -> Result<(), String> {
    let in_background = store.flag("daemonize");
    if in_background
        && daemon::leave_foreground(input).map_err(|error| format!("cannot daemonize: {error}"))?
    {
        return Ok(());
    }
    let logfile = Some(store.text("logfile")).filter(|path| !path.is_empty()).map(apply::path);
    logging::set_forms(store.choice("log-format"), store.choice("log-timestamp-format"));
    logging::start(store.choice("loglevel"), logfile.as_deref())
        .map_err(|error| format!("Can't open the log file: {error}"))?;
    let folder = apply::path(store.text("dir"));
    std::env::set_current_dir(&folder)
        .map_err(|error| format!("Can't chdir to '{}': {error}", folder.display()))?;
    tracing::info!("Saker version={}, just started", env!("CARGO_PKG_VERSION"));
    name_idle_options(&store);
    let files = Files::of(&store, in_background);
    let unix_socket = files.unix_socket.is_some();
    // Before the first client, so that whoever sees the file can connect.
    let signals =
        Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(|error| format!("cannot handle signals: {error}"))?;
    process::load_code();
    let server = Builder::from_config(store).start().map_err(|error| error.to_string())?;
    files.write_pid();
    say_ready(&server, unix_socket);
    stop_on_signals(signals, Arc::clone(server.shared()));
    server.wait();
    files.remove();
    tracing::info!("Saker is now ready to exit, bye bye...");
    Ok(())
}

/// Warns of options that somebody set and that do nothing.
fn name_idle_options(store: &ConfigStore) {
    for (id, option) in table::all() {
        if let Acts::Accepted(why) = option.acts
            && store.value(id) != store.default_of(id)
        {
            tracing::warn!("Option '{}' is set and does nothing: {why}", option.name);
        }
    }
}

fn say_ready(server: &Server, unix_socket: bool) {
    let threads = server.shared().threads.len();
    let backend = server.backend().name();
    let port = server.port();
    tracing::info!("Running mode=standalone, port={port}, io-threads={threads}, io-backend={backend}.");
    if port != 0 {
        tracing::info!("Ready to accept connections tcp");
    }
    if unix_socket {
        tracing::info!("Ready to accept connections unix");
    }
}

/// Stops the server at the first signal; a second SIGINT, from somebody who does not want to wait, ends
/// the process at once.
fn stop_on_signals(mut signals: Signals, shared: Arc<Shared>) {
    std::thread::spawn(move || {
        let mut stopping = false;
        // A terminal that goes away (SIGHUP) does not take the server with it.
        for signal in signals.forever().filter(|&signal| signal != SIGHUP) {
            let name = if signal == SIGINT { "SIGINT" } else { "SIGTERM" };
            if stopping && signal == SIGINT {
                tracing::warn!("You insist... exiting now.");
                std::process::exit(1);
            }
            stopping = true;
            tracing::info!("Received {name} scheduling shutdown...");
            shared.stop();
        }
    });
}

/// Files that are there while the server runs.
struct Files {
    pid: Option<PathBuf>,
    unix_socket: Option<PathBuf>,
}

impl Files {
    /// The paths in the options, made absolute: the working folder may change later.
    fn of(store: &ConfigStore, in_background: bool) -> Self {
        const PIDFILE: &str = "/var/run/saker.pid";
        let named = |name: &str| {
            let text = store.text(name);
            let path = (!text.is_empty()).then(|| apply::path(text))?;
            Some(std::path::absolute(&path).unwrap_or(path))
        };
        let pid = named("pidfile").or_else(|| in_background.then(|| Path::new(PIDFILE).to_owned()));
        Self { pid, unix_socket: named("unixsocket") }
    }

    /// Writes the process id. A server without its pidfile still serves.
    fn write_pid(&self) {
        let Some(path) = &self.pid else { return };
        if let Err(error) = std::fs::write(path, format!("{}\n", std::process::id())) {
            tracing::warn!("Failed to write PID file {}: {error}", path.display());
        }
    }

    fn remove(&self) {
        if let Some(path) = &self.pid {
            tracing::info!("Removing the pid file.");
            // It may never have been written.
            let _ = std::fs::remove_file(path);
        }
        if let Some(path) = &self.unix_socket {
            tracing::info!("Removing the unix socket file.");
            // Somebody may have removed it already.
            let _ = std::fs::remove_file(path);
        }
    }
}
