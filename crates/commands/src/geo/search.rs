//! Searches for places. All six commands are parsed into the same [`Request`]. They differ in the
//! options that they accept and in the positions of their arguments.
//!
//! The cells that cover the shape give ranges of scores. The result is the members in these ranges
//! that lie inside the shape. Without a requested order, it is ordered by cell and then by score.
//! With COUNT and without ANY, the default order is nearest first. Errors come in the order of
//! Redis, which checks the key first.

use std::cmp::Ordering;

use keyspace::zset::ScoreBound;
use keyspace::{Key, Object, Zset};
use resp::Reply;
use stdx::number::{self, F64_TEXT_LEN_MAX, format_f64};
use stdx::partial_sort::partial_sort;
use structures::listpack::element::{Element, IntText};

use super::cell::{Cell, Point, to_i64};
use super::shape::{Outline, Shape, centroid};
use super::{UNIT, place, point, reply_distance, reply_point, unit_m};
use crate::args::{Args, Upper};
use crate::collection::{StoreEvents, bulk, store_result, zset_limits};
use crate::ctx::{Ctx, EventClass};
use crate::error::CommandError;
use crate::record::forms::RecordedForm;
use crate::table::{Acl, Arg, Arity, Command, Flags, Group, History, KeyFlags, KeySpec};

/// The form of a search: one of the six GEO commands that search.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Radius,
    RadiusRo,
    RadiusByMember,
    RadiusByMemberRo,
    Search,
    SearchStore,
}

impl Form {
    /// Returns the index of the argument that is the key to search in.
    fn source(self) -> usize {
        if self == Form::SearchStore { 2 } else { 1 }
    }
}

/// The option of a geo search that gave the centre: FROMMEMBER or FROMLONLAT.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    Member,
    Point,
}

/// A parsed request of a geo search command.
struct Request<'a> {
    origin: Option<Origin>,
    center: Point,
    outline: Option<Outline>,
    unit_m: f64,
    /// The comparison that orders the distances; `None` if the request asks for no order.
    order: Option<fn(f64, f64) -> Ordering>,
    /// The number of members that the search should return; 0 for all.
    count: usize,
    /// True if any `count` results are enough, not only the nearest.
    any: bool,
    with_distance: bool,
    with_hash: bool,
    with_point: bool,
    destination: Option<Key<'a>>,
    stores_distances: bool,
}

/// A member that a geo search found inside its shape.
struct Found<'z> {
    member: Element<'z>,
    score: f64,
    point: Point,
    distance_m: f64,
}

fn nearest_first(a: f64, b: f64) -> Ordering {
    a.total_cmp(&b)
}

fn farthest_first(a: f64, b: f64) -> Ordering {
    b.total_cmp(&a)
}

/// Parses argument `index` as a length without its unit. `what` is the error line for any other
/// text.
fn length(args: &Args<'_>, index: usize, what: &'static str) -> Result<f64, CommandError> {
    args.float(index).map_err(|_| CommandError::Line(what))
}

impl<'a> Request<'a> {
    /// Parses the arguments of the command `form`. `zset` is the value at the key in which the
    /// search runs.
    fn parse(args: &Args<'a>, form: Form, zset: Option<&Zset>) -> Result<Self, CommandError> {
        let mut request = Request {
            origin: None,
            center: Point { longitude: 0.0, latitude: 0.0 },
            outline: None,
            unit_m: 1.0,
            order: None,
            count: 0,
            any: false,
            with_distance: false,
            with_hash: false,
            with_point: false,
            destination: (form == Form::SearchStore).then(|| args.key(1)),
            stores_distances: false,
        };
        let mut at = match form {
            Form::Radius | Form::RadiusRo => {
                request.center = point(args, 2)?;
                request.take_circle(args, 4)?;
                6
            }
            Form::RadiusByMember | Form::RadiusByMemberRo => {
                // If the key is missing, Redis checks neither member nor radius.
                if zset.is_some() {
                    request.take_member(args, 2, zset)?;
                    request.take_circle(args, 3)?;
                }
                5
            }
            Form::Search | Form::SearchStore => form.source() + 1,
        };
        while at < args.len() {
            let taken = match (request.take_option(args, at)?, form) {
                (0, Form::Search | Form::SearchStore) => request.take_search_option(args, at, form, zset)?,
                (0, Form::Radius | Form::RadiusByMember) => request.take_store_option(args, at),
                (taken, _) => taken,
            };
            if taken == 0 {
                return Err(CommandError::Syntax);
            }
            at += taken;
        }
        request.check(args, form)?;
        Ok(request)
    }

