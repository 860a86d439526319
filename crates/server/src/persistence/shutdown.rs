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

/// Saves what is to be saved and lets no request run any more; whether the server may end.
/// No rewrite is under way ([`aof::cancel_rewrite`]). `as_owner` makes the caller the owner of the
/// keyspace.
pub fn prepare_shutdown(
    shared: &Shared,
    wish: ShutdownWish,
    as_owner: impl FnOnce(&mut dyn FnMut(&Exclusive)),
) -> bool {
    if shared.persistence.cancel(&shared.engine) == Cancelled::UnderWay {
        tracing::warn!("There is a child saving an .rdb. Killing it!");
    }
    let is_loading = shared.engine.standing.is_loading.load(Relaxed);
    if shared.append_only.state().awaits_base && !is_loading {
        if !wish.by_force {
            tracing::warn!("Writing initial AOF, can't exit.");
            return false;
        }
        tracing::warn!("Writing initial AOF. Exit anyway.");
    }
    let has_rules = !save_rules(&shared.config()).is_empty();
    let saves = !wish.saves_not && (wish.saves || has_rules);
    let appends = shared.append_only.active().is_some();
    if is_loading || !(saves || appends) {
        return true;
    }
    if saves {
        tracing::info!("Saving the final RDB snapshot before exiting.");
        wait_for_end(shared);
    }
    let mut may_end = true;
    as_owner(&mut |alone| {
        if saves && save_here(shared, Way::Owner, |fix| fix(alone)).is_err() {
            may_end = wish.by_force;
            tracing::warn!(
                "Error trying to save the DB{}",
                if may_end { ". Exit anyway." } else { ", can't exit." }
            );
        }
        if may_end && appends {
            tracing::info!("Calling fsync() on the AOF file.");
            if let Err(trouble) = aof::finish_all(shared) {
                tracing::warn!("Fail to fsync the AOF file: {trouble}");
            }
        }
        // Before others are let in again: what they changed would be lost.
        shared.engine.standing.is_stopping.store(may_end, Relaxed);
    });
    may_end
}
