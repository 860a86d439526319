//! A load test of connections that move: three loops, each on its own thread, between which both
//! ends of each connection move at random.
//!
//! One end of each connection sends a known stream and checks the echo; the other end echoes each
//! byte. Each end may consume only a part of its input, queue bytes by reference, and hold output
//! back. A move may happen after any byte.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use net::{
    Address, BackendChoice, CloseReason, ConnId, Event, EventLoop, Listener, LoopOptions, Socket, TlsClient,
    TlsServer, Waker,
};

/// The default number of moves of one test, as in CI.
const MOVES: u64 = 3000;
/// The time after which the load test fails if no report arrives.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOPS: usize = 3;
const CONNECTIONS: usize = 6;
/// The maximum number of bytes of one connection that are sent and not echoed yet. It is sometimes
/// more than the buffers of the sockets hold.
const WINDOW_LEN_BYTES: u64 = 3 << 20;

/// The kind of socket that the connections of the load test use.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    /// TCP over the loopback interface, with small buffers.
    Tcp,
    /// Unix socket pairs, without a listener.
    Unix,
}

/// The TLS configurations of both ends of the connections.
pub(crate) struct Tls {
    pub(crate) server: TlsServer,
    pub(crate) client: TlsClient,
}

/// A generator of pseudo-random numbers.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// Returns a random number below `end`; 0 if `end` is 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize).checked_rem(end).unwrap_or(0)
    }
}

/// Returns the byte at `position` of the sequence of test bytes that `seed` selects.
pub(crate) fn byte(seed: u64, position: u64) -> u8 {
    ((seed + position).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 37) as u8
}

/// The role of one end of a connection: it checks the echo or echoes.
enum Part {
    Echo,
    /// The end of the connection that sends the sequence of bytes of `seed` and checks its echo.
    Check {
        seed: u64,
        sent: u64,
        received: u64,
    },
}

/// The state of one end of a connection; it moves with the connection to the next loop.
struct End {
    part: Part,
    /// The number of output parts of this end that are held back.
    held: usize,
}

/// A message of the test to one of its event loops.
enum Message {
    Adopt(Socket, End),
    Stop,
}

/// The data that all loops of the test share.
struct World {
    backend: BackendChoice,
    wanted_moves: u64,
    moves: AtomicU64,
    address: Address,
    client: Option<TlsClient>,
    /// The channel and the waker with which a connection is handed to each loop.
    doors: Vec<(Sender<Message>, Waker)>,
}

impl World {
    fn send(&self, to: usize, message: Message) {
        self.doors[to].0.send(message).unwrap();
        self.doors[to].1.wake().unwrap();
    }

    fn is_over(&self) -> bool {
        self.moves.load(Ordering::Relaxed) >= self.wanted_moves
    }
}

/// A report from an event loop to the test.
#[derive(Debug, PartialEq, Eq)]
enum Report {
    /// All bytes of one connection have been echoed, without an error.
    Checked,
    /// The echoing end of a connection was closed.
    EchoClosed,
    Panicked,
}

