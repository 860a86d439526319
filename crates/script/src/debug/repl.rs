//! The commands of a client to the debugger (such as `step` and `print`), while its script is
//! stopped.

use super::input::{Parsed, leading_integer, parse};
use super::{call, show, with};
use crate::api::raise_table;
use crate::debug_state::{BREAKPOINTS_MAX, INPUT_BYTES_MAX, Received};
use crate::lua::{Raise, Stack, Type};

/// The reason why the client's commands at a stop of the script have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Served {
    /// The client has sent a command that lets the script continue.
    GoesOn,
    /// The client has disconnected: the script continues without further stops.
    Left,
}

/// The default number of lines that the debugger's `list` shows before and after the current one.
const CONTEXT_LINES: i64 = 5;
/// The minimum length of shown values that `maxlen` can set, in bytes.
const LEN_BYTES_MIN: i64 = 60;
/// The source name that errors in the client's code (`eval`) show.
const EVAL_NAME: &std::ffi::CStr = c"@ldb_eval";

const HELP: [&str; 30] = [
    "Redis Lua debugger help:",
    "[h]elp               Show this help.",
    "[s]tep               Run current line and stop again.",
    "[n]ext               Alias for step.",
    "[c]ontinue           Run till next breakpoint.",
    "[l]ist               List source code around current line.",
    "[l]ist [line]        List source code around [line].",
    "                     line = 0 means: current position.",
    "[l]ist [line] [ctx]  In this form [ctx] specifies how many lines",
    "                     to show before/after [line].",
    "[w]hole              List all source code. Alias for 'list 1 1000000'.",
    "[p]rint              Show all the local variables.",
    "[p]rint <var>        Show the value of the specified variable.",
    "                     Can also show global vars KEYS and ARGV.",
    "[b]reak              Show all breakpoints.",
    "[b]reak <line>       Add a breakpoint to the specified line.",
    "[b]reak -<line>      Remove breakpoint from the specified line.",
    "[b]reak 0            Remove all breakpoints.",
    "[t]race              Show a backtrace.",
    "[e]val <code>        Execute some Lua code (in a different callframe).",
    "[r]edis <cmd>        Execute a Redis command.",
    "[m]axlen [len]       Trim logged Redis replies and Lua var dumps to len.",
    "                     Specifying zero as <len> means unlimited.",
    "[a]bort              Stop the execution of the script. In sync",
    "                     mode dataset changes will be retained.",
    "",
    "Debugger functions you can call from Lua scripts:",
    "redis.debug()        Produce logs in the debugger console.",
    "redis.breakpoint()   Stop execution like if there was a breakpoint in the",
    "                     next line of code.",
];

/// Runs the client's debugger commands until the client lets the script continue. An error ends the
/// script or is raised in it.
pub(super) fn serve(stack: &mut Stack) -> Result<Served, Raise> {
    loop {
        let words = match next_command(stack)? {
            Some(words) => words,
            None => {
                with(stack, |state| {
                    state.steps = false;
                    state.breakpoints.clear();
                });
                return Ok(Served::Left);
            }
        };
        let (name, arguments) = words.split_first().expect("a command has a word");
        match name.to_ascii_lowercase().as_slice() {
            b"s" | b"step" | b"n" | b"next" => {
                with(stack, |state| state.steps = true);
                return Ok(Served::GoesOn);
            }
            b"c" | b"continue" => return Ok(Served::GoesOn),
            b"a" | b"abort" => return Err(raise_table(stack, "script aborted for user request")),
            b"h" | b"help" => log_all(stack, HELP),
            b"t" | b"trace" => trace(stack),
            b"m" | b"maxlen" => set_len_max(stack, arguments),
            b"b" | b"break" => set_breakpoints(stack, arguments),
            b"e" | b"eval" => evaluate(stack, arguments)?,
            b"r" | b"redis" if !arguments.is_empty() => run_command(stack, arguments)?,
            b"p" | b"print" => match arguments {
                [name] => print(stack, name),
                _ => print_all(stack),
            },
            b"l" | b"list" => list(stack, arguments),
            b"w" | b"whole" => list_around(stack, 1, 1_000_000),
            _ => log_all(stack, ["<error> Unknown Redis Lua debugger command or wrong number of arguments."]),
        }
        with(stack, |state| state.send());
    }
}

