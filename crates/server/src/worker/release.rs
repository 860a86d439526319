//! Replies and messages that are held back until the change log has released the changes that they
//! show. Output shows a log position if it depends on changes up to that position. A reply waits
//! until its position has reached the [`Level`] that its client requires, a message for
//! [`Level::Written`].
//!
//! ```text
//!   output appended that shows an unreleased position ─► mark
//!   end of the turn, after merging: position released ─► mark removed, sent with this flush
//!                                   not released      ─► held back in `net`, filed by position
//!   thread woken: position released                   ─► part sent with this flush, in order
//! ```
//! All output of a connection after its first mark in a turn is one part. The position and level of
//! a part are the largest ones of the connection's marks in that turn. **Order:** the position and
//! the level of a part are at least those of the part before it. A synced position is also written,
//! and parts of lower levels are released first. Parts with the same position and level are
//! released in the order of their numbers. So the parts of a connection are sent in order. Output
//! without a mark that follows a part is sent after that part.
//!
//! **Bound:** once a connection has [`PARTS_PER_CONN_MAX`] parts, further output is added to its
//! last part. The bytes of parts count as unsent for every limit.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use engine::log::ChangeLog;
use engine::log::level::{Level, Released};
use engine::session::Session;
use net::{ConnId, Outputs};

use crate::shared::ReplyWaits;

/// Maximum number of held-back pieces of output (parts) of one connection. Each part has its own
/// buffer.
const PARTS_PER_CONN_MAX: u32 = 16;

/// The key of a part, a held-back piece of output: the log position that the output shows, and the
/// number of the part. Parts are released in the order of their keys. Of two parts with the same
/// position, the older one has the smaller number.
type PartKey = (u64, u64);

/// The output of an I/O thread's connections that is held back until the change log has released
/// changes.
pub(super) struct ReleaseQueue {
    /// The marks on output that shows changes which are not released, set in this turn, in the
    /// order in which the output was appended.
    marks: Vec<Mark>,
    /// The largest log position among the marks that this turn has set on output, for each
    /// [`Level`]; 0 without marks.
    marked: Released,
    /// The held-back pieces of output (parts), for each [`Level`], in the order of their keys.
    parts: [BTreeMap<PartKey, Part>; Level::ALL.len()],
    /// The number that the next held-back piece of output (part) gets.
    next_number: u64,
    /// The number of held-back pieces of output (parts) and the last part of each connection, by
    /// the connection's index.
    conns: Vec<HeldConn>,
    /// The log position, for each [`Level`], whose release wakes this thread; `None` if no output
    /// of the level is held back.
    awaited_positions: [Option<u64>; Level::ALL.len()],
}

impl Default for ReleaseQueue {
    fn default() -> Self {
        Self {
            marks: Vec::new(),
            marked: Released::at(0),
            parts: Default::default(),
            next_number: 0,
            conns: Vec::new(),
            awaited_positions: [None; Level::ALL.len()],
        }
    }
}

/// A mark: the bytes in a connection's output queue after the first `from_bytes` bytes show changes
/// up to `position`. They wait until this position has reached `level`.
struct Mark {
    conn: ConnId,
    from_bytes: usize,
    position: u64,
    level: Level,
}

struct Part {
    conn: ConnId,
    since: Instant,
}

/// The number of held-back pieces of output (parts) of one connection, with the [`Level`] and the
/// key of its last part.
#[derive(Clone, Copy, Default)]
struct HeldConn {
    generation: u32,
    parts: u32,
    last_level: Level,
    last: PartKey,
}

