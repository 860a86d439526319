//! The virtual machine of scripts: the Lua state of one thread, with its compiled scripts and
//! loaded libraries.

use std::ffi::CStr;

use resp::{Protocol, Reply};
use stdx::ByteQueue;

use crate::commands::{Commands, Stop};
use crate::debug;
use crate::debug_state::DebugClient;
use crate::flags::{FunctionInfo, ScriptFlags, parse_script_line};
use crate::library::parse_library_line;
use crate::lua::{Stack, State, Type};
use crate::options::VmOptions;
use crate::reply::{error_fields, error_line, one_line, write_reply};
use crate::sandbox::{
    self, ARGV_NAME, ARGV_TABLE, CHUNKS, FUNCTION_GLOBALS, GLOBALS, HANDLER, KEYS_NAME, KEYS_TABLE,
    LAST_PLACE, LIBRARIES, LIBRARY_SHELL, LOADING_GLOBALS, REGISTERED,
};
use crate::sha::{Sha, ShaMap};

/// The arguments of one call of a script or function, and the client's protocol.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The names of keys that the caller passes (`KEYS`).
    pub keys: &'a [&'a [u8]],
    /// The arguments of the call that are not keys (`ARGV`).
    pub args: &'a [&'a [u8]],
    /// The protocol of the client that gets the reply.
    pub protocol: Protocol,
}

/// An error reply of a script, as a line without its `-`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorReply {
    /// The error line, such as `ERR user_script:1: … script: …, on @user_script:1.`
    pub line: Vec<u8>,
    /// True if the error statistics already count a command inside the script for this error.
    pub counted: bool,
}

/// The reason why the run of a script ended without a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunError {
    /// The script has failed; contains the error reply.
    Error(ErrorReply),
    /// The script was stopped by [`crate::Stop::Killed`]; contains the error reply.
    Killed(ErrorReply),
    /// The script was stopped by [`crate::Stop::Again`], to be run again; no reply was written.
    Again,
    /// The script or function is not loaded in this `Vm`. The caller must compile or load it first.
    Missing,
}

/// The reason why a script does not compile: a line without its `-`, as Redis writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileError(pub Vec<u8>);

/// The reason why a library does not load: a line without its `-`, as Redis writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LibraryError(pub Vec<u8>);

/// A library of functions, which was checked by loading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    /// The name of the library, from the first line of its text.
    pub name: Vec<u8>,
    /// The functions of the library, in the order of their registration.
    pub functions: Vec<FunctionInfo>,
    /// The whole text of the library, its first line included.
    pub code: Vec<u8>,
}

/// The names of a function and of its library.
#[derive(Clone, Copy, Debug)]
pub struct FunctionName<'a> {
    /// The name of the library that has the function.
    pub library: &'a [u8],
    /// The name of the function that is called.
    pub function: &'a [u8],
}

/// The Lua state of one thread, with its compiled scripts and loaded libraries.
pub struct Vm {
    state: State,
    /// The index of each compiled script in the Lua table of compiled scripts (`CHUNKS`).
    chunks: ShaMap<i32>,
    /// The indices of removed scripts in the Lua table of compiled scripts (`CHUNKS`), to be used
    /// again.
    free: Vec<i32>,
    /// The highest index in the Lua table of compiled scripts (`CHUNKS`) that was assigned so far.
    last: i32,
}

/// A global variable of scripts that is a table of texts.
///
/// Creating a table takes longer than filling it. So the table of the last run is used again if it
/// has slots for exactly the new number of texts. All its slots are overwritten, so scripts cannot
/// distinguish it from a new table.
///
/// No script can keep this table for a later script. All values that outlive a run are read-only,
/// so nothing can refer to the table after the run.
struct GlobalList {
    /// The stack index of the name of the global variable.
    name: i32,
    /// The stack index of the table of texts; nil before the first run.
    table: i32,
}

impl GlobalList {
    /// Sets the global variable to a Lua table of these texts.
    fn set(&self, stack: &mut Stack, texts: &[&[u8]]) {
        if !stack.refill_texts(self.table, texts) {
            stack.push_texts(texts);
            stack.replace(self.table);
            stack.push_value(self.name);
            stack.push_value(self.table);
            stack.raw_set(GLOBALS);
        }
    }
}

/// The global variables `KEYS` and `ARGV` of scripts.
const KEYS_AND_ARGV: [GlobalList; 2] =
    [GlobalList { name: KEYS_NAME, table: KEYS_TABLE }, GlobalList { name: ARGV_NAME, table: ARGV_TABLE }];

