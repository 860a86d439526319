//! The audit log, logins that must wait.

use std::net::UdpSocket;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value as Json;
use server::{Server, StartError};
use testkit::{Address, Client, Value, saker};

use crate::support::{BINARY, connect, info, signal};

/// A server with these options.
fn start(options: &[(&str, &str)]) -> Server {
    let mut builder = Server::builder().port(0).io_threads(2);
    for (name, value) in options {
        builder = builder.option(name, value);
    }
    builder.start().expect("the server starts")
}

/// The lines of the audit log of a server that has ended.
fn lines(path: &Path) -> Vec<Json> {
    let text = std::fs::read_to_string(path).expect("the file is there");
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}")))
        .collect()
}

/// What a line says in short.
fn shown(line: &Json) -> String {
    let word = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
    let keys: Vec<&str> = line["keys"].as_array().into_iter().flatten().filter_map(Json::as_str).collect();
    let words =
        [word("event"), word("result"), word("reason"), word("user"), word("command"), keys.join(",")];
    words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

#[test]
fn the_audit_log_says_who_did_what_and_no_values() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let path = folder.path().join("audit.log");
    let file = path.to_str().expect("UTF-8");
    let server = start(&[
        ("audit-log-file", file),
        ("requirepass", "pw-of-default"),
        ("audit-log-events", "denied auth admin"),
    ]);
    let mut client = connect(&server);
    client.command(&["GET", "before"]);
    client.command(&["AUTH", "wrong-password"]);
    client.command(&["AUTH", "pw-of-default"]);
    client.command(&[
        "ACL",
        "SETUSER",
        "alice",
        "on",
        ">pw-of-alice",
        "+get",
        "+set",
        "+multi",
        "+exec",
        "~mine:*",
    ]);
    client.command(&["SET", "other", "a-value"]);
    let mut alice = connect(&server);
    alice.command(&["AUTH", "alice", "pw-of-alice"]);
    alice.command(&["SET", "mine:1", "a-value"]);
    alice.command(&["SET", "other", "a-value"]);
    alice.command(&["DEL", "mine:1", "mine:2"]);
    alice.command(&["GET", "mine:1", "too", "many"]);
    client.command(&["CONFIG", "SET", "audit-log-events", "all", "audit-log-users", "* !default"]);
    client.command(&["GET", "unseen"]);
    alice.command(&["MULTI"]);
    alice.command(&["SET", "mine:1", "a-value"]);
    alice.command(&["EXEC"]);
    alice.command(&["HELLO", "3", "AUTH", "alice", "pw-of-alice"]);
    assert_eq!(info(&mut client, "audit_log_lost"), 0);
    let noted = info(&mut client, "audit_log_lines");
    server.stop();
    let (text, lines) = (std::fs::read_to_string(&path).expect("there"), lines(&path));
    assert_eq!(
        lines.iter().map(shown).collect::<Vec<_>>(),
        [
            "command denied unauthenticated default get before",
            "auth denied auth default auth",
            "auth allowed default auth",
            "command allowed default acl|setuser",
            "auth allowed alice auth",
            "command denied key alice set other",
            "command denied command alice del mine:1,mine:2",
            "command allowed default config|set",
            "command allowed alice multi",
            "command queued alice set mine:1",
            "command allowed alice exec",
            "auth allowed alice hello",
            "command allowed alice hello",
        ]
    );
    assert_eq!(noted, lines.len() as u64);
    for secret in ["a-value", "pw-of", "wrong-password"] {
        assert!(!text.contains(secret), "{secret} stands in the log: {text}");
    }
    let first = &lines[0];
    assert!(first["addr"].as_str().is_some_and(|address| address.starts_with("127.0.0.1:")), "{first}");
    assert!(first["time"].as_str().is_some_and(|time| time.len() == 24 && time.ends_with('Z')), "{first}");
}

#[test]
fn the_audit_log_follows_its_name() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let (path, old) = (folder.path().join("audit.log"), folder.path().join("audit.log.1"));
    let file = path.to_str().expect("UTF-8");
    let mut server = saker::start_binary(BINARY, &["--audit-log-file", file, "--audit-log-events", "write"])
        .expect("starts");
    let mut client = server.connect();
    let written = |path: &Path, key: &str| {
        let began = Instant::now();
        while !std::fs::read_to_string(path).is_ok_and(|text| text.contains(key)) {
            assert!(began.elapsed() < Duration::from_secs(20), "{key} is not in {}", path.display());
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    client.command(&["SET", "first", "1"]);
    written(&path, "first");
    std::fs::rename(&path, &old).expect("rotated");
    signal(&server, Signal::HUP);
    client.command(&["SET", "second", "1"]);
    written(&path, "second");
    assert!(!std::fs::read_to_string(&old).expect("there").contains("second"));
    let refused = Server::builder().port(0).option("audit-log-file", "/nowhere/audit.log").start();
    assert!(matches!(refused, Err(StartError::Option { name, .. }) if name == "audit-log-file"));
    signal(&server, Signal::TERM);
    server.wait(Duration::from_secs(20)).expect("ends");
}

#[test]
fn an_address_that_fails_often_waits() {
    let ip = UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket.connect("192.0.2.1:9")?;
        Ok(socket.local_addr()?.ip())
    });
    let Some(ip) = ip.ok().filter(|ip| !ip.is_loopback() && !ip.is_unspecified()) else {
        eprintln!("this machine has the loopback only");
        return;
    };
    let builder = Server::builder().port(0).io_threads(1).bind(&["0.0.0.0".parse().expect("an address")]);
    let builder = builder.option("requirepass", "secret").option("auth-failure-delay", "300");
    let server = builder.start().expect("the server starts");
    let mut local = connect(&server);
    let from_outside = || Client::connect(&Address::Tcp((ip, server.port()).into())).expect("it listens");
    let mut outside = from_outside();
    let timed = |client: &mut Client, password: &str| {
        let began = Instant::now();
        let is_in = client.command(&["AUTH", password]) == Value::Simple(b"OK".to_vec());
        (is_in, began.elapsed() >= Duration::from_millis(250))
    };
    for _ in 0..10 {
        assert_eq!(timed(&mut outside, "wrong"), (false, false));
    }
    assert_eq!(timed(&mut outside, "wrong"), (false, true));
    // The right password waits too: else a try could end as soon as it is seen to take long. Others
    // do not.
    let mut waiting = from_outside();
    waiting.send(b"AUTH secret\r\nPING\r\n").expect("it is sent");
    assert_eq!(timed(&mut local, "wrong"), (false, false));
    assert_eq!(timed(&mut local, "secret"), (true, false));
    assert_eq!(waiting.read().expect("OK"), Value::Simple(b"OK".to_vec()));
    assert_eq!(waiting.read().expect("PONG"), Value::Simple(b"PONG".to_vec()));
    // More tries at once than have slots: the last are refused unseen.
    let mut many: Vec<Client> = (0..15).map(|_| from_outside()).collect();
    many.iter_mut().for_each(|client| client.send(b"AUTH wrong\r\n").expect("it is sent"));
    let replies: Vec<String> =
        many.iter_mut().map(|client| client.read().expect("a reply").to_string()).collect();
    let unseen = replies.iter().filter(|reply| reply.contains("too many failed logins")).count();
    assert!((4..=6).contains(&unseen), "{replies:?}");
    assert_eq!(info(&mut local, "auth_refused"), unseen as u64);
    assert!(info(&mut local, "auth_delayed") >= 11);
}
