//! The audit log, logins that are delayed after failures, and logins with tokens.

use std::net::UdpSocket;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use rustix::process::Signal;
use serde_json::{Value as Json, json};
use server::{Server, StartError};
use testkit::{Address, Client, ClientError, Value, saker};

use crate::support::{BINARY, connect, info, signal};

/// Starts a server with `options`, given as pairs of name and value.
fn start(options: &[(&str, &str)]) -> Server {
    let mut builder = Server::builder().port(0).io_threads(2);
    for (name, value) in options {
        builder = builder.option(name, value);
    }
    builder.start().expect("the server starts")
}

/// Returns the lines of the audit log at `path`, after the server has ended.
fn lines(path: &Path) -> Vec<Json> {
    let text = std::fs::read_to_string(path).expect("the file is there");
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}")))
        .collect()
}

/// Formats a line of the audit log as words: event, result, reason, user, command and keys.
fn shown(line: &Json) -> String {
    let word = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
    let keys: Vec<&str> = line["keys"].as_array().into_iter().flatten().filter_map(Json::as_str).collect();
    let words =
        [word("event"), word("result"), word("reason"), word("user"), word("command"), keys.join(",")];
    words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

#[test]
fn the_audit_log_says_who_did_what_and_no_values() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let path = folder.path().join("audit.log");
    let file = path.to_str().expect("UTF-8");
    let server = start(&[
        ("audit-log-file", file),
        ("requirepass", "pw-of-default"),
        ("audit-log-events", "denied auth admin"),
    ]);
    let mut client = connect(&server);
    client.command(&["GET", "before"]);
    client.command(&["AUTH", "wrong-password"]);
    client.command(&["AUTH", "pw-of-default"]);
    client.command(&[
        "ACL",
        "SETUSER",
        "alice",
        "on",
        ">pw-of-alice",
        "+get",
        "+set",
        "+multi",
        "+exec",
        "~mine:*",
    ]);
    client.command(&["SET", "other", "a-value"]);
    let mut alice = connect(&server);
    alice.command(&["AUTH", "alice", "pw-of-alice"]);
    alice.command(&["SET", "mine:1", "a-value"]);
    alice.command(&["SET", "other", "a-value"]);
    alice.command(&["DEL", "mine:1", "mine:2"]);
    alice.command(&["GET", "mine:1", "too", "many"]);
    client.command(&["CONFIG", "SET", "audit-log-events", "all", "audit-log-users", "* !default"]);
    client.command(&["GET", "unseen"]);
    alice.command(&["MULTI"]);
    alice.command(&["SET", "mine:1", "a-value"]);
    alice.command(&["EXEC"]);
    alice.command(&["HELLO", "3", "AUTH", "alice", "pw-of-alice"]);
    alice.command(&["RESET"]);
    alice.command(&["HELLO", "3", "AUTH", "alice", "pw-of-alice"]);
    assert_eq!(info(&mut client, "audit_log_lost"), 0);
    let noted = info(&mut client, "audit_log_lines");
    server.stop();
    let (text, lines) = (std::fs::read_to_string(&path).expect("there"), lines(&path));
    assert_eq!(
        lines.iter().map(shown).collect::<Vec<_>>(),
        [
            "command denied unauthenticated default get before",
            "auth denied auth default auth",
            "auth allowed default auth",
            "command allowed default acl|setuser",
            "auth allowed alice auth",
            "command denied key alice set other",
            "command denied command alice del mine:1,mine:2",
            "command allowed default config|set",
            "command allowed alice multi",
            "command queued alice set mine:1",
            "command allowed alice exec",
            "auth allowed alice hello",
            "command allowed alice hello",
            "command allowed alice reset",
            "auth allowed alice hello",
            "command allowed alice hello",
        ]
    );
    assert_eq!(noted, lines.len() as u64);
    for secret in ["a-value", "pw-of", "wrong-password"] {
        assert!(!text.contains(secret), "{secret} stands in the log: {text}");
    }
    let first = &lines[0];
    assert!(first["addr"].as_str().is_some_and(|address| address.starts_with("127.0.0.1:")), "{first}");
    assert!(first["time"].as_str().is_some_and(|time| time.len() == 24 && time.ends_with('Z')), "{first}");
}