const SCRIPT_NAME: &CStr = c"@user_script";
const LIBRARY_NAME: &CStr = c"@user_function";

impl Vm {
    /// Creates a Lua state with the sandbox. Takes about 100 µs and 100 KB.
    pub fn new(options: &VmOptions) -> Self {
        let mut state = State::new(options.memory_limit_bytes);
        sandbox::open(&mut state, options);
        Self { state, chunks: ShaMap::default(), free: Vec::new(), last: 0 }
    }

    /// Creates a Lua state for a single run of a script that a client debugs.
    pub fn debugged(options: &VmOptions, script: &[u8], client: Box<dyn DebugClient>) -> Self {
        let mut vm = Self::new(options);
        debug::begin(&mut vm.state, script, client);
        vm
    }

    /// Notifies the client that debugs the script that the session has ended. The script's reply
    /// follows.
    pub fn end_debugging(&mut self) {
        debug::end(&mut self.state);
    }

    /// Compiles a script and keeps it under its name. O(bytes).
    pub fn compile(&mut self, sha: &Sha, body: &[u8]) -> Result<ScriptFlags, CompileError> {
        let (flags, code) =
            parse_script_line(body).map_err(|text| CompileError([b"ERR ", text.as_slice()].concat()))?;
        if !self.chunks.contains_key(sha) {
            let stack = self.state.stack();
            let loaded = stack.load(code, SCRIPT_NAME);
            if loaded.is_err() {
                let text = one_line(&pop_text(stack));
                let line = [b"ERR Error compiling script (new function): ", text.as_slice()];
                return Err(CompileError(line.concat()));
            }
            let number = self.free.pop().unwrap_or_else(|| {
                self.last += 1;
                self.last
            });
            stack.raw_set_at(CHUNKS, number);
            self.chunks.insert(*sha, number);
        }
        Ok(flags)
    }

    /// Returns true if the script is compiled in this `Vm`.
    pub fn contains(&self, sha: &Sha) -> bool {
        self.chunks.contains_key(sha)
    }

    /// Returns the number of compiled scripts in this `Vm`.
    pub fn script_count(&self) -> usize {
        self.chunks.len()
    }

    /// Removes a compiled script from this `Vm`, to free memory; does nothing if it is not
    /// compiled.
    pub fn evict(&mut self, sha: &Sha) {
        if let Some(number) = self.chunks.remove(sha) {
            let stack = self.state.stack();
            stack.push_nil();
            stack.raw_set_at(CHUNKS, number);
            self.free.push(number);
        }
    }

    /// Removes up to `scripts_max` compiled scripts; returns true if some are left. To remove many
    /// scripts, creating a new state is faster.
    pub fn clear_some(&mut self, scripts_max: usize) -> bool {
        let victims: Vec<Sha> = self.chunks.keys().take(scripts_max).copied().collect();
        for sha in &victims {
            self.evict(sha);
        }
        !self.chunks.is_empty()
    }

    /// Runs a compiled script. Appends its reply to `reply`; an error is returned and not appended.
    pub fn run(
        &mut self,
        sha: &Sha,
        call: &Call<'_>,
        commands: &mut dyn Commands,
        reply: &mut ByteQueue,
    ) -> Result<(), RunError> {
        let number = *self.chunks.get(sha).ok_or(RunError::Missing)?;
        self.state.context().in_function.set(false);
        let [keys, args] = &KEYS_AND_ARGV;
        let ended = self.state.with_commands(commands, |stack| {
            keys.set(stack, call.keys);
            args.set(stack, call.args);
            stack.raw_get_at(CHUNKS, number);
            end(stack, 0, call, reply)
        });
        self.finish(ended, &RunName { name: sha.as_bytes() })
    }