    /// Parses an option of a geo search that all six commands accept. Returns the number of
    /// arguments that the option takes, its name included, or 0 for any other word.
    fn take_option(&mut self, args: &Args<'a>, at: usize) -> Result<usize, CommandError> {
        match &*Upper::of(args.get(at)) {
            b"WITHDIST" => self.with_distance = true,
            b"WITHHASH" => self.with_hash = true,
            b"WITHCOORD" => self.with_point = true,
            b"ANY" => self.any = true,
            b"ASC" => self.order = Some(nearest_first),
            b"DESC" => self.order = Some(farthest_first),
            b"COUNT" if at + 1 < args.len() => {
                let count = usize::try_from(args.integer(at + 1)?).ok().filter(|&count| count > 0);
                self.count = count.ok_or(CommandError::Line("ERR COUNT must be > 0"))?;
                return Ok(2);
            }
            _ => return Ok(0),
        }
        Ok(1)
    }

    /// Parses the option STORE or STOREDIST with its key. Returns the number of arguments taken, or
    /// 0 for any other word.
    fn take_store_option(&mut self, args: &Args<'a>, at: usize) -> usize {
        let stores_distances = args.is(at, "STOREDIST");
        if at + 1 == args.len() || !(stores_distances || args.is(at, "STORE")) {
            return 0;
        }
        self.stores_distances = stores_distances;
        self.destination = Some(args.key(at + 1));
        2
    }

    /// Parses an option that only GEOSEARCH and GEOSEARCHSTORE accept. Centre and shape may be
    /// given again, but only by the same option. Returns the number of arguments that the option
    /// takes, its name included, or 0 for any other word.
    fn take_search_option(
        &mut self,
        args: &Args<'a>,
        at: usize,
        form: Form,
        zset: Option<&Zset>,
    ) -> Result<usize, CommandError> {
        let behind = args.len() - at - 1;
        let outline = self.outline.as_ref();
        // A polygon has its own centre.
        let takes_origin = |origin| {
            !matches!(outline, Some(Outline::Polygon { .. })) && self.origin.is_none_or(|had| had == origin)
        };
        match &*Upper::of(args.get(at)) {
            b"STOREDIST" if form == Form::SearchStore => {
                self.stores_distances = true;
                Ok(1)
            }
            b"FROMMEMBER" if behind >= 1 && takes_origin(Origin::Member) => {
                self.take_member(args, at + 1, zset)?;
                self.origin = Some(Origin::Member);
                Ok(2)
            }
            b"FROMLONLAT" if behind >= 2 && takes_origin(Origin::Point) => {
                self.center = point(args, at + 1)?;
                self.origin = Some(Origin::Point);
                Ok(3)
            }
            b"BYRADIUS" if behind >= 2 && matches!(outline, None | Some(Outline::Circle { .. })) => {
                self.take_circle(args, at + 1)?;
                Ok(3)
            }
            b"BYBOX" if behind >= 3 && matches!(outline, None | Some(Outline::Box { .. })) => {
                self.take_box(args, at + 1)?;
                Ok(4)
            }
            b"BYPOLYGON"
                if behind >= 2
                    && self.origin.is_none()
                    && matches!(outline, None | Some(Outline::Polygon { .. })) =>
            {
                self.take_polygon(args, at + 1)
            }
            _ => Ok(0),
        }
    }

