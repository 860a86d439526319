//! `supervised`: notifies systemd or upstart of the server's state.
//!
//! systemd's protocol is a datagram of `NAME=value` lines to the Unix socket named by
//! `NOTIFY_SOCKET`. In that name `@` stands for the zero byte of an abstract name (sd_notify(3)).
//! The code uses the standard library, because the crate sd-notify 0.5 treats an abstract name as
//! a path.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use net::UNIX_PATH_LEN_MAX;
use rustix::process::{Signal, getpid, kill_process};
use rustix::time::{ClockId, clock_gettime};

/// Maximum time for which a notification waits while the supervisor's socket is full.
const SEND_LIMIT: Duration = Duration::from_secs(1);
/// The status that systemd shows while the server accepts clients.
const READY: &str = "Ready to accept connections";

/// The supervisor that started this process and receives notifications.
#[derive(Clone, Debug, Default)]
pub enum Supervisor {
    /// There is no supervisor to notify.
    #[default]
    None,
    /// The supervisor upstart, which waits until the process stops itself.
    Upstart,
    /// The supervisor systemd, with the address of its socket for notifications.
    Systemd(SocketAddr),
}

/// The value of `supervised`: the supervisor to notify.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Supervision {
    /// Upstart is notified.
    Upstart,
    /// systemd is notified.
    Systemd,
    /// The supervisor that started this process is notified, if there is one.
    Auto,
    /// No supervisor is notified.
    No,
}

impl Supervisor {
    /// Returns the supervisor to notify, according to the option and the environment. An error is
    /// the reason why the supervisor cannot be notified.
    pub fn wanted(supervision: Supervision) -> Result<Self, String> {
        Self::within(supervision, |name| std::env::var_os(name))
    }

    fn within(supervision: Supervision, variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, String> {
        let (job, socket) = (variable("UPSTART_JOB"), variable("NOTIFY_SOCKET"));
        match (supervision, job, socket) {
            (Supervision::Upstart | Supervision::Auto, Some(_), _) => Ok(Self::Upstart),
            (Supervision::Upstart, None, _) => {
                Err("upstart supervision requested, but UPSTART_JOB not found!".to_owned())
            }
            (Supervision::Systemd | Supervision::Auto, _, Some(socket)) => match address(&socket) {
                Ok(address) => Ok(Self::Systemd(address)),
                Err(error) => {
                    Err(format!("systemd supervision error: NOTIFY_SOCKET={}: {error}", socket.display()))
                }
            },
            (Supervision::Systemd, _, None) => {
                Err("systemd supervision error: NOTIFY_SOCKET not found!".to_owned())
            }
            (Supervision::Auto, None, None) | (Supervision::No, _, _) => Ok(Self::None),
        }
    }

    /// Returns true if there is a supervisor to notify.
    pub fn is_there(&self) -> bool {
        !matches!(self, Self::None)
    }

    /// Returns the supervisor's name in INFO; `no` without one.
    pub fn name(&self) -> &'static str {
        match self {
            Self::None => "no",
            Self::Upstart => "upstart",
            Self::Systemd(_) => "systemd",
        }
    }

    /// Reports to the supervisor that the process has started and loads its data. With upstart,
    /// stops the process until upstart continues it.
    pub fn loading(&self) {
        match self {
            Self::None => {}
            Self::Upstart => {
                tracing::info!("supervised by upstart, will stop to signal readiness.");
                if let Err(error) = kill_process(getpid(), Signal::STOP) {
                    tracing::warn!(%error, "cannot stop the process to report readiness to upstart");
                }
            }
            Self::Systemd(_) => {
                tracing::info!("Supervised by systemd.");
                self.send("STATUS=Saker is loading...\n");
            }
        }
    }

    /// Reports to the supervisor that clients can connect.
    pub fn ready(&self) {
        self.send(&format!("READY=1\nSTATUS={READY}\nMAINPID={}\n", std::process::id()));
    }

