//! The buffers that the kernel fills in multishot receives, and the bytes received in them.
//!
//! ```text
//!   entries (shared with the kernel)    [addr len id][addr len id] …      tail: published by us
//!   region  [ buffer 0            ][ buffer 1            ][ buffer 2 …
//!            ^ received   ^ cursor    (incremental: the kernel continues at the cursor)
//! ```
//! Ownership: a byte belongs to the kernel from the publication of its buffer until a completion
//! reports it as received. Then it belongs to this turn, as part of a [`Span`]. When the kernel has
//! released a buffer, the buffer can be published again from the end of that turn. With incremental
//! buffers (Linux 6.12) one buffer takes many receives one after another, so small requests share
//! pages as in the arena. Without them, every receive takes a buffer of its own.

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::BufRingEntry;

use super::span::Span;

/// The number of buffers that are given to the kernel at the start.
const PUBLISHED_MIN: u16 = 2;
/// The alignment of the ring of entries, which must begin at a page. An entry tells the kernel of a
/// buffer that it may fill.
const PAGE_LEN_BYTES: usize = 4096;

/// The kernel's flag that further completions of io_uring will follow: of the same request
/// (`IORING_CQE_F_MORE`), or into the same buffer (`IORING_CQE_F_BUF_MORE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum More {
    /// Further completions of io_uring follow this one.
    Follows,
    /// This completion of io_uring is the last one.
    Ended,
}

impl From<bool> for More {
    /// Converts the flag of an io_uring completion: true means that further completions follow.
    fn from(follows: bool) -> Self {
        if follows { Self::Follows } else { Self::Ended }
    }
}

/// The memory that the kernel writes to, freed when neither the ring nor the inputs use it any
/// more.
pub(crate) struct Region {
    entries: NonNull<BufRingEntry>,
    entries_layout: Layout,
    data: NonNull<u8>,
    data_layout: Layout,
}

impl Region {
    fn new(count: usize, buffer_len_bytes: usize) -> Self {
        let entries_layout = Layout::array::<BufRingEntry>(count)
            .and_then(|layout| layout.align_to(PAGE_LEN_BYTES))
            .expect("a few thousand entries fit an address space");
        let data_layout = Layout::from_size_align(count * buffer_len_bytes, 64)
            .expect("a few megabytes fit an address space");
        assert!(data_layout.size() > 0, "a region without buffers");
        // SAFETY: the layout has a size above zero: `count` is positive, as is an entry's size.
        let entries = unsafe { alloc_zeroed(entries_layout) };
        // SAFETY: the layout has a size above zero, asserted above.
        let data = unsafe { alloc(data_layout) };
        Self {
            entries: NonNull::new(entries.cast()).unwrap_or_else(|| handle_alloc_error(entries_layout)),
            entries_layout,
            data: NonNull::new(data).unwrap_or_else(|| handle_alloc_error(data_layout)),
            data_layout,
        }
    }

    /// Returns the address of the ring of buffer entries, with which the ring is registered.
    pub(super) fn entries_address(&self) -> u64 {
        self.entries.as_ptr() as u64
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout in `new`, and the last owner is gone.
        unsafe { dealloc(self.entries.as_ptr().cast(), self.entries_layout) };
        // SAFETY: as above.
        unsafe { dealloc(self.data.as_ptr(), self.data_layout) };
    }
}

/// The buffers provided to the kernel, and the state in which the loop knows each of them.
pub(crate) struct ProvidedBuffers {
    region: Rc<Region>,
    /// The number of all buffers provided to the kernel, a power of two.
    count: u16,
    buffer_len_bytes: u32,
    /// The number of bytes that the kernel has written to each buffer since its publication.
    cursors: Vec<u32>,
    /// The buffers that the kernel has released in this turn. They can be published to the kernel
    /// again after the turn ends.
    done: Vec<u16>,
    /// The buffers that the kernel does not have. The last one used is on top of this stack,
    /// because its memory is most likely still in the cache.
    idle: Vec<u16>,
    /// The number of buffers that are published to the kernel at present. Buffers in `done` count
    /// until the turn ends.
    published: u16,
    /// The number of buffers to publish to the kernel. It is small at first, so that a quiet loop
    /// always reuses the same little memory. It doubles each time the kernel found no free buffer.
    wanted: u16,
    /// The number of buffer entries passed to the kernel since the start, modulo 2^16.
    tail: u16,
    turn: u32,
}

impl ProvidedBuffers {
    /// Creates `count` (a power of two) buffers of `buffer_len_bytes` and publishes the first few.
    pub(super) fn new(count: u16, buffer_len_bytes: u32) -> Self {
        assert!(count.is_power_of_two(), "positions in the ring are masked");
        let region = Rc::new(Region::new(usize::from(count), buffer_len_bytes as usize));
        assert!(u32::try_from(region.data_layout.size()).is_ok(), "spans count in 32 bits");
        let cursors = vec![0; usize::from(count)];
        let mut buffers = Self {
            region,
            count,
            buffer_len_bytes,
            cursors,
            done: Vec::new(),
            idle: (0..count).rev().collect(),
            published: 0,
            wanted: PUBLISHED_MIN.min(count),
            tail: 0,
            turn: 1,
        };
        buffers.publish();
        buffers
    }

