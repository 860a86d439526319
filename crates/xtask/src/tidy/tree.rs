//! The files of the repository that tidy checks. They are read and parsed once, for all rules.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use toml::Table;

use super::config::Config;
use super::source::Source;

/// The folders that tidy skips, because they contain no handwritten files.
const SKIPPED_FOLDERS: &[&str] = &["target", ".git", "corpus", "artifacts", "coverage", "__pycache__"];

/// The text files and crates of the repository, as the rules read them.
pub struct Tree {
    /// The settings of tidy from `tidy.toml`.
    pub config: Config,
    /// All Rust files of the repository, parsed.
    pub sources: Vec<Source>,
    /// All text files, including the Rust files and `tidy.toml`.
    pub texts: Vec<TextFile>,
    /// The crates in `crates/`, with their manifests.
    pub crates: Vec<Crate>,
}

/// A text file of the repository: its path and its text.
pub struct TextFile {
    /// The path of the file from the repository's root, with `/`.
    pub path: String,
    /// The whole text of the file.
    pub text: String,
}

/// One crate of the workspace: its folder and its manifest.
pub struct Crate {
    /// The name of the crate's folder in `crates/`.
    pub folder: String,
    /// The path of the crate's manifest from the repository's root.
    pub manifest_path: String,
    /// The parsed manifest of the crate.
    pub manifest: Table,
}

impl Tree {
    /// Reads all text files of the repository below `root`.
    pub fn read(root: &Path) -> Result<Self> {
        let mut texts = Vec::new();
        collect(root, "", &mut texts)?;
        Self::new(texts)
    }

    fn new(mut texts: Vec<TextFile>) -> Result<Self> {
        texts.sort_by(|a, b| a.path.cmp(&b.path));
        let named = |path: &str| texts.iter().find(|file| file.path == path);
        let config = named("tidy.toml").map_or_else(String::new, |file| file.text.clone());
        let config = toml::from_str(&config).context("tidy.toml")?;
        let rust = texts.iter().filter(|file| file.path.ends_with(".rs"));
        let mut sources: Vec<Source> = rust
            .map(|file| {
                Source::parse(&file.path, &file.text).map_err(|error| anyhow!("{}: {error}", file.path))
            })
            .collect::<Result<_>>()?;
        for path in sources.iter().flat_map(Source::test_module_paths).collect::<Vec<_>>() {
            sources.iter_mut().for_each(|source| source.mark_as_test(&path));
        }
        let crates = texts.iter().filter_map(parse_crate).collect::<Result<_>>()?;
        Ok(Self { config, sources, texts, crates })
    }

    /// Returns the text of the file at `path`; `None` if there is no such file.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.texts.iter().find(|file| file.path == path).map(|file| file.text.as_str())
    }

    /// Creates a tree of the given (path, text) pairs for the tests of rules.
    #[cfg(test)]
    pub fn sample(files: &[(&str, &str)]) -> Self {
        let file = |(path, text): &(&str, &str)| TextFile { path: (*path).into(), text: (*text).into() };
        Self::new(files.iter().map(file).collect()).unwrap()
    }
}

/// Parses the crate whose manifest is `file`. Returns `None` if `file` is no manifest of a crate.
fn parse_crate(file: &TextFile) -> Option<Result<Crate>> {
    let folder = file.path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")?;
    let manifest = file.text.parse::<Table>().with_context(|| file.path.clone());
    Some(manifest.map(|manifest| Crate { folder: folder.into(), manifest_path: file.path.clone(), manifest }))
}

/// Adds every text file below `folder` to `texts`. The path of `folder` from the root is `prefix`.
/// Symbolic links are left out.
fn collect(folder: &Path, prefix: &str, texts: &mut Vec<TextFile>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}/{name}") };
        let kind = entry.file_type()?;
        if kind.is_dir() && !SKIPPED_FOLDERS.contains(&name.as_str()) {
            collect(&entry.path(), &path, texts)?;
        } else if kind.is_file()
            && name != ".git" // in a linked worktree it is a file
            && let Ok(text) = String::from_utf8(fs::read(entry.path())?)
        {
            texts.push(TextFile { path, text });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_declared_as_test_code_is_test_code() {
        let tree = Tree::sample(&[
            ("crates/a/src/lib.rs", "#[cfg(test)]\nmod harness;\nmod b;"),
            ("crates/a/src/harness.rs", "mod inner;"),
            ("crates/a/src/harness/inner.rs", "fn f() {}"),
            ("crates/a/src/harnesses.rs", "fn f() {}"),
            ("crates/a/src/b.rs", "#[cfg(test)]\nmod faulty;\nfn f() {}"),
            ("crates/a/src/b/faulty/mod.rs", "fn f() {}"),
            ("crates/a/src/faulty.rs", "fn f() {}"),
        ]);
        let tests = tree.sources.iter().filter(|source| source.is_test(1)).map(|source| &*source.path);
        // Line 1 of lib.rs and b.rs is the attribute of the declaration.
        assert_eq!(
            tests.collect::<Vec<_>>(),
            [
                "crates/a/src/b.rs",
                "crates/a/src/b/faulty/mod.rs",
                "crates/a/src/harness.rs",
                "crates/a/src/harness/inner.rs",
                "crates/a/src/lib.rs",
            ]
        );
    }
}
