//! The buffers that the commands of scripts reuse, one set for each thread.

use resp::parse::Span;
use stdx::ByteQueue;

use crate::images::Images;

/// The reused buffers for the commands of scripts.
#[derive(Default)]
pub(crate) struct ScriptBuffers {
    /// The words of the script's current command, one after the other.
    pub(crate) bytes: Vec<u8>,
    /// The range in `bytes` of each word of the script's current command.
    pub(crate) spans: Vec<Span>,
    /// The reply to the script's current command.
    pub(crate) out: ByteQueue,
    /// The copies of changed keys by which the running script can be undone.
    pub(crate) images: Images,
    /// The reply to the script's current command as one slice, if `out` has it in several chunks.
    joined: Vec<u8>,
}

impl ScriptBuffers {
    /// The maximum number of bytes of allocated memory that a thread keeps in these buffers for its
    /// next script.
    const KEPT_BYTES_MAX: usize = 64 * 1024;

    /// Empties the buffers for the script's next command.
    pub(crate) fn clear(&mut self) {
        self.out.truncate(0);
        self.joined.clear();
    }

    /// Returns the script buffers to keep for the next script; `None` if they are too large.
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

    /// Returns the reply to the script's current command as one slice.
    pub(crate) fn reply(&mut self) -> &[u8] {
        if self.out.as_single().is_none() {
            self.out.io_slices(usize::MAX).iter().for_each(|slice| self.joined.extend_from_slice(slice));
            return &self.joined;
        }
        self.out.as_single().expect("it is one piece")
    }
}
