//! Rules about the words of doc comments.
//!
//! For each crate and kind of finding, `tidy.toml` has an allowance: the number of comments that
//! are older than the rule. An allowance may only shrink, so a count below the allowance is a
//! finding, too.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use super::config::CommentAllowance;
use super::source::Source;
use super::tree::Tree;

/// The maximum number of findings listed for a crate that is over its allowance.
const LISTED_MAX: usize = 20;

/// The kinds of violations that the words of a doc comment can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// The comment begins with a word of `comments.first_words`.
    FirstWord,
    /// A function's comment does not begin with a verb in the third person.
    Verb,
    /// A sentence has more than `comments.sentence_words_max` words.
    Sentence,
}

impl Kind {
    const ALL: [Self; 3] = [Self::FirstWord, Self::Verb, Self::Sentence];

    fn name(self) -> &'static str {
        match self {
            Self::FirstWord => "first_word",
            Self::Verb => "verb",
            Self::Sentence => "sentence",
        }
    }

    fn message(self) -> &'static str {
        match self {
            Self::FirstWord => "a doc comment begins with the thing it names, or with a verb",
            Self::Verb => "a function's doc comment begins with a verb in the third person: Returns, Appends",
            Self::Sentence => "a sentence of a doc comment is too long",
        }
    }

    fn allowed(self, allowance: &CommentAllowance) -> usize {
        match self {
            Self::FirstWord => allowance.first_word,
            Self::Verb => allowance.verb,
            Self::Sentence => allowance.sentence,
        }
    }
}

/// One doc comment of a Rust file, with its text and its place.
struct Doc {
    line: usize,
    /// The text of the comment without comment signs, code blocks and tables.
    text: String,
    /// True if the comment is that of a function.
    is_function: bool,
}

/// Checks the words of doc comments. They must not begin with one of the forbidden words, a
/// function's comment must begin with a verb, and sentences must be short.
pub fn doc_comments_are_plain(tree: &Tree) -> Vec<Finding> {
    let comments = &tree.config.comments;
    let mut found: BTreeMap<(&str, Kind), Vec<Finding>> = BTreeMap::new();
    for source in &tree.sources {
        let Some(krate) = source.krate() else { continue };
        for doc in docs(source) {
            let mut kinds = Vec::new();
            if comments.first_words.iter().any(|word| first_word(&doc.text) == word) {
                kinds.push(Kind::FirstWord);
            }
            if doc.is_function && comments.sentence_words_max.is_some() && !begins_with_verb(&doc.text) {
                kinds.push(Kind::Verb);
            }
            if comments.sentence_words_max.is_some_and(|words_max| longest_sentence(&doc.text) > words_max) {
                kinds.push(Kind::Sentence);
            }
            for kind in kinds {
                let finding = Finding::new(&source.path, doc.line, kind.message());
                found.entry((krate, kind)).or_default().push(finding);
            }
        }
    }
    let mut findings = Vec::new();
    let none = CommentAllowance::default();
    let crates: BTreeSet<&str> = tree
        .sources
        .iter()
        .filter_map(Source::krate)
        .chain(comments.allowed.keys().map(String::as_str))
        .collect();
    for krate in crates {
        let allowance = comments.allowed.get(krate).unwrap_or(&none);
        for kind in Kind::ALL {
            let here = found.remove(&(krate, kind)).unwrap_or_default();
            let (count, allowed) = (here.len(), kind.allowed(allowance));
            if count > allowed {
                findings.extend(here.into_iter().take(LISTED_MAX));
            }
            if count != allowed && (allowed > 0 || count > LISTED_MAX) {
                let message =
                    format!("{krate} has {count} comments of the kind {}, not {allowed}", kind.name());
                findings.push(Finding::new("tidy.toml", 1, message));
            }
        }
    }
    findings
}

