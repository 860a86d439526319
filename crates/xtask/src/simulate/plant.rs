//! `cargo xtask plant`: a check that the simulators find bugs. Each patch of
//! `crates/testkit/planted` puts one bug into a copy of the committed sources, and the simulator
//! must find it. The bugs of `crates/replicate/planted` must be found by the simulated links of
//! that crate's tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use super::build;
use crate::progress::Session;
use crate::shell;

/// The choice of the bugs to plant, and the time to search for each.
#[derive(Args)]
pub struct PlantArguments {
    /// The bugs to plant, by the names of their patches. Default: all.
    bugs: Vec<String>,
    /// The time to search for each bug, in seconds.
    #[arg(long, default_value_t = 120)]
    seconds: u64,
    /// The seed of all random choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Handles `cargo xtask plant`: plants each bug and lets the simulator search for it. Returns true
/// if all bugs were found.
pub fn run(session: &Session, arguments: &PlantArguments) -> Result<bool> {
    let patches = patches(&session.root)?;
    let known = |bug: &String| patches.iter().any(|patch| name_of(patch) == *bug);
    if let Some(unknown) = arguments.bugs.iter().find(|bug| !known(bug)) {
        bail!("no planted bug is called {unknown}");
    }
    let tree = Tree::new(&session.root, &session.target.join("planted/tree"))?;
    let target = session.target.join("planted/target");
    let mut all_found = true;
    for patch in &patches {
        let name = name_of(patch);
        if !arguments.bugs.is_empty() && !arguments.bugs.contains(&name) {
            continue;
        }
        tree.git(&["checkout", "--quiet", "."])?;
        tree.git(&["apply", &patch.to_string_lossy()])?;
        if patch.starts_with(session.root.join(LINKS_FOLDER)) {
            all_found &= links_find(&tree, &target, &name)?;
            continue;
        }
        let mut command = Command::new(build(&tree.path, &target)?);
        command.args(["--seconds", &arguments.seconds.to_string()]);
        command.args(["--seed", &arguments.seed.to_string(), "--no-shrinking"]);
        let output = command.output().context("cannot start the simulator")?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut lines = text.lines();
        let (first, finding) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
        match output.status.success() {
            true => println!("{name}: NOT FOUND, {first}"),
            false => println!("{name}: {first}\n    {finding}"),
        }
        all_found &= !output.status.success() && first.contains(" fails, ");
    }
    Ok(all_found)
}

/// The folder of the patches whose bugs the simulation of replication links must find.
const LINKS_FOLDER: &str = "crates/replicate/planted";

/// Runs the tests of simulated replication links on the sources with the bug `name` planted.
/// Returns true if a test fails, which means that it finds the bug.
fn links_find(tree: &Tree<'_>, target: &Path, name: &str) -> Result<bool> {
    let mut command = Command::new("cargo");
    command.current_dir(&tree.path).env("CARGO_TARGET_DIR", target);
    command.args(["test", "--quiet", "--package", "replicate", "--test", "it", "links"]);
    let output = command.output().context("cannot start cargo")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let found = text.lines().find(|line| line.contains(" fails, after "));
    println!("{name}: {}", found.unwrap_or("NOT FOUND"));
    Ok(found.is_some())
}

/// Returns the paths of the patches that plant bugs, sorted by name within their folders.
fn patches(root: &Path) -> Result<Vec<PathBuf>> {
    let mut all = patches_in(&root.join("crates/testkit/planted"))?;
    all.extend(patches_in(&root.join(LINKS_FOLDER))?);
    Ok(all)
}

fn patches_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut patches = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    patches.retain(|path| path.extension().is_some_and(|extension| extension == "patch"));
    patches.sort();
    ensure!(!patches.is_empty(), "{} contains no patch", folder.display());
    Ok(patches)
}

fn name_of(patch: &Path) -> String {
    patch.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// A second checkout of the committed sources, in which bugs are planted. The repository's own
/// working tree does not change.
struct Tree<'r> {
    root: &'r Path,
    path: PathBuf,
}

impl<'r> Tree<'r> {
    fn new(root: &'r Path, path: &Path) -> Result<Self> {
        let tree = Self { root, path: path.to_owned() };
        if !path.exists() {
            let add = ["worktree", "add", "--quiet", "--detach"];
            shell::run_shown(Command::new("git").current_dir(root).args(add).arg(path).arg("HEAD"))?;
        }
        tree.git(&["checkout", "--quiet", "--force", "--detach", &tree.head()?])?;
        Ok(tree)
    }

    /// Returns the ID of the commit that is checked out in the repository.
    fn head(&self) -> Result<String> {
        let head = shell::output(Command::new("git").current_dir(self.root).args(["rev-parse", "HEAD"]))?;
        Ok(head.trim().to_owned())
    }

    fn git(&self, arguments: &[&str]) -> Result<()> {
        shell::run_shown(Command::new("git").current_dir(&self.path).args(arguments))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bug_can_be_planted() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for patch in patches(&root).expect("they are part of the sources") {
            let text = fs::read_to_string(&patch).expect("a text");
            for diff in text.split("diff --git ").skip(1) {
                let diff = &diff[diff.find("--- ").expect("a diff has a file")..];
                let path = diff
                    .lines()
                    .nth(1)
                    .and_then(|line| line.strip_prefix("+++ b/"))
                    .expect("a diff has a file");
                let source = fs::read_to_string(root.join(path)).expect("the file is there");
                let diff = diffy::Patch::from_str(diff).expect("a diff");
                let planted = diffy::apply(&source, &diff);
                assert!(
                    planted.is_ok_and(|planted| planted != source),
                    "{}: {path} has changed",
                    patch.display()
                );
            }
        }
    }
}
