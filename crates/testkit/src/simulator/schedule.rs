//! The schedule: at each yield point, a seeded random choice decides which thread continues.
//!
//! At a yield point the running thread continues with a probability that is drawn once per run.
//! With a high probability, one thread runs for a long time while the others stand still. With a
//! low one, the steps of the threads are finely interleaved. Each finds errors that the other does
//! not find.

use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};

use crate::Rng;

/// Probabilities, in 256ths, that the running simulated thread continues at a yield point; each run
/// draws one. Otherwise the next thread is drawn from all that can run.
const STAYS: &[u64] = &[96, 192, 224, 240, 250];

/// The schedule of one run: shuttle asks it for the next thread at each yield point.
pub(super) struct SeededScheduler {
    rng: Rng,
    stays: u64,
    begun: bool,
    seed: u64,
}

impl SeededScheduler {
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let stays = *rng.pick(STAYS);
        Self { rng, stays, begun: false, seed }
    }
}

impl Scheduler for SeededScheduler {
    fn new_execution(&mut self) -> Option<Schedule> {
        (!std::mem::replace(&mut self.begun, true)).then(|| Schedule::new(self.seed))
    }

    fn next_task(&mut self, runnable: &[&Task], current: Option<TaskId>, yields: bool) -> Option<TaskId> {
        let draw = self.rng.next_u64();
        if let Some(current) = current
            && !yields
            && draw % 256 < self.stays
            && runnable.iter().any(|task| task.id() == current)
        {
            return Some(current);
        }
        Some(runnable[(draw >> 8) as usize % runnable.len()].id())
    }

    fn next_u64(&mut self) -> u64 {
        self.rng.next_u64()
    }
}
