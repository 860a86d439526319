//! The end of a server: what it saves, by what was asked for.

use std::sync::atomic::Ordering::Relaxed;

use keyspace::Exclusive;
use persist::save::Way;

use super::{aof, save_here, wait_for_end};
use crate::shared::Shared;
use crate::shutdown::ShutdownWish;
use crate::snapshots::{Cancelled, save_rules};

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
