//! Detection of configuration files that contain passwords and that every user of the machine may
//! read.
//!
//! A file is reported if its mode permits all users to read it, and all its parent folders permit
//! all users to enter. Access-control lists of the file system are not checked.

use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use engine::secret::SECRET_OPTIONS;

use super::parse::{Directive, parse_config};

/// A file that every user of the machine may read, and the position of the first password in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadableSecret {
    /// The path of the file with the password.
    pub path: PathBuf,
    /// The number of the line with the password, from 1.
    pub line_number: usize,
    /// The option that has the password, on that line.
    pub option: String,
}

impl fmt::Display for ReadableSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line_number, option } = self;
        let path = path.display();
        write!(
            f,
            "every user of this machine can read the password in '{path}', line {line_number} ('{option}'). \
             To prevent that, run 'chmod o-r {path}'"
        )
    }
}

/// Returns the position of the first password in `text`, the content of the file at `path`. Returns
/// `None` if the file contains none, or not every user may read it.
pub fn find(path: &Path, text: &[u8]) -> Option<ReadableSecret> {
    if !is_readable_by_all(path) {
        return None;
    }
    // The caller reports a syntax error of the file, so it is ignored here.
    let directives = parse_config(text).ok()?;
    let found = directives.iter().find(|directive| holds_secret(directive))?;
    Some(ReadableSecret {
        path: path.to_owned(),
        line_number: found.line_number,
        option: String::from_utf8_lossy(&found.name).into_owned(),
    })
}

/// Returns true if a line contains a password or the digest of a password. A digest counts too,
/// because an attacker can test guesses against it without the server.
fn holds_secret(directive: &Directive) -> bool {
    let name = &directive.name;
    if name == b"user" {
        return directive.words.iter().skip(1).any(|rule| rule.starts_with(b">") || rule.starts_with(b"#"));
    }
    let mut passwords = SECRET_OPTIONS.iter().filter(|option| !option.ends_with("user"));
    passwords.any(|option| option.as_bytes() == name)
        && directive.words.first().is_some_and(|word| !word.is_empty())
}

fn is_readable_by_all(path: &Path) -> bool {
    let permits = |path: &Path, bit: u32| {
        fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & bit != 0)
    };
    let Ok(path) = fs::canonicalize(path) else { return false };
    path.is_file() && permits(&path, 0o004) && path.ancestors().skip(1).all(|folder| permits(folder, 0o001))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the line number and the option of the secret that is found in a file with this text
    /// and mode, in a folder with that mode.
    fn check(text: &str, file_mode: u32, folder_mode: u32) -> Option<(usize, String)> {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let path = folder.path().join("a.conf");
        fs::write(&path, text).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(file_mode)).expect("changed");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(folder_mode)).expect("changed");
        let found = find(&path, text.as_bytes());
        found.map(|found| (found.line_number, found.option))
    }

    #[test]
    fn a_password_in_a_file_that_everyone_may_read_is_found() {
        let found = |line, option: &str| Some((line, option.to_owned()));
        assert_eq!(check("port 1\nrequirepass secret\n", 0o644, 0o755), found(2, "requirepass"));
        assert_eq!(check("MasterAuth x\n", 0o604, 0o711), found(1, "masterauth"));
        assert_eq!(check("user bob on >secret ~*\n", 0o644, 0o755), found(1, "user"));
        assert_eq!(check("user bob on #2bb8 ~*\n", 0o644, 0o755), found(1, "user"));
    }

    #[test]
    fn other_files_and_other_lines_are_not() {
        assert_eq!(check("requirepass secret\n", 0o640, 0o755), None);
        assert_eq!(check("requirepass secret\n", 0o644, 0o750), None);
        assert_eq!(check("requirepass \"\"\n# requirepass secret\n", 0o644, 0o755), None);
        assert_eq!(check("user default on nopass ~* +@all\nmasteruser bob\n", 0o644, 0o755), None);
    }
}
