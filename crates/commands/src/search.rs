//! The part of a command that runs without locks: a search on a version of a value.
//!
//! A handler that finds its reply by long work pins the value and leaves a search in
//! [`Changes::search`](crate::Changes::search). The engine releases the locks, runs the search and
//! sends its reply. It may pause the search and run other requests in between. So the client sees
//! the value as it was when its request ran.

use keyspace::Leftover;
use resp::Reply;

/// A search on a version of a value.
pub trait Search: Send {
    /// Runs the search until `pauses` returns true. It is called after each step of some dozens of
    /// microseconds. Returns true if the search has ended.
    fn run(&mut self, pauses: &mut dyn FnMut() -> bool) -> bool;

    /// Writes the reply. The search has ended. Returns the parts that only its
    /// version of the value had; `None` if there are none.
    fn write(self: Box<Self>, reply: &mut Reply<'_>) -> Option<Leftover>;

    /// Gives up the search. Returns parts as [`Search::write`] does.
    fn cancel(self: Box<Self>) -> Option<Leftover>;
}
