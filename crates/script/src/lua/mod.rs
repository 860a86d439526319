//! The only use of Lua's C interface: a state ([`State`]), and the stack that a function of ours
//! works on ([`Stack`]). All unsafe code of this crate is here.
//!
//! The code is sound for these reasons:
//! - Lua reports errors by `longjmp`, which must not pass over Rust frames that own values to drop.
//!   So our functions never raise. They return `Err(Raise)` with the value on top of the stack.
//!   `script_call_native`, whose frame owns nothing, raises it.
//! - The calls of Lua's interface in our functions raise for one reason only: missing memory. The
//!   allocator never refuses memory while our code runs (`Context::native_depth`). The limit is
//!   checked afterwards. Calls of Lua functions are protected (`lua_pcall`).
//! - Indices and stack sizes are checked: an index outside of the stack is `nil` or a panic, and
//!   each push first ensures that there is room on the stack.
//! - The bytes of a string live as long as the string is on the stack, or in a table that is on the
//!   stack. They borrow the `Stack`; popping and calling need it mutably.
//! - A table's string must not be removed from its table while its bytes are in use. No code here
//!   does that.
//! - A panic in our code ends the process (`extern "C"`). It does not unwind through C frames.

mod blocks;
mod builtin;
mod context;
mod number;
mod stack;
mod state;
mod texts;

pub(crate) use builtin::BuiltinStringFn;
pub(crate) use context::Rng;
pub(crate) use stack::{Function, HookEvent, Raise, Returns, Stack, Type, truncate};
pub(crate) use state::State;
