//! The commands of publish/subscribe.

use ::commands::record::forms::{KnownSince, RecordedForm};
use ::commands::table::{Acl, Arg, Arity, Command, Flags, Group, History, KeyFlags, KeySpec};
use ::commands::{Args, CommandError};
use engine::publish::pubsub::{Kind, write_subscription};
use engine::session::Flow;

use crate::context::Runner;
use crate::context::ServerCtx;

/// The commands that this file adds to the command table, through [`super::all`].
pub static COMMANDS: &[&Command<Runner>] = &[
    &PSUBSCRIBE,
    &PUBLISH,
    &PUBSUB,
    &PUNSUBSCRIBE,
    &SPUBLISH,
    &SSUBSCRIBE,
    &SUBSCRIBE,
    &SUNSUBSCRIBE,
    &UNSUBSCRIBE,
];

/// Subscribes the client to the channel or pattern in each argument. Writes one confirmation for
/// each; `word` is its first element.
fn subscribe_to(
    ctx: &mut ServerCtx<'_, '_, '_>,
    args: &Args<'_>,
    kind: Kind,
    word: &str,
) -> Result<(), CommandError> {
    for name in args.from(1) {
        ctx.session.subscribe(&ctx.shared.engine.pubsub, kind, name);
        write_subscription(&mut ctx.reply, word, Some(name), ctx.session.subscription_count(kind));
    }
    Ok(())
}

/// Unsubscribes the client from the channel or pattern in each argument, and writes one
/// confirmation for each. Without arguments, unsubscribes from all channels, patterns or shard
/// channels, as `kind` states.
fn unsubscribe_from(
    ctx: &mut ServerCtx<'_, '_, '_>,
    args: &Args<'_>,
    kind: Kind,
    word: &str,
) -> Result<(), CommandError> {
    let names: Vec<Box<[u8]>> = match &ctx.session.subscriptions {
        _ if args.len() > 1 => args.from(1).map(Into::into).collect(),
        Some(all) => all.names(kind).map(Into::into).collect(),
        None => Vec::new(),
    };
    ctx.session.unsubscribe(&ctx.shared.engine.pubsub, kind, &names, &mut ctx.reply, |reply, name, count| {
        write_subscription(reply, word, Some(name), count);
    });
    if names.is_empty() {
        write_subscription(&mut ctx.reply, word, None, ctx.session.subscription_count(kind));
    }
    Ok(())
}

/// Publishes a message, and replies with the number of its receivers. If the subscribers' queues
/// are full, the client's next request waits until they have room.
fn publish_to(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>, kind: Kind) -> Result<(), CommandError> {
    let unit = (ctx.session.db(), ctx.data.unit);
    let published = ctx.data.commit.publish(unit, kind, args);
    if published.subscribers_full && ctx.session.flow == Flow::Running {
        ctx.session.flow = Flow::AwaitingSubscribers;
    }
    ctx.reply.integer(published.receivers as i64);
    Ok(())
}

fn list_channels(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>, kind: Kind) -> Result<(), CommandError> {
    if args.len() > 3 {
        return Err(CommandError::Text(format!(
            "ERR unknown subcommand or wrong number of arguments for '{}'. Try PUBSUB HELP.",
            String::from_utf8_lossy(args.get(1))
        )));
    }
    let channels = ctx.shared.engine.pubsub.channels(kind, args.try_get(2));
    ctx.reply.array(channels.len());
    for channel in channels {
        ctx.reply.bulk(&channel);
    }
    Ok(())
}

fn count_subscribers(
    ctx: &mut ServerCtx<'_, '_, '_>,
    args: &Args<'_>,
    kind: Kind,
) -> Result<(), CommandError> {
    ctx.reply.array((args.len() - 2) * 2);
    for channel in args.from(2) {
        ctx.reply.bulk(channel);
        ctx.reply.integer(ctx.shared.engine.pubsub.subscriber_count(kind, channel) as i64);
    }
    Ok(())
}

static SUBSCRIBE: Command<Runner> = Command {
    name: "SUBSCRIBE",
    summary: "Subscribes to channels.",
    history: History::since("2.0.0"),
    group: Group::Pubsub,
    complexity: "O(N)",
    arity: Arity::AtLeast(2),
    flags: Flags::PUBSUB
        .union(Flags::NOSCRIPT)
        .union(Flags::LOADING)
        .union(Flags::STALE)
        .union(Flags::SUBSCRIPTION),
    acl: Acl::PUBSUB,
    args: &[Arg::string("channel").multiple()],
    run: Runner::Server(subscribe),
    ..Command::DEFAULT
};
/// Handles SUBSCRIBE channel [channel …]: subscribes the client to channels.
fn subscribe(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    subscribe_to(ctx, args, Kind::Channel, "subscribe")
}

