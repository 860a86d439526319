//! The libraries that Redis adds to Lua's own: `bit`, `cmsgpack`, `struct`, `cjson`; and the
//! functions of `string` that are not Lua's own. What they do, error texts included, is what the C
//! libraries of Redis do; the code is ours.

pub(crate) mod bits;
pub(crate) mod cjson;
pub(crate) mod cmsgpack;
#[cfg(any(test, fuzzing))]
pub(crate) mod compare;
pub(crate) mod strings;
pub(crate) mod structs;
