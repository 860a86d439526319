//! TLS: the options, client certificates, reloading, resumption, big values and pipelines.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use net::{Backend, BackendChoice};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType};
use resp::{Value, decode, encode_request};
use rustls::crypto::aws_lc_rs::{self, default_provider, kx_group};
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, NamedGroup, RootCertStore, StreamOwned,
    SupportedProtocolVersion,
};
use server::{Builder, Server};
use tempfile::TempDir;

use super::support::{BINARY, connect, info};

/// A folder with the certificate of an authority and certificates signed by it, each with its key.
pub(crate) struct Pki {
    folder: TempDir,
    authority: CertifiedIssuer<'static, KeyPair>,
}

impl Pki {
    /// Creates an authority, and certificates of a server and of a client.
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority");
        let key = KeyPair::generate().expect("a key");
        let authority = CertifiedIssuer::self_signed(params, key).expect("signed");
        fs::write(folder.path().join("ca.crt"), authority.pem()).expect("written");
        let pki = Self { folder, authority };
        pki.sign("server", "localhost");
        pki.sign("client", "alice");
        pki
    }

    /// Signs a certificate for the common name `name`. Writes it and its key as `file`.crt and
    /// `file`.key.
    fn sign(&self, file: &str, name: &str) {
        self.sign_with_uris(file, name, &[]);
    }

    fn sign_with_uris(&self, file: &str, name: &str, uris: &[&str]) {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        params.distinguished_name.push(DnType::CommonName, name);
        let uris = uris.iter().map(|uri| SanType::URI((*uri).try_into().expect("ASCII")));
        params.subject_alt_names.extend(uris);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.authority).expect("signed");
        fs::write(self.path(&format!("{file}.crt")), certificate.pem()).expect("written");
        fs::write(self.path(&format!("{file}.key")), key.serialize_pem()).expect("written");
    }

    /// Returns the path of the file `file` in the folder.
    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    /// Returns the path of the file `file` in the folder, as text.
    pub(crate) fn text(&self, file: &str) -> String {
        self.path(file).display().to_string()
    }

    /// Returns a builder of a server that accepts clients without a certificate.
    fn builder(&self) -> Builder {
        Server::builder()
            .port(0)
            .tls_port(0)
            .io_threads(2)
            .option("tls-cert-file", &self.text("server.crt"))
            .option("tls-key-file", &self.text("server.key"))
            .option("tls-ca-cert-file", &self.text("ca.crt"))
            .option("tls-auth-clients", "no")
            .option("enable-debug-command", "yes")
    }

    fn client(&self) -> ClientOptions<'_> {
        let (versions, groups) = (rustls::ALL_VERSIONS, aws_lc_rs::DEFAULT_KX_GROUPS);
        ClientOptions { pki: self, certificate: None, versions, groups }
    }
}

#[derive(Clone)]
struct ClientOptions<'a> {
    pki: &'a Pki,
    certificate: Option<&'a str>,
    versions: &'static [&'static SupportedProtocolVersion],
    groups: &'static [&'static dyn SupportedKxGroup],
}

static TLS_12: &[&SupportedProtocolVersion] = &[&rustls::version::TLS12];
static TLS_13: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];

impl<'a> ClientOptions<'a> {
    fn with(self, certificate: &'a str) -> Self {
        Self { certificate: Some(certificate), ..self }
    }

    fn config(&self) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.pki.path("ca.crt")).expect("read")).expect("a root");
        let provider = CryptoProvider { kx_groups: self.groups.to_vec(), ..default_provider() };
        let builder = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(self.versions)
            .expect("versions")
            .with_root_certificates(roots);
        Arc::new(match self.certificate {
            None => builder.with_no_client_auth(),
            Some(file) => {
                let chain = CertificateDer::pem_file_iter(self.pki.path(&format!("{file}.crt")));
                let chain = chain.expect("read").map(|entry| entry.expect("a certificate")).collect();
                let key = PrivateKeyDer::from_pem_file(self.pki.path(&format!("{file}.key")));
                builder.with_client_auth_cert(chain, key.expect("a key")).expect("they fit")
            }
        })
    }

    fn connect(&self, server: &Server) -> Client {
        Client::new(&self.config(), server.tls_port())
    }

    /// Connects and sends PING. Returns the reply, or an error if the server rejects the
    /// connection.
    fn ping(&self, server: &Server) -> Result<Value, String> {
        self.connect(server).request(&["PING"])
    }
}

