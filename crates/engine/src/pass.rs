//! A turn's pass: its hold of the gate (the keyspace's shared lock), with the connections' driver
//! to call during a busy script.
//!
//! The driver of a thread (the server's I/O loop) owns its connections. A busy script calls the
//! driver at intervals, so that the driver can serve them ([`Meanwhile`]). Drivers without
//! connections, and turns without scripts, do not need this.

use std::ops::{Deref, DerefMut};
use std::time::Instant;

use keyspace::gate::SharedPass;

/// The driver of a thread, as called by a busy script that runs on this thread.
pub trait Meanwhile {
    /// Serves the thread's other connections. Called every few thousand instructions of a busy
    /// script, with the time `now` of the engine's clock. It must return soon. It must not lock a
    /// shard or take the gate (the keyspace's shared lock), since the script holds locks or owns
    /// the keyspace.
    fn attend(&mut self, now: Instant);
}

/// A thread's hold of the gate (the keyspace's shared lock) during a turn of its event loop, with
/// the driver to call while a script is busy.
pub struct TurnPass<'a, 'g> {
    gate: &'a mut SharedPass<'g>,
    meanwhile: Option<&'a mut dyn Meanwhile>,
}

impl<'a, 'g> TurnPass<'a, 'g> {
    /// Creates a turn's pass through the gate (the keyspace's shared lock) for a driver without
    /// work during busy scripts.
    #[inline]
    pub fn new(gate: &'a mut SharedPass<'g>) -> Self {
        Self { gate, meanwhile: None }
    }

    /// Creates a turn's pass through the gate (the keyspace's shared lock) for a driver that is
    /// called during busy scripts.
    #[inline]
    pub fn attended_by(gate: &'a mut SharedPass<'g>, meanwhile: &'a mut dyn Meanwhile) -> Self {
        Self { gate, meanwhile: Some(meanwhile) }
    }

    /// Borrows the same pass through the gate (the keyspace's shared lock) for a shorter time.
    pub(crate) fn reborrow(&mut self) -> TurnPass<'_, 'g> {
        TurnPass { gate: self.gate, meanwhile: reborrow(&mut self.meanwhile) }
    }

    /// Runs `work` as the exclusive owner of the keyspace, as [`SharedPass::alone_unless_busy`]
    /// does.
    pub(crate) fn alone_unless_busy<R>(
        &mut self,
        work: impl FnOnce(&mut TurnPass<'_, 'g>) -> R,
    ) -> Option<R> {
        let meanwhile = &mut self.meanwhile;
        self.gate.alone_unless_busy(|gate| work(&mut TurnPass { gate, meanwhile: reborrow(meanwhile) }))
    }

    /// Calls the thread's driver, which serves the thread's other connections while a script is
    /// busy.
    #[cold]
    pub(crate) fn attend(&mut self, now: Instant) {
        if let Some(meanwhile) = &mut self.meanwhile {
            meanwhile.attend(now);
        }
    }
}

fn reborrow<'a>(meanwhile: &'a mut Option<&mut dyn Meanwhile>) -> Option<&'a mut dyn Meanwhile> {
    match meanwhile {
        Some(meanwhile) => Some(&mut **meanwhile),
        None => None,
    }
}

impl<'g> Deref for TurnPass<'_, 'g> {
    type Target = SharedPass<'g>;

    #[inline]
    fn deref(&self) -> &SharedPass<'g> {
        self.gate
    }
}

impl DerefMut for TurnPass<'_, '_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.gate
    }
}
