//! How a server shall end, and whether that can still be undone.

use std::sync::{Mutex, MutexGuard};

/// How a server shall end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShutdownWish {
    /// All data shall be saved.
    pub saves: bool,
    /// Nothing shall be saved.
    pub forbids_save: bool,
    /// The end shall come even if the data cannot be saved.
    pub by_force: bool,
}

impl ShutdownWish {
    /// The wish that these words are. Unknown words say nothing.
    pub fn of(words: &[Vec<u8>]) -> Self {
        let mut wish = Self::default();
        words.iter().for_each(|word| _ = wish.add(word));
        wish
    }

    /// Adds a word of SHUTDOWN; false if it is not one.
    pub fn add(&mut self, word: &[u8]) -> bool {
        match word.to_ascii_lowercase().as_slice() {
            b"save" => self.saves = true,
            b"nosave" => self.forbids_save = true,
            b"force" => self.by_force = true,
            // There are no replicas to wait for.
            b"now" => {}
            _ => return false,
        }
        true
    }

    /// Whether it does not contradict itself.
    pub fn is_possible(self) -> bool {
        !(self.saves && self.forbids_save)
    }
}

/// A signal's request to end. It can be aborted until the end has begun.
#[derive(Debug, Default)]
pub struct ShutdownRequest {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The number of the request that is pending, if one is.
    pending: Option<u64>,
    /// Whether its end has begun.
    has_begun: bool,
    last_number: u64,
}

impl ShutdownRequest {
    /// Asks for the end. Returns the request's number, or `None` if one is pending already.
    pub fn ask(&self) -> Option<u64> {
        let mut state = self.state();
        if state.pending.is_some() {
            return None;
        }
        state.last_number += 1;
        state.pending = Some(state.last_number);
        state.pending
    }

    /// Whether a request is pending: neither aborted nor given up.
    pub fn is_pending(&self) -> bool {
        self.state().pending.is_some()
    }

    /// Whether this request is pending.
    pub fn is_wanted(&self, number: u64) -> bool {
        self.state().pending == Some(number)
    }

    /// Takes the request back, as SHUTDOWN ABORT does; false if there is none, or its end has
    /// begun.
    pub fn abort(&self) -> bool {
        let mut state = self.state();
        !state.has_begun && state.pending.take().is_some()
    }

    /// Begins the end that this request asked for; false if it was aborted.
    pub fn begin(&self, number: u64) -> bool {
        let mut state = self.state();
        let is_wanted = state.pending == Some(number);
        state.has_begun |= is_wanted;
        is_wanted
    }

    /// Gives up this request: the data could not be saved.
    pub fn give_up(&self, number: u64) {
        let mut state = self.state();
        if state.pending == Some(number) {
            (state.pending, state.has_begun) = (None, false);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it is locked")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aborted_request_never_begins() {
        let request = ShutdownRequest::default();
        let number = request.ask().expect("none is pending");
        assert!(request.is_pending() && request.abort() && !request.is_pending());
        assert!(!request.begin(number) && !request.abort());
    }

    #[test]
    fn an_end_that_has_begun_cannot_be_aborted() {
        let request = ShutdownRequest::default();
        let number = request.ask().expect("none is pending");
        assert_eq!(request.ask(), None);
        assert!(request.begin(number) && request.is_pending() && !request.abort());
        assert_eq!(request.ask(), None);
        request.give_up(number);
        assert!(!request.is_pending() && request.ask().is_some());
    }

    /// Who slept while its request was aborted and another came neither begins the other one nor
    /// gives it up.
    #[test]
    fn a_late_beginner_leaves_the_next_request_alone() {
        let request = ShutdownRequest::default();
        let first = request.ask().expect("none is pending");
        request.abort();
        let second = request.ask().expect("none is pending");
        request.give_up(first);
        assert!(!request.begin(first) && request.is_pending() && request.begin(second));
    }
}
