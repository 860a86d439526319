//! The keys of a request and the access to each, for commands whose entry in the command table does
//! not determine them alone.

use commands::Args;
use commands::keys::{fit, for_each_key};
use commands::table::{KeyFlags, KeySpec};

use crate::table::Registered;

/// Calls `visit` for each key that the request's handler uses, with the index of the argument and
/// the flags of the key. Makes no call if the handler will refuse the request because of its
/// arguments. O(keys), plus the arguments that are searched for a keyword.
#[inline]
pub(super) fn for_each_used(
    registered: &Registered,
    args: &Args<'_>,
    mut visit: impl FnMut(usize, KeyFlags),
) {
    let keys = registered.command.keys;
    if registered.full_name == "migrate" {
        for at in keys_of_migrate(args).into_iter().flatten() {
            visit(at, keys[0].flags);
        }
        return;
    }
    if !fit(keys, args) {
        return;
    }
    for_each_key(keys, args, |at, spec| {
        if !spec.flags.contains(KeyFlags::NOT_KEY) {
            visit(at, actual_flags(registered, spec, args));
        }
    });
}

/// Returns the argument indexes of MIGRATE's keys: its single key or, if that is the empty string,
/// the keys after KEYS. Returns `None` if there is both a single key and KEYS.
pub fn keys_of_migrate(request: &Args<'_>) -> Option<std::ops::Range<usize>> {
    const ONE_KEY: usize = 3;
    let mut at = 6;
    while at < request.len() && !request.is(at, "KEYS") {
        at += match () {
            () if request.is(at, "AUTH") => 2,
            () if request.is(at, "AUTH2") => 3,
            () => 1,
        };
    }
    if at + 1 >= request.len() {
        return Some(ONE_KEY..ONE_KEY + 1);
    }
    request.get(ONE_KEY).is_empty().then(|| at + 1..request.len())
}

/// Returns the flags of a key in this request. For commands with `VARIABLE_FLAGS` in their entry of
/// the command table, the flags depend on the arguments.
#[inline]
pub fn actual_flags(registered: &Registered, spec: &KeySpec, request: &Args<'_>) -> KeyFlags {
    if !spec.flags.contains(KeyFlags::VARIABLE_FLAGS) {
        return spec.flags;
    }
    match registered.full_name {
        // SET with GET reads the old value. The search begins at 3, since the new value may itself
        // be `GET`.
        "set" if (3..request.len()).any(|at| request.is(at, "GET")) => {
            KeyFlags::RW | KeyFlags::ACCESS | KeyFlags::UPDATE
        }
        "set" => KeyFlags::OW | KeyFlags::UPDATE,
        "bitfield" if only_gets(request) => KeyFlags::RO | KeyFlags::ACCESS,
        _ => spec.flags - KeyFlags::VARIABLE_FLAGS,
    }
}

/// Returns true if all subcommands of BITFIELD in this request are complete and are GET or
/// OVERFLOW.
fn only_gets(request: &Args<'_>) -> bool {
    let mut at = 2;
    while at < request.len() {
        at += match () {
            () if request.is(at, "GET") => 3,
            () if request.is(at, "OVERFLOW") => 2,
            () => return false,
        };
    }
    at == request.len()
}
