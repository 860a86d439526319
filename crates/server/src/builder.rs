//! The builder, which starts a server, and the handle of the running server.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;

use engine::settings::Settings;
use net::{Backend, BackendChoice, EventLoop, Listener, LoopOptions, SocketFile};
use stdx::mailbox::Mailbox;

use crate::audit::{self, Audit};
use crate::config::ConfigStore;
use crate::config::apply::{self, PortZero, PortZeros, StartOptions};
use crate::config::handle::{Choice as _, Handle, OptionType};
use crate::config::table::tls as options;
use crate::config::table::{clients, network, persistence, security};
use crate::connection_pool::ConnectionPool;
use crate::context::{ServerHandler, ServerHost, SystemClock, unix_ms};
use crate::limits;
use crate::listen::{Listeners, listen, retry_while_in_use};
use crate::login_delays::LoginDelays;
use crate::metrics;
use crate::oidc::{self, Oidc};
use crate::persistence::startup::load_at_start;
use crate::primary_link::change::{follow_at_start, open_link_at_start};
use crate::random::{random_repl_id, random_u64};
use crate::replicas::good_replicas::update_good_replicas;
use crate::replication::Replication;
use crate::scripting::cache::ScriptCache;
use crate::scripting::debugging::Debuggers;
use crate::scripting::functions::Functions;
use crate::shared::{
    Listening, MAILBOX_MESSAGES_MAX, Message, Port, ReplyWaits, Samples, Shared, SwitchedOff,
};
use crate::shutdown::ShutdownRequest;
use crate::snapshots::{Persistence, save_rules};
use crate::start_error::{Place, StartError};
use crate::tls::Tls;
use crate::users;
use crate::worker::Worker;
use crate::worker::scripts::ThreadScripts;

/// A builder of a server from configuration options. The options have their defaults (127.0.0.1 and
/// ::1, port 6379, one I/O thread per core), except that there are no `save` rules.
#[derive(Debug)]
pub struct Builder {
    store: ConfigStore,
    /// The meanings of 0 in `port` and `tls-port`: a free port, or no listener.
    zeros: PortZeros,
    /// The error for the first invalid option, which `start` returns; `None` if all are valid.
    problem: Option<StartError>,
    /// The supervisor that started the process; `None` without one.
    supervisor: Option<&'static str>,
    /// The treatment of data that the data folder contains at the start.
    found: Found,
    /// The time to which the data is restored, in Unix seconds; `None` for no restore.
    restore_until_s: Option<i64>,
}

/// The treatment of data that the data folder contains at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// The data in the data folder is loaded.
    Loaded,
    /// The data in the data folder is ignored and stays there.
    Left,
}

impl Default for Builder {
    fn default() -> Self {
        let store = ConfigStore::new(crate::commands::is_command);
        // An embedded server writes files only if the caller sets options for that.
        let builder = Self { found: Found::Left, ..Self::from_config(store) };
        builder.words(&persistence::SAVE, &[Vec::new()])
    }
}

impl Builder {
    /// Creates a builder from the options of a configuration file and a command line. Port 0 turns
    /// a listener off.
    pub fn from_config(store: ConfigStore) -> Self {
        Self {
            store,
            zeros: PortZeros::default(),
            problem: None,
            supervisor: None,
            found: Found::Loaded,
            restore_until_s: None,
        }
    }

    /// Sets an option by name. The value is written as in a configuration file, in quotes if it
    /// needs them. An invalid value makes [`Builder::start`] fail.
    pub fn option(self, name: &str, value: &str) -> Self {
        match stdx::quoted::split_quoted(value.as_bytes()) {
            Some(words) => self.load(name, &words),
            None => self.refuse(name, "Unbalanced quotes".into()),
        }
    }

    fn load(mut self, name: &str, words: &[Vec<u8>]) -> Self {
        match self.store.load(name.as_bytes(), words) {
            Ok(()) => self,
            Err(reason) => self.refuse(name, reason.into_owned()),
        }
    }

    fn words<T: OptionType + ?Sized>(self, option: &Handle<T>, words: &[Vec<u8>]) -> Self {
        self.load(option.opt.name, words)
    }

    fn word<T: OptionType + ?Sized>(self, option: &Handle<T>, word: impl Into<Vec<u8>>) -> Self {
        self.words(option, &[word.into()])
    }

    fn refuse(mut self, name: &str, reason: String) -> Self {
        self.problem.get_or_insert(StartError::Option { name: name.to_owned(), reason });
        self
    }

