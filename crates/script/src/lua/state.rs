//! A Lua state and its memory allocator.

use std::ffi::c_void;
use std::ptr::{self, NonNull};

use mlua_sys as ffi;
use resp::Protocol;

use super::blocks::layout_of;
use super::context::Context;
use super::stack::{OnEvent, Stack, set_line_hook, set_usual_hook, stack_address};
use crate::commands::{Commands, Stop};

/// A state of the Lua interpreter: its stack, values and memory. Belongs to one thread.
pub(crate) struct State {
    l: *mut ffi::lua_State,
    context: NonNull<Context>,
    stack: Stack,
    /// The memory that Lua held after the last full garbage collection, in bytes.
    left_bytes: usize,
}

/// The memory below which only Lua itself decides when to collect garbage, in bytes.
const LEFT_ALONE_BYTES_MAX: usize = 4 << 20;
/// The maximum growth factor of Lua's memory since the last full collection; above it, there is
/// another one.
const GROWTH_MAX: usize = 4;

/// The libraries of PUC Lua itself that a state loads: the function that opens each, and its name.
const LIBRARIES: [(unsafe extern "C-unwind" fn(*mut ffi::lua_State) -> i32, &[u8]); 6] = [
    (ffi::luaopen_base, b""),
    (ffi::luaopen_table, b"table"),
    (ffi::luaopen_string, b"string"),
    (ffi::luaopen_math, b"math"),
    (ffi::luaopen_os, b"os"),
    (ffi::luaopen_debug, b"debug"),
];

impl State {
    /// Creates a Lua state with PUC Lua's own libraries, without a sandbox.
    pub(crate) fn new(limit_bytes: Option<usize>) -> Self {
        let context = NonNull::from(Box::leak(Box::new(Context::new(limit_bytes))));
        // SAFETY: the allocator does what Lua's manual requires of one, and its data outlives the
        // state.
        let l = unsafe { ffi::lua_newstate(allocate, context.as_ptr().cast()) };
        assert!(!l.is_null(), "no memory is refused while our code runs");
        for (open, name) in LIBRARIES {
            // SAFETY: a C function, called as Lua's `linit.c` does.
            unsafe { ffi::lua_pushcclosure(l, open, 0) };
            // SAFETY: there is room in a new state.
            unsafe { ffi::lua_pushlstring_(l, name.as_ptr().cast(), name.len()) };
            // SAFETY: function and argument are on the stack; nothing in it can fail but memory.
            unsafe { ffi::lua_call(l, 1, 0) };
        }
        // SAFETY: the state is live, and nothing of it runs.
        let stack = unsafe { Stack::of_call(l) };
        // SAFETY: the state is live.
        unsafe { set_usual_hook(l) };
        Self { l, context, stack, left_bytes: 0 }
    }

    /// Returns the stack of the Lua state, outside of all calls of functions.
    pub(crate) fn stack(&mut self) -> &mut Stack {
        &mut self.stack
    }