    /// Loads a library (FUNCTION LOAD): runs its code, which registers its functions. If that
    /// fails, nothing changes: a loaded library of the same name stays.
    ///
    /// Names of functions are checked within the library only; the registry checks the other
    /// libraries.
    pub fn load_library(
        &mut self,
        code: &[u8],
        commands: &mut dyn Commands,
    ) -> Result<Library, LibraryError> {
        let failed = |text: &[u8]| LibraryError([b"ERR ", text].concat());
        let line = parse_library_line(code).map_err(|text| failed(&text))?;
        let context = self.state.context();
        context.registered.take();
        context.loading.set(true);
        let bottom = self.state.stack().top();
        let loaded = self.state.with_commands(commands, |stack| load(stack, &code[line.code_start..]));
        let context = self.state.context();
        context.loading.set(false);
        let functions = context.registered.take().into_functions();
        let stopped = self.state.stopped();
        let stack = self.state.stack();
        sandbox::set_library_globals(stack, FUNCTION_GLOBALS);
        let result = match loaded {
            _ if stopped.is_some() => Err(failed(b"Error registering functions: ERR FUNCTION LOAD timeout")),
            Err(text) => Err(failed(&one_line(&text))),
            Ok(()) if functions.is_empty() => Err(failed(b"No functions registered")),
            Ok(()) => {
                keep_functions(stack, &line.name, &functions);
                Ok(Library { name: line.name, functions, code: code.to_vec() })
            }
        };
        for at in (1..=stack.len(REGISTERED) as i32).rev() {
            stack.push_nil();
            stack.raw_set_at(REGISTERED, at);
        }
        stack.set_top(bottom);
        result
    }

    /// Returns true if the library is loaded in this `Vm`.
    pub fn contains_library(&mut self, library: &[u8]) -> bool {
        let stack = self.state.stack();
        stack.raw_get_field(LIBRARIES, library);
        let contains = stack.kind(-1) == Type::Table;
        stack.pop(1);
        contains
    }

    /// Calls a function of a loaded library. Appends its reply to `reply`; an error is returned and
    /// not appended.
    pub fn call_function(
        &mut self,
        name: &FunctionName<'_>,
        call: &Call<'_>,
        commands: &mut dyn Commands,
        reply: &mut ByteQueue,
    ) -> Result<(), RunError> {
        if !self.contains_library(name.library) {
            return Err(RunError::Missing);
        }
        self.state.context().in_function.set(true);
        let ended = self.state.with_commands(commands, |stack| {
            stack.raw_get_field(LIBRARIES, name.library);
            stack.raw_get_field(-1, name.function);
            stack.remove(-2);
            if stack.kind(-1) != Type::Function {
                return RunEnd::Missing;
            }
            stack.push_texts(call.keys);
            stack.push_texts(call.args);
            end(stack, 2, call, reply)
        });
        self.finish(ended, &RunName { name: name.function })
    }

    /// Removes a library from this `Vm`; does nothing if it is not loaded.
    pub fn drop_library(&mut self, library: &[u8]) {
        let stack = self.state.stack();
        stack.push_nil();
        stack.raw_set_field(LIBRARIES, library);
    }

    /// Sets the memory limit of this Lua state, in bytes. `None` is no limit.
    pub fn set_memory_limit(&mut self, limit_bytes: Option<usize>) {
        self.state.context().set_limit(limit_bytes);
    }

    /// Returns the memory that this Lua state holds, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.state.used_bytes()
    }

    /// Returns true if scripts use too much memory even after a garbage collection: more than
    /// `floor_bytes` plus half of the memory limit. `floor_bytes` is the memory of the state
    /// without scripts. The caller then evicts compiled scripts, to make room for new ones.
    pub fn is_crowded(&mut self, floor_bytes: usize) -> bool {
        let limit_bytes = self.state.context().limit_bytes();
        let threshold_bytes = floor_bytes + limit_bytes.saturating_sub(floor_bytes) / 2;
        if self.memory_bytes() > threshold_bytes {
            self.collect_garbage();
        }
        self.memory_bytes() > threshold_bytes
    }

    /// Runs a whole garbage collection of the Lua state. Meant for idle time.
    pub fn collect_garbage(&mut self) {
        self.state.collect();
    }

    /// Resets Lua's stack and converts the end of a script's run into the caller's result.
    fn finish(&mut self, ended: RunEnd, ran: &RunName<'_>) -> Result<(), RunError> {
        self.state.stack().set_top(LAST_PLACE);
        self.state.collect_if_large();
        match self.state.stopped() {
            Some(Stop::Again) => return Err(RunError::Again),
            Some(Stop::Killed) => return Err(RunError::Killed(ran.killed(self.state.stopped_at()))),
            None => {}
        }
        match ended {
            RunEnd::Replied => Ok(()),
            RunEnd::Missing => Err(RunError::Missing),
            RunEnd::Error(error) => Err(RunError::Error(error)),
            RunEnd::Failed { message, place, counted } => {
                Err(RunError::Error(ErrorReply { line: ran.line(message, place), counted }))
            }
            RunEnd::Broken(text) => {
                let text = &text[..text.len().min(100)];
                let line = [b"ERR Error running script ", ran.name, b", ", text].concat();
                Err(RunError::Error(ErrorReply { line: one_line(&line), counted: false }))
            }
        }
    }
}

