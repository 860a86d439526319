//! A turn's pass through the gate, and what the driver does while a script keeps the thread busy.
//!
//! The driver of a thread knows its connections; a script that has become busy lets it look after
//! them in between ([`Meanwhile`]). Only scripts use it, so a driver without connections to look
//! after, and a turn that runs no script, do without.

use std::ops::{Deref, DerefMut};
use std::time::Instant;

use keyspace::gate::SharedPass;

/// A thread's driver, as a busy script of the thread sees it.
pub trait Meanwhile {
    /// Attends to the thread's other connections. It is called every some thousand instructions of
    /// a busy script, at `now` of the engine's clock. It locks no shard and stays outside the
    /// gate: the script holds locks, or owns the keyspace. It returns soon.
    fn attend(&mut self, now: Instant);
}

/// See the module.
pub struct TurnPass<'a, 'g> {
    gate: &'a mut SharedPass<'g>,
    meanwhile: Option<&'a mut dyn Meanwhile>,
}

impl<'a, 'g> TurnPass<'a, 'g> {
    /// Creates a pass for a driver that has nothing to do while a script is busy.
    #[inline]
    pub fn new(gate: &'a mut SharedPass<'g>) -> Self {
        Self { gate, meanwhile: None }
    }

    /// Creates a pass for a driver that a busy script lets work in between.
    #[inline]
    pub fn attended_by(gate: &'a mut SharedPass<'g>, meanwhile: &'a mut dyn Meanwhile) -> Self {
        Self { gate, meanwhile: Some(meanwhile) }
    }

    /// Borrows the same pass for a shorter time.
    pub(crate) fn reborrow(&mut self) -> TurnPass<'_, 'g> {
        TurnPass { gate: self.gate, meanwhile: reborrow(&mut self.meanwhile) }
    }

    /// Runs as [`SharedPass::alone_unless_busy`] does.
    pub(crate) fn alone_unless_busy<R>(
        &mut self,
        work: impl FnOnce(&mut TurnPass<'_, 'g>) -> R,
    ) -> Option<R> {
        let meanwhile = &mut self.meanwhile;
        self.gate.alone_unless_busy(|gate| work(&mut TurnPass { gate, meanwhile: reborrow(meanwhile) }))
    }

    /// Lets the driver look after the thread's other connections.
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
