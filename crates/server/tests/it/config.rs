//! Configuration: files, the command line, the builder, CONFIG.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use server::{Server, StartError};
use testkit::process::free_port;
use testkit::{Client, ServerProcess, Value, saker};

use crate::support::{BINARY, connect, run, signal};

fn get(client: &mut Client, name: &str) -> String {
    match client.command(&["CONFIG", "GET", name]) {
        Value::Array(pair) => match pair.as_slice() {
            [_, Value::Bulk(value)] => String::from_utf8_lossy(value).into_owned(),
            other => panic!("{name}: {other:?}"),
        },
        other => panic!("{name}: {other}"),
    }
}

fn set(client: &mut Client, pairs: &[&str]) -> String {
    client.command(&[&["CONFIG", "SET"], pairs].concat()).to_string()
}

#[test]
fn the_builder_takes_any_option() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let builder = Server::builder().port(0).io_threads(1).data_folder(folder.path());
    let builder = builder.option("timeout", "7").option("save", "1 2");
    let server = builder.option("requirepass", "\"a b\"").start().expect("starts");
    let mut client = connect(&server);
    assert!(client.command(&["PING"]).to_string().contains("NOAUTH"));
    client.command(&["AUTH", "a b"]);
    assert_eq!((get(&mut client, "timeout"), get(&mut client, "save")), ("7".into(), "1 2".into()));
    assert_eq!(get(&mut client, "port"), server.port().to_string());
}

#[test]
fn the_builder_tells_what_it_cannot_take() {
    let refused = |name: &str, value: &str| match Server::builder().port(0).option(name, value).start() {
        Err(StartError::Option { name, reason }) => format!("{name}: {reason}"),
        other => panic!("{:?}", other.err()),
    };
    assert_eq!(refused("timeout", "x"), "timeout: argument couldn't be parsed into an integer");
    assert_eq!(refused("nonsense", "1"), "nonsense: Bad directive or wrong number of arguments");
    assert_eq!(refused("logfile", "'a"), "logfile: Unbalanced quotes");
    let nowhere = Server::builder().port(0).bind(&[]).start();
    assert!(matches!(nowhere, Err(StartError::NowhereToListen)));
}

#[test]
fn options_act_from_the_next_request_on() {
    let server = Server::builder().port(0).io_threads(2).start().expect("starts");
    let mut client = connect(&server);
    client.command(&["HSET", "h", "a", "1", "b", "2"]);
    assert_eq!(set(&mut client, &["hash-max-listpack-entries", "1", "maxmemory", "1"]), "OK");
    assert!(client.command(&["SET", "k", "v"]).to_string().contains("OOM"));
    assert_eq!(set(&mut client, &["maxmemory", "0"]), "OK");
    client.command(&["HSET", "h2", "a", "1", "b", "2"]);
    assert_eq!(client.command(&["OBJECT", "ENCODING", "h2"]), Value::Bulk("hashtable".into()));
    assert_eq!(set(&mut client, &["requirepass", "secret"]), "OK");
    assert!(connect(&server).command(&["PING"]).to_string().contains("NOAUTH"));
    assert_eq!(client.command(&["PING"]).to_string(), "PONG");
}

#[test]
fn a_server_moves_to_another_port_and_keeps_its_clients() {
    let server = Server::builder().port(0).io_threads(2).start().expect("starts");
    let mut client = connect(&server);
    let (old, new) = (server.port(), free_port().expect("a free port"));
    assert_eq!(set(&mut client, &["port", &new.to_string(), "bind", "127.0.0.1"]), "OK");
    assert_eq!((server.port(), get(&mut client, "port")), (new, new.to_string()));
    assert_eq!(connect(&server).command(&["PING"]).to_string(), "PONG");
    // The accepting thread closes the old port in its next turn.
    while let Ok(mut left) = Client::connect(&testkit::Address::port(old)) {
        let _ = left.request(&["PING"]);
    }
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let port = taken.local_addr().expect("bound").port().to_string();
    let refusal = set(&mut client, &["timeout", "9", "port", &port]);
    let words = "Unable to listen on this port. Check server logs.";
    assert!(refusal.contains(words), "{refusal}");
    assert_eq!(get(&mut client, "timeout"), "0");
    let refusal = set(&mut client, &["bind", "192.0.2.1"]);
    assert!(refusal.contains("Failed to bind to specified addresses."), "{refusal}");
    // If two options need the same address, the error names the first one.
    let refusal = set(&mut client, &["bind", "192.0.2.1", "port", &port]);
    assert!(refusal.contains("Failed to bind"), "{refusal}");
    let refusal = set(&mut client, &["port", &port, "bind", "192.0.2.1"]);
    assert!(refusal.contains("Unable to listen"), "{refusal}");
    // All options change, or none.
    let refusal = set(&mut client, &["loglevel", "nothing", "bind", "192.0.2.1"]);
    assert!(refusal.contains("Failed to bind"), "{refusal}");
    assert_eq!(get(&mut client, "loglevel"), "notice");
    assert_eq!(connect(&server).command(&["PING"]).to_string(), "PONG");
}

