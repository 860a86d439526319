//! Why a run could not be had, as one line for a person.

use std::fmt;
use std::io;

/// Why there is no result.
#[derive(Debug)]
pub enum BenchError {
    /// What was asked for makes no sense: an unknown test, a malformed template or distribution.
    Usage(String),
    /// No connection to the server.
    Connect {
        /// Where it should be.
        address: String,
        /// What the system said.
        error: io::Error,
    },
    /// The server refused the password, the database or the protocol; its own words.
    Refused(String),
    /// Ctrl-C before anything was measured, or after what was has been given.
    Interrupted,
    /// A run that began ended early; its partial result was given before.
    Ended(String),
    /// The system refused something else, a thread or an event loop.
    System(io::Error),
}

impl fmt::Display for BenchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BenchError::Usage(reason) => f.write_str(reason),
            BenchError::Connect { address, error } => write!(f, "cannot connect to {address}: {error}"),
            BenchError::Refused(reply) => write!(f, "the server refused the connection: {reply}"),
            BenchError::Interrupted => f.write_str("interrupted"),
            BenchError::Ended(reason) => write!(f, "the run ended early: {reason}"),
            BenchError::System(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for BenchError {}

impl From<io::Error> for BenchError {
    fn from(error: io::Error) -> Self {
        BenchError::System(error)
    }
}
