//! Changes of the role: promotion, a former primary that becomes a replica, a change to another
//! primary, and the replies that clients get during these changes.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use testkit::replication::load::send_lines;
use testkit::replication::{Proxy, field, happens, info, number, run};
use testkit::{Client, Value, notation};

use super::chains::chain;
use super::{Kind, Node, is_without_peer, kinds, text};

/// The kinds of a primary, of its two replicas, and of a replica of the first replica.
type Programs = [Kind; 4];

/// Promotes the first replica. All other servers follow it and continue without a full sync.
fn promote_in(programs: Programs) {
    let what = format!("{programs:?}");
    let [a, b, c, d] = programs;
    let mut nodes = chain(&[a, b, d]);
    let last = nodes.pop().expect("three servers");
    let (promoted, former) = (nodes.pop().expect("two servers"), nodes.pop().expect("one server"));
    let other = Node::start(c, &[]);
    other.suit_peers();
    other.follow(former.port());
    former.fill(1, 3, &[promoted.version, last.version, other.version]);
    other.wait_for_data_of(&former, &what);
    last.wait_for_data_of(&former, &what);
    let id = former.link("master_replid");
    let before = promoted.syncs();
    promoted.promote();
    assert_eq!(promoted.link("master_replid2"), id, "{what}");
    send_lines(&mut promoted.connect(), ["SELECT 2", "SET of-the-new-primary 1", "SELECT 0", "INCR n"]);
    other.follow(promoted.port());
    former.follow(promoted.port());
    for node in [&other, &former, &last] {
        node.wait_for_data_of(&promoted, &what);
        assert_eq!(node.link("master_replid"), promoted.link("master_replid"), "{what}");
    }
    assert_eq!(promoted.syncs_since(before), (0, 3), "{what}: {}\n{}", promoted.state(), former.state());
    let refused = notation::one_line(&former.connect().command(&["SET", "k", "1"]));
    assert!(refused.contains("READONLY"), "{what}: {refused}");
    // The former primary is promoted, and becomes the primary again.
    let before = former.syncs();
    former.promote();
    send_lines(&mut former.connect(), ["SET back 1"]);
    promoted.follow(former.port());
    // `last` and `other` follow `promoted` as before, and continue when the ID of its history
    // changes.
    for node in [&promoted, &last, &other] {
        node.wait_for_data_of(&former, &format!("{what}, back"));
    }
    assert_eq!(former.syncs_since(before), (0, 1), "{what}, back: {}", promoted.state());
}

#[test]
fn replicas_and_the_former_primary_continue_with_a_promoted_replica() {
    promote_in([Kind::Own; 4]);
    if is_without_peer() {
        return;
    }
    let (own, peer) = (Kind::Own, Kind::Peer);
    for programs in [
        [peer, own, own, own],
        [peer, own, peer, peer],
        [own, peer, own, own],
        [own, own, peer, peer],
        [peer, peer, own, own],
    ] {
        promote_in(programs);
    }
}

#[test]
fn a_promoted_replica_that_wrote_nothing_continues_with_its_former_primary() {
    for kind in kinds() {
        let primary = Node::start(kind, &[]);
        let replica = Node::following(&primary, &[]);
        // The stream of the primary selects its database once.
        let mut client = primary.connect();
        send_lines(&mut client, ["SELECT 5", "SET k 1"]);
        replica.catch_up(&primary);
        let (id, before) = (primary.link("master_replid"), primary.syncs());
        let ids = |node: &Node| ["master_replid", "master_replid2"].map(|name| node.link(name));
        for round in 0..3 {
            replica.promote();
            let [promoted, former] = ids(&replica);
            assert_eq!((&former, promoted != id), (&id, true), "{kind:?}");
            send_lines(&mut client, ["INCR n", "RPUSH list a b"]);
            replica.follow(primary.port());
            assert_eq!(ids(&replica), [id.clone(), promoted], "{kind:?}");
            replica.wait_for_data_of(&primary, &format!("{kind:?}, round {round}"));
        }
        assert_eq!(primary.syncs_since(before), (0, 3), "{kind:?}: {}", replica.state());
        // A change of its own is not in the stream of the primary.
        replica.promote();
        send_lines(&mut replica.connect(), ["SET own 1"]);
        replica.follow(primary.port());
        replica.wait_for_data_of(&primary, &format!("{kind:?}, after a write"));
        assert_eq!(primary.syncs_since(before), (1, 3), "{kind:?}: {}", replica.state());
    }
}

