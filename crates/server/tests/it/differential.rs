//! Random commands to Saker and to a real Redis, where there is one. CI runs it for longer.

use std::time::Duration;

use net::BackendChoice;
use testkit::differential::{Options, run};
use testkit::{Address, peer};

use crate::support;

#[test]
fn random_commands_are_answered_as_redis_does() {
    if !peer::is_available() {
        eprintln!("no redis-server on the PATH and no SAKER_PEER: nothing to compare with");
        return;
    }
    let peer = peer::start().expect("the peer starts");
    let server = support::start(BackendChoice::Auto);
    let options = Options { time: Duration::from_secs(5), commands: 200_000, ..Options::default() };
    run(&peer.address(), &Address::port(server.port()), &options)
        .unwrap_or_else(|error| panic!("{error}"))
        .expect_success();
}
