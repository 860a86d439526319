//! The TLS options, checked and converted to the configurations of servers and clients.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, ServerConfig,
    SignatureScheme,
};

use super::certificate::{self, Facts};
use super::resumption::Resumption;
use super::{ciphers, files};
use crate::config::ConfigStore;
use crate::config::choices::AuthClients;
use crate::config::handle::Choice as _;
use crate::config::table::tls as options;

/// The file and the folder with the certificates of the trusted authorities.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Authorities {
    file: PathBuf,
    folder: PathBuf,
}

/// The files of a certificate and of its private key, and the key's password.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Identity {
    certificate: PathBuf,
    key: PathBuf,
    password: Vec<u8>,
}

/// The values of the TLS options.
#[derive(Clone, Debug)]
pub struct TlsSettings {
    identity: Identity,
    /// The files of the certificate for connections to other servers: the server's own unless
    /// another is configured.
    client_identity: Identity,
    authorities: Authorities,
    auth_clients: AuthClients,
    needs_authorities: bool,
    protocols: String,
    ciphers: String,
    ciphersuites: String,
    prefers_own_order: bool,
    dh_params: PathBuf,
    caching: Option<(usize, u32)>,
}

/// The configuration for listeners that was built from the options, and facts about it.
pub struct Built {
    /// The configuration of the TLS listeners, in the form of rustls.
    pub server: ServerConfig,
    /// The facts of three certificates: the server's, the one for connections to other servers, and
    /// the first authority's. The second is `None` if these connections use the server's
    /// certificate.
    pub facts: [Option<Facts>; 3],
    /// The state of the TLS sessions that clients may resume; `None` with `tls-session-caching no`.
    pub resumption: Option<Resumption>,
    /// A hash of the settings that decide which clients are trusted. Clients may resume their
    /// sessions after a change of the configuration if the hash is the same.
    pub trust: u64,
}

