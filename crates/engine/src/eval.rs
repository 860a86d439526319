//! EVAL, FCALL and related commands: each script runs as one unit of the change log, through the
//! executor of all commands.
//!
//! ```text
//!   prepared ─► declared keys locked ─► run; further keys' shards locked if free ─► unit logged,
//!        │                               │ one is not: undone, run again              released
//!        │                               │ needs the whole keyspace: undone              ▲
//!        └─ known to need that ─► alone ◄┘ ─► run ─────────────────────────────────────┘
//! ```
//! The locks are held until the end of the script (two-phase locking). A key that the script did
//! not declare is locked when it is first used, but only if the shard's lock is free. The script
//! never waits for it, so there is no deadlock. If another thread holds the lock, the run ends at
//! once. Its writes are undone from copies that were taken before the first write to each key
//! ([`Images`]). Nothing of the run was logged or released, so no client has seen it. Then the
//! script runs again from the beginning, with all keys locked that it is known to use. A script
//! that needs the whole keyspace runs as the exclusive owner (`alone`), and so do later calls of it
//! from their start.
//!
//! A script without declared keys first runs as the exclusive owner. If it never ends, it stops all
//! clients, as users of Redis expect. After a run that ended by itself, later runs use locks.
//!
//! Three effects of an undone run remain: invalidations of cached keys, changed access clocks, and
//! counts of calls. Watchers are marked as dirty only when the script has ended. Keys that the run
//! found expired are put back, because their removal was not logged.

use std::time::{Duration, Instant};

use commands::record::forms::RecordedForm;
use commands::table::{Acl, Arg, Arity, Command, Flags, Group, History, KeyFlags, KeySpec};
use commands::{Args, CommandError, Origin};
use keyspace::gate::SharedPass;
use keyspace::key::KeyHash;
use keyspace::{Key, KeyEntry, Locked, SizeMark, View};
use resp::Protocol;
use resp::parse::Span;
use smallvec::SmallVec;
use stdx::ByteQueue;
use structures::table::Thin as _;

use crate::acl::{AclRequest, Context, Denial};
use crate::alone::NotAlone;
use crate::call::Host;
use crate::check::Effect;
use crate::clock::Clock;
use crate::debugging::{ACROSS_DATABASES, Debugged, HARMLESS, Original};
use crate::images::Images;
use crate::log::target::Targets;
use crate::owned_args::OwnedArgs;
use crate::pass::TurnPass;
use crate::request::Request;
use crate::rights::Denied;
use crate::run::{Executor, lock_blocked_clients_keys};
use crate::script_buffers::ScriptBuffers;
use crate::script_refusals::ScriptRefusals;
use crate::scripting::{
    Debugging, Known, Lesson, NoSuchCall, Prepared, ScriptCall, ScriptCommands, ScriptEnd, ScriptEngine,
    ScriptServerState, ScriptTraits, Source, Stop,
};
use crate::scripts::{Script, ScriptName};
use crate::session::Session;
use crate::table::{Registered, Runner, ScriptVerb};

/// Returns the commands that run scripts, to be added to the server's table of all commands.
pub fn commands() -> impl Iterator<Item = Command<Runner>> {
    COMMANDS.iter().map(|command| command.map(Runner::Script))
}

/// The command table's entries of the commands that run scripts.
static COMMANDS: &[&Command<ScriptVerb>] = &[&EVAL, &EVALSHA, &EVAL_RO, &EVALSHA_RO, &FCALL, &FCALL_RO];

/// The key specification of the commands whose scripts may write.
const WRITTEN: KeySpec =
    KeySpec::counted(2, 0, 1, KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::UPDATE));
/// The key specification of the commands whose scripts only read.
const READ: KeySpec = KeySpec::counted(2, 0, 1, KeyFlags::RO.union(KeyFlags::ACCESS));

/// The command flags that all commands that run scripts have.
const SCRIPT_FLAGS: Flags =
    Flags::NOSCRIPT.union(Flags::STALE).union(Flags::SKIP_MONITOR).union(Flags::NO_MANDATORY_KEYS);

static EVAL: Command<ScriptVerb> = Command {
    name: "EVAL",
    summary: "Executes a server-side Lua script.",
    history: History::since("2.6.0"),
    group: Group::Scripting,
    complexity: "Depends on the script that is executed.",
    arity: Arity::AtLeast(3),
    flags: SCRIPT_FLAGS.union(Flags::MAY_REPLICATE),
    acl: Acl::SCRIPTING,
    keys: &[WRITTEN.noting("We cannot tell how the keys will be used so we assume the worst, RW and UPDATE")],
    args: &[
        Arg::string("script"),
        Arg::integer("numkeys"),
        Arg::key("key", 0).multiple().optional(),
        Arg::string("arg").multiple().optional(),
    ],
    run: ScriptVerb::Eval,
    ..Command::DEFAULT
};

