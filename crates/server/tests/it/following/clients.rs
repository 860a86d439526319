//! Clients of a replica: the primary's changes reach subscribers, blocked clients and watchers, and
//! raise events. On the primary, WAIT, WAITAOF and `min-replicas-to-write` count the replica.

use resp::encode_request;
use testkit::replication::load::send_lines;
use testkit::replication::{field, happens, number, run};
use testkit::{Client, Value, notation};

use super::{Kind, Node, kinds, text};

/// Reads messages until one ends with the text `last`. Returns the payloads of all messages.
fn messages(subscriber: &mut Client, last: &str) -> Vec<String> {
    let mut texts: Vec<String> = Vec::new();
    while texts.last().is_none_or(|text| text != last) {
        let message = subscriber.read().expect("a message");
        let (Value::Array(parts) | Value::Push(parts)) = message else { panic!("no message but {message}") };
        texts.push(text(parts.last().expect("a message has parts")));
    }
    texts
}

#[test]
fn messages_reach_the_subscribers_of_a_replica_in_order() {
    for kind in kinds() {
        let primary = Node::start(kind, &[]);
        let mut client = primary.connect();
        let replicas = [Node::following(&primary, &[]), Node::following(&primary, &[])];
        // A replica of a replica, too.
        replicas[1].follow(replicas[0].port());
        replicas[1].catch_up(&replicas[0]);
        let mut subscribers = Vec::new();
        for replica in &replicas {
            let clients = [&["SUBSCRIBE", "news"], &["PSUBSCRIBE", "n?ws"], &["SSUBSCRIBE", "shard"]].map(
                |words: &[&str; 2]| {
                    let mut client = replica.connect();
                    run(&mut client, words);
                    client
                },
            );
            subscribers.push(clients);
        }
        run(&mut client, &["PUBLISH", "news", "1"]);
        let publish_to_shard = |client: &mut Client, text: &str| {
            if primary.has_shard_channels() {
                run(client, &["SPUBLISH", "shard", text]);
            }
        };
        publish_to_shard(&mut client, "1");
        send_lines(&mut client, ["MULTI", "PUBLISH news 2", "SET k 1", "PUBLISH news 3", "EXEC"]);
        let script = "redis.call('PUBLISH', 'news', '4') return redis.call('SET', 'k', '2')";
        run(&mut client, &["EVAL", script, "0"]);
        let numbers: Vec<String> = (5..200).map(|number| number.to_string()).collect();
        for number in &numbers {
            run(&mut client, &["PUBLISH", "news", number]);
            publish_to_shard(&mut client, number);
        }
        let first = ["1", "2", "3", "4"].map(str::to_owned);
        for [plain, by_pattern, sharded] in &mut subscribers {
            let all = [&first[..], &numbers].concat();
            assert_eq!(messages(plain, "199"), all, "{kind:?}");
            assert_eq!(messages(by_pattern, "199"), all, "{kind:?}");
            if primary.has_shard_channels() {
                assert_eq!(messages(sharded, "199"), [&first[..1], &numbers].concat(), "{kind:?}");
            }
        }
    }
}

