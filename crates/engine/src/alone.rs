//! Work that needs the whole keyspace, or is refused because a busy script has it.

use stdx::ByteQueue;

use crate::call::Host;
use crate::clock::Clock;
use crate::pass::TurnPass;
use crate::run::Executor;
use crate::session::Session;
use crate::table::Registered;

impl<C: Clock, H: Host> Executor<'_, C, H> {
    /// Does `work` as the exclusive owner of the keyspace; `None` if a busy script keeps this
    /// thread from it. While this thread is outside the gate, the change log has all that it did.
    pub(crate) fn alone<'g, R>(
        &mut self,
        pass: &mut TurnPass<'_, 'g>,
        work: impl FnOnce(&mut Self, &mut TurnPass<'_, 'g>) -> R,
    ) -> Option<R> {
        self.commit.publish_log();
        // Beside the only I/O thread hardly anybody else comes: the housekeeper, a save.
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

    /// Replies that a script runs for too long, to a request that was counted as called and has not
    /// run. It has not succeeded.
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