#[test]
fn a_promoted_replica_with_changes_outside_its_stream_gets_a_snapshot() {
    let primary = Node::start(Kind::Own, &[]);
    let folder = tempfile::tempdir().expect("a scratch folder");
    let dir = folder.path().to_str().expect("text");
    let replica = Node::following(&primary, &["--dir", dir]);
    let mut client = primary.connect();
    send_lines(&mut client, ["SET k 1"]);
    replica.catch_up(&primary);
    let script = "redis.set_repl(redis.REPL_NONE) redis.call('SET', 'k', 'own')";
    for request in [&["EVAL", script, "0"][..], &["DEBUG", "POPULATE", "1"], &["DEBUG", "RELOAD"]] {
        let before = primary.syncs();
        replica.promote();
        run(&mut replica.connect(), request);
        send_lines(&mut client, ["INCR n"]);
        replica.follow(primary.port());
        replica.wait_for_data_of(&primary, request[1]);
        assert_eq!(primary.syncs_since(before), (1, 0), "{request:?}: {}", replica.state());
    }
}

/// Promotes the second server of a chain for a moment. In that time, the third server may receive
/// the new replication id or not.
#[test]
fn replicas_of_a_server_that_is_promoted_for_a_moment_have_its_data() {
    let nodes = chain(&[Kind::Own; 3]);
    let mut client = nodes[0].connect();
    for round in 0..5 {
        nodes[1].promote();
        send_lines(&mut client, ["SELECT 5", "INCR n", "SELECT 6", "RPUSH list a"]);
        if round % 2 == 1 {
            nodes[2].wait_until_up();
        }
        nodes[1].follow(nodes[0].port());
        send_lines(&mut client, ["INCR n"]);
        for node in &nodes[1..] {
            node.wait_for_data_of(&nodes[0], &format!("round {round}"));
            assert_eq!(node.link("master_replid"), nodes[0].link("master_replid"), "round {round}");
        }
    }
}

#[test]
fn a_primary_that_starts_again_with_its_snapshot_continues_with_its_promoted_replica() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let dir = folder.path().to_str().expect("text");
    let port = testkit::process::free_port().expect("a port is free");
    let start = || Node::start_on(Kind::Own, port, &["--dir", dir, "--dbfilename", "kept.rdb"]);
    let mut primary = start();
    let replica = Node::following(&primary, &[]);
    send_lines(&mut primary.connect(), ["SELECT 5", "SET k 1"]);
    replica.catch_up(&primary);
    let mut request = Vec::new();
    resp::encode_request(&["SHUTDOWN", "SAVE"], &mut request);
    primary.connect().send(&request).expect("it reads");
    let status = primary.process.wait(Duration::from_secs(240)).expect("it can be waited for");
    assert_eq!(status, Some(0), "{}", primary.process.log());
    let before = replica.syncs();
    replica.promote();
    send_lines(&mut replica.connect(), ["SELECT 3", "SET k 2"]);
    let primary = start();
    primary.follow(replica.port());
    primary.wait_for_data_of(&replica, "after the restart");
    assert_eq!(replica.syncs_since(before), (0, 1), "{}", primary.state());
}

#[test]
fn a_former_primary_with_writes_of_its_own_gets_a_snapshot() {
    for kind in kinds() {
        let primary = Node::start(kind, &[]);
        let proxy = Proxy::start(primary.port()).expect("a port is free");
        let replica = Node::start(Kind::Own, &[]);
        replica.suit_peers();
        replica.follow(proxy.port());
        send_lines(&mut primary.connect(), ["SET both 1"]);
        replica.catch_up(&primary);
        proxy.stall();
        proxy.cut();
        send_lines(&mut primary.connect(), ["SET lost 1", "RPUSH lost-list 1 2 3"]);
        replica.promote();
        send_lines(&mut replica.connect(), ["SET kept 1"]);
        let before = replica.syncs();
        primary.follow(replica.port());
        primary.wait_for_data_of(&replica, &format!("{kind:?}"));
        assert_eq!(replica.syncs_since(before).0, 1, "{kind:?}");
        assert_eq!(primary.connect().command(&["EXISTS", "lost", "lost-list", "kept"]), Value::Integer(1));
    }
}

