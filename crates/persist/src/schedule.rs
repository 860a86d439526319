//! Decides when a snapshot must be saved by the rules of the option `save`, and records the results
//! of the last saves. It uses no clock: times are arguments.

use std::time::Duration;

use crate::folder::FileError;

/// The time after a failed save before a rule of the option `save` may begin the next one, as in
/// Redis.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// A rule of the option `save`: a save is due when this time has passed since the last save and at
/// least this number of changes were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SaveRule {
    /// The minimum time since the last save, in seconds.
    pub seconds: u64,
    /// The minimum number of changes since the last save.
    pub changes: u64,
}

/// The results of the saves of snapshots since the server's start. Times are Unix seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaveRecord {
    /// The end of the last save that succeeded; the start of the server if none did.
    pub last_save_s: i64,
    /// The start of the last save in the background; `None` if there was none.
    pub last_try_s: Option<i64>,
    /// True if the last save in the background succeeded.
    pub last_succeeded: bool,
    /// The error of the last save in the background; `None` if it succeeded or there was none.
    pub last_error: Option<FileError>,
    /// The duration of the last save in the background, in seconds; `None` before the first one has
    /// ended.
    pub last_took_s: Option<u64>,
    /// The number of saves of snapshots that have succeeded.
    pub saves: u64,
    /// The number of changes to the data that the last successful save contains.
    pub changes_saved: u64,
    /// True if a save of a snapshot should begin as soon as possible.
    pub is_scheduled: bool,
}

impl SaveRecord {
    /// Creates the results of saves for a server that starts at `now_s`, in Unix seconds, and has
    /// saved nothing yet.
    pub fn at_start(now_s: i64) -> Self {
        Self {
            last_save_s: now_s,
            last_try_s: None,
            last_succeeded: true,
            last_error: None,
            last_took_s: None,
            saves: 0,
            changes_saved: 0,
            is_scheduled: false,
        }
    }

    /// Returns the reason for a save in the background at `now_s`, in Unix seconds; `None` if none
    /// is due. `changes` counts all changes since the start of the server. Ignores a save in
    /// progress.
    pub fn due(&self, rules: &[SaveRule], changes: u64, now_s: i64) -> Option<Reason> {
        let may_try = self.last_succeeded
            || self.last_try_s.is_none_or(|at_s| now_s - at_s > RETRY_AFTER.as_secs() as i64);
        if !may_try {
            return None;
        }
        let unsaved = changes.saturating_sub(self.changes_saved);
        let since_s = now_s - self.last_save_s;
        let rule = rules.iter().find(|rule| unsaved >= rule.changes && since_s > rule.seconds as i64);
        rule.map(|rule| Reason::Rule(*rule)).or(self.is_scheduled.then_some(Reason::Scheduled))
    }

    /// Records the start of a save in the background at `now_s`, in Unix seconds.
    pub fn begun(&mut self, now_s: i64) {
        self.last_try_s = Some(now_s);
        self.is_scheduled = false;
    }

    /// Records that a save has succeeded at `now_s`, in Unix seconds. `changes` is the number of
    /// changes to the data that the save contains.
    pub fn succeeded(&mut self, changes: u64, now_s: i64) {
        self.last_save_s = now_s;
        self.last_succeeded = true;
        self.last_error = None;
        self.saves += 1;
        self.changes_saved = changes;
    }

    /// Records that a save has failed, for the reason `trouble`.
    pub fn failed(&mut self, trouble: FileError) {
        self.last_succeeded = false;
        self.last_error = Some(trouble);
    }
}

/// The reason why a save in the background begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The conditions of this rule (time and changes) of the option `save` are met.
    Rule(SaveRule),
    /// The save was requested (BGSAVE SCHEDULE) at a time when it could not begin.
    Scheduled,
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: [SaveRule; 2] =
        [SaveRule { seconds: 3600, changes: 1 }, SaveRule { seconds: 60, changes: 10_000 }];

    #[test]
    fn a_rule_is_due_when_its_changes_and_more_than_its_seconds_are_there() {
        let mut record = SaveRecord::at_start(1000);
        assert_eq!(record.due(&RULES, 0, 1_000_000), None);
        assert_eq!(record.due(&RULES, 1, 4600), None);
        assert_eq!(record.due(&RULES, 1, 4601), Some(Reason::Rule(RULES[0])));
        assert_eq!(record.due(&RULES, 9_999, 1061), None);
        assert_eq!(record.due(&RULES, 10_000, 1060), None);
        assert_eq!(record.due(&RULES, 10_000, 1061), Some(Reason::Rule(RULES[1])));
        record.succeeded(10_000, 1061);
        assert_eq!(record.due(&RULES, 10_000, 1_000_000), None);
        assert_eq!(record.due(&RULES, 20_000, 1122), Some(Reason::Rule(RULES[1])));
        assert_eq!(record.due(&[], 20_000, 1_000_000), None);
    }

    #[test]
    fn after_a_failure_the_next_one_waits() {
        let mut record = SaveRecord::at_start(0);
        record.begun(100);
        record.failed(FileError("the disk is full".to_owned()));
        record.is_scheduled = true;
        assert_eq!(record.due(&RULES, 50_000, 105), None);
        assert_eq!(record.due(&RULES, 50_000, 106), Some(Reason::Rule(RULES[1])));
        assert_eq!(record.due(&[], 50_000, 106), Some(Reason::Scheduled));
    }
}
