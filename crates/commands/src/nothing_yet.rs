//! How the handler of a blocking command ends when it finds nothing: see [`crate::wait`].

use crate::ctx::Ctx;
use crate::wait::{EmptyReply, Patience, Wait, WaitFor};

impl Ctx<'_> {
    /// There is nothing to reply with: the client waits for what `wait_for` gives, or gets the `empty` reply
    /// where it may not wait.
    pub fn nothing_yet<W: Into<WaitFor>>(
        &mut self,
        timeout_ms: Option<u64>,
        empty: EmptyReply,
        wait_for: impl FnOnce() -> W,
    ) {
        let wait_for = match self.patience {
            Patience::None => return empty.write_at_once(&mut self.reply),
            Patience::Waits => wait_for().into(),
            Patience::StillWaits => WaitFor::default(),
        };
        self.effects.wait = Some(Wait { timeout_ms, empty, wait_for });
    }
}
