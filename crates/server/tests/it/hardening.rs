//! Rights of clients before authentication; requests that are allowed only on the server's machine;
//! bytes of clients that could split replies; files with passwords.

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use server::Server;
use testkit::{Address, Client, ClientError, Value, peer, saker};

use crate::support::{BINARY, as_process_on_each_back_end, connect, info, run};

/// Commands that get a normal reply before authentication.
const BEFORE_AUTH: &[&str] = &["auth", "hello", "quit", "reset"];

/// Commands whose replies before authentication may differ from those of Redis 8.0.2. In Redis,
/// DEBUG and MODULE LOAD then state if the configuration permits them.
const TELL_LESS: &[&str] = &["debug", "module|load", "module|loadex", "module|unload"];

/// Starts a server with a password; returns it with an authenticated client.
fn guarded(options: &[(&str, &str)]) -> (Server, Client) {
    let mut builder = Server::builder().port(0).io_threads(2).option("requirepass", "secret");
    for (name, value) in options {
        builder = builder.option(name, value);
    }
    let server = builder.start().expect("the server starts");
    let mut admin = connect(&server);
    assert_eq!(admin.command(&["AUTH", "secret"]), Value::Simple(b"OK".to_vec()));
    (server, admin)
}

/// Returns the full names of all commands and subcommands, with their arity.
fn commands(client: &mut Client) -> Vec<(String, i64)> {
    let mut found = Vec::new();
    let mut left = vec![client.command(&["COMMAND"])];
    while let Some(list) = left.pop() {
        let Value::Array(commands) = list else { panic!("COMMAND is an array") };
        for command in commands {
            let Value::Array(parts) = command else { panic!("a command is an array") };
            let name = String::from_utf8_lossy(parts[0].as_bytes().expect("a name")).to_ascii_lowercase();
            let Value::Integer(arity) = parts[1] else { panic!("{name} has an arity") };
            found.push((name, arity));
            left.push(parts[9].clone());
        }
    }
    found.sort();
    found
}

/// Returns requests of a command: with enough words, with one word too few, and with one too many.
fn requests((name, arity): &(String, i64)) -> Vec<Vec<String>> {
    let words: Vec<String> = name.split('|').map(str::to_owned).collect();
    let with = |len: usize| {
        let more = std::iter::repeat_n("x".to_owned(), len.saturating_sub(words.len()));
        words.iter().cloned().chain(more).collect::<Vec<_>>()
    };
    let len = arity.unsigned_abs() as usize;
    vec![with(len), with(len.saturating_sub(1)), with(len + 1)]
}

#[test]
fn nothing_is_told_before_authentication() {
    let (server, mut admin) = guarded(&[("enable-debug-command", "yes")]);
    for command in commands(&mut admin) {
        let name = command.0.as_str();
        if BEFORE_AUTH.contains(&name) {
            continue;
        }
        for request in requests(&command) {
            let reply = connect(&server).command(&request).to_string();
            let told = reply.contains("NOAUTH Authentication required.")
                || reply.contains("wrong number of arguments for \\'")
                || reply.contains("ERR unknown subcommand \\'x\\'. Try ");
            assert!(told, "{request:?}: {reply}");
        }
    }
    let hello = connect(&server).command(&["HELLO", "3"]).to_string();
    assert!(hello.contains("NOAUTH HELLO must be called with the client already"), "{hello}");
    let mut client = connect(&server);
    assert_eq!(client.command(&["RESET"]), Value::Simple(b"RESET".to_vec()));
    assert!(client.command(&["PING"]).to_string().contains("NOAUTH"));
}

