//! The script engine of a thread: finds, compiles and runs Lua scripts and functions.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use commands::CommandError;
use engine::log::target::Targets;
use engine::scripting::{
    Lesson, Prepared, ScriptCall, ScriptCommands, ScriptEnd, ScriptEngine, ScriptServerState, ScriptTraits,
    Source,
};
use engine::scripts::ScriptKind;
use resp::Protocol;
use script::{
    Call, Commands, DebugClient, FunctionName, LogLevel, NoSuchCall, Repl, RunError, ScriptFlags, Sha,
    ShaMap, Stop, Vm,
};
use stdx::ByteQueue;

use crate::scripting::cache::CachedScript;
use crate::scripting::compiler::log;
use crate::scripting::functions::{LoadedFunction, LoadedLibrary, Loader};
use crate::scripting::vm_options;
use crate::shared::Shared;

/// Maximum number of compiled scripts that a thread keeps; the same number applies to functions. A
/// script that was dropped is compiled again when it is used.
const COMPILED_MAX: usize = 2048;

/// Minimum change of a thread's Lua memory, in bytes, after which the new value is reported for
/// INFO.
const NOTED_BYTES: usize = 32 * 1024;

/// A script or function that is ready to run. References to it are counted with `Rc`, because only
/// one thread uses them. With `Arc`, all threads would write the same reference count at each call.
#[derive(Clone)]
enum Current {
    Script(Rc<Compiled>),
    Function(Rc<Found>),
}

/// A script that this thread has compiled in its Lua state.
struct Compiled {
    script: Arc<CachedScript>,
    name: Rc<[u8]>,
}

/// A function whose library this thread has loaded.
struct Found {
    function: LoadedFunction,
    name: Rc<[u8]>,
}

/// The script engine of a thread: its Lua state, with the compiled scripts and the loaded
/// libraries.
pub struct ThreadScripts {
    shared: Arc<Shared>,
    vm: Option<Vm>,
    /// The scripts that this thread has compiled, by their SHA1.
    compiled: ShaMap<Rc<Compiled>>,
    /// The functions that were called so far, by name. They belong to version `functions_version`
    /// of the libraries, and are dropped when the version changes.
    functions: HashMap<Vec<u8>, Rc<Found>>,
    functions_version: u64,
    /// The libraries that this thread's Lua state has loaded: their ids by their names.
    libraries: HashMap<Vec<u8>, u64>,
    /// The memory of the Lua state, in bytes, when it was last reported for INFO.
    noted_bytes: usize,
    /// The memory of the Lua state in bytes after all scripts were last dropped from it; 0 if that
    /// never happened or a library was loaded since.
    floor_bytes: usize,
    /// The script or function that the last `prepare` has found, and that the next `run` executes.
    current: Option<Current>,
}

impl ThreadScripts {
    /// Creates the script engine of a thread. The Lua state is created for the first script.
    pub fn new(shared: &Arc<Shared>) -> Self {
        Self {
            shared: Arc::clone(shared),
            vm: None,
            compiled: ShaMap::default(),
            functions: HashMap::new(),
            functions_version: 0,
            libraries: HashMap::new(),
            noted_bytes: 0,
            floor_bytes: 0,
            current: None,
        }
    }

    /// Creates a script engine for one run of a script that a client debugs.
    pub fn debugged(shared: &Arc<Shared>, script: &[u8], client: Box<dyn DebugClient>) -> Self {
        let mut scripts = Self::new(shared);
        scripts.vm = Some(Vm::debugged(&vm_options(), script, client));
        scripts
    }

    /// Returns the compiled script with digest `sha`. If this thread has not compiled it, compiles
    /// the text in the script cache or, if that has none, `body`. Without either, returns the error
    /// NOSCRIPT. Drops all compiled scripts first if the Lua state uses too much memory.
    fn find(&mut self, sha: Sha, body: Option<&[u8]>) -> Result<Rc<Compiled>, CommandError> {
        let cache = &self.shared.script_cache;
        if let Some(found) = self.compiled.get(&sha) {
            if !found.script.is_removed() {
                cache.note_use(&found.script);
                return Ok(Rc::clone(found));
            }
            self.compiled.remove(&sha);
            if let Some(vm) = &mut self.vm {
                vm.evict(&sha);
            }
        }
        let vm = self.vm.get_or_insert_with(|| Vm::new(&vm_options()));
        if !self.compiled.is_empty() && vm.is_crowded(self.floor_bytes) {
            self.compiled.clear();
            vm.clear_some(usize::MAX);
            vm.collect_garbage();
            self.floor_bytes = vm.memory_bytes();
        }
        let compile =
            |vm: &mut Vm, body: &[u8]| vm.compile(&sha, body).map_err(|error| CommandError::Bytes(error.0));
        let script = match (cache.find(&sha), body) {
            (Some(script), _) => {
                compile(vm, &script.body)?;
                script
            }
            (None, Some(body)) => {
                let flags = compile(vm, body)?;
                cache.add_evaluated(sha, body, flags)
            }
            (None, None) => {
                return Err(CommandError::Line("NOSCRIPT No matching script. Please use EVAL."));
            }
        };
        Ok(self.keep(script))
    }

