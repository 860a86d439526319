//! Rules about the workspace's crates, their manifests and Cargo.lock.

use toml::{Table, Value};

use super::Finding;
use super::tree::{Crate, Tree};

/// The only source from which the libraries in Cargo.lock may come: the public registry.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Checks that each crate can be found by its name: its folder and its package have the same name,
/// and none is called utils.
pub fn folder_is_the_crate_name(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for krate in &tree.crates {
        let name =
            krate.manifest.get("package").and_then(|package| package.get("name")).and_then(Value::as_str);
        if name != Some(&krate.folder) {
            let message = format!("the package is not called {} like its folder", krate.folder);
            findings.push(Finding::new(&krate.manifest_path, 1, message));
        }
        if krate.folder.starts_with("util") {
            findings.push(Finding::new(
                &krate.manifest_path,
                1,
                "describe the contents of the crate in its name",
            ));
        }
    }
    findings
}

/// Checks that each crate imports only the crates that `[arrows]` of tidy.toml allows. The table
/// must name every crate.
pub fn arrows_between_crates(tree: &Tree) -> Vec<Finding> {
    let ours = |name: &str| tree.crates.iter().any(|krate| krate.folder == name);
    let mut findings = Vec::new();
    for krate in &tree.crates {
        let Some(granted) = tree.config.arrows.get(&krate.folder) else {
            findings.push(Finding::new("tidy.toml", 1, format!("[arrows] does not name {}", krate.folder)));
            continue;
        };
        for (table, name, _) in dependencies(krate) {
            let names = |list: &[String]| list.iter().any(|entry| entry == name);
            let support = table == "dev-dependencies" && names(&tree.config.test_support);
            if ours(name) && !names(granted) && !support {
                let message = format!("{} may not import {name} (see [arrows] in tidy.toml)", krate.folder);
                findings.push(Finding::new(&krate.manifest_path, 1, message));
            }
        }
    }
    for name in tree.config.arrows.keys().filter(|name| !ours(name)) {
        findings.push(Finding::new("tidy.toml", 1, format!("[arrows] names {name}, which is not a crate")));
    }
    findings
}

/// Checks that every crate inherits the workspace's lint table, and that only the workspace's
/// manifest has versions.
pub fn lints_are_inherited(tree: &Tree) -> Vec<Finding> {
    let inherits = |value: &Value| value.get("workspace").and_then(Value::as_bool) == Some(true);
    let mut findings = Vec::new();
    for krate in &tree.crates {
        if !krate.manifest.get("lints").is_some_and(inherits) {
            findings.push(Finding::new(&krate.manifest_path, 1, "[lints] workspace = true is missing"));
        }
        for (_, name, entry) in dependencies(krate) {
            if !inherits(entry) {
                let message = format!("{name}: move its version to the workspace's Cargo.toml");
                findings.push(Finding::new(&krate.manifest_path, 1, message));
            }
        }
    }
    findings
}

/// Checks that the line of each library in the workspace's Cargo.toml has a comment with the reason
/// for using it.
pub fn dependencies_say_why(tree: &Tree) -> Vec<Finding> {
    let lines = tree.text("Cargo.toml").unwrap_or_default().lines().enumerate();
    let section = lines
        .skip_while(|(_, line)| line.trim() != "[workspace.dependencies]")
        .skip(1)
        .take_while(|(_, line)| !line.starts_with('['));
    let silent = section.filter(|(_, line)| {
        let library = line.contains('=') && !line.trim_start().starts_with('#') && !line.contains("path =");
        library && line.split_once('#').is_none_or(|(_, why)| why.trim().is_empty())
    });
    silent
        .map(|(at, _)| {
            Finding::new("Cargo.toml", at + 1, "say why this library is needed: `# why` in its line")
        })
        .collect()
}

/// Checks that everything in Cargo.lock comes from the public registry.
pub fn lock_names_one_registry(tree: &Tree) -> Vec<Finding> {
    let lines = tree.text("Cargo.lock").unwrap_or_default().lines().enumerate();
    let foreign = lines.filter(|(_, line)| line.starts_with("source = ") && !line.contains(REGISTRY));
    foreign
        .map(|(at, line)| Finding::new("Cargo.lock", at + 1, format!("not the public registry: {line}")))
        .collect()
}