/// A RESP client over TLS whose reads block.
struct Client {
    stream: StreamOwned<ClientConnection, TcpStream>,
    input: Vec<u8>,
}

impl Client {
    fn new(config: &Arc<ClientConfig>, port: u16) -> Self {
        let tls = ClientConnection::new(Arc::clone(config), "localhost".try_into().expect("a name"));
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
        Self { stream: StreamOwned::new(tls.expect("a client"), stream), input: Vec::new() }
    }

    fn send(&mut self, args: &[&[u8]]) -> Result<(), String> {
        let mut request = Vec::new();
        encode_request(args, &mut request);
        self.stream.write_all(&request).map_err(|error| error.to_string())
    }

    fn read(&mut self) -> Result<Value, String> {
        let mut chunk = vec![0; 64 * 1024];
        let mut known = 0;
        loop {
            // A reply of megabytes is not parsed again after each of its records.
            if self.input.len() >= known
                && let Some((value, len)) = decode(&self.input).map_err(|error| error.to_string())?
            {
                self.input.drain(..len);
                return Ok(value);
            }
            known = if self.input.len() < 1 << 16 { 0 } else { self.input.len() + (1 << 20) };
            if self.input.starts_with(b"$16777216\r\n") {
                known = 16_777_216 + 13;
            }
            match self.stream.read(&mut chunk).map_err(|error| error.to_string())? {
                0 => return Err("the end".to_owned()),
                len => self.input.extend_from_slice(&chunk[..len]),
            }
        }
    }

    fn request(&mut self, args: &[&str]) -> Result<Value, String> {
        let args: Vec<&[u8]> = args.iter().map(|arg| arg.as_bytes()).collect();
        self.send(&args)?;
        self.read()
    }

    fn command(&mut self, args: &[&str]) -> Value {
        self.request(args).unwrap_or_else(|error| panic!("{args:?}: {error}"))
    }

    fn kind(&self) -> Option<HandshakeKind> {
        self.stream.conn.handshake_kind()
    }
}

fn on_each_back_end(builder: impl Fn() -> Builder, test: impl Fn(&Server)) {
    test(&builder().backend(BackendChoice::Epoll).start().expect("it starts"));
    let server = builder().backend(BackendChoice::Auto).start().expect("it starts");
    if server.backend() == Backend::IoUring {
        test(&server);
    }
}

fn bulk(text: &str) -> Value {
    Value::Bulk(text.as_bytes().to_vec())
}

fn error_of(value: Value) -> String {
    let Value::Error(error) = value else { panic!("{value:?} is no error") };
    String::from_utf8_lossy(&error).into_owned()
}

const PONG: fn() -> Value = || Value::Simple(b"PONG".to_vec());

#[test]
fn encrypted_clients_are_served_beside_plain_ones() {
    let pki = Pki::new();
    on_each_back_end(
        || pki.builder(),
        |server| {
            let (mut plain, mut encrypted) = (connect(server), pki.client().connect(server));
            assert_eq!(plain.command(&["SET", "a", "1"]), Value::Simple(b"OK".to_vec()));
            assert_eq!(encrypted.command(&["GET", "a"]), bulk("1"));
            // A pipeline.
            for number in 0..10_000 {
                encrypted.send(&[b"INCR", b"n"]).expect("sent");
                if number % 500 == 499 {
                    for reply in number - 499..=number {
                        assert_eq!(encrypted.read(), Ok(Value::Integer(reply + 1)));
                    }
                }
            }
            // Values of many records, in both directions.
            let value: Vec<u8> = (0..16 << 20).map(|at: u32| (at / 7) as u8).collect();
            for key in [&b"big"[..], b"big2"] {
                encrypted.send(&[b"SET", key, &value]).expect("sent");
                assert_eq!(encrypted.read(), Ok(Value::Simple(b"OK".to_vec())));
                encrypted.send(&[b"GET", key]).expect("sent");
                assert!(encrypted.read() == Ok(Value::Bulk(value.clone())), "the value came back changed");
            }
            // Push messages.
            let mut subscriber = pki.client().connect(server);
            subscriber.command(&["SUBSCRIBE", "news"]);
            for _ in 0..100 {
                plain.command(&["PUBLISH", "news", "hello"]);
            }
            for _ in 0..100 {
                let message = [bulk("message"), bulk("news"), bulk("hello")];
                assert_eq!(subscriber.read(), Ok(Value::Array(message.to_vec())));
            }
            assert!(
                info(&mut plain, "tls_full_handshakes") + info(&mut plain, "tls_resumed_handshakes") >= 2
            );
            let expires_in_s = info(&mut plain, "tls_server_cert_expires_in_seconds");
            assert!(expires_in_s > 86_400 * 365);
            let Value::Bulk(text) = plain.command(&["INFO", "server"]) else { panic!("INFO is a bulk") };
            let listener =
                format!("listener1:name=tls,bind=127.0.0.1,bind=::1,port={}\r\n", server.tls_port());
            assert!(String::from_utf8_lossy(&text).contains(&listener));
        },
    );
}

