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

/// The input, output and TLS state that a connection carries from the loop that releases it to the
/// loop that adopts it.
pub(crate) struct Carried {
    pub(crate) input: CarriedInput,
    pub(crate) output: CarriedOutput,
    /// The TLS state of the connection; `None` without encryption.
    pub(crate) session: Option<Box<Session>>,
    /// The deadline of the TLS handshake; `None` if the handshake is complete or there is none.
    pub(crate) handshake_deadline: Option<Instant>,
    /// True if `close_after_flush` was called: the connection ends once its output is sent.
    pub(crate) closing: bool,
    /// The reason for which the connection has ended; `None` if it has not ended, or if the end was
    /// already reported.
    pub(crate) ending: Option<CloseReason>,
}

/// The input of a released connection that was received and not consumed.
#[derive(Default)]
pub(crate) struct CarriedInput {
    /// The received bytes. The first `consumed` of them were consumed by the former loop and are
    /// skipped.
    pub(crate) bytes: Vec<u8>,
    pub(crate) consumed: usize,
    /// The number of bytes consumed since the connection was opened, in all its loops.
    pub(crate) position: u64,
}

/// The output of a released connection that was queued and not sent. The order of sending is
/// `unsent`, `sealing`, `queue`, `held`.
#[derive(Default)]
pub(crate) struct CarriedOutput {
    /// The bytes that a flush has tried to send but the socket did not accept. Sealed (encrypted)
    /// bytes if the connection is encrypted.
    pub(crate) unsent: ByteQueue,
    /// The plaintext of an encrypted connection that is next to be sealed (encrypted); `None`
    /// without encryption.
    pub(crate) sealing: Option<Box<ByteQueue>>,
    pub(crate) queue: ByteQueue,
    pub(crate) held: Option<Box<Held>>,
}

impl CarriedInput {
    /// Returns the received bytes that the caller has not consumed.
    pub(crate) fn unread(&self) -> &[u8] {
        &self.bytes[self.consumed..]
    }
}

impl CarriedOutput {
    /// Returns the number of bytes of output that were queued and not sent.
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
