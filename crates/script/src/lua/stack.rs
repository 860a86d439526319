//! The stack of Lua values (arguments, locals, results) that a function of ours works on.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{self, NonNull};

use mlua_sys as ffi;

use super::context::Context;
use crate::commands::{Commands, Stop};

/// The marker that a function failed: the value on top of the stack must be raised as an error.
#[derive(Debug)]
pub(crate) struct Raise;

/// The result of a function that Lua calls: on success, the number of values that it has pushed.
pub(crate) type Returns = Result<usize, Raise>;

/// A function of ours, in Rust, that Lua can call.
pub(crate) type Function = fn(&mut Stack) -> Returns;

/// A function that Lua's hook calls in a Lua state whose lines are watched.
pub(crate) type OnEvent = fn(&mut Stack, HookEvent) -> Result<(), Raise>;

/// The reason why Lua calls its hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HookEvent {
    /// The script begins to run a line.
    Line,
    /// The script has run about 10,000 instructions since the last call.
    Count,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    None,
    Nil,
    Boolean,
    LightUserdata,
    Number,
    String,
    Table,
    Function,
    Userdata,
    Thread,
}

/// A function on Lua's call stack, with its source and its current line.
pub(crate) struct CallFrame {
    pub(crate) is_c: bool,
    pub(crate) source: Vec<u8>,
    pub(crate) line: i32,
}

/// The stack of the running function: arguments are at 1, 2 …, negative indices count from the top.
pub(crate) struct Stack {
    pub(super) l: *mut ffi::lua_State,
    context: NonNull<Context>,
    /// The number of values on the stack for which Lua has room: up to it, a push needs no check.
    spare_top: i32,
}

/// The first fields of a `lua_State`. Each read or push needs them: reading them here costs less
/// than calling Lua's functions. unit.c does not compile if this layout differs.
#[repr(C, align(8))]
struct Head {
    _header: [u8; 16],
    top: *const Slot,
    base: *const Slot,
}

/// A value on Lua's stack, in the layout of Lua's C code.
#[repr(C, align(8))]
struct Slot {
    _value: [u8; 8],
    kind: c_int,
}

/// Converts a number to an integer, as `(lua_Integer)number` does on x86-64.
pub(crate) fn truncate(number: f64) -> i64 {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if (-LIMIT..LIMIT).contains(&number) { number as i64 } else { i64::MIN }
}

impl Stack {
    /// Creates the stack of a state or coroutine.
    ///
    /// # Safety
    /// `l` is a live state made by `State::new`, or a coroutine of one.
    pub(super) unsafe fn new(l: *mut ffi::lua_State) -> Self {
        let mut data = ptr::null_mut();
        // SAFETY: the state is live.
        unsafe { ffi::lua_getallocf(l, &raw mut data) };
        // SAFETY: `State::new` gave the allocator its boxed context.
        let context = unsafe { NonNull::new_unchecked(data.cast()) };
        Self { l, context, spare_top: 0 }
    }

    /// Creates the stack of a function that has just been called, or the stack outside of all
    /// calls. At this point Lua has room for `LUA_MINSTACK` values above the present ones.
    ///
    /// # Safety
    /// As [`Stack::new`], in a C function that has pushed nothing yet, or outside of all calls.
    pub(super) unsafe fn of_call(l: *mut ffi::lua_State) -> Self {
        // SAFETY: the caller's.
        let mut stack = unsafe { Self::new(l) };
        stack.spare_top = stack.top() + ffi::LUA_MINSTACK;
        stack
    }

    /// Returns the data that our code keeps for this Lua state.
    pub(crate) fn context(&self) -> &Context {
        // SAFETY: it lives as long as the state.
        unsafe { self.context.as_ref() }
    }

    /// Calls `ask` with the interface to the server; returns `None` if no script runs.
    pub(crate) fn with_commands<R>(
        &mut self,
        ask: impl FnOnce(&mut Self, &mut dyn Commands) -> R,
    ) -> Option<R> {
        let context = self.context;
        // SAFETY: it lives as long as the state.
        unsafe { context.as_ref() }.with_commands(|commands| ask(self, commands))
    }

    // Indices.

    #[inline]
    pub(crate) fn top(&self) -> i32 {
        // SAFETY: the state is live, begins so, and Lua does not run meanwhile.
        let head = unsafe { &*self.l.cast::<Head>() };
        // SAFETY: both are in the stack of this state.
        let count = unsafe { head.top.offset_from(head.base) };
        count as i32
    }

    /// Returns the type of the stack's value at `place` as Lua's number for it.
    ///
    /// # Safety
    /// `place` is between 1 and the top.
    #[inline]
    unsafe fn kind_at(&self, place: c_int) -> c_int {
        // SAFETY: the state is live, begins so, and Lua does not run meanwhile.
        let base = unsafe { (*self.l.cast::<Head>()).base };
        // SAFETY: the caller guarantees that there is a value.
        let slot = unsafe { base.add(place as usize - 1) };
        // SAFETY: as above.
        unsafe { (*slot).kind }
    }

