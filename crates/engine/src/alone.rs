//! Runs work as the exclusive owner of the keyspace, and refuses it while a busy script owns the
//! keyspace.

use std::sync::atomic::Ordering::Relaxed;

use commands::CommandError;
use stdx::ByteQueue;

use crate::call::Host;
use crate::check::Effect;
use crate::clock::Clock;
use crate::pass::TurnPass;
use crate::run::Executor;
use crate::session::{Flow, Session};
use crate::table::Registered;

/// The error of a command that needs data while data is being loaded.
pub(crate) const LOADING: CommandError = CommandError::Line("LOADING Redis is loading the dataset in memory");

/// The reason why a request could not run as the exclusive owner of the keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotAlone {
    /// A busy script (one that has run for too long) holds the keyspace.
    Busy,
    /// While the request waited, clients were paused or the role of the server changed, and the
    /// request may write. It must be checked again from the beginning.
    Paused,
    /// A load of all data has begun while the request waited.
    Loading,
}

impl<C: Clock, H: Host> Executor<'_, C, H> {
    /// Runs `work` as the exclusive owner of the keyspace. Everything that this thread recorded is
    /// published to the change log before the thread waits to become the owner, and again before it
    /// stops being the owner.
    ///
    /// While the thread waits, other threads may become the owner. If one of them ran CLIENT PAUSE
    /// or REPLICAOF, a request that may write must not run any more. If one of them began to load
    /// all data, no request may run.
    ///
    /// # Errors
    /// The reason why `work` was not run.
    pub(crate) fn alone<'g, R>(
        &mut self,
        pass: &mut TurnPass<'_, 'g>,
        effect: Effect,
        work: impl FnOnce(&mut Self, &mut TurnPass<'_, 'g>) -> R,
    ) -> Result<R, NotAlone> {
        self.commit.publish_log();
        let was_loading = self.shared().server_state.is_loading.load(Relaxed);
        // With a single I/O thread, only the housekeeper and saves compete for the keyspace.
        if self.commit.thread == Some(0) && self.shared().threads.len() == 1 {
            pass.keep_ownership();
        }
        let done = pass.alone_unless_busy(|pass| {
            if effect == Effect::MayWrite && self.must_not_write_now() {
                return Err(NotAlone::Paused);
            }
            if !was_loading && self.shared().server_state.is_loading.load(Relaxed) {
                return Err(NotAlone::Loading);
            }
            let done = work(self, pass);
            self.commit.publish_log();
            Ok(done)
        });
        self.is_inside = pass.is_inside();
        self.look_at_refusals();
        done.unwrap_or(Err(NotAlone::Busy))
    }

    /// Returns true if a write must not run: clients are paused, or the role has changed since the
    /// request was checked. For the applier of a primary's replication stream, returns true if the
    /// server no longer follows this primary.
    #[inline]
    fn must_not_write_now(&self) -> bool {
        let epoch = self.shared().server_state.role.epoch.load(Relaxed);
        match self.applied_epoch {
            Some(applied) => epoch != applied,
            None => self.is_paused_now() || epoch != self.now.role_epoch,
        }
    }

    /// Returns true if clients are paused at this moment. Reads the clock only if they were paused
    /// at the start of the turn (pass of the event loop).
    #[inline]
    fn is_paused_now(&self) -> bool {
        let pause = &self.shared().pause;
        pause.is_on(self.now.unix_ms) && pause.is_on(self.clock.unix_time().as_millis() as i64)
    }

    /// Ends a request that was counted as called but could not run as the exclusive owner of the
    /// keyspace. Replies with an error (busy script, loading), or postpones the request until
    /// clients are no longer paused. Always returns false, because the request did not succeed.
    #[cold]
    pub(crate) fn give_up(
        &mut self,
        session: &mut Session,
        registered: &Registered,
        reason: NotAlone,
        out: &mut ByteQueue,
    ) -> bool {
        match reason {
            NotAlone::Busy => self.refuse_busy(session, registered, out),
            NotAlone::Loading => self.refuse_called(session, registered, LOADING, out),
            NotAlone::Paused => self.postpone(session, registered),
        }
    }

    /// Postpones a request that was counted as called until clients are no longer paused. Always
    /// returns false, because the request did not succeed.
    #[cold]
    pub(crate) fn postpone(&mut self, session: &mut Session, registered: &Registered) -> bool {
        self.counters(registered).calls.sub(1);
        self.meter.called = false;
        session.flow = Flow::Postponed;
        false
    }

    /// Replies with the error of a busy script to a request that was counted as called but did not
    /// run. Always returns false, because the request did not succeed.
    #[cold]
    pub(crate) fn refuse_busy(
        &mut self,
        session: &Session,
        registered: &Registered,
        out: &mut ByteQueue,
    ) -> bool {
        self.refuse_called(session, registered, self.shared().scripts.error(), out)
    }

    /// Replies with `error` to a request that was counted as called but did not run. Always returns
    /// false, because the request did not succeed.
    #[cold]
    pub(crate) fn refuse_called(
        &mut self,
        session: &Session,
        registered: &Registered,
        error: CommandError,
        out: &mut ByteQueue,
    ) -> bool {
        let counters = self.counters(registered);
        counters.calls.sub(1);
        counters.rejected.add(1);
        self.meter.called = false;
        self.meter.extra_calls -= 1;
        self.refuse(session.protocol(), error, out);
        false
    }
}