/// Runs the load until the wanted number of moves has happened and all bytes have arrived.
pub(crate) fn run(backend: BackendChoice, transport: Transport, tls: Option<Tls>) {
    let wanted_moves = std::env::var("SAKER_MOVES").ok().map_or(MOVES, |text| text.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let listener = match transport {
        Transport::Tcp => Listener::tcp("127.0.0.1:0".parse().unwrap(), 511).unwrap(),
        Transport::Unix => Listener::unix(&folder.path().join("socket"), None, 511).unwrap(),
    };
    let (listener, client) = match tls {
        Some(tls) => (listener.encrypted(tls.server), Some(tls.client)),
        None => (listener, None),
    };
    let address = listener.local_address().clone();
    let began = Instant::now();
    let (report_sender, reports) = channel();
    let mut listener = Some(listener);
    let (mut doors, mut starts, mut threads) = (Vec::new(), Vec::new(), Vec::new());
    for index in 0..LOOPS {
        let (door_sender, door) = channel();
        let (start, world) = channel();
        let (report_sender, listener) = (report_sender.clone(), listener.take());
        threads.push(thread::spawn(move || {
            let mut event_loop = EventLoop::new(&LoopOptions { backend, ..LoopOptions::default() }).unwrap();
            listener.map(|listener| event_loop.add_listener(listener).unwrap());
            let (sender, messages) = channel();
            door_sender.send((sender, event_loop.waker())).unwrap();
            let world = world.recv().unwrap();
            let random = Random(index as u64 + 1);
            Thread { index, event_loop, world, messages, report_sender, ends: HashMap::new(), random }.run();
        }));
        doors.push(door.recv().unwrap());
        starts.push(start);
    }
    let world = Arc::new(World { backend, wanted_moves, moves: AtomicU64::new(0), address, client, doors });
    for start in starts {
        start.send(Arc::clone(&world)).unwrap();
    }
    await_ends(&world, &reports);
    for to in 0..LOOPS {
        world.send(to, Message::Stop);
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let moves = world.moves.load(Ordering::Relaxed);
    println!("{backend:?}, {:?}: {moves} moves in {:?}", world.address, began.elapsed());
}

/// Waits until both ends of all connections are closed.
fn await_ends(world: &World, reports: &Receiver<Report>) {
    let (mut checked, mut closed, mut moves) = (0, 0, 0);
    while checked < CONNECTIONS || closed < CONNECTIONS {
        match reports.recv_timeout(PATIENCE) {
            Ok(Report::Checked) => checked += 1,
            Ok(Report::EchoClosed) => closed += 1,
            Ok(Report::Panicked) => panic!("a loop panicked"),
            Err(_) => {
                let now = world.moves.load(Ordering::Relaxed);
                assert!(now > moves, "nothing moves: {now} moves, {checked} checked, {closed} closed");
                moves = now;
            }
        }
    }
}

/// One loop of the test, with the connections that it has at present.
struct Thread {
    index: usize,
    event_loop: EventLoop,
    world: Arc<World>,
    messages: Receiver<Message>,
    report_sender: Sender<Report>,
    ends: HashMap<ConnId, End>,
    random: Random,
}

impl Drop for Thread {
    fn drop(&mut self) {
        if thread::panicking() {
            let _ = self.report_sender.send(Report::Panicked);
        }
    }
}

impl Thread {
    fn run(mut self) {
        let world = Arc::clone(&self.world);
        for seed in (self.index..CONNECTIONS).step_by(LOOPS) {
            let deadline = Instant::now() + PATIENCE;
            let conn = self.event_loop.connect(&world.address, world.client.clone(), deadline);
            let part = Part::Check { seed: seed as u64, sent: 0, received: 0 };
            self.ends.insert(conn, End { part, held: 0 });
        }
        let mut events = Vec::new();
        loop {
            let timeout = if self.release_held() { Duration::ZERO } else { PATIENCE };
            self.event_loop.flush();
            self.event_loop.poll(Some(timeout), &mut events).unwrap();
            for event in events.drain(..) {
                match event {
                    Event::Woken => {
                        while let Ok(message) = self.messages.try_recv() {
                            let Message::Adopt(socket, end) = message else { return };
                            self.adopt(socket, end);
                        }
                    }
                    event => self.handle(event),
                }
            }
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Accepted { socket, .. } => self.adopt(socket, End { part: Part::Echo, held: 0 }),
            Event::Connected(conn) => {
                self.shrink_buffers(conn);
                self.serve(conn);
            }
            Event::Data(conn) => self.serve(conn),
            Event::Released(conn, socket) => {
                let end = self.ends.remove(&conn).unwrap();
                self.world.moves.fetch_add(1, Ordering::Relaxed);
                let to = self.random.below(LOOPS);
                if to == self.index {
                    self.adopt(*socket, end);
                } else {
                    self.world.send(to, Message::Adopt(*socket, end));
                }
            }
            Event::Closed(conn, reason) => {
                let report = match self.ends.remove(&conn).unwrap().part {
                    Part::Echo => {
                        assert_eq!(reason, CloseReason::PeerClosed);
                        Report::EchoClosed
                    }
                    Part::Check { sent, received, .. } => {
                        assert_eq!((reason, sent), (CloseReason::Flushed, received));
                        Report::Checked
                    }
                };
                self.report_sender.send(report).unwrap();
            }
            Event::Secured(_) | Event::Drained(_) => {}
            event => panic!("{event:?}"),
        }
    }

    fn adopt(&mut self, socket: Socket, end: End) {
        let conn = self.event_loop.adopt(socket).unwrap();
        self.ends.insert(conn, end);
        self.shrink_buffers(conn);
        self.perhaps_release(conn, 4);
    }

    /// Makes the socket buffers of a TCP connection small, so that sends are often partial.
    fn shrink_buffers(&self, conn: ConnId) {
        if let (Address::Tcp(_), Some(fd)) = (&self.world.address, self.event_loop.fd(conn)) {
            socket2::SockRef::from(&fd).set_send_buffer_size(16 * 1024).unwrap();
        }
    }

    /// Releases the connection with the probability 1 / `times`, as long as the test has moves
    /// left.
    fn perhaps_release(&mut self, conn: ConnId, times: usize) {
        if !self.world.is_over() && self.random.below(times) == 0 {
            self.event_loop.release(conn);
        }
    }

    fn serve(&mut self, conn: ConnId) {
        assert!(self.event_loop.is_open(conn), "an event of a connection that has left");
        let Self { event_loop, ends, random, world, .. } = self;
        let end = ends.get_mut(&conn).unwrap();
        let unread = event_loop.inputs().len_bytes(conn);
        let taken = if random.below(4) == 0 { 1.min(unread) + random.below(unread) } else { unread };
        let taken = taken.min(unread);
        let bytes = event_loop.inputs().bytes(conn)[..taken].to_vec();
        event_loop.consume(conn, taken);
        if taken < unread {
            event_loop.mark_ready(conn);
        }
        match &mut end.part {
            Part::Echo if taken > 0 => {
                let (_, outputs) = event_loop.split();
                match random.below(4) {
                    0 => outputs.queue(conn).push_shared(Arc::new(bytes)),
                    _ => outputs.queue(conn).tail_mut().extend_from_slice(&bytes),
                }
                if random.below(4) == 0 {
                    assert!(outputs.hold(conn, taken));
                    end.held += 1;
                }
            }
            Part::Echo => {}
            Part::Check { seed, sent, received } => {
                let right = bytes.iter().zip(*received..).all(|(&got, at)| got == byte(*seed, at));
                assert!(
                    right,
                    "{:?}: wrong bytes from {received} to {}",
                    world.backend,
                    *received + taken as u64
                );
                *received += taken as u64;
                assert!(*received <= *sent, "more came back than was sent");
                if world.is_over() {
                    if sent == received {
                        event_loop.close_after_flush(conn);
                        if random.below(2) == 0 {
                            event_loop.release(conn);
                        }
                    }
                    return;
                }
                let window = if random.below(16) == 0 { WINDOW_LEN_BYTES } else { 20_000 };
                while *sent == *received || (*sent - *received < window && random.below(8) > 0) {
                    let most = if random.below(2) == 0 { 100 } else { 40_000 };
                    let end = *sent + 1 + random.below(most) as u64;
                    event_loop.output(conn).tail_mut().extend((*sent..end).map(|at| byte(*seed, at)));
                    *sent = end;
                }
            }
        }
        self.perhaps_release(conn, 4);
    }

    /// Releases some of the held output parts. Returns true if parts are still held.
    fn release_held(&mut self) -> bool {
        let Self { event_loop, ends, random, .. } = self;
        for (&conn, end) in ends.iter_mut().filter(|(_, end)| end.held > 0) {
            if random.below(2) == 0 {
                event_loop.split().1.release(conn);
                end.held -= 1;
            }
        }
        ends.values().any(|end| end.held > 0)
    }
}
