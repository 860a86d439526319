//! Rules about words and paths that must not appear.

use super::Finding;
use super::source::pattern;
use super::tree::Tree;

/// The marks of unfinished work, as words in any text file.
const UNFINISHED_WORDS: &[&str] = &["TODO", "FIXME", "XXX"];
/// The marks of unfinished work in Rust code.
const UNFINISHED_CODE: &[&str] = &["dbg!", "todo!", "unimplemented!"];
/// The paths of files that may contain the unfinished marks, because they are about them.
const ABOUT_WORDS: &[&str] = &["crates/xtask/src/tidy/", "CONTRIBUTING.md", "Cargo.lock"];

/// Checks that no file has a mark of unfinished work. Unfinished work belongs in an issue.
pub fn nothing_unfinished(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.texts.iter().filter(|file| !is_about_words(&file.path)) {
        for (at, line) in file.text.lines().enumerate() {
            for word in UNFINISHED_WORDS.iter().filter(|word| has_word(line, word)) {
                findings.push(Finding::new(
                    &file.path,
                    at + 1,
                    format!("{word}: finish it, or write an issue"),
                ));
            }
        }
    }
    for source in &tree.sources {
        for code in UNFINISHED_CODE {
            let lines = source.lines_with(&pattern(code));
            findings.extend(
                lines.into_iter().map(|line| Finding::new(&source.path, line, format!("{code} on main"))),
            );
        }
    }
    findings
}

/// Checks that only tests call `unwrap`, because an `unwrap` does not say why it cannot fail.
pub fn no_unwrap(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in &tree.sources {
        for line in source.lines_with(&pattern(".unwrap()")) {
            findings.push(Finding::new(
                &source.path,
                line,
                "use `expect(\"why it cannot fail\")` or an error value",
            ));
        }
    }
    findings
}

/// Checks that the pure crates name no forbidden path. Pure crates get bytes, time and randomness
/// as arguments.
pub fn pure_crates_stay_pure(tree: &Tree) -> Vec<Finding> {
    let pure = &tree.config.pure;
    let mut used = vec![false; pure.except.len()];
    let mut findings = Vec::new();
    let is_pure = |krate: &str| pure.crates.iter().any(|name| name == krate);
    for source in tree.sources.iter().filter(|source| source.krate().is_some_and(is_pure)) {
        for name in &pure.never {
            for line in source.lines_with(&pattern(name)) {
                let granted =
                    pure.except.iter().position(|entry| entry.path == source.path && entry.names == *name);
                match granted {
                    Some(at) => used[at] = true,
                    None => findings.push(Finding::new(
                        &source.path,
                        line,
                        format!("a pure crate may not name {name}"),
                    )),
                }
            }
        }
    }
    for (entry, _) in pure.except.iter().zip(used).filter(|(_, used)| !used) {
        let message = format!("{} no longer names {}: remove its exception", entry.path, entry.names);
        findings.push(Finding::new("tidy.toml", 1, message));
    }
    findings
}

/// Checks that the words of `banned_word` appear in no file but tidy.toml.
pub fn no_banned_words(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.texts.iter().filter(|file| file.path != "tidy.toml" && !is_about_words(&file.path)) {
        for (at, line) in file.text.lines().enumerate() {
            for entry in tree.config.banned_word.iter().filter(|entry| line.contains(&entry.word)) {
                findings.push(Finding::new(&file.path, at + 1, format!("{}: {}", entry.word, entry.reason)));
            }
        }
    }
    findings
}

fn is_about_words(path: &str) -> bool {
    ABOUT_WORDS.iter().any(|about| path.starts_with(about))
}

/// Returns true if `word` is in `line` with no letter, digit or underscore next to it.
fn has_word(line: &str, word: &str) -> bool {
    let is_inside = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(is_inside) && !after.is_some_and(is_inside)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "crates/keyspace/src/lib.rs";

    #[test]
    fn reminders_are_found_in_comments_and_code() {
        let check = |text: &str| nothing_unfinished(&Tree::sample(&[(FILE, text)])).len();
        assert_eq!(check("// All of it is done.\nconst TODO_LIST: u8 = 1;\n"), 0);
        assert_eq!(check("// TODO: the rest\n"), 1);
        assert_eq!(check("// XXX\n"), 1);
        assert_eq!(check("fn f() { todo!() }\n"), 1);
        assert_eq!(check("fn f() { dbg!(1); }\n"), 1);
    }

    #[test]
    fn unwrap_is_for_tests() {
        let check = |text: &str| no_unwrap(&Tree::sample(&[(FILE, text)])).len();
        assert_eq!(check("fn f() { x.expect(\"checked above\"); y.unwrap_or(1); }\n"), 0);
        assert_eq!(check("#[cfg(test)]\nmod tests { fn f() { x.unwrap(); } }\n"), 0);
        assert_eq!(check("fn f() { x.unwrap(); }\n"), 1);
    }

    #[test]
    fn pure_crates_have_no_clock_no_files_and_no_threads() {
        let config =
            "[pure]\ncrates = [\"keyspace\"]\nnever = [\"std::fs\", \"Instant::now\", \"thread::spawn\"]\n";
        let check = |path: &str, text: &str| {
            pure_crates_stay_pure(&Tree::sample(&[("tidy.toml", config), (path, text)])).len()
        };
        assert_eq!(check(FILE, "// Instant::now is not called.\nfn f(now: Instant) {}\n"), 0);
        assert_eq!(check(FILE, "fn f() { let t = std::time::Instant::now(); }\n"), 1);
        assert_eq!(check(FILE, "use std::{fs, io};\n"), 1);
        assert_eq!(check(FILE, "#[cfg(test)]\nmod tests { fn f() { std::thread::spawn(g); } }\n"), 0);
        assert_eq!(check("crates/server/src/lib.rs", "use std::fs;\n"), 0);
    }

    #[test]
    fn an_exception_must_be_needed() {
        let config = format!(
            "[pure]\ncrates = [\"keyspace\"]\nnever = [\"std::fs\"]\n[[pure.except]]\npath = \"{FILE}\"\nnames = \"std::fs\"\nreason = \"r\"\n"
        );
        let check =
            |text: &str| pure_crates_stay_pure(&Tree::sample(&[("tidy.toml", &config), (FILE, text)])).len();
        assert_eq!(check("use std::fs;\n"), 0);
        assert_eq!(check("use std::io;\n"), 1);
    }

    #[test]
    fn banned_words_are_found_everywhere_but_in_their_list() {
        let config = "[[banned_word]]\nword = \"/home/\"\nreason = \"a path of one machine\"\n";
        let check = |path: &str, text: &str| {
            no_banned_words(&Tree::sample(&[("tidy.toml", config), (path, text)])).len()
        };
        assert_eq!(check("README.md", "cargo run\n"), 0);
        assert_eq!(check("README.md", "cd /home/me/saker\n"), 1);
    }
}
