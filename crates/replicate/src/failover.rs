//! The coordinated failover of a primary to one of its replicas.
//!
//! ```text
//!   FAILOVER ─► waiting-for-sync ── a replica has the whole stream ─► failover-in-progress ─► none
//!                    │  └── deadline, forced ──────────────────────────────▲    │
//!                    └── deadline, ABORT ─► none    none ◄── ABORT, refusal ────┘
//! ```
//! Writes are paused in both states, so the replication stream gets no changes. In the first state
//! the server is a primary that waits for an acknowledgement of all changes. In the second one it
//! is a replica of the chosen server, which it asks with `PSYNC … FAILOVER` to become the primary.
//! The texts of the messages are those of Redis.

use std::fmt;

use crate::handshake::Purpose;
use crate::primary::Primary;
use crate::replica::{Dialect, Replica};

/// The reason in the log message if the command FAILOVER ABORT ends the failover.
pub const ABORTED: &str = "Failover manually aborted";
/// The reason in the log message if the target has refused to become the primary.
pub const REJECTED: &str = "Failover target rejected psync request";
/// The reason in the log message if no replica has caught up before the deadline.
const NEVER_CAUGHT_UP: &str = "Replica never caught up before timeout";
/// The reason in the log message if the server has become a replica after the failover began.
const FOLLOWS: &str = "The server has become a replica";
/// The longest time between two checks of the replicas, in milliseconds.
const CHECK_INTERVAL_MS: u64 = 100;

/// The address of a replica, as INFO on its primary shows it; the target of a failover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The address that the replica has announced, or else that of its connection.
    pub host: String,
    /// The port that the replica has announced.
    pub port: u16,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl Target {
    fn of(replica: &Replica) -> Self {
        Self { host: replica.address(), port: replica.handshake.listening_port }
    }

    /// Returns true if this is the address of `replica`. Upper and lower case are the same.
    fn is_of(&self, replica: &Replica) -> bool {
        self.port == replica.handshake.listening_port && self.host.eq_ignore_ascii_case(&replica.address())
    }
}

/// The arguments of a FAILOVER command that begins a failover.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The host and the port of the replica that must become the primary; `None` if any replica
    /// may.
    pub target: Option<(String, i64)>,
    /// True if the replica becomes the primary at the deadline even if it lacks changes.
    pub is_forced: bool,
    /// The time within which a replica must catch up, in milliseconds; `None` for no limit.
    pub timeout_ms: Option<u64>,
}

/// The reasons for which a FAILOVER command is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Another failover is already in progress.
    InProgress,
    /// The server is a replica, so it cannot hand over to one of its own replicas.
    IsReplica,
    /// This server has no connected replica.
    NoReplicas,
    /// A forced failover was requested without a target or without a deadline.
    ForceNeedsMore,
    /// No connected replica has the address of the target.
    NotAReplica,
    /// The target is connected, but does not receive the replication stream yet.
    NotOnline,
}

impl Refusal {
    /// Returns the text of the error reply to FAILOVER, without the initial `-` and the line end.
    pub fn reply(self) -> &'static str {
        match self {
            Self::InProgress => "ERR FAILOVER already in progress.",
            Self::IsReplica => "ERR FAILOVER is not valid when server is a replica.",
            Self::NoReplicas => "ERR FAILOVER requires connected replicas.",
            Self::ForceNeedsMore => {
                "ERR FAILOVER with force option requires both a timeout and target HOST and IP."
            }
            Self::NotAReplica => "ERR FAILOVER target HOST and PORT is not a replica.",
            Self::NotOnline => "ERR FAILOVER target replica is not online.",
        }
    }
}

/// The state of a server's failover: none, waiting for a replica, or in progress.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum State {
    /// No failover is in progress.
    #[default]
    None,
    /// The failover waits for a replica: writes are paused until a replica has acknowledged all
    /// changes.
    WaitingForSync { target: Option<Target>, is_forced: bool, deadline_ms: Option<u64> },
    /// The server has become a replica of the target, which it asks to become the primary.
    InProgress {
        target: Target,
        /// True if a request to become the primary may have reached the target.
        has_asked: bool,
        /// True if the target has become a primary by an earlier request, whose reply was lost.
        is_done: bool,
    },
}