impl TlsSettings {
    /// Reads the options of `store`. Paths are relative to the working folder of the process.
    pub fn of(store: &ConfigStore) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let identity = Identity {
            certificate: options::CERT_FILE.of(store).to_owned(),
            key: options::KEY_FILE.of(store).to_owned(),
            password: options::KEY_FILE_PASS.of(store).to_vec(),
        };
        let client = Identity {
            certificate: options::CLIENT_CERT_FILE.of(store).to_owned(),
            key: options::CLIENT_KEY_FILE.of(store).to_owned(),
            password: options::CLIENT_KEY_FILE_PASS.of(store).to_vec(),
        };
        let auth_clients = options::AUTH_CLIENTS.of(store);
        let size_and_timeout =
            (options::SESSION_CACHE_SIZE.of(store), options::SESSION_CACHE_TIMEOUT.of(store));
        Self {
            client_identity: if client.certificate.as_os_str().is_empty() {
                identity.clone()
            } else {
                client
            },
            identity,
            authorities: Authorities {
                file: options::CA_CERT_FILE.of(store).to_owned(),
                folder: options::CA_CERT_DIR.of(store).to_owned(),
            },
            auth_clients,
            needs_authorities: auth_clients != AuthClients::No
                || options::REPLICATION.of(store)
                || options::CLUSTER.of(store),
            protocols: text(options::PROTOCOLS.of(store)),
            ciphers: text(options::CIPHERS.of(store)),
            ciphersuites: text(options::CIPHERSUITES.of(store)),
            prefers_own_order: options::PREFER_SERVER_CIPHERS.of(store),
            dh_params: options::DH_PARAMS_FILE.of(store).to_owned(),
            caching: options::SESSION_CACHING.of(store).then_some(size_and_timeout),
        }
    }

    /// Returns the files of certificates and keys that the options name, with the files of
    /// `tls-ca-cert-dir`.
    pub fn files(&self) -> Vec<PathBuf> {
        let Identity { certificate, key, .. } = &self.client_identity;
        let own = &self.identity;
        let mut files: Vec<PathBuf> =
            [&own.certificate, &own.key, certificate, key, &self.authorities.file].map(Clone::clone).into();
        files.extend(folder_files(&self.authorities.folder));
        files.retain(|file| !file.as_os_str().is_empty());
        files
    }

    /// Builds the configuration for listeners. The sessions in `earlier` can still be resumed if
    /// the settings of trust have the hash in `earlier`. An error is a text for the log.
    pub fn build(&self, earlier: Option<&(Resumption, u64)>) -> Result<Built, String> {
        if self.identity.certificate.as_os_str().is_empty() {
            return Err("No tls-cert-file configured!".to_owned());
        }
        if self.identity.key.as_os_str().is_empty() {
            return Err("No tls-key-file configured!".to_owned());
        }
        if self.needs_authorities && self.authorities.is_empty() {
            return Err("Either tls-ca-cert-file or tls-ca-cert-dir must be specified when tls-cluster, \
                        tls-replication or tls-auth-clients are enabled!"
                .to_owned());
        }
        if !self.dh_params.as_os_str().is_empty()
            && let Err(error) = std::fs::metadata(&self.dh_params)
        {
            return Err(format!("Failed to load {}: {error}", self.dh_params.display()));
        }
        let (provider, versions) = self.provider()?;
        let authorities = self.authorities.load()?;
        let (chain, key) = self.identity.load()?;
        let own_facts = Facts::of(&chain[0]);
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&versions)
            .map_err(|error| error.to_string())?;
        let builder = match self.verifier(&provider, &authorities)? {
            Some(verifier) => builder.with_client_cert_verifier(verifier),
            None => builder.with_no_client_auth(),
        };
        let (certificate, file) = (self.identity.certificate.display(), self.identity.key.display());
        let pair = certified(&provider, chain, key)
            .map_err(|error| format!("Failed to use certificate {certificate} with key {file}: {error}"))?;
        let mut server = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(pair)));
        server.ignore_client_order = self.prefers_own_order;
        let trust = self.trust(&authorities);
        let resumption = match (self.caching, earlier) {
            (None, _) => None,
            (_, Some((resumption, earlier))) if *earlier == trust => Some(resumption.clone()),
            (Some((size, timeout_s)), _) => Some(Resumption::new(size, timeout_s)?),
        };
        Resumption::put_into(resumption.as_ref(), &mut server);
        let client_facts = match self.client_identity == self.identity {
            true => None,
            // As in Redis, this certificate is loaded when it is needed.
            false => files::certificates(&self.client_identity.certificate)
                .ok()
                .and_then(|chain| Facts::of(&chain[0])),
        };
        let authority_facts = authorities.first().and_then(Facts::of);
        Ok(Built { server, facts: [own_facts, client_facts, authority_facts], resumption, trust })
    }

    /// Builds the configuration for connections to other servers. The configured authorities must
    /// have issued the certificates of these servers. The names in them are not checked, as in
    /// Redis.
    pub fn build_client(&self) -> Result<ClientConfig, String> {
        if self.authorities.is_empty() {
            return Err("Either tls-ca-cert-file or tls-ca-cert-dir must be specified".to_owned());
        }
        let roots = self.authorities.load()?;
        self.client(Trust::Authorities(roots))
    }

    /// Builds the configuration of the health check, which connects to a server that runs with the
    /// same options. The server must present the certificate of `tls-cert-file`. The only secret
    /// that the check sends is the password.
    pub fn build_check(&self) -> Result<ClientConfig, String> {
        let chain = files::certificates(&self.identity.certificate)
            .map_err(|error| format!("{}: {error}", self.identity.certificate.display()))?;
        self.client(Trust::Exactly(chain))
    }

    fn client(&self, trust: Trust) -> Result<ClientConfig, String> {
        let (provider, versions) = self.provider()?;
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&versions)
            .map_err(|error| error.to_string())?;
        let verifier = AnyName::new(trust, provider.signature_verification_algorithms)?;
        let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
        if self.client_identity.certificate.as_os_str().is_empty() {
            return Ok(builder.with_no_client_auth());
        }
        let (chain, key) = self.client_identity.load()?;
        builder.with_client_auth_cert(chain, key).map_err(|error| error.to_string())
    }

    /// Returns the permitted cipher suites and the permitted versions of TLS.
    fn provider(
        &self,
    ) -> Result<(Arc<CryptoProvider>, Vec<&'static rustls::SupportedProtocolVersion>), String> {
        let versions = ciphers::versions(&self.protocols)?;
        let mut provider = default_provider();
        provider.cipher_suites = ciphers::suites_13(&self.ciphersuites)?;
        provider.cipher_suites.extend(ciphers::suites_12(&self.ciphers)?);
        Ok((Arc::new(provider), versions))
    }

    /// Returns the verifier of client certificates; `None` with `tls-auth-clients no`.
    fn verifier(
        &self,
        provider: &Arc<CryptoProvider>,
        authorities: &[CertificateDer<'static>],
    ) -> Result<Option<Arc<dyn ClientCertVerifier>>, String> {
        if self.auth_clients == AuthClients::No {
            return Ok(None);
        }
        let roots = Arc::new(roots(authorities)?);
        let builder = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(provider));
        let builder = match self.auth_clients {
            AuthClients::Optional => builder.allow_unauthenticated(),
            AuthClients::Yes | AuthClients::No => builder,
        };
        Ok(Some(builder.build().map_err(|error| error.to_string())?))
    }

    /// Hashes the settings that decide which clients are trusted and may resume sessions.
    fn trust(&self, authorities: &[CertificateDer<'static>]) -> u64 {
        let mut hasher = DefaultHasher::new();
        for certificate in authorities {
            certificate.as_ref().hash(&mut hasher);
        }
        (self.auth_clients.word(), self.caching).hash(&mut hasher);
        hasher.finish()
    }
}

