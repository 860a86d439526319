//! The options that are one of some words: what the words mean.

use engine::settings::NewChannels;
use net::{Address, BackendChoice};
use persist::aof::writer::SyncPolicy;
use persist::load::Unsupported;
use persist::rdb::FileVersion;
use tracing_subscriber::filter::LevelFilter;

use super::handle::Choice;
use crate::logging::{Format, TimeFormat};
use crate::supervisor::Supervision;

/// `maxmemory-policy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvictionPolicy {
    /// Among keys with an expiry, the least recently used.
    VolatileLru,
    /// Among keys with an expiry, the least frequently used.
    VolatileLfu,
    /// Any key with an expiry.
    VolatileRandom,
    /// The key that expires next.
    VolatileTtl,
    /// The least recently used key.
    AllKeysLru,
    /// The least frequently used key.
    AllKeysLfu,
    /// Any key.
    AllKeysRandom,
    /// No key.
    NoEviction,
}

impl EvictionPolicy {
    /// Whether it compares how often keys are used.
    pub fn is_lfu(self) -> bool {
        matches!(self, Self::VolatileLfu | Self::AllKeysLfu)
    }

    /// Whether it compares how recently keys were used.
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

/// `tls-auth-clients`: whether clients must show a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthClients {
    /// They are not asked for one.
    No,
    /// They must.
    Yes,
    /// They may, and it is checked.
    Optional,
}

impl Choice for AuthClients {
    const WORDS: &'static [&'static str] = &["no", "yes", "optional"];
    const VALUES: &'static [Self] = &[Self::No, Self::Yes, Self::Optional];
}

/// `tls-auth-clients-user`: what of a client's certificate names its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateUser {
    /// The common name.
    CommonName,
    /// A URI of the alternative names.
    Uri,
    /// Nothing.
    Off,
}

impl Choice for CertificateUser {
    const WORDS: &'static [&'static str] = &["CN", "URI", "off"];
    const VALUES: &'static [Self] = &[Self::CommonName, Self::Uri, Self::Off];
}

/// `metrics-per-command`: what the metrics endpoint shows of each command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PerCommand {
    /// Nothing.
    No,
    /// Calls, errors and time.
    Counters,
    /// Counters, and percentiles of the times.
    Percentiles,
    /// Counters, and a histogram of the times.
    Histograms,
}

impl Choice for PerCommand {
    const WORDS: &'static [&'static str] = &["no", "counters", "percentiles", "histograms"];
    const VALUES: &'static [Self] = &[Self::No, Self::Counters, Self::Percentiles, Self::Histograms];
}

/// `io-backend`.
impl Choice for NewChannels {
    const WORDS: &'static [&'static str] = &["allchannels", "resetchannels"];
    const VALUES: &'static [Self] = &[Self::All, Self::None];
}

impl Choice for BackendChoice {
    const WORDS: &'static [&'static str] = &["auto", "io_uring", "epoll"];
    const VALUES: &'static [Self] = &[Self::Auto, Self::IoUring, Self::Epoll];
}

/// `rdb-version-check`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionCheck {
    /// Only values of known versions are read.
    Strict,
    /// Values of unknown versions are tried.
    Relaxed,
}

impl Choice for VersionCheck {
    const WORDS: &'static [&'static str] = &["strict", "relaxed"];
    const VALUES: &'static [Self] = &[Self::Strict, Self::Relaxed];
}

/// `appendfsync`.
impl Choice for SyncPolicy {
    const WORDS: &'static [&'static str] = &["everysec", "always", "no"];
    const VALUES: &'static [Self] = &[Self::EverySecond, Self::Always, Self::Never];
}

/// `rdb-unsupported-values`.
impl Choice for Unsupported {
    const WORDS: &'static [&'static str] = &["refuse", "skip"];
    const VALUES: &'static [Self] = &[Self::Refused, Self::Skipped];
}

/// `rdb-version`: the version of the format that snapshots are written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RdbVersion {
    /// The lowest of version 11 and later that has all types of the data.
    Auto,
    /// This one.
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

/// `loglevel`: the least important lines that are written.
impl Choice for LevelFilter {
    const WORDS: &'static [&'static str] = &["debug", "verbose", "notice", "warning", "nothing"];
    const VALUES: &'static [Self] = &[Self::TRACE, Self::DEBUG, Self::INFO, Self::WARN, Self::OFF];
}

/// `log-format`.
impl Choice for Format {
    const WORDS: &'static [&'static str] = &["legacy", "logfmt", "json"];
    const VALUES: &'static [Self] = &[Self::Legacy, Self::Logfmt, Self::Json];
}

/// `log-timestamp-format`.
impl Choice for TimeFormat {
    const WORDS: &'static [&'static str] = &["legacy", "iso8601", "milliseconds"];
    const VALUES: &'static [Self] = &[Self::Legacy, Self::Iso8601, Self::Milliseconds];
}

/// `supervised`.
impl Choice for Supervision {
    const WORDS: &'static [&'static str] = &["upstart", "systemd", "auto", "no"];
    const VALUES: &'static [Self] = &[Self::Upstart, Self::Systemd, Self::Auto, Self::No];
}

/// `secrets-in-readable-files`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadableSecrets {
    /// The log names the file.
    Warn,
    /// The server does not start.
    Refuse,
    /// Nothing.
    Ignore,
}

impl Choice for ReadableSecrets {
    const WORDS: &'static [&'static str] = &["warn", "refuse", "ignore"];
    const VALUES: &'static [Self] = &[Self::Warn, Self::Refuse, Self::Ignore];
}

/// `enable-protected-configs`, `enable-debug-command`, `enable-module-command`: which clients may
/// use something dangerous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permitted {
    /// None.
    No,
    /// All.
    Yes,
    /// Those on this machine.
    Local,
}

impl Permitted {
    /// Whether a client with this address may.
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
