//! Three servers under three Sentinels: the peer's server as a Sentinel (`SAKER_PEER`, with
//! `--sentinel`). Without a peer, these tests print a note and pass.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;
use testkit::change_stream::forms::PeerVersion;
use testkit::change_stream::peers::has_same_data;
use testkit::process::free_port;
use testkit::replication::{number, run};
use testkit::{Client, ServerProcess, Value, peer};

use crate::replication::is_without_peer;
use crate::support::{BINARY, signal};

mod example;
mod failovers;
mod held_back;
mod logins;
mod writers;

/// Maximum time until a condition becomes true. It is long: on a loaded machine, a Sentinel does
/// nothing for 30 seconds after it was paused itself, and elections take several rounds.
const WITHIN: Duration = Duration::from_secs(240);

/// Pause between two checks of a condition for which a test waits.
const POLL: Duration = Duration::from_millis(20);

/// A configuration line for the Sentinels of tests that stop no server. With this line, a Sentinel
/// does not declare a slow server down.
const PATIENT: &str = "sentinel down-after-milliseconds main 600000";

/// Returns true if `is_so` returns true within [`WITHIN`].
fn happens(mut is_so: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + WITHIN;
    while !is_so() {
        if Instant::now() > deadline {
            return false;
        }
        thread::sleep(POLL);
    }
    true
}

/// The name of the primary in the configuration of the Sentinels.
const NAME: &str = "main";

/// The number of servers, and also the number of Sentinels.
const COUNT: usize = 3;

/// The settings with which a test starts a set of servers and Sentinels.
#[derive(Clone, Debug, Default)]
struct Settings {
    /// Lines in the configuration files of all servers.
    servers: String,
    /// One line for the configuration file of each server.
    each: [String; COUNT],
    /// Lines in the configuration files of the Sentinels, after the line that names the primary.
    sentinels: String,
    /// The words after AUTH for connections of the test; empty for no login.
    login: Vec<&'static str>,
    /// The TLS ports of the servers, which the Sentinels watch in place of the plain ports; `None`
    /// without TLS.
    tls_ports: Option<[u16; COUNT]>,
    /// True if the servers have no configuration files, only options.
    has_no_files: bool,
}

/// Three servers, of which the first one starts as the primary, and their Sentinels.
struct Watched {
    /// The folder with the files of the servers, which stay when a process ends.
    folder: TempDir,
    ports: [u16; COUNT],
    /// The running servers; `None` for a server that was killed.
    servers: [Option<ServerProcess>; COUNT],
    sentinels: Vec<ServerProcess>,
    settings: Settings,
}

impl Watched {
    /// Starts servers and Sentinels, and waits until the Sentinels know all of them.
    fn start(settings: Settings) -> Self {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let ports = [(); COUNT].map(|()| free_port().expect("a port is free"));
        let mut set = Self { folder, ports, servers: [const { None }; COUNT], sentinels: vec![], settings };
        for at in 0..COUNT {
            let dir = set.folder.path().join(at.to_string());
            fs::create_dir(&dir).expect("made");
            let mut text = format!("port {}\ndir {}\n", ports[at], dir.display());
            text += "save \"\"\nhz 100\nenable-debug-command yes\nrepl-diskless-sync-delay 0\n";
            if let Some(tls_ports) = set.settings.tls_ports {
                text += &format!("tls-port {}\ntls-replication yes\n", tls_ports[at]);
            }
            if at > 0 {
                text += &format!("replicaof 127.0.0.1 {}\n", set.watched_ports()[0]);
            }
            text += &format!("{}\n{}\n", set.settings.servers, set.settings.each[at]);
            fs::write(set.file(at), text).expect("written");
            set.restart(at);
        }
        assert!(happens(|| (1..COUNT).all(|at| set.follows(at, 0))), "no replica: {}", set.state());
        for number in 0..COUNT {
            set.start_sentinel(number);
        }
        set.wait_until_watched();
        set
    }

    /// Starts Sentinel `number`. It finds the replicas and the other Sentinels with the help of the
    /// servers.
    fn start_sentinel(&mut self, number: usize) {
        let file = self.folder.path().join(format!("sentinel{number}"));
        let (port, more) = (self.watched_ports()[0], &self.settings.sentinels);
        let mut text = format!(
            "sentinel monitor {NAME} 127.0.0.1 {port} 2\nsentinel down-after-milliseconds {NAME} 5000\n\
             sentinel failover-timeout {NAME} 10000\n{more}\n"
        );
        if self.settings.tls_ports.is_some() {
            let own = free_port().expect("a port is free");
            text += &format!("tls-port {own}\ntls-replication yes\n");
        }
        fs::write(&file, text).expect("written");
        let mut line: Vec<OsString> = peer::command_line().split_whitespace().map(OsString::from).collect();
        line.push(file.into());
        let options = ["--sentinel".to_owned()];
        let sentinel = ServerProcess::start(&line, &options).expect("the Sentinel starts");
        self.sentinels.push(sentinel);
    }

