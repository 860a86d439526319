//! Rules about documentation: the comments of files, the width of comments, the changelog and
//! links.

use std::collections::BTreeSet;

use super::Finding;
use super::source::Source;
use super::tree::Tree;

/// Checks that every Rust file begins with a `//!` comment that describes it.
pub fn files_say_what_they_are(tree: &Tree) -> Vec<Finding> {
    let silent = tree.sources.iter().filter(|source| {
        let first = source.text.lines().next().unwrap_or_default();
        first.strip_prefix("//!").is_none_or(|essay| essay.trim().is_empty())
    });
    silent
        .map(|source| Finding::new(&source.path, 1, "the file must open with `//!` saying what it is"))
        .collect()
}

/// Checks that comments are no wider than tidy.toml's limit, except in the crates that it exempts.
/// A comment on a line of its own may be wider if it has only one or two words, such as a link and
/// its name. It cannot be broken.
pub fn comments_are_narrow(tree: &Tree) -> Vec<Finding> {
    let Some(columns_max) = tree.config.comments.columns_max else { return Vec::new() };
    let exempt = &tree.config.comments.exempt;
    let mut used = vec![false; exempt.len()];
    let mut findings = Vec::new();
    for source in &tree.sources {
        let entry = exempt.iter().position(|krate| source.krate() == Some(krate));
        for (line, columns) in wide_comments(source, columns_max) {
            match entry {
                Some(at) => used[at] = true,
                None => findings.push(Finding::new(
                    &source.path,
                    line,
                    format!("a line with a comment has {columns} columns, more than {columns_max}"),
                )),
            }
        }
    }
    for (krate, _) in exempt.iter().zip(used).filter(|(_, used)| !used) {
        let message = format!("all comments of {krate} are within the limit: remove it from comments.exempt");
        findings.push(Finding::new("tidy.toml", 1, message));
    }
    findings
}

/// Returns the lines of `source` that hold a comment and have more than `columns_max` columns, as
/// (line, columns).
fn wide_comments(source: &Source, columns_max: usize) -> Vec<(usize, usize)> {
    let lines = source.text.lines().enumerate().map(|(at, text)| (at + 1, text, text.chars().count()));
    let is_wide = |&(line, text, columns): &(usize, &str, usize)| {
        columns > columns_max
            && source.comment_start(line).is_some_and(|start| {
                let words = text[start..].trim_start_matches(['/', '!']).split_whitespace().count();
                words > 2 || start > text.len() - text.trim_start().len()
            })
    };
    lines.filter(is_wide).map(|(line, _, columns)| (line, columns)).collect()
}

/// Checks that CHANGELOG.md has a section for the next release.
pub fn changelog_has_unreleased(tree: &Tree) -> Vec<Finding> {
    let changelog = tree.text("CHANGELOG.md").unwrap_or_default();
    if changelog.lines().any(|line| line.trim_end() == "## [Unreleased]") {
        return Vec::new();
    }
    vec![Finding::new("CHANGELOG.md", 1, "there is no section `## [Unreleased]`")]
}

/// Checks that each relative link in a Markdown file leads to an existing file or folder.
pub fn links_lead_somewhere(tree: &Tree) -> Vec<Finding> {
    let folders: BTreeSet<&str> = tree.texts.iter().flat_map(|file| parents(&file.path)).collect();
    let mut findings = Vec::new();
    for file in tree.texts.iter().filter(|file| file.path.ends_with(".md")) {
        for (at, line) in file.text.lines().enumerate() {
            for target in
                link_targets(line).filter(|target| !target.contains("://") && !target.starts_with('#'))
            {
                let path = resolve(&file.path, target.split('#').next().unwrap_or_default());
                if tree.text(&path).is_none() && !folders.contains(path.as_str()) {
                    findings.push(Finding::new(
                        &file.path,
                        at + 1,
                        format!("the target of the link {target} does not exist"),
                    ));
                }
            }
        }
    }
    findings
}

/// Returns the targets of the Markdown links `[text](target)` in `line`.
fn link_targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target)
}

/// Resolves the link target `target` in the file `from` to a path from the repository's root.
fn resolve(from: &str, target: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    parts.join("/")
}

/// Returns each folder that contains `path`, directly or indirectly.
fn parents(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_opens_with_what_it_is() {
        let check =
            |text: &str| files_say_what_they_are(&Tree::sample(&[("crates/a/src/lib.rs", text)])).len();
        assert_eq!(check("//! Counts sheep.\nfn f() {}\n"), 0);
        assert_eq!(check("fn f() {}\n"), 1);
        assert_eq!(check("//!\nfn f() {}\n"), 1);
    }

    #[test]
    fn a_comment_ends_at_the_limit_of_columns() {
        let check = |text: &str, exempt: &str| {
            let config = format!("[comments]\ncolumns_max = 20\nexempt = [{exempt}]\n");
            comments_are_narrow(&Tree::sample(&[("tidy.toml", &config), ("crates/a/src/lib.rs", text)])).len()
        };
        let fine = [
            "//! It has 20 colu ü\n",
            "// https://redis.io/docs\n",
            "// [x]: redis.io/documents\n",
            "const A: &str = \"// b c d\";\n",
        ];
        for text in fine {
            assert_eq!(check(text, ""), 0, "{text}");
            assert_eq!(check(text, "\"a\""), 1, "{text}");
        }
        let wide = [
            "//! It has 21 columns\n",
            "fn f() {} // It is fun\n",
            "mod m {\n    /// It is a word.\n    fn f() {}\n}\n",
        ];
        for text in wide {
            assert_eq!(check(text, ""), 1, "{text}");
            assert_eq!(check(text, "\"a\""), 0, "{text}");
        }
    }

    #[test]
    fn the_changelog_has_an_open_section() {
        let check = |text: &str| changelog_has_unreleased(&Tree::sample(&[("CHANGELOG.md", text)])).len();
        assert_eq!(check("# Changelog\n\n## [Unreleased]\n"), 0);
        assert_eq!(check("# Changelog\n\n## [1.0.0]\n"), 1);
    }

    #[test]
    fn links_between_documents_are_followed() {
        let check = |link: &str| {
            let page = format!("See [it]({link}).\n");
            links_lead_somewhere(&Tree::sample(&[("docs/a.md", &page), ("docs/b.md", ""), ("README.md", "")]))
                .len()
        };
        for good in ["b.md", "../README.md", "b.md#part", "#part", "https://redis.io/x", "../docs"] {
            assert_eq!(check(good), 0, "{good}");
        }
        assert_eq!(check("c.md"), 1);
        assert_eq!(check("../b.md"), 1);
    }
}
