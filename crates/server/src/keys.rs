//! Finding the keys of a request by its command's key specs.

use commands::table::{Begin, Find, KeySpec};

/// The arguments that are keys by `specs`. `argument` gives an argument's bytes, 0 being the command's
/// name; `count` is how many there are. Indexes come in ascending order per spec and may repeat between
/// specs. A request whose counts make no sense yields the keys found up to there: its handler will say
/// what is wrong.
pub fn key_indexes<'a>(
    specs: &[KeySpec],
    count: usize,
    argument: impl Fn(usize) -> &'a [u8],
) -> smallvec::SmallVec<[usize; 8]> {
    let mut found = smallvec::SmallVec::new();
    for spec in specs {
        let Some(begin) = begin_of(spec, count, &argument) else { continue };
        match spec.find {
            Find::Range { last, step, limit } => {
                let end = last_index(begin, count, last, limit);
                found.extend((begin..end).step_by(step.max(1) as usize));
            }
            Find::KeyNum { keynum, first, step } => {
                let at = begin + keynum as usize;
                let keys = if at < count { stdx::number::parse_i64(argument(at)) } else { None };
                let keys = usize::try_from(keys.unwrap_or(0)).unwrap_or(0);
                let first = begin + first as usize;
                found.extend((first..count).step_by(step.max(1) as usize).take(keys));
            }
            Find::Unknown => {}
        }
    }
    found
}

/// One past the last argument a range may reach.
fn last_index(begin: usize, count: usize, last: i8, limit: u8) -> usize {
    match last {
        0.. => (begin + last as usize + 1).min(count),
        _ if last == -1 && limit > 1 => begin + (count - begin) / limit as usize,
        _ => (count + 1).saturating_sub(last.unsigned_abs() as usize),
    }
}

fn begin_of<'a>(spec: &KeySpec, count: usize, argument: &impl Fn(usize) -> &'a [u8]) -> Option<usize> {
    match spec.begin {
        Begin::Index(at) => ((at as usize) < count).then_some(at as usize),
        Begin::Keyword { keyword, start } => {
            let is_keyword = |at: &usize| argument(*at).eq_ignore_ascii_case(keyword.as_bytes());
            let found = if start >= 0 {
                (start as usize..count).find(is_keyword)
            } else {
                (1..(count + 1).saturating_sub(start.unsigned_abs() as usize)).rev().find(is_keyword)
            };
            found.map(|at| at + 1).filter(|&at| at < count)
        }
        Begin::Unknown => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use commands::table::KeyFlags;

    fn check(spec: KeySpec, request: &str, keys: &[usize]) {
        let args: Vec<&[u8]> = request.split(' ').map(str::as_bytes).collect();
        let found = key_indexes(&[spec], args.len(), |at| args[at]);
        assert_eq!(found.as_slice(), keys, "{request}");
    }

    #[test]
    fn ranges_counts_and_keywords() {
        let rw = KeyFlags::RW;
        check(KeySpec::at(1, rw), "GET a", &[1]);
        check(KeySpec::from(1, 2, rw), "MSET a 1 b 2", &[1, 3]);
        check(KeySpec::range(1, -2, 1, rw), "BLPOP a b 0", &[1, 2]);
        check(KeySpec::range(1, 1, 1, rw), "RENAME a b", &[1, 2]);
        check(KeySpec::counted(1, 0, 1, rw), "ZMPOP 2 a b MIN", &[2, 3]);
        check(KeySpec::counted(2, 0, 1, rw), "ZUNIONSTORE d 2 a b", &[3, 4]);
        check(KeySpec::keyword("STREAMS", 1, -1, 2, rw), "XREAD COUNT 1 STREAMS a b 0 0", &[4, 5]);
    }

    #[test]
    fn senseless_counts_reach_no_argument_that_is_not_there() {
        let rw = KeyFlags::RW;
        check(KeySpec::counted(1, 0, 1, rw), "ZMPOP 99999999999 a", &[2]);
        check(KeySpec::counted(1, 0, 1, rw), "ZMPOP -1 a", &[]);
        check(KeySpec::counted(1, 0, 1, rw), "ZMPOP", &[]);
        check(KeySpec::keyword("STREAMS", 1, -1, 2, rw), "XREAD STREAMS", &[]);
        check(KeySpec::range(1, -2, 1, rw), "X", &[]);
    }
}
