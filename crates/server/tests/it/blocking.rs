//! Blocked clients: many keys, many clients, killed clients. At its end, the stress test looks for
//! every element that was pushed.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use server::Server;
use testkit::{Client, Rng, Value};

use crate::support::{connect, connect_on, on_each_back_end};

/// Returns the reply to `words`, as text.
fn text(client: &mut Client, words: &[&str]) -> String {
    String::from_utf8_lossy(client.command(words).as_bytes().expect("it is text")).into_owned()
}

fn id(client: &mut Client) -> String {
    let Value::Integer(id) = client.command(&["CLIENT", "ID"]) else { panic!("an id") };
    id.to_string()
}

fn bulk(text: impl AsRef<[u8]>) -> Value {
    Value::Bulk(text.as_ref().to_vec())
}

fn elements(reply: &Value) -> &[Value] {
    let Value::Array(elements) = reply else { panic!("{reply} is no array") };
    elements
}

/// Waits until INFO shows `count` blocked clients.
fn await_blocked(admin: &mut Client, count: usize) {
    let line = format!("blocked_clients:{count}\r\n");
    while !text(admin, &["INFO", "clients"]).contains(&line) {
        std::thread::yield_now();
    }
}

fn send(client: &mut Client, words: &[impl AsRef<[u8]>]) {
    let mut bytes = Vec::new();
    resp::encode_request(words, &mut bytes);
    client.send(&bytes).expect("it is connected");
}

/// Number of keys that one blocking request names.
const KEYS: usize = 30_000;
/// Maximum time to block on all keys and to unblock, as a multiple of the time of a request that
/// only reads all keys. It is far above the usual multiple, and far below that of a quadratic
/// algorithm.
const LOOKS_MAX: u32 = 150;

#[test]
fn to_wait_for_many_keys_takes_time_in_proportion_to_them() {
    on_each_back_end(|server| {
        let (mut client, mut admin) = (connect(server), connect(server));
        let keys: Vec<String> = (0..KEYS).map(|number| format!("key:{number:06}")).collect();
        let with = |first: &'static [&str], last: &[&'static str]| -> Vec<&str> {
            first.iter().copied().chain(keys.iter().map(String::as_str)).chain(last.iter().copied()).collect()
        };
        let since = Instant::now();
        assert_eq!(client.command(&with(&["EXISTS"], &[])), Value::Integer(0));
        let look = since.elapsed().max(Duration::from_millis(2));
        let check = |what: &str, since: Instant| {
            let took = since.elapsed();
            assert!(took < look * LOOKS_MAX, "{what}: {took:?}, EXISTS {look:?}");
        };
        let number = id(&mut client);
        let mut end_by = |what: &str, end: &dyn Fn(&mut Client)| {
            let since = Instant::now();
            send(&mut client, &with(&["BLPOP"], &["0"]));
            await_blocked(&mut admin, 1);
            end(&mut admin);
            let reply = client.read().expect("a reply");
            check(what, since);
            reply
        };
        let served = end_by("served by the last", &|admin| {
            admin.command(&["RPUSH", &keys[KEYS - 1], "element"]);
        });
        assert_eq!(served, Value::Array(vec![bulk(&keys[KEYS - 1]), bulk("element")]));
        end_by("unblocked", &|admin| {
            let line = text(admin, &["CLIENT", "LIST", "ID", &number]);
            let held =
                line.split(' ').find_map(|field| field.strip_prefix("tot-mem=")?.parse::<usize>().ok());
            assert!(
                held.expect("a figure") > KEYS * 300,
                "its places in the queues count as its memory: {line}"
            );
            admin.command(&["CLIENT", "UNBLOCK", &number]);
        });
        let served = end_by("served by a transaction on all", &|admin| {
            let push = |key: &String| vec!["RPUSH".to_owned(), key.clone(), "element".to_owned()];
            let commands: Vec<_> = [vec!["MULTI".to_owned()]]
                .into_iter()
                .chain(keys.iter().rev().map(push))
                .chain([vec!["EXEC".to_owned()]])
                .collect();
            admin.pipeline(&commands).expect("replies");
        });
        assert_eq!(served, Value::Array(vec![bulk(&keys[0]), bulk("element")]));
        client.command(&["FLUSHALL"]);
        let since = Instant::now();
        assert!(client.command(&with(&["BLPOP"], &["0.001"])) == Value::NullArray);
        check("timed out", since);
        let since = Instant::now();
        send(&mut client, &with(&["BLPOP"], &["0"]));
        await_blocked(&mut admin, 1);
        assert_eq!(admin.command(&["CLIENT", "KILL", "ID", &number]), Value::Integer(1));
        client.read_to_end().expect("it is closed");
        check("killed", since);
    });
}

