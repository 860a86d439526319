//! Encrypted connections: the TLS library rustls over the buffers of an event loop.
//!
//! | Module | Part |
//! |---|---|
//! | `config` | the configurations of servers and clients |
//! | `session` | one connection: its handshake, then its data |
//! | `suites` | the cipher suites, and the data that a key may seal |
//! | `handshakes` | the order and the deadlines of handshakes |
//! | `failure` | the reasons for which a connection fails |
//! | `fuzz` | properties that hold for any bytes of a peer |

mod config;
mod failure;
pub mod fuzz;
mod handshakes;
mod session;
mod suites;

pub(crate) use config::TlsSide;
pub use config::{TlsClient, TlsServer};
pub use failure::TlsFailure;
pub(crate) use handshakes::Handshakes;
pub use session::Agreed;
pub(crate) use session::{PeerSide, Session, Step};
pub use suites::cipher_suites;
