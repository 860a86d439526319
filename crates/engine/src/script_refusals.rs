//! The refusals that the script that runs has got. A script that is undone runs again, and gets
//! the same refusals: they are not counted again.

use std::cell::Cell;

/// See the module.
#[derive(Debug, Default)]
pub struct ScriptRefusals {
    /// In this run.
    seen: Cell<u32>,
    /// In the longest of its runs: these were counted.
    counted: Cell<u32>,
}

impl ScriptRefusals {
    /// Begins a run.
    pub fn begin_run(&self) {
        self.seen.set(0);
    }

    /// Notes a refusal. Returns true if it is to be counted.
    pub fn note(&self) -> bool {
        let seen = self.seen.get().saturating_add(1);
        self.seen.set(seen);
        let is_new = seen > self.counted.get();
        if is_new {
            self.counted.set(seen);
        }
        is_new
    }
}
