//! The counts of error replies by error code (their first word), for INFO errorstats.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// The maximum number of different error codes that are counted, because scripts could invent any
/// number.
const CODES_MAX: usize = 128;
/// The number of leading bytes of an error line in which the space after the code is searched. A
/// line without a space there counts as code `ERR`.
const CODE_LEN_MAX: usize = 31;

/// The counts of error replies by code. The lock is taken only when an error is sent; no other lock
/// is taken under it.
#[derive(Debug, Default)]
pub struct ErrorCounts(Mutex<BTreeMap<String, u64>>);

impl ErrorCounts {
    /// Counts an error reply by its error code, the first word of `line`.
    pub fn count(&self, line: &[u8]) {
        // A line without a space, or with a long first word, counts as code `ERR`, as in Redis.
        let start = &line[..line.len().min(CODE_LEN_MAX)];
        let end = start.iter().position(|&byte| byte == b' ');
        let code = end.map_or(Cow::Borrowed("ERR"), |end| String::from_utf8_lossy(&line[..end]));
        let code = &*code;
        let mut counts = self.lock();
        if let Some(count) = counts.get_mut(code) {
            *count += 1;
        } else if counts.len() < CODES_MAX {
            counts.insert(code.to_owned(), 1);
        }
    }

    /// Returns all error codes with the numbers of error replies.
    pub fn by_code(&self) -> BTreeMap<String, u64> {
        self.lock().clone()
    }

    /// Removes all error codes and their counts, for CONFIG RESETSTAT.
    pub fn reset(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, u64>> {
        self.0.lock().expect("nothing panics while errors are counted")
    }
}