/// Sends each request of each command that both servers have, before authentication, and compares
/// the replies.
#[test]
fn before_authentication_a_real_redis_answers_the_same() {
    if !peer::is_available() {
        eprintln!("no redis-server on the PATH and no SAKER_PEER: nothing to compare with");
        return;
    }
    let redis = peer::start_with(&["--requirepass", "secret"]).expect("the peer starts");
    let mut admin = redis.connect();
    admin.command(&["AUTH", "secret"]);
    if !admin.command(&["INFO", "server"]).to_string().contains("redis_version:8.0") {
        eprintln!("the peer is not Redis 8.0");
        return;
    }
    let (server, mut own_admin) = guarded(&[]);
    let own: Vec<String> = commands(&mut own_admin).into_iter().map(|(name, _)| name).collect();
    let both = commands(&mut admin).into_iter().filter(|(name, _)| own.contains(name));
    for command in both.filter(|(name, _)| !TELL_LESS.contains(&name.as_str())) {
        for request in requests(&command) {
            let answer = |address: &Address| {
                Client::connect(address).expect("it listens").request(&request).map_err(|_| "closed")
            };
            let (ours, theirs) = (answer(&Address::port(server.port())), answer(&redis.address()));
            assert_eq!(ours, theirs, "{request:?}");
        }
    }
}

