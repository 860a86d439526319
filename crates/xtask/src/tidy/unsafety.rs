//! Rules about unsafe code. Clippy checks that a block holds one operation.

use super::Finding;
use super::source::Source;
use super::tree::Tree;

/// Checks that the root files of crates outside `unsafe_rooms` forbid unsafe code.
pub fn unsafe_is_forbidden(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in tree.sources.iter().filter(|source| is_crate_root(&source.path)) {
        let folder = source.path.rsplit_once("src/").map_or("", |(folder, _)| folder);
        let has_room = tree.config.unsafe_rooms.iter().any(|room| room.starts_with(folder));
        if !has_room && !source.text.lines().any(|line| line.trim() == "#![forbid(unsafe_code)]") {
            findings.push(Finding::new(&source.path, 1, "#![forbid(unsafe_code)] is missing"));
        }
    }
    findings
}

/// Checks that `unsafe` appears only below the paths of `unsafe_rooms`.
pub fn unsafe_stays_in_its_rooms(tree: &Tree) -> Vec<Finding> {
    let outside =
        |source: &&Source| !tree.config.unsafe_rooms.iter().any(|room| source.path.starts_with(room));
    let mut findings = Vec::new();
    for source in tree.sources.iter().filter(outside) {
        let uses = source.tokens.iter().filter(|token| token.text == "unsafe");
        findings.extend(uses.map(|token| {
            Finding::new(
                &source.path,
                token.line,
                "unsafe code outside the permitted modules (unsafe_rooms in tidy.toml)",
            )
        }));
    }
    findings
}

/// Checks that the comment right above an unsafe block or impl is its proof: `// SAFETY: …`.
pub fn unsafe_is_proven(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in &tree.sources {
        let lines: Vec<&str> = source.text.lines().collect();
        for window in source.tokens.windows(2) {
            let needs_proof = window[0].text == "unsafe" && matches!(window[1].text.as_str(), "{" | "impl");
            if needs_proof && !has_proof(&lines, window[0].line) {
                let message = "`// SAFETY:` with the proof is missing above";
                findings.push(Finding::new(&source.path, window[0].line, message));
            }
        }
    }
    findings
}

/// Returns true if the comment above the statement around line `at` (from 1) is a proof that unsafe
/// code is sound: it has a text after `SAFETY:`.
fn has_proof(lines: &[&str], at: usize) -> bool {
    let proves = |line: &str| line.split_once("SAFETY:").is_some_and(|(_, proof)| !proof.trim().is_empty());
    let above = lines[..at - 1].iter().rev().map(|line| line.trim());
    // Skip the beginning of the statement and its attributes, up to the comment above.
    let mut above = above.skip_while(|line| {
        let ends_before = line.is_empty() || line.ends_with([';', '{', '}', ',']) || line.starts_with("//");
        !ends_before || line.starts_with("#[")
    });
    above.by_ref().take_while(|line| line.starts_with("//")).any(proves)
}

fn is_crate_root(path: &str) -> bool {
    let mut parts = path.rsplit('/');
    match (parts.next(), parts.next()) {
        (Some("lib.rs" | "main.rs"), Some("src")) => true,
        (Some(_), Some("bin")) => parts.next() == Some("src"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOMS: (&str, &str) =
        ("tidy.toml", "unsafe_rooms = [\"crates/structures/\", \"crates/net/src/sys/\"]\n");

    #[test]
    fn crates_outside_the_rooms_forbid_unsafe() {
        let check = |path: &str, text: &str| unsafe_is_forbidden(&Tree::sample(&[ROOMS, (path, text)])).len();
        assert_eq!(check("crates/resp/src/lib.rs", "//! A.\n#![forbid(unsafe_code)]\n"), 0);
        assert_eq!(check("crates/resp/src/lib.rs", "//! A.\n"), 1);
        assert_eq!(check("crates/server/src/bin/tool.rs", "//! A.\nfn main() {}\n"), 1);
        assert_eq!(check("crates/resp/src/encode.rs", "//! A.\n"), 0);
        assert_eq!(check("crates/structures/src/lib.rs", "//! A.\n"), 0);
        assert_eq!(check("crates/net/src/lib.rs", "//! A.\n"), 0);
    }

    #[test]
    fn unsafe_stays_in() {
        let code = "// SAFETY: fine.\nfn f() { unsafe { g() } }\n";
        let check = |path: &str| unsafe_stays_in_its_rooms(&Tree::sample(&[ROOMS, (path, code)])).len();
        assert_eq!(check("crates/structures/src/table.rs"), 0);
        assert_eq!(check("crates/net/src/sys/epoll.rs"), 0);
        assert_eq!(check("crates/net/src/conn.rs"), 1);
        assert_eq!(check("crates/keyspace/src/db.rs"), 1);
    }

    #[test]
    fn an_unsafe_block_has_its_proof_right_above() {
        let check =
            |text: &str| unsafe_is_proven(&Tree::sample(&[("crates/structures/src/a.rs", text)])).len();
        let good = [
            "fn f() {\n    // SAFETY: `at` is below the length.\n    unsafe { g(at) }\n}\n",
            "fn f() {\n    // SAFETY: `at` is below the length,\n    // as the caller checked.\n    let x =\n        unsafe { g(at) };\n}\n",
            "// SAFETY: no thread sees it.\nunsafe impl Send for A {}\n",
            "/// # Safety\n/// The caller checks.\nunsafe fn f() {}\n",
        ];
        for text in good {
            assert_eq!(check(text), 0, "{text}");
        }
        let bad = [
            "fn f() {\n    unsafe { g(at) }\n}\n",
            "fn f() {\n    // It works.\n    unsafe { g(at) }\n}\n",
            "fn f() {\n    // SAFETY:\n    unsafe { g(at) }\n}\n",
            "fn f() {\n    // SAFETY: for the other one.\n    h();\n    unsafe { g(at) }\n}\n",
            "unsafe impl Send for A {}\n",
        ];
        for text in bad {
            assert_eq!(check(text), 1, "{text}");
        }
    }
}