    /// Pops values until `top` values are left, or pushes nil until there are `top` values.
    pub(crate) fn set_top(&mut self, top: i32) {
        let now = self.top();
        assert!(top >= 0, "a size");
        if top > now {
            self.reserve(top - now);
        }
        // SAFETY: 0 <= top, and there is room.
        unsafe { ffi::lua_settop(self.l, top) }
    }

    pub(crate) fn pop(&mut self, count: i32) {
        self.set_top(self.top() - count);
    }

    /// Pops `count` values from Lua's stack. The caller ensures that their bytes are not borrowed.
    fn drop_top(&self, count: i32) {
        let top = self.top() - count;
        assert!(top >= 0, "a size");
        // SAFETY: 0 <= top <= size.
        unsafe { ffi::lua_settop(self.l, top) }
    }

    /// Returns true if Lua's stack has room for `count` more values; Lua allows 8,000.
    pub(crate) fn has_room(&self, count: i32) -> bool {
        // SAFETY: the state is live; no memory is refused while our code runs.
        unsafe { ffi::lua_checkstack(self.l, count) != 0 }
    }

    #[inline]
    pub(super) fn reserve(&self, count: i32) {
        let has_room = self.top() + count <= self.spare_top || self.has_room(count);
        assert!(has_room, "functions that nest or push much ask for room first");
    }

    /// Converts `index` to a stack index from the bottom; `None` if there is no value.
    #[inline]
    fn place(&self, index: i32) -> Option<c_int> {
        let top = self.top();
        let place = if index > 0 { index } else { top + 1 + index };
        (1..=top).contains(&place).then_some(place)
    }

    fn existing(&self, index: i32) -> c_int {
        self.place(index).expect("the caller counted the values on its stack")
    }

    /// Returns Lua's pseudo-index of an upvalue of the running function; the first is 1.
    fn upvalue_place(at: i32) -> c_int {
        assert!((1..=200).contains(&at), "an upvalue");
        ffi::lua_upvalueindex(at + 1)
    }

    // Reading.

    pub(crate) fn kind(&self, index: i32) -> Type {
        let Some(place) = self.place(index) else { return Type::None };
        // SAFETY: there is a value.
        match unsafe { self.kind_at(place) } {
            ffi::LUA_TNIL => Type::Nil,
            ffi::LUA_TBOOLEAN => Type::Boolean,
            ffi::LUA_TLIGHTUSERDATA => Type::LightUserdata,
            ffi::LUA_TNUMBER => Type::Number,
            ffi::LUA_TSTRING => Type::String,
            ffi::LUA_TTABLE => Type::Table,
            ffi::LUA_TFUNCTION => Type::Function,
            ffi::LUA_TUSERDATA => Type::Userdata,
            ffi::LUA_TTHREAD => Type::Thread,
            _ => Type::None,
        }
    }

    pub(crate) fn is_none_or_nil(&self, index: i32) -> bool {
        matches!(self.kind(index), Type::None | Type::Nil)
    }

