//! Loads of a snapshot beside the old data (`repl-diskless-load swapdb`). Clients read the old data
//! until the new data is complete, and keep it if the load fails.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use testkit::replication::load::send_lines;
use testkit::replication::{Proxy, WITHIN, field, happens, number, run};
use testkit::{Client, Value};

use super::{Kind, Node, kinds};

const LOADING: &str = "LOADING Redis is loading the dataset in memory";

/// Number of bytes of a snapshot that pass before the proxy stalls the link to the replica.
const PART_BYTES: u64 = 60_000;

/// The limit of bytes per second while a part of a snapshot passes. It is low, so that the proxy
/// stalls the link long before the end of the snapshot. This holds even if the test's thread gets
/// no processor for seconds.
const PART_BYTES_PER_S: u64 = 100_000;

/// The value of the counter `seq` on the primary when the replica has fallen behind.
const NEW: &str = "2";

/// A replica that has fallen behind its primary, so that its next synchronization is a full one of
/// the same history. The link to the primary is stalled.
struct Behind {
    primary: Node,
    proxy: Proxy,
    replica: Node,
    /// A replica of the replica that has fallen behind, the last server of the chain.
    last: Node,
}

impl Behind {
    fn new(kind: Kind, options: &[&str]) -> Self {
        let of_primary = ["--repl-backlog-size", "16kb", "--rdbcompression", "no"];
        let primary = Node::start(kind, &of_primary);
        let proxy = Proxy::start(primary.port()).expect("a port is free");
        let options = [&["--repl-diskless-load", "swapdb"], options].concat();
        let replica = Node::start(Kind::Own, &options);
        let mut client = primary.connect();
        run(&mut client, &["DEBUG", "POPULATE", "3000", "key", "100"]);
        send_lines(&mut client, ["MSET a 1 b 1 old 1", "SELECT 3", "SET elsewhere 1", "SELECT 0"]);
        load_function(&mut client, "old");
        replica.follow(proxy.port());
        replica.wait_for_data_of(&primary, "before");
        let last = Node::following(&replica, &[]);
        proxy.stall();
        proxy.cut();
        replica.wait_until_down();
        let it = Self { primary, proxy, replica, last };
        it.write_more();
        it
    }

    /// Writes more bytes than the primary's backlog keeps, and new values of all counters.
    fn write_more(&self) {
        let mut client = self.primary.connect();
        let filler = "v".repeat(1000);
        for number in 0..400 {
            run(&mut client, &["SET", &format!("filler{number}"), &filler]);
        }
        run(&mut client, &["FUNCTION", "DELETE", "old"]);
        load_function(&mut client, "new");
        let counters = format!("MSET a {NEW} b {NEW}");
        let elsewhere = format!("SET elsewhere {NEW}");
        send_lines(
            &mut client,
            ["MULTI", &counters, "SELECT 3", &elsewhere, "SELECT 0", "DEL old", "SET new 1", "EXEC"],
        );
        run(&mut client, &["XADD", "stream", "1-1", "field", "value"]);
    }

    /// Lets the first part of a snapshot pass over the link to the replica, and then stalls the
    /// link.
    fn let_part_arrive(&self) {
        let passed = self.proxy.passed_bytes();
        self.proxy.throttle(Some(PART_BYTES_PER_S));
        self.proxy.resume();
        assert!(happens(|| self.proxy.passed_bytes() > passed + PART_BYTES), "{}", self.replica.state());
        self.proxy.stall();
    }

    /// Lets the rest of the snapshot and the replication stream pass over the link, and waits until
    /// the replica has caught up.
    fn let_all_arrive(&self) {
        self.proxy.throttle(None);
        self.proxy.resume();
        self.replica.wait_for_data_of(&self.primary, "after the load");
        assert_eq!(self.replica.functions(), self.primary.functions());
    }

    fn is_loading_beside(&self) -> bool {
        field(&mut self.replica.connect(), "persistence", "async_loading") == "1"
    }

    fn wait_until_loading_beside(&self) {
        assert!(happens(|| self.is_loading_beside()), "{}", self.replica.state());
    }

