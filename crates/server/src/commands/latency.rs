//! LATENCY: the durations of commands, and events that took too long.

use ::commands::table::{Acl, Arg, Arity, Command, Flags, Group, History};
use ::commands::{Args, CommandError};
use engine::stats::command_log::Kind;
use engine::stats::histogram::Times;
use engine::stats::latency_events::{self, ReportInput};
use engine::table::Registered;
use engine::threads::Threads;

use crate::context::Runner;
use crate::context::ServerCtx;

/// The commands that this file adds to the command table, through [`super::all`].
pub static COMMANDS: &[&Command<Runner>] = &[&LATENCY];

/// The command flags of the LATENCY subcommands.
const FLAGS: Flags = Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::LOADING).union(Flags::STALE);

static LATENCY: Command<Runner> = Command {
    name: "LATENCY",
    summary: "A container for commands that show latencies of commands and latency events.",
    history: History::since("2.8.13"),
    group: Group::Server,
    complexity: "Depends on subcommand.",
    arity: Arity::AtLeast(2),
    flags: Flags::empty(),
    acl: Acl::empty(),
    subcommands: &[
        &LATENCY_DOCTOR,
        &LATENCY_END_TO_END,
        &LATENCY_GRAPH,
        &LATENCY_HELP,
        &LATENCY_HISTOGRAM,
        &LATENCY_HISTORY,
        &LATENCY_LATEST,
        &LATENCY_RESET,
    ],
    run: Runner::Server(super::container),
    ..Command::DEFAULT
};

static LATENCY_HELP: Command<Runner> = Command {
    history: History::since("2.8.13"),
    group: Group::Server,
    run: Runner::Server(latency_help),
    ..Command::HELP
};
/// Handles LATENCY HELP: lists the subcommands with their syntax.
fn latency_help(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    super::help(
        ctx,
        "LATENCY",
        &[
            ("DOCTOR", &["Reports latency events and gives advice."]),
            (
                "END-TO-END [<command> ...]",
                &["Like HISTOGRAM, for the times from the arrival of a request until its reply is sent."],
            ),
            ("GRAPH <event>", &["Draws the latency spikes of an event as a graph."]),
            (
                "HISTOGRAM [<command> ...]",
                &["Histograms of the execution times of these commands, or of all that were called."],
            ),
            ("HISTORY <event>", &["The latency spikes of an event: Unix time and milliseconds."]),
            (
                "LATEST",
                &[
                    "For each event: name, Unix time and duration of the latest spike, duration of the longest.",
                ],
            ),
            ("RESET [<event> ...]", &["Removes the latency spikes of these events, or of all."]),
        ],
    );
    Ok(())
}

static LATENCY_HISTOGRAM: Command<Runner> = Command {
    name: "HISTOGRAM",
    summary: "Returns histograms of the execution times of commands.",
    history: History::since("7.0.0"),
    group: Group::Server,
    complexity: "O(N)",
    arity: Arity::AtLeast(2),
    flags: FLAGS,
    acl: Acl::ADMIN.union(Acl::DANGEROUS),
    tips: &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
    args: &[Arg::string("command").optional().multiple()],
    run: Runner::Server(latency_histogram),
    ..Command::DEFAULT
};
/// Handles LATENCY HISTOGRAM [command ...]: replies with histograms of the execution times. Unknown
/// commands are ignored; the name of a container (CONFIG) selects all its subcommands.
fn latency_histogram(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    reply_histograms(ctx, args, Threads::times_of);
    Ok(())
}

static LATENCY_END_TO_END: Command<Runner> = Command {
    name: "END-TO-END",
    summary: "Returns histograms of the times of commands from the arrival of a request until its reply is \
         sent.",
    history: History::only_here(),
    run: Runner::Server(latency_end_to_end),
    ..LATENCY_HISTOGRAM
};
/// Handles LATENCY END-TO-END [command ...]: replies like LATENCY HISTOGRAM, but with the times
/// from the arrival of a request until its reply is sent.
fn latency_end_to_end(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    reply_histograms(ctx, args, Threads::end_to_end_of);
    Ok(())
}

/// Replies with a histogram for each command that is named from argument 2 on, or for all commands
/// if none is named. Commands without calls are left out. `times_of` returns the times of a
/// command.
fn reply_histograms(
    ctx: &mut ServerCtx<'_, '_, '_>,
    args: &Args<'_>,
    times_of: fn(&Threads, usize) -> Times,
) {
    let table = &ctx.shared.engine.table;
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
        let times = times_of(&ctx.shared.engine.threads, registered.id);
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
}

