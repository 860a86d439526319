//! The interface between the engine and its scripts. The engine does not depend on Lua: a thread's
//! [`ScriptEngine`] runs the script, and calls commands through [`ScriptCommands`].

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use bitflags::bitflags;
use commands::CommandError;
use resp::Protocol;
use stdx::ByteQueue;

use crate::log::target::Targets;
use crate::scripts::ScriptKind;

/// The script that a request names: by text, digest or function name.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// The text of the script itself (EVAL).
    Text(&'a [u8]),
    /// The SHA1 digest of the script's text (EVALSHA).
    Digest(&'a [u8]),
    /// The name of a function of a library (FCALL).
    Function(&'a [u8]),
}

bitflags! {
    /// The properties that a script declares by its flags, for the checks before it runs.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ScriptTraits: u8 {
        /// The script declares that it changes no data (`no-writes`).
        const NO_WRITES = 1;
        /// The script declares that it may run while memory is over its limit (`allow-oom`).
        const ALLOW_OOM = 1 << 1;
        /// The script declares no flags, as in versions before Redis 7: each of its commands is
        /// checked by itself.
        const COMPATIBLE = 1 << 2;
        /// The script declares that it may run on a replica that is not connected to its primary,
        /// although clients may not read old data there (`allow-stale`).
        const ALLOW_STALE = 1 << 3;
    }
}

/// A script or function that was found and compiled, and is about to run.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The kind of the prepared code: a script or a function.
    pub kind: ScriptKind,
    /// The digest of the script, or the name of the function.
    pub name: Rc<[u8]>,
    /// The properties that the script declares by its flags.
    pub traits: ScriptTraits,
    /// The kind of run (under locks, or as the exclusive owner) that the script needs, as far as
    /// its earlier runs have shown.
    pub known: Known,
}

/// The kind of run (under locks, or as the exclusive owner) that a script needs, as far as its
/// earlier runs have shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// No earlier run is known: the script runs under the locks of its keys if it declares keys.
    Nothing,
    /// An earlier run used only a few keys: the script runs under their locks, in parallel with
    /// others.
    Shares,
    /// The script must run as the exclusive owner of the keyspace.
    Alone,
}

/// The result of a script's run that determines how later runs are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lesson {
    /// The script ended by itself and used only a few keys, so that it can run under locks.
    Shares,
    /// The script used a command that needs the whole keyspace.
    NeedsAll,
    /// The script needed more than `SHARDS_MAX` shards, or was about to change a value too big to
    /// copy. The next [`ALONE_RUNS`] runs are made as the exclusive owner of the keyspace; then it
    /// may run under locks again.
    NeedsMuch,
}

/// The number of runs that a script makes as the exclusive owner of the keyspace after it needed
/// many shards or a big copy.
const ALONE_RUNS: u32 = 100;
/// The value of `alone_runs` with which a script always runs as the exclusive owner of the
/// keyspace.
const ALWAYS: u32 = u32::MAX;

/// The results of the earlier runs of a script or function, shared by all threads.
#[derive(Default)]
pub struct Learned {
    /// The number of future runs that must be made as the exclusive owner of the keyspace;
    /// [`ALWAYS`] for all of them.
    alone_runs: AtomicU32,
    /// True if a run ended by itself and needed only a few keys.
    shares: AtomicBool,
}

impl Learned {
    /// Returns the kind (under locks, or as the exclusive owner of the keyspace) of the script's
    /// next run. If it is a run as the exclusive owner, decrements `alone_runs`.
    pub fn begin(&self) -> Known {
        match self.alone_runs.load(Relaxed) {
            0 if self.shares.load(Relaxed) => return Known::Shares,
            0 => return Known::Nothing,
            ALWAYS => {}
            // Relaxed: a lost update does no harm.
            left => self.alone_runs.store(left - 1, Relaxed),
        }
        Known::Alone
    }

    /// Stores the result of a script's run for its later runs.
    pub fn learn(&self, lesson: Lesson) {
        match lesson {
            Lesson::Shares => self.shares.store(true, Relaxed),
            Lesson::NeedsAll => self.alone_runs.store(ALWAYS, Relaxed),
            Lesson::NeedsMuch => _ = self.alone_runs.fetch_max(ALONE_RUNS, Relaxed),
        }
    }
}

