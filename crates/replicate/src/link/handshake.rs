//! The handshake of a replica with its primary.
//!
//! ```text
//!   PING ─► AUTH, REPLCONF port, address, capabilities, version (in one write) ─► PSYNC
//! ```
//! The replies have the same consequences as in Redis: an error of AUTH ends the link, an error of
//! REPLCONF does not, because older servers lack some of its options. Source: `syncWithMaster` and
//! `slaveTryPartialResynchronization` of Redis 8.0.2.

use std::collections::VecDeque;

use stdx::number::parse_i64;

use crate::handshake::Version;
use crate::history::ReplId;
use crate::link::request::{LinkError, push_request, shown, trimmed};

/// The Valkey version that this server announces to its primary. A primary of a higher version than
/// 9.1 may send snapshots with parts that this server cannot read.
pub const ANNOUNCED_VERSION: Version = (9, 1, 0);

/// The values that a replica announces or uses in the handshake with its primary.
#[derive(Clone, Debug, Default)]
pub struct LinkOptions {
    /// The user name for AUTH; `None` for the default user. Ignored without a password.
    pub user: Option<Vec<u8>>,
    /// The password for AUTH; `None` if the primary requires none.
    pub password: Option<Vec<u8>>,
    /// The port at which other servers can reach this server.
    pub listening_port: u16,
    /// The address at which other servers can reach this server; `None` if it is that of the
    /// connection.
    pub announced_ip: Option<String>,
    /// The announced Valkey version; `None` to announce none, as Redis does.
    pub version: Option<Version>,
    /// The ID of the history that this server has, and the 1-based offset of the next byte of the
    /// replication stream that this server needs. `None` to request a full synchronisation. See
    /// [`crate::primary::Primary::resume_point`].
    pub resume: Option<(ReplId, u64)>,
    /// True if PSYNC also asks the other server to become the primary. See [`crate::failover`].
    pub is_failover: bool,
}

/// The next step of the handshake, after a line of the primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// The replica sends these bytes to the primary, then waits for the next line of the reply.
    Send(Vec<u8>),
    /// The replica sends nothing and waits for the next line of the primary.
    Await,
    /// The handshake has ended: the primary sends a snapshot, and then the replication stream from
    /// `offset` on.
    Full {
        /// The replication ID of the primary's history.
        id: ReplId,
        /// The 0-based offset of the first byte of the replication stream after the snapshot, which
        /// is the number of bytes before it.
        offset: u64,
    },
    /// The handshake has ended: the primary sends the replication stream from the requested offset
    /// on.
    Continue {
        /// The new replication ID of the primary's history; `None` if the requested ID is still
        /// valid.
        id: Option<ReplId>,
    },
    /// The handshake has failed; the replica must close the connection to the primary.
    Failed(LinkError),
}

/// The kind of request whose reply is expected next in the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaited {
    Ping,
    Auth,
    /// The request REPLCONF with this option was sent, and its reply is expected.
    Replconf(&'static str),
    Psync,
}

/// The handshake of a replica with its primary: it returns the requests to send and processes the
/// replies.
#[derive(Debug)]
pub struct LinkHandshake {
    options: LinkOptions,
    awaited: VecDeque<Awaited>,
    notes: Vec<String>,
}

impl LinkHandshake {
    /// Creates the handshake of a replica with its primary, whose connection is open.
    pub fn new(options: LinkOptions) -> Self {
        Self { options, awaited: VecDeque::from([Awaited::Ping]), notes: Vec::new() }
    }

    /// Returns the bytes of the handshake's first request, PING.
    pub fn begin(&self) -> Vec<u8> {
        let mut out = Vec::new();
        push_request(&mut out, &[b"PING"]);
        out
    }

    /// Returns, and then forgets, the log messages about REPLCONF options that the primary does not
    /// know.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Returns true if the reply to PSYNC is expected next: PSYNC was sent or is about to be sent.
    pub fn has_asked(&self) -> bool {
        self.awaited.front() == Some(&Awaited::Psync)
    }

    /// Handles a line received from the primary and returns the next step. The line may include its
    /// line end.
    ///
    /// # Panics
    /// If the last step was `Full`, `Continue` or `Failed`.
    pub fn line(&mut self, line: &[u8]) -> Next {
        let line = trimmed(line);
        let awaited = *self.awaited.front().expect("the handshake is in progress");
        match self.judge(awaited, line) {
            Err(error) => {
                self.awaited.clear();
                Next::Failed(error)
            }
            Ok(next @ (Next::Full { .. } | Next::Continue { .. })) => {
                self.awaited.clear();
                next
            }
            Ok(next) => next,
        }
    }

