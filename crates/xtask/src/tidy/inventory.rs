//! docs/unsafe.md: every module with unsafe code, with the invariant that it relies on, the checks
//! that cover it, and the proof of each block. `cargo xtask docs` writes it from the sources and
//! from `unsafe_module` of tidy.toml. A rule checks that it is current.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::Finding;
use super::config::UnsafeModule;
use super::source::Source;
use super::tree::Tree;

/// The path of the generated page about unsafe code.
pub const PAGE: &str = "docs/unsafe.md";

const HEAD: &str = "\
# Unsafe code

<!-- Written by `cargo xtask docs` from the sources and tidy.toml: change those. -->

Unsafe code stands in the modules below and nowhere else; all other crates forbid it. A block holds one operation,
and the comment above it proves that the operation is sound. `cargo xtask tidy` checks that, and that this page is
current. Figures and proofs are those of shipped code; tests are left out.

`asan` is AddressSanitizer over the tests of the crate, in each run of CI (`cargo xtask test --only sanitizers`). A fuzz
target (fuzz/fuzz_targets) runs with AddressSanitizer as well and compares the module with a safe twin. `loom` tries all
interleavings of a protocol, [testing.md](testing.md) says how to run each.

";

/// Checks that tidy.toml lists every file with unsafe code and its checks, and that docs/unsafe.md
/// agrees with the sources.
pub fn unsafe_is_listed(tree: &Tree) -> Vec<Finding> {
    let modules = &tree.config.unsafe_module;
    let mut findings = Vec::new();
    let is_listed = |path: &str| modules.iter().any(|module| module.path == path);
    let found: Vec<(&Source, Vec<Unsafe>)> = all(tree);
    for (source, uses) in found.iter().filter(|(source, _)| !is_listed(&source.path)) {
        let message = "its unsafe code is not listed as `unsafe_module` in tidy.toml";
        findings.push(Finding::new(&source.path, uses[0].line, message));
    }
    for module in modules {
        if !found.iter().any(|(source, _)| source.path == module.path) {
            let message = format!("{} has no unsafe code: drop its `unsafe_module`", module.path);
            findings.push(Finding::new("tidy.toml", 1, message));
        }
        for shown_by in module.shown_by.iter().filter(|shown_by| !is_there(tree, shown_by)) {
            let message = format!("{}: there is nothing at `{shown_by}`", module.path);
            findings.push(Finding::new("tidy.toml", 1, message));
        }
        if module.shown_by.is_empty() {
            let message = format!("{}: nothing shows that its unsafe code is sound", module.path);
            findings.push(Finding::new("tidy.toml", 1, message));
        }
    }
    let is_shown = !modules.is_empty() || !found.is_empty();
    if is_shown && findings.is_empty() && tree.text(PAGE) != Some(page(tree).as_str()) {
        findings.push(Finding::new(PAGE, 1, "the page is out of date: run `cargo xtask docs`"));
    }
    findings
}

/// Returns true if the check `shown_by` of an entry in tidy.toml exists: `asan`, a fuzz target as
/// `fuzz:NAME`, or a test file.
fn is_there(tree: &Tree, shown_by: &str) -> bool {
    match shown_by.split_once(':') {
        None => shown_by == "asan",
        Some(("fuzz", target)) => tree.text(&format!("fuzz/fuzz_targets/{target}.rs")).is_some(),
        Some(("test" | "loom" | "shuttle", path)) => tree.text(path).is_some(),
        Some(_) => false,
    }
}

/// One use of unsafe code, with its proof.
struct Unsafe {
    kind: Kind,
    line: usize,
    /// The name of the function around the use, or the implementation that is unsafe.
    place: String,
    /// The text of the proof, which follows `SAFETY:` in the comment.
    proof: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Block,
    Impl,
    Function,
}

/// Returns the files with shipped unsafe code and their uses of unsafe code, in the order of their
/// paths.
fn all(tree: &Tree) -> Vec<(&Source, Vec<Unsafe>)> {
    let found = tree.sources.iter().map(|source| (source, uses(source)));
    found.filter(|(_, uses)| !uses.is_empty()).collect()
}

fn uses(source: &Source) -> Vec<Unsafe> {
    let lines: Vec<&str> = source.text.lines().collect();
    let (mut place, mut found) = (String::from("the file"), Vec::new());
    for (at, token) in source.tokens.iter().enumerate() {
        let text = |ahead: usize| source.tokens.get(at + ahead).map_or("", |token| token.text.as_str());
        if token.text == "fn" && !matches!(text(1), "(" | "") {
            place = format!("`{}`", text(1));
        }
        if token.text != "unsafe" || source.is_test(token.line) {
            continue;
        }
        let kind = match text(1) {
            "{" => Kind::Block,
            "impl" => Kind::Impl,
            "fn" => Kind::Function,
            // Also `unsafe extern "C" fn`. A type of such functions is not a use.
            "extern" if text(3) == "fn" && text(4) != "(" => Kind::Function,
            _ => continue,
        };
        let place = match kind {
            Kind::Impl => format!("`{}`", lines[token.line - 1].trim().trim_end_matches(['{', '}', ' '])),
            _ => place.clone(),
        };
        found.push(Unsafe { kind, line: token.line, place, proof: proof(&lines, token.line) });
    }
    found
}

