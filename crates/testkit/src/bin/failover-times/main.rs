//! Measures the time without accepted writes when a primary is lost and Sentinels promote a
//! replica:
//!
//! ```sh
//! cargo run --release -p testkit --features saves --bin failover-times -- \
//!     --peer redis=redis-server --rounds 20
//! ```
//! Each run starts a primary, two replicas and three Sentinels (see `set.rs`). One client writes
//! every 2 ms, and the primary is lost at a random moment. The measured time starts with the last
//! write that the primary acknowledged. It ends with the first write that another server
//! acknowledged. The client asks the Sentinels for the primary after each error, and after a reply
//! that takes more than 100 ms.
//!
//! A round measures each server once for each kind of loss, so that a change of the machine's speed
//! affects all servers alike. Saker is the `saker-server` built in the folder of this program, or
//! `$SAKER_SERVER`. All servers have the same Sentinels.
#![forbid(unsafe_code)]

mod set;

use std::error::Error;
use std::ffi::OsString;
use std::io;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use testkit::{Address, Client, Value, saker};

use set::{Loss, Set};

/// Measures the time without writes when a primary is lost.
#[derive(Parser)]
struct Options {
    /// `NAME=COMMAND`: a server to compare with.
    #[arg(long)]
    peer: Vec<String>,
    /// The command line of a Sentinel; `--sentinel` is appended.
    #[arg(long, default_value = "redis-server")]
    sentinel: String,
    /// Ways in which the primary is lost: killed, stopped, or cut off from the network.
    #[arg(long, value_delimiter = ',', default_values_t = [Loss::Kill, Loss::Stop, Loss::Cut])]
    losses: Vec<Loss>,
    /// Number of runs of each server with each way to lose the primary.
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// Number of I/O threads of Saker.
    #[arg(long, default_value_t = 2)]
    io_threads: usize,
    /// The time after which a Sentinel considers a silent server down (`down-after-milliseconds`).
    #[arg(long, default_value_t = 1000)]
    down_after_ms: u32,
}

/// A server to measure: its name in the table, and its command line.
struct Engine {
    name: String,
    line: Vec<OsString>,
    /// The options of the server, which follow the configuration file on its command line.
    options: Vec<String>,
}

/// The times measured in one run, in which the primary is lost once.
#[derive(Clone, Copy)]
struct Times {
    /// The time from the last write that the lost primary acknowledged to the first that another
    /// server acknowledged.
    without_writes: Duration,
    /// The time from the loss until INFO of another server states the role of a primary.
    until_promoted: Duration,
}

/// Pause between two writes of the client, and between two checks of the replicas' roles.
const PACE: Duration = Duration::from_millis(2);
/// The time without a reply after which the client asks the Sentinels for the primary.
const PATIENCE: Duration = Duration::from_millis(100);
/// The time without an accepted write after which a run has failed.
const GIVE_UP_AFTER: Duration = Duration::from_secs(120);
/// The range from which the moment of the primary's loss is drawn, in milliseconds after the first
/// write.
const BEFORE_LOSS_MS: std::ops::Range<u64> = 500..2500;

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn words(line: &str) -> Vec<OsString> {
    line.split_whitespace().map(OsString::from).collect()
}

fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let threads = ["--io-threads".to_owned(), options.io_threads.to_string()];
    let own = Engine { name: "saker".to_owned(), line: vec![saker::binary()?], options: threads.into() };
    let mut engines = vec![own];
    let sentinel = words(&options.sentinel);
    for peer in &options.peer {
        let (name, command) = peer.split_once('=').ok_or("a peer is NAME=COMMAND")?;
        engines.push(Engine { name: name.to_owned(), line: words(command), options: Vec::new() });
    }
    let mut times = vec![vec![Vec::new(); engines.len()]; options.losses.len()];
    for round in 1..=options.rounds {
        for (&loss, of_loss) in options.losses.iter().zip(&mut times) {
            for (engine, of_engine) in engines.iter().zip(of_loss) {
                let sentinel = (&*sentinel, options.down_after_ms);
                let set = Set::start((&engine.line, &engine.options), sentinel, loss)?;
                let one = measure(set, loss)?;
                eprintln!(
                    "round {round}, {}, {}: {:.2} s without writes, {:.2} s until the promotion",
                    loss.name(),
                    engine.name,
                    one.without_writes.as_secs_f64(),
                    one.until_promoted.as_secs_f64(),
                );
                of_engine.push(one);
            }
        }
    }
    let names: Vec<String> = engines.iter().map(|it| format!("{}: median, worst", it.name)).collect();
    for (what, of) in [
        ("without writes", (|one| one.without_writes) as fn(&Times) -> Duration),
        ("until the promotion", |one| one.until_promoted),
    ] {
        println!("| {what}: the primary is | {} |\n|---|{}", names.join(" | "), "---|".repeat(names.len()));
        for (loss, of_loss) in options.losses.iter().zip(&times) {
            let cells: Vec<String> = of_loss.iter().map(|times| cell(times, of)).collect();
            println!("| {} | {} |", loss.name(), cells.join(" | "));
        }
        println!();
    }
    Ok(())
}

