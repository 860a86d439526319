//! What bases of append-only files must hold: see [`crashes`](super::crashes).

use std::sync::{Arc, Mutex, MutexGuard};

use engine::Shared;
use engine::threads::Outbox;
use keyspace::Exclusive;

use super::disk::Disk;
use crate::contents::{Contents, of_keyspace};

/// What a base must hold.
pub(super) struct Point {
    /// The keyspace then.
    pub contents: Contents,
    /// Bytes of the tape up to there.
    pub end: usize,
}

/// The points of all bases of all lives. Its lock is no yield point and a leaf.
#[derive(Clone, Default)]
pub(super) struct Points(Arc<Mutex<Vec<Point>>>);

impl Points {
    /// What is known, to read or change.
    pub fn state(&self) -> MutexGuard<'_, Vec<Point>> {
        self.0.lock().expect("nothing panics while it is locked")
    }

    /// Notes the point of the next base; how long the tape is then.
    pub fn add(&self, (engine, tape): (&Shared, &Disk), alone: &Exclusive, outbox: &Outbox) -> usize {
        let contents = of_keyspace(&engine.keyspace);
        let end = tape.cut(engine, alone, outbox).expect("there is a tape");
        self.state().push(Point { contents, end });
        end
    }
}
