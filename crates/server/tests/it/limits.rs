//! Limits of the server memory that a client can use, each tested at the limit. docs/operations.md
//! has the table of all limits. Other files test further limits. `hostile.rs`: unread replies and
//! queued transactions. `subscribers.rs`: published messages. `tracking_bounds.rs`: tracked keys.
//! `memory.rs`: data and values to be freed. `blocking.rs`: kills. `tests/cmd/slowlog.resp`: the
//! slow log. net's `descriptors.rs`: file descriptors.

use server::Server;
use testkit::{Client, Value};

use crate::support::{connect, info, on_each_back_end};

/// Returns true if the server closes the connection of a client that sends `bytes` and reads all
/// replies.
fn is_closed(client: &mut Client, bytes: &[u8]) -> bool {
    if client.send(bytes).is_err() {
        return true;
    }
    loop {
        match client.read() {
            Ok(_) => {}
            Err(testkit::ClientError::TimedOut(_)) => return false,
            Err(_) => return true,
        }
    }
}

#[test]
fn a_request_that_never_ends_is_cut_off() {
    on_each_back_end(|server| {
        let mut control = connect(server);
        control.command(&["CONFIG", "SET", "client-query-buffer-limit", "1mb"]);
        let mut client = connect(server);
        let mut bytes = b"*2\r\n$3\r\nGET\r\n$100000000\r\n".to_vec();
        bytes.resize(4 << 20, b'x');
        assert!(is_closed(&mut client, &bytes));
        assert_eq!(info(&mut control, "client_query_buffer_limit_disconnections"), 1);
    });
}

#[test]
fn a_client_beyond_maxclients_is_refused() {
    on_each_back_end(|server| {
        let mut control = connect(server);
        control.command(&["CONFIG", "SET", "maxclients", "3"]);
        let others: Vec<Client> = (0..2).map(|_| connect(server)).map(answered).collect();
        let mut refused = connect(server);
        let error = refused.read().expect("a line comes before the end");
        assert_eq!(error, Value::Error(b"ERR max number of clients reached".to_vec()));
        assert_eq!(info(&mut control, "rejected_connections"), 1);
        drop(others);
    });
}

/// Returns `client` after a first reply: the server has then registered it.
fn answered(mut client: Client) -> Client {
    client.command(&["PING"]);
    client
}

/// Commands that make the server keep the names in their arguments, keys or channels, for the
/// client.
const NAMING: &[&str] = &["WATCH", "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE"];

/// Checks that the names of watched keys and subscribed channels count as the client's memory: the
/// client with the most memory is closed.
#[test]
fn who_names_too_much_is_evicted() {
    on_each_back_end(|server| {
        for verb in NAMING {
            names_too_much(server, |from| {
                let names = (from..from + 1000).map(|number| format!("some-name:{number}"));
                std::iter::once((*verb).to_owned()).chain(names).collect()
            });
        }
        names_too_much(server, |from| {
            let names = (from..from + 1000).flat_map(|number| ["PREFIX".to_owned(), format!("{number}:")]);
            ["CLIENT", "TRACKING", "ON", "BCAST"].into_iter().map(str::to_owned).chain(names).collect()
        });
        let mut keys: Vec<String> = (0..20_000).map(|number| format!("some-name:{number}")).collect();
        keys.insert(0, "BLPOP".to_owned());
        keys.push("0".to_owned());
        names_too_much(server, |_| keys.clone());
    });
}

/// Sends the requests that `request` returns until the server closes the client because of its
/// memory.
fn names_too_much(server: &Server, request: impl Fn(usize) -> Vec<String>) {
    let mut control = connect(server);
    control.command(&["CLIENT", "NO-EVICT", "ON"]);
    control.command(&["CONFIG", "SET", "maxmemory-clients", "4mb"]);
    let before = info(&mut control, "evicted_clients");
    let mut client = connect(server);
    for from in (0..40).map(|round| round * 1000) {
        let mut bytes = Vec::new();
        resp::encode_request(&request(from), &mut bytes);
        // The replies, one for each name, are not read here.
        if client.send(&bytes).is_err() || info(&mut control, "evicted_clients") > before {
            break;
        }
    }
    let verb = request(0).remove(0);
    assert!(is_closed(&mut client, b""), "{verb} of 40,000 names");
    assert_eq!(info(&mut control, "evicted_clients"), before + 1, "{verb}");
    control.command(&["CONFIG", "SET", "maxmemory-clients", "0"]);
}

/// Checks that a limit on clients' memory below 128 KiB counts as 128 KiB, but is shown as
/// configured, as in Redis.
#[test]
fn the_lowest_limit_of_clients_memory_leaves_a_few_clients_in() {
    on_each_back_end(|server| {
        let mut control = connect(server);
        let evicted = info(&mut control, "evicted_clients");
        control.command(&["CONFIG", "SET", "maxmemory-clients", "1"]);
        let mut client = connect(server);
        assert_eq!(client.command(&["PING"]), Value::Simple(b"PONG".to_vec()));
        let shown = control.command(&["CONFIG", "GET", "maxmemory-clients"]);
        assert_eq!(shown.to_string(), "1) \"maxmemory-clients\"\n2) \"1\"");
        assert_eq!(info(&mut control, "evicted_clients"), evicted);
        control.command(&["CONFIG", "SET", "maxmemory-clients", "0"]);
    });
}

/// Checks that the server closes a client that does not read its messages, at the output limit of
/// its class.
#[test]
fn a_monitor_that_does_not_read_is_closed() {
    on_each_back_end(|server| {
        let mut control = connect(server);
        control.command(&["CONFIG", "SET", "client-output-buffer-limit", "replica 1mb 1mb 0"]);
        let mut monitor = connect(server);
        monitor.command(&["MONITOR"]);
        let value = "x".repeat(100_000);
        // Data in the sockets' buffers is not part of the limit.
        let closed = (0..1000).any(|_| {
            control.command(&["SET", "key", &value]);
            info(&mut control, "client_output_buffer_limit_disconnections") == 1
        });
        assert!(closed);
        assert!(is_closed(&mut monitor, b""));
    });
}

#[test]
fn only_so_many_error_codes_are_told_apart() {
    on_each_back_end(|server| {
        let mut client = connect(server);
        for code in 0..300 {
            client.command(&["DEBUG", "ERROR", &format!("CODE{code} text")]);
        }
        let text = client.command(&["INFO", "errorstats"]).to_string();
        assert_eq!(text.matches("errorstat_").count(), 128, "{text}");
    });
}
