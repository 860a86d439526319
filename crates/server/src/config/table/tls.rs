//! Options of TLS.

use std::path::Path;

use super::NO_REPLICATION;
use crate::config::choices::{AuthClients, CertificateUser};
use crate::config::handle::{Choice as _, Handle};
use crate::config::option::{self, INT, OnChange, Opt, Prepare};

/// The options of this theme.
pub static OPTIONS: &[&Opt] = &[
    &PORT.opt,
    &CERT_FILE.opt,
    &KEY_FILE.opt,
    &KEY_FILE_PASS.opt,
    &CLIENT_CERT_FILE.opt,
    &CLIENT_KEY_FILE.opt,
    &CLIENT_KEY_FILE_PASS.opt,
    &DH_PARAMS_FILE.opt,
    &CA_CERT_FILE.opt,
    &CA_CERT_DIR.opt,
    &AUTH_CLIENTS.opt,
    &AUTH_CLIENTS_USER.opt,
    &AUTO_RELOAD_INTERVAL.opt,
    &REPLICATION.opt,
    &CLUSTER.opt,
    &PROTOCOLS.opt,
    &CIPHERS.opt,
    &CIPHERSUITES.opt,
    &PREFER_SERVER_CIPHERS.opt,
    &SESSION_CACHING.opt,
    &SESSION_CACHE_SIZE.opt,
    &SESSION_CACHE_TIMEOUT.opt,
    &MAX_NEW_CONNECTIONS.opt,
];

/// The action when CONFIG SET changes an option other than the port.
const LOAD: OnChange = OnChange::Prepare(Prepare::Tls);

/// The TCP port for TLS; 0 for none.
pub static PORT: Handle<u16> = Opt::integer(
    "tls-port",
    "0",
    option::PORT,
    "The TCP port for TLS; 0 for none. Plain TCP has `port`, which may be 0.",
)
.on_change(OnChange::Prepare(Prepare::ListenOnTlsPort))
.typed();

/// The server's certificate.
pub static CERT_FILE: Handle<Path> = Opt::file(
    "tls-cert-file",
    "",
    "The server's certificate, PEM, with those between it and the authority behind it. CONFIG SET reads it \
     anew, even with the same name.",
)
.example("/etc/saker/tls/server.crt")
.on_change(LOAD)
.typed();

/// The private key of the server's certificate.
pub static KEY_FILE: Handle<Path> =
    Opt::file("tls-key-file", "", "The key of the server's certificate, PEM.")
        .example("/etc/saker/tls/server.key")
        .on_change(LOAD)
        .typed();

/// The password of the server's private key.
pub static KEY_FILE_PASS: Handle<[u8]> =
    Opt::text("tls-key-file-pass", "", "The password of that key, if it is encrypted.")
        .on_change(LOAD)
        .typed();

/// The certificate that the server shows to other servers.
pub static CLIENT_CERT_FILE: Handle<Path> = Opt::file(
    "tls-client-cert-file",
    "",
    "The certificate shown to other servers; without it, the server's own is shown.",
)
.on_change(LOAD)
.typed();

/// The private key of the certificate for other servers.
pub static CLIENT_KEY_FILE: Handle<Path> =
    Opt::file("tls-client-key-file", "", "The key of that certificate.").on_change(LOAD).typed();

/// The password of the private key for other servers.
pub static CLIENT_KEY_FILE_PASS: Handle<[u8]> =
    Opt::text("tls-client-key-file-pass", "", "The password of that key.").on_change(LOAD).typed();

/// The file of Diffie-Hellman parameters.
pub static DH_PARAMS_FILE: Handle<Path> = Opt::file("tls-dh-params-file", "", "Diffie-Hellman parameters.")
    .accepted("keys are agreed on elliptic curves only")
    .on_change(LOAD)
    .typed();

/// The certificates of the accepted authorities: one of them must have signed a peer's certificate.
pub static CA_CERT_FILE: Handle<Path> = Opt::file(
    "tls-ca-cert-file",
    "",
    "The certificates of authorities, PEM, that those of clients and other servers must descend from.",
)
.example("/etc/saker/tls/ca.crt")
.on_change(LOAD)
.typed();

/// A folder with further certificates of accepted authorities.
pub static CA_CERT_DIR: Handle<Path> =
    Opt::text("tls-ca-cert-dir", "", "A folder of such certificates.").of_folder().on_change(LOAD).typed();

