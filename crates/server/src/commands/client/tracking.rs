//! CLIENT TRACKING and its kin: how the connection hears of changes to what it caches.

use ::commands::table::{Acl, Arg, Arity, Command, Flags, Group, History};
use ::commands::{Args, CommandError};

use crate::command_table::Runner;
use crate::context::ServerCtx;
use crate::tracking::Mode;

pub(super) static CLIENT_TRACKING: Command<Runner> = Command {
    name: "TRACKING",
    summary: "Turns the invalidation of keys that the client caches on or off.",
    history: History::since("6.0.0"),
    group: Group::Connection,
    complexity: "O(1). Some options may introduce additional complexity.",
    arity: Arity::AtLeast(3),
    flags: Flags::NOSCRIPT.union(Flags::LOADING).union(Flags::STALE),
    acl: Acl::CONNECTION,
    keys: &[],
    tips: &[],
    args: &[
        Arg::one_of("status", &[Arg::word("on", "ON"), Arg::word("off", "OFF")]),
        Arg::integer("client-id").token("REDIRECT").optional(),
        Arg::string("prefix").token("PREFIX").optional().multiple_token(),
        Arg::word("bcast", "BCAST").optional(),
        Arg::word("optin", "OPTIN").optional(),
        Arg::word("optout", "OPTOUT").optional(),
        Arg::word("noloop", "NOLOOP").optional(),
    ],
    subcommands: &[],
    run: Runner::Server(client_tracking),
};
/// CLIENT TRACKING ON|OFF [REDIRECT id] [PREFIX prefix ...] [BCAST] [OPTIN] [OPTOUT] [NOLOOP].
fn client_tracking(ctx: &mut ServerCtx<'_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let wish = Wish::parse(ctx, args)?;
    if args.is(2, "ON") {
        wish.check(ctx)?;
        let info = &ctx.session.info;
        ctx.shared.tracking.enable(ctx.shared, info, wish.mode, wish.redirect, &wish.prefixes);
        ctx.session.tracking = true;
    } else if args.is(2, "OFF") {
        ctx.shared.tracking.disable(ctx.shared, &ctx.session.info);
        ctx.session.tracking = false;
    } else {
        return Err(CommandError::Syntax);
    }
    ctx.reply.ok();
    Ok(())
}

/// What CLIENT TRACKING asks for.
struct Wish<'a> {
    mode: Mode,
    redirect: u64,
    prefixes: Vec<&'a [u8]>,
}

impl<'a> Wish<'a> {
    fn parse(ctx: &ServerCtx<'_, '_>, args: &Args<'a>) -> Result<Self, CommandError> {
        let mut wish = Self { mode: Mode::empty(), redirect: 0, prefixes: Vec::new() };
        let mut at = 3;
        while at < args.len() {
            let more = at + 1 < args.len();
            match args.get(at).to_ascii_lowercase().as_slice() {
                b"redirect" if more => {
                    if wish.redirect != 0 {
                        let line = "ERR A client can only redirect to a single other client";
                        return Err(CommandError::Line(line));
                    }
                    at += 1;
                    let id = u64::try_from(args.integer(at)?).unwrap_or(0);
                    if ctx.shared.clients.get(id).is_none() {
                        let line = "ERR The client ID you want redirect to does not exist";
                        return Err(CommandError::Line(line));
                    }
                    wish.redirect = id;
                }
                b"bcast" => wish.mode |= Mode::BCAST,
                b"optin" => wish.mode |= Mode::OPTIN,
                b"optout" => wish.mode |= Mode::OPTOUT,
                b"noloop" => wish.mode |= Mode::NOLOOP,
                b"prefix" if more => {
                    at += 1;
                    wish.prefixes.push(args.get(at));
                }
                _ => return Err(CommandError::Syntax),
            }
            at += 1;
        }
        Ok(wish)
    }

    /// Whether it fits together, and to how the client tracks already.
    fn check(&self, ctx: &ServerCtx<'_, '_>) -> Result<(), CommandError> {
        let now = ctx.session.info.tracking.mode();
        let refuse = |line| Err(CommandError::Line(line));
        if !self.mode.contains(Mode::BCAST) && !self.prefixes.is_empty() {
            return refuse("ERR PREFIX option requires BCAST mode to be enabled");
        }
        if now.contains(Mode::ON) && now.contains(Mode::BCAST) != self.mode.contains(Mode::BCAST) {
            return refuse(
                "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then \
                 re-enabling it with a different mode.",
            );
        }
        if self.mode.contains(Mode::BCAST) && self.mode.intersects(Mode::OPTIN | Mode::OPTOUT) {
            return refuse("ERR OPTIN and OPTOUT are not compatible with BCAST");
        }
        if self.mode.contains(Mode::OPTIN | Mode::OPTOUT) {
            return refuse("ERR You can't specify both OPTIN mode and OPTOUT mode");
        }
        let switches = (self.mode.contains(Mode::OPTIN) && now.contains(Mode::OPTOUT))
            || (self.mode.contains(Mode::OPTOUT) && now.contains(Mode::OPTIN));
        if switches {
            return refuse(
                "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then \
                 re-enabling it with a different mode.",
            );
        }
        if self.mode.contains(Mode::BCAST) { self.check_overlaps(ctx) } else { Ok(()) }
    }

