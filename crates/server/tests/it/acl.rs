//! Users over connections: the effect of changed users on clients of all threads, and the files
//! of users.

use std::fs;

use server::{Server, StartError};
use testkit::process::free_port;
use testkit::{Client, Value};

use crate::support::connect;

fn say(client: &mut Client, line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    flat(&client.command(&words))
}

/// Formats a reply as text on one line.
fn flat(value: &Value) -> String {
    match value {
        Value::Array(values) => format!("[{}]", values.iter().map(flat).collect::<Vec<_>>().join(" ")),
        Value::Integer(number) => number.to_string(),
        Value::Null | Value::NullArray => "nil".to_owned(),
        text => String::from_utf8_lossy(text.as_bytes().unwrap_or_default()).into_owned(),
    }
}

/// Connects a client and logs it in as `user`.
fn login(server: &Server, user: &str, password: &str) -> Client {
    let mut client = connect(server);
    assert_eq!(client.command(&["AUTH", user, password]).to_string(), "OK");
    client
}

fn is_closed(client: &mut Client) -> bool {
    client.read_to_end().is_ok()
}

#[test]
fn clients_of_a_removed_user_are_closed_on_all_threads() {
    let server = Server::builder().port(0).io_threads(4).start().expect("it starts");
    let mut admin = connect(&server);
    say(&mut admin, "ACL SETUSER ann on nopass +@all allkeys allchannels");
    let mut idle: Vec<Client> = (0..8).map(|_| login(&server, "ann", "x")).collect();
    let mut waits = login(&server, "ann", "x");
    waits.send(b"BLPOP k 0\r\n").expect("sent");
    let mut own = login(&server, "ann", "x");
    assert_eq!(say(&mut own, "ACL DELUSER ann"), "1", "the reply comes first");
    assert!(is_closed(&mut own) && is_closed(&mut waits));
    assert!(idle.iter_mut().all(is_closed));
    assert_eq!(say(&mut admin, "PING"), "PONG");
    assert_eq!(say(&mut admin, "ACL USERS"), "[default]");
}

#[test]
fn a_change_holds_from_the_next_request_on() {
    let server = Server::builder().port(0).io_threads(4).start().expect("it starts");
    let mut admin = connect(&server);
    say(&mut admin, "ACL SETUSER ann on nopass +get ~*");
    let mut clients: Vec<Client> = (0..8).map(|_| login(&server, "ann", "x")).collect();
    for round in 0..20 {
        let (rule, expected) = if round % 2 == 0 { ("-get", "NOPERM") } else { ("+get", "nil") };
        say(&mut admin, &format!("ACL SETUSER ann {rule}"));
        for client in &mut clients {
            let reply = say(client, "GET a");
            assert!(reply.contains(expected), "round {round}: {reply}");
        }
    }
    // In the middle of a pipeline, too.
    let mut own = login(&server, "ann", "x");
    say(&mut admin, "ACL SETUSER ann +acl +get");
    let replies = own
        .pipeline(&[vec!["GET", "a"], vec!["ACL", "SETUSER", "ann", "-get"], vec!["GET", "a"]])
        .expect("replies");
    assert!(replies[2].to_string().contains("NOPERM"), "{replies:?}");
}

#[test]
fn subscribers_that_lose_a_channel_are_closed_and_others_stay() {
    let server = Server::builder().port(0).io_threads(2).start().expect("it starts");
    let mut admin = connect(&server);
    say(&mut admin, "ACL SETUSER ann on nopass +@all &a &b*");
    let listens = |words: &str| {
        let mut client = login(&server, "ann", "x");
        say(&mut client, words);
        client
    };
    let (mut a, mut b, mut pattern) =
        (listens("SUBSCRIBE a"), listens("SSUBSCRIBE bc"), listens("PSUBSCRIBE b*"));
    say(&mut admin, "ACL SETUSER ann resetchannels &b*");
    assert!(is_closed(&mut a));
    assert_eq!(say(&mut admin, "PUBLISH bx m"), "1");
    assert_eq!(say(&mut admin, "SPUBLISH bc m"), "1");
    say(&mut admin, "ACL SETUSER ann resetchannels &bc");
    assert!(is_closed(&mut pattern));
    assert_eq!(say(&mut admin, "SPUBLISH bc m"), "1");
    say(&mut admin, "ACL SETUSER ann resetchannels");
    assert!(is_closed(&mut b));
}

