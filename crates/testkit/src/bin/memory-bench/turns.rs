//! Turns: the maximum CPU time that a thread spends on a few requests while a value of millions of
//! elements grows and is removed. Only threads that serve clients count: other clients of such a
//! thread must wait for this time. Other load on the machine does not influence it.
//!
//! One client sends ten requests of ten elements each, or one request that removes the value, and
//! waits for the replies. No other client is connected. The CPU time of the threads is read when
//! they sleep again, so that work after a reply counts, too.

use std::error::Error;
use std::time::Duration;

use crate::load::{self, Options, Pace, WAYS};
use crate::serving::{ThreadClock, serving_threads};

/// Duration for which CPU time is still measured after the last reply, for work such as expiry and
/// the server's periodic tasks.
const AFTERMATH: Duration = Duration::from_millis(500);
/// Pause between two readings of the threads' CPU times during [`AFTERMATH`].
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// A row of the table: the name of the way to grow or remove the value, and the longest CPU time of
/// a thread for a few requests, in milliseconds.
type Row = (String, f64);

pub fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let names = options.servers.names();
    println!("| longest turn, ms of CPU | {} |", names.join(" | "));
    println!("|---|{}", "--:|".repeat(names.len()));
    for kind in &options.types {
        let columns: Vec<Vec<Row>> =
            names.iter().map(|name| measure(options, name, kind)).collect::<Result<_, _>>()?;
        for (at, (event, _)) in columns[0].iter().enumerate() {
            let turns = columns.iter().map(|column| format!("{:.2}", column[at].1));
            println!("| {kind}: {event} | {} |", turns.collect::<Vec<_>>().join(" | "));
        }
    }
    Ok(())
}

/// The last readings of the CPU time of a server's threads, and the maximum CPU time of a thread
/// between two readings since the last reset.
struct Watch {
    clocks: Vec<ThreadClock>,
    running_ns: Vec<u64>,
    longest_ns: u64,
}

impl Watch {
    fn new(pid: u32) -> Result<Self, Box<dyn Error>> {
        let clocks = serving_threads(pid)?;
        let running_ns = vec![0; clocks.len()];
        Ok(Self { clocks, running_ns, longest_ns: 0 })
    }

    /// Reads the CPU times of the server's threads as the start of a new measurement.
    fn reset(&mut self) -> Result<(), Box<dyn Error>> {
        self.look()?;
        self.longest_ns = 0;
        Ok(())
    }

    /// Waits until all threads of the server sleep. Raises the maximum if the CPU time of a thread
    /// since the last reading is longer.
    fn look(&mut self) -> Result<(), Box<dyn Error>> {
        for (clock, before) in self.clocks.iter().zip(&mut self.running_ns) {
            while !clock.is_asleep()? {
                std::hint::spin_loop();
            }
            let now = clock.read()?.running_ns;
            self.longest_ns = self.longest_ns.max(now - *before);
            *before = now;
        }
        Ok(())
    }

    fn longest_ms(&self) -> f64 {
        self.longest_ns as f64 / 1e6
    }
}

fn measure(options: &Options, name: &str, kind: &str) -> Result<Vec<Row>, Box<dyn Error>> {
    let server = options.servers.start(name)?;
    let mut client = server.connect();
    client.set_read_timeout(Duration::from_secs(120));
    let mut watch = Watch::new(server.pid())?;
    let mut rows = Vec::new();
    if options.wants("growing") {
        watch.reset()?;
        load::fill(&mut client, kind, options.elements, Pace::Measured, &mut || watch.look())?;
        rows.push(("growing".into(), watch.longest_ms()));
        client.request(&["FLUSHALL"])?;
    }
    for way in WAYS.iter().filter(|way| way.is_for(kind) && options.wants(way.name)) {
        load::fill(&mut client, kind, options.elements, Pace::Quick, &mut || Ok(()))?;
        for step in way.before {
            load::take(*step, &mut client, kind, options.elements, &mut || Ok(()))?;
        }
        watch.reset()?;
        for step in way.steps {
            load::take(*step, &mut client, kind, options.elements, &mut || watch.look())?;
        }
        for _ in 0..AFTERMATH.div_duration_f64(LOOK_EVERY) as usize {
            std::thread::sleep(LOOK_EVERY);
            watch.look()?;
        }
        rows.push((way.name.into(), watch.longest_ms()));
        client.request(&["FLUSHALL"])?;
    }
    Ok(rows)
}
