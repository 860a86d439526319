//! MEMORY: where the memory goes.

use std::sync::atomic::Ordering::Relaxed;

use ::commands::table::{Acl, Arity, Command, Flags, Group};
use ::commands::{Args, CommandError, generic};

use crate::command_table::Runner;
use crate::context::ServerCtx;
use crate::info::{MemoryFigures, ratio};

/// This group's commands.
pub static COMMANDS: &[&Command<Runner>] = &[&MEMORY];

static MEMORY: Command<Runner> = Command {
    name: "MEMORY",
    summary: "Commands about memory.",
    since: "4.0.0",
    group: Group::Server,
    complexity: "",
    deprecated: None,
    arity: Arity::AtLeast(2),
    flags: Flags::empty(),
    acl: Acl::empty(),
    keys: &[],
    tips: &[],
    args: &[],
    subcommands: &[
        &MEMORY_DOCTOR,
        &MEMORY_HELP,
        &MEMORY_MALLOC_STATS,
        &MEMORY_PURGE,
        &MEMORY_STATS,
        &MEMORY_USAGE,
    ],
    run: Runner::Server(memory),
};
/// MEMORY without a known subcommand: dispatch has answered.
fn memory(_ctx: &mut ServerCtx<'_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    Err(CommandError::WrongArity("memory"))
}

/// MEMORY USAGE is a data command: it needs its key's lock and nothing of the server.
static MEMORY_USAGE: Command<Runner> = generic::MEMORY_USAGE.run_by(Runner::Data(generic::MEMORY_USAGE.run));

static MEMORY_DOCTOR: Command<Runner> = Command {
    name: "DOCTOR",
    summary: "Says in words what is unusual about the memory.",
    since: "4.0.0",
    group: Group::Server,
    complexity: "O(1)",
    deprecated: None,
    arity: Arity::Exactly(2),
    flags: Flags::empty(),
    acl: Acl::empty(),
    keys: &[],
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    args: &[],
    subcommands: &[],
    run: Runner::Server(memory_doctor),
};
/// MEMORY DOCTOR.
fn memory_doctor(ctx: &mut ServerCtx<'_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    let figures = MemoryFigures::now(ctx.shared);
    let mut findings = Vec::new();
    if figures.peak > figures.used + figures.used / 2 {
        findings.push(format!(
            "Peak memory: at its peak the server used {:.1} times what it uses now; the allocator may still hold \
             some of that. MEMORY PURGE gives it back.",
            ratio(figures.peak, figures.used)
        ));
    }
    if figures.fragmentation() > 1.4 && figures.rss - figures.used > DOCTOR_BYTES_MIN {
        findings.push(format!(
            "Fragmentation: resident memory is {:.2} times the used memory.",
            figures.fragmentation()
        ));
    }
    if figures.clients > DOCTOR_BYTES_MIN {
        findings.push(format!("Clients: {} bytes wait in their buffers.", figures.clients));
    }
    let text = if figures.used < DOCTOR_BYTES_MIN {
        "This server holds very little data: there is nothing to diagnose yet.\n".to_owned()
    } else if findings.is_empty() {
        "No memory problem found.\n".to_owned()
    } else {
        findings.iter().map(|finding| format!("* {finding}\n")).collect()
    };
    ctx.reply.verbatim(*b"txt", text.as_bytes());
    Ok(())
}

/// Below this a figure is no cause for worry.
const DOCTOR_BYTES_MIN: u64 = 5 << 20;

static MEMORY_HELP: Command<Runner> = Command {
    name: "HELP",
    summary: "Lists the subcommands.",
    since: "4.0.0",
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
    run: Runner::Server(memory_help),
};
/// MEMORY HELP.
fn memory_help(ctx: &mut ServerCtx<'_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    super::help(
        ctx,
        "MEMORY",
        &[
            ("DOCTOR", &["Says what is unusual about the memory."]),
            ("MALLOC-STATS", &["The allocator's own statistics."]),
            ("PURGE", &["Gives free memory back to the system."]),
            ("STATS", &["Memory figures."]),
            (
                "USAGE <key> [SAMPLES <count>]",
                &["Bytes that <key> and its value take, an estimate where it is big; SAMPLES is accepted."],
            ),
        ],
    );
    Ok(())
}

