//! Users as lines: `user <name> <rules>`, as an ACL file has them, and a configuration.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::rules::{NewUsers, RuleError, check_name, merge_selectors};
use super::user::User;

/// The lines of users, each with its end.
pub fn user_lines(users: &[Arc<User>]) -> Vec<u8> {
    users.iter().flat_map(|user| [user.line(), b"\n".to_vec()]).flatten().collect()
}

impl User {
    /// As a line, without its end.
    pub fn line(&self) -> Vec<u8> {
        [b"user ".as_slice(), self.name(), b" ", &self.rules_text()].concat()
    }
}

/// The users of an ACL file, whose name is for the errors. Lines may be empty; a remark is an
/// error, because the file is meant to be rewritten. O(bytes).
///
/// # Errors
/// All that is wrong, in one line.
pub fn parse_users(text: &[u8], file: &str, new: &NewUsers<'_>) -> Result<Vec<User>, String> {
    let mut users: BTreeMap<Box<[u8]>, User> = BTreeMap::new();
    let mut errors = String::new();
    for (index, line) in text.split(|&byte| byte == b'\n').enumerate() {
        let place = format!("{file}:{}", index + 1);
        let line = line.trim_ascii();
        if line.is_empty() {
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

/// Applies the rules of a line; what is wrong with them.
fn apply_line(user: &mut User, words: &[&[u8]], place: &str, new: &NewUsers<'_>) -> String {
    let Ok(rules) = merge_selectors(words.iter().copied()) else {
        return format!("{place}: Unmatched parenthesis in selector definition.");
    };
    let (mut errors, mut has_failed) = (String::new(), false);
    for rule in &rules {
        match new.apply(user, rule.trim_ascii()) {
            Ok(()) => {}
            // The name of a command is no secret, others may be.
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
