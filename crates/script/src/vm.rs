//! One thread's Lua: compiled scripts, loaded libraries, and running them.

use std::collections::HashMap;

use mlua::chunk::ChunkMode;
use mlua::{Function, Lua};
use resp::{Protocol, Reply};
use stdx::ByteQueue;

use crate::commands::Commands;
use crate::flags::{ScriptFlags, parse_script_line};
use crate::sha::Sha;

/// What scripts can ask about the server, and what bounds them.
#[derive(Clone, Debug)]
pub struct VmOptions {
    /// `redis.REDIS_VERSION`: the version of Redis that we are compatible with.
    pub redis_version: String,
    /// `redis.REDIS_VERSION_NUM`: that version as a number, 0xMMmmpp.
    pub redis_version_number: u32,
    /// `server.SERVER_NAME`.
    pub server_name: String,
    /// `server.SERVER_VERSION`: our own version.
    pub server_version: String,
    /// The memory of one thread's Lua at which scripts fail with `not enough memory`.
    pub memory_limit_bytes: Option<usize>,
}

/// What a script or function is called with.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// `KEYS`.
    pub keys: &'a [&'a [u8]],
    /// `ARGV`.
    pub args: &'a [&'a [u8]],
    /// The protocol of the client that gets the reply.
    pub protocol: Protocol,
}

/// An error line without its `-`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorReply {
    /// The line, such as `ERR user_script:1: … script: …, on @user_script:1.`
    pub line: Vec<u8>,
    /// Whether a command inside the script has been counted for this error already.
    pub counted: bool,
}

/// How a run ended other than with a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunError {
    /// The script failed, and this is the reply.
    Error(ErrorReply),
    /// [`crate::Stop::Killed`], and this is the reply.
    Killed(ErrorReply),
    /// [`crate::Stop::Again`]: no reply was written.
    Again,
    /// No such script or function is loaded here: compile or load it first.
    Missing,
}

/// Why a script does not compile: a line without its `-`, as Redis writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileError(pub Vec<u8>);

/// Why a library does not load: a line without its `-`, as Redis writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LibraryError(pub Vec<u8>);

/// A function of a library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionInfo {
    /// What FCALL calls it.
    pub name: Vec<u8>,
    /// Its description, if it has one.
    pub description: Option<Vec<u8>>,
    /// Its flags.
    pub flags: ScriptFlags,
}

/// A library, validated by loading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    /// The name of its first line.
    pub name: Vec<u8>,
    /// Its functions, in the order of their registration.
    pub functions: Vec<FunctionInfo>,
    /// Its whole text.
    pub code: Vec<u8>,
}

/// One thread's Lua.
pub struct Vm {
    lua: Lua,
    chunks: HashMap<Sha, Function>,
}

impl Vm {
    /// A Lua state with the sandbox. Some 100 µs, 100 KB.
    pub fn new(_options: VmOptions) -> Self {
        Self { lua: Lua::new(), chunks: HashMap::new() }
    }

    /// Compiles a script and keeps it under its name. O(bytes).
    pub fn compile(&mut self, sha: &Sha, body: &[u8]) -> Result<ScriptFlags, CompileError> {
        let (flags, code) =
            parse_script_line(body).map_err(|text| CompileError([b"ERR ", text.as_slice()].concat()))?;
        if !self.chunks.contains_key(sha) {
            let chunk = self.lua.load(code).set_name("@user_script").set_mode(ChunkMode::Text);
            let function = chunk.into_function().map_err(|error| {
                CompileError(format!("ERR Error compiling script (new function): {error}").into_bytes())
            })?;
            self.chunks.insert(*sha, function);
        }
        Ok(flags)
    }

    /// Whether the script is compiled here.
    pub fn contains(&self, sha: &Sha) -> bool {
        self.chunks.contains_key(sha)
    }

    /// How many scripts are compiled here.
    pub fn script_count(&self) -> usize {
        self.chunks.len()
    }

    /// Forgets a script.
    pub fn evict(&mut self, sha: &Sha) {
        self.chunks.remove(sha);
    }

    /// Forgets up to `scripts_max` scripts; whether some are left. A new state is faster for many.
    pub fn clear_some(&mut self, scripts_max: usize) -> bool {
        let victims: Vec<Sha> = self.chunks.keys().take(scripts_max).copied().collect();
        for sha in &victims {
            self.chunks.remove(sha);
        }
        !self.chunks.is_empty()
    }

    /// Runs a compiled script; its reply is appended to `reply`, an error is not.
    pub fn run(
        &mut self,
        sha: &Sha,
        call: &Call<'_>,
        _commands: &mut dyn Commands,
        reply: &mut ByteQueue,
    ) -> Result<(), RunError> {
        let function = self.chunks.get(sha).ok_or(RunError::Missing)?;
        let number: Option<i64> = function.call(()).map_err(|error| {
            let line = format!("ERR {error}").into_bytes();
            RunError::Error(ErrorReply { line, counted: false })
        })?;
        match number {
            Some(number) => Reply::new(reply, call.protocol).integer(number),
            None => Reply::new(reply, call.protocol).null(),
        }
        Ok(())
    }

    /// Loads a library (FUNCTION LOAD): its code runs and registers its functions. Nothing is kept
    /// when it fails. A library of the same name stays until [`Vm::drop_library`]: `name`s of
    /// functions are checked within the library only, other libraries are the registry's business.
    pub fn load_library(
        &mut self,
        _code: &[u8],
        _commands: &mut dyn Commands,
    ) -> Result<Library, LibraryError> {
        Err(LibraryError(b"ERR not implemented".to_vec()))
    }

    /// Whether the library is loaded here.
    pub fn contains_library(&self, _library: &[u8]) -> bool {
        false
    }

    /// Calls a function of a loaded library; its reply is appended to `reply`, an error is not.
    pub fn call_function(
        &mut self,
        _name: &FunctionName<'_>,
        _call: &Call<'_>,
        _commands: &mut dyn Commands,
        _reply: &mut ByteQueue,
    ) -> Result<(), RunError> {
        Err(RunError::Missing)
    }

    /// Forgets a library.
    pub fn drop_library(&mut self, _library: &[u8]) {}

    /// The memory of this Lua state in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.lua.used_memory()
    }

    /// A whole garbage collection: for idle time.
    pub fn collect_garbage(&mut self) {
        // An error of a finalizer: scripts cannot define any.
        let _ = self.lua.gc_collect();
    }
}

/// A function and its library.
#[derive(Clone, Copy, Debug)]
pub struct FunctionName<'a> {
    /// The library.
    pub library: &'a [u8],
    /// The function.
    pub function: &'a [u8],
}