static MEMORY_MALLOC_STATS: Command<Runner> = Command {
    name: "MALLOC-STATS",
    summary: "Returns the allocator's own statistics.",
    since: "4.0.0",
    group: Group::Server,
    complexity: "",
    deprecated: None,
    arity: Arity::Exactly(2),
    flags: Flags::empty(),
    acl: Acl::empty(),
    keys: &[],
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    args: &[],
    subcommands: &[],
    run: Runner::Server(memory_malloc_stats),
};
/// MEMORY MALLOC-STATS.
fn memory_malloc_stats(ctx: &mut ServerCtx<'_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    ctx.reply.verbatim(*b"txt", structures::alloc::stats_text().as_bytes());
    Ok(())
}

static MEMORY_PURGE: Command<Runner> = Command {
    name: "PURGE",
    summary: "Gives free memory back to the system.",
    since: "4.0.0",
    group: Group::Server,
    complexity: "",
    deprecated: None,
    arity: Arity::Exactly(2),
    flags: Flags::empty(),
    acl: Acl::empty(),
    keys: &[],
    tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
    args: &[],
    subcommands: &[],
    run: Runner::Server(memory_purge),
};
/// MEMORY PURGE.
fn memory_purge(ctx: &mut ServerCtx<'_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    structures::alloc::purge();
    ctx.reply.ok();
    Ok(())
}

static MEMORY_STATS: Command<Runner> = Command {
    name: "STATS",
    summary: "Returns memory figures.",
    since: "4.0.0",
    group: Group::Server,
    complexity: "O(1)",
    deprecated: None,
    arity: Arity::Exactly(2),
    flags: Flags::empty(),
    acl: Acl::empty(),
    keys: &[],
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    args: &[],
    subcommands: &[],
    run: Runner::Server(memory_stats),
};
/// MEMORY STATS.
fn memory_stats(ctx: &mut ServerCtx<'_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    let figures = MemoryFigures::now(ctx.shared);
    let dbs: Vec<_> = (0..ctx.shared.keyspace.db_count())
        .map(|db| (db, ctx.shared.keyspace.db_size(db)))
        .filter(|(_, size)| size.keys > 0)
        .collect();
    let keys: u64 = dbs.iter().map(|(_, size)| size.keys as u64).sum();
    let integers = [
        ("peak.allocated", figures.peak),
        ("total.allocated", figures.used),
        ("startup.allocated", ctx.shared.startup_memory_bytes.load(Relaxed)),
        ("replication.backlog", 0),
        ("replica.fullsync.buffer", 0),
        ("clients.slaves", 0),
        ("clients.normal", figures.clients),
        ("cluster.links", 0),
        ("aof.buffer", 0),
        ("lua.caches", 0),
        ("functions.caches", 0),
        ("script.VMs", 0),
        ("overhead.db.hashtable.lut", 0),
        ("overhead.db.hashtable.rehashing", 0),
        ("overhead.total", figures.used - figures.dataset),
        ("db.dict.rehashing.count", 0),
        ("keys.count", keys),
        ("keys.bytes-per-key", figures.dataset.checked_div(keys).unwrap_or(0)),
        ("dataset.bytes", figures.dataset),
        ("allocator.allocated", figures.used),
        ("allocator.active", figures.rss),
        ("allocator.resident", figures.rss),
        ("allocator.muzzy", 0),
        ("allocator-rss.bytes", figures.rss.saturating_sub(figures.used)),
    ];
    let ratios = [
        ("dataset.percentage", figures.dataset_percent()),
        ("peak.percentage", 100.0 * ratio(figures.used, figures.peak)),
        ("allocator-fragmentation.ratio", 1.0),
        ("allocator-rss.ratio", figures.fragmentation()),
        ("rss-overhead.ratio", 1.0),
        ("fragmentation", figures.fragmentation()),
    ];
    ctx.reply.map(integers.len() + ratios.len() + dbs.len());
    for (name, value) in integers {
        ctx.reply.bulk(name.as_bytes());
        ctx.reply.integer(value as i64);
    }
    for (name, value) in ratios {
        ctx.reply.bulk(name.as_bytes());
        ctx.reply.double(value);
    }
    for (db, size) in dbs {
        ctx.reply.bulk(format!("db.{db}").as_bytes());
        ctx.reply.map(2);
        ctx.reply.bulk(b"overhead.hashtable.main");
        ctx.reply.integer(size.keys as i64 * size_of::<u64>() as i64);
        ctx.reply.bulk(b"overhead.hashtable.expires");
        ctx.reply.integer(0);
    }
    Ok(())
}
