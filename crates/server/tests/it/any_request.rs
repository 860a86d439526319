//! Random requests of every command, valid and nearly valid. The server stays up and replies once
//! to each request, and no handler uses a key that its record does not declare.

use std::time::{Duration, Instant};

use server::Server;
use testkit::documented::{Documented, documented};
use testkit::{ClientError, Protocol, Rng, Value};

use crate::support::{connect, info, on_each_back_end, speaking};

/// Time for which requests are sent to a server on each I/O backend.
const TIME: Duration = Duration::from_secs(2);
/// Number of requests that a client sends before it reads their replies.
const BATCH: usize = 40;
/// Number of batches of requests that one client sends.
const BATCHES_PER_CLIENT: usize = 20;

/// Commands that end or silence the connection or the server, change its options, contact other
/// servers, or take long.
const LEFT_OUT: &[&str] = &[
    "shutdown",
    "debug",
    "config|set",
    "config|rewrite",
    "client|pause",
    "client|kill",
    "client|reply",
    "client|unblock",
    "monitor",
    "sync",
    "psync",
    "replicaof",
    "slaveof",
    "failover",
    "hello",
    "auth",
    "reset",
    "quit",
    "migrate",
    // The next script would be debugged, and the end of its session closes the connection.
    "script|debug",
    "subscribe",
    "psubscribe",
    "ssubscribe",
    "unsubscribe",
    "punsubscribe",
    "sunsubscribe",
    "multi",
    "exec",
    "discard",
    "pfselftest",
];
/// Commands that may block outside a transaction. They are sent only in transactions.
const WAITING: &[&str] = &[
    "blpop",
    "brpop",
    "blmove",
    "brpoplpush",
    "blmovem",
    "blmpop",
    "bzpopmin",
    "bzpopmax",
    "bzmpop",
    "xread",
    "xreadgroup",
    "wait",
    "waitaof",
];

fn shown(request: &[Vec<u8>]) -> String {
    request.iter().map(|word| format!("{:?} ", String::from_utf8_lossy(word))).collect()
}

/// Sends batches of random requests for [`TIME`]; half of the batches are transactions. Returns the
/// number of requests.
fn send_any(server: &Server, commands: &[Documented], seed: u64) -> u64 {
    let (mut rng, end, mut sent) = (Rng::new(seed), Instant::now() + TIME, 0);
    let mut admin = connect(server);
    admin.command(&["CONFIG", "SET", "proto-max-bulk-len", "1mb"]);
    while Instant::now() < end {
        let protocol = if rng.percent(50) { Protocol::Resp2 } else { Protocol::Resp3 };
        let mut client = speaking(server, protocol);
        for _ in 0..BATCHES_PER_CLIENT {
            let queues = rng.percent(50);
            let mut batch: Vec<Vec<Vec<u8>>> = Vec::new();
            batch.extend(queues.then(|| vec![b"MULTI".to_vec()]));
            while batch.len() < BATCH {
                let command = rng.pick(commands);
                if queues || !WAITING.contains(&&command.name[..]) {
                    batch.push(command.request(&mut rng));
                }
            }
            batch.extend(queues.then(|| vec![b"EXEC".to_vec()]));
            sent += batch.len() as u64;
            let mut answered = 0;
            if let Err(error) = client.pipeline_each(&batch, |_| answered += 1) {
                let lines: Vec<String> = batch.iter().map(|request| shown(request)).collect();
                panic!("seed {seed}: {error} after {answered} replies to\n{}", lines.join("\n"));
            }
            let undeclared = info(&mut admin, "unexpected_error_replies");
            let lines = || batch.iter().map(|request| shown(request)).collect::<Vec<_>>().join("\n");
            assert_eq!(undeclared, 0, "seed {seed}: a key was not declared by one of\n{}", lines());
        }
    }
    sent
}