    /// Records that the kernel found no free buffer: from the next turn on, twice as many are
    /// published.
    pub(crate) fn ran_out(&mut self) {
        self.wanted = self.wanted.saturating_mul(2).min(self.count);
    }

    /// Returns the memory of the buffers, which must stay allocated as long as the kernel uses it.
    pub(super) fn region(&self) -> &Rc<Region> {
        &self.region
    }

    pub(super) fn count(&self) -> u16 {
        self.count
    }

    /// Records that the kernel has written `len` more bytes to buffer `id`. `more` states if it
    /// will write further bytes there. Returns the span of the bytes. Only the ring may call this:
    /// once for each completion, in the order of the completions. Until then, the bytes belong to
    /// the kernel.
    pub(super) fn received(&mut self, id: u16, len: u32, more: More) -> Span {
        let cursor = &mut self.cursors[usize::from(id)];
        assert!(len <= self.buffer_len_bytes - *cursor, "the kernel reports more than the buffer holds");
        let start = u32::from(id) * self.buffer_len_bytes + *cursor;
        *cursor += len;
        if more == More::Ended {
            self.done.push(id);
        }
        Span::new(start, len, self.turn)
    }

    /// Borrows the received bytes of a span of this turn.
    #[inline]
    pub(super) fn bytes(&self, span: Span) -> &[u8] {
        if span.len() == 0 {
            return &[];
        }
        assert_eq!(span.turn(), self.turn, "input of a past turn");
        // SAFETY: a span lies within the region: `received` checked it against its buffer, and
        // joining and advancing keep within what was received.
        let first = unsafe { self.region.data.add(span.start()) };
        // SAFETY: the kernel has written these bytes and reported it, and writes there again only
        // after the buffer is published anew, which takes `&mut self` and ends the span's turn.
        unsafe { std::slice::from_raw_parts(first.as_ptr(), span.len()) }
    }

    /// Borrows the received bytes of a span of this turn mutably, to decrypt them in place.
    pub(super) fn bytes_mut(&mut self, span: Span) -> &mut [u8] {
        if span.len() == 0 {
            return &mut [];
        }
        assert_eq!(span.turn(), self.turn, "input of a past turn");
        // SAFETY: a span lies within the region, as in `bytes`.
        let first = unsafe { self.region.data.add(span.start()) };
        // SAFETY: as in `bytes`, the kernel is done with these bytes for this turn. Nobody else
        // reads them: all access is through `self`, which is borrowed for as long.
        unsafe { std::slice::from_raw_parts_mut(first.as_ptr(), span.len()) }
    }

    /// Ends the turn: its spans become invalid, and released buffers can be published again.
    pub(super) fn end_turn(&mut self) {
        // Wraps after 4 billion turns; no span outlives the start of the next one.
        self.turn = self.turn.wrapping_add(1);
        self.published -= self.done.len() as u16;
        self.idle.append(&mut self.done);
        if self.published < self.wanted {
            self.publish();
        }
    }

    /// Publishes buffers to the kernel until the kernel has `wanted` of them.
    fn publish(&mut self) {
        while self.published < self.wanted {
            let id = self.idle.pop().expect("no more are wanted than there are");
            self.published += 1;
            self.cursors[usize::from(id)] = 0;
            let position = usize::from(self.tail & (self.count - 1));
            // SAFETY: masked, so it lies within the ring of `count` entries.
            let entry = unsafe { self.region.entries.add(position) };
            // SAFETY: within the data region, which holds `count` buffers.
            let buffer = unsafe { self.region.data.add(usize::from(id) * self.buffer_len_bytes as usize) };
            // SAFETY: valid and aligned; the kernel reads an entry only once the tail is
            // past it. Not more than `count` buffers exist, so the kernel is done with
            // what was in this position.
            let entry = unsafe { &mut *entry.as_ptr() };
            entry.set_addr(buffer.as_ptr() as u64);
            entry.set_len(self.buffer_len_bytes);
            entry.set_bid(id);
            self.tail = self.tail.wrapping_add(1);
        }
        // SAFETY: the address of the first entry of an initialized ring, as `tail` demands.
        let tail = unsafe { BufRingEntry::tail(self.region.entries.as_ptr()) };
        // SAFETY: aligned, alive as long as the region, and only ever accessed atomically.
        let tail = unsafe { AtomicU16::from_ptr(tail.cast_mut()) };
        // Release: publishes the entries written above; pairs with the kernel's acquiring load.
        tail.store(self.tail, Ordering::Release);
    }
}
