//! The link (connection) of a replica to its primary, without its socket.
//!
//! ```text
//!   LinkHandshake ─► SnapshotHeader ─► Payload ─► the stream, counted by StreamOffsets
//!          └──────────── +CONTINUE ──────────────────▲
//! ```
//! | Module | Part |
//! |---|---|
//! | [`handshake`] | the requests before the synchronisation, and the replies to them |
//! | [`transfer`] | the header of a snapshot, and its end |
//! | [`offsets`] | received and applied bytes of the stream, acknowledgements |
//! | [`request`] | the text of requests, and errors of the link |
//! | [`fuzz`] | the check of a primary's bytes before the stream |

pub mod fuzz;
pub mod handshake;
pub mod offsets;
pub mod request;
pub mod transfer;

/// The maximum length of a line that a primary sends before the replication stream, in bytes, as in
/// Redis. If more bytes arrive without a line end, the caller closes the link.
pub const LINE_LEN_MAX: usize = 1024;