static EVALSHA: Command<ScriptVerb> = Command {
    name: "EVALSHA",
    summary: "Executes a server-side Lua script by SHA1 digest.",
    args: &[
        Arg::string("sha1"),
        Arg::integer("numkeys"),
        Arg::key("key", 0).multiple().optional(),
        Arg::string("arg").multiple().optional(),
    ],
    keys: &[WRITTEN],
    run: ScriptVerb::EvalSha,
    ..EVAL
};

static EVAL_RO: Command<ScriptVerb> = Command {
    name: "EVAL_RO",
    summary: "Executes a read-only server-side Lua script.",
    history: History::since("7.0.0"),
    flags: SCRIPT_FLAGS.union(Flags::READONLY),
    keys: &[READ.noting("We cannot tell how the keys will be used so we assume the worst, RO and ACCESS")],
    run: ScriptVerb::EvalRo,
    ..EVAL
};

static EVALSHA_RO: Command<ScriptVerb> = Command {
    name: "EVALSHA_RO",
    summary: "Executes a read-only server-side Lua script by SHA1 digest.",
    args: EVALSHA.args,
    keys: &[READ],
    run: ScriptVerb::EvalShaRo,
    ..EVAL_RO
};

static FCALL: Command<ScriptVerb> = Command {
    name: "FCALL",
    summary: "Invokes a function.",
    history: History::since("7.0.0"),
    complexity: "Depends on the function that is executed.",
    args: &[
        Arg::string("function"),
        Arg::integer("numkeys"),
        Arg::key("key", 0).multiple().optional(),
        Arg::string("arg").multiple().optional(),
    ],
    // As for all scripts, the commands that it runs are recorded.
    recorded_forms: &[RecordedForm::REPLACED],
    run: ScriptVerb::Fcall,
    ..EVAL
};

static FCALL_RO: Command<ScriptVerb> = Command {
    name: "FCALL_RO",
    summary: "Invokes a read-only function.",
    complexity: "Depends on the function that is executed.",
    args: FCALL.args,
    run: ScriptVerb::FcallRo,
    ..EVAL_RO
};

impl ScriptVerb {
    pub(crate) fn source<'a>(self, args: &Args<'a>) -> Source<'a> {
        let script = args.get(1);
        match self {
            Self::Eval | Self::EvalRo => Source::Text(script),
            Self::EvalSha | Self::EvalShaRo => Source::Digest(script),
            Self::Fcall | Self::FcallRo => Source::Function(script),
        }
    }

    /// Returns true if the command runs scripts that may not write.
    pub(crate) fn is_read_only(self) -> bool {
        matches!(self, Self::EvalRo | Self::EvalShaRo | Self::FcallRo)
    }
}

/// The maximum number of blocked clients that are served under a script's locks, for each key of
/// the script.
const SERVED_MAX: usize = 16;
/// The maximum number of runs of a script under locks; after these, it runs as the exclusive owner
/// of the keyspace.
const LOCKED_RUNS_MAX: usize = 3;
/// The maximum number of shards that a script with undeclared keys may lock; beyond it, the script
/// runs as the exclusive owner of the keyspace. Each command of the script searches all locked
/// shards.
const SHARDS_MAX: usize = 32;
/// The number of commands of a script between two checks for SCRIPT KILL and the time limit for
/// busy scripts.
const CALLS_PER_INTERRUPT: u32 = 256;

/// The input of one call of a script, and the keys learned from its earlier runs.
struct Run<'a> {
    request: &'a Args<'a>,
    prepared: &'a Prepared,
    keys: &'a [Key<'a>],
    call: ScriptCall<'a>,
    is_read_only: bool,
    /// The undeclared keys that earlier runs of the script used.
    further: Vec<FurtherKey>,
}

impl Run<'_> {
    /// Returns true if a key is declared or was used by an earlier run, so that its shard was
    /// locked before this run.
    fn knows(&self, key: Key<'_>) -> bool {
        self.keys.iter().any(|known| known.hash == key.hash && known.bytes == key.bytes)
            || self.further.iter().any(|known| known.is(key))
    }
}

impl<'s, C: Clock, H: Host> Executor<'s, C, H> {
    /// Runs a command that executes a script (EVAL, FCALL and similar ones). Returns true if it
    /// succeeded.
    pub(crate) fn run_script(
        &mut self,
        session: &mut Session,
        request: &Request<'_>,
        out: &mut ByteQueue,
        pass: &mut TurnPass<'_, '_>,
    ) -> bool {
        if session.debugging != Debugging::Off
            && let Some(begun) = self.begin_debugging(session, request)
        {
            return match begun {
                Ok(()) => true,
                Err(error) => {
                    self.fail(request.registered, session.protocol(), error, out);
                    false
                }
            };
        }
        let Some(mut engine) = self.scripts.take() else {
            let error = CommandError::Line("ERR this thread cannot run scripts");
            self.fail(request.registered, session.protocol(), error, out);
            return false;
        };
        if self.now.is_monitored {
            // The monitors receive this command before the commands of the script.
            self.send_to_monitors(&session.info, request.registered, &request.args);
        }
        self.origin = Origin::Script;
        let done = self.run_script_with(&mut *engine, session, request, out, pass);
        self.origin = Origin::Client;
        self.scripts = Some(engine);
        match done {
            Ok(succeeded) => succeeded,
            Err(error) => {
                self.fail(request.registered, session.protocol(), error, out);
                false
            }
        }
    }

