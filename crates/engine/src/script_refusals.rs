//! What was refused to the script that runs. A script that is undone runs again, and is refused the
//! same again: that is not counted again.

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
    /// A run begins.
    pub fn begin_run(&self) {
        self.seen.set(0);
    }

    /// Something is refused; whether that is to be counted.
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
