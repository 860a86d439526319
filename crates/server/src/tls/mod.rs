//! TLS of the server: the configuration of listeners, made from the options, and its state.
//!
//! | Module | Part |
//! |---|---|
//! | this one | the configuration in use, and its replacement |
//! | `settings` | the options, checked, as configurations of rustls |
//! | `files` | certificates and keys from PEM files |
//! | `ciphers` | OpenSSL's names of versions and suites |
//! | `resumption` | sessions that clients resume |
//! | `certificate` | names and expiry of certificates |
//!
//! `net` handles handshakes and records. Changed options apply at once to new connections. If new
//! files cannot be loaded, the old configuration stays in use.

use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use net::TlsServer;
use rustls::ClientConfig;

use self::certificate::Facts;
use self::resumption::Resumption;
use self::settings::{Built, TlsSettings};
use crate::config::ConfigStore;
use crate::config::table::tls as options;

pub mod certificate;
mod ciphers;
mod files;
mod resumption;
pub mod settings;

/// The TLS state of a server: the configuration in use and the counters of handshakes. No other
/// lock is taken under its lock.
#[derive(Default)]
pub struct Tls {
    current: Mutex<Option<Current>>,
    /// Maximum number of handshakes that an I/O thread continues in one turn
    /// (`max-new-tls-connections-per-cycle`).
    pub handshakes_per_turn: AtomicU64,
    /// Number of full handshakes, which agree on new keys.
    pub full_handshakes: AtomicU64,
    /// Number of handshakes that resumed a TLS session.
    pub resumed_handshakes: AtomicU64,
    /// Number of handshakes that failed or timed out.
    pub failed_handshakes: AtomicU64,
}

/// The TLS configuration in use.
struct Current {
    server: TlsServer,
    /// The configuration of connections to other servers (MIGRATE); `None` unless `tls-cluster`
    /// encrypts them.
    nodes: Option<Arc<ClientConfig>>,
    /// The configuration of the link to the primary; `None` unless `tls-replication` encrypts it.
    primary: Option<Arc<ClientConfig>>,
    facts: [Option<Facts>; 3],
    resumption: Option<(Resumption, u64)>,
    /// The time at which the files were last checked for changes; `stamps` is their state at that
    /// time.
    read: Instant,
    stamps: Vec<Stamp>,
}

/// The path of a file, and its modification time and size, which distinguish its versions. They are
/// `None` if the file cannot be examined.
type Stamp = (PathBuf, Option<(SystemTime, u64)>);

fn stamps(settings: &TlsSettings) -> Vec<Stamp> {
    let stamp = |path: PathBuf| {
        let about = std::fs::metadata(&path).ok();
        let stamp = about.and_then(|about| Some((about.modified().ok()?, about.len())));
        (path, stamp)
    };
    settings.files().into_iter().map(stamp).collect()
}

/// Returns true if an option encrypts any connections: `tls-port`, `tls-replication` or
/// `tls-cluster`.
pub fn is_wanted(store: &ConfigStore) -> bool {
    options::PORT.of(store) != 0 || options::REPLICATION.of(store) || options::CLUSTER.of(store)
}

impl Tls {
    /// Applies the TLS options of `store` to new connections. Returns the configuration for
    /// listeners.
    /// # Errors
    /// If the options or their files are invalid. The message is for the log; the old configuration
    /// stays in use.
    pub fn configure(&self, store: &ConfigStore) -> Result<TlsServer, String> {
        let settings = TlsSettings::of(store);
        let stamps = stamps(&settings);
        let (nodes_encrypted, primary_encrypted) =
            (options::CLUSTER.of(store), options::REPLICATION.of(store));
        let client = match nodes_encrypted || primary_encrypted {
            true => Some(Arc::new(settings.build_client()?)),
            false => None,
        };
        let nodes = client.clone().filter(|_| nodes_encrypted);
        let primary = client.filter(|_| primary_encrypted);
        let mut current = self.lock();
        let earlier = current.as_ref().and_then(|current| current.resumption.as_ref());
        let Built { server: config, facts, resumption, trust } = settings.build(earlier)?;
        let server = match current.take() {
            Some(current) => {
                current.server.replace(config);
                current.server
            }
            None => TlsServer::new(config),
        };
        let resumption = resumption.map(|resumption| (resumption, trust));
        let read = Instant::now();
        *current = Some(Current { server: server.clone(), nodes, primary, facts, resumption, read, stamps });
        drop(current);
        self.follow_limits(store);
        Ok(server)
    }

    /// Applies the option `max-new-tls-connections-per-cycle`, which limits the handshakes of an
    /// I/O thread in one turn of its loop.
    pub fn follow_limits(&self, store: &ConfigStore) {
        self.handshakes_per_turn.store(options::MAX_NEW_CONNECTIONS.of(store), Relaxed);
    }

    /// Returns true if the configuration in use may differ from the options in `store`, because a
    /// failed CONFIG SET may have replaced it before it failed.
    pub fn is_ahead_of(&self, store: &ConfigStore) -> bool {
        self.lock().is_some() && is_wanted(store)
    }

    /// Returns the configuration for listeners; `None` if TLS was never configured.
    pub fn server(&self) -> Option<TlsServer> {
        self.lock().as_ref().map(|current| current.server.clone())
    }

    /// Returns the configuration of connections to other servers (MIGRATE); `None` unless
    /// `tls-cluster` encrypts them.
    pub fn nodes(&self) -> Option<Arc<ClientConfig>> {
        self.lock().as_ref().and_then(|current| current.nodes.clone())
    }

    /// Returns the configuration of the link to the primary; `None` unless `tls-replication`
    /// encrypts it.
    pub fn primary(&self) -> Option<Arc<ClientConfig>> {
        self.lock().as_ref().and_then(|current| current.primary.clone())
    }

    /// Reads certificates and keys again if `tls-auto-reload-interval` has passed and their files
    /// have changed. After a failure, logs it and keeps the previous ones in use.
    pub fn reload_if_due(&self, store: &ConfigStore) {
        let interval = Duration::from_secs(options::AUTO_RELOAD_INTERVAL.of(store));
        let settings = TlsSettings::of(store);
        let is_changed = {
            let mut current = self.lock();
            let Some(current) = current.as_mut() else { return };
            if interval.is_zero() || current.read.elapsed() < interval {
                return;
            }
            current.read = Instant::now();
            // The new stamps are stored first, so a changed file that cannot be read is tried once.
            let now = stamps(&settings);
            std::mem::replace(&mut current.stamps, now.clone()) != now
        };
        if is_changed {
            match self.configure(store) {
                Ok(_) => tracing::info!("The changed TLS certificates and keys were loaded."),
                Err(problem) => {
                    tracing::warn!(
                        "The changed TLS certificates and keys cannot be loaded, so the previous ones stay \
                         in use: {problem}"
                    );
                }
            }
        }
    }

    /// Returns the facts of three certificates: the server's, the one for connections to other
    /// servers, and the first authority's. The second is `None` if these connections use the
    /// server's certificate. Each is `None` if the certificate is missing.
    pub fn facts(&self) -> [Option<Facts>; 3] {
        self.lock().as_ref().map_or([const { None }; 3], |current| current.facts.clone())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Current>> {
        self.current.lock().expect("nothing panics while TLS is configured")
    }
}
