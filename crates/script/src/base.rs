//! Replacements for functions of Lua's own libraries. Lua's functions would bypass read-only
//! tables, load bytecode or use up the thread's stack.

use crate::lua::{Function, Raise, Returns, Stack, Type};
use crate::shell;

/// The global functions of scripts that replace Lua's own.
pub(crate) const FUNCTIONS: [(&[u8], Function); 8] = [
    (b"pcall", pcall),
    (b"xpcall", xpcall),
    (b"load", load),
    (b"loadstring", loadstring),
    (b"rawget", rawget),
    (b"rawset", rawset),
    (b"getmetatable", getmetatable),
    (b"setmetatable", setmetatable),
];

/// The functions of the Lua table `table` that replace Lua's own.
pub(crate) const TABLE_FUNCTIONS: [(&[u8], Function); 2] = [(b"insert", insert), (b"remove", remove)];

/// Handles `table.foreach` and `table.foreachi`; the first upvalue is Lua's own function, which is
/// called.
pub(crate) fn foreach(stack: &mut Stack) -> Returns {
    stack.check_table(1)?;
    if stack.kind(2) != Type::Function {
        return Err(stack.raise_type(2, "function"));
    }
    shell::unwrap(stack, 1);
    delegate(stack)
}

/// Handles `collectgarbage`; Lua's own function is the first upvalue. Scripts can neither stop nor
/// tune the collector: for these options it does nothing and returns 0.
pub(crate) fn collectgarbage(stack: &mut Stack) -> Returns {
    let inert = matches!(stack.bytes(1), Some(b"stop" | b"restart" | b"setpause" | b"setstepmul"));
    if inert {
        stack.push_number(0.0);
        return Ok(1);
    }
    if !stack.is_none_or_nil(1) {
        let option = stack.check_text(1)?;
        if !matches!(option, b"collect" | b"count" | b"step") {
            let text = format!("invalid option '{}'", String::from_utf8_lossy(option));
            return Err(stack.raise_argument(1, &text));
        }
    }
    stack.interrupt()?;
    delegate(stack)
}

/// Calls the function in the first upvalue (Lua's own function) with all arguments of the running
/// function.
fn delegate(stack: &mut Stack) -> Returns {
    let args = stack.top();
    stack.push_upvalue(1);
    if args > 0 {
        stack.insert(1);
    }
    Ok(stack.call_for_all(args)? as usize)
}

/// Handles `pcall` as Redis does: if the error is a table with a text in `err`, the caller gets
/// only that text.
fn pcall(stack: &mut Stack) -> Returns {
    let args = stack.top() - 1;
    if args < 0 {
        // Redis gives the same error, because it calls the value that it has pushed itself.
        stack.push_boolean(false);
        stack.push(b"attempt to call a boolean value");
        return Ok(2);
    }
    if stack.call_for_all(args).is_ok() {
        stack.push_boolean(true);
        stack.insert(1);
        return Ok(stack.top() as usize);
    }
    stack.raise_if_stopped()?;
    stack.push_boolean(false);
    stack.insert(-2);
    if stack.kind(-1) != Type::Table {
        return Ok(2);
    }
    shell::unwrap(stack, -1);
    stack.raw_get_field(-1, b"err");
    if matches!(stack.kind(-1), Type::String | Type::Number) {
        stack.replace(-2);
        return Ok(2);
    }
    Ok(3)
}

/// Handles `xpcall`. If the server stops the script, Lua calls the script's error handler from
/// within the hook (the periodic call of our code). No further hook can then end the handler. So
/// Lua gets a function of ours as the handler: it calls the script's own handler, but raises at
/// once in a stopped script.
fn xpcall(stack: &mut Stack) -> Returns {
    if stack.kind(2) == Type::None {
        return Err(stack.raise_argument(2, "value expected"));
    }
    stack.set_top(2);
    stack.push_function(delegate, 1);
    stack.insert(1);
    let is_done = stack.call_for_all_with_handler(0, 1).is_ok();
    stack.raise_if_stopped()?;
    stack.push_boolean(is_done);
    stack.replace(1);
    Ok(stack.top() as usize)
}

