//! What all threads of a server share: the engine, and what it must not know.

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
use crate::scripting::cache::ScriptCache;
use crate::scripting::debugging::Debuggers;
use crate::scripting::functions::Functions;
use crate::shutdown::ShutdownRequest;
use crate::snapshots::Persistence;
use crate::tls::Tls;

/// A place where clients connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listening {
    /// The address.
    pub address: Address,
    /// Whether its connections are encrypted.
    pub is_encrypted: bool,
}

impl Listening {
    /// Where `listener` listens.
    pub fn of(listener: &Listener) -> Self {
        Self { address: listener.local_address().clone(), is_encrypted: listener.tls().is_some() }
    }

    /// Its TCP address, if it has one.
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self.address {
            Address::Tcp(address) => Some(address),
            Address::Unix(_) => None,
        }
    }
}

/// A message to an I/O thread.
pub enum Message {
    /// A connection accepted elsewhere that will live here.
    Adopt(Socket),
    /// Look into the inboxes.
    Delivered,
    /// Look again at sessions that were held back: the pause ended, or something was freed.
    Resume,
    /// Listen on these too, and no longer on TCP addresses other than those to keep. For the thread
    /// that accepts.
    Listen {
        /// New listeners.
        add: Vec<Listener>,
        /// What stays of TCP.
        keep: Vec<Listening>,
    },
    /// Memory is over its limit while all are idle: have a turn, which evicts.
    EnforceMemory,
    /// Count all clients anew: there is a limit to the memory that they hold.
    CountClients,
    /// Close clients that have been silent for too long.
    CloseIdle,
    /// Look for clients that are gone, which the kernel has not said.
    LookForEnds,
    /// Close the sessions of users that were removed or have lost a channel.
    CheckUsers,
    /// Leave the loop.
    Stop,
}

/// Messages that may wait for one thread; each takes 80 bytes, used or not. A sender that finds the
/// box full does without (a thread keeps the connection that it accepted, CONFIG SET of an address
/// fails), or drops what a turn looks at by itself (`Delivered`, `Resume`, `EnforceMemory`,
/// `CheckUsers`, `Stop`: the thread of a full mailbox has a turn) or the housekeeper asks again
/// (`CloseIdle`, `LookForEnds`, `CountClients`). What must not be lost and has no place to wait is
/// left in the engine's inbox.
pub const MAILBOX_MESSAGES_MAX: usize = 4 * 1024;

/// How an I/O thread is reached.
pub struct Port {
    /// Its mailbox.
    pub mailbox: Mailbox<Message>,
    /// Its number at the kernel; 0 before it runs.
    pub tid: AtomicI32,
    /// How its replies wait for the change log.
    pub reply_waits: ReplyWaits,
}

/// How replies of an I/O thread wait for the change log. Only that thread writes it, except that
/// CONFIG RESETSTAT starts it over.
#[derive(Debug, Default)]
pub struct ReplyWaits {
    /// Parts of connections' output that wait now.
    pub waiting: AtomicU64,
    /// How long parts have waited in all, in nanoseconds.
    pub nanos: AtomicU64,
    /// The longest of these waits.
    pub nanos_max: AtomicU64,
}

impl ReplyWaits {
    /// Counts a wait that is over.
    pub fn note(&self, waited: Duration) {
        let nanos = waited.as_nanos() as u64;
        // Relaxed: figures.
        self.nanos.store(self.nanos.load(Relaxed) + nanos, Relaxed);
        self.nanos_max.fetch_max(nanos, Relaxed);
    }

    /// Starts over, without what waits now.
    pub fn reset(&self) {
        self.nanos.store(0, Relaxed);
        self.nanos_max.store(0, Relaxed);
    }
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
}

/// What goes on by itself until DEBUG switches it off.
#[derive(Debug, Default)]
pub struct SwitchedOff {
    /// DEBUG PAUSE-CRON: the housekeeper does nothing.
    pub cron: AtomicBool,
    /// DEBUG SET-ACTIVE-EXPIRE: keys expire only when they are met.
    pub active_expire: AtomicBool,
}