#[test]
fn certificates_of_clients_are_demanded_checked_or_ignored() {
    let pki = Pki::new();
    let stranger = Pki::new();
    for file in ["client.crt", "client.key"] {
        fs::copy(stranger.path(file), pki.path(&file.replace("client", "stranger"))).expect("copied");
    }
    on_each_back_end(
        || pki.builder(),
        |server| {
            let mut admin = connect(server);
            let all = |own: bool, none: bool, strange: bool| {
                for version in [TLS_12, TLS_13] {
                    let client = ClientOptions { versions: version, ..pki.client() };
                    assert_eq!(client.clone().with("client").ping(server).is_ok(), own);
                    assert_eq!(client.ping(server).is_ok(), none);
                    assert_eq!(client.with("stranger").ping(server).is_ok(), strange);
                }
            };
            all(true, true, true);
            admin.command(&["CONFIG", "SET", "tls-auth-clients", "yes"]);
            all(true, false, false);
            admin.command(&["CONFIG", "SET", "tls-auth-clients", "optional"]);
            all(true, true, false);
            // CA certificates in a folder.
            let folder = pki.text("authorities");
            fs::create_dir_all(&folder).expect("made");
            fs::copy(stranger.path("ca.crt"), pki.path("authorities/other.pem")).expect("copied");
            fs::write(pki.path("authorities/readme"), "nothing").expect("written");
            let set = ["CONFIG", "SET", "tls-ca-cert-dir", &folder, "tls-auth-clients", "yes"];
            assert_eq!(admin.command(&set), Value::Simple(b"OK".to_vec()));
            all(true, false, true);
            assert!(info(&mut admin, "tls_failed_handshakes") > 0);
        },
    );
}

#[test]
fn a_certificate_logs_its_user_in() {
    let pki = Pki::new();
    let server = pki.builder().option("tls-auth-clients", "optional").start().expect("it starts");
    let mut admin = connect(&server);
    pki.sign("nul", "alice\0.evil");
    let who = |certificate: &str| pki.client().with(certificate).connect(&server).command(&["ACL", "WHOAMI"]);
    admin.command(&["ACL", "SETUSER", "alice", "on", ">p", "+acl|whoami", "+ping"]);
    assert_eq!(who("client"), bulk("default"));
    admin.command(&["CONFIG", "SET", "tls-auth-clients-user", "CN"]);
    assert_eq!(who("client"), bulk("alice"));
    let mut alice = pki.client().with("client").connect(&server);
    assert!(error_of(alice.command(&["GET", "a"])).starts_with("NOPERM"));
    // A name with a zero byte, a disabled user or a missing user does not log in.
    assert_eq!(who("nul"), bulk("default"));
    assert_eq!(pki.client().connect(&server).command(&["ACL", "WHOAMI"]), bulk("default"));
    admin.command(&["ACL", "SETUSER", "alice", "off"]);
    assert_eq!(who("client"), bulk("default"));
    admin.command(&["ACL", "DELUSER", "alice"]);
    assert_eq!(who("client"), bulk("default"));
    admin.command(&["CONFIG", "SET", "requirepass", "secret"]);
    let mut refused = pki.client().with("client").connect(&server);
    assert!(error_of(refused.command(&["ACL", "WHOAMI"])).starts_with("NOAUTH"));
}