/// Waits for the next debugger command of the client; returns `None` if the client has
/// disconnected.
fn next_command(stack: &mut Stack) -> Result<Option<Vec<Vec<u8>>>, Raise> {
    loop {
        let parsed = with(stack, |state| {
            let parsed = parse(&state.input);
            if matches!(parsed, Parsed::Words(_)) {
                state.input.clear();
            }
            parsed
        });
        match parsed {
            Some(Parsed::Words(words)) => return Ok(Some(words)),
            Some(Parsed::Broken) => return Err(raise_table(stack, "protocol error")),
            Some(Parsed::More) => {}
            None => return Ok(None),
        }
        match with(stack, |state| state.receive()) {
            Some(Received::Bytes) => {}
            Some(Received::Nothing) => stack.interrupt()?,
            Some(Received::Gone) | None => return Ok(None),
        }
        let is_too_much = with(stack, |state| {
            let is_too_much = state.input.len() > INPUT_BYTES_MAX;
            if is_too_much {
                state.input.clear();
            }
            is_too_much
        });
        if is_too_much == Some(true) {
            return Err(raise_table(stack, "max client buffer reached"));
        }
    }
}

fn log_all<'a>(stack: &Stack, lines: impl IntoIterator<Item = &'a str>) {
    with(stack, |state| lines.into_iter().for_each(|line| state.log(line.as_bytes())));
}

/// Handles `list [line [context]]`: logs the lines of the script around a line, or around the
/// current one.
fn list(stack: &Stack, arguments: &[Vec<u8>]) {
    let current = with(stack, |state| i64::from(state.current_line)).unwrap_or(0);
    let line = arguments.first().map_or(0, |line| leading_integer(line));
    let context = arguments.get(1).map_or(CONTEXT_LINES, |context| leading_integer(context));
    list_around(stack, if line > 0 { line } else { current }, context);
}

fn list_around(stack: &Stack, line: i64, context: i64) {
    with(stack, |state| {
        for number in state.line_numbers() {
            if line == 0 || line.saturating_sub(i64::from(number)).saturating_abs() <= context {
                state.log_source(number);
            }
        }
    });
}

/// Handles `print variable`: logs the local variable of this name, from the innermost function that
/// has one. If no function has one, `KEYS` and `ARGV` are looked up as global variables.
fn print(stack: &mut Stack, name: &[u8]) {
    let mut level = 0;
    while stack.function_at(level).is_some() {
        let mut at = 1;
        while let Some(local) = stack.push_local(level, at) {
            if local == name {
                return log_top(stack, b"<value> ");
            }
            stack.pop(1);
            at += 1;
        }
        level += 1;
    }
    if matches!(name, b"KEYS" | b"ARGV") {
        stack.push_global(name);
        return log_top(stack, b"<value> ");
    }
    log_all(stack, ["No such variable."]);
}

/// Handles `print`: logs all local variables of the innermost function.
fn print_all(stack: &mut Stack) {
    let (mut at, mut shown) = (1, 0);
    while let Some(name) = stack.push_local(0, at) {
        if name.starts_with(b"(*temporary)") {
            stack.pop(1);
        } else {
            log_top(stack, &[b"<value> ", name.as_slice(), b" = "].concat());
            shown += 1;
        }
        at += 1;
    }
    if shown == 0 {
        log_all(stack, ["No local variables in the current context."]);
    }
}

/// Pops a value from Lua's stack and logs its text after the text `start`.
fn log_top(stack: &mut Stack, start: &[u8]) {
    let mut line = start.to_vec();
    let len_max = with(stack, |state| state.len_bytes_max).unwrap_or(0);
    show::value(stack, len_max, &mut line);
    stack.pop(1);
    with(stack, |state| state.log_value(line));
}

