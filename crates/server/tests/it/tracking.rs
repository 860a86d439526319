//! Client-side caching with several connections: the invalidations that each receives, and their
//! order, on 1, 2 and 4 threads.

use net::{Backend, BackendChoice};
use resp::Protocol;
use server::Server;
use testkit::{Client, Value};

use crate::support::{connect, connect_on, on_each_back_end_with, speaking};

fn bulk(text: &str) -> Value {
    Value::Bulk(text.into())
}

fn simple(text: &str) -> Value {
    Value::Simple(text.into())
}

/// Returns the invalidation message that a RESP3 client receives for these keys.
fn invalidated(keys: &[&str]) -> Value {
    Value::Push(vec![bulk("invalidate"), Value::Array(keys.iter().map(|key| bulk(key)).collect())])
}

fn everything_invalidated() -> Value {
    Value::Push(vec![bulk("invalidate"), Value::Null])
}

/// Runs `test` on each backend, with 1, 2 and 4 I/O threads.
fn on_each_count_of_threads(test: impl Fn(&Server)) {
    for backend in [BackendChoice::Epoll, BackendChoice::Auto] {
        for threads in [1, 2, 4] {
            // DEBUG RELOAD saves, and other tests do so at the same time.
            let folder = tempfile::tempdir().expect("a scratch folder");
            let builder = Server::builder().port(0).io_threads(threads).backend(backend);
            let builder = builder.data_folder(folder.path()).option("enable-debug-command", "yes");
            let server = builder.start().expect("the server starts");
            if backend == BackendChoice::Auto && server.backend() != Backend::IoUring {
                continue;
            }
            test(&server);
        }
    }
}

/// Returns a RESP3 connection that tracks keys, with these options of CLIENT TRACKING.
fn tracking(server: &Server, options: &[&str]) -> Client {
    let mut client = speaking(server, Protocol::Resp3);
    let words: Vec<&str> = ["CLIENT", "TRACKING", "ON"].iter().chain(options).copied().collect();
    assert_eq!(client.command(&words), simple("OK"));
    client
}

/// Checks that the client has received no message: the next reply is that of a PING.
fn hears_nothing(client: &mut Client) {
    assert_eq!(client.command(&["PING"]), simple("PONG"));
}

fn info(client: &mut Client, field: &str) -> String {
    let text = match client.command(&["INFO", "everything"]) {
        Value::Bulk(text) => text,
        other => panic!("INFO is a bulk string, not {other}"),
    };
    let text = String::from_utf8_lossy(&text).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("INFO has {field}")).to_owned()
}

#[test]
fn readers_hear_of_a_change_once_before_the_writer_has_its_reply() {
    on_each_count_of_threads(|server| {
        let mut readers: Vec<Client> = (0..5).map(|_| tracking(server, &[])).collect();
        let mut writer = connect(server);
        for round in 0..20 {
            for reader in &mut readers {
                reader.command(&["MGET", "a", "b"]);
            }
            assert_eq!(info(&mut writer, "tracking_total_keys"), "2");
            assert_eq!(info(&mut writer, "tracking_total_items"), "10");
            writer.command(&["SET", "a", &round.to_string()]);
            writer.command(&["SET", "a", "again"]);
            writer.command(&["SET", "unread", "x"]);
            for reader in &mut readers {
                assert_eq!(reader.read().unwrap(), invalidated(&["a"]));
                hears_nothing(reader);
            }
            writer.command(&["RPUSH", "b", "x"]);
            writer.command(&["DEL", "b"]);
            for reader in &mut readers {
                assert_eq!(reader.read().unwrap(), invalidated(&["b"]));
                hears_nothing(reader);
            }
        }
        assert_eq!(info(&mut writer, "tracking_clients"), "5");
        assert_eq!(info(&mut writer, "tracking_total_keys"), "0");
    });
}

