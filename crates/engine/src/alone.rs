//! Work of an executor that needs the whole keyspace, and the refusal while a busy script holds it.

use stdx::ByteQueue;

use crate::call::Host;
use crate::clock::Clock;
use crate::pass::TurnPass;
use crate::run::Executor;
use crate::session::Session;
use crate::table::Registered;

impl<C: Clock, H: Host> Executor<'_, C, H> {
    /// Runs `work` as the exclusive owner of the keyspace; `None` if a busy script prevents that.
    /// Everything that this thread recorded is published to the change log before the thread waits
    /// to become the owner, and again before it stops being the owner.
    pub(crate) fn alone<'g, R>(
        &mut self,
        pass: &mut TurnPass<'_, 'g>,
        work: impl FnOnce(&mut Self, &mut TurnPass<'_, 'g>) -> R,
    ) -> Option<R> {
        self.commit.publish_log();
        // With a single I/O thread, only the housekeeper and saves compete for the keyspace.
        if self.commit.thread == Some(0) && self.shared().threads.len() == 1 {
            pass.keep_ownership();
        }
        let done = pass.alone_unless_busy(|pass| {
            let done = work(self, pass);
            self.commit.publish_log();
            done
        });
        self.is_inside = pass.is_inside();
        done
    }

    /// Replies with the error of a busy script to a request that was already counted as called but
    /// did not run. Returns false: the request did not succeed.
    #[cold]
    pub(crate) fn refuse_busy(
        &mut self,
        session: &Session,
        registered: &Registered,
        out: &mut ByteQueue,
    ) -> bool {
        let counters = self.counters(registered);
        counters.calls.sub(1);
        counters.rejected.add(1);
        self.meter.called = false;
        self.meter.extra_calls -= 1;
        self.refuse(session.protocol(), self.shared().scripts.error(), out);
        false
    }
}
