//! The records of the change log for replicas: the commands, and the transactions around them, are
//! those of the replication stream that a real Redis sends to its replicas.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use resp::decode::decode;
use testkit::{Client, ServerProcess, peer};

use crate::append_only::{folder, start_in};

const DEADLINE: Duration = Duration::from_secs(60);

/// The word in the command that ends the compared part of a replication stream.
const END: &str = "the-end";

/// Runs commands that are recorded for the append-only file, for replicas, for both or for neither,
/// alone and in transactions.
fn run(client: &mut Client) {
    let script = "redis.call('SELECT', ARGV[1]) \
                  for i, name in ipairs(KEYS) do redis.set_repl(redis[name]) redis.call('INCR', name) end";
    let named = |count: &'static str, database: &'static str, names: &[&'static str]| {
        [&["EVAL", script, count], names, &[database]].concat()
    };
    let commands: Vec<Vec<&str>> = vec![
        vec!["SET", "k", "1"],
        vec!["PUBLISH", "news", "alone"],
        vec!["SPUBLISH", "shard", "alone"],
        vec!["SELECT", "2"],
        vec!["PUBLISH", "news", "in database 2"],
        vec!["SELECT", "0"],
        vec!["MULTI"],
        vec!["SET", "k", "2"],
        vec!["PUBLISH", "news", "in a transaction"],
        vec!["EXEC"],
        vec!["MULTI"],
        vec!["PUBLISH", "news", "alone in a transaction"],
        vec!["EXEC"],
        vec!["MULTI"],
        vec!["PUBLISH", "news", "one"],
        vec!["PUBLISH", "other", "two"],
        vec!["EXEC"],
        named("4", "0", &["REPL_ALL", "REPL_AOF", "REPL_REPLICA", "REPL_NONE"]),
        named("2", "3", &["REPL_AOF", "REPL_AOF"]),
        named("1", "3", &["REPL_AOF"]),
        vec!["INCR", "after a gap"],
        named("1", "4", &["REPL_REPLICA"]),
        named("2", "4", &["REPL_NONE", "REPL_ALL"]),
        vec!["INCR", "after a gap"],
        vec!["EVAL", "redis.call('PUBLISH', 'news', 'script') return redis.call('SET', 'k', '3')", "0"],
        vec!["EVAL", "redis.set_repl(redis.REPL_AOF) redis.call('PUBLISH', 'news', 'unseen')", "0"],
        vec!["EVAL", "redis.set_repl(redis.REPL_REPLICA) redis.call('PUBLISH', 'news', 'seen')", "0"],
        vec!["MULTI"],
        named("1", "0", &["REPL_AOF"]),
        vec!["SELECT", "1"],
        vec!["SET", "k", "4"],
        vec!["SELECT", "0"],
        vec!["PUBLISH", "news", "with a script"],
        vec!["EXEC"],
        vec!["FLUSHALL"],
        vec!["SET", END, "1"],
    ];
    for command in commands {
        let reply = client.command(&command);
        assert!(!reply.is_error(), "{command:?}: {reply}");
    }
}

/// Returns the commands of a replication stream up to the one with [`END`], one per line.
fn lines(stream: &[u8]) -> Vec<String> {
    let (mut at, mut lines) = (0, Vec::new());
    while let Some((request, len_bytes)) = decode(&stream[at..]).expect("requests") {
        at += len_bytes;
        lines.push(request.to_string());
        if lines.last().is_some_and(|line| line.contains(END)) {
            break;
        }
    }
    lines.retain(|line| !line.to_lowercase().contains("\"ping\""));
    without_empty_transactions(lines)
}

/// Removes MULTI and EXEC without a command between them. If no command of a transaction is for
/// replicas, Redis sends them an empty transaction; this server sends nothing.
fn without_empty_transactions(lines: Vec<String>) -> Vec<String> {
    let mut kept: Vec<String> = Vec::new();
    for line in lines {
        if line.contains("\"EXEC\"") && kept.last().is_some_and(|last| last.contains("\"MULTI\"")) {
            kept.pop();
        } else {
            kept.push(line);
        }
    }
    kept
}