/// Adds numbers to a list until `stop` is set, on one of two servers; after an error, on the other
/// one. Returns the numbers that each server has acknowledged.
fn write_where_possible(ports: [u16; 2], writer: usize, stop: &AtomicBool) -> [Vec<String>; 2] {
    let mut clients = ports.map(Client::to_port);
    let mut acknowledged = [Vec::new(), Vec::new()];
    let (mut at, mut count) = (writer % 2, 0);
    while !stop.load(Relaxed) {
        count += 1;
        let element = format!("{writer}:{count}");
        match clients[at].request(&["RPUSH", &format!("list{writer}"), &element]) {
            Ok(Value::Integer(_)) => acknowledged[at].push(element),
            Ok(Value::Error(line)) => {
                let line = String::from_utf8_lossy(&line).into_owned();
                let is_expected =
                    ["READONLY", "LOADING", "UNBLOCKED"].iter().any(|word| line.starts_with(word));
                assert!(is_expected, "{line}");
                at = 1 - at;
            }
            Ok(other) => panic!("{other}"),
            // A server disconnects clients that are blocked when its role changes.
            Err(_) => clients[at] = Client::to_port(ports[at]),
        }
    }
    acknowledged
}

/// Returns the elements of the lists of all writers on a server.
pub(super) fn elements(node: &Node) -> BTreeSet<String> {
    let mut client = node.connect();
    let lists = (0..WRITERS).map(|writer| client.command(&["LRANGE", &format!("list{writer}"), "0", "-1"]));
    let mut all = BTreeSet::new();
    for list in lists {
        let Value::Array(elements) = list else { panic!("{list}") };
        let count = elements.len();
        let texts: BTreeSet<String> = elements.iter().map(text).collect();
        assert_eq!(texts.len(), count, "an element is there twice");
        all.extend(texts);
    }
    all
}

const WRITERS: usize = 3;

/// Runs `act` while clients write to one of two servers, whichever accepts writes. Returns the
/// elements that each server has acknowledged.
pub(super) fn with_writers(nodes: [&Node; 2], act: impl FnOnce()) -> [Vec<String>; 2] {
    let stop = AtomicBool::new(false);
    let ports = nodes.map(Node::port);
    std::thread::scope(|scope| {
        let stop = &stop;
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| scope.spawn(move || write_where_possible(ports, writer, stop)))
            .collect();
        // The writers end even if it fails.
        let acted = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
        stop.store(true, Relaxed);
        let mut all = [Vec::new(), Vec::new()];
        for writer in writers {
            let of_writer = writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            for (all, own) in all.iter_mut().zip(of_writer) {
                all.extend(own);
            }
        }
        acted.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        all
    })
}

/// Waits until a server has executed more commands than at the time of the call.
pub(super) fn wait_for_writes(node: &Node) {
    let mut client = node.connect();
    let from = number(&mut client, "stats", "total_commands_processed");
    assert!(happens(|| number(&mut client, "stats", "total_commands_processed") > from + 300));
}

#[test]
fn an_orderly_change_of_the_primary_loses_no_acknowledged_write() {
    for kind in kinds() {
        let nodes = chain(&[kind, Kind::Own]);
        let before = nodes.each_syncs();
        let acknowledged = with_writers([&nodes[0], &nodes[1]], || {
            for round in 0..6 {
                let (primary, replica) = (&nodes[round % 2], &nodes[(round + 1) % 2]);
                wait_for_writes(primary);
                run(&mut primary.connect(), &["CLIENT", "PAUSE", "60000", "WRITE"]);
                replica.catch_up(primary);
                replica.promote();
                primary.follow(replica.port());
                run(&mut primary.connect(), &["CLIENT", "UNPAUSE"]);
                assert!(happens(|| primary.is_up()), "round {round}: {}", primary.state());
                wait_for_writes(replica);
            }
        });
        nodes[1].wait_for_data_of(&nodes[0], &format!("{kind:?}"));
        let all = elements(&nodes[0]);
        let lost: Vec<_> = acknowledged.iter().flatten().filter(|element| !all.contains(*element)).collect();
        assert!(
            lost.is_empty(),
            "{kind:?}: {} of {} lost: {:?}",
            lost.len(),
            all.len(),
            &lost[..lost.len().min(5)]
        );
        let after = nodes.each_syncs();
        assert_eq!(before, after, "{kind:?}: full syncs\n{}\n{}", nodes[0].state(), nodes[1].state());
    }
}

/// The numbers of full syncs that several servers have given.
trait EachSyncs {
    fn each_syncs(&self) -> Vec<u64>;
}

