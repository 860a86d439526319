//! Tests of a loop in a process that has no free descriptor, for each back end. They run in a
//! process of their own because the limit of descriptors applies to the whole process.

#![allow(clippy::unwrap_used)] // A test that cannot go on may panic.
use std::fs::File;
use std::time::{Duration, Instant};

use net::{Address, BackendChoice, Event, EventLoop, Listener, LoopOptions};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, Socket, Type};

const PATIENCE: Duration = Duration::from_secs(60);
const DESCRIPTORS_MAX: u64 = 128;
/// The maximum number of reported failures to accept. A failure is reported only if its pause is
/// longer than the one before, and a pause has fewer steps than this.
const REPORTS_MAX: usize = 10;

#[test]
fn a_loop_without_descriptors_says_so_seldom_and_accepts_again_by_itself() {
    let limit = Rlimit { current: Some(DESCRIPTORS_MAX), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, limit).unwrap();
    for backend in [BackendChoice::Epoll, BackendChoice::IoUring] {
        match EventLoop::new(&LoopOptions { backend, ..LoopOptions::default() }) {
            Ok(event_loop) => check(event_loop),
            Err(error) => println!("skipped: {error}"),
        }
    }
}

fn check(mut event_loop: EventLoop) {
    let listener = Listener::tcp("127.0.0.1:0".parse().unwrap(), 511).unwrap();
    let Address::Tcp(address) = *listener.local_address() else { panic!("a TCP listener") };
    event_loop.add_listener(listener).unwrap();
    let mut clients = [(); 2].map(|()| Socket::new(Domain::IPV4, Type::STREAM, None).unwrap());
    let mut events = Vec::new();
    event_loop.poll(Some(Duration::ZERO), &mut events).unwrap();

    let mut hogs = Vec::new();
    let refused = loop {
        match File::open("/dev/null") {
            Ok(hog) => hogs.push(hog),
            Err(error) => break error,
        }
    };
    // A busy loop: many turns while more clients connect.
    for client in &mut clients {
        client.connect(&address.into()).unwrap();
        for _ in 0..1000 {
            event_loop.poll(Some(Duration::ZERO), &mut events).unwrap();
        }
    }
    let mut pauses = Vec::new();
    for event in events.drain(..) {
        let Event::AcceptFailed { error, pause, .. } = event else { panic!("{event:?}") };
        assert_eq!(error.raw_os_error(), refused.raw_os_error());
        pauses.push(pause);
    }
    assert!((1..=REPORTS_MAX).contains(&pauses.len()), "{pauses:?}");
    assert!(pauses.is_sorted_by(|one, next| one < next), "{pauses:?}");

    // An idle loop: nothing happens, but time passes.
    drop(hogs);
    let (began, mut accepted) = (Instant::now(), 0);
    while accepted < 2 {
        event_loop.poll(Some(2 * PATIENCE), &mut events).unwrap();
        assert!(began.elapsed() < PATIENCE, "the clients were forgotten");
        accepted += events.drain(..).filter(|event| matches!(event, Event::Accepted { .. })).count();
    }

    // The kernel accepts by itself again.
    let late = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    late.connect(&address.into()).unwrap();
    event_loop.poll(Some(PATIENCE), &mut events).unwrap();
    assert!(matches!(events[..], [Event::Accepted { .. }]), "{events:?}");
}