#[test]
fn a_uri_of_a_certificate_logs_its_user_in() {
    let pki = Pki::new();
    let folder = tempfile::tempdir().expect("a scratch folder");
    let path = folder.path().join("audit.log");
    let options = [("tls-auth-clients", "optional"), ("tls-auth-clients-user", "URI")];
    let builder = options.iter().fold(pki.builder(), |builder, (name, value)| builder.option(name, value));
    let server = builder.option("audit-log-file", &path.display().to_string()).start().expect("it starts");
    let mut admin = connect(&server);
    admin.command(&["ACL", "SETUSER", "urn:user:bob", "on", "+acl|whoami"]);
    admin.command(&["ACL", "SETUSER", "urn:user:off", "off", "+acl|whoami"]);
    admin.command(&["ACL", "SETUSER", "alice", "on", "+acl|whoami"]);
    let who = |certificate: &str| pki.client().with(certificate).connect(&server).command(&["ACL", "WHOAMI"]);
    // The first URI of an enabled user counts; the common name is ignored.
    pki.sign_with_uris("bob", "alice", &["urn:nobody", "urn:user:off", "urn:user:bob"]);
    pki.sign_with_uris("nul", "alice", &["urn:user:bob\0x", "urn:user:BOB"]);
    assert_eq!(who("bob"), bulk("urn:user:bob"));
    assert_eq!(who("nul"), bulk("default"));
    assert_eq!(who("client"), bulk("default"));
    server.stop();
    let audited = fs::read_to_string(&path).expect("written");
    assert!(audited.contains(r#""event":"auth","result":"allowed","user":"urn:user:bob""#), "{audited}");
    assert!(audited.contains(r#""command":"certificate""#) && audited.lines().count() == 1, "{audited}");
}

#[test]
fn sessions_are_resumed_while_their_clients_are_trusted() {
    let pki = Pki::new();
    let server = pki.builder().start().expect("it starts");
    let mut admin = connect(&server);
    for versions in [TLS_12, TLS_13] {
        let config = ClientOptions { versions, ..pki.client() }.with("client").config();
        let again = |expected: HandshakeKind| {
            let mut client = Client::new(&config, server.tls_port());
            assert_eq!(client.command(&["PING"]), PONG());
            assert_eq!(client.kind(), Some(expected));
        };
        admin.command(&["CONFIG", "SET", "tls-session-caching", "yes", "tls-auth-clients", "no"]);
        again(HandshakeKind::Full);
        again(HandshakeKind::Resumed);
        // A new certificate of the same server.
        admin.command(&["CONFIG", "SET", "tls-cert-file", &pki.text("server.crt")]);
        again(HandshakeKind::Resumed);
        admin.command(&["CONFIG", "SET", "tls-auth-clients", "yes"]);
        again(HandshakeKind::Full);
        again(HandshakeKind::Resumed);
        admin.command(&["CONFIG", "SET", "tls-session-caching", "no"]);
        again(HandshakeKind::Full);
        again(HandshakeKind::Full);
    }
    assert_eq!(info(&mut admin, "tls_resumed_handshakes"), 6);
}

#[test]
fn options_that_cannot_be_used_are_refused_and_nothing_changes() {
    let pki = Pki::new();
    let server = pki.builder().start().expect("it starts");
    let mut admin = connect(&server);
    let mut check = |pairs: &[&str], blamed: &str| {
        let refusal = error_of(admin.command(&[&["CONFIG", "SET"], pairs].concat()));
        let expected = format!(
            "ERR CONFIG SET failed (possibly related to argument '{blamed}') - Unable to update TLS \
             configuration. Check server logs."
        );
        assert_eq!(refusal, expected);
        assert_eq!(pki.client().ping(&server), Ok(PONG()));
    };
    check(&["tls-cert-file", "/does/not/exist"], "tls-cert-file");
    check(&["tls-cert-file", ""], "tls-cert-file");
    check(&["tls-key-file", &pki.text("ca.crt")], "tls-key-file");
    check(&["tls-key-file", &pki.text("client.key")], "tls-key-file");
    check(&["tls-ca-cert-file", &pki.text("server.key")], "tls-ca-cert-file");
    check(&["tls-ca-cert-file", "", "tls-auth-clients", "yes"], "tls-ca-cert-file");
    check(&["tls-protocols", "SSLv3"], "tls-protocols");
    check(&["tls-ciphers", "RC4-MD5"], "tls-ciphers");
    check(&["tls-ciphersuites", "TLS_NONE"], "tls-ciphersuites");
    check(&["tls-dh-params-file", "/does/not/exist"], "tls-dh-params-file");
    // Earlier changes of the same command are undone as well.
    let taken = server.port().to_string();
    let set = ["CONFIG", "SET", "tls-auth-clients", "yes", "tls-port", &taken];
    let refusal = error_of(admin.command(&set));
    assert!(
        refusal.ends_with("'tls-port') - Unable to listen on this port. Check server logs."),
        "{refusal}"
    );
    assert_eq!(pki.client().ping(&server), Ok(PONG()));
}

#[test]
fn versions_and_suites_are_those_of_the_options() {
    let pki = Pki::new();
    let server = pki.builder().option("tls-protocols", "TLSv1.3").start().expect("it starts");
    let mut admin = connect(&server);
    let older = ClientOptions { versions: TLS_12, ..pki.client() };
    assert!(older.ping(&server).is_err());
    admin.command(&["CONFIG", "SET", "tls-protocols", "TLSv1.2 TLSv1.3"]);
    assert!(older.ping(&server).is_ok());
    admin.command(&["CONFIG", "SET", "tls-protocols", "TLSv1.2"]);
    admin.command(&["CONFIG", "SET", "tls-ciphers", "ECDHE-ECDSA-CHACHA20-POLY1305"]);
    let mut client = pki.client().connect(&server);
    client.command(&["PING"]);
    let suite = client.stream.conn.negotiated_cipher_suite().expect("agreed");
    assert!(format!("{:?}", suite.suite()).contains("ECDSA_WITH_CHACHA20"));
    admin.command(&["CONFIG", "SET", "tls-protocols", "", "tls-ciphersuites", "TLS_AES_128_GCM_SHA256"]);
    let mut client = pki.client().connect(&server);
    client.command(&["PING"]);
    let suite = client.stream.conn.negotiated_cipher_suite().expect("agreed");
    assert!(format!("{:?}", suite.suite()).contains("TLS13_AES_128"));
}

#[test]
fn keys_are_exchanged_by_what_resists_quantum_computers_where_the_client_can() {
    static CLASSIC: &[&dyn SupportedKxGroup] = &[kx_group::X25519, kx_group::SECP256R1];
    let pki = Pki::new();
    let server = pki.builder().start().expect("it starts");
    for (versions, groups, expected) in [
        (TLS_13, aws_lc_rs::DEFAULT_KX_GROUPS, NamedGroup::X25519MLKEM768),
        (TLS_13, CLASSIC, NamedGroup::X25519),
        (TLS_12, aws_lc_rs::DEFAULT_KX_GROUPS, NamedGroup::X25519),
    ] {
        let mut client = ClientOptions { versions, groups, ..pki.client() }.connect(&server);
        assert_eq!(client.command(&["PING"]), PONG());
        let group = client.stream.conn.negotiated_key_exchange_group().expect("agreed");
        assert_eq!(group.name(), expected);
    }
}

/// Returns the certificate that the server presents to a client.
fn shown(pki: &Pki, server: &Server) -> Vec<u8> {
    let mut client = pki.client().connect(server);
    client.command(&["PING"]);
    client.stream.conn.peer_certificates().expect("shown")[0].to_vec()
}

fn der(path: &Path) -> Vec<u8> {
    CertificateDer::from_pem_file(path).expect("read").to_vec()
}

#[test]
fn certificates_are_read_again_by_config_set_and_by_interval_under_load() {
    let pki = Pki::new();
    let server = pki.builder().option("tls-session-caching", "no").start().expect("it starts");
    let mut admin = connect(&server);
    let mut client = pki.client().connect(&server);
    for _ in 0..20 {
        pki.sign("server", "localhost");
        admin.command(&["CONFIG", "SET", "tls-cert-file", &pki.text("server.crt")]);
        assert_eq!(shown(&pki, &server), der(&pki.path("server.crt")));
        assert_eq!(client.command(&["PING"]), PONG());
    }
    admin.command(&["CONFIG", "SET", "tls-auto-reload-interval", "1"]);
    // A half-written certificate is not used, nor is a key without its certificate.
    fs::write(pki.path("server.crt"), "-----BEGIN CERT").expect("written");
    let before = shown(&pki, &server);
    std::thread::sleep(Duration::from_millis(2200));
    assert_eq!(shown(&pki, &server), before);
    pki.sign("server", "localhost");
    let deadline = Instant::now() + Duration::from_secs(60);
    while shown(&pki, &server) != der(&pki.path("server.crt")) {
        assert!(Instant::now() < deadline, "it was never read");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(client.command(&["PING"]), PONG());
}

#[test]
fn tls_can_be_turned_on_moved_and_off() {
    let pki = Pki::new();
    let builder = || Server::builder().port(0).io_threads(1).option("tls-auth-clients", "no");
    let server = builder().start().expect("it starts");
    let mut admin = connect(&server);
    let port = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        free.local_addr().expect("bound").port().to_string()
    };
    let refusal = error_of(admin.command(&["CONFIG", "SET", "tls-port", &port]));
    assert!(refusal.contains("Unable to update TLS configuration"), "{refusal}");
    let (certificate, key) = (pki.text("server.crt"), pki.text("server.key"));
    admin.command(&["CONFIG", "SET", "tls-cert-file", &certificate, "tls-key-file", &key]);
    admin.command(&["CONFIG", "SET", "tls-port", &port]);
    let mut client = pki.client().connect(&server);
    assert_eq!(client.command(&["CONFIG", "SET", "port", "0"]), Value::Simple(b"OK".to_vec()));
    assert_eq!((server.port(), server.tls_port().to_string()), (0, port.clone()));
    // The health check of a container, with the same options.
    let check = |certificate: &str| {
        let options = ["--healthcheck", "--port", "0", "--tls-port", &port, "--tls-cert-file", certificate];
        Command::new(BINARY).args(options).args(["--tls-key-file", &key]).output().expect("runs")
    };
    let healthy = check(&certificate);
    assert!(healthy.status.success(), "{}", String::from_utf8_lossy(&healthy.stderr));
    assert!(!check(&pki.text("ca.crt")).status.success());
    assert_eq!(client.command(&["PING"]), PONG());
    // A failed start reports the reason.
    let failed = builder().tls_port(0).start().err().expect("it cannot").to_string();
    assert_eq!(failed, "Failed to configure TLS: No tls-cert-file configured!");
}

/// Runs `openssl s_client` with `options` and returns its output; `None` if openssl is not
/// installed. Each line of `dialogue` is sent when the output since the line before contains the
/// text in front of it. The input ends when the output contains `last`, or with the connection.
fn s_client(server: &Server, options: &[&str], dialogue: &[(&str, &str)], last: &str) -> Option<String> {
    let connect = format!("127.0.0.1:{}", server.tls_port());
    let (mut output, writer) = std::io::pipe().expect("a pipe");
    let mut child = Command::new("openssl")
        .args(["s_client", "-connect", &connect])
        .args(options)
        .stdin(Stdio::piped())
        .stdout(writer.try_clone().expect("copied"))
        .stderr(writer)
        .spawn()
        .ok()?;
    let mut stdin = child.stdin.take();
    let (mut said, mut from, mut chunk) = (String::new(), 0, [0; 4096]);
    // A line that s_client interprets as a command must arrive alone, so each line waits.
    for (expected, line) in dialogue.iter().copied().chain([(last, "")]) {
        while !said[from..].contains(expected) {
            match output.read(&mut chunk) {
                Ok(len @ 1..) => said += &String::from_utf8_lossy(&chunk[..len]),
                _ => break,
            }
        }
        from = said.len();
        // If the connection has ended, openssl no longer reads.
        let _ = stdin.as_mut().expect("piped").write_all(line.as_bytes());
    }
    drop(stdin.take());
    let mut rest = Vec::new();
    output.read_to_end(&mut rest).expect("its output");
    child.wait().expect("ends");
    Some(said + &String::from_utf8_lossy(&rest))
}

#[test]
fn openssl_finds_no_weakness() {
    let pki = Pki::new();
    on_each_back_end(
        || pki.builder(),
        |server| {
            let level = ["-cipher", "ALL:@SECLEVEL=0"];
            for version in ["-tls1", "-tls1_1"] {
                let Some(said) = s_client(server, &[&[version], &level[..]].concat(), &[], "") else {
                    println!("skipped: there is no openssl");
                    return;
                };
                assert!(!said.contains("BEGIN CERTIFICATE"), "{version}: {said}");
            }
            for (version, cipher) in
                [("-tls1_2", "ECDHE-ECDSA-AES256-GCM-SHA384"), ("-tls1_3", "TLS_AES_256_GCM_SHA384")]
            {
                let ping = [("", "PING\r\n")];
                let said = s_client(server, &[version], &ping, "+PONG").unwrap_or_default();
                assert!(said.contains("+PONG"), "{version}: {said}");
                assert!(said.contains("Compression: NONE"), "{version}: {said}");
                assert!(said.contains(cipher), "{version}: {said}");
            }
            for weak in [
                "AES256-SHA",
                "ECDHE-ECDSA-AES128-SHA256",
                "DHE-RSA-AES128-GCM-SHA256",
                "NULL-SHA256",
                "aNULL",
            ] {
                let cipher = format!("{weak}:@SECLEVEL=0");
                let said = s_client(server, &["-tls1_2", "-cipher", &cipher], &[], "").unwrap_or_default();
                assert!(!said.contains("BEGIN CERTIFICATE"), "{weak}: {said}");
            }
            // A line with R requests a new handshake.
            let ready = "Verify return code";
            let dialogue = [(ready, "R\n"), ("RENEGOTIATING", "PING\r\n")];
            let said = s_client(server, &["-tls1_2"], &dialogue, "+PONG").unwrap_or_default();
            assert!(said.contains("RENEGOTIATING") && !said.contains("+PONG"), "{said}");
            // A line with K requests that both sides change their keys.
            let dialogue = [(ready, "K\n"), ("KEYUPDATE", "PING\r\n")];
            let said = s_client(server, &["-tls1_3"], &dialogue, "+PONG").unwrap_or_default();
            assert!(said.contains("KEYUPDATE") && said.contains("+PONG"), "{said}");
        },
    );
}

#[test]
fn keys_migrate_over_tls_where_tls_cluster_says_so() {
    let pki = Pki::new();
    // It requires a certificate, and the source has one.
    let target = pki.builder().option("tls-auth-clients", "yes").start().expect("it starts");
    let stranger = Pki::new().builder().start().expect("it starts");
    let source = pki.builder().option("tls-cluster", "yes").start().expect("it starts");
    let mut client = connect(&source);
    let mut migrate = |port: u16, value: &str| {
        client.command(&["SET", "key", value]);
        client.command(&["MIGRATE", "127.0.0.1", &port.to_string(), "key", "0", "5000", "REPLACE"])
    };
    let ok = Value::Simple(b"OK".to_vec());
    let refused = Value::Error(b"IOERR error or timeout connecting to the client".to_vec());
    assert_eq!(migrate(target.tls_port(), "encrypted"), ok);
    assert_eq!(connect(&target).command(&["GET", "key"]), Value::Bulk(b"encrypted".to_vec()));
    // Over the same connection from the pool.
    assert_eq!(migrate(target.tls_port(), "again"), ok);
    assert_eq!(connect(&target).command(&["GET", "key"]), Value::Bulk(b"again".to_vec()));
    // A target without TLS, and one with an untrusted certificate.
    assert_eq!(migrate(target.port(), "lost"), refused);
    assert_eq!(migrate(stranger.tls_port(), "lost"), refused);
    assert_eq!(client.command(&["GET", "key"]), Value::Bulk(b"lost".to_vec()));
    assert_eq!(client.command(&["CONFIG", "SET", "tls-cluster", "no"]), ok);
    assert_eq!(
        client.command(&["MIGRATE", "127.0.0.1", &target.port().to_string(), "key", "0", "5000", "REPLACE"]),
        ok
    );
    assert_eq!(connect(&target).command(&["GET", "key"]), Value::Bulk(b"lost".to_vec()));
}
