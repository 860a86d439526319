//! Clients that share keys observe one order of their commands and scripts, with any number of
//! threads and any backend. Recorded histories are checked against a sequential model (see
//! testkit's linearizability.rs).

use net::{Backend, BackendChoice};
use server::Server;
use testkit::Client;
use testkit::history::{Mix, Recording, record};
use testkit::linearizability::check;

/// Returns the number of histories that are recorded for each mix of commands. Each begins with
/// empty keys. `SAKER_HISTORIES=100` sets another number.
fn histories() -> u64 {
    const HISTORIES: u64 = 4;
    std::env::var("SAKER_HISTORIES").map_or(HISTORIES, |count| count.parse().expect("a number"))
}

/// Records and checks histories with `io_threads` I/O threads, on each backend that the kernel
/// permits.
fn check_with(io_threads: usize) {
    let start = |choice| {
        Server::builder().port(0).io_threads(io_threads).backend(choice).start().expect("the server starts")
    };
    check_histories(&start(BackendChoice::Epoll), io_threads);
    // Containers often forbid io_uring. Then epoll is used instead, which was tested above.
    let server = start(BackendChoice::Auto);
    if server.backend() == Backend::IoUring {
        check_histories(&server, io_threads);
    }
}

fn check_histories(server: &Server, io_threads: usize) {
    let what = format!("{}, {io_threads} I/O threads", server.backend().name());
    for seed in 0..histories() {
        for scripts_percent in [0, 40] {
            check_mixes(&testkit::Address::port(server.port()), (seed, scripts_percent), &what);
        }
    }
}

fn check_mixes(address: &testkit::Address, (seed, scripts_percent): (u64, usize), what: &str) {
    for (mix, keys, commands_each) in
        [(Mix::SingleKey, 2, 500), (Mix::MultiKey, 3, 250), (Mix::Sessions, 2, 300), (Mix::Moves, 2, 150)]
    {
        Client::connect(address).expect("the server is there").command(&["FLUSHALL"]);
        let (address, without) = (address.clone(), vec![]);
        let recording =
            Recording { address, clients: 4, commands_each, keys, mix, without, scripts_percent, seed };
        if let Err(counterexample) = check(&record(&recording)) {
            panic!("{what}, {mix:?}, {scripts_percent} % scripts, seed {seed}: {counterexample}");
        }
    }
}

#[test]
fn one_thread_gives_one_order() {
    check_with(1);
}

#[test]
fn two_threads_give_one_order() {
    check_with(2);
}

#[test]
fn more_threads_than_cores_give_one_order() {
    check_with(4);
}
