//! Replies and messages that wait until the change log has released the changes that they show.
//! Output shows a log position if it depends on changes up to that position.
//!
//! ```text
//!   output appended that shows an unreleased position ─► mark
//!   end of the turn, after merging: position released ─► mark removed, sent with this flush
//!                                   not released      ─► held back in `net`, filed by position
//!   thread woken: position released                   ─► part sent with this flush, in order
//! ```
//! All output of a connection after its first mark in a turn is one part. The position of a part is
//! the largest one of the connection's marks in that turn. **Order:** the position of a part is at
//! least that of the part before it. Parts with the same position are released in the order of
//! their numbers. So the parts of a connection are sent in order. Output without a mark that
//! follows a part is sent after that part.
//!
//! **Bound:** once a connection has [`PARTS_PER_CONN_MAX`] parts, further output is added to its
//! last part. The bytes of parts count as unsent for every limit.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use engine::log::ChangeLog;
use engine::session::Session;
use net::{ConnId, Outputs};

use crate::shared::ReplyWaits;

/// Maximum number of parts of a connection. Each part has its own buffer.
const PARTS_PER_CONN_MAX: u32 = 16;

/// The log position and the number of a part, which are the order of release. Of parts with equal
/// positions, the older one has the smaller number.
type PartKey = (u64, u64);

/// The held output of an I/O thread's connections (see the module).
#[derive(Default)]
pub(super) struct ReleaseQueue {
    /// The marks of this turn, in the order in which the output was appended.
    marks: Vec<Mark>,
    /// The largest log position of this turn's marks; 0 without marks.
    marked_position: u64,
    parts: BTreeMap<PartKey, Part>,
    /// The number that the next part gets.
    next_number: u64,
    /// The number of held parts and the last part of each connection, by the connection's index.
    conns: Vec<HeldConn>,
    /// The log position whose release will wake this thread; `None` without held parts.
    awaited_position: Option<u64>,
}

/// A mark: the output in the connection's queue after its first `from_bytes` shows this log
/// position.
struct Mark {
    conn: ConnId,
    from_bytes: usize,
    position: u64,
}

struct Part {
    conn: ConnId,
    since: Instant,
}

/// The number of held parts of a connection, and the key of its last part.
#[derive(Clone, Copy, Default)]
struct HeldConn {
    generation: u32,
    parts: u32,
    last: PartKey,
}

impl ReleaseQueue {
    /// Returns true if no output is held and none is marked.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.marks.is_empty() && self.parts.is_empty()
    }

    /// Marks the output after the first `from_bytes` of a client's queue, to be held back until the
    /// change log has released the last position that the client has seen. Does nothing if that
    /// position is already released. All of this output is assumed to depend on that position.
    #[inline]
    pub(super) fn mark_observed(&mut self, session: &Session, from_bytes: usize, log: &ChangeLog) {
        let position = session.observed_position();
        if position > log.released() {
            self.mark(session.conn, from_bytes, position);
        }
    }

    /// Marks the output in the queue of `conn` after its first `from_bytes`. The output shows
    /// changes up to `position`, which is not released.
    #[cold]
    pub(super) fn mark(&mut self, conn: ConnId, from_bytes: usize, position: u64) {
        self.marked_position = self.marked_position.max(position);
        match self.marks.last_mut() {
            Some(last) if last.conn == conn => last.position = last.position.max(position),
            _ => self.marks.push(Mark { conn, from_bytes, position }),
        }
    }

    /// Holds back marked output with unreleased positions, and releases parts whose positions are
    /// released. Called after the log is merged and before the flush. Returns the longest wait of a
    /// part that was released now. The thread is woken when the next part can be released.
    #[inline(never)]
    pub(super) fn end_turn(
        &mut self,
        outputs: &mut Outputs,
        log: &ChangeLog,
        thread: usize,
        waits: &ReplyWaits,
    ) -> Option<Duration> {
        let mut released = log.released();
        if self.marked_position <= released && self.parts.is_empty() {
            self.marks.clear();
            return None;
        }
        let now = Instant::now();
        self.hold_marked(outputs, released, now);
        let mut longest = None;
        loop {
            longest = longest.max(self.release(outputs, released, now, waits));
            let Some((&(first, _), _)) = self.parts.first_key_value() else {
                self.awaited_position = None;
                break;
            };
            // A thread that releases the awaited position after the check above wakes this thread.
            if self.awaited_position == Some(first) {
                break;
            }
            if log.wait_for_release(thread, first) {
                self.awaited_position = Some(first);
                break;
            }
            self.awaited_position = None;
            released = log.released();
        }
        waits.waiting.store(self.parts.len() as u64, Relaxed);
        longest
    }

    /// Turns the marked output into parts. Output is not held if its position is released and its
    /// connection has no parts.
    fn hold_marked(&mut self, outputs: &mut Outputs, released: u64, now: Instant) {
        let first_number = self.next_number;
        self.marked_position = 0;
        for Mark { conn, from_bytes, position } in std::mem::take(&mut self.marks) {
            let held = self.held(conn);
            let HeldConn { parts, last, .. } = *held;
            if parts > 0 && position <= last.0 || parts == 0 && position <= released {
                continue;
            }
            if parts > 0 && (last.1 >= first_number || parts >= PARTS_PER_CONN_MAX) {
                held.last.0 = position;
                let part = self.parts.remove(&last).expect("a connection's last part is filed");
                self.parts.insert((position, last.1), part);
                continue;
            }
            let len_bytes = outputs.queue(conn).len_bytes().saturating_sub(from_bytes);
            if !outputs.hold(conn, len_bytes) {
                continue;
            }
            let key = (position, self.next_number);
            *self.held(conn) = HeldConn { generation: conn.generation(), parts: parts + 1, last: key };
            self.parts.insert(key, Part { conn, since: now });
            self.next_number += 1;
        }
    }

    /// Releases all parts whose log position is at most `released`. Returns the longest wait of a
    /// released part. O(parts released × log parts).
    fn release(
        &mut self,
        outputs: &mut Outputs,
        released: u64,
        now: Instant,
        waits: &ReplyWaits,
    ) -> Option<Duration> {
        let mut longest = None;
        while let Some(first) = self.parts.first_entry().filter(|first| first.key().0 <= released) {
            let Part { conn, since } = first.remove();
            self.held(conn).parts -= 1;
            outputs.release(conn);
            let waited = now - since;
            waits.note(waited);
            longest = longest.max(Some(waited));
        }
        longest
    }

    /// Returns the record of the held parts of `conn`, which is created or reset for a new
    /// connection.
    fn held(&mut self, conn: ConnId) -> &mut HeldConn {
        if self.conns.len() <= conn.index() {
            self.conns.resize(conn.index() + 1, HeldConn::default());
        }
        let held = &mut self.conns[conn.index()];
        if held.generation != conn.generation() {
            *held = HeldConn { generation: conn.generation(), ..HeldConn::default() };
        }
        held
    }

    /// Removes all marks and parts of a closed connection. O(parts).
    #[cold]
    pub(super) fn forget(&mut self, conn: ConnId, waits: &ReplyWaits) {
        if self.held(conn).parts > 0 {
            self.held(conn).parts = 0;
            self.parts.retain(|_, part| part.conn != conn);
            waits.waiting.store(self.parts.len() as u64, Relaxed);
        }
        self.marks.retain(|mark| mark.conn != conn);
    }
}
