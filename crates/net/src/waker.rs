//! Wake-up of a sleeping event loop by another thread, with one write to a descriptor.

use std::io;
use std::sync::Arc;

/// A handle that wakes the loop that created it: the current or next `poll` returns and reports
/// `Woken`. Cheap to clone. Each wake-up is a system call; a caller that knows that the loop is
/// awake can omit it.
#[derive(Clone, Debug)]
pub struct Waker(pub(crate) WakerKind);

#[derive(Clone, Debug)]
pub(crate) enum WakerKind {
    Mio(Arc<mio::Waker>),
    #[cfg(target_os = "linux")]
    EventFd(Arc<rustix::fd::OwnedFd>),
}

impl Waker {
    /// Wakes the loop with one system call. Any thread may call it, even after the loop has ended.
    pub fn wake(&self) -> io::Result<()> {
        match &self.0 {
            WakerKind::Mio(waker) => waker.wake(),
            #[cfg(target_os = "linux")]
            WakerKind::EventFd(fd) => match rustix::io::write(fd, &1u64.to_ne_bytes()) {
                // A full counter (2^64 - 2 pending wake-ups) also wakes the loop.
                Ok(_) | Err(rustix::io::Errno::AGAIN) => Ok(()),
                Err(error) => Err(error.into()),
            },
        }
    }
}