static PSUBSCRIBE: Command<Runner> = Command {
    name: "PSUBSCRIBE",
    summary: "Subscribes to channels whose names match patterns.",
    args: &[Arg::pattern("pattern").multiple()],
    run: Runner::Server(psubscribe),
    ..SUBSCRIBE
};
/// Handles PSUBSCRIBE pattern [pattern …]: subscribes the client to patterns of channels.
fn psubscribe(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    subscribe_to(ctx, args, Kind::Pattern, "psubscribe")
}

static SSUBSCRIBE: Command<Runner> = Command {
    name: "SSUBSCRIBE",
    summary: "Subscribes to shard channels.",
    history: History::since("7.0.0"),
    keys: &[KeySpec::from(1, 1, KeyFlags::NOT_KEY)],
    args: &[Arg::string("shardchannel").multiple()],
    run: Runner::Server(ssubscribe),
    ..SUBSCRIBE
};
/// Handles SSUBSCRIBE shardchannel [shardchannel …]: subscribes the client to shard channels.
fn ssubscribe(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    if ctx.session.in_exec {
        return Err(CommandError::Line("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client"));
    }
    subscribe_to(ctx, args, Kind::Shard, "ssubscribe")
}

static UNSUBSCRIBE: Command<Runner> = Command {
    name: "UNSUBSCRIBE",
    summary: "Unsubscribes from channels; from all if none is given.",
    history: History::since("2.0.0"),
    group: Group::Pubsub,
    complexity: "O(N)",
    arity: Arity::AtLeast(1),
    args: &[Arg::string("channel").optional().multiple()],
    run: Runner::Server(unsubscribe),
    ..SUBSCRIBE
};
/// Handles UNSUBSCRIBE [channel …]: unsubscribes the client from the named channels, or from all.
fn unsubscribe(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    unsubscribe_from(ctx, args, Kind::Channel, "unsubscribe")
}

static PUNSUBSCRIBE: Command<Runner> = Command {
    name: "PUNSUBSCRIBE",
    summary: "Unsubscribes from patterns; from all if none is given.",
    args: &[Arg::pattern("pattern").optional().multiple()],
    run: Runner::Server(punsubscribe),
    ..UNSUBSCRIBE
};
/// Handles PUNSUBSCRIBE [pattern …]: unsubscribes the client from the named patterns, or from all.
fn punsubscribe(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    unsubscribe_from(ctx, args, Kind::Pattern, "punsubscribe")
}

static SUNSUBSCRIBE: Command<Runner> = Command {
    name: "SUNSUBSCRIBE",
    summary: "Unsubscribes from shard channels; from all if none is given.",
    history: History::since("7.0.0"),
    keys: &[KeySpec::from(1, 1, KeyFlags::NOT_KEY)],
    args: &[Arg::string("shardchannel").optional().multiple()],
    run: Runner::Server(sunsubscribe),
    ..UNSUBSCRIBE
};
/// Handles SUNSUBSCRIBE [shardchannel …]: unsubscribes the client from the named shard channels, or
/// from all.
fn sunsubscribe(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    unsubscribe_from(ctx, args, Kind::Shard, "sunsubscribe")
}

static PUBLISH: Command<Runner> = Command {
    name: "PUBLISH",
    summary: "Sends a message to the subscribers of a channel.",
    history: History::since("2.0.0"),
    group: Group::Pubsub,
    complexity: "O(N+M)",
    arity: Arity::Exactly(3),
    flags: Flags::PUBSUB
        .union(Flags::LOADING)
        .union(Flags::STALE)
        .union(Flags::FAST)
        .union(Flags::MAY_REPLICATE),
    acl: Acl::PUBSUB,
    args: &[Arg::string("channel"), Arg::string("message")],
    run: Runner::Server(publish),
    ..Command::DEFAULT
};
/// Handles PUBLISH channel message: replies with the number of receivers.
fn publish(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    publish_to(ctx, args, Kind::Channel)
}

static SPUBLISH: Command<Runner> = Command {
    name: "SPUBLISH",
    summary: "Sends a message to the subscribers of a shard channel.",
    history: History::since("7.0.0"),
    complexity: "O(N)",
    keys: &[KeySpec::at(1, KeyFlags::NOT_KEY)],
    args: &[Arg::string("shardchannel"), Arg::string("message")],
    recorded_forms: &[RecordedForm::known_since(KnownSince::REDIS_7)],
    run: Runner::Server(spublish),
    ..PUBLISH
};
/// Handles SPUBLISH shardchannel message: replies with the number of receivers.
fn spublish(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    publish_to(ctx, args, Kind::Shard)
}