    /// Sets the centre of the search to the position of the member at argument `index`. Does
    /// nothing if the key is missing (`zset` is `None`).
    fn take_member(
        &mut self,
        args: &Args<'a>,
        index: usize,
        zset: Option<&Zset>,
    ) -> Result<(), CommandError> {
        if let Some(zset) = zset {
            let place = place(zset, args.get(index), args);
            self.center = place.ok_or(CommandError::Line("ERR could not decode requested zset member"))?;
        }
        Ok(())
    }

    /// Parses the radius of the search from argument `index`, and its unit from the next one.
    fn take_circle(&mut self, args: &Args<'a>, index: usize) -> Result<(), CommandError> {
        let radius = length(args, index, "ERR need numeric radius")?;
        if radius < 0.0 {
            return Err(CommandError::Line("ERR radius cannot be negative"));
        }
        self.unit_m = unit_m(args, index + 1)?;
        self.outline = Some(Outline::Circle { radius });
        Ok(())
    }

    /// Parses the width of the search's box from argument `index`, and a height and their unit from
    /// the next two.
    fn take_box(&mut self, args: &Args<'a>, index: usize) -> Result<(), CommandError> {
        let width = length(args, index, "ERR need numeric width")?;
        let height = length(args, index + 1, "ERR need numeric height")?;
        if width < 0.0 || height < 0.0 {
            return Err(CommandError::Line("ERR height or width cannot be negative"));
        }
        self.unit_m = unit_m(args, index + 2)?;
        self.outline = Some(Outline::Box { width, height });
        Ok(())
    }

    /// Parses the number of a polygon's corners from argument `index`, and then the corners.
    /// Returns the number of arguments of BYPOLYGON, its name included.
    fn take_polygon(&mut self, args: &Args<'a>, index: usize) -> Result<usize, CommandError> {
        let count = number::parse_i64(args.get(index)).and_then(|count| i32::try_from(count).ok());
        let count = count.ok_or(CommandError::Line("ERR invalid number of vertices"))?;
        let given = (args.len() - index - 1) / 2;
        let count = usize::try_from(count).ok().filter(|count| (3..=given).contains(count));
        let count =
            count.ok_or(CommandError::Line("ERR GEOSEARCH BYPOLYGON must have at least 3 vertices"))?;
        let corners = (0..count).map(|corner| point(args, index + 1 + 2 * corner));
        let corners = corners.collect::<Result<Vec<Point>, CommandError>>()?;
        self.center = centroid(&corners);
        self.unit_m = 1.0;
        self.outline = Some(Outline::Polygon { corners });
        Ok(2 + 2 * count)
    }

    /// Checks that the required options of the geo search are present and that no two options
    /// exclude each other.
    fn check(&self, args: &Args<'a>, form: Form) -> Result<(), CommandError> {
        let named = |text: &str| Err(CommandError::quoting(text, args.get(0), ""));
        if self.destination.is_some() && (self.with_distance || self.with_hash || self.with_point) {
            return Err(CommandError::Line(if form == Form::SearchStore {
                "ERR GEOSEARCHSTORE is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
            } else {
                "ERR STORE option in GEORADIUS is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
            }));
        }
        if matches!(form, Form::Search | Form::SearchStore) {
            let is_polygon = matches!(self.outline, Some(Outline::Polygon { .. }));
            if self.origin.is_none() && !is_polygon {
                return named("ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for ");
            }
            if self.outline.is_none() {
                return named("ERR exactly one of BYRADIUS and BYBOX can be specified for ");
            }
        }
        if self.any && self.count == 0 {
            return Err(CommandError::Line("ERR the ANY argument requires COUNT argument"));
        }
        Ok(())
    }