/// Returns the text after `SAFETY:` in the comment above the statement around line `at` (from 1).
fn proof(lines: &[&str], at: usize) -> String {
    let above: Vec<&str> = lines[..at - 1].iter().rev().map(|line| line.trim()).collect();
    let is_comment = |line: &&&str| line.starts_with("//");
    let Some(begins) = above.iter().position(|line| line.starts_with("//")) else { return String::new() };
    let comment: Vec<&str> = above[begins..].iter().take_while(is_comment).copied().collect();
    let text: Vec<&str> = comment.iter().rev().map(|line| line.trim_start_matches('/').trim()).collect();
    let text = text.join(" ");
    text.split_once("SAFETY:").map_or_else(String::new, |(_, proof)| proof.trim().to_owned())
}

/// Formats the text of docs/unsafe.md, the page about unsafe code.
pub fn page(tree: &Tree) -> String {
    let found = all(tree);
    let listed: BTreeMap<&str, &UnsafeModule> =
        tree.config.unsafe_module.iter().map(|module| (module.path.as_str(), module)).collect();
    let mut page = HEAD.to_owned();
    page.push_str(
        "| module | blocks | impls | functions | relies on | looked at by |\n|---|--:|--:|--:|---|---|\n",
    );
    let count = |uses: &[Unsafe], kind: Kind| uses.iter().filter(|one| one.kind == kind).count();
    let kinds = [Kind::Block, Kind::Impl, Kind::Function];
    for (source, uses) in &found {
        let [blocks, impls, functions] = kinds.map(|kind| count(uses, kind));
        let module = listed.get(source.path.as_str());
        let relies_on = module.map_or("", |module| module.relies_on.as_str());
        let shown_by = module.map_or_else(String::new, |module| {
            module.shown_by.iter().map(|one| format!("`{one}`")).collect::<Vec<_>>().join(", ")
        });
        let path = &source.path;
        let _ = writeln!(
            page,
            "| [{path}](../{path}) | {blocks} | {impls} | {functions} | {relies_on} | {shown_by} |"
        );
    }
    let [blocks, impls, functions] =
        kinds.map(|kind| found.iter().map(|(_, uses)| count(uses, kind)).sum::<usize>());
    let _ = writeln!(page, "| all {} | {blocks} | {impls} | {functions} | | |", found.len());
    page.push_str("\n## The proofs\n\nBy module and function, in the order of the files.\n");
    for (source, uses) in &found {
        let _ = writeln!(page, "\n### {}\n", source.path);
        for one in uses.iter().filter(|one| one.kind != Kind::Function) {
            let _ = writeln!(page, "- {}: {}", one.place, one.proof.replace('|', "\\|"));
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "//! A.\nfn f() {\n    // SAFETY: `at` is below\n    // the length.\n    let x = unsafe { g(at) };\n}\n\
                        // SAFETY: it is a number.\nunsafe impl Send for A {}\n\
                        #[cfg(test)]\nmod tests {\n    fn t() { unsafe { g(0) } }\n}\n";
    const TIDY: &str = "unsafe_rooms = [\"crates/a/\"]\n[[unsafe_module]]\npath = \"crates/a/src/lib.rs\"\n\
                        relies_on = \"lengths\"\nshown_by = [\"asan\", \"fuzz:a\"]\n";

    fn findings(files: &[(&str, &str)]) -> Vec<String> {
        unsafe_is_listed(&Tree::sample(files)).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn the_page_has_each_block_of_shipped_code_with_its_proof() {
        let files =
            [("tidy.toml", TIDY), ("crates/a/src/lib.rs", CODE), ("fuzz/fuzz_targets/a.rs", "//! A.")];
        let page = page(&Tree::sample(&files));
        assert!(page.contains("| 1 | 1 | 0 | lengths | `asan`, `fuzz:a` |"), "{page}");
        assert!(page.contains("- `f`: `at` is below the length.\n"), "{page}");
        assert!(page.contains("- `unsafe impl Send for A`: it is a number.\n"), "{page}");
        assert_eq!(findings(&[&files[..], &[(PAGE, &page)]].concat()), Vec::<String>::new());
        let stale = findings(&[&files[..], &[(PAGE, "old")]].concat());
        assert!(stale[0].contains("run `cargo xtask docs`"), "{stale:?}");
    }

    #[test]
    fn what_is_not_listed_or_not_there_is_found() {
        let unlisted = findings(&[("crates/a/src/lib.rs", CODE)]);
        assert!(unlisted[0].contains("not listed"), "{unlisted:?}");
        let safe = findings(&[("tidy.toml", TIDY), ("crates/a/src/lib.rs", "//! A.\n")]);
        assert!(safe[0].contains("has no unsafe code") && safe[1].contains("fuzz:a"), "{safe:?}");
    }
}
