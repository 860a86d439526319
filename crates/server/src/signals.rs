//! Signal handling. SIGTERM and SIGINT shut the server down, SIGHUP reopens the log file. SIGXFSZ
//! is ignored: by default it ends a process whose file has reached the maximum file size. SIGALRM
//! and SIGUSR2 are only logged, because they do not end Redis either: Redis logs a stack trace.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use server::config::table::process::{SHUTDOWN_ON_SIGINT, SHUTDOWN_ON_SIGTERM};
use server::logging;
use server::persistence;
use server::persistence::shutdown::run_request;
use server::primary_link::failover;
use server::shared::Shared;
use server::shutdown::ShutdownOptions;
use server::supervisor::Supervisor;
use signal_hook::consts::{SIGALRM, SIGHUP, SIGINT, SIGTERM, SIGUSR2, SIGXFSZ};
use signal_hook::iterator::Signals;

/// Interval at which a shutdown that DEBUG PAUSE-CRON delays checks if the delay has ended.
const PAUSED_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Installs handlers for the signals. Without a handler, each signal would end the process.
pub fn take_over() -> io::Result<Signals> {
    Signals::new([SIGTERM, SIGINT, SIGHUP, SIGXFSZ, SIGALRM, SIGUSR2])
}

/// Starts a thread that handles the signals. SIGTERM and SIGINT shut the server down, unless
/// SHUTDOWN ABORT cancels the shutdown or the data cannot be saved. A second SIGINT ends the
/// process at once, for users who do not want to wait.
pub fn handle_signals(mut signals: Signals, shared: Arc<Shared>, supervisor: Supervisor) {
    std::thread::spawn(move || {
        for signal in signals.forever() {
            match signal {
                SIGHUP => reload(&supervisor, &shared),
                // A file has reached its maximum size. Its writer gets an error, so the signal
                // needs no action.
                SIGXFSZ => {}
                SIGALRM | SIGUSR2 => {
                    tracing::info!("Received signal {signal}, which has no effect.")
                }
                SIGINT if shared.shutdown_request.is_pending() => {
                    tracing::warn!("You insist... exiting now.");
                    persistence::remove_temporary(&shared);
                    std::process::exit(1);
                }
                _ => {
                    let (name, wish) = match signal {
                        SIGINT => ("SIGINT", &SHUTDOWN_ON_SIGINT),
                        _ => ("SIGTERM", &SHUTDOWN_ON_SIGTERM),
                    };
                    tracing::info!("Received {name} scheduling shutdown...");
                    if let Some(request) = shared.shutdown_request.ask() {
                        let wish = ShutdownOptions::of(wish.of(&shared.config()));
                        let shared = Arc::clone(&shared);
                        // The shutdown has its own thread, so that other signals are handled
                        // meanwhile.
                        std::thread::spawn(move || end(&shared, request, wish));
                    }
                }
            }
        }
    });
}

/// Runs the shutdown of request number `request`, as the options `wish` state, unless it is aborted
/// first.
fn end(shared: &Arc<Shared>, request: u64, wish: ShutdownOptions) {
    let requests = &shared.shutdown_request;
    // DEBUG PAUSE-CRON delays the shutdown, as in Redis, where the cron handles signals.
    while shared.switched_off.cron.load(Relaxed) && requests.is_wanted(request) {
        std::thread::sleep(PAUSED_POLL_INTERVAL);
    }
    if wish.fails_over {
        failover::before_end(shared, || requests.is_wanted(request));
    }
    run_request(shared, request, wish);
}

/// Reopens the log file and the audit log, and notifies the supervisor. Without a log file, logs
/// that there is none, because a closing terminal sends SIGHUP too.
fn reload(supervisor: &Supervisor, shared: &Shared) {
    supervisor.reloading();
    match logging::reopen() {
        None => tracing::info!("Received SIGHUP: there is no log file to reopen."),
        Some(Ok(())) => tracing::info!("Received SIGHUP: log file reopened."),
        Some(Err(error)) => tracing::warn!("Received SIGHUP: the log file cannot be opened: {error}"),
    }
    shared.audit.reopen();
    supervisor.ready();
}