    /// No prefix may be another's beginning: a key below both would be told twice.
    fn check_overlaps(&self, ctx: &ServerCtx<'_, '_>) -> Result<(), CommandError> {
        let overlap = |a: &[u8], b: &[u8]| a.starts_with(b) || b.starts_with(a);
        let named = ctx.shared.tracking.prefixes_of(ctx.session.id);
        let refusal = |prefix: &[u8], which: &str, other: &[u8]| {
            let (prefix, other) = (String::from_utf8_lossy(prefix), String::from_utf8_lossy(other));
            CommandError::Text(format!(
                "ERR Prefix '{prefix}' overlaps with {which} prefix '{other}'. Prefixes for a single client must \
                 not overlap."
            ))
        };
        for (index, &prefix) in self.prefixes.iter().enumerate() {
            // The same one again is no clash with what is there.
            if let Some(other) = named.iter().find(|other| overlap(prefix, other)) {
                return Err(refusal(prefix, "an existing", other));
            }
            if let Some(other) = self.prefixes[index + 1..].iter().find(|other| overlap(prefix, other)) {
                return Err(refusal(prefix, "another provided", other));
            }
        }
        Ok(())
    }
}

pub(super) static CLIENT_CACHING: Command<Runner> = Command {
    name: "CACHING",
    summary: "Says whether the keys of the next command are tracked, in mode OPTIN or OPTOUT.",
    history: History::since("6.0.0"),
    group: Group::Connection,
    complexity: "O(1)",
    arity: Arity::Exactly(3),
    flags: Flags::NOSCRIPT.union(Flags::LOADING).union(Flags::STALE),
    acl: Acl::CONNECTION,
    keys: &[],
    tips: &[],
    args: &[Arg::one_of("mode", &[Arg::word("yes", "YES"), Arg::word("no", "NO")])],
    subcommands: &[],
    run: Runner::Server(client_caching),
};
/// CLIENT CACHING YES|NO.
fn client_caching(ctx: &mut ServerCtx<'_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let state = &ctx.session.info.tracking;
    let mode = state.mode();
    if !mode.contains(Mode::ON) {
        return Err(CommandError::Line(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode \
             enabled",
        ));
    }
    if args.is(2, "YES") {
        if !mode.contains(Mode::OPTIN) {
            return Err(CommandError::Line(
                "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.",
            ));
        }
    } else if args.is(2, "NO") {
        if !mode.contains(Mode::OPTOUT) {
            return Err(CommandError::Line(
                "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
            ));
        }
    } else {
        return Err(CommandError::Syntax);
    }
    state.insert(Mode::CACHING);
    ctx.reply.ok();
    Ok(())
}

pub(super) static CLIENT_TRACKINGINFO: Command<Runner> = Command {
    name: "TRACKINGINFO",
    summary: "Tells how the connection tracks keys.",
    history: History::since("6.2.0"),
    group: Group::Connection,
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    flags: Flags::NOSCRIPT.union(Flags::LOADING).union(Flags::STALE),
    acl: Acl::CONNECTION,
    keys: &[],
    tips: &[],
    args: &[],
    subcommands: &[],
    run: Runner::Server(client_trackinginfo),
};
/// CLIENT TRACKINGINFO: flags, redirection, prefixes.
fn client_trackinginfo(ctx: &mut ServerCtx<'_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    let state = &ctx.session.info.tracking;
    let mode = state.mode();
    let given = mode.contains(Mode::CACHING);
    let mut flags = vec![if mode.contains(Mode::ON) { "on" } else { "off" }];
    for (set, flag) in [
        (mode.contains(Mode::BCAST), "bcast"),
        (mode.contains(Mode::OPTIN), "optin"),
        (mode.contains(Mode::OPTIN) && given, "caching-yes"),
        (mode.contains(Mode::OPTOUT), "optout"),
        (mode.contains(Mode::OPTOUT) && given, "caching-no"),
        (mode.contains(Mode::NOLOOP), "noloop"),
        (mode.contains(Mode::BROKEN), "broken_redirect"),
    ] {
        if set {
            flags.push(flag);
        }
    }
    ctx.reply.map(3);
    ctx.reply.bulk(b"flags");
    ctx.reply.set(flags.len());
    flags.iter().for_each(|flag| ctx.reply.bulk(flag.as_bytes()));
    ctx.reply.bulk(b"redirect");
    ctx.reply.integer(redirection(ctx));
    let prefixes = ctx.shared.tracking.prefixes_of(ctx.session.id);
    ctx.reply.bulk(b"prefixes");
    ctx.reply.array(prefixes.len());
    prefixes.iter().for_each(|prefix| ctx.reply.bulk(prefix));
    Ok(())
}

pub(super) static CLIENT_GETREDIR: Command<Runner> = Command {
    name: "GETREDIR",
    summary: "Returns the id of the client that hears of changes for this connection.",
    history: History::since("6.0.0"),
    group: Group::Connection,
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    flags: Flags::NOSCRIPT.union(Flags::LOADING).union(Flags::STALE),
    acl: Acl::CONNECTION,
    keys: &[],
    tips: &[],
    args: &[],
    subcommands: &[],
    run: Runner::Server(client_getredir),
};
/// CLIENT GETREDIR: 0 for the connection itself, -1 if it does not track.
fn client_getredir(ctx: &mut ServerCtx<'_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    ctx.reply.integer(redirection(ctx));
    Ok(())
}

/// Whom the connection redirects to, 0 for nobody, -1 if it does not track.
fn redirection(ctx: &ServerCtx<'_, '_>) -> i64 {
    let state = &ctx.session.info.tracking;
    if state.mode().contains(Mode::ON) { state.redirect() as i64 } else { -1 }
}
