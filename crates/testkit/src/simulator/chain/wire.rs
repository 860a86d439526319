//! A link between a primary and a replica: the bytes and acknowledgements on their way.

use std::collections::VecDeque;

/// A link between a primary and a replica. Its lock is a leaf: no other lock is taken under it. A
/// thread of the simulator does not yield at it.
#[derive(Default)]
pub(super) struct Wire {
    pub down: VecDeque<u8>,
    /// The acknowledged offsets that the replica has sent and the primary has not received.
    pub up: VecDeque<u64>,
    pub is_cut: bool,
}
