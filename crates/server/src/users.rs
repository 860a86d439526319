//! The users of a server: loading and saving them (`user` lines of the configuration, `aclfile`),
//! and closing the sessions of changed users. The users themselves are in `engine::acl`.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use engine::acl::{DEFAULT_USER, NewUsers, SetError, User, check_name, parse_users, rewrite_lines};
use engine::settings::Settings;
use engine::table::CommandTable;

use crate::config::ConfigStore;
use crate::config::parse::quoted_if_needed;
use crate::config::rewrite;
use crate::config::table::{persistence, security};
use crate::shared::{Message, Shared};

/// Returns what ACL rules need to define users of this server: the table in which they look up
/// commands, and the channels that a new user may access.
pub fn new_users<'a>(engine: &'a engine::Shared, settings: &Settings) -> NewUsers<'a> {
    NewUsers { table: &engine.table, channels: settings.new_channels }
}

/// Returns the path of the ACL file; `None` if none is configured.
pub fn file(store: &ConfigStore) -> Option<PathBuf> {
    let path = security::ACLFILE.of(store);
    (!path.as_os_str().is_empty()).then(|| persistence::DIR.of(store).join(path))
}

/// Loads the users of the `user` lines or of the ACL file, before the first client connects.
///
/// # Errors
/// The reason why the server must not start.
pub fn load_at_start(store: &ConfigStore, engine: &engine::Shared) -> Result<(), String> {
    let settings = engine.settings.get();
    engine.acl.users.set_default_password(security::REQUIREPASS.of(store));
    let new = new_users(engine, &settings);
    if let Some(path) = file(store) {
        if !store.users().is_empty() {
            return Err(
                "The configuration has 'user' lines and an 'aclfile': users in both of them would be a \
                        security hole. Define them in one of them"
                    .to_owned(),
            );
        }
        let users =
            read_file(&path, &new).map_err(|errors| format!("Aborting because of ACL errors: {errors}"))?;
        engine.acl.users.replace_all(users);
        return Ok(());
    }
    for line in store.users() {
        let user = configured_user(line, &new)?;
        if !user.is_on() {
            let name = user.name().escape_ascii().to_string();
            tracing::info!(
                "The user '{name}' is disabled (there is no 'on' modifier in the user description). Make sure this \
                 is not a configuration error."
            );
        }
        let name: Box<[u8]> = user.name().into();
        let set: Result<bool, std::convert::Infallible> = engine.acl.users.set(&name, |_| Ok(user));
        let Ok(_) = set;
    }
    Ok(())
}

/// Returns the first problem with the users of a configuration; `None` if there is none.
pub fn problem(store: &ConfigStore, table: &CommandTable, settings: &Settings) -> Option<String> {
    let new = NewUsers { table, channels: settings.new_channels };
    let in_lines = store.users().iter().find_map(|line| configured_user(line, &new).err());
    in_lines.or_else(|| file(store).and_then(|path| read_file(&path, &new).err()))
}

/// Parses the words of a `user` line of the configuration, without the word `user`.
fn configured_user(line: &[Vec<u8>], new: &NewUsers<'_>) -> Result<User, String> {
    let (name, rules) = line.split_first().ok_or("a 'user' line has no name")?;
    if !check_name(name) {
        return Err("Spaces not allowed in ACL usernames".to_owned());
    }
    let mut user = new.user(name);
    let shown = String::from_utf8_lossy(name);
    new.apply_all(&mut user, rules.iter().map(Vec::as_slice)).map_err(|error| match error {
        SetError::Unmatched(word) => {
            let word = String::from_utf8_lossy(&word).into_owned();
            format!("Unmatched parenthesis in the selector starting at '{word}' of the user named '{shown}'")
        }
        SetError::Rule(rule, error) => {
            let rule = String::from_utf8_lossy(shown_rule(&rule)).into_owned();
            format!("Error loading ACL rule '{rule}' for the user named '{shown}': {}", error.text())
        }
    })?;
    Ok(user)
}

/// Returns the part of an ACL rule that may be logged: only the first byte of a rule with a
/// password.
fn shown_rule(rule: &[u8]) -> &[u8] {
    match rule.first() {
        Some(b'>' | b'<') => &rule[..1],
        _ => rule,
    }
}

/// Reads the users of the ACL file at `path`. `new` contains the command table and the channel
/// permissions of new users.
///
/// # Errors
/// All errors of the file, as one text.
pub fn read_file(path: &std::path::Path, new: &NewUsers<'_>) -> Result<Vec<User>, String> {
    let shown = path.display().to_string();
    let text = fs::read(path).map_err(|error| {
        let reason = error.to_string();
        let reason = reason.split(" (os error").next().unwrap_or_default();
        format!("Error loading ACLs, opening file '{shown}': {reason}")
    })?;
    parse_users(&text, &shown, new)
}

