//! HOTKEYS: the most expensive keys. A session finds the keys with the most CPU time and network
//! traffic, as in Redis 8.6. Windows find the most frequently accessed keys, as in Valkey 9.2.
//!
//! Redis and Valkey both have HOTKEYS GET and RESET. A user starts a session on purpose with
//! HOTKEYS START, so GET shows the session until it is reset. Without a session GET shows the last
//! window of `hotkeys-top-k`. If that option is not set, GET replies null, as in Redis. RESET
//! removes the session and the window.

use std::time::Instant;

use ::commands::table::{Acl, Arg, Arity, Command, Flags, Group, History};
use ::commands::{Args, CommandError};
use engine::stats::hot_keys::{InProgress, Rate, Report, SessionOptions, Totals};
use stdx::heavy_hitters::Hitter;

use crate::context::Runner;
use crate::context::ServerCtx;
use crate::shared::Shared;

/// The commands that this file adds to the command table, through [`super::all`].
pub static COMMANDS: &[&Command<Runner>] = &[&HOTKEYS];

/// The command flags of the HOTKEYS subcommands.
const FLAGS: Flags = Flags::ADMIN.union(Flags::NOSCRIPT);
/// The ACL categories of the HOTKEYS subcommands.
const ACL: Acl = Acl::ADMIN.union(Acl::DANGEROUS);
/// Default number of keys that HOTKEYS GET shows for a session.
const SHOWN: usize = 10;
/// The last hash slot. A server outside a cluster has all slots.
const LAST_SLOT: i64 = 16_383;

static HOTKEYS: Command<Runner> = Command {
    name: "HOTKEYS",
    summary: "A container for commands that find the keys with the most CPU time, network traffic or \
         accesses.",
    history: History::since("8.6.0"),
    group: Group::Server,
    complexity: "Depends on subcommand.",
    arity: Arity::AtLeast(2),
    flags: Flags::empty(),
    acl: Acl::empty(),
    subcommands: &[&HOTKEYS_GET, &HOTKEYS_HELP, &HOTKEYS_RESET, &HOTKEYS_START, &HOTKEYS_STOP],
    run: Runner::Server(super::container),
    ..Command::DEFAULT
};

static HOTKEYS_GET: Command<Runner> = Command {
    name: "GET",
    summary: "Returns the hot keys of the session and its totals. Without a session, returns the most \
         frequently accessed keys.",
    history: History::since("8.6.0"),
    group: Group::Server,
    complexity: "O(K) where K is the number of hotkeys returned.",
    arity: Arity::Exactly(2),
    flags: FLAGS,
    acl: ACL,
    tips: &["request_policy:all_nodes", "nondeterministic_output"],
    run: Runner::Server(hotkeys_get),
    ..Command::DEFAULT
};
/// Handles HOTKEYS GET. With a session it replies with an array of one map. Times and bytes of a
/// key are lower bounds; with SAMPLE they cover the sampled commands only. Without a session, but
/// with `hotkeys-top-k`, it replies with an array with a map for each key, and otherwise with null.
fn hotkeys_get(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    let hot_keys = &ctx.shared.engine.hot_keys;
    match hot_keys.report(totals(ctx.shared), ctx.now_ms) {
        Some(report) => write_session(ctx, &report),
        None => match hot_keys.windows.report(Instant::now()) {
            Some(rates) => write_rates(ctx, &rates),
            None => ctx.reply.null(),
        },
    }
    Ok(())
}

fn write_rates(ctx: &mut ServerCtx<'_, '_, '_>, rates: &[Rate]) {
    let reply = &mut ctx.reply;
    reply.array(rates.len());
    for rate in rates {
        reply.map(3);
        reply.bulk(b"key");
        reply.bulk(&rate.key);
        reply.bulk(b"db");
        reply.integer(i64::from(rate.db));
        reply.bulk(b"qps");
        reply.integer(rate.per_second as i64);
    }
}