    /// Returns the name of the type of the value at `index`, as in error texts.
    pub(crate) fn type_name(&self, index: i32) -> &'static str {
        match self.kind(index) {
            Type::None => "no value",
            Type::Nil => "nil",
            Type::Boolean => "boolean",
            Type::LightUserdata | Type::Userdata => "userdata",
            Type::Number => "number",
            Type::String => "string",
            Type::Table => "table",
            Type::Function => "function",
            Type::Thread => "thread",
        }
    }

    pub(crate) fn boolean(&self, index: i32) -> bool {
        self.place(index).is_some_and(|place| {
            // SAFETY: there is a value.
            unsafe { ffi::lua_toboolean(self.l, place) != 0 }
        })
    }

    /// Returns the number, or the number in the string, at `index`; `None` for other values.
    pub(crate) fn number(&self, index: i32) -> Option<f64> {
        let place = self.place(index)?;
        // SAFETY: there is a value.
        let number = unsafe { ffi::lua_tonumber(self.l, place) };
        // SAFETY: as above.
        (number != 0.0 || unsafe { ffi::lua_isnumber(self.l, place) } != 0).then_some(number)
    }

    /// Returns the bytes of the string at `index`; `None` if it is not a string.
    pub(crate) fn bytes(&self, index: i32) -> Option<&[u8]> {
        if self.kind(index) == Type::String { self.text(index) } else { None }
    }

    /// Returns the bytes of the string at `index`; `None` for other values. Replaces a number on
    /// the stack by its text, so it must not be used on the keys of `next`.
    pub(crate) fn text(&self, index: i32) -> Option<&[u8]> {
        let place = self.place(index)?;
        let mut len = 0;
        // SAFETY: there is a value, and no memory is refused while our code runs.
        let bytes = unsafe { ffi::lua_tolstring(self.l, place, &raw mut len) };
        if bytes.is_null() {
            return None;
        }
        // SAFETY: Lua's strings do not move; see the module about how long they live.
        Some(unsafe { std::slice::from_raw_parts(bytes.cast(), len) })
    }

    /// Returns the number of an argument; 0 if the argument is not a number.
    #[inline]
    pub(crate) fn number_or_zero(&self, argument: i32) -> f64 {
        assert!((1..=ffi::LUA_MINSTACK).contains(&argument), "a place that Lua keeps for calls");
        // SAFETY: the place is on the stack, or behind it and empty: that gives 0.
        unsafe { ffi::lua_tonumber(self.l, argument) }
    }

    /// Returns the address that identifies a table or function; 0 for a number or text.
    pub(crate) fn address(&self, index: i32) -> usize {
        // SAFETY: there is a value.
        self.place(index).map_or(0, |place| unsafe { ffi::lua_topointer(self.l, place) } as usize)
    }

    pub(crate) fn light(&self, index: i32) -> Option<usize> {
        (self.kind(index) == Type::LightUserdata).then(|| {
            // SAFETY: there is a value.
            unsafe { ffi::lua_touserdata(self.l, self.existing(index)) as usize }
        })
    }

    pub(crate) fn is_c_function(&self, index: i32) -> bool {
        // SAFETY: there is a value.
        self.place(index).is_some_and(|place| unsafe { ffi::lua_iscfunction(self.l, place) } != 0)
    }

    /// Returns the length (`#`) of a string or table, without metamethods.
    pub(crate) fn len(&self, index: i32) -> usize {
        // SAFETY: there is a value.
        self.place(index).map_or(0, |place| unsafe { ffi::lua_objlen(self.l, place) })
    }

    // Pushing.

    pub(crate) fn push_nil(&self) {
        self.reserve(1);
        // SAFETY: there is room.
        unsafe { ffi::lua_pushnil(self.l) }
    }

    pub(crate) fn push_boolean(&self, value: bool) {
        self.reserve(1);
        // SAFETY: there is room.
        unsafe { ffi::lua_pushboolean(self.l, c_int::from(value)) }
    }

    pub(crate) fn push_number(&self, value: f64) {
        self.reserve(1);
        // SAFETY: there is room.
        unsafe { ffi::lua_pushnumber(self.l, value) }
    }

    #[inline]
    pub(crate) fn push_numbers(&self, first: f64, second: f64) {
        self.reserve(2);
        // SAFETY: there is room.
        unsafe { ffi::lua_pushnumber(self.l, first) }
        // SAFETY: there is room.
        unsafe { ffi::lua_pushnumber(self.l, second) }
    }

    pub(crate) fn push_light(&self, value: usize) {
        self.reserve(1);
        // SAFETY: there is room; Lua never follows the address.
        unsafe { ffi::lua_pushlightuserdata(self.l, ptr::without_provenance_mut(value)) }
    }

    pub(crate) fn push(&self, bytes: &[u8]) {
        self.reserve(1);
        // SAFETY: there is room, and the bytes are readable; an empty slice's address is not null.
        unsafe { ffi::lua_pushlstring_(self.l, bytes.as_ptr().cast(), bytes.len()) }
    }

    pub(crate) fn push_value(&self, index: i32) {
        let place = self.existing(index);
        self.reserve(1);
        // SAFETY: there is a value and room.
        unsafe { ffi::lua_pushvalue(self.l, place) }
    }

    pub(crate) fn push_upvalue(&self, at: i32) {
        self.reserve(1);
        let place = Self::upvalue_place(at);
        // SAFETY: a place of an upvalue that is not there gives nil.
        if unsafe { ffi::lua_type(self.l, place) } == ffi::LUA_TNONE {
            return self.push_nil();
        }
        // SAFETY: there is a value and room.
        unsafe { ffi::lua_pushvalue(self.l, place) }
    }

    /// Returns true if the running function has this upvalue; the first is 1.
    pub(crate) fn has_upvalue(&self, at: i32) -> bool {
        // SAFETY: a place of an upvalue that is not there gives `LUA_TNONE`.
        unsafe { ffi::lua_type(self.l, Self::upvalue_place(at)) != ffi::LUA_TNONE }
    }

    /// Returns the text of an upvalue of the running function: a string or a number, or `None`.
    pub(crate) fn upvalue_bytes(&self, at: i32) -> Option<&[u8]> {
        let place = Self::upvalue_place(at);
        let mut len = 0;
        // SAFETY: a place of an upvalue that is not there gives null, and no memory is refused
        // while our code runs.
        let bytes = unsafe { ffi::lua_tolstring(self.l, place, &raw mut len) };
        if bytes.is_null() {
            return None;
        }
        // SAFETY: Lua's strings do not move, and the running function keeps its upvalue: it is
        // replaced by a `&mut self` only.
        Some(unsafe { std::slice::from_raw_parts(bytes.cast(), len) })
    }

    /// Returns the number in an upvalue of the running function; 0 if the upvalue is not a number.
    pub(crate) fn upvalue_number(&self, at: i32) -> f64 {
        // SAFETY: a place of an upvalue that is not there gives 0.
        unsafe { ffi::lua_tonumber(self.l, Self::upvalue_place(at)) }
    }

    /// Pops a value and stores it in an upvalue of the running function.
    pub(crate) fn replace_upvalue(&mut self, at: i32) {
        self.existing(-1);
        let place = Self::upvalue_place(at);
        // SAFETY: a place of an upvalue that is not there gives none.
        assert!(unsafe { ffi::lua_type(self.l, place) } != ffi::LUA_TNONE, "the function has it");
        // SAFETY: there is a value, and the place is one.
        unsafe { ffi::lua_replace(self.l, place) };
    }

    pub(crate) fn push_table(&self, array: usize, fields: usize) {
        self.reserve(1);
        let size = |wanted: usize| c_int::try_from(wanted).unwrap_or(c_int::MAX).min(1 << 24);
        // SAFETY: there is room; no memory is refused while our code runs.
        unsafe { ffi::lua_createtable(self.l, size(array), size(fields)) }
    }

    /// Pops `upvalues` values and pushes a function with these values as its upvalues.
    pub(crate) fn push_function(&mut self, function: Function, upvalues: i32) {
        self.push_closure(script_call_native, function, upvalues);
    }

    pub(super) fn push_closure(&mut self, entry: ffi::lua_CFunction, function: Function, upvalues: i32) {
        self.reserve(1);
        let first = self.top() - upvalues + 1;
        assert!(first >= 1, "the upvalues are on the stack");
        // SAFETY: there is room.
        unsafe { ffi::lua_pushlightuserdata(self.l, function as *mut c_void) }
        // SAFETY: 1 <= first <= size.
        unsafe { ffi::lua_insert(self.l, first) }
        // SAFETY: the values are on the stack, and `entry` finds the function among them.
        unsafe { ffi::lua_pushcclosure(self.l, entry, upvalues + 1) }
    }

    /// Moves the top value to `index`; the values from there on move up.
    pub(crate) fn insert(&mut self, index: i32) {
        let place = self.existing(index);
        // SAFETY: there is a value.
        unsafe { ffi::lua_insert(self.l, place) }
    }

    /// Pops the top value and puts it at `index`, in place of the value there.
    pub(crate) fn replace(&mut self, index: i32) {
        let place = self.existing(index);
        // SAFETY: there is a value.
        unsafe { ffi::lua_replace(self.l, place) }
    }

    pub(crate) fn remove(&mut self, index: i32) {
        let place = self.existing(index);
        // SAFETY: there is a value.
        unsafe { ffi::lua_remove(self.l, place) }
    }

    // Tables, without metamethods.

    fn table(&self, index: i32) -> c_int {
        let place = self.existing(index);
        // SAFETY: there is a value.
        assert!(unsafe { ffi::lua_type(self.l, place) } == ffi::LUA_TTABLE, "the caller looked");
        place
    }

    /// Replaces the key on top by its value in the table at `table`, without metamethods.
    pub(crate) fn raw_get(&self, table: i32) {
        let table = self.table(table);
        self.existing(-1);
        // SAFETY: it is a table, and there is a key.
        unsafe { ffi::lua_rawget_(self.l, table) }
    }

    /// Pushes `table[index]` of the table at `table`, without metamethods.
    pub(crate) fn raw_get_at(&self, table: i32, index: i32) {
        let table = self.table(table);
        self.reserve(1);
        // SAFETY: it is a table, and there is room.
        unsafe { ffi::lua_rawgeti_(self.l, table, index) }
    }

    /// Pushes `table[name]` of the table at `table`, without metamethods.
    pub(crate) fn raw_get_field(&self, table: i32, name: &[u8]) {
        let table = self.table(table);
        self.push(name);
        // SAFETY: it is a table, and there is a key.
        unsafe { ffi::lua_rawget_(self.l, table) }
    }

    /// Pops a value and the key below it, and sets them in a table. The key is not nil or NaN.
    pub(crate) fn raw_set(&self, table: i32) {
        let table = self.table(table);
        let key = self.existing(-2);
        // SAFETY: there is a key.
        match unsafe { ffi::lua_type(self.l, key) } {
            ffi::LUA_TNIL => panic!("nil is no key"),
            ffi::LUA_TNUMBER => {
                // SAFETY: there is a key.
                assert!(!unsafe { ffi::lua_tonumber(self.l, key) }.is_nan(), "NaN is no key");
            }
            _ => {}
        }
        // SAFETY: it is a table, the key is good, and no memory is refused while our code runs.
        unsafe { ffi::lua_rawset(self.l, table) }
    }

    /// Pops a value and stores it as `table[index]`, without metamethods.
    pub(crate) fn raw_set_at(&self, table: i32, index: i32) {
        let table = self.table(table);
        self.existing(-1);
        // SAFETY: it is a table, there is a value, and no memory is refused while our code runs.
        unsafe { ffi::lua_rawseti_(self.l, table, index) }
    }

    /// Pops a value and stores it as `table[name]`, without metamethods.
    pub(crate) fn raw_set_field(&mut self, table: i32, name: &[u8]) {
        let table = self.table(table);
        self.existing(-1);
        self.push(name);
        self.insert(-2);
        // SAFETY: it is a table, the key is a string, and no memory is refused while our code runs.
        unsafe { ffi::lua_rawset(self.l, table) }
    }

    /// Pops a key and pushes the next key and its value. Returns `false`, and pushes nothing, after
    /// the last key. The key is nil, or was in the table when the last `next` returned it.
    pub(crate) fn next(&self, table: i32) -> bool {
        let table = self.table(table);
        self.existing(-1);
        self.reserve(2);
        // SAFETY: it is a table, and the key is one of its keys.
        unsafe { ffi::lua_next(self.l, table) != 0 }
    }

    /// Pushes the metatable of the value at `index`; returns false if it has none.
    pub(crate) fn metatable(&self, index: i32) -> bool {
        let Some(place) = self.place(index) else { return false };
        self.reserve(1);
        // SAFETY: there is a value, and room.
        unsafe { ffi::lua_getmetatable(self.l, place) != 0 }
    }

    /// Pops a table or nil, and makes it the metatable of a value.
    pub(crate) fn set_metatable(&mut self, index: i32) {
        let place = self.existing(index);
        assert!(matches!(self.kind(-1), Type::Nil | Type::Table), "the caller looked");
        // SAFETY: there is a value, and a table or nil on top.
        unsafe { ffi::lua_setmetatable(self.l, place) };
    }

    // Calling.

    /// Calls the function below its arguments in protected mode, for `results` results.
    pub(crate) fn call(&mut self, args: i32, results: i32) -> Result<(), Raise> {
        self.call_with_handler(args, results, 0)
    }

    /// Calls the function below its arguments; on an error, calls the function at `handler`.
    pub(crate) fn call_with_handler(&mut self, args: i32, results: i32, handler: i32) -> Result<(), Raise> {
        assert!(args >= 0 && results >= 0 && handler >= 0, "sizes");
        self.existing(-1 - args);
        self.reserve(results + 1);
        let handler = if handler == 0 { 0 } else { self.existing(handler) };
        let native_depth = self.context().native_depth.replace(0);
        // SAFETY: function and arguments are on the stack, there is room for the results, and the
        // call is protected.
        let status = unsafe { ffi::lua_pcall(self.l, args, results, handler) };
        self.context().native_depth.set(native_depth);
        if status == 0 { Ok(()) } else { Err(Raise) }
    }

    /// Calls the function below its arguments in protected mode. Returns the number of results.
    pub(crate) fn call_for_all(&mut self, args: i32) -> Result<i32, Raise> {
        self.call_for_all_with_handler(args, 0)
    }

    /// Calls as [`Stack::call_for_all`] does; on an error, calls the function at `handler`.
    pub(crate) fn call_for_all_with_handler(&mut self, args: i32, handler: i32) -> Result<i32, Raise> {
        assert!(args >= 0 && handler >= 0, "sizes");
        self.existing(-1 - args);
        let below = self.top() - args - 1;
        let handler = if handler == 0 { 0 } else { self.existing(handler) };
        let native_depth = self.context().native_depth.replace(0);
        // SAFETY: function and arguments are on the stack, which Lua widens for the results, and
        // the call is protected.
        let status = unsafe { ffi::lua_pcall(self.l, args, ffi::LUA_MULTRET, handler) };
        self.context().native_depth.set(native_depth);
        if status == 0 { Ok(self.top() - below) } else { Err(Raise) }
    }

    /// Pops a table: the new global variables of a function and of functions that it creates.
    pub(crate) fn set_environment(&mut self, function: i32) {
        let place = self.existing(function);
        assert!(self.kind(-1) == Type::Table, "global variables are a table");
        assert!(self.kind(function) == Type::Function, "a function");
        // SAFETY: there are a function and a table.
        unsafe { ffi::lua_setfenv(self.l, place) };
    }

    /// Compiles a Lua text, never bytecode, and pushes the compiled function or the error.
    pub(crate) fn load(&mut self, text: &[u8], name: &CStr) -> Result<(), Raise> {
        // 0x1b is the first byte of bytecode. After a space, it is read as text.
        let escaped;
        let text = if text.first() == Some(&0x1b) {
            escaped = [b" ", text].concat();
            &escaped
        } else {
            text
        };
        // The name's string must outlive the compiler's work: Lua 5.1 does not keep it.
        self.push(name.to_bytes());
        self.reserve(2);
        let native_depth = self.context().native_depth.replace(0);
        // SAFETY: the text is readable, and loading is protected.
        let status = unsafe { ffi::luaL_loadbuffer(self.l, text.as_ptr().cast(), text.len(), name.as_ptr()) };
        self.context().native_depth.set(native_depth);
        self.remove(-2);
        if status == 0 { Ok(()) } else { Err(Raise) }
    }

    // Errors.

    /// Pushes `text` as an error. The running function raises it by returning the result.
    pub(crate) fn raise(&self, text: &[u8]) -> Raise {
        // A function that raises an error ends, so the values that it pushed can make room for the
        // error.
        let top = self.top();
        if !self.has_room(4) && top > 4 {
            self.drop_top(4);
        }
        self.push(text);
        Raise
    }

    /// Pushes an error to raise: `text` after the place of the function's caller in Lua.
    pub(crate) fn raise_here(&self, text: &[u8]) -> Raise {
        if !self.has_room(4) && self.top() > 4 {
            self.drop_top(4);
        }
        self.reserve(1);
        // SAFETY: there is room, and no memory is refused while our code runs.
        unsafe { ffi::luaL_where(self.l, 1) };
        let line = [self.bytes(-1).unwrap_or_default(), text].concat();
        self.push(&line);
        Raise
    }

    /// Pushes an error to raise: the name of the wrong argument, and `text` as the reason.
    pub(crate) fn raise_argument(&self, argument: i32, text: &str) -> Raise {
        let Some(mut info) = self.info(0, c"n") else {
            return self.raise_here(format!("bad argument #{argument} ({text})").as_bytes());
        };
        let mut argument = argument;
        // SAFETY: `lua_getinfo` with "n" has set it to a text that lives as long as its function.
        if unsafe { text_of(info.namewhat) } == b"method" {
            argument -= 1;
            if argument == 0 {
                // SAFETY: as above.
                let name = unsafe { text_of(info.name) };
                let text = [b"calling '", name, b"' on bad self (", text.as_bytes(), b")"].concat();
                return self.raise_here(&text);
            }
        }
        if info.name.is_null() {
            info.name = c"?".as_ptr();
        }
        // SAFETY: as above.
        let name = unsafe { text_of(info.name) };
        let start = format!("bad argument #{argument} to '");
        self.raise_here(&[start.as_bytes(), name, b"' (", text.as_bytes(), b")"].concat())
    }

    pub(crate) fn raise_type(&self, argument: i32, expected: &str) -> Raise {
        let text = format!("{expected} expected, got {}", self.type_name(argument));
        self.raise_argument(argument, &text)
    }

    /// Records the reason `stop` with its place, and pushes an error that ends the script.
    pub(crate) fn raise_stop(&self, stop: Stop) -> Raise {
        self.note_stop();
        self.context().stop(stop);
        self.raise(STOPPED)
    }

    /// Asks the server, in the middle of long work, if the script may continue.
    pub(crate) fn interrupt(&self) -> Result<(), Raise> {
        self.context().interrupt().map_err(|_| {
            self.note_stop();
            self.raise(STOPPED)
        })
    }

    /// Counts processed bytes. Each 4 MiB, asks the server if the script may go on; `Err` if not.
    #[inline]
    pub(crate) fn work(&self, len_bytes: usize) -> Result<(), Raise> {
        self.context().work(len_bytes).map_err(|_| {
            self.note_stop();
            self.raise(STOPPED)
        })
    }

    /// Returns an error to raise if allocating `len_bytes` more would exceed the memory limit.
    pub(crate) fn claim(&self, len_bytes: usize) -> Result<(), Raise> {
        let context = self.context();
        if context.used_bytes.get().saturating_add(len_bytes) > context.limit_bytes.get() {
            return Err(self.raise(b"not enough memory"));
        }
        Ok(())
    }

    /// Records the source and line of the running script, where it was stopped.
    fn note_stop(&self) {
        let place = [0, 1, 2].into_iter().find_map(|level| self.function_at(level).filter(|at| !at.is_c));
        let mut stopped_at = self.context().stopped_at.borrow_mut();
        if stopped_at.is_none() {
            *stopped_at = place.map(|place| (place.source, place.line));
        }
    }

    /// Returns an error to raise if the script was stopped, but caught the error for that.
    pub(crate) fn raise_if_stopped(&self) -> Result<(), Raise> {
        if self.context().stopped.get().is_some() { Err(self.raise(STOPPED)) } else { Ok(()) }
    }

    /// Returns true if too much of the thread's stack (not Lua's) is used for a further coroutine.
    pub(crate) fn is_deep(&self) -> bool {
        const USED_BYTES_MAX: usize = 256 << 10;
        self.context().stack_start.get().abs_diff(stack_address()) > USED_BYTES_MAX
    }

    fn info(&self, level: i32, what: &CStr) -> Option<ffi::lua_Debug> {
        // SAFETY: plain numbers and addresses, for which zeros are good.
        let mut info: ffi::lua_Debug = unsafe { std::mem::zeroed() };
        // SAFETY: the state is live; a level that is not there gives 0.
        if unsafe { ffi::lua_getstack(self.l, level, &raw mut info) } == 0 {
            return None;
        }
        // SAFETY: `info` is of a level that exists, and the letters push nothing.
        unsafe { ffi::lua_getinfo(self.l, what.as_ptr(), &raw mut info) };
        Some(info)
    }

    /// Returns the function at level `level` of the call stack; level 0 is the running function.
    pub(crate) fn function_at(&self, level: i32) -> Option<CallFrame> {
        let info = self.info(level, c"Sl")?;
        // SAFETY: `lua_getinfo` with "S" has set it.
        let is_c = unsafe { text_of(info.what) } == b"C";
        // SAFETY: as above.
        let source = unsafe { text_of(info.source) }.to_vec();
        Some(CallFrame { is_c, source, line: info.currentline })
    }

    /// Returns the name by which the function at a call level was called; `None` without one.
    pub(crate) fn function_name_at(&self, level: i32) -> Option<Vec<u8>> {
        let info = self.info(level, c"n")?;
        // SAFETY: `lua_getinfo` with "n" has set it.
        (!info.name.is_null()).then(|| unsafe { text_of(info.name) }.to_vec())
    }

    /// Pushes local variable number `at` (from 1) of the function at a level of the call stack, and
    /// returns its name. Returns `None`, and pushes nothing, after the last.
    pub(crate) fn push_local(&self, level: i32, at: i32) -> Option<Vec<u8>> {
        self.reserve(1);
        let info = self.info(level, c"S")?;
        // SAFETY: `info` is of a level that exists, and there is room.
        let name = unsafe { ffi::lua_getlocal(self.l, &raw const info, at) };
        // SAFETY: a name lives as long as its function.
        (!name.is_null()).then(|| unsafe { text_of(name) }.to_vec())
    }

    /// Pushes the global variable `name`, or nil, from the table behind the read-only stand-in.
    pub(crate) fn push_global(&mut self, name: &[u8]) {
        self.reserve(1);
        // SAFETY: there is room.
        unsafe { ffi::lua_pushvalue(self.l, ffi::LUA_GLOBALSINDEX) };
        if self.metatable(-1) {
            self.raw_get_field(-1, b"__index");
            self.remove(-2);
            self.remove(-2);
        }
        self.raw_get_field(-1, name);
        self.remove(-2);
    }

    /// Runs `work` on the stack of a new coroutine, in which hooks are active as in this one.
    pub(crate) fn in_coroutine<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> R {
        self.reserve(1);
        // SAFETY: there is room, and no memory is refused while our code runs.
        let coroutine = unsafe { ffi::lua_newthread(self.l) };
        // SAFETY: it lives as long as it is on our stack, and longer than `other`.
        let mut other = unsafe { Self::new(coroutine) };
        let result = work(&mut other);
        self.pop(1);
        result
    }

    // Arguments, as `luaL_check…` reads them.

    pub(crate) fn check_any(&self, argument: i32) -> Result<(), Raise> {
        if self.kind(argument) == Type::None {
            return Err(self.raise_argument(argument, "value expected"));
        }
        Ok(())
    }

    pub(crate) fn check_table(&self, argument: i32) -> Result<(), Raise> {
        if self.kind(argument) != Type::Table {
            return Err(self.raise_type(argument, "table"));
        }
        Ok(())
    }

    pub(crate) fn check_text(&self, argument: i32) -> Result<&[u8], Raise> {
        self.text(argument).ok_or_else(|| self.raise_type(argument, "string"))
    }

    pub(crate) fn check_number(&self, argument: i32) -> Result<f64, Raise> {
        self.number(argument).ok_or_else(|| self.raise_type(argument, "number"))
    }

    /// Reads an argument as an integer, as `luaL_checkinteger` does.
    pub(crate) fn check_integer(&self, argument: i32) -> Result<i64, Raise> {
        self.check_number(argument).map(truncate)
    }

    /// Reads an argument as an integer or `default`, as `luaL_optinteger` does.
    pub(crate) fn optional_integer(&self, argument: i32, default: i64) -> Result<i64, Raise> {
        if self.is_none_or_nil(argument) { Ok(default) } else { self.check_integer(argument) }
    }
}

