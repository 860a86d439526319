//! The interface between the engine and its host. The host is the server (or a test); it runs the
//! commands about the server and the connection.

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

/// The host of the engine. It runs the commands that the engine does not implement, such as CONFIG,
/// INFO and SHUTDOWN. Data commands are never passed to it.
pub trait Host {
    /// Runs a command of the host's table.
    ///
    /// # Errors
    /// The error to reply with. Everything that was written to the reply before is discarded.
    fn run(&self, command: HostCommand, call: Call<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError>;

    /// Formats a client as CLIENT LIST does, without the line end, for ACL LOG.
    fn describe_client(&self, client: &ClientInfo) -> Vec<u8> {
        client.id.to_string().into_bytes()
    }

    /// Starts a thread that runs this EVAL for a client in debug mode (SCRIPT DEBUG). From then on,
    /// until the connection closes, the session's flow is
    /// [`Flow::Debugging`](crate::session::Flow::Debugging).
    ///
    /// # Errors
    /// The error to reply with.
    fn debug_script(&self, session: &mut Session, args: &Args<'_>) -> Result<(), CommandError> {
        let _ = (session, args);
        Err(CommandError::Line("ERR this thread cannot debug scripts"))
    }

    /// Records in the audit log that the rights of the client's user did not permit a request.
    fn note_refused(&self, _settings: &Settings, _unix_ms: i64, _refused: RefusedRequest<'_>) {}
}

/// A request that the rights of the client's user did not permit.
pub struct RefusedRequest<'a> {
    /// The client that sent the request.
    pub client: &'a ClientInfo,
    /// The name of the user whose rights do not permit the request.
    pub user: &'a [u8],
    /// The command that the client may not run.
    pub registered: &'static Registered,
    /// The arguments of the request.
    pub args: &'a Args<'a>,
    /// The kind of the refusal: by command, key, channel or database.
    pub reason: Reason,
}

/// The context in which a command of the host runs.
pub struct Call<'a, 'g, 's> {
    /// The server's settings at the start of this turn (a pass of the thread's event loop).
    pub settings: &'a Arc<Settings>,
    /// The session of the client that sent the request.
    pub session: &'a mut Session,
    /// The command's record in the command table.
    pub registered: &'static Registered,
    /// The encoder to which the command writes its reply.
    pub reply: Reply<'a>,
    /// The index of the I/O thread that runs the command.
    pub thread: usize,
    /// The pass with which the calling thread holds the gate (the keyspace's shared lock). With it,
    /// the command can become the exclusive owner of the keyspace. The thread holds no shard lock.
    pub pass: &'a mut SharedPass<'g>,
    /// The random number generator of the thread.
    pub rng: &'a mut fastrand::Rng,
    /// The access to keys, for commands that need it.
    pub data: DataAccess<'a, 's>,
}

/// The access to keys for a command of the host, as data commands have it.
pub struct DataAccess<'a, 's> {
    /// The collector of the command's changes, which sends them to other clients.
    pub commit: &'a mut Commit<'s>,
    /// The time and the modes (expired keys, access clocks) with which the command accesses keys.
    pub access_context: AccessContext,
    /// The time that the command's transaction or script uses, in Unix microseconds.
    pub unix_us: i64,
    /// The id of the client that sent the request.
    pub client: u64,
    /// The unit of the change log to which the command belongs: the command itself or a
    /// transaction.
    pub unit: Unit,
}

impl DataAccess<'_, '_> {
    /// Runs `work` with the shard of `key` locked. `work` may access only this key of database
    /// `db`, and must make no system call.
    ///
    /// The call is one unit of the change log, unless it is part of a transaction. The log gets the
    /// commands that `work` records. Clients that are blocked on a changed key are served after the
    /// command.
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
        let (observed_position, own_position) = (self.commit.position, self.commit.own_position);
        drop(view);
        self.commit.collect(&mut Held::Locked(&mut locked), self.client);
        if is_recorded {
            self.commit.record_commands(Some(&locked));
            match self.unit {
                Unit::Own => {
                    self.commit.log_unit(&locked);
                    // The position of the command must cover the changes of all keys that it has
                    // read.
                    self.commit.position = self.commit.position.max(observed_position);
                    self.commit.own_position = self.commit.own_position.max(own_position);
                    self.commit.publish_log();
                }
                Unit::Transaction => self.commit.note_change_alone(Some(&locked)),
            }
        }
        self.commit.release(self.client);
        done
    }

    /// Marks the watchers of all existing keys as dirty, and invalidates all client-side caches.
    /// Called when the keyspace is about to be replaced. The caller owns the keyspace exclusively.
    /// O(watched keys).
    pub fn note_replacement(&mut self) {
        let dbs = 0..self.commit.shared.keyspace.db_count();
        self.commit.effects.db_changes.extend(dbs.map(DbChange::Replaced));
        self.commit.collect(&mut Held::None, self.client);
        self.commit.release(self.client);
    }

    /// Returns the time that the command uses, in Unix milliseconds.
    pub fn now_ms(&self) -> i64 {
        self.access_context.now_ms
    }
}