/// The maximum length of the Lua text that `load` collects from its reader function, in bytes.
const TEXT_LEN_MAX: usize = 512 << 20;
/// The maximum length of the name of a chunk (a compiled text), in bytes; the rest is cut off.
const CHUNK_NAME_LEN_MAX: usize = 1 << 16;

fn loadstring(stack: &mut Stack) -> Returns {
    stack.check_text(1)?;
    let text = stack.bytes(1).unwrap_or_default().to_vec();
    let name = if stack.is_none_or_nil(2) { text.clone() } else { stack.check_text(2)?.to_vec() };
    compile(stack, &text, &name)
}

fn load(stack: &mut Stack) -> Returns {
    if stack.kind(1) != Type::Function {
        return Err(stack.raise_type(1, "function"));
    }
    let name = if stack.is_none_or_nil(2) { b"=(load)".to_vec() } else { stack.check_text(2)?.to_vec() };
    let mut text = Vec::new();
    loop {
        stack.push_value(1);
        if stack.call(0, 1).is_err() {
            stack.raise_if_stopped()?;
            stack.push_nil();
            stack.insert(-2);
            return Ok(2);
        }
        match stack.kind(-1) {
            Type::Nil => break,
            Type::String | Type::Number => {
                let piece = stack.text(-1).unwrap_or_default();
                if piece.is_empty() {
                    break;
                }
                text.extend_from_slice(piece);
            }
            _ => {
                stack.push_nil();
                stack.push(b"reader function must return a string");
                return Ok(2);
            }
        }
        if text.len() > TEXT_LEN_MAX {
            stack.push_nil();
            stack.push(b"not enough memory");
            return Ok(2);
        }
        stack.pop(1);
        stack.interrupt()?;
    }
    compile(stack, &text, &name)
}

fn compile(stack: &mut Stack, text: &[u8], name: &[u8]) -> Returns {
    let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    let mut name = name[..end.min(CHUNK_NAME_LEN_MAX)].to_vec();
    name.push(0);
    let name = std::ffi::CStr::from_bytes_until_nul(&name).unwrap_or_default();
    if stack.load(text, name).is_err() {
        stack.push_nil();
        stack.insert(-2);
        return Ok(2);
    }
    Ok(1)
}

/// Handles `next`, also for read-only tables; the first upvalue is Lua's own function.
pub(crate) fn next(stack: &mut Stack) -> Returns {
    stack.check_table(1)?;
    shell::unwrap(stack, 1);
    delegate(stack)
}

/// Handles `pairs`; the upvalues are Lua's own `next`, and [`next`] for read-only tables (shells).
pub(crate) fn pairs(stack: &mut Stack) -> Returns {
    stack.check_table(1)?;
    stack.push_upvalue(if shell::is_shell(stack, 1) { 2 } else { 1 });
    stack.push_value(1);
    stack.push_nil();
    Ok(3)
}

fn rawget(stack: &mut Stack) -> Returns {
    stack.check_table(1)?;
    stack.check_any(2)?;
    shell::unwrap(stack, 1);
    stack.set_top(2);
    stack.raw_get(1);
    Ok(1)
}

fn rawset(stack: &mut Stack) -> Returns {
    stack.check_table(1)?;
    stack.check_any(2)?;
    stack.check_any(3)?;
    shell::check_writable(stack, 1)?;
    stack.set_top(3);
    match (stack.kind(2), stack.number(2)) {
        (Type::Nil, _) => return Err(stack.raise(b"table index is nil")),
        (Type::Number, Some(key)) if key.is_nan() => return Err(stack.raise(b"table index is NaN")),
        _ => {}
    }
    stack.raw_set(1);
    Ok(1)
}

fn getmetatable(stack: &mut Stack) -> Returns {
    stack.check_any(1)?;
    if stack.kind(1) == Type::String || shell::is_shell(stack, 1) {
        shell::push_visible(stack, 1);
        return Ok(1);
    }
    if !stack.metatable(1) {
        stack.push_nil();
        return Ok(1);
    }
    stack.raw_get_field(-1, b"__metatable");
    if stack.kind(-1) == Type::Nil {
        stack.pop(1);
    }
    Ok(1)
}

