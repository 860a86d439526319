//! The checks before a command runs, in the order of Redis. The functions change nothing. They
//! report that a command needs memory, but the caller frees it.

use commands::error::quotable;
use commands::table::Flags;
use commands::{Args, CommandError};
use resp::Protocol;

use crate::session::Session;
use crate::table::{Registered, Runner, Verb};

/// The effect that a request may have on data, by which CLIENT PAUSE WRITE decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The request may change data, or must be sent to replicas: CLIENT PAUSE WRITE postpones it.
    MayWrite,
    /// The request changes nothing, or it is part of a unit (such as a transaction) that was
    /// already checked.
    Harmless,
}

impl Effect {
    /// Returns the effect that a command with these flags may have.
    pub fn of(flags: Flags) -> Self {
        if flags.intersects(Flags::WRITE | Flags::MAY_REPLICATE) { Self::MayWrite } else { Self::Harmless }
    }
}

/// A request that is refused before it runs, and the error reply.
pub struct Refused {
    /// The command or, if the request names one, its subcommand.
    pub registered: &'static Registered,
    /// The error with which the request is refused.
    pub error: CommandError,
}

/// Checks the subcommand and the number of arguments of a request with an existing command. Returns
/// the command or, if the request names one, its subcommand.
///
/// The caller then checks the rights ([`crate::rights`]), the memory ([`needs_memory`]) and the
/// subscriber mode ([`subscriber_refusal`]).
///
/// # Errors
/// The reason for which the request is refused.
#[inline]
pub fn check(registered: &'static Registered, args: &Args<'_>) -> Result<&'static Registered, Refused> {
    let mut registered = registered;
    if !registered.subcommands.is_empty() && args.len() > 1 {
        match registered.subcommand(args.get(1)) {
            Some(sub) => registered = sub,
            None => return Err(unknown_subcommand(registered, args)),
        }
    }
    if !registered.command.accepts(args.len()) {
        return Err(Refused { registered, error: CommandError::WrongArity(registered.full_name) });
    }
    Ok(registered)
}

#[cold]
fn unknown_subcommand(registered: &'static Registered, args: &Args<'_>) -> Refused {
    let error = CommandError::UnknownSubcommand(args.get(1).to_vec(), registered.command.name);
    Refused { registered, error }
}

/// Returns true if a command is refused while memory is over the limit `maxmemory`.
#[inline]
pub fn needs_memory(session: &Session, registered: &Registered) -> bool {
    flags_of(session, registered).contains(Flags::DENYOOM)
}

/// Returns true if a client may run only the commands for subscribers, see [`subscriber_refusal`].
#[inline]
pub fn is_subscriber(session: &Session) -> bool {
    session.subscriptions.is_some() && session.protocol() == Protocol::Resp2
}

/// Returns the flags of a command. For EXEC, returns the union of its own flags and the flags of
/// all queued commands.
#[inline]
pub fn flags_of(session: &Session, registered: &Registered) -> Flags {
    let flags = registered.command.flags;
    match (&session.transaction, registered.command.run) {
        (Some(transaction), Runner::Transaction(Verb::Exec)) => flags | transaction.flags(),
        _ => flags,
    }
}

/// Returns the flags of a command. For EXEC, returns the flags that every queued command has.
pub fn common_flags_of(session: &Session, registered: &Registered) -> Flags {
    let flags = registered.command.flags;
    match (&session.transaction, registered.command.run) {
        (Some(transaction), Runner::Transaction(Verb::Exec)) => flags & transaction.common_flags(),
        _ => flags,
    }
}

/// Returns true if a command runs a script, or is an EXEC with a queued command that does.
#[inline]
pub fn runs_scripts(session: &Session, registered: &Registered) -> bool {
    match (registered.command.run, &session.transaction) {
        (Runner::Script(_), _) => true,
        (Runner::Transaction(Verb::Exec), Some(transaction)) => transaction.has_scripts(),
        _ => false,
    }
}

/// Returns true if CLIENT PAUSE WRITE postpones this command.
pub fn writes(session: &Session, registered: &Registered) -> bool {
    Effect::of(flags_of(session, registered)) == Effect::MayWrite
}

/// Returns true if a command reads or writes keys. Clients that have sent MONITOR may not run such
/// commands.
pub fn uses_keys(registered: &Registered) -> bool {
    registered.command.flags.intersects(Flags::READONLY | Flags::WRITE | Flags::MAY_REPLICATE)
}

/// Returns true if a command is queued inside a transaction instead of being run.
pub fn is_queued(registered: &Registered) -> bool {
    match registered.command.run {
        Runner::Transaction(verb) => verb == Verb::Unwatch,
        Runner::Data(_) | Runner::Walk(_) | Runner::Script(_) | Runner::Host(_) => {
            !registered.command.flags.contains(Flags::UNQUEUED)
        }
    }
}

/// Returns the error if a command is not permitted for a subscriber that uses RESP2. In RESP2, a
/// client could not distinguish the reply from a message.
#[cold]
pub fn subscriber_refusal(registered: &Registered) -> Option<CommandError> {
    let allowed = registered.command.flags.intersects(Flags::SUBSCRIPTION | Flags::FOR_SUBSCRIBERS);
    (!allowed).then(|| {
        CommandError::Text(format!(
            "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in \
             this context",
            registered.full_name
        ))
    })
}

/// Returns true if a request is a line of HTTP. A web page can make a browser send such lines,
/// followed by commands. The connection is closed before these commands run, as in Redis.
pub fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

/// The maximum number of bytes that the error for an unknown command quotes of its name. The same
/// limit applies to all its arguments together.
const QUOTED_LEN_MAX: usize = 128;

/// Returns the error for a request whose first word is not the name of a command.
#[cold]
pub fn unknown_command(args: &Args<'_>) -> CommandError {
    let mut line = b"ERR unknown command '".to_vec();
    let name = quotable(args.get(0));
    line.extend_from_slice(&name[..name.len().min(QUOTED_LEN_MAX)]);
    line.extend_from_slice(b"', with args beginning with: ");
    let end = line.len() + QUOTED_LEN_MAX;
    for arg in args.from(1) {
        let Some(room) = end.checked_sub(line.len()).filter(|&room| room > 0) else { break };
        let arg = quotable(arg);
        line.push(b'\'');
        line.extend_from_slice(&arg[..arg.len().min(room)]);
        line.extend_from_slice(b"' ");
    }
    CommandError::Bytes(line)
}
