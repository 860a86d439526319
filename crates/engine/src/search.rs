//! The beginning of a search that a command has left: its first slice, after the locks were
//! released; and the look-up of its key, if it had to wait.

use commands::{BlockingMode, EmptyReply, Search};
use resp::Reply;
use stdx::ByteQueue;

use crate::call::Host;
use crate::clock::Clock;
use crate::request::Request;
use crate::run::{Caller, Executor};
use crate::searches::{FoundReply, MayPause, WaitingSearch};
use crate::session::Session;
use crate::shared::Shared;
use crate::table::Runner;
use crate::turn::{Engine, state_refusal};
use crate::wait::{BlockedClient, KeylessWait};

/// The maximum number of waiting searches that a turn begins. Each is parsed again, and looks its
/// key up.
const BEGUN_MAX: usize = 4;

impl<C: Clock, H: Host> Executor<'_, C, H> {
    /// Runs a search, and replies. If it takes longer than this turn's slice for new searches,
    /// blocks its client instead; the reply follows. No shard is locked.
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
        let before = out.len_bytes();
        let reply = &mut Reply::new(out, session.protocol());
        let (took, has_ended) = self.searches.run_first((&mut *search, reply), &self.clock, may_pause);
        if has_ended {
            freeing.free_rest(search.end());
            return;
        }
        let wait = KeylessWait {
            registered: request.registered,
            empty: EmptyReply::NullArray,
            deadline_ms: None,
            awaited_position: 0,
        };
        let written = out.split_off(before);
        blocked.block_without_keys(session, &request.args, wait);
        match blocked.of(&session.info) {
            Some(waiter) => {
                if let Some(search) = self.searches.add(WaitingSearch { waiter, took }, search, written) {
                    freeing.free_rest(search.end());
                }
            }
            None => freeing.free_rest(search.end()),
        }
    }

    /// Runs the request of a waiting search again, without a further count of its look-up. Returns
    /// the search, with the log position that it shows; `None` if the reply was written.
    fn search_again(
        &mut self,
        waiter: &BlockedClient,
        out: &mut ByteQueue,
    ) -> (Option<Box<dyn Search>>, u64) {
        let (shared, registered) = (self.shared(), waiter.registered);
        let request = Request::unhashed(registered, waiter.args.args(shared.keyspace.hasher()));
        let refusal = state_refusal(shared, registered.command.flags, registered.command.flags);
        if let Some(error) = refusal.or_else(|| self.refusal_of_blocked(waiter, &request)) {
            self.refuse(waiter.protocol, error, out);
            return (None, 0);
        }
        let Runner::Data(handler) = registered.command.run else { unreachable!("it has left a search") };
        let Some(mut locked) = request.keys.lock_unless_busy(&shared.keyspace) else {
            self.refuse(waiter.protocol, shared.scripts.error(), out);
            return (None, 0);
        };
        self.read_clock();
        // The messages about an expired key are not those of this client, whose reply is not sent
        // now.
        let caller = Caller { client: 0, touch: false, ..self.caller_of(waiter, BlockingMode::Block) };
        let counts = (self.commit.access_results.hits, self.commit.access_results.misses);
        self.run_one(&mut locked, &caller, handler, &request, out);
        (self.commit.access_results.hits, self.commit.access_results.misses) = counts;
        let search = self.commit.effects.search.take();
        let mut position = 0;
        if self.commit.effects.record.is_wanted {
            self.commit.log_command(waiter.db, &request.args, &locked);
            position = self.commit.position;
        }
        if self.commit.is_pending() {
            self.commit.release(0);
            self.serve(locked);
        }
        (search, position)
    }
}

impl<C: Clock, H: Host> Engine<'_, C, H> {
    /// Begins the oldest waiting searches while there is room for them, at most [`BEGUN_MAX`]; the
    /// next turn continues. Returns the replies of those that have nothing to search any more. The
    /// thread is inside the gate, and no shard is locked.
    #[cold]
    pub fn begin_searches(&mut self) -> Vec<FoundReply> {
        let executor = &mut self.executor;
        let mut replies = Vec::new();
        for _ in 0..BEGUN_MAX {
            let Some(waiting) = executor.searches.take_waiting() else { break };
            if waiting.waiter.over.is_over() {
                continue;
            }
            let mut reply = ByteQueue::new();
            let (search, position) = executor.search_again(&waiting.waiter, &mut reply);
            if let Some(search) = search {
                executor.searches.begin(waiting, search, position);
            } else if executor.shared().blocked.end(&waiting.waiter) {
                let WaitingSearch { waiter, took } = waiting;
                replies.push(FoundReply { waiter, reply, took, position });
            }
        }
        replies
    }
}
