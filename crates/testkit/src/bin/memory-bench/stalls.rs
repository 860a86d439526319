//! Stalls: the waits of a client that reads keys in a loop while another client works on a value of
//! millions of elements. The value grows and is then removed. Each type and each way of removal is
//! measured, right after a control without the other client.
//!
//! On a machine with other load, a long wait alone proves little: the reader, or the server's
//! thread, may have been ready without a core. The kernel records this time. So each wait is also
//! counted without it. The rest is work for other clients on the thread, a lock, or work of the
//! kernel.

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use testkit::{Client, ServerProcess};

use crate::load::{self, Options, Pace, WAYS};
use crate::serving::{CpuTime, ThreadClock, serving_threads};

/// Duration of the control, and of the reading after a value is removed. The server may still free
/// the value in the background and cause stalls.
const AFTERMATH: Duration = Duration::from_millis(1500);
/// Minimum length of a wait for a reply that counts as long.
const LONG: Duration = Duration::from_millis(1);
/// Number of requests sent to find the server's thread that serves the client which reads: the one
/// that uses the most CPU time.
const PROBES: usize = 2000;

pub fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    println!(
        "| while | server | reads | p99 µs | p99.9 µs | max ms | over 1 ms | max ms, had a core | \
         over 1 ms, had a core | control: max ms | over 1 ms | max ms, had a core |\n|---|---|{}",
        "--:|".repeat(10)
    );
    for kind in &options.types {
        for name in options.servers.names() {
            for (event, waits, control) in measure(options, &name, kind)? {
                println!("| {kind}: {event} | {name} | {} | {} |", waits.row(), control.short_row());
            }
        }
    }
    Ok(())
}

/// The times that the requests of one phase waited for their replies.
#[derive(Default)]
struct Waits {
    all_ns: Vec<u32>,
    /// The waits for a reply that are longer than [`LONG`], in nanoseconds. The time for which the
    /// reading thread or the server's thread waited for a core is subtracted.
    long_ns: Vec<u64>,
}

impl Waits {
    fn add(&mut self, wait: Duration, without_core_ns: u64) {
        let ns = wait.as_nanos() as u64;
        self.all_ns.push(u32::try_from(ns).unwrap_or(u32::MAX));
        if wait > LONG {
            self.long_ns.push(ns.saturating_sub(without_core_ns));
        }
    }

    fn percentile_us(&mut self, part: f64) -> f64 {
        let at = (self.all_ns.len() as f64 * part) as usize;
        let at = at.min(self.all_ns.len().saturating_sub(1));
        if self.all_ns.is_empty() {
            return 0.0;
        }
        f64::from(*self.all_ns.select_nth_unstable(at).1) / 1e3
    }

    fn max_ms(&self) -> f64 {
        f64::from(self.all_ns.iter().copied().max().unwrap_or(0)) / 1e6
    }

    /// Returns the longest wait for a reply in milliseconds, and the number of long waits. In both,
    /// the time for which the threads waited for a core is subtracted.
    fn with_core(&self) -> (f64, usize) {
        let max = self.long_ns.iter().copied().max().unwrap_or(0);
        (max as f64 / 1e6, self.long_ns.iter().filter(|&&ns| u128::from(ns) > LONG.as_nanos()).count())
    }

    fn row(mut self) -> String {
        let (max_with_core, long_with_core) = self.with_core();
        format!(
            "{} | {:.0} | {:.0} | {:.2} | {} | {max_with_core:.2} | {long_with_core}",
            self.all_ns.len(),
            self.percentile_us(0.99),
            self.percentile_us(0.999),
            self.max_ms(),
            self.long_ns.len(),
        )
    }

    fn short_row(&self) -> String {
        format!("{:.2} | {} | {:.2}", self.max_ms(), self.long_ns.len(), self.with_core().0)
    }
}

/// The state that the reading thread shares with the thread that directs it.
#[derive(Default)]
struct Reading {
    /// The number of the current phase; with the maximum value, the reading thread ends.
    phase: AtomicU64,
}

/// The side of a measurement that directs the reading thread: it begins phases, and receives the
/// waits of each ended phase.
struct ReaderControl<'r> {
    reading: &'r Reading,
    phases: Receiver<Waits>,
}

impl ReaderControl<'_> {
    /// Ends the present phase and returns the times that the reading thread waited for its replies
    /// during it.
    fn take(&self) -> Result<Waits, Box<dyn Error>> {
        self.reading.phase.fetch_add(1, Relaxed);
        Ok(self.phases.recv_timeout(Duration::from_secs(120))?)
    }
}

