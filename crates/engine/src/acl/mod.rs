//! Access control: users, their rules, and the check of requests against these rules. The code uses
//! no file, no clock and no socket.
//!
//! ```text
//!   rules (SETUSER, user lines, the ACL file) ─► User ─► Users, by name ─► Identity of a session
//!                                                 │                             │ per request
//!                                                 └── selectors: a bit per command, patterns of
//!                                                     keys and channels, databases ◄┘
//! ```
//! A [`User`] never changes. To change a user, a thread replaces it by a new one in [`Users`],
//! which increases the version of the users. A session keeps its user, and the version at which it
//! looked this user up ([`Identity`]). If the user has all rights, a request costs one relaxed load
//! of the version and one comparison. Otherwise its rules are checked, which takes no lock and
//! allocates no memory.
//!
//! | file | holds |
//! |---|---|
//! | `pattern` | compiled patterns of keys and channels |
//! | `denial` | the reasons for refusing a request, and their error texts |
//! | `keys` | the keys that a request uses, and the access to each |
//! | `selector` | the rights by one set of rules: their check and their text |
//! | `user` | a user: flags, passwords, selectors |
//! | `rules` | the parser of rules |
//! | `users` | all users |
//! | `identity` | the user of a session |
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
pub use identity::{Identity, IdentityState};
pub use keys::{actual_flags, keys_of_migrate};
pub use log::{AclLog, LogEntry, Refusal};
pub use rules::{NewUsers, RuleError, SetError, check_name, merge_selectors};
pub use selector::{AclRequest, Selector};
pub use user::{DEFAULT_USER, User, hash_password};
pub use users::Users;

/// The access control state that all threads share: users, and ACL LOG.
#[derive(Debug, Default)]
pub struct Acl {
    /// The users of access control.
    pub users: Users,
    /// The log of refused requests, ACL LOG.
    pub log: AclLog,
}
