//! Memory that the commands of scripts use again and again: one set for each thread.

use resp::parse::Span;
use stdx::ByteQueue;

use crate::images::Images;

/// The buffers that commands of scripts use again and again.
#[derive(Default)]
pub(crate) struct ScriptBuffers {
    /// The words of a command, one behind the other.
    pub(crate) bytes: Vec<u8>,
    /// The place of each of them.
    pub(crate) spans: Vec<Span>,
    /// Its reply.
    pub(crate) out: ByteQueue,
    /// The images by which the script that runs can be undone.
    pub(crate) images: Images,
    /// Its reply, where that came in several pieces.
    joined: Vec<u8>,
}

impl ScriptBuffers {
    /// Larger ones are given back.
    const KEPT_BYTES_MAX: usize = 64 * 1024;

    /// Clears the buffers for the next command.
    pub(crate) fn clear(&mut self) {
        self.out.truncate(0);
        self.joined.clear();
    }

    /// Returns the buffers to keep for the next script.
    pub(crate) fn trim(mut self: Box<Self>) -> Option<Box<Self>> {
        self.clear();
        self.images.clear();
        let bytes = self.bytes.capacity() + size_of::<Span>() * self.spans.capacity();
        let replies = self.joined.capacity() + self.out.capacity_bytes();
        if bytes + replies + self.images.capacity_bytes() > Self::KEPT_BYTES_MAX {
            return None;
        }
        Some(self)
    }

    /// Returns the reply.
    pub(crate) fn reply(&mut self) -> &[u8] {
        if self.out.as_single().is_none() {
            self.out.io_slices(usize::MAX).iter().for_each(|slice| self.joined.extend_from_slice(slice));
            return &self.joined;
        }
        self.out.as_single().expect("it is one piece")
    }
}