#[test]
fn events_of_the_primarys_changes_are_published_on_the_replica() {
    for kind in kinds() {
        let primary = Node::start(kind, &[]);
        let replica = Node::following(&primary, &["--notify-keyspace-events", "KEA"]);
        let mut subscriber = replica.connect();
        run(&mut subscriber, &["PSUBSCRIBE", "__keyevent@*"]);
        let mut client = primary.connect();
        send_lines(
            &mut client,
            [
                "SET k 1",
                "RPUSH l a b",
                "HSET h f 1",
                "SELECT 3",
                "ZADD z 1 a",
                "DEL z",
                "SET t 1 PX 1",
                "SELECT 0",
            ],
        );
        // The primary removes the key that has expired.
        assert!(happens(|| {
            send_lines(&mut client, ["SELECT 3"]);
            client.command(&["EXISTS", "t"]) == Value::Integer(0)
        }));
        send_lines(&mut client, ["SET last 1"]);
        let mut events = Vec::new();
        while events.last().is_none_or(|event: &String| event != "set last") {
            let message = subscriber.read().expect("a message");
            let (Value::Array(parts) | Value::Push(parts)) = message else { panic!("{message}") };
            let event = text(&parts[2]).rsplit(':').next().unwrap_or_default().to_owned();
            events.push(format!("{event} {}", text(&parts[3])));
        }
        for event in ["set k", "rpush l", "hset h", "zadd z", "del z", "set t"] {
            assert!(events.iter().any(|seen| seen == event), "{kind:?}: no {event} in {events:?}");
        }
        assert!(events.iter().any(|seen| seen == "del t" || seen == "expired t"), "{kind:?}: {events:?}");
    }
}

/// Sends a request without reading its reply.
fn send(client: &mut Client, words: &[&str]) {
    let mut bytes = Vec::new();
    encode_request(words, &mut bytes);
    client.send(&bytes).expect("it is sent");
}

#[test]
fn blocked_readers_and_watchers_of_a_replica_see_the_primarys_changes() {
    for kind in kinds() {
        let primary = Node::start(kind, &[]);
        let mut client = primary.connect();
        send_lines(&mut client, ["XADD x 1-1 f v", "SET watched 1", "SET quiet 1", "SET mortal 1"]);
        let replica = Node::following(&primary, &[]);
        replica.catch_up(&primary);
        let mut reader = replica.connect();
        send(&mut reader, &["XREAD", "BLOCK", "0", "STREAMS", "x", "$"]);
        let mut own = replica.connect();
        assert!(happens(|| field(&mut own, "clients", "blocked_clients") == "1"));
        // A client may not take from a list here.
        let mut popper = replica.connect();
        let refused = popper.command(&["BLPOP", "l", "0"]);
        assert!(notation::one_line(&refused).contains("READONLY"), "{refused}");
        let mut watchers = ["watched", "quiet", "mortal"].map(|key| {
            let mut watcher = replica.connect();
            run(&mut watcher, &["WATCH", key]);
            watcher
        });
        send_lines(&mut client, ["XADD x 2-2 f w", "SET watched 2", "DEL mortal"]);
        replica.catch_up(&primary);
        let entry = notation::one_line(&reader.read().expect("a reply"));
        assert!(entry.contains("2-2") && entry.contains('w'), "{kind:?}: {entry}");
        let ends = watchers.each_mut().map(|watcher| {
            send_lines(watcher, ["MULTI", "GET quiet"]);
            watcher.command(&["EXEC"])
        });
        assert_eq!(ends[0], Value::NullArray, "{kind:?}");
        assert!(matches!(ends[1], Value::Array(_)), "{kind:?}: {}", ends[1]);
        assert_eq!(ends[2], Value::NullArray, "{kind:?}");
    }
}

#[test]
fn a_full_sync_ends_the_transactions_of_watchers_and_keeps_subscribers() {
    let primary = Node::start(Kind::Own, &[]);
    send_lines(&mut primary.connect(), ["SET k 2"]);
    let replica = Node::start(Kind::Own, &[]);
    let mut own = replica.connect();
    send_lines(&mut own, ["SET k 1"]);
    let (mut watcher, mut subscriber) = (replica.connect(), replica.connect());
    run(&mut watcher, &["WATCH", "k"]);
    run(&mut subscriber, &["SUBSCRIBE", "news"]);
    replica.follow(primary.port());
    replica.wait_for_data_of(&primary, "the full sync");
    send_lines(&mut watcher, ["MULTI", "GET k"]);
    assert_eq!(watcher.command(&["EXEC"]), Value::NullArray);
    run(&mut primary.connect(), &["PUBLISH", "news", "1"]);
    assert_eq!(messages(&mut subscriber, "1"), ["1"]);
}