/// Returns an address near the top of the thread's stack (not Lua's), to measure its use.
#[inline(never)]
pub(super) fn stack_address() -> usize {
    let here = 0_u8;
    std::hint::black_box(&raw const here) as usize
}

/// The error that a stopped script raises until it has ended. No client sees it.
const STOPPED: &[u8] = b"script stopped";
/// The number of instructions after which the server is asked again if the script may continue.
const INSTRUCTIONS_BETWEEN_INTERRUPTS: c_int = 10_000;

/// Returns the bytes of a C string; an empty slice for null.
///
/// # Safety
/// `text` is null or a C string that lives as long as the result.
unsafe fn text_of<'a>(text: *const c_char) -> &'a [u8] {
    if text.is_null() {
        return b"";
    }
    // SAFETY: the caller's.
    unsafe { CStr::from_ptr(text) }.to_bytes()
}

/// Handles a call from Lua: finds the function among the upvalues, runs it, and raises its error.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn script_call_native(l: *mut ffi::lua_State) -> c_int {
    // SAFETY: Lua called with its live state.
    let count = unsafe { run_native(l) };
    if count >= 0 {
        return count;
    }
    // SAFETY: the error is on top of the stack; this frame has nothing to drop.
    unsafe { ffi::lua_error(l) }
}

