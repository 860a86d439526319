//! One connection of the copy, with its state: down, greeting or ready.

use net::ConnId;

/// The pause before the first attempt to reconnect, in nanoseconds; it doubles with each failure.
const RETRY_NS_MIN: u64 = 50_000_000;
/// The maximum pause between two attempts to reconnect, in nanoseconds.
const RETRY_NS_MAX: u64 = 2_000_000_000;

/// The server to which a connection of the copy leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The source, from which data is read.
    Source,
    /// The target, to which data is written.
    Target,
}

impl End {
    /// Returns the name of the server for messages: `source` or `target`.
    pub fn name(self) -> &'static str {
        match self {
            End::Source => "source",
            End::Target => "target",
        }
    }
}

/// The purpose of a link, a connection of the copy: a scan, events, or a lane's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The connection runs SCAN on the source or the target.
    Scan,
    /// The connection is subscribed to the keyspace events of the source.
    Events,
    /// The connection carries the requests of the lane with this index.
    Lane(usize),
}

/// The state of a link's connection to its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// There is no connection; `retry_ns` is the time of the next attempt.
    Down {
        /// The time of the next attempt to connect, in nanoseconds since the engine's start.
        retry_ns: u64,
    },
    /// The connection is being opened, or awaits replies to its greeting.
    Greeting {
        /// The number of replies to the greeting that are still missing.
        replies: u32,
    },
    /// The connection is greeted, so that requests may be sent over it.
    Ready,
}

/// A connection of the copy to the source or the target, with its purpose and its state.
#[derive(Debug)]
pub struct Link {
    /// The server to which the connection leads.
    pub end: End,
    /// The purpose of the link: a scan, events, or a lane's requests.
    pub role: Role,
    /// The connection of the link; `None` while it is down.
    pub conn: Option<ConnId>,
    /// The state of the connection: down, greeting or ready.
    pub state: State,
    /// The database selected on the connection; used only by links that scan.
    pub db: u32,
    /// The number of failed connections since the link was last ready.
    failures: u32,
    /// The time of the first failure since the link was last ready, in nanoseconds since the
    /// engine's start.
    failing_since_ns: u64,
}

impl Link {
    /// Creates a link whose connection is opened at once.
    pub fn new(end: End, role: Role) -> Self {
        let state = State::Down { retry_ns: 0 };
        Self { end, role, conn: None, state, db: 0, failures: 0, failing_since_ns: 0 }
    }

    /// Records a lost or failed connection at `now_ns`. Returns the time in nanoseconds for which
    /// the link has been failing.
    pub fn lost(&mut self, now_ns: u64) -> u64 {
        if self.failures == 0 {
            self.failing_since_ns = now_ns;
        }
        let pause = (RETRY_NS_MIN << self.failures.min(10)).min(RETRY_NS_MAX);
        self.failures += 1;
        self.conn = None;
        self.db = 0;
        self.state = State::Down { retry_ns: now_ns + pause };
        now_ns - self.failing_since_ns
    }

    /// Counts a reply to the greeting. Returns true if it was the last one, so that the link is now
    /// ready.
    pub fn greeted(&mut self) -> bool {
        if let State::Greeting { replies } = &mut self.state {
            *replies -= 1;
            if *replies == 0 {
                self.state = State::Ready;
                self.failures = 0;
                return true;
            }
        }
        false
    }

    /// Returns true if the connection is greeted, so that requests may be sent over it.
    pub fn is_ready(&self) -> bool {
        self.state == State::Ready
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_until_the_link_is_ready_again() {
        let mut link = Link::new(End::Source, Role::Scan);
        let mut retry_after = |now_ns: u64| {
            let failing_ns = link.lost(now_ns);
            let State::Down { retry_ns } = link.state else { panic!("down") };
            (retry_ns - now_ns, failing_ns)
        };
        assert_eq!(retry_after(1000), (RETRY_NS_MIN, 0));
        assert_eq!(retry_after(2000), (2 * RETRY_NS_MIN, 1000));
        for now_ns in 3000..3020 {
            retry_after(now_ns);
        }
        assert_eq!(retry_after(4000), (RETRY_NS_MAX, 3000));
        link.state = State::Greeting { replies: 2 };
        assert!(!link.greeted());
        assert!(link.greeted());
        assert_eq!(link.lost(9000), 0);
    }
}
