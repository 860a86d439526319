//! The options of a shutdown, and the shutdown request, which can be cancelled until the shutdown
//! begins.

use std::sync::{Mutex, MutexGuard};

/// The options of a shutdown, from SHUTDOWN or from the configuration of signals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShutdownOptions {
    /// True if all data must be saved before the server ends (SAVE).
    pub saves: bool,
    /// True if no data is saved before the server ends (NOSAVE).
    pub forbids_save: bool,
    /// True if the server must end even if the data cannot be saved (FORCE).
    pub by_force: bool,
    /// True if the server ends without waiting for its replicas (NOW).
    pub at_once: bool,
    /// True if the server first makes one of its replicas the primary (`failover`). SHUTDOWN has no
    /// word for this option.
    pub fails_over: bool,
}

impl ShutdownOptions {
    /// Parses the words of `shutdown-on-sigint` or `shutdown-on-sigterm`: those of SHUTDOWN, and
    /// `failover`. Ignores unknown words.
    pub fn of(words: &[Vec<u8>]) -> Self {
        let fails_over = words.iter().any(|word| word.eq_ignore_ascii_case(b"failover"));
        let mut wish = Self { fails_over, ..Self::default() };
        words.iter().for_each(|word| _ = wish.add(word));
        wish
    }

    /// Sets the option that a word of SHUTDOWN names; returns false if the word is unknown.
    pub fn add(&mut self, word: &[u8]) -> bool {
        match word.to_ascii_lowercase().as_slice() {
            b"save" => self.saves = true,
            b"nosave" => self.forbids_save = true,
            b"force" => self.by_force = true,
            b"now" => self.at_once = true,
            _ => return false,
        }
        true
    }

    /// Returns true if the options do not contradict each other, as SAVE and NOSAVE do.
    pub fn is_possible(self) -> bool {
        !(self.saves && self.forbids_save)
    }
}

/// The shutdown request of a signal, or of a SHUTDOWN that waits for replicas. It can be aborted
/// until the shutdown has begun.
#[derive(Debug, Default)]
pub struct ShutdownRequest {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The number of the pending shutdown request; `None` if no request is pending.
    pending: Option<u64>,
    /// True after the shutdown of the pending request has begun.
    has_begun: bool,
    last_number: u64,
    /// The time until which the pending shutdown request waits for replicas, in milliseconds of the
    /// server's clock; `None` while it does not wait.
    waits_until_ms: Option<u64>,
    /// The clients of SHUTDOWN that wait for the end of a shutdown request: pairs of the request's
    /// number and the client's id.
    clients: Vec<(u64, u64)>,
}

impl ShutdownRequest {
    /// Makes a request for a shutdown. Returns its number, or `None` if another request is pending.
    pub fn ask(&self) -> Option<u64> {
        let mut state = self.state();
        if state.pending.is_some() {
            return None;
        }
        state.last_number += 1;
        (state.pending, state.waits_until_ms) = (Some(state.last_number), None);
        state.pending
    }

    /// Returns true while a shutdown request is pending: it was neither aborted nor given up. Its
    /// shutdown may have begun.
    pub fn is_pending(&self) -> bool {
        self.state().pending.is_some()
    }

    /// Returns true while shutdown request `number` is pending.
    pub fn is_wanted(&self, number: u64) -> bool {
        self.state().pending == Some(number)
    }

    /// Cancels the pending shutdown request, as SHUTDOWN ABORT does. Returns false if no request is
    /// pending or its shutdown has begun.
    pub fn abort(&self) -> bool {
        let mut state = self.state();
        !state.has_begun && state.pending.take().is_some()
    }

    /// Begins the shutdown of shutdown request `number`. Returns false, and begins nothing, if the
    /// request is no longer pending.
    pub fn begin(&self, number: u64) -> bool {
        let mut state = self.state();
        let is_wanted = state.pending == Some(number);
        state.has_begun |= is_wanted;
        is_wanted
    }

    /// Gives up shutdown request `number`, because the data could not be saved. Does nothing if it
    /// is not pending.
    pub fn give_up(&self, number: u64) {
        let mut state = self.state();
        if state.pending == Some(number) {
            (state.pending, state.has_begun) = (None, false);
        }
    }