    /// Returns the members of `zset` inside the search's shape, in the requested order and at most
    /// the requested number.
    fn run<'z>(&mut self, zset: &'z Zset) -> Vec<Found<'z>> {
        let Some(outline) = self.outline.take() else { return Vec::new() };
        let shape = Shape { center: self.center, outline, unit_m: self.unit_m };
        let enough = if self.any { self.count } else { usize::MAX };
        let mut found = Vec::new();
        for cell in shape.cells() {
            if found.len() >= enough {
                break;
            }
            let scores = cell.scores();
            let min = ScoreBound { score: scores.start, exclusive: false };
            let max = ScoreBound { score: scores.end, exclusive: true };
            let members = zset.range(zset.score_ranks(min, max)).filter_map(|(member, score)| {
                let point = Cell::of_score(score).center();
                let distance_m = shape.distance_within_m(point)?;
                Some(Found { member, score, point, distance_m })
            });
            found.extend(members.take(enough - found.len()));
        }
        let wanted = if self.count == 0 { found.len() } else { self.count.min(found.len()) };
        // With COUNT and without ANY, the default order is nearest first.
        let implied = (self.count > 0 && !self.any).then_some(nearest_first as fn(f64, f64) -> Ordering);
        if let Some(order) = self.order.or(implied) {
            let compare = |a: &Found<'_>, b: &Found<'_>| order(a.distance_m, b.distance_m);
            if wanted == found.len() {
                found.sort_by(compare);
            } else {
                partial_sort(&mut found, 0..=wanted - 1, compare);
            }
        }
        found.truncate(wanted);
        found
    }

    fn reply(&self, reply: &mut Reply<'_>, found: &[Found<'_>]) {
        let details =
            usize::from(self.with_distance) + usize::from(self.with_hash) + usize::from(self.with_point);
        reply.array(found.len());
        for found in found {
            if details > 0 {
                reply.array(1 + details);
            }
            bulk(reply, found.member);
            if self.with_distance {
                reply_distance(reply, found.distance_m / self.unit_m);
            }
            if self.with_hash {
                reply.integer(to_i64(found.score));
            }
            if self.with_point {
                reply_point(reply, found.point);
            }
        }
    }
}

fn search(ctx: &mut Ctx<'_>, args: &Args<'_>, form: Form) -> Result<(), CommandError> {
    let (limits, hasher) = (zset_limits(ctx), args.hasher());
    let zset = ctx.db.read::<Zset>(args.key(form.source()))?;
    let mut request = Request::parse(args, form, zset)?;
    let found = zset.map(|zset| request.run(zset)).unwrap_or_default();
    let Some(destination) = request.destination else {
        request.reply(&mut ctx.reply, &found);
        return Ok(());
    };
    let mut stored = Zset::new();
    let longest = found.iter().map(|found| found.member.text(&mut IntText::new()).len()).max();
    stored.expect(found.len(), longest.unwrap_or(0), &limits, hasher);
    for found in &found {
        let distance = found.distance_m / request.unit_m;
        let score = if request.stores_distances { distance } else { found.score };
        stored.set(found.member.text(&mut IntText::new()), score, &limits, hasher);
    }
    let event = if form == Form::SearchStore { "geosearchstore" } else { "georadiusstore" };
    let changes = found.len() as u64;
    drop(found);
    record_stored(ctx, destination, &stored);
    store_result(
        ctx,
        destination,
        Object::Zset(stored),
        StoreEvents { class: EventClass::ZSET, event, changes },
    );
    Ok(())
}

/// The maximum number of members that one recorded ZADD adds.
const RECORDED_MEMBERS_MAX: usize = 1024;

/// Records `stored` as the new value of `key`. The same search on another server may find other
/// members or other distances, because servers compute distances differently. Must run before the
/// value is stored.
fn record_stored(ctx: &mut Ctx<'_>, key: Key<'_>, stored: &Zset) {
    let db = ctx.db.index();
    ctx.effects.record.replace(db, |record| {
        if ctx.db.peek_even_expired(key).is_some() {
            record.command("DEL").word(key.bytes);
        }
        for (number, (member, score)) in stored.iter().enumerate() {
            if number % RECORDED_MEMBERS_MAX == 0 {
                record.command("ZADD").word(key.bytes);
            }
            record.word(format_f64(score, &mut [0; F64_TEXT_LEN_MAX]).as_bytes());
            record.word(member.text(&mut IntText::new()));
        }
    });
}

