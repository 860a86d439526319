//! The only place with unsafe code: what the kernel writes to and reads from behind Rust's back.
//!
//! - `turn_memory`: where a turn's input lies, as an arena (epoll) or as the provided buffers of a
//!   ring.
//! - `span`: what names a piece of it.
//! - `buffers`: the provided buffers.
//! - `ring`: submissions to io_uring and completions from it, as a safe interface.

#[cfg(target_os = "linux")]
pub(crate) mod buffers;
#[cfg(target_os = "linux")]
pub(crate) mod ring;
pub(crate) mod span;
pub(crate) mod turn_memory;

use rustix::net::SendFlags;

/// Flags of every send: do not wait, and no SIGPIPE when the peer is gone.
pub(crate) fn send_flags() -> SendFlags {
    #[cfg(target_os = "linux")]
    return SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    #[cfg(not(target_os = "linux"))]
    return SendFlags::DONTWAIT;
}
