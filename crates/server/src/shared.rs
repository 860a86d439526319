//! The state shared by all threads of a server: the engine, and the parts of the server outside the
//! engine.

use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use engine::threads::Outbox;
use net::{Address, Backend, Listener, Socket};
use stdx::mailbox::Mailbox;

use crate::append_only::AppendOnly;
use crate::audit::Audit;
use crate::config::ConfigStore;
use crate::connection_pool::ConnectionPool;
use crate::login_delays::LoginDelays;
use crate::oidc::Oidc;
use crate::replication::Replication;
use crate::scripting::cache::ScriptCache;
use crate::scripting::debugging::Debuggers;
use crate::scripting::functions::Functions;
use crate::shutdown::ShutdownRequest;
use crate::snapshots::Persistence;
use crate::tls::Tls;

/// An address on which the server accepts clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listening {
    /// The address of the listener.
    pub address: Address,
    /// True if the connections to this address are encrypted.
    pub is_encrypted: bool,
}

impl Listening {
    /// Returns the address of `listener`, with the encryption of its connections.
    pub fn of(listener: &Listener) -> Self {
        Self { address: listener.local_address().clone(), is_encrypted: listener.tls().is_some() }
    }

    /// Returns the TCP address on which the server listens; `None` if the listener is a Unix
    /// socket.
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self.address {
            Address::Tcp(address) => Some(address),
            Address::Unix(_) => None,
        }
    }
}

/// A message to an I/O thread, from another thread of the server.
pub enum Message {
    /// A connection accepted by another thread and moved to this one.
    Adopt(Socket),
    /// A wake-up, because the thread's inbox has new replies or messages for its clients, or a
    /// debugged script has new output.
    Delivered,
    /// A request to continue postponed sessions, if possible. It is sent when a pause has ended,
    /// memory was freed, the append-only file was synced, a replica has acknowledged changes, or
    /// subscribers have room for messages.
    Resume,
    /// A change of the TCP addresses. The accepting thread adds the new listeners, and closes all
    /// others that are not in `keep`.
    Listen {
        /// The new listeners, which the accepting thread adds.
        add: Vec<Listener>,
        /// The TCP addresses whose listeners stay.
        keep: Vec<Listening>,
    },
    /// A request to run a turn of the thread's loop, because each turn evicts keys. It is sent when
    /// the used memory exceeds `maxmemory`, because all threads may be idle.
    EnforceMemory,
    /// A request to measure the memory of all clients of the thread, because `maxmemory-clients` is
    /// set.
    CountClients,
    /// A request to return the thread's free memory to the system.
    ReturnMemory,
    /// A request to close clients that were idle or not authenticated for too long, or whose token
    /// has expired.
    CloseIdle,
    /// A request to find clients whose connection has ended although the kernel did not report it.
    FindClosedConnections,
    /// A request to close the sessions of users that were removed or have lost a channel.
    CheckUsers,
    /// A request to leave the event loop, because the server stops.
    Stop,
}

/// Capacity of a thread's mailbox, in messages; each takes 80 bytes, used or not. When the mailbox
/// is full, the accepting thread keeps a connection itself, and CONFIG SET of an address fails.
/// Some messages may be lost (`Delivered`, `Resume`, `EnforceMemory`, `CheckUsers`, `Stop`): the
/// thread of a full mailbox has a turn soon, and each turn does their work. The housekeeper repeats
/// others (`CloseIdle`, `FindClosedConnections`, `CountClients`). A lost `ReturnMemory` only delays
/// the return of memory. Data that must not be lost is put in the engine's inbox.
pub const MAILBOX_MESSAGES_MAX: usize = 4 * 1024;

/// The state through which other threads reach an I/O thread.
pub struct Port {
    /// The thread's mailbox, through which other threads send messages to it.
    pub mailbox: Mailbox<Message>,
    /// The id that the kernel gave the thread; 0 before the thread runs.
    pub tid: AtomicI32,
    /// Statistics of the thread's replies that wait for the change log.
    pub reply_waits: ReplyWaits,
}

