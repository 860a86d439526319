//! Options of authentication, permissions and the audit log.

use std::path::Path;

use engine::settings::NewChannels;

use crate::config::choices::{Permitted, ReadableSecrets};
use crate::config::handle::{Choice as _, Handle};
use crate::config::option::{ANY, FollowUp, INT, OnChange, Opt};
use crate::config::value::Kind;
use crate::config::words;

/// The options of this theme.
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
    &OIDC_KEYS_FILE.opt,
    &OIDC_KEYS_URL.opt,
    &OIDC_CA_FILE.opt,
    &OIDC_KEYS_REFRESH.opt,
    &OIDC_ISSUER.opt,
    &OIDC_AUDIENCE.opt,
    &OIDC_USER_CLAIM.opt,
    &OIDC_USER_PREFIX.opt,
    &OIDC_LEEWAY.opt,
    &OIDC_END_SESSIONS.opt,
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

/// The ACL file, which defines the users; empty for none.
pub static ACLFILE: Handle<Path> = Opt::file(
    "aclfile",
    "",
    "The file of users, which ACL LOAD reads and ACL SAVE writes; empty for none. With it `requirepass` and \
         `user` lines say nothing of users.",
)
.at_start()
.typed();

/// The maximum number of entries in ACL LOG.
pub static ACLLOG_MAX_LEN: Handle<usize> =
    Opt::integer("acllog-max-len", "128", ANY, "Maximum number of entries in ACL LOG.").typed();

/// The initial channel permissions of new users.
pub static ACL_PUBSUB_DEFAULT: Handle<NewChannels> = Opt::choice(
    "acl-pubsub-default",
    "resetchannels",
    NewChannels::WORDS,
    "The channels that a new user may use.",
)
.typed();

/// `protected-mode`: true if clients on other machines are refused while there is no password.
pub static PROTECTED_MODE: Handle<bool> =
    Opt::flag("protected-mode", "yes", "Without a password, refuse clients that are not on this machine.")
        .typed();

/// The clients that may change protected options.
pub static ENABLE_PROTECTED_CONFIGS: Handle<Permitted> = Opt::choice(
    "enable-protected-configs",
    "no",
    Permitted::WORDS,
    "Whether CONFIG SET may change protected options (`dir`, `dbfilename`): `local` for clients on this \
         machine.",
)
.at_start()
.typed();

/// The clients that may use DEBUG.
pub static ENABLE_DEBUG_COMMAND: Handle<Permitted> = Opt::choice(
    "enable-debug-command",
    "no",
    Permitted::WORDS,
    "Whether DEBUG is permitted: `local` for clients on this machine.",
)
.at_start()
.typed();

/// The clients that may use MODULE LOAD, LOADEX and UNLOAD.
pub static ENABLE_MODULE_COMMAND: Handle<Permitted> = Opt::choice(
    "enable-module-command",
    "no",
    Permitted::WORDS,
    "Whether MODULE LOAD, LOADEX and UNLOAD are permitted: `local` for clients on this machine. There are no \
         modules, so that they fail in any case.",
)
.at_start()
.typed();

/// The time within which a client must authenticate, in seconds; 0 for no limit.
pub static AUTHENTICATION_TIMEOUT: Handle<u64> = Opt::integer(
    "authentication-timeout",
    "0",
    INT,
    "Seconds that a client may take until it has authenticated, before it is closed; 0 for any time. Saker only.",
)
.typed();

/// The action when every user of the machine may read a configuration file that contains secrets.
pub static SECRETS_IN_READABLE_FILES: Handle<ReadableSecrets> = Opt::choice(
    "secrets-in-readable-files",
    "warn",
    ReadableSecrets::WORDS,
    "What becomes of a configuration file that holds a password and may be read by every user of the machine: \
         `warn` names it in the log, `refuse` does not start, `ignore` says nothing. Saker only.",
)
.typed();

/// The delay between two login attempts from an address with many failures, in milliseconds; 0 for
/// no delay.
pub static AUTH_FAILURE_DELAY: Handle<u64> = Opt::integer(
    "auth-failure-delay",
    "0",
    INT,
    "Milliseconds between two tries to log in from an address whose logins have failed ten times; 0 for none. \
         Clients on this machine do not wait. Saker only.",
)
.typed();