/// Runs a function that Lua calls; -1 raises the value on top. A panic ends the process.
///
/// # Safety
/// Called by `script_call_native` only.
unsafe extern "C" fn run_native(l: *mut ffi::lua_State) -> c_int {
    // SAFETY: every closure of `script_call_native` was made by `push_function`.
    let address = unsafe { ffi::lua_touserdata(l, ffi::lua_upvalueindex(1)) };
    // SAFETY: its first upvalue is the address of a `Function`.
    let function = unsafe { std::mem::transmute::<*mut c_void, Function>(address) };
    // SAFETY: the state is live.
    let mut stack = unsafe { Stack::of_call(l) };
    let context = stack.context;
    // SAFETY: the context lives as long as the state.
    let context = unsafe { context.as_ref() };
    if context.stopped.get().is_some() {
        stack.push(STOPPED);
        return -1;
    }
    context.native_depth.set(context.native_depth.get() + 1);
    let result = function(&mut stack);
    context.native_depth.set(context.native_depth.get() - 1);
    match result {
        Ok(_) if context.is_over_limit() => {
            context.native_depth.set(context.native_depth.get() + 1);
            // SAFETY: a whole collection runs no code of scripts: they cannot define finalizers.
            unsafe { ffi::lua_gc(l, ffi::LUA_GCCOLLECT, 0) };
            if context.is_over_limit() {
                stack.push(b"not enough memory");
                context.native_depth.set(context.native_depth.get() - 1);
                return -1;
            }
            context.native_depth.set(context.native_depth.get() - 1);
            result.map_or(-1, |count| count as c_int)
        }
        Ok(count) => count as c_int,
        Err(Raise) => -1,
    }
}