#[test]
fn resetstat_starts_counting_over() {
    let server = Server::builder().port(0).io_threads(2).start().expect("starts");
    let mut client = connect(&server);
    let processed = |client: &mut Client| {
        let info = client.command(&["INFO", "stats"]).to_string();
        let line = info.split("total_commands_processed:").nth(1).expect("a field").to_owned();
        line.chars().take_while(char::is_ascii_digit).collect::<String>().parse::<u64>().expect("a number")
    };
    (0..100).for_each(|_| drop(client.command(&["PING"])));
    assert!(processed(&mut client) >= 100);
    let errors = |client: &mut Client| client.command(&["INFO", "errorstats"]).to_string();
    client.command(&["NOSUCHCOMMAND"]);
    assert!(errors(&mut client).contains("errorstat_ERR:count=1"));
    client.command(&["CONFIG", "RESETSTAT"]);
    assert!(processed(&mut client) < 10);
    assert!(!errors(&mut client).contains("errorstat_ERR"));
}

/// Starts the server with the configuration file `file` and the command-line options `options`.
fn start_with(file: &Path, options: &[&str]) -> ServerProcess {
    // The file comes first, before the --port that every server process gets.
    let command_line = [BINARY.into(), file.as_os_str().to_owned()];
    let options: Vec<String> = options.iter().map(ToString::to_string).collect();
    ServerProcess::start(&command_line, &options).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn a_rewritten_file_starts_the_same_server() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let file = folder.path().join("saker.conf");
    fs::write(&file, "# mine\ntimeout 5\nio-threads 2\nsave 1 1\n").expect("written");
    let server = start_with(&file, &["--maxmemory", "64mb"]);
    let mut client = server.connect();
    assert_eq!(set(&mut client, &["timeout", "6", "save", "2 2 3 3"]), "OK");
    assert_eq!(client.command(&["CONFIG", "REWRITE"]).to_string(), "OK");
    let text = fs::read_to_string(&file).expect("there");
    let start = "# mine\ntimeout 6\nio-threads 2\nsave 2 2\nsave 3 3\n# Generated by CONFIG REWRITE\nport ";
    assert!(text.starts_with(start), "{text}");
    assert!(text.ends_with("\nmaxmemory 64mb\n"), "{text}");
    drop(server);
    let server = start_with(&file, &[]);
    let mut client = server.connect();
    assert_eq!(get(&mut client, "save"), "2 2 3 3");
    assert_eq!(get(&mut client, "maxmemory"), (64 << 20).to_string());
}

#[test]
fn renamed_commands_answer_to_their_new_names_only() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let file = folder.path().join("saker.conf");
    let long = "b840fc02d524045429941cc15f59e41cb7be6c52";
    let renames =
        format!("rename-command FLUSHALL \"\"\nrename-command config {long}\nrename-command get Fetch\n");
    fs::write(&file, format!("{renames}list-max-ziplist-entries 512\n")).expect("written");
    let server = start_with(&file, &["--rename-command", "restore", ""]);
    let mut client = server.connect();
    let mut says = |words: &[&str]| client.command(words).to_string();
    assert!(says(&["FLUSHALL"]).contains("ERR unknown command"));
    assert_eq!(says(&["SET", "k", "v"]), "OK");
    assert_eq!(says(&["FETCH", "k"]), Value::Bulk("v".into()).to_string());
    assert!(says(&["get", "k"]).contains("ERR unknown command"));
    assert!(says(&["fetch"]).contains("wrong number of arguments for"));
    assert_eq!(says(&[&long.to_uppercase(), "SET", "timeout", "9"]), "OK");
    assert!(says(&["INFO", "all"]).contains("cmdstat_get:calls=1,"));
    assert_eq!(says(&[long, "REWRITE"]), "OK");
    assert!(fs::read_to_string(&file).expect("there").starts_with(&renames));
    // Within a pipeline, too, the old name does not call the command.
    client.send(b"FETCH k\r\nGET k\r\nfetch k\r\n").expect("sent");
    let replies = client.read_many(3).expect("three replies");
    assert!(replies[1].to_string().contains("unknown command"), "{replies:?}");
    assert_eq!([&replies[0], &replies[2]], [&Value::Bulk("v".into()); 2]);
}

