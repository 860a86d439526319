//! The first slice of a search that a command has left, after its locks were released.

use commands::{EmptyReply, Search};
use resp::Reply;
use stdx::ByteQueue;

use crate::call::Host;
use crate::clock::Clock;
use crate::request::Request;
use crate::run::Executor;
use crate::searches::MayPause;
use crate::session::Session;
use crate::shared::Shared;
use crate::wait::KeylessWait;

impl<C: Clock, H: Host> Executor<'_, C, H> {
    /// Runs a search, and replies. If it takes longer than this turn's slice for new searches, blocks
    /// its client instead; the reply follows. No shard is locked.
    #[cold]
    pub(crate) fn run_search(
        &mut self,
        mut search: Box<dyn Search>,
        session: &mut Session,
        request: &Request<'_>,
        out: &mut ByteQueue,
    ) {
        // A client with tracking may be notified of a change as soon as its key is registered. It
        // must have the reply before that; a reply that arrived after it would be cached for ever.
        let may_pause = match self.searches.is_on() && session.tracking.is_none() {
            true => MayPause::Yes,
            false => MayPause::No,
        };
        let Shared { blocked, freeing, .. } = self.shared();
        let (took, has_ended) = self.searches.run_first(&mut *search, &self.clock, may_pause);
        if has_ended {
            freeing.free_rest(search.write(&mut Reply::new(out, session.protocol())));
            return;
        }
        let wait = KeylessWait {
            registered: request.registered,
            empty: EmptyReply::NullArray,
            deadline_ms: None,
            awaited_position: 0,
        };
        blocked.block_without_keys(session, &request.args, wait);
        match blocked.of(&session.info) {
            Some(waiter) => self.searches.add(waiter, search, took),
            None => freeing.free_rest(search.cancel()),
        }
    }
}