    /// Starts the script of a client in debug mode on a thread of its own. Returns `None` for
    /// functions, which cannot be debugged.
    #[cold]
    fn begin_debugging(
        &mut self,
        session: &mut Session,
        request: &Request<'_>,
    ) -> Option<Result<(), CommandError>> {
        let Runner::Script(verb) = request.registered.command.run else { return None };
        Some(match verb {
            ScriptVerb::Fcall | ScriptVerb::FcallRo => return None,
            ScriptVerb::EvalSha | ScriptVerb::EvalShaRo => {
                Err(CommandError::Line("ERR Please use EVAL instead of EVALSHA for debugging"))
            }
            ScriptVerb::Eval | ScriptVerb::EvalRo if session.in_exec => {
                Err(CommandError::Line("ERR a script in a transaction cannot be debugged"))
            }
            ScriptVerb::Eval | ScriptVerb::EvalRo => self.host.debug_script(session, &request.args),
        })
    }

    fn run_script_with(
        &mut self,
        engine: &mut dyn ScriptEngine,
        session: &mut Session,
        request: &Request<'_>,
        out: &mut ByteQueue,
        pass: &mut TurnPass<'_, '_>,
    ) -> Result<bool, CommandError> {
        let args = &request.args;
        let Runner::Script(verb) = request.registered.command.run else { return Ok(false) };
        // As in Redis, a function is looked up before the number of keys is parsed, and a script
        // after it.
        let is_function = matches!(verb, ScriptVerb::Fcall | ScriptVerb::FcallRo);
        let count_of_script = if is_function { None } else { Some(key_count(args, verb)?) };
        let prepared = engine.prepare(verb.source(args))?;
        let key_count = count_of_script.map_or_else(|| key_count(args, verb), Ok)?;
        self.check_script(&prepared, verb)?;
        // Filled in place: the result of `collect` would be copied, which costs a tenth of a short
        // script's time.
        let mut words: SmallVec<[&[u8]; 16]> = SmallVec::new();
        words.extend(args.from(3));
        let (keys, arguments) = words.split_at(key_count);
        let mut hashed: SmallVec<[Key<'_>; 8]> = SmallVec::new();
        hashed.extend(request.named_keys());
        let mut run = Run {
            request: args,
            prepared: &prepared,
            keys: &hashed,
            call: ScriptCall {
                keys,
                args: arguments,
                protocol: session.protocol(),
                lua_bytes_max: self.settings.lua_bytes_max,
            },
            is_read_only: verb.is_read_only() || prepared.traits.contains(ScriptTraits::NO_WRITES),
            further: Vec::new(),
        };
        self.script_refusals = ScriptRefusals::default();
        let mut end = Some(ScriptEnd::Again);
        if !session.in_exec && self.may_share(&prepared, keys) {
            end = self.run_script_sharing(engine, &mut run, session, out, pass);
        }
        if end == Some(ScriptEnd::Again) {
            let is_harmless = run.is_read_only || session.in_exec;
            let effect = if is_harmless { Effect::Harmless } else { Effect::MayWrite };
            let ran =
                self.alone(pass, effect, |it, pass| it.run_script_alone(engine, &run, session, out, pass));
            end = match ran {
                Err(reason @ (NotAlone::Paused | NotAlone::Loading)) => {
                    return Ok(self.give_up(session, request.registered, reason, out));
                }
                ran => ran.ok(),
            };
            self.stats().scripts.alone.add(1);
        }
        match end {
            None => Ok(self.refuse_busy(session, request.registered, out)),
            Some(ScriptEnd::Failed { line, is_counted }) => {
                self.counters(request.registered).failed.add(1);
                if is_counted {
                    resp::Reply::new(out, session.protocol()).error_bytes(&line);
                } else {
                    self.refuse(session.protocol(), CommandError::Bytes(line), out);
                }
                Ok(false)
            }
            Some(_) => Ok(true),
        }
    }

    /// Returns true if a script outside a transaction may run under the locks of its keys, while
    /// other threads run commands.
    #[inline]
    fn may_share(&self, prepared: &Prepared, keys: &[&[u8]]) -> bool {
        // With one I/O thread there is no parallel work, and a script that runs as the exclusive
        // owner needs no copies.
        let shares = self.shared().threads.len() > 1
            && match prepared.known {
                Known::Nothing => !keys.is_empty(),
                Known::Shares => true,
                Known::Alone => false,
            };
        shares && !self.now.is_monitored && matches!(self.debugged, Debugged::Not)
    }

    /// Runs a script under the locks of its keys, and repeats it as long as it only needs more
    /// locks. Returns `None` if a busy script holds one of its keys. After [`ScriptEnd::Again`] the
    /// script must run as the exclusive owner of the keyspace.
    fn run_script_sharing(
        &mut self,
        engine: &mut dyn ScriptEngine,
        run: &mut Run<'_>,
        session: &mut Session,
        out: &mut ByteQueue,
        pass: &mut TurnPass<'_, '_>,
    ) -> Option<ScriptEnd> {
        let db = session.db();
        for _ in 0..LOCKED_RUNS_MAX {
            let known_keys = run.further.len();
            let end = self.run_script_locked(engine, run, session, out, pass)?;
            if end != ScriptEnd::Again {
                self.stats().scripts.parallel.add(1);
                return Some(end);
            }
            self.stats().scripts.rerun.add(1);
            // The next attempt starts in the same database.
            session.info.select(db);
            if run.further.len() == known_keys {
                break;
            }
        }
        Some(ScriptEnd::Again)
    }

    /// Locks the shards of a script's declared keys and of the undeclared keys that earlier runs
    /// used. Returns `None` if a busy script holds one of the shards.
    fn lock_for_script(&self, run: &Run<'_>) -> Option<Locked<'s>> {
        let shared = self.shared();
        let mut keys: SmallVec<[Key<'_>; 8]> = SmallVec::new();
        keys.extend(run.keys.iter().copied());
        keys.extend(run.further.iter().map(FurtherKey::key));
        let locked = shared.keyspace.lock_all_of_unless_busy(keys.iter().map(|key| key.hash))?;
        if locked.has_registrations() {
            return lock_blocked_clients_keys(shared, locked, &keys, SERVED_MAX);
        }
        Some(locked)
    }

    /// Runs a script once under the locks of its known keys. Returns `None` if a busy script holds
    /// one of them. [`ScriptEnd::Again`] means that the run was undone. If the script only needs
    /// more locks, the undeclared keys that it used are added to `run`.
    fn run_script_locked(
        &mut self,
        engine: &mut dyn ScriptEngine,
        run: &mut Run<'_>,
        session: &mut Session,
        out: &mut ByteQueue,
        pass: &mut TurnPass<'_, '_>,
    ) -> Option<ScriptEnd> {
        let locked = self.lock_for_script(run)?;
        self.commit.begin_record();
        self.commit.begin_script();
        let is_wanted = self.commit.effects.record.is_wanted;
        let changes = self.commit.effects.changes;
        // No command that runs under locks publishes messages, so none is sent before the script
        // has a log position.
        session.in_exec = true;
        let field_sets = std::mem::take(&mut session.field_sets);
        self.script_refusals.begin_run();
        let mut commands = RunningScript::new(self, run, session, Some(locked), pass);
        let end = commands.run(engine, &run.call, out);
        let RunningScript { locked, is_busy, needs, has_written, is_cut_off, mut buffers, used, .. } =
            commands;
        self.commit.propagation = Targets::all();
        let mut locked = locked.expect("it ran under locks");
        session.in_exec = false;
        session.field_sets = field_sets;
        if is_busy {
            pass.end_busy();
        }
        if (end == ScriptEnd::Again || is_cut_off) && has_written {
            self.undo(&mut locked, &mut buffers.images, changes);
        }
        self.commit.mark_watchers(&mut locked);
        if is_wanted {
            self.commit.log_unit(&locked);
            session.saw(self.commit.position);
            session.wrote(self.commit.own_position);
        }
        if self.commit.is_pending() {
            self.commit.release(session.id);
            self.serve(locked);
        }
        self.script_buffers = buffers.trim();
        if end == ScriptEnd::Again {
            match needs {
                Needs::Lesson(lesson) => engine.learn(lesson),
                Needs::Locks => run.further.extend(used),
            }
        }
        Some(end)
    }

    /// Runs a script as the exclusive owner of the keyspace, by itself or as part of a transaction.
    fn run_script_alone(
        &mut self,
        engine: &mut dyn ScriptEngine,
        run: &Run<'_>,
        session: &mut Session,
        out: &mut ByteQueue,
        pass: &mut TurnPass<'_, '_>,
    ) -> ScriptEnd {
        let is_in_transaction = std::mem::replace(&mut session.in_exec, true);
        // A script begins without fieldsets, and its own end with it.
        let field_sets = std::mem::take(&mut session.field_sets);
        if !is_in_transaction {
            self.commit.position = session.observed_position();
        }
        let changes = self.commit.effects.changes;
        self.script_refusals.begin_run();
        let mut commands = RunningScript::new(self, run, session, None, pass);
        if !matches!(commands.executor.debugged, Debugged::Not) {
            commands.become_busy();
        }
        let end = commands.run(engine, &run.call, out);
        let RunningScript { is_cut_off, buffers, shares, .. } = commands;
        self.script_buffers = buffers.trim();
        self.commit.propagation = Targets::all();
        if shares && end == ScriptEnd::Replied && run.prepared.known == Known::Nothing {
            engine.learn(Lesson::Shares);
        }
        if is_cut_off {
            self.commit.roll_back(changes);
        }
        session.in_exec = is_in_transaction;
        session.field_sets = field_sets;
        if !is_in_transaction {
            let shared = self.shared();
            if shared.log.is_attached() {
                self.commit.log_unit_alone();
                session.saw(self.commit.position);
                session.wrote(self.commit.own_position);
            }
            if self.commit.is_pending() {
                self.commit.release(session.id);
                self.serve(shared.keyspace.lock_none());
            }
        }
        end
    }

    /// Undoes a run of a script: restores the copies of changed keys, the newest first, and
    /// discards the run's change log record and messages. `changes` is the number of changes
    /// counted before the run.
    #[cold]
    fn undo(&mut self, locked: &mut Locked<'_>, images: &mut Images, changes: u64) {
        let caller_context = self.undo_context();
        images.take_back(|db, key, entry| {
            let keyspace = &self.commit.shared.keyspace;
            let results = &mut self.commit.access_results;
            let mut view = View::new(keyspace, locked, db, caller_context, results);
            match entry {
                Some(entry) => view.replace(key, entry),
                None => drop(view.remove_even_expired(key)),
            }
        });
        self.commit.roll_back(changes);
    }
}

impl<'s, C: Clock, H: Host> Executor<'s, C, H> {
    /// Makes this executor run a single script in debug mode. With an `original`, the script works
    /// on copies of the keys that it uses; otherwise on the data itself.
    pub fn debug(&mut self, original: Option<Original<'s>>) {
        self.debugged = match original {
            Some(original) => Debugged::Apart(Box::new(original)),
            None => Debugged::Alone,
        };
    }

    /// Runs EVAL or EVAL_RO for a client in debug mode, after [`Executor::debug`], and sends the
    /// client the end of the session. The caller then merges the change log.
    pub fn run_debugged(
        &mut self,
        session: &mut Session,
        request: &Request<'_>,
        out: &mut ByteQueue,
        pass: &mut SharedPass<'_>,
    ) {
        let pass = &mut TurnPass::new(pass);
        // The client's own thread has already counted the command as called.
        self.run_script(session, request, out, pass);
        self.end_unlocked(session.id);
        self.end_turn();
        if let Some(scripts) = &mut self.scripts {
            scripts.end_debugging();
        }
    }
}

/// Parses the number of declared keys from the arguments of a command that runs a script.
fn key_count(args: &Args<'_>, verb: ScriptVerb) -> Result<usize, CommandError> {
    let count = match (args.integer(2), verb) {
        (Err(_), ScriptVerb::Fcall | ScriptVerb::FcallRo) => {
            return Err(CommandError::Line("ERR Bad number of keys provided"));
        }
        (count, _) => count?,
    };
    if count > args.len() as i64 - 3 {
        return Err(CommandError::Line("ERR Number of keys can't be greater than number of args"));
    }
    usize::try_from(count).map_err(|_| CommandError::Line("ERR Number of keys can't be negative"))
}

/// A key that an earlier run of the script used although it is not declared.
struct FurtherKey {
    name: Box<[u8]>,
    hash: KeyHash,
}

impl FurtherKey {
    fn key(&self) -> Key<'_> {
        Key { bytes: &self.name, hash: self.hash }
    }

    fn is(&self, key: Key<'_>) -> bool {
        self.hash == key.hash && *self.name == *key.bytes
    }
}

/// The reason for which a run of a script was ended: it must run again with other locks, or as the
/// exclusive owner of the keyspace.
enum Needs {
    /// The script cannot run under locks, for the reason in the [`Lesson`]. The lesson is stored
    /// with the script, so that its later calls run as the exclusive owner at once.
    Lesson(Lesson),
    /// Another thread has locked a shard that the script needs.
    Locks,
}

/// The condition under which a key is copied before a command of a script, so that the script's
/// changes can be undone.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keep {
    /// The key is always copied: the command may change it.
    Always,
    /// The key is copied only if it or one of its fields has expired: the command reads the key and
    /// thereby removes the expired parts.
    IfDue,
}

/// Returns true if a command of a script can run under the locks of its keys.
fn can_share(request: &Request<'_>) -> bool {
    let (command, name) = (&request.registered.command, request.registered.full_name);
    match command.run {
        Runner::Data(_) => {
            !command.runs_alone(&request.args)
                && !request.keys.as_slice().is_empty()
                && !ACROSS_DATABASES.contains(&name)
        }
        Runner::Host(_) => HARMLESS.contains(&name),
        Runner::Walk(_) | Runner::Transaction(_) | Runner::Script(_) => false,
    }
}

/// The state of a running script: its locks, and the commands that it has run so far.
struct RunningScript<'r, 'g, 's, C, H> {
    executor: &'r mut Executor<'s, C, H>,
    run: &'r Run<'r>,
    session: &'r mut Session,
    pass: TurnPass<'r, 'g>,
    /// The locked shards of the script's keys; `None` if it runs as the exclusive owner of the
    /// keyspace.
    locked: Option<Locked<'s>>,
    /// The undeclared keys that the script used, if their shard was not locked or has clients
    /// blocked, watching or tracking. The next run locks their shards from the start.
    used: Vec<FurtherKey>,
    /// True if all commands that the script has called so far can run under locks.
    shares: bool,
    /// The script's entry in the list of running scripts; added only after the script has run for a
    /// while.
    known: Option<Script<'s>>,
    calls: u32,
    is_busy: bool,
    /// True after the script has called a write command, even one that failed. SCRIPT KILL then has
    /// no effect.
    begins_to_write: bool,
    has_written: bool,
    /// True if the script's last command was refused before it ran.
    was_refused: bool,
    /// True if the script was stopped because the server is shutting down.
    is_cut_off: bool,
    /// The reason for which the script must run again: with other locks, or as the exclusive owner
    /// of the keyspace.
    needs: Needs,
    buffers: Box<ScriptBuffers>,
}