/// Returns the commands of a replication stream up to the one with [`END`], one per line. Each has
/// its database in front, so SELECT is left out.
fn effects(stream: &[u8]) -> Vec<String> {
    let (mut selected, mut effects) = (String::new(), Vec::new());
    for line in lines(stream) {
        match line.split_once("\"SELECT\"") {
            Some((_, database)) => selected = database.to_owned(),
            None if line.contains("\"MULTI\"") || line.contains("\"EXEC\"") => effects.push(line),
            None => effects.push(format!("{selected}: {line}")),
        }
    }
    without_empty_transactions(effects)
}

/// Returns true if a server is older than Redis 7.2.
fn is_older(client: &mut Client) -> bool {
    let info = client.command(&["INFO", "server"]).to_string();
    ["7.0.", "6."].iter().any(|version| info.contains(&format!("redis_version:{version}")))
}

/// Connects to a server as a replica, and reads the snapshot without keeping it.
fn follow(server: &ServerProcess) -> TcpStream {
    let mut link = TcpStream::connect(("127.0.0.1", server.port())).expect("it listens");
    link.set_read_timeout(Some(DEADLINE)).expect("it is a socket");
    link.write_all(b"PSYNC ? -1\r\n").expect("it reads");
    let mut line = String::new();
    // Empty lines keep the link alive while the snapshot is made.
    while !line.starts_with('$') {
        line.clear();
        while !line.ends_with('\n') {
            let mut byte = [0];
            link.read_exact(&mut byte).expect("a reply");
            line.push(byte[0].into());
        }
    }
    let len_bytes: usize = line[1..].trim().parse().expect("the length of the snapshot");
    link.read_exact(&mut vec![0; len_bytes]).expect("the snapshot");
    link
}

fn read_to_the_end(mut link: TcpStream) -> Vec<u8> {
    let mut stream = Vec::new();
    while !stream.windows(END.len()).any(|part| part == END.as_bytes()) {
        let mut part = [0; 4096];
        let len_bytes = link.read(&mut part).expect("the stream goes on");
        assert!(len_bytes > 0, "the link ended");
        stream.extend_from_slice(&part[..len_bytes]);
    }
    let mut rest = [0; 4096];
    // The last command may be incomplete.
    while decode_all(&stream).is_none() {
        let len_bytes = link.read(&mut rest).expect("the stream goes on");
        stream.extend_from_slice(&rest[..len_bytes]);
    }
    stream
}

/// Checks that the bytes of a replication stream end with a complete command; returns `None` if
/// they do not.
fn decode_all(stream: &[u8]) -> Option<()> {
    let mut at = 0;
    while at < stream.len() {
        at += decode(&stream[at..]).expect("requests")?.1;
    }
    Some(())
}

fn recorded(path: &Path) -> Vec<u8> {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let stream = std::fs::read(path).expect("the file of the reader");
        if stream.windows(END.len()).any(|part| part == END.as_bytes()) && decode_all(&stream).is_some() {
            return stream;
        }
        assert!(Instant::now() < deadline, "the reader did not get the last command");
        std::thread::yield_now();
    }
}

#[test]
fn replicas_and_the_file_get_what_redis_sends_them() {
    if !peer::is_available() {
        return;
    }
    // Before 7.2, Redis selects a database ahead of MULTI, also for a target that gets no command.
    let form = if is_older(&mut peer::start().expect("starts").connect()) { effects } else { lines };
    let scratch = folder();
    let dir = scratch.path().to_str().expect("text");
    let theirs =
        peer::start_with(&["--dir", dir, "--repl-diskless-sync", "no", "--save", "", "--appendonly", "yes"]);
    let theirs = theirs.expect("starts");
    let link = follow(&theirs);
    run(&mut theirs.connect());
    let expected = form(&read_to_the_end(link));

    let folder = folder();
    let ours = start_in(folder.path(), &["--enable-debug-command", "yes"]);
    let mut client = ours.connect();
    for (name, target) in [("replicas", Some("REPLICAS")), ("file", None)] {
        let path = folder.path().join(name);
        let mut command = vec!["DEBUG", "CHANGE-LOG", "FILE", path.to_str().expect("text")];
        command.extend(target);
        assert!(!client.command(&command).is_error());
    }
    run(&mut client);
    assert_eq!(form(&recorded(&folder.path().join("replicas"))), expected);

    let increments = scratch.path().join("appendonlydir").join("appendonly.aof.1.incr.aof");
    let expected = form(&recorded(&increments));
    assert_eq!(form(&recorded(&folder.path().join("file"))), expected);
}
