//! The longest common subsequence of two strings: bytes that both strings contain in the same
//! order, but not necessarily next to each other.
//!
//! Uses the textbook table: entry `(i, j)` is the length of the longest common subsequence of the
//! first `i` bytes of one string and the first `j` bytes of the other. Each row follows from the
//! row above it. The path back from the last entry yields the bytes. O(n·m) time. The length alone
//! needs two rows. The other replies need the whole table, which may use as much memory as a string
//! may have bytes (`proto-max-bulk-len`). If two paths are equally long, the code takes the path of
//! Redis, because the choice is visible in the result.

use keyspace::string::IntText;

use crate::args::Args;
use crate::ctx::Ctx;
use crate::error::CommandError;
use crate::table::{Acl, Arg, Arity, Command, Flags, Group, History, KeyFlags, KeySpec};

pub(super) static LCS: Command = Command {
    name: "LCS",
    summary: "Finds the longest common subsequence of two strings.",
    history: History::since("7.0.0"),
    group: Group::String,
    complexity: "O(N*M)",
    arity: Arity::AtLeast(3),
    flags: Flags::READONLY,
    acl: Acl::READ.union(Acl::STRING),
    keys: &[KeySpec::range(1, 1, 1, KeyFlags::RO.union(KeyFlags::ACCESS))],
    args: &[
        Arg::key("key1", 0),
        Arg::key("key2", 0),
        Arg::word("len", "LEN").optional(),
        Arg::word("idx", "IDX").optional(),
        Arg::integer("min-match-len").token("MINMATCHLEN").optional(),
        Arg::word("withmatchlen", "WITHMATCHLEN").optional(),
    ],
    run: lcs,
    ..Command::DEFAULT
};
/// Handles LCS: replies with the subsequence, its length (LEN), or the positions of its parts in
/// both strings, last part first (IDX).
fn lcs(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let a = text(ctx, args, 1)?;
    let b = text(ctx, args, 2)?;
    let options = Options::parse(args)?;
    if options.len && options.idx {
        let line = "ERR If you want both the length and indexes, please just use IDX.";
        return Err(CommandError::Line(line));
    }
    let table_bytes = (a.len() as u64 + 1).saturating_mul(b.len() as u64 + 1).saturating_mul(4);
    if table_bytes > ctx.limits.string_len_bytes_max {
        let line = "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len";
        return Err(CommandError::Line(line));
    }
    if options.len {
        ctx.reply.integer(length(&a, &b).into());
        return Ok(());
    }
    let table = Table::new(&a, &b);
    if !options.idx {
        let mut bytes: Vec<u8> = Vec::with_capacity(table.length() as usize);
        table.matches(&a, &b).for_each(|part| bytes.extend(a[part.a..part.a + part.len].iter().rev()));
        bytes.reverse();
        ctx.reply.bulk(&bytes);
        return Ok(());
    }
    ctx.reply.map(2);
    ctx.reply.bulk(b"matches");
    let begun = ctx.reply.begin_array();
    let mut count = 0;
    for part in table.matches(&a, &b).filter(|part| part.len as i64 >= options.match_len_min) {
        ctx.reply.array(if options.with_match_len { 3 } else { 2 });
        for start in [part.a, part.b] {
            ctx.reply.array(2);
            ctx.reply.integer(start as i64);
            ctx.reply.integer((start + part.len - 1) as i64);
        }
        if options.with_match_len {
            ctx.reply.integer(part.len as i64);
        }
        count += 1;
    }
    ctx.reply.end_array(begun, count);
    ctx.reply.bulk(b"len");
    ctx.reply.integer(table.length().into());
    Ok(())
}

/// Returns a copy of the string at key argument `index`, empty if the key is missing. Copying costs
/// little compared to finding the subsequence.
fn text(ctx: &mut Ctx<'_>, args: &Args<'_>, index: usize) -> Result<Vec<u8>, CommandError> {
    let wrong = CommandError::Line("ERR The specified keys must contain string values");
    let string = ctx.db.string(args.key(index)).map_err(|_| wrong)?;
    Ok(string.map_or_else(Vec::new, |string| string.bytes(&mut IntText::new()).to_vec()))
}

#[derive(Default)]
struct Options {
    len: bool,
    idx: bool,
    with_match_len: bool,
    match_len_min: i64,
}

impl Options {
    fn parse(args: &Args<'_>) -> Result<Self, CommandError> {
        let mut options = Self::default();
        let mut at = 3;
        while at < args.len() {
            if args.is(at, "IDX") {
                options.idx = true;
            } else if args.is(at, "LEN") {
                options.len = true;
            } else if args.is(at, "WITHMATCHLEN") {
                options.with_match_len = true;
            } else if args.is(at, "MINMATCHLEN") && at + 1 < args.len() {
                at += 1;
                options.match_len_min = args.integer(at)?;
            } else {
                return Err(CommandError::Syntax);
            }
            at += 1;
        }
        Ok(options)
    }
}

/// Returns the length of the longest common subsequence of `a` and `b`. O(n·m) time, O(m) memory.
fn length(a: &[u8], b: &[u8]) -> u32 {
    let mut row = vec![0; b.len() + 1];
    let mut above = row.clone();
    for &byte in a {
        std::mem::swap(&mut row, &mut above);
        fill_row(&mut row, &above, byte, b);
    }
    row[b.len()]
}