    fn judge(&mut self, awaited: Awaited, line: &[u8]) -> Result<Next, LinkError> {
        match awaited {
            Awaited::Ping => check_ping(line)?,
            Awaited::Auth if line.first() == Some(&b'-') => {
                let text = format!("Unable to AUTH to MASTER: {}", shown(line));
                return Err(LinkError::of_reply(line, text));
            }
            Awaited::Replconf(option) if line.first() == Some(&b'-') => {
                let reply = shown(line);
                self.notes
                    .push(format!("(Non critical) Master does not understand REPLCONF {option}: {reply}"));
            }
            Awaited::Auth | Awaited::Replconf(_) => {}
            Awaited::Psync => return psync_reply(line, self.options.resume),
        }
        self.awaited.pop_front();
        if awaited == Awaited::Ping {
            return Ok(Next::Send(self.announce()));
        }
        if self.awaited.is_empty() {
            self.awaited.push_back(Awaited::Psync);
            return Ok(Next::Send(self.psync()));
        }
        Ok(Next::Await)
    }

    /// Returns the requests of the handshake between PING and PSYNC, and adds them to the requests
    /// whose replies are expected.
    fn announce(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        if let Some(password) = &self.options.password {
            let user = self.options.user.as_deref();
            let words = [Some(&b"AUTH"[..]), user, Some(password)];
            push_request(&mut out, &words.into_iter().flatten().collect::<Vec<_>>());
            self.awaited.push_back(Awaited::Auth);
        }
        let mut replconf = |option, words: &[&[u8]]| {
            push_request(&mut out, &[&[&b"REPLCONF"[..]], words].concat());
            self.awaited.push_back(Awaited::Replconf(option));
        };
        let port = self.options.listening_port.to_string();
        replconf("listening-port", &[b"listening-port", port.as_bytes()]);
        if let Some(ip) = &self.options.announced_ip {
            replconf("ip-address", &[b"ip-address", ip.as_bytes()]);
        }
        replconf("capa", &[b"capa", b"eof", b"capa", b"psync2", b"capa", b"saker"]);
        if let Some((major, minor, patch)) = self.options.version {
            let version = format!("{major}.{minor}.{patch}");
            replconf("version", &[b"version", version.as_bytes()]);
        }
        out
    }

    fn psync(&self) -> Vec<u8> {
        let (id, next) = match self.options.resume {
            Some((id, next)) => (id.to_string(), next.to_string()),
            None => ("?".to_owned(), "-1".to_owned()),
        };
        let mut out = Vec::new();
        let words: [&[u8]; 4] = [b"PSYNC", id.as_bytes(), next.as_bytes(), b"FAILOVER"];
        push_request(&mut out, if self.options.is_failover { &words } else { &words[..3] });
        out
    }
}

/// Checks the reply to PING. An error that requires authentication is accepted, because AUTH
/// follows.
fn check_ping(line: &[u8]) -> Result<(), LinkError> {
    let accepted = [&b"+"[..], b"-NOAUTH", b"-NOPERM", b"-ERR operation not permitted"];
    match accepted.iter().any(|begin| line.starts_with(begin)) {
        true => Ok(()),
        false => {
            let text = format!("Error reply to PING from master: '{}'", shown(line));
            Err(LinkError::of_reply(line, text))
        }
    }
}

/// Parses the primary's reply to PSYNC. Returns the next step of the handshake. `+CONTINUE` is an
/// error unless the request named an offset.
fn psync_reply(line: &[u8], resume: Option<(ReplId, u64)>) -> Result<Next, LinkError> {
    let mut words = line.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
    let id_of = |word: Option<&[u8]>| word.and_then(ReplId::parse);
    match words.next() {
        // The primary sends newlines while it prepares the reply.
        None => Ok(Next::Await),
        Some(b"+FULLRESYNC") => {
            let id = id_of(words.next());
            let offset = words.next().and_then(parse_i64).and_then(|offset| u64::try_from(offset).ok());
            match (id, offset, words.next()) {
                (Some(id), Some(offset), None) => Ok(Next::Full { id, offset }),
                _ => Err(LinkError::new(format!(
                    "Master replied with wrong +FULLRESYNC syntax: {}",
                    shown(line)
                ))),
            }
        }
        Some(b"+CONTINUE") if resume.is_some() => match (words.next(), words.next()) {
            (None, _) => Ok(Next::Continue { id: None }),
            (word, None) if id_of(word).is_some() => Ok(Next::Continue { id: id_of(word) }),
            _ => Err(LinkError::new(format!("Master replied with wrong +CONTINUE syntax: {}", shown(line)))),
        },
        Some(_) => Err(LinkError::of_reply(line, refusal_of_psync(line))),
    }
}

