//! The script engine of a simulated thread: the real Lua. Each thread of a run has its own Lua
//! state, in which a script is compiled when it first runs. All threads share the properties
//! learned about each script's text (such as its undeclared keys), as in a server.
//!
//! Each command of a script begins with a yield point, so another thread may continue there. Each
//! simulated thread has its own stack, which also has Lua's frames, so this is an ordinary switch.
//! A panic must not unwind through these frames: it is delayed until Lua has returned.

use std::any::Any;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};

use commands::CommandError;
use engine::log::target::Targets;
use engine::scripting::{
    self, Learned, Lesson, Prepared, ScriptCall, ScriptCommands, ScriptEnd, ScriptEngine, ScriptServerState,
    ScriptTraits, Source, Stop,
};
use engine::scripts::ScriptKind;
use resp::Protocol;
use script::{Call, Commands, LogLevel, NoSuchCall, Repl, RunError, Sha, Vm, VmOptions};
use stdx::ByteQueue;

/// The properties learned about each script, such as its undeclared keys, by the SHA-1 of its text.
/// Its lock is a leaf: no other lock is taken under it. A thread of the simulator does not yield at
/// it.
#[derive(Clone, Default)]
pub(super) struct ScriptFacts(Arc<Mutex<HashMap<Sha, Arc<Learned>>>>);

/// The script engine of a simulated thread: see the module.
pub(super) struct SimulatedScripts {
    lessons: ScriptFacts,
    vm: Option<Vm>,
    /// The script that this engine prepared last: the SHA-1 of its text, and the properties learned
    /// about it.
    current: Option<(Sha, Arc<Learned>)>,
}

impl SimulatedScripts {
    /// Creates the script engine of one thread. Its Lua state is created when the first script
    /// runs.
    pub fn new(lessons: &ScriptFacts) -> Self {
        Self { lessons: lessons.clone(), vm: None, current: None }
    }
}

fn options() -> VmOptions {
    let text = || "simulated".to_owned();
    VmOptions {
        redis_version: text(),
        redis_version_number: 0,
        server_name: text(),
        server_version: text(),
        memory_limit_bytes: None,
    }
}

impl ScriptEngine for SimulatedScripts {
    fn prepare(&mut self, source: Source<'_>) -> Result<Prepared, CommandError> {
        let Source::Text(body) = source else { return Err(CommandError::Line("ERR unknown here")) };
        let sha = Sha::of(body);
        let vm = self.vm.get_or_insert_with(|| Vm::new(&options()));
        vm.compile(&sha, body).map_err(|error| CommandError::Bytes(error.0))?;
        let learned = {
            let mut lessons = self.lessons.0.lock().expect("nothing panics while it is locked");
            Arc::clone(lessons.entry(sha).or_default())
        };
        let (name, known) = (sha.as_bytes().into(), learned.begin());
        self.current = Some((sha, learned));
        Ok(Prepared { kind: ScriptKind::Script, name, traits: ScriptTraits::COMPATIBLE, known })
    }

    fn run(
        &mut self,
        call: &ScriptCall<'_>,
        commands: &mut dyn ScriptCommands,
        reply: &mut ByteQueue,
    ) -> ScriptEnd {
        let (Some(vm), Some((sha, _))) = (&mut self.vm, &self.current) else {
            unreachable!("a script was prepared")
        };
        let call = Call { keys: call.keys, args: call.args, protocol: call.protocol };
        let mut server = Server { commands, panic: None };
        let ended = vm.run(sha, &call, &mut server, reply);
        if let Some(panic) = server.panic {
            resume_unwind(panic);
        }
        match ended {
            Ok(()) => ScriptEnd::Replied,
            Err(RunError::Error(error) | RunError::Killed(error)) => {
                ScriptEnd::Failed { line: error.line, is_counted: error.counted }
            }
            Err(RunError::Again) => ScriptEnd::Again,
            Err(RunError::Missing) => unreachable!("it was compiled"),
        }
    }

    fn learn(&mut self, lesson: Lesson) {
        if let Some((_, learned)) = &self.current {
            learned.learn(lesson);
        }
    }
}

/// The functions of the engine that the running script calls: commands and the server's log.
struct Server<'a> {
    commands: &'a mut dyn ScriptCommands,
    panic: Option<Box<dyn Any + Send>>,
}

fn stop(why: Stop) -> script::Stop {
    match why {
        Stop::Killed => script::Stop::Killed,
        Stop::Again => script::Stop::Again,
    }
}

impl Commands for Server<'_> {
    fn call(&mut self, words: &[&[u8]], protocol: Protocol) -> Result<&[u8], script::Stop> {
        let commands = &mut *self.commands;
        let called = catch_unwind(AssertUnwindSafe(move || {
            shuttle::thread::yield_now();
            let engine = commands;
            engine.call(words, protocol)
        }));
        match called {
            Ok(reply) => reply.map_err(stop),
            Err(panic) => {
                self.panic = Some(panic);
                Err(script::Stop::Killed)
            }
        }
    }

    fn interrupt(&mut self) -> Result<(), script::Stop> {
        self.commands.interrupt(ScriptServerState::Running).map_err(stop)
    }

    fn log(&mut self, _: LogLevel, _: &[u8]) {}

    fn set_repl(&mut self, repl: Repl) {
        let mut to = Targets::empty();
        to.set(Targets::FILE, repl.aof);
        to.set(Targets::REPLICAS, repl.replicas);
        self.commands.propagate(to);
    }

    fn acl_check_cmd(&mut self, words: &[&[u8]]) -> Result<bool, NoSuchCall> {
        self.commands.may_run(words).map_err(|error| match error {
            scripting::NoSuchCall::Command => NoSuchCall::Command,
            scripting::NoSuchCall::Arity => NoSuchCall::Arity,
        })
    }
}
