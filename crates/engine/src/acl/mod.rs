//! Access control: users, what their rules say, and whether a request is theirs to make. Pure: no
//! file, no clock, no socket.
//!
//! ```text
//!   rules (SETUSER, user lines, the ACL file) ─► User ─► Users, by name ─► Identity of a session
//!                                                 │                             │ per request
//!                                                 └── selectors: a bit per command, patterns of
//!                                                     keys and channels, databases ◄┘
//! ```
//! A [`User`] never changes: whoever changes one puts another in its place ([`Users`]) and draws a
//! new version. A session keeps its user ([`Identity`]) and the version that it was looked up at. A
//! request costs one relaxed load of the version and one comparison, where the user may do
//! everything; else the check of its rules, which takes no lock and no memory.
//!
//! | file | holds |
//! |---|---|
//! | `pattern` | patterns of keys and channels, compiled |
//! | `denial` | why a request is refused, and in which words |
//! | `keys` | which keys a request uses, and how |
//! | `selector` | what a set of rules permits: its check, its text |
//! | `user` | a user: flags, passwords, selectors |
//! | `rules` | the rules as people write them |
//! | `users` | all users |
//! | `identity` | who a session is |
//! | `log` | ACL LOG |
//! | `file` | users as lines of a file |

mod denial;
mod file;
mod identity;
mod keys;
mod log;
mod pattern;
mod rules;
mod selector;
mod user;
mod users;

pub use denial::{Context, Denial, Reason};
pub use file::{parse_users, rewrite_lines, user_lines};
pub use identity::{Identity, Standing};
pub use keys::{actual_flags, keys_of_migrate};
pub use log::{AclLog, LogEntry, Refusal};
pub use rules::{NewUsers, RuleError, SetError, check_name, merge_selectors};
pub use selector::{Asked, Selector};
pub use user::{DEFAULT_USER, User, hash_password};
pub use users::Users;

/// The part of access control that all threads share.
#[derive(Debug, Default)]
pub struct Acl {
    /// All users.
    pub users: Users,
    /// The refused requests.
    pub log: AclLog,
}
