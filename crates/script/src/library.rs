//! Libraries of functions (FUNCTION LOAD): their first line, and `redis.register_function`.

use stdx::quoted::split_quoted;

use crate::api::raise_table;
use crate::flags::{FunctionInfo, ScriptFlags, parse_flag};
use crate::lua::{Raise, Returns, Stack, Type};

/// The contents of a library's first line, `#!lua name=mylib`.
pub(crate) struct LibraryLine {
    pub(crate) name: Vec<u8>,
    /// The offset of the Lua code: the end of the first line, so that lines keep their numbers.
    pub(crate) code_start: usize,
}

/// Parses the first line of a library, `#!lua name=mylib`. The error is an error line without its
/// `ERR`.
pub(crate) fn parse_library_line(code: &[u8]) -> Result<LibraryLine, Vec<u8>> {
    if !code.starts_with(b"#!") {
        return Err(b"Missing library metadata".to_vec());
    }
    let Some(end) = code.iter().position(|&byte| byte == b'\n') else {
        return Err(b"Invalid library metadata".to_vec());
    };
    let words = split_quoted(&code[..end]).unwrap_or_default();
    let Some((engine, options)) = words.split_first() else {
        return Err(b"Invalid library metadata".to_vec());
    };
    let mut name = None;
    for option in options {
        match strip_prefix_ignoring_case(option, b"name=") {
            Some(_) if name.is_some() => {
                return Err(b"Invalid metadata value, name argument was given multiple times".to_vec());
            }
            Some(given) => name = Some(given.to_vec()),
            None => return Err([b"Invalid metadata value given: ", option.as_slice()].concat()),
        }
    }
    let name = name.ok_or_else(|| b"Library name was not given".to_vec())?;
    if !is_name(&name) {
        let text = "Library names can only contain letters, numbers, or underscores(_) and must be at least one \
                    character long";
        return Err(text.as_bytes().to_vec());
    }
    let engine = &engine[2..];
    if !engine.eq_ignore_ascii_case(b"lua") {
        return Err([b"Engine '", engine, b"' not found"].concat());
    }
    Ok(LibraryLine { name, code_start: end })
}

fn strip_prefix_ignoring_case<'a>(text: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    let (start, rest) = text.split_at_checked(prefix.len())?;
    start.eq_ignore_ascii_case(prefix).then_some(rest)
}

/// Returns true if this is a valid name of a library or a function.
fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|&byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Handles `redis.register_function(name, callback)` and `redis.register_function{…}`. The first
/// upvalue is the table of the functions registered so far.
pub(crate) fn register_function(stack: &mut Stack) -> Returns {
    if !stack.context().loading.get() {
        return Err(raise_table(
            stack,
            "redis.register_function can only be called on FUNCTION LOAD command",
        ));
    }
    let info = match stack.top() {
        1 => read_table(stack)?,
        2 => read_pair(stack)?,
        _ => {
            return Err(raise_table(stack, "wrong number of arguments to redis.register_function"));
        }
    };
    if !is_name(&info.name) {
        return Err(raise_table(
            stack,
            "Library names can only contain letters, numbers, or underscores(_) and must be at least one \
             character long",
        ));
    }
    let added = stack.context().registered.borrow_mut().add(info);
    let Some(at) = added else {
        return Err(raise_table(stack, "Function already exists in the library"));
    };
    // The callback is on top.
    stack.push_upvalue(1);
    stack.insert(-2);
    stack.raw_set_at(-2, at);
    Ok(0)
}

/// Reads the name of a function to register from the two arguments `(name, callback)`; leaves the
/// callback on top of Lua's stack.
fn read_pair(stack: &mut Stack) -> Result<FunctionInfo, Raise> {
    let Some(name) = stack.text(1).map(<[u8]>::to_vec) else {
        return Err(raise_table(stack, "first argument to redis.register_function must be a string"));
    };
    if stack.kind(2) != Type::Function {
        return Err(raise_table(stack, "second argument to redis.register_function must be a function"));
    }
    Ok(FunctionInfo { name, description: None, flags: ScriptFlags::empty() })
}

/// Reads name, description and flags of a function to register from the table argument; leaves the
/// callback on top of Lua's stack.
fn read_table(stack: &mut Stack) -> Result<FunctionInfo, Raise> {
    if stack.kind(1) != Type::Table {
        return Err(raise_table(
            stack,
            "calling redis.register_function with a single argument is only applicable to Lua table \
             (representing named arguments).",
        ));
    }
    let mut name = None;
    let mut description = None;
    let mut flags = ScriptFlags::empty();
    let mut has_callback = false;
    stack.push_nil(); // at 2: the callback
    stack.push_nil();
    while stack.next(1) {
        let Some(key) = stack.bytes(-2).map(<[u8]>::to_vec) else {
            return Err(raise_table(stack, "unknown argument given to redis.register_function"));
        };
        match key.to_ascii_lowercase().as_slice() {
            b"function_name" => name = Some(text_of(stack, "function_name")?),
            b"description" => description = Some(text_of(stack, "description")?),
            b"callback" => {
                if stack.kind(-1) != Type::Function {
                    return Err(raise_table(
                        stack,
                        "callback argument given to redis.register_function must be a function",
                    ));
                }
                has_callback = true;
                stack.push_value(-1);
                stack.replace(2);
            }
            b"flags" => flags = read_flags(stack)?,
            _ => {
                return Err(raise_table(stack, "unknown argument given to redis.register_function"));
            }
        }
        stack.pop(1);
    }
    let Some(name) = name else {
        return Err(raise_table(stack, "redis.register_function must get a function name argument"));
    };
    if !has_callback {
        return Err(raise_table(stack, "redis.register_function must get a callback argument"));
    }
    Ok(FunctionInfo { name, description, flags })
}

fn text_of(stack: &mut Stack, argument: &str) -> Result<Vec<u8>, Raise> {
    match stack.text(-1).map(<[u8]>::to_vec) {
        Some(text) => Ok(text),
        None => {
            let text = format!("{argument} argument given to redis.register_function must be a string");
            Err(raise_table(stack, &text))
        }
    }
}

/// Reads the flags of a function to register from the table of flag names on top of Lua's stack.
fn read_flags(stack: &mut Stack) -> Result<ScriptFlags, Raise> {
    if stack.kind(-1) != Type::Table {
        return Err(raise_table(
            stack,
            "flags argument to redis.register_function must be a table representing function flags",
        ));
    }
    let mut flags = ScriptFlags::empty();
    for at in 1.. {
        stack.raw_get_at(-1, at);
        if stack.kind(-1) == Type::Nil {
            stack.pop(1);
            break;
        }
        match stack.bytes(-1).and_then(parse_flag) {
            Some(flag) => flags |= flag,
            None => return Err(raise_table(stack, "unknown flag given")),
        }
        stack.pop(1);
    }
    Ok(flags)
}