impl EachSyncs for Vec<Node> {
    fn each_syncs(&self) -> Vec<u64> {
        self.iter().map(|node| node.syncs().full).collect()
    }
}

#[test]
fn a_promotion_under_load_keeps_all_that_the_new_primary_acknowledges() {
    for kind in kinds() {
        for round in 0..3 {
            let nodes = chain(&[kind, Kind::Own]);
            let [_, acknowledged] = with_writers([&nodes[0], &nodes[1]], || {
                wait_for_writes(&nodes[0]);
                nodes[1].promote();
                nodes[0].follow(nodes[1].port());
                assert!(happens(|| nodes[0].is_up()), "{}", nodes[0].state());
                wait_for_writes(&nodes[1]);
            });
            nodes[0].wait_for_data_of(&nodes[1], &format!("{kind:?}, round {round}"));
            let all = elements(&nodes[0]);
            assert!(!acknowledged.is_empty());
            let lost: Vec<_> = acknowledged.iter().filter(|element| !all.contains(*element)).collect();
            assert!(lost.is_empty(), "{kind:?}, round {round}: {lost:?}");
        }
    }
}

#[test]
fn writes_under_way_end_when_the_server_becomes_a_replica() {
    for kind in kinds() {
        let primary = Node::start(kind, &[]);
        send_lines(&mut primary.connect(), ["SET of-the-primary 1"]);
        let server = Node::start(Kind::Own, &[]);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (server, is_over) = (&server, &is_over);
            let writers: Vec<_> = (0..3)
                .map(|writer| {
                    scope.spawn(move || {
                        let mut client = server.connect();
                        let (key, mut written) = (format!("k{writer}"), 0_u64);
                        while !is_over.load(Relaxed) {
                            let requests =
                                vec![vec!["INCR", &key], vec!["MULTI"], vec!["INCR", &key], vec!["EXEC"]];
                            let replies = client.pipeline(&requests).expect("replies");
                            written += u64::from(replies.iter().all(|reply| !reply.is_error()));
                        }
                        written
                    })
                })
                .collect();
            for _ in 0..6 {
                server.follow(primary.port());
                server.wait_for_data_of(&primary, &format!("{kind:?}: as a replica"));
                server.promote();
                wait_for_writes(server);
            }
            server.follow(primary.port());
            server.wait_for_data_of(&primary, &format!("{kind:?}: at last"));
            is_over.store(true, Relaxed);
            let written: u64 = writers.into_iter().map(|writer| writer.join().expect("no panic")).sum();
            assert!(written > 0);
        });
        server.wait_for_data_of(&primary, &format!("{kind:?}: at the end"));
        assert_eq!(server.connect().command(&["EXISTS", "k0", "k1", "k2"]), Value::Integer(0));
    }
}

#[test]
fn a_transaction_changes_the_role() {
    for kind in kinds() {
        let primary = Node::start(kind, &[]);
        send_lines(&mut primary.connect(), ["SET k of-the-primary"]);
        let server = Node::start(Kind::Own, &[]);
        let mut client = server.connect();
        let port = primary.port().to_string();
        let requests = [
            &["MULTI"][..],
            &["SET", "k", "own"],
            &["REPLICAOF", "127.0.0.1", &port],
            &["GET", "k"],
            &["EXEC"],
        ];
        let replies = requests.map(|words| client.command(words));
        assert_eq!(notation::one_line(&replies[4]), "*3 +OK +OK \"own\"", "{kind:?}");
        server.wait_for_data_of(&primary, &format!("{kind:?}"));
        let refused = notation::one_line(&client.command(&["SET", "k", "2"]));
        assert!(refused.contains("READONLY You can't write against a read only replica."), "{refused}");
        for words in [&["MULTI"][..], &["REPLICAOF", "NO", "ONE"], &["GET", "k"], &["EXEC"]] {
            run(&mut client, words);
        }
        run(&mut client, &["SET", "k", "3"]);
    }
}

