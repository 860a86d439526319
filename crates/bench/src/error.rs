//! The errors of a run or a study of saker-bench. Each prints as one line for a person.

use std::fmt;
use std::io;

use rustix::io::Errno;

/// The reason why a run or a study has no usable result, or ended early.
#[derive(Debug)]
pub enum BenchError {
    /// The arguments are invalid: an unknown test, a malformed template or a malformed
    /// distribution.
    Usage(String),
    /// The connection to the server could not be opened.
    Connect {
        /// The address of the server that could not be reached.
        address: String,
        /// The error that the operating system reported on connecting.
        error: io::Error,
    },
    /// The server rejected the connection's first commands: the password, the database or the
    /// protocol. Holds the server's error or a description.
    Refused(String),
    /// Ctrl-C ended the run or study before anything was measured, or after the partial result was
    /// returned.
    Interrupted,
    /// The run began but ended early. Its partial result was returned or printed before.
    Ended(String),
    /// The run completed but measured nothing useful. Its result was returned or printed before.
    Useless(String),
    /// Another call of the operating system failed, for example the start of a thread or of an
    /// event loop.
    System(io::Error),
}

impl fmt::Display for BenchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BenchError::Usage(reason) => f.write_str(reason),
            BenchError::Connect { address, error } => {
                write!(f, "cannot connect to {address}: {}", connect_reason(error))
            }
            BenchError::Refused(reply) => write!(f, "the server refused the connection: {reply}"),
            BenchError::Useless(reason) => f.write_str(reason),
            BenchError::Interrupted => f.write_str("interrupted"),
            BenchError::Ended(reason) => write!(f, "the run ended early: {reason}"),
            BenchError::System(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for BenchError {}

/// Describes the failure of a connection attempt. Adds advice if this machine has no free ports or
/// file descriptors.
pub(crate) fn connect_reason(error: &io::Error) -> String {
    let help = match Errno::from_io_error(error) {
        Some(Errno::ADDRNOTAVAIL) => {
            ": no local port is free, because closed connections keep their ports for a minute (TIME_WAIT). \
             Use fewer new connections, a Unix socket, sysctl net.ipv4.tcp_tw_reuse=1 or a wider \
             ip_local_port_range"
        }
        Some(Errno::MFILE | Errno::NFILE) => ": `ulimit -n` limits the number of connections",
        _ => "",
    };
    format!("{error}{help}")
}

impl From<io::Error> for BenchError {
    fn from(error: io::Error) -> Self {
        BenchError::System(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_that_is_short_of_ports_or_descriptors_is_told_what_helps() {
        let reported = |errno: Errno| {
            let error = io::Error::from_raw_os_error(errno.raw_os_error());
            BenchError::Connect { address: "127.0.0.1:1".to_owned(), error }.to_string()
        };
        assert!(reported(Errno::ADDRNOTAVAIL).contains("TIME_WAIT"));
        assert!(reported(Errno::MFILE).ends_with("`ulimit -n` limits the number of connections"));
        let refused = reported(Errno::CONNREFUSED);
        assert!(refused.starts_with("cannot connect to 127.0.0.1:1: Connection refused"), "{refused}");
    }
}
