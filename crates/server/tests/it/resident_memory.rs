//! Memory that the server returns to the system while no client sends a request.

use std::fs;

use testkit::{Client, ServerProcess, Value};

use crate::support::{as_process_on_each_back_end, happens, info};

const MIB: usize = 1 << 20;

/// The memory that the tests allow to stay resident when the data is gone, in bytes: the free parts
/// of pages of each size class and thread, and buffers.
const LEFT_BYTES_MAX: usize = 24 * MIB;

/// Returns the resident memory of a server, in bytes, without a request to the server.
fn resident_bytes(server: &ServerProcess) -> usize {
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a field of Linux");
    let kib: usize = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kib * 1024
}

fn run(client: &mut Client, words: &[&str]) {
    let reply = client.command(words);
    assert!(!matches!(reply, Value::Error(_)), "{words:?}: {reply}");
}

/// Checks that a server returns memory to the system after `empty`, without a further request.
/// `fill` takes at least `filled_bytes`.
fn check(filled_bytes: usize, fill: impl Fn(&mut Client), empty: impl Fn(&mut Client)) {
    as_process_on_each_back_end(|server| {
        let mut client = server.connect();
        run(&mut client, &["EVAL", "return redis.call('PING')", "0"]);
        let before = resident_bytes(server);
        fill(&mut client);
        let filled = resident_bytes(server);
        assert!(filled >= before + filled_bytes, "{before} {filled}");
        empty(&mut client);
        let mut after = 0;
        let is_returned = happens(|| {
            after = resident_bytes(server);
            after <= before + LEFT_BYTES_MAX
        });
        assert!(is_returned, "{before} before, {filled} with data, {after} after");
    });
}

#[test]
fn the_memory_of_a_deleted_big_value_goes_back() {
    let fill = |client: &mut Client| run(client, &["SETRANGE", "big", &(128 * MIB - 1).to_string(), "x"]);
    for delete in ["DEL", "UNLINK"] {
        check(0, fill, |client| run(client, &[delete, "big"]));
    }
}

#[test]
fn the_memory_of_many_deleted_values_goes_back() {
    let value = "x".repeat(MIB);
    let key = |number: usize| format!("k{number}");
    let fill = |client: &mut Client| (0..100).for_each(|n| run(client, &["SET", &key(n), &value]));
    check(100 * MIB, fill, |client| (0..100).for_each(|n| run(client, &["DEL", &key(n)])));
    check(100 * MIB, fill, |client| run(client, &["FLUSHALL"]));
}

#[test]
fn the_memory_of_a_script_goes_back_after_its_end() {
    let script = "local text = string.rep('x', tonumber(ARGV[1])) return #(text .. text)";
    let nothing = |_: &mut Client| ();
    check(0, |client| run(client, &["EVAL", script, "0", &(64 * MIB).to_string()]), nothing);
    let tables = "local all = {} for n = 1, tonumber(ARGV[1]) do all[n] = {n} end return #all";
    check(0, |client| run(client, &["EVAL", tables, "0", "500000"]), nothing);
}

#[test]
fn the_memory_of_keys_among_others_goes_back_with_active_defragmentation() {
    const KEYS: usize = 200_000;
    let value = "x".repeat(200);
    as_process_on_each_back_end(|server| {
        let mut client = server.connect();
        let mut run_many = |words: &dyn Fn(usize) -> Vec<String>, of: &[usize]| {
            for some in of.chunks(500) {
                let mut requests = Vec::new();
                some.iter().for_each(|&n| resp::encode_request(&words(n), &mut requests));
                client.send(&requests).expect("it reads");
                let replies = client.read_many(some.len()).expect("all are answered");
                assert!(replies.iter().all(|reply| !reply.is_error()));
            }
        };
        let key = |n: usize| format!("key:{n:07}");
        let all: Vec<usize> = (0..KEYS).collect();
        run_many(&|n| vec!["SET".into(), key(n), value[n % 180..].into()], &all);
        let deleted: Vec<usize> = all.iter().copied().filter(|n| n * 7919 % 10 != n / 100 % 10).collect();
        run_many(&|n| vec!["DEL".into(), key(n)], &deleted);
        let before = resident_bytes(server);
        run(&mut client, &["CONFIG", "SET", "active-defrag-ignore-bytes", "1mb", "activedefrag", "yes"]);
        let mut after = 0;
        let is_returned = happens(|| {
            after = resident_bytes(server);
            after + 10 * MIB < before
        });
        assert!(is_returned, "{before} before, {after} after");
        assert!(info(&mut client, "active_defrag_hits") > 0);
        assert_eq!(info(&mut client, "active_defrag_hits"), info(&mut client, "active_defrag_key_hits"));
        assert!(happens(|| info(&mut client, "active_defrag_running") == 0));
        run(&mut client, &["CONFIG", "SET", "activedefrag", "no"]);
        run(&mut client, &["CONFIG", "RESETSTAT"]);
        assert_eq!(info(&mut client, "active_defrag_hits"), 0);
        for n in all.iter().copied().filter(|n| !deleted.contains(n)).step_by(97) {
            assert_eq!(client.command(&["GET", &key(n)]), Value::Bulk(value[n % 180..].into()));
        }
    });
}
