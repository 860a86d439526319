//! Arguments with passwords, which neither MONITOR nor a log may show.
//!
//! The rules depend on the names of the commands, not on flags in the command table. The syntax of
//! the commands determines the secret argument: it is the word after AUTH, or the value after an
//! option's name. A secret is hidden in requests with a syntax error, too. All rules are in this
//! file, so that they can be checked together.

use commands::Args;

/// The configuration options with secret values (passwords), by all their names.
pub const SECRET_OPTIONS: &[&str] = &[
    "requirepass",
    "masterauth",
    "primaryauth",
    "masteruser",
    "primaryuser",
    "tls-key-file-pass",
    "tls-client-key-file-pass",
];

/// Returns true if neither a log nor MONITOR may show argument `at`. `full_name` is the command's
/// name in the table, `container|sub` for a subcommand: the request may use a name given by
/// `rename-command`. O(1).
pub fn is_secret(full_name: &str, args: &Args<'_>, at: usize) -> bool {
    let name = full_name.split('|').next().unwrap_or_default();
    let runs = |command: &str| name.eq_ignore_ascii_case(command);
    let is = |at: usize, word: &str| args.get(at).eq_ignore_ascii_case(word.as_bytes());
    if at == 0 {
        return false;
    }
    if runs("AUTH") {
        return true;
    }
    if runs("HELLO") {
        return at > 2 && ((is(at - 1, "AUTH")) || (at > 3 && is(at - 2, "AUTH")));
    }
    if runs("MIGRATE") {
        return at > 5 && (is(at - 1, "AUTH") || is(at - 1, "AUTH2") || is(at - 2, "AUTH2"));
    }
    if runs("ACL") {
        return at > 1 && ["SETUSER", "DELUSER", "GETUSER"].iter().any(|subcommand| is(1, subcommand));
    }
    runs("CONFIG") && at > 2 && at % 2 == 1 && SECRET_OPTIONS.iter().any(|option| is(at - 1, option))
}
