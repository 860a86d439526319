//! `min-replicas-to-write` on a server without replicas: the commands that are refused.

use net::BackendChoice;
use testkit::notation;

use crate::support::{connect, start};

/// Checks that `min-replicas-to-write` refuses the commands that Redis refuses, in Redis' order of
/// checks.
#[test]
fn writes_are_refused_with_too_few_replicas() {
    let server = start(BackendChoice::Auto);
    let mut client = connect(&server);
    let mut check = |request: &[&str], expected: &str| {
        let reply = notation::one_line(&client.command(request));
        assert!(reply.starts_with(expected), "{request:?}: {reply}");
    };
    const REFUSED: &str = "-NOREPLICAS Not enough good replicas to write.";
    check(&["SET", "k", "v"], "+OK");
    check(&["CONFIG", "SET", "min-replicas-to-write", "1"], "+OK");
    check(&["SET", "k", "w"], REFUSED);
    check(&["GET", "k"], "\"v\"");
    check(&["PING"], "+PONG");
    check(&["PUBLISH", "c", "m"], ":0");
    check(&["FLUSHALL"], REFUSED);
    check(&["EVAL", "return redis.call('SET', 'k', 'w')", "0"], REFUSED);
    check(&["EVAL", "return redis.call('GET', 'k')", "0"], "\"v\"");
    check(&["EVAL", "#!lua\nreturn redis.call('GET', 'k')", "0"], REFUSED);
    check(&["EVAL", "#!lua flags=no-writes\nreturn redis.call('GET', 'k')", "0"], "\"v\"");
    check(&["MULTI"], "+OK");
    check(&["SET", "k", "w"], REFUSED);
    check(&["EXEC"], "-EXECABORT");
    check(&["CONFIG", "SET", "maxmemory", "1"], "+OK");
    check(&["SET", "k", "w"], "-OOM");
    check(&["CONFIG", "SET", "maxmemory", "0"], "+OK");
    // A lag of 0 turns the demand off.
    check(&["CONFIG", "SET", "min-slaves-max-lag", "0"], "+OK");
    check(&["SET", "k", "w"], "+OK");
    check(&["CONFIG", "SET", "min-slaves-max-lag", "10"], "+OK");
    check(&["SET", "k", "x"], REFUSED);
    check(&["CONFIG", "SET", "min-replicas-to-write", "0"], "+OK");
    check(&["SET", "k", "x"], "+OK");
}
