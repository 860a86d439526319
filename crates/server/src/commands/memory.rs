//! MEMORY: reports on the memory that the server uses.

use ::commands::table::{Acl, Arity, Command, Flags, Group, History};
use ::commands::{Args, CommandError, generic};
use resp::Reply;

use crate::context::Runner;
use crate::context::ServerCtx;
use crate::info::{Excess, MemoryFigures, ratio};

mod doctor;

use doctor::DoctorInput;

/// The commands that this file adds to the command table, through [`super::all`].
pub static COMMANDS: &[&Command<Runner>] = &[&MEMORY];

static MEMORY: Command<Runner> = Command {
    name: "MEMORY",
    summary: "A container for commands that report memory.",
    history: History::since("4.0.0"),
    group: Group::Server,
    complexity: "Depends on subcommand.",
    arity: Arity::AtLeast(2),
    flags: Flags::empty(),
    acl: Acl::empty(),
    subcommands: &[
        &MEMORY_DOCTOR,
        &MEMORY_HELP,
        &MEMORY_MALLOC_STATS,
        &MEMORY_PURGE,
        &MEMORY_STATS,
        &MEMORY_USAGE,
    ],
    run: Runner::Server(super::container),
    ..Command::DEFAULT
};

/// The command table's record of MEMORY USAGE. It is a data command: it locks the shard of its key
/// and uses no state of the server.
static MEMORY_USAGE: Command<Runner> = generic::MEMORY_USAGE.run_by(Runner::Data(generic::MEMORY_USAGE.run));

static MEMORY_DOCTOR: Command<Runner> = Command {
    name: "DOCTOR",
    summary: "Reports memory problems and gives advice.",
    history: History::since("4.0.0"),
    group: Group::Server,
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    flags: Flags::empty(),
    acl: Acl::empty(),
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    run: Runner::Server(memory_doctor),
    ..Command::DEFAULT
};
/// Handles MEMORY DOCTOR: replies with a report on unusual memory use.
fn memory_doctor(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    let around = DoctorInput {
        clients: ctx.shared.engine.threads.sum(|stats| &stats.clients),
        pending_bytes: ctx.shared.engine.freeing.pending_bytes(),
        limit_bytes: ctx.settings.maxmemory_bytes,
        evicts: ctx.settings.eviction.is_some(),
    };
    let text = doctor::report(&MemoryFigures::now(ctx.shared), around);
    ctx.reply.verbatim(*b"txt", text.as_bytes());
    Ok(())
}

static MEMORY_HELP: Command<Runner> = Command {
    history: History::since("4.0.0"),
    group: Group::Server,
    run: Runner::Server(memory_help),
    ..Command::HELP
};
/// Handles MEMORY HELP: lists the subcommands with their syntax.
fn memory_help(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    super::help(
        ctx,
        "MEMORY",
        &[
            ("DOCTOR", &["Reports memory problems and gives advice."]),
            ("MALLOC-STATS", &["The statistics of the allocator."]),
            ("PURGE", &["Returns free memory to the system."]),
            ("STATS", &["Statistics of memory."]),
            (
                "USAGE <key> [SAMPLES <count>]",
                &[
                    "Bytes of memory of <key> and its value, estimated for large values. SAMPLES has no effect.",
                ],
            ),
        ],
    );
    Ok(())
}

static MEMORY_MALLOC_STATS: Command<Runner> = Command {
    name: "MALLOC-STATS",
    summary: "Returns the statistics of the allocator.",
    history: History::since("4.0.0"),
    group: Group::Server,
    complexity: "O(N) in the number of memory mappings",
    arity: Arity::Exactly(2),
    flags: Flags::empty(),
    acl: Acl::empty(),
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    run: Runner::Server(memory_malloc_stats),
    ..Command::DEFAULT
};
/// Handles MEMORY MALLOC-STATS: replies with the statistics of the allocator as text.
fn memory_malloc_stats(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    ctx.reply.verbatim(*b"txt", structures::alloc::stats_text().as_bytes());
    Ok(())
}

