//! The arguments that the engine hands to its host for a command about the server or the
//! connection.

use std::sync::Arc;

use commands::ctx::DbChange;
use commands::{Args, Changes, CommandError};
use keyspace::gate::SharedPass;
use keyspace::view::AccessContext;
use keyspace::{Key, View};
use resp::Reply;

use crate::acl::Reason;
use crate::client::ClientInfo;
use crate::commit::{Commit, Held, Unit};
use crate::session::Session;
use crate::settings::Settings;
use crate::table::{HostCommand, Registered};

/// The host: it runs the commands that the engine does not know, such as CONFIG, INFO and
/// SHUTDOWN. Data commands never come here.
pub trait Host {
    /// Runs a command of the host's table.
    ///
    /// # Errors
    /// The error to reply with; what was written to the reply is taken back then.
    fn run(&self, command: HostCommand, call: Call<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError>;

    /// Describes a client as CLIENT LIST does, without the line's end: for ACL LOG.
    fn describe_client(&self, client: &ClientInfo) -> Vec<u8> {
        client.id.to_string().into_bytes()
    }

    /// Has a thread of its own run this EVAL of a client that debugs it. The client's flow is
    /// [`Flow::Debugging`](crate::session::Flow::Debugging) until the connection closes.
    ///
    /// # Errors
    /// The error to reply with.
    fn debug_script(&self, session: &mut Session, args: &Args<'_>) -> Result<(), CommandError> {
        let _ = (session, args);
        Err(CommandError::Line("ERR scripts are not debugged here"))
    }

    /// Notes that a request was refused by the rules of its client's user, for the audit log.
    fn note_refused(&self, _settings: &Settings, _unix_ms: i64, _refused: RefusedRequest<'_>) {}
}

/// A request that was refused by the rules of its client's user.
pub struct RefusedRequest<'a> {
    /// The client.
    pub client: &'a ClientInfo,
    /// The name of its user.
    pub user: &'a [u8],
    /// The command.
    pub registered: &'static Registered,
    /// Its arguments.
    pub args: &'a Args<'a>,
    /// Why.
    pub reason: Reason,
}

/// A host's command's surroundings.
pub struct Call<'a, 'g, 's> {
    /// The settings of this turn.
    pub settings: &'a Arc<Settings>,
    /// The client that asks.
    pub session: &'a mut Session,
    /// The command itself.
    pub registered: &'static Registered,
    /// The destination of the reply.
    pub reply: Reply<'a>,
    /// The thread that runs it.
    pub thread: usize,
    /// This turn's pass through the gate: can be made exclusive. No shard is locked.
    pub pass: &'a mut SharedPass<'g>,
    /// Random numbers.
    pub rng: &'a mut fastrand::Rng,
    /// For work on keys.
    pub data: DataAccess<'a, 's>,
}

/// The access of a host's command to keys, as a data command has it.
pub struct DataAccess<'a, 's> {
    /// The commit that changes end in.
    pub commit: &'a mut Commit<'s>,
    /// The way keys are accessed.
    pub access_context: AccessContext,
    /// The time that the command's transaction or script sees, in Unix microseconds.
    pub unix_us: i64,
    /// The client that asks.
    pub client: u64,
    /// The unit of the command.
    pub unit: Unit,
}

impl DataAccess<'_, '_> {
    /// Does `work` with the shard of `key` locked, as a unit unless it is part of a transaction: on
    /// that key of database `db`, and without a system call. What it recorded is the unit's record.
    /// Clients that are blocked on what it changes are served when the command is done.
    pub fn with_key<T>(
        &mut self,
        db: usize,
        key: Key<'_>,
        work: impl FnOnce(&mut View<'_>, &mut Changes) -> T,
    ) -> T {
        let keyspace = &self.commit.shared.keyspace;
        let is_recorded = self.commit.begin_record();
        let mut locked = keyspace.lock_one(key.hash);
        let mut view =
            View::new(keyspace, &mut locked, db, self.access_context, &mut self.commit.access_results);
        let done = work(&mut view, &mut self.commit.effects);
        let seen_position = self.commit.position;
        drop(view);
        self.commit.collect(&mut Held::Locked(&mut locked), self.client);
        if is_recorded {
            self.commit.record_commands(Some(&locked));
            match self.unit {
                Unit::Own => {
                    self.commit.log_unit(&locked);
                    // What the command shows is what it has seen of all its keys.
                    self.commit.position = self.commit.position.max(seen_position);
                    self.commit.publish_log();
                }
                Unit::Transaction => self.commit.note_change_alone(Some(&locked)),
            }
        }
        self.commit.release(self.client);
        done
    }

    /// Notifies the watchers of all keys, and all clients that cache keys, that the keyspace is
    /// about to be replaced. The caller owns the keyspace. O(watched keys).
    pub fn note_replacement(&mut self) {
        let dbs = 0..self.commit.shared.keyspace.db_count();
        self.commit.effects.db_changes.extend(dbs.map(DbChange::Replaced));
        self.commit.collect(&mut Held::None, self.client);
        self.commit.release(self.client);
    }

    /// Returns the present time in Unix milliseconds.
    pub fn now_ms(&self) -> i64 {
        self.access_context.now_ms
    }
}