#[test]
fn the_audit_log_follows_its_name() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let (path, old) = (folder.path().join("audit.log"), folder.path().join("audit.log.1"));
    let file = path.to_str().expect("UTF-8");
    let mut server = saker::start_binary(BINARY, &["--audit-log-file", file, "--audit-log-events", "write"])
        .expect("starts");
    let mut client = server.connect();
    let written = |path: &Path, key: &str| {
        let began = Instant::now();
        while !std::fs::read_to_string(path).is_ok_and(|text| text.contains(key)) {
            assert!(began.elapsed() < Duration::from_secs(20), "{key} is not in {}", path.display());
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    client.command(&["SET", "first", "1"]);
    written(&path, "first");
    std::fs::rename(&path, &old).expect("rotated");
    signal(&server, Signal::HUP);
    client.command(&["SET", "second", "1"]);
    written(&path, "second");
    assert!(!std::fs::read_to_string(&old).expect("there").contains("second"));
    let refused = Server::builder().port(0).option("audit-log-file", "/nowhere/audit.log").start();
    assert!(matches!(refused, Err(StartError::Option { name, .. }) if name == "audit-log-file"));
    signal(&server, Signal::TERM);
    server.wait(Duration::from_secs(60)).expect("ends");
}

#[test]
fn an_address_that_fails_often_waits() {
    let ip = UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket.connect("192.0.2.1:9")?;
        Ok(socket.local_addr()?.ip())
    });
    let Some(ip) = ip.ok().filter(|ip| !ip.is_loopback() && !ip.is_unspecified()) else {
        eprintln!("this machine has the loopback only");
        return;
    };
    let builder = Server::builder().port(0).io_threads(1).bind(&["0.0.0.0".parse().expect("an address")]);
    let builder = builder.option("requirepass", "secret").option("auth-failure-delay", "300");
    let server = builder.start().expect("the server starts");
    let mut local = connect(&server);
    let from_outside = || Client::connect(&Address::Tcp((ip, server.port()).into())).expect("it listens");
    let mut outside = from_outside();
    let timed = |client: &mut Client, password: &str| {
        let began = Instant::now();
        let is_in = client.command(&["AUTH", password]) == Value::Simple(b"OK".to_vec());
        (is_in, began.elapsed() >= Duration::from_millis(250))
    };
    for _ in 0..10 {
        assert_eq!(timed(&mut outside, "wrong"), (false, false));
    }
    assert_eq!(timed(&mut outside, "wrong"), (false, true));
    // The right password waits too: otherwise a guess could be abandoned as soon as it takes
    // long. Clients from other addresses do not wait.
    let mut waiting = from_outside();
    waiting.send(b"AUTH secret\r\nPING\r\n").expect("it is sent");
    assert_eq!(timed(&mut local, "wrong"), (false, false));
    assert_eq!(timed(&mut local, "secret"), (true, false));
    assert_eq!(waiting.read().expect("OK"), Value::Simple(b"OK".to_vec()));
    assert_eq!(waiting.read().expect("PONG"), Value::Simple(b"PONG".to_vec()));
    // More simultaneous attempts than slots: the last ones are rejected without a check.
    let mut many: Vec<Client> = (0..15).map(|_| from_outside()).collect();
    many.iter_mut().for_each(|client| client.send(b"AUTH wrong\r\n").expect("it is sent"));
    let replies: Vec<String> =
        many.iter_mut().map(|client| client.read().expect("a reply").to_string()).collect();
    let unseen = replies.iter().filter(|reply| reply.contains("too many failed logins")).count();
    assert!((4..=6).contains(&unseen), "{replies:?}");
    assert_eq!(info(&mut local, "auth_refused"), unseen as u64);
    assert!(info(&mut local, "auth_delayed") >= 11);
}

/// An identity provider of the test, which signs tokens with this key.
struct Issuer(Ed25519KeyPair);

impl Issuer {
    fn new() -> Self {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("random");
        Self(Ed25519KeyPair::from_pkcs8(document.as_ref()).expect("just made"))
    }

    fn keys(&self) -> String {
        let x = base64url(self.0.public_key().as_ref());
        json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "1", "x": x}]}).to_string()
    }

    /// Creates a token for `users` that expires in `expires_in_s` seconds.
    fn token(&self, users: &[&str], expires_in_s: i64) -> String {
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs() as i64;
        let claims = json!({"iss": "https://issuer.example", "aud": ["saker"], "groups": users, "exp": now_s + expires_in_s});
        let message = [json!({"alg": "EdDSA", "kid": "1"}), claims]
            .map(|part| base64url(part.to_string().as_bytes()))
            .join(".");
        format!("{message}.{}", base64url(self.0.sign(message.as_bytes()).as_ref()))
    }
}

fn base64url(bytes: &[u8]) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