#[test]
fn no_request_ends_the_server_or_uses_a_key_that_is_not_declared() {
    on_each_back_end(|server| {
        let mut client = connect(server);
        let mut commands = documented(&mut client);
        commands.retain(|command| !LEFT_OUT.contains(&&command.name[..]));
        let seed = std::env::var("SAKER_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
        let sent = send_any(server, &commands, seed);
        eprintln!("{} commands, {sent} requests", commands.len());
        assert_eq!(client.command(&["PING"]), Value::Simple(b"PONG".to_vec()));
    });
}

/// Commands that end the server, change its options or block it, also in a transaction. The list
/// also has the commands that confirm each channel separately within the array of EXEC, as in
/// Redis.
const LEFT_OUT_OF_EXEC: &[&str] = &[
    "shutdown",
    "debug",
    "config|set",
    "config|rewrite",
    "client|pause",
    "client|kill",
    "migrate",
    "script|debug",
];
/// Number of transactions in which each command is sent.
const TRANSACTIONS: usize = 8;

/// Runs `request` in a transaction and checks that EXEC's reply has the announced length.
fn check_exec(server: &Server, protocol: Protocol, request: &[Vec<u8>]) {
    let mut client = speaking(server, protocol);
    let mut bytes = Vec::new();
    resp::encode_request(&["MULTI"], &mut bytes);
    resp::encode_request(request, &mut bytes);
    resp::encode_request(&["EXEC"], &mut bytes);
    resp::encode_request(&["ECHO", "behind"], &mut bytes);
    client.send(&bytes).expect("it is connected");
    let mut replies = Vec::new();
    while replies.len() < 4 {
        match client.read() {
            Ok(Value::Push(_)) => {}
            Ok(reply) => replies.push(reply),
            // The connection was closed by QUIT.
            Err(ClientError::Closed | ClientError::Io(_)) if replies.len() < 3 => return,
            Err(error) => panic!("{error} after {replies:?} to {}", shown(request)),
        }
    }
    let Value::Array(elements) = &replies[2] else { return };
    // A transaction rejects MULTI itself and some other commands, and is empty then.
    let is_queued = replies[1] == Value::Simple(b"QUEUED".to_vec());
    let is_subscription = String::from_utf8_lossy(&request[0]).to_ascii_lowercase().ends_with("subscribe");
    let is_refused = matches!(elements[..], [Value::Error(_)]);
    // One element confirms each channel; without a channel there is one confirmation.
    let confirmations = (request.len() - 1).max(1);
    let len = if is_subscription && !is_refused { confirmations } else { usize::from(is_queued) };
    assert_eq!(elements.len(), len, "{}", shown(request));
    let is_behind = matches!(&replies[3], Value::Bulk(text) if text == b"behind");
    // A RESP2 subscriber may not call ECHO.
    assert!(is_behind || matches!(replies[3], Value::Error(_)), "{replies:?} to {}", shown(request));
}

#[test]
fn issue_33_the_array_of_exec_has_the_length_that_it_announces() {
    on_each_back_end(|server| {
        let mut commands = documented(&mut connect(server));
        commands.retain(|command| !LEFT_OUT_OF_EXEC.contains(&&command.name[..]));
        let mut rng = Rng::new(33);
        for command in &commands {
            for _ in 0..TRANSACTIONS {
                let protocol = if rng.percent(50) { Protocol::Resp2 } else { Protocol::Resp3 };
                check_exec(server, protocol, &command.request(&mut rng));
            }
        }
        let words = |words: &[&str]| words.iter().map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
        for protocol in [Protocol::Resp2, Protocol::Resp3] {
            for mode in ["ON", "OFF", "SKIP"] {
                check_exec(server, protocol, &words(&["CLIENT", "REPLY", mode]));
            }
            for verb in
                ["SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE"]
            {
                check_exec(server, protocol, &words(&[verb, "a"]));
                check_exec(server, protocol, &words(&[verb, "a", "b", "a"]));
                check_exec(server, protocol, &words(&[verb]));
            }
        }
    });
}
