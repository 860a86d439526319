//! The libraries that Redis adds to Lua's own: `bit`, `cmsgpack`, `struct`, `cjson`; and our
//! replacements for functions of `string`. Their behaviour and error texts are those of the C
//! libraries of Redis; the code is ours.

pub(crate) mod bits;
pub(crate) mod cjson;
pub(crate) mod cmsgpack;
#[cfg(any(test, fuzzing))]
pub(crate) mod compare;
pub(crate) mod strings;
pub(crate) mod structs;
