//! Errors at the start of a server, with texts that say what to do.

use std::fmt;
use std::io::{self, ErrorKind};

use net::UNIX_PATH_LEN_MAX;

/// The reason why a server does not start.
#[derive(Debug)]
pub enum StartError {
    /// The server cannot listen on an address.
    Listen {
        /// The purpose of the address: clients or metrics.
        place: Place,
        /// The address on which the server cannot listen, or the path of the Unix socket.
        address: String,
        /// The reason why the server cannot listen, as the system reports it.
        error: io::Error,
    },
    /// The event loop of an I/O thread cannot be set up.
    EventLoop(io::Error),
    /// A thread of the server cannot be started.
    Thread(io::Error),
    /// An option is unknown or has an invalid value.
    Option {
        /// The name of the option, as the user has written it.
        name: String,
        /// The reason why the option is refused, as a text for the user.
        reason: String,
    },
    /// A word of `bind` or `metrics-bind` is neither an address nor a known host name.
    InvalidAddress {
        /// The option that has the word.
        option: &'static str,
        /// The word that is not an address.
        address: String,
    },
    /// The TLS options contradict each other, or name files that cannot be read.
    Tls(String),
    /// The configuration has neither a TCP port nor a Unix socket, so no client could connect.
    NowhereToListen,
    /// The users in the configuration or in `aclfile` are invalid.
    Users(String),
}

/// The purpose of an address: clients or metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Client connections over TCP: `port` and `bind`.
    Clients(u16),
    /// Scrapes of metrics: `metrics-port` and `metrics-bind`.
    Metrics(u16),
    /// Client connections over `unixsocket`.
    UnixSocket,
}

impl StartError {
    /// Returns true if the error means that another process uses the address.
    pub fn is_taken(&self) -> bool {
        matches!(self, StartError::Listen { error, .. } if error.kind() == ErrorKind::AddrInUse)
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Listen { place: Place::UnixSocket, address, error } => unix_socket(f, address, error),
            StartError::Listen { place: Place::Clients(port), address, error } => {
                tcp(f, ("port", "bind", *port), address, error)
            }
            StartError::Listen { place: Place::Metrics(port), address, error } => {
                tcp(f, ("metrics-port", "metrics-bind", *port), address, error)
            }
            StartError::EventLoop(error) => write!(f, "cannot set up an event loop: {error}"),
            StartError::Thread(error) => write!(f, "cannot start a thread: {error}"),
            StartError::Users(problem) => f.write_str(problem),
            StartError::Option { name, reason } => write!(f, "option '{name}': {reason}"),
            StartError::InvalidAddress { option, address } => write!(
                f,
                "cannot listen on {address} (option '{option}'): neither an address nor a known host name. Correct \
                 --{option}."
            ),
            StartError::Tls(problem) => write!(f, "Failed to configure TLS: {problem}"),
            StartError::NowhereToListen => f.write_str(
                "Configured to not listen anywhere, exiting. Give --port and --bind, or --unixsocket.",
            ),
        }
    }
}

impl std::error::Error for StartError {}

/// Writes the error of a TCP address to `f`. The text begins as in Redis, because tools search for
/// it and then try another port.
fn tcp(
    f: &mut fmt::Formatter<'_>,
    (port_option, address_option, port): (&str, &str, u16),
    address: &str,
    error: &io::Error,
) -> fmt::Result {
    write!(f, "Failed listening on port {port} (tcp, option '{port_option}'), aborting: ")?;
    match error.kind() {
        ErrorKind::AddrInUse => write!(
            f,
            "{address}: Address already in use. Stop the process that listens there, or choose another port \
             with --{port_option}."
        ),
        ErrorKind::PermissionDenied if port < 1024 => write!(
            f,
            "{address}: Permission denied. Ports below 1024 need root or CAP_NET_BIND_SERVICE: choose another \
             with --{port_option}."
        ),
        ErrorKind::AddrNotAvailable => write!(
            f,
            "this machine does not have the address of {address}. Correct --{address_option}, or write '-' \
             before an address that may be missing."
        ),
        _ => write!(f, "{address}: {error} (options '{port_option}' and '{address_option}')"),
    }
}

fn unix_socket(f: &mut fmt::Formatter<'_>, path: &str, error: &io::Error) -> fmt::Result {
    f.write_str("Failed opening Unix socket (option 'unixsocket'), aborting: ")?;
    match error.kind() {
        ErrorKind::InvalidInput if path.len() > UNIX_PATH_LEN_MAX => write!(
            f,
            "the path has {} bytes, at most {UNIX_PATH_LEN_MAX} are possible: {path}. Choose a shorter one with \
             --unixsocket.",
            path.len()
        ),
        ErrorKind::AddrInUse => write!(
            f,
            "{path}: Address already in use. A running process listens there: stop it, or choose another path \
             with --unixsocket."
        ),
        ErrorKind::AlreadyExists => {
            write!(
                f,
                "{path} exists and is not a socket. Remove it, or choose another path with --unixsocket."
            )
        }
        ErrorKind::NotFound => {
            write!(f, "{path}: {error}. Create the folder, or choose another path with --unixsocket.")
        }
        _ => write!(f, "{path}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(place: Place, error: ErrorKind, words: &[&str]) {
        let error = StartError::Listen { place, address: "1.2.3.4:80".to_owned(), error: error.into() };
        let text = error.to_string();
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }

    #[test]
    fn a_line_names_the_option_and_the_remedy() {
        check(Place::Clients(80), ErrorKind::AddrInUse, &["on port 80 (tcp", "1.2.3.4:80", "--port"]);
        check(Place::Metrics(80), ErrorKind::AddrInUse, &["option 'metrics-port'", "--metrics-port"]);
        check(Place::Clients(80), ErrorKind::PermissionDenied, &["below 1024"]);
        check(Place::Metrics(80), ErrorKind::AddrNotAvailable, &["--metrics-bind"]);
        check(Place::Clients(80), ErrorKind::OutOfMemory, &["'port'", "'bind'"]);
        check(Place::UnixSocket, ErrorKind::AddrInUse, &["A running process", "--unixsocket"]);
        check(Place::UnixSocket, ErrorKind::AlreadyExists, &["is not a socket"]);
        let no_address =
            StartError::InvalidAddress { option: "metrics-bind", address: "x".to_owned() }.to_string();
        assert!(no_address.contains("listen on x (option 'metrics-bind')"), "{no_address}");
    }
}
