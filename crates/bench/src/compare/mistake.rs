//! A mistake in a study file and its position: `two-engines.toml:12:9: …`. Lines and columns count
//! from 1; columns count characters.
//!
//! A mistake that the TOML parser finds already has a position. Other mistakes, such as a number
//! out of range or a duplicate name, need the whole study. They are identified by the path of their
//! key (`load.connections`, `engine.1.name`, list entries from 0). The path is looked up in the
//! text when the mistake is reported.

use std::fmt;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A mistake in a study file: its reason, and the part of the file that it is about.
#[derive(Debug, PartialEq)]
pub struct Mistake {
    place: Place,
    reason: String,
}

/// The part of the study file that a mistake is about.
#[derive(Debug, PartialEq)]
enum Place {
    /// The mistake is about the whole study file.
    File,
    /// The mistake is about this byte range of the study file.
    Bytes(Range<usize>),
    /// The mistake is about the value of the key at this path, or of the longest prefix of the path
    /// that the file contains.
    Key(String),
}

/// A mistake in a study file, with its line and column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    /// The line and the column; absent for a mistake about the whole file or a table that the file
    /// does not contain.
    pub at: Option<(usize, usize)>,
    /// The reason why the study file is wrong, in one line.
    pub reason: String,
}

impl Mistake {
    /// Creates a mistake about the whole study file, with this reason.
    pub fn new(reason: impl fmt::Display) -> Self {
        Self { place: Place::File, reason: reason.to_string() }
    }

    /// Creates a mistake about the value `spanned`, at its byte range in the file.
    pub fn at<T>(spanned: &Spanned<T>, reason: impl fmt::Display) -> Self {
        let span = spanned.span();
        let place = if span.is_empty() { Place::File } else { Place::Bytes(span) };
        Self { place, reason: reason.to_string() }
    }

    /// Creates a mistake about the value of the key at `path`, such as `engine.1.name`.
    pub fn of(path: impl Into<String>, reason: impl fmt::Display) -> Self {
        Self { place: Place::Key(path.into()), reason: reason.to_string() }
    }

    /// Creates a mistake from an error of the TOML parser.
    pub fn of_reader(error: &toml::de::Error) -> Self {
        let reason = error.message().lines().next().unwrap_or("not a study").to_owned();
        Self { place: error.span().map_or(Place::File, Place::Bytes), reason }
    }

    /// Returns the reason of the mistake without its position in the file.
    pub fn reason(self) -> String {
        self.reason
    }

    /// Returns the mistake with its line and column in the study file `text`.
    pub fn located(self, text: &str) -> Located {
        self.located_by(text, |path| Some(find(text, path)?.0))
    }

    /// Returns the mistake with its line and column in the study file `text`, for a study shortened
    /// by `[quick]`. If a key of `[quick]` replaces the wrong key of `[load]`, the position is in
    /// `[quick]`.
    pub fn located_in_quick(self, text: &str) -> Located {
        self.located_by(text, |path| {
            let replaced = path.strip_prefix("load.").unwrap_or(path);
            let of_quick = find(text, &format!("quick.{replaced}")).filter(|(_, whole)| *whole);
            Some(of_quick.or_else(|| find(text, path))?.0)
        })
    }

    fn located_by(self, text: &str, find: impl FnOnce(&str) -> Option<Range<usize>>) -> Located {
        let bytes = match self.place {
            Place::File => None,
            Place::Bytes(bytes) => Some(bytes),
            Place::Key(path) => find(&path),
        };
        Located { at: bytes.map(|bytes| position(text, bytes.start)), reason: self.reason }
    }
}

/// Returns the byte range of the value at key path `path` in the study file `text`, or of the
/// longest prefix of `path` that exists; `None` if no prefix exists. The bool is true if the whole
/// path exists.
fn find(text: &str, path: &str) -> Option<(Range<usize>, bool)> {
    let table = DeTable::parse(text).ok()?;
    let mut names = path.split('.');
    let mut here = table.get_ref().get(names.next()?)?;
    for name in names {
        let deeper = match here.get_ref() {
            DeValue::Table(table) => table.get(name),
            DeValue::Array(items) => name.parse().ok().and_then(|at: usize| items.get(at)),
            _ => None,
        };
        let Some(deeper) = deeper else { return Some((here.span(), false)) };
        here = deeper;
    }
    Some((here.span(), true))
}

/// Returns the line and the column of the byte at offset `at` of `text`, both from 1.
fn position(text: &str, at: usize) -> (usize, usize) {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    let before = &text[..at];
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "title = 'ä'\n[load]\n  rate = 3\nlist = [1, 22]\n[quick]\nrate = 4\n[[engine]]\nname = 'a'\n";

    fn place(path: &str, quick: bool) -> Option<(usize, usize)> {
        let mistake = Mistake::of(path, "x");
        if quick { mistake.located_in_quick(TEXT).at } else { mistake.located(TEXT).at }
    }

    #[test]
    fn keys_are_found_by_their_path() {
        assert_eq!(place("load.rate", false), Some((3, 10)));
        assert_eq!(place("load.list.1", false), Some((4, 12)));
        assert_eq!(place("engine.0.name", false), Some((8, 8)));
        assert_eq!(place("title", false), Some((1, 9)));
        assert_eq!(place("rounds", false), None);
        // The longest prefix that exists.
        assert_eq!(place("load.pipeline", false), Some((2, 1)));
    }

    #[test]
    fn what_quick_replaces_is_told_there() {
        assert_eq!(place("load.rate", true), Some((6, 8)));
        assert_eq!(place("load.list", true), Some((4, 8)));
    }

    #[test]
    fn columns_count_characters() {
        assert_eq!(position(TEXT, TEXT.find("' ").unwrap_or(0)), (1, 1));
        assert_eq!(position("ää x", 5), (1, 4));
        assert_eq!(position("a\nb", 99), (2, 2));
    }
}
