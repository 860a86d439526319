//! The links between the repository's documents, adapted to the places where the package installs
//! them.

use std::path::{Component, Path, PathBuf};

/// Adapts the links in `text` to the Debian package. `text` is the Markdown file `from` of the
/// repository, installed as `to`. `installed` is a list of (path in the repository, path in the
/// package). A link to a listed file is changed to its path in the package. Of a link to another
/// file, only the link's text remains.
pub fn relinked(text: &str, from: &str, to: &str, installed: &[(&str, &str)]) -> String {
    let mut pieces = text.split("](");
    let mut relinked = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (target, rest) = piece.split_once(')').unwrap_or((piece, ""));
        if target.contains("://") || target.starts_with('#') || target.contains(char::is_whitespace) {
            relinked = relinked + "](" + piece;
            continue;
        }
        let (path, fragment) = target.find('#').map_or((target, ""), |at| target.split_at(at));
        let wanted = joined(from, path);
        match installed.iter().find(|(file, _)| Path::new(file) == wanted) {
            Some((_, place)) => {
                relinked = relinked + "](" + &between(to, place) + fragment + ")" + rest;
            }
            None => {
                if let Some(begin) = relinked.rfind('[') {
                    relinked.remove(begin);
                }
                relinked += rest;
            }
        }
    }
    relinked
}

/// Returns the path in the repository to which the link target `path` leads from the file `from`.
fn joined(from: &str, path: &str) -> PathBuf {
    let mut joined = Path::new(from).parent().unwrap_or(Path::new("")).to_owned();
    for part in Path::new(path).components() {
        match part {
            Component::ParentDir => {
                joined.pop();
            }
            other => joined.push(other),
        }
    }
    joined
}

/// Returns the relative path from the folder of the file `from` to the file `to`.
fn between(from: &str, to: &str) -> String {
    let folder: Vec<&str> = from.rsplit_once('/').map_or("", |(folder, _)| folder).split('/').collect();
    let to: Vec<&str> = to.split('/').collect();
    let common = folder.iter().zip(&to).take_while(|(one, other)| one == other).count();
    let up = std::iter::repeat_n("..", folder.len() - common);
    up.chain(to[common..].iter().copied()).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_to_installed_files_and_others_are_only_text() {
        let installed = [
            ("docs/a.md", "usr/share/doc/x/a.md"),
            ("conf/x.conf", "etc/x.conf"),
            ("examples/a.yml", "usr/share/doc/x/examples/a.yml"),
        ];
        let check = |from, text, wanted: &str| {
            assert_eq!(relinked(text, from, "usr/share/doc/x/b.md", &installed), wanted);
        };
        check(
            "docs/b.md",
            "see [a](a.md#part), [b](../conf/x.conf).",
            "see [a](a.md#part), [b](../../../../etc/x.conf).",
        );
        check("docs/b.md", "[y](../examples/a.yml) [z](../none.rs) end", "[y](examples/a.yml) z end");
        check("README.md", "[docs/a.md](docs/a.md)", "[docs/a.md](a.md)");
        check("README.md", "[web](https://x.org/) [here](#part)", "[web](https://x.org/) [here](#part)");
    }
}