fn write_session(ctx: &mut ServerCtx<'_, '_, '_>, report: &Report) {
    let options = report.options;
    let reply = &mut ctx.reply;
    reply.array(1);
    reply.map(7 + if options.cpu { 3 } else { 0 } + if options.net { 2 } else { 0 });
    let mut field = |name: &str, value: i64| {
        reply.bulk(name.as_bytes());
        reply.integer(value);
    };
    field("tracking-active", i64::from(report.active));
    field("sample-ratio", i64::from(options.sample));
    reply.bulk(b"selected-slots");
    reply.array(1);
    reply.array(2);
    reply.integer(0);
    reply.integer(LAST_SLOT);
    let mut field = |name: &str, value: i64| {
        reply.bulk(name.as_bytes());
        reply.integer(value);
    };
    field("all-commands-all-slots-us", report.all_time.as_micros() as i64);
    field("net-bytes-all-commands-all-slots", report.all_bytes as i64);
    field("collection-start-time-unix-ms", report.started_ms);
    field("collection-duration-ms", report.duration_ms);
    if options.cpu {
        let [user, system] = report.process_time;
        field("total-cpu-time-user-ms", user.as_millis() as i64);
        field("total-cpu-time-sys-ms", system.as_millis() as i64);
    }
    if options.net {
        field("total-net-bytes", report.net_bytes as i64);
    }
    let mut keys = |name: &str, keys: &[Hitter], per_unit: u64| {
        reply.bulk(name.as_bytes());
        reply.array(2 * keys.len());
        for hitter in keys {
            reply.bulk(&hitter.key);
            reply.integer((hitter.certain / per_unit) as i64);
        }
    };
    if options.cpu {
        keys("by-cpu-time-us", &report.by_nanos, 1000);
    }
    if options.net {
        keys("by-net-bytes", &report.by_bytes, 1);
    }
}

static HOTKEYS_HELP: Command<Runner> = Command {
    history: History::since("8.6.1"),
    group: Group::Server,
    run: Runner::Server(hotkeys_help),
    ..Command::HELP
};
/// Handles HOTKEYS HELP: lists the subcommands with their syntax.
fn hotkeys_help(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    super::help(
        ctx,
        "HOTKEYS",
        &[
            (
                "GET",
                &[
                    "The hot keys of the current or the last session.",
                    "Without a session, the most frequently accessed keys of the last window,",
                    "if hotkeys-top-k is set.",
                ],
            ),
            ("RESET", &["Removes the results of a stopped session, and all windows."]),
            (
                "START METRICS <count> [CPU] [NET] [COUNT <k>] [DURATION <seconds>] [SAMPLE <ratio>]",
                &[
                    "Starts a session that finds the <k> keys with the most CPU time, network traffic, or both.",
                ],
            ),
            ("STOP", &["Stops the session. Its results remain."]),
        ],
    );
    Ok(())
}

static HOTKEYS_RESET: Command<Runner> = Command {
    name: "RESET",
    summary: "Removes the results of a stopped session, and the access counts of `hotkeys-top-k`.",
    history: History::since("8.6.0"),
    group: Group::Server,
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    flags: FLAGS,
    acl: ACL,
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    run: Runner::Server(hotkeys_reset),
    ..Command::DEFAULT
};
/// Handles HOTKEYS RESET: removes the session, and the access counts of the windows of
/// `hotkeys-top-k`. Replies with an error while a session is active.
fn hotkeys_reset(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    let line = "ERR hotkey tracking session in progress, stop tracking first";
    ctx.shared.engine.hot_keys.reset(ctx.now_ms).map_err(|InProgress| CommandError::Line(line))?;
    ctx.shared.engine.hot_keys.windows.reset(Instant::now());
    ctx.reply.ok();
    Ok(())
}

static HOTKEYS_START: Command<Runner> = Command {
    name: "START",
    summary: "Starts a session that measures CPU time and network traffic of keys.",
    history: History::since("8.6.0"),
    group: Group::Server,
    complexity: "O(1)",
    arity: Arity::AtLeast(2),
    flags: FLAGS,
    acl: ACL,
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    args: &[
        Arg::block(
            "metrics",
            &[Arg::integer("count"), Arg::word("cpu", "CPU").optional(), Arg::word("net", "NET").optional()],
        )
        .token("METRICS"),
        Arg::integer("k").token("COUNT").optional(),
        Arg::integer("seconds").token("DURATION").optional(),
        Arg::integer("ratio").token("SAMPLE").optional(),
        Arg::block("slots", &[Arg::integer("count"), Arg::integer("slot").multiple()])
            .token("SLOTS")
            .optional(),
    ],
    run: Runner::Server(hotkeys_start),
    ..Command::DEFAULT
};
/// Handles HOTKEYS START METRICS count [CPU] [NET] [COUNT k] [DURATION seconds] [SAMPLE ratio]:
/// begins a session that finds the most expensive keys. SLOTS is an error, because only cluster
/// nodes support it.
fn hotkeys_start(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let in_progress = CommandError::Line("ERR hotkey tracking session already in progress");
    if ctx.shared.engine.hot_keys.is_active(ctx.now_ms) {
        return Err(in_progress);
    }
    let options = options(args)?;
    ctx.shared
        .engine
        .hot_keys
        .start(totals(ctx.shared), options, ctx.now_ms)
        .map_err(|InProgress| in_progress)?;
    ctx.reply.ok();
    Ok(())
}