#[test]
fn a_token_logs_in_as_a_user_of_its_claims() {
    let (folder, issuer) = (tempfile::tempdir().expect("a scratch folder"), Issuer::new());
    let path = folder.path().join("keys.json");
    std::fs::write(&path, issuer.keys()).expect("written");
    let file = path.to_str().expect("UTF-8");
    let options = [
        ("oidc-keys-file", file),
        ("oidc-issuer", "https://issuer.example"),
        ("oidc-audience", "saker"),
        ("oidc-user-claim", "groups"),
        ("oidc-leeway", "0"),
        ("oidc-user-prefix", "team-"),
    ];
    let server = start(&options);
    let mut admin = connect(&server);
    admin.command(&["ACL", "SETUSER", "team-app", "on", "+@all", "~app:*"]);
    admin.command(&["ACL", "SETUSER", "team-off", "off", "+@all", "~*"]);
    let login = |words: &[&str]| {
        let mut client = connect(&server);
        match client.command(words) {
            Value::Simple(_) | Value::Map(_) | Value::Array(_) => {
                client.command(&["ACL", "WHOAMI"]).to_string()
            }
            Value::Error(line) => {
                String::from_utf8_lossy(&line).split(' ').next().unwrap_or_default().to_owned()
            }
            other => panic!("{other:?}"),
        }
    };
    let token = issuer.token(&["nobody", "off", "app", "default"], 600);
    for words in [
        &["AUTH", &token][..],
        &["AUTH", "", &token],
        &["AUTH", "default", &token],
        &["AUTH", "team-app", &token],
    ] {
        assert_eq!(login(words), "\"team-app\"", "{}", words.len());
    }
    assert_eq!(login(&["HELLO", "3", "AUTH", "team-app", &token]), "\"team-app\"");
    for user in ["app", "team-off", "team-nobody", "team-default", "other"] {
        assert_eq!(login(&["AUTH", user, &token]), "WRONGPASS", "{user}");
    }
    let stranger = Issuer::new().token(&["app"], 600);
    for wrong in [stranger.as_str(), &issuer.token(&["app"], -1), &token[..token.len() - 2], "ey..", "ey.a.b"]
    {
        assert_eq!(login(&["AUTH", "team-app", wrong]), "WRONGPASS");
    }
    assert_eq!((info(&mut admin, "oidc_logins"), info(&mut admin, "oidc_keys")), (5, 1));
    // A token is not a password: ACL does not show it for the user.
    assert!(!admin.command(&["ACL", "LIST"]).to_string().contains(&token));
}

#[test]
fn a_session_ends_with_its_token() {
    let (folder, issuer) = (tempfile::tempdir().expect("a scratch folder"), Issuer::new());
    let path = folder.path().join("keys.json");
    std::fs::write(&path, issuer.keys()).expect("written");
    let file = path.to_str().expect("UTF-8");
    let options = [
        ("oidc-keys-file", file),
        ("oidc-issuer", "https://issuer.example"),
        ("oidc-audience", "saker"),
        ("oidc-user-claim", "groups"),
        ("oidc-leeway", "0"),
    ];
    for ends in ["yes", "no"] {
        let server = start(&[&options[..], &[("oidc-end-sessions", ends)]].concat());
        let mut admin = connect(&server);
        admin.command(&["ACL", "SETUSER", "app", "on", ">password", "+@all", "~*"]);
        let [mut renewed, mut client] = [connect(&server), connect(&server)];
        let token = issuer.token(&["app"], 2);
        assert_eq!(client.command(&["AUTH", "", &token]), Value::Simple(b"OK".to_vec()));
        assert_eq!(renewed.command(&["AUTH", "", &token]), Value::Simple(b"OK".to_vec()));
        assert_eq!(renewed.command(&["AUTH", "app", "password"]), Value::Simple(b"OK".to_vec()));
        // A session that ends may do so late on a busy machine. The token is valid for two seconds.
        client.set_read_timeout(Duration::from_secs(if ends == "yes" { 60 } else { 5 }));
        client.command(&["SUBSCRIBE", "news"]);
        let ended = client.read();
        assert_eq!(matches!(ended, Err(ClientError::Closed)), ends == "yes", "{ends}: {ended:?}");
        assert_eq!(renewed.command(&["PING"]), Value::Simple(b"PONG".to_vec()));
    }
}

#[test]
fn options_of_tokens_are_looked_at_when_the_server_starts() {
    let refused = |name: &str, value: &str| match Server::builder().port(0).option(name, value).start() {
        Err(StartError::Option { name, .. }) => name,
        other => panic!("{:?}", other.err()),
    };
    assert_eq!(refused("oidc-keys-file", "/nowhere"), "oidc-issuer");
    assert_eq!(refused("oidc-keys-url", "https://issuer.example/keys"), "oidc-issuer");
}