/// Combines a certificate with its key, and checks that they belong together. The check of rustls
/// is not used, because it rejects X.509 version 1 certificates, which a server may have.
fn certified(
    provider: &CryptoProvider,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<CertifiedKey, String> {
    let key = provider.key_provider.load_private_key(key).map_err(|error| error.to_string())?;
    let own = certificate::public_key(&chain[0]).ok_or("the certificate cannot be read")?;
    if key.public_key().is_some_and(|public| *public != own[..]) {
        return Err("the key does not belong to the certificate".to_owned());
    }
    Ok(CertifiedKey::new(chain, key))
}

fn roots(authorities: &[CertificateDer<'static>]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(authorities.iter().cloned());
    if added == 0 {
        return Err("the certificates of the authorities cannot be read".to_owned());
    }
    Ok(roots)
}

impl Identity {
    fn load(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), String> {
        let chain = files::certificates(&self.certificate).map_err(|error| {
            format!("Failed to load certificate: {}: {error}", self.certificate.display())
        })?;
        let key = files::key(&self.key, &self.password)
            .map_err(|error| format!("Failed to load private key: {}: {error}", self.key.display()))?;
        Ok((chain, key))
    }
}

impl Authorities {
    fn is_empty(&self) -> bool {
        self.file.as_os_str().is_empty() && self.folder.as_os_str().is_empty()
    }

    /// Reads the certificates of the file and of all files in the folder. Ignores files of the
    /// folder that have no certificate. As in Redis, a missing folder counts as empty.
    fn load(&self) -> Result<Vec<CertificateDer<'static>>, String> {
        let mut found = Vec::new();
        if !self.file.as_os_str().is_empty() {
            let failed = |error| {
                let file = self.file.display();
                format!("Failed to configure CA certificate(s) file/directory: {file}: {error}")
            };
            found.extend(files::certificates(&self.file).map_err(failed)?);
        }
        for file in folder_files(&self.folder) {
            found.extend(files::certificates(&file).unwrap_or_default());
        }
        Ok(found)
    }
}

/// Lists the files of a folder, in the order of their names.
fn folder_files(folder: &Path) -> Vec<PathBuf> {
    if folder.as_os_str().is_empty() {
        return Vec::new();
    }
    let entries = std::fs::read_dir(folder).map(|entries| entries.flatten().collect::<Vec<_>>());
    let mut files: Vec<PathBuf> = entries.unwrap_or_default().into_iter().map(|entry| entry.path()).collect();
    files.retain(|path| path.is_file());
    files.sort();
    files
}

/// The certificates that this server accepts from servers to which it connects.
enum Trust {
    /// The certificates that these authorities have issued are accepted.
    Authorities(Vec<CertificateDer<'static>>),
    /// Only the first certificate of this chain is accepted.
    Exactly(Vec<CertificateDer<'static>>),
}

/// A verifier of server certificates that does not compare the name in the certificate with the
/// server's address. The user's configuration states the address, so it is trusted to lead to the
/// right server.
#[derive(Debug)]
struct AnyName {
    roots: RootCertStore,
    exactly: Option<CertificateDer<'static>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl AnyName {
    fn new(trust: Trust, algorithms: WebPkiSupportedAlgorithms) -> Result<Self, String> {
        let (roots, exactly) = match trust {
            Trust::Authorities(authorities) => (roots(&authorities)?, None),
            Trust::Exactly(chain) => (RootCertStore::empty(), chain.into_iter().next()),
        };
        Ok(Self { roots, exactly, algorithms })
    }
}

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if let Some(exactly) = &self.exactly {
            return match exactly == certificate {
                true => Ok(ServerCertVerified::assertion()),
                false => Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)),
            };
        }
        let parsed = rustls::server::ParsedCertificate::try_from(certificate)?;
        rustls::client::verify_server_cert_signed_by_trust_anchor(
            &parsed,
            &self.roots,
            intermediates,
            now,
            self.algorithms.all,
        )?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