    /// Makes a shutdown request for a client that waits for the end of the request. Returns the
    /// request's number, or `None` if the client waits for the end of an earlier request that is
    /// pending.
    pub fn ask_for(&self, client: u64) -> Option<u64> {
        let mut state = self.state();
        let is_new = state.pending.is_none();
        if is_new {
            state.last_number += 1;
            (state.pending, state.waits_until_ms) = (Some(state.last_number), None);
        }
        let number = state.last_number;
        state.clients.push((number, client));
        is_new.then_some(number)
    }

    /// Calls `act` if shutdown request `number` is pending. No request is made or aborted during
    /// the call. Returns true if `act` was called.
    pub fn if_wanted(&self, number: u64, act: impl FnOnce()) -> bool {
        let state = self.state();
        let is_wanted = state.pending == Some(number);
        if is_wanted {
            act();
        }
        is_wanted
    }

    /// Records that shutdown request `number` waits for replicas until `until_ms`, in milliseconds
    /// of the server's clock. `None` records that this wait has ended. Does nothing if the request
    /// is not pending.
    pub fn note_wait(&self, number: u64, until_ms: Option<u64>) {
        let mut state = self.state();
        if state.pending == Some(number) {
            state.waits_until_ms = until_ms;
        }
    }

    /// Returns the time until which the pending shutdown request waits for replicas, in
    /// milliseconds of the server's clock. Returns `None` while no request waits.
    pub fn waits_until_ms(&self) -> Option<u64> {
        let state = self.state();
        state.waits_until_ms.filter(|_| state.pending.is_some())
    }

    /// Calls `act` if no shutdown request is pending. No request is made during the call.
    pub fn unless_pending(&self, act: impl FnOnce()) {
        let state = self.state();
        if state.pending.is_none() {
            act();
        }
    }

    /// Removes and returns the ids of the clients that wait for the end of shutdown request
    /// `number`.
    pub fn take_clients(&self, number: u64) -> Vec<u64> {
        let mut state = self.state();
        state.clients.extract_if(.., |(request, _)| *request == number).map(|(_, client)| client).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it is locked")
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn only_an_option_has_the_word_failover() {
        let words = ["nosave", "failover"].map(|word| word.as_bytes().to_vec());
        let wish = ShutdownOptions::of(&words);
        let expected = ShutdownOptions { forbids_save: true, fails_over: true, ..Default::default() };
        assert_eq!(wish, expected);
        assert!(!ShutdownOptions::default().add(b"failover"));
    }

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

    #[test]
    fn clients_wait_for_the_request_that_they_joined() {
        let request = ShutdownRequest::default();
        let first = request.ask_for(7).expect("none is pending");
        assert_eq!(request.ask_for(8), None);
        assert!(request.abort());
        let second = request.ask_for(9).expect("none is pending");
        assert_eq!((request.take_clients(first), request.take_clients(first)), (vec![7, 8], vec![]));
        assert_eq!(request.take_clients(second), [9]);
    }

    #[test]
    fn the_end_of_a_wait_is_that_of_the_pending_request() {
        let request = ShutdownRequest::default();
        let first = request.ask().expect("none is pending");
        request.note_wait(first, Some(500));
        assert_eq!(request.waits_until_ms(), Some(500));
        assert!(request.abort());
        assert_eq!(request.waits_until_ms(), None);
        let second = request.ask().expect("none is pending");
        request.note_wait(first, Some(600));
        assert_eq!(request.waits_until_ms(), None);
        request.note_wait(second, Some(700));
        request.note_wait(second, None);
        assert_eq!(request.waits_until_ms(), None);
    }

    /// Checks that the pause of writes lasts until no request is pending, if another request
    /// follows an aborted one. The thread of the aborted request must not begin the pause again.
    #[test]
    fn a_pause_lasts_until_no_request_is_pending() {
        let (request, pauses) = (ShutdownRequest::default(), Cell::new(false));
        let pause = |number| request.if_wanted(number, || pauses.set(true));
        let resume = || request.unless_pending(|| pauses.set(false));
        let first = request.ask().expect("none is pending");
        assert!(pause(first) && request.abort());
        let second = request.ask().expect("none is pending");
        assert!(pause(second));
        resume();
        assert!(pauses.get(), "the second request still needs it");
        request.give_up(second);
        resume();
        assert!(!pauses.get() && !pause(first) && !pause(second) && !pauses.get());
    }

    /// Checks a thread that slept while its request was aborted and replaced by another one: it
    /// neither begins nor gives up the new request.
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
