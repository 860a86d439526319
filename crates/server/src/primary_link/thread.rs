//! The thread `primary-link`: it opens the link of a replica to its primary, applies the
//! replication stream, and opens the link again when it has ended. It runs from the first REPLICAOF
//! on.

use std::net::ToSocketAddrs as _;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::{Duration, Instant};

use engine::client::ClientInfo;
use engine::scripting::ScriptEngine;
use net::{Address, BackendChoice, EventLoop, LoopOptions, TlsClient};
use replicate::failover::{Ask, Asked};
use replicate::history::ReplId;
use replicate::link::handshake::{ANNOUNCED_VERSION, LinkHandshake, LinkOptions, Next};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use stdx::mailbox::Mailbox;

use super::connection::{Connection, LinkEnd, Parts};
use super::engine_role::update_engine;
use super::{failover, full_sync, stream};
use crate::config::table::{network, replication as options, tls};
use crate::context::ServerHost;
use crate::persistence::primary_snapshot::accept_empty;
use crate::replication::upstream::{LinkMessage, LinkPhase, PrimaryAddress};
use crate::shared::Shared;

/// The capacity of the mailbox of the thread `primary-link`, in messages.
const MESSAGES_MAX: usize = 64;
/// The time between two attempts to open the link to the primary, if the link was not up before.
const RETRY: Duration = Duration::from_secs(1);
/// The time between two checks whether the server has loaded its own data at the start.
const LOADING_TICK: Duration = Duration::from_millis(20);
/// The longest sleep of the thread `primary-link` while the server is a primary.
const IDLE: Duration = Duration::from_secs(1);

/// The function that creates a script engine for the applier of a replication stream, because old
/// primaries send scripts.
pub type MakeScripts = fn(&Arc<Shared>) -> Box<dyn ScriptEngine>;

/// Stores the function that starts the thread `primary-link`; the first REPLICAOF calls it.
pub fn prepare(host: &ServerHost, make_scripts: MakeScripts) {
    let (host, upstream) = (host.clone(), &host.shared().replication.upstream);
    let starter = move || {
        let body = move || match EventLoop::new(&loop_options()) {
            Ok(net) => LinkThread::new(host, net, make_scripts).run(),
            Err(error) => tracing::error!(%error, "cannot follow the primary"),
        };
        std::thread::Builder::new().name("primary-link".to_owned()).spawn(body)
    };
    *upstream.starter.lock().expect("nothing panics while it is locked") = Some(Box::new(starter));
}

/// Waits until the thread `primary-link` has ended, while the server stops.
pub fn join(shared: &Shared) {
    let upstream = &shared.replication.upstream;
    upstream.wake();
    // The function is dropped, because it keeps the state of the server alive.
    drop(upstream.starter.lock().expect("nothing panics while it is locked").take());
    let thread = upstream.thread.lock().expect("nothing panics while it is locked").take();
    if let Some(thread) = thread
        && thread.join().is_err()
    {
        tracing::error!("the thread that follows the primary panicked");
    }
}

/// Returns the options of the event loop of the thread `primary-link`, which has only one
/// connection.
fn loop_options() -> LoopOptions {
    LoopOptions {
        backend: BackendChoice::Epoll,
        turn_input_len_bytes_max: 1 << 20,
        gather_us_max: 0,
        // What a primary has sent before its end is applied.
        keeps_half_closed: true,
        ..LoopOptions::default()
    }
}

/// The state of the thread `primary-link`, which opens the link to the primary again and again.
struct LinkThread {
    host: ServerHost,
    net: EventLoop,
    mailbox: Arc<Mailbox<LinkMessage>>,
    make_scripts: MakeScripts,
}

impl LinkThread {
    fn new(host: ServerHost, net: EventLoop, make_scripts: MakeScripts) -> Self {
        let waker = net.waker();
        // A failed wake-up leaves the thread asleep until its next look.
        let mailbox = Arc::new(Mailbox::new(MESSAGES_MAX, move || drop(waker.wake())));
        let upstream = &host.shared().replication.upstream;
        *upstream.mailbox.lock().expect("nothing panics while it is locked") = Some(Arc::clone(&mailbox));
        Self { host, net, mailbox, make_scripts }
    }

