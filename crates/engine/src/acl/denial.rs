//! The reasons for which access control refuses a request, and their error texts. The texts are
//! those of Redis 8.0.2; for databases, those of Valkey 9.

use commands::error::quotable;
use commands::{Args, CommandError};

use crate::table::Registered;

/// The reason for which a selector (one set of a user's rules) refuses a request, with the index of
/// the refused argument. If several selectors refuse a request, the reason that comes last in this
/// enum is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Denial {
    /// The user may not use a database: the index of the argument that names it, 0 for the selected
    /// database.
    Database(usize),
    /// The user may not run the command.
    Command,
    /// The user may not access a key: the index of the argument with the key.
    Key(usize),
    /// The user may not use a channel: the index of the argument with the channel.
    Channel(usize),
}

/// The kind of a refusal, as ACL LOG and INFO show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The refusal of a request that uses a database to which the user has no right.
    Database,
    /// The refusal of a request whose command the user may not run.
    Command,
    /// The refusal of a request with a key that the user may not access.
    Key,
    /// The refusal of a request with a channel that the user may not use.
    Channel,
    /// An authentication failed: wrong user name or password.
    Auth,
}

impl Reason {
    /// Returns the name of this kind in ACL LOG.
    pub const fn name(self) -> &'static str {
        match self {
            Reason::Database => "database",
            Reason::Command => "command",
            Reason::Key => "key",
            Reason::Channel => "channel",
            Reason::Auth => "auth",
        }
    }
}

/// The context of a refused request, as ACL LOG shows it: a client, a transaction or a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    /// The request came from a client, outside a transaction.
    TopLevel,
    /// The request was part of a transaction: it was refused when it was queued, or when EXEC ran
    /// it.
    Multi,
    /// The request came from a script.
    Script,
}

impl Context {
    /// Returns the name of this context in ACL LOG.
    pub const fn name(self) -> &'static str {
        match self {
            Context::TopLevel => "toplevel",
            Context::Multi => "multi",
            Context::Script => "lua",
        }
    }
}

impl Denial {
    /// Returns the kind of this refusal by access control, as ACL LOG shows it.
    pub const fn reason(self) -> Reason {
        match self {
            Denial::Database(_) => Reason::Database,
            Denial::Command => Reason::Command,
            Denial::Key(_) => Reason::Key,
            Denial::Channel(_) => Reason::Channel,
        }
    }

    /// Returns the object that ACL LOG shows as refused: the key, channel or database argument, or
    /// the command's name.
    pub fn object<'a>(self, registered: &'static Registered, args: &Args<'a>) -> &'a [u8] {
        match self {
            Denial::Command | Denial::Database(0) => registered.full_name.as_bytes(),
            Denial::Key(at) | Denial::Channel(at) | Denial::Database(at) => args.get(at),
        }
    }

    /// Formats the reason of the refusal for the error that a client or script receives, without
    /// the names of keys and channels.
    fn text(self, user: &[u8], registered: &Registered) -> Vec<u8> {
        match self {
            Denial::Database(_) => b"No permissions to access database".to_vec(),
            Denial::Command => command_text(user, registered),
            Denial::Key(_) => b"No permissions to access a key".to_vec(),
            Denial::Channel(_) => b"No permissions to access a channel".to_vec(),
        }
    }

    /// Returns the error reply to a client whose request access control refuses; EXEC replies with
    /// [`Denial::exec_error`] instead.
    #[cold]
    pub fn error(self, user: &[u8], registered: &Registered) -> CommandError {
        CommandError::Bytes([b"NOPERM ".as_slice(), &self.text(user, registered)].concat())
    }

    /// Returns the error that a script receives for a command that access control refuses.
    #[cold]
    pub fn script_error(self, user: &[u8], registered: &Registered) -> CommandError {
        CommandError::Bytes(
            [b"ERR ACL failure in script: ".as_slice(), &self.text(user, registered)].concat(),
        )
    }

    /// Returns the error for a queued command that was permitted when it was queued but no longer
    /// is.
    #[cold]
    pub fn exec_error(self) -> CommandError {
        let reason = match self {
            Denial::Database(_) => "no permission",
            Denial::Command => "no permission to execute the command or subcommand",
            Denial::Key(_) => "no permission to touch the specified keys",
            Denial::Channel(_) => "no permission to access one of the channels used as arguments",
        };
        CommandError::Text(format!(
            "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This \
             command is no longer allowed for the following reason: {reason}"
        ))
    }

    /// Returns the reply of ACL DRYRUN to a request that is refused for this reason.
    pub fn description(self, user: &[u8], registered: &Registered, args: &Args<'_>) -> Vec<u8> {
        let access = b" has no permissions to access ".as_slice();
        match self {
            Denial::Database(at) => [b"User ".as_slice(), user, access, b"database ", args.get(at)].concat(),
            Denial::Command => command_text(user, registered),
            Denial::Key(at) => [b"User ".as_slice(), user, access, b"the '", args.get(at), b"' key"].concat(),
            Denial::Channel(at) => {
                [b"User ".as_slice(), user, access, b"the '", args.get(at), b"' channel"].concat()
            }
        }
    }
}

fn command_text(user: &[u8], registered: &Registered) -> Vec<u8> {
    let name = registered.full_name.as_bytes();
    [b"User ".as_slice(), quotable(user), b" has no permissions to run the '", name, b"' command"].concat()
}
