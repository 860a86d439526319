//! The first line of a script, `#!lua flags=no-writes,allow-oom`, and of a library,
//! `#!lua name=mylib`.

use std::collections::HashSet;

use bitflags::bitflags;
use stdx::quoted::split_quoted;

bitflags! {
    /// The properties that a script or function declares by flags.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct ScriptFlags: u8 {
        /// `no-writes`: the script changes no data.
        const NO_WRITES = 1;
        /// `allow-oom`: the script may run when memory is full.
        const ALLOW_OOM = 1 << 1;
        /// `allow-stale`: the script may run on a replica that has lost its primary.
        const ALLOW_STALE = 1 << 2;
        /// `no-cluster`: the script must not run in a cluster.
        const NO_CLUSTER = 1 << 3;
        /// `allow-cross-slot-keys`: the script's keys may be in several cluster slots.
        const ALLOW_CROSS_SLOT_KEYS = 1 << 4;
        /// A script without a first line `#!`: each of its commands is checked on its own.
        const COMPATIBLE = 1 << 7;
    }
}

/// The names of script flags with their bits, as FUNCTION LIST shows them.
pub const FLAG_NAMES: [(&str, ScriptFlags); 5] = [
    ("no-writes", ScriptFlags::NO_WRITES),
    ("allow-oom", ScriptFlags::ALLOW_OOM),
    ("allow-stale", ScriptFlags::ALLOW_STALE),
    ("no-cluster", ScriptFlags::NO_CLUSTER),
    ("allow-cross-slot-keys", ScriptFlags::ALLOW_CROSS_SLOT_KEYS),
];

/// Returns the script flag called `name`; `None` if no flag has this name.
pub fn parse_flag(name: &[u8]) -> Option<ScriptFlags> {
    FLAG_NAMES.iter().find(|(known, _)| known.as_bytes() == name).map(|(_, flag)| *flag)
}

/// Parses the first line of a script. Returns its flags and the Lua code, which begins at the end
/// of that line so that lines keep their numbers. The error is a line without its `ERR`.
pub fn parse_script_line(body: &[u8]) -> Result<(ScriptFlags, &[u8]), Vec<u8>> {
    if !body.starts_with(b"#!") {
        return Ok((ScriptFlags::COMPATIBLE, body));
    }
    let Some(end) = body.iter().position(|&byte| byte == b'\n') else {
        return Err(b"Invalid script shebang".to_vec());
    };
    let (line, code) = body.split_at(end);
    let words = split_quoted(line).unwrap_or_default();
    let Some((engine, options)) = words.split_first() else {
        return Err(b"Invalid engine in script shebang".to_vec());
    };
    if engine != b"#!lua" {
        return Err([b"Unexpected engine in script shebang: ", engine.as_slice()].concat());
    }
    let mut flags = ScriptFlags::empty();
    for option in options {
        let Some(names) = option.strip_prefix(b"flags=") else {
            return Err([b"Unknown lua shebang option: ", option.as_slice()].concat());
        };
        if names.is_empty() {
            continue;
        }
        for name in names.split(|&byte| byte == b',') {
            flags |=
                parse_flag(name).ok_or_else(|| [b"Unexpected flag in script shebang: ", name].concat())?;
        }
    }
    Ok((flags, code))
}

/// A function that a library has registered, with its description and flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionInfo {
    /// The name by which FCALL calls the function.
    pub name: Vec<u8>,
    /// The description of the function, if the library gave one.
    pub description: Option<Vec<u8>>,
    /// The flags that the function declares, such as `no-writes`.
    pub flags: ScriptFlags,
}

/// The functions that a library has registered while it is loaded, in order. Each name is
/// registered once.
#[derive(Default)]
pub(crate) struct Registered {
    functions: Vec<FunctionInfo>,
    names: HashSet<Vec<u8>>,
}

impl Registered {
    /// Adds a function that the library registers, and returns its number, from 1; returns `None`
    /// if the name is taken. O(1).
    pub(crate) fn add(&mut self, info: FunctionInfo) -> Option<i32> {
        if !self.names.insert(info.name.clone()) {
            return None;
        }
        self.functions.push(info);
        Some(self.functions.len() as i32)
    }

    /// Returns the functions that the library has registered, in order.
    pub(crate) fn into_functions(self) -> Vec<FunctionInfo> {
        self.functions
    }
}