    fn run(mut self) {
        let shared = Arc::clone(self.host.shared());
        let upstream = &shared.replication.upstream;
        while !shared.stopping.load(Acquire) {
            let epoch = upstream.epoch();
            let primary = upstream.link().as_ref().map(|link| link.primary.clone());
            // At the start, the server first loads its own data.
            let is_loading = shared.engine.server_state.is_loading.load(Relaxed);
            let Some(primary) = primary.filter(|_| !is_loading) else {
                if !is_loading && !upstream.is_replica() && shared.persistence.is_incomplete.load(Relaxed) {
                    // A primary's snapshot could not be loaded, and this server is a primary now.
                    accept_empty(&shared);
                }
                self.sleep(if is_loading { LOADING_TICK } else { IDLE }, epoch);
                continue;
            };
            let end = self.follow(&primary, epoch);
            let lasted = self.note_end(&shared, end, epoch);
            if !lasted {
                self.sleep(RETRY, epoch);
            }
        }
    }

    /// Sleeps for `time`, or until the primary was changed since `epoch` or the server stops.
    fn sleep(&mut self, time: Duration, epoch: u64) {
        let (until, mut events) = (Instant::now() + time, Vec::new());
        let shared = Arc::clone(self.host.shared());
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let is_over = shared.replication.upstream.epoch() != epoch || shared.stopping.load(Acquire);
            if left.is_zero() || is_over {
                return;
            }
            let wait = if self.mailbox.prepare_sleep() { left } else { Duration::ZERO };
            let polled = self.net.poll(Some(wait), &mut events);
            self.mailbox.awake();
            events.clear();
            while self.mailbox.receive().is_some() {}
            if let Err(error) = polled {
                tracing::error!(%error, "the event loop of the link to the primary failed");
                std::thread::sleep(left);
            }
        }
    }

    /// Records the end `end` of the link to the primary with this epoch. Returns true if the
    /// replication stream was being applied; then the thread opens the link again at once.
    fn note_end(&self, shared: &Arc<Shared>, end: LinkEnd, epoch: u64) -> bool {
        let upstream = &shared.replication.upstream;
        let now_ms = shared.uptime_ms();
        let mut link = upstream.link();
        let Some(state) = link.as_mut().filter(|_| upstream.epoch() == epoch) else { return false };
        let was_up = state.phase == LinkPhase::Connected;
        if was_up {
            state.down_since_ms = Some(now_ms);
        }
        (state.phase, state.transfer) = (LinkPhase::Connect, None);
        let client = state.client.take();
        let is_new = match end {
            LinkEnd::Superseded => None,
            LinkEnd::Failed(text) => {
                let is_new = state.last_error != text;
                state.last_error.clone_from(&text);
                is_new.then_some(text)
            }
        };
        drop(link);
        client.map(|client| shared.engine.clients.remove(client));
        update_engine(shared);
        if let Some(text) = is_new {
            tracing::warn!("{text}");
        }
        was_up
    }

    /// Opens a link to `primary` and applies the replication stream, until the link ends. Returns
    /// the reason for its end.
    fn follow(&mut self, primary: &PrimaryAddress, epoch: u64) -> LinkEnd {
        match self.try_follow(primary, epoch) {
            Ok(end) | Err(end) => end,
        }
    }

    fn try_follow(&mut self, primary: &PrimaryAddress, epoch: u64) -> Result<LinkEnd, LinkEnd> {
        let shared = Arc::clone(self.host.shared());
        let PrimaryAddress { host, port } = primary;
        set_phase(&shared, epoch, LinkPhase::Connecting);
        tracing::info!("Connecting to MASTER {host}:{port}");
        let unable = |reason: &dyn std::fmt::Display| {
            LinkEnd::Failed(format!("Unable to connect to MASTER: {reason}"))
        };
        let mut addresses = (&**host, *port).to_socket_addrs().map_err(|error| unable(&error))?.peekable();
        let tls = tls_client(&shared, host)?;
        tracing::info!("MASTER <-> REPLICA sync started");
        let mut connection = loop {
            let Some(address) = addresses.next() else { return Err(unable(&"the host has no address")) };
            let parts = Parts { shared: &shared, net: &mut self.net, mailbox: &self.mailbox };
            match Connection::open(parts, &Address::Tcp(address), tls.clone(), epoch) {
                Ok(connection) => break connection,
                // A name may have addresses at which the primary does not listen.
                Err(LinkEnd::Failed(_)) if addresses.peek().is_some() => {}
                Err(end) => return Err(end),
            }
        };
        tracing::info!("Non blocking connect for SYNC fired the event.");
        set_phase(&shared, epoch, LinkPhase::Handshake);
        let info = register(&shared, &connection, epoch);
        connection.set_timeout_text("Timeout connecting to the MASTER...");
        let ask = shared.replication.failover.lock().ask();
        let options = link_options(&shared, ask);
        let asked = options.resume.is_some();
        match shake_hands(&mut connection, (options, ask), epoch)? {
            Next::Continue { id } => {
                tracing::info!("Successful partial resynchronization with master.");
                continue_as(&shared, epoch, id)?;
                shared.replication.notify();
                tracing::info!("MASTER <-> REPLICA sync: Master accepted a Partial Resynchronization.");
            }
            Next::Full { id, offset } => {
                if asked {
                    tracing::info!("Discarding previously cached master state.");
                }
                tracing::info!("Full resync from master: {id}:{offset}");
                end_failover(&shared, epoch);
                set_phase(&shared, epoch, LinkPhase::Transfer);
                connection.set_timeout_text(
                    "Timeout receiving bulk data from MASTER... If the problem persists try to set the \
                     'repl-timeout' parameter in redis.conf to a larger value.",
                );
                full_sync::replace_data(&mut connection, epoch, (id, offset))?;
            }
            Next::Send(_) | Next::Await | Next::Failed(_) => unreachable!("the handshake has ended"),
        }
        connection.set_timeout_text("MASTER timeout: no data nor PING received...");
        connection.restart_timeout();
        connection.update(|link| {
            (link.phase, link.transfer) = (LinkPhase::Connected, None);
            link.down_since_ms = None;
            link.last_error.clear();
        });
        update_engine(&shared);
        let scripts = (self.make_scripts)(&shared);
        Ok(stream::follow(&mut connection, &self.host, (info, epoch), scripts))
    }
}