#[test]
fn a_blocked_request_needs_the_rights_of_the_moment_it_is_served() {
    let server = Server::builder().port(0).io_threads(2).start().expect("it starts");
    let mut admin = connect(&server);
    say(&mut admin, "ACL SETUSER ann on nopass +@all ~k");
    let mut waits = login(&server, "ann", "x");
    waits.send(b"BLPOP k 0\r\n").expect("sent");
    while !say(&mut admin, "INFO clients").contains("blocked_clients:1") {}
    say(&mut admin, "ACL SETUSER ann resetkeys ~other");
    assert_eq!(say(&mut admin, "RPUSH k v"), "1");
    let reply = waits.read().expect("a reply").to_string();
    assert!(reply.contains("NOPERM No permissions to access a key"), "{reply}");
    assert_eq!(say(&mut admin, "LLEN k"), "1");
    assert_eq!(say(&mut waits, "LLEN other"), "0");
}

#[test]
fn exec_checks_again_what_another_client_has_forbidden() {
    let server = Server::builder().port(0).io_threads(2).start().expect("it starts");
    let mut admin = connect(&server);
    say(&mut admin, "ACL SETUSER ann on nopass +@all ~*");
    let mut client = login(&server, "ann", "x");
    for request in ["MULTI", "SET a 1", "GET a"] {
        say(&mut client, request);
    }
    say(&mut admin, "ACL SETUSER ann -set");
    let reply = say(&mut client, "EXEC");
    assert!(reply.contains("NOPERM ACLs rules changed") && reply.contains("nil"), "{reply}");
    say(&mut client, "MULTI");
    say(&mut client, "GET a");
    say(&mut admin, "ACL DELUSER ann");
    assert!(client.request(&["EXEC"]).is_err(), "the client was closed");
}

#[test]
fn users_of_a_file_are_loaded_saved_and_loaded_again() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let file = folder.path().join("users.acl");
    fs::write(&file, "user ann on >pw ~a* +@read\n\nuser ben on nopass +@all ~* &*\n").expect("written");
    let start = || {
        let builder = Server::builder().port(0).io_threads(2).data_folder(folder.path());
        builder.option("aclfile", "users.acl").option("requirepass", "ignored").start()
    };
    let server = start().expect("it starts");
    let mut ben = login(&server, "ben", "x");
    let mut ann = login(&server, "ann", "pw");
    assert_eq!(say(&mut ben, "ACL USERS"), "[ann ben default]");
    say(&mut ben, "ACL SETUSER carl on >pw (+get ~x)");
    assert_eq!(say(&mut ben, "ACL SAVE"), "OK");
    let saved = fs::read_to_string(&file).expect("there");
    assert!(
        saved.starts_with("user ann on sanitize-payload #30c952fa") && saved.contains("\nuser carl "),
        "{saved}"
    );
    say(&mut ben, "ACL DELUSER carl");
    assert_eq!(say(&mut ben, "ACL LOAD"), "OK");
    let list = say(&mut ben, "ACL LIST");
    assert!(list.contains("(~x resetchannels -@all +get)"), "{list}");
    // A file with errors changes nothing, and all errors are reported.
    fs::write(&file, "user ann on +nosuch\nann\nuser ben on\nuser ben off\nuser dora %X~a\n")
        .expect("written");
    let errors = say(&mut ben, "ACL LOAD");
    for part in [
        "users.acl:1: Error in applying operation '+nosuch': Unknown command or category name in ACL.",
        "users.acl:2 should start with user keyword followed by the username.",
        "WARNING: Duplicate user 'ben' found on line 4.",
        "users.acl:5: Syntax error.",
        "WARNING: ACL errors detected, no change to the previously active ACL rules was performed",
    ] {
        assert!(errors.contains(part), "{errors}");
    }
    assert_eq!(say(&mut ann, "GET a"), "nil");
    // Users missing from the file are disconnected; other users get the file's rules.
    fs::write(&file, "user ben on nopass +@all ~b* &*\n").expect("written");
    assert_eq!(say(&mut ben, "ACL LOAD"), "OK");
    assert!(is_closed(&mut ann));
    assert!(say(&mut ben, "GET a").contains("NOPERM"));
    fs::remove_file(&file).expect("there");
    assert!(say(&mut ben, "ACL LOAD").contains("Error loading ACLs, opening file"));
    drop(server);
    assert!(matches!(start(), Err(StartError::Users(problem)) if problem.contains("opening file")));
}

