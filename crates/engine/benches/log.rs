//! The cost of recording a change in the change log. It is measured in the parts that the model of
//! docs/performance.md adds up.
//!
//! `cargo bench -p engine`

use commands::Args;
use divan::Bencher;
use divan::counter::ItemsCount;
use engine::log::ChangeLog;
use engine::log::buffer::Chunk;
use engine::log::level::Released;
use engine::log::merger::{LogBatch, LogReader};
use engine::log::target::{LogTarget, Targets};
use engine::threads::Outbox;
use keyspace::Hasher;
use keyspace::gate::Gate;
use resp::parse::Span;

const REQUEST: &[u8] = b"*3\r\n$3\r\nSET\r\n$16\r\nkey:000000012345\r\n$3\r\nxxx\r\n";
const SPANS: [Span; 3] = [Span { start: 8, len: 3 }, Span { start: 18, len: 16 }, Span { start: 40, len: 3 }];
/// The number of changes between two merges: as many as a turn of pipelined requests makes.
const CHANGES: usize = 1000;
/// The number of changes of each thread when two threads draw positions at the same time. The runs
/// are long enough for both threads to overlap.
const DRAWN: usize = 100_000;

struct Discarding;

impl LogReader for Discarding {
    fn append(&mut self, batch: &LogBatch<'_>) -> Released {
        Released::at(batch.position)
    }
}

fn log() -> ChangeLog {
    let log = ChangeLog::new(2);
    Gate::new(1)
        .exclusive(|alone| log.attach(alone, (Box::new(Discarding), LogTarget::File), &Outbox::default()));
    log
}

/// Draws a log position and encodes a request for each change, with one thread, then with two
/// threads at the same time.
#[divan::bench(threads = [1, 2])]
fn append(bencher: Bencher<'_, '_>) {
    let (log, hasher) = (log(), Hasher::with_seed([1, 2, 3, 4]));
    bencher.counter(ItemsCount::new(DRAWN)).with_inputs(Chunk::default).bench_refs(|chunk| {
        let args = Args::new(REQUEST, &SPANS, &hasher);
        for change in 0..DRAWN {
            log.append_request(chunk, 0, &args, Targets::all());
            if change % CHANGES == 0 {
                *chunk = Chunk::default();
            }
        }
    });
}

/// Appends changes to the log, publishes them after every 16 requests (a pipeline), and merges.
#[divan::bench]
fn append_publish_and_merge(bencher: Bencher<'_, '_>) {
    let (log, hasher) = (log(), Hasher::with_seed([1, 2, 3, 4]));
    let (args, outbox) = (Args::new(REQUEST, &SPANS, &hasher), Outbox::default());
    let mut chunk = Chunk::default();
    bencher.counter(ItemsCount::new(CHANGES)).bench_local(|| {
        for change in 0..CHANGES {
            log.append_request(&mut chunk, 0, &args, Targets::all());
            if change % 16 == 15 {
                log.publish(0, &mut chunk);
            }
        }
        log.publish(0, &mut chunk);
        log.merge(&outbox);
    });
}

fn main() {
    divan::main();
}
