//! Measures the cost of publishing to a channel with many subscribers, in rounds of a few seconds:
//!
//! ```sh
//! cargo run --release -p testkit --bin pubsub-bench -- --io-threads 1,2 --peer redis=redis-server
//! ```
//! One publisher keeps `--pipeline` messages in flight. One thread reads all subscribers with epoll
//! and counts bytes (all messages have the same length). One system call reads everything that a
//! subscriber has received since its last read. Saker is the `saker-server` built in the folder of
//! this program, or `$SAKER_SERVER`. A round measures each server once, so that a change of the
//! machine's speed affects all servers alike. The figures are medians.
#![forbid(unsafe_code)]

use std::error::Error;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use testkit::{ServerProcess, peer, saker};

/// Measures the rate at which servers deliver published messages.
#[derive(Parser)]
struct Options {
    /// Numbers of I/O threads of Saker; it is measured with each.
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    io_threads: Vec<usize>,
    /// `NAME=COMMAND`: a server to compare with.
    #[arg(long)]
    peer: Vec<String>,
    /// Number of subscribers of the one channel to which messages are published.
    #[arg(long, default_value_t = 1000)]
    subscribers: usize,
    /// Maximum number of published messages without a reply.
    #[arg(long, default_value_t = 16)]
    pipeline: usize,
    /// Length of a published message in bytes.
    #[arg(long, default_value_t = 64)]
    size: usize,
    /// Duration of each measurement in seconds.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Number of measurements of each server; they are made by turns.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

/// The results of one measurement: the rate of deliveries and the CPU time of both sides.
#[derive(Clone, Copy)]
struct Figures {
    deliveries_per_second: f64,
    /// CPU time of all threads of the server per delivered message, in nanoseconds.
    server_ns: f64,
    /// CPU time of the reading thread, as a fraction of the measured time.
    reader_busy: f64,
}

/// A server to measure: its name in the table, and the function that starts it.
struct Engine {
    name: String,
    server: ServerProcess,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let mut engines = Vec::new();
    for threads in &options.io_threads {
        let server = saker::start(&["--io-threads", &threads.to_string()])?;
        engines.push(Engine { name: format!("saker, {threads} I/O threads"), server });
    }
    for peer in &options.peer {
        let (name, command) = peer.split_once('=').ok_or("a peer is NAME=COMMAND")?;
        engines.push(Engine { name: name.into(), server: peer::start_command(command)? });
    }
    let mut figures = vec![Vec::new(); engines.len()];
    for _ in 0..options.rounds {
        for (engine, figures) in engines.iter().zip(&mut figures) {
            figures.push(measure(options, &engine.server)?);
        }
    }
    println!("| server | deliveries/s | CPU of the server per delivery | reading thread busy |");
    println!("|---|---:|---:|---:|");
    for (engine, figures) in engines.iter().zip(&figures) {
        println!(
            "| {} | {:.0} | {:.0} ns | {:.0} % |",
            engine.name,
            median(figures, |one| one.deliveries_per_second),
            median(figures, |one| one.server_ns),
            median(figures, |one| one.reader_busy) * 100.0,
        );
    }
    Ok(())
}

fn median(figures: &[Figures], of: fn(&Figures) -> f64) -> f64 {
    let mut values: Vec<f64> = figures.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Measures the rate at which `server` delivers messages once, with a new publisher and new
/// subscribers.
fn measure(options: &Options, server: &ServerProcess) -> Result<Figures, Box<dyn Error>> {
    let mut subscribers = subscribe(options, server)?;
    let payload = "x".repeat(options.size);
    let message = format!("*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n${}\r\n{payload}\r\n", payload.len());
    let publisher = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port()))?;
    publisher.set_nodelay(true)?;
    let stop = AtomicBool::new(false);
    let mut figures = Err("nothing was measured".into());
    thread::scope(|scope| {
        scope.spawn(|| publish(options, &publisher, &payload, &stop));
        figures = read_all(options, server, &mut subscribers, message.len());
        stop.store(true, Relaxed);
        // The publisher may wait for replies that the server delays until messages are read.
        drop(std::mem::take(&mut subscribers));
    });
    figures
}

fn subscribe(options: &Options, server: &ServerProcess) -> io::Result<Vec<TcpStream>> {
    let confirmation_bytes = "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n".len();
    let mut subscribers = Vec::new();
    for _ in 0..options.subscribers {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port()))?;
        stream.write_all(b"*2\r\n$9\r\nSUBSCRIBE\r\n$4\r\nnews\r\n")?;
        stream.read_exact(&mut vec![0; confirmation_bytes])?;
        stream.set_nonblocking(true)?;
        subscribers.push(stream);
    }
    Ok(subscribers)
}

/// Publishes messages until `stop` is set. Up to `pipeline` messages are sent before their replies
/// are read.
fn publish(options: &Options, mut stream: &TcpStream, payload: &str, stop: &AtomicBool) {
    let request = format!("*3\r\n$7\r\nPUBLISH\r\n$4\r\nnews\r\n${}\r\n{payload}\r\n", payload.len());
    let window = request.repeat(options.pipeline);
    let mut replies = vec![0; 64 * 1024];
    while !stop.load(Relaxed) {
        if stream.write_all(window.as_bytes()).is_err() {
            return;
        }
        let mut left = options.pipeline;
        while left > 0 {
            match stream.read(&mut replies) {
                Ok(0) | Err(_) => return,
                Ok(len) => left -= replies[..len].iter().filter(|byte| **byte == b'\n').count().min(left),
            }
        }
    }
}

fn read_all(
    options: &Options,
    server: &ServerProcess,
    subscribers: &mut [TcpStream],
    message_bytes: usize,
) -> Result<Figures, Box<dyn Error>> {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (at, stream) in subscribers.iter().enumerate() {
        epoll::add(&poll, stream, epoll::EventData::new_u64(at as u64), epoll::EventFlags::IN)?;
    }
    let mut events: Vec<epoll::Event> = Vec::with_capacity(1024);
    let mut buffer = vec![0; 256 * 1024];
    let mut received_bytes = 0;
    // The first tenth of the time is the warm-up.
    let begin = Instant::now();
    let warm = Duration::from_secs_f64(options.seconds / 10.0);
    let mut measured: Option<(Instant, u64, f64, f64)> = None;
    loop {
        let now = begin.elapsed();
        if measured.is_none() && now >= warm {
            measured = Some((Instant::now(), received_bytes, server.cpu_seconds()?, own_seconds()?));
        }
        if now.as_secs_f64() >= options.seconds {
            break;
        }
        events.clear();
        let wait = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        epoll::wait(&poll, spare_capacity(&mut events), Some(&wait))?;
        for event in &events {
            let at = event.data.u64() as usize;
            match subscribers[at].read(&mut buffer) {
                Ok(0) => return Err("the server closed a subscriber".into()),
                Ok(len) => received_bytes += len as u64,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    let (since, bytes_before, server_before, own_before) = measured.ok_or("too short to measure")?;
    let seconds = since.elapsed().as_secs_f64();
    let deliveries = (received_bytes - bytes_before) as f64 / message_bytes as f64;
    Ok(Figures {
        deliveries_per_second: deliveries / seconds,
        server_ns: (server.cpu_seconds()? - server_before) * 1e9 / deliveries,
        reader_busy: (own_seconds()? - own_before) / seconds,
    })
}

/// Returns the CPU time of the calling thread in seconds.
fn own_seconds() -> io::Result<f64> {
    testkit::process::schedstat_seconds("/proc/thread-self/schedstat".as_ref())
}
