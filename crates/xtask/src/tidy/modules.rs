//! Dependencies between the modules of a crate. Modules that import each other in a circle can only
//! be understood together, like one module in several files.
//!
//! The nodes are the modules that have the same parent. An arrow leads from one to another if code
//! in or below the first names a path into the second. Tests do not count. Items that a module
//! takes from the modules around it (`super::Finding`) do not count either.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use super::source::{Source, Token};
use super::tree::Tree;

/// The maximum number of modules in a circle, except in the crates that tidy.toml lists. Two or
/// three modules can be read together; more are too hard to understand.
const CYCLE_MODULES_MAX: usize = 3;

/// A module's path from its crate, such as `server::commands::client`.
type ModulePath = Vec<String>;
/// The dependencies among the modules of one parent: for each module, by name, the sibling modules
/// that it names.
type Arrows = BTreeMap<String, BTreeSet<String>>;

/// Checks that no circle of modules is over the limit, or over the number that tidy.toml lists for
/// it with a reason. A listed number may only get smaller. A crate of `without_cycles` may have no
/// circle, even if one is listed.
pub fn cycles_are_small(tree: &Tree) -> Vec<Finding> {
    let mut findings = unknown_crates(tree);
    let mut used = vec![false; tree.config.module_cycle.len()];
    for (within, cycle) in largest_cycles(tree) {
        let entry = tree.config.module_cycle.iter().position(|entry| entry.within == within);
        if let Some(at) = entry {
            used[at] = true;
        }
        let krate = within.split("::").next().unwrap_or_default();
        let allowed = if tree.config.without_cycles.iter().any(|listed| listed == krate) {
            0
        } else {
            entry.map_or(CYCLE_MODULES_MAX, |at| tree.config.module_cycle[at].modules)
        };
        let message = if cycle.len() > allowed {
            let names: Vec<_> = cycle.iter().map(String::as_str).collect();
            format!("{} modules of {within} import each other in a circle: {}", cycle.len(), names.join(", "))
        } else if entry.is_some() && cycle.len() < allowed {
            format!("the circle in {within} shrank: lower its entry to {}", cycle.len())
        } else {
            continue;
        };
        findings.push(Finding::new("tidy.toml", 1, message));
    }
    for (entry, _) in tree.config.module_cycle.iter().zip(used).filter(|(_, used)| !used) {
        let message = format!("there is no longer a circle in {}: remove its entry", entry.within);
        findings.push(Finding::new("tidy.toml", 1, message));
    }
    findings
}

/// Returns a finding for each entry of `without_cycles` that names no crate.
fn unknown_crates(tree: &Tree) -> Vec<Finding> {
    let is_known = |name: &&String| tree.sources.iter().any(|source| source.krate() == Some(name.as_str()));
    let unknown = tree.config.without_cycles.iter().filter(|name| !is_known(name));
    unknown
        .map(|name| Finding::new("tidy.toml", 1, format!("without_cycles: there is no crate {name}")))
        .collect()
}

/// Returns the largest circle within each parent module that has one, as (parent, names in the
/// circle). The parent is written as `server::config`.
pub fn largest_cycles(tree: &Tree) -> Vec<(String, BTreeSet<String>)> {
    let cycles = arrows(tree).into_iter();
    cycles.filter_map(|(parent, arrows)| Some((parent.join("::"), largest_cycle(&arrows)?))).collect()
}

/// Returns the dependencies between the modules that have the same parent, by the parent's path.
fn arrows(tree: &Tree) -> BTreeMap<ModulePath, Arrows> {
    let placed: Vec<_> =
        tree.sources.iter().filter_map(|source| Some((module_of(source)?, source))).collect();
    let known: BTreeSet<&ModulePath> = placed.iter().map(|(module, _)| module).collect();
    let mut arrows: BTreeMap<ModulePath, Arrows> = BTreeMap::new();
    for (module, source) in &placed {
        for named in named_paths(module, source) {
            let Some(target) =
                (1..=named.len()).rev().map(|len| named[..len].to_vec()).find(|it| known.contains(it))
            else {
                continue;
            };
            let shared = module.iter().zip(&target).take_while(|(a, b)| a == b).count();
            if let (Some(from), Some(to)) = (module.get(shared), target.get(shared)) {
                let siblings = arrows.entry(module[..shared].to_vec()).or_default();
                siblings.entry(from.clone()).or_default().insert(to.clone());
            }
        }
    }
    arrows
}

/// Returns the module of a shipped file: `crates/server/src/config/load.rs` is
/// `server::config::load`. Programs of a crate (`main.rs`, `src/bin`) have roots of their own, and
/// no arrow leads to them.
fn module_of(source: &Source) -> Option<ModulePath> {
    let (krate, file) = source.path.strip_prefix("crates/")?.split_once("/src/")?;
    let mut path: ModulePath =
        std::iter::once(krate).chain(file.strip_suffix(".rs")?.split('/')).map(str::to_owned).collect();
    if path.last().is_some_and(|last| last == "mod" || (path.len() == 2 && last == "lib")) {
        path.pop();
    }
    Some(path)
}

/// Returns the paths in `source` that begin with `crate`, `self` or `super`, as paths from the
/// crate.
fn named_paths(module: &ModulePath, source: &Source) -> Vec<ModulePath> {
    let starts = source.tokens.iter().enumerate().filter(|(at, token)| {
        matches!(token.text.as_str(), "crate" | "self" | "super")
            && !source.is_test(token.line)
            && (*at == 0 || source.tokens[at - 1].text != ":")
    });
    starts.filter_map(|(at, _)| resolved(module, &source.tokens[at..])).collect()
}

