//! FAILOVER: a primary changes places with one of its replicas, between all kinds of servers.

use std::time::Duration;

use rustix::process::Signal;
use testkit::replication::load::send_lines;
use testkit::replication::{Link, Proxy, field, happens, run};
use testkit::{Client, Value, notation};

use super::chains::chain;
use super::logins::tls_options;
use super::roles::{elements, wait_for_writes, with_writers};
use super::{Kind, Node, is_without_peer, runs_all};
use crate::support::signal;
use crate::tls::Pki;

/// The address on which all servers of the tests listen.
const HOST: &str = "127.0.0.1";
/// The length of `REPLCONF GETACK *` in the replication stream, in bytes: the primary's request for
/// an acknowledgement.
const GETACK_LEN: u64 = 37;

/// Returns the pairs of kinds, of a primary and of its replica, to test.
fn pairs() -> Vec<[Kind; 2]> {
    let (own, peer) = (Kind::Own, Kind::Peer);
    match is_without_peer() {
        true => vec![[own, own]],
        false => vec![[own, own], [own, peer], [peer, own]],
    }
}

/// Returns the pairs whose primary is the server under test.
fn own_pairs() -> impl Iterator<Item = [Kind; 2]> {
    pairs().into_iter().filter(|kinds| kinds[0] == Kind::Own)
}

impl Node {
    fn failover_state(&self) -> String {
        self.link("master_failover_state")
    }

    /// Waits until INFO of this server shows `state` for the failover.
    fn wait_for_failover(&self, state: &str) {
        assert!(happens(|| self.failover_state() == state), "not {state}: {}", self.state());
    }

    /// Waits until the first replica of this primary is online, so that a failover can choose it.
    fn wait_for_replica(&self) {
        let is_there = happens(|| self.link("slave0").contains("state=online"));
        assert!(is_there, "no replica is online: {}", self.state());
    }

