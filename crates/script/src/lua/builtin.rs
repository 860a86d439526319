//! Functions with two implementations: cheap calls run Lua's own code (`cheap.h`), other calls
//! run ours, which can be interrupted.

use std::ffi::c_int;

use mlua_sys as ffi;

use super::stack::{Function, Stack};

/// Lua's own functions of `string` for cheap calls: calls whose number of steps is small, whatever
/// bytes the texts contain.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BuiltinStringFn {
    Find,
    Match,
    Gmatch,
    Gsub,
    Rep,
}

// cheap.h
unsafe extern "C-unwind" {
    fn script_find(l: *mut ffi::lua_State) -> c_int;
    fn script_match(l: *mut ffi::lua_State) -> c_int;
    fn script_gmatch(l: *mut ffi::lua_State) -> c_int;
    fn script_gsub(l: *mut ffi::lua_State) -> c_int;
    fn script_rep(l: *mut ffi::lua_State) -> c_int;
}

impl Stack {
    /// Pushes a function of ours as [`Stack::push_function`] does. Cheap calls run Lua's own
    /// function `builtin` instead.
    pub(crate) fn push_function_unless_builtin(
        &mut self,
        builtin: BuiltinStringFn,
        function: Function,
        upvalues: i32,
    ) {
        let entry = match builtin {
            BuiltinStringFn::Find => script_find,
            BuiltinStringFn::Match => script_match,
            BuiltinStringFn::Gmatch => script_gmatch,
            BuiltinStringFn::Gsub => script_gsub,
            BuiltinStringFn::Rep => script_rep,
        };
        self.push_closure(entry, function, upvalues);
    }
}
