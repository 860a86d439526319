//! The execution of walkers: commands on whole databases (such as KEYS or FLUSHALL), which lock one
//! shard at a time (`commands::walk`).
//!
//! ```text
//!   walker ─► collect ─► [ a found expired key: shard locked ─► removed ─► collect ─► unlocked ]*
//!      └──────────────────── again, if it has not replied ◄──────────────────────────────┘
//! ```
//! Outside a transaction, the walker's own changes are one unit of the change log. Each removal of
//! an expired key is a further unit, released and served under the lock of the key's shard. In a
//! transaction, all of this belongs to the transaction's unit, which is released and served at its
//! end. The transaction owns the keyspace until then.

use commands::table::Flags;
use commands::{BlockingMode, CommandError, WalkCtx, Walked, Walker};
use keyspace::view::View;
use resp::Reply;
use stdx::ByteQueue;

use crate::call::Host;
use crate::check::Effect;
use crate::clock::Clock;
use crate::commit::{Held, Unit};
use crate::pass::TurnPass;
use crate::request::Request;
use crate::run::{Caller, Executor};
use crate::session::Session;
use crate::track::Place;

impl<C: Clock, H: Host> Executor<'_, C, H> {
    /// Runs a client's command on a whole database (a walker) outside a transaction. Runs it as the
    /// exclusive owner of the keyspace if its entry in the command table requires it. Returns true
    /// if it succeeded.
    pub fn run_walker(
        &mut self,
        session: &mut Session,
        walker: Walker,
        request: &Request<'_>,
        out: &mut ByteQueue,
        pass: &mut TurnPass<'_, '_>,
    ) -> bool {
        if !request.registered.command.flags.contains(Flags::EXCLUSIVE) {
            return self.walk(session, walker, request, out, Unit::Own);
        }
        // A client receives the invalidation of its own FLUSHALL before the reply, except in a
        // transaction.
        self.commit.flush_place = Place::Ahead;
        let effect = Effect::of(request.registered.command.flags);
        let done = self.alone(pass, effect, |it, _pass| it.walk(session, walker, request, out, Unit::Own));
        self.commit.flush_place = Place::Behind;
        done.unwrap_or_else(|reason| self.give_up(session, request.registered, reason, out))
    }

    /// Runs a command on whole databases (a walker). Returns true if it succeeded. No shard is
    /// locked.
    pub(crate) fn walk(
        &mut self,
        session: &Session,
        walker: Walker,
        request: &Request<'_>,
        out: &mut ByteQueue,
        unit: Unit,
    ) -> bool {
        let caller = self.caller(session, request, BlockingMode::Reply);
        let before = out.len_bytes();
        let mut calls_before = 0;
        let result = loop {
            let is_recorded = self.commit.begin_record();
            let (result, due) = self.call_walker((walker, calls_before), &caller, request, out);
            if is_recorded {
                self.log_step(session, request, unit);
            }
            self.end_step(&caller, unit);
            due.into_iter().for_each(|key| self.remove_due(&caller, &key, unit));
            match result {
                Ok(Walked::Again) => calls_before += 1,
                Ok(Walked::Done) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        if unit == Unit::Own
            && let Some(client) = caller.shown
        {
            // A client receives a command's events before its MONITOR line, as in Redis.
            self.commit.release(caller.client);
            self.monitor(client, request.registered, &request.args);
        }
        let Err(error) = result else { return true };
        out.truncate(before);
        let error = if matches!(error, CommandError::Busy) { self.shared().scripts.error() } else { error };
        self.fail(request.registered, caller.protocol, error, out);
        false
    }

    /// Calls the handler of a command on whole databases (a walker) once. Returns its result, and
    /// the keys that it found expired.
    fn call_walker(
        &mut self,
        (walker, calls_before): (Walker, usize),
        caller: &Caller<'_>,
        request: &Request<'_>,
        out: &mut ByteQueue,
    ) -> (Result<Walked, CommandError>, Vec<Box<[u8]>>) {
        let mut ctx = WalkCtx {
            keyspace: &self.commit.shared.keyspace,
            db: caller.db,
            access_context: self.access_context(caller),
            reply: Reply::new(out, caller.protocol),
            effects: &mut self.commit.effects,
            rng: &mut self.rng,
            calls_before,
            due: Vec::new(),
        };
        let result = walker(&mut ctx, &request.args);
        (result, ctx.due)
    }

    /// Adds the changes of a command on whole databases to the change log's record of the current
    /// unit. Outside a transaction, ends this unit in the change log. The reply shows a whole
    /// database, so it waits for all changes so far.
    #[cold]
    fn log_step(&mut self, session: &Session, request: &Request<'_>, unit: Unit) {
        self.commit.record(session.db(), &request.args, None);
        self.commit.note_change_alone(None);
        if unit == Unit::Own {
            self.commit.log_unit_alone();
            session.saw(self.commit.position);
            session.wrote(self.commit.own_position);
        }
    }

    /// Ends the change log's unit of a walker's own changes (those of a command on whole
    /// databases). In a transaction, only collects the changes.
    fn end_step(&mut self, caller: &Caller<'_>, unit: Unit) {
        match unit {
            Unit::Own => self.end_unlocked(caller.client),
            Unit::Transaction if self.commit.has_changes() => {
                self.commit.collect(&mut Held::None, caller.client);
            }
            Unit::Transaction => {}
        }
    }

    /// Removes a key that a walker found expired, if it is still expired, under the lock of the
    /// key's shard. Outside a transaction, this is one unit of the change log, which ends here.
    #[cold]
    fn remove_due(&mut self, caller: &Caller<'_>, key: &[u8], unit: Unit) {
        let keyspace = &self.shared().keyspace;
        let access_context = self.access_context(caller);
        let key = keyspace.hasher().key(key);
        let is_recorded = self.commit.begin_record();
        let mut locked = keyspace.lock_one(key.hash);
        View::new(keyspace, &mut locked, caller.db, access_context, &mut self.commit.access_results)
            .remove_due(key);
        if self.commit.has_changes() {
            self.commit.collect(&mut Held::Locked(&mut locked), caller.client);
            if is_recorded {
                self.commit.record_commands(None);
                match unit {
                    Unit::Own => self.commit.log_unit(&locked),
                    Unit::Transaction => self.commit.note_change_alone(Some(&locked)),
                }
            }
        }
        if unit == Unit::Own && self.commit.is_pending() {
            self.commit.release(caller.client);
            self.serve(locked);
        }
    }
}
