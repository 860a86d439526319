//! The refused commands of the running script. A script that was undone runs again and meets the
//! same refusals, which must not be counted again.

use std::cell::Cell;

/// The numbers of refused commands in the runs of a script.
#[derive(Debug, Default)]
pub struct ScriptRefusals {
    /// The number of refusals in the present run.
    seen: Cell<u32>,
    /// The highest number of refusals in any run of the script; that many have been counted.
    counted: Cell<u32>,
}

impl ScriptRefusals {
    /// Begins a run of the script: no refusals yet.
    pub fn begin_run(&self) {
        self.seen.set(0);
    }

    /// Records a refusal in the present run. Returns true if no earlier run had it, so that it must
    /// be counted.
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
