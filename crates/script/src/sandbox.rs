//! The global variables of scripts: Lua's own libraries without access to the outside, our
//! libraries, and `redis`.
//!
//! Values that live as long as the Lua state are at the bottom of its stack, at the fixed indices
//! that this file names.

use crate::libraries::{bits, cjson, cmsgpack, strings, structs};
use crate::lua::{Function, Returns, Stack, State};
use crate::options::VmOptions;
use crate::{api, base, errors, library, math, shell};

/// The stack index of the table of Lua's own global variables, which scripts cannot access.
const LUA_GLOBALS: i32 = 1;
/// The stack index of the table of global variables common to scripts and functions of libraries.
const COMMON: i32 = 2;
/// The stack index of the table of compiled scripts. The `Vm` maps the names of scripts to their
/// indices in this table.
pub(crate) const CHUNKS: i32 = 3;
/// The stack index of a table that holds a table of each library's functions, by the library's
/// name.
pub(crate) const LIBRARIES: i32 = 4;
/// The stack index of the table of functions that a library being loaded has registered, by number.
pub(crate) const REGISTERED: i32 = 5;
/// The stack index of the error handler of scripts and functions.
pub(crate) const HANDLER: i32 = 6;
/// The stack index of the table of global variables of scripts: the table itself, not its read-only
/// stand-in.
pub(crate) const GLOBALS: i32 = 7;
/// The stack index of the table of global variables of libraries' functions.
pub(crate) const FUNCTION_GLOBALS: i32 = 8;
/// The stack index of the table of global variables of libraries that are being loaded.
pub(crate) const LOADING_GLOBALS: i32 = 9;
/// The stack index of the read-only stand-in (shell) of `FUNCTION_GLOBALS` and `LOADING_GLOBALS`.
/// Its metatable's `__index` is one of them at a time.
pub(crate) const LIBRARY_SHELL: i32 = 10;
/// The stack index of the text `KEYS`, the name of a global variable.
pub(crate) const KEYS_NAME: i32 = 11;
/// The stack index of the text `ARGV`, the name of a global variable.
pub(crate) const ARGV_NAME: i32 = 12;
/// The stack index of the table that is the value of `KEYS`; nil before the first run.
pub(crate) const KEYS_TABLE: i32 = 13;
/// The stack index of the table that is the value of `ARGV`; nil before the first run.
pub(crate) const ARGV_TABLE: i32 = 14;
/// The highest stack index of a value that lives as long as the Lua state.
pub(crate) const LAST_PLACE: i32 = ARGV_TABLE;

/// The names of Lua's own global values that scripts get unchanged.
const LUA_FUNCTIONS_KEPT: [&[u8]; 11] = [
    b"assert",
    b"error",
    b"gcinfo",
    b"ipairs",
    b"rawequal",
    b"select",
    b"tonumber",
    b"tostring",
    b"type",
    b"unpack",
    b"_VERSION",
];

type Functions = &'static [(&'static [u8], Function)];

/// The libraries of Lua that scripts get, each with the functions that replace Lua's own. Their
/// other functions stay Lua's.
const LUAS_LIBRARIES: [(&[u8], Functions); 3] =
    [(b"string", &[]), (b"table", &base::TABLE_FUNCTIONS), (b"math", &math::FUNCTIONS)];

