//! Errors that end a script, as tables `{err, source, line}`.

use crate::lua::{Returns, Stack, Type};
use crate::numbers::number_text;
use crate::shell;

/// Called with an error before the calls that led to it are forgotten: adds where it came from.
/// A value that is no table becomes `{err = "ERR …"}`.
pub(crate) fn handle(stack: &mut Stack) -> Returns {
    // The function that raised, or the one that called it where that is not Lua code.
    let place = match stack.function_at(1) {
        Some(place) if place.is_c => stack.function_at(2),
        place => place,
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
        stack.push(&place.source);
        stack.raw_set_field(-2, b"source");
        stack.push_number(f64::from(place.line));
        stack.raw_set_field(-2, b"line");
    }
    Ok(1)
}

/// As `tostring`.
fn describe(stack: &Stack, index: i32) -> Vec<u8> {
    match stack.kind(index) {
        Type::String => stack.bytes(index).unwrap_or_default().to_vec(),
        Type::Number => number_text(stack.number(index).unwrap_or(0.0)).into_bytes(),
        Type::Boolean => stack.boolean(index).to_string().into_bytes(),
        Type::None | Type::Nil => b"nil".to_vec(),
        _ => format!("{}: {:#x}", stack.type_name(index), stack.address(index)).into_bytes(),
    }
}