impl<'r, 'g, 's, C: Clock, H: Host> RunningScript<'r, 'g, 's, C, H> {
    fn new(
        executor: &'r mut Executor<'s, C, H>,
        run: &'r Run<'r>,
        session: &'r mut Session,
        locked: Option<Locked<'s>>,
        pass: &'r mut TurnPass<'_, 'g>,
    ) -> Self {
        let buffers = executor.script_buffers.take().unwrap_or_default();
        Self {
            executor,
            run,
            session,
            pass: pass.reborrow(),
            locked,
            used: Vec::new(),
            shares: true,
            known: None,
            calls: 0,
            is_busy: false,
            begins_to_write: false,
            has_written: false,
            was_refused: false,
            is_cut_off: false,
            needs: Needs::Locks,
            buffers,
        }
    }

    /// Runs the prepared script. Then restores the client's database and protocol, so that messages
    /// sent to it afterwards are written in the client's own protocol.
    fn run(
        &mut self,
        engine: &mut dyn ScriptEngine,
        call: &ScriptCall<'_>,
        out: &mut ByteQueue,
    ) -> ScriptEnd {
        let (db, protocol) = (self.session.db(), self.session.protocol());
        let end = engine.run(call, self, out);
        self.session.info.select(db);
        self.session.info.speak(protocol);
        end
    }

