//! How a server shall end, and whether that can still be undone.

use std::sync::{Mutex, MutexGuard};

/// How a server shall end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShutdownWish {
    /// All data shall be saved.
    pub saves: bool,
    /// Nothing shall be saved.
    pub saves_not: bool,
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

    /// Adds a word of SHUTDOWN; false where it is none.
    pub fn add(&mut self, word: &[u8]) -> bool {
        match word.to_ascii_lowercase().as_slice() {
            b"save" => self.saves = true,
            b"nosave" => self.saves_not = true,
            b"force" => self.by_force = true,
            // There are no replicas to wait for.
            b"now" => {}
            _ => return false,
        }
        true
    }

    /// Whether it does not contradict itself.
    pub fn is_possible(self) -> bool {
        !(self.saves && self.saves_not)
    }
}

/// A signal's request to end. It can be aborted until the end has begun.
#[derive(Debug, Default)]
pub struct ShutdownRequest {
    state: Mutex<RequestState>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum RequestState {
    #[default]
    None,
    Asked(ShutdownWish),
    Begun,
}

impl ShutdownRequest {
    /// Asks for the end; false where that was asked for before.
    pub fn ask(&self, wish: ShutdownWish) -> bool {
        let mut state = self.state();
        let is_first = *state == RequestState::None;
        if is_first {
            *state = RequestState::Asked(wish);
        }
        is_first
    }

    /// Whether the end was asked for, and neither aborted nor given up.
    pub fn is_pending(&self) -> bool {
        *self.state() != RequestState::None
    }

    /// Takes the request back, as SHUTDOWN ABORT does; false where there is none, or the end has
    /// begun.
    pub fn abort(&self) -> bool {
        let mut state = self.state();
        let is_asked = matches!(*state, RequestState::Asked(_));
        if is_asked {
            *state = RequestState::None;
        }
        is_asked
    }

    /// Begins the end as it was asked for; `None` where it was aborted, or has begun already.
    pub fn begin(&self) -> Option<ShutdownWish> {
        let mut state = self.state();
        let RequestState::Asked(wish) = *state else { return None };
        *state = RequestState::Begun;
        Some(wish)
    }

    /// Gives up an end that had begun: the data could not be saved.
    pub fn give_up(&self) {
        *self.state() = RequestState::None;
    }

    fn state(&self) -> MutexGuard<'_, RequestState> {
        self.state.lock().expect("nothing panics while it is locked")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WISH: ShutdownWish = ShutdownWish { saves: true, saves_not: false, by_force: false };

    #[test]
    fn an_aborted_request_never_begins() {
        let request = ShutdownRequest::default();
        assert!(request.ask(WISH) && request.is_pending());
        assert!(request.abort() && !request.is_pending());
        assert_eq!(request.begin(), None);
        assert!(!request.abort());
    }

    #[test]
    fn an_end_that_has_begun_cannot_be_aborted_and_begins_once() {
        let request = ShutdownRequest::default();
        assert!(request.ask(WISH) && !request.ask(ShutdownWish::default()));
        assert_eq!(request.begin(), Some(WISH));
        assert!(request.is_pending() && !request.abort() && !request.ask(WISH));
        assert_eq!(request.begin(), None);
        request.give_up();
        assert!(!request.is_pending() && request.ask(WISH));
    }

    /// A thread that was asked to end slept while the request was aborted and another came: it ends
    /// the server as the other asks.
    #[test]
    fn who_begins_late_begins_the_latest_request() {
        let request = ShutdownRequest::default();
        request.ask(ShutdownWish::default());
        request.abort();
        request.ask(WISH);
        assert_eq!((request.begin(), request.begin()), (Some(WISH), None));
    }
}