    fn wait_until_given_up(&self) {
        assert!(happens(|| !self.is_loading_beside()), "{}", self.replica.state());
    }
}

/// Loads a library named `name`, whose function is named `f` followed by `name`.
fn load_function(client: &mut Client, name: &str) {
    let code = format!(
        "#!lua name={name}\nredis.register_function{{function_name='f{name}', flags={{'no-writes'}}, \
         callback=function() return '{name}' end}}"
    );
    run(client, &["FUNCTION", "LOAD", "REPLACE", &code]);
}

/// Reads the counters until `stop` is set. Checks that they are equal, and never older than in the
/// read before. Returns the different values in the order in which they were seen.
fn read_on(mut client: Client, stop: &AtomicBool) -> Vec<String> {
    let mut seen: Vec<String> = Vec::new();
    while !stop.load(Relaxed) {
        let requests: [&[&str]; 7] = [
            &["MULTI"],
            &["MGET", "a", "b"],
            &["EXISTS", "key:1", "old", "new"],
            &["SELECT", "3"],
            &["GET", "elsewhere"],
            &["SELECT", "0"],
            &["EXEC"],
        ];
        let replies = client.pipeline(&requests.map(<[&str]>::to_vec)).expect("the replica answers");
        let Some(Value::Array(results)) = replies.last() else { panic!("{replies:?}") };
        let Value::Array(pair) = &results[0] else { panic!("{results:?}") };
        assert!(pair[0] == pair[1] && pair[0] == results[3], "a mixture: {results:?}");
        assert_eq!(results[1], Value::Integer(2), "a mixture: {results:?}");
        let value = super::text(&pair[0]);
        if seen.last() != Some(&value) {
            seen.push(value);
        }
    }
    seen
}

