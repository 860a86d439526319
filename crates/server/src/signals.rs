//! What signals ask for: SIGTERM and SIGINT to end, SIGHUP to open the log file anew.

use std::io;
use std::sync::Arc;

use server::config::table::process::{SHUTDOWN_ON_SIGINT, SHUTDOWN_ON_SIGTERM};
use server::logging;
use server::persistence::shutdown::{ShutdownWish, prepare_shutdown};
use server::shared::Shared;
use server::supervisor::Supervisor;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Takes the signals over from the system, whose answer to each of them is to end the process.
pub fn take_over() -> io::Result<Signals> {
    Signals::new([SIGTERM, SIGINT, SIGHUP])
}

/// Stops the server at the first signal to end; a second SIGINT, from somebody who does not want to
/// wait, ends the process at once.
pub fn obey(mut signals: Signals, shared: Arc<Shared>, supervisor: Supervisor) {
    std::thread::spawn(move || {
        let mut stopping = false;
        for signal in signals.forever() {
            match signal {
                SIGHUP => reload(&supervisor),
                SIGINT if stopping => {
                    tracing::warn!("You insist... exiting now.");
                    std::process::exit(1);
                }
                _ => {
                    let name = if signal == SIGINT { "SIGINT" } else { "SIGTERM" };
                    tracing::info!("Received {name} scheduling shutdown...");
                    let wish = if signal == SIGINT { &SHUTDOWN_ON_SIGINT } else { &SHUTDOWN_ON_SIGTERM };
                    let wish = ShutdownWish::of(wish.of(&shared.config()));
                    stopping = prepare_shutdown(&shared, wish, |save| {
                        shared.engine.gate.exclusive(|alone| save(alone));
                    });
                    if stopping {
                        shared.stop();
                    }
                }
            }
        }
    });
}

/// Opens the log file anew. A terminal that goes away sends SIGHUP, too: without a
/// log file nothing happens.
fn reload(supervisor: &Supervisor) {
    supervisor.reloading();
    match logging::reopen() {
        None => tracing::info!("Received SIGHUP: there is no log file to reopen."),
        Some(Ok(())) => tracing::info!("Received SIGHUP: log file reopened."),
        Some(Err(error)) => tracing::warn!("Received SIGHUP: the log file cannot be opened: {error}"),
    }
    supervisor.ready();
}
