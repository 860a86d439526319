//! ACL LOG: the newest refusals, with equal refusals combined into one entry.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use super::denial::{Context, Reason};

/// The time within which equal refusals are combined into one entry of ACL LOG, in milliseconds.
const ALIKE_WITHIN_MS: i64 = 60_000;
/// The number of newest entries of ACL LOG that are searched for one equal to a new refusal.
const COMPARED_MAX: usize = 10;
/// The maximum length of the refused object (such as a key) that an entry of ACL LOG stores, in
/// bytes; the rest is cut off.
const OBJECT_LEN_BYTES_MAX: usize = 64 << 10;

/// A refused request or a failed authentication, as ACL LOG stores it.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// The kind of the refusal: by command, key, channel, database or login.
    pub reason: Reason,
    /// The origin of the refused request: a client, a transaction or a script.
    pub context: Context,
    /// The refused object: a command, key, channel or database; for a failed authentication, the
    /// command that tried it.
    pub object: Vec<u8>,
    /// The name of the user whose request was refused or who failed to authenticate.
    pub username: Vec<u8>,
    /// The client whose request was refused, in the format of CLIENT LIST.
    pub client: Vec<u8>,
    /// The time of the refusal, in Unix milliseconds.
    pub unix_ms: i64,
}

/// An entry of ACL LOG: one refusal, or several equal ones.
#[derive(Clone, Debug)]
pub struct LogEntry {
    /// The number of equal refusals that the entry combines.
    pub count: u64,
    /// The id of the entry in ACL LOG; ids increase by one.
    pub id: u64,
    /// The time of the first refusal, in Unix milliseconds.
    pub created_ms: i64,
    /// The data of the last of the equal refusals.
    pub last: Refusal,
}

#[derive(Debug, Default)]
struct Entries {
    newest_first: VecDeque<LogEntry>,
    next_id: u64,
}

/// The entries of ACL LOG. No other lock is taken under their lock.
#[derive(Debug, Default)]
pub struct AclLog(Mutex<Entries>);

impl AclLog {
    /// Adds a refusal to ACL LOG, or counts it in a recent equal entry. Removes the oldest entries
    /// beyond `len_max`.
    #[cold]
    pub fn note(&self, mut refusal: Refusal, len_max: usize) {
        refusal.object.truncate(OBJECT_LEN_BYTES_MAX);
        let mut log = self.lock();
        let alike = log.newest_first.iter().take(COMPARED_MAX).position(|entry| entry.is_like(&refusal));
        match alike.and_then(|at| log.newest_first.remove(at)) {
            Some(entry) => {
                log.newest_first.push_front(LogEntry { count: entry.count + 1, last: refusal, ..entry })
            }
            None => {
                let id = log.next_id;
                log.next_id += 1;
                let created_ms = refusal.unix_ms;
                log.newest_first.push_front(LogEntry { count: 1, id, created_ms, last: refusal });
                log.newest_first.truncate(len_max);
            }
        }
    }

    /// Returns the newest `count` entries of ACL LOG, newest first.
    pub fn newest(&self, count: usize) -> Vec<LogEntry> {
        self.lock().newest_first.iter().take(count).cloned().collect()
    }

    /// Removes all entries of ACL LOG. New entries continue the sequence of ids.
    pub fn reset(&self) {
        self.lock().newest_first.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().expect("nothing panics while the log is locked")
    }
}

impl LogEntry {
    fn is_like(&self, refusal: &Refusal) -> bool {
        let last = &self.last;
        last.reason == refusal.reason
            && last.context == refusal.context
            && (refusal.unix_ms - last.unix_ms).abs() <= ALIKE_WITHIN_MS
            && last.object == refusal.object
            && last.username == refusal.username
    }
}
