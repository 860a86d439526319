//! Finds the versions of Redis and Valkey that can apply a stream of changes. They follow from the
//! versions that the command descriptions (`KnownSince` and the arguments) state.

use std::fmt;

use commands::record::forms::{KnownSince, ServerVersion};
use commands::table::Arg;

use super::Change;
use crate::client::Client;

/// The highest version of RDB payloads (RESTORE) that Redis 6.2 reads.
const PAYLOAD_VERSION_MAX: u16 = 9;

/// The kind and version of a real server (peer) that applies streams of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerVersion {
    /// The peer is a Redis server of this version.
    Redis(ServerVersion),
    /// The peer is a Valkey server of this version.
    Valkey(ServerVersion),
}

impl PeerVersion {
    /// Asks the server of `client` for its kind and version. Returns `None` if the answer does not
    /// contain a version.
    pub fn of(client: &mut Client) -> Option<Self> {
        let info = client.command(&["INFO", "server"]);
        let text = String::from_utf8_lossy(info.as_bytes()?).into_owned();
        let find = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
        match find("valkey_version:") {
            Some(version) => ServerVersion::parse(version).map(Self::Valkey),
            None => find("redis_version:").and_then(ServerVersion::parse).map(Self::Redis),
        }
    }

    /// Returns true if the server is at least as new as `known`, the versions that know a feature.
    pub fn knows(self, known: KnownSince) -> bool {
        match self {
            Self::Redis(version) => version >= known.redis,
            Self::Valkey(version) => version >= known.valkey,
        }
    }
}

impl fmt::Display for PeerVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Redis(version) => write!(f, "Redis {version}"),
            Self::Valkey(version) => write!(f, "Valkey {version}"),
        }
    }
}

/// Returns the lowest versions of Redis and Valkey that can apply all changes of a stream.
///
/// # Errors
///
/// A text that names a change newer than Redis 6.2 or Valkey 7.2 although the description of its
/// command does not mark it as newer.
pub fn versions_for(changes: &[Change]) -> Result<KnownSince, String> {
    changes.iter().try_fold(KnownSince::ALL, |known, change| match versions_for_change(change) {
        Some(of_change) => Ok(known.and(of_change)),
        None => Err(format!("no form for all peers, and not marked: {change}")),
    })
}

/// Returns the lowest versions that can apply one change. Returns `None` if the change is newer
/// than the description of its command states.
fn versions_for_change(change: &Change) -> Option<KnownSince> {
    let name = change.name();
    // Commands about the server, whose records are in another crate.
    match name.as_str() {
        "FUNCTION" | "SPUBLISH" => return Some(KnownSince::REDIS_7),
        "PUBLISH" => return Some(KnownSince::ALL),
        "RESTORE" | "RESTORE-ASKING" => {
            let footer = change.words.get(3)?.last_chunk::<10>()?;
            let version = u16::from_le_bytes([footer[0], footer[1]]);
            return (version <= PAYLOAD_VERSION_MAX).then_some(KnownSince::ALL);
        }
        _ => {}
    }
    let words = || change.words.iter().map(Vec::as_slice);
    let of_command = |command_name: &str, since, args, known| {
        let has_newer_word = newer_tokens(args).iter().any(|token| has_option(change, token));
        let is_newer = is_newer(Some(since)) || has_newer_word;
        (command_name == name).then(|| (!is_newer || known != KnownSince::ALL).then_some(known))
    };
    let on_keys = commands::all().find_map(|command| {
        let named =
            |sub: &str| change.words.get(1).is_some_and(|word| word.eq_ignore_ascii_case(sub.as_bytes()));
        let sub = command.subcommands.iter().find(|sub| named(sub.name));
        let args = sub.map_or(command.args, |sub| sub.args);
        of_command(command.name, command.history.since, args, command.known_since(words()))
    });
    let walker = || {
        commands::walkers().find_map(|command| {
            let known = command.known_since(words());
            of_command(command.name, command.history.since, command.args, known)
        })
    };
    on_keys.or_else(walker)?
}

/// Returns true if an argument of the change is the option `word`. Values of scripts and random
/// commands are never names of options, except the fields of XADD, which follow the ID.
fn has_option(change: &Change, word: &str) -> bool {
    let is_id = |own: &&Vec<u8>| change.name() == "XADD" && own.contains(&b'-');
    let words = change.words[1..].iter().take_while(|own| !is_id(own));
    words.into_iter().any(|own| own.eq_ignore_ascii_case(word.as_bytes()))
}

/// Returns the tokens (option names) of a command's arguments that are newer than Redis 6.2.
fn newer_tokens(args: &[Arg]) -> Vec<&'static str> {
    args.iter()
        .flat_map(|arg| if is_newer(arg.since) { tokens(arg) } else { newer_tokens(arg.args) })
        .collect()
}

/// Returns the tokens (option names) of a command's argument and of its nested arguments.
fn tokens(arg: &Arg) -> Vec<&'static str> {
    arg.token.into_iter().chain(arg.args.iter().flat_map(tokens)).collect()
}

/// Returns true if a feature that exists since version `since` is newer than Redis 6.2.
fn is_newer(since: Option<&str>) -> bool {
    since.and_then(ServerVersion::parse).is_some_and(|since| since > KnownSince::ALL.redis)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Option<KnownSince> {
        let words = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        versions_for_change(&Change { db: 0, transaction: 0, words })
    }

    #[test]
    fn marked_forms_need_their_versions_and_unmarked_ones_are_found() {
        assert_eq!(of("SET k v PXAT 1"), Some(KnownSince::ALL));
        assert_eq!(of("SET k v IFEQ w"), None);
        assert_eq!(of("MSETEX 1 k v"), None);
        assert_eq!(of("pexpireat k 1 NX"), None);
        assert_eq!(of("XGROUP SETID s g 1-1 ENTRIESREAD 1"), Some(KnownSince::REDIS_7));
        assert_eq!(of("XGROUP DESTROY s g"), Some(KnownSince::ALL));
        assert_eq!(of("HPERSIST h FIELDS 1 f"), Some(KnownSince::FIELD_EXPIRY));
        assert_eq!(of("FLUSHALL SYNC"), Some(KnownSince::ALL));
        assert_eq!(of("RESTORE k 0 v\t\0CHECKSUM"), Some(KnownSince::ALL));
        assert_eq!(of("RESTORE k 0 v\x0c\0CHECKSUM"), None);
        assert_eq!(of("NOSUCH k"), None);
    }

    #[test]
    fn a_stream_needs_the_latest_version_of_its_changes() {
        let change = |line: &str| {
            let words = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
            Change { db: 0, transaction: 0, words }
        };
        let changes = [change("XSETID s 1 ENTRIESADDED 1"), change("HPERSIST h FIELDS 1 f")];
        let known = versions_for(&changes).unwrap();
        assert_eq!(known, KnownSince::FIELD_EXPIRY);
        assert!(!PeerVersion::Valkey(ServerVersion::new(8, 1)).knows(known));
        assert!(PeerVersion::Redis(ServerVersion::new(8, 0)).knows(known));
        assert!(versions_for(&[change("MSETEX 1 k v")]).unwrap_err().contains("MSETEX"));
    }
}
