//! The framing of snapshots: the bytes around a snapshot by which a replica finds its end.

/// The way in which a replica finds the end of a snapshot on its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// The primary sends `$EOF:` and a random mark, the snapshot, and the mark again. The snapshot
    /// is sent while it is written.
    EndMark,
    /// The primary sends `$` and the length in bytes, then the snapshot. The snapshot is sent once
    /// it is complete.
    Length,
}
