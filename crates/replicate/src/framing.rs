//! The framing of snapshots.

/// The framing of a snapshot on a replica's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// `$EOF:` and a mark, the snapshot, the mark. The snapshot is sent while it is written.
    EndMark,
    /// `$` and the length, the snapshot. It is sent once it is complete.
    Length,
}
