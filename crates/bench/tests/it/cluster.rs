//! Tests with a real cluster of three nodes. Every default test and template must reach the right
//! nodes. Redirections must be followed while a slot moves. The end of a node must be reported.
//! Without a real server the tests are skipped with a message.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use bench::results::{ClusterUse, Ending, RunResult, Transport};
use bench::spec::{Endpoint, Limit, Load, RunSpec, Target, Tls, Watch};
use bench::workload::{DefaultTestOptions, SLOTS, TemplateOptions, Workload, slot};
use bench::{BenchError, run};
use resp::Value;
use testkit::client::Client;
use testkit::process::{ServerProcess, free_port, peer};

use crate::slow_server::pem;

/// The longest wait until the nodes agree on the slots or see the effect of a run.
const SOON: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(5);
/// The hash tag whose slot moves to another node during the test.
const TAG: &str = "moves";

/// A cluster of three nodes, each with a third of the slots.
struct Cluster {
    nodes: Vec<ServerProcess>,
    /// The TLS ports of the nodes; empty if they have no TLS.
    tls_ports: Vec<u16>,
    /// The files that the nodes write, and the certificates that were copied for them.
    files: Vec<PathBuf>,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.nodes.clear();
        for file in &self.files {
            // A file that was not written does not exist.
            let _ = fs::remove_file(file);
        }
    }
}

