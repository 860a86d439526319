//! Ctrl-C: the first one ends the work in an orderly way and keeps the results measured up to then;
//! the second one ends the process at once.
//!
//! A separate thread waits for the signals. Its reaction to a second signal is therefore not
//! restricted to async-signal-safe functions. SIGTERM and SIGHUP (a closed terminal) are handled
//! like Ctrl-C.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// The exit status after Ctrl-C: 128 + SIGINT, as shells report it.
pub const INTERRUPTED: u8 = 130;

/// A flag that is set when a signal asks the program to end.
#[derive(Clone, Default)]
pub struct Interrupt {
    flag: Arc<AtomicBool>,
    leftovers: Arc<Mutex<CleanupActions>>,
}

/// The cleanup functions to run when a second signal ends the process, in the order of
/// registration.
#[derive(Default)]
struct CleanupActions {
    next: u64,
    remove: BTreeMap<u64, Box<dyn FnOnce() + Send>>,
}

impl Interrupt {
    /// Starts a thread that listens for SIGINT, SIGTERM and SIGHUP. A second signal runs the
    /// registered cleanup functions and ends the process. Returns an error if the handlers or the
    /// thread cannot be installed.
    pub fn by_signals() -> io::Result<Self> {
        let interrupt = Self::default();
        let heard = interrupt.clone();
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            for _ in signals.forever() {
                // Relaxed: no other data depends on this flag.
                if heard.flag.swap(true, Relaxed) {
                    heard.run_cleanup();
                    std::process::exit(i32::from(INTERRUPTED));
                }
            }
        })?;
        Ok(interrupt)
    }

    /// Returns true after the first signal (Ctrl-C) has arrived.
    pub fn is_set(&self) -> bool {
        self.flag.load(Relaxed)
    }

    /// Returns the flag that the first signal sets, for code that polls it.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.flag)
    }

    /// Registers the cleanup function `remove`, which runs when a second signal ends the process.
    /// Dropping the returned value cancels the registration.
    #[must_use]
    pub fn on_exit(&self, remove: impl FnOnce() + Send + 'static) -> CleanupAction {
        let mut leftovers = self.leftovers.lock().unwrap_or_else(PoisonError::into_inner);
        let number = leftovers.next;
        leftovers.next += 1;
        leftovers.remove.insert(number, Box::new(remove));
        CleanupAction { interrupt: self.clone(), number }
    }

    /// Runs the registered cleanup functions, newest first: an engine is removed before the network
    /// that it runs in.
    fn run_cleanup(&self) {
        let mut leftovers = self.leftovers.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((_, remove)) = leftovers.remove.pop_last() {
            remove();
        }
    }
}

/// A registered cleanup function of [`Interrupt::on_exit`]. Dropping this value cancels the
/// registration.
pub struct CleanupAction {
    interrupt: Interrupt,
    number: u64,
}

impl Drop for CleanupAction {
    fn drop(&mut self) {
        let mut leftovers = self.interrupt.leftovers.lock().unwrap_or_else(PoisonError::into_inner);
        leftovers.remove.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftovers_are_removed_newest_first_and_those_that_ended_are_not() {
        let interrupt = Interrupt::default();
        let removed = Arc::new(Mutex::new(Vec::new()));
        let leftover = |name: &'static str| {
            let removed = Arc::clone(&removed);
            interrupt.on_exit(move || removed.lock().unwrap().push(name))
        };
        let (_network, ended, _engine) = (leftover("network"), leftover("ended"), leftover("engine"));
        drop(ended);
        interrupt.run_cleanup();
        assert_eq!(*removed.lock().unwrap(), ["engine", "network"]);
    }
}