/// The way in which a run of a script or function has ended.
enum RunEnd {
    /// The script or function has written its reply.
    Replied,
    /// The called function does not exist in the library.
    Missing,
    /// The script has returned an error table as its reply.
    Error(ErrorReply),
    /// The script has raised an error.
    Failed { message: Vec<u8>, place: Option<(Vec<u8>, Vec<u8>)>, counted: bool },
    /// The run has ended with an error that the error handler did not convert to a table, such as
    /// out of memory.
    Broken(Vec<u8>),
}

/// Pops an error from Lua's stack. Returns its text, or `execution failure` if it is not a text.
fn pop_text(stack: &mut Stack) -> Vec<u8> {
    let text = stack.text(-1).unwrap_or(b"execution failure").to_vec();
    stack.pop(1);
    text
}

/// Calls the script or function on Lua's stack and writes its result as the reply.
fn end(stack: &mut Stack, args: i32, call: &Call<'_>, reply: &mut ByteQueue) -> RunEnd {
    if stack.call_with_handler(args, 1, HANDLER).is_err() {
        if stack.kind(-1) != Type::Table {
            return RunEnd::Broken(pop_text(stack));
        }
        let fields = error_fields(stack);
        let message = one_line(&fields.message);
        return RunEnd::Failed { message, place: fields.place, counted: fields.counted };
    }
    if stack.kind(-1) == Type::Table {
        stack.raw_get_field(-1, b"err");
        let is_error = stack.kind(-1) == Type::String;
        stack.pop(1);
        if is_error {
            let fields = error_fields(stack);
            return RunEnd::Error(ErrorReply { line: error_line(&fields.message), counted: fields.counted });
        }
    }
    let protocol = stack.context().protocol.get();
    write_reply(stack, &mut Reply::new(reply, call.protocol), protocol, 0);
    RunEnd::Replied
}

/// Compiles and runs the text of a library. The error is an error line without its `ERR`.
fn load(stack: &mut Stack, code: &[u8]) -> Result<(), Vec<u8>> {
    sandbox::set_library_globals(stack, LOADING_GLOBALS);
    if stack.load(code, LIBRARY_NAME).is_err() {
        return Err([b"Error compiling function: ", pop_text(stack).as_slice()].concat());
    }
    stack.push_value(LIBRARY_SHELL);
    stack.set_environment(-2);
    if stack.call(0, 0).is_err() {
        let text = match stack.kind(-1) {
            Type::Table => error_fields(stack).message,
            _ => [b"ERR ", pop_text(stack).as_slice()].concat(),
        };
        return Err([b"Error registering functions: ", text.as_slice()].concat());
    }
    Ok(())
}

/// Stores the Lua functions that a library has registered, under the library's name.
fn keep_functions(stack: &mut Stack, library: &[u8], functions: &[FunctionInfo]) {
    stack.push_table(0, functions.len());
    for (at, function) in functions.iter().enumerate() {
        stack.raw_get_at(REGISTERED, at as i32 + 1);
        stack.raw_set_field(-2, &function.name);
    }
    stack.raw_set_field(LIBRARIES, library);
}

/// The script or function that runs. `name` is its name in errors.
struct RunName<'a> {
    name: &'a [u8],
}

impl RunName<'_> {
    fn killed(&self, at: Option<(Vec<u8>, i32)>) -> ErrorReply {
        // Redis has the same text for functions.
        let message = b"ERR Script killed by user with SCRIPT KILL...".to_vec();
        let line = match at {
            Some((source, line)) => self.line(message, Some((source, line.to_string().into_bytes()))),
            // The script was stopped in Lua's allocator, which does not record the place.
            None => [&message, b" script: ".as_slice(), self.name].concat(),
        };
        ErrorReply { line, counted: false }
    }

    /// Appends the script's name and the place of the error, if it is known, to an error message;
    /// returns the error line.
    fn line(&self, mut message: Vec<u8>, place: Option<(Vec<u8>, Vec<u8>)>) -> Vec<u8> {
        if let Some((source, line)) = place {
            let place = [b" script: ", self.name, b", on ", &source, b":", &line, b"."];
            message.extend_from_slice(&place.concat());
        }
        message
    }
}
