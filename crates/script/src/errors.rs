//! The Lua tables `{err, source, line}` of errors that end a script.

use crate::lua::{Returns, Stack, Type};
use crate::numbers::number_text;
use crate::shell;

/// Adds the source and line where an error was raised to the error table (fields `source`, `line`).
/// Lua calls this handler before it unwinds the calls that led to the error. A value that is not a
/// table becomes `{err = "ERR …"}`.
pub(crate) fn handle(stack: &mut Stack) -> Returns {
    let noted = stack.context().raised_at.take();
    let place = match noted.filter(|(error, _)| *error == identity(stack)) {
        Some((_, place)) => Some(place),
        None => place(stack),
    };
    stack.set_top(1);
    if stack.kind(1) != Type::Table {
        let text = [b"ERR ", describe(stack, 1).as_slice()].concat();
        stack.push_table(0, 3);
        stack.push(&text);
        stack.raw_set_field(-2, b"err");
    }
    if let Some(place) = place
        && !shell::is_shell(stack, -1)
    {
        stack.push(&place.0);
        stack.raw_set_field(-2, b"source");
        stack.push_number(f64::from(place.1));
        stack.raw_set_field(-2, b"line");
    }
    Ok(1)
}

/// Handles an error raised by a function that one of our functions called. Records the source and
/// line of the error in `Context::raised_at` and returns the error unchanged.
pub(crate) fn note_place(stack: &mut Stack) -> Returns {
    let error = identity(stack);
    let place = place(stack);
    let mut raised_at = stack.context().raised_at.borrow_mut();
    if raised_at.as_ref().is_none_or(|(known, _)| *known != error) {
        *raised_at = place.map(|place| (error, place));
    }
    drop(raised_at);
    stack.set_top(1);
    Ok(1)
}

/// Returns the source and line where the error that is being handled was raised: those in the
/// function that raised it, or those in its caller if that function is not Lua code.
fn place(stack: &Stack) -> Option<(Vec<u8>, i32)> {
    let place = match stack.function_at(1) {
        Some(place) if place.is_c => stack.function_at(2),
        place => place,
    };
    place.map(|place| (place.source, place.line))
}

/// Returns bytes that identify the error that is being handled: its text, or the address of its
/// table.
fn identity(stack: &Stack) -> Vec<u8> {
    match stack.bytes(1) {
        Some(text) => text.to_vec(),
        None => stack.address(1).to_ne_bytes().to_vec(),
    }
}

/// Converts the value at a stack index to text, as Lua's `tostring` does.
fn describe(stack: &Stack, index: i32) -> Vec<u8> {
    match stack.kind(index) {
        Type::String => stack.bytes(index).unwrap_or_default().to_vec(),
        Type::Number => number_text(stack.number(index).unwrap_or(0.0)).into_bytes(),
        Type::Boolean => stack.boolean(index).to_string().into_bytes(),
        Type::None | Type::Nil => b"nil".to_vec(),
        _ => format!("{}: {:#x}", stack.type_name(index), stack.address(index)).into_bytes(),
    }
}
