//! The required contents of the bases of append-only files: the reference for
//! [`crashes`](super::crashes).

use std::sync::{Arc, Mutex, MutexGuard};

use engine::Shared;
use engine::threads::Outbox;
use keyspace::Exclusive;

use super::disk::Disk;
use crate::contents::{Contents, of_keyspace};

/// The required content of a base of the append-only file.
pub(super) struct Point {
    /// The keyspace at the moment at which the snapshot of the base begins.
    pub contents: Contents,
    /// The length of the tape (the record of all changes) when the snapshot of the base begins, in
    /// bytes.
    pub end: usize,
}

/// The required contents of the bases that all runs of the server process have written. Its lock is
/// a leaf: no other lock is taken under it. A thread of the simulator does not yield at it.
#[derive(Clone, Default)]
pub(super) struct Points(Arc<Mutex<Vec<Point>>>);

impl Points {
    /// Locks the required contents of the bases, to read or change them.
    pub fn state(&self) -> MutexGuard<'_, Vec<Point>> {
        self.0.lock().expect("nothing panics while it is locked")
    }

    /// Records the required content of the next base, at the moment of its snapshot. Returns the
    /// length of the tape (the record of all changes) at that moment, in bytes.
    pub fn add(
        &self,
        (engine, recorded_stream): (&Shared, &Disk),
        alone: &Exclusive,
        outbox: &Outbox,
    ) -> usize {
        let contents = of_keyspace(&engine.keyspace);
        let end = recorded_stream.cut(engine, alone, outbox).expect("there is a tape");
        self.state().push(Point { contents, end });
        end
    }
}
