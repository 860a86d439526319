//! What must hold for whatever a client sends, before and after it has authenticated, as a function
//! that a fuzzer calls. It has a server in its own process, for all inputs.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::OnceLock;
use std::time::Duration;

use crate::Server;

/// What the server asks for.
const PASSWORD: &str = "secret";
/// A reply that takes so long does not come: the client is blocked.
const WITHIN: Duration = Duration::from_millis(200);
/// The server answers others within this time.
const ALIVE_WITHIN: Duration = Duration::from_secs(20);
/// Commands that end the server, change what is tested, reach files or others, or run as long as
/// they like: these have targets of their own (`config`, `lua`).
const LEFT_OUT: &[&str] = &[
    "SHUTDOWN",
    "CONFIG",
    "MIGRATE",
    "SAVE",
    "BGSAVE",
    "BGREWRITEAOF",
    "EVAL",
    "EVAL_RO",
    "EVALSHA",
    "EVALSHA_RO",
    "FCALL",
    "FCALL_RO",
    "FUNCTION",
    "SCRIPT",
    "ACL",
];

/// Any bytes are answered with well-formed replies, or none, and the server serves others
/// afterwards. The first byte says whether the client authenticates ahead of the rest. In the rest
/// a line that begins with `> ` is a request as the scripts in tests/cmd have it; where there are
/// such lines, others are remarks.
///
/// # Panics
/// If a reply is malformed, or the server does not answer another client.
pub fn fuzz_session(data: &[u8]) {
    let Some((&how, rest)) = data.split_first() else { return };
    let port = port();
    let login = if how & 1 == 1 { format!("AUTH {PASSWORD}\r\n") } else { String::new() };
    let replies = send(port, &[login.as_bytes(), &requests(rest)].concat()).unwrap_or_default();
    let mut at = 0;
    while at < replies.len() {
        match resp::decode(&replies[at..]) {
            Ok(Some((_, len))) => at += len,
            // Cut off where the client was closed, or where it stopped to wait.
            Ok(None) => break,
            Err(error) => panic!("{error:?} in {}", replies.escape_ascii()),
        }
    }
    assert_alive(port);
}

/// The bytes to send.
fn requests(rest: &[u8]) -> Vec<u8> {
    let lines = rest.split(|&byte| byte == b'\n').filter_map(|line| line.strip_prefix(b"> "));
    let lines: Vec<u8> = lines.flat_map(|line| [line, b"\r\n"].concat()).collect();
    if lines.is_empty() { rest.to_vec() } else { lines }
}

/// The port of the server, which lives as long as the process.
fn port() -> u16 {
    static SERVER: OnceLock<Server> = OnceLock::new();
    let start = || {
        // A pause of all commands cannot be ended by a command, as in Redis.
        let rules = format!("default on >{PASSWORD} ~* &* +@all -client|pause");
        let mut builder = Server::builder().port(0).io_threads(1).option("user", &rules);
        for option in
            [["maxmemory", "64mb"], ["maxmemory-policy", "allkeys-random"], ["proto-max-bulk-len", "1mb"]]
        {
            builder = builder.option(option[0], option[1]);
        }
        for name in LEFT_OUT {
            builder = builder.option("rename-command", &format!("{name} \"\""));
        }
        builder.start().expect("the server starts")
    };
    SERVER.get_or_init(start).port()
}

/// Everything that comes back until the server closes or waits for more.
fn send(port: u16, bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(WITHIN))?;
    stream.set_write_timeout(Some(WITHIN))?;
    // It may have been closed already.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let mut replies = Vec::new();
    let mut chunk = [0; 16 << 10];
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => return Ok(replies),
            Ok(len) => replies.extend_from_slice(&chunk[..len]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Ok(replies);
            }
            Err(error) => return Err(error),
        }
    }
}

/// The server answers another client, whatever the first has done.
fn assert_alive(port: u16) {
    let ask = || -> io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(ALIVE_WITHIN))?;
        stream.write_all(format!("AUTH {PASSWORD}\r\nPING\r\nQUIT\r\n").as_bytes())?;
        let mut replies = Vec::new();
        stream.read_to_end(&mut replies)?;
        Ok(replies)
    };
    // A client of the input that is still served may kill this one: it has ended by the next try.
    let tries = (0..3).map(|_| ask());
    let last = tries.take_while(|reply| !matches!(reply, Ok(reply) if reply == b"+OK\r\n+PONG\r\n+OK\r\n"));
    let last: Vec<_> = last.collect();
    assert!(last.len() < 3, "the server does not answer: {last:?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_sessions_are_served() {
        let sessions: &[&[u8]] = &[
            b"\x00PING\r\nAUTH x\r\nHELLO 3\r\n*1\r\n$4\r\nPING\r\n",
            b"\x01# a remark\n> SET k v\n> GET k\n+OK\n> CLIENT PAUSE 100000\n> GET k\n",
            b"\x01> HELLO 3\n> CLIENT KILL TYPE normal SKIPME no\n",
            b"\x01> SUBSCRIBE c\n> PUBLISH c x\n> BLPOP nothing 0\n",
            b"\x01> MONITOR\n> PING \"a\\r\\nb\"\n",
            b"\x00*10\r\n$16384\r\nx",
            b"\x01> SHUTDOWN\n> SETRANGE k 536870000 x\n",
        ];
        for session in sessions {
            fuzz_session(session);
        }
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..50 {
            let len = rng.usize(0..200);
            fuzz_session(&std::iter::repeat_with(|| rng.u8(..)).take(len).collect::<Vec<_>>());
        }
    }
}
