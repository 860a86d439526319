//! MONITOR: all commands of all connections, in the order in which they ran.

use testkit::{Client, Protocol, Value, saker};

use crate::support::{BINARY, connect, on_each_back_end};

/// Reads the next line of a monitor; returns its arguments without the time and the address.
fn line(monitor: &mut Client) -> String {
    let Value::Simple(line) = monitor.read().expect("a line") else { panic!("a status") };
    let line = String::from_utf8(line).expect("escaped text");
    let (stamp, rest) = line.split_once(" [").expect("a time");
    let (seconds, micros) = stamp.split_once('.').expect("microseconds");
    assert!(seconds.parse::<u64>().is_ok() && micros.len() == 6, "{stamp}");
    rest.split_once("] ").expect("an address").1.to_owned()
}

#[test]
fn writes_to_one_key_are_told_in_the_order_in_which_they_ran() {
    on_each_back_end(|server| {
        let mut monitor = connect(server);
        assert_eq!(monitor.command(&["MONITOR"]), Value::Simple(b"OK".to_vec()));
        let writers: Vec<_> = (0..4).map(|_| connect(server)).collect();
        std::thread::scope(|scope| {
            for (index, mut writer) in writers.into_iter().enumerate() {
                scope.spawn(move || {
                    for n in 0..200 {
                        writer.command(&["RPUSH", "l", &format!("{index}-{n}")]);
                    }
                });
            }
        });
        let told: Vec<String> =
            (0..800).map(|_| line(&mut monitor).replace("\"RPUSH\" \"l\" ", "").replace('"', "")).collect();
        let Value::Array(list) = connect(server).command(&["LRANGE", "l", "0", "-1"]) else {
            panic!("a list")
        };
        let list: Vec<String> = list
            .into_iter()
            .map(|item| match item {
                Value::Bulk(bytes) => String::from_utf8(bytes).expect("text"),
                other => panic!("{other}"),
            })
            .collect();
        assert_eq!(told, list);
    });
}

#[test]
fn a_commands_events_come_ahead_of_its_line() {
    on_each_back_end(|server| {
        let (mut writer, mut monitor) = (connect(server), connect(server));
        writer.command(&["CONFIG", "SET", "notify-keyspace-events", "E$"]);
        monitor.hello(Protocol::Resp3);
        monitor.command(&["SUBSCRIBE", "__keyevent@0__:set"]);
        monitor.command(&["MONITOR"]);
        writer.command(&["SET", "a", "1"]);
        let requests = [vec!["MULTI"], vec!["SET", "b", "1"], vec!["UNWATCH"], vec!["EXEC"]];
        writer.pipeline(&requests).expect("the server answers");
        let mut heard = String::new();
        for _ in 0..7 {
            heard += &match monitor.read().expect("it hears of all") {
                Value::Push(event) => format!(" {}", event[2]),
                Value::Simple(line) => {
                    let line = String::from_utf8_lossy(&line).replace('"', "");
                    format!(" {}", line.split("] ").nth(1).expect("a command"))
                }
                other => panic!("{other}"),
            };
        }
        assert_eq!(heard, " \"a\" SET a 1 MULTI \"b\" SET b 1 UNWATCH EXEC");
        writer.command(&["CONFIG", "SET", "notify-keyspace-events", ""]);
    });
}

#[test]
fn transactions_are_told_when_they_run_and_secrets_are_not() {
    on_each_back_end(|server| {
        let mut monitor = connect(server);
        monitor.command(&["MONITOR"]);
        let mut client = connect(server);
        client.command(&["AUTH", "default", "secret"]);
        client.command(&["HELLO", "2", "AUTH", "default", "secret"]);
        client.command(&["CONFIG", "GET", "port"]);
        client.command(&["GET"]);
        client.command(&["MULTI"]);
        client.command(&["SET", "a\0", "\"1\""]);
        client.command(&["ECHO", "x"]);
        client.command(&["EXEC"]);
        let expected = [
            r#""AUTH" "(redacted)" "(redacted)""#,
            r#""HELLO" "2" "AUTH" "(redacted)" "(redacted)""#,
            r#""MULTI""#,
            r#""SET" "a\x00" "\"1\"""#,
            r#""ECHO" "x""#,
            r#""EXEC""#,
        ];
        for words in expected {
            assert_eq!(line(&mut monitor), words);
        }
    });
}