/// Pushes the values at the bottom of Lua's stack, at their fixed indices, and sets the global
/// variables.
pub(crate) fn open(state: &mut State, options: &VmOptions) {
    state.push_globals();
    let stack = state.stack();
    stack.push_table(0, 64);
    add_base(stack);
    for (name, replaced) in LUAS_LIBRARIES {
        add_library(stack, name, replaced);
    }
    add_coroutine(stack);
    add_os(stack);
    add_natives(stack, b"bit", &bits::FUNCTIONS, &[]);
    add_natives(stack, b"struct", &structs::FUNCTIONS, &[]);
    add_natives(stack, b"cmsgpack", &cmsgpack::FUNCTIONS, &cmsgpack::TEXTS);
    add_natives(stack, b"cjson", &cjson::FUNCTIONS, &cjson::TEXTS);
    stack.push_table(0, 0); // CHUNKS
    stack.push_table(0, 0); // LIBRARIES
    stack.push_table(0, 0); // REGISTERED
    stack.push_function(errors::handle, 0); // HANDLER
    push_globals(stack, |stack| api::push_script_api(stack, options)); // GLOBALS
    push_globals(stack, |stack| api::push_function_api(stack, options)); // FUNCTION_GLOBALS
    push_loading_globals(stack, options); // LOADING_GLOBALS
    stack.push_value(FUNCTION_GLOBALS);
    push_shell_of_globals(stack); // LIBRARY_SHELL
    stack.push_value(LIBRARY_SHELL);
    stack.raw_set_field(FUNCTION_GLOBALS, b"_G");
    stack.push(b"KEYS"); // KEYS_NAME
    stack.push(b"ARGV"); // ARGV_NAME
    stack.push_nil(); // KEYS_TABLE
    stack.push_nil(); // ARGV_TABLE
    set_string_metatable(stack);
    stack.push_value(GLOBALS);
    push_shell_of_globals(stack);
    stack.push_value(-1);
    stack.raw_set_field(GLOBALS, b"_G");
    state.set_globals();
}

/// Sets the global variables of library code to `globals`, which is `FUNCTION_GLOBALS` or
/// `LOADING_GLOBALS`.
pub(crate) fn set_library_globals(stack: &mut Stack, globals: i32) {
    if stack.metatable(LIBRARY_SHELL) {
        stack.push_value(globals);
        stack.raw_set_field(-2, b"__index");
        stack.pop(1);
    }
}

/// Pushes the function `name` of one of Lua's own libraries.
fn push_own(stack: &mut Stack, library: &[u8], name: &[u8]) {
    stack.raw_get_field(LUA_GLOBALS, library);
    stack.raw_get_field(-1, name);
    stack.remove(-2);
}

/// Sets functions, by name, in the table on top of Lua's stack.
fn add_functions(stack: &mut Stack, functions: Functions) {
    for (name, function) in functions {
        stack.push_function(*function, 0);
        stack.raw_set_field(-2, name);
    }
}

/// Adds to the common global variables the functions and values that belong to no library.
fn add_base(stack: &mut Stack) {
    for name in LUA_FUNCTIONS_KEPT {
        stack.raw_get_field(LUA_GLOBALS, name);
        stack.raw_set_field(COMMON, name);
    }
    add_functions(stack, &base::FUNCTIONS);
    stack.raw_get_field(LUA_GLOBALS, b"collectgarbage");
    stack.push_function(base::collectgarbage, 1);
    stack.raw_set_field(COMMON, b"collectgarbage");
    stack.raw_get_field(LUA_GLOBALS, b"next");
    stack.push_function(base::next, 1);
    stack.push_value(-1);
    stack.raw_set_field(COMMON, b"next");
    stack.raw_get_field(LUA_GLOBALS, b"next");
    stack.insert(-2);
    stack.push_function(base::pairs, 2);
    stack.raw_set_field(COMMON, b"pairs");
}

/// Adds to the common global variables one of Lua's libraries, with some of its functions replaced.
fn add_library(stack: &mut Stack, name: &[u8], replaced: Functions) {
    stack.raw_get_field(LUA_GLOBALS, name);
    add_functions(stack, replaced);
    if name == b"string" {
        strings::add(stack);
    }
    if name == b"table" {
        for name in [b"foreach".as_slice(), b"foreachi"] {
            stack.raw_get_field(-1, name);
            stack.push_function(base::foreach, 1);
            stack.raw_set_field(-2, name);
        }
    }
    shell::wrap(stack);
    stack.raw_set_field(COMMON, name);
}

fn add_coroutine(stack: &mut Stack) {
    stack.raw_get_field(LUA_GLOBALS, b"coroutine");
    push_own(stack, b"coroutine", b"create");
    push_own(stack, b"coroutine", b"resume");
    stack.push_value(-1);
    stack.push_function(base::resume, 1);
    stack.raw_set_field(-4, b"resume");
    stack.push_function(base::wrap, 2);
    stack.raw_set_field(-2, b"wrap");
    shell::wrap(stack);
    stack.raw_set_field(COMMON, b"coroutine");
}

