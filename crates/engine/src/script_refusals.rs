//! The count of refused commands of the running script. If the script is undone and is run again,
//! the same refusals occur again and must not be counted twice.

use std::cell::Cell;

/// The numbers of refused commands in the runs of a script.
#[derive(Debug, Default)]
pub struct ScriptRefusals {
    /// The number of refusals in the present run.
    seen: Cell<u32>,
    /// The highest number of refusals in any run of the script. This number of refusals has been
    /// counted.
    counted: Cell<u32>,
}

impl ScriptRefusals {
    /// Begins a run of the script: no refusals yet.
    pub fn begin_run(&self) {
        self.seen.set(0);
    }

    /// Counts a refusal in the present run. Returns true if no earlier run had this many, so that
    /// the refusal must be counted in the statistics.
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
