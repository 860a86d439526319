//! A queue whose 64 clients are killed at random loses no element and delivers none twice. See
//! testkit's queue.rs for requests whose replies were not read.

use testkit::Address;
use testkit::queue::{Queue, run};

use crate::support::on_each_back_end_with;

const CLIENTS: usize = 64;

/// Returns the number of elements that pass through the queue of each server; six servers handle
/// nearly half a million. `SAKER_QUEUE_ELEMENTS=1000000` sets another number.
fn elements() -> usize {
    const ELEMENTS: usize = 80_000;
    std::env::var("SAKER_QUEUE_ELEMENTS").map_or(ELEMENTS, |count| count.parse().expect("a number"))
}

fn check_with(io_threads: usize) {
    on_each_back_end_with(io_threads, |server| {
        let queue = Queue {
            address: Address::port(server.port()),
            clients: CLIENTS,
            elements: elements(),
            seed: io_threads as u64,
        };
        let report = run(&queue);
        println!("{}, {io_threads} I/O threads: {report}", server.backend().name());
        assert!(report.hung_up > 0 && report.killed > 0, "{report}");
    });
}

#[test]
fn nothing_is_lost_on_one_thread() {
    check_with(1);
}

#[test]
fn nothing_is_lost_across_two_threads() {
    check_with(2);
}

#[test]
fn nothing_is_lost_across_more_threads_than_cores() {
    check_with(4);
}