/// Writes `users` to the ACL file at `path`, and replaces the file atomically. Comments in the file
/// stay.
///
/// # Errors
/// The file cannot be read or replaced.
pub fn write_file(path: &std::path::Path, users: &[Arc<User>]) -> std::io::Result<()> {
    let old = match fs::read(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        read => read?,
    };
    rewrite::replace(path, &rewrite_lines(&old, users))
}

/// The users of a running server, for CONFIG REWRITE.
pub struct Running<'a> {
    /// The server's data, with its users.
    pub engine: &'a engine::Shared,
    /// The server's options.
    pub config: &'a ConfigStore,
}

impl Running<'_> {
    /// Returns the user `default` as it is without a `user` line: with all permissions and the
    /// password of `requirepass`.
    fn default_by_option(&self) -> User {
        let mut user = User::unrestricted(DEFAULT_USER);
        user.set_only_password(security::REQUIREPASS.of(self.config));
        user
    }

    /// Returns the users that the `user` lines in `store` define.
    fn users_of(&self, store: &ConfigStore) -> Result<Vec<User>, String> {
        let settings = self.engine.settings.get();
        let new = new_users(self.engine, &settings);
        store.users().iter().map(|line| configured_user(line, &new)).collect()
    }
}

/// If the server has an ACL file, these functions check nothing and return no lines, because the
/// configuration then contains no users.
impl rewrite::RunningUsers for Running<'_> {
    fn lines_beside(&self, elsewhere: &ConfigStore) -> Result<Vec<Vec<u8>>, String> {
        if file(self.config).is_some() {
            return Ok(Vec::new());
        }
        let users = self.engine.acl.users.all();
        let others = self.users_of(elsewhere)?;
        for other in &others {
            let name = String::from_utf8_lossy(other.name());
            let defined = format!(
                "user '{name}' is defined in an included file, on standard input or the command line, and"
            );
            match users.iter().find(|user| user.name() == other.name()) {
                None => return Err(format!("{defined} was deleted at run time: remove it there")),
                Some(user) if user.line() != other.line() => {
                    return Err(format!(
                        "{defined} was changed at run time: change it there, or move it to this file"
                    ));
                }
                Some(_) => {}
            }
        }
        let is_elsewhere = |user: &User| others.iter().any(|other| other.name() == user.name());
        let left: Vec<_> = users.iter().filter(|user| !is_elsewhere(user)).collect();
        Ok(match &*left {
            [only] if only.line() == self.default_by_option().line() => Vec::new(),
            left => left.iter().map(|user| config_line(user)).collect(),
        })
    }

    fn check_same(&self, loaded: &ConfigStore) -> Result<(), String> {
        if file(self.config).is_some() {
            return Ok(());
        }
        let by_option = self.default_by_option();
        let mut left = vec![(by_option.name().to_vec(), by_option.line())];
        for user in self.users_of(loaded)? {
            left.retain(|(name, _)| name != user.name());
            left.push((user.name().to_vec(), user.line()));
        }
        let users = self.engine.acl.users.all();
        let mut running: Vec<_> = users.iter().map(|user| (user.name().to_vec(), user.line())).collect();
        left.sort();
        running.sort();
        let differs = |one: &[(Vec<u8>, Vec<u8>)], other: &[(Vec<u8>, Vec<u8>)]| {
            one.iter().find(|user| !other.contains(user)).map(|(name, _)| name.clone())
        };
        match differs(&left, &running).or_else(|| differs(&running, &left)) {
            None => Ok(()),
            Some(name) => {
                let name = String::from_utf8_lossy(&name).into_owned();
                Err(format!("user '{name}' would have other rules after a restart"))
            }
        }
    }
}

/// Formats a user as a `user` line of the configuration; quotes words where the parser needs it.
fn config_line(user: &User) -> Vec<u8> {
    let (name, rules) = (user.name(), user.rules_text());
    let words = [b"user".as_slice(), name].into_iter().chain(rules.split(|&byte| byte == b' '));
    words.map(quoted_if_needed).collect::<Vec<_>>().join(&b' ')
}

/// Requests all I/O threads to close the sessions of users that were removed or have lost the
/// permission for a subscribed channel.
pub fn close_sessions(shared: &Shared) {
    // A message may be lost in a full mailbox, because that thread checks the users in its next
    // turn.
    shared.broadcast(|| Message::CheckUsers);
}