    /// Returns the ports of the servers that the Sentinels watch.
    fn watched_ports(&self) -> [u16; COUNT] {
        self.settings.tls_ports.unwrap_or(self.ports)
    }

    /// Returns the path of the configuration file of server `at`.
    fn file(&self, at: usize) -> PathBuf {
        self.folder.path().join(at.to_string()).join("conf")
    }

    /// Starts server `at` again, with its configuration file or with the options in it.
    fn restart(&mut self, at: usize) {
        let mut line: Vec<OsString> = vec![BINARY.into()];
        let mut options = vec!["--io-threads".to_owned(), "2".to_owned()];
        if self.settings.has_no_files {
            let text = fs::read_to_string(self.file(at)).expect("written");
            for words in text.lines().map(|line| line.split(' ').collect::<Vec<_>>()) {
                if !["port", ""].contains(&words[0]) {
                    options.push(format!("--{}", words[0]));
                    options.extend(words[1..].iter().map(|word| word.trim_matches('"').to_owned()));
                }
            }
        } else {
            line.push(self.file(at).into());
        }
        let server = ServerProcess::start_on(&line, self.ports[at], &options).expect("the server starts");
        self.servers[at] = Some(server);
    }

    /// Kills server `at`, as the kernel does when memory is short.
    fn kill(&mut self, at: usize) {
        self.servers[at] = None;
    }

    fn server(&self, at: usize) -> &ServerProcess {
        self.servers[at].as_ref().expect("the server runs")
    }

    /// Sends a signal that stops server `at`, or lets it continue.
    fn signal(&self, at: usize, what: Signal) {
        signal(self.server(at), what);
    }

    /// Connects to server `at`, which must run, and logs in.
    fn connect(&self, at: usize) -> Client {
        log_in(self.server(at).connect(), &self.settings.login)
    }

    /// Returns a field of INFO replication. Returns an empty text if the server does not run or
    /// closes the connection, as a Sentinel may request.
    fn field(&self, at: usize, name: &str) -> String {
        let Some(server) = &self.servers[at] else { return String::new() };
        let mut client = server.connect();
        let login = &self.settings.login;
        let is_in = login.is_empty() || client.request(&[&["AUTH"], &login[..]].concat()).is_ok();
        let info = client.request(&["INFO", "replication"]).ok().filter(|_| is_in);
        let info = info.as_ref().map(text).unwrap_or_default();
        let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.unwrap_or_default().to_owned()
    }

    /// Returns true if server `at` is a replica of server `primary`, and the link between them is
    /// up.
    fn follows(&self, at: usize, primary: usize) -> bool {
        self.field(at, "master_port") == self.watched_ports()[primary].to_string()
            && self.field(at, "master_link_status") == "up"
    }

    /// Returns the index of the server that Sentinel `sentinel` names as the primary.
    fn primary_of(&self, sentinel: usize) -> usize {
        let port = named_by(self.sentinels[sentinel].port());
        self.watched_ports().iter().position(|&known| known == port).expect("a known port")
    }

    /// Returns the index of the server that the first Sentinel names as the primary.
    fn primary(&self) -> usize {
        self.primary_of(0)
    }

    /// Waits until all Sentinels know all servers and each other, and consider the primary to be
    /// up.
    fn wait_until_watched(&self) {
        let knows_all = |sentinel: &ServerProcess| {
            let state = master(sentinel);
            let is = |name: &str, value: &str| state.iter().any(|(key, held)| key == name && held == value);
            is("num-slaves", "2") && is("num-other-sentinels", "2") && is("flags", "master")
        };
        assert!(happens(|| self.sentinels.iter().all(knows_all)), "not discovered: {}", self.state());
    }

    /// Waits until all Sentinels name another primary than `old` and that server has the role of a
    /// primary. Returns its index.
    fn wait_for_other(&self, old: usize) -> usize {
        let is_replaced = happens(|| {
            let new = self.primary();
            new != old
                && (0..COUNT).all(|at| self.primary_of(at) == new)
                && self.field(new, "role") == "master"
        });
        assert!(is_replaced, "no other primary: {}", self.state());
        self.primary()
    }