/// Continues with the replication history of the primary after `+CONTINUE`, whose new ID is `id` if
/// there is one.
fn continue_as(shared: &Shared, epoch: u64, id: Option<ReplId>) -> Result<(), LinkEnd> {
    // The role does not change meanwhile: a new primary keeps its own ID.
    shared.engine.gate.exclusive(|alone| {
        if shared.replication.upstream.epoch() != epoch {
            return Err(LinkEnd::Superseded);
        }
        let mut primary = shared.replication.primary();
        if primary.continue_as(id) {
            tracing::info!("Master replication ID changed to {}", primary.history().id);
        }
        drop(primary);
        failover::succeed(shared, alone);
        Ok(())
    })
}

/// Ends the failover with success if this link is its link to the target: the target sends a
/// snapshot, so it is the primary.
fn end_failover(shared: &Shared, epoch: u64) {
    shared.engine.gate.exclusive(|alone| {
        if shared.replication.upstream.epoch() == epoch {
            failover::succeed(shared, alone);
        }
    });
}

/// Performs the handshake with the primary. Returns its last step: a full or a partial
/// synchronisation.
fn shake_hands(
    connection: &mut Connection<'_>,
    (options, ask): (LinkOptions, Ask),
    epoch: u64,
) -> Result<Next, LinkEnd> {
    let mut handshake = LinkHandshake::new(options);
    // A target that refuses the login before a request to take over is still a replica.
    let mut refusable = (ask == Ask::Failover(Asked::Once)).then_some(Asked::Once);
    connection.send(&handshake.begin());
    loop {
        let line = connection.line()?;
        let next = handshake.line(&line);
        handshake.take_notes().iter().for_each(|note| tracing::warn!("{note}"));
        match next {
            Next::Send(bytes) => {
                if let Ask::Failover(asked) = ask
                    && handshake.has_asked()
                {
                    connection.shared.replication.failover.lock().note_asked();
                    refusable = Some(asked);
                }
                connection.send(&bytes);
            }
            Next::Await => {}
            Next::Failed(error) => {
                return Err(match refusable {
                    Some(asked) => failover::refused(connection.shared, epoch, error, asked),
                    None => error.into(),
                });
            }
            end @ (Next::Full { .. } | Next::Continue { .. }) => return Ok(end),
        }
    }
}

