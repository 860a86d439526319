//! The engine: all that happens to a request between parsed arguments and reply bytes. No socket,
//! no thread, no clock of its own.
//!
//! ```text
//!   batch of parsed requests ─► turn ─► check ─► shards locked ─► run ─► commands' handler
//!                                                                  │
//!              bytes for connections, threads to wake ◄─ commit ◄──┘
//! ```
//! The rooms, each importing only what stands before it:
//!
//! | room | holds |
//! |---|---|
//! | [`clock`], [`owned_args`], [`secret`] | time as a parameter; owned requests; secrets |
//! | [`table`], [`settings`] | the joined command table; the options that act |
//! | [`acl`] | users, their rules, and the check of a request against these |
//! | [`stats`] | counters, histograms, slow log, latency events, hot keys |
//! | [`client`], [`threads`] | other threads' clients; what threads leave for each other |
//! | [`publish`], [`track`] | who is notified of changes: subscribers, monitors, caches |
//! | [`watch`], [`wait`] | who depends on changes: watchers, blocked clients |
//! | [`freeing`] | values on their way out |
//! | [`log`] | the change log: positions, buffers, merging, release |
//! | [`scripts`], [`pass`] | which scripts run, and for how long; what is done while one is busy |
//! | [`transaction`], [`session`], [`subscribe`] | what one client is |
//! | [`shared`] | what all threads of an engine share |
//! | [`request`], [`check`] | the record and the keys, found once; the checks in Redis' order |
//! | [`commit`] | the one end of a change |
//! | [`run`] | the one way to run a command on locked keys; serving blocked clients |
//! | [`rights`] | whether a request is its client's to make, on every path |
//! | [`walk`] | commands on whole databases |
//! | [`exec`], [`evict`], [`expire`] | units of other kinds: transactions, eviction, expiry |
//! | [`fetch`] | what requests look for, fetched ahead |
//! | [`batch`], [`turn`] | a thread's batch of requests, and all that it does with them |
//! | [`replay`] | requests of a file, run on all cores as if one after the other |
//!
//! What the engine does not know it asks its [`Host`](call::Host): commands
//! about the server run there.
#![forbid(unsafe_code)]

pub mod acl;
mod alone;
pub mod batch;
pub mod call;
pub mod check;
pub mod client;
pub mod client_eviction;
pub mod clients;
pub mod clock;
pub mod commit;
pub mod debugging;
pub mod eval;
pub mod evict;
pub mod exec;
pub mod expire;
pub mod fetch;
pub mod foreign;
pub mod freeing;
mod images;
pub mod log;
pub mod memory;
pub mod meter;
pub mod monitoring;
pub mod owned_args;
pub mod pass;
pub mod publish;
pub mod replay;
pub mod request;
pub mod rights;
pub mod run;
mod script_buffers;
mod script_refusals;
pub mod scripting;
pub mod scripts;
pub mod secret;
pub mod session;
pub mod settings;
pub mod shared;
pub mod stats;
pub mod subscribe;
pub mod table;
pub mod threads;
pub mod timing;
pub mod track;
pub mod transaction;
pub mod turn;
pub mod wait;
pub mod walk;
pub mod watch;

pub use clock::Clock;
pub use shared::Shared;