/// Number of clients that block on the same queues.
const WORKERS: usize = 600;

#[test]
fn workers_of_several_queues_are_served_in_their_order_by_whatever_brings_elements() {
    on_each_back_end(|server| {
        let mut admin = connect(server);
        let mut workers: Vec<Client> = (0..WORKERS).map(|_| connect(server)).collect();
        let numbers: Vec<String> = (0..WORKERS).map(|number| number.to_string()).collect();
        let push = |key: &str| -> Vec<String> {
            ["RPUSH", key].map(str::to_owned).into_iter().chain(numbers.iter().cloned()).collect()
        };
        block_all(&mut admin, &mut workers, |_| "BLPOP high middle low 0".to_owned());
        numbers.iter().for_each(|number| drop(admin.command(&["RPUSH", "low", number])));
        check_order(&mut admin, &mut workers, "low");
        block_all(&mut admin, &mut workers, |number| format!("BLPOP own:{number} shared 0"));
        admin.command(&push("shared"));
        check_order(&mut admin, &mut workers, "shared");
        block_all(&mut admin, &mut workers, |number| format!("BLMOVE queue work:{number} LEFT RIGHT 0"));
        admin.command(&push("aside"));
        admin.command(&["RENAME", "aside", "queue"]);
        check_order(&mut admin, &mut workers, "queue");
        for number in [0, 1, WORKERS - 1] {
            let work = admin.command(&["LRANGE", &format!("work:{number}"), "0", "-1"]);
            assert_eq!(work, Value::Array(vec![bulk(number.to_string())]));
        }
        admin.command(&["FLUSHALL"]);
    });
}

/// Checks the order in which clients are served, as in Redis. List `b` is created first, so the
/// client blocked on `b` is served first. This client gets an element of `a`, because `a` comes
/// before `b` in its request.
#[test]
fn what_scripts_bring_serves_in_the_order_in_which_the_keys_came_into_being() {
    on_each_back_end(|server| {
        let mut admin = connect(server);
        let push = "redis.call('RPUSH', 'b', 'z') return redis.call('LPUSH', 'a', 'x', 'y')";
        let first = "return redis.call('RPUSH', 'b', 'z')";
        let second = "return redis.call('LPUSH', 'a', 'x', 'y')";
        let script = vec![vec!["EVAL", push, "0"]];
        let declared = vec![vec!["EVAL", push, "2", "a", "b"]];
        let transaction =
            vec![vec!["MULTI"], vec!["EVAL", first, "0"], vec!["EVAL", second, "0"], vec!["EXEC"]];
        for requests in [script.clone(), script, declared, transaction] {
            admin.command(&["FLUSHALL"]);
            let (mut one, mut two) = (connect(server), connect(server));
            send(&mut one, &["BLPOP", "a", "0"]);
            await_blocked(&mut admin, 1);
            send(&mut two, &["BLPOP", "a", "b", "0"]);
            await_blocked(&mut admin, 2);
            requests.iter().for_each(|request| drop(admin.command(request)));
            let served = |element| Value::Array(vec![bulk("a"), bulk(element)]);
            let replies = (two.read().expect("a reply"), one.read().expect("a reply"));
            assert_eq!(replies, (served("y"), served("x")), "{requests:?}");
        }
    });
}

/// Blocks all workers one after the other; `request` returns the request of each.
fn block_all(admin: &mut Client, workers: &mut [Client], request: impl Fn(usize) -> String) {
    for (number, worker) in workers.iter_mut().enumerate() {
        send(worker, &request(number).split(' ').collect::<Vec<_>>());
        await_blocked(admin, number + 1);
    }
}

