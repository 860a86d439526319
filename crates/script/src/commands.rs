//! What scripts ask of the server while they run.

use resp::Protocol;

/// The server, as a running script sees it.
pub trait Commands {
    /// Runs a command (`redis.call`, `redis.pcall`) and gives the reply, in RESP of `protocol`. An
    /// error is a reply `-…`: `redis.call` raises it. `Err` ends the script at once, and nothing in
    /// it can catch that.
    fn call(&mut self, words: &[&[u8]], protocol: Protocol) -> Result<&[u8], Stop>;

    /// Asked every some thousand instructions, and from inside long work that is not Lua code.
    fn interrupt(&mut self) -> Result<(), Stop>;

    /// Whether the last command was refused before it ran: what the debugger says differs then.
    fn was_refused(&self) -> bool {
        false
    }

    /// `redis.log`: a line for the log; the server filters by its own level.
    fn log(&mut self, level: LogLevel, message: &[u8]);

    /// `redis.set_repl`: where the writes that follow are propagated to.
    fn set_repl(&mut self, repl: Repl);

    /// `redis.acl_check_cmd`: whether the script's user may run this.
    ///
    /// # Errors
    /// Nobody can.
    fn acl_check_cmd(&mut self, words: &[&[u8]]) -> Result<bool, NoSuchCall>;
}

/// Why nobody can call a command so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoSuchCall {
    /// There is no such command.
    Command,
    /// It takes another number of arguments.
    Arity,
}

/// Why a script ends before its end, with no way for it to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// SCRIPT KILL or FUNCTION KILL. The client gets Redis' error about that.
    Killed,
    /// The script runs again, for example alone: [`crate::RunError::Again`], without a reply.
    Again,
}

/// The level of a line of `redis.log`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// `redis.LOG_DEBUG`
    Debug,
    /// `redis.LOG_VERBOSE`
    Verbose,
    /// `redis.LOG_NOTICE`
    Notice,
    /// `redis.LOG_WARNING`
    Warning,
}

/// Where a script's writes are propagated to (`redis.set_repl`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repl {
    /// To the append-only file.
    pub aof: bool,
    /// To replicas.
    pub replicas: bool,
}
