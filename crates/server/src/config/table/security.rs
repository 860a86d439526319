//! The table of options for authentication, permissions and the audit log.

use std::path::Path;

use engine::settings::NewChannels;

use crate::config::choices::{Permitted, ReadableSecrets};
use crate::config::handle::{Choice as _, Handle};
use crate::config::option::{ANY, FollowUp, INT, OnChange, Opt};
use crate::config::value::Kind;
use crate::config::words;

/// The options of this file, in the order of docs/options.md.
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
    &Opt::flag("hide-user-data-from-log", "no", "Do not write keys and values to the log.")
        .accepted("the log never contains keys or values"),
];

/// The password of the user `default`; empty for none.
pub static REQUIREPASS: Handle<[u8]> =
    Opt::text("requirepass", "", "The password of the user `default`; empty for no password.")
        .on_change(OnChange::FollowUp(FollowUp::DefaultPassword))
        .typed();

/// The ACL file, which defines the users; empty for no ACL file.
pub static ACLFILE: Handle<Path> = Opt::file(
    "aclfile",
    "",
    "The file of users, which ACL LOAD reads and ACL SAVE writes; empty for none. With a file, \
         `requirepass` and `user` lines have no effect on users.",
)
.at_start()
.typed();

/// The maximum number of entries that ACL LOG keeps.
pub static ACLLOG_MAX_LEN: Handle<usize> =
    Opt::integer("acllog-max-len", "128", ANY, "The maximum number of entries in ACL LOG.").typed();

/// The permissions for channels that new ACL users get.
pub static ACL_PUBSUB_DEFAULT: Handle<NewChannels> = Opt::choice(
    "acl-pubsub-default",
    "resetchannels",
    NewChannels::WORDS,
    "The channels that a new user may access: all (`allchannels`) or none (`resetchannels`).",
)
.typed();

/// `protected-mode`: true if clients on other machines are refused while the user `default` has no
/// password.
pub static PROTECTED_MODE: Handle<bool> = Opt::flag(
    "protected-mode",
    "yes",
    "Refuse clients on other machines while the user `default` has no password.",
)
.typed();

/// The clients that may change protected options with CONFIG SET.
pub static ENABLE_PROTECTED_CONFIGS: Handle<Permitted> = Opt::choice(
    "enable-protected-configs",
    "no",
    Permitted::WORDS,
    "The clients that may change protected options (`dir`, `dbfilename`) with CONFIG SET: none \
         (`no`), all (`yes`), or those on this machine (`local`).",
)
.at_start()
.typed();

/// The clients that may use DEBUG.
pub static ENABLE_DEBUG_COMMAND: Handle<Permitted> = Opt::choice(
    "enable-debug-command",
    "no",
    Permitted::WORDS,
    "The clients that may call DEBUG: none (`no`), all (`yes`), or those on this machine \
         (`local`).",
)
.at_start()
.typed();

/// The clients that may use MODULE LOAD, LOADEX and UNLOAD.
pub static ENABLE_MODULE_COMMAND: Handle<Permitted> = Opt::choice(
    "enable-module-command",
    "no",
    Permitted::WORDS,
    "The clients that may call MODULE LOAD, LOADEX and UNLOAD: none (`no`), all (`yes`), or those \
         on this machine (`local`). Saker has no modules, so these commands fail in any case.",
)
.at_start()
.typed();

/// The seconds after the connection within which a client must authenticate; 0 for no limit.
pub static AUTHENTICATION_TIMEOUT: Handle<u64> = Opt::integer(
    "authentication-timeout",
    "0",
    INT,
    "The time, in seconds, within which a client must authenticate; else it is closed. 0 for no \
         limit. Saker only.",
)
.typed();

/// The action when every user of the machine may read a configuration file that contains secrets.
pub static SECRETS_IN_READABLE_FILES: Handle<ReadableSecrets> = Opt::choice(
    "secrets-in-readable-files",
    "warn",
    ReadableSecrets::WORDS,
    "The reaction to a configuration file that contains a password and that every user of the \
         machine may read. `warn` writes a warning to the log, `refuse` prevents the start, `ignore` \
         does nothing. Saker only.",
)
.typed();

/// The delay between two login attempts from an address with many failures, in milliseconds; 0 for
/// no delay.
pub static AUTH_FAILURE_DELAY: Handle<u64> = Opt::integer(
    "auth-failure-delay",
    "0",
    INT,
    "The time, in milliseconds, between two login attempts of an address with ten failed logins; \
         0 for no delay. Clients on this machine are never delayed. Saker only.",
)
.typed();

/// The file of the audit log; empty for no audit log.
pub static AUDIT_LOG_FILE: Handle<Path> =
    Opt::file("audit-log-file", "", "The file of the audit log; empty for no audit log. Saker only.")
        .at_start()
        .typed();

