//! The table of options for TLS.

use std::path::Path;

use crate::config::choices::{AuthClients, CertificateUser};
use crate::config::handle::{Choice as _, Handle};
use crate::config::option::{self, INT, OnChange, Opt, Prepare};

/// The options of this file, in the order of docs/options.md.
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

/// The action when CONFIG SET changes an option with files or rules of TLS: reads the files again.
const LOAD: OnChange = OnChange::Prepare(Prepare::Tls);

/// The port of the TLS listener; 0 turns the listener off.
pub static PORT: Handle<u16> = Opt::integer(
    "tls-port",
    "0",
    option::PORT,
    "The TCP port for TLS; 0 for none. To accept only TLS, set `port` to 0.",
)
.on_change(OnChange::Prepare(Prepare::ListenOnTlsPort))
.typed();

/// The file of the server's certificate.
pub static CERT_FILE: Handle<Path> = Opt::file(
    "tls-cert-file",
    "",
    "The file (PEM) with the server's certificate, followed by its intermediate certificates. \
         CONFIG SET reads the file again, even if the name is the same.",
)
.example("/etc/saker/tls/server.crt")
.on_change(LOAD)
.typed();

/// The file of the private key of the server's certificate.
pub static KEY_FILE: Handle<Path> =
    Opt::file("tls-key-file", "", "The file (PEM) with the private key of `tls-cert-file`.")
        .example("/etc/saker/tls/server.key")
        .on_change(LOAD)
        .typed();

/// The password of the file with the server's private key.
pub static KEY_FILE_PASS: Handle<[u8]> =
    Opt::text("tls-key-file-pass", "", "The password of `tls-key-file`, if the key is encrypted.")
        .on_change(LOAD)
        .typed();

/// The file of the certificate that this server shows when it connects to other servers; empty for
/// the server's own certificate.
pub static CLIENT_CERT_FILE: Handle<Path> = Opt::file(
    "tls-client-cert-file",
    "",
    "The file with the certificate for connections to other servers. If empty, `tls-cert-file` is \
         used.",
)
.on_change(LOAD)
.typed();

/// The file of the private key of the certificate in [`CLIENT_CERT_FILE`].
pub static CLIENT_KEY_FILE: Handle<Path> =
    Opt::file("tls-client-key-file", "", "The file with the private key of `tls-client-cert-file`.")
        .on_change(LOAD)
        .typed();

/// The password of the private key in [`CLIENT_KEY_FILE`].
pub static CLIENT_KEY_FILE_PASS: Handle<[u8]> = Opt::text(
    "tls-client-key-file-pass",
    "",
    "The password of `tls-client-key-file`, if the key is encrypted.",
)
.on_change(LOAD)
.typed();

/// The file of Diffie-Hellman parameters for TLS.
pub static DH_PARAMS_FILE: Handle<Path> =
    Opt::file("tls-dh-params-file", "", "The file with Diffie-Hellman parameters.")
        .accepted("Saker exchanges keys on elliptic curves only")
        .on_change(LOAD)
        .typed();

/// The file of certificates of authorities; one of them must have signed a peer's certificate.
pub static CA_CERT_FILE: Handle<Path> = Opt::file(
    "tls-ca-cert-file",
    "",
    "The file (PEM) with the certificates of trusted authorities. The certificates of clients and \
         other servers must descend from one of them.",
)
.example("/etc/saker/tls/ca.crt")
.on_change(LOAD)
.typed();

/// The folder of certificates of authorities, used in addition to [`CA_CERT_FILE`].
pub static CA_CERT_DIR: Handle<Path> = Opt::text(
    "tls-ca-cert-dir",
    "",
    "The folder with certificates of trusted authorities, in addition to `tls-ca-cert-file`.",
)
.of_folder()
.on_change(LOAD)
.typed();

/// The rule for certificates of clients.
pub static AUTH_CLIENTS: Handle<AuthClients> = Opt::choice(
    "tls-auth-clients",
    "yes",
    AuthClients::WORDS,
    "The rule for certificates of clients. `yes`: a client must send a certificate that descends \
         from a trusted authority. `optional`: a certificate is checked if the client sends one. \
         `no`: none is requested.",
)
.on_change(LOAD)
.typed();

