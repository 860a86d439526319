//! Links to a primary with a password, as a user, and over TLS. Also requests of clients while the
//! link is down.

use testkit::process::free_port;
use testkit::replication::load::send_lines;
use testkit::replication::{Proxy, happens, run};
use testkit::{Rng, Value, notation};

use super::{Kind, Node, kinds, seed};
use crate::replication::cuts::write_stream;
use crate::tls::Pki;

#[test]
fn the_link_logs_in_by_password_or_as_a_user() {
    for kind in kinds() {
        let primary = Node::start(kind, &[]);
        let mut client = primary.connect();
        run(&mut client, &["CONFIG", "SET", "requirepass", "secret"]);
        let replica = Node::start(Kind::Own, &[]);
        let mut own = replica.connect();
        let fails_with = |text: &str| happens(|| replica.link("master_link_last_error").contains(text));
        replica.follow(primary.port());
        assert!(fails_with("NOAUTH"), "{kind:?}: {}", replica.state());
        run(&mut own, &["CONFIG", "SET", "masterauth", "wrong"]);
        assert!(fails_with("WRONGPASS"), "{kind:?}: {}", replica.state());
        assert!(!replica.is_up());
        run(&mut own, &["CONFIG", "SET", "primaryauth", "secret"]);
        replica.wait_until_up();
        // The test's own connections need the password, too: they were opened before it.
        run(&mut client, &["CONFIG", "SET", "requirepass", ""]);
        replica.wait_for_data_of(&primary, "by password");
        replica.leave();
        run(&mut client, &["ACL", "SETUSER", "follower", "on", ">own", "+psync", "+replconf", "+ping"]);
        run(&mut client, &["ACL", "SETUSER", "weak", "on", ">own", "+ping"]);
        run(&mut own, &["CONFIG", "SET", "masteruser", "weak"]);
        run(&mut own, &["CONFIG", "SET", "masterauth", "own"]);
        replica.follow(primary.port());
        assert!(fails_with("NOPERM"), "{kind:?}: {}", replica.state());
        run(&mut own, &["CONFIG", "SET", "primaryuser", "follower"]);
        run(&mut client, &["SET", "k", "1"]);
        replica.wait_for_data_of(&primary, "as a user");
        assert!(!replica.process.log().contains("secret"), "{}", replica.process.log());
    }
}

/// Returns the options of a server that uses the certificate named `certificate` of `pki`.
pub(super) fn tls_options(pki: &Pki, certificate: &str) -> Vec<String> {
    let (file, key) = (format!("{certificate}.crt"), format!("{certificate}.key"));
    let pairs = [("cert", pki.text(&file)), ("key", pki.text(&key)), ("ca-cert", pki.text("ca.crt"))];
    pairs.into_iter().flat_map(|(name, path)| [format!("--tls-{name}-file"), path]).collect()
}

/// Starts a primary that listens for TLS; returns it with its TLS port. Returns `None` if its
/// program was built without TLS.
fn encrypted(kind: Kind, pki: &Pki, auth_clients: &str) -> Option<(Node, u16)> {
    let port = free_port().expect("a port is free");
    let mut options = tls_options(pki, "server");
    options.extend(["--tls-port", &port.to_string(), "--tls-auth-clients", auth_clients].map(str::to_owned));
    let words: Vec<&str> = options.iter().map(String::as_str).collect();
    if kind == Kind::Peer && testkit::peer::start_with(&words).is_err() {
        eprintln!("the peer has no TLS: it is not followed over TLS");
        return None;
    }
    Some((Node::start(kind, &words), port))
}

