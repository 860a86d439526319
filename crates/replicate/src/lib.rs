//! The decisions of replication. The crate uses no sockets, files or clocks: its callers pass bytes
//! and times.
//!
//! ```text
//!   change log ─► Primary::append ─► Backlog ─► one cursor per replica ─► the replica's connection
//!                                       ▲                                        │
//!                 PING, GETACK ─────────┘        Primary::acknowledge ◄─ REPLCONF ACK
//! ```
//! A replica follows the *stream*: all changes of the primary as requests in RESP. An *offset* is
//! a number of bytes of the stream. Replica and primary count the same bytes, so that a replica
//! that reconnects asks for the rest by its offset (`PSYNC`). An offset is only valid together
//! with the [`ReplId`](history::ReplId) that names the history of the data.
//!
//! | Module | Part |
//! |---|---|
//! | [`history`] | replication IDs, and the offsets up to which they are valid |
//! | [`backlog`] | the last bytes of the stream, shared by all replicas |
//! | [`cohort`] | the replicas that share a snapshot, and the time at which it begins |
//! | [`failover`] | the change of the primary that an operator requests |
//! | [`framing`] | the two ways in which a replica finds the end of a snapshot |
//! | [`link`] | a replica's link to its primary: handshake, snapshot, offsets |
//! | [`handshake`] | the properties that a replica announces with REPLCONF |
//! | [`replica`] | the state of one replica |
//! | [`primary`] | all of this together: resynchronisation, acknowledgements, limits |

#![forbid(unsafe_code)]

pub mod backlog;
pub mod cohort;
pub mod failover;
pub mod framing;
pub mod handshake;
pub mod history;
pub mod link;
pub mod primary;
pub mod replica;
