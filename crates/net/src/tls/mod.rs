//! Encrypted connections: what turns received records into input and output into records.
//!
//! | Module | Part |
//! |---|---|
//! | `config` | what servers and clients are set up with |
//! | `session` | one connection: its handshake, then its channel |
//! | `record` | the protection of records |
//! | `handshakes` | whose turn it is to go on with a handshake, and whose time is over |
//! | `failure` | why a connection fails |
//! | `fuzz` | what must hold whatever a peer sends |

mod config;
mod failure;
pub mod fuzz;
mod handshakes;
mod record;
mod session;

pub(crate) use config::TlsSide;
pub use config::{TlsClient, TlsServer};
pub use failure::{Alert, TlsFailure};
pub(crate) use handshakes::Handshakes;
pub use session::Agreed;
pub(crate) use session::{PeerSide, Session, Step};