#[test]
fn users_of_the_configuration_are_loaded_and_written_back() {
    use server::config::{Loaded, load};
    let folder = tempfile::tempdir().expect("a scratch folder");
    let file = folder.path().join("saker.conf");
    let start = |text: &str| {
        let port = free_port().expect("a free port");
        fs::write(&file, format!("port {port}\n{text}")).expect("written");
        let args = [file.to_str().expect("UTF-8").as_bytes().to_vec()];
        match load::load(&args, &mut std::io::empty(), server::commands::is_command) {
            Ok(Loaded::Run(store)) => server::Builder::from_config(*store).data_folder(folder.path()).start(),
            other => panic!("{other:?}"),
        }
    };
    let server = start("user ann on nopass ~a* (~b* +get) -@all +@read\nuser default on >pw ~* &* +@all\n")
        .expect("it starts");
    let mut client = connect(&server);
    assert!(say(&mut client, "GET a").contains("NOAUTH"));
    say(&mut client, "AUTH pw");
    say(&mut client, "ACL SETUSER ben on nopass");
    say(&mut client, "ACL DELUSER ann");
    assert_eq!(say(&mut client, "CONFIG REWRITE"), "OK");
    let text = fs::read_to_string(&file).expect("there");
    let users: Vec<&str> = text.lines().filter(|line| line.starts_with("user ")).collect();
    assert!(
        matches!(&*users, [ben, default] if ben.starts_with("user ben on") && default.contains("#30c952")),
        "{text}"
    );
    drop((client, server));
    let refused = |text: &str| match start(text) {
        Err(StartError::Users(problem)) => problem,
        other => panic!("{:?}", other.err()),
    };
    let problem = refused("user ann >secret +nosuch\n");
    assert_eq!(
        problem,
        "Error loading ACL rule '+nosuch' for the user named 'ann': Unknown command or category name in ACL"
    );
    assert!(refused("aclfile x\nuser ann on\n").contains("both of them"));
}

#[test]
fn the_log_of_refusals_is_bounded_and_counts_like_ones_once() {
    let server =
        Server::builder().port(0).io_threads(2).option("acllog-max-len", "3").start().expect("it starts");
    let mut admin = connect(&server);
    say(&mut admin, "ACL SETUSER ann on nopass +get ~a");
    let mut client = login(&server, "ann", "x");
    for key in ["b", "b", "c", "d", "e", "b"] {
        say(&mut client, &format!("GET {key}"));
    }
    assert!(say(&mut client, "SET a 1").contains("NOPERM"));
    let log = say(&mut admin, "ACL LOG");
    assert_eq!(log.matches("count 1").count(), 3, "{log}");
    assert!(
        log.contains("object set") && log.contains("object e") && log.contains("cmd=get user=ann"),
        "{log}"
    );
    let info = say(&mut admin, "INFO stats");
    assert!(info.contains("acl_access_denied_cmd:1") && info.contains("acl_access_denied_key:6"), "{info}");
    say(&mut admin, "ACL LOG RESET");
    assert_eq!(say(&mut admin, "ACL LOG"), "[]");
}

#[test]
fn what_is_refused_to_a_script_that_runs_again_counts_once() {
    let server = Server::builder().port(0).io_threads(2).start().expect("it starts");
    let mut admin = connect(&server);
    say(&mut admin, "ACL SETUSER ann on nopass +eval +get +dbsize ~a");
    let mut client = login(&server, "ann", "x");
    let script = "redis.pcall('GET', 'b') redis.pcall('GET', 'c') return redis.call('DBSIZE')";
    assert_eq!(client.command(&["EVAL", script, "1", "a"]), Value::Integer(0));
    let info = say(&mut admin, "INFO stats");
    assert!(info.contains("scripts_rerun:1") && info.contains("acl_access_denied_key:2"), "{info}");
}

#[test]
fn a_client_that_waits_for_a_login_gets_what_default_may_do_now() {
    let server =
        Server::builder().port(0).io_threads(2).option("requirepass", "pw").start().expect("it starts");
    let mut early = connect(&server);
    let mut admin = login(&server, "default", "pw");
    assert!(say(&mut early, "PING").contains("NOAUTH"));
    say(&mut admin, "ACL SETUSER default nopass");
    assert_eq!(say(&mut early, "PING"), "PONG");
    say(&mut admin, "ACL SETUSER default >pw2");
    assert!(say(&mut early, "PING").contains("NOAUTH"));
    assert_eq!(say(&mut early, "AUTH pw2"), "OK");
    say(&mut admin, "ACL SETUSER default off");
    assert_eq!(say(&mut early, "PING"), "PONG");
    assert!(say(&mut connect(&server), "AUTH pw2").contains("WRONGPASS"));
    say(&mut early, "RESET");
    assert!(say(&mut early, "PING").contains("NOAUTH"));
}