/// The keys and arguments of a call of a script.
#[derive(Clone, Copy, Debug)]
pub struct ScriptCall<'a> {
    /// The declared keys of the call, `KEYS` in Lua.
    pub keys: &'a [&'a [u8]],
    /// The arguments of the call that are not keys, `ARGV` in Lua.
    pub args: &'a [&'a [u8]],
    /// The protocol of the client that receives the reply.
    pub protocol: Protocol,
    /// The memory limit of the thread's Lua interpreter, in bytes; `None` for no limit.
    pub lua_bytes_max: Option<usize>,
}

/// The result of a run of a script: a reply, an error, or that it must run again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScriptEnd {
    /// The script returned a reply, which was appended to the output.
    Replied,
    /// The script failed: it raised an error, or returned one.
    Failed {
        /// The error line of the script, without its `-`.
        line: Vec<u8>,
        /// True if the error was already counted when a command inside the script failed with it.
        is_counted: bool,
    },
    /// The run of the script was stopped by [`Stop::Again`], without a reply; it must run again.
    Again,
}

/// The script engine of a thread, which compiles scripts and runs them in Lua.
pub trait ScriptEngine {
    /// Finds and compiles a script, and keeps it for [`ScriptEngine::run`].
    ///
    /// # Errors
    /// The error to reply with: the script does not exist or does not compile.
    fn prepare(&mut self, source: Source<'_>) -> Result<Prepared, CommandError>;

    /// Runs the script that was prepared last. Appends its reply to `reply`, but not an error.
    fn run(
        &mut self,
        call: &ScriptCall<'_>,
        commands: &mut dyn ScriptCommands,
        reply: &mut ByteQueue,
    ) -> ScriptEnd;

    /// Stores what a run has shown about the script that was prepared last, for its later runs.
    fn learn(&mut self, lesson: Lesson);

    /// Sends the client of a debugged script the end of the debug session.
    fn end_debugging(&mut self) {}
}

/// The interface that the engine offers to a running script.
pub trait ScriptCommands {
    /// Runs a command of the script. Returns its reply, which may be an error, in RESP of
    /// `protocol`.
    ///
    /// # Errors
    /// The script must end at once, for the reason in [`Stop`].
    fn call(&mut self, words: &[&[u8]], protocol: Protocol) -> Result<&[u8], Stop>;

    /// Returns true if the script's last command was refused before it ran.
    fn was_refused(&self) -> bool;

    /// Checks if the script may continue. Called every few thousand instructions of the script. If
    /// the server is about to end without saving, the script's changes must not be added to the
    /// change log.
    ///
    /// # Errors
    /// The script must end at once, for the reason in [`Stop`].
    fn interrupt(&mut self, server: ScriptServerState) -> Result<(), Stop>;

    /// Sets the targets of the change log for the following commands of the script, until the
    /// script ends (`redis.set_repl`).
    fn propagate(&mut self, to: Targets);

    /// Returns true if the script's user may run this command.
    ///
    /// # Errors
    /// There is no such command.
    fn may_run(&mut self, words: &[&[u8]]) -> Result<bool, NoSuchCall>;
}

/// The reason for which a command cannot be called with these words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoSuchCall {
    /// No command or subcommand has the name in the words.
    Command,
    /// The number of words is wrong for the command.
    Arity,
}

/// The mode that a client has set by SCRIPT DEBUG.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Debugging {
    /// Scripts of the client are not debugged.
    Off,
    /// Scripts are debugged, and the changes that they make are discarded (YES).
    Discarding,
    /// Scripts are debugged, and the changes that they make are kept (SYNC).
    Sync,
}

/// The state of the server, as a running script must know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptServerState {
    /// The server continues to run, so the script may continue.
    Running,
    /// The server is about to end, so the running script must stop.
    Ending,
}

/// The reason for which a running script is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// A client has killed the script (SCRIPT KILL), or the server ends.
    Killed,
    /// The run of the script ends here, and the script must run again from the beginning: with more
    /// locks, or as the exclusive owner of the keyspace.
    Again,
}