#[test]
fn a_link_over_tls_gives_the_same_data_after_syncs_and_cuts() {
    let pki = Pki::new();
    for (kind, auth_clients) in kinds().into_iter().flat_map(|kind| ["no", "yes"].map(|auth| (kind, auth))) {
        let Some((primary, tls_port)) = encrypted(kind, &pki, auth_clients) else { continue };
        let options = [tls_options(&pki, "client"), vec!["--tls-replication".into(), "yes".into()]].concat();
        let replica = Node::start(Kind::Own, &options.iter().map(String::as_str).collect::<Vec<_>>());
        let proxy = Proxy::start(tls_port).expect("a port is free");
        primary.fill(seed(), 4, &[]);
        run(&mut primary.connect(), &["SET", "big", &"b".repeat(3 << 20)]);
        for (diskless, load) in [("no", "disabled"), ("yes", "disabled"), ("yes", "swapdb"), ("no", "swapdb")]
        {
            run(&mut primary.connect(), &["CONFIG", "SET", "repl-diskless-sync", diskless]);
            run(&mut replica.connect(), &["CONFIG", "SET", "repl-diskless-load", load]);
            replica.leave();
            replica.follow(proxy.port());
            replica.wait_for_data_of(&primary, &format!("{kind:?}, diskless {diskless}, load {load}"));
        }
        let (mut rng, before) = (Rng::new(seed()), primary.syncs());
        for cut in 0..5 {
            proxy.cut_after(proxy.passed_bytes() + 1 + rng.below(30_000) as u64);
            write_stream(&mut primary.connect());
            assert!(happens(|| proxy.cuts() > cut), "seed {}: cut {cut} does not come", seed());
            replica.wait_for_data_of(&primary, &format!("{kind:?}, cut {cut}"));
        }
        assert_eq!(primary.syncs_since(before), (0, 5), "{kind:?}");
    }
}

#[test]
fn a_link_over_tls_needs_a_certificate_and_a_primary_that_speaks_tls() {
    let pki = Pki::new();
    let (primary, tls_port) = encrypted(Kind::Own, &pki, "yes").expect("it has TLS");
    // A certificate of another authority, with the primary's authority as the one to trust.
    let other = Pki::new();
    for file in ["client.crt", "client.key"] {
        std::fs::copy(other.path(file), pki.path(&file.replace("client", "stranger"))).expect("copied");
    }
    let options = [tls_options(&pki, "stranger"), vec!["--tls-replication".into(), "yes".into()]].concat();
    let replica = Node::start(Kind::Own, &options.iter().map(String::as_str).collect::<Vec<_>>());
    // A primary without TLS.
    replica.follow(primary.port());
    assert!(happens(|| !replica.link("master_link_last_error").is_empty()), "{}", replica.state());
    assert!(!replica.is_up());
    let proxy = Proxy::start(tls_port).expect("a port is free");
    replica.follow(proxy.port());
    assert!(happens(|| proxy.connections() > 1), "it does not try again: {}", replica.state());
    assert!(!replica.is_up());
    let pair = ["crt", "key"].map(|kind| pki.text(&format!("client.{kind}")));
    run(&mut replica.connect(), &["CONFIG", "SET", "tls-cert-file", &pair[0], "tls-key-file", &pair[1]]);
    replica.wait_for_data_of(&primary, "with a certificate");
}

#[test]
fn requests_are_refused_while_the_link_is_down_if_an_option_says_so() {
    for kind in kinds() {
        let primary = Node::start(kind, &[]);
        send_lines(&mut primary.connect(), ["SET k 1"]);
        let proxy = Proxy::start(primary.port()).expect("a port is free");
        let replica = Node::start(Kind::Own, &["--replica-serve-stale-data", "no"]);
        let mut own = replica.connect();
        let get = |own: &mut testkit::Client| notation::one_line(&own.command(&["GET", "k"]));
        replica.follow(proxy.port());
        replica.wait_for_data_of(&primary, "at first");
        assert_eq!(get(&mut own), "\"1\"");
        proxy.stall();
        proxy.cut();
        replica.wait_until_down();
        assert!(get(&mut own).contains("MASTERDOWN Link with MASTER is down"), "{}", get(&mut own));
        let set = notation::one_line(&own.command(&["SET", "k", "2"]));
        assert!(set.contains("MASTERDOWN") || set.contains("READONLY"), "{set}");
        for words in [&["INFO"][..], &["ROLE"], &["CONFIG", "GET", "replicaof"], &["SUBSCRIBE", "news"]] {
            run(&mut replica.connect(), words);
        }
        run(&mut own, &["CONFIG", "SET", "replica-serve-stale-data", "yes"]);
        assert_eq!(get(&mut own), "\"1\"");
        run(&mut own, &["CONFIG", "SET", "replica-serve-stale-data", "no"]);
        assert!(get(&mut own).contains("MASTERDOWN"));
        proxy.resume();
        replica.wait_until_up();
        assert_eq!(get(&mut own), "\"1\"");
        replica.promote();
        assert_eq!(own.command(&["SET", "k", "2"]), Value::Simple(b"OK".to_vec()));
    }
}