#[test]
fn without_a_file_there_is_nothing_to_rewrite() {
    let server = Server::builder().port(0).io_threads(1).start().expect("starts");
    let refusal = connect(&server).command(&["CONFIG", "REWRITE"]).to_string();
    assert!(refusal.contains("ERR The server is running without a config file"), "{refusal}");
}

#[test]
fn a_signal_ends_the_server_and_takes_its_files_along() {
    for ending in [Signal::TERM, Signal::INT] {
        let options = ["--unixsocket", "s.sock", "--unixsocketperm", "700", "--pidfile", "s.pid"];
        let mut server = saker::start_binary(BINARY, &options).expect("starts");
        server.wait_for_log("Ready to accept connections tcp");
        server.wait_for_log("Ready to accept connections unix");
        let (socket, pid) = (server.dir().join("s.sock"), server.dir().join("s.pid"));
        let found = fs::read_to_string(&pid).expect("a pidfile");
        assert_eq!(found.trim(), server.pid().to_string());
        signal(&server, ending);
        assert_eq!(server.wait(Duration::from_secs(60)).expect("ends"), Some(0));
        assert!(!socket.exists() && !pid.exists());
    }
}

#[test]
fn what_cannot_be_configured_ends_with_its_line() {
    let check = |args: &[&str], input: &str, words: &str| {
        let output = run(args, input);
        let printed = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert_eq!(output.status.code(), Some(1), "{args:?}: {printed}");
        assert_eq!(printed.matches(words).count(), 1, "{args:?}: {printed}");
    };
    let words = "*** FATAL CONFIG FILE ERROR (Saker 0.1.0) ***\nReading the configuration file, at line 2\n>>> \
                 'foo 1'\nBad directive or wrong number of arguments: there is no option 'foo'; 'man \
                 saker.conf' and docs/options.md list all\n";
    check(&["-"], "port 0\nfoo 1\n", words);
    check(&["--port", "x"], "", "argument couldn't be parsed into an integer");
    check(&["no-such-file.conf"], "", "Fatal error, can't open config file");
    check(&["--port", "0"], "", "Configured to not listen anywhere, exiting.");
    check(
        &["--bind", "192.0.2.1", "--port", "0", "--unixsocket", "/no/such/folder/s"],
        "",
        "Failed opening Unix socket (option 'unixsocket'), aborting: /no/such/folder/s: No such file",
    );
}

#[test]
fn version_and_help_are_printed() {
    let printed = |arg: &str| String::from_utf8_lossy(&run(&[arg], "").stdout).into_owned();
    assert!(printed("-v").starts_with("Saker server v=0.1.0 "));
    assert!(printed("--help").starts_with("Usage: saker-server "));
}

/// Returns true if this process, and thus each child process, ignores the signal `signal`.
fn is_ignored_here(signal: Signal) -> bool {
    let status = fs::read_to_string("/proc/self/status").expect("Linux has it");
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("a mask");
    let mask = u64::from_str_radix(mask.trim(), 16).expect("a number");
    mask >> (signal.as_raw() - 1) & 1 == 1
}