#[test]
fn secrets_are_not_told_under_another_name_of_the_command() {
    let renames = ["AUTH", "HELLO", "CONFIG", "ACL", "MIGRATE"];
    let renames = renames.map(|name| ["--rename-command".to_owned(), name.to_owned(), format!("my{name}")]);
    let mut options: Vec<&str> = renames.iter().flatten().map(String::as_str).collect();
    options.extend(["--slowlog-log-slower-than", "0", "--commandlog-reply-larger-than", "1"]);
    let server = saker::start_binary(BINARY, &options).expect("starts");
    let (mut monitor, mut client) = (server.connect(), server.connect());
    monitor.command(&["MONITOR"]);
    client.command(&["MYCONFIG", "SET", "masterauth", "secret"]);
    client.command(&["MYACL", "GETUSER", "secret"]);
    client.command(&["MYAUTH", "default", "secret"]);
    client.command(&["MYHELLO", "2", "AUTH", "default", "secret"]);
    client.command(&["MYMIGRATE", "127.0.0.1", "1", "none", "0", "9", "AUTH", "secret"]);
    client.command(&["PING"]);
    loop {
        let told = line(&mut monitor);
        assert!(!told.contains("secret"), "{told}");
        if told.contains("PING") {
            break;
        }
    }
    for log in [&["SLOWLOG", "GET", "-1"][..], &["COMMANDLOG", "GET", "-1", "large-reply"]] {
        let entries = client.command(log).to_string();
        assert!(entries.contains("(redacted)") && !entries.contains("secret"), "{entries}");
    }
}

#[test]
fn a_monitor_that_does_not_read_is_closed_by_the_limit_of_its_class() {
    on_each_back_end(|server| {
        let mut client = connect(server);
        client.command(&["CONFIG", "SET", "client-output-buffer-limit", "replica 1mb 0 0"]);
        let mut monitor = connect(server);
        monitor.command(&["MONITOR"]);
        let argument = "x".repeat(1 << 20);
        for _ in 0..64 {
            client.command(&["ECHO", &argument]);
            let Value::Bulk(list) = client.command(&["CLIENT", "LIST"]) else { panic!("a list") };
            if String::from_utf8_lossy(&list).lines().count() == 1 {
                return;
            }
        }
        panic!("the monitor is still there");
    });
}

#[test]
fn commands_of_scripts_come_behind_their_script_with_lua_in_place_of_the_address() {
    on_each_back_end(|server| {
        let (mut client, mut monitor) = (connect(server), connect(server));
        monitor.command(&["MONITOR"]);
        let mut lines_of = |request: &[&str]| {
            client.command(request);
            client.command(&["PING"]);
            let mut lines = Vec::new();
            loop {
                let Value::Simple(line) = monitor.read().expect("a line") else { panic!("a status") };
                let line = String::from_utf8(line).expect("escaped text");
                if line.ends_with(r#""PING""#) {
                    return lines;
                }
                let (origin, command) =
                    line.split_once(" [").expect("a time").1.split_once("] ").expect("who");
                let address = origin.replace(|byte: char| byte.is_ascii_digit(), "");
                let origin = if address.contains('.') { "client" } else { origin };
                lines.push(format!("{origin}: {command}"));
            }
        };
        let script = "redis.call('SET', KEYS[1], 'v') redis.call('SELECT', 5) redis.pcall('NOSUCH') \
                      redis.pcall('CONFIG', 'GET', 'port') return redis.call('GET', 'a')";
        let expected = [
            format!(r#"client: "EVAL" "{script}" "1" "a""#),
            r#"0 lua: "SET" "a" "v""#.to_owned(),
            r#"5 lua: "SELECT" "5""#.to_owned(),
            r#"5 lua: "GET" "a""#.to_owned(),
        ];
        assert_eq!(lines_of(&["EVAL", script, "1", "a"]), expected);
        // It is shown even if it fails.
        assert_eq!(lines_of(&["EVALSHA", "none", "0"]), [r#"client: "EVALSHA" "none" "0""#]);
    });
}
