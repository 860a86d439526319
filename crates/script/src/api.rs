//! The table `redis`, through which scripts use the server.

use resp::Protocol;

use crate::commands::{LogLevel, NoSuchCall, Repl};
use crate::lua::{Function, Raise, Returns, Stack, Type};
use crate::options::VmOptions;
use crate::reply::{push_error, push_reply};
use crate::sha::Sha;

/// The functions of `redis` that both scripts (EVAL) and functions of libraries (FCALL) have.
const FUNCTIONS: [(&[u8], Function); 9] = [
    (b"call", call),
    (b"pcall", pcall),
    (b"error_reply", error_reply),
    (b"status_reply", status_reply),
    (b"sha1hex", sha1hex),
    (b"log", log),
    (b"setresp", set_resp),
    (b"set_repl", set_repl),
    (b"acl_check_cmd", acl_check_cmd),
];

/// The functions of `redis` that only scripts (EVAL) have; functions of libraries (FCALL) do not
/// have them.
const SCRIPT_FUNCTIONS: [(&[u8], Function); 3] =
    [(b"replicate_commands", replicate_commands), (b"breakpoint", breakpoint), (b"debug", debug)];

/// The names of the log levels with their numbers, which each `redis` table has.
const LOG_LEVELS: [(&[u8], f64); 4] =
    [(b"LOG_DEBUG", 0.0), (b"LOG_VERBOSE", 1.0), (b"LOG_NOTICE", 2.0), (b"LOG_WARNING", 3.0)];

/// The constants for the targets of `redis.set_repl`, for scripts and functions of libraries.
const REPL: [(&[u8], f64); 5] = [
    (b"REPL_NONE", 0.0),
    (b"REPL_AOF", 1.0),
    (b"REPL_SLAVE", 2.0),
    (b"REPL_REPLICA", 2.0),
    (b"REPL_ALL", 3.0),
];

/// Pushes the `redis` table for scripts (EVAL) on Lua's stack.
pub(crate) fn push_script_api(stack: &mut Stack, options: &VmOptions) {
    push_function_api(stack, options);
    add_functions(stack, &SCRIPT_FUNCTIONS);
}

/// Pushes the `redis` table for functions of libraries (FCALL) on Lua's stack.
pub(crate) fn push_function_api(stack: &mut Stack, options: &VmOptions) {
    push_constants(stack, options);
    add_functions(stack, &FUNCTIONS);
    add_numbers(stack, &REPL);
}

/// Pushes the `redis` table for libraries that are being loaded on Lua's stack. It does not have
/// `register_function` yet.
pub(crate) fn push_loading_api(stack: &mut Stack, options: &VmOptions) {
    push_constants(stack, options);
    add_functions(stack, &[(b"log", log)]);
}

fn push_constants(stack: &mut Stack, options: &VmOptions) {
    stack.push_table(0, 32);
    add_numbers(stack, &LOG_LEVELS);
    let texts = [
        (b"REDIS_VERSION".as_slice(), &options.redis_version),
        (b"SERVER_NAME", &options.server_name),
        (b"SERVER_VERSION", &options.server_version),
    ];
    for (name, text) in texts {
        stack.push(text.as_bytes());
        stack.raw_set_field(-2, name);
    }
    let number = f64::from(options.redis_version_number);
    add_numbers(stack, &[(b"REDIS_VERSION_NUM", number), (b"SERVER_VERSION_NUM", number)]);
}

fn add_functions(stack: &mut Stack, functions: &[(&[u8], Function)]) {
    for (name, function) in functions {
        stack.push_function(*function, 0);
        stack.raw_set_field(-2, name);
    }
}

fn add_numbers(stack: &mut Stack, numbers: &[(&[u8], f64)]) {
    for (name, number) in numbers {
        stack.push_number(*number);
        stack.raw_set_field(-2, name);
    }
}

/// Creates an error table with `text`, preceded by the code ERR, and raises it in Lua.
pub(crate) fn raise_table(stack: &mut Stack, text: &str) -> Raise {
    push_error(stack, text.as_bytes());
    Raise
}

