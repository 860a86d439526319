//! Arguments that carry passwords: neither MONITOR nor a log shows them.

use commands::Args;

/// Whether argument `at` is one that neither a log nor MONITOR may show. O(1).
pub fn is_secret(args: &Args<'_>, at: usize) -> bool {
    let is = |at: usize, word: &str| args.get(at).eq_ignore_ascii_case(word.as_bytes());
    if at == 0 {
        return false;
    }
    if is(0, "AUTH") {
        return true;
    }
    if is(0, "HELLO") {
        return at > 2 && ((is(at - 1, "AUTH")) || (at > 3 && is(at - 2, "AUTH")));
    }
    if is(0, "MIGRATE") {
        return at > 5 && (is(at - 1, "AUTH") || is(at - 1, "AUTH2") || is(at - 2, "AUTH2"));
    }
    if is(0, "ACL") {
        return at > 1 && ["SETUSER", "DELUSER", "GETUSER"].iter().any(|subcommand| is(1, subcommand));
    }
    let secrets =
        ["requirepass", "masterauth", "primaryauth", "masteruser", "primaryuser", "tls-key-file-pass"];
    is(0, "CONFIG") && at > 2 && at % 2 == 1 && secrets.iter().any(|option| is(at - 1, option))
}
