//! WAIT and WAITAOF: until others have what a client wrote. A server without replicas and without
//! an append-only file has nobody to wait for, so their clients wait in vain.

use crate::args::Args;
use crate::ctx::Ctx;
use crate::error::CommandError;
use crate::table::{Acl, Arg, Arity, Command, Flags, Group, History};
use crate::wait::{BlockFor, EmptyReply, timeout_ms};

pub(super) static WAIT: Command = Command {
    name: "WAIT",
    summary: "Waits until so many replicas have what the client wrote, and returns how many have.",
    history: History::since("3.0.0"),
    group: Group::Generic,
    complexity: "O(1)",
    arity: Arity::Exactly(3),
    flags: Flags::BLOCKING,
    acl: Acl::BLOCKING.union(Acl::CONNECTION),
    tips: &["request_policy:all_shards", "response_policy:agg_min"],
    args: &[Arg::integer("numreplicas"), Arg::integer("timeout")],
    run: wait,
    ..Command::DEFAULT
};
/// WAIT numreplicas timeout: 0, at once only if no replica is asked for.
fn wait(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let replicas = args.integer(1)?;
    let timeout_ms = timeout_ms(args, 2)?;
    if replicas <= 0 {
        EmptyReply::Zero.write_at_once(&mut ctx.reply);
    } else {
        ctx.nothing_yet(timeout_ms, EmptyReply::Zero, BlockFor::default);
    }
    Ok(())
}

pub(super) static WAITAOF: Command = Command {
    name: "WAITAOF",
    summary: "Waits until what the client wrote is in the append-only file here and on so many replicas, and \
              returns on how many it is.",
    history: History::since("7.2.0"),
    group: Group::Generic,
    complexity: "O(1)",
    arity: Arity::Exactly(4),
    flags: Flags::BLOCKING,
    acl: Acl::BLOCKING.union(Acl::CONNECTION),
    tips: &["request_policy:all_shards", "response_policy:agg_min"],
    args: &[Arg::integer("numlocal"), Arg::integer("numreplicas"), Arg::integer("timeout")],
    run: waitaof,
    ..Command::DEFAULT
};
/// WAITAOF numlocal numreplicas timeout: 0 and 0, at once only if neither is asked for.
fn waitaof(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let local = args.integer(1)?;
    if !(0..=1).contains(&local) {
        return Err(CommandError::Line("ERR value is out of range, value must between 0 and 1"));
    }
    let replicas = stdx::number::parse_i64(args.get(2)).filter(|&replicas| replicas >= 0);
    let replicas = replicas.ok_or(CommandError::Line("ERR value is out of range, must be positive"))?;
    let timeout_ms = timeout_ms(args, 3)?;
    if local > 0 {
        return Err(CommandError::Line(
            "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.",
        ));
    }
    if replicas == 0 {
        EmptyReply::TwoZeros.write_at_once(&mut ctx.reply);
    } else {
        ctx.nothing_yet(timeout_ms, EmptyReply::TwoZeros, BlockFor::default);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::harness::check;

    #[test]
    fn nobody_has_what_a_lone_server_has() {
        check(&[
            ("WAIT 0 0", ":0|"),
            ("WAIT -1 0", ":0|"),
            ("WAIT 1 0", ":0|"), // A harness has no patience.
            ("WAIT 1 -1", "-ERR timeout is negative|"),
            ("WAITAOF 0 0 0", "*2|:0|:0|"),
            ("WAITAOF 0 1 0", "*2|:0|:0|"),
            ("WAITAOF 2 1 0", "-ERR value is out of range, value must between 0 and 1|"),
            ("WAITAOF 0 -1 0", "-ERR value is out of range, must be positive|"),
        ]);
    }
}