const WITH_POINT: Arg = Arg::word("withcoord", "WITHCOORD").optional();
const WITH_DISTANCE: Arg = Arg::word("withdist", "WITHDIST").optional();
const WITH_HASH: Arg = Arg::word("withhash", "WITHHASH").optional();
const ORDER: Arg = Arg::one_of("order", &[Arg::word("asc", "ASC"), Arg::word("desc", "DESC")]).optional();
const COUNT: Arg =
    Arg::block("count-block", &[Arg::integer("count").token("COUNT"), Arg::word("any", "ANY").optional()])
        .optional();
/// The COUNT argument of commands whose first version did not have ANY after COUNT.
const COUNT_LATER: Arg = Arg::block(
    "count-block",
    &[Arg::integer("count").token("COUNT"), Arg::word("any", "ANY").since("6.2.0").optional()],
)
.optional();
const STORE: Arg = Arg::one_of(
    "store",
    &[
        Arg::key("storekey", 1).shown_as("key").token("STORE"),
        Arg::key("storedistkey", 2).shown_as("key").token("STOREDIST"),
    ],
)
.optional();
const FROM: Arg = Arg::one_of(
    "from",
    &[
        Arg::string("member").token("FROMMEMBER"),
        Arg::block("fromlonlat", &[Arg::double("longitude"), Arg::double("latitude")]).token("FROMLONLAT"),
    ],
)
.optional();
const BY: Arg = Arg::one_of(
    "by",
    &[
        Arg::block("circle", &[Arg::double("radius").token("BYRADIUS"), UNIT]),
        Arg::block("box", &[Arg::double("width").token("BYBOX"), Arg::double("height"), UNIT]),
        Arg::block(
            "polygon",
            &[
                Arg::integer("num-vertices").token("BYPOLYGON"),
                Arg::block("vertices", &[Arg::double("longitude"), Arg::double("latitude")]).multiple(),
            ],
        )
        .since("9.0.0"),
    ],
);

pub(super) static GEOSEARCH: Command = Command {
    name: "GEOSEARCH",
    summary: "Returns the places inside a circle, a box or a polygon.",
    history: History::since("6.2.0")
        .changed(&[("7.0.0", "takes units in uppercase")])
        .changed_by_valkey(&[("9.0.0", "takes BYPOLYGON")]),
    group: Group::Geo,
    complexity: "O(N+log(M)), N places in the cells around the shape, M in the sorted set",
    arity: Arity::AtLeast(7),
    flags: Flags::READONLY,
    acl: Acl::READ.union(Acl::GEO),
    keys: &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))],
    args: &[Arg::key("key", 0), FROM, BY, ORDER, COUNT, WITH_POINT, WITH_DISTANCE, WITH_HASH],
    run: geosearch,
    ..Command::DEFAULT
};
/// Handles GEOSEARCH: replies with members. With WITHCOORD, WITHDIST or WITHHASH each is an array
/// with these details.
fn geosearch(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    search(ctx, args, Form::Search)
}

