//! The gate of the keyspace under random schedules (shuttle): an exclusive owner is alone, and no
//! thread waits forever. It uses more threads and turns than loom can explore (`loom_gate.rs`).
//!
//! `RUSTFLAGS="--cfg shuttle" cargo test -p keyspace --test shuttle_gate`
#![cfg(shuttle)]

use std::sync::Arc;

use keyspace::gate::{Exclusive, Gate};
use shuttle::thread;
use stdx::sync::AtomicU32;
use stdx::sync::Ordering::Relaxed;

const THREADS: usize = 3;
const TURNS: u32 = 6;

/// A gate of a keyspace, with the number of threads inside it and the number of times that an
/// exclusive owner has worked.
struct Shared {
    gate: Gate,
    inside: AtomicU32,
    owned: AtomicU32,
}

impl Shared {
    fn own(&self, _alone: &Exclusive) {
        assert_eq!(self.inside.load(Relaxed), 0, "somebody is inside beside the owner");
        // Two steps: the step of a second owner between them would be lost.
        let owned = self.owned.load(Relaxed);
        self.owned.store(owned + 1, Relaxed);
    }
}

fn model() {
    let shared =
        Arc::new(Shared { gate: Gate::new(THREADS), inside: AtomicU32::new(0), owned: AtomicU32::new(0) });
    let worker = |index: usize| {
        let shared = Arc::clone(&shared);
        thread::spawn(move || {
            for turn in 0..TURNS {
                let mut pass = shared.gate.shared(index);
                if turn % 2 == 0 {
                    pass.keep_ownership();
                }
                shared.inside.fetch_add(1, Relaxed);
                shared.inside.fetch_sub(1, Relaxed);
                if pass.is_wanted() {
                    pass.yield_to_owner();
                }
                if turn % 3 == 0 {
                    pass.exclusive(|alone| shared.own(alone));
                }
                if pass.is_wanted() {
                    pass.yield_to_owner();
                }
                shared.inside.fetch_add(1, Relaxed);
                shared.inside.fetch_sub(1, Relaxed);
            }
        })
    };
    let workers: Vec<_> = (0..THREADS).map(worker).collect();
    (0..TURNS).for_each(|_| shared.gate.exclusive(|alone| shared.own(alone)));
    workers.into_iter().for_each(|worker| worker.join().expect("it does not panic"));
    assert_eq!(shared.owned.load(Relaxed), TURNS + THREADS as u32 * TURNS.div_ceil(3));
}

#[test]
fn an_owner_is_alone_and_everybody_gets_in() {
    shuttle::check_random(model, 1_000);
    shuttle::check_pct(model, 1_000, 3);
}
