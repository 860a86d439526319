//! The key extraction of requests: applies the key specs of the command's record in the command
//! table to the arguments.
//!
//! Dispatch locks the shards of these keys, and the handler may use no others. If a spec cannot
//! describe the keys, a function beside the handler finds them ([`KeySpec::found_by`]). A spec that
//! does not match the arguments finds no key: the handler then rejects the request with its own
//! error before it uses any key.

use crate::args::Args;
use crate::table::{Begin, Find, KeySpec};

/// Calls `visit` for every key that the key specs `specs` find in the arguments, with the key's
/// argument index and its spec. O(keys), plus the arguments searched for a keyword.
#[inline]
pub fn for_each_key(specs: &[KeySpec], args: &Args<'_>, mut visit: impl FnMut(usize, &KeySpec)) {
    for spec in specs {
        match (spec.begin, spec.find) {
            // Most commands: one key at a fixed place.
            (Begin::Index(at), Find::Range { last: 0, .. }) if (at as usize) < args.len() => {
                visit(at as usize, spec);
            }
            _ if let Some(find_keys) = spec.found_by => find_keys(args, &mut |at| visit(at, spec)),
            (Begin::Keyword { keyword, start: start @ 1.. }, Find::Range { last: 0, .. }) => {
                behind_each_keyword(keyword, start as usize, args).for_each(|at| visit(at, spec));
            }
            _ => {
                let Some(range) = key_range(spec, args) else { continue };
                (range.first..=range.last).step_by(range.step).for_each(|at| visit(at, spec));
            }
        }
    }
}

/// Returns false if a key spec with a count or a fixed place does not match the arguments. The
/// handler then rejects the request without using any key, and access control checks no key, as in
/// Redis. O(specs).
pub fn fit(specs: &[KeySpec], args: &Args<'_>) -> bool {
    let is_searched = |spec: &KeySpec| spec.found_by.is_some() || !matches!(spec.begin, Begin::Index(_));
    specs.iter().all(|spec| is_searched(spec) || key_range(spec, args).is_some())
}

/// The argument indexes of keys: every `step`-th index from `first` to `last`, both included.
struct KeyRange {
    first: usize,
    last: usize,
    step: usize,
}

fn key_range(spec: &KeySpec, args: &Args<'_>) -> Option<KeyRange> {
    let begin = match spec.begin {
        Begin::Index(at) => usize::from(at),
        Begin::Keyword { keyword, start } => behind_keyword(keyword, start, args)?,
        Begin::Unknown => return None,
    };
    let (first, last, step) = match spec.find {
        Find::Range { last, step, limit } => {
            let end = match (usize::try_from(last), limit) {
                (Ok(last), _) => begin + last,
                (Err(_), 0 | 1) => args.len().checked_add_signed(last.into())?,
                (Err(_), limit) => {
                    let part = args.len().checked_sub(begin)? / usize::from(limit);
                    (begin + part).checked_add_signed(last.into())?
                }
            };
            (begin, end, step)
        }
        Find::KeyNum { keynum, first, step } => {
            let count = stdx::number::parse_i64(args.try_get(begin + usize::from(keynum))?)?;
            let count = usize::try_from(count).ok().filter(|count| (1..args.len()).contains(count))?;
            let first = begin + usize::from(first);
            (first, first + (count - 1) * usize::from(step), step)
        }
        Find::Unknown => return None,
    };
    let fits = first <= last && last < args.len();
    fits.then_some(KeyRange { first, last, step: usize::from(step).max(1) })
}

/// Returns the argument indexes (keys) after all occurrences of `keyword` from `start` on. A
/// keyword before a single key may occur several times; the handler uses the last key.
fn behind_each_keyword(keyword: &str, start: usize, args: &Args<'_>) -> impl Iterator<Item = usize> {
    (start + 1..args.len()).filter(move |&at| args.is(at - 1, keyword))
}

/// Returns the argument index (a key) after `keyword`, or `None` if the keyword is missing. The
/// search starts at `start` and runs forwards, or backwards if `start` counts from the end.
fn behind_keyword(keyword: &str, start: i8, args: &Args<'_>) -> Option<usize> {
    let mut at = match usize::try_from(start) {
        Ok(start) => start,
        Err(_) => args.len().checked_add_signed(start.into())?,
    };
    while (1..args.len()).contains(&at) {
        if args.is(at, keyword) {
            return Some(at + 1);
        }
        at = if start < 0 { at - 1 } else { at + 1 };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::KeyFlags;
    use keyspace::Hasher;
    use resp::parse::Span;

    fn check(specs: &[KeySpec], line: &str, expected: &str) {
        let found = with_args(line, |args| {
            let mut found = Vec::new();
            for_each_key(specs, args, |at, _| {
                found.push(String::from_utf8_lossy(args.get(at)).into_owned());
            });
            found.join(" ")
        });
        assert_eq!(found, expected, "{line}");
    }

    /// Calls `run` with the words of `line` as arguments, and returns its result.
    fn with_args<T>(line: &str, run: impl FnOnce(&Args<'_>) -> T) -> T {
        let mut at = 0;
        let spans: Vec<Span> = line
            .split(' ')
            .map(|word| {
                let span = Span { start: at, len: word.len() as u32 };
                at += word.len() as u32 + 1;
                span
            })
            .collect();
        let hasher = Hasher::with_seed([0; 4]);
        run(&Args::new(line.as_bytes(), &spans, &hasher))
    }

    #[test]
    fn keys_are_found_by_place() {
        let ro = KeyFlags::RO;
        check(&[KeySpec::at(1, ro)], "GET a", "a");
        check(&[KeySpec::at(1, ro)], "GET", "");
        check(&[KeySpec::at(1, ro), KeySpec::at(2, ro)], "RENAME a b", "a b");
        check(&[KeySpec::from(1, 1, ro)], "DEL a b c", "a b c");
        check(&[KeySpec::from(1, 2, ro)], "MSET a 1 b 2", "a b");
        check(&[KeySpec::range(1, -2, 1, ro)], "BLPOP a b 0", "a b");
    }

    #[test]
    fn keys_are_found_behind_a_count() {
        let specs = [KeySpec::at(1, KeyFlags::OW), KeySpec::counted(2, 0, 1, KeyFlags::RO)];
        check(&specs, "ZUNIONSTORE d 2 a b WEIGHTS 1 2", "d a b");
        for count in ["0", "-1", "x", "3", "9223372036854775807"] {
            check(&specs, &format!("ZUNIONSTORE d {count} a b"), "d");
            assert!(!with_args(&format!("ZUNIONSTORE d {count} a b"), |args| fit(&specs, args)), "{count}");
        }
    }

    #[test]
    fn keys_are_found_behind_a_word() {
        let streams = [KeySpec::keyword("STREAMS", 1, -1, 2, KeyFlags::RO)];
        check(&streams, "XREAD COUNT 2 streams a b 0 0", "a b");
        check(&streams, "XREAD COUNT 2 a b 0 0", "");
        check(&streams, "XREAD STREAMS", "");
        let store = [KeySpec::keyword("STORE", 2, 0, 0, KeyFlags::OW)];
        check(&store, "SORT a STORE b", "b");
        check(&store, "SORT a STORE b DESC store STORE", "b STORE");
        check(&store, "SORT a STORE", "");
        let last = [KeySpec::keyword("KEYS", -2, -1, 1, KeyFlags::RW)];
        check(&last, "MIGRATE h 1 \"\" 0 9 KEYS a", "a");
        check(&last, "MIGRATE h 1 \"\" 0 9 KEYS a b", "a b");
    }
}
