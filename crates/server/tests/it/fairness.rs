//! A client waits for one command of another client, not for its pipeline. Times are compared
//! with the time of one such command on the same machine, so that a slow or busy machine changes
//! both.

use std::time::{Duration, Instant};

use server::Server;
use testkit::{Client, Value};

use crate::support::{connect, connect_on, on_each_back_end_with};

/// Number of members of each set: an intersection of two takes a millisecond or more.
const MEMBERS: usize = 20_000;
/// Number of commands in the pipeline of the other client.
const PIPELINE: usize = 200;
/// Maximum wait, as a multiple of the time of one pipeline command. It is far more than one,
/// because the machine may be busy, and far less than the pipeline.
const WAITED_MAX: u32 = 40;

/// Creates two big sets; returns the time of a command that reads both sets.
fn fill(client: &mut Client) -> Duration {
    for first in (0..MEMBERS).step_by(1000) {
        let members: Vec<String> = (first..first + 1000).map(|member| member.to_string()).collect();
        for key in ["{sets}a", "{sets}b"] {
            let words: Vec<&str> =
                ["SADD", key].into_iter().chain(members.iter().map(String::as_str)).collect();
            client.command(&words);
        }
    }
    let took = |client: &mut Client| {
        let since = Instant::now();
        assert_eq!(client.command(&LONG), Value::Integer(MEMBERS as i64));
        since.elapsed()
    };
    (0..5).map(|_| took(client)).max().expect("five tries")
}

const LONG: [&str; 4] = ["SINTERCARD", "2", "{sets}a", "{sets}b"];

/// Sends the pipeline from one client and, until it has ended, `request` from another client on
/// thread `thread`. Returns the longest time of `request`, in multiples of the time of one pipeline
/// command.
fn longest_beside_a_pipeline(server: &Server, thread: usize, request: &[&str]) -> u32 {
    let mut busy = connect_on(server, 0);
    let one = fill(&mut busy);
    let mut other = connect_on(server, thread);
    let mut pipeline = Vec::new();
    (0..PIPELINE).for_each(|_| resp::encode_request(&LONG, &mut pipeline));
    let mut longest = Duration::ZERO;
    let mut commands = connect_on(server, thread);
    let mut calls = move || {
        let info = commands.command(&["INFO", "commandstats"]);
        let text = String::from_utf8_lossy(info.as_bytes().expect("INFO is text")).into_owned();
        let line = text.lines().find_map(|line| line.strip_prefix("cmdstat_sintercard:calls="));
        line.and_then(|rest| rest.split(',').next()?.parse::<usize>().ok()).expect("it was called")
    };
    let all = calls() + PIPELINE;
    busy.send(&pipeline).expect("the server reads");
    let mut tries = 0;
    while calls() < all {
        let since = Instant::now();
        other.command(request);
        longest = longest.max(since.elapsed());
        tries += 1;
    }
    busy.read_many(PIPELINE).expect("all replies");
    assert!(tries >= 3, "the pipeline was over too soon to tell anything");
    (longest.as_secs_f64() / one.as_secs_f64()) as u32
}

/// Returns the smallest of three results of [`longest_beside_a_pipeline`], or the first one that is
/// below the limit. Other tests may take the processor during one attempt; an unfair server is slow
/// in all.
fn waits_beside_a_pipeline(server: &Server, thread: usize, request: &[&str]) -> u32 {
    let mut least = u32::MAX;
    for _ in 0..3 {
        least = least.min(longest_beside_a_pipeline(server, thread, request));
        if least < WAITED_MAX {
            break;
        }
    }
    least
}

#[test]
fn a_client_of_the_same_thread_waits_for_one_command_of_a_pipeline() {
    on_each_back_end_with(1, |server| {
        let waited = waits_beside_a_pipeline(server, 0, &["PING"]);
        assert!(waited < WAITED_MAX, "waited for {waited} commands");
    });
}

#[test]
fn who_owns_the_keyspace_alone_waits_for_one_command_of_a_pipeline() {
    on_each_back_end_with(2, |server| {
        let waited = waits_beside_a_pipeline(server, 1, &["KEYS", "nothing"]);
        assert!(waited < WAITED_MAX, "waited for {waited} commands");
    });
}

#[test]
fn who_needs_a_key_of_a_pipeline_waits_for_one_command_of_it() {
    on_each_back_end_with(2, |server| {
        let waited = waits_beside_a_pipeline(server, 1, &["SISMEMBER", "{sets}a", "1"]);
        assert!(waited < WAITED_MAX, "waited for {waited} commands");
    });
}

#[test]
fn a_client_waits_for_one_of_many_owners_of_the_keyspace() {
    on_each_back_end_with(2, |server| {
        let mut admin = connect(server);
        admin.command(&["DEBUG", "POPULATE", "100000"]);
        let since = Instant::now();
        admin.command(&["KEYS", "nothing"]);
        let one = since.elapsed();
        let (mut owner, mut other) = (connect_on(server, 0), connect_on(server, 1));
        let mut pipeline = Vec::new();
        (0..PIPELINE).for_each(|_| resp::encode_request(&["KEYS", "nothing"], &mut pipeline));
        owner.send(&pipeline).expect("the server reads");
        let since = Instant::now();
        owner.read().expect("the first reply");
        other.command(&["PING"]);
        let waited = (since.elapsed().as_secs_f64() / one.as_secs_f64()) as u32;
        owner.read_many(PIPELINE - 1).expect("all replies");
        assert!(waited < WAITED_MAX, "waited for {waited} commands");
    });
}
