//! What all threads of a server share.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use commands::ctx::Touched;
use crossbeam_utils::CachePadded;
use keyspace::Keyspace;
use keyspace::gate::{Gate, SharedPass};
use net::{Address, Backend, ConnId, Listener, Socket};
use stdx::ByteQueue;
use stdx::mailbox::Mailbox;
use structures::inbox::Inbox;

use crate::command_table::{CommandTable, Registered};
use crate::commands::migrate::Connections;
use crate::config::ConfigStore;
use crate::errors::ErrorCounts;
use crate::follow::Follows;
use crate::freeing::FreeQueue;
use crate::hot_keys::HotKeys;
use crate::latency::Times;
use crate::memory_limit::OverLimit;
use crate::monitor::Monitors;
use crate::pubsub::PubSub;
use crate::session::{ClientInfo, Registry};
use crate::settings::SharedSettings;
use crate::slowlog::CommandLogs;
use crate::spikes::Spikes;
use crate::stats::{Counter, ThreadStats};
use crate::tracking::Tracking;

/// A message to an I/O thread.
pub enum Message {
    /// A connection accepted elsewhere that will live here.
    Adopt(Socket),
    /// Look into the inboxes.
    Delivered,
    /// Look again at sessions that were held back: the pause ended, or something was freed.
    Resume,
    /// Listen on these too, and no longer on TCP addresses other than those to keep. For thread 0.
    Listen {
        /// New listeners.
        add: Vec<Listener>,
        /// TCP addresses that stay.
        keep: Vec<SocketAddr>,
    },
    /// Clients wait to hear of the end of these keys, which expired. For thread 0.
    Gone(Vec<Touched>),
    /// Memory is over its limit while all are idle: have a turn, which evicts.
    EnforceMemory,
    /// Count all clients anew: there is a limit to the memory that they hold.
    CountClients,
    /// Close clients that have been silent for too long.
    CloseIdle,
    /// Leave the loop.
    Stop,
}

/// Messages that may wait for one thread; each takes 80 bytes, used or not. A sender that finds the box full does
/// without (a thread keeps the connection that it accepted, CONFIG SET of an address fails), waits for room off the
/// request's path (`Gone`), or drops what a turn looks at by itself (`Delivered`, `Resume`, `EnforceMemory`, `Stop`:
/// the thread of a full mailbox has a turn) or the housekeeper asks again (`CloseIdle`, `CountClients`). What
/// must not be lost and has no place to wait is left in the inbox.
pub const MAILBOX_MESSAGES_MAX: usize = 4 * 1024;

/// The places in the gate of the threads that are no I/O threads. They stand behind those of the I/O threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateSlot {
    /// The housekeeper, for one short step at a time.
    Housekeeper,
    /// The metrics thread, for one section of INFO at a time.
    Metrics,
}

impl GateSlot {
    /// How many there are.
    pub const COUNT: usize = 2;
}

/// What others need of an I/O thread.
pub struct ThreadPort {
    /// Its mailbox.
    pub mailbox: Mailbox<Message>,
    /// Its counters.
    pub stats: CachePadded<ThreadStats>,
    /// Its number at the kernel; 0 before it runs.
    pub tid: AtomicI32,
    /// Its connections, those on their way to it included: accepting picks the smallest.
    pub load: AtomicUsize,
    /// What others leave for its clients.
    pub inbox: Inbox<Inbound>,
}

/// What other threads leave for a thread's clients. It is taken every turn.
#[derive(Default)]
pub struct Inbound {
    /// Replies for waiting clients: at most one for each.
    pub deliveries: Vec<Delivery>,
    /// Clients whose end somebody asked for: each once.
    pub kills: Vec<Killed>,
}

/// A client that its thread is to close.
pub struct Killed {
    /// Its connection.
    pub conn: ConnId,
    /// Its id: the connection may be another client's by then.
    pub client: u64,
}

/// The reply that a waiting client waited for.
pub struct Delivery {
    /// Its connection.
    pub conn: ConnId,
    /// The client's id.
    pub client: u64,
    /// What it waited by.
    pub ticket: u64,
    /// The reply; empty where it went ahead, with the messages for a subscriber.
    pub reply: ByteQueue,
    /// Bytes of the reply, wherever it went.
    pub reply_bytes: usize,
    /// Messages that stand behind it.
    pub pushes: ByteQueue,
    /// How long its request ran to get it.
    pub took: Duration,
}