pub(super) static GEOSEARCHSTORE: Command = Command {
    name: "GEOSEARCHSTORE",
    summary: "Stores the places inside a circle, a box or a polygon at another key.",
    history: History::since("6.2.0")
        .changed(&[("7.0.0", "takes units in uppercase")])
        .changed_by_valkey(&[("9.0.0", "takes BYPOLYGON")]),
    group: Group::Geo,
    complexity: "O(N+log(M)), N places in the cells around the shape, M in the sorted set",
    arity: Arity::AtLeast(8),
    flags: Flags::WRITE.union(Flags::DENYOOM),
    acl: Acl::WRITE.union(Acl::GEO),
    keys: &[
        KeySpec::at(1, KeyFlags::OW.union(KeyFlags::UPDATE)),
        KeySpec::at(2, KeyFlags::RO.union(KeyFlags::ACCESS)),
    ],
    args: &[
        Arg::key("destination", 0),
        Arg::key("source", 1),
        FROM,
        BY,
        ORDER,
        COUNT,
        Arg::word("storedist", "STOREDIST").optional(),
    ],
    recorded_forms: &[RecordedForm::REPLACED],
    run: geosearchstore,
    ..Command::DEFAULT
};
/// Handles GEOSEARCHSTORE: like GEOSEARCH, but replies with the number of stored members. With
/// STOREDIST their scores are the distances.
fn geosearchstore(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    search(ctx, args, Form::SearchStore)
}

/// Finds the destination key of GEORADIUS and GEORADIUSBYMEMBER: the argument after the last STORE
/// or STOREDIST.
fn find_destination(args: &Args<'_>, visit: &mut dyn FnMut(usize)) {
    let (mut at, mut found) = (5, None);
    while at + 1 < args.len() {
        if args.is(at, "STORE") || args.is(at, "STOREDIST") {
            at += 1;
            found = Some(at);
        }
        at += 1;
    }
    found.into_iter().for_each(visit);
}

/// Finds no key. It stands in the second of the command's two key specs, because
/// [`find_destination`] searches for both STORE and STOREDIST.
fn find_no_key(_: &Args<'_>, _: &mut dyn FnMut(usize)) {}

pub(super) static GEORADIUS: Command = Command {
    name: "GEORADIUS",
    summary: "Returns or stores the places around a point.",
    history: History::since("3.2.0")
        .changed(&[("6.2.0", "takes ANY after COUNT"), ("7.0.0", "takes units in uppercase")])
        .deprecated("6.2.0", "`GEOSEARCH` and `GEOSEARCHSTORE` with the `BYRADIUS` argument"),
    group: Group::Geo,
    complexity: "O(N+log(M)), N places in the cells around the circle, M in the sorted set",
    arity: Arity::AtLeast(6),
    flags: Flags::WRITE.union(Flags::DENYOOM),
    acl: Acl::WRITE.union(Acl::GEO),
    keys: &[
        KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS)),
        KeySpec::keyword("STORE", 6, 0, 0, KeyFlags::OW.union(KeyFlags::UPDATE)).found_by(find_destination),
        KeySpec::keyword("STOREDIST", 6, 0, 0, KeyFlags::OW.union(KeyFlags::UPDATE)).found_by(find_no_key),
    ],
    args: &[
        Arg::key("key", 0),
        Arg::double("longitude"),
        Arg::double("latitude"),
        Arg::double("radius"),
        UNIT,
        WITH_POINT,
        WITH_DISTANCE,
        WITH_HASH,
        COUNT_LATER,
        ORDER,
        STORE,
    ],
    recorded_forms: &[RecordedForm::REPLACED],
    run: georadius,
    ..Command::DEFAULT
};
/// Handles GEORADIUS: like GEOSEARCH, or like GEOSEARCHSTORE with the option STORE or STOREDIST.
fn georadius(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    search(ctx, args, Form::Radius)
}

pub(super) static GEORADIUS_RO: Command = Command {
    name: "GEORADIUS_RO",
    summary: "Returns the places around a point.",
    history: History::since("3.2.10")
        .changed(&[("6.2.0", "takes ANY after COUNT"), ("7.0.0", "takes units in uppercase")])
        .deprecated("6.2.0", "`GEOSEARCH` with the `BYRADIUS` argument"),
    group: Group::Geo,
    complexity: "O(N+log(M)), N places in the cells around the circle, M in the sorted set",
    arity: Arity::AtLeast(6),
    flags: Flags::READONLY,
    acl: Acl::READ.union(Acl::GEO),
    keys: &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))],
    args: &[
        Arg::key("key", 0),
        Arg::double("longitude"),
        Arg::double("latitude"),
        Arg::double("radius"),
        UNIT,
        WITH_POINT,
        WITH_DISTANCE,
        WITH_HASH,
        COUNT_LATER,
        ORDER,
    ],
    run: georadius_ro,
    ..Command::DEFAULT
};
/// Handles GEORADIUS_RO: like GEORADIUS without STORE.
fn georadius_ro(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    search(ctx, args, Form::RadiusRo)
}

