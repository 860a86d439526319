//! The identifiers of listeners. The identifiers of connections are in another crate:
//! [`stdx::ConnId`].

/// The identifier of a listener of one event loop, counted from 0 and never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListenerId(pub(crate) u32);

impl ListenerId {
    /// Returns the number of the listener: 0 for the first listener added to the loop.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}