/// Parses the arguments of HOTKEYS START into the options of a session.
fn options(args: &Args<'_>) -> Result<SessionOptions, CommandError> {
    let number = |at: usize, range: std::ops::RangeInclusive<i64>, line: &'static str| {
        let number = args.integer(at).ok().filter(|number| range.contains(number));
        number.ok_or(CommandError::Line(line))
    };
    if args.len() < 4 || !args.is(2, "METRICS") {
        return Err(CommandError::Line("ERR METRICS parameter is required"));
    }
    let metrics = number(3, 1..=2, "ERR METRICS count must be > 0 and <= 2")? as usize;
    let mut options = SessionOptions { cpu: false, net: false, count: SHOWN, duration_ms: None, sample: 1 };
    if args.len() < 4 + metrics {
        let line = "ERR METRICS count does not match number of metric types provided";
        return Err(CommandError::Line(line));
    }
    for at in 4..4 + metrics {
        let (asked, twice) = if args.is(at, "CPU") {
            (&mut options.cpu, "ERR METRICS CPU defined more than once!")
        } else if args.is(at, "NET") {
            (&mut options.net, "ERR METRICS NET defined more than once!")
        } else {
            // The metric may belong to a later version of Redis.
            continue;
        };
        if std::mem::replace(asked, true) {
            return Err(CommandError::Line(twice));
        }
    }
    if !options.cpu && !options.net {
        return Err(CommandError::Line("ERR METRICS no valid metrics passed. Supported: CPU|NET"));
    }
    let mut at = 4 + metrics;
    while at < args.len() {
        if at + 1 == args.len() {
            return Err(CommandError::Syntax);
        }
        if args.is(at, "COUNT") {
            options.count = number(at + 1, 1..=64, "ERR COUNT must be between 1 and 64")? as usize;
        } else if args.is(at, "DURATION") {
            let line = "ERR DURATION must be between 1 and 1000000";
            options.duration_ms = Some(number(at + 1, 1..=1_000_000, line)? * 1000);
        } else if args.is(at, "SAMPLE") {
            let line = "ERR SAMPLE ratio must be positive";
            options.sample = number(at + 1, 1..=i64::from(i32::MAX), line)? as u32;
        } else if args.is(at, "SLOTS") {
            return Err(CommandError::Line("ERR SLOTS parameter cannot be used in non-cluster mode"));
        } else {
            return Err(CommandError::Syntax);
        }
        at += 2;
    }
    Ok(options)
}

static HOTKEYS_STOP: Command<Runner> = Command {
    name: "STOP",
    summary: "Stops the session. Its results remain.",
    run: Runner::Server(hotkeys_stop),
    ..HOTKEYS_RESET
};
/// Handles HOTKEYS STOP: ends the active session. Replies with an error if no session is active.
fn hotkeys_stop(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    if !ctx.shared.engine.hot_keys.stop(totals(ctx.shared), ctx.now_ms) {
        return Err(CommandError::Line("ERR no hotkey tracking session in progress"));
    }
    ctx.reply.ok();
    Ok(())
}

/// Returns the CPU times of the process and the bytes of its clients' traffic, for the report of a
/// HOTKEYS session. The bytes are counted since the start or CONFIG RESETSTAT.
fn totals(shared: &Shared) -> Totals {
    let (user, system) = crate::process::cpu_time();
    let threads = &shared.engine.threads;
    let net_bytes = threads.sum(|stats| &stats.input_bytes) + threads.sum(|stats| &stats.output_bytes);
    Totals { user, system, net_bytes }
}