static LATENCY_DOCTOR: Command<Runner> = Command {
    name: "DOCTOR",
    summary: "Reports latency events and gives advice.",
    history: History::since("2.8.13"),
    group: Group::Server,
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    flags: FLAGS,
    acl: Acl::ADMIN.union(Acl::DANGEROUS),
    tips: &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
    run: Runner::Server(latency_doctor),
    ..Command::DEFAULT
};
/// Handles LATENCY DOCTOR: replies with a report and advice in words.
fn latency_doctor(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    let thresholds = &ctx.settings.thresholds;
    let at = ReportInput {
        unix_s: ctx.now_ms / 1000,
        threshold_ms: thresholds.latency_ms,
        slowlog_usec: Some(thresholds.from[Kind::Slow as usize])
            .filter(|&nanos| nanos != u64::MAX)
            .map(|nanos| nanos / 1000),
    };
    let text = latency_events::report(&ctx.shared.engine.latency_events.series(), at);
    ctx.reply.verbatim(*b"txt", text.as_bytes());
    Ok(())
}

static LATENCY_GRAPH: Command<Runner> = Command {
    name: "GRAPH",
    summary: "Draws the latency spikes of an event as a graph.",
    history: History::since("2.8.13"),
    group: Group::Server,
    complexity: "O(1)",
    arity: Arity::Exactly(3),
    flags: FLAGS,
    acl: Acl::ADMIN.union(Acl::DANGEROUS),
    tips: &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
    args: &[Arg::string("event")],
    run: Runner::Server(latency_graph),
    ..Command::DEFAULT
};
/// Handles LATENCY GRAPH event: replies with a drawing of the event's samples.
fn latency_graph(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let Some(series) = ctx.shared.engine.latency_events.series_of(args.get(2)) else {
        return Err(CommandError::quoting("ERR No samples available for event '", args.get(2), "'"));
    };
    ctx.reply.verbatim(*b"txt", latency_events::graph(&series, ctx.now_ms / 1000).as_bytes());
    Ok(())
}

static LATENCY_HISTORY: Command<Runner> = Command {
    name: "HISTORY",
    summary: "Returns the latency spikes of an event.",
    run: Runner::Server(latency_history),
    ..LATENCY_GRAPH
};
/// Handles LATENCY HISTORY event: replies with the samples of an event, each a Unix time in seconds
/// and a duration in milliseconds, oldest first. The reply for an unknown event is empty.
fn latency_history(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let samples = ctx
        .shared
        .engine
        .latency_events
        .series_of(args.get(2))
        .map(|series| series.samples)
        .unwrap_or_default();
    ctx.reply.array(samples.len());
    for sample in samples {
        ctx.reply.array(2);
        ctx.reply.integer(sample.unix_s);
        ctx.reply.integer(sample.ms as i64);
    }
    Ok(())
}

static LATENCY_LATEST: Command<Runner> = Command {
    name: "LATEST",
    summary: "Returns the latest and the longest latency spike of each event.",
    run: Runner::Server(latency_latest),
    ..LATENCY_DOCTOR
};
/// Handles LATENCY LATEST: replies with the newest and the largest sample of each event.
fn latency_latest(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    let all = ctx.shared.engine.latency_events.series();
    ctx.reply.array(all.len());
    for series in all {
        let latest = series.samples.back().expect("a series has samples");
        ctx.reply.array(4);
        ctx.reply.bulk(series.name.as_bytes());
        ctx.reply.integer(latest.unix_s);
        ctx.reply.integer(latest.ms as i64);
        ctx.reply.integer(series.max_ms as i64);
    }
    Ok(())
}

static LATENCY_RESET: Command<Runner> = Command {
    name: "RESET",
    summary: "Removes the latency spikes of events.",
    history: History::since("2.8.13"),
    group: Group::Server,
    complexity: "O(1)",
    arity: Arity::AtLeast(2),
    flags: FLAGS,
    acl: Acl::ADMIN.union(Acl::DANGEROUS),
    tips: &["request_policy:all_nodes", "response_policy:agg_sum"],
    args: &[Arg::string("event").optional().multiple()],
    run: Runner::Server(latency_reset),
    ..Command::DEFAULT
};
/// Handles LATENCY RESET [event ...]: removes the samples of the named events, or of all. Replies
/// with the number of events that had samples.
fn latency_reset(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let latency_events = &ctx.shared.engine.latency_events;
    let count = match args.len() {
        2 => latency_events.reset_all(),
        _ => args.from(2).filter(|name| latency_events.reset(name)).count(),
    };
    ctx.reply.integer(count as i64);
    Ok(())
}
