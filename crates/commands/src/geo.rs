//! Commands on places on earth. A place is a member of a sorted set. Its score is the number of its
//! map cell ([`cell`]), so all commands on sorted sets work on places, too. Searches are in
//! [`search`], their shapes in [`shape`].

mod cell;
mod search;
mod shape;

use keyspace::Zset;
use resp::Reply;

use crate::args::Args;
use crate::ctx::Ctx;
use crate::error::CommandError;
use crate::table::{Acl, Arg, Arity, Command, Flags, Group, History, KeyFlags, KeySpec};
use crate::zset::{AddOptions, add_members};
use cell::{Cell, LATITUDES, LONGITUDES, Point, STEP_MAX};

/// The command table's records of all geo commands.
pub static COMMANDS: &[&Command] = &[
    &GEOADD,
    &GEODIST,
    &GEOHASH,
    &GEOPOS,
    &search::GEOSEARCH,
    &search::GEOSEARCHSTORE,
    &search::GEORADIUS,
    &search::GEORADIUS_RO,
    &search::GEORADIUSBYMEMBER,
    &search::GEORADIUSBYMEMBER_RO,
];

/// The argument that names the unit of distances.
const UNIT: Arg = Arg::one_of(
    "unit",
    &[Arg::word("m", "M"), Arg::word("km", "KM"), Arg::word("ft", "FT"), Arg::word("mi", "MI")],
);

/// Returns the length in metres of the unit that argument `index` names.
fn unit_m(args: &Args<'_>, index: usize) -> Result<f64, CommandError> {
    match () {
        () if args.is(index, "M") => Ok(1.0),
        () if args.is(index, "KM") => Ok(1000.0),
        () if args.is(index, "FT") => Ok(0.3048),
        () if args.is(index, "MI") => Ok(1609.34),
        () => Err(CommandError::Line("ERR unsupported unit provided. please use M, KM, FT, MI")),
    }
}

/// Parses a point from argument `index`, the longitude, and the next one, the latitude.
fn point(args: &Args<'_>, index: usize) -> Result<Point, CommandError> {
    let point = Point { longitude: args.float(index)?, latitude: args.float(index + 1)? };
    let Point { longitude, latitude } = point;
    if LONGITUDES.contains(longitude) && LATITUDES.contains(latitude) {
        return Ok(point);
    }
    Err(CommandError::Text(format!("ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}")))
}

/// Returns the position of a member of a sorted set, or `None` if the member is missing.
fn place(zset: &Zset, member: &[u8], args: &Args<'_>) -> Option<Point> {
    zset.score(member, args.hasher()).map(|score| Cell::of_score(score).center())
}

/// Replies with a distance as a bulk string on both protocols, with four decimal digits.
fn reply_distance(reply: &mut Reply<'_>, distance: f64) {
    let ten_thousandths = (distance * 10_000.0).round_ties_even() as u64;
    let text = format!("{}.{:04}", ten_thousandths / 10_000, ten_thousandths % 10_000);
    reply.bulk(text.as_bytes());
}

/// Replies with a point: an array of its longitude and latitude.
fn reply_point(reply: &mut Reply<'_>, point: Point) {
    reply.array(2);
    reply.double(point.longitude);
    reply.double(point.latitude);
}

static GEOADD: Command = Command {
    name: "GEOADD",
    summary: "Adds places to a sorted set, or updates their positions.",
    history: History::since("3.2.0").changed(&[("6.2.0", "takes NX, XX and CH")]),
    group: Group::Geo,
    complexity: "O(log(N)) for each place",
    arity: Arity::AtLeast(5),
    flags: Flags::WRITE.union(Flags::DENYOOM),
    acl: Acl::WRITE.union(Acl::GEO),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::UPDATE))],
    args: &[
        Arg::key("key", 0),
        Arg::one_of("condition", &[Arg::word("nx", "NX"), Arg::word("xx", "XX")]).since("6.2.0").optional(),
        Arg::word("change", "CH").since("6.2.0").optional(),
        Arg::block("data", &[Arg::double("longitude"), Arg::double("latitude"), Arg::string("member")])
            .multiple(),
    ],
    run: geoadd,
    ..Command::DEFAULT
};
/// Handles GEOADD: replies with the number of new members, with CH also counting moved members.
fn geoadd(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let (mut options, mut first) = (AddOptions::default(), 2);
    while first < args.len() {
        let option = match () {
            () if args.is(first, "NX") => &mut options.nx,
            () if args.is(first, "XX") => &mut options.xx,
            () if args.is(first, "CH") => &mut options.ch,
            () => break,
        };
        *option = true;
        first += 1;
    }
    let places = args.len() - first;
    if places == 0 || !places.is_multiple_of(3) || (options.nx && options.xx) {
        return Err(CommandError::Syntax);
    }
    let member = |index| {
        let at = first + 3 * index;
        Ok((Cell::at(point(args, at)?, STEP_MAX).scores().start, args.get(at + 2)))
    };
    let changes = ctx.effects.changes;
    add_members(ctx, args, options, places / 3, member)?;
    if ctx.effects.changes > changes {
        ctx.record(|record| {
            let zadd = record.command("ZADD").words(args.from(1).take(first - 1));
            let members = (0..places / 3).filter_map(|index| member(index).ok());
            // A cell's score is a whole number of 52 bits.
            members.for_each(|(score, name)| _ = zadd.integer(score as u64).word(name));
        });
    }
    Ok(())
}

