//! MODULE: the answers of a server without modules.

use ::commands::table::{Acl, Arity, Command, Flags, Group, History};
use ::commands::{Args, CommandError};

use crate::commands::help;
use crate::context::Runner;
use crate::context::ServerCtx;

/// This group's commands.
pub static COMMANDS: &[&Command<Runner>] = &[&MODULE];

static MODULE: Command<Runner> = Command {
    name: "MODULE",
    summary: "Commands about modules: there are none.",
    history: History::since("4.0.0"),
    group: Group::Server,
    complexity: "Depends on subcommand.",
    arity: Arity::AtLeast(2),
    flags: Flags::empty(),
    acl: Acl::empty(),
    subcommands: &[&MODULE_HELP, &MODULE_LIST],
    run: Runner::Server(super::container),
    ..Command::DEFAULT
};

static MODULE_LIST: Command<Runner> = Command {
    name: "LIST",
    summary: "Returns the modules: none.",
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
/// MODULE LIST: an empty array.
fn module_list(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    ctx.reply.empty_array();
    Ok(())
}

static MODULE_HELP: Command<Runner> = Command {
    name: "HELP",
    summary: "Explains the subcommands.",
    history: History::since("5.0.0"),
    flags: Flags::LOADING.union(Flags::STALE),
    acl: Acl::empty(),
    tips: &[],
    run: Runner::Server(module_help),
    ..MODULE_LIST
};
/// MODULE HELP.
fn module_help(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    help(ctx, "MODULE", &[("LIST", &["List the modules: none, modules cannot be loaded."])]);
    Ok(())
}