#[test]
fn a_primary_waits_for_this_replica() {
    for kind in kinds() {
        let primary = Node::start(kind, &[]);
        let mut client = primary.connect();
        let replica = Node::following(&primary, &[]);
        for number in 0..20 {
            run(&mut client, &["SET", "k", &number.to_string()]);
            assert_eq!(client.command(&["WAIT", "1", "0"]), Value::Integer(1), "{kind:?}");
            assert_eq!(replica.connect().command(&["GET", "k"]), Value::Bulk(number.to_string().into()));
        }
    }
}

#[test]
fn a_primary_waits_until_this_replica_has_synced_its_file() {
    for kind in kinds() {
        let primary = Node::start(kind, &[]);
        let mut client = primary.connect();
        let probe = client.command(&["WAITAOF", "0", "0", "1"]);
        if notation::one_line(&probe).contains("unknown command") {
            continue;
        }
        let replica = Node::following(&primary, &["--appendonly", "yes", "--appendfsync", "everysec"]);
        for number in 0..3 {
            run(&mut client, &["SET", "k", &number.to_string()]);
            let counts = client.command(&["WAITAOF", "0", "1", "0"]);
            assert_eq!(notation::one_line(&counts), "*2 :0 :1", "{kind:?}: {}", replica.state());
        }
        run(&mut replica.connect(), &["CONFIG", "SET", "appendonly", "no"]);
        run(&mut client, &["SET", "k", "last"]);
        assert_eq!(client.command(&["WAIT", "1", "0"]), Value::Integer(1));
        assert_eq!(notation::one_line(&client.command(&["WAITAOF", "0", "1", "1"])), "*2 :0 :0", "{kind:?}");
    }
}

#[test]
fn a_primary_that_needs_replicas_counts_this_one() {
    for kind in kinds() {
        let primary = Node::start(kind, &["--min-replicas-to-write", "1", "--min-replicas-max-lag", "10"]);
        let mut client = primary.connect();
        let refused = notation::one_line(&client.command(&["SET", "k", "1"]));
        assert!(refused.contains("NOREPLICAS"), "{kind:?}: {refused}");
        let replica = Node::following(&primary, &[]);
        assert!(happens(|| !client.command(&["SET", "k", "2"]).is_error()), "{kind:?}");
        replica.wait_for_data_of(&primary, "the write");
        replica.promote();
        assert!(happens(|| client.command(&["SET", "k", "3"]).is_error()), "{kind:?}");
    }
}

#[test]
fn a_pause_of_a_replica_holds_the_stream_back() {
    for kind in kinds() {
        let primary = Node::start(kind, &[]);
        let replica = Node::following(&primary, &[]);
        // Only the pause for writes can be ended early.
        for (mode, pause_ms) in [("ALL", "1000"), ("WRITE", "1000000")] {
            let mut client = primary.connect();
            replica.catch_up(&primary);
            let before = replica.offset();
            let mut own = replica.connect();
            run(&mut own, &["CLIENT", "PAUSE", pause_ms, mode]);
            send_lines(&mut client, ["MULTI", "INCR k", "INCR l", "EXEC"]);
            if mode == "WRITE" {
                // Reads go on, and what has arrived is not applied.
                let arrived = || number(&mut replica.connect(), "replication", "slave_read_repl_offset");
                assert!(happens(|| arrived() > before), "{kind:?}: {}", replica.state());
                let offset = number(&mut own, "replication", "slave_repl_offset");
                let is_over = own.command(&["CLIENT", "UNPAUSE"]);
                assert_eq!((offset, is_over), (before, Value::Simple(b"OK".to_vec())), "{kind:?}");
            }
            replica.wait_for_data_of(&primary, &format!("{kind:?}, {mode}"));
        }
        // A promotion applies what has arrived.
        let mut own = replica.connect();
        run(&mut own, &["CLIENT", "PAUSE", "1000000", "WRITE"]);
        let before = number(&mut own, "replication", "slave_read_repl_offset");
        send_lines(&mut primary.connect(), ["SET last 1"]);
        assert!(happens(|| number(&mut own, "replication", "slave_read_repl_offset") > before));
        replica.promote();
        assert_eq!(own.command(&["GET", "last"]), Value::Bulk(b"1".to_vec()), "{kind:?}");
    }
}