    /// Finds a command by its name and checks that it is one that scripts may run.
    fn find(&self, args: &Args<'_>) -> Result<&'static Registered, CommandError> {
        let Some(registered) = self.executor.shared().table.find(args.get(0)) else {
            return Err(CommandError::Line("ERR Unknown Redis command called from script"));
        };
        Ok(registered.called_by(args))
    }

    /// Finds a command by its name and checks that this script may run it now.
    fn permitted(&mut self, args: &Args<'_>) -> Result<&'static Registered, CommandError> {
        let registered = self.find(args)?;
        let checked = self.check_call(registered, args.len());
        let checked = checked.and_then(|()| self.check_rights(registered, args));
        checked.and_then(|()| self.check(registered)).inspect_err(|_| {
            self.executor.counters(registered).rejected.add(1);
        })?;
        Ok(registered)
    }

    /// Checks that a script may call a command with these arguments.
    fn check_call(&self, registered: &Registered, len: usize) -> Result<(), CommandError> {
        if !registered.command.accepts(len) {
            return Err(CommandError::Line("ERR Wrong number of args calling Redis command from script"));
        }
        let is_denied = registered.command.flags.contains(Flags::NOSCRIPT);
        if is_denied && !self.executor.shared().scripts.allows_all() {
            return Err(CommandError::Line("ERR This Redis command is not allowed from script"));
        }
        Ok(())
    }

    /// Checks that the client that called the script may run a command: the script has the client's
    /// rights.
    fn check_rights(&mut self, registered: &'static Registered, args: &Args<'_>) -> Result<(), CommandError> {
        if self.session.identity.is_free(&self.executor.shared().acl.users) {
            return Ok(());
        }
        let denial = match self.executor.check_rights(self.session, registered, args, Context::Script) {
            Ok(()) => return Ok(()),
            Err(Some(Denied::ByRules(denial))) => denial,
            // The user was removed during the script.
            Err(Some(Denied::Unauthenticated) | None) => Denial::Command,
        };
        Err(denial.script_error(self.session.identity.name(), registered))
    }

    /// Checks that the present state of the server (its memory, disk, role and pauses) permits a
    /// script to run this command.
    fn check(&self, registered: &Registered) -> Result<(), CommandError> {
        let flags = registered.command.flags;
        if flags.intersects(Flags::WRITE | Flags::MAY_REPLICATE) && self.run.is_read_only {
            return Err(CommandError::Line("ERR Write commands are not allowed from read-only scripts."));
        }
        // Redis checks this for the first write only: the script must not stop in the middle.
        if flags.contains(Flags::WRITE)
            && !self.has_written
            && let Some(error) = self.executor.write_refusal()
        {
            return Err(error);
        }
        if self.executor.is_stale() && !flags.contains(Flags::STALE) {
            return Err(CommandError::Line("ERR Can not execute the command on a stale replica"));
        }
        let has_memory = !self.executor.script_lacks_memory
            || self.has_written
            || self.run.prepared.traits.contains(ScriptTraits::ALLOW_OOM);
        if flags.contains(Flags::DENYOOM) && !has_memory {
            return Err(CommandError::Line("OOM command not allowed when used memory > 'maxmemory'."));
        }
        Ok(())
    }

    /// Locks the shards of a command's keys, and the shards that are needed to serve clients
    /// blocked on them. Fails with [`Stop::Again`] if another thread has locked one of these
    /// shards, or if the script would lock too many.
    fn lock_keys(&mut self, request: &Request<'_>) -> Result<(), Stop> {
        let Some(locked) = &mut self.locked else { return Ok(()) };
        let shared = self.executor.shared();
        let mut is_missing = false;
        for key in request.named_keys() {
            match locked.shard_of(key.hash) {
                Some(shard) if !shard.has_registrations() => continue,
                Some(_) if self.run.knows(key) || self.used.iter().any(|used| used.is(key)) => continue,
                // The shard was locked for another key.
                Some(_) => {}
                None => is_missing |= !locked.try_add(&shared.keyspace, key.hash),
            }
            self.used.push(FurtherKey { name: key.bytes.into(), hash: key.hash });
            if !is_missing && locked.shard_of(key.hash).is_some_and(|shard| shard.has_registrations()) {
                let hashes = shared.blocked.keys_to_lock(std::iter::once(key), SERVED_MAX);
                is_missing = !hashes.into_iter().all(|hash| locked.try_add(&shared.keyspace, hash));
            }
            if self.is_busy {
                locked.mark_busy();
            }
        }
        if locked.numbers().count() > SHARDS_MAX && !self.used.is_empty() {
            self.needs = Needs::Lesson(Lesson::NeedsMuch);
            return Err(Stop::Again);
        }
        if is_missing {
            self.needs = Needs::Locks;
            return Err(Stop::Again);
        }
        Ok(())
    }

    /// Prepares a command of the script: checks that it can run under locks, locks the shards of
    /// its keys, and copies the keys that it may change.
    fn prepare(&mut self, request: &Request<'_>) -> Result<(), Stop> {
        let can_share = can_share(request);
        if self.locked.is_none() {
            self.shares &= can_share;
            return Ok(());
        }
        if !can_share {
            self.needs = Needs::Lesson(Lesson::NeedsAll);
            return Err(Stop::Again);
        }
        self.lock_keys(request)?;
        let writes = request.registered.command.flags.contains(Flags::WRITE);
        // XREADGROUP's key counts as read, but the command changes the groups in it.
        let writes_keys = request.keys.as_slice().iter().any(|key| !key.access.contains(KeyFlags::RO));
        for (key, access) in request.named_keys().zip(request.keys.as_slice()) {
            let is_read = writes_keys && access.access.contains(KeyFlags::RO);
            self.keep_image(key, if writes && !is_read { Keep::Always } else { Keep::IfDue })?;
        }
        Ok(())
    }

    /// Copies a key before the script first changes it, so that the run can be undone. Fails with
    /// [`Stop::Again`] if the value is too big to copy.
    fn keep_image(&mut self, key: Key<'_>, keep: Keep) -> Result<(), Stop> {
        let Some(locked) = &self.locked else { return Ok(()) };
        let db = self.session.db();
        if self.buffers.images.has(db, key) {
            return Ok(());
        }
        let table = locked.shard_of(key.hash).and_then(|shard| shard.db(db)).map(|db| db.table());
        let entry = table.and_then(|table| table.get(key.position(), key.bytes));
        let now_ms = self.executor.now.unix_ms;
        let is_due = |entry: &KeyEntry| {
            let times = [entry.expiry_ms(), entry.part_deadline_ms()];
            times.into_iter().flatten().any(|at_ms| at_ms < now_ms)
        };
        if keep == Keep::IfDue && !entry.as_deref().is_some_and(is_due) {
            return Ok(());
        }
        let entry = match entry {
            Some(entry) if SizeMark::of(&entry).is_big() => {
                self.needs = Needs::Lesson(Lesson::NeedsMuch);
                return Err(Stop::Again);
            }
            Some(entry) => Some(entry.duplicate(key.bytes, entry.access())),
            None => None,
        };
        self.buffers.images.push(db, key, entry);
        Ok(())
    }

    /// Runs a command of the script. Its reply, or error if refused, is in `self.buffers.out`.
    fn run_command(&mut self, args: Args<'_>, protocol: Protocol) -> Result<(), Stop> {
        self.was_refused = false;
        let registered = match self.permitted(&args) {
            Ok(registered) => registered,
            Err(error) => {
                self.refuse(protocol, error);
                return Ok(());
            }
        };
        let request = Request::unhashed(registered, args);
        self.prepare(&request)?;
        if let Debugged::Apart(original) = &mut self.executor.debugged {
            let keyspace = &self.executor.commit.shared.keyspace;
            if let Err(error) = original.copy(&request, self.session.db(), keyspace) {
                self.refuse(protocol, error);
                return Ok(());
            }
        }
        if registered.command.flags.contains(Flags::WRITE) && !self.begins_to_write {
            if self.known.as_ref().is_some_and(|known| !known.begin_writing()) {
                return Err(Stop::Killed);
            }
            self.begins_to_write = true;
        }
        self.session.info.speak(protocol);
        let changes = self.executor.commit.effects.changes;
        let (session, out, pass) = (&mut *self.session, &mut self.buffers.out, &mut self.pass);
        self.executor.run_queued(session, self.locked.as_mut(), &request, out, pass);
        self.has_written |= self.executor.commit.effects.changes != changes;
        Ok(())
    }

    /// Writes the error of a refused command as the reply that the script receives for it.
    #[cold]
    fn refuse(&mut self, protocol: Protocol, error: CommandError) {
        self.was_refused = true;
        self.executor.refuse(protocol, error, &mut self.buffers.out);
    }

    /// Returns the script's entry in the list of running scripts; adds it if it is missing.
    fn known(&mut self) -> &Script<'s> {
        let (prepared, request) = (self.run.prepared, self.run.request);
        let (executor, begins_to_write) = (&*self.executor, self.begins_to_write);
        self.known.get_or_insert_with(|| {
            let command = request.from(0).map(Box::from).collect();
            // A debugged script does not occupy an I/O thread.
            let thread = executor.commit.thread.unwrap_or(usize::MAX);
            let name = ScriptName { kind: prepared.kind, name: (&*prepared.name).into(), command, thread };
            let script = executor.shared().scripts.begin(name, executor.clock.now());
            if begins_to_write {
                // SCRIPT KILL was not possible before the script was listed.
                script.begin_writing();
            }
            script
        })
    }

    /// Marks a debugged script as busy at once, before the busy threshold. Threads that wait for it
    /// then give up: its client may take long between two steps of the debugger.
    #[cold]
    fn become_busy(&mut self) {
        let later = self.executor.clock.now() + Duration::from_millis(1);
        if self.known().exceeds(Some(Duration::ZERO), later) {
            self.mark_busy();
        }
    }

    fn mark_busy(&mut self) {
        self.is_busy = true;
        if let Some(locked) = &self.locked {
            locked.mark_busy();
        }
        self.pass.mark_busy();
    }
}

impl<C: Clock, H: Host> ScriptCommands for RunningScript<'_, '_, '_, C, H> {
    fn call(&mut self, words: &[&[u8]], protocol: Protocol) -> Result<&[u8], Stop> {
        self.calls += 1;
        if self.calls.is_multiple_of(CALLS_PER_INTERRUPT) {
            self.interrupt(ScriptServerState::Running)?;
        }
        self.buffers.clear();
        let mut bytes = std::mem::take(&mut self.buffers.bytes);
        let mut spans = std::mem::take(&mut self.buffers.spans);
        bytes.clear();
        spans.clear();
        for word in words {
            spans.push(Span { start: bytes.len() as u32, len: word.len() as u32 });
            bytes.extend_from_slice(word);
        }
        let hasher = self.executor.shared().keyspace.hasher();
        let done = self.run_command(Args::new(&bytes, &spans, hasher), protocol);
        (self.buffers.bytes, self.buffers.spans) = (bytes, spans);
        done.map(|()| self.buffers.reply())
    }

