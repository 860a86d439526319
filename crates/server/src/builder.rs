//! Building and starting a server.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;

use keyspace::Keyspace;
use keyspace::gate::Gate;
use net::{Address, Backend, BackendChoice, EventLoop, Listener, LoopOptions};
use stdx::mailbox::Mailbox;

use crate::command_table::CommandTable;
use crate::errors::ErrorCounts;
use crate::session::Registry;
use crate::settings::{Settings, SharedSettings};
use crate::shared::{MAILBOX_MESSAGES_MAX, Pause, Samples, Shared, ThreadPort};
use crate::stats::ThreadStats;
use crate::worker::{Worker, unix_ms};

/// Why a server does not start.
#[derive(Debug)]
pub enum StartError {
    /// An address cannot be listened on.
    Listen {
        /// The address.
        address: String,
        /// Why.
        error: io::Error,
    },
    /// The event loop cannot be set up.
    EventLoop(io::Error),
    /// A thread cannot be started.
    Thread(io::Error),
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StartError::Listen { address, error } => write!(f, "cannot listen on {address}: {error}"),
            StartError::EventLoop(error) => write!(f, "cannot set up an event loop: {error}"),
            StartError::Thread(error) => write!(f, "cannot start a thread: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

/// What a server is started with. Defaults: 127.0.0.1 and ::1, port 6379, one I/O thread per core.
#[derive(Clone, Debug)]
pub struct Builder {
    port: u16,
    bind: Vec<IpAddr>,
    unix_socket: Option<(PathBuf, Option<u32>)>,
    tcp_backlog: u32,
    io_threads: usize,
    backend: BackendChoice,
    databases: usize,
    settings: Settings,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            port: 6379,
            bind: vec![IpAddr::from([127, 0, 0, 1])],
            unix_socket: None,
            tcp_backlog: 511,
            io_threads: std::thread::available_parallelism().map_or(1, usize::from),
            backend: BackendChoice::Auto,
            databases: 16,
            settings: Settings::default(),
        }
    }
}

impl Builder {
    /// The TCP port; 0 takes any free one ([`Server::port`] tells which).
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// The addresses to listen on; none for no TCP at all.
    pub fn bind(mut self, addresses: Vec<IpAddr>) -> Self {
        self.bind = addresses;
        self
    }

    /// A Unix socket to listen on, with its permission bits.
    pub fn unix_socket(mut self, path: impl Into<PathBuf>, mode: Option<u32>) -> Self {
        self.unix_socket = Some((path.into(), mode));
        self
    }

    /// Connections that may wait to be accepted.
    pub fn tcp_backlog(mut self, backlog: u32) -> Self {
        self.tcp_backlog = backlog;
        self
    }

    /// Number of I/O threads, at least 1.
    pub fn io_threads(mut self, count: usize) -> Self {
        self.io_threads = count.max(1);
        self
    }

    /// The way to the kernel.
    pub fn backend(mut self, backend: BackendChoice) -> Self {
        self.backend = backend;
        self
    }

    /// Number of databases.
    pub fn databases(mut self, count: usize) -> Self {
        self.databases = count.max(1);
        self
    }

    /// The other options.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Starts the server: it accepts clients when this returns.
    pub fn start(self) -> Result<Server, StartError> {
        let options = LoopOptions {
            backend: self.backend,
            keepalive: (self.settings.tcp_keepalive_s > 0)
                .then(|| std::time::Duration::from_secs(self.settings.tcp_keepalive_s)),
            ..LoopOptions::default()
        };
        let (listeners, port) = self.listen()?;
        let (ready_sender, ready) = mpsc::channel();
        let (handout, mut threads) = (Handout::new(self.io_threads), Vec::new());
        for index in 0..self.io_threads {
            let (options, ready_sender, shared) =
                (options.clone(), ready_sender.clone(), handout.receiver(index));
            let body = move || thread_main(index, &options, &ready_sender, &shared);
            let thread = std::thread::Builder::new().name(format!("io-{index}")).spawn(body);
            threads.push(thread.map_err(StartError::Thread)?);
        }
        let mut ports: Vec<Option<(Mailbox<_>, Backend)>> = (0..self.io_threads).map(|_| None).collect();
        for _ in 0..self.io_threads {
            let (index, made) = ready.recv().expect("every thread reports before it ends");
            let made: Made = made.map_err(StartError::EventLoop)?;
            ports[index] = Some((made.mailbox, made.backend));
        }
        let table = CommandTable::new();
        let backend = ports[0].as_ref().map_or(Backend::Epoll, |(_, backend)| *backend);
        let ports = ports.into_iter().flatten().map(|(mailbox, _)| ThreadPort {
            mailbox,
            stats: ThreadStats::new(table.id_count()),
            load: 0.into(),
        });
        let (discard, discarded) = mpsc::channel();
        let shared = Arc::new(Shared {
            keyspace: Keyspace::new(self.databases, std::array::from_fn(|_| random_u64())),
            gate: Gate::new(self.io_threads),
            threads: ports.collect(),
            table,
            settings: SharedSettings::new(self.settings),
            clients: Registry::default(),
            pause: Pause::default(),
            samples: Samples::default(),
            started: Instant::now(),
            started_unix_s: unix_ms() / 1000,
            run_id: format!("{:016x}{:016x}{:08x}", random_u64(), random_u64(), random_u64() as u32),
            backend,
            port,
            listeners: listeners.iter().map(listener_text).collect(),
            config_file: String::new(),
            startup_memory_bytes: 0.into(),
            errors: ErrorCounts::default(),
            stopping: false.into(),
            active_expire: true.into(),
            rejected_connections: 0.into(),
            discard,
        });
        shared.startup_memory_bytes.store(structures::alloc::used_memory_bytes() as u64, Relaxed);
        handout.give(&shared, listeners);
        let keeper = Arc::clone(&shared);
        let body = move || crate::housekeeper::run(&keeper, &discarded);
        let thread = std::thread::Builder::new().name("housekeeper".to_owned()).spawn(body);
        threads.push(thread.map_err(StartError::Thread)?);
        Ok(Server { shared, threads, port, backend })
    }

