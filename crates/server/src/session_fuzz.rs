//! Fuzz target of a client session, before and after authentication. One server in the fuzzer's
//! process serves all inputs.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::OnceLock;
use std::time::Duration;

use crate::Server;

const PASSWORD: &str = "secret";
/// Time after which a missing reply means that the client is blocked by its request.
const WITHIN: Duration = Duration::from_millis(200);
/// Time within which the server must reply to another client.
const ALIVE_WITHIN: Duration = Duration::from_secs(20);
/// Commands that the fuzzer does not send. They end the server, change the test itself, access
/// files or other servers, or run without a time limit. Some have their own targets (`config`,
/// `lua`).
const LEFT_OUT: &[&str] = &[
    "SHUTDOWN",
    "CONFIG",
    "MIGRATE",
    "REPLICAOF",
    "SLAVEOF",
    "BACKUP",
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

/// Sends the input to a server and checks that the replies are well formed and that the server then
/// serves another client. The first byte decides if the client authenticates before it sends the
/// other bytes. Among these, a line that begins with `> ` is a request, as in the scripts of
/// tests/cmd. If there are such lines, all other lines are ignored.
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
            // The last reply is incomplete, because the client was closed or is blocked.
            Ok(None) => break,
            Err(error) => panic!("{error:?} in {}", replies.escape_ascii()),
        }
    }
    assert_alive(port);
}

/// Returns the bytes to send: the requests of the lines that begin with `> ` or, if there are none,
/// all of `rest`.
fn requests(rest: &[u8]) -> Vec<u8> {
    let lines = rest.split(|&byte| byte == b'\n').filter_map(|line| line.strip_prefix(b"> "));
    let lines: Vec<u8> = lines.flat_map(|line| [line, b"\r\n"].concat()).collect();
    if lines.is_empty() { rest.to_vec() } else { lines }
}

/// Returns the port of the server. The first call starts the server, which runs until the process
/// ends.
fn port() -> u16 {
    static SERVER: OnceLock<Server> = OnceLock::new();
    let start = || {
        // The user may not call CLIENT PAUSE: as in Redis, no command can end a pause of all
        // commands.
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

/// Sends `bytes`. Returns the bytes received until the server closes the connection, or sends
/// nothing for [`WITHIN`].
fn send(port: u16, bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(WITHIN))?;
    stream.set_write_timeout(Some(WITHIN))?;
    // The server may have closed the connection already.
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

/// Checks that the server still replies to another client, within [`ALIVE_WITHIN`].
fn assert_alive(port: u16) {
    let ask = || -> io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(ALIVE_WITHIN))?;
        stream.write_all(format!("AUTH {PASSWORD}\r\nPING\r\nQUIT\r\n").as_bytes())?;
        let mut replies = Vec::new();
        stream.read_to_end(&mut replies)?;
        Ok(replies)
    };
    // A client from the fuzz input may still run, and its requests may close this client. It has
    // ended before the last attempt.
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
