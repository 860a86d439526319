//! The debugger of a script, with the protocol of `redis-cli --ldb`.
//!
//! ```text a line begins ─► hook: stops here? ─► the log is sent ─► [ command ─► reply ]* ─►
//! continues ``` A debugged script runs in a Lua state of its own ([`crate::Vm::debugged`]). Only
//! in this state, Lua calls the hook for each line, and `redis.call`, `redis.pcall`,
//! `redis.breakpoint` and `redis.debug` are the functions of this file. The client sends arrays of
//! strings. It receives arrays of status lines: the lines that were logged since the last array.
//!
//! Code from the client (`eval`) runs in a coroutine of its own. The hook is active in it, so the
//! server can end the code. Breakpoints and steps have no effect in it.

mod input;
mod repl;
mod show;

use resp::Protocol;

use crate::api::{prepare_words, raise_table, with_words};
use crate::commands::Commands;
use crate::debug_state::DebugState;
use crate::lua::{Function, HookEvent, Raise, Returns, Stack, State, Type};
use crate::reply::push_reply;
use crate::sandbox::GLOBALS;
use crate::shell;
use crate::{DebugClient, Stop};

/// The functions of the table `redis` that replace the usual ones in debugged scripts.
const FUNCTIONS: [(&[u8], Function); 4] =
    [(b"call", call), (b"pcall", pcall), (b"breakpoint", breakpoint), (b"debug", debug)];

/// The maximum number of a command's words that the debugger logs.
const WORDS_LOGGED_MAX: usize = 10;
/// The start of Lua's name for the source of a script, in debug information.
const SCRIPT_SOURCE: &[u8] = b"@user_script";

/// Starts the debugger for `script` in the new Lua state `state`. Speaks to the user through
/// `client`.
pub(crate) fn begin(state: &mut State, script: &[u8], client: Box<dyn DebugClient>) {
    let stack = state.stack();
    stack.context().debugging.replace(Some(Box::new(DebugState::new(script, client))));
    stack.raw_get_field(GLOBALS, b"redis");
    let api = stack.top();
    shell::unwrap(stack, api);
    for (name, function) in FUNCTIONS {
        stack.push_function(function, 0);
        stack.raw_set_field(api, name);
    }
    stack.pop(1);
    state.watch_lines(on_event);
}

/// Sends the debugging client the remaining logged lines and the end of the debug session.
pub(crate) fn end(state: &mut State) {
    with(state.stack(), |state| {
        state.log(b"<endsession>");
        state.send();
    });
}

/// Calls `work` with the state of the script debugger; returns `None` if the script is not
/// debugged.
fn with<R>(stack: &Stack, work: impl FnOnce(&mut DebugState) -> R) -> Option<R> {
    stack.context().debugging.borrow_mut().as_deref_mut().map(work)
}

/// Returns true if the debugged script will stop at its next line. Until then its commands are
/// logged.
fn is_stepping(stack: &Stack) -> bool {
    with(stack, |state| state.steps).unwrap_or(false)
}

/// The reason that is shown for a stop of the debugger at the next line of a step.
const STEP: &str = "step over";
/// The reason that is shown for a stop of the debugger at a breakpoint that the client has set.
const BREAK_POINT: &str = "break point";
/// The reason that is shown for a stop of the debugger after a call of `redis.breakpoint`.
const CALLED: &str = "redis.breakpoint() called";
/// The reason that is shown for a stop of the debugger in a script that has run for too long.
const OVERDUE: &str = "timeout reached, infinite loop?";

/// Handles the start of a line of a debugged script, and the end of about 10,000 instructions.
/// Stops the script at a step, at a breakpoint, or when it has run for too long.
fn on_event(stack: &mut Stack, event: HookEvent) -> Result<(), Raise> {
    let Some(place) = stack.function_at(0) else { return Ok(()) };
    let is_script = place.source.starts_with(SCRIPT_SOURCE);
    let reason = with(stack, |state| {
        if state.evaluates || !is_script {
            return None;
        }
        state.current_line = place.line;
        let reason = if state.is_at_breakpoint {
            Some(CALLED)
        } else if state.breakpoints.contains(&place.line) {
            Some(BREAK_POINT)
        } else if state.steps {
            Some(STEP)
        } else if event == HookEvent::Count && state.is_overdue() {
            Some(OVERDUE)
        } else {
            None
        };
        if let Some(reason) = reason {
            (state.steps, state.is_at_breakpoint) = (false, false);
            state.log(format!("* Stopped at {}, stop reason = {reason}", place.line).as_bytes());
            state.log_source(place.line);
            state.send();
        }
        reason
    });
    let Some(reason) = reason.flatten() else { return Ok(()) };
    if repl::serve(stack)? == repl::Served::Left && reason == OVERDUE {
        let text = "timeout during Lua debugging with client closing connection";
        return Err(raise_table(stack, text));
    }
    Ok(())
}

