//! WAIT: the wait until replicas have a client's writes. This server has no replicas, so every wait
//! runs until its timeout.

use crate::args::Args;
use crate::ctx::Ctx;
use crate::error::CommandError;
use crate::table::{Acl, Arg, Arity, Command, Flags, Group, History};
use crate::wait::{BlockFor, EmptyReply, timeout_ms};

pub(super) static WAIT: Command = Command {
    name: "WAIT",
    summary: "Waits until a number of replicas have the client's writes, and returns the number of \
         replicas that have them.",
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
/// Handles WAIT: replies with 0. The reply is immediate only if no replica is requested.
fn wait(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let replicas = args.integer(1)?;
    let timeout_ms = timeout_ms(args, 2)?;
    if replicas <= 0 {
        EmptyReply::Zero.write_at_once(&mut ctx.reply);
    } else {
        ctx.block_or_reply_empty(timeout_ms, EmptyReply::Zero, BlockFor::default);
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
            ("WAIT 1 0", ":0|"), // The harness does not block clients.
            ("WAIT 1 -1", "-ERR timeout is negative|"),
        ]);
    }
}
