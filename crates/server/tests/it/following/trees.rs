//! Random trees of servers: links are cut, replicas move to another primary, and the primary
//! changes.

use testkit::change_stream::replay::Commands;
use testkit::replication::load::{send_lines, send_random};
use testkit::replication::{Proxy, happens};
use testkit::{Rng, notation};

use super::{Kind, Node, kinds, runs_all, seed};

/// Number of servers in a tree of replicas.
const NODES: usize = 5;

/// Number of changes that a test makes to a tree of replicas.
const CHANGES: usize = 12;

/// The state in which a tree is when the test changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// All servers have the whole replication stream when a change begins, so that no change needs
    /// a full sync.
    Orderly,
    /// Replicas may lag behind the primary, and a promotion may lose writes.
    Abrupt,
}

/// Servers of which each except the primary follows another one. No server follows itself through
/// others.
struct Tree {
    nodes: Vec<Node>,
    /// The proxies through which replicas connect to the servers: one in front of each server.
    proxies: Vec<Proxy>,
    /// The server that each server follows, by its index; `None` for the primary.
    parents: Vec<Option<usize>>,
    rng: Rng,
}

impl Tree {
    /// Starts servers of random kinds in a random tree, and waits until the links of all replicas
    /// are up.
    fn start(mut rng: Rng) -> Self {
        // At least two nodes are the server under test.
        let choices = kinds();
        let kind = |index| if index % 3 == 0 { Kind::Own } else { *rng.pick(&choices) };
        let kinds: Vec<Kind> = (0..NODES).map(kind).collect();
        let mut tree = Self { nodes: Vec::new(), proxies: Vec::new(), parents: Vec::new(), rng: Rng::new(0) };
        for (index, &kind) in kinds.iter().enumerate() {
            let node = Node::start(kind, &[]);
            if kinds.contains(&Kind::Peer) {
                node.suit_peers();
            }
            tree.proxies.push(Proxy::start(node.port()).expect("a port is free"));
            tree.nodes.push(node);
            tree.parents.push(None);
            if index > 0 {
                tree.follow(index, rng.below(index));
                tree.nodes[index].wait_until_up();
            }
        }
        tree.rng = rng;
        tree
    }

    /// Returns the index of the server that is the primary of the tree.
    fn primary(&self) -> usize {
        self.parents.iter().position(Option::is_none).expect("one server follows nobody")
    }

    /// Returns true if `node` is `ancestor`, or follows it directly or through others.
    fn is_below(&self, node: usize, ancestor: usize) -> bool {
        node == ancestor || self.parents[node].is_some_and(|parent| self.is_below(parent, ancestor))
    }

    /// Makes the server `node` a replica of `parent`, through its proxy.
    fn follow(&mut self, node: usize, parent: usize) {
        self.give_role(node, &["127.0.0.1", &self.proxies[parent].port().to_string()]);
        self.parents[node] = Some(parent);
    }

    /// Sends REPLICAOF with these words, again while the server refuses it because it loads a
    /// snapshot.
    fn give_role(&self, node: usize, words: &[&str; 2]) {
        let mut client = self.nodes[node].connect();
        let mut reply = String::new();
        let is_given = happens(|| {
            reply = notation::one_line(&client.command(&["REPLICAOF", words[0], words[1]]));
            !reply.contains("LOADING")
        });
        assert!(is_given && reply.contains("OK"), "{reply}: {}", self.nodes[node].state());
    }

    /// Returns the index of a random replica of the tree.
    fn replica(&mut self) -> usize {
        let primary = self.primary();
        (primary + 1 + self.rng.below(NODES - 1)) % NODES
    }

