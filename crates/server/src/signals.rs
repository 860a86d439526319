//! What signals ask for: SIGTERM and SIGINT to end, SIGHUP to open the log file anew. SIGXFSZ, by
//! which the system ends a process whose file is as long as files may be, asks for nothing.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use server::config::table::process::{SHUTDOWN_ON_SIGINT, SHUTDOWN_ON_SIGTERM};
use server::logging;
use server::persistence;
use server::persistence::shutdown::last_work;
use server::shared::Shared;
use server::shutdown::ShutdownWish;
use server::supervisor::Supervisor;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;

/// How often an end that waits is looked at.
const PAUSED_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Takes the signals over from the system, whose answer to each of them is to end the process.
pub fn take_over() -> io::Result<Signals> {
    Signals::new([SIGTERM, SIGINT, SIGHUP, SIGXFSZ])
}

/// Ends the server at a signal to end, unless SHUTDOWN ABORT comes first or the data cannot be
/// saved; a second SIGINT, from somebody who does not want to wait, ends the process at once.
pub fn obey(mut signals: Signals, shared: Arc<Shared>, supervisor: Supervisor) {
    std::thread::spawn(move || {
        for signal in signals.forever() {
            match signal {
                SIGHUP => reload(&supervisor, &shared),
                // A file reached the length that files may have: who writes to it gets an error.
                SIGXFSZ => {}
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
                    if shared.shutdown_request.ask(ShutdownWish::of(wish.of(&shared.config()))) {
                        let shared = Arc::clone(&shared);
                        // On a thread of its own, so that others are still heard meanwhile.
                        std::thread::spawn(move || end(&shared));
                    }
                }
            }
        }
    });
}

/// Ends the server as a signal asked for, unless that is aborted first.
fn end(shared: &Shared) {
    // What is done from time to time is what obeys signals.
    while shared.switched_off.cron.load(Relaxed) && shared.shutdown_request.is_pending() {
        std::thread::sleep(PAUSED_POLL_INTERVAL);
    }
    let Some(wish) = shared.shutdown_request.begin() else { return };
    if last_work(shared, wish).is_some_and(|work| work.is_nothing() || work.run(shared, wish)) {
        shared.stop();
    } else {
        shared.shutdown_request.give_up();
    }
}

/// Opens the log file and the audit log anew. A terminal that goes away sends SIGHUP, too: without
/// a log file nothing happens.
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
