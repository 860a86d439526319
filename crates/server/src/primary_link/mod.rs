//! The link of a replica to its primary, and the changes of the role.
//!
//! ```text
//!   REPLICAOF ─► role ─► thread: connect, handshake ─┬─► full_sync ─► transfer, the loader
//!                          ▲                         └─► stream ─► the engine's applier
//!                          └── every second ◄── the link ends ◄──┘       │
//!                                                    backlog, acknowledgements
//! ```
//! `replicate::link` makes the decisions, and `engine::apply` applies the replication stream.
//! Neither has a socket. The thread `primary-link` receives the bytes of one connection and applies
//! them itself. If the primary sends faster than the thread applies, TCP makes the primary wait.
//!
//! | Module | Part |
//! |---|---|
//! | [`change`] | the changes of the role that an operator requests |
//! | [`role`] | the changes of the role, under the exclusive ownership of the keyspace |
//! | [`failover`] | the coordinated change of the primary |
//! | [`engine_role`] | the role and its options, as the engine sees them |
//! | [`thread`], `starter` | the thread: one link after the other |
//! | `connection` | waiting for bytes, timeouts, the ends of a link |
//! | `transfer`, `full_sync` | a snapshot of the primary replaces all data |
//! | `stream` | the stream: applied, passed on, acknowledged |
//! | `courtesy` | the times at which the applier lets other threads run |

pub mod change;
mod connection;
mod courtesy;
pub mod engine_role;
pub mod failover;
mod full_sync;
pub mod role;
mod starter;
mod stream;
pub mod thread;
mod transfer;
