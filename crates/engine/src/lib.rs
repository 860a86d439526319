//! The engine: the path of a request from its parsed arguments to the bytes of its reply. The
//! engine opens no socket, starts no thread and has no clock of its own.
//!
//! ```text
//!   batch of parsed requests ─► turn ─► check ─► shards locked ─► run ─► commands' handler
//!                                                                  │
//!              bytes for connections, threads to wake ◄─ commit ◄──┘
//! ```
//! The modules; each imports only modules listed before it:
//!
//! | module | holds |
//! |---|---|
//! | [`clock`], [`owned_args`], [`secret`] | time as a parameter; owned requests; secrets |
//! | [`table`], [`settings`] | the joined command table; the configuration options of the engine |
//! | [`acl`] | users, their rules, and the check of a request against them |
//! | [`stats`] | counters, histograms, slow log, latency events, hot keys |
//! | [`client`], [`threads`] | the shared state of clients; the messages between threads |
//! | [`publish`], [`track`] | messages about changes: subscribers, monitors, client-side caching |
//! | [`watch`], [`wait`] | watched keys and blocked clients |
//! | [`searches`] | long searches, which run in slices without locks |
//! | [`freeing`] | the queue of lazy freed values |
//! | [`local_deadlines`] | the keys that a writable replica removes itself |
//! | [`log`] | the change log: positions, buffers, merging, release |
//! | [`scripts`], [`pass`] | running scripts and their time; the thread's work while one is busy |
//! | [`transaction`], [`session`], [`subscribe`] | the state of one client |
//! | [`shared`] | the state that all threads of an engine share |
//! | `replacement` | the notices to clients when all data is replaced |
//! | [`request`], [`check`] | the command and keys of a request; the checks in Redis' order |
//! | [`commit`], [`expiry_rule`] | the end of every change; the treatment of expired keys |
//! | [`run`] | running a command on locked keys; serving blocked clients |
//! | `search` | the first slice of a search |
//! | [`rights`] | the check of a client's rights, on every path |
//! | [`walk`] | commands on whole databases |
//! | [`exec`], [`evict`], [`expire`] | units of other kinds: transactions, eviction, expiry |
//! | [`fetch`] | the prefetching of keys and members |
//! | [`batch`], [`turn`] | a thread's batch of requests, and how a turn runs it |
//! | [`replay`] | the requests of a file, run on all cores as if in sequence |
//!
//! The engine calls its [`Host`](call::Host) for everything that it does not implement, such as
//! commands about the server.
#![forbid(unsafe_code)]

pub mod acl;
mod alone;
pub mod apply;
pub mod batch;
pub mod call;
pub mod check;
pub mod client;
pub mod client_eviction;
pub mod clients;
pub mod clock;
pub mod commit;
pub mod compact;
pub mod debugging;
pub mod eval;
pub mod evict;
pub mod exec;
pub mod expire;
pub mod expiry_rule;
pub mod fetch;
pub mod foreign;
pub mod fragmentation;
pub mod freeing;
mod images;
pub mod local_deadlines;
pub mod log;
mod may_write;
pub mod memory;
pub mod meter;
pub mod monitoring;
pub mod owned_args;
pub mod pass;
pub mod publish;
mod replacement;
pub mod replay;
pub mod request;
pub mod rights;
pub mod run;
mod script_buffers;
mod script_refusals;
pub mod scripting;
pub mod scripts;
mod search;
pub mod searches;
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
mod write_refusal;

pub use clock::Clock;
pub use shared::Shared;