pub(super) static GEORADIUSBYMEMBER: Command = Command {
    name: "GEORADIUSBYMEMBER",
    summary: "Returns or stores the places around a member.",
    history: History::since("3.2.0")
        .changed(&[("6.2.0", "takes ANY after COUNT"), ("7.0.0", "takes units in uppercase")])
        .deprecated(
            "6.2.0",
            "`GEOSEARCH` and `GEOSEARCHSTORE` with the `BYRADIUS` and `FROMMEMBER` arguments",
        ),
    group: Group::Geo,
    complexity: "O(N+log(M)), N places in the cells around the circle, M in the sorted set",
    arity: Arity::AtLeast(5),
    flags: Flags::WRITE.union(Flags::DENYOOM),
    acl: Acl::WRITE.union(Acl::GEO),
    keys: &[
        KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS)),
        KeySpec::keyword("STORE", 5, 0, 0, KeyFlags::OW.union(KeyFlags::UPDATE)).found_by(find_destination),
        KeySpec::keyword("STOREDIST", 5, 0, 0, KeyFlags::OW.union(KeyFlags::UPDATE)).found_by(find_no_key),
    ],
    args: &[
        Arg::key("key", 0),
        Arg::string("member"),
        Arg::double("radius"),
        UNIT,
        WITH_POINT,
        WITH_DISTANCE,
        WITH_HASH,
        COUNT,
        ORDER,
        STORE,
    ],
    recorded_forms: &[RecordedForm::REPLACED],
    run: georadiusbymember,
    ..Command::DEFAULT
};
/// Handles GEORADIUSBYMEMBER: like GEORADIUS, around a member.
fn georadiusbymember(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    search(ctx, args, Form::RadiusByMember)
}

pub(super) static GEORADIUSBYMEMBER_RO: Command = Command {
    name: "GEORADIUSBYMEMBER_RO",
    summary: "Returns the places around a member.",
    history: History::since("3.2.10")
        .changed(&[("6.2.0", "takes ANY after COUNT"), ("7.0.0", "takes units in uppercase")])
        .deprecated("6.2.0", "`GEOSEARCH` with the `BYRADIUS` and `FROMMEMBER` arguments"),
    group: Group::Geo,
    complexity: "O(N+log(M)), N places in the cells around the circle, M in the sorted set",
    arity: Arity::AtLeast(5),
    flags: Flags::READONLY,
    acl: Acl::READ.union(Acl::GEO),
    keys: &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))],
    args: &[
        Arg::key("key", 0),
        Arg::string("member"),
        Arg::double("radius"),
        UNIT,
        WITH_POINT,
        WITH_DISTANCE,
        WITH_HASH,
        COUNT,
        ORDER,
    ],
    run: georadiusbymember_ro,
    ..Command::DEFAULT
};
/// Handles GEORADIUSBYMEMBER_RO: like GEORADIUSBYMEMBER without STORE.
fn georadiusbymember_ro(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    search(ctx, args, Form::RadiusByMemberRo)
}

#[cfg(test)]
mod tests {
    use crate::harness::check;

    const PLACES: (&str, &str) =
        ("GEOADD s 13.361389 38.115556 Palermo 15.087269 37.502669 Catania 2.35 48.85 Paris", ":3|");

