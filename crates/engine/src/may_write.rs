//! Checks again if a request may write that CLIENT PAUSE WRITE would postpone because of its
//! command's flags: its scripts may declare that they do not write.

use commands::Args;

use crate::call::Host;
use crate::check::Effect;
use crate::clock::Clock;
use crate::publish::SENTINEL_CHANNEL;
use crate::run::Executor;
use crate::scripting::ScriptTraits;
use crate::session::Session;
use crate::table::{Registered, Runner, ScriptVerb, Verb};
use crate::transaction::Transaction;

impl<C: Clock, H: Host> Executor<'_, C, H> {
    /// Returns true if a request may write. Called for a command whose flags permit writes. The
    /// result is false for a script that declares `no-writes` or cannot run, and for a message of a
    /// Sentinel. It is also false for an EXEC with only such scripts and commands that do not
    /// write.
    #[cold]
    pub(crate) fn may_write(&mut self, session: &Session, registered: &Registered, args: &Args<'_>) -> bool {
        match (&session.transaction, registered.command.run) {
            (_, Runner::Script(verb)) => self.script_may_write(verb, args),
            (Some(transaction), Runner::Transaction(Verb::Exec)) => {
                self.effect_of(transaction) == Effect::MayWrite
            }
            (_, Runner::Host(_)) => !is_of_sentinel(registered, args),
            _ => true,
        }
    }

    /// Returns the effect on data that the queued commands of a transaction may have. O(commands).
    pub(crate) fn effect_of(&mut self, transaction: &Transaction) -> Effect {
        let hasher = self.shared().keyspace.hasher();
        let writes = transaction.queue.iter().any(|queued| match queued.registered.command.run {
            Runner::Script(verb) => self.script_may_write(verb, &queued.args.args(hasher)),
            _ => Effect::of(queued.registered.command.flags) == Effect::MayWrite,
        });
        if writes { Effect::MayWrite } else { Effect::Harmless }
    }

    /// Returns true if the script that a request names may write, according to the flags that the
    /// script declares.
    fn script_may_write(&mut self, verb: ScriptVerb, args: &Args<'_>) -> bool {
        let Some(engine) = self.scripts.as_mut().filter(|_| !verb.is_read_only()) else { return false };
        let prepared = engine.prepare(verb.source(args));
        prepared.is_ok_and(|prepared| !prepared.traits.contains(ScriptTraits::NO_WRITES))
    }
}

/// Returns true if a request is the message by which a Sentinel introduces itself.
fn is_of_sentinel(registered: &Registered, args: &Args<'_>) -> bool {
    registered.full_name == "publish" && args.try_get(1) == Some(SENTINEL_CHANNEL)
}
