//! `saker-server`: reads the configuration, starts the server and runs it until a signal or
//! SHUTDOWN.
#![forbid(unsafe_code)]

use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use server::config::choices::ReadableSecrets;
use server::config::option::Effect;
use server::config::{ConfigStore, Loaded, load, table};
use server::process::HugePages;
use server::supervisor::Supervisor;
use server::{Builder, Server, logging, process};

use crate::files::Files;

mod check_config;
mod daemon;
mod files;
mod healthcheck;
mod signals;

fn main() -> ExitCode {
    // Huge pages are forbidden at first, because a server with little data should use little
    // memory. The housekeeper allows them when there is enough data. This call comes first, because
    // otherwise the allocator would get huge pages before it.
    process::set_huge_pages(HugePages::Forbidden);
    let mut args: Vec<Vec<u8>> = std::env::args_os().skip(1).map(OsStringExt::into_vec).collect();
    let check = args.first().and_then(|arg| healthcheck::Asked::of_flag(arg));
    if check.is_some() {
        args.remove(0);
    }
    let checks = args.iter().position(|arg| arg == CHECK_CONFIG).map(|at| args.remove(at)).is_some();
    let restore_until_s = match take_restore_until(&mut args) {
        Ok(until_s) => until_s,
        Err(problem) => {
            print_error(&format!("saker-server: {problem}"));
            return ExitCode::FAILURE;
        }
    };
    // Standard input is read here and not in `load`, because the foreground process must pass it on
    // to the background process.
    let mut input = Vec::new();
    if args.iter().any(|arg| arg == b"-")
        && let Err(error) = io::stdin().read_to_end(&mut input)
    {
        print_error(&format!("Fatal error, can't read config from stdin: {error}"));
        return ExitCode::FAILURE;
    }
    match load::load(&args, &mut input.as_slice(), server::commands::is_command) {
        Ok(Loaded::Version) => print(&version()),
        Ok(Loaded::Help) => print(&help()),
        Ok(Loaded::Run(store)) if checks => check_config(&store),
        Ok(Loaded::Run(store)) if let Some(asked) = check => healthcheck::run(&store, asked),
        Ok(Loaded::Run(store)) => run(*store, &input, restore_until_s).unwrap_or_else(|problem| {
            report(&problem);
            ExitCode::FAILURE
        }),
        Err(error) => {
            print_error(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

/// The flag that checks the configuration.
const CHECK_CONFIG: &[u8] = b"--check-config";

/// The flag of the program that restores the data to a time. It is not a configuration option,
/// because a user does a restore once, by hand.
const RESTORE_UNTIL: &[u8] = b"--restore-until";

/// Removes `--restore-until TIME` from the arguments and returns the time in Unix seconds. The
/// time may be several arguments.
///
/// # Errors
/// The flag is repeated or the time is invalid. The text shows the valid formats.
fn take_restore_until(args: &mut Vec<Vec<u8>>) -> Result<Option<i64>, String> {
    let Some(at) = args.iter().position(|arg| arg == RESTORE_UNTIL) else { return Ok(None) };
    let words = args[at + 1..].iter().take_while(|word| !word.starts_with(b"-")).count();
    let taken: Vec<Vec<u8>> = args.drain(at..=at + words).collect();
    if args.iter().any(|arg| arg == RESTORE_UNTIL) {
        return Err("--restore-until is given twice".to_owned());
    }
    let text = String::from_utf8_lossy(&taken[1..].join(&b' ')).into_owned();
    stdx::utc::parse_time(&text).map(Some).ok_or_else(|| {
        format!(
            "--restore-until cannot use '{text}': give a time in UTC such as '2026-11-23 14:05:00', or \
             whole seconds since 1970 such as 1763906700"
        )
    })
}

/// Prints whether a server could start with these options, as far as this can be checked without a
/// start. Returns the exit code. Errors in lines of a file were reported before.
fn check_config(store: &ConfigStore) -> ExitCode {
    let problems = check_config::problems(store);
    if !problems.is_empty() {
        problems.iter().for_each(|problem| print_error(&format!("saker-server: {problem}")));
        return ExitCode::FAILURE;
    }
    let mut lines = vec!["The configuration is good.".to_owned()];
    if table::security::SECRETS_IN_READABLE_FILES.of(store) == ReadableSecrets::Warn {
        lines.extend(store.readable_secrets().iter().map(|secret| format!("Warning: {secret}")));
    }
    for (_, option) in table::all().filter(|&(id, _)| store.value(id) != store.default_of(id)) {
        if let Some(why) = option.idle_reason() {
            lines.push(format!("Option '{}' has no effect: {why}", option.name));
        }
    }
    print(&lines.join("\n"))
}

/// Prints a line to standard output. Returns success; if standard output is closed, returns failure
/// and prints no message.
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
       saker-server [/path/to/saker.conf] [options] --restore-until TIME (go back to a time)
       saker-server --check-config [/path/to/saker.conf] [options] (say what is wrong, start nothing)
       saker-server --healthcheck [/path/to/saker.conf] [options] (ask a running server for PONG)
       saker-server --healthcheck=ready [/path/to/saker.conf] [options] (is it in sync, too?)

Options are those of the configuration file, with two dashes: --port 7000.
'man saker.conf' and docs/options.md list them all, and so does CONFIG GET * of a running server.

Examples:
       saker-server
       saker-server /etc/saker/6379.conf --loglevel verbose
       saker-server --port 7777 --save \"\" --bind 127.0.0.1 ::1
       echo 'maxmemory 128mb' | saker-server -"
        .to_owned()
}

/// Runs a server with these options until it is stopped, and returns the exit code. `input`
/// contains the bytes read from standard input. An error is a text for the user.
fn run(store: ConfigStore, input: &[u8], restore_until_s: Option<i64>) -> Result<ExitCode, String> {
    let supervisor = Supervisor::wanted(table::process::SUPERVISED.of(&store));
    // A supervisor must be able to watch the server, so it stays in the foreground.
    let in_background =
        table::process::DAEMONIZE.of(&store) && !matches!(&supervisor, Ok(found) if found.is_there());
    if in_background && let Some(file) = store.unrepeatable_file() {
        return Err(format!(
            "cannot daemonize: the process in the background must read {} again, which is impossible. Name \
             a regular file, or pipe the configuration to 'saker-server -'.",
            file.display()
        ));
    }
    if in_background
        && let Some(code) =
            daemon::leave_foreground(input).map_err(|error| format!("cannot daemonize: {error}"))?
    {
        return Ok(code);
    }
    start_log(&store)?;
    look_at_readable_secrets(&store)?;
    let supervisor = supervisor.unwrap_or_else(|problem| {
        tracing::warn!("{problem}");
        Supervisor::None
    });
    tracing::info!("Saker version={}, just started", env!("CARGO_PKG_VERSION"));
    let signals = signals::take_over().map_err(|error| format!("cannot handle signals: {error}"))?;
    supervisor.loading();
    name_idle_options(&store);
    let mut files = if in_background { Files::in_background(&store) } else { Files::of(&store) };
    process::load_code();
    let builder = Builder::from_config(store).supervised_by(supervisor.name()).restore_until(restore_until_s);
    let server = builder.start().map_err(|error| error.to_string())?;
    files.begin(server.socket_file().cloned());
    if let Err(error) = daemon::release_foreground() {
        files.remove();
        return Err(format!("cannot daemonize: {error}"));
    }
    let shared = Arc::clone(server.shared());
    signals::handle_signals(signals, Arc::clone(&shared), supervisor.clone());
    shared.persistence.wait_until_loaded(&shared.engine);
    if !shared.persistence.load_failed.load(Relaxed) {
        report_ready(&server);
        supervisor.ready();
    }
    server.wait();
    supervisor.stopping();
    files.remove();
    if shared.persistence.load_failed.load(Relaxed) || shared.persistence.is_unwritable.load(Relaxed) {
        return Ok(ExitCode::FAILURE);
    }
    tracing::info!("Saker is now ready to exit, bye bye...");
    Ok(ExitCode::SUCCESS)
}

/// Makes the folder `dir` the working folder of the process, and starts the log. A relative
/// `logfile` refers to `dir`, as in Redis.
fn start_log(store: &ConfigStore) -> Result<(), String> {
    let folder = table::persistence::DIR.of(store);
    std::env::set_current_dir(folder)
        .map_err(|error| format!("Can't chdir to '{}' (option 'dir'): {error}", folder.display()))?;
    let path = table::process::LOGFILE.of(store);
    let logfile = (!path.as_os_str().is_empty()).then_some(path);
    logging::set_forms(table::process::LOG_FORMAT.of(store), table::process::LOG_TIMESTAMP_FORMAT.of(store));
    logging::start(table::process::LOGLEVEL.of(store), logfile)
        .map_err(|error| format!("Can't open the log file '{}' (option 'logfile'): {error}", path.display()))
}

/// Checks for passwords in files that every user may read. As `secrets-in-readable-files` states,
/// logs a warning about each, returns an error, or ignores them.
fn look_at_readable_secrets(store: &ConfigStore) -> Result<(), String> {
    let mut secrets = store.readable_secrets().iter();
    match table::security::SECRETS_IN_READABLE_FILES.of(store) {
        ReadableSecrets::Ignore => Ok(()),
        ReadableSecrets::Warn => {
            secrets.for_each(|secret| tracing::warn!("{secret}"));
            Ok(())
        }
        ReadableSecrets::Refuse => match secrets.next() {
            Some(secret) => Err(format!("{secret}, or set 'secrets-in-readable-files' to another value")),
            None => Ok(()),
        },
    }
}

/// Reports the reason why the server ends. Writes it to the log, and also to standard error unless
/// the log is on standard output.
fn report(problem: &str) {
    tracing::error!("{problem}");
    if daemon::is_in_background() || !logging::shows_errors_on_stdout() {
        print_error(&format!("saker-server: {problem}"));
    }
}

/// Writes a line to standard error. Ignores an error, because standard error may have no reader.
fn print_error(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Logs a warning about each option that is set but has no effect.
fn name_idle_options(store: &ConfigStore) {
    for (id, option) in table::all() {
        if store.value(id) == store.default_of(id) {
            continue;
        }
        match option.acts {
            Effect::Now => {}
            Effect::Accepted(why) => {
                tracing::warn!("Option '{}' is set but has no effect: {why}", option.name)
            }
        }
    }
}

fn report_ready(server: &Server) {
    let threads = server.shared().engine.threads.len();
    let backend = server.backend().name();
    let port = server.port();
    tracing::info!("Running mode=standalone, port={port}, io-threads={threads}, io-backend={backend}.");
    if port != 0 {
        tracing::info!("Ready to accept connections tcp");
    }
    if server.socket_file().is_some() {
        tracing::info!("Ready to accept connections unix");
    }
}
