//! The interface of the engine and a script. The engine knows no Lua: a thread's [`ScriptEngine`]
//! runs the text, and asks for commands by [`ScriptCommands`].

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use bitflags::bitflags;
use commands::CommandError;
use resp::Protocol;
use stdx::ByteQueue;

use crate::scripts::ScriptKind;

/// The script that a client means.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// Its text (EVAL).
    Text(&'a [u8]),
    /// The digest of its text (EVALSHA).
    Digest(&'a [u8]),
    /// A function's name (FCALL).
    Function(&'a [u8]),
}

bitflags! {
    /// The traits that a script declares.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ScriptTraits: u8 {
        /// It changes no data.
        const NO_WRITES = 1;
        /// It may run when memory is full.
        const ALLOW_OOM = 1 << 1;
        /// It says nothing: each of its commands is checked by itself.
        const COMPATIBLE = 1 << 2;
    }
}

/// A script that may run: found, and compiled.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// Script or function.
    pub kind: ScriptKind,
    /// Its digest, or the function's name.
    pub name: Rc<[u8]>,
    /// Its declared traits.
    pub traits: ScriptTraits,
    /// The lessons of its earlier runs.
    pub known: Known,
}

/// The knowledge about a script from its earlier runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Nothing: it runs under locks if it declares keys.
    Nothing,
    /// It needs no more than some keys: it runs under locks.
    Shares,
    /// It runs alone.
    Alone,
}

/// A lesson of a run for the next ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lesson {
    /// It came to its end and needed no more than some keys.
    Shares,
    /// It needs the whole keyspace.
    NeedsAll,
    /// It used many keys, or changed a value too big to keep a copy of: the next runs may not.
    NeedsMuch,
}

/// The number of runs of a script that are alone after it needed much.
const ALONE_RUNS: u32 = 100;
/// The script always runs alone.
const ALWAYS: u32 = u32::MAX;

/// The knowledge about a script or function from its earlier runs.
#[derive(Default)]
pub struct Learned {
    /// The number of next runs that are alone.
    alone_runs: AtomicU32,
    /// It came to its end and needed no more than some keys.
    shares: AtomicBool,
}

impl Learned {
    /// Returns the knowledge for the next run; one that is alone counts.
    pub fn begin(&self) -> Known {
        match self.alone_runs.load(Relaxed) {
            0 if self.shares.load(Relaxed) => return Known::Shares,
            0 => return Known::Nothing,
            ALWAYS => {}
            // Relaxed, and lost counts do no harm.
            left => self.alone_runs.store(left - 1, Relaxed),
        }
        Known::Alone
    }

    /// Notes what a run has taught.
    pub fn learn(&self, lesson: Lesson) {
        match lesson {
            Lesson::Shares => self.shares.store(true, Relaxed),
            Lesson::NeedsAll => self.alone_runs.store(ALWAYS, Relaxed),
            Lesson::NeedsMuch => _ = self.alone_runs.fetch_max(ALONE_RUNS, Relaxed),
        }
    }
}

/// The arguments of a script.
#[derive(Clone, Copy, Debug)]
pub struct ScriptCall<'a> {
    /// `KEYS`.
    pub keys: &'a [&'a [u8]],
    /// `ARGV`.
    pub args: &'a [&'a [u8]],
    /// The protocol of the client that gets the reply.
    pub protocol: Protocol,
    /// The memory limit of the thread's Lua, in bytes.
    pub lua_bytes_max: Option<usize>,
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScriptEnd {
    /// With a reply, which was appended.
    Replied,
    /// With an error: a line without its `-`.
    Failed {
        /// The line.
        line: Vec<u8>,
        /// A command inside of the script was counted for it already.
        is_counted: bool,
    },
    /// By [`Stop::Again`], without a reply.
    Again,
}

/// A thread's scripts.
pub trait ScriptEngine {
    /// Finds and compiles a script, and remembers it for [`ScriptEngine::run`].
    ///
    /// # Errors
    /// What to reply with: there is none, or it does not compile.
    fn prepare(&mut self, source: Source<'_>) -> Result<Prepared, CommandError>;

    /// Runs the script that was prepared last; its reply is appended to `reply`, an error is not.
    fn run(
        &mut self,
        call: &ScriptCall<'_>,
        commands: &mut dyn ScriptCommands,
        reply: &mut ByteQueue,
    ) -> ScriptEnd;

    /// Notes what a run of the script that was prepared last has taught.
    fn learn(&mut self, lesson: Lesson);

    /// Tells the client that debugs a script that this is over.
    fn end_debugging(&mut self) {}
}

/// The engine, as a running script sees it.
pub trait ScriptCommands {
    /// Runs a command and gives its reply in RESP of `protocol`; an error is a reply.
    ///
    /// # Errors
    /// The script ends at once.
    fn call(&mut self, words: &[&[u8]], protocol: Protocol) -> Result<&[u8], Stop>;

    /// Returns true if the last command was refused before it ran.
    fn was_refused(&self) -> bool;

    /// Checks if the script may continue, every some thousand instructions. The server may be
    /// about to end, without a save: then nothing of the script shall be in the change log.
    ///
    /// # Errors
    /// The script ends at once.
    fn interrupt(&mut self, server: Standing) -> Result<(), Stop>;

    /// Sets the destination of its writes from now on, until it ends.
    fn propagate(&mut self, to: Propagation);

    /// Returns true if the script's user may run this command.
    ///
    /// # Errors
    /// There is no such command.
    fn may_run(&mut self, words: &[&[u8]]) -> Result<bool, NoSuchCall>;
}

/// Why nobody can call a command so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoSuchCall {
    /// There is no such command.
    Command,
    /// It takes another number of arguments.
    Arity,
}

/// The destination of a script's writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// To the change log.
    Log,
    /// Nowhere: they are in the data only.
    Nowhere,
}

/// The debugging of a client's scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Debugging {
    /// They are not.
    Off,
    /// They are, and what they change is dropped (YES).
    Discarding,
    /// They are, and what they change stays (SYNC).
    Sync,
}

/// The state of the server: it continues or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It does.
    Running,
    /// It ends.
    Ending,
}

/// Why a script ends before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Somebody has killed it.
    Killed,
    /// It runs again from the beginning, alone.
    Again,
}
