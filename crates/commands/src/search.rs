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
    /// Continues the search, and then its reply, until `pauses` returns true. `pauses` is called
    /// after each step of some dozens of microseconds. Returns true if the reply is complete.
    fn run(&mut self, reply: &mut Reply<'_>, pauses: &mut dyn FnMut() -> bool) -> bool;

    /// Ends the search, also before its reply is complete. Returns the parts that only its version
    /// of the value had; `None` if there are none.
    fn end(self: Box<Self>) -> Option<Leftover>;
}
