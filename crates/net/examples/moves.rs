//! Measures two times. The first is the time of a move: it begins with `release` in one loop. It
//! ends when a loop on another thread has adopted the connection and the client has received a
//! byte. The second is the latency of other clients of a loop while connections leave the loop and
//! come back.
//!
//! ```text
//! cargo run --release -p net --example moves -- io_uring|epoll [MOVES]
//! ```
//! The client sends a byte and waits for its echo. In a round with a move, the loop releases the
//! connection instead of answering. The unread byte moves with the connection, and the loop that
//! adopts the connection answers it. A move costs the difference between the times of a round with
//! and without it.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use net::{Address, BackendChoice, Event, EventLoop, Listener, LoopOptions, Socket, Waker};

/// The byte with which a client asks the loop to move the connection before the byte is echoed. Any
/// other byte is only echoed.
const MOVE: u8 = b'm';
/// The number of moves per second in the time slices with moves.
const MOVES_PER_SECOND: u64 = 1000;
/// The number of clients whose latency is measured; their own connections do not move.
const CLIENTS: usize = 50;
/// The number of time slices of the second measurement: alternately without and with moves.
const SLICES: u8 = 40;
const SLICE: Duration = Duration::from_millis(500);

/// The means to hand a connection to another loop: the channel for its socket, and the waker of the
/// loop.
type Door = (Sender<Socket>, Waker);

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let backend = match arguments.next().as_deref() {
        Some("io_uring") => BackendChoice::IoUring,
        Some("epoll") => BackendChoice::Epoll,
        _ => return Err("usage: moves io_uring|epoll [MOVES]".into()),
    };
    let moves: usize = arguments.next().map_or(Ok(10_000), |text| text.parse())?;
    let address = start(backend)?;
    let mut client = connect(address)?;
    let mut measure = |request: u8| -> Result<Vec<u64>, Box<dyn Error>> {
        (0..moves).map(|_| Ok(round(&mut client, request)?.as_nanos() as u64)).collect()
    };
    let echoes = measure(b'e')?;
    let moved = measure(MOVE)?;
    println!("{moves} rounds, microseconds: median, 99th percentile");
    show("echoed", echoes);
    show("moved and echoed", moved);
    beside(address)
}

/// Measures the latency of [`CLIENTS`] clients in alternating time slices: in one, no connection
/// moves; in the next, another connection moves [`MOVES_PER_SECOND`] times a second.
fn beside(address: SocketAddr) -> Result<(), Box<dyn Error>> {
    let stage = Arc::new(AtomicU8::new(0));
    let moving = Arc::clone(&stage);
    let mover = thread::spawn(move || -> std::io::Result<u64> {
        let (mut client, mut count, mut next) = (connect(address)?, 0, Instant::now());
        while moving.load(Ordering::Relaxed) < 2 {
            next += Duration::from_micros(1_000_000 / MOVES_PER_SECOND);
            thread::sleep(next.saturating_duration_since(Instant::now()));
            // In the slices without moves, it sleeps and wakes as well.
            if moving.load(Ordering::Relaxed) == 1 {
                round(&mut client, MOVE)?;
                count += 1;
            }
        }
        Ok(count)
    });
    let mut clients = (0..CLIENTS).map(|_| connect(address)).collect::<Result<Vec<_>, _>>()?;
    println!("{CLIENTS} clients, microseconds: median, 99th percentile");
    // In turns, because the speed of a shared machine changes from second to second.
    let mut times = [Vec::new(), Vec::new()];
    for slice in 0..SLICES {
        stage.store(slice % 2, Ordering::Relaxed);
        let end = Instant::now() + SLICE;
        while Instant::now() < end {
            let began = Instant::now();
            for client in &mut clients {
                client.write_all(b"e")?;
            }
            for client in &mut clients {
                client.read_exact(&mut [0])?;
                times[usize::from(slice % 2)].push(began.elapsed().as_nanos() as u64);
            }
        }
    }
    let [alone, moving] = times;
    show("alone", alone);
    show("beside moves", moving);
    stage.store(2, Ordering::Relaxed);
    let count = mover.join().map_err(|_| "the mover panicked")??;
    let time = SLICE * u32::from(SLICES) / 2;
    println!("  {:.0} moves a second", count as f64 / time.as_secs_f64());
    Ok(())
}

