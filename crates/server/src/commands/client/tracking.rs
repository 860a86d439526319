//! CLIENT TRACKING, CACHING, TRACKINGINFO and GETREDIR: client-side caching of one connection.

use std::collections::BTreeSet;

use ::commands::table::{Acl, Arg, Arity, Command, Flags, Group, History};
use ::commands::{Args, CommandError};
use engine::client::Mode;
use engine::track::TrackingOptions;

use crate::context::Runner;
use crate::context::ServerCtx;

pub(super) static CLIENT_TRACKING: Command<Runner> = Command {
    name: "TRACKING",
    summary: "Turns the tracking of keys for client-side caching on or off.",
    history: History::since("6.0.0"),
    group: Group::Connection,
    complexity: "O(1). Some options may introduce additional complexity.",
    arity: Arity::AtLeast(3),
    flags: Flags::NOSCRIPT.union(Flags::LOADING).union(Flags::STALE),
    acl: Acl::CONNECTION,
    args: &[
        Arg::one_of("status", &[Arg::word("on", "ON"), Arg::word("off", "OFF")]),
        Arg::integer("client-id").token("REDIRECT").optional(),
        Arg::string("prefix").token("PREFIX").optional().multiple_token(),
        Arg::word("bcast", "BCAST").optional(),
        Arg::word("optin", "OPTIN").optional(),
        Arg::word("optout", "OPTOUT").optional(),
        Arg::word("noloop", "NOLOOP").optional(),
    ],
    run: Runner::Server(client_tracking),
    ..Command::DEFAULT
};
/// Handles CLIENT TRACKING ON|OFF [REDIRECT id] [PREFIX prefix ...] [BCAST] [OPTIN] [OPTOUT]
/// [NOLOOP]: turns invalidations for this connection on or off.
fn client_tracking(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let wish = parse(ctx, args)?;
    if args.is(2, "ON") {
        check(&wish, ctx)?;
        let session = &mut *ctx.session;
        ctx.shared.engine.tracking.enable(
            &ctx.shared.engine.keyspace,
            &mut session.tracking,
            &session.info,
            &wish,
        );
    } else if args.is(2, "OFF") {
        ctx.session.stop_tracking(&ctx.shared.engine.tracking, &ctx.shared.engine.keyspace);
    } else {
        return Err(CommandError::Syntax);
    }
    ctx.reply.ok();
    Ok(())
}

