//! Primaries and replicas that are killed, stopped and started again.

use rustix::process::Signal;
use tempfile::TempDir;
use testkit::process::free_port;
use testkit::replication::load::send_lines;
use testkit::replication::{Proxy, field, happens, run};
use testkit::{Rng, Value};

use super::{Kind, Node, kinds, seed};
use crate::replication::faults::{wait_for_commands, with_load};
use crate::support::signal;

/// A server with files, which the test starts several times on the same port.
struct Restarted {
    folder: TempDir,
    kind: Kind,
    port: u16,
    options: Vec<String>,
    node: Option<Node>,
}

impl Restarted {
    fn new(kind: Kind, options: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let options = options.iter().map(|&option| option.to_owned()).collect();
        let mut it = Self { folder, kind, port: free_port().expect("a port is free"), options, node: None };
        it.start();
        it
    }

    fn start(&mut self) {
        let dir = self.folder.path().to_str().expect("a name of text");
        let mut options = vec!["--dir", dir];
        options.extend(self.options.iter().map(String::as_str));
        self.node = Some(Node::start_on(self.kind, self.port, &options));
    }

    fn node(&self) -> &Node {
        self.node.as_ref().expect("it runs")
    }

    /// Waits until no rewrite of the append-only file is in progress. The server rewrites it after
    /// a full sync.
    fn wait_for_rewrite(&self) {
        let mut client = self.node().connect();
        let mut is_zero = |name| field(&mut client, "persistence", name) == "0";
        assert!(happens(|| is_zero("aof_rewrite_in_progress") && is_zero("aof_rewrite_scheduled")));
    }

    /// Requests SHUTDOWN with the word `saves`, after the append-only file has its base, and waits
    /// for the end of the process.
    fn shut_down(&mut self, saves: &str) {
        self.wait_for_rewrite();
        let mut node = self.node.take().expect("it runs");
        let mut request = Vec::new();
        resp::encode_request(&["SHUTDOWN", saves], &mut request);
        node.connect().send(&request).expect("it reads");
        node.process.wait(testkit::replication::WITHIN).expect("it ends");
    }

    /// Returns the length of the append-only files on disk, in bytes.
    fn log_len_bytes(&self) -> u64 {
        let files = std::fs::read_dir(self.folder.path().join("appendonlydir")).expect("a folder");
        files.map(|file| file.and_then(|file| file.metadata()).map_or(0, |found| found.len())).sum()
    }

    fn kill(&mut self) {
        let node = self.node.take().expect("it runs");
        signal(&node.process, Signal::KILL);
    }
}

#[test]
fn a_killed_replica_continues_with_its_snapshot_and_starts_anew_without() {
    for kind in kinds() {
        let primary = Node::start(kind, &[]);
        let mut control = primary.connect();
        let followed = format!("127.0.0.1 {}", primary.port());
        let mut replica = Restarted::new(Kind::Own, &["--replicaof", &followed]);
        let mut rng = Rng::new(seed());
        replica.node().wait_until_up();
        for (round, is_saved) in [true, false, true].into_iter().enumerate() {
            let before = primary.syncs();
            with_load(primary.port(), || {
                wait_for_commands(&mut control, 500 + rng.below(2000) as u64);
                let file = replica.folder.path().join("dump.rdb");
                if is_saved {
                    run(&mut replica.node().connect(), &["SAVE"]);
                } else {
                    // Without its file, the replica has no offset at which it can continue.
                    let _ = std::fs::remove_file(file);
                }
                wait_for_commands(&mut control, 100 + rng.below(1000) as u64);
                replica.kill();
                wait_for_commands(&mut control, 100);
                replica.start();
                replica.node().wait_until_up();
                wait_for_commands(&mut control, 500);
            });
            let what = format!("{kind:?}, seed {}, kill {round}", seed());
            replica.node().wait_for_data_of(&primary, &what);
            let expected = if is_saved { (0, 1) } else { (1, 0) };
            assert_eq!(primary.syncs_since(before), expected, "{what}: {}", replica.node().state());
        }
    }
}

