//! A link simulator: a thread of this process forwards bytes and delays them by half of a round
//! trip in each direction. It is used if the kernel has no netem or the process may not use it.
//!
//! ```text
//!                     ┌──────────── relay (one thread, one event loop) ────────────┐
//!   load generator ───┤ client end ──► lane: Open Bytes Bytes Finish ──► server end├─── engine
//!                     │            ◄── lane:       Bytes Reset      ◄──            │
//!                     └────────────────────────────────────────────────────────────┘
//! ```
//! A lane is one direction of the link, for all connections. It is a queue of packets in order of
//! arrival, each with its time of delivery. As the delay is the same for all, this is also the
//! order of delivery, so bytes cannot overtake each other. With a rate limit, a packet also waits
//! until the packets before it have been sent.
//!
//! Events of a connection are delayed like bytes: opening, the end of sending (the other direction
//! stays open) and a reset. The only exception is the TCP handshake of the client: `connect`
//! succeeds at once, and the bytes after it arrive half a round trip later.
//!
//! Memory: each direction of a connection holds at most [`WINDOW_LEN_BYTES`] plus the bytes
//! received in one turn, in the lane and unsent together. Then the relay stops receiving from that
//! side until half of the window is free. The sender's own socket fills up, as with a slow link.
//!
//! The relay needs some CPU time. It is counted separately ([`Relay::cpu`]) and belongs neither to
//! the server nor to the threads of the load generator.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use net::{
    Address, BackendChoice, CloseReason, ConnId, Event, EventLoop, Listener, LoopOptions, Socket, Waker,
};
use rustix::net::sockopt::set_socket_linger;
use rustix::time::{ClockId, clock_gettime};

/// The maximum number of bytes in transit in one direction of a connection. When it is reached, the
/// relay stops receiving from the sender, like a full window of a TCP connection.
const WINDOW_LEN_BYTES: usize = 1024 * 1024;
/// The maximum number of clients whose connections wait until the relay accepts them.
const BACKLOG: u32 = 4096;

/// The properties of a link that a relay simulates: delay and rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// The delay of a byte from one side to the other, without the wait of a rate limit.
    pub one_way: Duration,
    /// The rate in each direction, in bytes per second for all connections together; `None` for no
    /// limit.
    pub bytes_per_second: Option<f64>,
}

/// A relay to one server. Dropping it ends its thread and breaks its connections.
pub struct Relay {
    address: SocketAddr,
    shared: Arc<Shared>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

/// The state that a [`Relay`] shares with its thread.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    cpu_ns: AtomicU64,
}

impl Relay {
    /// Starts a relay to `server` on a free port of the loopback interface.
    pub fn start(server: SocketAddr, shape: Shape) -> io::Result<Self> {
        let listener = Listener::tcp((Ipv4Addr::LOCALHOST, 0).into(), BACKLOG)?;
        let Address::Tcp(address) = *listener.local_address() else {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        };
        let shared = Arc::new(Shared::default());
        let (ready, readiness) = std::sync::mpsc::channel();
        let thread = {
            let shared = Arc::clone(&shared);
            // The event loop is created in its thread, because it makes the timers of that thread
            // precise.
            thread::Builder::new().name("link".to_owned()).spawn(move || {
                match Line::new(listener, server, shape, shared) {
                    Ok(mut line) => {
                        // Cannot fail: the owner waits for this message.
                        let _ = ready.send(Ok(line.net.waker()));
                        line.run();
                    }
                    Err(error) => {
                        let _ = ready.send(Err(error));
                    }
                }
            })?
        };
        let waker = readiness.recv().map_err(|_| io::Error::other("the thread of the link has ended"))??;
        Ok(Self { address, shared, waker, thread: Some(thread) })
    }

