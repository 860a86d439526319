//! The state that a released connection carries to the loop that adopts it.
//!
//! ```text
//!   loop A ── release ─► socket + Carried ─► adopt ── loop B
//!              input    received and not consumed, decrypted
//!              output   queued and not sent: sealed records, plaintext, the queue, held parts
//!              session  keys, sequence numbers, a part of a record, records to send
//! ```
//! Nothing is copied except input that is still in the memory of the turn. Bytes in the socket
//! itself stay there.

use std::fmt;
use std::time::Instant;

use stdx::ByteQueue;

use crate::ending::CloseReason;
use crate::held::Held;
use crate::tls::Session;

/// The state of a connection between two loops; see the module.
pub(crate) struct Carried {
    pub(crate) input: CarriedInput,
    pub(crate) output: CarriedOutput,
    /// The TLS state; `Some` for an encrypted connection.
    pub(crate) session: Option<Box<Session>>,
    /// The deadline of its handshake, if that is not complete.
    pub(crate) handshake_deadline: Option<Instant>,
    /// True if `close_after_flush` was called.
    pub(crate) closing: bool,
    /// The reason of the end, if the connection has ended and that is not reported yet.
    pub(crate) ending: Option<CloseReason>,
}

/// Input that was received and not consumed.
#[derive(Default)]
pub(crate) struct CarriedInput {
    /// The bytes, after `consumed` bytes to be skipped.
    pub(crate) bytes: Vec<u8>,
    pub(crate) consumed: usize,
    /// The number of bytes consumed since the connection was first adopted.
    pub(crate) position: u64,
}

/// Output that was queued and not sent: first `unsent`, then `sealing`, `queue` and `held`.
#[derive(Default)]
pub(crate) struct CarriedOutput {
    /// The bytes that a flush could not send; sealed ones if the connection is encrypted.
    pub(crate) unsent: ByteQueue,
    /// The plaintext of an encrypted connection that is being sealed.
    pub(crate) sealing: Option<Box<ByteQueue>>,
    pub(crate) queue: ByteQueue,
    pub(crate) held: Option<Box<Held>>,
}

impl CarriedInput {
    /// Returns the unconsumed bytes.
    pub(crate) fn unread(&self) -> &[u8] {
        &self.bytes[self.consumed..]
    }
}

impl CarriedOutput {
    /// Returns the number of unsent bytes.
    pub(crate) fn len_bytes(&self) -> usize {
        let sealing = self.sealing.as_ref().map_or(0, |sealing| sealing.len_bytes());
        let held = self.held.as_ref().map_or(0, |held| held.len_bytes);
        self.unsent.len_bytes() + sealing + self.queue.len_bytes() + held
    }
}

impl fmt::Debug for Carried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Carried")
            .field("unread_len_bytes", &self.input.unread().len())
            .field("unsent_len_bytes", &self.output.len_bytes())
            .field("is_encrypted", &self.session.is_some())
            .field("closing", &self.closing)
            .field("ending", &self.ending)
            .finish_non_exhaustive()
    }
}