/// The kinds of events that the audit log records: words of [`words::AUDIT_EVENT_WORDS`].
pub static AUDIT_LOG_EVENTS: Handle<[Vec<u8>]> = Opt::new(
    "audit-log-events",
    Kind::Words(&words::AUDIT_EVENTS),
    "denied auth",
    "The events that the audit log records. `denied`: refused requests and logins. `auth`: \
         logins. `admin`: commands of the categories admin and dangerous. `write`: commands that \
         write. `all`: all commands. Saker only.",
)
.typed();

/// The names of the users whose events the audit log records.
pub static AUDIT_LOG_USERS: Handle<[Vec<u8>]> = Opt::new(
    "audit-log-users",
    Kind::Words(&words::NAMES),
    "*",
    "The users whose events the audit log records, as patterns of user names. A pattern after `!` \
         excludes users. The last matching pattern decides. Saker only.",
)
.typed();

/// The file with the public keys that verify the tokens of the identity provider (OpenID Connect);
/// empty for no file.
pub static OIDC_KEYS_FILE: Handle<Path> = Opt::file(
    "oidc-keys-file",
    "",
    "The file with the public keys (JWKS) of an identity provider; empty for none. AUTH accepts \
         tokens signed with these keys. Saker only.",
)
.at_start()
.typed();

/// The URL from which the server fetches the public keys that verify the tokens of the identity
/// provider (OpenID Connect); empty for none.
pub static OIDC_KEYS_URL: Handle<[u8]> = Opt::text(
    "oidc-keys-url",
    "",
    "The URL of the public keys (JWKS) of an identity provider: `https`, or `http` on this \
         machine; empty for none. AUTH accepts tokens signed with these keys. Saker only.",
)
.at_start()
.typed();

/// The file of certificates of authorities; one of them must have signed the certificate of the
/// identity provider's web server. If empty, the authorities that browsers trust are used.
pub static OIDC_CA_FILE: Handle<Path> = Opt::file(
    "oidc-ca-file",
    "",
    "The file with the certificates of the authorities that may sign the certificate of the web \
         server of `oidc-keys-url`. If empty, the authorities that browsers trust are used. Saker \
         only.",
)
.at_start()
.typed();

/// The seconds after which the public keys of the identity provider are fetched again from
/// [`OIDC_KEYS_URL`].
pub static OIDC_KEYS_REFRESH: Handle<u64> = Opt::integer(
    "oidc-keys-refresh",
    "300",
    (1, i32::MAX as i64),
    "The interval, in seconds, at which the server fetches the keys of `oidc-keys-url` again. \
         Saker only.",
)
.at_start()
.typed();

/// The issuer that a token (OpenID Connect) must name to be accepted.
pub static OIDC_ISSUER: Handle<[u8]> = Opt::text(
    "oidc-issuer",
    "",
    "The issuer of the tokens that AUTH accepts: their claim `iss` must have this value. Saker \
         only.",
)
.at_start()
.typed();

/// The audiences of accepted tokens (OpenID Connect): a token must name one of them.
pub static OIDC_AUDIENCE: Handle<[Vec<u8>]> = Opt::new(
    "oidc-audience",
    Kind::Words(&words::NAMES),
    "",
    "The audiences of the tokens that AUTH accepts: their claim `aud` must contain one of these \
         values. Saker only.",
)
.at_start()
.typed();

/// The claim of a token (OpenID Connect) that names the user to log in.
pub static OIDC_USER_CLAIM: Handle<[u8]> = Opt::text(
    "oidc-user-claim",
    "sub",
    "The claim of a token that contains the user's name, or a list of names from which one is \
         chosen. Saker only.",
)
.at_start()
.typed();

/// The prefix of the user names in tokens (OpenID Connect): a user's name is this prefix followed
/// by the value of the claim `oidc-user-claim`.
pub static OIDC_USER_PREFIX: Handle<[u8]> = Opt::text(
    "oidc-user-prefix",
    "",
    "The prefix that is added to each name of the claim `oidc-user-claim` to make a user's name. \
         Saker only.",
)
.at_start()
.typed();

/// The accepted difference between the clocks of the server and the identity provider, in seconds.
pub static OIDC_LEEWAY: Handle<u64> = Opt::integer(
    "oidc-leeway",
    "30",
    (0, 3600),
    "The maximum difference, in seconds, between the clocks of the server and of the identity \
         provider. Saker only.",
)
.at_start()
.typed();

/// `oidc-end-sessions`: true if a session that a token (OpenID Connect) has logged in ends when the
/// token expires.
pub static OIDC_END_SESSIONS: Handle<bool> = Opt::flag(
    "oidc-end-sessions",
    "yes",
    "Close a client that has logged in with a token when the token expires. Saker only.",
)
.at_start()
.typed();
