//! The count of refused commands of the running script. If the script is undone and is run again,
//! the same refusals occur again and must not be counted twice.

use std::cell::Cell;

/// The numbers of refused commands in the runs of a script.
#[derive(Debug, Default)]
pub struct ScriptRefusals {
    /// The number of refused commands in the present run of the script.
    seen: Cell<u32>,
    /// The highest number of refused commands in any run of the script. The statistics have counted
    /// this number of refusals.
    counted: Cell<u32>,
}

impl ScriptRefusals {
    /// Begins a run of the script, in which no command is refused yet.
    pub fn begin_run(&self) {
        self.seen.set(0);
    }

    /// Counts a refused command in the present run. Returns true if no earlier run had this many,
    /// so that the refusal must be counted in the statistics.
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
