//! MONITOR: clients that receive every command that runs, on all threads.
//!
//! A command on keys is sent under the locks of its shards, so commands on the same key are sent in
//! the order in which they ran. All monitors get the same order. A line goes to the inbox of each
//! monitor's thread (`push.rs`). The limit of the inbox and the output limit of the class `replica`
//! bound the memory of a monitor that does not read. While there is no monitor, each thread checks
//! for one once a turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use commands::{Args, Origin};
use stdx::Address;
use structures::lock::Lock;

use super::send::Sender;
use crate::client::ClientInfo;
use crate::secret::is_secret;
use crate::table::Registered;

/// A command to send to the clients that use MONITOR.
pub struct MonitoredCommand<'a> {
    /// The client that ran the command.
    pub client: &'a ClientInfo,
    /// The origin of the command: the client itself or one of its scripts.
    pub origin: Origin,
    /// The command table's entry of the command.
    pub registered: &'a Registered,
    /// The arguments of the command, its name included.
    pub args: &'a Args<'a>,
}

/// The clients that use MONITOR. Under their lock, no other locks are taken than those of inboxes.
/// The longest work under it is sending a line to each of them.
#[derive(Default)]
pub struct Monitors {
    count: AtomicUsize,
    clients: Lock<Vec<Arc<ClientInfo>>>,
}

impl Monitors {
    /// Returns true if any client uses MONITOR. O(1).
    #[inline]
    pub fn any(&self) -> bool {
        // Relaxed: a command sent after MONITOR's reply runs in a later turn, which checks again.
        self.count.load(Relaxed) > 0
    }

    /// Adds a client to those that receive every command (MONITOR).
    pub fn add(&self, client: &Arc<ClientInfo>) {
        client.state.monitoring.store(true, Relaxed);
        let mut clients = self.clients.lock();
        clients.push(Arc::clone(client));
        self.count.store(clients.len(), Relaxed);
    }

    /// Removes a client from those that receive every command (MONITOR).
    pub fn remove(&self, client: &ClientInfo) {
        client.state.monitoring.store(false, Relaxed);
        let mut clients = self.clients.lock();
        clients.retain(|other| other.id != client.id);
        self.count.store(clients.len(), Relaxed);
    }

    /// Sends a command to all clients that use MONITOR. The caller holds the locks of the command's
    /// keys, if it has any. `unix_time` reads the clock.
    #[cold]
    pub fn send(
        &self,
        sender: Sender<'_>,
        command: &MonitoredCommand<'_>,
        unix_time: impl FnOnce() -> Duration,
    ) {
        let MonitoredCommand { client, origin, registered, args } = *command;
        let clients = self.clients.lock();
        // Read under the lock, so that lines are in the order of their times.
        let now = unix_time();
        let mut line = format!("+{}.{:06} [{} ", now.as_secs(), now.subsec_micros(), client.db.load(Relaxed))
            .into_bytes();
        match &client.peer {
            _ if origin == Origin::Script => line.extend_from_slice(b"lua"),
            Address::Tcp(address) => line.extend_from_slice(address.to_string().as_bytes()),
            Address::Unix(_) => {
                let local = path_of(&client.local);
                line.extend_from_slice(format!("unix:{local}").as_bytes());
            }
        }
        line.push(b']');
        for (index, arg) in args.from(0).enumerate() {
            line.push(b' ');
            let hidden = is_secret(registered.full_name, args, index);
            quote(if hidden { b"(redacted)" } else { arg }, &mut line);
        }
        line.extend_from_slice(b"\r\n");
        let line: Arc<[u8]> = line.into();
        for monitor in clients.iter() {
            sender.push(monitor, &line);
        }
    }
}

/// Returns the path of a Unix socket, or the text of a TCP address, as MONITOR shows it.
fn path_of(address: &Address) -> String {
    match address {
        Address::Unix(path) => path.display().to_string(),
        Address::Tcp(address) => address.to_string(),
    }
}

/// Appends text in quotes to a line of MONITOR, with escapes for bytes that are not printable.
fn quote(text: &[u8], line: &mut Vec<u8>) {
    line.push(b'"');
    for &byte in text {
        match byte {
            b'\\' | b'"' => line.extend_from_slice(&[b'\\', byte]),
            b'\n' => line.extend_from_slice(b"\\n"),
            b'\r' => line.extend_from_slice(b"\\r"),
            b'\t' => line.extend_from_slice(b"\\t"),
            0x07 => line.extend_from_slice(b"\\a"),
            0x08 => line.extend_from_slice(b"\\b"),
            b' '..=b'~' => line.push(byte),
            _ => line.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
        }
    }
    line.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_quoted_as_redis_does() {
        let check = |text: &[u8], expected: &str| {
            let mut line = Vec::new();
            quote(text, &mut line);
            assert_eq!(String::from_utf8_lossy(&line), expected);
        };
        check(b"plain text", "\"plain text\"");
        check(b"", "\"\"");
        check(b"\"\\\n\r\t\x07\x08\0\xff\x7f", r#""\"\\\n\r\t\a\b\x00\xff\x7f""#);
    }
}
