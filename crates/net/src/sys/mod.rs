//! The only unsafe code of this crate: memory that the kernel reads and writes without Rust's
//! knowledge.
//!
//! - `turn_memory`: the memory of a turn's input, an arena (epoll) or the provided buffers of a
//!   ring.
//! - `span`: references to parts of that memory.
//! - `buffers`: the provided buffers.
//! - `ring`: submissions to io_uring and completions from it, as a safe interface.

#[cfg(target_os = "linux")]
pub(crate) mod buffers;
#[cfg(target_os = "linux")]
pub(crate) mod ring;
pub(crate) mod span;
pub(crate) mod turn_memory;

use rustix::net::SendFlags;

/// Returns the flags of every send: do not wait, and no SIGPIPE if the peer has closed the
/// connection.
pub(crate) fn send_flags() -> SendFlags {
    #[cfg(target_os = "linux")]
    return SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    #[cfg(not(target_os = "linux"))]
    return SendFlags::DONTWAIT;
}
