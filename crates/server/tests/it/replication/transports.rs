//! Replicas over TLS and Unix sockets, and `redis-cli` as a replica.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use testkit::change_stream::replay::Commands;
use testkit::process::free_port;
use testkit::replication::load::{send_lines, send_random};
use testkit::replication::{Link, Proxy, Psync, Replica, SyncCounts, happens, info, run};
use testkit::{Address, Rng, Value, peer};

use super::cuts::write_stream;
use super::protocol::{begin_stream, check_snapshot, filled_primary, offset, peer_in, redis_cli};
use super::{Primary, fill, has_field_expiry, is_without_peer, persist_fields, replicas, seed};
use crate::tls::Pki;

/// Number of values of each type in each database.
const VALUES: usize = 4;

/// Number of batches of random commands that a test writes to the primary.
const BATCHES: usize = 8;

/// Number of cuts of an encrypted link in a test.
const CUTS: u64 = 8;

/// Prints a note and returns true if the peer was built without TLS.
fn is_without_tls(pki: &Pki) -> bool {
    let port = free_port().expect("a port is free").to_string();
    let started = peer::start_with(&[
        "--tls-port",
        &port,
        "--tls-cert-file",
        &pki.text("server.crt"),
        "--tls-key-file",
        &pki.text("server.key"),
        "--tls-ca-cert-file",
        &pki.text("ca.crt"),
    ]);
    if let Err(error) = &started {
        eprintln!("the peer has no TLS, so no replica follows over TLS: {error}");
    }
    started.is_err()
}

/// A primary that also listens for TLS.
struct Encrypted {
    primary: Primary,
    tls_port: u16,
}

impl Encrypted {
    /// Starts a primary that also listens for TLS. `auth_clients` is its option `tls-auth-clients`.
    fn start(pki: &Pki, auth_clients: &str) -> Self {
        let tls_port = free_port().expect("a port is free");
        let primary = Primary::start(&[
            "--tls-port",
            &tls_port.to_string(),
            "--tls-cert-file",
            &pki.text("server.crt"),
            "--tls-key-file",
            &pki.text("server.key"),
            "--tls-ca-cert-file",
            &pki.text("ca.crt"),
            "--tls-auth-clients",
            auth_clients,
        ]);
        Self { primary, tls_port }
    }
}

/// Starts a replica that follows a primary over TLS, with the certificate named `certificate`.
fn encrypted_replica(pki: &Pki, certificate: &str) -> Replica {
    let options = [
        "--tls-replication",
        "yes",
        "--tls-cert-file",
        &pki.text(&format!("{certificate}.crt")),
        "--tls-key-file",
        &pki.text(&format!("{certificate}.key")),
        "--tls-ca-cert-file",
        &pki.text("ca.crt"),
    ];
    Replica::start(&options).unwrap_or_else(|error| panic!("the replica: {error}"))
}

#[test]
fn a_replica_over_tls_has_the_data_after_full_syncs_commands_and_cuts() {
    if is_without_peer() {
        return;
    }
    let (pki, seed) = (Pki::new(), seed());
    if is_without_tls(&pki) {
        return;
    }
    let Encrypted { primary, tls_port } = Encrypted::start(&pki, "no");
    let mut client = primary.connect();
    let replica = encrypted_replica(&pki, "client");
    fill(&mut client, seed, VALUES);
    if !has_field_expiry(replica.version()) {
        persist_fields(&mut client);
    }
    let proxy = Proxy::start(tls_port).expect("a port is free");
    for diskless in ["no", "yes"] {
        run(&mut client, &["CONFIG", "SET", "repl-diskless-sync", diskless]);
        let before = SyncCounts::of(&mut client);
        replica.leave();
        replica.follow(proxy.port());
        replica.wait_for_data_of(&mut client, &format!("diskless {diskless}, seed {seed}"));
        assert_eq!(SyncCounts::of(&mut client).since(before), (1, 0), "diskless {diskless}, seed {seed}");
    }
    // Without flushes: a Redis 8 whose link is cut while it flushes asks for a snapshot.
    let (mut rng, before) = (Rng::new(seed), SyncCounts::of(&mut client));
    for cut in 0..CUTS {
        proxy.cut_after(proxy.passed_bytes() + 1 + rng.below(30_000) as u64);
        write_stream(&mut client);
        assert!(happens(|| proxy.cuts() > cut), "seed {seed}: cut {cut} does not come");
        replica.wait_for_data_of(&mut client, &format!("seed {seed}, cut {cut}"));
    }
    let syncs = SyncCounts::of(&mut client).since(before);
    assert_eq!(syncs, (0, CUTS), "seed {seed}\n{}\n{}", primary.process.log(), replica.log());
    let mut commands = Commands::for_version(replica.version(), Rng::new(seed));
    send_random(&primary.process, &mut commands, BATCHES);
    replica.wait_for_data_of(&mut client, &format!("seed {seed}, random commands"));
    // The big values of a snapshot do not fit in one record.
    run(&mut client, &["SET", "big", &"b".repeat(3 << 20)]);
    replica.wait_for_data_of(&mut client, "a big value in the stream");
    replica.leave();
    replica.follow(proxy.port());
    replica.wait_for_data_of(&mut client, "a big value in the snapshot");
}

