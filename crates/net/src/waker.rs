//! Waking a sleeping event loop from another thread: one write to one descriptor.

use std::io;
use std::sync::Arc;

/// Wakes the loop it came from: its current or next `poll` returns and reports `Woken`. Cheap to
/// clone. It always writes; a caller that knows the loop to be awake saves the system call itself.
#[derive(Clone, Debug)]
pub struct Waker(pub(crate) WakerKind);

#[derive(Clone, Debug)]
pub(crate) enum WakerKind {
    Mio(Arc<mio::Waker>),
    #[cfg(target_os = "linux")]
    EventFd(Arc<rustix::fd::OwnedFd>),
}

impl Waker {
    /// Wakes the loop. One system call, from any thread, also after the loop is gone.
    pub fn wake(&self) -> io::Result<()> {
        match &self.0 {
            WakerKind::Mio(waker) => waker.wake(),
            #[cfg(target_os = "linux")]
            WakerKind::EventFd(fd) => match rustix::io::write(fd, &1u64.to_ne_bytes()) {
                // A full counter (2^64 - 2 wakes not seen) wakes as well as a larger one.
                Ok(_) | Err(rustix::io::Errno::AGAIN) => Ok(()),
                Err(error) => Err(error.into()),
            },
        }
    }
}
