//! The servers that the command line names: redis://, rediss:// and unix:// URLs.

use std::path::{Path, PathBuf};

/// A server that the command line names, and the account to use there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The address of the server: host and port, or a path.
    pub place: Place,
    /// True if connections to the server use TLS.
    pub is_tls: bool,
    /// The ACL user for connections; `None` for the default user.
    pub user: Option<String>,
    /// The password of the user; `None` to connect without AUTH.
    pub password: Option<String>,
}

/// The address of a server: host and port, or the path of a Unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The server has a host name or IP address, and a port.
    Tcp(String, u16),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl Endpoint {
    /// Parses `redis://user:password@host:port`, `rediss://…` (TLS), `unix://user:password@/path`,
    /// `host:port` or an absolute path. `valkey` and `valkeys` mean the same as `redis` and
    /// `rediss`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?}: use redis://user:password@host:port, rediss://… or unix:///path");
        if text.starts_with('/') {
            return Ok(Self::at(Place::Unix(PathBuf::from(text))));
        }
        let (scheme, rest) = text.split_once("://").unwrap_or(("redis", text));
        let is_tls = match scheme {
            "redis" | "valkey" | "unix" => false,
            "rediss" | "valkeys" => true,
            _ => return Err(wrong()),
        };
        let (account, place) = rest.rsplit_once('@').unwrap_or(("", rest));
        let place = match scheme {
            "unix" if place.starts_with('/') => Place::Unix(PathBuf::from(place)),
            "unix" => return Err(wrong()),
            _ => parse_tcp(place.strip_suffix('/').unwrap_or(place)).ok_or_else(wrong)?,
        };
        let decoded = |text: &str| percent_decoded(text).ok_or_else(wrong);
        let (user, password) = match account.split_once(':') {
            Some((user, password)) => {
                (Some(decoded(user)?).filter(|user| !user.is_empty()), Some(decoded(password)?))
            }
            None if account.is_empty() => (None, None),
            None => (None, Some(decoded(account)?)),
        };
        Ok(Self { place, is_tls, user, password })
    }

    fn at(place: Place) -> Self {
        Self { place, is_tls: false, user: None, password: None }
    }

    /// Returns the host name that the server's certificate must have; `localhost` for a Unix
    /// socket.
    pub fn host(&self) -> &str {
        match &self.place {
            Place::Tcp(host, _) => host,
            Place::Unix(_) => "localhost",
        }
    }
}

/// Formats the address of the server, without user and password.
impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.place {
            Place::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Place::Tcp(host, port) => write!(f, "{host}:{port}"),
            Place::Unix(path) => write!(f, "{}", Path::display(path)),
        }
    }
}

/// Parses the address of a server: `host`, `host:port`, `[v6]` or `[v6]:port`. Returns `None` for
/// any other text.
fn parse_tcp(place: &str) -> Option<Place> {
    let (host, port) = match place.strip_prefix('[').and_then(|place| place.split_once(']')) {
        Some((host, port)) => (host, port.strip_prefix(':').unwrap_or(port)),
        None => place.split_once(':').unwrap_or((place, "")),
    };
    let host = if host.is_empty() { "127.0.0.1" } else { host };
    let port = if port.is_empty() { 6379 } else { port.parse().ok()? };
    Some(Place::Tcp(host.to_owned(), port))
}

/// Replaces percent-encoded bytes (`%41`) in `text`. Returns `None` if an encoding is invalid.
fn percent_decoded(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(part.get(..2)?, 16).ok()?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_place_and_account() {
        let check = |text: &str, place: &str, is_tls: bool, user: Option<&str>, password: Option<&str>| {
            let endpoint = Endpoint::parse(text).unwrap();
            assert_eq!(endpoint.to_string(), place, "{text}");
            assert_eq!((endpoint.is_tls, endpoint.user.as_deref()), (is_tls, user), "{text}");
            assert_eq!(endpoint.password.as_deref(), password, "{text}");
        };
        check("redis://localhost:7000", "localhost:7000", false, None, None);
        check("db.example:6380", "db.example:6380", false, None, None);
        check("redis://", "127.0.0.1:6379", false, None, None);
        check("rediss://:p%40ss@[::1]:7/", "[::1]:7", true, None, Some("p@ss"));
        check("redis://secret@h", "h:6379", false, None, Some("secret"));
        check("valkey://u:a:b@h", "h:6379", false, Some("u"), Some("a:b"));
        check("unix://u:p@/run/a.sock", "/run/a.sock", false, Some("u"), Some("p"));
        check("/run/a.sock", "/run/a.sock", false, None, None);
        for wrong in ["http://h", "redis://h:x", "unix://run", "redis://%zz@h", "redis://h:6379/5"] {
            assert!(Endpoint::parse(wrong).is_err(), "{wrong}");
        }
    }
}
