//! The first slice of a search that a command has left, after its locks were released.

use commands::{EmptyReply, Search};
use keyspace::FreeingSteps;
use resp::Reply;
use stdx::ByteQueue;

use crate::call::Host;
use crate::clock::Clock;
use crate::request::Request;
use crate::run::Executor;
use crate::searches::MayPause;
use crate::session::Session;
use crate::wait::KeylessWait;

/// The number of pieces of an old version that are freed at once. A change of a value beside a
/// search leaves fewer.
const FREED_AT_ONCE: usize = 512;

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
        let (took, has_ended) = self.searches.run_first(&mut *search, &self.clock, may_pause);
        if has_ended {
            let pieces = search.write(&mut Reply::new(out, session.protocol()));
            return self.free_version(pieces);
        }
        let wait = KeylessWait {
            registered: request.registered,
            empty: EmptyReply::NullArray,
            deadline_ms: None,
            awaited_position: 0,
        };
        let blocked = &self.shared().blocked;
        blocked.block_without_keys(session, &request.args, wait);
        match blocked.of(&session.info) {
            Some(waiter) => self.searches.add(waiter, search, took),
            None => self.free_version(search.cancel()),
        }
    }

    /// Frees a version of a value that only a search had: a small rest of it now, the others later.
    fn free_version(&mut self, pieces: Option<FreeingSteps>) {
        let Some(mut pieces) = pieces else { return };
        let may_pause = self.searches.is_on();
        if pieces.by_ref().take(FREED_AT_ONCE).count() == FREED_AT_ONCE && may_pause {
            self.searches.free(Some(pieces));
        }
    }
}
