//! MONITOR: turns a client into a monitor, which receives a line for each executed command.
//! `engine::publish::monitor` formats the lines.

use ::commands::table::{Acl, Arity, Command, Flags, Group, History};
use ::commands::{Args, CommandError};

use crate::context::{Runner, ServerCtx};

/// The commands that this file adds to the command table, through [`super::all`].
pub static COMMANDS: &[&Command<Runner>] = &[&MONITOR];

static MONITOR: Command<Runner> = Command {
    name: "MONITOR",
    summary: "Sends every command that the server runs to this connection.",
    history: History::since("1.0.0"),
    group: Group::Server,
    complexity: "",
    arity: Arity::Exactly(1),
    flags: Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::LOADING).union(Flags::STALE),
    acl: Acl::ADMIN.union(Acl::DANGEROUS),
    run: Runner::Server(monitor),
    ..Command::DEFAULT
};
/// Handles MONITOR: replies OK, then with a line for each command of any client, until RESET or the
/// end of the connection.
fn monitor(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    if ctx.session.in_exec {
        return Err(CommandError::Line("ERR MONITOR isn't allowed for DENY BLOCKING client"));
    }
    // A second MONITOR gets no reply, as in Redis.
    if !ctx.session.is_monitor() {
        ctx.shared.engine.monitors.add(&ctx.session.info);
        ctx.reply.ok();
    }
    Ok(())
}