/// Resolves the path at the start of `tokens`, as seen from `module`, to a path from the crate.
/// Returns `None` if the path leaves the crate.
fn resolved(module: &ModulePath, tokens: &[Token]) -> Option<ModulePath> {
    let mut path = module.clone();
    for (at, step) in steps(tokens).enumerate() {
        match step {
            "crate" if at == 0 => path.truncate(1),
            "self" if at == 0 => {}
            "super" => {
                path.pop()?;
            }
            name => path.push(name.to_owned()),
        }
    }
    (!path.is_empty()).then_some(path)
}

/// Returns the names in the Rust path at the start of `tokens`: `a`, `b` and `c` of `a::b::c`.
fn steps(tokens: &[Token]) -> impl Iterator<Item = &str> {
    let is_joined = |at: usize| at == 0 || (tokens[at - 1].text == ":" && tokens[at - 2].text == ":");
    let ats = (0..tokens.len()).step_by(3);
    ats.take_while(move |&at| is_joined(at)).map(|at| tokens[at].text.as_str())
}

/// Returns the largest circle of modules: arrows lead from each of them to every other, directly or
/// over others. Returns `None` if there is no circle.
fn largest_cycle(arrows: &Arrows) -> Option<BTreeSet<String>> {
    let reached: BTreeMap<&String, BTreeSet<String>> =
        arrows.keys().map(|from| (from, reachable(arrows, from))).collect();
    let cycle_of = |from: &String| {
        let leads_back = |to: &&String| reached.get(to).is_some_and(|back| back.contains(from));
        reached[from].iter().filter(leads_back).cloned().collect::<BTreeSet<_>>()
    };
    arrows.keys().map(cycle_of).filter(|cycle| cycle.len() > 1).max_by_key(BTreeSet::len)
}

/// Returns all modules that can be reached from the module `from` along the arrows.
fn reachable(arrows: &Arrows, from: &String) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![from];
    while let Some(next) = open.pop() {
        for to in arrows.get(next).into_iter().flatten() {
            if found.insert(to.clone()) {
                open.push(to);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(files: &[(&str, &str)]) -> Vec<String> {
        cycles_are_small(&Tree::sample(files)).into_iter().map(|finding| finding.message).collect()
    }

    const KNOT: &[(&str, &str)] = &[
        ("crates/k/src/lib.rs", "mod a; mod b; mod c; mod d; mod e;"),
        ("crates/k/src/a.rs", "use crate::{b, e::E};"),
        ("crates/k/src/b.rs", "fn f() { super::c::g() }"),
        ("crates/k/src/c.rs", "mod inner; use crate::e;"),
        ("crates/k/src/c/inner.rs", "use crate::d::D; use super::G;"),
        ("crates/k/src/d.rs", "use crate::a::A;"),
        ("crates/k/src/e.rs", ""),
    ];

    #[test]
    fn four_modules_in_a_circle_are_a_finding() {
        assert_eq!(messages(KNOT), ["4 modules of k import each other in a circle: a, b, c, d"]);
    }

    #[test]
    fn a_listed_circle_may_shrink_and_not_grow() {
        let listed = |modules: usize| {
            let entry = format!("[[module_cycle]]\nwithin = \"k\"\nmodules = {modules}\nreason = \"old\"\n");
            let mut files = KNOT.to_vec();
            files.push(("tidy.toml", &entry));
            messages(&files)
        };
        assert_eq!(listed(4), Vec::<String>::new());
        assert_eq!(listed(5), ["the circle in k shrank: lower its entry to 4"]);
        assert_eq!(listed(3).len(), 1);
    }

    #[test]
    fn three_in_a_circle_tests_and_parents_are_no_finding() {
        let files = [
            ("crates/k/src/lib.rs", "use crate::a::A;"),
            ("crates/k/src/a.rs", "use crate::b::B; use crate::Root;"),
            ("crates/k/src/b.rs", "use crate::c::C;"),
            ("crates/k/src/c.rs", "use crate::a::A; #[cfg(test)] mod tests { use crate::d::D; }"),
            ("crates/k/src/d.rs", "use crate::a::A;"),
        ];
        assert_eq!(messages(&files), Vec::<String>::new());
    }

    #[test]
    fn a_crate_without_cycles_has_none_in_any_of_its_modules() {
        let check = |listed: &str, expected: &[&str]| {
            let files = [
                ("crates/k/src/p/mod.rs", ""),
                ("crates/k/src/p/a.rs", "use super::b::B;"),
                ("crates/k/src/p/b.rs", "use crate::p::a::A;"),
                ("tidy.toml", listed),
            ];
            assert_eq!(messages(&files), expected);
        };
        let circle = "2 modules of k::p import each other in a circle: a, b";
        check("", &[]);
        check("without_cycles = [\"k\"]", &[circle]);
        let entry = "[[module_cycle]]\nwithin = \"k::p\"\nmodules = 2\nreason = \"old\"\n";
        check(&format!("without_cycles = [\"k\"]\n{entry}"), &[circle]);
        check("without_cycles = [\"l\"]", &["without_cycles: there is no crate l"]);
    }

    #[test]
    fn modules_of_one_folder_are_looked_at_by_themselves() {
        let entry = "[[module_cycle]]\nwithin = \"k::p\"\nmodules = 4\nreason = \"old\"\n";
        let files = [
            ("crates/k/src/p/mod.rs", ""),
            ("crates/k/src/p/a.rs", "use super::b::B;"),
            ("crates/k/src/p/b.rs", "use crate::p::a::A;"),
            ("tidy.toml", entry),
        ];
        assert_eq!(messages(&files), ["the circle in k::p shrank: lower its entry to 2"]);
    }
}