#[test]
fn a_link_that_the_primary_closes_during_a_pause_is_down_at_once() {
    for kind in kinds() {
        let primary = Node::start(kind, &[]);
        let replica = Node::following(&primary, &[]);
        // The stream selects its database before the pause.
        send_lines(&mut primary.connect(), ["SET first 1"]);
        replica.catch_up(&primary);
        let mut own = replica.connect();
        run(&mut own, &["CLIENT", "PAUSE", "1000000", "WRITE"]);
        let applied = replica.offset();
        let mut arrived = || number(&mut own, "replication", "slave_read_repl_offset");
        send_lines(&mut primary.connect(), ["SET k 1"]);
        assert!(happens(|| arrived() > applied), "{kind:?}: {}", replica.state());
        // The replica continues at the place that it has applied, and receives the write again.
        let before = primary.syncs();
        run(&mut primary.connect(), &["CLIENT", "KILL", "TYPE", "replica"]);
        assert!(happens(|| primary.syncs_since(before) == (0, 1)), "{kind:?}: {}", replica.state());
        assert!(happens(|| replica.is_up() && arrived() > applied), "{kind:?}: {}", replica.state());
        assert_eq!(replica.offset(), applied, "{kind:?}");
        drop(primary);
        replica.wait_until_down();
        assert_eq!(replica.offset(), applied, "{kind:?}");
        run(&mut own, &["CLIENT", "UNPAUSE"]);
        assert_eq!(own.command(&["EXISTS", "k"]), Value::Integer(0), "{kind:?}: as in Redis");
    }
}

#[test]
fn clients_that_wait_for_keys_of_a_snapshot_are_served() {
    for kind in kinds() {
        let primary = Node::start(kind, &[]);
        let mut client = primary.connect();
        send_lines(&mut client, ["XADD other 1-1 f v", "XGROUP CREATE group g $ MKSTREAM"]);
        let replica = Node::following(&primary, &["--replica-read-only", "no"]);
        let requests: [&[&str]; 4] = [
            &["XREAD", "BLOCK", "0", "STREAMS", "stream", "$"],
            &["BLPOP", "list", "0"],
            &["XREADGROUP", "GROUP", "g", "c", "BLOCK", "0", "STREAMS", "group", ">"],
            &["XREAD", "BLOCK", "0", "STREAMS", "other", "$"],
        ];
        let mut readers = requests.map(|words| {
            let mut reader = replica.connect();
            send(&mut reader, words);
            reader
        });
        let mut own = replica.connect();
        assert!(happens(|| field(&mut own, "clients", "blocked_clients") == "4"));
        // These changes reach the replica in a snapshot, because the history changes.
        let before = primary.syncs();
        run(&mut client, &["MULTI"]);
        run(&mut client, &["CLIENT", "KILL", "TYPE", "replica"]);
        send_lines(&mut client, ["XADD stream 1-1 f v", "RPUSH list a b", "XADD group 1-1 f w"]);
        run(&mut client, &["DEBUG", "CHANGE-REPL-ID"]);
        run(&mut client, &["EXEC"]);
        for (number, part) in ["stream", "list", "group"].into_iter().enumerate() {
            let reply = notation::one_line(&readers[number].read().expect("a reply"));
            assert!(reply.contains(part), "{kind:?}: {reply}");
        }
        assert_eq!(primary.syncs_since(before), (1, 0), "{kind:?}");
        assert_eq!(field(&mut own, "clients", "blocked_clients"), "1", "{kind:?}");
    }
}