/// The rule for certificates of clients.
pub static AUTH_CLIENTS: Handle<AuthClients> = Opt::choice(
    "tls-auth-clients",
    "yes",
    AuthClients::WORDS,
    "Whether clients must show a certificate that descends from an authority: `optional` checks those that are shown.",
)
.on_change(LOAD)
.typed();

/// The field of a client's certificate that names its user.
pub static AUTH_CLIENTS_USER: Handle<CertificateUser> = Opt::choice(
    "tls-auth-clients-user",
    "off",
    CertificateUser::WORDS,
    "The field of a client's certificate that names its user: the common name, or a URI of the alternative \
     names. A user of that name who is on is logged in; else the client is who it is without.",
)
.on_change(LOAD)
.typed();

/// The interval at which changed certificates are read again, in seconds; 0 for never.
pub static AUTO_RELOAD_INTERVAL: Handle<u64> = Opt::integer(
    "tls-auto-reload-interval",
    "0",
    INT,
    "Seconds after which certificates and keys are read again, if their files have changed; 0 for never.",
)
.typed();

/// `tls-replication`: true if connections to the primary are encrypted.
pub static REPLICATION: Handle<bool> =
    Opt::flag("tls-replication", "no", "Encrypt connections to the primary.")
        .accepted(NO_REPLICATION)
        .on_change(LOAD)
        .typed();

/// `tls-cluster`: true if connections to other nodes are encrypted.
pub static CLUSTER: Handle<bool> = Opt::flag(
    "tls-cluster",
    "no",
    "Encrypt the connections of MIGRATE; the cluster's bus too, once there is cluster mode.",
)
.on_change(LOAD)
.typed();

/// The permitted versions of TLS.
pub static PROTOCOLS: Handle<[u8]> = Opt::text(
    "tls-protocols",
    "",
    "Permitted versions of TLS, `TLSv1.2` and `TLSv1.3`; empty for both. Older ones are never offered.",
)
.example("TLSv1.3")
.on_change(LOAD)
.typed();

/// The permitted cipher suites of TLS 1.2.
pub static CIPHERS: Handle<[u8]> = Opt::text(
    "tls-ciphers",
    "",
    "Permitted suites of TLS 1.2, as a list of OpenSSL; empty for all of ECDHE with AES-GCM or ChaCha20-Poly1305.",
)
.example("ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256")
.on_change(LOAD)
.typed();

/// The permitted cipher suites of TLS 1.3.
pub static CIPHERSUITES: Handle<[u8]> = Opt::text(
    "tls-ciphersuites",
    "",
    "Permitted suites of TLS 1.3, in the order of preference; empty for all.",
)
.example("TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384")
.on_change(LOAD)
.typed();

/// `tls-prefer-server-ciphers`: true if the server's order of cipher suites decides, not the
/// client's.
pub static PREFER_SERVER_CIPHERS: Handle<bool> = Opt::flag(
    "tls-prefer-server-ciphers",
    "no",
    "Choose suites by the server's order instead of the client's.",
)
.on_change(LOAD)
.typed();

/// `tls-session-caching`: true if clients may resume sessions.
pub static SESSION_CACHING: Handle<bool> =
    Opt::flag("tls-session-caching", "yes", "Let clients resume sessions, by tickets or by identifiers.")
        .on_change(LOAD)
        .typed();

/// The maximum number of sessions in the cache, from which clients resume sessions by identifier.
pub static SESSION_CACHE_SIZE: Handle<usize> = Opt::integer(
    "tls-session-cache-size",
    "20480",
    INT,
    "Sessions that may be resumed by identifiers, which clients without tickets use; 0 for a million.",
)
.on_change(LOAD)
.typed();

/// The time for which a session may be resumed, in seconds.
pub static SESSION_CACHE_TIMEOUT: Handle<u32> =
    Opt::integer("tls-session-cache-timeout", "300", INT, "Seconds that a session may be resumed for.")
        .on_change(LOAD)
        .typed();

/// The maximum number of handshakes that a thread continues in one turn.
pub static MAX_NEW_CONNECTIONS: Handle<u64> = Opt::integer(
    "max-new-tls-connections-per-cycle",
    "1",
    (1, 1000),
    "TLS handshakes that each thread goes on with in a turn of its event loop: clients that are served wait \
     for these at most.",
)
.on_change(OnChange::Prepare(Prepare::TlsLimits))
.typed();
