//! INFO, ROLE and CLIENT LIST of a primary, compared with a real primary in the same state.

use testkit::replication::{Replica, SyncCounts, happens, info, run};
use testkit::{Client, ServerProcess, Value, notation, peer};

use super::{OPTIONS, Primary, is_without_peer, replica_of, replicas};

/// Replaces texts that differ from run to run: numbers become `N`, hexadecimal ids become `ID`.
fn shape(text: &str) -> String {
    let mut shape = String::new();
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let word: usize = rest.bytes().take_while(u8::is_ascii_alphanumeric).count();
        let (head, tail) = rest.split_at(word.max(letter.len_utf8()));
        match head {
            _ if head.len() == 40 && head.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
                shape.push_str("ID")
            }
            _ if head.bytes().all(|byte| byte.is_ascii_digit()) => shape.push('N'),
            _ => shape.push_str(head),
        }
        rest = tail;
    }
    shape
}

/// Returns the lines of INFO replication whose field names `known` accepts, with [`shape`] applied.
/// Other servers have additional fields; Valkey also states the kind of each replica, which is left
/// out.
fn lines(client: &mut Client, known: impl Fn(&str) -> bool) -> Vec<String> {
    let text = info(client, "replication");
    let lines = text.lines().filter(|line| known(line.split(':').next().unwrap_or_default()));
    lines.map(|line| shape(line).replace(",type=replica", "")).collect()
}

/// Returns the names of the fields of INFO replication.
fn names(client: &mut Client) -> Vec<String> {
    let text = info(client, "replication");
    text.lines().filter_map(|line| Some(line.split_once(':')?.0.to_owned())).collect()
}

/// Starts a real primary with the options of all primaries in these tests ([`OPTIONS`]).
fn real_primary() -> ServerProcess {
    let peer = peer::start_with(OPTIONS).expect("the peer starts");
    peer.connect().command(&["CONFIG", "SET", "repl-rdb-channel", "no"]);
    peer
}

/// Checks that both servers describe their replication in the same way; `state` names the state in
/// messages.
fn compare(primary: &mut Client, peer: &mut Client, state: &str) {
    let (ours, theirs) = (names(primary), names(peer));
    let common: Vec<_> = theirs.iter().filter(|name| ours.contains(name)).collect();
    // Valkey names both states of its own; a Redis has all of its fields in ours.
    let is_redis = !info(peer, "server").contains("valkey_version");
    if is_redis {
        assert_eq!(common.len(), theirs.len(), "{state}: {theirs:?} and ours {ours:?}");
    }
    let is_common = |name: &str| common.iter().any(|known| *known == name);
    let [ours, theirs] = [&mut *primary, &mut *peer].map(|client| lines(client, is_common));
    assert_eq!(ours, theirs, "{state}");
    let [ours, theirs] = [primary, peer].map(|client| shape(&notation::one_line(&client.command(&["ROLE"]))));
    assert_eq!(ours, theirs, "{state}");
}

#[test]
fn info_and_role_are_those_of_a_real_primary() {
    if is_without_peer() {
        return;
    }
    let primary = Primary::start(&[]);
    let peer = real_primary();
    let (mut ours, mut theirs) = (primary.connect(), peer.connect());
    compare(&mut ours, &mut theirs, "without replicas");
    let replicas_of = |count: usize| -> Vec<[Replica; 2]> {
        (0..count)
            .map(|_| {
                [primary.port(), peer.port()].map(|port| {
                    let replica = Replica::start(&[]).expect("the replica starts");
                    replica.follow(port);
                    replica.wait_until_up();
                    replica
                })
            })
            .collect()
    };
    let pairs = replicas_of(2);
    for (client, side) in [(&mut ours, 0), (&mut theirs, 1)] {
        run(client, &["SET", "k", "1"]);
        pairs.iter().for_each(|pair| pair[side].catch_up(client));
        // An acknowledgement each second.
        assert!(happens(|| client.command(&["WAIT", "2", "1000"]) == Value::Integer(2)));
    }
    compare(&mut ours, &mut theirs, "with two replicas");
    for client in [&mut ours, &mut theirs] {
        run(client, &["CONFIG", "SET", "min-replicas-to-write", "1"]);
    }
    compare(&mut ours, &mut theirs, "with min-replicas-to-write");
    drop(pairs);
    for client in [&mut ours, &mut theirs] {
        assert!(happens(|| replicas(client) == 0));
    }
    compare(&mut ours, &mut theirs, "after the replicas");
}

/// Returns the fields of CLIENT LIST's line for a replica.
fn replica_line(client: &mut Client) -> Vec<(String, String)> {
    let list = client.command(&["CLIENT", "LIST", "TYPE", "replica"]);
    let list = String::from_utf8_lossy(list.as_bytes().expect("text")).into_owned();
    assert_eq!(list.lines().count(), 1, "{list}");
    let pairs = list.trim_end().split(' ').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[test]
fn the_connection_of_a_replica_is_in_the_list_and_can_be_killed() {
    if is_without_peer() {
        return;
    }
    let primary = Primary::start(&[]);
    let peer = real_primary();
    let (mut ours, mut theirs) = (primary.connect(), peer.connect());
    let replica = replica_of(&primary, &[]);
    let other = Replica::start(&[]).expect("the replica starts");
    other.follow(peer.port());
    other.wait_until_up();
    for (client, replica) in [(&mut ours, &replica), (&mut theirs, &other)] {
        replica.catch_up(client);
        assert!(happens(|| client.command(&["WAIT", "1", "1000"]) == Value::Integer(1)));
    }
    let [found, expected] = [&mut ours, &mut theirs].map(replica_line);
    for name in ["flags", "db", "sub", "multi", "cmd", "user", "resp"] {
        let of = |line: &[(String, String)]| {
            line.iter().find(|(field, _)| field == name).map(|(_, value)| value.clone())
        };
        assert_eq!(of(&found), of(&expected), "{name}");
    }
    for word in ["replica", "slave"] {
        let before = SyncCounts::of(&mut ours);
        assert_eq!(ours.command(&["CLIENT", "KILL", "TYPE", word]), Value::Integer(1));
        assert!(happens(|| SyncCounts::of(&mut ours).since(before) == (0, 1)), "{}", replica.log());
        run(&mut ours, &["SET", "k", word]);
        replica.wait_for_data_of(&mut ours, "after CLIENT KILL");
    }
    // Other kinds of clients are not meant.
    assert_eq!(ours.command(&["CLIENT", "KILL", "TYPE", "pubsub"]), Value::Integer(0));
}
