//! The keys of a request for COMMAND GETKEYS and GETKEYSANDFLAGS. [`for_each_key`] finds them.
//! Dispatch uses the same function to lock keys and to check permissions.

use ::commands::keys::for_each_key;
use ::commands::table::{Begin, Flags, KeyFlags, KeySpec};
use ::commands::{Args, CommandError};
use engine::acl::{actual_flags, keys_of_migrate};
use engine::table::{CommandTable, Registered};

/// Returns the positions of a request's keys among its arguments, each with the flags of the key.
/// O(arguments).
///
/// # Errors
/// For an unknown command, a command without keys, a wrong number of arguments, and arguments that
/// name no key.
pub fn keys_of(table: &CommandTable, request: &Args<'_>) -> Result<Vec<(usize, KeyFlags)>, CommandError> {
    let unknown = CommandError::Line("ERR Invalid command specified");
    let mut registered = table.find(request.get(0)).ok_or(unknown.clone())?;
    if let (Some(name), false) = (request.try_get(1), registered.subcommands.is_empty()) {
        registered = registered.subcommand(name).ok_or(unknown)?;
    }
    let command = &registered.command;
    let specs: Vec<KeySpec> =
        command.keys.iter().filter(|spec| !spec.flags.contains(KeyFlags::NOT_KEY)).copied().collect();
    if specs.is_empty() {
        return Err(CommandError::Line("ERR The command has no key arguments"));
    }
    if !command.accepts(request.len()) {
        return Err(CommandError::Line("ERR Invalid number of arguments specified for command"));
    }
    let keys = match registered.full_name {
        "migrate" => keys_of_migrate(request).map(|places| places.map(|at| (at, specs[0].flags)).collect()),
        _ => keys_by_specs(registered, &specs, request),
    };
    match keys {
        Some(keys) if !keys.is_empty() || command.flags.contains(Flags::NO_MANDATORY_KEYS) => Ok(keys),
        _ => Err(CommandError::Line("ERR Invalid arguments specified for command")),
    }
}

/// Returns the positions of the keys that a command's key specs find in a request; `None` if a
/// required key is missing. A spec that begins with a keyword may find no key.
fn keys_by_specs(
    registered: &Registered,
    specs: &[KeySpec],
    request: &Args<'_>,
) -> Option<Vec<(usize, KeyFlags)>> {
    let optional = registered.command.flags.contains(Flags::NO_MANDATORY_KEYS);
    let mut keys = Vec::new();
    for spec in specs {
        let before = keys.len();
        for_each_key(&[*spec], request, |at, spec| keys.push((at, actual_flags(registered, spec, request))));
        if matches!(spec.begin, Begin::Index(_)) && keys.len() == before && !optional {
            return None;
        }
    }
    Some(keys)
}