/// Returns the options of the handshake: the announced properties, and the kind of PSYNC.
fn link_options(shared: &Shared, ask: Ask) -> LinkOptions {
    let resume = shared.replication.primary().resume_point();
    let store = shared.config();
    let text = |bytes: &[u8]| (!bytes.is_empty()).then(|| bytes.to_vec());
    let port = options::REPLICA_ANNOUNCE_PORT.of(&store);
    let own_port = if tls::REPLICATION.of(&store) { tls::PORT.of(&store) } else { network::PORT.of(&store) };
    LinkOptions {
        user: text(options::PRIMARYUSER.of(&store)),
        password: text(options::PRIMARYAUTH.of(&store)),
        listening_port: if port > 0 { port } else { own_port },
        announced_ip: text(options::REPLICA_ANNOUNCE_IP.of(&store))
            .map(|ip| String::from_utf8_lossy(&ip).into_owned()),
        version: Some(ANNOUNCED_VERSION),
        resume,
        is_failover: ask != Ask::Usual,
    }
}

/// Returns the client's side of TLS for the host `host`, if `tls-replication` is on; otherwise
/// `None`.
fn tls_client(shared: &Shared, host: &str) -> Result<Option<TlsClient>, LinkEnd> {
    if !tls::REPLICATION.of(&shared.config()) {
        return Ok(None);
    }
    let Some(config) = shared.tls.primary() else {
        return Err(LinkEnd::Failed("Unable to connect to MASTER: TLS is not configured".to_owned()));
    };
    match ServerName::try_from(host.to_owned()) {
        Ok(name) => Ok(Some(TlsClient::new(ClientConfig::clone(&config), name))),
        Err(error) => Err(LinkEnd::Failed(format!("Unable to connect to MASTER: {error}"))),
    }
}

/// Registers the client that represents the primary in CLIENT LIST, and returns it.
fn register(shared: &Shared, connection: &Connection<'_>, epoch: u64) -> Arc<ClientInfo> {
    let (fd, addresses) = connection.place();
    let unknown = || Address::Tcp(([0, 0, 0, 0], 0).into());
    let addresses = addresses.unwrap_or_else(|| (unknown(), unknown()));
    let id = shared.engine.clients.next_id();
    let info = Arc::new(ClientInfo::of_primary(id, fd, addresses, shared.uptime_ms()));
    let upstream = &shared.replication.upstream;
    shared.engine.clients.add(Arc::clone(&info));
    let is_current = match upstream.link().as_mut().filter(|_| upstream.epoch() == epoch) {
        Some(link) => {
            link.client = Some(id);
            true
        }
        None => false,
    };
    if !is_current {
        shared.engine.clients.remove(id);
    }
    info
}

fn set_phase(shared: &Arc<Shared>, epoch: u64, phase: LinkPhase) {
    let upstream = &shared.replication.upstream;
    if let Some(link) = upstream.link().as_mut().filter(|_| upstream.epoch() == epoch) {
        link.phase = phase;
    }
    update_engine(shared);
}