/// Parses the arguments of CLIENT TRACKING: ON or OFF, the redirection, the prefixes and the modes.
fn parse<'a>(ctx: &ServerCtx<'_, '_, '_>, args: &Args<'a>) -> Result<TrackingOptions<'a>, CommandError> {
    let mut wish = TrackingOptions { mode: Mode::empty(), redirect: 0, prefixes: Vec::new() };
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
                if ctx.shared.engine.clients.get(id).is_none() {
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

/// Checks that the options of CLIENT TRACKING are compatible with each other and with the client's
/// current tracking mode.
fn check(wish: &TrackingOptions<'_>, ctx: &ServerCtx<'_, '_, '_>) -> Result<(), CommandError> {
    let now = ctx.session.info.tracking.mode();
    let refuse = |line| Err(CommandError::Line(line));
    if !wish.mode.contains(Mode::BCAST) && !wish.prefixes.is_empty() {
        return refuse("ERR PREFIX option requires BCAST mode to be enabled");
    }
    if now.contains(Mode::ON) && now.contains(Mode::BCAST) != wish.mode.contains(Mode::BCAST) {
        return refuse(
            "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then \
             re-enabling it with a different mode.",
        );
    }
    if wish.mode.contains(Mode::BCAST) && wish.mode.intersects(Mode::OPTIN | Mode::OPTOUT) {
        return refuse("ERR OPTIN and OPTOUT are not compatible with BCAST");
    }
    if wish.mode.contains(Mode::OPTIN | Mode::OPTOUT) {
        return refuse("ERR You can't specify both OPTIN mode and OPTOUT mode");
    }
    let switches = (wish.mode.contains(Mode::OPTIN) && now.contains(Mode::OPTOUT))
        || (wish.mode.contains(Mode::OPTOUT) && now.contains(Mode::OPTIN));
    if switches {
        return refuse(
            "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then \
             re-enabling it with a different mode.",
        );
    }
    if wish.mode.contains(Mode::BCAST) { check_overlaps(&wish.prefixes, prefixes_of(ctx)) } else { Ok(()) }
}

/// Returns the prefixes that this connection tracks, in order of their bytes; `None` if it does not
/// track.
fn prefixes_of<'a>(ctx: &'a ServerCtx<'_, '_, '_>) -> Option<&'a BTreeSet<Box<[u8]>>> {
    ctx.session.tracking.as_ref().map(|tracker| tracker.prefixes())
}

/// Checks that no prefix, new or `named` earlier, begins with another one: a change of a key that
/// matches both would be reported twice. The error names the first new prefix that overlaps another
/// one, and the first prefix that it overlaps. O(n log n) in new prefixes.
fn check_overlaps(new: &[&[u8]], named: Option<&BTreeSet<Box<[u8]>>>) -> Result<(), CommandError> {
    // From last to first, so that each prefix is compared with the later ones. Of two overlapping
    // prefixes only the shorter one stays in the set: every prefix that overlaps the longer one
    // also overlaps the shorter one.
    let mut behind: BTreeSet<&[u8]> = BTreeSet::new();
    let mut first = None;
    for (index, &prefix) in new.iter().enumerate().rev() {
        let existing = named.and_then(|named| overlapping(named, prefix));
        let is_covered = behind.range(..=prefix).next_back().is_some_and(|other| prefix.starts_with(other));
        let mut covers = false;
        while !is_covered
            && let Some(&longer) = behind.range(prefix..).next()
            && longer.starts_with(prefix)
        {
            covers = true;
            behind.remove(longer);
        }
        if existing.is_some() || is_covered || covers {
            first = Some((index, existing));
        }
        if !is_covered {
            behind.insert(prefix);
        }
    }
    let Some((index, existing)) = first else { return Ok(()) };
    let prefix = new[index];
    let (which, other) = match existing {
        Some(other) => ("an existing", other),
        None => {
            let mut others = new[index + 1..].iter();
            let other = others.find(|other| prefix.starts_with(other) || other.starts_with(prefix));
            ("another provided", *other.expect("one behind it overlaps"))
        }
    };
    let (prefix, other) = (String::from_utf8_lossy(prefix), String::from_utf8_lossy(other));
    Err(CommandError::Text(format!(
        "ERR Prefix '{prefix}' overlaps with {which} prefix '{other}'. Prefixes for a single client must not \
         overlap."
    )))
}

/// Returns the first of `prefixes` that overlaps `other`. The prefixes do not overlap each other.
/// O(log n).
fn overlapping<'a>(prefixes: &'a BTreeSet<Box<[u8]>>, other: &[u8]) -> Option<&'a [u8]> {
    use std::ops::Bound::{Included, Unbounded};
    let before = prefixes.range::<[u8], _>((Unbounded, Included(other))).next_back();
    let behind = prefixes.range::<[u8], _>((Included(other), Unbounded)).next();
    let shorter = before.filter(|before| other.starts_with(before));
    shorter.or(behind.filter(|behind| behind.starts_with(other))).map(|found| &**found)
}