#[test]
fn a_replica_continues_after_its_shutdown_with_a_snapshot_or_a_log() {
    for kind in kinds() {
        for (appendonly, saves) in [("no", "SAVE"), ("yes", "SAVE"), ("yes", "NOSAVE")] {
            let what = format!("{kind:?}, appendonly {appendonly}, {saves}");
            let primary = Node::start(kind, &[]);
            let followed = format!("127.0.0.1 {}", primary.port());
            let mut replica =
                Restarted::new(Kind::Own, &["--replicaof", &followed, "--appendonly", appendonly]);
            primary.fill(seed(), 3, &[]);
            send_lines(&mut primary.connect(), ["SELECT 5", "SET k 1"]);
            replica.node().wait_for_data_of(&primary, "before");
            for round in 0..2 {
                let before = primary.syncs();
                replica.shut_down(saves);
                send_lines(&mut primary.connect(), ["SET k 2", "SELECT 5", "INCR k"]);
                replica.start();
                replica.node().wait_for_data_of(&primary, &what);
                assert_eq!(primary.syncs_since(before), (0, 1), "{what}, round {round}");
            }
        }
    }
}

#[test]
fn a_replica_that_lacks_the_selected_database_after_a_restart_gets_a_snapshot() {
    for (appendonly, saves) in [("no", "SAVE"), ("yes", "NOSAVE")] {
        let primary = Node::start(Kind::Own, &[]);
        let followed = format!("127.0.0.1 {}", primary.port());
        let mut replica = Restarted::new(Kind::Own, &["--replicaof", &followed, "--appendonly", appendonly]);
        let mut client = primary.connect();
        replica.node().wait_until_up();
        send_lines(&mut client, ["SET k 1"]);
        replica.node().wait_for_data_of(&primary, "before");
        send_lines(&mut client, ["SELECT 9", "PUBLISH channel text", "SETEX gone 1000 1", "DEL gone"]);
        replica.node().catch_up(&primary);
        if appendonly == "yes" {
            // The base has no command in the database.
            replica.wait_for_rewrite();
            run(&mut replica.node().connect(), &["BGREWRITEAOF"]);
        }
        let before = primary.syncs();
        replica.shut_down(saves);
        replica.options.extend(["--databases", "4"].map(str::to_owned));
        send_lines(&mut client, ["SET gone 1", "DEL gone", "SELECT 0", "SET k 2"]);
        replica.start();
        replica.node().wait_until_up();
        replica.node().catch_up(&primary);
        let mut own = replica.node().connect();
        assert_eq!(own.command(&["GET", "k"]), Value::Bulk(b"2".to_vec()), "{appendonly}");
        assert_eq!(primary.syncs_since(before), (1, 0), "{appendonly}: {}", replica.node().process.log());
    }
}

#[test]
fn a_killed_replica_continues_with_its_log_only_if_nothing_was_applied_since_its_start() {
    for kind in kinds() {
        let primary = Node::start(kind, &[]);
        let followed = format!("127.0.0.1 {}", primary.port());
        let mut replica = Restarted::new(Kind::Own, &["--replicaof", &followed, "--appendonly", "yes"]);
        let mut control = primary.connect();
        send_lines(&mut control, ["SET k 1"]);
        replica.node().wait_for_data_of(&primary, "before");
        replica.shut_down("NOSAVE");
        replica.start();
        replica.node().wait_until_up();
        // A command without a change advances the offset of the stream, but not the log.
        run(&mut control, &["PUBLISH", "channel", "text"]);
        replica.node().catch_up(&primary);
        let before = primary.syncs();
        replica.kill();
        replica.start();
        replica.node().wait_for_data_of(&primary, &format!("{kind:?}, nothing was applied"));
        assert_eq!(primary.syncs_since(before), (0, 1), "{kind:?}");
        let before = primary.syncs();
        let log_len_bytes = replica.log_len_bytes();
        run(&mut control, &["INCR", "k"]);
        replica.node().wait_for_data_of(&primary, "more is applied");
        // Readers see a change before it is written.
        assert!(happens(|| replica.log_len_bytes() > log_len_bytes), "{kind:?}");
        replica.kill();
        replica.start();
        replica.node().wait_for_data_of(&primary, &format!("{kind:?}, more was applied"));
        assert_eq!(primary.syncs_since(before), (1, 0), "{kind:?}");
    }
}

