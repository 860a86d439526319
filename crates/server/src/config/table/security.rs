//! Options about who may do what.

use std::path::Path;

use engine::settings::NewChannels;

use crate::config::choices::{Permitted, ReadableSecrets};
use crate::config::handle::{Choice as _, Handle};
use crate::config::option::{ANY, FollowUp, INT, OnChange, Opt};
use crate::config::value::Kind;
use crate::config::words;

/// This theme's options.
pub static OPTIONS: &[&Opt] = &[
    &REQUIREPASS.opt,
    &PROTECTED_MODE.opt,
    &ENABLE_PROTECTED_CONFIGS.opt,
    &ENABLE_DEBUG_COMMAND.opt,
    &ENABLE_MODULE_COMMAND.opt,
    &AUTHENTICATION_TIMEOUT.opt,
    &SECRETS_IN_READABLE_FILES.opt,
    &AUTH_FAILURE_DELAY.opt,
    &AUDIT_LOG_FILE.opt,
    &AUDIT_LOG_EVENTS.opt,
    &AUDIT_LOG_USERS.opt,
    &ACLFILE.opt,
    &ACLLOG_MAX_LEN.opt,
    &ACL_PUBSUB_DEFAULT.opt,
    &Opt::flag("hide-user-data-from-log", "no", "Keep keys and values out of the log.")
        .accepted("the log never holds keys or values"),
];

/// The password of the user `default`; empty for none.
pub static REQUIREPASS: Handle<[u8]> =
    Opt::text("requirepass", "", "The password of the user `default`; empty for none.")
        .on_change(OnChange::FollowUp(FollowUp::DefaultPassword))
        .typed();

/// The file of users.
pub static ACLFILE: Handle<Path> = Opt::file(
    "aclfile",
    "",
    "The file of users, which ACL LOAD reads and ACL SAVE writes; empty for none. With it `requirepass` and \
         `user` lines say nothing of users.",
)
.at_start()
.typed();

/// Entries of ACL LOG.
pub static ACLLOG_MAX_LEN: Handle<usize> =
    Opt::integer("acllog-max-len", "128", ANY, "Maximum number of entries in ACL LOG.").typed();

/// The channels of new users.
pub static ACL_PUBSUB_DEFAULT: Handle<NewChannels> = Opt::choice(
    "acl-pubsub-default",
    "resetchannels",
    NewChannels::WORDS,
    "The channels that a new user may use.",
)
.typed();

/// Whether only clients on this machine are served while there is no password.
pub static PROTECTED_MODE: Handle<bool> =
    Opt::flag("protected-mode", "yes", "Without a password, refuse clients that are not on this machine.")
        .typed();

/// Which clients may change protected options.
pub static ENABLE_PROTECTED_CONFIGS: Handle<Permitted> = Opt::choice(
    "enable-protected-configs",
    "no",
    Permitted::WORDS,
    "Whether CONFIG SET may change protected options (`dir`, `dbfilename`): `local` for clients on this \
         machine.",
)
.at_start()
.typed();

/// Which clients may use DEBUG.
pub static ENABLE_DEBUG_COMMAND: Handle<Permitted> = Opt::choice(
    "enable-debug-command",
    "no",
    Permitted::WORDS,
    "Whether DEBUG is permitted: `local` for clients on this machine.",
)
.at_start()
.typed();

/// Which clients may use MODULE LOAD, LOADEX and UNLOAD.
pub static ENABLE_MODULE_COMMAND: Handle<Permitted> = Opt::choice(
    "enable-module-command",
    "no",
    Permitted::WORDS,
    "Whether MODULE LOAD, LOADEX and UNLOAD are permitted: `local` for clients on this machine. There are no \
         modules, so that they fail in any case.",
)
.at_start()
.typed();

/// Seconds that a client may take until it has authenticated; 0 for any time.
pub static AUTHENTICATION_TIMEOUT: Handle<u64> = Opt::integer(
    "authentication-timeout",
    "0",
    INT,
    "Seconds that a client may take until it has authenticated, before it is closed; 0 for any time. Saker only.",
)
.typed();

/// What becomes of a configuration file with secrets that every user of the machine may read.
pub static SECRETS_IN_READABLE_FILES: Handle<ReadableSecrets> = Opt::choice(
    "secrets-in-readable-files",
    "warn",
    ReadableSecrets::WORDS,
    "What becomes of a configuration file that holds a password and may be read by every user of the machine: \
         `warn` names it in the log, `refuse` does not start, `ignore` says nothing. Saker only.",
)
.typed();

/// Milliseconds between tries to log in of an address that has failed often; 0 for none.
pub static AUTH_FAILURE_DELAY: Handle<u64> = Opt::integer(
    "auth-failure-delay",
    "0",
    INT,
    "Milliseconds between two tries to log in from an address whose logins have failed ten times; 0 for none. \
         Clients on this machine do not wait. Saker only.",
)
.typed();

/// The file of the audit log.
pub static AUDIT_LOG_FILE: Handle<Path> =
    Opt::file("audit-log-file", "", "The file of the audit log; empty for none. Saker only.")
        .at_start()
        .typed();

/// Which events the audit log notes.
pub static AUDIT_LOG_EVENTS: Handle<[Vec<u8>]> = Opt::new(
    "audit-log-events",
    Kind::Words(&words::AUDIT_EVENTS),
    "denied auth",
    "What the audit log notes: `denied` requests, logins (`auth`), commands of the categories admin and dangerous \
         (`admin`), commands that `write`, `all` commands. Saker only.",
)
.typed();

/// Whose events the audit log notes.
pub static AUDIT_LOG_USERS: Handle<[Vec<u8>]> = Opt::new(
    "audit-log-users",
    Kind::Words(&words::NAMES),
    "*",
    "Whose events the audit log notes: patterns of names of users, of which the last that matches decides; with \
         `!` in front a pattern excludes. Saker only.",
)
.typed();