fn show(name: &str, mut times_ns: Vec<u64>) {
    times_ns.sort_unstable();
    let at = |percent: usize| times_ns[times_ns.len() * percent / 100] as f64 / 1000.0;
    println!("  {name}: {:.1}, {:.1}", at(50), at(99));
}

fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let client = TcpStream::connect(address)?;
    client.set_nodelay(true)?;
    Ok(client)
}

/// Sends the byte `request` and waits for the answer. Returns the time between both.
fn round(client: &mut TcpStream, request: u8) -> std::io::Result<Duration> {
    let began = Instant::now();
    client.write_all(&[request])?;
    client.read_exact(&mut [0])?;
    Ok(began.elapsed())
}

/// Starts two loops, each on its own thread, that exchange connections. Returns the address of the
/// first loop's listener.
fn start(backend: BackendChoice) -> Result<SocketAddr, Box<dyn Error>> {
    let listener = Listener::tcp(([127, 0, 0, 1], 0).into(), 511)?;
    let Address::Tcp(address) = *listener.local_address() else { return Err("no TCP address".into()) };
    let (mut doors, mut ways) = (Vec::new(), Vec::new());
    let mut listener = Some(listener);
    for _ in 0..2 {
        let (door_sender, door) = channel();
        let (way, other) = channel::<Door>();
        let listener = listener.take();
        thread::spawn(move || {
            if let Err(error) = serve(backend, listener, &door_sender, &other) {
                eprintln!("a loop failed: {error}");
                std::process::exit(1);
            }
        });
        doors.push(door.recv()?);
        ways.push(way);
    }
    for (way, door) in ways.into_iter().rev().zip(doors) {
        way.send(door)?;
    }
    Ok(address)
}

/// Runs a loop that echoes bytes and hands connections to the other loop. Sends its own [`Door`] to
/// `door`, and receives that of the other loop from `other`.
fn serve(
    backend: BackendChoice,
    listener: Option<Listener>,
    door: &Sender<Door>,
    other: &Receiver<Door>,
) -> Result<(), Box<dyn Error>> {
    let mut event_loop = EventLoop::new(&LoopOptions { backend, ..LoopOptions::default() })?;
    if let Some(listener) = listener {
        event_loop.add_listener(listener)?;
    }
    let (sender, arrivals) = channel();
    door.send((sender, event_loop.waker()))?;
    let (next, next_waker) = other.recv()?;
    // The connections that have just arrived: their request to move is carried out.
    let (mut arrived, mut events) = (Vec::new(), Vec::new());
    loop {
        event_loop.poll(None, &mut events)?;
        for event in events.drain(..) {
            match event {
                Event::Accepted { socket, .. } => {
                    event_loop.adopt(socket)?;
                }
                Event::Data(conn) => {
                    let (inputs, outputs) = event_loop.split();
                    let bytes = inputs.bytes(conn);
                    let len = bytes.len();
                    if bytes.first() == Some(&MOVE) && !arrived.contains(&conn) {
                        event_loop.release(conn);
                        continue;
                    }
                    outputs.queue(conn).tail_mut().extend_from_slice(bytes);
                    event_loop.consume(conn, len);
                    arrived.retain(|&other| other != conn);
                }
                Event::Released(_, socket) => {
                    next.send(*socket)?;
                    next_waker.wake()?;
                }
                Event::Woken => {
                    while let Ok(socket) = arrivals.try_recv() {
                        arrived.push(event_loop.adopt(socket)?);
                    }
                }
                _ => {}
            }
        }
        event_loop.flush();
    }
}
