//! How the handler of a blocking command ends when it finds nothing: see [`crate::wait`].

use crate::ctx::Ctx;
use crate::wait::{BlockFor, EmptyReply, OnEmpty, Wait};

impl Ctx<'_> {
    /// There is nothing to reply with: the client waits for what `wait_for` gives, or gets the
    /// `empty` reply where it may not wait.
    pub fn nothing_yet<W: Into<BlockFor>>(
        &mut self,
        timeout_ms: Option<u64>,
        empty: EmptyReply,
        wait_for: impl FnOnce() -> W,
    ) {
        let wait_for = match self.on_empty {
            OnEmpty::Reply => return empty.write_at_once(&mut self.reply),
            OnEmpty::Block => wait_for().into(),
            OnEmpty::StayBlocked => BlockFor::default(),
        };
        self.effects.wait = Some(Wait { timeout_ms, empty, wait_for });
    }
}
