//! Turns: the longest processor time that the threads which serve clients spend on a few requests,
//! while a value of millions of elements grows and goes. Who shares their thread waits that long,
//! and nothing else the machine does is in it.
//!
//! One client sends ten requests of ten elements (or one that ends the value) and waits for the
//! replies; nobody else is connected. The threads' clocks are read when they sleep again, so work
//! behind a reply counts, too.

use std::error::Error;
use std::time::Duration;

use crate::load::{self, Options, Pace, WAYS};
use crate::serving::{ThreadClock, serving_threads};

/// How long what is done behind a reply (expiry, a cycle of a server's own work) is looked at.
const AFTERMATH: Duration = Duration::from_millis(500);
/// Between two looks in that time.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// A row of the table: what was done, and the longest turn in milliseconds.
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

/// The clocks of a server's threads as they stood, and the longest turn since.
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

    /// Begins anew.
    fn reset(&mut self) -> Result<(), Box<dyn Error>> {
        self.look()?;
        self.longest_ns = 0;
        Ok(())
    }

    /// Waits until the threads sleep, and takes what each spent since the last look for one turn.
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