static MEMORY_PURGE: Command<Runner> = Command {
    name: "PURGE",
    summary: "Returns free memory to the system.",
    history: History::since("4.0.0"),
    group: Group::Server,
    complexity: "O(N) in the number of memory mappings",
    arity: Arity::Exactly(2),
    flags: Flags::empty(),
    acl: Acl::empty(),
    tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
    run: Runner::Server(memory_purge),
    ..Command::DEFAULT
};
/// Handles MEMORY PURGE: returns free memory of the heap to the system.
fn memory_purge(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    structures::alloc::purge();
    ctx.reply.ok();
    Ok(())
}

static MEMORY_STATS: Command<Runner> = Command {
    name: "STATS",
    summary: "Returns statistics of memory.",
    history: History::since("4.0.0"),
    group: Group::Server,
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    flags: Flags::empty(),
    acl: Acl::empty(),
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    run: Runner::Server(memory_stats),
    ..Command::DEFAULT
};
/// Handles MEMORY STATS: replies with the fields of Redis in its order. Fields that have no
/// counterpart in this server are 0.
fn memory_stats(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    let figures = MemoryFigures::now(ctx.shared);
    let keyspace = &ctx.shared.engine.keyspace;
    let dbs: Vec<(usize, u64)> = (0..keyspace.db_count())
        .map(|db| (db, keyspace.reachable_db_size(db).keys as u64))
        .filter(|&(_, keys)| keys > 0)
        .collect();
    let keys: u64 = dbs.iter().map(|(_, keys)| keys).sum();
    let beyond = figures.beyond();
    ctx.reply.map(FIELDS_BESIDE_DBS + dbs.len());
    let reply = &mut ctx.reply;
    integer(reply, "peak.allocated", figures.peak);
    integer(reply, "total.allocated", figures.used);
    integer(reply, "startup.allocated", figures.startup);
    integer(reply, "replication.backlog", figures.stream.backlog);
    integer(reply, "replica.fullsync.buffer", 0);
    integer(reply, "clients.slaves", figures.stream.beyond);
    integer(reply, "clients.normal", figures.clients);
    for name in ["cluster.links", "aof.buffer", "lua.caches", "functions.caches", "script.VMs"] {
        integer(reply, name, 0);
    }
    for (db, _) in dbs {
        reply.bulk(format!("db.{db}").as_bytes());
        reply.map(2);
        integer(reply, "overhead.hashtable.main", keyspace.table_bytes(db) as u64);
        // A key's expiry is part of its entry.
        integer(reply, "overhead.hashtable.expires", 0);
    }
    integer(reply, "overhead.db.hashtable.lut", figures.tables);
    integer(reply, "overhead.db.hashtable.rehashing", 0);
    integer(reply, "overhead.total", figures.overhead());
    integer(reply, "db.dict.rehashing.count", 0);
    integer(reply, "keys.count", keys);
    let beyond_start = figures.used.saturating_sub(figures.startup);
    integer(reply, "keys.bytes-per-key", beyond_start.checked_div(keys).unwrap_or(0));
    integer(reply, "dataset.bytes", figures.dataset);
    double(reply, "dataset.percentage", figures.dataset_percent());
    double(reply, "peak.percentage", 100.0 * ratio(figures.used, figures.peak));
    integer(reply, "allocator.allocated", figures.used);
    integer(reply, "allocator.active", figures.active);
    integer(reply, "allocator.resident", figures.heap_rss);
    integer(reply, "allocator.muzzy", 0);
    for Excess { stats: [ratio_name, bytes_name], more, less, .. } in beyond {
        double(reply, ratio_name, ratio(more, less));
        reply.bulk(bytes_name.as_bytes());
        reply.integer(more as i64 - less as i64);
    }
    Ok(())
}

/// Number of fields of MEMORY STATS without the fields `db.N` of the databases.
const FIELDS_BESIDE_DBS: usize = 33;

fn integer(reply: &mut Reply<'_>, name: &str, value: u64) {
    reply.bulk(name.as_bytes());
    reply.integer(value as i64);
}

fn double(reply: &mut Reply<'_>, name: &str, value: f64) {
    reply.bulk(name.as_bytes());
    reply.double(value);
}
