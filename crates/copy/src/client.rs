//! A connection on which requests are answered one after the other, for set-up and for single
//! keys.

use std::time::{Duration, Instant};

use net::{ConnId, Event, EventLoop, LoopOptions};
use resp::{Value, decode, encode_request};

use crate::by_type::{Ask, Request, request};
use crate::server::Server;

/// The maximum time for opening a connection to a server.
pub const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// The pause between two attempts to send a request to a server.
const RETRY_EVERY: Duration = Duration::from_millis(100);
/// The longest time to wait for the reply to a request.
const REPLY_WITHIN: Duration = Duration::from_secs(60);

/// A client of one server: connects when needed, and sends requests one after the other.
pub struct Client {
    server: Server,
    net: EventLoop,
    conn: Option<ConnId>,
    /// True after the first connection. From then on, a lost connection is opened again.
    was_connected: bool,
    retry_for: Duration,
}

impl Client {
    /// Creates a client, which connects at its first request. If the connection is lost before
    /// the reply, the request is sent again, for up to `retry_for`.
    pub fn new(server: &Server, retry_for: Duration) -> Result<Self, String> {
        let options = LoopOptions { gather_us_max: 0, ..LoopOptions::default() };
        let net = EventLoop::new(&options).map_err(|error| error.to_string())?;
        Ok(Self { server: server.clone(), net, conn: None, was_connected: false, retry_for })
    }

    /// Sends one request that may be repeated, and returns its reply, which may be an error of the
    /// server. Connects if necessary.
    pub fn one(&mut self, words: &[&[u8]]) -> Result<Value, String> {
        let deadline = Instant::now() + self.retry_for;
        loop {
            match self.open().and_then(|()| self.ask(&[request(words)])) {
                Ok(mut replies) => return replies.pop().ok_or_else(|| "no reply".to_owned()),
                Err(error) if !self.was_connected || Instant::now() > deadline => return Err(error),
                Err(_) => std::thread::sleep(RETRY_EVERY),
            }
        }
    }

    /// Connects to the server, unless a connection is open. Database 0 is selected on a new
    /// connection.
    pub fn open(&mut self) -> Result<(), String> {
        if self.conn.is_none() {
            self.conn = Some(self.connect()?);
            self.was_connected = true;
        }
        Ok(())
    }

    /// Returns true if the connection was open before and is lost now.
    pub fn is_lost(&self) -> bool {
        self.conn.is_none()
    }

    fn connect(&mut self) -> Result<ConnId, String> {
        let failed = |server: &Server, error: String| format!("connecting to {server}: {error}");
        let address = self.server.address().map_err(|error| failed(&self.server, error))?;
        let conn = self.net.connect(&address, self.server.tls(), Instant::now() + CONNECT_WITHIN);
        let mut greeting = Vec::new();
        let replies = self.server.greet(&mut greeting);
        let replies =
            self.exchange(conn, &greeting, replies as usize).map_err(|error| failed(&self.server, error))?;
        if let Some(Value::Error(error)) = replies.iter().find(|reply| reply.is_error()) {
            self.net.close(conn);
            return Err(failed(&self.server, error.escape_ascii().to_string()));
        }
        Ok(conn)
    }

    /// Sends `bytes`, which hold `count` requests, over `conn`. Waits for the replies and returns
    /// them, or an error if the connection is lost or silent for too long.
    fn exchange(&mut self, conn: ConnId, bytes: &[u8], count: usize) -> Result<Vec<Value>, String> {
        self.net.output(conn).tail_mut().extend_from_slice(bytes);
        let deadline = Instant::now() + REPLY_WITHIN;
        let mut replies = Vec::with_capacity(count);
        let mut events = Vec::new();
        while replies.len() < count {
            self.net.flush();
            self.net
                .poll(Some(Duration::from_millis(100)), &mut events)
                .map_err(|error| error.to_string())?;
            for event in events.drain(..) {
                match event {
                    Event::Closed(id, reason) if id == conn => {
                        self.conn = None;
                        return Err(format!("the connection to {} was lost: {reason:?}", self.server));
                    }
                    Event::ConnectFailed(id, error) if id == conn => return Err(error.to_string()),
                    Event::HandshakeFailed(id, error) if id == conn => return Err(error.into()),
                    _ => {}
                }
            }
            self.take_replies(conn, count, &mut replies)?;
            if Instant::now() > deadline {
                self.net.close(conn);
                self.conn = None;
                return Err(format!("{} sent no reply for {} s", self.server, REPLY_WITHIN.as_secs()));
            }
        }
        Ok(replies)
    }

    fn take_replies(&mut self, conn: ConnId, count: usize, replies: &mut Vec<Value>) -> Result<(), String> {
        let bytes = self.net.inputs().bytes(conn);
        let mut at = 0;
        while replies.len() < count {
            match decode(&bytes[at..]).map_err(|error| error.to_string())? {
                Some((reply, len)) => {
                    replies.push(reply);
                    at += len;
                }
                None => break,
            }
        }
        self.net.consume(conn, at);
        Ok(())
    }
}

/// Requests that belong together: all of them are sent on one connection. After a lost connection,
/// the caller must begin again with the first one.
impl Ask for Client {
    fn ask(&mut self, requests: &[Request]) -> Result<Vec<Value>, String> {
        let conn = self.conn.ok_or_else(|| format!("the connection to {} was lost", self.server))?;
        let mut bytes = Vec::new();
        for request in requests {
            encode_request(request, &mut bytes);
        }
        self.exchange(conn, &bytes, requests.len())
    }
}