#[test]
fn the_primary_may_change_while_a_snapshot_arrives() {
    for kind in kinds() {
        let primary = Node::start(kind, &[]);
        let other = Node::start(kind, &[]);
        run(&mut primary.connect(), &["DEBUG", "POPULATE", "5000", "key", "100"]);
        send_lines(&mut other.connect(), ["SET of-the-other 1"]);
        for load in super::data::LOADS {
            let what = format!("{kind:?}, load {load}");
            let proxy = Proxy::start(primary.port()).expect("a port is free");
            proxy.throttle(Some(100_000));
            let server = Node::start(Kind::Own, &["--repl-diskless-load", load]);
            let mut client = server.connect();
            send_lines(&mut client, ["SET old 1"]);
            server.follow(proxy.port());
            assert!(happens(|| proxy.passed_bytes() > 20_000), "{what}: {}", server.state());
            if notation::one_line(&client.command(&["GET", "old"])).contains("LOADING") {
                // As in Redis, a server that loads has no other role before the end of the load.
                let port = other.port().to_string();
                let refused = notation::one_line(&client.command(&["REPLICAOF", "127.0.0.1", &port]));
                assert!(refused.contains("LOADING"), "{what}: {refused}");
                proxy.throttle(None);
                server.wait_for_data_of(&primary, &what);
            } else {
                assert_eq!(client.command(&["GET", "old"]), Value::Bulk(b"1".to_vec()), "{what}");
                server.promote();
                assert_eq!(client.command(&["SET", "old", "2"]), Value::Simple(b"OK".to_vec()), "{what}");
                server.follow(proxy.port());
                assert!(happens(|| proxy.connections() > 1), "{what}: {}", server.state());
            }
            server.follow(other.port());
            server.wait_for_data_of(&other, &what);
        }
    }
}

#[test]
fn a_writable_replica_keeps_its_writes_to_itself() {
    for kind in kinds() {
        let nodes = chain(&[kind, Kind::Own, Kind::Own]);
        let mut own = nodes[1].connect();
        run(&mut own, &["CONFIG", "SET", "replica-read-only", "no"]);
        send_lines(&mut own, ["SET own 1", "RPUSH both x", "SET over 1"]);
        send_lines(&mut nodes[0].connect(), ["SET over 2", "SET both text", "SET more 1"]);
        nodes[1].catch_up(&nodes[0]);
        nodes[2].wait_for_data_of(&nodes[0], &format!("{kind:?}: the replica of the writable one"));
        assert_eq!(own.command(&["GET", "over"]), Value::Bulk(b"2".to_vec()));
        assert_eq!(own.command(&["EXISTS", "own"]), Value::Integer(1));
        run(&mut own, &["CONFIG", "SET", "replica-read-only", "yes"]);
        assert!(own.command(&["SET", "own", "2"]).is_error());
    }
}

