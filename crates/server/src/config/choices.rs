//! The options whose value is one of several words, and the meaning of each word.

use engine::settings::NewChannels;
use net::{Address, BackendChoice};
use persist::aof::writer::SyncPolicy;
use persist::load::Unsupported;
use persist::rdb::FileVersion;
use tracing_subscriber::filter::LevelFilter;

use super::handle::Choice;
use crate::logging::{Format, TimeFormat};
use crate::supervisor::Supervision;

/// The values of `maxmemory-policy`: the rule by which keys are chosen for eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvictionPolicy {
    /// Evicts the least recently used of the keys with an expiry.
    VolatileLru,
    /// Evicts the least frequently used of the keys with an expiry.
    VolatileLfu,
    /// Evicts keys with an expiry, chosen at random.
    VolatileRandom,
    /// Evicts the keys that will expire first.
    VolatileTtl,
    /// Evicts the least recently used key.
    AllKeysLru,
    /// Evicts the least frequently used key.
    AllKeysLfu,
    /// Evicts keys chosen at random.
    AllKeysRandom,
    /// Evicts no keys; writes that need memory are refused.
    NoEviction,
}

impl EvictionPolicy {
    /// Returns true for the policies that compare the access frequency of keys.
    pub fn is_lfu(self) -> bool {
        matches!(self, Self::VolatileLfu | Self::AllKeysLfu)
    }

    /// Returns true for the policies that compare the time since a key was last used.
    pub fn is_lru(self) -> bool {
        matches!(self, Self::VolatileLru | Self::AllKeysLru)
    }
}

impl Choice for EvictionPolicy {
    const WORDS: &'static [&'static str] = &[
        "volatile-lru",
        "volatile-lfu",
        "volatile-random",
        "volatile-ttl",
        "allkeys-lru",
        "allkeys-lfu",
        "allkeys-random",
        "noeviction",
    ];
    const VALUES: &'static [Self] = &[
        Self::VolatileLru,
        Self::VolatileLfu,
        Self::VolatileRandom,
        Self::VolatileTtl,
        Self::AllKeysLru,
        Self::AllKeysLfu,
        Self::AllKeysRandom,
        Self::NoEviction,
    ];
}

/// The values of `tls-auth-clients`: the rule whether clients of a TLS listener must show a
/// certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthClients {
    /// Clients are not asked for a certificate.
    No,
    /// Clients must show a certificate.
    Yes,
    /// Clients may show a certificate. The server checks each certificate that is shown.
    Optional,
}

impl Choice for AuthClients {
    const WORDS: &'static [&'static str] = &["no", "yes", "optional"];
    const VALUES: &'static [Self] = &[Self::No, Self::Yes, Self::Optional];
}

/// The values of `tls-auth-clients-user`: the field of a client's certificate that names its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateUser {
    /// The common name of a client's certificate names its user.
    CommonName,
    /// A URI among the subject alternative names of a client's certificate names its user.
    Uri,
    /// A client's certificate does not log in a user.
    Off,
}

impl Choice for CertificateUser {
    const WORDS: &'static [&'static str] = &["CN", "URI", "off"];
    const VALUES: &'static [Self] = &[Self::CommonName, Self::Uri, Self::Off];
}

/// The values of `metrics-per-command`: the metrics that the metrics endpoint shows for each
/// command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PerCommand {
    /// The metrics endpoint shows no metrics of single commands.
    No,
    /// The metrics endpoint shows the calls, the errors and the summed times of each command.
    Counters,
    /// The metrics endpoint shows the counters of each command, and percentiles of its execution
    /// times.
    Percentiles,
    /// The metrics endpoint shows the counters of each command, and a histogram of its execution
    /// times.
    Histograms,
}

impl Choice for PerCommand {
    const WORDS: &'static [&'static str] = &["no", "counters", "percentiles", "histograms"];
    const VALUES: &'static [Self] = &[Self::No, Self::Counters, Self::Percentiles, Self::Histograms];
}

/// The values of `acl-pubsub-default`: the initial channel permissions of new users.
impl Choice for NewChannels {
    const WORDS: &'static [&'static str] = &["allchannels", "resetchannels"];
    const VALUES: &'static [Self] = &[Self::All, Self::None];
}

/// The values of `io-backend`: the interface to the kernel that the event loops use.
impl Choice for BackendChoice {
    const WORDS: &'static [&'static str] = &["auto", "io_uring", "epoll"];
    const VALUES: &'static [Self] = &[Self::Auto, Self::IoUring, Self::Epoll];
}

/// The values of `rdb-version-check`: the treatment of snapshots and RESTORE payloads whose format
/// version is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionCheck {
    /// Snapshots and RESTORE payloads of an unknown format version are refused.
    Strict,
    /// Snapshots and RESTORE payloads of an unknown format version are read as long as their
    /// content is understood.
    Relaxed,
}

impl Choice for VersionCheck {
    const WORDS: &'static [&'static str] = &["strict", "relaxed"];
    const VALUES: &'static [Self] = &[Self::Strict, Self::Relaxed];
}

/// The values of `appendfsync`: the times at which the append-only file is synced to the disk.
impl Choice for SyncPolicy {
    const WORDS: &'static [&'static str] = &["everysec", "always", "no"];
    const VALUES: &'static [Self] = &[Self::EverySecond, Self::Always, Self::Never];
}