    /// Sets the TCP port; 0 chooses a free port, which [`Server::port`] returns.
    pub fn port(mut self, port: u16) -> Self {
        self.zeros.plain = PortZero::AnyPort;
        self.word(&network::PORT, port.to_string())
    }

    /// Sets the TCP port for TLS; 0 chooses a free port, which [`Server::tls_port`] returns. The
    /// options `tls-cert-file` and `tls-key-file` name the certificate and its key.
    pub fn tls_port(mut self, port: u16) -> Self {
        self.zeros.tls = PortZero::AnyPort;
        self.word(&options::PORT, port.to_string())
    }

    /// Sets the addresses to listen on; an empty list turns the TCP listeners off.
    pub fn bind(self, addresses: &[IpAddr]) -> Self {
        let mut words: Vec<Vec<u8>> =
            addresses.iter().map(|address| address.to_string().into_bytes()).collect();
        if words.is_empty() {
            words.push(Vec::new());
        }
        self.words(&network::BIND, &words)
    }

    /// Sets the path of a Unix socket to listen on, and its permission bits. If `mode` is `None`,
    /// the umask decides about the bits.
    pub fn unix_socket(self, path: impl Into<PathBuf>, mode: Option<u32>) -> Self {
        let path = path.into().into_os_string().into_encoded_bytes();
        self.word(&network::UNIXSOCKET, path)
            .word(&network::UNIXSOCKETPERM, format!("{:o}", mode.unwrap_or(0)))
    }

    /// Sets the number of I/O threads; 0 counts as 1.
    pub fn io_threads(self, count: usize) -> Self {
        self.word(&network::IO_THREADS, count.max(1).to_string())
    }

    /// Sets the I/O backend, the interface to the kernel: io_uring or epoll.
    pub fn backend(self, backend: BackendChoice) -> Self {
        self.word(&network::IO_BACKEND, backend.word())
    }

    /// Sets the data folder, and loads its data at the start. Without this call, a builder with
    /// default options loads no data.
    pub fn data_folder(self, path: impl Into<PathBuf>) -> Self {
        let path = path.into().into_os_string().into_encoded_bytes();
        Self { found: Found::Loaded, ..self }.word(&persistence::DIR, path)
    }

    /// Sets the number of databases; 0 counts as 1.
    pub fn databases(self, count: usize) -> Self {
        self.word(&network::DATABASES, count.max(1).to_string())
    }

    /// Sets the name of the supervisor that started this process, for INFO.
    pub fn supervised_by(mut self, name: &'static str) -> Self {
        self.supervisor = Some(name);
        self
    }

    /// Restores the data to the time `time_s`, in Unix seconds, unless an earlier start has done
    /// so: see `persistence::restore`.
    pub fn restore_until(self, time_s: Option<i64>) -> Self {
        Self { restore_until_s: time_s, ..self }
    }

    /// Starts the server. When the function returns, the server accepts clients.
    pub fn start(mut self) -> Result<Server, StartError> {
        structures::alloc::configure();
        if let Some(problem) = self.problem {
            return Err(problem);
        }
        let start = apply::start_options(&self.store, self.zeros)?;
        fit_maxclients(&mut self.store, start.io_threads);
        let settings = apply::settings(&self.store);
        let options = LoopOptions {
            backend: start.backend,
            keepalive: (settings.clients.tcp_keepalive_s > 0)
                .then(|| std::time::Duration::from_secs(settings.clients.tcp_keepalive_s)),
            ..LoopOptions::default()
        };
        let tls = Tls::default();
        tls.follow_limits(&self.store);
        let encrypts = start.tls_port.is_some() || crate::tls::is_wanted(&self.store);
        let side = encrypts.then(|| tls.configure(&self.store)).transpose().map_err(StartError::Tls)?;
        let Listeners { all: listeners, port, tls_port } = listen(&start, side.as_ref())?;
        if let Some(port) = port {
            network::PORT.put(&mut self.store, port);
        }
        if let Some(port) = tls_port {
            options::PORT.put(&mut self.store, port);
        }
        let socket_file = listeners.iter().find_map(Listener::socket_file).cloned();
        let started = self.start_threads(start, settings, &options, (listeners, tls));
        if started.is_err()
            && let Some(Err(error)) = socket_file.map(|file| file.remove())
        {
            tracing::warn!(%error, "Cannot remove the file of the Unix socket");
        }
        started
    }

