//! The connection of a replica to its primary: waiting for bytes, timeouts, and the reasons for
//! which the link ends.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::{Duration, Instant};

use net::{Address, ConnId, Event, EventLoop, TlsClient};
use replicate::link::LINE_LEN_MAX;
use replicate::link::request::LinkError;
use stdx::mailbox::Mailbox;

use crate::config::table::replication as options;
use crate::replication::upstream::{Link, LinkMessage};
use crate::shared::Shared;

/// The longest time between two checks whether the link to the primary must end.
pub(super) const TICK: Duration = Duration::from_millis(100);
/// The time between two newlines that keep the connection alive during a full synchronisation.
const ALIVE_INTERVAL: Duration = Duration::from_secs(1);
/// The reason for the end of a link whose primary has closed the connection. The text is that of
/// Redis.
const LOST: &str = "Connection with master lost.";

/// The reason for which a link to the primary ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LinkEnd {
    /// The link must end because the server now follows another primary, is a primary itself, or
    /// stops.
    Superseded,
    /// The connection has failed, or the primary has refused the link. Contains the error message.
    Failed(String),
}

impl std::fmt::Display for LinkEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Superseded => "the server does not follow this primary any more",
            Self::Failed(text) => text,
        })
    }
}

impl From<LinkError> for LinkEnd {
    fn from(error: LinkError) -> Self {
        Self::Failed(error.text)
    }
}

/// The event loop and the mailbox of the thread `primary-link`, which a connection uses, and the
/// state that all threads of the server share.
pub(super) struct Parts<'t> {
    pub shared: &'t Arc<Shared>,
    pub net: &'t mut EventLoop,
    pub mailbox: &'t Mailbox<LinkMessage>,
}

/// A connection to the primary. Dropping the value closes the connection.
pub(super) struct Connection<'t> {
    pub shared: &'t Arc<Shared>,
    net: &'t mut EventLoop,
    mailbox: &'t Mailbox<LinkMessage>,
    events: Vec<Event>,
    conn: ConnId,
    /// The epoch of the link: the number of times that the server had changed its primary when the
    /// link began.
    epoch: u64,
    is_connected: bool,
    /// True if the primary has finished sending. Bytes received before that are still used.
    is_finished: bool,
    /// True if CLIENT KILL has requested the end of the connection.
    is_killed: bool,
    /// The reason for which the connection is closed; `None` while it is open.
    closed: Option<String>,
    /// The number of unused input bytes when received bytes were last counted, so that the next
    /// count adds only new bytes.
    unused_bytes: usize,
    last_io: Instant,
    next_alive: Instant,
    timeout: Duration,
    /// The log message if the primary sends nothing until the timeout.
    timeout_text: &'static str,
}

impl<'t> Connection<'t> {
    /// Opens a connection to the primary at `to`, and waits until it is open. `epoch` is the epoch
    /// of the link.
    ///
    /// # Errors
    /// The reason for which it cannot be opened.
    pub fn open(parts: Parts<'t>, to: &Address, tls: Option<TlsClient>, epoch: u64) -> Result<Self, LinkEnd> {
        let Parts { shared, net, mailbox } = parts;
        let timeout = timeout(shared);
        let now = Instant::now();
        let conn = net.connect(to, tls, now + timeout);
        let mut connection = Self {
            shared,
            net,
            mailbox,
            events: Vec::new(),
            conn,
            epoch,
            is_connected: false,
            is_finished: false,
            is_killed: false,
            closed: None,
            unused_bytes: 0,
            last_io: now,
            next_alive: now,
            timeout,
            timeout_text: "Timeout connecting to the MASTER...",
        };
        while !connection.is_connected {
            connection.poll(TICK)?;
        }
        Ok(connection)
    }

    /// Sets the log message of the timeout to `text`, because the link to the primary is at another
    /// stage.
    pub fn set_timeout_text(&mut self, text: &'static str) {
        self.timeout_text = text;
    }

