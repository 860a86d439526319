//! Tools to test replication: real servers as replicas, connections that speak a replica's protocol
//! by hand, and a proxy between replica and primary that cuts, delays and corrupts.
//!
//! All waits end by a condition, with a bound of [`WITHIN`]. A failed wait panics with the state of
//! both sides.

use std::thread;
use std::time::{Duration, Instant};

use resp::Value;

use crate::client::Client;

pub mod link;
pub mod load;
pub mod proxy;
pub mod replica;

pub use link::{Link, Psync, Snapshot};
pub use proxy::Proxy;
pub use replica::{Replica, SyncCounts};

/// Maximum time for which the waits of this module wait for a condition.
pub const WITHIN: Duration = Duration::from_secs(240);

/// Pause between two checks of a condition that a test waits for.
const POLL: Duration = Duration::from_millis(2);

/// Checks the condition `is_so` repeatedly. Returns true as soon as it holds, false after
/// [`WITHIN`].
pub fn happens(mut is_so: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + WITHIN;
    while !is_so() {
        if Instant::now() > deadline {
            return false;
        }
        thread::sleep(POLL);
    }
    true
}

/// Returns the text of the section `section` of INFO.
pub fn info(client: &mut Client, section: &str) -> String {
    let reply = client.command(&["INFO", section]);
    String::from_utf8_lossy(reply.as_bytes().unwrap_or_default()).into_owned()
}

/// Returns the value of the field `name` of INFO; empty if there is none.
pub fn field(client: &mut Client, section: &str, name: &str) -> String {
    let text = info(client, section);
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.unwrap_or_default().to_owned()
}

/// Returns the number in a field of INFO; 0 if there is none.
pub fn number(client: &mut Client, section: &str, name: &str) -> u64 {
    field(client, section, name).parse().unwrap_or(0)
}

/// Runs a command and returns its reply, which must not be an error.
///
/// # Panics
///
/// Panics if the reply is an error, with its text.
pub fn run(client: &mut Client, words: &[&str]) -> Value {
    let reply = client.command(words);
    assert!(!reply.is_error(), "{words:?} was answered {reply}");
    reply
}
