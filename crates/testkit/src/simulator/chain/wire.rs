//! The bytes under way between two nodes.

use std::collections::VecDeque;

/// The bytes under way on a link. Its lock is a leaf and not a yield point.
#[derive(Default)]
pub(super) struct Wire {
    pub down: VecDeque<u8>,
    /// Acknowledged offsets.
    pub up: VecDeque<u64>,
    pub is_cut: bool,
}