/// Statistics of an I/O thread's replies that wait for the change log. Only that thread writes
/// them, except that CONFIG RESETSTAT resets them.
#[derive(Debug, Default)]
pub struct ReplyWaits {
    /// Number of held-back pieces of output (parts in `worker::release`) that wait now.
    pub waiting: AtomicU64,
    /// Total time for which held-back pieces of output have waited, in nanoseconds, since the start
    /// or CONFIG RESETSTAT.
    pub nanos: AtomicU64,
    /// The longest wait of a held-back piece of output, in nanoseconds, since the start or CONFIG
    /// RESETSTAT.
    pub nanos_max: AtomicU64,
}

impl ReplyWaits {
    /// Records that a held-back piece of output has waited for the time `waited`.
    pub fn note(&self, waited: Duration) {
        let nanos = waited.as_nanos() as u64;
        // Relaxed: only statistics.
        self.nanos.store(self.nanos.load(Relaxed) + nanos, Relaxed);
        self.nanos_max.fetch_max(nanos, Relaxed);
    }

    /// Resets the waiting times of held-back output, but not the number of pieces that wait now.
    pub fn reset(&self) {
        self.nanos.store(0, Relaxed);
        self.nanos_max.store(0, Relaxed);
    }
}

/// Rates of the server's work that the housekeeper computes ten times a second.
#[derive(Debug, Default)]
pub struct Samples {
    /// Requests of clients per second, over the last 1.5 seconds.
    pub ops_per_second: AtomicU64,
    /// Bytes per second that clients send to the server, over the last 1.5 seconds.
    pub input_bytes_per_second: AtomicU64,
    /// Bytes per second that the server sends to clients, over the last 1.5 seconds.
    pub output_bytes_per_second: AtomicU64,
    /// Bytes per second that this server receives from replicas and from its primary, over the last
    /// 1.5 seconds.
    pub replication_input_bytes_per_second: AtomicU64,
    /// Bytes per second that this server sends to replicas and to its primary, over the last 1.5
    /// seconds.
    pub replication_output_bytes_per_second: AtomicU64,
    /// Turns of all I/O threads per second, over the last 1.5 seconds.
    pub cycles_per_second: AtomicU64,
    /// Total time of the turns of all I/O threads in nanoseconds per second, over the last 1.5
    /// seconds.
    pub cycles_nanos_per_second: AtomicU64,
}

/// Background work that DEBUG has switched off.
#[derive(Debug, Default)]
pub struct SwitchedOff {
    /// True after DEBUG PAUSE-CRON: the housekeeper runs neither its rounds nor active expiry. It
    /// still frees memory.
    pub cron: AtomicBool,
    /// True after DEBUG SET-ACTIVE-EXPIRE 0: an expired key is removed only when a client accesses
    /// it.
    pub active_expire: AtomicBool,
}

/// The shared state of a server. Threads hold it by `Arc`.
pub struct Shared {
    /// Data, clients, and the processing of requests; the part of the state that knows no sockets
    /// or files.
    pub engine: engine::Shared,
    /// The state through which other threads reach each I/O thread, by the number of the thread.
    pub ports: Vec<Port>,
    /// The values of all options. The engine's settings are derived from these values. No other
    /// lock is taken under the lock.
    pub config: Mutex<ConfigStore>,
    /// The rates that the housekeeper samples: requests, bytes and turns per second.
    pub samples: Samples,
    /// The start time of the server, in Unix seconds.
    pub started_unix_s: i64,
    /// The I/O backend that the event loops use.
    pub backend: Backend,
    /// The addresses on which the server listens for clients. No other lock is taken under the
    /// lock.
    pub listening: Mutex<Vec<Listening>>,
    /// The TLS configuration in use, with its certificates, and the counters of TLS handshakes.
    pub tls: Tls,
    /// The random id of this run of the server: 40 hexadecimal digits.
    pub run_id: String,
    /// The name of the supervisor that started the process, for INFO; `no` without one.
    pub supervisor: &'static str,
    /// The state of replication: the replicas, the backlog, and the link to a primary.
    pub replication: Arc<Replication>,
    /// The pool of open connections to other servers, for MIGRATE.
    pub migrations: ConnectionPool,
    /// The state of snapshots and of loading, and the source texts of the function libraries.
    pub persistence: Persistence,
    /// The state of the append-only file: its writer, its files and its rewrites.
    pub append_only: Arc<AppendOnly>,
    /// The cache of scripts of EVAL and SCRIPT LOAD.
    pub script_cache: ScriptCache,
    /// The function libraries, which FUNCTION LOAD adds.
    pub functions: Functions,
    /// The clients that debug their scripts, with the threads of these scripts.
    pub debuggers: Debuggers,
    /// The audit log, which records logins and commands in a file.
    pub audit: Arc<Audit>,
    /// The failed logins by address, which delay further logins.
    pub login_delays: LoginDelays,
    /// The state of logins by token (OpenID Connect); `None` if they are not configured.
    pub oidc: Option<Arc<Oidc>>,
    /// The pending shutdown request of a signal or of SHUTDOWN, which SHUTDOWN ABORT can cancel.
    pub shutdown_request: ShutdownRequest,
    /// True after [`Shared::stop`] has requested that all threads stop.
    pub stopping: AtomicBool,
    /// Background work that DEBUG has switched off.
    pub switched_off: SwitchedOff,
    /// Number of connections rejected because of `maxclients` or protected mode.
    pub rejected_connections: AtomicU64,
}