    /// Starts the threads of the server; thread 0 gets `listeners`, whose connections it accepts.
    fn start_threads(
        self,
        start: StartOptions,
        settings: Settings,
        options: &LoopOptions,
        (listeners, tls): (Vec<Listener>, Tls),
    ) -> Result<Server, StartError> {
        let metrics = listen_for_scrapes(&start)?;
        let is_written = !save_rules(&self.store).is_empty() || persistence::APPENDONLY.of(&self.store);
        let saves = self.found == Found::Loaded && is_written;
        let mut persistence = Persistence::new(unix_ms() / 1000);
        persistence.restore_until_s = self.restore_until_s;
        if saves && let Err(trouble) = persistence.lock_folder(&self.store) {
            return Err(StartError::Option { name: "dir".to_owned(), reason: trouble.to_string() });
        }
        SystemClock.calibrate();
        let (ready_sender, ready) = mpsc::channel();
        let (handout, mut threads) = (Handout::new(start.io_threads), Vec::new());
        for index in 0..start.io_threads {
            let (options, ready_sender, shared) =
                (options.clone(), ready_sender.clone(), handout.receiver(index));
            let body = move || thread_main(index, &options, &ready_sender, &shared);
            let thread = std::thread::Builder::new().name(format!("io-{index}")).spawn(body);
            threads.push(thread.map_err(StartError::Thread)?);
        }
        let mut ports: Vec<Option<(Mailbox<_>, Backend)>> = (0..start.io_threads).map(|_| None).collect();
        for _ in 0..start.io_threads {
            let (index, made) = ready.recv().expect("every thread reports before it ends");
            let made: Made = made.map_err(StartError::EventLoop)?;
            ports[index] = Some((made.mailbox, made.backend));
        }
        let backend = ports[0].as_ref().map_or(Backend::Epoll, |(_, backend)| *backend);
        let mailboxes = ports.into_iter().flatten().map(|(mailbox, _)| mailbox).collect();
        let socket_file = listeners.iter().find_map(Listener::socket_file).cloned();
        let listening = listeners.iter().map(Listening::of).collect();
        let loops = Loops { backend, mailboxes, listening };
        let (mut shared, handlers) = shared(self.store, settings, &start, loops);
        users::load_at_start(&shared.config(), &shared.engine).map_err(StartError::Users)?;
        shared.persistence = persistence;
        shared.tls = tls;
        let audit = open_audit(&shared.config())?;
        let oidc = Oidc::new(apply::oidc_options(&shared.config())).map_err(refused)?;
        (shared.audit, shared.oidc) = (Arc::new(audit), oidc.map(Arc::new));
        shared.supervisor = self.supervisor.unwrap_or("no");
        let shared = Arc::new(shared);
        shared.engine.startup_bytes.store(structures::alloc::used_memory_bytes() as u64, Relaxed);
        update_good_replicas(&shared, shared.uptime_ms());
        let host = ServerHost::new(Arc::clone(&shared), handlers);
        follow_configured(&host);
        if self.found == Found::Loaded {
            // This comes before the I/O threads can serve any client.
            let loading = load_at_start(&shared, crate::replicas::thread::start);
            threads.extend(loading.map_err(StartError::Thread)?);
        }
        open_link_at_start(&shared);
        handout.give(&host, listeners);
        let body = move || crate::housekeeper::run(&host, random_u64());
        let thread = std::thread::Builder::new().name("housekeeper".to_owned()).spawn(body);
        threads.push(thread.map_err(StartError::Thread)?);
        let aof_shared = Arc::clone(&shared);
        let body = move || crate::persistence::aof::run(&aof_shared);
        let thread = std::thread::Builder::new().name("aof".to_owned()).spawn(body);
        threads.push(thread.map_err(StartError::Thread)?);
        if !metrics.is_empty() {
            threads.push(metrics::start(metrics, Arc::clone(&shared)).map_err(StartError::Thread)?);
        }
        start_unjoined(&shared).map_err(StartError::Thread)?;
        Ok(Server { shared, threads, backend, socket_file })
    }
}

/// Starts the threads `oidc-keys` and `audit`, which may block on a web server or a file. A
/// stopping server does not wait for their end, except for the audit log for a limited time.
fn start_unjoined(shared: &Shared) -> io::Result<()> {
    if let Some(oidc) = shared.oidc.clone() {
        std::thread::Builder::new().name("oidc-keys".to_owned()).spawn(move || oidc::run(&oidc))?;
    }
    if shared.audit.is_on() {
        let audit = Arc::clone(&shared.audit);
        std::thread::Builder::new().name("audit".to_owned()).spawn(move || audit::run(&audit))?;
    }
    Ok(())
}