#[test]
fn a_client_hears_of_its_own_change_behind_the_reply_unless_it_asked_not_to() {
    on_each_count_of_threads(|server| {
        let mut client = tracking(server, &[]);
        client.send(b"GET k\r\nSET k 1\r\nPING\r\nGET k\r\nFLUSHALL\r\n").unwrap();
        let expected = [
            Value::Null,
            simple("OK"),
            invalidated(&["k"]),
            simple("PONG"),
            bulk("1"),
            everything_invalidated(),
            simple("OK"),
        ];
        assert_eq!(client.read_many(expected.len()).unwrap(), expected);
        let mut quiet = tracking(server, &["NOLOOP"]);
        quiet.command(&["GET", "k"]);
        assert_eq!(quiet.command(&["SET", "k", "1"]), simple("OK"));
        hears_nothing(&mut quiet);
    });
}

#[test]
fn prefixes_are_told_once_a_turn_and_sorted() {
    on_each_count_of_threads(|server| {
        let mut all = tracking(server, &["BCAST"]);
        let mut some = tracking(server, &["BCAST", "PREFIX", "a", "PREFIX", "b", "NOLOOP"]);
        let mut writer = connect(server);
        assert_eq!(info(&mut writer, "tracking_total_prefixes"), "3");
        writer.command(&["MSET", "b1", "1", "a2", "1", "c", "1", "a1", "1"]);
        assert_eq!(all.read().unwrap(), invalidated(&["a1", "a2", "b1", "c"]));
        assert_eq!(some.read_many(2).unwrap(), [invalidated(&["a1", "a2"]), invalidated(&["b1"])]);
        some.command(&["SET", "a1", "2"]);
        hears_nothing(&mut some);
        assert_eq!(all.read().unwrap(), invalidated(&["a1"]));
        drop(some);
        all.command(&["CLIENT", "TRACKING", "OFF"]);
        writer.command(&["SET", "a1", "3"]);
        hears_nothing(&mut all);
    });
}

#[test]
fn only_the_reads_that_were_asked_for_count() {
    on_each_count_of_threads(|server| {
        let mut writer = connect(server);
        let mut optin = tracking(server, &["OPTIN"]);
        optin.command(&["GET", "a"]);
        optin.command(&["CLIENT", "CACHING", "YES"]);
        optin.command(&["GET", "b"]);
        optin.command(&["GET", "c"]);
        let mut optout = tracking(server, &["OPTOUT"]);
        optout.command(&["GET", "a"]);
        optout.command(&["CLIENT", "CACHING", "NO"]);
        optout.command(&["GET", "b"]);
        writer.command(&["MSET", "a", "1", "b", "1", "c", "1"]);
        assert_eq!(optin.read().unwrap(), invalidated(&["b"]));
        hears_nothing(&mut optin);
        assert_eq!(optout.read().unwrap(), invalidated(&["a"]));
        hears_nothing(&mut optout);
    });
}