/// The field of a client's certificate that names its user.
pub static AUTH_CLIENTS_USER: Handle<CertificateUser> = Opt::choice(
    "tls-auth-clients-user",
    "off",
    CertificateUser::WORDS,
    "The field of a client's certificate that names its user: the common name (`CN`) or a URI of \
         the alternative names (`URI`). If that user exists and is on, the client is logged in as \
         that user. With `off`, or without such a user, the certificate does not log the client in.",
)
.on_change(LOAD)
.typed();

/// The interval at which changed certificates are read again, in seconds; 0 for never.
pub static AUTO_RELOAD_INTERVAL: Handle<u64> = Opt::integer(
    "tls-auto-reload-interval",
    "0",
    INT,
    "The interval, in seconds, at which changed certificate and key files are read again; 0 for \
         never.",
)
.typed();

/// `tls-replication`: true if connections to the primary are encrypted.
pub static REPLICATION: Handle<bool> =
    Opt::flag("tls-replication", "no", "Encrypt connections to the primary.").on_change(LOAD).typed();

/// `tls-cluster`: true if the connections that MIGRATE opens to other servers are encrypted.
pub static CLUSTER: Handle<bool> = Opt::flag(
    "tls-cluster",
    "no",
    "Encrypt the connections that MIGRATE opens. Saker has no cluster bus yet.",
)
.on_change(LOAD)
.typed();

/// The permitted versions of TLS.
pub static PROTOCOLS: Handle<[u8]> = Opt::text(
    "tls-protocols",
    "",
    "The permitted versions of TLS: `TLSv1.2`, `TLSv1.3`, or both; empty for both. Older versions \
         are never offered.",
)
.example("TLSv1.3")
.on_change(LOAD)
.typed();

/// The permitted cipher suites of TLS 1.2.
pub static CIPHERS: Handle<[u8]> = Opt::text(
    "tls-ciphers",
    "",
    "The permitted cipher suites of TLS 1.2, in the syntax of OpenSSL. If empty, all suites with \
         ECDHE and AES-GCM or ChaCha20-Poly1305 are permitted.",
)
.example("ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256")
.on_change(LOAD)
.typed();

/// The permitted cipher suites of TLS 1.3.
pub static CIPHERSUITES: Handle<[u8]> = Opt::text(
    "tls-ciphersuites",
    "",
    "The permitted cipher suites of TLS 1.3, in order of preference; empty for all.",
)
.example("TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384")
.on_change(LOAD)
.typed();

/// `tls-prefer-server-ciphers`: true if the server's order of cipher suites decides, not the
/// client's.
pub static PREFER_SERVER_CIPHERS: Handle<bool> = Opt::flag(
    "tls-prefer-server-ciphers",
    "no",
    "Choose the cipher suite by the server's order of preference instead of the client's.",
)
.on_change(LOAD)
.typed();

/// `tls-session-caching`: true if clients may resume TLS sessions.
pub static SESSION_CACHING: Handle<bool> = Opt::flag(
    "tls-session-caching",
    "yes",
    "Let clients resume TLS sessions, with tickets or with session identifiers.",
)
.on_change(LOAD)
.typed();

/// The maximum number of TLS sessions that the server stores for clients that resume by identifier;
/// 0 for the largest possible number.
pub static SESSION_CACHE_SIZE: Handle<usize> = Opt::integer(
    "tls-session-cache-size",
    "20480",
    INT,
    "The maximum number of stored TLS sessions, for clients that resume with identifiers instead \
         of tickets. 0 stands for the largest number, about a million.",
)
.on_change(LOAD)
.typed();

/// The seconds after its creation for which a TLS session may be resumed; 0 for the longest
/// possible time.
pub static SESSION_CACHE_TIMEOUT: Handle<u32> = Opt::integer(
    "tls-session-cache-timeout",
    "300",
    INT,
    "The time, in seconds, for which a client may resume a TLS session; 0 for the longest possible time.",
)
.on_change(LOAD)
.typed();

/// The maximum number of TLS handshakes that an I/O thread continues in one turn of its loop.
pub static MAX_NEW_CONNECTIONS: Handle<u64> = Opt::integer(
    "max-new-tls-connections-per-cycle",
    "1",
    (1, 1000),
    "The maximum number of TLS handshakes that a thread continues in one turn of its event loop. \
         A larger number admits new clients faster, but connected clients wait longer.",
)
.on_change(OnChange::Prepare(Prepare::TlsLimits))
.typed();
