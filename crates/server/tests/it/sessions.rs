//! Several clients at once, step by step: transactions and blocked clients. The expected replies
//! are in tests/sessions and hold on both backends, with 1, 2 and 4 I/O threads. Except for
//! own.txt they also hold on a real Redis, if available. `SAKER_RECORD_SESSIONS=1` writes the
//! replies of that Redis into the files.
//!
//! A file is a list of scenes. Each scene begins without keys and connections:
//!
//! ```text
//! ## first_come_first_served     a scene
//! a& BLPOP list 0                client a sends, and blocks
//! b: LPUSH list x                client b sends and reads the reply
//! = :1                           the expected reply
//! a?                             a reads a reply
//! a+ PING                        a sends and does not read
//! a^                             a uses RESP3 from here on
//! a!                             a disconnects, and the server has noticed
//! b: CLIENT UNBLOCK {a}          the id of client a
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use net::{Backend, BackendChoice};
use server::Server;
use testkit::notation::one_line;
use testkit::{Address, Client, Protocol, peer};

/// Maximum time until a client is seen blocked or disconnected.
const SEEN_WITHIN: Duration = Duration::from_secs(120);

/// A server, and the clients of the scene (a list of steps) that runs on it.
struct Stage {
    address: Address,
    control: Client,
    clients: BTreeMap<String, (Client, String)>,
}

impl Stage {
    fn new(address: &Address) -> Self {
        let mut control = Client::connect(address).expect("the server listens");
        // Clients of the previous scene may still be subscribed.
        let begun = Instant::now();
        while one_line(&control.command(&["CLIENT", "LIST"])).matches("laddr=").count() > 1 {
            assert!(begun.elapsed() < SEEN_WITHIN, "clients of the scene before are still connected");
            std::thread::yield_now();
        }
        control.command(&["FLUSHALL"]);
        Self { address: address.clone(), control, clients: BTreeMap::new() }
    }

    fn client(&mut self, name: &str) -> &mut (Client, String) {
        let address = &self.address;
        self.clients.entry(name.to_string()).or_insert_with(|| {
            let mut client = Client::connect(address).expect("the server listens");
            let id = one_line(&client.command(&["CLIENT", "ID"])).trim_start_matches(':').to_string();
            (client, id)
        })
    }

    /// Waits until `is_so` returns true for the client's line in CLIENT LIST.
    fn await_client(&mut self, id: &str, is_so: impl Fn(&str) -> bool) {
        let begun = Instant::now();
        loop {
            let list = one_line(&self.control.command(&["CLIENT", "LIST", "ID", id]));
            if is_so(&list) {
                return;
            }
            assert!(begun.elapsed() < SEEN_WITHIN, "client {id} is still: {list}");
            std::thread::yield_now();
        }
    }

    /// Runs the step in a line of a scene; returns the reply if the step reads one.
    fn play(&mut self, line: &str) -> Option<String> {
        let name_len = line.find(|letter: char| !letter.is_alphanumeric()).expect("a line has a verb");
        let (name, rest) = line.split_at(name_len);
        let (verb, command) = rest.split_at(1);
        let mut command = command.trim().to_string();
        for (name, (_, id)) in &self.clients {
            command = command.replace(&format!("{{{name}}}"), id);
        }
        let (client, id) = self.client(name);
        let id = id.clone();
        if !command.is_empty() {
            let words: Vec<&str> =
                command.split(' ').map(|word| if word == "''" { "" } else { word }).collect();
            let mut bytes = Vec::new();
            resp::encode_request(&words, &mut bytes);
            client.send(&bytes).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
        match verb {
            ":" | "?" => {
                let reply = client.read().unwrap_or_else(|error| panic!("{line}: {error}"));
                Some(one_line(&reply))
            }
            "+" => None,
            "^" => {
                client.hello(Protocol::Resp3);
                None
            }
            "&" => {
                self.await_client(&id, |list| {
                    let flags = list.split(" flags=").nth(1).and_then(|rest| rest.split(' ').next());
                    flags.is_some_and(|flags| flags.contains('b'))
                });
                None
            }
            "!" => {
                self.clients.remove(name);
                self.await_client(&id, |list| !list.contains(" flags="));
                None
            }
            _ => panic!("{line}: no such verb"),
        }
    }
}

/// Plays the scenes of a file; returns the text of the file with the received replies.
fn play_all(address: &Address, script: &str) -> String {
    let mut played = String::new();
    let mut stage = None;
    for line in script.lines().filter(|line| !line.starts_with("= ")) {
        played.push_str(line);
        played.push('\n');
        if line.starts_with("##") {
            drop(stage.take());
            stage = Some(Stage::new(address));
        } else if !line.starts_with('#')
            && !line.is_empty()
            && let Some(reply) = stage.as_mut().and_then(|stage| stage.play(line))
        {
            played.push_str(&format!("= {reply}\n"));
        }
    }
    played
}

/// The file of scenes whose replies differ from those of Redis.
const OWN: &str = "own.txt";

fn files() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/sessions");
    let entries = std::fs::read_dir(dir).expect("the folder is part of the sources");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("it can be listed").path()).collect();
    files.sort();
    files
}

/// Returns the files of scenes whose replies are those of Redis.
fn shared_files() -> Vec<PathBuf> {
    files().into_iter().filter(|file| file.file_name().is_some_and(|name| name != OWN)).collect()
}

/// Plays files on the server at `address` and compares the replies. `what` names the server in
/// messages.
fn check(address: &Address, files: &[PathBuf], what: &str) {
    for file in files {
        let script = std::fs::read_to_string(file).expect("a text");
        let played = play_all(address, &script);
        for ((at, expected), got) in (1..).zip(script.lines()).zip(played.lines()) {
            assert_eq!(expected, got, "{what}: {}:{at}", file.display());
        }
        assert_eq!(script, played, "{what}: {}", file.display());
    }
}

fn check_with(io_threads: usize) {
    let start = |choice| {
        let builder = Server::builder().port(0).io_threads(io_threads).backend(choice);
        builder.option("enable-debug-command", "yes").start().expect("the server starts")
    };
    let server = start(BackendChoice::Epoll);
    check(&Address::port(server.port()), &files(), &format!("epoll, {io_threads} threads"));
    // Containers often forbid io_uring. Then epoll is used instead, which was tested above.
    let server = start(BackendChoice::Auto);
    if server.backend() == Backend::IoUring {
        check(&Address::port(server.port()), &files(), &format!("io_uring, {io_threads} threads"));
    }
}

#[test]
fn sessions_on_one_thread() {
    check_with(1);
}

#[test]
fn sessions_across_two_threads() {
    check_with(2);
}

#[test]
fn sessions_across_more_threads_than_cores() {
    check_with(4);
}

#[test]
fn a_real_redis_answers_so_too() {
    if !peer::is_available() {
        eprintln!("no redis-server on the PATH and no SAKER_PEER: nothing to compare with");
        return;
    }
    let redis = peer::start().expect("the peer starts");
    let version = one_line(&redis.connect().command(&["INFO", "server"]));
    if !version.contains("redis_version:8.") {
        eprintln!("the peer is not Redis 8, whose replies the files hold");
        return;
    }
    if std::env::var_os("SAKER_RECORD_SESSIONS").is_some() {
        for file in shared_files() {
            let script = std::fs::read_to_string(&file).expect("a text");
            std::fs::write(&file, play_all(&redis.address(), &script)).expect("the file can be written");
        }
    }
    check(&redis.address(), &shared_files(), "the real server");
}
