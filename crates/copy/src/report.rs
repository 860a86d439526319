//! The counts of a copy of data between servers, and its summary.

use std::fmt::Write;

/// The number of refused and of different keys that are listed by name.
pub const LISTED_MAX: usize = 20;

/// The counts of keys, bytes and events of a copy, for its summary.
#[derive(Debug, Default)]
pub struct Tally {
    /// The number of keys written to the target. A key written twice counts twice.
    pub copied: u64,
    /// The bytes of the payloads written to the target.
    pub copied_len_bytes: u64,
    /// The number of keys that the scans of both servers have returned.
    pub scanned: u64,
    /// The number of keys that the copy removed from the target.
    pub removed: u64,
    /// The number of keys copied with commands such as RPUSH instead of RESTORE.
    pub rewritten: u64,
    /// The number of keyspace events received about changed keys.
    pub events: u64,
    /// The number of times that the copy lost a connection.
    pub losses: u64,
    /// The number of scans that were repeated because changes were missed.
    pub rescans: u64,
    /// The number of keys that were compared and found equal.
    pub equal: u64,
    /// The number of refusals of keys by a server. A key refused twice counts twice.
    pub refused: u64,
    /// The first refused keys, each as a line with its error.
    pub refused_listed: Vec<String>,
}

impl Tally {
    /// Counts a refused key. Returns true if it is listed: it was not listed before, and the list
    /// is not full.
    pub fn refuse(&mut self, line: &str) -> bool {
        self.refused += 1;
        let is_known = self.refused_listed.iter().any(|listed| listed == line);
        let is_listed = !is_known && self.refused_listed.len() < LISTED_MAX;
        if is_listed {
            self.refused_listed.push(line.to_owned());
        }
        is_listed
    }
}

/// The result of comparing the keys of both servers at the end of a copy.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// The keys that differ and did not change during the comparison.
    pub different: Vec<String>,
    /// The number of differing keys that changed during every comparison, so that they could not be
    /// judged.
    pub changing: u64,
}

impl Comparison {
    /// Returns true if every key was equal on both servers.
    pub fn is_equal(&self) -> bool {
        self.different.is_empty() && self.changing == 0
    }
}

/// Formats the summary of a copy that took `seconds` seconds. `comparison` is `None` if keys were
/// not compared.
pub fn summary(tally: &Tally, comparison: Option<&Comparison>, seconds: f64) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name:<12} {value}");
    };
    let rate = tally.copied as f64 / seconds.max(1e-9);
    let megabytes = tally.copied_len_bytes as f64 / 1e6;
    line("copied", format!("{} keys ({megabytes:.1} MB) in {seconds:.1} s, {rate:.0} keys/s", tally.copied));
    if tally.rewritten > 0 {
        line("rewritten", format!("{} keys, by the commands of their types", tally.rewritten));
    }
    line("removed", format!("{} keys that the source lacks", tally.removed));
    line("changes", format!("{} events", tally.events));
    if tally.losses > 0 {
        line("connections", format!("lost {} times", tally.losses));
    }
    if tally.rescans > 0 {
        line("scans", format!("{} repeated, since changes were missed", tally.rescans));
    }
    if tally.refused > 0 {
        line("refused", format!("{} times", tally.refused));
    }
    match comparison {
        None => line("compared", "nothing".to_owned()),
        Some(comparison) => {
            line("equal", format!("{} keys", tally.equal));
            line("different", format!("{} keys", comparison.different.len()));
            if comparison.changing > 0 {
                line("changing", format!("{} keys changed at each comparison", comparison.changing));
            }
            for key in comparison.different.iter().take(LISTED_MAX) {
                line("  differs", key.clone());
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_names_what_happened_and_nothing_else() {
        let mut tally = Tally { copied: 10, copied_len_bytes: 2_000_000, equal: 9, ..Tally::default() };
        assert!(tally.refuse("\"k\": ERR") && !tally.refuse("\"k\": ERR"));
        for number in 0..LISTED_MAX {
            assert_eq!(tally.refuse(&number.to_string()), number + 1 < LISTED_MAX);
        }
        assert_eq!(tally.refused_listed.len(), LISTED_MAX);
        let comparison = Comparison { different: vec!["\"k\"".to_owned()], changing: 0 };
        let text = summary(&tally, Some(&comparison), 2.0);
        assert!(text.contains("copied       10 keys (2.0 MB) in 2.0 s, 5 keys/s\n"), "{text}");
        assert!(text.contains("refused      22 times\n"), "{text}");
        assert!(text.contains("different    1 keys\n  differs    \"k\"\n"), "{text}");
        assert!(!text.contains("changing") && !text.contains("lost"), "{text}");
        assert!(!comparison.is_equal());
    }
}