    fn listen(&self) -> Result<(Vec<Listener>, u16), StartError> {
        let mut listeners = Vec::new();
        let mut port = self.port;
        for &address in &self.bind {
            let address = SocketAddr::new(address, port);
            let failed = |error| StartError::Listen { address: address.to_string(), error };
            let listener = Listener::tcp(address, self.tcp_backlog).map_err(failed)?;
            if let Address::Tcp(local) = listener.local_address() {
                port = local.port();
            }
            listeners.push(listener);
        }
        if let Some((path, mode)) = &self.unix_socket {
            let failed = |error| StartError::Listen { address: path.display().to_string(), error };
            listeners.push(Listener::unix(path, *mode, self.tcp_backlog).map_err(failed)?);
        }
        Ok((listeners, port))
    }
}

/// What a thread reports once its event loop stands.
struct Made {
    mailbox: Mailbox<crate::shared::Message>,
    backend: Backend,
}

/// What a thread needs to start working.
type Start = (Arc<Shared>, Vec<Listener>);

/// Hands the shared state to threads that are already waiting for it: event loops must be built on
/// their own threads, and the shared state holds their wakers.
struct Handout {
    senders: Vec<mpsc::Sender<Start>>,
    receivers: std::cell::RefCell<Vec<Option<mpsc::Receiver<Start>>>>,
}

impl Handout {
    fn new(count: usize) -> Self {
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..count).map(|_| mpsc::channel()).unzip();
        Self { senders, receivers: receivers.into_iter().map(Some).collect::<Vec<_>>().into() }
    }

    fn receiver(&self, index: usize) -> mpsc::Receiver<Start> {
        self.receivers.borrow_mut()[index].take().expect("each thread takes its receiver once")
    }

    /// Thread 0 gets the listeners: it accepts for all.
    fn give(&self, shared: &Arc<Shared>, listeners: Vec<Listener>) {
        let mut listeners = Some(listeners);
        for sender in &self.senders {
            // A thread that is gone has reported why already.
            let _ = sender.send((Arc::clone(shared), listeners.take().unwrap_or_default()));
        }
    }
}

fn thread_main(
    index: usize,
    options: &LoopOptions,
    ready: &mpsc::Sender<(usize, io::Result<Made>)>,
    start: &mpsc::Receiver<Start>,
) {
    let mut net = match EventLoop::new(options) {
        Ok(net) => net,
        Err(error) => {
            // The builder waits for this report and gives up.
            let _ = ready.send((index, Err(error)));
            return;
        }
    };
    if let Some(reason) = net.fallback_reason().filter(|_| index == 0) {
        tracing::info!(reason, "io_uring cannot be used, epoll is");
    }
    let waker = net.waker();
    let wake = move || {
        if let Err(error) = waker.wake() {
            tracing::error!(%error, "waking an I/O thread failed");
        }
    };
    let made = Made { mailbox: Mailbox::new(MAILBOX_MESSAGES_MAX, wake), backend: net.backend() };
    let _ = ready.send((index, Ok(made)));
    // Without the shared state the start was given up.
    let Ok((shared, listeners)) = start.recv() else { return };
    for listener in listeners {
        if let Err(error) = net.add_listener(listener) {
            tracing::error!(%error, "listening failed");
            shared.stop();
        }
    }
    if let Err(error) = Worker::new(net, Arc::clone(&shared), index, random_u64()).run() {
        tracing::error!(%error, thread = index, "an event loop failed; stopping");
        shared.stop();
    }
}

/// A running server. Dropping it stops it.
pub struct Server {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    port: u16,
    backend: Backend,
}

impl Server {
    /// Starts describing a server.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The TCP port it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The way to the kernel it uses.
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// What its threads share.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Stops it and waits until all its threads have ended.
    pub fn stop(mut self) {
        self.stop_threads();
    }

    /// Waits until it is stopped from elsewhere (SHUTDOWN, a signal).
    pub fn wait(mut self) {
        for thread in self.threads.drain(..) {
            join(thread);
        }
    }

    fn stop_threads(&mut self) {
        self.shared.stop();
        for thread in self.threads.drain(..) {
            join(thread);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop_threads();
    }
}

/// A listener as INFO shows it.
fn listener_text(listener: &Listener) -> String {
    match listener.local_address() {
        Address::Tcp(address) => format!("name=tcp,bind={},port={}", address.ip(), address.port()),
        Address::Unix(path) => format!("name=unix,bind={}", path.display()),
    }
}

fn join(thread: JoinHandle<()>) {
    if thread.join().is_err() {
        tracing::error!("a thread of the server panicked");
    }
}

/// A random number that nobody can guess, from the standard library's per-process keys.
fn random_u64() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    let state = std::collections::hash_map::RandomState::new();
    let mut hasher = state.build_hasher();
    hasher.write_usize(&raw const state as usize);
    hasher.finish()
}