#[test]
fn a_killed_primary_comes_back_with_its_log_and_is_followed_again() {
    for kind in kinds() {
        let mut rng = Rng::new(seed());
        let mut primary = Restarted::new(kind, &["--appendonly", "yes", "--appendfsync", "everysec"]);
        let replica = Node::following(primary.node(), &[]);
        for kill in 0..2 {
            let mut control = primary.node().connect();
            with_load(primary.port, || {
                wait_for_commands(&mut control, 1000 + rng.below(3000) as u64);
                primary.kill();
            });
            replica.wait_until_down();
            primary.start();
            send_lines(&mut primary.node().connect(), ["INCR after-the-kill"]);
            let what = format!("{kind:?}, seed {}, kill {kill}", seed());
            replica.wait_for_data_of(primary.node(), &what);
            assert_eq!(primary.node().syncs().full, 1, "{what}");
        }
    }
}

#[test]
fn stopped_servers_go_on_where_they_were() {
    for kind in kinds() {
        let primary = Node::start(kind, &[]);
        let replica = Node::following(&primary, &["--repl-timeout", "1"]);
        let mut control = primary.connect();
        let before = primary.syncs();
        with_load(primary.port(), || {
            wait_for_commands(&mut control, 500);
            signal(&replica.process, Signal::STOP);
            wait_for_commands(&mut control, 2000);
            signal(&replica.process, Signal::CONT);
            wait_for_commands(&mut control, 500);
        });
        replica.wait_for_data_of(&primary, &format!("{kind:?}, a stopped replica"));
        let partial = primary.syncs_since(before);
        assert_eq!(partial.0, 0, "{kind:?}: {}", replica.state());
        // A stopped primary is silent.
        signal(&primary.process, Signal::STOP);
        let is_told = happens(|| replica.link("master_link_last_error").to_lowercase().contains("timeout"));
        signal(&primary.process, Signal::CONT);
        assert!(is_told, "{kind:?}: {}", replica.state());
        run(&mut replica.connect(), &["CONFIG", "SET", "repl-timeout", "3600"]);
        send_lines(&mut control, ["SET k 1"]);
        replica.wait_for_data_of(&primary, &format!("{kind:?}, a stopped primary"));
        assert_eq!(primary.syncs_since(before).0, 0, "{kind:?}: {}", replica.state());
    }
}

#[test]
fn a_replica_killed_in_a_snapshot_gets_it_again() {
    for kind in kinds() {
        let primary = Node::start(kind, &[]);
        run(&mut primary.connect(), &["DEBUG", "POPULATE", "3000", "key", "100"]);
        for load in super::data::LOADS {
            let proxy = Proxy::start(primary.port()).expect("a port is free");
            proxy.throttle(Some(200_000));
            let followed = format!("127.0.0.1 {}", proxy.port());
            let mut replica =
                Restarted::new(Kind::Own, &["--replicaof", &followed, "--repl-diskless-load", load]);
            assert!(happens(|| proxy.passed_bytes() > 10_000), "{}", replica.node().state());
            replica.kill();
            proxy.throttle(None);
            replica.start();
            replica.node().wait_for_data_of(&primary, &format!("{kind:?}, load {load}"));
            let names = std::fs::read_dir(replica.folder.path()).expect("a folder");
            let names: Vec<_> = names.map(|entry| entry.expect("an entry").file_name()).collect();
            assert!(
                !names.iter().any(|name| name.to_string_lossy().starts_with("temp-")),
                "{kind:?}, load {load}: {names:?}"
            );
        }
    }
}