#[test]
fn a_client_must_authenticate_in_time() {
    let (server, mut admin) = guarded(&[("authentication-timeout", "1")]);
    let mut silent = connect(&server);
    let mut busy = connect(&server);
    let began = Instant::now();
    // Requests do not extend the timeout.
    while busy.request(&["PING"]).is_ok() {
        assert!(began.elapsed() < Duration::from_secs(20), "a client without a password stays");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(began.elapsed() >= Duration::from_secs(1));
    assert!(matches!(silent.read(), Err(ClientError::Closed)));
    assert_eq!(admin.command(&["PING"]), Value::Simple(b"PONG".to_vec()));
    // For a client that has authenticated, the time starts at its RESET.
    admin.command(&["RESET"]);
    assert_eq!(admin.command(&["AUTH", "secret"]), Value::Simple(b"OK".to_vec()));
}

#[test]
fn requests_before_authentication_are_small() {
    let (server, mut admin) = guarded(&[]);
    let refused = |request: &[u8], expected: &str| {
        let mut client = connect(&server);
        client.send(request).expect("it is sent");
        assert_eq!(client.read().expect("an error").to_string(), format!("(error) {expected}"));
        assert!(client.read().is_err(), "still open");
    };
    refused(b"*11\r\n", "ERR Protocol error: unauthenticated multibulk length");
    refused(b"*2\r\n$4\r\nAUTH\r\n$16385\r\n", "ERR Protocol error: unauthenticated bulk length");
    // After authentication, any size is allowed.
    let value = "x".repeat(100_000);
    assert_eq!(admin.command(&["SET", "k", &value]), Value::Simple(b"OK".to_vec()));
    assert_eq!(
        admin.command(&["DEL", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"]).to_string(),
        "(integer) 0"
    );
}

#[test]
fn before_authentication_little_is_held_for_a_client() {
    // The memory is that of the process: no other test runs in it.
    as_process_on_each_back_end(|server| {
        let mut admin = server.connect();
        admin.command(&["CONFIG", "SET", "requirepass", "secret"]);
        // This client reads nothing. It is closed when its replies exceed its socket's buffer.
        let mut flood = server.connect();
        let requests = b"PING\r\n".repeat(10_000);
        let closed = (0..5_000).any(|_| flood.send(&requests).is_err());
        assert!(closed, "30 million replies are held for a client without a password");
        assert_eq!(info(&mut admin, "client_output_buffer_limit_disconnections"), 1);
        // An endless request is rejected before it is long.
        let mut long = server.connect();
        let words = [&b"*10\r\n"[..], &b"$16384\r\n"[..], &[b'x'; 16_000]].concat();
        long.send(&words).expect("it is sent");
        assert!(info(&mut admin, "used_memory") < 100 << 20);
        admin.command(&["CONFIG", "SET", "requirepass", ""]);
    });
}

/// Returns an address of this machine other than loopback; `None` if there is none. Sends nothing
/// over the network.
fn other_address() -> Option<std::net::IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

#[test]
fn without_a_password_only_clients_of_this_machine_are_served() {
    let Some(ip) = other_address() else {
        eprintln!("this machine has the loopback only");
        return;
    };
    let builder = Server::builder().port(0).io_threads(1).bind(&["0.0.0.0".parse().expect("an address")]);
    let server = builder.start().expect("the server starts");
    let from_outside = || {
        let address = Address::Tcp((ip, server.port()).into());
        let mut client = Client::connect(&address).expect("it listens");
        client.request(&["PING"]).map(|reply| reply.to_string()).unwrap_or_else(|_| "closed".to_owned())
    };
    let denied = from_outside();
    assert!(denied.contains("DENIED Redis is running in protected mode because protected"), "{denied}");
    let mut admin = connect(&server);
    admin.command(&["CONFIG", "SET", "requirepass", "secret"]);
    assert!(from_outside().contains("NOAUTH"));
    admin.command(&["CONFIG", "SET", "requirepass", "", "protected-mode", "no"]);
    assert_eq!(from_outside(), "PONG");
}

#[test]
fn modules_are_permitted_by_an_option_and_fail() {
    let ask = |permitted: &str, request: &[&str]| {
        let builder = Server::builder().port(0).io_threads(1).option("enable-module-command", permitted);
        match connect(&builder.start().expect("it starts")).command(request) {
            Value::Error(line) => String::from_utf8_lossy(&line).into_owned(),
            other => other.to_string(),
        }
    };
    let not_allowed = "ERR MODULE command not allowed. If the enable-module-command option is set to \"local\", you \
                       can run it from a local connection, otherwise you need to set this option in the \
                       configuration file, and then restart the server.";
    for request in [&["MODULE", "LOAD", "x"][..], &["MODULE", "LOADEX", "x"], &["MODULE", "UNLOAD", "x"]] {
        assert!(ask("no", request).contains(not_allowed), "{request:?}");
        assert!(ask("local", request).contains("ERR Error "), "{request:?}");
    }
    assert_eq!(ask("no", &["MODULE", "LIST"]), "(empty array)");
}

/// Bytes that end a line and then look like a reply.
const HOSTILE: &str = "x\r\n+INJECTED\r\n:1\r\n$8\r\nINJECTED\r\n";

/// Commands that are left out: they end the connection or the server, or have several replies or
/// none.
const NOT_ASKED: &[&str] = &[
    "shutdown",
    "quit",
    "monitor",
    "sync",
    "psync",
    "replicaof",
    "slaveof",
    "failover",
    "subscribe",
    "psubscribe",
    "ssubscribe",
    "unsubscribe",
    "punsubscribe",
    "sunsubscribe",
    "multi",
    "client|reply",
    "client|pause",
    "debug",
];

/// Sends one request and returns the reply. Checks that the server sends only this reply.
fn one_reply(client: &mut Client, request: &[String]) -> Value {
    let mut bytes = Vec::new();
    resp::encode_request(request, &mut bytes);
    resp::encode_request(&["ECHO", "the end"], &mut bytes);
    client.send(&bytes).expect("it is sent");
    let reply = client.read().unwrap_or_else(|error| panic!("{request:?}: {error}"));
    let end = client.read().unwrap_or_else(|error| panic!("{request:?}: {error}"));
    assert_eq!(end, Value::Bulk(b"the end".to_vec()), "{request:?} is answered {reply:?} and more");
    reply
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn no_reply_is_broken_apart_by_what_it_quotes() {
    let server = Server::builder().port(0).io_threads(1).start().expect("the server starts");
    let mut client = connect(&server);
    client.command(&["SET", "string", "x"]);
    for (name, arity) in commands(&mut client) {
        if NOT_ASKED.contains(&name.as_str()) {
            continue;
        }
        let base: Vec<String> = name.split('|').map(str::to_owned).collect();
        let len = arity.unsigned_abs() as usize;
        // First all arguments are hostile, then one argument at a time.
        for extra in 0..2 {
            let all = base.iter().cloned().chain(std::iter::repeat_n(HOSTILE.to_owned(), len + extra));
            one_reply(&mut client, &all.collect::<Vec<_>>());
        }
        for at in 1..len + 2 {
            let mut request = base.clone();
            request.resize((len + 2).max(base.len() + 1), "string".to_owned());
            let at = at.min(request.len() - 1);
            HOSTILE.clone_into(&mut request[at]);
            one_reply(&mut client, &request);
        }
    }
    for request in [
        words(&[HOSTILE]),
        words(&[HOSTILE, HOSTILE]),
        words(&["EVAL", "return redis.error_reply(ARGV[1])", "0", HOSTILE]),
        words(&["EVAL", "return {err = ARGV[1]}", "0", HOSTILE]),
        words(&["EVAL", "return redis.status_reply(ARGV[1])", "0", HOSTILE]),
        words(&["EVAL", "return {ok = ARGV[1]}", "0", HOSTILE]),
        words(&["EVAL", "error(ARGV[1])", "0", HOSTILE]),
        words(&["EVAL", "error({err = ARGV[1]})", "0", HOSTILE]),
        words(&["EVAL", "return redis.call(ARGV[1])", "0", HOSTILE]),
        words(&["EVAL", "return redis.pcall('GET', 'a', ARGV[1])", "0", HOSTILE]),
        words(&["EVAL", &format!("#!lua name={HOSTILE}\nreturn 1"), "0"]),
        words(&["FUNCTION", "LOAD", &format!("#!lua name={HOSTILE}\nreturn 1")]),
        words(&["CONFIG", "SET", "maxmemory-policy", HOSTILE]),
        words(&["CONFIG", "SET", "save", HOSTILE]),
        words(&["CONFIG", "SET", "bind", HOSTILE]),
        words(&["CLIENT", "SETINFO", "LIB-NAME", HOSTILE]),
        words(&["CLIENT", "KILL", "ADDR", HOSTILE]),
        words(&["HELLO", "2", "SETNAME", HOSTILE]),
        words(&["HELLO", "2", "AUTH", HOSTILE, HOSTILE]),
        words(&["ACL", "SETUSER", HOSTILE, HOSTILE]),
    ] {
        one_reply(&mut client, &request);
    }
    // In a transaction with queued commands.
    client.command(&["MULTI"]);
    let unknown = client.command(&[HOSTILE, HOSTILE]);
    assert!(unknown.is_error(), "{unknown:?}");
    assert!(client.command(&["EXEC"]).is_error());
    // The lists of clients and errors, which other clients read, are not split either.
    for list in [&["CLIENT", "LIST"][..], &["INFO", "everything"], &["ACL", "LOG"]] {
        let text = client.command(list).to_string();
        assert!(!text.contains("\n+INJECTED"), "{list:?}: {text}");
    }
}

/// Checks the configuration `text` with `--check-config`, in a file with the permission bits
/// `mode`. Returns the program's output.
fn checked(text: &str, mode: u32) -> String {
    let folder = tempfile::tempdir().expect("a scratch folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("changed");
    let path = folder.path().join("saker.conf");
    fs::write(&path, text).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("changed");
    let output = run(&["--check-config", path.to_str().expect("UTF-8"), "--save", ""], "");
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

#[test]
fn a_file_with_a_password_that_everyone_may_read_is_named_or_refused() {
    let said = "every user of this machine can read the password in";
    let warned = checked("port 0\nunixsocket /tmp/x\nrequirepass secret\n", 0o644);
    assert!(warned.contains("The configuration is good.") && warned.contains(said), "{warned}");
    let refused = checked("requirepass secret\nsecrets-in-readable-files refuse\n", 0o644);
    assert!(!refused.contains("is good") && refused.contains(said), "{refused}");
    assert!(!checked("requirepass secret\nsecrets-in-readable-files ignore\n", 0o644).contains(said));
    assert!(!checked("requirepass secret\nsecrets-in-readable-files refuse\n", 0o640).contains(said));
    assert!(!warned.contains("secret\n") && !refused.contains("secret\n"), "the password is shown");
}

#[test]
fn the_log_names_a_file_with_a_password_that_everyone_may_read() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("changed");
    let path = folder.path().join("more.conf");
    fs::write(&path, "masterauth secret\n").expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("changed");
    let path = path.to_str().expect("UTF-8");
    let server = saker::start_binary(BINARY, &["--include", path]).expect("starts");
    server.wait_for_log("every user of this machine can read the password in");
    let refused = run(&["--port", "0", "--include", path, "--secrets-in-readable-files", "refuse"], "");
    assert!(!refused.status.success());
}