/// Handles `break [line…]`: without arguments, shows the breakpoints. Each argument sets a
/// breakpoint (`line`), removes one (`-line`), or removes all (`0`).
fn set_breakpoints(stack: &Stack, arguments: &[Vec<u8>]) {
    if arguments.is_empty() {
        with(stack, |state| {
            if state.breakpoints.is_empty() {
                return state.log(b"No breakpoints set. Use 'b <line>' to add one.");
            }
            state.log(format!("{} breakpoints set:", state.breakpoints.len()).as_bytes());
            state.breakpoints.clone().into_iter().for_each(|line| state.log_source(line));
        });
    }
    for argument in arguments {
        let line = stdx::number::parse_i64(argument);
        let number = line.and_then(|line| i32::try_from(line.saturating_abs()).ok());
        let added = with(stack, |state| {
            let is_there = |number| state.breakpoints.contains(&number);
            let is_line = |number| state.line_numbers().contains(&number);
            match (line, number) {
                (None, _) => state.log(&[b"Invalid argument:'", argument.as_slice(), b"'"].concat()),
                (Some(0), _) => {
                    state.breakpoints.clear();
                    state.log(b"All breakpoints removed.");
                }
                (Some(1..), _) if state.breakpoints.len() == BREAKPOINTS_MAX => {
                    state.log(b"Too many breakpoints set.");
                }
                (Some(1..), Some(number)) if is_line(number) && !is_there(number) => {
                    state.breakpoints.push(number);
                    return Some(number);
                }
                (Some(1..), _) => state.log(b"Wrong line number."),
                (Some(_), Some(number)) if is_there(number) => {
                    state.breakpoints.retain(|&breakpoint| breakpoint != number);
                    state.log(b"Breakpoint removed.");
                }
                (Some(_), _) => state.log(b"No breakpoint in the specified line."),
            }
            None
        });
        if let Some(number) = added.flatten() {
            list_around(stack, i64::from(number), 1);
        }
    }
}

/// Handles `maxlen [bytes]`: sets the length at which shown values are cut, and logs it.
fn set_len_max(stack: &Stack, arguments: &[Vec<u8>]) {
    with(stack, |state| {
        if let [len] = arguments {
            state.knows_cutting = true;
            state.len_bytes_max = match leading_integer(len) {
                0 => 0,
                len => usize::try_from(len.max(LEN_BYTES_MIN)).unwrap_or(usize::MAX),
            };
        }
        let line = match state.len_bytes_max {
            0 => "<value> replies are unlimited.".to_owned(),
            len => format!("<value> replies are truncated at {len} bytes."),
        };
        state.log(line.as_bytes());
    });
}

/// Handles `trace`: logs the functions on the call stack of the stopped script.
fn trace(stack: &Stack) {
    let mut level = 0;
    while let Some(place) = stack.function_at(level) {
        if place.source.starts_with(super::SCRIPT_SOURCE) {
            let start = if level == 0 { "In" } else { "From" };
            let name = stack.function_name_at(level).unwrap_or_else(|| b"top level".to_vec());
            with(stack, |state| {
                state.log(&[start.as_bytes(), b" ", &name, b":"].concat());
                state.log_source(place.line);
            });
        }
        level += 1;
    }
}

/// Handles `eval code`: runs the client's code as an expression, or else as statements, and logs
/// its result.
fn evaluate(stack: &mut Stack, arguments: &[Vec<u8>]) -> Result<(), Raise> {
    let code = arguments.join(&b' ');
    with(stack, |state| state.evaluates = true);
    let line = stack.in_coroutine(|stack| {
        let expression = [b"return ".as_slice(), &code].concat();
        let mut loaded = stack.load(&expression, EVAL_NAME);
        if loaded.is_err() {
            stack.pop(1);
            loaded = stack.load(&code, EVAL_NAME);
        }
        if loaded.is_err() || stack.call(0, 1).is_err() {
            return Err([b"<error> ", error_text(stack).as_slice()].concat());
        }
        let len_max = with(stack, |state| state.len_bytes_max).unwrap_or(0);
        let mut line = b"<retval> ".to_vec();
        show::value(stack, len_max, &mut line);
        Ok(line)
    });
    with(stack, |state| {
        state.evaluates = false;
        match line {
            Ok(line) => state.log_value(line),
            Err(line) => state.log(&line),
        }
    });
    stack.raise_if_stopped()
}

/// Returns the text of the error on top of Lua's stack: the error itself if it is a text, or its
/// field `err`.
fn error_text(stack: &mut Stack) -> Vec<u8> {
    if stack.kind(-1) == Type::Table {
        stack.raw_get_field(-1, b"err");
    }
    stack.text(-1).unwrap_or(b"(null)").to_vec()
}

/// Handles `redis command`: runs the command, and logs it as if the script had called it.
fn run_command(stack: &mut Stack, words: &[Vec<u8>]) -> Result<(), Raise> {
    if !stack.has_room(words.len() as i32 + 2) {
        log_all(stack, ["<error> max lua stack reached"]);
        return Ok(());
    }
    with(stack, |state| (state.steps, state.evaluates) = (true, true));
    stack.push_function(call, 0);
    words.iter().for_each(|word| stack.push(word));
    // The error has been logged.
    let _ = stack.call(words.len() as i32, 1);
    stack.pop(1);
    with(stack, |state| (state.steps, state.evaluates) = (false, false));
    stack.raise_if_stopped()
}