/// Fills row `i + 1` of the table of lengths from row `i`, which is `above`. `byte` is the byte of
/// `a` at index `i`.
fn fill_row(row: &mut [u32], above: &[u32], byte: u8, b: &[u8]) {
    for (j, &other) in b.iter().enumerate() {
        row[j + 1] = if byte == other { above[j] + 1 } else { row[j].max(above[j + 1]) };
    }
}

/// All rows of the table of the lengths of common subsequences. Row `i` is for the first `i` bytes
/// of `a`.
struct Table {
    cells: Vec<u32>,
    width: usize,
}

/// A run of bytes that both strings of LCS have, at index `a` of the first and index `b` of the
/// second.
#[derive(Clone, Copy)]
struct Match {
    a: usize,
    b: usize,
    len: usize,
}

impl Table {
    fn new(a: &[u8], b: &[u8]) -> Self {
        let width = b.len() + 1;
        let mut cells = vec![0; (a.len() + 1) * width];
        for (i, &byte) in a.iter().enumerate() {
            let (above, row) = cells[i * width..(i + 2) * width].split_at_mut(width);
            fill_row(row, above, byte, b);
        }
        Self { cells, width }
    }

    fn at(&self, i: usize, j: usize) -> u32 {
        self.cells[i * self.width + j]
    }

    fn length(&self) -> u32 {
        self.cells[self.cells.len() - 1]
    }

    /// Returns the matches of the longest common subsequence, from the end. A match is a longest
    /// run of bytes that are adjacent in both strings.
    fn matches<'t>(&'t self, a: &'t [u8], b: &'t [u8]) -> impl Iterator<Item = Match> + 't {
        let (mut i, mut j) = (a.len(), b.len());
        std::iter::from_fn(move || {
            let mut len = 0;
            while i > 0 && j > 0 {
                if a[i - 1] == b[j - 1] {
                    (i, j, len) = (i - 1, j - 1, len + 1);
                } else if len > 0 {
                    break;
                } else if self.at(i - 1, j) > self.at(i, j - 1) {
                    i -= 1;
                } else {
                    j -= 1;
                }
            }
            (len > 0).then_some(Match { a: i, b: j, len })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Table, length};
    use crate::harness::{Harness, check};

    #[test]
    fn the_subsequence_its_length_and_its_places_are_found() {
        let mut db = Harness::new();
        let steps = [
            ("MSET a ohmytext b mynewtext", "+OK|"),
            ("LCS a b", "$6|mytext|"),
            ("LCS a b LEN", ":6|"),
            ("LCS a b IDX", "*4|$7|matches|*2|*2|*2|:4|:7|*2|:5|:8|*2|*2|:2|:3|*2|:0|:1|$3|len|:6|"),
            ("LCS a b IDX MINMATCHLEN 4 WITHMATCHLEN", "*4|$7|matches|*1|*3|*2|:4|:7|*2|:5|:8|:4|$3|len|:6|"),
            ("LCS a b IDX MINMATCHLEN 5", "*4|$7|matches|*0|$3|len|:6|"),
            ("LCS a nokey", "$0||"),
            ("LCS a nokey IDX", "*4|$7|matches|*0|$3|len|:0|"),
        ];
        for (line, reply) in steps {
            assert_eq!(db.line(line), reply, "{line}");
        }
    }

    #[test]
    fn wrong_requests_are_refused() {
        check(&[
            ("RPUSH l 1", ":1|"),
            ("LCS a l FOO", "-ERR The specified keys must contain string values|"),
            ("LCS a b FOO", "-ERR syntax error|"),
            ("LCS a b MINMATCHLEN", "-ERR syntax error|"),
            ("LCS a b MINMATCHLEN x", "-ERR value is not an integer or out of range|"),
            ("LCS a b LEN IDX", "-ERR If you want both the length and indexes, please just use IDX.|"),
        ]);
        let mut db = Harness::new();
        db.limits.string_len_bytes_max = 4 * 8 * 9;
        db.line("MSET a 1234567 b 12345678 c 123456789");
        assert_eq!(db.line("LCS a b LEN"), ":7|");
        let line = "-ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len|";
        assert_eq!(db.line("LCS a c LEN"), line);
    }

    /// Returns the length of the longest common subsequence by its definition: tries all
    /// possibilities. Takes exponential time.
    fn naive(a: &[u8], b: &[u8]) -> u32 {
        match (a, b) {
            ([x, a_rest @ ..], [y, b_rest @ ..]) if x == y => 1 + naive(a_rest, b_rest),
            ([_, a_rest @ ..], [_, b_rest @ ..]) => naive(a_rest, b).max(naive(a, b_rest)),
            _ => 0,
        }
    }

    #[test]
    fn all_short_strings_over_two_letters_agree_with_the_definition() {
        let word = |number: u32, len: u32| (0..len).map(|bit| (number >> bit) as u8 & 1).collect::<Vec<_>>();
        for (a_len, b_len) in [(0, 3), (3, 0), (4, 5), (5, 4), (5, 5)] {
            for number in 0..1_u32 << (a_len + b_len) {
                let (a, b) = (word(number, a_len), word(number >> a_len, b_len));
                let table = Table::new(&a, &b);
                assert_eq!((table.length(), length(&a, &b)), (naive(&a, &b), naive(&a, &b)));
                let mut total = 0;
                for part in table.matches(&a, &b) {
                    assert_eq!(a[part.a..part.a + part.len], b[part.b..part.b + part.len]);
                    total += part.len as u32;
                }
                assert_eq!(total, table.length());
            }
        }
    }
}