/// Returns the error message for a reply to PSYNC that neither begins a synchronisation nor is an
/// expected error.
fn refusal_of_psync(line: &[u8]) -> String {
    let reply = shown(line);
    if line.starts_with(b"-NOMASTERLINK") || line.starts_with(b"-LOADING") {
        format!("Master is currently unable to PSYNC but should be in the future: {reply}")
    } else if line.starts_with(b"-ERR") {
        format!("Master does not support PSYNC or is in error state (reply: {reply})")
    } else {
        format!("Unexpected reply to PSYNC from master: {reply}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> LinkOptions {
        LinkOptions { listening_port: 6380, ..LinkOptions::default() }
    }

    /// Returns the names and arguments of the requests in `bytes`, one request a line.
    fn words(bytes: &[u8]) -> String {
        let text = String::from_utf8_lossy(bytes);
        let mut out = String::new();
        for line in text.split_terminator("\r\n") {
            match line.as_bytes()[0] {
                b'*' if out.is_empty() => {}
                b'*' => out.push('\n'),
                b'$' => {}
                _ if out.is_empty() || out.ends_with('\n') => out.push_str(line),
                _ => out = out + " " + line,
            }
        }
        out
    }

    /// Passes `lines` of a primary to the handshake; only the last line may end it. Returns the
    /// step after the last line.
    fn after(handshake: &mut LinkHandshake, lines: &[&str]) -> Next {
        let (last, first) = lines.split_last().expect("there is one");
        for line in first {
            let next = handshake.line(line.as_bytes());
            assert!(matches!(next, Next::Send(_) | Next::Await), "{line}: {next:?}");
        }
        handshake.line(last.as_bytes())
    }

    fn sent(next: Next) -> String {
        let Next::Send(bytes) = next else { panic!("nothing is sent: {next:?}") };
        words(&bytes)
    }

    fn failure(next: Next) -> LinkError {
        let Next::Failed(error) = next else { panic!("it does not fail: {next:?}") };
        error
    }

    #[test]
    fn a_replica_without_data_asks_for_all() {
        let mut handshake = LinkHandshake::new(options());
        assert_eq!(handshake.begin(), b"*1\r\n$4\r\nPING\r\n");
        let announced = sent(handshake.line(b"+PONG\r\n"));
        assert_eq!(announced, "REPLCONF listening-port 6380\nREPLCONF capa eof capa psync2 capa saker");
        assert_eq!(handshake.line(b"+OK\r"), Next::Await);
        assert_eq!(sent(handshake.line(b"+OK\r")), "PSYNC ? -1");
        assert_eq!(handshake.line(b"\r"), Next::Await);
        assert_eq!(handshake.line(b""), Next::Await);
        let id = ReplId::of_bits(7, 8, 9);
        let next = handshake.line(format!("+FULLRESYNC {id} 0\r\n").as_bytes());
        assert_eq!(next, Next::Full { id, offset: 0 });
    }

    #[test]
    fn all_options_are_announced_in_one_write() {
        let (id, other) = (ReplId::of_bits(7, 8, 9), ReplId::of_bits(1, 0, 0));
        let mut handshake = LinkHandshake::new(LinkOptions {
            user: Some(b"repl".to_vec()),
            password: Some(b"secret".to_vec()),
            announced_ip: Some("10.0.0.1".to_owned()),
            version: Some(ANNOUNCED_VERSION),
            resume: Some((id, 101)),
            ..options()
        });
        let announced = sent(handshake.line(b"-NOAUTH Authentication required."));
        let expected = [
            "AUTH repl secret",
            "REPLCONF listening-port 6380",
            "REPLCONF ip-address 10.0.0.1",
            "REPLCONF capa eof capa psync2 capa saker",
            "REPLCONF version 9.1.0",
        ];
        assert_eq!(announced.lines().collect::<Vec<_>>(), expected);
        let error = "-ERR Unrecognized REPLCONF option: version";
        let next = after(&mut handshake, &["+OK", "+OK", "-ERR no", "+OK", error]);
        assert_eq!(sent(next), format!("PSYNC {id} 101"));
        let notes = handshake.take_notes();
        assert_eq!(notes.len(), 2);
        assert!(notes[0].contains("REPLCONF ip-address: -ERR no") && notes[1].ends_with(error));
        let next = handshake.line(format!("+CONTINUE {other}\r").as_bytes());
        assert_eq!(next, Next::Continue { id: Some(other) });
    }

    #[test]
    fn a_failover_asks_the_replica_to_become_the_primary() {
        let id = ReplId::of_bits(7, 8, 9);
        let mut handshake =
            LinkHandshake::new(LinkOptions { resume: Some((id, 101)), is_failover: true, ..options() });
        assert!(matches!(handshake.line(b"+PONG"), Next::Send(_)) && !handshake.has_asked());
        let next = after(&mut handshake, &["+OK", "+OK"]);
        assert_eq!(sent(next), format!("PSYNC {id} 101 FAILOVER"));
        assert!(handshake.has_asked());
        let error = failure(handshake.line(b"-ERR PSYNC FAILOVER can't be sent to a master."));
        assert!(error.text.ends_with("(reply: -ERR PSYNC FAILOVER can't be sent to a master.)"), "{error}");
    }

    #[test]
    fn a_password_without_user_is_that_of_the_default_user() {
        let password = Some(b"secret".to_vec());
        let mut handshake = LinkHandshake::new(LinkOptions { password, ..options() });
        assert!(sent(handshake.line(b"+PONG")).starts_with("AUTH secret\nREPLCONF"));
        let error = failure(handshake.line(b"-WRONGPASS invalid username-password pair"));
        assert_eq!(error.text, "Unable to AUTH to MASTER: -WRONGPASS invalid username-password pair");
        assert!(!error.is_transient);
    }

    #[test]
    fn ping_may_be_refused_for_want_of_authentication_only() {
        for (line, is_accepted, is_transient) in [
            ("+PONG", true, false),
            ("-NOAUTH Authentication required.", true, false),
            ("-NOPERM this user has no permissions", true, false),
            ("-ERR operation not permitted", true, false),
            ("-ERR unknown command", false, false),
            ("-LOADING Redis is loading the dataset in memory", false, true),
            ("-MASTERDOWN Link with MASTER is down", false, true),
            ("-DENIED Redis is running in protected mode", false, false),
            ("$4", false, false),
            ("", false, false),
        ] {
            match LinkHandshake::new(options()).line(line.as_bytes()) {
                Next::Send(_) => assert!(is_accepted, "{line}"),
                Next::Failed(error) => {
                    assert_eq!((is_accepted, is_transient), (false, error.is_transient), "{line}");
                    assert_eq!(error.text, format!("Error reply to PING from master: '{line}'"));
                }
                next => panic!("{line}: {next:?}"),
            }
        }
    }

    #[test]
    fn refusals_of_psync_are_told_from_one_another() {
        let id = ReplId::of_bits(7, 8, 9);
        for (line, begin, is_transient) in [
            ("-NOMASTERLINK Can't SYNC while not connected", "Master is currently unable", true),
            ("-LOADING Redis is loading", "Master is currently unable", true),
            ("-ERR unknown command", "Master does not support PSYNC", false),
            ("-NOAUTH Authentication required.", "Unexpected reply to PSYNC", false),
            ("$12", "Unexpected reply to PSYNC", false),
            ("+DUALCHANNELSYNC", "Unexpected reply to PSYNC", false),
            ("+CONTINUED", "Unexpected reply to PSYNC", false),
            ("+CONTINUE 1234", "Master replied with wrong +CONTINUE", false),
            ("+FULLRESYNC", "Master replied with wrong +FULLRESYNC", false),
            ("+FULLRESYNC 1234 5", "Master replied with wrong +FULLRESYNC", false),
            (&format!("+FULLRESYNC {id}"), "Master replied with wrong +FULLRESYNC", false),
            (&format!("+FULLRESYNC {id} -1"), "Master replied with wrong +FULLRESYNC", false),
            (&format!("+FULLRESYNC {id} 1x"), "Master replied with wrong +FULLRESYNC", false),
        ] {
            let resume = Some((id, 1));
            let mut handshake = LinkHandshake::new(LinkOptions { resume, ..options() });
            let error = failure(after(&mut handshake, &["+PONG", "+OK", "+OK", line]));
            assert!(error.text.starts_with(begin), "{line}: {error}");
            assert_eq!(error.is_transient, is_transient, "{line}");
        }
    }

    #[test]
    fn the_stream_continues_only_where_it_was_asked_to() {
        let resume = Some((ReplId::of_bits(7, 8, 9), 1));
        let mut handshake = LinkHandshake::new(LinkOptions { resume, ..options() });
        let next = after(&mut handshake, &["+PONG", "+OK", "+OK", "", "+CONTINUE"]);
        assert_eq!(next, Next::Continue { id: None });
        let mut handshake = LinkHandshake::new(options());
        let error = failure(after(&mut handshake, &["+PONG", "+OK", "+OK", "+CONTINUE"]));
        assert!(error.text.starts_with("Unexpected reply to PSYNC"), "{error}");
    }

    #[test]
    fn no_control_characters_reach_the_log() {
        let error = failure(LinkHandshake::new(options()).line(b"-ERR \x1b[31m\xff"));
        assert_eq!(error.text, "Error reply to PING from master: '-ERR ?[31m\u{fffd}'");
    }
}
