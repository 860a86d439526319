//! The coordinated failover: the command FAILOVER on a primary, and the request by which it makes a
//! replica the primary.
//!
//! ```text
//!   FAILOVER ─► writes pause ─► thread "failover": all is acknowledged ─► follow the target
//!                                                                            │
//!   writes go on, and get READONLY ◄── +CONTINUE ◄── PSYNC … FAILOVER ◄── "primary-link"
//! ```
//! [`replicate::failover`] makes the decisions. The role changes under the exclusive ownership of
//! the keyspace, when the target has acknowledged the whole stream. So the target has every write
//! that a client of this server saw succeed, and this server accepts no more writes. Only a forced
//! failover may lose writes.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;
use std::time::Duration;

use engine::shared::PauseReason;
use engine::threads::Outbox;
use keyspace::Exclusive;
use replicate::failover::{ABORTED, Aborted, Asked, REJECTED, Refusal, Rejection, Request, Step, Target};
use replicate::link::request::LinkError;

use super::change;
use super::connection::LinkEnd;
use crate::config::table::process::SHUTDOWN_TIMEOUT;
use crate::replication::upstream::PrimaryAddress;
use crate::shared::{Message, Shared};

/// The time between two checks of a failover that runs before the server ends.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Begins a failover and pauses the writes of clients. Returns the number of the failover, for
/// [`start`]. Writes that have begun may still be in progress.
///
/// # Errors
/// The reason for which the failover cannot begin.
pub fn begin(shared: &Shared, request: Request) -> Result<u64, Refusal> {
    let replication = &shared.replication;
    let mut failover = replication.failover.lock();
    let number = failover.begin(request, &replication.primary(), shared.uptime_ms())?;
    // Under the lock, so that the end of this failover comes later.
    shared.engine.pause.begin(PauseReason::Failover);
    Ok(number)
}