    /// Returns the words of FAILOVER TO this server, followed by `more`. Stores the port in `port`.
    fn words<'w>(&self, port: &'w mut String, more: &[&'w str]) -> Vec<&'w str> {
        *port = self.port().to_string();
        [&["FAILOVER", "TO", HOST, port.as_str()], more].concat()
    }

    /// Fails over from this primary to the replica `target`, and waits until the roles have
    /// changed.
    fn fail_over_to(&self, target: &Self) {
        let mut port = String::new();
        run(&mut self.connect(), &target.words(&mut port, &[]));
        self.wait_for_failover("no-failover");
        assert_eq!((self.link("role"), target.link("role")), ("slave".to_owned(), "master".to_owned()));
    }
}

/// Sends a request without reading the reply.
fn send(client: &mut Client, words: &[&str]) {
    let mut bytes = Vec::new();
    resp::encode_request(words, &mut bytes);
    client.send(&bytes).expect("the server reads");
}

/// Reads the next reply, and formats it on one line.
fn reply(client: &mut Client) -> String {
    notation::one_line(&client.read().expect("a reply"))
}

#[test]
fn failovers_under_load_lose_no_acknowledged_write() {
    let rounds = if runs_all() { 100 } else { 5 };
    for kinds in pairs() {
        let nodes = chain(&kinds);
        let before: Vec<_> = nodes.iter().map(Node::syncs).collect();
        let acknowledged = with_writers([&nodes[0], &nodes[1]], || {
            for round in 0..rounds {
                let (primary, replica) = (&nodes[round % 2], &nodes[(round + 1) % 2]);
                wait_for_writes(primary);
                primary.wait_for_replica();
                let mut port = String::new();
                let words = match round % 3 {
                    0 => vec!["FAILOVER"],
                    1 => replica.words(&mut port, &[]),
                    _ => replica.words(&mut port, &["TIMEOUT", "60000"]),
                };
                run(&mut primary.connect(), &words);
                primary.wait_for_failover("no-failover");
                assert_eq!(primary.link("role"), "slave", "{kinds:?}, round {round}: {}", primary.state());
                assert_eq!(replica.link("role"), "master", "{kinds:?}, round {round}: {}", replica.state());
                primary.wait_until_up();
                wait_for_writes(replica);
            }
        });
        let [primary, replica] = [&nodes[rounds % 2], &nodes[(rounds + 1) % 2]];
        replica.wait_for_data_of(primary, &format!("{kinds:?}"));
        let all = elements(&nodes[0]);
        let lost: Vec<_> = acknowledged.iter().flatten().filter(|element| !all.contains(*element)).collect();
        let (count, first) = (lost.len(), &lost[..lost.len().min(5)]);
        assert!(lost.is_empty(), "{kinds:?}: {count} of {} lost: {first:?}", all.len());
        // Each former primary continues with the new one.
        let given = nodes.iter().zip(before).map(|(node, before)| node.syncs_since(before));
        let given = given.fold((0, 0), |sum, (full, partial)| (sum.0 + full, sum.1 + partial));
        assert_eq!(given, (0, rounds as u64), "{kinds:?}: {}\n{}", nodes[0].state(), nodes[1].state());
    }
}

#[test]
fn other_replicas_continue_after_a_failover() {
    for kinds in pairs() {
        let what = format!("{kinds:?}");
        let [primary, target]: [Node; 2] = chain(&kinds).try_into().ok().expect("two servers");
        let of_primary = Node::following(&primary, &[]);
        let of_target = Node::following(&target, &[]);
        send_lines(&mut primary.connect(), ["SELECT 3", "SET k 1"]);
        for node in [&of_primary, &of_target] {
            node.wait_for_data_of(&primary, &what);
        }
        let before = [primary.syncs(), target.syncs()];
        primary.fail_over_to(&target);
        send_lines(&mut target.connect(), ["SET l 1"]);
        for node in [&primary, &of_primary, &of_target] {
            node.wait_for_data_of(&target, &what);
            assert_eq!(node.link("master_replid"), target.link("master_replid"), "{what}");
        }
        let given = [primary.syncs_since(before[0]), target.syncs_since(before[1])];
        assert_eq!(given, [(0, 1), (0, 2)], "{what}: {}\n{}", primary.state(), target.state());
    }
}

/// Starts a primary and its replica. The replica's process is then stopped, and lacks the primary's
/// last write.
fn with_stopped_replica(kinds: [Kind; 2]) -> [Node; 2] {
    let nodes: [Node; 2] = chain(&kinds).try_into().ok().expect("two servers");
    nodes[0].wait_for_replica();
    send_lines(&mut nodes[0].connect(), ["SET k 1"]);
    nodes[1].catch_up(&nodes[0]);
    signal(&nodes[1].process, Signal::STOP);
    send_lines(&mut nodes[0].connect(), ["SET k 2"]);
    nodes
}

#[test]
fn a_failover_ends_at_its_deadline_or_by_abort() {
    for kinds in own_pairs() {
        let [primary, replica] = with_stopped_replica(kinds);
        let before = primary.syncs();
        let (mut client, mut writer) = (primary.connect(), primary.connect());
        let mut port = String::new();
        // At the deadline.
        run(&mut client, &replica.words(&mut port, &["TIMEOUT", "300"]));
        send(&mut writer, &["SET", "k", "3"]);
        primary.wait_for_failover("no-failover");
        assert_eq!(reply(&mut writer), "+OK");
        let log = format!("FAILOVER to {HOST}:{} aborted: Replica never caught up", replica.port());
        assert!(primary.process.log().contains(&log), "{}", primary.process.log());
        // By ABORT, several times.
        for _ in 0..3 {
            run(&mut client, &replica.words(&mut port, &["TIMEOUT", "60000"]));
            assert_eq!(primary.failover_state(), "waiting-for-sync");
            send(&mut writer, &["INCR", "k"]);
            assert_eq!(client.command(&["GET", "k"]).as_bytes().map(<[u8]>::len), Some(1));
            run(&mut client, &["FAILOVER", "ABORT"]);
            assert_eq!(primary.failover_state(), "no-failover");
            assert!(reply(&mut writer).starts_with(':'));
        }
        signal(&replica.process, Signal::CONT);
        replica.wait_for_data_of(&primary, &format!("{kinds:?}"));
        assert_eq!((primary.syncs_since(before), primary.link("role")), ((0, 0), "master".to_owned()));
    }
}

#[test]
fn nothing_changes_while_a_failover_waits() {
    let [primary, replica] = with_stopped_replica([Kind::Own; 2]);
    let mut client = primary.connect();
    let keys: Vec<String> = (0..20).map(|number| format!("short{number}")).collect();
    // Nothing expires before the failover begins, also on a slow machine.
    run(&mut client, &["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
    for key in &keys {
        run(&mut client, &["SET", key, "x", "PX", "1000"]);
    }
    let (begin, size) = (primary.offset(), client.command(&["DBSIZE"]));
    run(&mut client, &["FAILOVER"]);
    run(&mut client, &["DEBUG", "SET-ACTIVE-EXPIRE", "1"]);
    let asked = happens(|| primary.offset() == begin + GETACK_LEN);
    assert!(asked, "{begin}: {}", primary.state());
    assert!(happens(|| keys.iter().all(|key| client.command(&["GET", key]) == Value::Null)));
    for (words, expected) in [
        (&["FAILOVER"][..], "-ERR FAILOVER already in progress."),
        (&["REPLICAOF", "NO", "ONE"], "-ERR REPLICAOF not allowed while failing over."),
        (&["REPLICAOF", HOST, "1"], "-ERR REPLICAOF not allowed while failing over."),
        (&["PSYNC", "?", "-1"], "-NOMASTERLINK Can't SYNC while failing over"),
        (&["SYNC"], "-NOMASTERLINK Can't SYNC while failing over"),
        (&["CLIENT", "UNPAUSE"], "+OK"),
    ] {
        assert_eq!(notation::one_line(&client.command(words)), expected, "{words:?}");
    }
    assert_eq!(field(&mut client, "clients", "paused_reason"), "failover_in_progress");
    assert_eq!(field(&mut client, "clients", "paused_actions"), "write");
    assert_eq!(client.command(&["DBSIZE"]), size);
    assert_eq!(primary.offset(), begin + GETACK_LEN);
    signal(&replica.process, Signal::CONT);
    primary.wait_for_failover("no-failover");
    assert_eq!(field(&mut client, "clients", "paused_reason"), "none");
    primary.wait_for_data_of(&replica, "after the failover");
}

#[test]
fn a_forced_failover_does_not_wait_for_the_replica() {
    for kinds in own_pairs() {
        let [primary, replica] = with_stopped_replica(kinds);
        let mut client = primary.connect();
        let mut port = String::new();
        let words = replica.words(&mut port, &["TIMEOUT", "100", "FORCE"]);
        // Aborted, while the replica does not answer.
        run(&mut client, &words);
        primary.wait_for_failover("failover-in-progress");
        assert_eq!(primary.link("role"), "slave");
        // Nobody else can make it a primary meanwhile: the pause of writes would not end.
        let request = ["PSYNC", &primary.link("master_replid"), "1", "FAILOVER"];
        let refused = notation::one_line(&client.command(&request));
        assert_eq!(refused, "-NOMASTERLINK Can't SYNC while failing over");
        assert_eq!(primary.link("role"), "slave");
        run(&mut client, &["FAILOVER", "ABORT"]);
        assert_eq!((primary.failover_state(), primary.link("role")), ("no-failover".into(), "master".into()));
        run(&mut client, &["SET", "k", "3"]);
        signal(&replica.process, Signal::CONT);
        replica.wait_for_data_of(&primary, &format!("{kinds:?}: aborted"));
        // To its end.
        primary.wait_for_replica();
        signal(&replica.process, Signal::STOP);
        run(&mut client, &["SET", "k", "4"]);
        run(&mut client, &words);
        primary.wait_for_failover("failover-in-progress");
        let mut writer = primary.connect();
        send(&mut writer, &["SET", "k", "5"]);
        signal(&replica.process, Signal::CONT);
        primary.wait_for_failover("no-failover");
        assert_eq!(reply(&mut writer), "-READONLY You can't write against a read only replica.");
        primary.wait_for_data_of(&replica, &format!("{kinds:?}: forced"));
        assert_eq!((primary.link("role"), replica.link("role")), ("slave".into(), "master".into()));
    }
}

#[test]
fn a_target_that_refuses_leaves_the_primary_in_its_role() {
    for kinds in own_pairs() {
        let [primary, replica]: [Node; 2] = chain(&kinds).try_into().ok().expect("two servers");
        primary.wait_for_replica();
        run(&mut replica.connect(), &["ACL", "SETUSER", "default", "-psync"]);
        let before = primary.syncs();
        let mut port = String::new();
        run(&mut primary.connect(), &replica.words(&mut port, &[]));
        primary.wait_for_failover("no-failover");
        run(&mut primary.connect(), &["SET", "k", "1"]);
        let rejected = "Failover target rejected psync request";
        assert_eq!(primary.process.log().matches(rejected).count(), 1, "{}", primary.process.log());
        replica.wait_for_data_of(&primary, &format!("{kinds:?}"));
        assert_eq!((primary.syncs_since(before), primary.link("role")), ((0, 1), "master".to_owned()));
        assert_eq!(replica.link("role"), "slave");
        run(&mut replica.connect(), &["ACL", "SETUSER", "default", "+psync"]);
        primary.fail_over_to(&replica);
    }
}

#[test]
fn a_target_that_refuses_the_login_leaves_the_primary_in_its_role() {
    for kinds in own_pairs() {
        let [primary, replica]: [Node; 2] = chain(&kinds).try_into().ok().expect("two servers");
        primary.wait_for_replica();
        run(&mut primary.connect(), &["CONFIG", "SET", "masterauth", "wrong"]);
        run(&mut replica.connect(), &["CONFIG", "SET", "requirepass", "right"]);
        let mut port = String::new();
        run(&mut primary.connect(), &replica.words(&mut port, &[]));
        primary.wait_for_failover("no-failover");
        assert_eq!(primary.link("role"), "master");
        run(&mut primary.connect(), &["SET", "k", "1"]);
    }
}

/// The way in which the servers log in to each other.
#[derive(Clone, Copy, Debug)]
enum Login {
    /// All clients and replicas use one password (`masterauth`).
    Password,
    /// Replicas log in as a user that has only the rights of a replica (`masteruser`).
    User,
}

#[test]
fn failovers_over_tls_with_logins_go_both_ways() {
    let pki = Pki::new();
    for login in [Login::Password, Login::User] {
        let ports = [(); 2].map(|()| testkit::process::free_port().expect("a port is free").to_string());
        let mut nodes = [0, 1].map(|at| {
            let mut options = tls_options(&pki, "server");
            options.extend(["--tls-port", &ports[at], "--tls-replication", "yes"].map(str::to_owned));
            Node::start(Kind::Own, &options.iter().map(String::as_str).collect::<Vec<_>>())
        });
        for node in &mut nodes {
            let mut client = node.connect();
            match login {
                Login::Password => {
                    run(&mut client, &["CONFIG", "SET", "requirepass", "secret", "masterauth", "secret"]);
                    node.password = "secret";
                }
                Login::User => {
                    let rights = ["ACL", "SETUSER", "follower", "on", ">own", "+psync", "+replconf", "+ping"];
                    run(&mut client, &rights);
                    run(&mut client, &["CONFIG", "SET", "masteruser", "follower", "masterauth", "own"]);
                    run(&mut client, &["ACL", "SETUSER", "default", "-psync", "-replconf"]);
                }
            }
        }
        run(&mut nodes[1].connect(), &["REPLICAOF", HOST, &ports[0]]);
        nodes[1].wait_until_up();
        let before: Vec<_> = nodes.iter().map(Node::syncs).collect();
        for round in 0..4 {
            let [old, new] = [round % 2, (round + 1) % 2];
            nodes[old].wait_for_replica();
            send_lines(&mut nodes[old].connect(), ["SELECT 3", "INCR n"]);
            run(&mut nodes[old].connect(), &["FAILOVER", "TO", HOST, &ports[new], "TIMEOUT", "600000"]);
            nodes[old].wait_for_failover("no-failover");
            let roles = [old, new].map(|at| nodes[at].link("role"));
            assert_eq!(roles, ["slave", "master"].map(str::to_owned), "{login:?}: {}", nodes[old].state());
            nodes[old].wait_for_data_of(&nodes[new], &format!("{login:?}, round {round}"));
        }
        let given: Vec<_> = nodes.iter().zip(before).map(|(node, before)| node.syncs_since(before)).collect();
        assert_eq!(given, [(0, 2), (0, 2)], "{login:?}: {}\n{}", nodes[0].state(), nodes[1].state());
        let plain = nodes.iter().map(|node| node.process.log()).collect::<String>();
        assert!(!plain.contains("secret"), "a password is in the log: {plain}");
    }
}

#[test]
fn a_lost_reply_does_not_make_two_primaries() {
    let primary = Node::start(Kind::Own, &[]);
    let port = testkit::process::free_port().expect("a port is free");
    let proxy = Proxy::start(port).expect("a port is free");
    let announced = proxy.port().to_string();
    let options = ["--replica-announce-ip", HOST, "--replica-announce-port", &announced];
    let replica = Node::start_on(Kind::Own, port, &options);
    replica.follow(primary.port());
    replica.wait_until_up();
    primary.wait_for_replica();
    let mut client = primary.connect();
    run(&mut client, &["SET", "k", "1"]);
    let before = replica.syncs();
    // The connection ends within the answer to PSYNC.
    proxy.cut_after(("+PONG\r\n+OK\r\n+OK\r\n+OK\r\n+CONT".len()) as u64);
    run(&mut client, &["FAILOVER", "TO", HOST, &announced]);
    primary.wait_for_failover("no-failover");
    assert_eq!((proxy.cuts(), primary.link("role")), (1, "slave".to_owned()), "{}", primary.state());
    run(&mut replica.connect(), &["SET", "k", "2"]);
    primary.wait_for_data_of(&replica, "after the failover");
    assert_eq!(replica.syncs_since(before).0, 0);
}

#[test]
fn blocked_clients_and_held_writes_get_errors_after_a_failover() {
    let [primary, replica] = with_stopped_replica([Kind::Own; 2]);
    let mut blocked = primary.connect();
    send(&mut blocked, &["BLPOP", "none", "0"]);
    assert!(happens(|| field(&mut primary.connect(), "clients", "blocked_clients") == "1"));
    let mut writers: Vec<Client> = (0..3).map(|_| primary.connect()).collect();
    run(&mut writers[2], &["MULTI"]);
    run(&mut writers[2], &["SET", "held", "1"]);
    run(&mut primary.connect(), &["FAILOVER"]);
    send(&mut writers[0], &["SET", "held", "1"]);
    let script = "return redis.call('SET', 'held', '1')";
    send(&mut writers[1], &["EVAL", script, "1", "held"]);
    send(&mut writers[2], &["EXEC"]);
    assert!(happens(|| field(&mut primary.connect(), "clients", "blocked_clients") == "4"));
    signal(&replica.process, Signal::CONT);
    primary.wait_for_failover("no-failover");
    assert!(reply(&mut blocked).starts_with("-UNBLOCKED force unblock from blocking operation"));
    for writer in &mut writers {
        let error = reply(writer);
        assert!(error.contains("READONLY"), "{error}");
    }
    primary.wait_for_data_of(&replica, "after the failover");
    assert_eq!(replica.connect().command(&["EXISTS", "held"]), Value::Integer(0));
}

#[test]
fn sigterm_can_make_a_replica_the_primary_first() {
    for kinds in own_pairs() {
        let options = ["--shutdown-on-sigterm", "nosave failover", "--shutdown-timeout", "60"];
        let mut primary = Node::start(kinds[0], &options);
        let replica = Node::start(kinds[1], &[]);
        primary.suit_peers();
        replica.follow(primary.port());
        replica.wait_until_up();
        primary.wait_for_replica();
        let mut client = primary.connect();
        for number in 0..100 {
            run(&mut client, &["SET", "k", &number.to_string()]);
        }
        signal(&primary.process, Signal::TERM);
        let status = primary.process.wait(Duration::from_secs(120)).expect("it can be waited for");
        assert_eq!(status, Some(0), "{kinds:?}: {}", primary.process.log());
        assert_eq!(replica.link("role"), "master", "{kinds:?}: {}", primary.process.log());
        let value = replica.connect().command(&["GET", "k"]);
        assert_eq!(value.as_bytes(), Some(&b"99"[..]), "{kinds:?}");
    }
}

#[test]
fn an_aborted_shutdown_ends_only_its_own_failover() {
    for is_asked_before in [false, true] {
        let [primary, replica] = with_stopped_replica([Kind::Own; 2]);
        let mut client = primary.connect();
        run(&mut client, &["CONFIG", "SET", "shutdown-on-sigterm", "nosave failover"]);
        run(&mut client, &["CONFIG", "SET", "shutdown-timeout", "3600"]);
        if is_asked_before {
            run(&mut client, &["FAILOVER"]);
        }
        signal(&primary.process, Signal::TERM);
        let [begins, ends] = match is_asked_before {
            true => ["No failover before shutting down: ERR FAILOVER already", "the failover goes on"],
            false => ["FAILOVER to any replica before", "aborted: Failover manually aborted"],
        };
        primary.process.wait_for_log(begins);
        assert_eq!(primary.failover_state(), "waiting-for-sync");
        run(&mut client, &["SHUTDOWN", "ABORT"]);
        primary.process.wait_for_log(ends);
        let state = if is_asked_before { "waiting-for-sync" } else { "no-failover" };
        primary.wait_for_failover(state);
        signal(&replica.process, Signal::CONT);
        primary.wait_for_failover("no-failover");
        let roles = [&primary, &replica].map(|node| node.link("role"));
        let [former, new] = if is_asked_before { [1, 0] } else { [0, 1] }.map(|at| &roles[at]);
        assert_eq!((former.as_str(), new.as_str()), ("master", "slave"), "{is_asked_before}");
    }
}

#[test]
fn a_replica_obeys_only_a_request_with_its_own_history() {
    let nodes = chain(&[Kind::Own, Kind::Own]);
    let refused = |node: &Node, id: &str| {
        let mut link = Link::connect(node.port());
        link.send(&["PSYNC", id, "1", "FAILOVER"]);
        link.line()
    };
    let id = nodes[0].link("master_replid");
    let other = "0123456789012345678901234567890123456789";
    assert_eq!(refused(&nodes[0], &id), "-ERR PSYNC FAILOVER can't be sent to a master.");
    for id in [other, "?", ""] {
        assert_eq!(refused(&nodes[1], id), "-ERR PSYNC FAILOVER replid must match my replid.");
    }
    assert_eq!(nodes[1].link("role"), "slave");
    assert!(refused(&nodes[1], &id).starts_with("+"));
    assert_eq!(nodes[1].link("role"), "master");
}