impl Shared {
    /// Returns the number of the thread that accepts connections.
    pub fn accepting_thread(&self) -> usize {
        0
    }

    /// Returns true if the data in memory is complete. It is incomplete during a load, and after a
    /// load that failed.
    pub(crate) fn has_all_data(&self) -> bool {
        !self.engine.server_state.is_loading.load(Relaxed) && self.persistence.may_be_saved()
    }

    /// Locks the values of all options, to read or change them.
    pub fn config(&self) -> MutexGuard<'_, ConfigStore> {
        self.config.lock().expect("nothing panics while the options are locked")
    }

    /// Locks the list of addresses on which the server accepts clients.
    pub fn listening(&self) -> MutexGuard<'_, Vec<Listening>> {
        self.listening.lock().expect("nothing panics while the addresses are locked")
    }

    /// Returns the TCP port; 0 if the server has no TCP listener.
    pub fn tcp_port(&self) -> u16 {
        self.port_of(|listening| !listening.is_encrypted)
    }

    /// Returns the TCP port for TLS; 0 if the server has no TLS listener.
    pub fn tls_port(&self) -> u16 {
        self.port_of(|listening| listening.is_encrypted)
    }

    fn port_of(&self, wanted: impl Fn(&Listening) -> bool) -> u16 {
        let all = self.listening();
        let mut ports = all.iter().filter(|listening| wanted(listening)).filter_map(Listening::tcp);
        ports.next().map_or(0, |address| address.port())
    }

    /// Returns the milliseconds since the server started, monotonic.
    pub fn uptime_ms(&self) -> u64 {
        self.engine.uptime(Instant::now()).as_millis() as u64
    }

    /// Wakes the threads for which `outbox` notes new replies or messages in their inboxes. The
    /// caller holds no shard lock.
    #[cold]
    pub fn wake(&self, outbox: &Outbox) {
        for thread in outbox.take() {
            // If its mailbox is full, the thread is awake, and it reads its inbox in each turn.
            let _ = self.ports[thread].mailbox.send(Message::Delivered);
        }
    }

    /// Requests all threads to stop. Returns at once, without waiting for their end.
    pub fn stop(&self) {
        // Release: pairs with the Acquire of the threads that wait for the stop.
        if !self.stopping.swap(true, Ordering::AcqRel) {
            for port in &self.ports {
                // If its mailbox is full, the thread is awake, and it checks `stopping` in each
                // turn.
                let _ = port.mailbox.send(Message::Stop);
            }
            self.append_only.signal.set();
            if let Some(oidc) = &self.oidc {
                oidc.end();
            }
        }
    }

    /// Sends a message that `message` creates to each I/O thread. A full mailbox drops the message,
    /// so it must be one that may be lost.
    pub fn broadcast(&self, message: impl Fn() -> Message) {
        for port in &self.ports {
            let _ = port.mailbox.send(message());
        }
    }
}