pub(super) static CLIENT_CACHING: Command<Runner> = Command {
    name: "CACHING",
    summary: "Turns the tracking of the next command's keys on (mode OPTIN) or off (mode OPTOUT).",
    history: History::since("6.0.0"),
    group: Group::Connection,
    complexity: "O(1)",
    arity: Arity::Exactly(3),
    flags: Flags::NOSCRIPT.union(Flags::LOADING).union(Flags::STALE),
    acl: Acl::CONNECTION,
    args: &[Arg::one_of("mode", &[Arg::word("yes", "YES"), Arg::word("no", "NO")])],
    run: Runner::Server(client_caching),
    ..Command::DEFAULT
};
/// Handles CLIENT CACHING YES|NO: states if the keys of the next command are tracked (with OPTIN or
/// OPTOUT).
fn client_caching(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
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
    summary: "Describes the tracking of the connection.",
    history: History::since("6.2.0"),
    group: Group::Connection,
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    flags: Flags::NOSCRIPT.union(Flags::LOADING).union(Flags::STALE),
    acl: Acl::CONNECTION,
    run: Runner::Server(client_trackinginfo),
    ..Command::DEFAULT
};
/// Handles CLIENT TRACKINGINFO: replies with the flags, the redirection and the prefixes of this
/// connection's tracking.
fn client_trackinginfo(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
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
    ctx.reply.bulk(b"prefixes");
    let prefixes = ctx.session.tracking.as_ref().map(|tracker| tracker.prefixes());
    ctx.reply.array(prefixes.map_or(0, BTreeSet::len));
    prefixes.into_iter().flatten().for_each(|prefix| ctx.reply.bulk(prefix));
    Ok(())
}

pub(super) static CLIENT_GETREDIR: Command<Runner> = Command {
    name: "GETREDIR",
    summary: "Returns the ID of the client that receives the invalidations for this connection.",
    history: History::since("6.0.0"),
    group: Group::Connection,
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    flags: Flags::NOSCRIPT.union(Flags::LOADING).union(Flags::STALE),
    acl: Acl::CONNECTION,
    run: Runner::Server(client_getredir),
    ..Command::DEFAULT
};
/// Handles CLIENT GETREDIR: replies with the id of the client that gets this connection's
/// invalidations; 0 without a redirection, -1 if the connection does not track.
fn client_getredir(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    ctx.reply.integer(redirection(ctx));
    Ok(())
}

/// Returns the id of the client to which this connection's invalidations are redirected; 0 for
/// none, -1 if the connection does not track.
fn redirection(ctx: &ServerCtx<'_, '_, '_>) -> i64 {
    let state = &ctx.session.info.tracking;
    if state.mode().contains(Mode::ON) { state.redirect() as i64 } else { -1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Finds the first new prefix that [`check_overlaps`] must reject, by comparing all pairs.
    /// Returns its index, and the prefix that it overlaps; `None` if no pair overlaps.
    fn naive(new: &[&[u8]], named: &BTreeSet<Box<[u8]>>) -> Option<(usize, Vec<u8>)> {
        let overlap = |a: &[u8], b: &[u8]| a.starts_with(b) || b.starts_with(a);
        new.iter().enumerate().find_map(|(index, prefix)| {
            let existing = named.iter().map(|other| &**other).find(|other| overlap(prefix, other));
            let behind = || new[index + 1..].iter().copied().find(|other| overlap(prefix, other));
            existing.or_else(behind).map(|other| (index, other.to_vec()))
        })
    }

    #[test]
    fn the_first_overlap_is_found_whatever_the_order() {
        let mut rng = fastrand::Rng::with_seed(3);
        for _ in 0..20_000 {
            let mut word = || -> Vec<u8> { (0..rng.usize(1..7)).map(|_| rng.u8(b'a'..b'd')).collect() };
            let mut named: BTreeSet<Box<[u8]>> = BTreeSet::new();
            for _ in 0..3 {
                let one = word();
                if naive(&[&one], &named).is_none() {
                    named.insert(one.into());
                }
            }
            let words: Vec<Vec<u8>> = (0..5).map(|_| word()).collect();
            let new: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            match (check_overlaps(&new, Some(&named)), naive(&new, &named)) {
                (Ok(()), None) => {}
                (Err(CommandError::Text(line)), Some((index, other))) => {
                    let (prefix, other) =
                        (String::from_utf8_lossy(new[index]), String::from_utf8_lossy(&other));
                    let starts = format!("ERR Prefix '{prefix}' overlaps with ");
                    assert!(
                        line.starts_with(&starts) && line.contains(&format!(" prefix '{other}'.")),
                        "{line}"
                    );
                }
                (found, expected) => panic!("{new:?} beside {named:?}: {found:?}, not {expected:?}"),
            }
        }
    }
}
