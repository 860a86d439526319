//! Ctrl-C: the first one ends the copy in an orderly way. A copy that follows changes compares the
//! keys then. The second one ends this comparison, and a third one ends the process at once.
//! SIGTERM and SIGHUP count as Ctrl-C.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// The exit status after an interruption: 128 + SIGINT, as shells report it.
pub const INTERRUPTED: u8 = 130;

/// The number of signals (such as Ctrl-C) that asked saker-copy to end.
#[derive(Clone, Default)]
pub struct Interrupt(Arc<AtomicU32>);

impl Interrupt {
    /// Starts a thread that counts the signals SIGINT, SIGTERM and SIGHUP.
    pub fn by_signals() -> io::Result<Self> {
        let interrupt = Self::default();
        let heard = interrupt.clone();
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            for _ in signals.forever() {
                // Relaxed: no other data depends on this number.
                if heard.0.fetch_add(1, Relaxed) >= 2 {
                    std::process::exit(i32::from(INTERRUPTED));
                }
            }
        })?;
        Ok(interrupt)
    }

    /// Returns the number of signals received so far.
    pub fn count(&self) -> u32 {
        self.0.load(Relaxed)
    }
}