    /// Adds a compiled script to the table, and returns it. If the table is full, first drops an
    /// eighth of the other scripts, and those that were removed from the cache.
    fn keep(&mut self, script: Arc<CachedScript>) -> Rc<Compiled> {
        if self.compiled.len() >= COMPILED_MAX {
            let vm = &mut self.vm;
            let mut victims = COMPILED_MAX / 8;
            self.compiled.retain(|sha, kept| {
                let stays = !kept.script.is_removed() && victims == 0;
                if !stays {
                    victims = victims.saturating_sub(1);
                    if let Some(vm) = vm {
                        vm.evict(sha);
                    }
                }
                stays
            });
        }
        let compiled = Rc::new(Compiled { name: script.sha.as_bytes().into(), script });
        self.compiled.insert(compiled.script.sha, Rc::clone(&compiled));
        compiled
    }
}

impl ThreadScripts {
    fn prepare_function(&mut self, name: &[u8]) -> Result<Prepared, CommandError> {
        let found = self.find_function(name)?;
        let function = &found.function;
        let prepared = Prepared {
            kind: ScriptKind::Function,
            name: Rc::clone(&found.name),
            traits: traits(function.info.flags),
            known: function.learned.begin(),
        };
        self.current = Some(Current::Function(found));
        Ok(prepared)
    }

    /// Returns the function with this name; an error if there is none. Loads its library into the
    /// Lua state if this thread has not done so yet.
    fn find_function(&mut self, name: &[u8]) -> Result<Rc<Found>, CommandError> {
        let version = self.shared.persistence.functions_version();
        if self.functions_version != version || self.functions.len() >= COMPILED_MAX {
            self.functions.clear();
            self.functions_version = version;
        }
        if let Some(found) = self.functions.get(name) {
            return Ok(Rc::clone(found));
        }
        let loaded = self.shared.functions.read(&self.shared.persistence);
        let function = loaded.function(name).cloned();
        drop(loaded);
        let function = function.ok_or(CommandError::Line("ERR Function not found"))?;
        let LoadedLibrary { id, library } = &*function.library;
        if self.libraries.get(&library.name) != Some(id) {
            let vm = self.vm.get_or_insert_with(|| Vm::new(&vm_options()));
            let loaded = self.shared.functions.read(&self.shared.persistence);
            self.libraries.retain(|name, _| {
                let stays = loaded.libraries.contains_key(name);
                if !stays {
                    vm.drop_library(name);
                }
                stays
            });
            drop(loaded);
            // A dropped library gives memory back, so the last floor may be too high.
            self.floor_bytes = 0;
            vm.load_library(&library.code, &mut Loader::now())
                .map_err(|error| CommandError::Bytes(error.0))?;
            self.libraries.insert(library.name.clone(), *id);
        }
        let found = Rc::new(Found { name: function.info.name.as_slice().into(), function });
        self.functions.insert(name.to_vec(), Rc::clone(&found));
        Ok(found)
    }
}

impl ScriptEngine for ThreadScripts {
    fn prepare(&mut self, source: Source<'_>) -> Result<Prepared, CommandError> {
        let script = match source {
            Source::Text(body) => self.find(Sha::of(body), Some(body))?,
            Source::Digest(digest) => {
                let sha = Sha::parse(digest)
                    .ok_or(CommandError::Line("NOSCRIPT No matching script. Please use EVAL."))?;
                self.find(sha, None)?
            }
            Source::Function(name) => return self.prepare_function(name),
        };
        let prepared = Prepared {
            kind: ScriptKind::Script,
            name: Rc::clone(&script.name),
            traits: traits(script.script.flags),
            known: script.script.learned.begin(),
        };
        self.current = Some(Current::Script(script));
        Ok(prepared)
    }

