//! Options about who may do what.

use super::NO_ACL;
use crate::config::option::{ANY, Opt};

/// Who may use something dangerous.
const WHO: &[&str] = &["no", "yes", "local"];

/// This theme's options.
pub static OPTIONS: &[Opt] = &[
    Opt::text("requirepass", "", "The password of the user `default`; empty for none."),
    Opt::flag("protected-mode", "yes", "Without a password, refuse clients that are not on this machine."),
    Opt::choice(
        "enable-protected-configs",
        "no",
        WHO,
        "Whether CONFIG SET may change protected options (`dir`, `dbfilename`): `local` for clients on this \
         machine.",
    )
    .at_start(),
    Opt::choice(
        "enable-debug-command",
        "no",
        WHO,
        "Whether DEBUG is permitted: `local` for clients on this machine.",
    )
    .at_start(),
    Opt::choice("enable-module-command", "no", WHO, "Whether MODULE is permitted.")
        .at_start()
        .accepted("there are no modules"),
    Opt::text("aclfile", "", "The file of users.").at_start().accepted(NO_ACL),
    Opt::integer("acllog-max-len", "128", ANY, "Refusals that ACL LOG remembers.").accepted(NO_ACL),
    Opt::choice(
        "acl-pubsub-default",
        "resetchannels",
        &["allchannels", "resetchannels"],
        "The channels a new user may use.",
    )
    .accepted(NO_ACL),
    Opt::flag("hide-user-data-from-log", "no", "Keep keys and values out of the log.")
        .accepted("the log never holds keys or values"),
];
