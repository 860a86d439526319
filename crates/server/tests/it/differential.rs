//! Random commands to Saker and to a real Redis, if available: both must reply equally. CI runs
//! this test for longer.

use std::time::Duration;

use net::BackendChoice;
use testkit::differential::{Options, run};
use testkit::documented::documented;
use testkit::{Address, Client, Rng, Value, peer};

use crate::support;

/// Number of random requests whose keys two servers must find equally.
const REQUESTS: usize = 20_000;

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

/// Returns true if Redis 8.0.2 truncates the word to a number where it expects a count of keys:
/// it parses counts with C's `atoi`.
fn is_cut_to_a_number(word: &[u8]) -> bool {
    let begins_like_one = word.strip_prefix(b"-").unwrap_or(word).first().is_some_and(u8::is_ascii_digit);
    let number = stdx::number::parse_i64(word).and_then(|number| i32::try_from(number).ok());
    begins_like_one && number.is_none()
}

/// Returns true if the server has at least the version of Redis that Saker follows, 8.0.
fn is_of_version_8(client: &mut Client) -> bool {
    let text = client.command(&["INFO", "server"]);
    let text = String::from_utf8_lossy(text.as_bytes().expect("INFO is text")).into_owned();
    let version = text.lines().find_map(|line| line.strip_prefix("redis_version:")).expect("INFO has it");
    let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
    major.is_some_and(|major| major >= 8)
}

/// Returns true if the value of an option in the request looks like an option before a key. Redis
/// 7.0 then reports other keys than it uses; `command_facts` has the keys of 8.0.2.
fn has_disguised_option(request: &[Vec<u8>]) -> bool {
    let is = |at: usize, words: &[&str]| {
        request
            .get(at)
            .is_some_and(|word| words.iter().any(|name| word.eq_ignore_ascii_case(name.as_bytes())))
    };
    let follows = |at: usize| {
        let value = ["STORE", "BY", "GET", "COUNT", "BLOCK", "GROUP"];
        is(at - 1, &value) || (at > 1 && is(at - 2, &["LIMIT", "GROUP"]))
    };
    (2..request.len()).any(|at| is(at, &["STORE", "STREAMS"]) && follows(at))
}

/// Returns the keys in a reply to COMMAND GETKEYSANDFLAGS, without their flags.
fn keys_of(reply: &Value) -> Option<Vec<&Value>> {
    let Value::Array(keys) = reply else { return None };
    keys.iter().map(|key| if let Value::Array(parts) = key { parts.first() } else { None }).collect()
}

/// Returns true if the replies of two servers agree. Unless `exactly` is true, tolerates that Redis
/// 7.0 knows fewer forms of some commands and has other flags for some.
fn agree(told: &Value, found: &Value, exactly: bool) -> bool {
    told == found
        || (told.is_error() && (found.is_error() || !exactly))
        || (!exactly && keys_of(told).is_some() && keys_of(told) == keys_of(found))
}

#[test]
fn keys_are_told_as_redis_tells_them() {
    if !peer::is_available() {
        eprintln!("no redis-server on the PATH and no SAKER_PEER: nothing to compare with");
        return;
    }
    let peer = peer::start().expect("the peer starts");
    let server = support::start(BackendChoice::Auto);
    let mut clients =
        [Client::connect(&peer.address()).expect("the peer listens"), support::connect(&server)];
    let exactly = is_of_version_8(&mut clients[0]);
    let known = documented(&mut clients[0]);
    let mut commands = documented(&mut clients[1]);
    commands.retain(|command| known.iter().any(|other| other.name == command.name));
    let (mut rng, mut different) = (Rng::new(1), std::collections::BTreeMap::new());
    for _ in 0..REQUESTS {
        let request = rng.pick(&commands).request(&mut rng);
        if request.iter().any(|word| is_cut_to_a_number(word)) || (!exactly && has_disguised_option(&request))
        {
            continue;
        }
        let question = [vec![b"COMMAND".to_vec(), b"GETKEYSANDFLAGS".to_vec()], request].concat();
        let [told, found] = clients.each_mut().map(|client| client.command(&question));
        // With invalid options of these, Redis 7.0 returns keys, 8.0.2 and Saker an error.
        let is_reader = matches!(question[2].to_ascii_lowercase().as_slice(), b"xread" | b"xreadgroup");
        let is_refused = !exactly && is_reader && found.is_error();
        if !is_refused && !agree(&told, &found, exactly) {
            let words: Vec<_> = question[2..].iter().map(|word| String::from_utf8_lossy(word)).collect();
            different.insert(words[0].to_string(), format!("{words:?}: {told} and {found}"));
        }
    }
    assert!(different.is_empty(), "{:#?}", different.values());
}
