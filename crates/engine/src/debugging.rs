//! Scripts in debug mode (SCRIPT DEBUG).
//!
//! A debugged script stops while its user decides what to do next. So it runs on a thread of its
//! own, which the host starts ([`Host::debug_script`](crate::call::Host::debug_script)). There an
//! executor runs it like any other script ([`Executor::run_debugged`]), and Lua exchanges messages
//! with the client between the lines of the script.
//!
//! ```text
//!   EVAL ─► Host::debug_script ─► thread ─► SYNC: exclusive owner of the keyspace, busy at once
//!                                      └──► YES:  an engine of its own, which copies keys as they
//!                                                 are used, and is dropped at the end
//! ```
//! With SYNC, other clients receive `-BUSY` until the debugged script ends, and SCRIPT KILL ends
//! the script. With YES, other clients are not affected: a key is locked only while it is copied.
//!
//! [`Executor::run_debugged`]: crate::run::Executor::run_debugged

use std::collections::HashSet;

use commands::CommandError;
use keyspace::key::SHARD_COUNT;
use keyspace::{KeyEntry, Keyspace};

use crate::request::Request;
use crate::shared::{GateSlot, Shared};
use crate::table::Runner;

/// The mode in which an executor runs scripts: normally or in the debugger.
pub(crate) enum Debugged<'s> {
    /// Scripts run normally, without the debugger.
    Not,
    /// One script is debugged, as the exclusive owner of the keyspace (SYNC).
    Alone,
    /// One script is debugged, in an engine of its own (YES).
    Apart(Box<Original<'s>>),
}

/// The maximum number of keys that are copied for a command that does not name its keys.
const ALL_KEYS_MAX: usize = 100_000;
/// The commands of the server that use only their client and the clock. They may run in scripts
/// under locks and in scripts that are debugged on copies.
pub(crate) const HARMLESS: [&str; 4] = ["time", "echo", "ping", "select"];
/// The data commands that may change keys of a database other than the selected one.
pub(crate) const ACROSS_DATABASES: [&str; 2] = ["copy", "move"];

/// The data from which a debugged script gets copies of the keys that it uses. The script's changes
/// of the copies are discarded.
pub struct Original<'s> {
    shared: &'s Shared,
    slot: GateSlot,
    copied: HashSet<(usize, Box<[u8]>)>,
    has_all: bool,
}

impl<'s> Original<'s> {
    /// Creates a source of copies from the data of `shared`. `slot` is the thread's slot in the
    /// gate, the keyspace's shared lock.
    pub fn new(shared: &'s Shared, slot: GateSlot) -> Self {
        Self { shared, slot, copied: HashSet::new(), has_all: false }
    }

    /// Copies the keys of a command of the debugged script into `copy` before the command runs,
    /// unless they were copied before.
    ///
    /// # Errors
    /// The error for a busy script, which prevents the copy, or the error of a command that cannot
    /// run on copies.
    pub(crate) fn copy(
        &mut self,
        request: &Request<'_>,
        db: usize,
        copy: &Keyspace,
    ) -> Result<(), CommandError> {
        let (command, name) = (&request.registered.command, request.registered.full_name);
        match command.run {
            Runner::Host(_) if HARMLESS.contains(&name) => Ok(()),
            Runner::Host(_) | Runner::Transaction(_) | Runner::Script(_) => Err(CommandError::Line(
                "ERR this command cannot run in a debugged script whose changes are discarded: use SCRIPT \
                 DEBUG SYNC",
            )),
            Runner::Data(_) if ACROSS_DATABASES.contains(&name) => {
                (0..copy.db_count()).try_for_each(|db| self.copy_keys(request, db, copy))
            }
            Runner::Data(_) if !command.runs_alone(&request.args) && !request.keys.as_slice().is_empty() => {
                self.copy_keys(request, db, copy)
            }
            Runner::Data(_) | Runner::Walk(_) => self.copy_all(copy),
        }
    }

    fn copy_keys(&mut self, request: &Request<'_>, db: usize, copy: &Keyspace) -> Result<(), CommandError> {
        for key in request.named_keys() {
            let place = (db, Box::from(key.bytes));
            if self.has_all || self.copied.contains(&place) {
                continue;
            }
            let entry = self.find(db, key.bytes)?;
            self.copied.insert(place);
            if let Some(entry) = entry {
                insert(copy, db, entry);
            }
        }
        Ok(())
    }

    /// Returns a copy of a key's entry for the debugged script; `None` if the key does not exist.
    /// O(value).
    fn find(&self, db: usize, name: &[u8]) -> Result<Option<KeyEntry>, CommandError> {
        let Shared { gate, keyspace, .. } = self.shared;
        let key = keyspace.hasher().key(name);
        let pass = gate.shared_unless_busy(self.shared.gate_index(self.slot));
        let locked = if pass.is_inside() { keyspace.lock_one_unless_busy(key.hash) } else { None };
        let Some(locked) = locked else { return Err(self.shared.scripts.error()) };
        let table = locked.shard_of(key.hash).and_then(|shard| shard.db(db)).map(|db| db.table());
        let entry = table.and_then(|table| table.get(key.position(), key.bytes));
        Ok(entry.map(|entry| entry.duplicate(name, entry.access())))
    }

    /// Copies all keys for the debugged script that were not copied before. O(keys and values).
    fn copy_all(&mut self, copy: &Keyspace) -> Result<(), CommandError> {
        if self.has_all {
            return Ok(());
        }
        let Shared { gate, keyspace, .. } = self.shared;
        let mut found: Vec<(usize, KeyEntry)> = Vec::new();
        for number in 0..SHARD_COUNT {
            let pass = gate.shared_unless_busy(self.shared.gate_index(self.slot));
            let shard = if pass.is_inside() { keyspace.lock_unless_busy(number) } else { None };
            let Some(shard) = shard else { return Err(self.shared.scripts.error()) };
            for db in 0..keyspace.db_count() {
                let entries = shard.db(db).into_iter().flat_map(|db| db.table().iter());
                for entry in entries {
                    let is_copied = self.copied.contains(&(db, Box::from(entry.key())));
                    if !is_copied {
                        found.push((db, entry.duplicate(entry.key(), entry.access())));
                    }
                }
            }
            if found.len() > ALL_KEYS_MAX {
                return Err(CommandError::Line(
                    "ERR this command needs a copy of all keys, and there are too many: use SCRIPT DEBUG SYNC",
                ));
            }
        }
        found.into_iter().for_each(|(db, entry)| insert(copy, db, entry));
        self.has_all = true;
        Ok(())
    }
}

fn insert(copy: &Keyspace, db: usize, entry: KeyEntry) {
    let hash = copy.hasher().hash_key(entry.key());
    let added = copy.insert_all_absent(db, vec![(hash, entry)]);
    debug_assert!(added.is_ok(), "it was not copied before");
}