/// Opens the audit log that the option `audit-log-file` names.
fn open_audit(store: &ConfigStore) -> Result<Audit, StartError> {
    let path = security::AUDIT_LOG_FILE.of(store);
    let path = (!path.as_os_str().is_empty()).then_some(path);
    Audit::open(path).map_err(|error| refused(("audit-log-file", error.to_string())))
}

/// Creates the error for an option with which the server cannot start, from the option's name and
/// the reason.
fn refused((name, reason): (&'static str, String)) -> StartError {
    StartError::Option { name: name.to_owned(), reason }
}

/// Opens the listeners of the metrics endpoint; returns an empty list if the endpoint is off.
fn listen_for_scrapes(start: &StartOptions) -> Result<Vec<TcpListener>, StartError> {
    let Some(port) = start.metrics_port else { return Ok(Vec::new()) };
    let failed = |(address, error): (SocketAddr, io::Error)| StartError::Listen {
        place: Place::Metrics(port),
        address: address.to_string(),
        error,
    };
    retry_while_in_use(|| metrics::listen(&start.metrics_addresses, port).map_err(failed))
}

/// Raises the limit of open files so that it suffices for `maxclients`. If the system forbids that,
/// lowers `maxclients` to the possible number.
fn fit_maxclients(store: &mut ConfigStore, io_threads: usize) {
    let wanted = clients::MAXCLIENTS.of(store) as u64;
    let possible = limits::raise_open_files(wanted, io_threads);
    if possible < wanted {
        tracing::warn!(
            "The limit of open files permits {possible} clients and cannot be raised: maxclients is \
             {possible} instead of {wanted}."
        );
        clients::MAXCLIENTS.put(store, possible as usize);
    }
}

/// The parts of the shared state that come from the event loops and the listeners.
struct Loops {
    backend: Backend,
    /// The mailboxes of the I/O threads, in the order of the threads.
    mailboxes: Vec<Mailbox<Message>>,
    /// The addresses on which the server listens.
    listening: Vec<Listening>,
}

/// Creates the state that the threads share, and the table of handlers of this crate's commands.
fn shared(
    store: ConfigStore,
    settings: Settings,
    start: &StartOptions,
    loops: Loops,
) -> (Shared, Arc<[ServerHandler]>) {
    let (mut table, handlers) = crate::commands::table();
    for rename in store.renames().iter() {
        match table.find(rename.from.as_bytes()) {
            Some(_) => table.rename(&rename.from, &rename.to),
            None => tracing::warn!(
                "rename-command {}: this server has no such command, so the line has no effect",
                rename.from
            ),
        }
    }
    let engine = engine::Shared::new(engine::shared::Start {
        threads: start.io_threads,
        databases: start.databases,
        table,
        settings,
        seed: std::array::from_fn(|_| random_u64()),
        now: Instant::now(),
    });
    let shared = Shared {
        engine,
        ports: loops
            .mailboxes
            .into_iter()
            .map(|mailbox| Port { mailbox, tid: 0.into(), reply_waits: ReplyWaits::default() })
            .collect(),
        config: store.into(),
        samples: Samples::default(),
        started_unix_s: unix_ms() / 1000,
        run_id: random_repl_id().to_string(),
        supervisor: "no",
        replication: Arc::new(Replication::new(random_repl_id())),
        migrations: ConnectionPool::default(),
        persistence: Persistence::new(unix_ms() / 1000),
        append_only: Arc::default(),
        script_cache: ScriptCache::default(),
        functions: Functions::default(),
        debuggers: Debuggers::default(),
        backend: loops.backend,
        listening: loops.listening.into(),
        tls: Tls::default(),
        shutdown_request: ShutdownRequest::default(),
        stopping: false.into(),
        switched_off: SwitchedOff::default(),
        rejected_connections: 0.into(),
        audit: Arc::default(),
        login_delays: LoginDelays::default(),
        oidc: None,
    };
    (shared, handlers)
}

/// The report of an I/O thread that has created its event loop: its mailbox and its backend.
struct Made {
    mailbox: Mailbox<Message>,
    backend: Backend,
}

/// The data that an I/O thread needs to begin its work: its handle on the state that all threads
/// share, and the listeners whose connections it accepts.
type Start = (ServerHost, Vec<Listener>);

/// The channels on which the I/O threads wait for the state that they share. The threads start
/// first: each event loop must be created on its own thread. The shared state contains the wakers
/// of all event loops.
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

    /// Sends the state that all threads share to each I/O thread. Thread 0 gets the listeners: it
    /// accepts for all.
    fn give(&self, host: &ServerHost, listeners: Vec<Listener>) {
        let mut listeners = Some(listeners);
        for sender in &self.senders {
            // Sending fails only if the thread has ended, and then it has reported the reason.
            let _ = sender.send((host.clone(), listeners.take().unwrap_or_default()));
        }
    }
}