/// The file of the audit log; empty for no audit log.
pub static AUDIT_LOG_FILE: Handle<Path> =
    Opt::file("audit-log-file", "", "The file of the audit log; empty for none. Saker only.")
        .at_start()
        .typed();

/// The events that the audit log records.
pub static AUDIT_LOG_EVENTS: Handle<[Vec<u8>]> = Opt::new(
    "audit-log-events",
    Kind::Words(&words::AUDIT_EVENTS),
    "denied auth",
    "What the audit log notes: `denied` requests, logins (`auth`), commands of the categories admin and dangerous \
         (`admin`), commands that `write`, `all` commands. Saker only.",
)
.typed();

/// The users whose events the audit log records.
pub static AUDIT_LOG_USERS: Handle<[Vec<u8>]> = Opt::new(
    "audit-log-users",
    Kind::Words(&words::NAMES),
    "*",
    "Whose events the audit log notes: patterns of names of users, of which the last that matches decides; with \
         `!` in front a pattern excludes. Saker only.",
)
.typed();

/// A file with the keys of an identity provider.
pub static OIDC_KEYS_FILE: Handle<Path> = Opt::file(
    "oidc-keys-file",
    "",
    "A file with the public keys (JWKS) of an identity provider. AUTH accepts tokens that it signed. Empty for none. \
         Saker only.",
)
.at_start()
.typed();

/// The URL of the keys of an identity provider.
pub static OIDC_KEYS_URL: Handle<[u8]> = Opt::text(
    "oidc-keys-url",
    "",
    "Where the public keys (JWKS) of an identity provider are: `https`, or `http` on this machine; empty for \
         nowhere. Saker only.",
)
.at_start()
.typed();

/// The file of authorities that may sign the certificate of the identity provider's web server.
pub static OIDC_CA_FILE: Handle<Path> = Opt::file(
    "oidc-ca-file",
    "",
    "Certificates of the authorities that may sign for the web server of `oidc-keys-url`; empty for those that \
         browsers trust. Saker only.",
)
.at_start()
.typed();

/// The interval at which the keys are fetched again, in seconds.
pub static OIDC_KEYS_REFRESH: Handle<u64> = Opt::integer(
    "oidc-keys-refresh",
    "300",
    (1, i32::MAX as i64),
    "Seconds after which the keys of the identity provider are looked for again. Saker only.",
)
.at_start()
.typed();

/// The issuer of accepted tokens.
pub static OIDC_ISSUER: Handle<[u8]> =
    Opt::text("oidc-issuer", "", "The issuer (`iss`) of tokens that AUTH accepts. Saker only.")
        .at_start()
        .typed();

/// The audience of accepted tokens.
pub static OIDC_AUDIENCE: Handle<[Vec<u8>]> = Opt::new(
    "oidc-audience",
    Kind::Words(&words::NAMES),
    "",
    "The audience of tokens that AUTH accepts: one of these must be in `aud`. Saker only.",
)
.at_start()
.typed();

/// The claim of a token that names the user.
pub static OIDC_USER_CLAIM: Handle<[u8]> = Opt::text(
    "oidc-user-claim",
    "sub",
    "The claim of a token that names the user: a text, or a list of which one is chosen. Saker only.",
)
.at_start()
.typed();

/// The prefix of the user name: the prefix and the value of the claim together are the name of a
/// user.
pub static OIDC_USER_PREFIX: Handle<[u8]> = Opt::text(
    "oidc-user-prefix",
    "",
    "What is put in front of the claim's names to make names of users. Saker only.",
)
.at_start()
.typed();

/// The accepted difference between the clocks of the server and the identity provider, in seconds.
pub static OIDC_LEEWAY: Handle<u64> = Opt::integer(
    "oidc-leeway",
    "30",
    (0, 3600),
    "Seconds by which the clock of the identity provider may differ. Saker only.",
)
.at_start()
.typed();

/// `oidc-end-sessions`: true if a session ends when its token expires.
pub static OIDC_END_SESSIONS: Handle<bool> = Opt::flag(
    "oidc-end-sessions",
    "yes",
    "Whether a client that has logged in with a token is closed when that expires. Saker only.",
)
.at_start()
.typed();
