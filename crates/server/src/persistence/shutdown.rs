//! The end of a server: what it saves, by what was asked for.

use std::sync::atomic::Ordering::Relaxed;

use keyspace::Exclusive;
use persist::save::Way;

use super::{aof, save_here, wait_for_end};
use crate::shared::Shared;
use crate::snapshots::{Cancelled, save_rules};

/// How a server shall end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShutdownWish {
    saves: bool,
    saves_not: bool,
    by_force: bool,
}

impl ShutdownWish {
    /// The wish that these words are. Unknown words say nothing.
    pub fn of(words: &[Vec<u8>]) -> Self {
        let mut wish = Self::default();
        words.iter().for_each(|word| _ = wish.add(word));
        wish
    }

    /// Adds a word of SHUTDOWN; false where it is none.
    pub fn add(&mut self, word: &[u8]) -> bool {
        match word.to_ascii_lowercase().as_slice() {
            b"save" => self.saves = true,
            b"nosave" => self.saves_not = true,
            b"force" => self.by_force = true,
            // There are no replicas to wait for.
            b"now" => {}
            _ => return false,
        }
        true
    }

    /// Whether it does not contradict itself.
    pub fn is_possible(self) -> bool {
        !(self.saves && self.saves_not)
    }

    /// Whether nothing shall be saved.
    pub fn forbids_saving(self) -> bool {
        self.saves_not
    }
}

/// What is to be written before a server ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastWork {
    saves: bool,
    appends: bool,
}

/// Ends the save in the background, and says what is to be written once more; `None` where the
/// server may not end.
pub fn last_work(shared: &Shared, wish: ShutdownWish) -> Option<LastWork> {
    if shared.persistence.cancel(&shared.engine) == Cancelled::UnderWay {
        tracing::warn!("There is a child saving an .rdb. Killing it!");
    }
    let has_rules = !save_rules(&shared.config()).is_empty();
    // What is there would come into the place of all that is in the file.
    let is_whole =
        !shared.engine.standing.is_loading.load(Relaxed) && !shared.persistence.load_failed.load(Relaxed);
    if is_whole && shared.append_only.state().awaits_base {
        if !wish.by_force {
            tracing::warn!("Writing initial AOF, can't exit.");
            return None;
        }
        tracing::warn!("Writing initial AOF. Exit anyway.");
    }
    let saves = !wish.saves_not && (wish.saves || has_rules) && is_whole;
    Some(LastWork { saves, appends: shared.append_only.active().is_some() })
}

impl LastWork {
    /// Whether there is none.
    pub fn is_nothing(self) -> bool {
        !self.saves && !self.appends
    }

    /// Writes all data and lets no request run any more; whether the server may end. The caller is
    /// outside the gate: what is waited for comes through it.
    pub fn run(self, shared: &Shared, wish: ShutdownWish) -> bool {
        if aof::cancel_rewrite(shared) {
            tracing::warn!("A rewrite of the append-only file was ended.");
        }
        if self.saves {
            tracing::info!("Saving the final RDB snapshot before exiting.");
        }
        let mut may_end = None;
        while may_end.is_none() {
            if self.saves {
                shared.persistence.cancel(&shared.engine);
                wait_for_end(shared);
            }
            shared.engine.gate.exclusive(|alone| {
                // Somebody may have begun another one in between.
                if !self.saves || shared.persistence.state().current.is_none() {
                    may_end = Some(self.run_as_owner(shared, wish, alone));
                }
            });
        }
        may_end == Some(true)
    }

    fn run_as_owner(self, shared: &Shared, wish: ShutdownWish, alone: &Exclusive) -> bool {
        let may_end = !self.saves || save_as_owner(shared, wish, alone);
        if may_end && self.appends {
            tracing::info!("Calling fsync() on the AOF file.");
            if let Err(trouble) = aof::finish_all(shared) {
                tracing::warn!("Fail to fsync the AOF file: {trouble}");
            }
        }
        // Before others are let in again: what they changed would be lost.
        shared.engine.standing.is_stopping.store(may_end, Relaxed);
        may_end
    }
}

fn save_as_owner(shared: &Shared, wish: ShutdownWish, alone: &Exclusive) -> bool {
    match save_here(shared, Way::Owner, |fix| fix(alone)) {
        Ok(()) => true,
        Err(_) if wish.by_force => {
            tracing::warn!("Error trying to save the DB. Exit anyway.");
            true
        }
        Err(_) => {
            tracing::warn!("Error trying to save the DB, can't exit.");
            false
        }
    }
}
