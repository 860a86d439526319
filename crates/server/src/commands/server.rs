//! Commands about the server as a whole: INFO, LOLWUT, ROLE, TIME.

use ::commands::table::{Acl, Arg, Arity, Command, Flags, Group, History};
use ::commands::{Args, CommandError};

use crate::REDIS_VERSION;
use crate::context::Runner;
use crate::context::ServerCtx;
use crate::replication::table::{Row, rows};
use crate::replication::upstream::LinkPhase;

/// The commands that this file adds to the command table, through [`super::all`].
pub static COMMANDS: &[&Command<Runner>] = &[&INFO, &LOLWUT, &ROLE, &TIME];

static INFO: Command<Runner> = Command {
    name: "INFO",
    summary: "Returns information and statistics about the server.",
    history: History::since("1.0.0").changed(&[("7.0.0", "takes several sections")]),
    group: Group::Server,
    complexity: "O(1)",
    arity: Arity::AtLeast(1),
    flags: Flags::LOADING.union(Flags::STALE),
    acl: Acl::DANGEROUS,
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    args: &[Arg::string("section").optional().multiple()],
    run: Runner::Server(info),
    ..Command::DEFAULT
};
/// Handles INFO [section ...]: replies with the fields of the sections as text.
fn info(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let asked: Vec<String> =
        args.from(1).map(|section| String::from_utf8_lossy(section).to_ascii_lowercase()).collect();
    let text = crate::info::text(ctx.shared, &asked);
    ctx.reply.verbatim(*b"txt", text.as_bytes());
    Ok(())
}

static LOLWUT: Command<Runner> = Command {
    name: "LOLWUT",
    summary: "Returns a small piece of computer art and the version.",
    history: History::since("5.0.0"),
    group: Group::Server,
    complexity: "",
    arity: Arity::AtLeast(1),
    flags: Flags::READONLY.union(Flags::FAST),
    acl: Acl::READ,
    args: &[Arg::integer("version").token("VERSION").optional()],
    run: Runner::Server(lolwut),
    ..Command::DEFAULT
};
/// Handles LOLWUT [VERSION version [arguments]]: replies with a drawing of a falcon and the
/// version.
fn lolwut(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    if args.is(1, "VERSION") && args.len() > 2 {
        args.integer(2)?;
    }
    let art = r"
            __
     .--.--'  `-.
    /    \  o    >      a saker on the wing:
   |  '-._`---'`       every core, every command
    \      `-._
     `-._      `--.
         `''--...__\
";
    let text = format!("{art}\nRedis ver. {REDIS_VERSION} Saker ver. {}\n", env!("CARGO_PKG_VERSION"));
    ctx.reply.verbatim(*b"txt", text.as_bytes());
    Ok(())
}

static ROLE: Command<Runner> = Command {
    name: "ROLE",
    summary: "Returns the replication role of the server.",
    history: History::since("2.8.12"),
    group: Group::Server,
    complexity: "O(1)",
    arity: Arity::Exactly(1),
    flags: Flags::NOSCRIPT.union(Flags::LOADING).union(Flags::STALE).union(Flags::FAST),
    acl: Acl::ADMIN.union(Acl::DANGEROUS),
    run: Runner::Server(role),
    ..Command::DEFAULT
};
/// Handles ROLE. A primary replies with `master`, its replication offset, and the replicas that are
/// online. Each has its address, port and acknowledged offset. A replica replies with `slave`, the
/// address of its primary, the phase of the link, and the applied offset.
fn role(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    let link = ctx.shared.replication.upstream.link().clone();
    if let Some(link) = link {
        let applied = ctx.shared.replication.primary().end();
        ctx.reply.array(5);
        ctx.reply.bulk(b"slave");
        ctx.reply.bulk(link.primary.host.as_bytes());
        ctx.reply.integer(i64::from(link.primary.port));
        ctx.reply.bulk(link.phase.role_word().as_bytes());
        ctx.reply.integer(if link.phase == LinkPhase::Connected { applied as i64 } else { -1 });
        return Ok(());
    }
    let (offset, rows) = {
        let primary = ctx.shared.replication.primary();
        (primary.end(), rows(&primary, ctx.shared.uptime_ms()))
    };
    let online: Vec<&Row> = rows.iter().filter(|row| row.is_online).collect();
    ctx.reply.array(3);
    ctx.reply.bulk(b"master");
    ctx.reply.integer(offset as i64);
    ctx.reply.array(online.len());
    for Row { ip, port, offset, .. } in online {
        ctx.reply.array(3);
        ctx.reply.bulk(ip.as_bytes());
        ctx.reply.bulk_integer(i64::from(*port));
        ctx.reply.bulk_integer(*offset as i64);
    }
    Ok(())
}

static TIME: Command<Runner> = Command {
    name: "TIME",
    summary: "Returns the server's time.",
    history: History::since("2.6.0"),
    group: Group::Server,
    complexity: "O(1)",
    arity: Arity::Exactly(1),
    flags: Flags::LOADING.union(Flags::STALE).union(Flags::FAST),
    acl: Acl::empty(),
    tips: &["nondeterministic_output"],
    run: Runner::Server(time),
    ..Command::DEFAULT
};
/// Handles TIME: replies with Unix seconds and microseconds.
fn time(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    // A transaction or script sees a single time, by which its keys expire.
    let unix_us = if ctx.session.in_exec {
        ctx.data.unix_us
    } else {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.unwrap_or_default().as_micros() as i64
    };
    ctx.reply.array(2);
    ctx.reply.bulk_integer(unix_us / 1_000_000);
    ctx.reply.bulk_integer(unix_us % 1_000_000);
    Ok(())
}