#[test]
fn keys_that_clients_of_a_writable_replica_let_expire_are_removed() {
    for kind in kinds() {
        let primary = Node::start(kind, &[]);
        let mut client = primary.connect();
        // The primary does not remove its expired key, so the replica keeps it.
        run(&mut client, &["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
        send_lines(&mut client, ["SET kept 1 PX 1", "SET theirs 1", "SET copied 1 EX 1000"]);
        let replica = Node::following(&primary, &["--replica-read-only", "no", "--appendonly", "yes"]);
        replica.catch_up(&primary);
        let mut own = replica.connect();
        let tracked = |own: &mut Client| number(own, "stats", "slave_expires_tracked_keys");
        send_lines(&mut own, ["SET plain 1", "APPEND copied 1", "SET later 1 EX 1000", "PERSIST later"]);
        // As in Redis, the name is forgotten only after its deadline.
        assert_eq!(tracked(&mut own), 1, "{kind:?}");
        send_lines(
            &mut own,
            [
                "SET first 1 PX 1",
                "PEXPIRE theirs 1",
                "EVAL return{redis.call('set','of-script',1,'px',1)} 0",
                "SET third 1 PX 1",
                "SELECT 4",
                "SET second 1 PX 1",
            ],
        );
        assert!(happens(|| tracked(&mut own) == 1), "{kind:?}: {}", info(&mut own, "stats"));
        // A key is removed after its name was taken.
        assert!(happens(|| number(&mut own, "stats", "expired_keys") == 5), "{kind:?}");
        // Left are: kept, copied, plain, later.
        run(&mut own, &["SELECT", "0"]);
        let has = |own: &mut Client, count| own.command(&["DBSIZE"]) == Value::Integer(count);
        assert!(happens(|| has(&mut own, 4)), "{kind:?}: {}", own.command(&["KEYS", "*"]));
        // A key that is moved to another database keeps its deadline.
        send_lines(&mut own, ["SET moving 1 PX 100", "MOVE moving 7", "SELECT 7"]);
        assert!(happens(|| has(&mut own, 0)), "{kind:?}");
        send_lines(&mut own, ["SET flushed 1 EX 1000", "FLUSHDB", "SELECT 0"]);
        // Those of an emptied database are forgotten.
        assert!(happens(|| tracked(&mut own) == 1), "{kind:?}: {}", info(&mut own, "stats"));
        // A promotion forgets the names: all keys expire by themselves.
        replica.promote();
        assert_eq!(tracked(&mut own), 0, "{kind:?}");
        assert!(happens(|| own.command(&["DBSIZE"]) == Value::Integer(3)), "{kind:?}");
    }
}

#[test]
fn issue_37_keys_with_keyspace_events_expire_on_writable_replicas() {
    for kind in kinds() {
        let primary = Node::start(kind, &[]);
        let options = ["--replica-read-only", "no", "--notify-keyspace-events", "KEA"];
        let replica = Node::following(&primary, &options);
        replica.catch_up(&primary);
        let mut own = replica.connect();
        send_lines(
            &mut own,
            ["SET first 1", "PEXPIRE first 1", "EVAL return{redis.call('set','of-script',1,'px',1)} 0"],
        );
        let is_empty = |own: &mut Client| own.command(&["DBSIZE"]) == Value::Integer(0);
        assert!(happens(|| is_empty(&mut own)), "{kind:?}: {}", own.command(&["KEYS", "*"]));
    }
}

/// Makes the next saves of a server fail: puts a folder in the place of its snapshot file.
fn block_saves(folder: &std::path::Path) {
    // The received snapshot became the data file. A folder cannot be replaced by a file.
    let _ = std::fs::remove_file(folder.join("dump.rdb"));
    std::fs::create_dir(folder.join("dump.rdb")).expect("created");
}

#[test]
fn a_replica_that_cannot_save_ends_at_the_next_write_unless_it_ignores_that() {
    for kind in kinds() {
        for ignores in [true, false] {
            let folder = tempfile::tempdir().expect("a scratch folder");
            let dir = folder.path().to_str().expect("a name of text");
            let primary = Node::start(kind, &[]);
            let option = if ignores { "yes" } else { "no" };
            let options =
                ["--dir", dir, "--save", "3600 100000", "--replica-ignore-disk-write-errors", option];
            let mut replica = Node::following(&primary, &options);
            block_saves(folder.path());
            let mut own = replica.connect();
            run(&mut own, &["BGSAVE"]);
            assert!(happens(|| field(&mut own, "persistence", "rdb_last_bgsave_status") == "err"));
            // A command that writes nothing is applied.
            run(&mut primary.connect(), &["PUBLISH", "channel", "text"]);
            replica.catch_up(&primary);
            send_lines(&mut primary.connect(), ["SET k 1"]);
            if ignores {
                replica.wait_for_data_of(&primary, &format!("{kind:?}"));
                assert!(replica.process.log().contains("applying a command even though"), "{kind:?}");
            } else {
                let status = replica.process.wait(testkit::replication::WITHIN).expect("it ends");
                assert_eq!(status, Some(1), "{kind:?}: {}", replica.process.log());
                assert!(replica.process.log().contains("Replica was unable to write command to disk."));
            }
        }
    }
}

#[test]
fn the_errors_of_a_replica_come_in_the_order_of_redis() {
    let options = ["--replica-serve-stale-data", "no", "--min-replicas-to-write", "1", "--replicaof"];
    let port = testkit::process::free_port().expect("a port is free").to_string();
    let replica = Node::start(Kind::Own, &[&options[..], &["127.0.0.1", &port]].concat());
    let mut own = replica.connect();
    let mut check = |words: &[&str], code: &str| {
        let reply = own.command(words).to_string();
        assert!(reply.contains(code), "{words:?}: {reply}");
    };
    // A replica demands no replicas for writes.
    check(&["SET", "k", "1"], "READONLY");
    check(&["GET", "k"], "MASTERDOWN");
    check(&["CONFIG", "SET", "replica-read-only", "no"], "OK");
    check(&["SET", "k", "1"], "MASTERDOWN");
    check(&["CONFIG", "SET", "replica-serve-stale-data", "yes"], "OK");
    check(&["SET", "k", "1"], "OK");
    check(&["REPLICAOF", "NO", "ONE"], "OK");
    check(&["SET", "k", "1"], "NOREPLICAS");
}