/// Checks that each worker got the element with its own number, and that the list has no element
/// left.
fn check_order(admin: &mut Client, workers: &mut [Client], key: &str) {
    for (number, worker) in workers.iter_mut().enumerate() {
        let element = match worker.read().expect("a reply") {
            Value::Array(mut pair) => pair.remove(1),
            element => element,
        };
        assert_eq!(element, bulk(number.to_string()), "from {key}");
    }
    assert_eq!(admin.command(&["EXISTS", key]), Value::Integer(0));
    await_blocked(admin, 0);
}

#[test]
fn a_killed_client_is_off_all_lists_at_once_and_closed_though_its_thread_has_no_room_for_messages() {
    // More messages than fit into a thread's mailbox.
    const MESSAGES: usize = 5000;
    on_each_back_end(|server| {
        let mut admin = connect_on(server, 0);
        let mut client = connect_on(server, 1);
        // A new connection is assigned to the thread with the fewest.
        let _other = connect_on(server, 0);
        let mut busy = connect_on(server, 1);
        let number = id(&mut client);
        let connected = |admin: &mut Client| {
            let info = text(admin, &["INFO", "clients"]);
            let count = info.lines().find_map(|line| line.strip_prefix("connected_clients:"));
            count.and_then(|count| count.parse::<u32>().ok()).expect("a number")
        };
        send(&mut client, &["BLPOP", "queue", "0"]);
        await_blocked(&mut admin, 1);
        let before = connected(&mut admin);
        // Its thread has no turn while this client sleeps.
        send(&mut busy, &["DEBUG", "SLEEP", "1.5"]);
        while !text(&mut admin, &["CLIENT", "LIST"]).contains(" cmd=debug") {
            std::thread::yield_now();
        }
        let since = Instant::now();
        let resume = vec![vec!["CLIENT", "UNPAUSE"]; MESSAGES];
        admin.pipeline(&resume).expect("replies");
        assert_eq!(admin.command(&["CLIENT", "KILL", "ID", &number]), Value::Integer(1));
        assert!(!text(&mut admin, &["CLIENT", "LIST"]).contains(&format!("id={number} ")));
        assert_eq!(connected(&mut admin), before - 1);
        await_blocked(&mut admin, 0);
        assert_eq!(admin.command(&["CLIENT", "KILL", "ID", &number]), Value::Integer(0));
        assert_eq!(admin.command(&["CLIENT", "UNBLOCK", &number]), Value::Integer(0));
        assert_eq!(admin.command(&["RPUSH", "queue", "element"]), Value::Integer(1));
        assert_eq!(admin.command(&["LLEN", "queue"]), Value::Integer(1), "nobody takes it");
        assert!(since.elapsed() < Duration::from_millis(1500), "the thread slept meanwhile");
        assert_eq!(client.read_to_end().expect("it is closed"), b"");
        assert_eq!(connected(&mut admin), before - 1);
        admin.command(&["DEL", "queue"]);
    });
}

#[test]
fn what_expires_while_a_transaction_runs_serves_nobody() {
    on_each_back_end(|server| {
        let (mut client, mut admin) = (connect(server), connect(server));
        send(&mut client, &["BLPOP", "list", "0"]);
        await_blocked(&mut admin, 1);
        admin.command(&["MULTI"]);
        for words in [&["RPUSH", "list", "late"][..], &["PEXPIRE", "list", "50"], &["DEBUG", "SLEEP", "0.1"]]
        {
            assert_eq!(admin.command(words), Value::Simple(b"QUEUED".to_vec()));
        }
        assert_eq!(elements(&admin.command(&["EXEC"])).len(), 3);
        assert_eq!(admin.command(&["RPUSH", "list", "in time"]), Value::Integer(1));
        let reply = client.read().expect("a reply");
        assert_eq!(reply, Value::Array(vec![bulk("list"), bulk("in time")]));
    });
}

