//! Users as lines of the form `user <name> <rules>`, for ACL files and configuration files.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::rules::{NewUsers, RuleError, check_name, merge_selectors};
use super::user::User;

/// Formats one line `user <name> <rules>` for each user, with its line end.
pub fn user_lines(users: &[Arc<User>]) -> Vec<u8> {
    users.iter().flat_map(|user| [user.line(), b"\n".to_vec()]).flatten().collect()
}

impl User {
    /// Formats the user as a line `user <name> <rules>` of an ACL file, without the line end.
    pub fn line(&self) -> Vec<u8> {
        [b"user ".as_slice(), self.name(), b" ", &self.rules_text()].concat()
    }
}

/// Returns the new text of an ACL file whose text was `old`. Comments and empty lines are kept, the
/// line of each user stays in its place, and new users are added at the end. If `old` has no
/// comments, the users are ordered by name. O(bytes + users × log users).
pub fn rewrite_lines(old: &[u8], users: &[Arc<User>]) -> Vec<u8> {
    let lines = || old.strip_suffix(b"\n").unwrap_or(old).split(|&byte| byte == b'\n');
    if !lines().any(is_remark) {
        return user_lines(users);
    }
    let mut left: BTreeMap<&[u8], &Arc<User>> = users.iter().map(|user| (user.name(), user)).collect();
    let mut text = Vec::new();
    let mut add = |line: &[u8]| {
        text.extend_from_slice(line);
        text.push(b'\n');
    };
    for line in lines() {
        let mut words = line.trim_ascii().split(|&byte| byte == b' ');
        match (words.next(), words.next()) {
            (Some(b"user"), Some(name)) => {
                left.remove(name).into_iter().for_each(|user| add(&user.line()));
            }
            _ if is_remark(line) || line.trim_ascii().is_empty() => add(line),
            // The line was edited by hand and never loaded.
            _ => {}
        }
    }
    left.into_values().for_each(|user| add(&user.line()));
    text
}

/// Returns true if the line of an ACL file is a comment: its first character that is not white
/// space is `#`.
fn is_remark(line: &[u8]) -> bool {
    line.trim_ascii_start().starts_with(b"#")
}

/// Parses the users of an ACL file. `file` is the file's name, for the errors. Lines may be empty
/// or comments; ACL SAVE keeps both. O(bytes).
///
/// # Errors
/// The errors of all lines of the file, joined into one line.
pub fn parse_users(text: &[u8], file: &str, new: &NewUsers<'_>) -> Result<Vec<User>, String> {
    let mut users: BTreeMap<Box<[u8]>, User> = BTreeMap::new();
    let mut errors = String::new();
    for (index, line) in text.split(|&byte| byte == b'\n').enumerate() {
        let place = format!("{file}:{}", index + 1);
        let line = line.trim_ascii();
        if line.is_empty() || is_remark(line) {
            continue;
        }
        let words: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
        let [b"user", name, rules @ ..] = &*words else {
            errors += &format!("{place} should start with user keyword followed by the username. ");
            continue;
        };
        let shown = String::from_utf8_lossy(name);
        if !check_name(name) {
            errors += &format!("'{place}: username '{shown}' contains invalid characters. ");
        } else if users.contains_key(*name) {
            errors += &format!("WARNING: Duplicate user '{shown}' found on line {}. ", index + 1);
        } else {
            let mut user = new.user(name);
            errors += &apply_line(&mut user, rules, &place, new);
            users.insert((*name).into(), user);
        }
    }
    if errors.is_empty() {
        return Ok(users.into_values().collect());
    }
    errors += "WARNING: ACL errors detected, no change to the previously active ACL rules was performed";
    Err(errors)
}

/// Applies the rules of a user's line in an ACL file and returns the error texts; an empty text if
/// there are none. `place` is the file's name and the line number.
fn apply_line(user: &mut User, words: &[&[u8]], place: &str, new: &NewUsers<'_>) -> String {
    let Ok(rules) = merge_selectors(words.iter().copied()) else {
        return format!("{place}: Unmatched parenthesis in selector definition.");
    };
    let (mut errors, mut has_failed) = (String::new(), false);
    for rule in &rules {
        match new.apply(user, rule.trim_ascii()) {
            Ok(()) => {}
            // The name of a command is no secret, but other rules may contain one.
            Err(error @ RuleError::Unknown) => {
                let rule = String::from_utf8_lossy(rule);
                errors += &format!("{place}: Error in applying operation '{rule}': {}. ", error.text());
            }
            Err(error) if !has_failed => {
                has_failed = true;
                errors += &format!("{place}: {}. ", error.text());
            }
            Err(_) => {}
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::NewChannels;
    use crate::table::CommandTable;

    fn users(text: &str) -> Result<Vec<Arc<User>>, String> {
        let table = CommandTable::new(crate::exec::commands());
        let new = NewUsers { table: &table, channels: NewChannels::None };
        parse_users(text.as_bytes(), "f", &new).map(|users| users.into_iter().map(Arc::new).collect())
    }

    fn check(old: &str, present: &str, expected: &str) {
        let text = rewrite_lines(old.as_bytes(), &users(present).expect("well formed"));
        let text = String::from_utf8_lossy(&text).replace(" off sanitize-payload resetchannels -@all", "");
        assert_eq!(text, expected);
    }

    #[test]
    fn issue_33_remarks_in_an_acl_file_are_read_over_and_kept() {
        let names =
            |text: &str| users(text).map(|users| users.iter().map(|user| user.name().to_vec()).collect());
        let all: Result<Vec<Vec<u8>>, String> = Ok(vec![b"a".to_vec(), b"b".to_vec()]);
        for text in [
            "# x\nuser b\n\n\t \n  # y\n user a",
            "#\r\nuser a\r\n\r\nuser b\r\n",
            "user a  \n#user c\nuser b\n#",
        ] {
            assert_eq!(names(text), all, "{text}");
        }
        assert!(users("user a # x").is_err());
        assert!(users("\u{feff}user a").is_err());
        check(
            "# x\nuser b off\n\n# of a\nuser a off\n# end",
            "user a\nuser b\nuser c",
            "# x\nuser b\n\n# of a\nuser a\n# end\nuser c\n",
        );
        check("# x\nuser gone\nrubbish\n", "user a", "# x\nuser a\n");
        check("user b\n\nuser a\n", "user a\nuser b", "user a\nuser b\n");
        check("", "user a", "user a\n");
    }
}