/// Formats the median and the maximum of a time over all runs as a cell of the table.
fn cell(times: &[Times], of: fn(&Times) -> Duration) -> String {
    let mut sorted: Vec<f64> = times.iter().map(|one| of(one).as_secs_f64()).collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let median = match sorted.len() % 2 {
        0 => f64::midpoint(sorted[middle - 1], sorted[middle]),
        _ => sorted[middle],
    };
    format!("{median:.2} s, {:.2} s", sorted[sorted.len() - 1])
}

/// Measures one run: writes to the primary, causes its loss, and writes until another server
/// acknowledges a write.
fn measure(mut set: Set, loss: Loss) -> Result<Times, Box<dyn Error>> {
    let primary = set.primary_port();
    // On a busy machine a reply may take longer than the client would wait later.
    let mut client = Client::connect(&Address::port(primary))?;
    let begin = Instant::now();
    let time_before = Duration::from_millis(fastrand::u64(BEFORE_LOSS_MS));
    let mut last = begin;
    while begin.elapsed() < time_before {
        if !is_written(&mut client) {
            return Err("the primary does not accept writes".into());
        }
        last = Instant::now();
        thread::sleep(PACE);
    }
    client.set_read_timeout(PATIENCE);
    set.lose(loss)?;
    let lost = Instant::now();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let watcher = scope.spawn(|| promotion(&set, &is_over));
        let written = write_again(&set, client, primary, last);
        is_over.store(written.is_err(), Relaxed);
        let promoted = watcher.join().map_err(|_| "the thread that watches the roles has failed")?;
        let (last, first) = written?;
        let promoted = promoted.ok_or("no replica is promoted")?;
        Ok(Times {
            without_writes: first.duration_since(last),
            until_promoted: promoted.saturating_duration_since(lost),
        })
    })
}

/// Waits until a replica replies to ROLE that it is a primary. Returns the time of that reply, or
/// `None` if `is_over` is set before it.
fn promotion(set: &Set, is_over: &AtomicBool) -> Option<Instant> {
    while !is_over.load(Relaxed) {
        for port in set.replica_ports() {
            let role = connect(port).ok().and_then(|mut client| client.request(&["ROLE"]).ok());
            if let Some(Value::Array(words)) = role
                && words.first().and_then(Value::as_bytes) == Some(b"master")
            {
                return Some(Instant::now());
            }
        }
        thread::sleep(PACE);
    }
    None
}

/// Writes after the loss until a server other than `former`, the lost primary, acknowledges a
/// write. Returns two times: of the last write that `former` acknowledged, and of the first that
/// the other server acknowledged.
fn write_again(
    set: &Set,
    client: Client,
    former: u16,
    mut last: Instant,
) -> Result<(Instant, Instant), String> {
    let mut connection = Some((former, client));
    while last.elapsed() < GIVE_UP_AFTER {
        let open = connection.take().or_else(|| {
            let port = set.named_primary()?;
            Some((port, connect(port).ok()?))
        });
        if let Some((port, mut client)) = open
            && is_written(&mut client)
        {
            let now = Instant::now();
            if port != former {
                return Ok((last, now));
            }
            (last, connection) = (now, Some((port, client)));
        }
        thread::sleep(PACE);
    }
    Err(format!("no writes for {GIVE_UP_AFTER:?}"))
}

fn connect(port: u16) -> io::Result<Client> {
    let mut client = Client::connect(&Address::port(port))?;
    client.set_read_timeout(PATIENCE);
    Ok(client)
}

/// Sends one write. Returns true if it is acknowledged within [`PATIENCE`].
fn is_written(client: &mut Client) -> bool {
    matches!(client.request(&["INCR", "n"]), Ok(Value::Integer(_)))
}
