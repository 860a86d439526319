//! Scripts that their clients debug (SCRIPT DEBUG).
//!
//! A script that is debugged stands still for as long as its client thinks, so it runs on a thread
//! of its own, which the host begins ([`Host::debug_script`](crate::call::Host::debug_script)):
//! there an executor runs it as any other ([`Executor::run_debugged`]), and Lua speaks with the
//! client from time to time.
//!
//! ```text
//!   EVAL ─► Host::debug_script ─► thread ─► SYNC: exclusive owner of the keyspace, busy at once
//!                                      └──► YES:  an engine of its own, which copies keys as they
//!                                                 are used, and is dropped at the end
//! ```
//! With SYNC all others are answered `-BUSY` meanwhile, and SCRIPT KILL ends it as it ends any
//! other. With YES nobody notices: a key is locked for the time that copying it takes.
//!
//! [`Executor::run_debugged`]: crate::run::Executor::run_debugged

use std::collections::HashSet;

use commands::CommandError;
use keyspace::key::SHARD_COUNT;
use keyspace::{KeyEntry, Keyspace};

use crate::request::Request;
use crate::shared::{GateSlot, Shared};
use crate::table::Runner;

/// The way the executor of a thread runs scripts.
pub(crate) enum Debugged<'s> {
    /// As they come.
    Not,
    /// One that is debugged, as the exclusive owner.
    Alone,
    /// One that is debugged, in an engine of its own.
    Apart(Box<Original<'s>>),
}

/// Keys that a command which does not name its keys copies at most.
const ALL_KEYS_MAX: usize = 100_000;
/// Commands of the host that touch nothing but their client and the clock.
pub(crate) const HARMLESS: [&str; 4] = ["time", "echo", "ping", "select"];
/// Commands that change keys of a database that is not the selected one.
pub(crate) const ACROSS_DATABASES: [&str; 2] = ["copy", "move"];

/// The data that a script which is debugged has its keys from, and whose changes are dropped.
pub struct Original<'s> {
    shared: &'s Shared,
    slot: GateSlot,
    copied: HashSet<(usize, Box<[u8]>)>,
    has_all: bool,
}

impl<'s> Original<'s> {
    /// Creates a source of copies of the data of `shared`, for a thread with this gate slot.
    pub fn new(shared: &'s Shared, slot: GateSlot) -> Self {
        Self { shared, slot, copied: HashSet::new(), has_all: false }
    }

    /// Copies the keys of a command that is about to run on `copy`, as far as they were not.
    ///
    /// # Errors
    /// A busy script keeps it from that, or it is a command that does not run apart.
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
                "ERR this command does not run in a script whose changes are discarded: see SCRIPT DEBUG SYNC",
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

    /// Copies a key. O(value).
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

    /// Copies all keys. O(keys and values).
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
                    "ERR this command needs all keys, which are too many to copy them: see SCRIPT DEBUG SYNC",
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