    fn interrupt(&mut self, server: ScriptServerState) -> Result<(), Stop> {
        if server == ScriptServerState::Ending {
            self.is_cut_off = true;
            return Err(Stop::Killed);
        }
        let now: Instant = self.executor.clock.now();
        let threshold = self.executor.settings.busy_threshold;
        let known = self.known();
        if known.exceeds(threshold, now) {
            known.log(now);
            self.mark_busy();
        }
        if self.is_busy {
            self.pass.attend(now);
        }
        let is_killed = self.known.as_ref().is_some_and(Script::is_killed);
        if is_killed { Err(Stop::Killed) } else { Ok(()) }
    }

    fn was_refused(&self) -> bool {
        self.was_refused
    }

    fn propagate(&mut self, to: Targets) {
        self.executor.commit.propagation = to;
    }

    fn may_run(&mut self, words: &[&[u8]]) -> Result<bool, NoSuchCall> {
        let shared = self.executor.shared();
        let owned = OwnedArgs::new(words.iter().copied());
        let args = owned.args(shared.keyspace.hasher());
        let command = words.first().and_then(|name| shared.table.find(name)).ok_or(NoSuchCall::Command)?;
        let registered = command.called_by(&args);
        if words.len() > 1 && !command.subcommands.is_empty() && registered.id == command.id {
            return Err(NoSuchCall::Command);
        }
        if !registered.command.accepts(words.len()) {
            return Err(NoSuchCall::Arity);
        }
        let session = &mut *self.session;
        if session.identity.is_stale(&shared.acl.users) {
            session.refresh_rights(&shared.acl.users);
        }
        let asked = AclRequest { registered, args: &args, db: session.db() };
        Ok(session.identity.is_free(&shared.acl.users) || session.identity.check(asked).is_ok())
    }
}
