//! Sends a byte queue with ordinary system calls: `send` for one contiguous piece, `sendmsg` for
//! several.

use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::net::SendAncillaryBuffer;
use stdx::ByteQueue;

use crate::sys::send_flags;

/// The maximum number of pieces of memory that one `sendmsg` sends.
const PIECES_PER_CALL_MAX: usize = 256;

/// The reason for which sending a queue has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The whole byte queue is sent.
    All,
    /// The socket accepts no more bytes until it is writable again.
    Blocked,
    /// The limit of bytes for this call is reached; the socket may accept more.
    Limited,
}

/// Sends from the front of `queue` until about `len_bytes_max` bytes are sent, without waiting.
pub(crate) fn send_queue(
    socket: impl AsFd,
    queue: &mut ByteQueue,
    len_bytes_max: usize,
) -> Result<Sent, Errno> {
    let mut sent_len_bytes = 0;
    while sent_len_bytes < len_bytes_max {
        let sent = match queue.as_single() {
            Some(bytes) => rustix::net::send(&socket, bytes, send_flags()),
            None => {
                let pieces = queue.io_slices(PIECES_PER_CALL_MAX);
                rustix::net::sendmsg(&socket, &pieces, &mut SendAncillaryBuffer::default(), send_flags())
            }
        };
        match sent {
            Ok(n) => {
                queue.advance(n);
                sent_len_bytes += n;
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(Sent::Blocked),
            Err(error) => return Err(error),
        }
        if queue.is_empty() {
            return Ok(Sent::All);
        }
    }
    Ok(Sent::Limited)
}
