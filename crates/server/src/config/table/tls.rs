//! Options about encryption.

use super::NO_TLS;
use crate::config::option::{INT, Opt, PORT};

/// This theme's options.
pub static OPTIONS: &[&Opt] = &[
    &Opt::integer("tls-port", "0", PORT, "The TCP port for TLS; 0 for none.").accepted(NO_TLS),
    &Opt::file("tls-cert-file", "", "The server's certificate.").accepted(NO_TLS),
    &Opt::file("tls-key-file", "", "The key of the server's certificate.").accepted(NO_TLS),
    &Opt::text("tls-key-file-pass", "", "The password of that key.").accepted(NO_TLS),
    &Opt::file("tls-client-cert-file", "", "The certificate shown to other servers.").accepted(NO_TLS),
    &Opt::file("tls-client-key-file", "", "The key of that certificate.").accepted(NO_TLS),
    &Opt::text("tls-client-key-file-pass", "", "The password of that key.").accepted(NO_TLS),
    &Opt::file("tls-dh-params-file", "", "Diffie-Hellman parameters.").accepted(NO_TLS),
    &Opt::file("tls-ca-cert-file", "", "Certificates that clients' certificates must descend from.")
        .accepted(NO_TLS),
    &Opt::text("tls-ca-cert-dir", "", "A folder of such certificates.").of_folder().accepted(NO_TLS),
    &Opt::choice(
        "tls-auth-clients",
        "yes",
        &["no", "yes", "optional"],
        "Whether clients must show a certificate.",
    )
    .accepted(NO_TLS),
    &Opt::choice(
        "tls-auth-clients-user",
        "off",
        &["CN", "URI", "off"],
        "The field of a client's certificate that names its user.",
    )
    .accepted(NO_TLS),
    &Opt::integer(
        "tls-auto-reload-interval",
        "0",
        INT,
        "Seconds after which certificates are read again; 0 for never.",
    )
    .accepted(NO_TLS),
    &Opt::flag("tls-replication", "no", "Encrypt connections to the primary.").accepted(NO_TLS),
    &Opt::flag("tls-cluster", "no", "Encrypt the cluster's bus.").accepted(NO_TLS),
    &Opt::text("tls-protocols", "", "Permitted versions of TLS.").accepted(NO_TLS),
    &Opt::text("tls-ciphers", "", "Permitted ciphers up to TLS 1.2.").accepted(NO_TLS),
    &Opt::text("tls-ciphersuites", "", "Permitted ciphers of TLS 1.3.").accepted(NO_TLS),
    &Opt::flag("tls-prefer-server-ciphers", "no", "Choose by the server's order of ciphers.")
        .accepted(NO_TLS),
    &Opt::flag("tls-session-caching", "yes", "Let clients resume sessions.").accepted(NO_TLS),
    &Opt::integer("tls-session-cache-size", "20480", INT, "Sessions that may be resumed.").accepted(NO_TLS),
    &Opt::integer("tls-session-cache-timeout", "300", INT, "Seconds that a session may be resumed for.")
        .accepted(NO_TLS),
    &Opt::integer(
        "max-new-tls-connections-per-cycle",
        "1",
        (1, 1000),
        "TLS connections accepted in a turn of the event loop.",
    )
    .accepted(NO_TLS),
];
