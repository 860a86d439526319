//! The interface through which running scripts use the server: commands, the log, access control.

use resp::Protocol;

/// The server, as a running script uses it: commands, log and access control.
pub trait Commands {
    /// Runs a command (`redis.call`, `redis.pcall`) and returns its reply, encoded in RESP of
    /// `protocol`. A failed command returns an error reply `-…`, which `redis.call` raises. `Err`
    /// ends the script at once, and the script cannot catch it.
    fn call(&mut self, words: &[&[u8]], protocol: Protocol) -> Result<&[u8], Stop>;

    /// Asks the server if the script may continue; returns `Err` if it must end. Called about every
    /// 10,000 instructions, and from inside long work that is not Lua code.
    fn interrupt(&mut self) -> Result<(), Stop>;

    /// Returns true if the last command was refused before it ran. The debugger then logs it
    /// differently.
    fn was_refused(&self) -> bool {
        false
    }

    /// Handles `redis.log`: writes a line to the log. The server filters by its own log level.
    fn log(&mut self, level: LogLevel, message: &[u8]);

    /// Handles `redis.set_repl`: sets the targets to which later writes are propagated.
    fn set_repl(&mut self, repl: Repl);

    /// Handles `redis.acl_check_cmd`: returns true if the script's user may run this command.
    ///
    /// Returns an error if no such command exists.
    fn acl_check_cmd(&mut self, words: &[&[u8]]) -> Result<bool, NoSuchCall>;
}

/// The reason why a script cannot call a command with the given words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoSuchCall {
    /// No command or subcommand has the given name.
    Command,
    /// The number of arguments is wrong for the command that the script names.
    Arity,
}

/// The reason why a script is stopped early. The script cannot continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// SCRIPT KILL or FUNCTION KILL has stopped the script. The client gets Redis' error for it.
    Killed,
    /// The server has stopped the script to run it again, for example while no other thread
    /// accesses the keyspace. The run ends with [`crate::RunError::Again`] and without a reply.
    Again,
}

/// The level of a line that a script writes to the server's log by `redis.log`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// The level `redis.LOG_DEBUG`.
    Debug,
    /// The level `redis.LOG_VERBOSE`.
    Verbose,
    /// The level `redis.LOG_NOTICE`.
    Notice,
    /// The level `redis.LOG_WARNING`.
    Warning,
}

/// The targets to which a script's writes are propagated (`redis.set_repl`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repl {
    /// True if writes are propagated to the append-only file.
    pub aof: bool,
    /// True if writes are propagated to replicas.
    pub replicas: bool,
}
