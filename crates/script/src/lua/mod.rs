//! The one way to Lua's C interface: a state ([`State`]), and the stack that a function of ours
//! sees ([`Stack`]). Everything unsafe of this crate stands here.
//!
//! What makes it sound:
//! - Lua reports errors by `longjmp`, which must not pass over Rust frames that have something to
//!   drop. So our functions never raise: they return `Err(Raise)` with the value on top of the
//!   stack, and `script_call_ours`, whose frame holds nothing, raises it. The calls of Lua's
//!   interface that we use in between raise for one reason only, missing memory, and the allocator
//!   never refuses memory while our code runs (`Context::ours`): the limit is looked at afterwards.
//!   Calls of Lua functions are protected (`lua_pcall`).
//! - Indices and stack sizes are checked: an index outside of the stack is `nil` or a panic,
//!   pushing reserves room first.
//! - Bytes of a string live as long as the string is on the stack or in a table that is. They are
//!   lent for as long as the `Stack` is borrowed; popping and calling need it mutably. A table's
//!   string must not be taken out of its table while its bytes are in use: nothing here does.
//! - A panic in our code ends the process (`extern "C"`), it does not unwind through C frames.

mod blocks;
mod cheap;
mod context;
mod number;
mod stack;
mod state;
mod texts;

pub(crate) use cheap::Cheap;
pub(crate) use context::Rng;
pub(crate) use stack::{Function, HookEvent, Raise, Returns, Stack, Type, truncate};
pub(crate) use state::State;
