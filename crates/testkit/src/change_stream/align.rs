//! The alignment of two streams of changes: finds the changes that only one of them has.

use std::fmt;

use super::Change;

/// Maximum difference between two servers' times of the same request, in milliseconds.
const SAME_MOMENT_MS: u64 = 2_000;

/// The range of numbers that are taken for Unix times in milliseconds: from 2020 to the year 5138.
const TIMES_MS: std::ops::Range<u64> = 1_577_836_800_000..99_999_999_999_999;

/// A place in which two streams of changes differ: between changes that both have, at least one
/// stream has further ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The changes at this place that only the first of the two compared streams has.
    pub ours: Vec<Change>,
    /// The changes at this place that only the second of the two compared streams has.
    pub theirs: Vec<Change>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.theirs.iter().try_for_each(|change| writeln!(f, "    - {change}"))?;
        self.ours.iter().try_for_each(|change| writeln!(f, "    + {change}"))
    }
}

/// Returns the differences of the streams `ours` and `theirs` in order, by a longest common
/// subsequence. O(n·m), where n and m are the numbers of changes between the common start and the
/// common end.
pub fn compare(ours: &[Change], theirs: &[Change]) -> Vec<Difference> {
    let start = ours.iter().zip(theirs).take_while(|(a, b)| are_alike(a, b)).count();
    let (ours, theirs) = (&ours[start..], &theirs[start..]);
    let end = ours.iter().rev().zip(theirs.iter().rev()).take_while(|(a, b)| are_alike(a, b)).count();
    let (ours, theirs) = (&ours[..ours.len() - end], &theirs[..theirs.len() - end]);
    // longest[i][j]: the longest common subsequence of ours from i and theirs from j.
    let mut longest = vec![vec![0_u32; theirs.len() + 1]; ours.len() + 1];
    for (i, a) in ours.iter().enumerate().rev() {
        for (j, b) in theirs.iter().enumerate().rev() {
            longest[i][j] = match are_alike(a, b) {
                true => longest[i + 1][j + 1] + 1,
                false => longest[i + 1][j].max(longest[i][j + 1]),
            };
        }
    }
    let mut found = Vec::new();
    let mut current = Difference { ours: Vec::new(), theirs: Vec::new() };
    let (mut i, mut j) = (0, 0);
    while i < ours.len() || j < theirs.len() {
        if i < ours.len() && j < theirs.len() && are_alike(&ours[i], &theirs[j]) {
            flush(&mut current, &mut found);
            (i, j) = (i + 1, j + 1);
        } else if j == theirs.len() || i < ours.len() && longest[i + 1][j] >= longest[i][j + 1] {
            current.ours.push(ours[i].clone());
            i += 1;
        } else {
            current.theirs.push(theirs[j].clone());
            j += 1;
        }
    }
    flush(&mut current, &mut found);
    found
}

fn flush(current: &mut Difference, found: &mut Vec<Difference>) {
    if !current.ours.is_empty() || !current.theirs.is_empty() {
        found.push(Difference {
            ours: std::mem::take(&mut current.ours),
            theirs: std::mem::take(&mut current.theirs),
        });
    }
}

/// Returns true if both changes have the same effect. Their transaction numbers may differ, because
/// one server may have additional transactions.
fn are_alike(a: &Change, b: &Change) -> bool {
    a.db == b.db
        && (a.transaction > 0) == (b.transaction > 0)
        && a.words.len() == b.words.len()
        && a.name() == b.name()
        && a.words[1..].iter().zip(&b.words[1..]).all(|(a, b)| a == b || are_near(a, b))
}

/// Returns true if both words of commands are times of nearly the same moment, or stream IDs with
/// such times.
pub(super) fn are_near(a: &[u8], b: &[u8]) -> bool {
    let (Some((a, a_rest)), Some((b, b_rest))) = (time_of(a), time_of(b)) else { return false };
    a.abs_diff(b) <= SAME_MOMENT_MS && a_rest.is_some() == b_rest.is_some()
}

/// Parses a Unix time in milliseconds. For a stream ID, also returns the text after the time.
fn time_of(word: &[u8]) -> Option<(u64, Option<&str>)> {
    let text = std::str::from_utf8(word).ok()?;
    let (time, rest) = match text.split_once('-') {
        Some((time, rest)) => (time, Some(rest)),
        None => (text, None),
    };
    let time = time.parse().ok().filter(|time| TIMES_MS.contains(time))?;
    Some((time, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(lines: &[&str]) -> Vec<Change> {
        let words = |line: &&str| line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        lines.iter().map(|line| Change { db: 0, transaction: 0, words: words(line) }).collect()
    }

    #[test]
    fn only_what_differs_is_given_each_stretch_once() {
        let ours = changes(&["SET a 1", "DEL b", "INCR c", "INCR d", "DEL z"]);
        let theirs = changes(&["SET a 1", "UNLINK b", "INCR c", "INCR d", "PERSIST d", "DEL z"]);
        let shown: Vec<_> = compare(&ours, &theirs).iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["    - 0> UNLINK b\n    + 0> DEL b\n", "    - 0> PERSIST d\n"]);
        assert_eq!(compare(&ours, &ours), []);
    }

    #[test]
    fn times_may_lie_apart_a_little_and_other_numbers_not() {
        let pair = |a: &str, b: &str| compare(&changes(&[a]), &changes(&[b])).is_empty();
        assert!(pair("PEXPIREAT a 1800000000123", "PEXPIREAT a 1800000000456"));
        assert!(pair("XADD s 1800000000123-0 f v", "XADD s 1800000000124-1 f v"));
        assert!(!pair("PEXPIREAT a 1800000000123", "PEXPIREAT a 1800000009123"));
        assert!(pair("zadd a 1 b", "ZADD a 1 b"));
        assert!(!pair("INCRBY a 100", "INCRBY a 101"));
        assert!(!pair("XADD s 1800000000123-0 f v", "XADD s 1800000000123 f v"));
    }

    #[test]
    fn a_database_or_a_transaction_makes_another_change() {
        let ours = changes(&["DEL a"]);
        for theirs in [Change { db: 1, ..ours[0].clone() }, Change { transaction: 1, ..ours[0].clone() }] {
            assert_eq!(compare(&ours, &[theirs]).len(), 1);
        }
    }
}
