//! Ctrl-C: the first one ends the work in order, with what was measured; the second one at once.
//!
//! A thread of its own waits for the signals, so what a second one does is not bound to what a
//! signal handler may. SIGTERM and SIGHUP, a closed terminal, are taken for Ctrl-C.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// The exit status after Ctrl-C, as shells have it.
pub const INTERRUPTED: u8 = 130;

/// Says when the work is to end.
#[derive(Clone, Default)]
pub struct Interrupt {
    flag: Arc<AtomicBool>,
    leftovers: Arc<Mutex<Leftovers>>,
}

/// What must not outlive the process, by the order in which it began.
#[derive(Default)]
struct Leftovers {
    next: u64,
    remove: BTreeMap<u64, Box<dyn FnOnce() + Send>>,
}

impl Interrupt {
    /// Listens for signals from now on. A second one removes what is left
    /// over and ends the process.
    pub fn by_signals() -> io::Result<Self> {
        let interrupt = Self::default();
        let heard = interrupt.clone();
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            for _ in signals.forever() {
                // Relaxed: a flag that nothing else hangs on.
                if heard.flag.swap(true, Relaxed) {
                    heard.remove_leftovers();
                    std::process::exit(i32::from(INTERRUPTED));
                }
            }
        })?;
        Ok(interrupt)
    }

    /// Whether it is time to end.
    pub fn is_set(&self) -> bool {
        self.flag.load(Relaxed)
    }

    /// The flag itself.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.flag)
    }

    /// Has `remove` run when the process ends at once, unless the result was dropped before.
    #[must_use]
    pub fn on_exit(&self, remove: impl FnOnce() + Send + 'static) -> Leftover {
        let mut leftovers = self.leftovers.lock().unwrap_or_else(PoisonError::into_inner);
        let number = leftovers.next;
        leftovers.next += 1;
        leftovers.remove.insert(number, Box::new(remove));
        Leftover { interrupt: self.clone(), number }
    }

    /// Newest first: an engine goes before the network that it runs in.
    fn remove_leftovers(&self) {
        let mut leftovers = self.leftovers.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((_, remove)) = leftovers.remove.pop_last() {
            remove();
        }
    }
}

/// Something that is removed when the process ends at once, until this is dropped.
pub struct Leftover {
    interrupt: Interrupt,
    number: u64,
}

impl Drop for Leftover {
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
        interrupt.remove_leftovers();
        assert_eq!(*removed.lock().unwrap(), ["engine", "network"]);
    }
}