/// Reads keys of the server in a loop until the last phase has ended. Every other read accesses the
/// big value itself.
fn read_on(reading: &Reading, mut client: Client, server: &ThreadClock, phases: &Sender<Waits>) {
    let Ok(own) = ThreadClock::own() else { return };
    let ready = || [&own, server].map(|clock| clock.read().unwrap_or_default());
    let mut phase = 0;
    let mut waits = Waits::default();
    let mut before = ready();
    for number in 0_u64.. {
        let request: &[&str] = if number % 2 == 0 { &["GET", "small"] } else { &["EXISTS", "big"] };
        let started = Instant::now();
        if client.request(request).is_err() {
            return;
        }
        let wait = started.elapsed();
        let after = ready();
        waits.add(wait, without_core_ns(before, after));
        before = after;
        let now = reading.phase.load(Relaxed);
        if now != phase {
            phase = now;
            if phase == u64::MAX || phases.send(std::mem::take(&mut waits)).is_err() {
                return;
            }
        }
    }
}

fn without_core_ns(before: [CpuTime; 2], after: [CpuTime; 2]) -> u64 {
    after.iter().zip(before).map(|(after, before)| after.since(before).ready_ns).sum()
}

/// Returns the CPU clock of the server's thread that serves this client: the busiest thread while
/// the client sends.
fn server_of(client: &mut Client, server: &ServerProcess) -> Result<ThreadClock, Box<dyn Error>> {
    let clocks = serving_threads(server.pid())?;
    let read = |clocks: &[ThreadClock]| -> Result<Vec<CpuTime>, Box<dyn Error>> {
        Ok(clocks.iter().map(ThreadClock::read).collect::<Result<_, _>>()?)
    };
    let before = read(&clocks)?;
    for _ in 0..PROBES {
        client.request(&["PING"])?;
    }
    let after = read(&clocks)?;
    let busiest = (0..clocks.len()).max_by_key(|&at| after[at].since(before[at]).running_ns);
    let busiest = busiest.ok_or("the server has no thread that serves")?;
    Ok(clocks.into_iter().nth(busiest).expect("one of them"))
}

/// A row of the table: the way of removal, the waits of the reading client during it, and its waits
/// in the control phase before.
type Row = (String, Waits, Waits);

fn measure(options: &Options, name: &str, kind: &str) -> Result<Vec<Row>, Box<dyn Error>> {
    let server = options.servers.start(name)?;
    let mut client = server.connect();
    client.set_read_timeout(Duration::from_secs(120));
    client.request(&["SET", "small", "value"])?;
    let mut reader = server.connect();
    reader.set_read_timeout(Duration::from_secs(120));
    let clock = server_of(&mut reader, &server)?;
    let reading = Reading::default();
    let (sender, phases) = channel();
    std::thread::scope(|scope| {
        scope.spawn(|| read_on(&reading, reader, &clock, &sender));
        let director = ReaderControl { reading: &reading, phases };
        let result = measure_ways(options, kind, &mut client, &director);
        reading.phase.store(u64::MAX, Relaxed);
        result
    })
}

fn measure_ways(
    options: &Options,
    kind: &str,
    client: &mut Client,
    director: &ReaderControl<'_>,
) -> Result<Vec<Row>, Box<dyn Error>> {
    let control = |director: &ReaderControl<'_>| {
        // The server may still free memory of the previous way.
        std::thread::sleep(AFTERMATH);
        director.take()?;
        std::thread::sleep(AFTERMATH);
        director.take()
    };
    let mut rows = Vec::new();
    if options.wants("growing") {
        let before = control(director)?;
        load::fill(client, kind, options.elements, Pace::Measured, &mut || Ok(()))?;
        rows.push(("growing".into(), director.take()?, before));
        client.request(&["FLUSHALL"])?;
    }
    for way in WAYS.iter().filter(|way| way.is_for(kind) && options.wants(way.name)) {
        client.request(&["SET", "small", "value"])?;
        load::fill(client, kind, options.elements, Pace::Quick, &mut || Ok(()))?;
        for step in way.before {
            load::take(*step, client, kind, options.elements, &mut || Ok(()))?;
        }
        let before = control(director)?;
        for step in way.steps {
            load::take(*step, client, kind, options.elements, &mut || Ok(()))?;
        }
        std::thread::sleep(AFTERMATH);
        rows.push((way.name.into(), director.take()?, before));
        client.request(&["FLUSHALL"])?;
    }
    Ok(rows)
}
