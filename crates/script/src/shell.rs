//! Tables that scripts may read but not change: the libraries and the global variables.
//!
//! Lua 5.1 has no read-only tables. Instead of the table with the contents, scripts see an empty
//! table, the *shell*. The shell's metatable forwards reads to the contents and refuses writes.
//! Functions that would bypass the metatable (`next`, `rawset` …) are replaced by ours, which
//! recognize shells by their addresses. `lua::Context` keeps these addresses; shells live as long
//! as the state.

use crate::lua::{Raise, Returns, Stack, Type};

const READ_ONLY: &[u8] = b"Attempt to modify a readonly table";
/// The name of the metatable field that holds the result of `getmetatable`. It is in the metatables
/// of shells (the read-only stand-ins of tables) and of strings.
const VISIBLE: &[u8] = b"visible";

/// Replaces the table on top of Lua's stack by its shell (a read-only stand-in), and pushes the
/// shell's metatable above it.
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

/// Replaces the table on top of the stack by an empty, read-only stand-in (its shell).
pub(crate) fn wrap(stack: &mut Stack) {
    wrap_with_metatable(stack);
    stack.pop(1);
}

/// Pops a table and stores it in the metatable at `metatable`. For values with this metatable,
/// `getmetatable` returns the stored table.
pub(crate) fn set_visible(stack: &mut Stack, metatable: i32) {
    stack.raw_set_field(metatable, VISIBLE);
}

/// Returns true if the value at a stack index is a shell (the read-only stand-in of a table).
pub(crate) fn is_shell(stack: &Stack, index: i32) -> bool {
    let address = stack.address(index);
    stack.context().shells.borrow().contains(&address)
}

/// Replaces a shell on Lua's stack by the table for which it stands; leaves other values as they
/// are.
pub(crate) fn unwrap(stack: &mut Stack, index: i32) {
    if is_shell(stack, index) && stack.metatable(index) {
        stack.raw_get_field(-1, b"__index");
        stack.remove(-2);
        stack.replace(index);
    }
}

/// Pushes the result of `getmetatable` for a shell or a string.
pub(crate) fn push_visible(stack: &mut Stack, index: i32) {
    if stack.metatable(index) {
        stack.raw_get_field(-1, VISIBLE);
        stack.remove(-2);
    } else {
        stack.push_nil();
    }
}

/// Returns an error if the value is a shell (a read-only table), for functions that write without
/// an assignment.
pub(crate) fn check_writable(stack: &Stack, index: i32) -> Result<(), Raise> {
    if stack.kind(index) == Type::Table && is_shell(stack, index) {
        return Err(stack.raise(READ_ONLY));
    }
    Ok(())
}

/// Handles `__newindex` of shells (read-only tables): raises an error.
fn refuse(stack: &mut Stack) -> Returns {
    Err(stack.raise_here(READ_ONLY))
}
