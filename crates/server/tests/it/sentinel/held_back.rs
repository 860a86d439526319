//! Requests of Sentinels. No pause, wait or script of other clients may delay them.

use testkit::notation;

use super::failovers::quiet;
use super::*;

#[test]
fn messages_of_sentinels_pass_a_pause_of_writes_and_a_wait() {
    if is_without_peer() {
        return;
    }
    // Pings and requests of acknowledgements would move the offset, too.
    let set = Watched::start(quiet());
    let mut client = set.connect(0);
    run(&mut client, &["CLIENT", "PAUSE", "600000", "WRITE"]);
    let offset = number(&mut client, "replication", "master_repl_offset");
    let mut hello = set.connect(0);
    run(&mut hello, &["SUBSCRIBE", "__sentinel__:hello"]);
    let mut waiting = set.connect(0);
    waiting.send(b"WAIT 5 0\r\n").expect("sent");
    // Each Sentinel introduces itself every 2 seconds, on the connection of its PING.
    for number in 0..3 * COUNT {
        hello.read().unwrap_or_else(|error| panic!("message {number}: {error}: {}", set.state()));
    }
    assert_eq!(number(&mut client, "replication", "master_repl_offset"), offset, "the offset has moved");
    assert_eq!(set.primary(), 0, "{}", set.state());
    // The role changes during the pause, as the Sentinel asks for it.
    set.fail_over_from(0);
    set.wait_until_follows(0);
}

#[test]
fn other_messages_and_writes_wait_for_the_end_of_a_pause() {
    let server = testkit::saker::start_binary(BINARY, &[]).expect("starts");
    let (mut pauses, mut paused) = (server.connect(), server.connect());
    run(&mut pauses, &["CLIENT", "PAUSE", "600000", "WRITE"]);
    assert_eq!(paused.command(&["PUBLISH", "__sentinel__:hello", "m"]), Value::Integer(0));
    paused.send(b"PUBLISH __sentinel__:hallo m\r\n").expect("sent");
    assert!(happens(|| number(&mut pauses, "clients", "blocked_clients") == 1));
    run(&mut pauses, &["CLIENT", "UNPAUSE"]);
    assert_eq!(notation::one_line(&paused.read().expect("the reply")), ":0");
}