#[test]
fn what_expires_or_is_flushed_or_changed_in_a_transaction_is_told() {
    on_each_count_of_threads(|server| {
        let mut writer = connect(server);
        writer.command(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
        let mut reader = tracking(server, &[]);
        writer.command(&["PSETEX", "lazy", "1", "x"]);
        reader.command(&["EXISTS", "lazy"]);
        // Read again until the key has expired: then a read removes it.
        while writer.command(&["EXISTS", "lazy"]) == Value::Integer(1) {}
        let mut heard = reader.command(&["PING"]);
        if heard == invalidated(&["lazy"]) {
            heard = reader.read().unwrap();
        }
        assert_eq!(heard, simple("PONG"));

        writer.command(&["DEBUG", "SET-ACTIVE-EXPIRE", "1"]);
        writer.command(&["PSETEX", "active", "20", "x"]);
        assert_eq!(reader.command(&["GET", "active"]), bulk("x"));
        assert_eq!(reader.read().unwrap(), invalidated(&["active"]));

        reader.command(&["GET", "t"]);
        writer.pipeline(&[vec!["MULTI"], vec!["SET", "t", "1"], vec!["INCR", "t"], vec!["EXEC"]]).unwrap();
        assert_eq!(reader.read().unwrap(), invalidated(&["t"]));
        writer.command(&["FLUSHDB"]);
        assert_eq!(reader.read().unwrap(), everything_invalidated());
        hears_nothing(&mut reader);
    });
}

#[test]
fn a_client_with_prefixes_hears_of_keys_that_expire_by_themselves() {
    on_each_count_of_threads(|server| {
        let mut writer = connect(server);
        let mut reader = tracking(server, &["BCAST", "PREFIX", "a"]);
        // All changes of a key in a turn cause one message, so the keys must expire in a later
        // turn.
        writer.command(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
        for key in ["a1", "b", "a2"] {
            writer.command(&["PSETEX", key, "20", "x"]);
        }
        for happened in ["set", "expired"] {
            // Keys that expire in the same turn, because they are in the same shard, are in one
            // message.
            let both = [invalidated(&["a1", "a2"]), invalidated(&["a2", "a1"])];
            let first = reader.read().unwrap();
            if happened == "set" || !both.contains(&first) {
                let mut heard = [first.to_string(), reader.read().unwrap().to_string()];
                heard.sort();
                assert_eq!(heard, ["a1", "a2"].map(|key| invalidated(&[key]).to_string()), "{happened}");
            }
            writer.command(&["DEBUG", "SET-ACTIVE-EXPIRE", "1"]);
        }
        hears_nothing(&mut reader);
    });
}

#[test]
fn a_blocked_client_hears_of_what_it_finds_expired_while_it_runs_in_vain() {
    on_each_count_of_threads(|server| {
        for options in [&[][..], &["NOLOOP"], &["BCAST", "NOLOOP"]] {
            let (mut writer, mut admin) = (connect(server), connect(server));
            writer.command(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
            writer.command(&["FLUSHALL"]);
            writer.command(&["XADD", "old", "1-1", "f", "v"]);
            writer.command(&["PEXPIRE", "old", "1000"]);
            let mut reader = tracking(server, options);
            assert_eq!(reader.command(&["XLEN", "old"]), Value::Integer(1));
            reader.send(b"XREAD BLOCK 0 STREAMS old new 5-0 5-0\r\n").unwrap();
            while info(&mut admin, "blocked_clients") != "1" {}
            admin.command(&["DEBUG", "SLEEP", "1.01"]);
            writer.command(&["XADD", "new", "1-1", "f", "v"]);
            let mut heard = String::new();
            while !heard.contains("old") || !heard.contains("new") {
                heard += &reader.read().expect("it hears of both streams").to_string();
            }
        }
    });
}

#[test]
fn another_client_hears_for_one_that_redirects_and_its_end_is_told() {
    on_each_count_of_threads(|server| {
        let mut writer = connect(server);
        let mut target = speaking(server, Protocol::Resp3);
        let Value::Integer(id) = target.command(&["CLIENT", "ID"]) else { panic!("an id") };
        let mut reader = tracking(server, &["REDIRECT", &id.to_string()]);
        reader.command(&["GET", "k"]);
        writer.command(&["SET", "k", "1"]);
        assert_eq!(target.read().unwrap(), invalidated(&["k"]));
        hears_nothing(&mut reader);
        reader.command(&["GET", "k"]);
        assert_eq!(target.command(&["QUIT"]), simple("OK"));
        target.read_to_end().unwrap();
        while writer.command(&["CLIENT", "LIST", "ID", &id.to_string()]) != bulk("") {}
        writer.command(&["SET", "k", "2"]);
        let broken = Value::Push(vec![bulk("tracking-redir-broken"), Value::Integer(id)]);
        assert_eq!(reader.read().unwrap(), broken);
    });
}

#[test]
fn no_more_keys_are_remembered_than_the_table_may_hold() {
    on_each_count_of_threads(|server| {
        let mut writer = connect(server);
        writer.command(&["CONFIG", "SET", "tracking-table-max-keys", "100"]);
        let mut reader = tracking(server, &[]);
        let keys: Vec<String> = (0..300).map(|n| format!("k{n}")).collect();
        let words: Vec<&str> = std::iter::once("MGET").chain(keys.iter().map(String::as_str)).collect();
        reader.command(&words);
        let mut told: Vec<Value> = reader.read_many(200).unwrap();
        assert_eq!(info(&mut writer, "tracking_total_keys"), "100");
        hears_nothing(&mut reader);
        told.sort_by_key(|message| message.to_string());
        told.dedup();
        assert_eq!(told.len(), 200);
    });
}

#[test]
fn what_a_blocked_client_reads_comes_ahead_of_the_news_that_it_changed() {
    on_each_back_end_with(2, |server| {
        // New clients are assigned to the thread with the fewest clients.
        let [mut writer, mut reader, mut admin, mut busy] =
            [0, 1, 0, 1].map(|thread| connect_on(server, thread));
        reader.hello(Protocol::Resp3);
        assert_eq!(reader.command(&["CLIENT", "TRACKING", "ON"]), simple("OK"));
        reader.send(b"XREAD BLOCK 0 STREAMS stream $\r\n").unwrap();
        while info(&mut admin, "blocked_clients") != "1" {}
        // The reader's thread sleeps, and then handles both entries in one turn.
        busy.send(b"DEBUG SLEEP 0.3\r\n").unwrap();
        while !admin.command(&["CLIENT", "LIST"]).to_string().contains(" cmd=debug") {}
        (1..=2)
            .for_each(|id| drop(writer.command(&["XADD", "stream", &format!("{id}-0"), "field", "value"])));
        // First the invalidation of the key, which XREAD read when it blocked. Then the reply, and
        // the invalidation for the later change.
        assert_eq!(reader.read().unwrap(), invalidated(&["stream"]));
        let entries = reader.read().unwrap();
        assert!(matches!(entries, Value::Map(_)), "{entries}");
        assert_eq!(reader.read().unwrap(), invalidated(&["stream"]));
        hears_nothing(&mut reader);
    });
}

#[test]
fn issue_33_a_field_that_expires_by_itself_is_a_change() {
    on_each_count_of_threads(|server| {
        for mode in [["CLIENT", "TRACKING", "ON"].as_slice(), &["CLIENT", "TRACKING", "ON", "BCAST"]] {
            let (mut writer, mut watcher) = (connect(server), connect(server));
            let mut reader = speaking(server, Protocol::Resp3);
            writer.command(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
            writer.command(&["DEL", "hash"]);
            writer.command(&["HSET", "hash", "a", "1", "b", "2"]);
            writer.command(&["HPEXPIRE", "hash", "1", "FIELDS", "1", "a"]);
            reader.command(mode);
            reader.command(&["HGETALL", "hash"]);
            watcher.command(&["WATCH", "hash"]);
            writer.command(&["DEBUG", "SET-ACTIVE-EXPIRE", "1"]);
            assert_eq!(reader.read().expect("a message"), invalidated(&["hash"]));
            watcher.command(&["MULTI"]);
            assert!(matches!(watcher.command(&["EXEC"]), Value::NullArray | Value::Null));
        }
    });
}

#[test]
fn issue_33_debug_reload_changes_all_keys() {
    on_each_count_of_threads(|server| {
        let (mut writer, mut watcher) = (connect(server), connect(server));
        let mut reader = speaking(server, Protocol::Resp3);
        writer.command(&["SET", "k", "v"]);
        reader.command(&["CLIENT", "TRACKING", "ON"]);
        reader.command(&["GET", "k"]);
        watcher.command(&["WATCH", "k"]);
        assert_eq!(writer.command(&["DEBUG", "RELOAD"]), simple("OK"));
        assert_eq!(reader.read().expect("a message"), everything_invalidated());
        watcher.command(&["MULTI"]);
        assert!(matches!(watcher.command(&["EXEC"]), Value::NullArray | Value::Null));
    });
}

#[test]
fn issue_33_a_client_hears_of_the_keys_that_its_own_script_changed() {
    on_each_count_of_threads(|server| {
        let mut client = speaking(server, Protocol::Resp3);
        client.command(&["SET", "k", "v"]);
        client.command(&["CLIENT", "TRACKING", "ON"]);
        for keys in ["0", "1"] {
            client.command(&["GET", "k"]);
            client.command(&["EVAL", "redis.call('SET', 'k', 'new')", keys, "k"]);
            assert_eq!(client.read().expect("a message"), invalidated(&["k"]));
        }
    });
}
