//! A property of TLS sessions that holds for any bytes of a peer, as a function for a fuzzer or a
//! plain loop of random inputs.

use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, ServerConfig};
use stdx::ByteQueue;

use super::config::{TlsServer, TlsSide};
use super::session::{Session, Step};

/// The TLS configurations of a server and a client for the test; the client trusts the server as
/// `localhost`.
pub struct Fixture {
    server: TlsServer,
    client: Arc<ClientConfig>,
}

/// The maximum number of received bytes that a TLS session may store: those of an incomplete
/// handshake or record.
const KEPT_LEN_BYTES_MAX: usize = 160 * 1024;

impl Fixture {
    /// Creates the test's data from the TLS configurations of a server and a client.
    pub fn new(server: ServerConfig, client: ClientConfig) -> Self {
        Self { server: TlsServer::new(server), client: Arc::new(client) }
    }

    /// Runs a TLS session with a client whose bytes are split and changed as `data` describes. The
    /// session must not panic or store too many bytes, and its plaintext must be a prefix of the
    /// client's data.
    ///
    /// # Panics
    /// If the property does not hold.
    pub fn run(&self, data: &[u8]) {
        let (&[mode, step, ..], rest) = data.split_at(data.len().min(2)) else { return };
        let mut session = Session::new(&TlsSide::Server(self.server.clone())).expect("a session");
        if mode % 4 == 0 {
            // The session gets only the bytes of the fuzzer.
            for piece in rest.chunks(usize::from(step) + 1) {
                session.keep(piece);
                let stepped = session.step();
                assert!(session.kept_len_bytes() <= KEPT_LEN_BYTES_MAX);
                if !matches!(stepped, Ok(Step::Waiting)) {
                    return;
                }
            }
            return;
        }
        let mut client = self.shake(&mut session);
        let sent: Vec<u8> = rest.iter().cycle().take(rest.len() * usize::from(mode)).copied().collect();
        client.set_buffer_limit(None);
        let mut records = Vec::new();
        for piece in sent.chunks(usize::from(step) * 97 + 1) {
            let _ = std::io::Write::write_all(&mut client.writer(), piece);
            while client.wants_write() {
                let _ = client.write_tls(&mut records);
            }
        }
        // Three bytes of the input describe the change of one byte of the stream.
        let changes = if mode % 4 == 1 { &[][..] } else { rest };
        for change in changes.chunks_exact(3).take(usize::from(mode % 7)) {
            let at = usize::from(u16::from_be_bytes([change[0], change[1]]));
            if let Some(byte) = records.get_mut(at) {
                *byte ^= change[2];
            }
        }
        let opened = open_all(&mut session, &records, usize::from(step) * 31 + 1);
        assert!(sent.starts_with(&opened), "plaintext that nobody sent");
        if changes.is_empty() {
            assert!(opened == sent, "plaintext was lost");
        }
        let mut out = Vec::new();
        let mut queue = ByteQueue::of_bytes(sent);
        let _ = session.seal(&mut queue, &mut out);
        let _ = session.last_words(None);
    }

    /// Performs a TLS handshake in memory between `session` and a new client. Returns the client.
    fn shake(&self, session: &mut Session) -> ClientConnection {
        let name = ServerName::try_from("localhost").expect("a name");
        let mut client = ClientConnection::new(Arc::clone(&self.client), name).expect("a client");
        while client.is_handshaking() || session.is_handshaking() {
            let mut bytes = Vec::new();
            while client.wants_write() {
                let _ = client.write_tls(&mut bytes);
            }
            session.keep(&bytes);
            assert!(session.step().is_ok(), "an honest handshake fails");
            bytes.clear();
            session.take_ready(&mut bytes);
            let mut bytes = bytes.as_slice();
            while !bytes.is_empty() {
                let _ = client.read_tls(&mut bytes);
                client.process_new_packets().expect("an honest answer");
            }
        }
        client
    }
}

/// Decrypts the TLS records `records` with `session`, `step` bytes at a time. Returns the data
/// before the first failure.
fn open_all(session: &mut Session, records: &[u8], step: usize) -> Vec<u8> {
    let mut opened = session.take_first_data();
    for piece in records.chunks(step) {
        if session.open(&mut piece.to_vec(), &mut opened).is_err() {
            return opened;
        }
        assert!(session.kept_len_bytes() <= KEPT_LEN_BYTES_MAX);
    }
    opened
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TlsFailure;

    fn fixture(version: &'static rustls::SupportedProtocolVersion) -> Fixture {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("made");
        let provider = || {
            let mut provider = rustls::crypto::aws_lc_rs::default_provider();
            provider.cipher_suites = crate::cipher_suites().to_vec();
            Arc::new(provider)
        };
        let key = rustls::pki_types::PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let server = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[version])
            .expect("a version")
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key.into())
            .expect("they fit");
        let mut roots = rustls::RootCertStore::empty();
        roots.add(made.cert.der().clone()).expect("a root");
        let client = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[version])
            .expect("a version")
            .with_root_certificates(roots)
            .with_no_client_auth();
        Fixture::new(server, client)
    }

    #[test]
    fn any_bytes_are_survived_and_honest_ones_arrive() {
        let mut random = 11_u64;
        let mut next = move || {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (random >> 33) as usize
        };
        for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
            let fixture = fixture(version);
            for _ in 0..150 {
                let data: Vec<u8> = (0..2 + next() % 600).map(|_| next() as u8).collect();
                fixture.run(&data);
            }
        }
    }

    #[test]
    fn a_key_that_has_sealed_its_blocks_ends_the_connection_with_a_notice() {
        let fixture = fixture(&rustls::version::TLS12);
        let mut session = Session::new(&TlsSide::Server(fixture.server.clone())).expect("a session");
        let mut client = fixture.shake(&mut session);
        // A record of 20 bytes takes 2 blocks, and 2 for its header and tag.
        session.set_blocks_left(2 * 4 + 3);
        let mut records = Vec::new();
        for _ in 0..2 {
            let outcome = session.seal(&mut ByteQueue::of_bytes(vec![7; 20]), &mut records);
            assert_eq!(outcome, Ok(()));
        }
        let outcome = session.seal(&mut ByteQueue::of_bytes(vec![7; 20]), &mut records);
        assert_eq!(outcome, Err(TlsFailure::KeysUsedUp));
        records.extend(session.last_words(Some(TlsFailure::KeysUsedUp)));
        let mut records = records.as_slice();
        let mut state = None;
        while !records.is_empty() {
            client.read_tls(&mut records).expect("bytes in memory");
            state = Some(client.process_new_packets().expect("whole records"));
        }
        let state = state.expect("there were records");
        assert_eq!((state.plaintext_bytes_to_read(), state.peer_has_closed()), (40, true));
    }
}
