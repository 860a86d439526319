//! Which thread goes on at a yield point: chance decides, from a seed.
//!
//! A thread keeps the processor with a probability that is drawn once a run. Runs that hardly ever
//! switch have long stretches in which one thread is far ahead of another; runs that switch at
//! every other point tear each protocol apart. Both find what the other does not.

use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};

use crate::Rng;

/// In how many of 256 cases a thread keeps the processor: one of these, a run.
const STAYS: &[u64] = &[96, 192, 224, 240, 250];

/// One run's schedule.
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