/// The step that a server takes next in a failover while it waits for a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The caller must check again after this number of milliseconds, or when a replica
    /// acknowledges.
    Wait(u64),
    /// The server must become a replica of this target, which has acknowledged all changes.
    HandOver(Target),
    /// The server must become a replica of this target, because the deadline has passed. The target
    /// lacks changes.
    Force(Target),
    /// The caller must end the failover without success, for this reason.
    Abort(&'static str),
    /// The caller must do nothing: the failover has ended, or no longer waits for a replica.
    Ended,
}

/// The form of PSYNC that a new replication link sends to the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// `PSYNC`: no failover is in progress, or its target is already a primary.
    Usual,
    /// `PSYNC … FAILOVER`, which asks the target to become the primary.
    Failover(Asked),
}

/// The consequence of an error reply to `PSYNC … FAILOVER`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// The failover ends without success: the target has refused, and this server is a primary
    /// again.
    Final,
    /// The failover has succeeded: an earlier request, whose reply was lost, has made the target
    /// the primary. The link to it is opened again.
    IsDone,
}

/// The first or a repeated request to the target of a failover to become the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The target was not asked before to become the primary.
    Once,
    /// The target was asked before to become the primary, but its reply may have been lost.
    Again,
}

/// The result of a failover that ended without success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aborted {
    /// True if the server had already become a replica of the target; it must become a primary
    /// again.
    pub was_in_progress: bool,
    /// The message about the end of the failover, for the log.
    pub message: String,
}

/// The state of a server's failover to one of its replicas.
#[derive(Debug, Default)]
pub struct Failover {
    state: State,
    /// The number of failovers since the server started, which is also the number of the last one.
    number: u64,
}