    fn run(
        &mut self,
        call: &ScriptCall<'_>,
        commands: &mut dyn ScriptCommands,
        reply: &mut ByteQueue,
    ) -> ScriptEnd {
        let (Some(vm), Some(current)) = (&mut self.vm, &self.current) else {
            return failed(b"ERR internal error: the script was not prepared");
        };
        vm.set_memory_limit(call.lua_bytes_max);
        let call = Call { keys: call.keys, args: call.args, protocol: call.protocol };
        let mut server = Server { shared: &self.shared, commands };
        let ended = match current {
            Current::Script(compiled) => vm.run(&compiled.script.sha, &call, &mut server, reply),
            Current::Function(found) => {
                let library = &found.function.library.library.name;
                let name = FunctionName { library, function: &found.name };
                vm.call_function(&name, &call, &mut server, reply)
            }
        };
        let bytes = vm.memory_bytes();
        if bytes.abs_diff(self.noted_bytes) >= NOTED_BYTES {
            self.shared.script_cache.note_vm(std::mem::replace(&mut self.noted_bytes, bytes), bytes);
        }
        match ended {
            Ok(()) => ScriptEnd::Replied,
            Err(RunError::Error(error) | RunError::Killed(error)) => {
                ScriptEnd::Failed { line: error.line, is_counted: error.counted }
            }
            Err(RunError::Again) => ScriptEnd::Again,
            Err(RunError::Missing) => failed(b"NOSCRIPT No matching script. Please use EVAL."),
        }
    }

    fn learn(&mut self, lesson: Lesson) {
        match &self.current {
            Some(Current::Script(compiled)) => compiled.script.learned.learn(lesson),
            Some(Current::Function(found)) => found.function.learned.learn(lesson),
            None => {}
        }
    }

    fn end_debugging(&mut self) {
        if let Some(vm) = &mut self.vm {
            vm.end_debugging();
        }
    }
}

impl Drop for ThreadScripts {
    fn drop(&mut self) {
        self.shared.script_cache.note_vm(self.noted_bytes, 0);
    }
}

/// Converts the flags that a script or function declares to the engine's [`ScriptTraits`].
fn traits(flags: ScriptFlags) -> ScriptTraits {
    let mut traits = ScriptTraits::empty();
    for (flag, is) in [
        (ScriptFlags::NO_WRITES, ScriptTraits::NO_WRITES),
        (ScriptFlags::ALLOW_OOM, ScriptTraits::ALLOW_OOM),
        (ScriptFlags::ALLOW_STALE, ScriptTraits::ALLOW_STALE),
        (ScriptFlags::COMPATIBLE, ScriptTraits::COMPATIBLE),
    ] {
        traits.set(is, flags.contains(flag));
    }
    traits
}

fn failed(line: &[u8]) -> ScriptEnd {
    ScriptEnd::Failed { line: line.to_vec(), is_counted: false }
}

/// The functions of the server that a running script can call. They are the host of the Lua state.
struct Server<'a> {
    shared: &'a Shared,
    commands: &'a mut dyn ScriptCommands,
}

fn stop(why: engine::scripting::Stop) -> Stop {
    match why {
        engine::scripting::Stop::Killed => Stop::Killed,
        engine::scripting::Stop::Again => Stop::Again,
    }
}

impl Commands for Server<'_> {
    fn call(&mut self, words: &[&[u8]], protocol: Protocol) -> Result<&[u8], Stop> {
        self.commands.call(words, protocol).map_err(stop)
    }

    fn was_refused(&self) -> bool {
        self.commands.was_refused()
    }

    fn interrupt(&mut self) -> Result<(), Stop> {
        let Shared { engine, stopping, .. } = self.shared;
        let is_ending = stopping.load(Relaxed) || engine.server_state.is_stopping.load(Relaxed);
        let server_state = if is_ending { ScriptServerState::Ending } else { ScriptServerState::Running };
        self.commands.interrupt(server_state).map_err(stop)
    }

    fn log(&mut self, level: LogLevel, message: &[u8]) {
        log(level, message);
    }

    fn set_repl(&mut self, repl: Repl) {
        let mut to = Targets::empty();
        to.set(Targets::FILE, repl.aof);
        to.set(Targets::REPLICAS, repl.replicas);
        if !repl.replicas {
            self.shared.replication.primary().forbid_return();
        }
        self.commands.propagate(to);
    }

    fn acl_check_cmd(&mut self, words: &[&[u8]]) -> Result<bool, NoSuchCall> {
        self.commands.may_run(words).map_err(|why| match why {
            engine::scripting::NoSuchCall::Command => NoSuchCall::Command,
            engine::scripting::NoSuchCall::Arity => NoSuchCall::Arity,
        })
    }
}
