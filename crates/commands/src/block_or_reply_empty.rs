//! The end of a blocking command that found no data: see [`crate::wait`].

use crate::ctx::Ctx;
use crate::wait::{BlockFor, BlockingMode, EmptyReply, Wait};

impl Ctx<'_> {
    /// Ends a blocking command that found no data. If the client may block, it waits for the keys
    /// that `wait_for` returns, at most `timeout_ms` milliseconds (`None`: without limit). A client
    /// that is already blocked remains blocked. Any other client gets the `empty` reply.
    pub fn block_or_reply_empty<W: Into<BlockFor>>(
        &mut self,
        timeout_ms: Option<u64>,
        empty: EmptyReply,
        wait_for: impl FnOnce() -> W,
    ) {
        let wait_for = match self.on_empty {
            BlockingMode::Reply => return empty.write_at_once(&mut self.reply),
            BlockingMode::Block => wait_for().into(),
            BlockingMode::StayBlocked => BlockFor::default(),
        };
        self.effects.wait = Some(Wait { timeout_ms, empty, wait_for });
    }
}