    /// Returns the descriptor of the connection, the address of the primary, and the local address.
    pub fn place(&self) -> (i32, Option<(Address, Address)>) {
        use std::os::fd::AsRawFd as _;
        let fd = self.net.fd(self.conn).map_or(-1, |fd| fd.as_raw_fd());
        let addresses = self.net.peer_address(self.conn).zip(self.net.local_address(self.conn));
        (fd, addresses.map(|(peer, local)| (peer.clone(), local.clone())))
    }

    /// Returns the received bytes that are not used yet, and the number of bytes received on this
    /// connection before them.
    pub fn input(&self) -> (&[u8], u64) {
        if self.closed.is_some() {
            return (&[], 0);
        }
        let inputs = self.net.inputs();
        (inputs.bytes(self.conn), inputs.position(self.conn))
    }

    /// Removes the first `len_bytes` received bytes, which the caller has used.
    pub fn consume(&mut self, len_bytes: usize) {
        if len_bytes > 0 {
            self.net.consume(self.conn, len_bytes);
            self.unused_bytes -= len_bytes;
        }
    }

    /// Prepares the input buffer for a request of the replication stream of at least `len_bytes`
    /// bytes.
    pub fn expect_input(&mut self, len_bytes: usize) {
        self.net.expect_input(self.conn, len_bytes);
    }

    /// Stops receiving bytes from the primary until [`resume`](Self::resume) is called.
    pub fn pause(&mut self) {
        self.net.pause_input(self.conn);
    }

    /// Resumes receiving bytes from the primary after [`pause`](Self::pause).
    pub fn resume(&mut self) {
        self.net.resume_input(self.conn);
    }

    /// Queues bytes for the primary; the next call of [`poll`](Self::poll) sends them.
    pub fn send(&mut self, bytes: &[u8]) {
        if self.closed.is_none() {
            self.net.output(self.conn).tail_mut().extend_from_slice(bytes);
        }
    }

    /// Restarts the time (`repl-timeout`) within which the primary must send something.
    pub fn restart_timeout(&mut self) {
        self.last_io = Instant::now();
    }

    /// Sends a newline if none was sent for a second, so that the primary does not time out during
    /// a full synchronisation. Then also sends the queued bytes, and receives without waiting.
    ///
    /// # Errors
    /// The reason for which the link must end.
    pub fn keep_alive(&mut self) -> Result<(), LinkEnd> {
        if Instant::now() < self.next_alive || self.is_finished {
            return Ok(());
        }
        self.next_alive = Instant::now() + ALIVE_INTERVAL;
        self.send(b"\n");
        self.poll(Duration::ZERO)
    }

    /// Returns an error if the primary has finished sending: the link then ends, and received bytes
    /// are not used any more.
    ///
    /// # Errors
    /// The reason for which the link must end.
    pub fn require_primary(&self) -> Result<(), LinkEnd> {
        match self.is_finished {
            true => Err(LinkEnd::Failed(LOST.to_owned())),
            false => Ok(()),
        }
    }

    /// Sends the queued bytes, and waits at most `wait` for new bytes, for a caller that cannot use
    /// the received bytes at present. Does not fail only because the primary has finished sending.
    ///
    /// # Errors
    /// The reason for which the link must end.
    pub fn hold(&mut self, wait: Duration) -> Result<(), LinkEnd> {
        if self.is_finished {
            std::thread::sleep(wait);
            return self.check();
        }
        self.poll(wait)
    }

    /// Sends the queued bytes, and waits at most `wait` for new bytes. A message to the thread
    /// `primary-link` ends the wait. Called when the received bytes do not suffice for the next
    /// step.
    ///
    /// # Errors
    /// The reason for which the link must end.
    pub fn poll(&mut self, wait: Duration) -> Result<(), LinkEnd> {
        self.require_primary()?;
        self.net.flush();
        let wait = if self.mailbox.prepare_sleep() { wait.min(TICK) } else { Duration::ZERO };
        let polled = self.net.poll(Some(wait), &mut self.events);
        self.mailbox.awake();
        while self.mailbox.receive().is_some() {}
        polled.map_err(|error| LinkEnd::Failed(error.to_string()))?;
        for event in self.events.drain(..) {
            match event {
                Event::Connected(conn) if conn == self.conn => self.is_connected = true,
                Event::ConnectFailed(conn, error) if conn == self.conn => {
                    return Err(LinkEnd::Failed(format!("Error condition on socket for SYNC: {error}")));
                }
                Event::Closed(conn, reason) if conn == self.conn => {
                    self.closed = Some(format!("Connection with master lost: {reason:?}"));
                }
                Event::PeerFinished(conn) if conn == self.conn => self.is_finished = true,
                _ => {}
            }
        }
        self.check()
    }