static PUBSUB: Command<Runner> = Command {
    name: "PUBSUB",
    summary: "A container for commands that describe channels and their subscribers.",
    history: History::since("2.8.0"),
    group: Group::Pubsub,
    complexity: "Depends on subcommand.",
    arity: Arity::AtLeast(2),
    flags: Flags::empty(),
    acl: Acl::empty(),
    subcommands: &[
        &PUBSUB_CHANNELS,
        &PUBSUB_HELP,
        &PUBSUB_NUMPAT,
        &PUBSUB_NUMSUB,
        &PUBSUB_SHARDCHANNELS,
        &PUBSUB_SHARDNUMSUB,
    ],
    run: Runner::Server(super::container),
    ..Command::DEFAULT
};

static PUBSUB_CHANNELS: Command<Runner> = Command {
    name: "CHANNELS",
    summary: "Returns the channels that have subscribers.",
    history: History::since("2.8.0"),
    group: Group::Pubsub,
    complexity: "O(N)",
    arity: Arity::AtLeast(2),
    flags: Flags::PUBSUB.union(Flags::LOADING).union(Flags::STALE),
    acl: Acl::PUBSUB,
    args: &[Arg::pattern("pattern").optional()],
    run: Runner::Server(pubsub_channels),
    ..Command::DEFAULT
};
/// Handles PUBSUB CHANNELS [pattern]: replies with the channels that have subscribers and match the
/// pattern.
fn pubsub_channels(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    list_channels(ctx, args, Kind::Channel)
}

static PUBSUB_NUMSUB: Command<Runner> = Command {
    name: "NUMSUB",
    summary: "Returns the number of subscribers of channels.",
    history: History::since("2.8.0"),
    group: Group::Pubsub,
    complexity: "O(N)",
    arity: Arity::AtLeast(2),
    flags: Flags::PUBSUB.union(Flags::LOADING).union(Flags::STALE),
    acl: Acl::PUBSUB,
    args: &[Arg::string("channel").optional().multiple()],
    run: Runner::Server(pubsub_numsub),
    ..Command::DEFAULT
};
/// Handles PUBSUB NUMSUB [channel …]: replies with a flat array of channels and their numbers of
/// subscribers.
fn pubsub_numsub(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    count_subscribers(ctx, args, Kind::Channel)
}

static PUBSUB_NUMPAT: Command<Runner> = Command {
    name: "NUMPAT",
    summary: "Returns the number of patterns that have subscribers.",
    history: History::since("2.8.0"),
    group: Group::Pubsub,
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    flags: Flags::PUBSUB.union(Flags::LOADING).union(Flags::STALE),
    acl: Acl::PUBSUB,
    run: Runner::Server(pubsub_numpat),
    ..Command::DEFAULT
};
/// Handles PUBSUB NUMPAT: replies with the number of different patterns that clients are subscribed
/// to.
fn pubsub_numpat(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    ctx.reply.integer(ctx.shared.engine.pubsub.pattern_count() as i64);
    Ok(())
}

static PUBSUB_SHARDCHANNELS: Command<Runner> = Command {
    name: "SHARDCHANNELS",
    summary: "Returns the shard channels that have subscribers.",
    history: History::since("7.0.0"),
    run: Runner::Server(pubsub_shardchannels),
    ..PUBSUB_CHANNELS
};
/// Handles PUBSUB SHARDCHANNELS [pattern]: replies with the shard channels that have subscribers
/// and match the pattern.
fn pubsub_shardchannels(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    list_channels(ctx, args, Kind::Shard)
}

static PUBSUB_SHARDNUMSUB: Command<Runner> = Command {
    name: "SHARDNUMSUB",
    summary: "Returns the number of subscribers of shard channels.",
    history: History::since("7.0.0"),
    args: &[Arg::string("shardchannel").optional().multiple()],
    run: Runner::Server(pubsub_shardnumsub),
    ..PUBSUB_NUMSUB
};
/// Handles PUBSUB SHARDNUMSUB [shardchannel …]: replies with a flat array of shard channels and
/// their numbers of subscribers.
fn pubsub_shardnumsub(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    count_subscribers(ctx, args, Kind::Shard)
}

static PUBSUB_HELP: Command<Runner> = Command {
    history: History::since("6.2.0"),
    group: Group::Pubsub,
    run: Runner::Server(pubsub_help),
    ..Command::HELP
};
/// Handles PUBSUB HELP: lists the subcommands with their syntax.
fn pubsub_help(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    super::help(
        ctx,
        "PUBSUB",
        &[
            ("CHANNELS [<pattern>]", &["The channels with subscribers that match <pattern> (default: '*')."]),
            ("NUMPAT", &["The number of patterns with subscribers."]),
            ("NUMSUB [<channel> ...]", &["The number of subscribers of each channel."]),
            (
                "SHARDCHANNELS [<pattern>]",
                &["The shard channels with subscribers that match <pattern> (default: '*')."],
            ),
            ("SHARDNUMSUB [<shardchannel> ...]", &["The number of subscribers of each shard channel."]),
        ],
    );
    Ok(())
}