/// Runs `work` while clients read from the replica. Returns the values that each client has seen.
fn with_readers(replica: &Node, work: impl FnOnce()) -> Vec<Vec<String>> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        /// A guard that stops the reading clients when it is dropped, also if an assertion has
        /// failed.
        struct Stops<'s>(&'s AtomicBool);
        impl Drop for Stops<'_> {
            fn drop(&mut self) {
                self.0.store(true, Relaxed);
            }
        }
        let stop = &stop;
        let readers: Vec<_> = (0..3)
            .map(|_| {
                let client = replica.connect();
                scope.spawn(move || read_on(client, stop))
            })
            .collect();
        let stops = Stops(stop);
        work();
        drop(stops);
        readers
            .into_iter()
            .map(|reader| reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

#[test]
fn the_old_data_is_served_until_the_new_is_complete() {
    for kind in kinds() {
        let it = Behind::new(kind, &[]);
        let Behind { primary, replica, last, .. } = &it;
        let before = primary.syncs();
        let mut own = replica.connect();
        let (id, offset) = (replica.link("master_replid"), replica.offset());
        let [mut watching, mut cached, mut blocked] = [0, 1, 2].map(|_| replica.connect());
        run(&mut watching, &["WATCH", "new"]);
        run(&mut cached, &["HELLO", "3"]);
        run(&mut cached, &["CLIENT", "TRACKING", "ON"]);
        run(&mut cached, &["GET", "a"]);
        let mut request = Vec::new();
        resp::encode_request(&["XREAD", "BLOCK", "0", "STREAMS", "stream", "0"], &mut request);
        blocked.send(&request).expect("it reads");
        let seen = with_readers(replica, || {
            it.let_part_arrive();
            it.wait_until_loading_beside();
            assert_eq!(field(&mut own, "persistence", "loading"), "0");
            assert!(number(&mut own, "persistence", "loading_loaded_bytes") > 0);
            assert_eq!(run(&mut own, &["FCALL", "fold", "0"]), Value::Bulk(b"old".to_vec()));
            for refused in [
                &["SAVE"][..],
                &["BGSAVE"],
                &["BGREWRITEAOF"],
                &["REPLICAOF", "NO", "ONE"],
                &["SLAVEOF", "127.0.0.1", "1"],
                &["PSYNC", "?", "-1"],
            ] {
                assert_eq!(own.command(refused), Value::Error(LOADING.into()), "{refused:?}");
            }
            assert!(own.command(&["SET", "a", "3"]).to_string().contains("READONLY"));
            assert_eq!((replica.link("master_replid"), replica.offset()), (id.clone(), offset));
            assert_eq!(replica.link("master_sync_in_progress"), "1");
            assert!(last.is_up(), "{}", last.state());
            it.let_all_arrive();
        });
        assert!(!it.is_loading_beside());
        assert!(seen.iter().all(|seen| seen == &["1", NEW]), "{kind:?}: {seen:?}");
        assert_eq!(primary.syncs_since(before), (1, 0), "{kind:?}");
        assert_eq!(replica.link("master_replid"), id);
        last.wait_for_data_of(primary, "the replica of the replica");
        assert_eq!(last.functions(), primary.functions());
        // The watched key did not exist before.
        run(&mut watching, &["MULTI"]);
        run(&mut watching, &["PING"]);
        assert_eq!(watching.command(&["EXEC"]), Value::NullArray);
        assert!(cached.read().expect("a message").to_string().contains("invalidate"));
        assert!(blocked.read().expect("a reply").to_string().contains("1-1"));
    }
}

#[test]
fn a_load_that_fails_leaves_data_and_history() {
    for kind in kinds() {
        let it = Behind::new(kind, &[]);
        let Behind { primary, proxy, replica, .. } = &it;
        let mut own = replica.connect();
        let (id, offset, functions) = (replica.link("master_replid"), replica.offset(), replica.functions());
        let mut watching = replica.connect();
        run(&mut watching, &["WATCH", "a"]);
        let seen = with_readers(replica, || {
            let kill: fn(&Behind) = |it| {
                run(&mut it.replica.connect(), &["CLIENT", "KILL", "TYPE", "master"]);
            };
            for fail in [|it: &Behind| it.proxy.cut(), kill] {
                it.let_part_arrive();
                it.wait_until_loading_beside();
                fail(&it);
                it.wait_until_given_up();
                assert_eq!(own.command(&["GET", "a"]), Value::Bulk(b"1".to_vec()));
                assert_eq!((replica.link("master_replid"), replica.offset()), (id.clone(), offset));
                assert_eq!(replica.functions(), functions);
            }
            // The checksum is wrong.
            it.let_part_arrive();
            it.wait_until_loading_beside();
            proxy.corrupt(proxy.passed_bytes() + 2 * PART_BYTES);
            proxy.resume();
            let has_failed = || replica.link("master_link_last_error").contains("no new data was loaded");
            assert!(happens(|| has_failed() || replica.is_up()), "{}", replica.state());
            it.let_all_arrive();
        });
        assert!(!proxy.is_corruption_pending());
        assert!(seen.iter().all(|seen| seen == &["1", NEW]), "{kind:?}: {seen:?}");
        run(&mut watching, &["MULTI"]);
        assert_eq!(watching.command(&["EXEC"]), Value::NullArray);
        assert_eq!(primary.connect().command(&["GET", "a"]), Value::Bulk(NEW.into()));
    }
}

#[test]
fn after_a_failed_load_from_another_primary_the_first_one_continues() {
    for kind in kinds() {
        let first = Node::start(kind, &[]);
        let other = Node::start(kind, &["--rdbcompression", "no"]);
        run(&mut other.connect(), &["DEBUG", "POPULATE", "3000", "other", "100"]);
        let replica = Node::start(Kind::Own, &["--repl-diskless-load", "swapdb"]);
        let mut own = replica.connect();
        send_lines(&mut own, ["SET stray 1"]);
        // An unknown history: clients are refused meanwhile.
        replica.follow(first.port());
        send_lines(&mut first.connect(), ["SET k 1"]);
        replica.wait_for_data_of(&first, "the first primary");
        let id = replica.link("master_replid");
        let proxy = Proxy::start(other.port()).expect("a port is free");
        proxy.throttle(Some(PART_BYTES_PER_S));
        replica.follow(proxy.port());
        assert!(happens(|| proxy.passed_bytes() > PART_BYTES), "{}", replica.state());
        proxy.stall();
        assert!(happens(|| field(&mut own, "persistence", "loading") == "1"), "{}", replica.state());
        assert_eq!(field(&mut own, "persistence", "async_loading"), "0");
        for refused in [&["GET", "k"][..], &["REPLICAOF", "NO", "ONE"]] {
            assert_eq!(own.command(refused), Value::Error(LOADING.into()));
        }
        proxy.cut();
        assert!(happens(|| field(&mut own, "persistence", "loading") == "0"), "{}", replica.state());
        assert_eq!(own.command(&["GET", "k"]), Value::Bulk(b"1".to_vec()));
        assert_eq!(replica.link("master_replid"), id);
        let before = first.syncs();
        send_lines(&mut first.connect(), ["SELECT 2", "INCR k"]);
        replica.follow(first.port());
        replica.wait_for_data_of(&first, &format!("{kind:?}, back at the first primary"));
        assert_eq!(first.syncs_since(before), (0, 1), "{kind:?}: {}", replica.state());
        // The replica follows the other primary again.
        proxy.throttle(None);
        proxy.resume();
        replica.follow(proxy.port());
        replica.wait_for_data_of(&other, &format!("{kind:?}, the other primary"));
        assert_eq!(replica.link("master_replid"), other.link("master_replid"));
    }
}

#[test]
fn writes_during_the_load_are_lost_and_nothing_is_evicted_for_it() {
    let options = ["--replica-read-only", "no", "--replica-ignore-maxmemory", "no"];
    let it = Behind::new(Kind::Own, &[&options[..], &["--maxmemory-policy", "allkeys-lru"]].concat());
    let mut own = it.replica.connect();
    it.let_part_arrive();
    it.wait_until_loading_beside();
    // Less than the server itself needs.
    run(&mut own, &["CONFIG", "SET", "maxmemory", "1mb"]);
    let keys = own.command(&["DBSIZE"]);
    run(&mut own, &["SET", "mine", "1"]);
    run(&mut own, &["DEL", "mine"]);
    assert_eq!((own.command(&["DBSIZE"]), number(&mut own, "stats", "evicted_keys")), (keys, 0));
    run(&mut own, &["CONFIG", "SET", "maxmemory", "0"]);
    run(&mut own, &["SET", "mine", "1"]);
    run(&mut own, &["FLUSHALL"]);
    run(&mut own, &["SET", "mine", "2"]);
    assert_eq!(own.command(&["DBSIZE"]), Value::Integer(1));
    it.let_all_arrive();
    assert_eq!(own.command(&["GET", "mine"]), Value::Null);
}

#[test]
fn a_server_that_ends_during_the_load_saves_the_old_data() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let dir = folder.path().to_str().expect("a name of text");
    let it = Behind::new(Kind::Own, &["--dir", dir]);
    it.let_part_arrive();
    it.wait_until_loading_beside();
    let Behind { primary, proxy, mut replica, last } = it;
    let (id, offset) = (replica.link("master_replid"), replica.offset());
    let mut request = Vec::new();
    resp::encode_request(&["SHUTDOWN", "SAVE"], &mut request);
    replica.connect().send(&request).expect("it reads");
    replica.process.wait(WITHIN).expect("it ends");
    let replica = Node::start(Kind::Own, &["--dir", dir]);
    let mut own = replica.connect();
    let old = Value::Array(vec![Value::Bulk(b"1".to_vec()), Value::Null]);
    assert_eq!(own.command(&["MGET", "a", "new"]), old);
    drop(replica);
    // The server, restarted with the file, continues the history of its data.
    let followed = format!("127.0.0.1 {}", proxy.port());
    let options = ["--dir", dir, "--repl-diskless-load", "swapdb", "--replicaof", &followed];
    let replica = Node::start(Kind::Own, &options);
    assert_eq!((replica.link("master_replid"), replica.offset()), (id, offset));
    let it = Behind { primary, proxy, replica, last };
    it.let_part_arrive();
    it.wait_until_loading_beside();
    it.let_all_arrive();
}