    /// Sends the queued bytes and receives without waiting. Returns true if bytes have arrived.
    ///
    /// # Errors
    /// The reason for which the link to the primary must end.
    pub fn has_arrived(&mut self) -> Result<bool, LinkEnd> {
        let unused_bytes = self.unused_bytes;
        self.poll(Duration::ZERO)?;
        Ok(self.unused_bytes > unused_bytes)
    }

    /// Counts the received bytes, and returns an error if the link to the primary must end.
    fn check(&mut self) -> Result<(), LinkEnd> {
        // Bytes that have arrived count even if the link must end: a caller may use them before its
        // next check.
        if self.closed.is_none() {
            self.note_arrived();
        }
        let upstream = &self.shared.replication.upstream;
        if upstream.epoch() != self.epoch || self.shared.stopping.load(Acquire) {
            return Err(LinkEnd::Superseded);
        }
        self.is_killed |= upstream.take_kill();
        if self.is_killed {
            return Err(LinkEnd::Failed("Connection with master lost: it was killed.".to_owned()));
        }
        if let Some(reason) = &self.closed {
            return Err(LinkEnd::Failed(reason.clone()));
        }
        if self.last_io.elapsed() > self.timeout {
            return Err(LinkEnd::Failed(self.timeout_text.to_owned()));
        }
        Ok(())
    }

    /// Counts the bytes received since the last call, for INFO, and restarts the timeout if there
    /// are any.
    fn note_arrived(&mut self) {
        let unused_bytes = self.net.inputs().len_bytes(self.conn);
        if unused_bytes > self.unused_bytes {
            let arrived_bytes = (unused_bytes - self.unused_bytes) as u64;
            self.unused_bytes = unused_bytes;
            self.shared.replication.figures.input_bytes.fetch_add(arrived_bytes, Relaxed);
            self.last_io = Instant::now();
            let now_ms = self.shared.uptime_ms();
            self.update(|link| link.last_io_ms = Some(now_ms));
        }
    }

    /// Reads the option `repl-timeout` again, because it may have changed.
    pub fn refresh_timeout(&mut self) {
        self.timeout = timeout(self.shared);
    }

    /// Calls `change` with the state of the link to the primary that other threads see, unless
    /// another link has replaced this one.
    pub fn update(&self, change: impl FnOnce(&mut Link)) {
        let upstream = &self.shared.replication.upstream;
        let mut link = upstream.link();
        if let Some(link) = link.as_mut().filter(|_| upstream.epoch() == self.epoch) {
            change(link);
        }
    }

    /// Waits for a line of the primary, and returns it without its line end.
    ///
    /// # Errors
    /// The reason for which the link must end; also if the line is too long.
    pub fn line(&mut self) -> Result<Vec<u8>, LinkEnd> {
        loop {
            let (input, _) = self.input();
            if let Some(end) = input.iter().take(LINE_LEN_MAX).position(|&byte| byte == b'\n') {
                let line = input[..end].strip_suffix(b"\r").unwrap_or(&input[..end]).to_vec();
                self.consume(end + 1);
                return Ok(line);
            }
            if input.len() >= LINE_LEN_MAX {
                return Err(LinkEnd::Failed("Bad protocol from MASTER: a line is too long".to_owned()));
            }
            self.poll(TICK)?;
        }
    }
}

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        if self.closed.is_none() {
            self.net.flush();
            self.net.close(self.conn);
        }
    }
}

/// Returns the value of the option `repl-timeout`.
fn timeout(shared: &Shared) -> Duration {
    Duration::from_secs(options::REPL_TIMEOUT.of(&shared.config()))
}