impl Failover {
    /// Returns the name of the failover's state that INFO shows.
    pub fn state_name(&self) -> &'static str {
        match self.state {
            State::None => "no-failover",
            State::WaitingForSync { .. } => "waiting-for-sync",
            State::InProgress { .. } => "failover-in-progress",
        }
    }

    /// Returns true while a failover is in progress, in either of its states.
    pub fn is_on(&self) -> bool {
        self.state != State::None
    }

    /// Begins a failover: the first state is `waiting-for-sync`. Returns the number of the
    /// failover.
    ///
    /// # Errors
    /// The reason for which the failover cannot begin.
    pub fn begin(&mut self, request: Request, primary: &Primary, now_ms: u64) -> Result<u64, Refusal> {
        if self.is_on() {
            return Err(Refusal::InProgress);
        }
        if primary.is_following() {
            return Err(Refusal::IsReplica);
        }
        if primary.has_no_replicas() {
            return Err(Refusal::NoReplicas);
        }
        let Request { target, is_forced, timeout_ms } = request;
        if is_forced && (timeout_ms.is_none() || target.is_none()) {
            return Err(Refusal::ForceNeedsMore);
        }
        let target = target.map(|target| checked(target, primary)).transpose()?;
        let deadline_ms = timeout_ms.map(|timeout_ms| now_ms.saturating_add(timeout_ms));
        self.state = State::WaitingForSync { target, is_forced, deadline_ms };
        self.number += 1;
        Ok(self.number)
    }

    /// Returns the next step of failover `number`: [`Step::Ended`] unless it waits for a replica.
    pub fn next(&self, number: u64, primary: &Primary, now_ms: u64) -> Step {
        let State::WaitingForSync { target, is_forced, deadline_ms } = &self.state else {
            return Step::Ended;
        };
        if number != self.number {
            return Step::Ended;
        }
        if primary.is_following() {
            return Step::Abort(FOLLOWS);
        }
        match (deadline_ms.filter(|deadline_ms| *deadline_ms <= now_ms), target) {
            (Some(_), Some(target)) if *is_forced => return Step::Force(target.clone()),
            (Some(_), _) => return Step::Abort(NEVER_CAUGHT_UP),
            (None, _) => {}
        }
        if let Some(target) = caught_up(target.as_ref(), primary) {
            return Step::HandOver(target);
        }
        let left_ms = deadline_ms.map_or(u64::MAX, |deadline_ms| deadline_ms - now_ms);
        Step::Wait(left_ms.min(CHECK_INTERVAL_MS))
    }

    /// Determines the next step of failover `number` as [`Failover::next`] does, and returns it.
    /// With `HandOver` and `Force`, also makes `primary` follow. From then on, no PING is appended
    /// to the replication stream. Otherwise this server's stream would be longer than that of the
    /// target, and this server would need a full synchronisation.
    pub fn act(&mut self, number: u64, primary: &mut Primary, now_ms: u64) -> Step {
        let step = self.next(number, primary, now_ms);
        if let Step::HandOver(target) | Step::Force(target) = &step {
            primary.follow();
            self.state = State::InProgress { target: target.clone(), has_asked: false, is_done: false };
        }
        step
    }

    /// Returns the form of PSYNC that a new replication link sends to the primary.
    pub fn ask(&self) -> Ask {
        match self.state {
            State::InProgress { is_done: false, has_asked: false, .. } => Ask::Failover(Asked::Once),
            State::InProgress { is_done: false, has_asked: true, .. } => Ask::Failover(Asked::Again),
            _ => Ask::Usual,
        }
    }

    /// Records that a request to become the primary is about to be sent to the target.
    pub fn note_asked(&mut self) {
        if let State::InProgress { has_asked, .. } = &mut self.state {
            *has_asked = true;
        }
    }

    /// Returns the consequence of the error reply `error` to the request to become the primary.
    /// `asked` is the value that [`Failover::ask`] returned before the request. If the target was
    /// asked before and replies that it is a primary, the earlier request has made it one. This
    /// server must then stay a replica, or there would be two primaries.
    pub fn judge(&mut self, error: &str, asked: Asked) -> Rejection {
        match &mut self.state {
            State::InProgress { is_done, .. } if asked == Asked::Again && error.contains(IS_PRIMARY) => {
                *is_done = true;
                Rejection::IsDone
            }
            _ => Rejection::Final,
        }
    }

    /// Ends the failover with success: the target has become the primary. Returns false if no
    /// failover was in progress.
    pub fn succeed(&mut self) -> bool {
        std::mem::take(&mut self.state) != State::None
    }

    /// Ends failover `number` without success, for `reason`. Returns `None` if that failover is not
    /// in progress.
    pub fn abort_number(&mut self, number: u64, reason: &str) -> Option<Aborted> {
        if number == self.number { self.abort(reason) } else { None }
    }

    /// Ends the failover without success, for `reason`. Returns `None` if no failover is in
    /// progress.
    pub fn abort(&mut self, reason: &str) -> Option<Aborted> {
        let (target, was_in_progress) = match std::mem::take(&mut self.state) {
            State::None => return None,
            State::WaitingForSync { target, .. } => (target, false),
            State::InProgress { target, .. } => (Some(target), true),
        };
        let target = target.map_or("any replica".to_owned(), |target| target.to_string());
        Some(Aborted { was_in_progress, message: format!("FAILOVER to {target} aborted: {reason}") })
    }
}

/// The beginning of the error reply of Redis and Valkey in the case that a server that is asked to
/// become the primary is already one.
const IS_PRIMARY: &str = "PSYNC FAILOVER can't be sent to a ";

/// Returns the failover target with this host and port. Fails if no replica has this address, or if
/// no replica with this address is online.
fn checked((host, port): (String, i64), primary: &Primary) -> Result<Target, Refusal> {
    let port = u16::try_from(port).map_err(|_| Refusal::NotAReplica)?;
    let target = Target { host, port };
    let mut found = primary.replicas().filter(|(_, replica)| target.is_of(replica)).peekable();
    if found.peek().is_none() {
        return Err(Refusal::NotAReplica);
    }
    match found.any(|(_, replica)| replica.phase.name() == Some("online")) {
        true => Ok(target),
        false => Err(Refusal::NotOnline),
    }
}