impl ThreadPort {
    /// Hands a reply over to the thread of a client that waits, and wakes it. Any thread; a leaf in the
    /// lock order.
    pub fn deliver(&self, delivery: Delivery) {
        self.leave(|inbound| inbound.deliveries.push(delivery));
    }

    /// Leaves something for the thread's clients, and wakes it. Any thread; a leaf in the lock order.
    pub fn leave(&self, put: impl FnOnce(&mut Inbound)) {
        if self.inbox.leave(put) {
            // A full mailbox belongs to a thread that is awake: it looks into its inbox each turn.
            let _ = self.mailbox.send(Message::Delivered);
        }
    }
}

/// CLIENT PAUSE.
#[derive(Debug, Default)]
pub struct Pause {
    /// Until when, in Unix milliseconds; in the past for not at all.
    pub until_ms: AtomicI64,
    /// Whether all commands are held back or writes only.
    pub all: AtomicBool,
}

/// Values that the housekeeper samples.
#[derive(Debug, Default)]
pub struct Samples {
    /// Requests per second, over the last second and a half.
    pub ops_per_second: AtomicU64,
    /// Input, in bytes per second.
    pub input_bytes_per_second: AtomicU64,
    /// Output, in bytes per second.
    pub output_bytes_per_second: AtomicU64,
    /// Turns of all threads per second.
    pub cycles_per_second: AtomicU64,
    /// The time of turns, in nanoseconds per second.
    pub cycles_nanos_per_second: AtomicU64,
    /// The time that active expiry took, in nanoseconds.
    pub expiry_nanos: Counter,
    /// Rounds of active expiry that ended because their time was over.
    pub expiry_cut_short: Counter,
    /// Keys the active expiry removed.
    pub actively_expired: Counter,
    /// Fields of hashes the active expiry removed.
    pub actively_expired_fields: Counter,
    /// Of keys with a time to live the part that was overdue when active expiry came by, in millionths.
    pub stale_millionths: AtomicU64,
}

/// The heart of a server. Threads hold it by `Arc`.
pub struct Shared {
    /// All data.
    pub keyspace: Keyspace,
    /// Shared by turns, exclusive for what cannot name its keys. Whoever locks a shard is inside, with the
    /// number of its I/O thread or one of [`GateSlot`].
    pub gate: Gate,
    /// All commands.
    pub table: CommandTable,
    /// All options. Its lock is a leaf; `settings` follows it.
    pub config: Mutex<ConfigStore>,
    /// Options that act.
    pub settings: SharedSettings,
    /// All clients.
    pub clients: Registry,
    /// One port per I/O thread.
    pub threads: Vec<ThreadPort>,
    /// Who follows which key.
    pub follows: Follows,
    /// What clients cache.
    pub tracking: Tracking,
    /// Bytes of messages between a thread's inbox and the network. The memory limit leaves them out: else the
    /// news of evicted keys would make more keys be evicted.
    pub push_bytes: AtomicU64,
    /// Who is told all commands.
    pub monitors: Monitors,
    /// Who listens to which channel.
    pub pubsub: PubSub,
    /// CLIENT PAUSE.
    pub pause: Pause,
    /// The housekeeper's samples.
    pub samples: Samples,
    /// Start of the server's monotonic clock.
    pub started: Instant,
    /// When the server started, Unix seconds.
    pub started_unix_s: i64,
    /// The way to the kernel.
    pub backend: Backend,
    /// Where clients connect. Its lock is a leaf.
    pub listening: Mutex<Vec<Address>>,
    /// Memory in use when the server had started.
    pub startup_memory_bytes: AtomicU64,
    /// Slow commands, large requests, large replies.
    pub command_logs: CommandLogs,
    /// Which keys take most, while somebody asks for it.
    pub hot_keys: HotKeys,
    /// What took long, by event.
    pub spikes: Spikes,
    /// Error replies by code.
    pub errors: ErrorCounts,
    /// 40 hex digits that name this run.
    pub run_id: String,
    /// Who has started the process, as INFO names them.
    pub supervisor: &'static str,
    /// 40 hex digits that name the history of the data. Guarded by a lock of its own, a leaf.
    pub repl_id: Mutex<String>,
    /// Connections that MIGRATE keeps.
    pub migrations: Connections,
    /// Set once somebody wants the server to stop.
    pub stopping: AtomicBool,
    /// DEBUG PAUSE-CRON: the housekeeper does nothing.
    pub paused_cron: AtomicBool,
    /// DEBUG SET-ACTIVE-EXPIRE.
    pub active_expire: AtomicBool,
    /// Connections refused because of `maxclients`.
    pub rejected_connections: AtomicU64,
    /// For how long memory was over its limit.
    pub over_limit: OverLimit,
    /// Values too big to free on an I/O thread in passing.
    pub freeing: FreeQueue,
}