impl ReleaseQueue {
    /// Returns true if no output is held back or marked to be held back.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.marks.is_empty() && self.parts.iter().all(BTreeMap::is_empty)
    }

    /// Marks a client's output after the first `from_bytes` bytes of its queue: it shows changes up
    /// to the last log position that the client has seen. Does nothing if the change log has
    /// already released that position.
    #[inline]
    pub(super) fn mark_observed(&mut self, session: &Session, from_bytes: usize, log: &ChangeLog) {
        let position = session.observed_position();
        if position > log.released(session.level) {
            self.mark(session.conn, from_bytes, (position, session.level));
        }
    }

    /// Marks the output of `conn` after the first `from_bytes` bytes of its queue. It shows changes
    /// up to `position`, which has not reached `level`.
    #[cold]
    pub(super) fn mark(&mut self, conn: ConnId, from_bytes: usize, (position, level): (u64, Level)) {
        self.marked.raise(level, position);
        match self.marks.last_mut() {
            Some(last) if last.conn == conn => {
                (last.position, last.level) = (last.position.max(position), last.level.max(level));
            }
            _ => self.marks.push(Mark { conn, from_bytes, position, level }),
        }
    }

    /// Holds back the marked output whose positions are not released, and releases held-back pieces
    /// of output (parts) whose positions are. Called after the log was merged and before the flush.
    /// Returns the longest time for which a part was held that this call released; `None` if there
    /// was none. The thread is woken when the next part can be released.
    #[inline(never)]
    pub(super) fn end_turn(
        &mut self,
        outputs: &mut Outputs,
        log: &ChangeLog,
        thread: usize,
        waits: &ReplyWaits,
    ) -> Option<Duration> {
        if self.parts.iter().all(BTreeMap::is_empty)
            && Level::ALL.into_iter().all(|level| self.marked.get(level) <= log.released(level))
        {
            self.marks.clear();
            self.marked = Released::at(0);
            return None;
        }
        let now = Instant::now();
        self.hold_marked(outputs, log, now);
        let mut longest = None;
        for level in Level::ALL {
            longest = longest.max(self.release_level(level, outputs, (log, thread), (now, waits)));
        }
        waits.waiting.store(self.part_count() as u64, Relaxed);
        longest
    }

    fn part_count(&self) -> usize {
        self.parts.iter().map(BTreeMap::len).sum()
    }

    /// Releases the held-back pieces of output (parts) of `level` whose positions are released.
    /// Requests that I/O thread `thread` is woken when the position of the next part is released.
    /// Returns the longest time for which a released part was held; `None` if there was none.
    fn release_level(
        &mut self,
        level: Level,
        outputs: &mut Outputs,
        (log, thread): (&ChangeLog, usize),
        times: (Instant, &ReplyWaits),
    ) -> Option<Duration> {
        let mut longest = None;
        loop {
            longest = longest.max(self.release(level, outputs, log.released(level), times));
            let Some((&(first, _), _)) = self.parts[level as usize].first_key_value() else {
                self.awaited_positions[level as usize] = None;
                return longest;
            };
            // A thread that releases the awaited position after the check above wakes this thread.
            if self.awaited_positions[level as usize] == Some(first) {
                return longest;
            }
            let waits = log.wait_for_release(level, thread, first);
            self.awaited_positions[level as usize] = waits.then_some(first);
            if waits {
                return longest;
            }
        }
    }

    /// Turns the marked output into parts, which are held back. Does not hold output whose position
    /// is already released, unless its connection has another held part.
    fn hold_marked(&mut self, outputs: &mut Outputs, log: &ChangeLog, now: Instant) {
        let first_number = self.next_number;
        self.marked = Released::at(0);
        for Mark { conn, from_bytes, position, level } in std::mem::take(&mut self.marks) {
            let held = self.held(conn);
            let HeldConn { parts, last, last_level, .. } = *held;
            if parts > 0 && position <= last.0 && level <= last_level
                || parts == 0 && position <= log.released(level)
            {
                continue;
            }
            // Both are 0 without parts.
            let (position, level) = (position.max(last.0), level.max(last_level));
            if parts > 0 && (last.1 >= first_number || parts >= PARTS_PER_CONN_MAX) {
                (held.last.0, held.last_level) = (position, level);
                let part = self.parts[last_level as usize].remove(&last).expect("the last part is filed");
                self.parts[level as usize].insert((position, last.1), part);
                continue;
            }
            let len_bytes = outputs.queue(conn).len_bytes().saturating_sub(from_bytes);
            if !outputs.hold(conn, len_bytes) {
                continue;
            }
            let last = (position, self.next_number);
            *self.held(conn) =
                HeldConn { generation: conn.generation(), parts: parts + 1, last_level: level, last };
            self.parts[level as usize].insert(last, Part { conn, since: now });
            self.next_number += 1;
        }
    }

    /// Releases all held-back pieces of output (parts) of `level` with log positions up to
    /// `released`, included. Returns the longest time for which one of them was held; `None` if
    /// there was none. O(parts released × log parts).
    fn release(
        &mut self,
        level: Level,
        outputs: &mut Outputs,
        released: u64,
        (now, waits): (Instant, &ReplyWaits),
    ) -> Option<Duration> {
        let mut longest = None;
        let parts = &mut self.parts[level as usize];
        while let Some(first) = parts.first_entry().filter(|first| first.key().0 <= released) {
            let Part { conn, since } = first.remove();
            if let Some(held) = existing(&mut self.conns, conn) {
                held.parts -= 1;
                if held.parts == 0 {
                    (held.last, held.last_level) = Default::default();
                }
            }
            outputs.release(conn);
            let waited = now - since;
            waits.note(waited);
            longest = longest.max(Some(waited));
        }
        longest
    }

    /// Returns the entry for the held-back output (parts) of `conn`. Creates it for a new
    /// connection, or resets it if it is that of an earlier connection with the same index.
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

    /// Removes all marks and held-back output (parts) of a closed connection. O(parts).
    #[cold]
    pub(super) fn forget(&mut self, conn: ConnId, waits: &ReplyWaits) {
        if let Some(held) = existing(&mut self.conns, conn)
            && held.parts > 0
        {
            held.parts = 0;
            self.parts.iter_mut().for_each(|parts| parts.retain(|_, part| part.conn != conn));
            waits.waiting.store(self.part_count() as u64, Relaxed);
        }
        self.marks.retain(|mark| mark.conn != conn);
    }
}

/// Returns the entry for the held-back output (parts) of `conn`; `None` if there is none, or if it
/// is that of another connection with the same index.
#[inline]
fn existing(conns: &mut [HeldConn], conn: ConnId) -> Option<&mut HeldConn> {
    conns.get_mut(conn.index()).filter(|held| held.generation == conn.generation())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the records of two connections that have the same index, one after the other. A part
    /// and the end of the earlier connection must not change the record of the later one.
    #[test]
    fn an_earlier_connection_does_not_change_the_record_of_a_later_one() {
        let [earlier, later] = [1, 2].map(|generation| ConnId::new(0, generation));
        let (mut queue, waits, now) = (ReleaseQueue::default(), ReplyWaits::default(), Instant::now());
        for (conn, position) in [(earlier, 5), (later, 6)] {
            let last = (position, position);
            queue.held(conn).parts += 1;
            queue.held(conn).last = last;
            queue.parts[Level::Written as usize].insert(last, Part { conn, since: now });
        }
        queue.release(Level::Written, &mut Outputs::default(), 5, (now, &waits));
        assert_eq!((queue.part_count(), queue.held(later).parts), (1, 1));
        queue.forget(earlier, &waits);
        assert_eq!((queue.part_count(), queue.held(later).parts, queue.held(later).last), (1, 1, (6, 6)));
        queue.release(Level::Written, &mut Outputs::default(), 6, (now, &waits));
        assert_eq!((queue.part_count(), queue.held(later).parts), (0, 0));
    }
}
