//! Chains: a replica of a replica has the data, the offsets and the bytes of the first primary.

use testkit::Rng;
use testkit::change_stream::replay::Commands;
use testkit::replication::load::{send_lines, send_random};
use testkit::replication::{Link, Psync, field, happens, number, run};

use super::{Kind, Node, is_without_peer, seed};

/// Number of batches of random commands in a test.
const BATCHES: usize = 6;

/// Starts servers of which each follows the one before it, and waits until the links between them
/// are up.
pub(super) fn chain(kinds: &[Kind]) -> Vec<Node> {
    let mut nodes: Vec<Node> = Vec::new();
    for &kind in kinds {
        let node = Node::start(kind, &[]);
        if kinds.contains(&Kind::Peer) {
            node.suit_peers();
        }
        if let Some(last) = nodes.last() {
            node.follow(last.port());
            node.wait_until_up();
        }
        nodes.push(node);
    }
    nodes
}

/// Returns the bytes of the replication stream that a server sends from `offset` up to `end`.
fn stream(node: &Node, offset: u64, end: u64) -> Vec<u8> {
    let mut link = Link::connect(node.port());
    link.introduce(&["eof", "psync2"]);
    let answer = link.psync(&node.link("master_replid"), offset as i64 + 1);
    assert!(matches!(answer, Psync::Continues(_)), "{answer:?}: {}", node.state());
    link.take((end - offset) as usize)
}

/// Writes random commands on the first server of a chain, and checks that all servers have its
/// data, its offset and its replication stream.
fn check(nodes: &[Node], seed: u64) {
    let what = format!("{:?}, seed {seed}", nodes.iter().map(|node| node.kind).collect::<Vec<_>>());
    let (first, rest) = nodes.split_first().expect("a chain");
    let versions: Vec<_> = nodes.iter().map(|node| node.version).collect();
    first.fill(seed, 4, &versions);
    for pair in nodes.windows(2) {
        pair[1].catch_up(&pair[0]);
    }
    let begin = first.offset();
    let oldest = nodes.iter().find(|node| node.kind == Kind::Peer).unwrap_or(first);
    let mut commands = Commands::for_version(oldest.version, Rng::new(seed));
    send_random(&first.process, &mut commands, BATCHES);
    send_lines(
        &mut first.connect(),
        ["SELECT 7", "MULTI", "INCR n", "SELECT 2", "INCR n", "EXEC", "PUBLISH news 1"],
    );
    for pair in nodes.windows(2) {
        pair[1].wait_for_data_of(&pair[0], &what);
    }
    // Expired keys are removed between two looks.
    assert!(happens(|| rest.iter().all(|node| node.offset() == first.offset())), "{what}");
    for node in rest {
        assert_eq!(node.link("master_replid"), first.link("master_replid"), "{what}");
        if node.kind == Kind::Own {
            assert_eq!(node.failed_commands(), "0", "{what}: {}", node.state());
        }
    }
    let end = first.offset();
    let bytes = stream(first, begin, end);
    assert!(bytes.len() > 3_000, "{what}: only {} bytes", bytes.len());
    for (at, node) in rest.iter().enumerate() {
        let own = stream(node, begin, end);
        let differs = own.iter().zip(&bytes).position(|(own, theirs)| own != theirs);
        assert_eq!(differs, None, "{what}: the stream of replica {at} differs");
    }
}

#[test]
fn a_chain_of_own_servers_passes_on_data_and_bytes() {
    check(&chain(&[Kind::Own, Kind::Own, Kind::Own]), seed());
}

#[test]
fn chains_with_peers_pass_on_data_and_bytes() {
    if is_without_peer() {
        return;
    }
    for kinds in [
        &[Kind::Peer, Kind::Own, Kind::Own][..],
        &[Kind::Own, Kind::Own, Kind::Peer],
        &[Kind::Own, Kind::Peer, Kind::Own],
        &[Kind::Peer, Kind::Own, Kind::Peer, Kind::Own],
    ] {
        check(&chain(kinds), seed());
    }
}

#[test]
fn a_replica_of_a_replica_gets_a_snapshot_when_its_primary_gets_one() {
    for kind in super::kinds() {
        let nodes = chain(&[kind, Kind::Own, Kind::Own]);
        let other = Node::start(kind, &[]);
        send_lines(&mut nodes[0].connect(), ["SET of-the-first 1"]);
        send_lines(&mut other.connect(), ["SET of-the-other 1", "SELECT 5", "RPUSH l 1 2 3"]);
        nodes[2].wait_for_data_of(&nodes[0], "at first");
        nodes[1].follow(other.port());
        nodes[1].wait_for_data_of(&other, "the middle");
        nodes[2].wait_for_data_of(&nodes[1], "the last");
        send_lines(&mut other.connect(), ["SET more 1"]);
        nodes[2].wait_for_data_of(&other, "the stream of the other primary");
        assert_eq!(nodes[2].link("master_replid"), other.link("master_replid"));
    }
}

#[test]
fn a_replica_moves_up_when_its_primary_ends() {
    for kind in super::kinds() {
        let mut nodes = chain(&[kind, Kind::Own, Kind::Own]);
        send_lines(&mut nodes[0].connect(), ["SET k 1", "SELECT 3", "SET k 2"]);
        nodes[2].wait_for_data_of(&nodes[0], "at first");
        let before = nodes[0].syncs();
        drop(nodes.remove(1));
        send_lines(&mut nodes[0].connect(), ["SET k 3", "SELECT 3", "SET k 4"]);
        nodes[1].follow(nodes[0].port());
        nodes[1].wait_for_data_of(&nodes[0], "moved up");
        assert_eq!(nodes[0].syncs_since(before), (0, 1), "{kind:?}");
    }
}

#[test]
fn a_replica_without_its_primary_refuses_replicas_until_it_is_back() {
    let nodes = chain(&[Kind::Own, Kind::Own]);
    let last = Node::start(Kind::Own, &[]);
    let proxy = testkit::replication::Proxy::start(nodes[0].port()).expect("a port is free");
    proxy.stall();
    nodes[1].follow(proxy.port());
    nodes[1].wait_until_down();
    let mut link = Link::connect(nodes[1].port());
    link.introduce(&["eof", "psync2"]);
    let answer = link.ask(&["PSYNC", "?", "-1"]);
    assert!(answer.starts_with("-NOMASTERLINK"), "{answer}");
    last.follow(nodes[1].port());
    let has_reason = happens(|| last.link("master_link_last_error").contains("NOMASTERLINK"));
    assert!(has_reason, "{}", last.state());
    run(&mut nodes[0].connect(), &["SET", "k", "1"]);
    proxy.resume();
    last.wait_for_data_of(&nodes[0], "the link is back");
    assert_eq!(field(&mut last.connect(), "replication", "master_link_last_error"), "");
    assert_eq!(number(&mut nodes[1].connect(), "replication", "connected_slaves"), 1);
}
