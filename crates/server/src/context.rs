//! What a command about the server or its connection may touch.

use std::sync::Arc;

use commands::{Args, CommandError, Effects};
use keyspace::gate::SharedPass;
use keyspace::view::{Moment, Tally};
use keyspace::{Key, Keyspace, View};
use resp::Reply;

use crate::command_table::Registered;
use crate::notify::Notifier;
use crate::session::Session;
use crate::settings::Settings;
use crate::shared::Shared;

/// The function that runs a server command.
pub type ServerHandler = fn(&mut ServerCtx<'_, '_>, &Args<'_>) -> Result<(), CommandError>;

/// A server command's surroundings.
pub struct ServerCtx<'a, 'g> {
    /// The server.
    pub shared: &'a Arc<Shared>,
    /// The settings of this turn.
    pub settings: &'a Settings,
    /// The client that asks.
    pub session: &'a mut Session,
    /// The command itself.
    pub registered: &'static Registered,
    /// Where the reply goes.
    pub reply: Reply<'a>,
    /// The thread that runs it.
    pub thread: usize,
    /// This turn's pass through the gate: can be made exclusive. No shard is locked.
    pub pass: &'a mut SharedPass<'g>,
    /// Now, in Unix milliseconds.
    pub now_ms: i64,
    /// Random numbers.
    pub rng: &'a mut fastrand::Rng,
    /// For work on keys.
    pub data: DataAccess<'a>,
}

/// What a server command needs to work on keys as a data command does.
pub struct DataAccess<'a> {
    /// What looking at keys counts and collects.
    pub tally: &'a mut Tally,
    /// What is done to the data.
    pub effects: &'a mut Effects,
    /// What is the same for all of a turn's commands.
    pub moment: Moment,
    /// What publishes events.
    pub notifier: Notifier<'a>,
}

impl DataAccess<'_> {
    /// Does `work` with the shard of `key` locked: on that key of database `db`, and without a system call.
    pub fn with_key<T>(
        &mut self,
        keyspace: &Keyspace,
        db: usize,
        key: Key<'_>,
        work: impl FnOnce(&mut View<'_>, &mut Effects) -> T,
    ) -> T {
        let mut locked = keyspace.lock_one(key.hash);
        let mut view = View::new(keyspace, &mut locked, db, self.moment, self.tally);
        let done = work(&mut view, self.effects);
        drop(view);
        self.effects.absorb(self.tally);
        if !self.effects.events.is_empty() {
            self.notifier.publish(self.effects.events.drain(..));
        }
        done
    }

    /// Now, in Unix milliseconds.
    pub fn now_ms(&self) -> i64 {
        self.moment.now_ms
    }
}