/// The maximum number of words of a command (its name and arguments) that need no allocation.
const WORDS_INLINE: usize = 16;

/// Checks the arguments of `call`, `pcall` and `acl_check_cmd`: the words of a command. Replaces
/// numbers by their texts and returns the number of words.
pub(crate) fn prepare_words(stack: &mut Stack) -> Result<usize, Raise> {
    let count = stack.top();
    if count == 0 {
        return Err(raise_table(stack, "Please specify at least one argument for this redis lib call"));
    }
    if stack.are_strings(count) {
        return Ok(count as usize);
    }
    for at in 1..=count {
        match stack.kind(at) {
            Type::String => {}
            Type::Number => {
                number_word(stack, at);
            }
            _ => {
                return Err(raise_table(
                    stack,
                    "Lua redis lib command arguments must be strings or integers",
                ));
            }
        }
    }
    Ok(count as usize)
}

/// Replaces a number on Lua's stack by its text: the digits of an integer up to 2^53, otherwise the
/// shortest text that converts back to the same number.
fn number_word(stack: &mut Stack, at: i32) {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let number = stack.number(at).unwrap_or(0.0);
    if number.abs() <= EXACT && number.trunc() == number {
        stack.push(itoa::Buffer::new().format(number as i64).as_bytes());
    } else if number.is_nan() && number.is_sign_negative() {
        stack.push(b"-nan");
    } else {
        let mut text = [0; stdx::number::F64_TEXT_LEN_MAX];
        let text = stdx::number::format_f64(number, &mut text);
        stack.push(text.as_bytes());
    }
    stack.replace(at);
}

/// Calls `work` with the first `count` values of Lua's stack: the words that [`prepare_words`] has
/// checked.
pub(crate) fn with_words<R>(stack: &Stack, count: usize, work: impl FnOnce(&[&[u8]]) -> R) -> R {
    if count <= WORDS_INLINE {
        let mut words: [&[u8]; WORDS_INLINE] = [b""; WORDS_INLINE];
        stack.read_strings(&mut words[..count]);
        work(&words[..count])
    } else {
        let mut words = vec![b"".as_slice(); count];
        stack.read_strings(&mut words);
        work(&words)
    }
}

fn call(stack: &mut Stack) -> Returns {
    let is_error = run_command(stack)?;
    if is_error { Err(Raise) } else { Ok(1) }
}

fn pcall(stack: &mut Stack) -> Returns {
    match run_command(stack) {
        Ok(_) => Ok(1),
        // An error of the arguments is a table; a stop is a text, and is raised.
        Err(Raise) if stack.kind(-1) == Type::Table => Ok(1),
        Err(Raise) => Err(Raise),
    }
}

/// Runs the command whose words are on Lua's stack, and pushes its reply. Returns true if the reply
/// is an error.
fn run_command(stack: &mut Stack) -> Result<bool, Raise> {
    let count = prepare_words(stack)?;
    let protocol = stack.context().protocol.get();
    let pushed = stack.with_commands(|stack, commands| {
        let reply = with_words(stack, count, |words| commands.call(words, protocol))?;
        // Removes the words: there must be room for the reply, whatever the number of words was.
        stack.set_top(0);
        let is_error = reply.first() == Some(&b'-');
        Ok(push_reply(stack, reply).map(|_| is_error))
    });
    match pushed {
        Some(Ok(Ok(is_error))) => Ok(is_error),
        Some(Ok(Err(_))) => Err(raise_table(stack, "reached lua stack limit")),
        Some(Err(stop)) => {
            stack.set_top(0);
            Err(stack.raise_stop(stop))
        }
        None => {
            stack.set_top(0);
            Err(raise_table(stack, "redis.call/pcall can only be called inside a script invocation"))
        }
    }
}

fn one_text(stack: &mut Stack) -> Option<Vec<u8>> {
    if stack.top() == 1 { stack.bytes(1).map(<[u8]>::to_vec) } else { None }
}