/// Checks that signals that mean nothing to a server, such as SIGALRM, do not end it. SIGUSR1 and
/// SIGQUIT keep their default action and end it, as with Redis 8.0.2.
#[test]
fn issue_33_signals_without_a_meaning_do_not_end_the_server() {
    let mut server = saker::start_binary(BINARY, &[]).expect("starts");
    let mut client = server.connect();
    let ignored = [
        Signal::ALARM,
        Signal::USR2,
        Signal::HUP,
        Signal::PIPE,
        Signal::CHILD,
        Signal::CONT,
        Signal::WINCH,
        Signal::URG,
    ];
    for (count, ignored) in ignored.into_iter().enumerate() {
        signal(&server, ignored);
        // One at a time: a pending signal is not counted twice.
        if count < 2 {
            server.wait_for_log(&format!("Received signal {},", ignored.as_raw()));
        }
        assert_eq!(client.command(&["PING"]).to_string(), "PONG", "{ignored:?}");
    }
    for ending in [Signal::USR1, Signal::QUIT] {
        // If a shell starts the tests in the background, they ignore SIGQUIT, and so do their
        // children.
        if is_ignored_here(ending) {
            continue;
        }
        signal(&server, ending);
        assert_eq!(server.wait(Duration::from_secs(300)).expect("ends"), None, "ended by {ending:?}");
        server = saker::start_binary(BINARY, &[]).expect("starts");
    }
}

/// Options that Redis 8.0.2 lists but CONFIG SET cannot change.
const FIXED_IN_REDIS: &[&str] = &[
    "aclfile",
    "always-show-logo",
    "aof-rewrite-cpulist",
    "aof_rewrite_cpulist",
    "appenddirname",
    "appendfilename",
    "bgsave-cpulist",
    "bgsave_cpulist",
    "bio-cpulist",
    "bio_cpulist",
    "cluster-config-file",
    "cluster-enabled",
    "cluster-port",
    "daemonize",
    "databases",
    "disable-thp",
    "enable-debug-command",
    "enable-module-command",
    "enable-protected-configs",
    "io-threads",
    "logfile",
    "pidfile",
    "rdbchecksum",
    "replicaof",
    "server-cpulist",
    "server_cpulist",
    "set-proc-title",
    "slaveof",
    "socket-mark-id",
    "supervised",
    "syslog-enabled",
    "syslog-facility",
    "syslog-ident",
    "tcp-backlog",
    "unixsocket",
    "unixsocketperm",
];

/// Options that Redis 8.0.2 lacks and that cannot be changed after the start.
const FIXED_BESIDES: &[&str] = &[
    "audit-log-file",
    "backupdirname",
    "cluster-databases",
    "hash-seed",
    "io-backend",
    "metrics-bind",
    "metrics-port",
    "mptcp",
    "oidc-audience",
    "oidc-ca-file",
    "oidc-end-sessions",
    "oidc-issuer",
    "oidc-keys-file",
    "oidc-keys-refresh",
    "oidc-keys-url",
    "oidc-leeway",
    "oidc-user-claim",
    "oidc-user-prefix",
    "rdma-bind",
    "rdma-completion-vector",
    "rdma-rx-size",
    "repl-mptcp",
    "unixsocketgroup",
];

#[test]
fn issue_33_config_set_takes_every_option_that_redis_lets_change() {
    let server = saker::start_binary(BINARY, &["--enable-protected-configs", "yes"]).expect("starts");
    let mut client = server.connect();
    let Value::Array(words) = client.command(&["CONFIG", "GET", "*"]) else { panic!("no array") };
    let text = |value: &Value| match value {
        Value::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => panic!("{other}"),
    };
    let mut fixed = Vec::new();
    for pair in words.chunks(2) {
        let (name, value) = (text(&pair[0]), text(&pair[1]));
        match set(&mut client, &[&name, &value]).as_str() {
            "OK" => {}
            refusal
                if refusal.contains("can\\'t set immutable config")
                    || refusal.contains("can't set immutable config") =>
            {
                fixed.push(name);
            }
            refusal => panic!("{name} {value}: {refusal}"),
        }
    }
    fixed.sort();
    let mut expected = [FIXED_IN_REDIS, FIXED_BESIDES].concat();
    expected.sort_unstable();
    assert_eq!(fixed, expected);
}

#[test]
fn issue_33_a_primary_that_is_none_is_refused() {
    for (args, words) in [
        (&["--replicaof", ""][..], "wrong number of arguments"),
        (&["--slaveof", " "], "wrong number of arguments"),
        (&["--replicaof"], "wrong number of arguments"),
        (&["--replicaof", "h"], "wrong number of arguments"),
        (&["--replicaof", "h", "65536"], "Invalid master port"),
    ] {
        let output = run(args, "");
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{args:?}: {printed}");
        assert!(printed.contains(words), "{args:?}: {printed}");
    }
}