/// Handles Lua's hook, about every 10,000 instructions: raises an error if the script must end.
pub(super) unsafe extern "C-unwind" fn hook(l: *mut ffi::lua_State, _: *mut ffi::lua_Debug) {
    // SAFETY: Lua called with its live state.
    if unsafe { may_go_on(l) } {
        return;
    }
    // SAFETY: there is room for one value in a hook; this frame has nothing to drop.
    unsafe { ffi::lua_pushlstring_(l, STOPPED.as_ptr().cast(), STOPPED.len()) };
    // SAFETY: the error is on top of the stack.
    unsafe { ffi::lua_error(l) }
}

/// Asks the server if the script may continue. Returns false if it must end.
///
/// # Safety
/// Called by `hook` only.
unsafe extern "C" fn may_go_on(l: *mut ffi::lua_State) -> bool {
    // SAFETY: the state is live.
    let stack = unsafe { Stack::new(l) };
    if stack.context().interrupt().is_ok() {
        return true;
    }
    stack.note_stop();
    // From now on every instruction of this coroutine raises, so no `pcall` in it continues.
    // SAFETY: the state is live.
    unsafe { set_hook(l, 1) };
    false
}

/// Sets Lua's hook to be called every `instructions` instructions.
///
/// # Safety
/// The state is live.
pub(super) unsafe fn set_hook(l: *mut ffi::lua_State, instructions: c_int) {
    // SAFETY: the caller's.
    unsafe { ffi::lua_sethook(l, Some(hook), ffi::LUA_MASKCOUNT, instructions) };
}

