//! Fuzz target of access control. It checks that rules and ACL files of any bytes are accepted or
//! rejected without a panic. It also checks that the description of a user, as a line and as a
//! file, reads back as an equal user.

use std::sync::OnceLock;

use engine::acl::{AclRequest, NewUsers, parse_users};
use engine::owned_args::OwnedArgs;
use engine::settings::NewChannels;
use engine::table::CommandTable;
use keyspace::Hasher;

fn table() -> &'static CommandTable {
    static TABLE: OnceLock<CommandTable> = OnceLock::new();
    TABLE.get_or_init(|| crate::commands::table().0)
}

/// Applies all lines of `data` except the last as the rules of a user, and checks the last line as
/// a request of that user. Also loads all of `data` as an ACL file.
///
/// # Panics
/// If the description of a user reads back as a different user.
pub fn fuzz_rules(data: &[u8]) {
    let new = NewUsers { table: table(), channels: NewChannels::None };
    // Every input may be rejected as a file.
    let _ = parse_users(data, "users.acl", &new);
    let mut lines: Vec<&[u8]> = data.split(|&byte| byte == b'\n').collect();
    let request = lines.pop().unwrap_or_default();
    let mut user = new.user(b"u");
    // A rejected rule leaves the rules before it in effect.
    let _ = new.apply_all(&mut user, lines.iter().copied());
    let text = user.rules_text();
    let mut again = new.user(b"u");
    let result = new.apply_all(&mut again, text.split(|&byte| byte == b' '));
    assert_eq!(result, Ok(()), "{}", text.escape_ascii());
    assert_eq!(again.rules_text(), text, "{}", text.escape_ascii());
    let loaded = parse_users(&[user.line(), b"\n".to_vec()].concat(), "users.acl", &new);
    let loaded = loaded.unwrap_or_else(|errors| panic!("{}: {errors}", text.escape_ascii()));
    assert_eq!(loaded.first().map(|user| user.rules_text()), Some(text));

    let words = OwnedArgs::new(request.split(|&byte| byte == b' '));
    let hasher = Hasher::with_seed([0; 4]);
    let args = words.args(&hasher);
    let Some(command) = table().find(args.get(0)) else { return };
    let registered = command.called_by(&args);
    if registered.command.accepts(args.len()) {
        let asked = AclRequest { registered, args: &args, db: 0 };
        let denial = user.check(asked);
        assert_eq!(denial, again.check(asked), "the same rules permit the same");
        assert!(denial.is_ok() || !user.is_unrestricted());
        if let Err(denial) = denial {
            denial.description(user.name(), registered, &args);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::fuzz_rules;

    proptest! {
        #[test]
        fn random_rules_are_taken_or_refused(data in prop::collection::vec(any::<u8>(), 0..200)) {
            fuzz_rules(&data);
        }

        #[test]
        fn likely_rules_make_the_same_user_again(
            data in r#"(([+&~%<>#!(-]|[+-]@|\+config\||\(\+get |%R~|db=)?(get|set|all|read|config|on|off|reset|nopass|clearselectors|[a-z*?" ')(|,01]{0,5})\)?\n){0,8}(GET|SET|MGET|CONFIG|PUBLISH|SORT)( [a-z*]{0,4}){0,4}"#,
        ) {
            fuzz_rules(data.as_bytes());
        }
    }
}
