//! The logs of notable commands: slow ones, large requests, large replies (SLOWLOG, COMMANDLOG).
//!
//! Each kind has one ring, shared by all threads. Only a command above the threshold of its kind
//! takes the ring's lock; all others cost a comparison. Arguments are cut as in Redis, so an entry
//! takes at most 32 × 160 bytes.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use commands::Args;

use crate::secret::is_secret;

/// The kind of a command log: the reason for which it has a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The log of commands that ran for long; the logged value is the time in microseconds.
    Slow = 0,
    /// The log of large requests; the logged value is the length in bytes.
    LargeRequest = 1,
    /// The log of large replies; the logged value is the length in bytes.
    LargeReply = 2,
}

/// The maximum number of arguments that an entry of a command log stores. If a command has more,
/// the last stored argument states the number of missing ones.
const ARGS_MAX: usize = 32;

/// The maximum number of bytes of an argument that an entry of a command log stores, without the
/// note about missing bytes.
const ARG_LEN_BYTES_MAX: usize = 128;

/// An entry of SLOWLOG or COMMANDLOG about a slow command, a large request or a large reply.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The id of the entry; each kind of log counts its own from 0.
    pub id: u64,
    /// The time at which the logged command ended, in Unix seconds.
    pub unix_s: i64,
    /// The time in microseconds or the length in bytes, depending on the kind of the log.
    pub value: u64,
    /// The arguments of the logged command, cut to the limits.
    pub args: Vec<Vec<u8>>,
    /// The address of the client that sent the command.
    pub peer: String,
    /// The name of the client that sent the command.
    pub name: Vec<u8>,
}

/// The newest entries of one command log, and the id of the next entry.
#[derive(Debug, Default)]
struct Ring {
    entries: VecDeque<Entry>,
    next_id: u64,
}

/// The three command logs (slow commands, large requests, large replies). Each has a lock, under
/// which no other lock is taken. Under it, an entry is added, old ones are dropped, the requested
/// ones are copied, or all are removed.
#[derive(Debug, Default)]
pub struct CommandLogs([Mutex<Ring>; 3]);

impl CommandLogs {
    /// Adds an entry to the command log of this kind, and sets its id. Removes the oldest entries
    /// beyond `len_max`.
    pub fn add(&self, kind: Kind, len_max: usize, mut entry: Entry) {
        let mut ring = self.ring(kind);
        entry.id = ring.next_id;
        ring.next_id += 1;
        ring.entries.push_front(entry);
        ring.entries.truncate(len_max);
    }

    /// Returns the newest `count` entries of the command log of this kind, newest first.
    pub fn newest(&self, kind: Kind, count: usize) -> Vec<Entry> {
        self.ring(kind).entries.iter().take(count).cloned().collect()
    }

    /// Returns the number of entries in the command log of this kind.
    pub fn len(&self, kind: Kind) -> usize {
        self.ring(kind).entries.len()
    }

    /// Removes all entries of the command log of this kind. New entries continue the sequence of
    /// ids.
    pub fn reset(&self, kind: Kind) {
        self.ring(kind).entries.clear();
    }

    fn ring(&self, kind: Kind) -> MutexGuard<'_, Ring> {
        self.0[kind as usize].lock().expect("nothing panics while a log is locked")
    }
}

/// Copies a request's arguments, cut to the limits of an entry. Replaces secret ones: the words
/// after AUTH, and secret values of CONFIG SET. `full_name` is the original name of the command,
/// whatever name the request uses.
pub fn kept_args(full_name: &str, args: &Args<'_>) -> Vec<Vec<u8>> {
    let len = args.len();
    let shown = if len > ARGS_MAX { ARGS_MAX - 1 } else { len };
    let mut kept: Vec<Vec<u8>> = (0..shown)
        .map(|at| if is_secret(full_name, args, at) { b"(redacted)".to_vec() } else { cut(args.get(at)) })
        .collect();
    if shown < len {
        kept.push(format!("... ({} more arguments)", len - shown).into_bytes());
    }
    kept
}

fn cut(arg: &[u8]) -> Vec<u8> {
    if arg.len() <= ARG_LEN_BYTES_MAX {
        return arg.to_vec();
    }
    let mut kept = arg[..ARG_LEN_BYTES_MAX].to_vec();
    kept.extend_from_slice(format!("... ({} more bytes)", arg.len() - ARG_LEN_BYTES_MAX).as_bytes());
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owned_args::OwnedArgs;
    use keyspace::Hasher;

    fn kept(words: &[&str]) -> Vec<String> {
        let owned = OwnedArgs::new(words.iter().map(|word| word.as_bytes()));
        let hasher = Hasher::with_seed([1, 2, 3, 4]);
        let kept = kept_args(&words[0].to_ascii_lowercase(), &owned.args(&hasher));
        kept.into_iter().map(|arg| String::from_utf8_lossy(&arg).into_owned()).collect()
    }

    #[test]
    fn arguments_are_cut_as_redis_cuts_them() {
        let long = "x".repeat(130);
        assert_eq!(kept(&["set", "k", &long])[2], format!("{}... (2 more bytes)", "x".repeat(128)));
        assert_eq!(kept(&vec!["a"; 32]).len(), 32);
        let many = kept(&vec!["a"; 40]);
        assert_eq!((many.len(), many[31].as_str()), (32, "... (9 more arguments)"));
    }

    #[test]
    fn secrets_are_not_shown() {
        assert_eq!(kept(&["auth", "secret"])[1], "(redacted)");
        assert_eq!(kept(&["hello", "3", "auth", "me", "pw"])[3..], ["(redacted)", "(redacted)"]);
        assert_eq!(
            kept(&["config", "set", "requirepass", "pw", "hz", "10"])[2..],
            ["requirepass", "(redacted)", "hz", "10"]
        );
    }

    #[test]
    fn a_log_keeps_the_newest_and_its_ids_go_on() {
        let logs = CommandLogs::default();
        let entry =
            |value| Entry { id: 0, unix_s: 0, value, args: vec![], peer: String::new(), name: vec![] };
        (0..5).for_each(|value| logs.add(Kind::Slow, 3, entry(value)));
        let ids =
            |logs: &CommandLogs| logs.newest(Kind::Slow, 9).iter().map(|entry| entry.id).collect::<Vec<_>>();
        assert_eq!(ids(&logs), [4, 3, 2]);
        logs.reset(Kind::Slow);
        logs.add(Kind::Slow, 3, entry(9));
        assert_eq!((ids(&logs), logs.len(Kind::LargeReply)), (vec![5], 0));
    }
}