fn add_os(stack: &mut Stack) {
    stack.push_table(0, 1);
    push_own(stack, b"os", b"clock");
    stack.raw_set_field(-2, b"clock");
    shell::wrap(stack);
    stack.raw_set_field(COMMON, b"os");
}

/// Adds to the common global variables a library of ours, with its functions and the texts that
/// describe it.
fn add_natives(stack: &mut Stack, name: &[u8], functions: Functions, texts: &[(&[u8], &[u8])]) {
    stack.push_table(0, functions.len() + texts.len());
    add_functions(stack, functions);
    for (name, text) in texts {
        stack.push(text);
        stack.raw_set_field(-2, name);
    }
    if name == b"cjson" {
        stack.push_light(0);
        stack.raw_set_field(-2, b"null");
        stack.push_value(-1);
        stack.push_function(cjson::new, 1);
        stack.raw_set_field(-2, b"new");
    }
    shell::wrap(stack);
    stack.raw_set_field(COMMON, name);
}

/// Pushes a new table of global variables: the common ones, and `redis` with its alias `server`.
/// `push_api` pushes the table of `redis`.
fn push_globals(stack: &mut Stack, push_api: impl FnOnce(&mut Stack)) {
    stack.push_table(0, 64);
    stack.push_nil();
    while stack.next(COMMON) {
        stack.push_value(-2);
        stack.insert(-2);
        stack.raw_set(-4);
    }
    push_api(stack);
    shell::wrap(stack);
    stack.push_value(-1);
    stack.raw_set_field(-3, b"server");
    stack.raw_set_field(-2, b"redis");
    push_missing(stack);
    stack.set_metatable(-2);
}

/// Pushes the global variables of libraries that are being loaded: `redis`, which has
/// `register_function`, and its alias `server`.
fn push_loading_globals(stack: &mut Stack, options: &VmOptions) {
    stack.push_table(0, 2);
    api::push_loading_api(stack, options);
    stack.push_value(REGISTERED);
    stack.push_function(library::register_function, 1);
    stack.raw_set_field(-2, b"register_function");
    push_missing(stack);
    stack.set_metatable(-2);
    shell::wrap(stack);
    stack.push_value(-1);
    stack.raw_set_field(-3, b"server");
    stack.raw_set_field(-2, b"redis");
    push_missing(stack);
    stack.set_metatable(-2);
}

/// Pushes the metatable of global variables, by which reads of undefined variables raise an error.
fn push_missing(stack: &mut Stack) {
    stack.push_table(0, 1);
    stack.push_function(missing, 0);
    stack.raw_set_field(-2, b"__index");
}

/// Puts a read-only stand-in (shell) in place of the table of global variables on top of the stack.
fn push_shell_of_globals(stack: &mut Stack) {
    shell::wrap_with_metatable(stack);
    push_missing(stack);
    shell::wrap(stack);
    shell::set_visible(stack, -2);
    stack.pop(1);
}

/// Sets the metatable of strings, through which they find the functions of `string`. Scripts see a
/// read-only table in its place.
fn set_string_metatable(stack: &mut Stack) {
    stack.push(b"");
    stack.push_table(0, 2);
    stack.raw_get_field(LUA_GLOBALS, b"string");
    stack.raw_set_field(-2, b"__index");
    stack.push_table(0, 1);
    stack.raw_get_field(COMMON, b"string");
    stack.raw_set_field(-2, b"__index");
    shell::wrap(stack);
    shell::set_visible(stack, -2);
    stack.set_metatable(-2);
    stack.pop(1);
}

/// Handles `__index` of undefined global variables: raises an error.
fn missing(stack: &mut Stack) -> Returns {
    let name = stack.text(2).unwrap_or_default();
    let text = b"Script attempted to access nonexistent global variable '";
    let text = [text.as_slice(), name, b"'"].concat();
    Err(stack.raise_here(&text))
}