/// The values of `rdb-unsupported-values` and `repl-unsupported-commands`: the reaction to data
/// that this server does not support.
impl Choice for Unsupported {
    const WORDS: &'static [&'static str] = &["refuse", "skip"];
    const VALUES: &'static [Self] = &[Self::Refused, Self::Skipped];
}

/// The values of `repl-diskless-load`: the treatment of a snapshot from the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DisklessLoad {
    /// The snapshot from the primary is received into a file before it is loaded.
    Disabled,
    /// The snapshot from the primary is loaded while it arrives if the replica has no data, else as
    /// with `disabled`.
    OnEmptyDb,
    /// The snapshot from the primary is loaded while it arrives, beside the present data, which it
    /// then replaces.
    SwapDb,
    /// The present data of the replica is removed, and the snapshot from the primary is loaded
    /// while it arrives.
    FlushBeforeLoad,
}

impl Choice for DisklessLoad {
    const WORDS: &'static [&'static str] = &["disabled", "on-empty-db", "swapdb", "flush-before-load"];
    const VALUES: &'static [Self] = &[Self::Disabled, Self::OnEmptyDb, Self::SwapDb, Self::FlushBeforeLoad];
}

/// The values of `propagation-error-behavior`: the reaction to a command of the primary that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailedCommand {
    /// The failure of the command is counted and logged, and the replica continues with the next
    /// command.
    Ignore,
    /// The replica closes the link to the primary.
    Panic,
    /// The link to the primary is closed, as with `panic`: only replicas apply commands of a
    /// primary.
    PanicOnReplicas,
}

impl Choice for OnFailedCommand {
    const WORDS: &'static [&'static str] = &["ignore", "panic", "panic-on-replicas"];
    const VALUES: &'static [Self] = &[Self::Ignore, Self::Panic, Self::PanicOnReplicas];
}

/// The values of `rdb-version`: the format version in which snapshots are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RdbVersion {
    /// Each snapshot is written in the lowest format version, at least 11, that supports all types
    /// of values in it.
    Auto,
    /// All snapshots are written in this format version.
    Fixed(FileVersion),
}

impl Choice for RdbVersion {
    const WORDS: &'static [&'static str] = &["auto", "9", "10", "11", "12", "80"];
    const VALUES: &'static [Self] = &[
        Self::Auto,
        Self::Fixed(FileVersion::Redis5),
        Self::Fixed(FileVersion::Redis7),
        Self::Fixed(FileVersion::Redis7Dot2),
        Self::Fixed(FileVersion::Redis7Dot4),
        Self::Fixed(FileVersion::Valkey9),
    ];
}

/// The values of `loglevel`: the lowest level of the lines that are written.
impl Choice for LevelFilter {
    const WORDS: &'static [&'static str] = &["debug", "verbose", "notice", "warning", "nothing"];
    const VALUES: &'static [Self] = &[Self::TRACE, Self::DEBUG, Self::INFO, Self::WARN, Self::OFF];
}

/// The values of `log-format`: the format of the log's lines.
impl Choice for Format {
    const WORDS: &'static [&'static str] = &["legacy", "logfmt", "json"];
    const VALUES: &'static [Self] = &[Self::Legacy, Self::Logfmt, Self::Json];
}

/// The values of `log-timestamp-format`: the format of times in the log.
impl Choice for TimeFormat {
    const WORDS: &'static [&'static str] = &["legacy", "iso8601", "milliseconds"];
    const VALUES: &'static [Self] = &[Self::Legacy, Self::Iso8601, Self::Milliseconds];
}

/// The values of `supervised`: the supervisor that the server notifies of its state.
impl Choice for Supervision {
    const WORDS: &'static [&'static str] = &["upstart", "systemd", "auto", "no"];
    const VALUES: &'static [Self] = &[Self::Upstart, Self::Systemd, Self::Auto, Self::No];
}

/// The values of `secrets-in-readable-files`: the reaction when every user of the machine may read
/// a configuration file with passwords.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadableSecrets {
    /// The server logs a warning that names the file.
    Warn,
    /// The server does not start if every user may read a configuration file with passwords.
    Refuse,
    /// The server does not check who may read its configuration files.
    Ignore,
}

impl Choice for ReadableSecrets {
    const WORDS: &'static [&'static str] = &["warn", "refuse", "ignore"];
    const VALUES: &'static [Self] = &[Self::Warn, Self::Refuse, Self::Ignore];
}

/// The values of `enable-protected-configs`, `enable-debug-command` and `enable-module-command`:
/// the clients that may use the feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permitted {
    /// No client may use the feature that the option controls.
    No,
    /// All clients may use the feature that the option controls.
    Yes,
    /// Only clients on the server's machine may use the feature that the option controls.
    Local,
}

impl Permitted {
    /// Returns true if a client with this address has the permission.
    pub fn includes(self, peer: &Address) -> bool {
        match (self, peer) {
            (Self::No, _) => false,
            (Self::Yes, _) | (Self::Local, Address::Unix(_)) => true,
            (Self::Local, Address::Tcp(peer)) => peer.ip().to_canonical().is_loopback(),
        }
    }
}

impl Choice for Permitted {
    const WORDS: &'static [&'static str] = &["no", "yes", "local"];
    const VALUES: &'static [Self] = &[Self::No, Self::Yes, Self::Local];
}