/// Sets Lua's hook to be called at its usual interval.
///
/// # Safety
/// The state is live.
pub(super) unsafe fn set_usual_hook(l: *mut ffi::lua_State) {
    // SAFETY: the caller's.
    unsafe { set_hook(l, INSTRUCTIONS_BETWEEN_INTERRUPTS) };
}

/// Handles an event of a Lua hook. Raises an error in the script if the script must end.
unsafe extern "C-unwind" fn line_hook(l: *mut ffi::lua_State, info: *mut ffi::lua_Debug) {
    // SAFETY: Lua called with what describes the event.
    let event = unsafe { (*info).event };
    // SAFETY: Lua called with its live state.
    if unsafe { run_line_hook(l, event) } {
        return;
    }
    // SAFETY: the error is on top of the stack; this frame has nothing to drop.
    unsafe { ffi::lua_error(l) }
}

/// Handles an event of Lua's hook. Returns false, with an error on top, if the script must end.
///
/// # Safety
/// Called by `line_hook` only.
unsafe extern "C" fn run_line_hook(l: *mut ffi::lua_State, event: c_int) -> bool {
    // SAFETY: the state is live.
    let mut stack = unsafe { Stack::new(l) };
    let context = stack.context;
    // SAFETY: the context lives as long as the state.
    let context = unsafe { context.as_ref() };
    let (native_depth, top) = (context.native_depth.get(), stack.top());
    context.native_depth.set(native_depth + 1);
    let event = if event == ffi::LUA_HOOKCOUNT { HookEvent::Count } else { HookEvent::Line };
    let mut done = stack.raise_if_stopped();
    if done.is_ok() && event == HookEvent::Count {
        done = stack.interrupt();
    }
    let on_event = context.on_event.get();
    if done.is_ok() && !on_event.is_null() {
        // SAFETY: it is the address of an `OnEvent`, by `State::watch_lines`.
        let on_event = unsafe { std::mem::transmute::<*const c_void, OnEvent>(on_event) };
        done = on_event(&mut stack, event);
    }
    if done.is_ok() {
        stack.set_top(top);
    } else if context.stopped.get().is_some() {
        // From now on every instruction of this coroutine raises, so no `pcall` in it continues.
        // SAFETY: the state is live.
        unsafe { set_hook(l, 1) };
    }
    context.native_depth.set(native_depth);
    done.is_ok()
}

/// Sets Lua's hook in a state whose lines are watched.
///
/// # Safety
/// The state is live.
pub(super) unsafe fn set_line_hook(l: *mut ffi::lua_State) {
    let mask = ffi::LUA_MASKLINE | ffi::LUA_MASKCOUNT;
    // SAFETY: the caller's.
    unsafe { ffi::lua_sethook(l, Some(line_hook), mask, INSTRUCTIONS_BETWEEN_INTERRUPTS) };
}