#[test]
fn a_primary_that_asks_for_certificates_is_followed_with_one() {
    if is_without_peer() {
        return;
    }
    let (pki, other) = (Pki::new(), Pki::new());
    if is_without_tls(&pki) {
        return;
    }
    let Encrypted { primary, tls_port } = Encrypted::start(&pki, "yes");
    let mut client = primary.connect();
    run(&mut client, &["SET", "k", "1"]);
    // A certificate of another authority, with the primary's authority as the one to trust.
    for file in ["client.crt", "client.key"] {
        let name = file.replace("client", "stranger");
        std::fs::copy(other.path(file), pki.path(&name)).expect("copied");
    }
    let stranger = encrypted_replica(&pki, "stranger");
    let proxy = Proxy::start(tls_port).expect("a port is free");
    stranger.follow(proxy.port());
    // The replica whose certificate is refused tries again.
    assert!(happens(|| proxy.connections() > 1), "{}", stranger.log());
    assert_eq!(SyncCounts::of(&mut client), SyncCounts { full: 0, partial: 0 });
    let replica = encrypted_replica(&pki, "client");
    replica.follow(tls_port);
    replica.wait_for_data_of(&mut client, "with a certificate");
    assert_eq!(replicas(&mut client), 1, "{}", info(&mut client, "replication"));
    assert!(!stranger.is_up());
}

/// Starts a primary that also listens on a Unix socket in `folder`.
fn with_socket(folder: &Path) -> (Primary, Address) {
    let path = folder.join("primary.sock");
    let primary = Primary::start(&["--unixsocket", path.to_str().expect("text")]);
    (primary, Address::Unix(path))
}

#[test]
fn a_link_over_a_unix_socket_gets_the_snapshot_the_stream_and_its_continuation() {
    if is_without_peer() {
        return;
    }
    let folder = tempfile::tempdir().expect("a scratch folder");
    let (primary, address) = with_socket(folder.path());
    let mut client = primary.connect();
    run(&mut client, &["SET", "before", &"x".repeat(100_000)]);
    let mut link = Link::connect_to(&address);
    link.introduce(&["eof", "psync2"]);
    let answer = link.psync("?", -1);
    let Psync::Full { id, offset: first } = answer else { panic!("{answer:?}") };
    let snapshot = link.snapshot();
    check_snapshot(&primary, &snapshot.bytes);
    begin_stream(&primary, &mut link, first);
    for number in 0..300 {
        send_lines(&mut client, ["SELECT 3", "MULTI", "INCR n", "RPUSH l a b", "EXEC", "SELECT 0"]);
        run(&mut client, &["SET", "k", &"v".repeat(number * 10)]);
    }
    run(&mut client, &["SET", "the-end", "1"]);
    link.commands_up_to(&["SET", "the-end", "1"]);
    let stream = link.streamed().to_vec();
    assert_eq!(first + stream.len() as u64, offset(&mut client));
    drop(link);
    for from in (0..stream.len()).step_by(997) {
        let mut link = Link::connect_to(&address);
        let answer = link.psync_at_once(&["eof", "psync2"], &id, (first + from as u64 + 1) as i64);
        assert_eq!(answer, Psync::Continues(Some(id.clone())), "after byte {from}");
        assert_eq!(link.take(stream.len() - from), stream[from..], "after byte {from}");
    }
    assert!(happens(|| replicas(&mut client) == 0), "{}", info(&mut client, "replication"));
}

#[test]
fn redis_cli_gets_files_over_a_unix_socket() {
    if is_without_peer() {
        return;
    }
    let Some(program) = redis_cli() else {
        return eprintln!("no redis-cli beside the peer and on the PATH");
    };
    let folder = tempfile::tempdir().expect("a scratch folder");
    let (primary, _) = with_socket(folder.path());
    let mut client = primary.connect();
    send_lines(&mut client, ["SET a 1", "SELECT 4", "RPUSH l a b c", "SELECT 0"]);
    let output = Command::new(&program)
        .arg("-s")
        .arg(folder.path().join("primary.sock"))
        .arg("--rdb")
        .arg(folder.path().join("dump.rdb"))
        .output()
        .expect("redis-cli runs");
    let text = [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat();
    assert!(output.status.success(), "{text}");
    let peer = peer_in(folder.path());
    assert_eq!(peer.connect().command(&["GET", "a"]), Value::Bulk(b"1".to_vec()));
    assert!(happens(|| replicas(&mut client) == 0));
}

/// A process of `redis-cli --replica`. It is killed when this value is dropped.
struct PrintingReplica(Child);

impl Drop for PrintingReplica {
    fn drop(&mut self) {
        // Both fail only when the process has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn redis_cli_prints_the_stream_as_a_replica() {
    if is_without_peer() {
        return;
    }
    let Some(program) = redis_cli() else {
        return eprintln!("no redis-cli beside the peer and on the PATH");
    };
    let primary = filled_primary();
    let mut client = primary.connect();
    let mut command = Command::new(&program);
    command.args(["-p", &primary.port().to_string(), "--replica"]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut replica = PrintingReplica(child.expect("redis-cli runs"));
    let is_online = |text: &str| text.contains("state=online");
    assert!(happens(|| is_online(&info(&mut client, "replication"))), "{}", info(&mut client, "replication"));
    // redis-cli takes the first command for the answer to its acknowledgement.
    send_lines(&mut client, ["SET k 1", "SELECT 3", "MULTI", "INCR k", "RPUSH l a b", "EXEC"]);
    let stdout = replica.0.stdout.take().expect("a pipe");
    let mut printed = Vec::new();
    for line in BufReader::new(stdout).lines() {
        let line = line.expect("text");
        // Other lines are notes of redis-cli.
        if line.starts_with('"') {
            printed.push(line);
        }
        if printed.last().is_some_and(|line| line.eq_ignore_ascii_case("\"exec\"")) {
            break;
        }
    }
    let expected = [
        r#""SET","k","1""#,
        r#""MULTI""#,
        r#""SELECT","3""#,
        r#""INCR","k""#,
        r#""RPUSH","l","a","b""#,
        r#""EXEC""#,
    ];
    assert_eq!(printed, expected);
    drop(replica);
    assert!(happens(|| replicas(&mut client) == 0), "{}", info(&mut client, "replication"));
}