/// Returns all dependencies of `krate`, as (manifest table, name, entry). The dependencies of a
/// single platform are included.
fn dependencies(krate: &Crate) -> Vec<(&'static str, &str, &Value)> {
    const TABLES: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];
    fn of<'a>(
        holder: &'a Table,
        table: &'static str,
    ) -> impl Iterator<Item = (&'static str, &'a str, &'a Value)> {
        let entries = holder.get(table).and_then(Value::as_table).into_iter().flatten();
        entries.map(move |(name, entry)| (table, name.as_str(), entry))
    }
    let platforms =
        krate.manifest.get("target").and_then(Value::as_table).into_iter().flat_map(Table::values);
    let holders = std::iter::once(&krate.manifest).chain(platforms.filter_map(Value::as_table));
    holders.flat_map(|holder| TABLES.into_iter().flat_map(move |table| of(holder, table))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(name: &str, rest: &str) -> String {
        format!("[package]\nname = \"{name}\"\n[lints]\nworkspace = true\n{rest}")
    }

    /// Runs `rule` over one crate with these files and returns the number of findings.
    fn check(rule: fn(&Tree) -> Vec<Finding>, files: &[(&str, &str)]) -> usize {
        rule(&Tree::sample(files)).len()
    }

    #[test]
    fn a_folder_and_its_package_share_a_name() {
        assert_eq!(check(folder_is_the_crate_name, &[("crates/a/Cargo.toml", &manifest("a", ""))]), 0);
        assert_eq!(check(folder_is_the_crate_name, &[("crates/a/Cargo.toml", &manifest("b", ""))]), 1);
        assert_eq!(
            check(folder_is_the_crate_name, &[("crates/utils/Cargo.toml", &manifest("utils", ""))]),
            1
        );
    }

    #[test]
    fn arrows_go_only_where_they_are_granted() {
        let config = "test_support = [\"kit\"]\n[arrows]\nlow = []\nhigh = [\"low\"]\nkit = []\n";
        let check = |low: &str, high: &str| {
            let (low, high) = (manifest("low", low), manifest("high", high));
            let kit = manifest("kit", "");
            let files = [
                ("tidy.toml", config),
                ("crates/low/Cargo.toml", &low),
                ("crates/high/Cargo.toml", &high),
                ("crates/kit/Cargo.toml", &kit),
            ];
            check(arrows_between_crates, &files)
        };
        assert_eq!(check("", "[dependencies]\nlow.workspace = true\nserde.workspace = true"), 0);
        assert_eq!(check("[dependencies]\nhigh.workspace = true", ""), 1);
        assert_eq!(check("[dev-dependencies]\nkit.workspace = true", ""), 0);
        assert_eq!(check("[dependencies]\nkit.workspace = true", ""), 1);
        assert_eq!(check("[target.'cfg(loom)'.dependencies]\nhigh.workspace = true", ""), 1);
    }

    #[test]
    fn the_arrow_table_names_exactly_the_crates() {
        assert_eq!(check(arrows_between_crates, &[("crates/a/Cargo.toml", &manifest("a", ""))]), 1);
        assert_eq!(check(arrows_between_crates, &[("tidy.toml", "[arrows]\ngone = []\n")]), 1);
    }

    #[test]
    fn lints_and_versions_come_from_the_workspace() {
        let good = manifest("a", "[dependencies]\nserde.workspace = true\n");
        assert_eq!(check(lints_are_inherited, &[("crates/a/Cargo.toml", &good)]), 0);
        let own_version = manifest("a", "[dependencies]\nserde = \"1\"\n");
        assert_eq!(check(lints_are_inherited, &[("crates/a/Cargo.toml", &own_version)]), 1);
        assert_eq!(check(lints_are_inherited, &[("crates/a/Cargo.toml", "[package]\nname = \"a\"\n")]), 1);
    }

    #[test]
    fn each_library_says_why() {
        let with = |line: &str| {
            format!(
                "[workspace.dependencies]\n# Libraries.\na = {{ path = \"a\" }}\n{line}\n\n[profile.dev]\nx = 1\n"
            )
        };
        assert_eq!(
            check(dependencies_say_why, &[("Cargo.toml", &with("itoa = \"1\" # integers to text"))]),
            0
        );
        assert_eq!(check(dependencies_say_why, &[("Cargo.toml", &with("itoa = \"1\""))]), 1);
        assert_eq!(check(dependencies_say_why, &[("Cargo.toml", &with("itoa = \"1\" #"))]), 1);
    }

    #[test]
    fn the_lock_file_names_the_public_registry() {
        let public = format!("source = \"{REGISTRY}\"\n");
        assert_eq!(check(lock_names_one_registry, &[("Cargo.lock", &public)]), 0);
        assert_eq!(
            check(
                lock_names_one_registry,
                &[("Cargo.lock", "source = \"registry+https://mirror.example/\"\n")]
            ),
            1
        );
    }
}