#[test]
fn what_expires_while_a_command_runs_serves_nobody_and_is_an_event() {
    on_each_back_end(|server| {
        let [mut client, mut admin, mut listener] = [(); 3].map(|()| connect(server));
        admin.command(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
        admin.command(&["CONFIG", "SET", "notify-keyspace-events", "Kx"]);
        listener.command(&["SUBSCRIBE", "__keyspace@0__:list"]);
        // So many elements that copying them takes longer than the copy's expiry time.
        let element = "x".repeat(100);
        let words: Vec<&str> = ["RPUSH", "source"].into_iter().chain([element.as_str(); 10_000]).collect();
        (0..20).for_each(|_| drop(admin.command(&words)));
        send(&mut client, &["BLPOP", "list", "0"]);
        await_blocked(&mut admin, 1);
        let requests = [["PEXPIRE", "source", "1"], ["COPY", "source", "list"]];
        let replies = admin.pipeline(&requests.map(Vec::from)).expect("the server answers");
        if replies[1] == Value::Integer(1) {
            let heard = listener.read().expect("an event");
            assert_eq!(elements(&heard)[2], bulk("expired"));
        }
        admin.command(&["DEL", "list", "source"]);
        assert_eq!(admin.command(&["RPUSH", "list", "in time"]), Value::Integer(1));
        let reply = client.read().expect("a reply");
        assert_eq!(reply, Value::Array(vec![bulk("list"), bulk("in time")]));
        admin.command(&["CONFIG", "SET", "notify-keyspace-events", ""]);
        admin.command(&["DEBUG", "SET-ACTIVE-EXPIRE", "1"]);
    });
}

#[test]
fn the_error_of_a_blocked_client_whose_key_expires_counts_for_its_command() {
    on_each_back_end(|server| {
        let (mut client, mut admin) = (connect(server), connect(server));
        admin.command(&["XGROUP", "CREATE", "stream", "g", "$", "MKSTREAM"]);
        send(&mut client, &["XREADGROUP", "GROUP", "g", "c", "BLOCK", "0", "STREAMS", "stream", ">"]);
        await_blocked(&mut admin, 1);
        admin.command(&["PEXPIRE", "stream", "20"]);
        assert!(client.read().expect("a reply").to_string().contains("NOGROUP"));
        let stats = text(&mut admin, &["INFO", "commandstats"]);
        let line = stats.lines().find(|line| line.starts_with("cmdstat_xreadgroup:")).expect("it has run");
        assert!(line.ends_with("failed_calls=1"), "{line}");
    });
}

/// Number of rounds of the stress test on each backend.
const ROUNDS: u64 = 3;
/// Number of blocked clients in each round of the stress test.
const CROWD: usize = 2000;
/// Number of lists on which the clients of one round of the stress test block.
const LISTS: usize = 12;
/// Number of elements that each writer pushes in a round of the stress test, over all lists.
const PUSHED: usize = 600;
const WRITERS: usize = 3;

/// A blocked client and the lists from which it may get an element.
struct Blocked {
    client: Client,
    id: String,
    lists: Vec<String>,
    for_ever: bool,
}

/// Pushes the elements of one writer by several commands, each element once.
fn push_all(server: &Server, writer: usize, seed: u64) {
    let mut rng = Rng::new(seed * 100 + writer as u64);
    let mut client = connect(server);
    let mut element = 0;
    let mut next = || {
        element += 1;
        format!("{writer}:{element}")
    };
    let list = |rng: &mut Rng| format!("list:{}", rng.below(LISTS));
    for _ in 0..PUSHED / 3 {
        let elements = [next(), next(), next()];
        match rng.below(3) {
            0 => {
                let all = ["RPUSH".to_owned(), list(&mut rng)].into_iter().chain(elements);
                client.command(&all.collect::<Vec<_>>());
            }
            1 => {
                client.command(&["MULTI"]);
                for element in elements {
                    client.command(&["LPUSH", &list(&mut rng), &element]);
                }
                client.command(&["EXEC"]);
            }
            _ => {
                let aside = format!("aside:{writer}");
                for element in elements {
                    client.command(&["RPUSH", &aside, &element]);
                    client.command(&["LMOVE", &aside, &list(&mut rng), "LEFT", "RIGHT"]);
                }
            }
        }
    }
}

/// Unblocks or kills random clients of `crowd` until all elements are pushed. Returns the ids of
/// the killed clients.
fn end_some<'c>(server: &Server, crowd: &'c [String], pushed: &AtomicBool, seed: u64) -> HashSet<&'c str> {
    let mut rng = Rng::new(seed * 100 + 99);
    let mut client = connect(server);
    let mut killed = HashSet::new();
    while !pushed.load(Relaxed) {
        let id = rng.pick(crowd).as_str();
        if rng.percent(40) {
            if client.command(&["CLIENT", "KILL", "ID", id]) == Value::Integer(1) {
                killed.insert(id);
            }
        } else {
            client.command(&["CLIENT", "UNBLOCK", id]);
        }
    }
    killed
}