/// The heart of a server. Threads hold it by `Arc`.
pub struct Shared {
    /// Data, clients, and all that happens to requests.
    pub engine: engine::Shared,
    /// One port per I/O thread.
    pub ports: Vec<Port>,
    /// All options. Its lock is a leaf; the engine's settings follow it.
    pub config: Mutex<ConfigStore>,
    /// The housekeeper's samples.
    pub samples: Samples,
    /// When the server started, Unix seconds.
    pub started_unix_s: i64,
    /// The way to the kernel.
    pub backend: Backend,
    /// Where clients connect. Its lock is a leaf.
    pub listening: Mutex<Vec<Listening>>,
    /// What connections are encrypted with.
    pub tls: Tls,
    /// 40 hex digits that name this run.
    pub run_id: String,
    /// Who has started the process, as INFO names them.
    pub supervisor: &'static str,
    /// 40 hex digits that name the history of the data. Guarded by a lock of its own, a leaf.
    pub repl_id: Mutex<String>,
    /// Connections that MIGRATE keeps.
    pub migrations: ConnectionPool,
    /// Snapshots.
    pub persistence: Persistence,
    /// The append-only file.
    pub append_only: Arc<AppendOnly>,
    /// Scripts.
    pub script_cache: ScriptCache,
    /// Libraries of functions.
    pub functions: Functions,
    /// Clients that debug their scripts.
    pub debuggers: Debuggers,
    /// The audit log.
    pub audit: Arc<Audit>,
    /// Who has failed to log in, and must wait.
    pub login_delays: LoginDelays,
    /// Logins by token, where they are taken.
    pub oidc: Option<Arc<Oidc>>,
    /// A signal's request to end, which SHUTDOWN ABORT takes back.
    pub shutdown_request: ShutdownRequest,
    /// Set once the server shall stop.
    pub stopping: AtomicBool,
    /// What DEBUG has switched off.
    pub switched_off: SwitchedOff,
    /// Connections refused because of `maxclients`.
    pub rejected_connections: AtomicU64,
}

impl Shared {
    /// The number of the thread that accepts connections.
    pub fn accepting_thread(&self) -> usize {
        0
    }

    /// All options, to read or change.
    pub fn config(&self) -> MutexGuard<'_, ConfigStore> {
        self.config.lock().expect("nothing panics while the options are locked")
    }

    /// Where clients connect.
    pub fn listening(&self) -> MutexGuard<'_, Vec<Listening>> {
        self.listening.lock().expect("nothing panics while the addresses are locked")
    }

    /// The TCP port, 0 for none.
    pub fn tcp_port(&self) -> u16 {
        self.port_of(|listening| !listening.is_encrypted)
    }

    /// The TCP port for TLS, 0 for none.
    pub fn tls_port(&self) -> u16 {
        self.port_of(|listening| listening.is_encrypted)
    }

    fn port_of(&self, wanted: impl Fn(&Listening) -> bool) -> u16 {
        let all = self.listening();
        let mut ports = all.iter().filter(|listening| wanted(listening)).filter_map(Listening::tcp);
        ports.next().map_or(0, |address| address.port())
    }

    /// The replication id, to read or change.
    pub fn repl_id(&self) -> MutexGuard<'_, String> {
        self.repl_id.lock().expect("nothing panics while the replication id is locked")
    }

    /// Milliseconds since the server started, monotonic.
    pub fn uptime_ms(&self) -> u64 {
        self.engine.uptime(Instant::now()).as_millis() as u64
    }

    /// Wakes the threads for which something was left. The caller holds no shard.
    #[cold]
    pub fn wake(&self, outbox: &Outbox) {
        for thread in outbox.take() {
            // A full mailbox belongs to a thread that is awake: it looks into its inbox each turn.
            let _ = self.ports[thread].mailbox.send(Message::Delivered);
        }
    }

    /// Asks all threads to stop. Returns at once.
    pub fn stop(&self) {
        // Release: pairs with the Acquire of whoever waits for the stop.
        if !self.stopping.swap(true, Ordering::AcqRel) {
            for port in &self.ports {
                // A full mailbox belongs to a thread that is awake: it looks
                // at `stopping` each turn.
                let _ = port.mailbox.send(Message::Stop);
            }
            self.append_only.signal.set();
            if let Some(oidc) = &self.oidc {
                oidc.end();
            }
        }
    }

    /// Sends the same message to all threads; a full mailbox misses it, so it must be one
    /// that a turn does without.
    pub fn broadcast(&self, message: impl Fn() -> Message) {
        for port in &self.ports {
            let _ = port.mailbox.send(message());
        }
    }
}