/// Returns the address of the first replica that has acknowledged the whole replication stream.
/// With a `target`, only that replica counts. A replica without an announced port never counts,
/// because this server could not connect to it.
fn caught_up(target: Option<&Target>, primary: &Primary) -> Option<Target> {
    let is_eligible = |replica: &Replica| {
        let follows = replica.dialect == Dialect::Psync && replica.handshake.purpose == Purpose::Follow;
        follows && replica.handshake.listening_port != 0 && target.is_none_or(|target| target.is_of(replica))
    };
    let mut replicas = primary.replicas();
    let found = replicas.find(|(client, replica)| is_eligible(replica) && primary.has_acked_all(*client));
    found.map(|(_, replica)| Target::of(replica))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handshake::Handshake;
    use crate::history::ReplId;
    use crate::replica::Phase;

    /// Creates a primary with 100 bytes of replication stream and, for each phase, one replica in
    /// this phase. The replicas' ports are 7001, 7002 and so on.
    fn primary(phases: &[Phase]) -> Primary {
        let mut primary = Primary::new(ReplId::of_bits(1, 0, 0));
        primary.open_backlog(4000, ReplId::of_bits(2, 0, 0));
        primary.append(&[b'x'; 100]);
        for (number, &phase) in (1..).zip(phases) {
            let handshake = Handshake { listening_port: 7000 + number as u16, ..Handshake::default() };
            primary.add(number, Replica::new(handshake, Dialect::Psync, "10.0.0.1".to_owned(), 0));
            primary.set_phase(number, phase, 100);
        }
        primary
    }

    fn target(number: u16) -> Target {
        Target { host: "10.0.0.1".to_owned(), port: 7000 + number }
    }

    fn to(number: i64) -> Request {
        Request { target: Some(("10.0.0.1".to_owned(), 7000 + number)), ..Request::default() }
    }

    #[test]
    fn refusals_come_in_the_order_of_redis() {
        let mut failover = Failover::default();
        let forced = Request { is_forced: true, ..Request::default() };
        let mut none = primary(&[]);
        assert_eq!(failover.begin(forced.clone(), &none, 0), Err(Refusal::NoReplicas));
        none.follow();
        assert_eq!(failover.begin(Request::default(), &none, 0), Err(Refusal::IsReplica));
        let some = primary(&[Phase::Online, Phase::ReceivesSnapshot, Phase::AwaitsAck]);
        for request in [
            forced,
            Request { is_forced: true, timeout_ms: Some(1), ..Request::default() },
            Request { is_forced: true, ..to(1) },
        ] {
            assert_eq!(failover.begin(request, &some, 0), Err(Refusal::ForceNeedsMore));
        }
        for number in [0, 4, 1 << 16, 65536 - 7000 + 7001, -7000] {
            assert_eq!(failover.begin(to(number), &some, 0), Err(Refusal::NotAReplica));
        }
        assert_eq!(failover.begin(to(2), &some, 0), Err(Refusal::NotOnline));
        assert_eq!(failover.state_name(), "no-failover");
        assert_eq!(failover.begin(to(3), &some, 0), Ok(1));
        assert_eq!(failover.begin(to(1), &some, 0), Err(Refusal::InProgress));
        assert_eq!(failover.state_name(), "waiting-for-sync");
    }

    #[test]
    fn the_first_replica_with_all_changes_is_chosen() {
        let mut primary = primary(&[Phase::Online; 3]);
        let mut failover = Failover::default();
        let number = failover.begin(Request::default(), &primary, 0).expect("it begins");
        assert_eq!(failover.next(number, &primary, 0), Step::Wait(CHECK_INTERVAL_MS));
        primary.acknowledge(1, 99, None, 0);
        assert_eq!(failover.next(number, &primary, u64::MAX), Step::Wait(CHECK_INTERVAL_MS));
        primary.acknowledge(3, 100, None, 0);
        assert_eq!(failover.next(number, &primary, 0), Step::HandOver(target(3)));
        primary.acknowledge(2, 100, None, 0);
        assert_eq!(failover.next(number, &primary, 0), Step::HandOver(target(2)));
        assert_eq!(failover.next(number + 1, &primary, 0), Step::Ended);
        assert_eq!(failover.act(number, &mut primary, 0), Step::HandOver(target(2)));
        assert_eq!(failover.act(number, &mut primary, 0), Step::Ended);
        assert_eq!(failover.state_name(), "failover-in-progress");
    }

    #[test]
    fn nothing_is_appended_behind_the_acknowledgement_that_decides() {
        for is_forced in [false, true] {
            let mut primary = primary(&[Phase::Online]);
            let mut failover = Failover::default();
            let request = Request { is_forced, timeout_ms: Some(150), ..to(1) };
            let number = failover.begin(request, &primary, 0).expect("it begins");
            // While it waits, the stream goes on.
            assert_eq!(failover.act(number, &mut primary, 0), Step::Wait(CHECK_INTERVAL_MS));
            primary.append_control(b"PING");
            primary.request_ack(0);
            let end = primary.end();
            assert!(end >= 104);
            let expected = match is_forced {
                true => Step::Force(target(1)),
                false => {
                    primary.take_for(1, 4000);
                    primary.acknowledge(1, end, None, 0);
                    Step::HandOver(target(1))
                }
            };
            assert_eq!(failover.act(number, &mut primary, 150 * u64::from(is_forced)), expected);
            primary.append_control(b"PING");
            primary.request_ack(0);
            primary.note_position(1);
            assert_eq!(primary.end(), end);
            assert_eq!(primary.resume_point().map(|(_, next)| next), Some(end + 1));
        }
    }

    #[test]
    fn a_server_that_has_become_a_replica_ends_its_failover() {
        let mut primary = primary(&[Phase::Online]);
        let mut failover = Failover::default();
        let number = failover.begin(Request::default(), &primary, 0).expect("it begins");
        primary.acknowledge(1, 100, None, 0);
        primary.follow();
        assert_eq!(failover.act(number, &mut primary, 0), Step::Abort(FOLLOWS));
    }

    #[test]
    fn only_the_failover_with_the_number_is_aborted() {
        let primary = primary(&[Phase::Online]);
        let mut failover = Failover::default();
        let first = failover.begin(Request::default(), &primary, 0).expect("it begins");
        assert!(failover.abort_number(first, ABORTED).is_some());
        assert_eq!(failover.abort_number(first, ABORTED), None, "it has ended");
        let second = failover.begin(Request::default(), &primary, 0).expect("it begins");
        assert_eq!(failover.abort_number(first, ABORTED), None);
        assert!(failover.is_on() && failover.abort_number(second, ABORTED).is_some());
    }

    #[test]
    fn a_replica_without_a_port_or_with_another_purpose_is_not_chosen() {
        let mut primary = primary(&[]);
        for (client, port, purpose, dialect) in [
            (1, 0, Purpose::Follow, Dialect::Psync),
            (2, 7002, Purpose::SnapshotOnly, Dialect::Psync),
            (3, 7003, Purpose::Follow, Dialect::Sync),
        ] {
            let handshake = Handshake { listening_port: port, purpose, ..Handshake::default() };
            primary.add(client, Replica::new(handshake, dialect, "10.0.0.1".to_owned(), 0));
            primary.set_phase(client, Phase::Online, 100);
            primary.acknowledge(client, 100, None, 0);
        }
        let mut failover = Failover::default();
        let number = failover.begin(Request::default(), &primary, 0).expect("it begins");
        assert_eq!(failover.next(number, &primary, 0), Step::Wait(CHECK_INTERVAL_MS));
    }

    #[test]
    fn only_the_named_replica_is_chosen() {
        let mut primary = primary(&[Phase::Online; 2]);
        let mut failover = Failover::default();
        let request = Request { target: Some(("10.0.0.1".to_owned(), 7002)), ..Request::default() };
        let number = failover.begin(request, &primary, 0).expect("it begins");
        primary.acknowledge(1, 100, None, 0);
        assert_eq!(failover.next(number, &primary, 0), Step::Wait(CHECK_INTERVAL_MS));
        primary.acknowledge(2, 100, None, 0);
        assert_eq!(failover.next(number, &primary, 0), Step::HandOver(target(2)));
    }

    #[test]
    fn the_deadline_ends_or_forces_it() {
        let primary = primary(&[Phase::Online]);
        for is_forced in [false, true] {
            let mut failover = Failover::default();
            let request = Request { is_forced, timeout_ms: Some(150), ..to(1) };
            let number = failover.begin(request, &primary, 1000).expect("it begins");
            assert_eq!(failover.next(number, &primary, 1000), Step::Wait(100));
            assert_eq!(failover.next(number, &primary, 1120), Step::Wait(30));
            let step = failover.next(number, &primary, 1150);
            let expected = if is_forced { Step::Force(target(1)) } else { Step::Abort(NEVER_CAUGHT_UP) };
            assert_eq!(step, expected);
        }
    }

    /// Checks that a failover does not wait for the acknowledgement of a GETACK at the end of the
    /// replication stream: a replica answers it before it counts its bytes.
    #[test]
    fn the_request_of_an_acknowledgement_need_not_be_acknowledged() {
        let mut primary = primary(&[Phase::Online]);
        primary.note_position(5);
        primary.request_ack(5);
        let end = primary.end();
        assert!(end > 100);
        primary.acknowledge(1, 100, None, 0);
        assert!(!primary.has_acked_all(1), "the request was not sent yet");
        primary.take_for(1, 4000);
        assert!(primary.has_acked_all(1));
        primary.append(b"y");
        primary.take_for(1, 4000);
        assert!(!primary.has_acked_all(1));
        primary.acknowledge(1, end + 1, None, 0);
        assert!(primary.has_acked_all(1));
    }

    #[test]
    fn a_lost_reply_does_not_lead_to_two_primaries() {
        let error = "Master does not support PSYNC (reply: -ERR PSYNC FAILOVER can't be sent to a master.)";
        let mut primary = primary(&[Phase::Online]);
        primary.acknowledge(1, 100, None, 0);
        let mut failover = Failover::default();
        failover.note_asked();
        assert_eq!(failover.ask(), Ask::Usual);
        let number = failover.begin(Request::default(), &primary, 0).expect("it begins");
        failover.act(number, &mut primary, 0);
        assert_eq!(failover.ask(), Ask::Failover(Asked::Once));
        failover.note_asked();
        assert_eq!(failover.judge(error, Asked::Once), Rejection::Final);
        assert_eq!(failover.ask(), Ask::Failover(Asked::Again));
        assert_eq!(failover.judge("-NOPERM", Asked::Again), Rejection::Final);
        assert_eq!(failover.ask(), Ask::Failover(Asked::Again));
        assert_eq!(failover.judge(error, Asked::Again), Rejection::IsDone);
        assert_eq!((failover.ask(), failover.is_on()), (Ask::Usual, true));
        assert!(failover.succeed() && !failover.succeed());
    }

    #[test]
    fn an_end_names_the_target() {
        let mut primary = primary(&[Phase::Online]);
        let mut failover = Failover::default();
        assert_eq!(failover.abort(ABORTED), None);
        failover.begin(Request::default(), &primary, 0).expect("it begins");
        let aborted = failover.abort(ABORTED).expect("there is one");
        assert!(!aborted.was_in_progress);
        assert_eq!(aborted.message, "FAILOVER to any replica aborted: Failover manually aborted");
        let number = failover.begin(to(1), &primary, 0).expect("it begins");
        primary.acknowledge(1, 100, None, 0);
        failover.act(number, &mut primary, 0);
        let aborted = failover.abort(REJECTED).expect("there is one");
        assert!(aborted.was_in_progress && !failover.is_on());
        let message = "FAILOVER to 10.0.0.1:7001 aborted: Failover target rejected psync request";
        assert_eq!(aborted.message, message);
    }
}