/// Makes a replica the primary before this server ends, if this server is a primary with replicas.
/// Waits for the end of a failover, at most for `shutdown-timeout` seconds; does nothing if that
/// option is 0. When `is_wanted` returns false, stops waiting and aborts the failover, unless a
/// client requested it. The calling thread is outside the gate that guards the keyspace.
pub fn before_end(shared: &Arc<Shared>, is_wanted: impl Fn() -> bool) {
    let timeout_ms = SHUTDOWN_TIMEOUT.of(&shared.config()).saturating_mul(1000);
    let until_ms = shared.uptime_ms().saturating_add(timeout_ms);
    if timeout_ms == 0 || !is_wanted() {
        return;
    }
    let request = Request { timeout_ms: Some(timeout_ms), ..Request::default() };
    let begun = match begin(shared, request) {
        Ok(number) => {
            tracing::info!("FAILOVER to any replica before shutting down.");
            if let Err(error) = start(shared, number) {
                tracing::warn!(%error, "cannot start the thread of the failover");
                abort_from_outside(shared, number);
            }
            Some(number)
        }
        Err(refusal) => {
            tracing::info!("No failover before shutting down: {}", refusal.reply());
            None
        }
    };
    while shared.replication.failover.is_on() && shared.uptime_ms() < until_ms {
        if !is_wanted() {
            match begun {
                Some(number) => abort_from_outside(shared, number),
                // A client requested the failover.
                None => tracing::info!("The shutdown is aborted, the failover goes on."),
            }
            return;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Ends the failover without success, if its number is `number`. The calling thread is outside the
/// gate that guards the keyspace.
fn abort_from_outside(shared: &Arc<Shared>, number: u64) {
    let outbox = Outbox::default();
    shared.engine.gate.exclusive(|alone| abort_number(shared, alone, (number, ABORTED), &outbox));
    shared.wake(&outbox);
}

/// Starts the thread `failover`, which waits for a replica and changes the role.
///
/// # Errors
/// If the thread cannot be started.
pub fn start(shared: &Arc<Shared>, number: u64) -> io::Result<()> {
    let shared = Arc::clone(shared);
    let body = move || while await_sync(&shared, number) {};
    std::thread::Builder::new().name("failover".to_owned()).spawn(body).map(drop)
}

/// Waits until a replica has acknowledged all changes or the deadline has passed, and then performs
/// the next step of failover `number` ([`act`]). Returns false once failover `number` has ended,
/// otherwise true: the caller calls it again.
fn await_sync(shared: &Arc<Shared>, number: u64) -> bool {
    let replication = &shared.replication;
    if shared.stopping.load(Acquire) {
        return false;
    }
    // Without a request, replicas acknowledge once a second. Nothing is sent if a request is
    // already pending.
    replication.request_ack(shared.engine.log.drawn());
    let failover = replication.failover.lock_to_wait();
    let step = failover.next(number, &replication.primary(), shared.uptime_ms());
    match step {
        Step::Ended => return false,
        Step::Wait(time_ms) => {
            replication.failover.wait(failover, time_ms);
            return true;
        }
        Step::HandOver(_) | Step::Force(_) | Step::Abort(_) => drop(failover),
    }
    let outbox = Outbox::default();
    shared.engine.gate.exclusive(|alone| act(shared, alone, number, &outbox));
    shared.wake(&outbox);
    true
}

/// Merges the change log, determines the next step of failover `number` again, and performs it. The
/// step may differ from the one before, because only now all changes are in the replication stream.
/// The caller is the exclusive owner of the keyspace.
fn act(shared: &Arc<Shared>, alone: &Exclusive, number: u64, outbox: &Outbox) {
    let replication = &shared.replication;
    shared.engine.log.pass_on(alone, outbox);
    let mut failover = replication.failover.lock();
    let step = failover.act(number, &mut replication.primary(), shared.uptime_ms());
    drop(failover);
    let target = match step {
        Step::HandOver(target) => {
            tracing::info!("Failover target {target} is synced, failing over.");
            target
        }
        Step::Force(target) => {
            tracing::info!("FAILOVER to {target} time out exceeded, failing over.");
            target
        }
        Step::Abort(reason) => {
            abort_number(shared, alone, (number, reason), outbox);
            return;
        }
        Step::Wait(_) | Step::Ended => return,
    };
    let Target { host, port } = target;
    change::follow(shared, alone, PrimaryAddress { host, port }, outbox);
}

/// Ends the failover without success, for `reason`. If this server has become a replica by it,
/// makes the server a primary again. Returns false if no failover is in progress. The caller is the
/// exclusive owner of the keyspace.
pub fn abort(shared: &Arc<Shared>, alone: &Exclusive, reason: &str, outbox: &Outbox) -> bool {
    let aborted = shared.replication.failover.lock().abort(reason);
    let was_on = aborted.is_some();
    aborted.into_iter().for_each(|aborted| end_aborted(shared, alone, aborted, outbox));
    was_on
}

/// Ends the failover without success, for `reason`, if its number is `number`. If this server has
/// become a replica by it, makes the server a primary again. The caller is the exclusive owner of
/// the keyspace.
pub fn abort_number(shared: &Arc<Shared>, alone: &Exclusive, (number, reason): (u64, &str), outbox: &Outbox) {
    let aborted = shared.replication.failover.lock().abort_number(number, reason);
    aborted.into_iter().for_each(|aborted| end_aborted(shared, alone, aborted, outbox));
}

/// Makes this server a primary again if the aborted failover had made it a replica, and ends the
/// pause of writes.
fn end_aborted(shared: &Arc<Shared>, alone: &Exclusive, aborted: Aborted, outbox: &Outbox) {
    tracing::info!("{}", aborted.message);
    if aborted.was_in_progress {
        change::promote(shared, alone, outbox);
    }
    end_pause(shared);
}

/// Ends the pause of writes, and wakes the thread of the failover.
fn end_pause(shared: &Shared) {
    shared.replication.failover.notify();
    if shared.engine.pause.end(PauseReason::Failover) {
        shared.broadcast(|| Message::Resume);
    }
}

/// Ends the failover with success, if one is in progress: the target has become the primary and
/// replies as one. The caller is the exclusive owner of the keyspace.
pub(super) fn succeed(shared: &Shared, _alone: &Exclusive) {
    if shared.replication.failover.lock().succeed() {
        end_pause(shared);
    }
}

/// Handles the error reply of the target to the request to become the primary. Returns the reason
/// for which the link ends. Ends the failover without success, unless an earlier request has made
/// the target the primary.
pub(super) fn refused(shared: &Arc<Shared>, epoch: u64, error: LinkError, asked: Asked) -> LinkEnd {
    let outbox = Outbox::default();
    let end = shared.engine.gate.exclusive(|alone| {
        if shared.replication.upstream.epoch() != epoch {
            return LinkEnd::Superseded;
        }
        let rejection = shared.replication.failover.lock().judge(&error.text, asked);
        match rejection {
            Rejection::IsDone => error.into(),
            Rejection::Final => {
                tracing::warn!("{error}");
                abort(shared, alone, REJECTED, &outbox);
                LinkEnd::Superseded
            }
        }
    });
    shared.wake(&outbox);
    end
}