static GEODIST: Command = Command {
    name: "GEODIST",
    summary: "Returns the distance between two places.",
    history: History::since("3.2.0"),
    group: Group::Geo,
    complexity: "O(1)",
    arity: Arity::AtLeast(4),
    flags: Flags::READONLY.union(Flags::SHORT),
    acl: Acl::READ.union(Acl::GEO),
    keys: &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))],
    args: &[Arg::key("key", 0), Arg::string("member1"), Arg::string("member2"), UNIT.optional()],
    run: geodist,
    ..Command::DEFAULT
};
/// Handles GEODIST: replies with the distance, or null if one of the members is missing.
fn geodist(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let unit_m = match args.len() {
        4 => 1.0,
        5 => unit_m(args, 4)?,
        _ => return Err(CommandError::Syntax),
    };
    let zset = ctx.db.read::<Zset>(args.key(1))?;
    let places =
        zset.and_then(|zset| Some((place(zset, args.get(2), args)?, place(zset, args.get(3), args)?)));
    match places {
        Some((a, b)) => reply_distance(&mut ctx.reply, shape::distance_m(a, b) / unit_m),
        None => ctx.reply.null(),
    }
    Ok(())
}

static GEOHASH: Command = Command {
    name: "GEOHASH",
    summary: "Returns the geohash strings of places.",
    history: History::since("3.2.0"),
    group: Group::Geo,
    complexity: "O(1) for each member",
    arity: Arity::AtLeast(2),
    flags: Flags::READONLY,
    acl: Acl::READ.union(Acl::GEO),
    keys: &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))],
    args: &[Arg::key("key", 0), Arg::string("member").optional().multiple()],
    run: geohash,
    ..Command::DEFAULT
};
/// Handles GEOHASH: replies with an array of geohashes of eleven digits, with null for a missing
/// member.
fn geohash(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    reply_places(ctx, args, |reply, place| match place {
        Some(point) => reply.bulk(&cell::text(point)),
        None => reply.null(),
    })
}

static GEOPOS: Command = Command {
    name: "GEOPOS",
    summary: "Returns the longitudes and latitudes of places.",
    run: geopos,
    ..GEOHASH
};
/// Handles GEOPOS: replies with an array of points, with null for a missing member.
fn geopos(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    reply_places(ctx, args, |reply, place| match place {
        Some(point) => reply_point(reply, point),
        None => reply.null_array(),
    })
}

/// Replies with an array of the elements that `reply_place` writes for the members that the
/// arguments name. `reply_place` gets `None` for a missing member.
fn reply_places(
    ctx: &mut Ctx<'_>,
    args: &Args<'_>,
    reply_place: impl Fn(&mut Reply<'_>, Option<Point>),
) -> Result<(), CommandError> {
    let zset = ctx.db.read::<Zset>(args.key(1))?;
    ctx.reply.array(args.len() - 2);
    for member in args.from(2) {
        reply_place(&mut ctx.reply, zset.and_then(|zset| place(zset, member, args)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, check};

    #[test]
    fn places_are_members_whose_scores_are_cells() {
        check(&[
            ("GEOADD s 13.361389 38.115556 Palermo 15.087269 37.502669 Catania", ":2|"),
            ("GEOADD s CH XX 13.361389 38.2 Palermo 1 1 nobody", ":1|"),
            ("GEOADD s NX 13.361389 38.115556 Palermo", ":0|"),
            ("GEOADD s CH 13.361389 38.115556 Palermo", ":1|"),
            ("GEODIST s Palermo Catania", "$11|166274.1516|"),
            ("GEODIST s Palermo Catania km", "$8|166.2742|"),
            ("GEODIST s Palermo Palermo", "$6|0.0000|"),
            ("GEODIST s Palermo nobody", "_|"),
            ("GEOHASH s Palermo nobody", "*2|$11|sqc8b49rny0|_|"),
            ("GEOHASH s", "*0|"),
        ]);
    }

    #[test]
    fn points_are_doubles_where_there_are_doubles() {
        let mut db = Harness::new();
        db.line("GEOADD s 13.361389 38.115556 Palermo");
        let bulks = "*2|*2|$18|13.361389338970184|$16|38.1155563954963|*-1|";
        assert_eq!(db.line("GEOPOS s Palermo nobody"), bulks);
        db.protocol = resp::Protocol::Resp3;
        let doubles = "*2|*2|,13.361389338970184|,38.1155563954963|_|";
        assert_eq!(db.line("GEOPOS s Palermo nobody"), doubles);
    }

    #[test]
    fn wrong_places_are_told() {
        check(&[
            ("GEOADD s 200 10 a", "-ERR invalid longitude,latitude pair 200.000000,10.000000|"),
            ("GEOADD s 1 1 a 1 86 b", "-ERR invalid longitude,latitude pair 1.000000,86.000000|"),
            ("EXISTS s", ":0|"),
            ("GEOADD s x 10 a", "-ERR value is not a valid float|"),
            ("GEOADD s NX XX 1 1 a", "-ERR syntax error|"),
            ("GEOADD s NX CH CH", "-ERR syntax error|"),
            ("GEOADD s 1 1 a 2", "-ERR syntax error|"),
            ("GEODIST s a b parsec", "-ERR unsupported unit provided. please use M, KM, FT, MI|"),
            ("GEODIST s a b km km", "-ERR syntax error|"),
            ("SET t x", "+OK|"),
            ("GEOPOS t a", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
        ]);
    }
}
