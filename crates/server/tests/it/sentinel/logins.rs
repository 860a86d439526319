//! Sentinels and replicas that log in as users with the least rights, also over TLS.

use super::writers::{count_lost, with_writers};
use super::*;
use crate::tls::Pki;

/// The rights that Redis documents for a user of Sentinels.
const SENTINEL_USER: &str = "user sentinel-user on >watches allchannels +multi +slaveof +ping +exec +subscribe \
                             +config|rewrite +role +publish +info +client|setname +client|kill +script|kill";

/// Kills the primary while clients write, and starts it again. Waits until it follows the new
/// primary and has its data.
fn replace(set: &mut Watched) {
    let acknowledged = with_writers(set, |set, load| {
        load.wait_for_writes(set, &[0]);
        set.kill(0);
        set.wait_for_other(0);
        load.wait_for_writes(set, &[1, 2]);
        set.restart(0);
        set.wait_until_follows(0);
    });
    set.wait_until_equal();
    count_lost(set, &acknowledged);
}

#[test]
fn sentinels_and_replicas_log_in_with_a_password() {
    if is_without_peer() {
        return;
    }
    let mut set = Watched::start(Settings {
        servers: "requirepass secret\nmasterauth secret".to_owned(),
        sentinels: format!("sentinel auth-pass {NAME} secret"),
        login: vec!["secret"],
        ..Settings::default()
    });
    replace(&mut set);
}

#[test]
fn users_with_the_least_rights_suffice() {
    if is_without_peer() {
        return;
    }
    let mut set = Watched::start(Settings {
        servers: format!(
            "{SENTINEL_USER}\nuser replica-user on >follows +psync +replconf +ping\nuser default off\n\
             user app on >writes ~* &* +@all\nmasteruser replica-user\nmasterauth follows"
        ),
        sentinels: format!("sentinel auth-user {NAME} sentinel-user\nsentinel auth-pass {NAME} watches"),
        login: vec!["app", "writes"],
        ..Settings::default()
    });
    replace(&mut set);
    for at in 0..COUNT {
        let denied = set.connect(at).command(&["ACL", "LOG"]);
        assert_eq!(denied, Value::Array(vec![]), "{at}: {denied}");
    }
}

#[test]
fn everything_is_encrypted() {
    if is_without_peer() {
        return;
    }
    let pki = Pki::new();
    let of_server = |name: &str| {
        let file = |suffix: &str| pki.text(&format!("{name}.{suffix}"));
        let ca = pki.text("ca.crt");
        format!("tls-cert-file {}\ntls-key-file {}\ntls-ca-cert-file {ca}", file("crt"), file("key"))
    };
    let lines = of_server("server").lines().map(|line| format!("--{line}")).collect::<Vec<_>>().join(" ");
    if peer::start_with(&lines.split(' ').collect::<Vec<_>>()).is_err() {
        eprintln!("the peer has no TLS: its Sentinels do not connect over it");
        return;
    }
    let mut set = Watched::start(Settings {
        servers: of_server("server"),
        sentinels: of_server("server"),
        tls_ports: Some([(); COUNT].map(|()| free_port().expect("a port is free"))),
        ..Settings::default()
    });
    run(&mut set.connect(0), &["SET", "k", "v"]);
    set.kill(0);
    set.wait_for_other(0);
    set.restart(0);
    set.wait_until_equal();
}
