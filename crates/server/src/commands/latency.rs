//! LATENCY: how long commands take.

use ::commands::table::{Acl, Arg, Arity, Command, Flags, Group};
use ::commands::{Args, CommandError};

use crate::command_table::{Registered, Runner};
use crate::context::ServerCtx;

/// This group's commands.
pub static COMMANDS: &[&Command<Runner>] = &[&LATENCY];

static LATENCY: Command<Runner> = Command {
    name: "LATENCY",
    summary: "Commands about how long commands take.",
    since: "2.8.13",
    group: Group::Server,
    complexity: "",
    deprecated: None,
    arity: Arity::AtLeast(2),
    flags: Flags::empty(),
    acl: Acl::empty(),
    keys: &[],
    tips: &[],
    args: &[],
    subcommands: &[&LATENCY_HELP, &LATENCY_HISTOGRAM],
    run: Runner::Server(latency),
};
/// LATENCY without a known subcommand: dispatch has answered.
fn latency(_ctx: &mut ServerCtx<'_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    Err(CommandError::WrongArity("latency"))
}

static LATENCY_HELP: Command<Runner> = Command {
    name: "HELP",
    summary: "Lists the subcommands.",
    since: "2.8.13",
    group: Group::Server,
    complexity: "O(1)",
    deprecated: None,
    arity: Arity::Exactly(2),
    flags: Flags::LOADING.union(Flags::STALE),
    acl: Acl::empty(),
    keys: &[],
    tips: &[],
    args: &[],
    subcommands: &[],
    run: Runner::Server(latency_help),
};
/// LATENCY HELP.
fn latency_help(ctx: &mut ServerCtx<'_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    let lines = ["How many calls took how long, of these commands or of all that were run."];
    super::help(ctx, "LATENCY", &[("HISTOGRAM [<command> ...]", &lines)]);
    Ok(())
}

static LATENCY_HISTOGRAM: Command<Runner> = Command {
    name: "HISTOGRAM",
    summary: "Returns how many calls of commands took how long.",
    since: "7.0.0",
    group: Group::Server,
    complexity: "O(N)",
    deprecated: None,
    arity: Arity::AtLeast(2),
    flags: Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::LOADING).union(Flags::STALE),
    acl: Acl::ADMIN.union(Acl::DANGEROUS),
    keys: &[],
    tips: &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
    args: &[Arg::string("command").optional().multiple()],
    subcommands: &[],
    run: Runner::Server(latency_histogram),
};
/// LATENCY HISTOGRAM [command ...]: unknown commands are passed over, a container stands for its subcommands.
fn latency_histogram(ctx: &mut ServerCtx<'_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let table = &ctx.shared.table;
    let mut asked: Vec<&'static Registered> = Vec::new();
    if args.len() == 2 {
        asked.extend((0..table.id_count()).map(|id| table.by_id(id)));
    }
    for name in args.from(2) {
        let Some(found) = table.find_full(name) else { continue };
        asked.push(found);
        asked.extend(found.subcommands.iter().copied());
    }
    let begun = ctx.reply.begin_map();
    let mut commands = 0;
    for registered in asked {
        let times = ctx.shared.times_of(registered.id);
        if times.calls == 0 {
            continue;
        }
        commands += 1;
        ctx.reply.bulk(registered.full_name.as_bytes());
        ctx.reply.map(2);
        ctx.reply.bulk(b"calls");
        ctx.reply.integer(times.calls as i64);
        ctx.reply.bulk(b"histogram_usec");
        let limits = times.cumulative_usec();
        ctx.reply.map(limits.len());
        for (usec, calls) in limits {
            ctx.reply.integer(usec as i64);
            ctx.reply.integer(calls as i64);
        }
    }
    ctx.reply.end_map(begun, commands);
    Ok(())
}
