//! The structure rules that a program can check. Each rule is one function from the tree of files
//! to its findings. Each has tests with good and bad samples. `tidy.toml` lists the exceptions,
//! each with its reason. An exception that is no longer needed is a finding.

mod comments;
mod config;
mod crates;
mod docs;
mod figures;
mod inventory;
mod measure;
mod modules;
mod records;
mod shape;
mod source;
mod tree;
mod unsafety;
mod words;

use std::fmt;
use std::path::Path;

use anyhow::{Context, Result};

use tree::Tree;

/// One violation of a rule: its place in the repository and its description.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    path: String,
    line: usize,
    message: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// A rule: a function that returns all violations in a tree.
type Rule = fn(&Tree) -> Vec<Finding>;

/// All rules of tidy, in the order in which they are checked.
const RULES: &[Rule] = &[
    crates::folder_is_the_crate_name,
    crates::arrows_between_crates,
    crates::lints_are_inherited,
    crates::dependencies_say_why,
    crates::lock_names_one_registry,
    docs::files_say_what_they_are,
    docs::comments_are_narrow,
    comments::doc_comments_are_plain,
    docs::changelog_has_unreleased,
    docs::links_lead_somewhere,
    modules::cycles_are_small,
    records::every_command_has_a_script,
    shape::functions_fit_a_screen,
    shape::functions_take_few_parameters,
    shape::functions_take_no_bool,
    shape::structs_have_few_fields,
    shape::files_stay_short,
    inventory::unsafe_is_listed,
    unsafety::unsafe_is_forbidden,
    unsafety::unsafe_stays_in_its_rooms,
    unsafety::unsafe_is_proven,
    words::nothing_unfinished,
    words::no_unwrap,
    words::pure_crates_stay_pure,
    words::no_banned_words,
];

/// Returns all findings in the repository at `root`, ordered by file and line.
pub fn check(root: &Path) -> Result<Vec<Finding>> {
    let tree = Tree::read(root)?;
    let mut findings: Vec<_> = RULES.iter().flat_map(|rule| rule(&tree)).collect();
    findings.sort();
    Ok(findings)
}

/// Writes docs/unsafe.md, the page about unsafe code, in the repository at `root`.
pub fn write_inventory(root: &Path) -> Result<()> {
    let page = inventory::page(&Tree::read(root)?);
    std::fs::write(root.join(inventory::PAGE), page).with_context(|| inventory::PAGE)
}

/// Formats the sizes of each crate in the repository at `root`, and of all together, as a table.
pub fn figures(root: &Path) -> Result<String> {
    Ok(figures::table(&Tree::read(root)?))
}