    /// Resets the data about the last run of a script, and calls `work`. During the call, scripts
    /// can use the server through `commands`.
    pub(crate) fn with_commands<R>(
        &mut self,
        commands: &mut dyn Commands,
        work: impl FnOnce(&mut Stack) -> R,
    ) -> R {
        let commands: NonNull<dyn Commands + '_> = NonNull::from(commands);
        // SAFETY: only the lifetime changes; the address is removed before the lifetime ends. On
        // unwinding, `forget` removes it, too. After a panic, nobody may use the `Vm` again.
        let commands =
            unsafe { std::mem::transmute::<NonNull<dyn Commands + '_>, NonNull<dyn Commands>>(commands) };
        let context = self.context();
        context.commands.set(Some(commands));
        context.stopped.set(None);
        context.stopped_at.take();
        context.raised_at.take();
        context.stack_start.set(stack_address());
        context.protocol.set(Protocol::Resp2);
        let forget = Forget(self.context);
        let result = work(&mut self.stack);
        drop(forget);
        if self.context().stopped.get().is_some() {
            // SAFETY: the state is live.
            unsafe { set_usual_hook(self.l) };
        }
        result
    }

    /// Returns the source and line where the last script was stopped; `None` if it was not.
    pub(crate) fn stopped_at(&self) -> Option<(Vec<u8>, i32)> {
        self.context().stopped_at.borrow().clone()
    }

    /// Returns the reason why the last script was stopped; `None` if it was not stopped.
    pub(crate) fn stopped(&self) -> Option<Stop> {
        self.context().stopped.get()
    }

    /// Returns the data that this crate keeps for the Lua state.
    pub(crate) fn context(&self) -> &Context {
        // SAFETY: it lives as long as `self`.
        unsafe { self.context.as_ref() }
    }

    /// Returns the memory that the Lua state holds, in bytes.
    pub(crate) fn used_bytes(&self) -> usize {
        self.context().used_bytes.get()
    }

    /// Collects garbage if Lua holds over three quarters of its memory limit, or much more than the
    /// last full collection left. Lua 5.1 does not collect when it is refused memory.
    ///
    /// In all other cases Lua decides. By default, Lua collects when it holds twice the memory that
    /// the last collection left. A higher factor would spread frequently used values over more
    /// memory than the CPU cache holds (docs/performance.md). But a collection during a script that
    /// holds much memory leaves much of it, and the next one would come only after twice as much
    /// garbage.
    pub(crate) fn collect_if_large(&mut self) {
        let used_bytes = self.used_bytes();
        let is_near_limit = used_bytes > self.context().limit_bytes.get() / 4 * 3;
        let is_grown = used_bytes > LEFT_ALONE_BYTES_MAX.max(self.left_bytes.saturating_mul(GROWTH_MAX));
        if !is_near_limit && !is_grown {
            return;
        }
        self.collect();
        // Lua halves the buffer of its string operations in each collection.
        let mut before_bytes = used_bytes;
        while self.left_bytes > LEFT_ALONE_BYTES_MAX && self.left_bytes <= before_bytes / 4 * 3 {
            before_bytes = self.left_bytes;
            self.collect();
        }
    }

    /// Runs a whole garbage collection of the Lua state. O(memory of Lua).
    pub(crate) fn collect(&mut self) {
        // SAFETY: the state is live; scripts cannot define finalizers.
        unsafe { ffi::lua_gc(self.l, ffi::LUA_GCCOLLECT, 0) };
        self.left_bytes = self.used_bytes();
    }

    /// Pops a table and makes it the global variables of code that is compiled from now on.
    pub(crate) fn set_globals(&mut self) {
        assert!(self.stack.kind(-1) == super::Type::Table, "global variables are a table");
        // SAFETY: there is a table on top.
        unsafe { ffi::lua_replace(self.l, ffi::LUA_GLOBALSINDEX) };
    }

    /// Makes Lua call `on_event` when a line begins, and about every 10,000 instructions.
    pub(crate) fn watch_lines(&mut self, on_event: OnEvent) {
        self.context().on_event.set(on_event as *const c_void);
        // SAFETY: the state is live.
        unsafe { set_line_hook(self.l) };
    }

    /// Pushes the table of the state's global variables.
    pub(crate) fn push_globals(&mut self) {
        assert!(self.stack.has_room(1), "the bottom of all stacks is short");
        // SAFETY: there is room.
        unsafe { ffi::lua_pushvalue(self.l, ffi::LUA_GLOBALSINDEX) };
    }
}

/// A guard that, when dropped, removes the interface to the server from the context.
struct Forget(NonNull<Context>);

impl Drop for Forget {
    fn drop(&mut self) {
        // SAFETY: the state that made this outlives it.
        unsafe { self.0.as_ref() }.commands.set(None);
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // SAFETY: the state is live, and nobody uses it from here on.
        unsafe { ffi::lua_close(self.l) };
        // SAFETY: it was leaked from a box by `new`, and the state that used it is closed.
        drop(unsafe { Box::from_raw(self.context.as_ptr()) });
    }
}

/// The minimum size of an allocation that counts as work ([`Context::work`]), in bytes.
const COUNTED_BYTES_MIN: usize = 1024;

/// Allocates, resizes or frees a block of Lua. The memory is from the process' allocator, with a
/// limit for Lua's own code. Most calls allocate or free small blocks.
unsafe extern "C" fn allocate(
    data: *mut c_void,
    old: *mut c_void,
    old_len: usize,
    len: usize,
) -> *mut c_void {
    // SAFETY: `State::new` gave this address, and the context outlives the state.
    let context = unsafe { &*data.cast::<Context>() };
    match NonNull::new(old.cast::<u8>()) {
        None => {
            let used = context.used_bytes.get().saturating_add(len);
            if used <= context.limit_bytes.get()
                && let Some(block) = context.blocks.reuse(len)
            {
                context.used_bytes.set(used);
                return block.as_ptr().cast();
            }
            // SAFETY: there is no old block.
            unsafe { resize(context, None, len) }.cast()
        }
        Some(old) if len == 0 => {
            context.used_bytes.set(context.used_bytes.get() - old_len);
            // SAFETY: it was allocated here with that length.
            unsafe { context.blocks.free(old, old_len) };
            ptr::null_mut()
        }
        // SAFETY: Lua passes a block that it got here, with its length, and no longer uses the
        // block unless null is returned.
        Some(old) => unsafe { resize(context, Some((old, old_len)), len) }.cast(),
    }
}

/// Handles the rare calls of [`allocate`]: returns a block of `len` bytes that replaces `old`, or
/// null.
///
/// `old` was allocated by [`allocate`] with that length. The caller does not use its address again
/// unless null is returned.
unsafe fn resize(context: &Context, old: Option<(NonNull<u8>, usize)>, len: usize) -> *mut u8 {
    let old_len = old.map_or(0, |(_, old_len)| old_len);
    let used = context.used_bytes.get() - old_len;
    let exceeds_limit = len > old_len && used.saturating_add(len) > context.limit_bytes.get();
    if len == 0 || (exceeds_limit && context.native_depth.get() == 0) || len > isize::MAX as usize - 16 {
        return ptr::null_mut();
    }
    // Lua's own code may work for a long time without running an instruction, when it joins texts
    // or grows tables. While the server is asked, it does not use this state.
    let is_counted = len > old_len && len >= COUNTED_BYTES_MIN;
    if is_counted && context.work(len).is_err() && context.native_depth.get() == 0 {
        return ptr::null_mut();
    }
    let new = match old {
        None => context.blocks.allocate(len),
        // SAFETY: the caller's, and `len` is not 0.
        Some((old, old_len)) => unsafe { context.blocks.resize(old, old_len, len) },
    };
    if !new.is_null() {
        context.used_bytes.set(used + len);
    } else if context.native_depth.get() > 0 {
        std::alloc::handle_alloc_error(layout_of(len));
    }
    new
}
