//! MODULE on a server without modules. As in Redis, MODULE LOAD, LOADEX and UNLOAD require
//! `enable-module-command`. If it permits them, they fail, because this server has no modules.

use ::commands::table::{Acl, Arg, Arity, Command, Flags, Group, History};
use ::commands::{Args, CommandError};

use crate::commands::help;
use crate::config::table::security;
use crate::context::Runner;
use crate::context::ServerCtx;

/// The commands that this file adds to the command table, through [`super::all`].
pub static COMMANDS: &[&Command<Runner>] = &[&MODULE];

static MODULE: Command<Runner> = Command {
    name: "MODULE",
    summary: "A container for commands that manage modules. Saker has no modules.",
    history: History::since("4.0.0"),
    group: Group::Server,
    complexity: "Depends on subcommand.",
    arity: Arity::AtLeast(2),
    flags: Flags::empty(),
    acl: Acl::empty(),
    subcommands: &[&MODULE_HELP, &MODULE_LIST, &MODULE_LOAD, &MODULE_LOADEX, &MODULE_UNLOAD],
    run: Runner::Server(super::container),
    ..Command::DEFAULT
};

static MODULE_LIST: Command<Runner> = Command {
    name: "LIST",
    summary: "Returns an empty list, because Saker has no modules.",
    history: History::since("4.0.0"),
    group: Group::Server,
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    flags: Flags::ADMIN.union(Flags::NOSCRIPT),
    acl: Acl::ADMIN.union(Acl::DANGEROUS),
    tips: &["nondeterministic_output_order"],
    run: Runner::Server(module_list),
    ..Command::DEFAULT
};
/// Handles MODULE LIST: replies with an empty array.
fn module_list(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    ctx.reply.empty_array();
    Ok(())
}

static MODULE_LOAD: Command<Runner> = Command {
    name: "LOAD",
    summary: "Fails, because Saker has no modules.",
    arity: Arity::AtLeast(3),
    flags: Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::NO_ASYNC_LOADING),
    tips: &[],
    args: &[Arg::string("path"), Arg::string("arg").optional().multiple()],
    run: Runner::Server(module_load),
    ..MODULE_LIST
};
/// Handles MODULE LOAD path [arg ...] and MODULE LOADEX: always an error.
fn module_load(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    check_permitted(ctx)?;
    tracing::warn!("MODULE LOAD refused: this server has no modules");
    Err(CommandError::Line("ERR Error loading the extension. Please check the server logs."))
}

static MODULE_LOADEX: Command<Runner> = Command {
    name: "LOADEX",
    history: History::since("7.0.0"),
    args: &[
        Arg::string("path"),
        Arg::block("configs", &[Arg::string("name"), Arg::string("value")])
            .token("CONFIG")
            .optional()
            .multiple_token(),
        Arg::string("args").token("ARGS").optional().multiple(),
    ],
    ..MODULE_LOAD
};

static MODULE_UNLOAD: Command<Runner> = Command {
    name: "UNLOAD",
    arity: Arity::Exactly(3),
    args: &[Arg::string("name")],
    run: Runner::Server(module_unload),
    ..MODULE_LOAD
};
/// Handles MODULE UNLOAD name: always an error.
fn module_unload(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    check_permitted(ctx)?;
    Err(CommandError::Line("ERR Error unloading module: no such module with that name"))
}

/// Checks that `enable-module-command` permits this client.
fn check_permitted(ctx: &ServerCtx<'_, '_, '_>) -> Result<(), CommandError> {
    let permitted = security::ENABLE_MODULE_COMMAND.of(&ctx.shared.config());
    if permitted.includes(&ctx.session.info.peer) { Ok(()) } else { Err(CommandError::Line(NOT_PERMITTED)) }
}

const NOT_PERMITTED: &str = "ERR MODULE command not allowed. If the enable-module-command option is set to \
    \"local\", you can run it from a local connection, otherwise you need to set this option in the \
    configuration file, and then restart the server.";

static MODULE_HELP: Command<Runner> = Command {
    name: "HELP",
    summary: "Lists the subcommands.",
    history: History::since("5.0.0"),
    flags: Flags::LOADING.union(Flags::STALE),
    acl: Acl::empty(),
    tips: &[],
    run: Runner::Server(module_help),
    ..MODULE_LIST
};
/// Handles MODULE HELP: lists the subcommands with their syntax.
fn module_help(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    let subcommands: &[(&str, &[&str])] = &[
        ("LIST", &["List the modules. The list is empty, because Saker has no modules."]),
        ("LOAD <path> [<arg> ...]", &["Fails."]),
        ("LOADEX <path> [[CONFIG NAME VALUE] [CONFIG NAME VALUE]] [ARGS ...]", &["Fails."]),
        ("UNLOAD <name>", &["Fails, because Saker has no modules."]),
    ];
    help(ctx, "MODULE", subcommands);
    Ok(())
}
