//! The sources of the public keys of an identity provider: a file, or a web server.
//!
//! The client is ureq: HTTP/1.1 over rustls, without an asynchronous runtime. Only the thread
//! `oidc-keys` uses it. It follows no redirects. The constants below limit its bytes and its time.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::aws_lc_rs;
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};

use super::token::{Keys, KeysError};

/// Maximum length of a text with the identity provider's public keys, in bytes.
const KEYS_BYTES_MAX: u64 = 256 << 10;
/// Maximum duration of a request for the public keys to the identity provider's web server.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);

/// The reason why the identity provider's public keys were not read again: a sentence for the log.
#[derive(Debug)]
pub enum FetchError {
    /// The file with the identity provider's public keys cannot be read.
    File(io::Error),
    /// The identity provider's web server does not return the public keys.
    Web(String),
    /// The text from the file or the web server has no usable public keys.
    Keys(KeysError),
}

impl std::fmt::Display for FetchError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(error) => error.fmt(f),
            Self::Web(error) => f.write_str(error),
            Self::Keys(error) => error.fmt(f),
        }
    }
}

/// Reads the public keys of the identity provider from the file at `path`.
pub fn from_file(path: &Path) -> Result<Keys, FetchError> {
    let mut text = Vec::new();
    let file = File::open(path).map_err(FetchError::File)?;
    file.take(KEYS_BYTES_MAX + 1).read_to_end(&mut text).map_err(FetchError::File)?;
    if text.len() as u64 > KEYS_BYTES_MAX {
        return Err(FetchError::File(io::Error::other(format!(
            "the key set has more than {KEYS_BYTES_MAX} bytes"
        ))));
    }
    Keys::parse(&text).map_err(FetchError::Keys)
}

/// An HTTP client that fetches public keys from the identity provider's web server.
pub struct WebSource {
    agent: ureq::Agent,
    url: String,
}

impl WebSource {
    /// Creates a client for the address `url`. The web server's certificate is checked against the
    /// certificates of `ca_file`; without a file, against the authorities that browsers trust.
    pub fn new(url: &str, ca_file: Option<&Path>) -> io::Result<Self> {
        let cryptography = Arc::new(aws_lc_rs::default_provider());
        let mut tls = TlsConfig::builder().unversioned_rustls_crypto_provider(cryptography);
        if let Some(path) = ca_file {
            let pem = std::fs::read(path)?;
            let items = parse_pem(&pem).filter_map(|item| match item {
                Ok(PemItem::Certificate(certificate)) => Some(certificate),
                _ => None,
            });
            let certificates: Vec<_> = items.collect();
            if certificates.is_empty() {
                return Err(io::Error::other("the file has no certificate"));
            }
            tls = tls.root_certs(RootCerts::Specific(Arc::new(certificates)));
        }
        let config = ureq::Agent::config_builder()
            .tls_config(tls.build())
            .timeout_global(Some(FETCH_TIMEOUT))
            .max_redirects(0)
            .proxy(None)
            .user_agent("saker")
            .build();
        Ok(Self { agent: config.new_agent(), url: url.to_owned() })
    }

    /// Requests the public keys from the identity provider's web server. Blocks until the server
    /// answers, at most for [`FETCH_TIMEOUT`].
    pub fn keys(&self) -> Result<Keys, FetchError> {
        let failed = |error: ureq::Error| FetchError::Web(error.to_string());
        let mut response = self.agent.get(&self.url).call().map_err(failed)?;
        if response.status().as_u16() != 200 {
            return Err(FetchError::Web(format!("the web server replied {}", response.status())));
        }
        let body = response.body_mut().with_config().limit(KEYS_BYTES_MAX).read_to_vec().map_err(failed)?;
        Keys::parse(&body).map_err(FetchError::Keys)
    }
}

/// Returns true if the server may request the identity provider's public keys from this address:
/// over TLS, or from this machine. From any other address, an attacker on the network could replace
/// the keys.
pub fn is_safe(url: &str) -> bool {
    if url.starts_with("https://") {
        return true;
    }
    let Some(rest) = url.strip_prefix("http://") else { return false };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    // A user name and password before the host could hide the name of the real host.
    let host = host
        .rsplit_once(':')
        .filter(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()))
        .map_or(host, |(host, _)| host);
    matches!(host, "localhost" | "127.0.0.1" | "[::1]")
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use super::super::token::tests::Signer;
    use super::*;

    /// Starts a web server that answers one request with the bytes `answer`. Returns its URL.
    fn serve(answer: Vec<u8>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("it listens");
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("one comes");
            let mut request = [0; 4096];
            let _ = stream.read(&mut request);
            let _ = stream.write_all(&answer);
        });
        format!("http://{address}/keys")
    }

    fn answer(status: &str, body: &[u8]) -> Vec<u8> {
        let head =
            format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
        [head.as_bytes(), body].concat()
    }

    fn fetch(answer: Vec<u8>) -> Result<usize, String> {
        let source = WebSource::new(&serve(answer), None).expect("no file");
        source.keys().map(|keys| keys.len()).map_err(|error| error.to_string())
    }

    #[test]
    fn keys_come_from_a_web_server() {
        let keys = serde_json::json!({"keys": [Signer::p256().public("1")]}).to_string();
        assert_eq!(fetch(answer("200 OK", keys.as_bytes())), Ok(1));
        assert!(fetch(answer("404 Not Found", keys.as_bytes())).is_err());
        assert!(fetch(answer("302 Found\r\nLocation: http://127.0.0.1:1/", b"")).is_err());
        assert!(fetch(answer("200 OK", b"<html>")).is_err_and(|error| error.contains("not a key set")));
        assert!(fetch(b"garbage".to_vec()).is_err());
        assert!(fetch(answer("200 OK", &vec![b' '; 300 << 10])).is_err());
    }

    #[test]
    fn keys_come_from_a_file() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let path = folder.path().join("keys.json");
        assert!(matches!(from_file(&path), Err(FetchError::File(_))));
        std::fs::write(&path, serde_json::json!({"keys": [Signer::ed25519().public("1")]}).to_string())
            .expect("written");
        assert_eq!(from_file(&path).map(|keys| keys.len()).ok(), Some(1));
        std::fs::write(&path, vec![b' '; 300 << 10]).expect("written");
        assert!(from_file(&path).is_err_and(|error| error.to_string().contains("more than")));
        assert!(WebSource::new("https://localhost/", Some(&path)).is_err());
    }

    #[test]
    fn keys_are_asked_for_over_tls_or_on_this_machine() {
        for safe in [
            "https://issuer.example/keys",
            "http://localhost:8080/keys",
            "http://127.0.0.1/",
            "http://[::1]:1/x",
        ] {
            assert!(is_safe(safe), "{safe}");
        }
        let unsafe_ones = [
            "http://issuer.example/",
            "http://localhost.example/",
            "http://localhost@issuer.example/",
            "ftp://localhost",
            "",
        ];
        for url in unsafe_ones {
            assert!(!is_safe(url), "{url}");
        }
    }
}