fn setmetatable(stack: &mut Stack) -> Returns {
    stack.check_table(1)?;
    if !matches!(stack.kind(2), Type::Nil | Type::Table) {
        return Err(stack.raise_argument(2, "nil or table expected"));
    }
    shell::check_writable(stack, 1)?;
    if stack.metatable(1) {
        stack.raw_get_field(-1, b"__metatable");
        if stack.kind(-1) != Type::Nil {
            return Err(stack.raise_here(b"cannot change a protected metatable"));
        }
    }
    stack.set_top(2);
    stack.set_metatable(1);
    Ok(1)
}

/// Handles `table.insert`: moves the following elements up, and raises an error for a read-only
/// table.
fn insert(stack: &mut Stack) -> Returns {
    stack.check_table(1)?;
    let end = stack.len(1) as i32 + 1;
    let at = match stack.top() {
        2 => end,
        3 => {
            let at = stack.check_integer(2)? as i32;
            shell::check_writable(stack, 1)?;
            for to in (at.saturating_add(1)..=end.max(at)).rev() {
                if to % 65_536 == 0 {
                    stack.interrupt()?;
                }
                stack.raw_get_at(1, to - 1);
                stack.raw_set_at(1, to);
            }
            at
        }
        _ => return Err(stack.raise_here(b"wrong number of arguments to 'insert'")),
    };
    shell::check_writable(stack, 1)?;
    stack.raw_set_at(1, at);
    Ok(0)
}

/// Handles `table.remove`: moves the following elements down, and raises an error for a read-only
/// table.
fn remove(stack: &mut Stack) -> Returns {
    stack.check_table(1)?;
    let end = stack.len(1) as i32;
    let at = stack.optional_integer(2, i64::from(end))? as i32;
    if !(1..=end).contains(&at) {
        return Ok(0);
    }
    stack.raw_get_at(1, at);
    for from in at + 1..=end {
        if from % 65_536 == 0 {
            stack.interrupt()?;
        }
        stack.raw_get_at(1, from);
        stack.raw_set_at(1, from - 1);
    }
    stack.push_nil();
    stack.raw_set_at(1, end);
    Ok(1)
}

/// Handles `coroutine.resume`; the first upvalue is Lua's own function. If too much of the thread's
/// stack is used, returns false and an error text instead, as for a failed coroutine.
pub(crate) fn resume(stack: &mut Stack) -> Returns {
    if stack.kind(1) == Type::Thread && stack.is_deep() {
        stack.push_boolean(false);
        stack.push(b"C stack overflow");
        return Ok(2);
    }
    if stack.kind(1) != Type::Thread {
        return Err(stack.raise_argument(1, "coroutine expected"));
    }
    let count = delegate(stack)?;
    stack.raise_if_stopped()?;
    Ok(count)
}

/// Handles `coroutine.wrap`; the upvalues are Lua's own `create` and `resume`.
pub(crate) fn wrap(stack: &mut Stack) -> Returns {
    if stack.kind(1) != Type::Function || stack.is_c_function(1) {
        return Err(stack.raise_argument(1, "Lua function expected"));
    }
    stack.push_upvalue(1);
    stack.push_value(1);
    stack.call(1, 1)?;
    stack.push_upvalue(2);
    stack.push_function(step, 2);
    Ok(1)
}

/// Resumes the coroutine of a function that `coroutine.wrap` returned. The upvalues are the
/// coroutine and Lua's own `resume`.
fn step(stack: &mut Stack) -> Returns {
    if stack.is_deep() {
        return Err(stack.raise_here(b"C stack overflow"));
    }
    let args = stack.top();
    stack.push_upvalue(2);
    stack.push_upvalue(1);
    stack.insert(1);
    stack.insert(1);
    stack.call_for_all(args + 1)?;
    stack.raise_if_stopped()?;
    if stack.boolean(1) {
        return Ok(stack.top() as usize - 1);
    }
    match stack.bytes(-1).map(<[u8]>::to_vec) {
        Some(text) => Err(stack.raise_here(&text)),
        None => Err(Raise),
    }
}