    #[test]
    fn shapes_are_searched_from_points_and_members() {
        check(&[
            PLACES,
            ("GEOSEARCH s FROMLONLAT 15 37 BYRADIUS 200 km ASC", "*2|$7|Catania|$7|Palermo|"),
            ("GEOSEARCH s FROMLONLAT 15 37 BYRADIUS 200 km DESC", "*2|$7|Palermo|$7|Catania|"),
            ("GEOSEARCH s FROMMEMBER Palermo BYBOX 400 400 km COUNT 1", "*1|$7|Palermo|"),
            (
                "GEOSEARCH s FROMLONLAT 15 37 BYRADIUS 200 km WITHDIST ASC COUNT 1",
                "*1|*2|$7|Catania|$7|56.4413|",
            ),
            ("GEOSEARCH s BYPOLYGON 3 10 35 20 35 15 45 ASC", "*2|$7|Catania|$7|Palermo|"),
            ("GEORADIUS s 15 37 200 km WITHHASH COUNT 1 ANY", "*1|*2|$7|Palermo|:3479099956230698|"),
            ("GEORADIUSBYMEMBER_RO s Paris 1 m", "*1|$5|Paris|"),
            ("GEOSEARCH nokey FROMMEMBER a BYRADIUS 1 m", "*0|"),
        ]);
    }

    #[test]
    fn results_are_stored_with_cells_or_distances() {
        check(&[
            PLACES,
            ("GEOSEARCHSTORE d s FROMLONLAT 15 37 BYRADIUS 200 km", ":2|"),
            ("GEOPOS d nobody", "*1|_|"),
            ("GEODIST d Palermo Catania", "$11|166274.1516|"),
            ("GEORADIUS s 15 37 200 km STOREDIST a STORE d STOREDIST e", ":2|"),
            ("EXISTS a d e", ":2|"),
            ("ZCOUNT e 56.4412 56.4414", ":1|"),
            ("GEORADIUSBYMEMBER nokey x y z STORE d", ":0|"),
            ("EXISTS d", ":0|"),
        ]);
    }

    #[test]
    fn parts_that_do_not_fit_are_told() {
        let shape = "-ERR exactly one of BYRADIUS and BYBOX can be specified for geosearch|";
        let origin = "-ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for GEOSEARCH|";
        let store = "-ERR GEOSEARCHSTORE is not compatible with WITHDIST, WITHHASH and WITHCOORD options|";
        check(&[
            PLACES,
            ("geosearch s FROMLONLAT 1 1 WITHDIST ASC", shape),
            ("GEOSEARCH s BYRADIUS 1 m WITHDIST ASC", origin),
            ("GEOSEARCH s FROMLONLAT 1 1 FROMMEMBER Paris BYRADIUS 1 m", "-ERR syntax error|"),
            ("GEOSEARCH s FROMLONLAT 1 1 BYRADIUS 1 m BYBOX 1 1 m", "-ERR syntax error|"),
            ("GEOSEARCH s FROMLONLAT 1 1 BYPOLYGON 3 1 1 2 2 3 1", "-ERR syntax error|"),
            ("GEOSEARCH s FROMLONLAT 1 1 BYRADIUS 1 m ANY", "-ERR the ANY argument requires COUNT argument|"),
            ("GEOSEARCH s FROMLONLAT 1 1 BYRADIUS 1 m COUNT 0", "-ERR COUNT must be > 0|"),
            ("GEOSEARCH s FROMMEMBER x BYRADIUS 1 m", "-ERR could not decode requested zset member|"),
            ("GEOSEARCH s FROMLONLAT 1 1 BYRADIUS -1 m", "-ERR radius cannot be negative|"),
            ("GEOSEARCH s FROMLONLAT 1 1 BYBOX 1 -1 m", "-ERR height or width cannot be negative|"),
            ("GEOSEARCH s FROMLONLAT 1 1 BYBOX 1 x m", "-ERR need numeric height|"),
            ("GEOSEARCHSTORE d s FROMLONLAT 1 1 BYRADIUS 1 m WITHDIST", store),
            ("GEORADIUS_RO s 1 1 1 m STORE d", "-ERR syntax error|"),
        ]);
    }
}
