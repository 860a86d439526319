//! Tables that scripts may read but not change: the libraries and the global variables.
//!
//! Lua 5.1 knows no such tables. What scripts see is an empty table, the shell, in front of the one
//! with the contents: its metatable lets reads through and refuses writes. Functions that would get
//! round the metatable (`next`, `rawset` …) are ours and know shells by their addresses, which
//! `lua::Context` keeps; shells live as long as the state.

use crate::lua::{Raise, Returns, Stack, Type};

const READ_ONLY: &[u8] = b"Attempt to modify a readonly table";
/// The field of a shell's metatable with what `getmetatable` gives.
const VISIBLE: &[u8] = b"visible";

/// A shell takes the place of the table on top; its metatable is pushed above it.
pub(crate) fn wrap_with_metatable(stack: &mut Stack) {
    stack.push_table(0, 0);
    stack.push_table(0, 3);
    stack.push_value(-3);
    stack.raw_set_field(-2, b"__index");
    stack.push_function(refuse, 0);
    stack.raw_set_field(-2, b"__newindex");
    stack.push_value(-1);
    stack.set_metatable(-3);
    let address = stack.address(-2);
    stack.context().shells.borrow_mut().push(address);
    stack.remove(-3);
}

/// A shell takes the place of the table on top.
pub(crate) fn wrap(stack: &mut Stack) {
    wrap_with_metatable(stack);
    stack.pop(1);
}

/// Pops a table that `getmetatable` gives from now on for a value with the metatable at
/// `metatable`.
pub(crate) fn set_visible(stack: &mut Stack, metatable: i32) {
    stack.raw_set_field(metatable, VISIBLE);
}

/// Whether a value is a shell.
pub(crate) fn is_shell(stack: &Stack, index: i32) -> bool {
    let address = stack.address(index);
    stack.context().shells.borrow().contains(&address)
}

/// Puts a shell's contents into its place.
pub(crate) fn unwrap(stack: &mut Stack, index: i32) {
    if is_shell(stack, index) && stack.metatable(index) {
        stack.raw_get_field(-1, b"__index");
        stack.remove(-2);
        stack.replace(index);
    }
}

/// Pushes what `getmetatable` gives for a shell or a string.
pub(crate) fn push_visible(stack: &mut Stack, index: i32) {
    if stack.metatable(index) {
        stack.raw_get_field(-1, VISIBLE);
        stack.remove(-2);
    } else {
        stack.push_nil();
    }
}

/// Refuses to change a shell by other ways than an assignment.
pub(crate) fn check_writable(stack: &Stack, index: i32) -> Result<(), Raise> {
    if stack.kind(index) == Type::Table && is_shell(stack, index) {
        return Err(stack.raise(READ_ONLY));
    }
    Ok(())
}

/// `__newindex` of shells.
fn refuse(stack: &mut Stack) -> Returns {
    Err(stack.raise_here(READ_ONLY))
}