/// Checks that an entry of ACL LOG shows the client with the denied command, not with its previous
/// command, as in Redis 8.0.2.
#[test]
fn issue_33_the_acl_log_shows_the_client_with_the_refused_command() {
    let server = Server::builder().port(0).io_threads(2).start().expect("starts");
    let (mut admin, mut client) = (connect(&server), connect(&server));
    admin.command(&["ACL", "SETUSER", "u", "on", "nopass", "~a*", "+@all", "-get", "-config", "&x"]);
    client.command(&["AUTH", "u", "x"]);
    let mut check = |requests: &[&[&str]], logged: &str, listed: &str| {
        admin.command(&["ACL", "LOG", "RESET"]);
        client.command(&["PING"]);
        for request in requests {
            client.command(request);
        }
        let log = admin.command(&["ACL", "LOG"]).to_string();
        assert_eq!(log.matches(&format!("cmd={logged} user=u")).count(), 1, "{requests:?}: {log}");
        let list = admin.command(&["CLIENT", "LIST"]).to_string();
        assert!(list.contains(&format!("cmd={listed} user=u")), "{requests:?}: {list}");
        client.command(&["DISCARD"]);
    };
    check(&[&["GET", "a"]], "get", "get");
    check(&[&["SET", "b", "1"]], "set", "set");
    check(&[&["CONFIG", "GET", "x"]], "config|get", "config|get");
    check(&[&["SUBSCRIBE", "y"]], "subscribe", "subscribe");
    check(&[&["MULTI"], &["GET", "a"]], "get", "get");
    check(&[&["EVAL", "return redis.pcall('get', 'a')", "0"]], "eval", "eval");
    check(&[&["GET", "a"], &["OBJECT", "NOSUCH"]], "get", "NULL");
    check(&[&["GET", "a"], &["NOSUCH"]], "get", "NULL");
}

/// Checks the decisions of ACL rules on requests. The replies are those of Redis 8.0.2, except in
/// two rows.
#[test]
fn issue_33_patterns_and_keys_that_cannot_be_found_are_judged_as_in_redis() {
    let server = Server::builder().port(0).io_threads(1).start().expect("it starts");
    let mut admin = connect(&server);
    for (rules, shown) in [
        // Redis shows `~* ~b`, which it cannot load again.
        ("%RW~* ~b", "%RW~* ~b"),
        ("%R~* ~b %W~*", "%RW~* ~b"),
        ("%R %W %RW ~", "~"),
        ("~x*", "~x*"),
        ("~**", "~**"),
    ] {
        say(&mut admin, &format!("ACL SETUSER u reset on nopass +@all {rules}"));
        let user = say(&mut admin, "ACL GETUSER u");
        assert!(user.contains(&format!("keys {shown} channels")), "{rules}: {user}");
    }
    for (rules, request, denied) in [
        ("%RW~*", &["GET", ""][..], Some("''")),
        ("%RW~*", &["GET", "x"], None),
        ("%R~* ~b", &["GET", ""], Some("''")),
        ("~**", &["GET", ""], Some("''")),
        ("~*", &["GET", ""], None),
        ("%RW", &["GET", ""], None),
        ("%RW", &["GET", "x"], Some("'x'")),
        ("~x*", &["ZINTERSTORE", "x*", "x", "y"], None),
        ("~x*", &["ZINTERSTORE", "y", "x", "y"], None),
        ("~x*", &["ZINTERSTORE", "y", "1", "x"], Some("'y'")),
        ("~x*", &["EVAL", "s", "x", "y"], None),
        ("~x*", &["LMPOP", "a", "y", "LEFT"], None),
        ("~x*", &["SORT", "y", "BY", "z"], Some("'y'")),
        ("~* resetchannels &**", &["PUBLISH", "", "x"], Some("''")),
        ("~* allchannels", &["PUBLISH", "", "x"], None),
    ] {
        say(&mut admin, &format!("ACL SETUSER u reset on nopass +@all {rules}"));
        let reply = flat(&admin.command(&[&["ACL", "DRYRUN", "u"], request].concat()));
        match denied {
            None => assert_eq!(reply, "OK", "{rules} {request:?}"),
            Some(word) => assert!(reply.contains(&format!("the {word} ")), "{rules} {request:?}: {reply}"),
        }
    }
}

/// Checks ACL patterns on empty names. All replies are those of Redis 8.0.2.
#[test]
fn issue_33_no_star_matches_an_empty_name() {
    let server = Server::builder().port(0).io_threads(1).start().expect("it starts");
    let mut client = connect(&server);
    client.command(&["SET", "", "v"]);
    client.command(&["HSET", "h", "", "1"]);
    for (request, reply) in [
        (&["KEYS", "**"][..], "[h]"),
        (&["SCAN", "0", "MATCH", "**"], "[0 [h]]"),
        (&["HSCAN", "h", "0", "MATCH", "*"], "[0 [ 1]]"),
        (&["HSCAN", "h", "0", "MATCH", "**"], "[0 []]"),
    ] {
        assert_eq!(flat(&client.command(request)), reply, "{request:?}");
    }
    assert!(matches!(client.command(&["KEYS", "*"]), Value::Array(keys) if keys.len() == 2));
    let mut subscriber = connect(&server);
    subscriber.command(&["PSUBSCRIBE", "*"]);
    assert_eq!(flat(&client.command(&["PUBLISH", "", "x"])), "0");
    assert_eq!(flat(&client.command(&["PUBLISH", "a", "x"])), "1");
}