    /// Waits until two replicas follow the primary that the Sentinels name, and have its offset and
    /// its data.
    fn wait_until_equal(&self) {
        let is_equal = happens(|| {
            let primary = self.primary();
            let replicas: Vec<usize> = (0..COUNT).filter(|&at| at != primary).collect();
            let mut of_primary = self.connect(primary);
            let version = PeerVersion::of(&mut of_primary).expect("it states its version");
            replicas.iter().all(|&at| self.follows(at, primary))
                && replicas.iter().all(|&at| {
                    let mut own = self.connect(at);
                    number(&mut own, "replication", "slave_repl_offset")
                        == number(&mut of_primary, "replication", "master_repl_offset")
                        && has_same_data(version, &mut own, &mut of_primary)
                })
        });
        assert!(is_equal, "the servers differ: {}", self.state());
    }

    /// Returns the last log lines of all servers and Sentinels, for messages.
    fn state(&self) -> String {
        let processes = self.servers.iter().flatten().chain(&self.sentinels);
        let last = |log: String| {
            let lines: Vec<&str> = log.lines().collect();
            lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
        };
        processes.map(|process| format!("\n--- {}\n{}", process.port(), last(process.log()))).collect()
    }

    /// Requests that the first Sentinel replaces the primary `old`, until another server is the
    /// primary. A request may fail: no replica may be good enough yet, and a Sentinel on a loaded
    /// machine gives up a slow failover. Returns the index of the new primary.
    fn fail_over_from(&self, old: usize) -> usize {
        self.fail_over_with(old, &[])
    }

    /// Requests, with the additional words `words`, that the first Sentinel replaces the primary
    /// `old`, until another server is the primary. Returns the index of the new primary.
    fn fail_over_with(&self, old: usize, words: &[&str]) -> usize {
        let mut sentinel = self.sentinels[0].connect();
        let is_replaced = happens(|| {
            let is_old = self.primary() == old;
            if is_old {
                // An error means that a failover is in progress, or that no replica is good enough.
                sentinel.command(&[&["SENTINEL", "FAILOVER", NAME], words].concat());
            }
            !is_old
        });
        assert!(is_replaced, "the Sentinel does not replace the primary: {}", self.state());
        self.wait_for_other(old)
    }

    /// Waits until two replicas follow the primary that the Sentinels name.
    fn wait_until_all_follow(&self) {
        let is_following = happens(|| {
            let primary = self.primary();
            (0..COUNT).all(|at| at == primary || self.follows(at, primary))
        });
        assert!(is_following, "not all servers follow: {}", self.state());
    }

    /// Waits until server `at` follows the primary that the Sentinels name.
    fn wait_until_follows(&self, at: usize) {
        let is_following = happens(|| {
            let primary = self.primary();
            primary != at && self.follows(at, primary)
        });
        assert!(is_following, "server {at} does not follow: {}", self.state());
    }

    /// Returns the number of failovers that the Sentinels have begun, up to the last one that took
    /// effect. On a loaded machine, they begin some failovers again.
    fn times_replaced(&self) -> String {
        let state = master(&self.sentinels[0]);
        let epoch = state.into_iter().find(|(name, _)| name == "config-epoch");
        epoch.expect("a field of each primary").1
    }
}

/// Number of log lines of each process in messages of failures.
const LOG_LINES: usize = 60;

/// Logs a client in with the words after AUTH, unless there are none.
fn log_in(mut client: Client, words: &[&str]) -> Client {
    if !words.is_empty() {
        run(&mut client, &[&["AUTH"], words].concat());
    }
    client
}

/// Returns the port of the primary, as the Sentinel at the port `sentinel` names it.
fn named_by(sentinel: u16) -> u16 {
    let reply = Client::to_port(sentinel).command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME]);
    let Value::Array(words) = &reply else { panic!("{reply}") };
    text(&words[1]).parse().expect("a port")
}

/// Returns the fields of the primary's state in a Sentinel, as pairs of name and value.
fn master(sentinel: &ServerProcess) -> Vec<(String, String)> {
    let reply = sentinel.connect().command(&["SENTINEL", "MASTER", NAME]);
    let Value::Array(words) = &reply else { panic!("{reply}") };
    words.chunks(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect()
}

/// Returns the text of a bulk string.
fn text(value: &Value) -> String {
    String::from_utf8_lossy(value.as_bytes().unwrap_or_default()).into_owned()
}