/// Logs a command that a debugged script calls, as a line for the client.
fn log_command(stack: &Stack, words: &[&[u8]]) {
    let mut line = b"<redis>".to_vec();
    for word in words.iter().take(WORDS_LOGGED_MAX) {
        line.push(b' ');
        line.extend_from_slice(word);
    }
    if words.len() > WORDS_LOGGED_MAX {
        // Redis prints one less than the number of words left out.
        let more = words.len() - WORDS_LOGGED_MAX - 1;
        line.extend_from_slice(format!(" ... ({more} more)").as_bytes());
    }
    with(stack, |state| state.log(&line));
}

fn call(stack: &mut Stack) -> Returns {
    let is_error = run_command(stack)?;
    if is_error { Err(Raise) } else { Ok(1) }
}

fn pcall(stack: &mut Stack) -> Returns {
    match run_command(stack) {
        Ok(_) => Ok(1),
        Err(Raise) if stack.kind(-1) == Type::Table => Ok(1),
        Err(Raise) => Err(Raise),
    }
}

/// Runs the command whose words are on Lua's stack, logs it for the debugging client, and pushes
/// its reply. Returns true if the reply is an error.
fn run_command(stack: &mut Stack) -> Result<bool, Raise> {
    let count = prepare_words(stack)?;
    let protocol = stack.context().protocol.get();
    let is_stepping = is_stepping(stack);
    if is_stepping {
        with_words(stack, count, |words| log_command(stack, words));
    }
    let called = stack.with_commands(|stack, commands| {
        with_words(stack, count, |words| call_server(commands, words, protocol))
    });
    stack.set_top(0);
    let called = match called {
        Some(Ok(called)) => called,
        Some(Err(stop)) => return Err(stack.raise_stop(stop)),
        None => {
            let text = "redis.call/pcall can only be called inside a script invocation";
            return Err(raise_table(stack, text));
        }
    };
    if called.was_refused {
        // Redis logs the error here. It is not logged again as a reply.
        let error = called.reply.strip_prefix(b"-ERR ").unwrap_or(&called.reply).trim_ascii_end();
        with(stack, |state| {
            if is_stepping {
                state.log(&[b"<error> ", error].concat());
            }
            state.steps = false;
        });
    }
    let is_pushed = push_reply(stack, &called.reply).is_ok();
    with(stack, |state| {
        state.steps = is_stepping;
        if is_stepping && !called.was_refused {
            let mut line = b"<reply> ".to_vec();
            show::reply(&called.reply, &mut line);
            state.log_value(line);
        }
    });
    if !is_pushed {
        return Err(raise_table(stack, "reached lua stack limit"));
    }
    Ok(called.reply.first() == Some(&b'-'))
}

/// The result of a command that a debugged script has called: its reply, and whether it ran.
struct Called {
    reply: Vec<u8>,
    /// True if the server refused the command before it ran.
    was_refused: bool,
}

fn call_server(commands: &mut dyn Commands, words: &[&[u8]], protocol: Protocol) -> Result<Called, Stop> {
    let reply = commands.call(words, protocol)?.to_vec();
    Ok(Called { reply, was_refused: commands.was_refused() })
}

/// Handles `redis.breakpoint()`: stops the debugged script at its next line.
fn breakpoint(stack: &mut Stack) -> Returns {
    with(stack, |state| state.is_at_breakpoint = true);
    stack.push_boolean(true);
    Ok(1)
}

/// Handles `redis.debug(value…)`: logs the values as a line for the debugging client.
fn debug(stack: &mut Stack) -> Returns {
    let Some(line) = with(stack, |state| state.current_line) else { return Ok(0) };
    let mut text = format!("<debug> line {line}: ").into_bytes();
    let count = stack.top();
    for at in 1..=count {
        stack.push_value(at);
        show::value(stack, 0, &mut text);
        stack.pop(1);
        if at < count {
            text.extend_from_slice(b", ");
        }
    }
    with(stack, |state| state.log(&text));
    Ok(0)
}