    /// Returns the address of the relay, to which clients connect instead of the server.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the CPU time that the thread of the relay has used so far, user and system.
    pub fn cpu(&self) -> Duration {
        // Relaxed: no other data depends on this figure.
        Duration::from_nanos(self.shared.cpu_ns.load(Relaxed))
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // Relaxed: the wake-up that follows is a system call, and no other data is read with the
        // flag.
        self.shared.stop.store(true, Relaxed);
        // Fails only if the event loop has already ended.
        let _ = self.waker.wake();
        if let Some(thread) = self.thread.take() {
            // A panic has already been printed, and the connections are closed.
            let _ = thread.join();
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Client,
    Server,
}

impl Side {
    fn other(self) -> Self {
        match self {
            Side::Client => Side::Server,
            Side::Server => Side::Client,
        }
    }
}

/// The packets in transit in one direction of the link, for all connections.
#[derive(Default)]
struct Lane {
    packets: VecDeque<Packet>,
    /// The time from which the link can send the next packet in this direction, in nanoseconds: all
    /// packets before it have been sent. Only a rate limit makes a packet wait for this time.
    free_ns: u64,
}

/// A packet in transit through the simulated link: its content, its connection and its time of
/// delivery.
struct Packet {
    out_ns: u64,
    pair: u64,
    cargo: Payload,
}

/// The content of a packet in transit: bytes, or an event of the connection.
enum Payload {
    /// The client has connected: the relay must connect to the server.
    Open,
    Bytes(Vec<u8>),
    /// The sender has shut down its sending side, and may still receive: the relay must do the same
    /// toward the receiver.
    Finish,
    /// The sender has closed or broken its connection: the relay must break the connection to the
    /// receiver.
    Reset,
}

/// A connection through the relay: its end toward the client, and its end toward the server after
/// that is opened.
#[derive(Default)]
struct Pair {
    ends: [End; 2],
}

/// One end of a relayed connection, toward the client or toward the server.
#[derive(Default)]
struct End {
    /// The connection in the event loop; absent before it is opened and after it is closed.
    conn: Option<ConnId>,
    /// The number of bytes in transit to this end, not yet delivered.
    on_its_way_len_bytes: usize,
    /// True while the relay does not receive from this end, because too many bytes from it are in
    /// transit.
    is_held_back: bool,
    /// True if the client or server at this end has shut down its sending side.
    has_finished: bool,
    /// True if the relay has delivered the `Finish` of the other end to this end.
    is_finished: bool,
}

/// The state of the relay's thread: its event loop, its connections and the packets in transit.
struct Line {
    net: EventLoop,
    server: SocketAddr,
    one_way_ns: u64,
    ns_per_byte: f64,
    epoch: Instant,
    shared: Arc<Shared>,
    /// The packets in transit in each of the two directions, indexed by the side that receives
    /// them.
    lanes: [Lane; 2],
    pairs: HashMap<u64, Pair>,
    next_pair: u64,
    /// The connection pair and the side to which each connection of the event loop belongs.
    conns: HashMap<ConnId, (u64, Side)>,
    /// The ends to which bytes were delivered in this turn of the event loop.
    served: Vec<(u64, Side)>,
    /// The connections whose sending side must be shut down as soon as their output buffer is
    /// empty.
    to_shut: Vec<ConnId>,
}

impl Line {
    fn new(listener: Listener, server: SocketAddr, shape: Shape, shared: Arc<Shared>) -> io::Result<Self> {
        let options = LoopOptions {
            // The epoll backend sleeps with microsecond precision.
            backend: BackendChoice::Epoll,
            gather_us_max: 0,
            keeps_half_closed: true,
            ..LoopOptions::default()
        };
        let mut net = EventLoop::new(&options)?;
        net.add_listener(listener)?;
        Ok(Self {
            net,
            server,
            one_way_ns: u64::try_from(shape.one_way.as_nanos()).unwrap_or(u64::MAX),
            ns_per_byte: shape.bytes_per_second.map_or(0.0, |rate| 1e9 / rate),
            epoch: Instant::now(),
            shared,
            lanes: Default::default(),
            pairs: HashMap::new(),
            next_pair: 0,
            conns: HashMap::new(),
            served: Vec::new(),
            to_shut: Vec::new(),
        })
    }

    fn now_ns(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    fn run(&mut self) {
        let mut events = Vec::new();
        loop {
            let next_ns = self.lanes.iter().filter_map(|lane| Some(lane.packets.front()?.out_ns)).min();
            let timeout = next_ns.map(|out_ns| Duration::from_nanos(out_ns.saturating_sub(self.now_ns())));
            // If the event loop fails, clients see closed connections and report them.
            if self.net.poll(timeout, &mut events).is_err() || self.shared.stop.load(Relaxed) {
                return;
            }
            let now_ns = self.now_ns();
            for event in events.drain(..) {
                self.handle(event, now_ns);
            }
            self.deliver();
            self.net.flush();
            // The event loop reports no Drained event for output that a flush sends completely.
            for (pair, side) in std::mem::take(&mut self.served) {
                self.resume_sender(pair, side);
            }
            self.shutdown_flushed();
            let cpu = clock_gettime(ClockId::ThreadCPUTime);
            self.shared.cpu_ns.store(cpu.tv_sec as u64 * 1_000_000_000 + cpu.tv_nsec as u64, Relaxed);
        }
    }

    fn handle(&mut self, event: Event, now_ns: u64) {
        match event {
            Event::Accepted { socket, .. } => self.open_client(socket, now_ns),
            Event::Data(conn) => self.receive(conn, now_ns),
            Event::PeerFinished(conn) => {
                let Some((pair, side)) = self.place(conn) else { return };
                self.send(pair, side.other(), Payload::Finish, now_ns);
                let end = self.end_mut(pair, side);
                end.has_finished = true;
                if end.is_finished {
                    self.net.close_after_flush(conn);
                }
            }
            Event::Drained(conn) => {
                if let Some((pair, side)) = self.place(conn) {
                    self.resume_sender(pair, side);
                }
            }
            Event::Closed(conn, reason) => {
                let Some((pair, side)) = self.place(conn) else { return };
                self.forget(conn);
                if reason != CloseReason::Flushed {
                    self.send(pair, side.other(), Payload::Reset, now_ns);
                }
            }
            // A client that cannot be accepted waits until its own timeout. The relay sees no TLS
            // handshakes: encryption is between the client and the server.
            Event::AcceptFailed { .. } | Event::Woken | Event::Secured(_) | Event::HandshakeFailed(..) => {}
            // The relay moves no connection, and adopts the sockets that it connects.
            Event::Released(..) | Event::Connected(_) | Event::ConnectFailed(..) => {}
        }
    }

    fn place(&self, conn: ConnId) -> Option<(u64, Side)> {
        self.conns.get(&conn).copied()
    }

    fn end_mut(&mut self, pair: u64, side: Side) -> &mut End {
        &mut self.pairs.get_mut(&pair).expect("a pair stays while one of its ends does").ends[side as usize]
    }

    fn open_client(&mut self, socket: Socket, now_ns: u64) {
        // If the event loop rejects the socket, the socket is closed, and the client reports that.
        let Ok(conn) = self.net.adopt(socket) else { return };
        let pair = self.next_pair;
        self.next_pair += 1;
        self.pairs.insert(pair, Pair::default());
        self.keep(pair, Side::Client, conn);
        self.send(pair, Side::Server, Payload::Open, now_ns);
    }

    fn keep(&mut self, pair: u64, side: Side, conn: ConnId) {
        self.conns.insert(conn, (pair, side));
        self.end_mut(pair, side).conn = Some(conn);
    }

    /// Adds `cargo` of connection `pair` to the packets in transit to `side`, and computes its time
    /// of delivery.
    fn send(&mut self, pair: u64, side: Side, cargo: Payload, now_ns: u64) {
        let len_bytes = if let Payload::Bytes(bytes) = &cargo { bytes.len() } else { 0 };
        let lane = &mut self.lanes[side as usize];
        lane.free_ns = lane.free_ns.max(now_ns) + (len_bytes as f64 * self.ns_per_byte) as u64;
        let out_ns = lane.free_ns.saturating_add(self.one_way_ns);
        lane.packets.push_back(Packet { out_ns, pair, cargo });
    }

    /// Moves the bytes that arrived on `conn` to the packets in transit to the other side. Pauses
    /// the input of `conn` if the window is full.
    fn receive(&mut self, conn: ConnId, now_ns: u64) {
        let Some((pair, side)) = self.place(conn) else { return };
        let bytes = self.net.inputs().bytes(conn).to_vec();
        self.net.consume(conn, bytes.len());
        let there = self.end_mut(pair, side.other());
        there.on_its_way_len_bytes += bytes.len();
        self.send(pair, side.other(), Payload::Bytes(bytes), now_ns);
        if self.held_len_bytes(pair, side.other()) >= WINDOW_LEN_BYTES {
            self.end_mut(pair, side).is_held_back = true;
            self.net.pause_input(conn);
        }
    }

    /// Returns the number of bytes of connection `pair` in transit to `side`, together with those
    /// in the output buffer of the connection at `side`.
    fn held_len_bytes(&mut self, pair: u64, side: Side) -> usize {
        let end = self.end_mut(pair, side);
        let (conn, on_its_way) = (end.conn, end.on_its_way_len_bytes);
        on_its_way + conn.map_or(0, |conn| self.net.split().1.len_bytes(conn))
    }

    /// Lets the relay receive again from the end opposite `side`, when at most half of the window
    /// to `side` is in use.
    fn resume_sender(&mut self, pair: u64, side: Side) {
        if !self.pairs.contains_key(&pair) {
            return;
        }
        let held = self.held_len_bytes(pair, side);
        let sender = self.end_mut(pair, side.other());
        if sender.is_held_back && held <= WINDOW_LEN_BYTES / 2 {
            sender.is_held_back = false;
            if let Some(conn) = sender.conn {
                self.net.resume_input(conn);
            }
        }
    }

    /// Delivers the packets in transit whose time of delivery has come.
    fn deliver(&mut self) {
        let now_ns = self.now_ns();
        for side in [Side::Client, Side::Server] {
            loop {
                let packets = &mut self.lanes[side as usize].packets;
                if packets.front().is_none_or(|packet| packet.out_ns > now_ns) {
                    break;
                }
                if let Some(packet) = packets.pop_front() {
                    self.hand_over(packet, side, now_ns);
                }
            }
        }
    }

    fn hand_over(&mut self, packet: Packet, side: Side, now_ns: u64) {
        let Packet { pair, cargo, .. } = packet;
        if !self.pairs.contains_key(&pair) {
            return;
        }
        let conn = self.end_mut(pair, side).conn;
        match (cargo, conn) {
            (Payload::Open, _) => {
                match Socket::connect(self.server).and_then(|socket| self.net.adopt(socket)) {
                    Ok(conn) => self.keep(pair, side, conn),
                    Err(_) => self.send(pair, side.other(), Payload::Reset, now_ns),
                }
            }
            (Payload::Bytes(bytes), conn) => {
                self.end_mut(pair, side).on_its_way_len_bytes -= bytes.len();
                if let Some(conn) = conn {
                    self.net.output(conn).tail_mut().extend_from_slice(&bytes);
                    self.served.push((pair, side));
                }
            }
            (Payload::Finish, Some(conn)) => {
                let end = self.end_mut(pair, side);
                end.is_finished = true;
                if end.has_finished {
                    self.net.close_after_flush(conn);
                } else {
                    self.to_shut.push(conn);
                }
            }
            (Payload::Reset, Some(conn)) => {
                if let Some(fd) = self.net.fd(conn) {
                    // A linger time of zero makes the close a reset. If it fails, the close is a
                    // normal one.
                    let _ = set_socket_linger(fd, Some(Duration::ZERO));
                }
                self.net.close(conn);
                self.forget(conn);
            }
            (Payload::Finish | Payload::Reset, None) => {}
        }
    }

    /// Shuts down the sending side of each connection in `to_shut` whose output buffer is empty.
    fn shutdown_flushed(&mut self) {
        let net = &mut self.net;
        self.to_shut.retain(|&conn| {
            if net.split().1.len_bytes(conn) > 0 {
                return true;
            }
            if let Some(fd) = net.fd(conn) {
                // Fails only if the peer has already closed the connection, which is reported.
                let _ = rustix::net::shutdown(fd, rustix::net::Shutdown::Write);
            }
            false
        });
    }

    /// Removes a closed connection of the relay, and also the pair to which it belongs once both
    /// ends are closed.
    fn forget(&mut self, conn: ConnId) {
        let Some((pair, side)) = self.conns.remove(&conn) else { return };
        let end = self.end_mut(pair, side);
        end.conn = None;
        let other = self.end_mut(pair, side.other()).conn;
        if other.is_none() {
            self.pairs.remove(&pair);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::net::{Shutdown, TcpListener, TcpStream};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    /// Starts a relay with a delay of `one_way_ms` to a server that passes its first connection to
    /// `serve`.
    fn relay<T: Send + 'static>(
        one_way_ms: u64,
        serve: impl FnOnce(TcpStream) -> T + Send + 'static,
    ) -> (Relay, TcpStream, JoinHandle<T>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let shape = Shape { one_way: Duration::from_millis(one_way_ms), bytes_per_second: None };
        let relay = Relay::start(listener.local_addr().unwrap(), shape).unwrap();
        let client = TcpStream::connect(relay.address()).unwrap();
        let server = thread::spawn(move || serve(patient(listener.accept().unwrap().0)));
        (relay, patient(client), server)
    }

    fn patient(stream: TcpStream) -> TcpStream {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends all received bytes back to the peer until the peer closes the connection.
    fn echo(mut stream: TcpStream) {
        let mut buffer = [0; 4096];
        while let Ok(len @ 1..) = stream.read(&mut buffer) {
            stream.write_all(&buffer[..len]).unwrap();
        }
    }

    fn pattern(len: usize) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(1);
        (0..len).map(|_| random.u8(..)).collect()
    }

    fn whole(mut stream: TcpStream) -> Vec<u8> {
        let mut got = Vec::new();
        stream.read_to_end(&mut got).unwrap();
        got
    }

    #[test]
    fn a_round_trip_takes_as_long_as_it_is_to_take() {
        let (relay, mut client, _) = relay(15, echo);
        let mut ping = || {
            let begin = Instant::now();
            client.write_all(b"!").unwrap();
            client.read_exact(&mut [0]).unwrap();
            begin.elapsed()
        };
        let best = (0..20).map(|_| ping()).min().unwrap();
        assert!((30_000..31_000).contains(&best.as_micros()), "{best:?}");
        assert!(
            relay.cpu() > Duration::ZERO && relay.cpu() < Duration::from_millis(300),
            "{:?}",
            relay.cpu()
        );
    }

    #[test]
    fn bytes_arrive_whole_however_they_are_cut() {
        let (_relay, client, _) = relay(1, echo);
        let sent = pattern(5 << 20);
        let mut random = fastrand::Rng::with_seed(2);
        let (mut writer, bytes) = (client.try_clone().unwrap(), sent.clone());
        let writer = thread::spawn(move || {
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                let (chunk, after) = rest.split_at(random.usize(1..=70_000.min(rest.len())));
                writer.write_all(chunk).unwrap();
                rest = after;
            }
            writer.shutdown(Shutdown::Write).unwrap();
        });
        assert!(whole(client) == sent);
        writer.join().unwrap();
    }

    #[test]
    fn a_side_that_has_finished_sending_still_receives() {
        let sent = pattern(4 << 20);
        let reply: Vec<u8> = sent.iter().rev().copied().collect();
        let answer = reply.clone();
        let (_relay, mut client, server) = relay(2, move |mut stream| {
            let mut got = Vec::new();
            stream.read_to_end(&mut got).unwrap();
            stream.write_all(&answer).unwrap();
            got
        });
        client.write_all(&sent).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        assert!(server.join().unwrap() == sent);
        assert!(whole(client) == reply);
    }

    #[test]
    fn a_peer_that_vanishes_is_missed_on_the_other_side_after_the_delay() {
        let (_relay, mut client, server) = relay(20, |mut stream| {
            stream.read_exact(&mut [0]).unwrap();
            set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
            Instant::now()
        });
        client.write_all(b"!").unwrap();
        let gone = server.join().unwrap();
        let error = client.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        assert!(gone.elapsed() >= Duration::from_millis(19), "{:?}", gone.elapsed());

        let (arrived, arrival) = std::sync::mpsc::channel();
        let (_relay, mut client, server) = relay(1, move |mut stream| {
            stream.read_exact(&mut [0]).unwrap();
            arrived.send(()).unwrap();
            stream.read(&mut [0]).unwrap_err().kind()
        });
        client.write_all(b"!").unwrap();
        arrival.recv().unwrap();
        set_socket_linger(&client, Some(Duration::ZERO)).unwrap();
        drop(client);
        assert_eq!(server.join().unwrap(), ErrorKind::ConnectionReset);
    }

    #[test]
    fn a_server_that_is_not_there_breaks_the_connection_off() {
        let nobody = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        let shape = Shape { one_way: Duration::from_millis(1), bytes_per_second: None };
        let relay = Relay::start(nobody, shape).unwrap();
        let mut client = patient(TcpStream::connect(relay.address()).unwrap());
        assert_eq!(client.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    }

    #[test]
    fn a_reader_that_does_not_read_holds_the_writer_back() {
        let (_relay, mut client, server) = relay(1, |stream| stream);
        client.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
        let chunk = pattern(256 * 1024);
        let mut taken = 0;
        let error = loop {
            match client.write(&chunk) {
                Ok(len) => taken += len,
                Err(error) => break error,
            }
            assert!(taken < 64 << 20, "nothing holds the writer back");
        };
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        // All bytes arrive once they are read.
        let mut stream = server.join().unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(io::copy(&mut stream, &mut io::sink()).unwrap(), taken as u64);
    }

    #[test]
    fn a_rate_spreads_bytes_over_time() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let shape = Shape { one_way: Duration::ZERO, bytes_per_second: Some(10e6) };
        let relay = Relay::start(listener.local_addr().unwrap(), shape).unwrap();
        // A busy machine may be slow once, a rate that is too low is slow each time.
        let is_quick = (0..5).any(|_| {
            let mut client = TcpStream::connect(relay.address()).unwrap();
            let server = patient(listener.accept().unwrap().0);
            let reader = thread::spawn(move || whole(server));
            let begin = Instant::now();
            client.write_all(&pattern(1_000_000)).unwrap();
            drop(client);
            assert_eq!(reader.join().unwrap().len(), 1_000_000);
            let took = begin.elapsed();
            assert!(took.as_millis() >= 100, "{took:?}");
            took.as_millis() < 2_000
        });
        assert!(is_quick, "the rate is too low");
    }

    #[test]
    fn its_connections_end_with_it() {
        let (relay, mut client, server) = relay(1_000, echo);
        client.write_all(b"on its way").unwrap();
        drop(relay);
        assert!(matches!(client.read(&mut [0]), Ok(0) | Err(_)));
        drop(client);
        // The connection to the server was never opened, and the server waits for it.
        assert!(!server.is_finished());
    }
}