fn thread_main(
    index: usize,
    options: &LoopOptions,
    ready: &mpsc::Sender<(usize, io::Result<Made>)>,
    start: &mpsc::Receiver<Start>,
) {
    let net = match EventLoop::new(options) {
        Ok(net) => net,
        Err(error) => {
            // The builder receives this report and then fails.
            let _ = ready.send((index, Err(error)));
            return;
        }
    };
    if let Some(reason) = net.fallback_reason().filter(|_| index == 0) {
        tracing::info!(reason, "io_uring cannot be used: using epoll instead");
    }
    let waker = net.waker();
    let wake = move || {
        if let Err(error) = waker.wake() {
            tracing::error!(%error, "cannot wake an I/O thread");
        }
    };
    let made = Made { mailbox: Mailbox::new(MAILBOX_MESSAGES_MAX, wake), backend: net.backend() };
    let _ = ready.send((index, Ok(made)));
    // If no shared state arrives, the start has failed.
    let Ok((host, listeners)) = start.recv() else { return };
    let shared = host.shared();
    // Relaxed: a reader that still sees 0 shows no CPU time for this thread.
    shared.ports[index].tid.store(rustix::thread::gettid().as_raw_nonzero().get(), Relaxed);
    let mut worker = Worker::new(net, &host, index, random_u64());
    for listener in listeners {
        if let Err(error) = worker.listen(listener) {
            tracing::error!(%error, "listening failed");
            shared.stop();
        }
    }
    if let Err(error) = worker.run() {
        tracing::error!(%error, thread = index, "an event loop failed; stopping");
        shared.stop();
    }
}

/// A running server. The server stops when this value is dropped.
pub struct Server {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    backend: Backend,
    socket_file: Option<SocketFile>,
}

impl Server {
    /// Creates a builder with the default options.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Returns the TCP port; 0 if the server has no TCP listener.
    pub fn port(&self) -> u16 {
        self.shared.tcp_port()
    }

    /// Returns the TCP port for TLS; 0 if the server has no TLS listener.
    pub fn tls_port(&self) -> u16 {
        self.shared.tls_port()
    }

    /// Returns the I/O backend in use: io_uring or epoll.
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// Returns the file of the Unix socket; `None` if the server has none. The file stays after the
    /// server stops, unless the caller removes it.
    pub fn socket_file(&self) -> Option<&SocketFile> {
        self.socket_file.as_ref()
    }

    /// Returns the state that the server's threads share.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Stops the server and waits until all its threads have ended.
    pub fn stop(mut self) {
        self.stop_threads();
    }

    /// Waits until SHUTDOWN, a signal or another thread has stopped the server.
    pub fn wait(mut self) {
        for thread in self.threads.drain(..) {
            join(thread);
        }
        self.stop_threads();
    }

    fn stop_threads(&mut self) {
        self.shared.stop();
        self.shared.persistence.cancel(&self.shared.engine);
        for thread in self.threads.drain(..) {
            join(thread);
        }
        crate::primary_link::thread::join(&self.shared);
        self.shared.replication.join();
        crate::persistence::wait_for_end(&self.shared);
        if self.shared.audit.is_on() {
            // The audit log ends last, because the other threads may write events until they have
            // ended.
            self.shared.audit.end();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop_threads();
    }
}

/// Makes the server a replica if the configuration names a primary. The connection to the primary
/// opens once the server's own data is loaded.
fn follow_configured(host: &ServerHost) {
    crate::primary_link::thread::prepare(host, |shared| Box::new(ThreadScripts::new(shared)));
    follow_at_start(host.shared());
}

fn join(thread: JoinHandle<()>) {
    if thread.join().is_err() {
        tracing::error!("a thread of the server panicked");
    }
}