/// Returns the doc comments (`///` and `//!`) of a Rust file.
fn docs(source: &Source) -> Vec<Doc> {
    let mut docs = Vec::new();
    let mut open: Option<Doc> = None;
    let mut is_code = false;
    let mut open_brackets = 0;
    for (at, line) in source.text.lines().enumerate() {
        let line = line.trim_start();
        let comment = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
        if let Some(text) = comment {
            let doc =
                open.get_or_insert_with(|| Doc { line: at + 1, text: String::new(), is_function: false });
            let text = text.trim();
            if text.starts_with("```") {
                is_code = !is_code;
                doc.text.push_str(" .\n");
            } else if !is_code && !text.starts_with('|') && !text.starts_with('#') {
                // A list item or a paragraph begins a sentence.
                let is_new = text.is_empty() || text.starts_with(['-', '*']);
                doc.text.push_str(if is_new { ".\n" } else { " " });
                doc.text.push_str(text);
            } else {
                doc.text.push_str(".\n");
            }
        } else if open.is_some() && (line.starts_with("#[") || open_brackets > 0) {
            // Attributes, of one line or several, may follow a comment and precede its item.
            open_brackets += line.matches('[').count();
            open_brackets = open_brackets.saturating_sub(line.matches(']').count());
        } else if let Some(mut doc) = open.take() {
            is_code = false;
            doc.text = doc.text.trim_start_matches(['.', '\n', ' ']).to_owned();
            doc.is_function = is_function(line);
            docs.push(doc);
        }
    }
    docs
}

/// Returns true if `line` is the first line of a function.
fn is_function(line: &str) -> bool {
    let is_modifier = |word: &&str| {
        matches!(*word, "const" | "async" | "unsafe" | "extern" | "\"C\"" | "default")
            || word.starts_with("pub")
    };
    line.replace("pub(in ", "pub(").split_whitespace().find(|word| !is_modifier(word)) == Some("fn")
}

fn first_word(text: &str) -> &str {
    let text = text.trim_start_matches(['*', '_']);
    text.split(|letter: char| !letter.is_alphabetic()).next().unwrap_or_default()
}

/// Returns true if the first word of `text` looks like a verb in the third person: it begins with a
/// capital letter and ends with s.
fn begins_with_verb(text: &str) -> bool {
    let word = first_word(text);
    word.starts_with(char::is_uppercase) && word.ends_with('s') && word.len() > 2 && word != "This"
}

/// Returns the number of words of the longest sentence in `text`.
fn longest_sentence(text: &str) -> usize {
    let mut longest = 0;
    for paragraph in text.split('\n') {
        let mut words = 0;
        for word in paragraph.split_whitespace() {
            words += 1;
            longest = longest.max(words);
            if word.trim_end_matches([')', '`', '*', '"']).ends_with(['.', ':', ';', '?', '!']) {
                words = 0;
            }
        }
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, allowed: &str) -> usize {
        let config = format!(
            "[comments]\nfirst_words = [\"Whether\", \"How\"]\nsentence_words_max = 8\n[comments.allowed.a]\n{allowed}"
        );
        doc_comments_are_plain(&Tree::sample(&[("tidy.toml", &config), ("crates/a/src/lib.rs", text)])).len()
    }

    #[test]
    fn comments_begin_with_the_thing_or_a_verb() {
        assert_eq!(check("//! Counts sheep.\n/// Returns the sheep.\nfn f() {}\n", ""), 0);
        assert_eq!(check("/// The sheep.\nstruct S;\n", ""), 0);
        assert_eq!(check("/// Whether there are sheep.\nstruct S;\n", ""), 1);
        assert_eq!(check("/// The sheep.\n#[inline]\npub(crate) fn f() {}\n", ""), 1);
        assert_eq!(check("/// The sheep.\n#[cfg(any(\n    test,\n))]\nfn f() {}\n", ""), 1);
        assert_eq!(check("/// The sheep.\nconst A: fn() = f;\n", ""), 0);
    }

    #[test]
    fn sentences_end() {
        assert_eq!(check("/// One two three four: five six seven.\n/// Eight nine.\nstruct S;\n", ""), 0);
        assert_eq!(check("/// One two three four five six seven\n/// eight nine.\nstruct S;\n", ""), 1);
        assert_eq!(
            check("/// ```\n/// one two three four five six seven eight nine\n/// ```\nstruct S;\n", ""),
            0
        );
    }

    #[test]
    fn allowances_only_shrink() {
        let text = "/// How many sheep.\nstruct S;\n";
        assert_eq!(check(text, "first_word = 1\n"), 0);
        assert_eq!(check(text, "first_word = 2\n"), 1);
        assert_eq!(check("/// Sheep.\nstruct S;\n", "first_word = 1\n"), 1);
    }
}