/// Runs one round: thousands of clients block on several lists each, while elements arrive and
/// clients are unblocked or killed.
fn round(server: &Server, seed: u64) {
    let mut rng = Rng::new(seed);
    let mut admin = connect(server);
    admin.command(&["FLUSHALL"]);
    let mut crowd: Vec<Blocked> = (0..CROWD)
        .map(|number| {
            let mut client = connect(server);
            let id = id(&mut client);
            let mut lists: Vec<String> = (0..LISTS).map(|list| format!("list:{list}")).collect();
            rng.shuffle(&mut lists);
            lists.truncate(1 + rng.below(4));
            let for_ever = rng.percent(70);
            let timeout = if for_ever { "0".to_owned() } else { format!("0.{:03}", 1 + rng.below(200)) };
            let mut words = match number % 3 {
                0 => vec!["BLPOP".to_owned()],
                1 => vec!["BRPOP".to_owned()],
                _ => vec!["BLMPOP".to_owned(), timeout.clone(), lists.len().to_string()],
            };
            words.extend(lists.iter().cloned());
            words.push(if number % 3 == 2 { "LEFT".to_owned() } else { timeout });
            send(&mut client, &words);
            Blocked { client, id, lists, for_ever }
        })
        .collect();
    let ids: Vec<String> = crowd.iter().map(|blocked| blocked.id.clone()).collect();
    let pushed = AtomicBool::new(false);
    let killed = std::thread::scope(|scope| {
        let writers: Vec<_> =
            (0..WRITERS).map(|writer| scope.spawn(move || push_all(server, writer, seed))).collect();
        let killer = scope.spawn(|| end_some(server, &ids, &pushed, seed));
        writers.into_iter().for_each(|writer| writer.join().expect("it pushes"));
        pushed.store(true, Relaxed);
        killer.join().expect("it kills")
    });
    account_for(&mut admin, &mut crowd, &killed);
}

/// Unblocks the remaining clients. Checks that each element was delivered to a client or is left in
/// a list, exactly once.
fn account_for(admin: &mut Client, crowd: &mut [Blocked], killed: &HashSet<&str>) {
    let mut seen: HashSet<Vec<u8>> = HashSet::new();
    let mut filled: HashSet<String> = HashSet::new();
    for list in (0..LISTS).map(|list| format!("list:{list}")) {
        let rest = admin.command(&["LRANGE", &list, "0", "-1"]);
        for element in elements(&rest) {
            assert!(seen.insert(element.as_bytes().expect("an element").to_vec()), "{element} twice");
            filled.insert(list.clone());
        }
    }
    let mut closed = 0;
    for Blocked { client, id, lists, for_ever } in crowd {
        let unblocked = admin.command(&["CLIENT", "UNBLOCK", id]) == Value::Integer(1);
        assert!(
            !unblocked || !*for_ever || lists.iter().all(|list| !filled.contains(list)),
            "client {id} waited for {lists:?} while there was something"
        );
        match client.read() {
            Err(error) => {
                assert!(killed.contains(id.as_str()), "client {id}: {error}");
                closed += 1;
            }
            Ok(Value::NullArray) => {}
            Ok(Value::Array(reply)) => {
                let element = match &reply[1] {
                    Value::Array(popped) => &popped[0],
                    element => element,
                };
                assert!(seen.insert(element.as_bytes().expect("an element").to_vec()), "{element} twice");
            }
            Ok(reply) => panic!("{reply}"),
        }
    }
    let lost = PUSHED * WRITERS - seen.len();
    println!("{} killed, {closed} of them without a reply, {lost} elements with them", killed.len());
    assert!(lost <= closed, "{lost} elements lost, {closed} clients closed before they had a reply");
    await_blocked(admin, 0);
}

#[test]
fn nothing_is_lost_or_served_twice_among_thousands_that_wait_for_several_lists() {
    on_each_back_end(|server| (0..ROUNDS).for_each(|seed| round(server, seed)));
}