    /// Cuts the links of a server's replicas, makes a replica follow another server, or promotes
    /// one, at random. Returns a description of the change.
    fn change(&mut self) -> String {
        match self.rng.below(3) {
            0 => {
                let node = self.rng.below(NODES);
                self.proxies[node].cut();
                format!("cut {node}")
            }
            1 => {
                let node = self.replica();
                let others: Vec<usize> = (0..NODES).filter(|&other| !self.is_below(other, node)).collect();
                let parent = *self.rng.pick(&others);
                self.follow(node, parent);
                format!("{node} follows {parent}")
            }
            _ => {
                let (former, node) = (self.primary(), self.replica());
                self.give_role(node, &["NO", "ONE"]);
                self.parents[node] = None;
                self.follow(former, node);
                format!("{node} is promoted")
            }
        }
    }

    /// Waits until all servers have the data and the replication id of the primary.
    fn settle(&self, what: &str) {
        let primary = self.primary();
        // From the top down: a replica cannot have more than the server it follows.
        let mut waiting = vec![primary];
        while let Some(parent) = waiting.pop() {
            for node in (0..NODES).filter(|&node| self.parents[node] == Some(parent)) {
                self.nodes[node].wait_for_data_of(&self.nodes[parent], what);
                waiting.push(node);
            }
        }
        let (first, id) = (&self.nodes[primary], self.nodes[primary].link("master_replid"));
        for node in &self.nodes {
            let agrees = || node.offset() == first.offset() && node.link("master_replid") == id;
            assert!(happens(agrees), "{what}: {}\n{}", node.state(), first.state());
            let is_faultless = node.kind == Kind::Peer || !node.is_replica() || node.failed_commands() == "0";
            assert!(is_faultless, "{what}: {}", node.state());
        }
    }

    /// Returns the lines about synchronisations in the logs of all servers.
    fn resyncs(&self) -> String {
        let mut lines = String::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let log = node.process.log();
            for line in log.lines().filter(|line| line.to_lowercase().contains("sync")) {
                lines.push_str(&format!("{index}, {:?}, {}: {line}\n", node.kind, node.port()));
            }
        }
        lines
    }

    /// Returns the total number of full syncs that the servers have given to replicas.
    fn full_syncs(&self) -> u64 {
        self.nodes.iter().map(|node| node.syncs().full).sum()
    }
}

/// Changes a tree of replicas [`CHANGES`] times while clients write to its primary. Checks that all
/// servers end with the same data.
fn check(change: Change, seed: u64) {
    let mut tree = Tree::start(Rng::new(seed));
    let kinds: Vec<Kind> = tree.nodes.iter().map(|node| node.kind).collect();
    let oldest = tree.nodes.iter().find(|node| node.kind == Kind::Peer).unwrap_or(&tree.nodes[0]).version;
    let mut commands = Commands::for_version(oldest, Rng::new(seed));
    let mut history = format!("{change:?}, seed {seed}, {kinds:?}, {:?}", tree.parents);
    let before = tree.full_syncs();
    for number in 0..CHANGES {
        let primary = tree.primary();
        let element = format!("RPUSH list {number}");
        let lines = ["SELECT 3", "MULTI", "INCR n", &element, "EXEC", "SELECT 4", "INCR n"];
        send_lines(&mut tree.nodes[primary].connect(), lines);
        match change {
            // Keys that expire would move the stream on.
            Change::Orderly => tree.settle(&history),
            Change::Abrupt => send_random(&tree.nodes[primary].process, &mut commands, 1),
        }
        history = format!("{history}, {}", tree.change());
        let primary = tree.primary();
        send_lines(&mut tree.nodes[primary].connect(), [&*format!("SET after {number}")]);
    }
    tree.settle(&history);
    if change == Change::Orderly {
        assert_eq!(tree.full_syncs(), before, "{history}\n{}", tree.resyncs());
    }
}

/// Returns the number of trees that a test checks.
fn trees() -> u64 {
    if runs_all() { 20 } else { 2 }
}

#[test]
fn orderly_changes_of_a_tree_need_no_full_sync() {
    (0..trees()).for_each(|number| check(Change::Orderly, seed().wrapping_add(number)));
}

#[test]
fn abrupt_changes_of_a_tree_end_with_the_same_data() {
    (0..trees()).for_each(|number| check(Change::Abrupt, seed().wrapping_add(number)));
}
