//! Replies and messages that wait until the change log has released what they show.
//!
//! ```text
//!   appended, shows a position that is not released ─► mark
//!   end of the turn, after merging: released by now ─► forgotten, it leaves with this flush
//!                                   not yet         ─► held back in `net`, filed by position
//!   woken: released                                 ─► leaves with this flush, in order
//! ```
//! What a connection was sent from its first such mark of a turn on is one part, with the largest
//! position of the turn's marks. **Order:** a part's position is at least that of the part before
//! it, and a position's parts are released in the order of their numbers: so the parts of a
//! connection leave first to last. What is appended behind a part without a mark stays behind it.
//! **Bound:** beyond [`PARTS_PER_CONN_MAX`] a connection's last part takes in what follows. Their
//! bytes count as unsent for every limit.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use engine::log::ChangeLog;
use engine::session::Session;
use net::{ConnId, Outputs};

use crate::shared::ReplyWaits;

/// Parts that a connection may have, each with a buffer of its own.
const PARTS_PER_CONN_MAX: u32 = 16;

/// Of equal positions, the part that was made first is released first.
type PartKey = (u64, u64);

/// See the module. Of one I/O thread.
#[derive(Default)]
pub(super) struct ReleaseQueue {
    /// Of this turn, in the order of what was appended.
    marks: Vec<Mark>,
    /// The largest position of a mark of this turn.
    marked_position: u64,
    parts: BTreeMap<PartKey, Part>,
    /// The number of the next part.
    next_number: u64,
    /// By index of the connection.
    conns: Vec<HeldConn>,
    /// The position for which this thread will be woken.
    awaited_position: Option<u64>,
}

/// What was appended to a connection's queue behind its first `from_bytes` shows this position.
struct Mark {
    conn: ConnId,
    from_bytes: usize,
    position: u64,
}

struct Part {
    conn: ConnId,
    since: Instant,
}

/// What is held of a connection.
#[derive(Clone, Copy, Default)]
struct HeldConn {
    generation: u32,
    parts: u32,
    last: PartKey,
}

impl ReleaseQueue {
    /// Whether nothing is held and nothing was marked.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.marks.is_empty() && self.parts.is_empty()
    }

    /// Notes that what a client was sent behind the first `from_bytes` of its connection's queue
    /// shows all that it has seen, if that is more than is released.
    #[inline]
    pub(super) fn mark_seen(&mut self, session: &Session, from_bytes: usize, log: &ChangeLog) {
        let position = session.seen_position();
        if position > log.released() {
            self.mark(session.conn, from_bytes, position);
        }
    }

    /// Notes that what was appended to the queue of `conn` behind its first `from_bytes` shows
    /// changes up to `position`, which is not released.
    #[cold]
    pub(super) fn mark(&mut self, conn: ConnId, from_bytes: usize, position: u64) {
        self.marked_position = self.marked_position.max(position);
        match self.marks.last_mut() {
            Some(last) if last.conn == conn => last.position = last.position.max(position),
            _ => self.marks.push(Mark { conn, from_bytes, position }),
        }
    }

    /// Holds back what was marked and is not released yet, and lets go of what is released by now.
    /// Between merging the log and the flush. Gives the longest time that a part that is let go of
    /// has waited. The thread will be woken when the next part is released.
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
            // Who released what is awaited after the look at it above wakes this thread.
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

    /// Makes parts of what was marked, unless it is released and nothing of its connection is held.
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

    /// Lets all parts go that are released. O(parts released × log parts).
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

    /// What is held of `conn`.
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

    /// Forgets what is held of a connection that is closed. O(parts).
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