impl Cluster {
    /// Starts the cluster and waits until all nodes know all slots.
    fn start() -> Self {
        let mut cluster = Self { nodes: Vec::new(), tls_ports: Vec::new(), files: Vec::new() };
        let tls = cluster.prepare_tls();
        let mut bus_ports = Vec::new();
        for number in 0..3 {
            let file = format!("saker-bench-{}-{number}.conf", std::process::id());
            let [bus_port, tls_port] = [(); 2].map(|()| free_port().unwrap());
            let (bus_text, tls_text) = (bus_port.to_string(), tls_port.to_string());
            let mut options = vec!["--cluster-enabled", "yes", "--cluster-config-file", &file];
            options.extend(["--cluster-port", &bus_text]);
            if let Some([cert, key, ca]) = &tls {
                options.extend([
                    "--tls-port",
                    &tls_text,
                    "--tls-auth-clients",
                    "no",
                    "--tls-cert-file",
                    cert,
                ]);
                options.extend(["--tls-key-file", key, "--tls-ca-cert-file", ca]);
                cluster.tls_ports.push(tls_port);
            }
            let node = peer::start_with(&options).unwrap();
            cluster.files.push(folder(&node).join(&file));
            cluster.nodes.push(node);
            bus_ports.push(bus_text);
        }
        for (number, node) in cluster.nodes.iter().enumerate() {
            let mut client = node.connect();
            ok(&mut client, &["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()]);
            let (first, last) = (SLOTS * number / 3, SLOTS * (number + 1) / 3 - 1);
            ok(&mut client, &["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()]);
        }
        let mut seed = cluster.nodes[0].connect();
        for (node, bus_port) in cluster.nodes.iter().zip(&bus_ports).skip(1) {
            ok(&mut seed, &["CLUSTER", "MEET", "127.0.0.1", &node.port().to_string(), bus_port]);
        }
        for node in &cluster.nodes {
            let mut client = node.connect();
            wait_until(|| {
                let slots = client.command(&["CLUSTER", "SLOTS"]);
                let knows_all = matches!(&slots, Value::Array(ranges) if ranges.len() == 3);
                knows_all && text(&mut client, &["CLUSTER", "INFO"]).contains("cluster_state:ok")
            });
        }
        cluster
    }

    /// Copies the certificate, its key and the CA certificate to a place that the server can read,
    /// and returns their paths. Returns `None` if the server cannot use TLS in a cluster.
    fn prepare_tls(&mut self) -> Option<[String; 3]> {
        let probe = peer::start().unwrap();
        let mut client = probe.connect();
        let info = text(&mut client, &["INFO", "server"]);
        let version = info.lines().find_map(|line| line.strip_prefix("redis_version:")).unwrap();
        // Before 7.2 a node announced only one port.
        let old = ["6.", "7.0."].iter().any(|old| version.starts_with(old));
        if old || client.command(&["CONFIG", "SET", "tls-auth-clients", "no"]).is_error() {
            return None;
        }
        // The server may run in a chroot or a container, which contains only some of this machine's
        // files.
        let root = fs::read_link(format!("/proc/{}/root", probe.pid())).unwrap_or_else(|_| "/".into());
        Some(["cert.pem", "key.pem", "ca.pem"].map(|file| {
            let path = format!("/tmp/saker-bench-{}-{file}", std::process::id());
            let outside = root.join(path.trim_start_matches('/'));
            fs::copy(pem(file), &outside).unwrap();
            self.files.push(outside);
            path
        }))
    }

    /// Returns the specification of a run of `workload` that reaches the cluster through node 0.
    fn spec(&self, workload: Workload, limit: Limit) -> RunSpec {
        let endpoint = Endpoint::Tcp { host: "127.0.0.1".to_owned(), port: self.nodes[0].port() };
        RunSpec {
            target: Target { endpoint, cluster: true, ..Target::default() },
            workload,
            load: Load { connections: 4, pipeline: 2, limit, ..Load::default() },
            watch: Watch::default(),
        }
    }

    fn clients(&self) -> Vec<Client> {
        self.nodes.iter().map(ServerProcess::connect).collect()
    }

    fn name(&self, node: usize) -> String {
        format!("127.0.0.1:{}", self.nodes[node].port())
    }
}

/// Returns the path by which this process can open a server's working directory. The server may run
/// in a chroot or a container.
fn folder(server: &ServerProcess) -> PathBuf {
    fs::read_link(format!("/proc/{}/cwd", server.pid())).unwrap_or_else(|_| server.dir().to_owned())
}

fn ok(client: &mut Client, words: &[&str]) {
    let reply = client.command(words);
    assert_eq!(reply, Value::Simple(b"OK".to_vec()), "{words:?}");
}

fn text(client: &mut Client, words: &[&str]) -> String {
    String::from_utf8_lossy(client.command(words).as_bytes().unwrap_or_default()).into_owned()
}

fn wait_until(mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !condition() {
        assert!(Instant::now() < deadline, "not in time");
        thread::sleep(POLL);
    }
}

/// Returns the number of times that the server has run `command`, from INFO commandstats.
fn calls(client: &mut Client, command: &str) -> u64 {
    let stats = text(client, &["INFO", "commandstats"]);
    let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
    line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
}

fn workload(lines: &[(u32, &str)]) -> Workload {
    let options = TemplateOptions { tags: true, rand_int_count: Some(500), ..TemplateOptions::default() };
    Workload::from_templates("", lines, &options).unwrap()
}

fn cluster_use(result: &RunResult) -> &ClusterUse {
    result.cluster.as_ref().unwrap()
}

/// Checks that no request of the run was redirected: the node to which it was sent first answered
/// it.
fn check_straight(result: &RunResult) {
    assert_eq!((&result.ending, &result.first_error), (&Ending::Complete, &None), "{}", result.test);
    let cluster = cluster_use(result);
    assert_eq!(
        (cluster.moved, cluster.asked),
        (0, 0),
        "{}: a stable cluster sends nobody elsewhere",
        result.test
    );
    assert_eq!(cluster.nodes.values().sum::<u64>(), result.requests);
    assert!(cluster.nodes.len() == 3 && cluster.nodes.values().all(|&count| count > 0), "{cluster:?}");
}

#[test]
fn a_real_cluster_is_measured_and_its_redirections_are_followed() {
    if !peer::is_available() {
        eprintln!("skipped: no redis-server on the PATH and no SAKER_PEER to make a cluster of");
        return;
    }
    let mut cluster = Cluster::start();
    default_tests_and_templates_reach_the_right_nodes(&cluster);
    a_connection_per_request_finds_the_nodes_too(&cluster);
    tls_reaches_the_nodes(&cluster);
    redirections_are_followed_while_a_slot_moves(&cluster);
    a_password_is_given_to_every_node(&cluster);
    a_node_that_dies_ends_the_run_with_its_name(&mut cluster);
}

fn default_tests_and_templates_reach_the_right_nodes(cluster: &Cluster) {
    let options = DefaultTestOptions { keyspace: Some(1000), cluster: true, ..DefaultTestOptions::default() };
    let tests = Workload::default_tests(&[], &options).unwrap();
    let templates = [
        "SET {key uniform 1000} {value 10-40}",
        "MGET a{tag}__rand_int__ b{tag} c{tag}__rand_int__",
        "EVAL 'return redis.call(\"GET\", KEYS[1])' 1 {key zipfian 1000}",
        "XREAD COUNT 1 STREAMS s:__rand_int__ 0",
        "ECHO {value 5}",
    ];
    let templates = templates.map(|line| workload(&[(1, line)]));
    for workload in tests.into_iter().chain(templates) {
        check_straight(&run(&cluster.spec(workload, Limit::Requests(300))).unwrap());
    }
    // A hash tag keeps all keys at one node. The nodes' own counts must equal the counts of the
    // result.
    let mut clients = cluster.clients();
    for client in &mut clients {
        ok(client, &["FLUSHALL"]);
        ok(client, &["CONFIG", "RESETSTAT"]);
    }
    let lines =
        [(1, "SET {key uniform 30} {value 9}"), (3, "GET {key uniform 30}"), (1, "INCR {user}:__rand_int__")];
    for (threads, rate) in [(1, None), (2, Some(20_000.0))] {
        let mut spec = cluster.spec(workload(&lines), Limit::Requests(1000));
        (spec.load.threads, spec.load.rate, spec.load.verify) = (threads, rate, true);
        let before: Vec<u64> = clients.iter_mut().map(handled).collect();
        let result = run(&spec).unwrap();
        check_straight(&result);
        for (at, client) in clients.iter_mut().enumerate() {
            assert_eq!(handled(client) - before[at], cluster_use(&result).nodes[&cluster.name(at)]);
        }
    }
    let owner = usize::from(slot(b"user")) * 3 / SLOTS;
    let counted: Vec<bool> = clients.iter_mut().map(|client| calls(client, "incr") > 0).collect();
    assert_eq!(counted, [0, 1, 2].map(|node| node == owner));
}

fn handled(client: &mut Client) -> u64 {
    ["set", "get", "incr"].map(|command| calls(client, command)).iter().sum()
}

fn a_connection_per_request_finds_the_nodes_too(cluster: &Cluster) {
    let mut spec = cluster.spec(workload(&[(1, "SET {key uniform 1000} a")]), Limit::Requests(100));
    spec.load.reconnect = true;
    check_straight(&run(&spec).unwrap());
}

fn tls_reaches_the_nodes(cluster: &Cluster) {
    let Some(port) = cluster.tls_ports.first().copied() else {
        eprintln!("skipped: this server has no TLS, or its nodes do not tell each other where they speak it");
        return;
    };
    let mut spec = cluster.spec(workload(&[(1, "SET {key uniform 1000} {value 100}")]), Limit::Requests(300));
    spec.target.endpoint = Endpoint::Tcp { host: "127.0.0.1".to_owned(), port };
    spec.target.tls = Some(Tls { ca: Some(pem("ca.pem")), ..Tls::default() });
    for reconnect in [false, true] {
        spec.load.reconnect = reconnect;
        let result = run(&spec).unwrap();
        check_straight(&result);
        assert_eq!(result.settings.transport, Transport::Tls);
        let names: Vec<String> = cluster.tls_ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        assert!(names.iter().all(|name| cluster_use(&result).nodes.contains_key(name)), "{result:?}");
    }
}

fn redirections_are_followed_while_a_slot_moves(cluster: &Cluster) {
    let moving = slot(TAG.as_bytes());
    let from = usize::from(moving) * 3 / SLOTS;
    let to = (from + 1) % 3;
    let mut clients = cluster.clients();
    let ids: Vec<String> = clients.iter_mut().map(|client| text(client, &["CLUSTER", "MYID"])).collect();
    // All keys are written first, so a GET misses only at the wrong node.
    let key = format!("{{{TAG}}}:{{key sequence 200}}");
    let fill = cluster.spec(workload(&[(1, &format!("SET {key} {{value 20}}"))]), Limit::Requests(200));
    assert_eq!(run(&fill).unwrap().requests, 200);
    let read = format!("GET {}", key.replace("sequence", "uniform"));
    let mut spec = cluster.spec(workload(&[(1, &read)]), Limit::Duration(2 * SOON));
    let over = Arc::new(AtomicBool::new(false));
    spec.watch.interrupt = Some(Arc::clone(&over));
    let measured = thread::spawn(move || run(&spec).unwrap());
    // Half of the keys move. The slot is in migration until a client has been redirected to them
    // (ASK).
    let slot_text = moving.to_string();
    let mut set_slot = |node: usize, state: &str, of: usize| {
        ok(&mut clients[node], &["CLUSTER", "SETSLOT", &slot_text, state, &ids[of]]);
    };
    set_slot(to, "IMPORTING", from);
    set_slot(from, "MIGRATING", to);
    let keys = clients[from].command(&["CLUSTER", "GETKEYSINSLOT", &slot_text, "1000"]);
    let Value::Array(keys) = keys else { panic!("{keys}") };
    assert_eq!(keys.len(), 200);
    let port = cluster.nodes[to].port().to_string();
    let migrate = |client: &mut Client, keys: &[Value]| {
        let mut words: Vec<&[u8]> =
            vec![b"MIGRATE", b"127.0.0.1", port.as_bytes(), b"", b"0", b"5000", b"KEYS"];
        words.extend(keys.iter().filter_map(Value::as_bytes));
        assert_eq!(client.command(&words), Value::Simple(b"OK".to_vec()));
    };
    migrate(&mut clients[from], &keys[..100]);
    wait_until(|| calls(&mut clients[to], "asking") > 0);
    migrate(&mut clients[from], &keys[100..]);
    // From now on the old node replies MOVED.
    for node in [to, from] {
        ok(&mut clients[node], &["CLUSTER", "SETSLOT", &slot_text, "NODE", &ids[to]]);
    }
    let before = calls(&mut clients[to], "get");
    wait_until(|| calls(&mut clients[to], "get") > before + 100);
    over.store(true, Relaxed);
    let result = measured.join().unwrap();
    assert_eq!((&result.ending, &result.first_error), (&Ending::Interrupted, &None));
    assert_eq!(result.misses, 0, "a request that is not followed to its key misses");
    let cluster_use = cluster_use(&result);
    assert!(cluster_use.moved > 0 && cluster_use.asked > 0, "{cluster_use:?}");
    assert_eq!(cluster_use.nodes.values().sum::<u64>(), result.requests);
}

fn a_password_is_given_to_every_node(cluster: &Cluster) {
    for client in &mut cluster.clients() {
        ok(client, &["CONFIG", "SET", "requirepass", "secret"]);
    }
    let mut spec = cluster.spec(workload(&[(1, "GET {key uniform 1000}")]), Limit::Requests(300));
    spec.target.password = Some("secret".to_owned());
    spec.target.resp3 = true;
    let result = run(&spec).unwrap();
    assert_eq!((result.requests, &result.first_error), (300, &None));
    spec.target.password = Some("wrong".to_owned());
    let refused = run(&spec).unwrap_err();
    assert!(matches!(&refused, BenchError::Refused(reason) if reason.contains("WRONGPASS")), "{refused}");
    for node in &cluster.nodes {
        let mut client = node.connect();
        ok(&mut client, &["AUTH", "secret"]);
        ok(&mut client, &["CONFIG", "SET", "requirepass", ""]);
    }
}

fn a_node_that_dies_ends_the_run_with_its_name(cluster: &mut Cluster) {
    let spec = cluster.spec(workload(&[(1, "INCR {key uniform 1000}")]), Limit::Duration(2 * SOON));
    let mut client = cluster.nodes[2].connect();
    let name = cluster.name(2);
    let measured = thread::spawn(move || run(&spec).unwrap());
    let before = calls(&mut client, "incr");
    wait_until(|| calls(&mut client, "incr") > before + 100);
    // Dropping the node kills it.
    drop(cluster.nodes.pop());
    let result = measured.join().unwrap();
    assert!(
        matches!(&result.ending, Ending::Failed(reason) if reason.contains(&name)),
        "{:?}",
        result.ending
    );
    assert!(result.requests > 100, "{}", result.requests);
    assert_eq!(cluster_use(&result).nodes.values().sum::<u64>(), result.requests);
}