fn error_reply(stack: &mut Stack) -> Returns {
    match one_text(stack) {
        Some(text) => {
            let line = [b"-", text.strip_prefix(b"-").unwrap_or(&text)].concat();
            push_error(stack, &line);
        }
        None => push_error(stack, b"wrong number or type of arguments"),
    }
    Ok(1)
}

fn status_reply(stack: &mut Stack) -> Returns {
    match one_text(stack) {
        Some(text) => {
            stack.push_table(0, 1);
            stack.push(&text);
            stack.raw_set_field(-2, b"ok");
        }
        None => push_error(stack, b"wrong number or type of arguments"),
    }
    Ok(1)
}

fn sha1hex(stack: &mut Stack) -> Returns {
    if stack.top() != 1 {
        return Err(raise_table(stack, "wrong number of arguments"));
    }
    let sha = Sha::of(stack.text(1).unwrap_or_default());
    stack.push(sha.as_bytes());
    Ok(1)
}

/// Handles `redis.log(level, text…)`: joins the texts and writes them to the server's log.
fn log(stack: &mut Stack) -> Returns {
    let count = stack.top();
    if count < 2 {
        return Err(raise_table(stack, "redis.log() requires two arguments or more."));
    }
    if stack.number(1).is_none() {
        return Err(raise_table(stack, "First argument must be a number (log level)."));
    }
    let level = match stack.number(1).unwrap_or(0.0) as i64 {
        0 => LogLevel::Debug,
        1 => LogLevel::Verbose,
        2 => LogLevel::Notice,
        3 => LogLevel::Warning,
        _ => return Err(raise_table(stack, "Invalid log level.")),
    };
    let mut message = Vec::new();
    for at in 2..=count {
        if let Some(text) = stack.text(at) {
            if at > 2 {
                message.push(b' ');
            }
            message.extend_from_slice(text);
        }
    }
    stack.context().with_commands(|commands| commands.log(level, &message));
    Ok(0)
}

fn set_resp(stack: &mut Stack) -> Returns {
    if stack.top() != 1 {
        return Err(raise_table(stack, "redis.setresp() requires one argument."));
    }
    let protocol = match stack.number(1).unwrap_or(0.0) as i64 {
        2 => Protocol::Resp2,
        3 => Protocol::Resp3,
        _ => return Err(raise_table(stack, "RESP version must be 2 or 3.")),
    };
    stack.context().protocol.set(protocol);
    Ok(0)
}

fn set_repl(stack: &mut Stack) -> Returns {
    if stack.top() != 1 {
        return Err(raise_table(stack, "redis.set_repl() requires one argument."));
    }
    let flags = stack.number(1).unwrap_or(0.0) as i64;
    if flags & !3 != 0 {
        return Err(raise_table(
            stack,
            "Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.",
        ));
    }
    let repl = Repl { aof: flags & 1 != 0, replicas: flags & 2 != 0 };
    stack.context().with_commands(|commands| commands.set_repl(repl));
    Ok(0)
}

fn acl_check_cmd(stack: &mut Stack) -> Returns {
    let count = prepare_words(stack)?;
    let allowed = with_words(stack, count, |words| {
        stack.context().with_commands(|commands| commands.acl_check_cmd(words))
    });
    match allowed.unwrap_or(Err(NoSuchCall::Command)) {
        Ok(allowed) => stack.push_boolean(allowed),
        Err(NoSuchCall::Command) => {
            return Err(raise_table(stack, "Invalid command passed to redis.acl_check_cmd()"));
        }
        Err(NoSuchCall::Arity) => {
            return Err(raise_table(stack, "Wrong number of args for redis.acl_check_cmd()"));
        }
    }
    Ok(1)
}

fn replicate_commands(stack: &mut Stack) -> Returns {
    stack.push_boolean(true);
    Ok(1)
}

/// Handles `redis.breakpoint` in a script that is not debugged: returns false and does not stop.
fn breakpoint(stack: &mut Stack) -> Returns {
    stack.push_boolean(false);
    Ok(1)
}

fn debug(_: &mut Stack) -> Returns {
    Ok(0)
}
