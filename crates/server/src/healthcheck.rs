//! `saker-server --healthcheck [FILE] [options]`: asks a running server whether it answers, for containers
//! and supervisors that have no client at hand.
//!
//! File and options are those that the server runs with: they say where it listens. The password is that of
//! the environment variable `REDISCLI_AUTH`, else `requirepass`. With a password the reply must be PONG;
//! without one a server that asks for it is healthy as well, so that the check needs no secret.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::Duration;

use server::config::{ConfigStore, apply};

/// The flag, the first of the arguments.
pub const FLAG: &[u8] = b"--healthcheck";

/// Longest wait for a connection, and for a reply.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Bytes of the longest reply: a status or an error.
const REPLY_LEN_BYTES_MAX: u64 = 1024;

/// Asks the server that runs with these options, and prints the result.
pub fn run(store: &ConfigStore) -> ExitCode {
    let password = std::env::var_os("REDISCLI_AUTH").map(OsStringExt::into_vec);
    let password = password.unwrap_or_else(|| store.text("requirepass").to_vec());
    match check(store, &password) {
        Ok(()) => super::print("PONG"),
        Err(problem) => {
            eprintln!("saker-server: not healthy: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn check(store: &ConfigStore, password: &[u8]) -> Result<(), String> {
    let (socket, folder) = (apply::path(store.text("unixsocket")), apply::path(store.text("dir")));
    let port = store.integer("port") as u16;
    if port == 0 && socket.as_os_str().is_empty() {
        return Err("the options name neither a port nor a Unix socket".into());
    }
    if port == 0 {
        let socket = folder.join(socket);
        let failed = |error: io::Error| format!("{}: {error}", socket.display());
        let stream = UnixStream::connect(&socket).map_err(failed)?;
        stream.set_read_timeout(Some(TIMEOUT)).map_err(failed)?;
        stream.set_write_timeout(Some(TIMEOUT)).map_err(failed)?;
        return judge(&ping(stream, password).map_err(failed)?, password);
    }
    let bound =
        apply::bind_addresses(store.words("bind")).map_err(|error| format!("no address: {}", error.0))?;
    let mut problem = "the option 'bind' names no address".to_owned();
    for address in bound {
        let address = SocketAddr::new(reachable(address.ip), port);
        let asked = TcpStream::connect_timeout(&address, TIMEOUT).and_then(|stream| {
            stream.set_read_timeout(Some(TIMEOUT))?;
            stream.set_write_timeout(Some(TIMEOUT))?;
            ping(stream, password)
        });
        match asked {
            Ok(reply) => return judge(&reply, password),
            Err(error) => problem = format!("{address}: {error}"),
        }
    }
    Err(problem)
}

/// The address to connect to where a server listens on `ip`.
fn reachable(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    }
}

/// Sends PING, behind AUTH where there is a password; the reply to PING.
fn ping(mut stream: impl Read + Write, password: &[u8]) -> io::Result<String> {
    let mut requests = Vec::new();
    if !password.is_empty() {
        resp::encode_request(&[b"AUTH".as_slice(), password], &mut requests);
    }
    resp::encode_request(&[b"PING".as_slice()], &mut requests);
    stream.write_all(&requests)?;
    let mut replies = BufReader::new(stream.take(2 * REPLY_LEN_BYTES_MAX));
    let mut reply = String::new();
    if !password.is_empty() {
        // Whether the password was right shows in the reply to PING.
        replies.read_line(&mut reply)?;
        reply.clear();
    }
    match replies.read_line(&mut reply)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(reply.trim_end().to_owned()),
    }
}

fn judge(reply: &str, password: &[u8]) -> Result<(), String> {
    match reply {
        "+PONG" => Ok(()),
        reply if password.is_empty() && reply.starts_with("-NOAUTH") => Ok(()),
        reply => Err(format!("PING was answered with {reply}")),
    }
}