    /// Reports to the supervisor the beginning of a reload (SIGHUP). [`ready`](Self::ready) reports
    /// its end.
    pub fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let usec = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={usec}\n"));
    }

    /// Reports to the supervisor that the server is about to end.
    pub fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=Saker is shutting down...\n");
    }

    fn send(&self, state: &str) {
        let Self::Systemd(address) = self else { return };
        let sent = UnixDatagram::unbound().and_then(|socket| {
            socket.set_write_timeout(Some(SEND_LIMIT))?;
            socket.send_to_addr(state.as_bytes(), address)
        });
        if let Err(error) = sent {
            tracing::warn!(%error, "cannot notify systemd");
        }
    }
}

/// Returns the address of systemd's socket: a path, or an abstract name after `@`.
fn address(socket: &OsStr) -> io::Result<SocketAddr> {
    // The `@` stands for one zero byte. The rest of an abstract name has the same length limit as a
    // path.
    let len_bytes = socket.as_bytes().strip_prefix(b"@").map_or(socket.len(), <[u8]>::len);
    if len_bytes > UNIX_PATH_LEN_MAX {
        let problem = format!("the name has {len_bytes} bytes, at most {UNIX_PATH_LEN_MAX} are possible");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    }
    match socket.as_bytes() {
        #[cfg(target_os = "linux")]
        [b'@', name @ ..] => {
            use std::os::linux::net::SocketAddrExt as _;
            SocketAddr::from_abstract_name(name)
        }
        [b'/', ..] => SocketAddr::from_pathname(socket),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "neither a path nor an abstract name")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_supervisor_is_the_one_asked_for_if_it_is_there() {
        use Supervision::{Auto, No, Systemd, Upstart};
        type Expected<'a> = Result<&'a str, &'a str>;
        let check = |wanted: Supervision, job: Option<&str>, socket: Option<&str>, expected: Expected<'_>| {
            let found = Supervisor::within(wanted, |name| match name {
                "UPSTART_JOB" => job.map(OsString::from),
                "NOTIFY_SOCKET" => socket.map(OsString::from),
                _ => None,
            });
            match (found, expected) {
                (Ok(found), Ok(name)) => assert_eq!(found.name(), name, "{wanted:?}"),
                (Err(reason), Err(words)) => assert!(reason.contains(words), "{wanted:?}: {reason}"),
                (found, expected) => panic!("{wanted:?}: {found:?}, not {expected:?}"),
            }
        };
        check(No, Some("job"), Some("/run/s"), Ok("no"));
        check(Auto, None, None, Ok("no"));
        check(Auto, Some("job"), Some("/run/s"), Ok("upstart"));
        check(Auto, None, Some("/run/s"), Ok("systemd"));
        check(Systemd, Some("job"), Some("/run/s"), Ok("systemd"));
        check(Systemd, Some("job"), None, Err("NOTIFY_SOCKET not found!"));
        check(Upstart, Some("job"), Some("/run/s"), Ok("upstart"));
        check(Upstart, None, Some("/run/s"), Err("UPSTART_JOB not found!"));
        check(Systemd, None, Some("vsock:2:1234"), Err("NOTIFY_SOCKET=vsock:2:1234: neither a path"));
        let long = "/".repeat(UNIX_PATH_LEN_MAX + 1);
        check(Systemd, None, Some(&long[1..]), Ok("systemd"));
        let problem = format!("has {} bytes, at most {UNIX_PATH_LEN_MAX}", long.len());
        check(Systemd, None, Some(&long), Err(&problem));
        #[cfg(target_os = "linux")]
        {
            check(Systemd, None, Some("@name"), Ok("systemd"));
            check(Systemd, None, Some(&long.replacen('/', "@", 1)), Ok("systemd"));
            check(Systemd, None, Some(&format!("@{long}")), Err(&problem));
        }
    }
}