impl Shared {
    /// All options, to read or change.
    pub fn config(&self) -> MutexGuard<'_, ConfigStore> {
        self.config.lock().expect("nothing panics while the options are locked")
    }

    /// Where clients connect.
    pub fn listening(&self) -> MutexGuard<'_, Vec<Address>> {
        self.listening.lock().expect("nothing panics while the addresses are locked")
    }

    /// The TCP port, 0 for none.
    pub fn tcp_port(&self) -> u16 {
        let ports = self.listening();
        let mut ports = ports.iter().filter_map(|address| match address {
            Address::Tcp(address) => Some(address.port()),
            Address::Unix(_) => None,
        });
        ports.next().unwrap_or(0)
    }

    /// The replication id, to read or change.
    pub fn repl_id(&self) -> MutexGuard<'_, String> {
        self.repl_id.lock().expect("nothing panics while the replication id is locked")
    }

    /// Enters the gate as a thread that is no I/O thread.
    pub fn enter_gate(&self, slot: GateSlot) -> SharedPass<'_> {
        self.gate.shared(self.threads.len() + slot as usize)
    }

    /// Milliseconds since the server started, monotonic.
    pub fn uptime_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    /// The times of the command with this id on all threads.
    pub fn times_of(&self, id: usize) -> Times {
        Times::of(self.threads.iter().filter_map(|port| port.stats.commands[id].times.get()))
    }

    /// The end-to-end times of the command with this id on all threads.
    pub fn end_to_end_of(&self, id: usize) -> Times {
        Times::of(self.threads.iter().filter_map(|port| port.stats.commands[id].end_to_end.get()))
    }

    /// The end-to-end times of all commands on all threads.
    pub fn end_to_end(&self) -> Times {
        let commands = self.threads.iter().flat_map(|port| &port.stats.commands);
        Times::of(commands.filter_map(|command| command.end_to_end.get()))
    }

    /// Sums a counter over all threads.
    pub fn sum(&self, counter: impl Fn(&ThreadStats) -> &Counter) -> u64 {
        self.threads.iter().map(|port| counter(&port.stats).get()).fold(0, u64::wrapping_add)
    }

    /// Counts an error reply to a client that waited, on the I/O thread that ended its wait.
    pub fn count_failure(&self, thread: usize, registered: &Registered, line: &[u8]) {
        let stats = &self.threads[thread].stats;
        stats.errors.add(1);
        stats.commands[registered.id].failed.add(1);
        self.errors.count(line);
    }

    /// Has the client's thread close it, and takes it off the lists at once; whether nobody had asked for that
    /// before. Any thread; a leaf in the lock order. What it waits for, the caller ends ([`Shared::end_wait_of`]).
    pub fn kill(&self, client: &ClientInfo) -> bool {
        let first = !client.kill_requested.swap(true, Ordering::Relaxed);
        if first {
            self.unlist(client);
            let killed = Killed { conn: client.conn, client: client.id };
            self.threads[client.thread].leave(|inbound| inbound.kills.push(killed));
        }
        first
    }

    /// Takes a client off the lists, if it is on them: it does not count as connected any more.
    pub fn unlist(&self, client: &ClientInfo) {
        if self.clients.remove(client.id) {
            self.threads[client.thread].load.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Ends the wait of a killed client, now or once it begins to wait: nobody serves it, or what it takes would
    /// be lost with it. The caller holds neither a shard's lock nor that of a client that waits.
    pub fn end_wait_of(&self, client: &ClientInfo) {
        let waiter = client.waiter().clone();
        if let Some(waiter) = waiter {
            self.follows.end(&waiter);
        }
    }

    /// Asks all threads to stop. Returns at once.
    pub fn stop(&self) {
        // Release: pairs with the Acquire of whoever waits for the stop.
        if !self.stopping.swap(true, Ordering::AcqRel) {
            for port in &self.threads {
                // A full mailbox belongs to a thread that is awake: it looks at `stopping` each turn.
                let _ = port.mailbox.send(Message::Stop);
            }
        }
    }

    /// Sends the same message to all threads; a full mailbox misses it, so it must be one that a turn does without.
    pub fn broadcast(&self, message: impl Fn() -> Message) {
        for port in &self.threads {
            let _ = port.mailbox.send(message());
        }
    }
}
