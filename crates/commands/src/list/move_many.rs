//! LMOVEM and BLMOVEM: move several elements from one end of a list to one end of another.
//!
//! All elements are popped before the first is pushed. This matters if the source is also the
//! destination: moving one by one from the head to the head then reverses the elements.

use keyspace::{ElementBatch, Key, List, ListEnd, PushOrder};

use super::transfer::{at_least_one, end_named};
use super::{limits, note_pop, pop_command, pop_event, push_command, push_event};
use crate::args::Args;
use crate::ctx::{Ctx, EventClass};
use crate::error::CommandError;
use crate::record::RecordWriter;
use crate::record::forms::RecordedForm;
use crate::table::{Acl, Arg, Arity, Command, Flags, Group, History, KeyFlags, KeySpec};
use crate::wait::{Awaited, BlockingKey, EmptyReply, timeout_seconds};

/// The optional arguments of LMOVEM: the number of elements to move and their order.
const HOW_MANY: Arg = Arg::block(
    "how-many",
    &[
        Arg::one_of(
            "selector",
            &[Arg::integer("count").token("COUNT"), Arg::integer("exactly").token("EXACTLY")],
        ),
        Arg::one_of("ordering", &[Arg::word("obo", "OBO"), Arg::word("bulk", "BULK")]),
    ],
)
.optional();

pub(super) static LMOVEM: Command = Command {
    name: "LMOVEM",
    summary: "Moves elements from one end of a list to one end of another list and returns them.",
    history: History::since("8.10.0"),
    group: Group::List,
    complexity: "O(N) in the number of moved elements",
    arity: Arity::AtLeast(5),
    flags: Flags::WRITE.union(Flags::DENYOOM),
    acl: Acl::WRITE.union(Acl::LIST),
    keys: &[
        KeySpec::at(1, KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::DELETE)),
        KeySpec::at(2, KeyFlags::RW.union(KeyFlags::INSERT)),
    ],
    args: &[
        Arg::key("source", 0),
        Arg::key("destination", 1),
        Arg::one_of("wherefrom", &[Arg::word("left", "LEFT"), Arg::word("right", "RIGHT")]),
        Arg::one_of("whereto", &[Arg::word("left", "LEFT"), Arg::word("right", "RIGHT")]),
        HOW_MANY,
    ],
    recorded_forms: &[RecordedForm::REPLACED],
    run: lmovem,
    ..Command::DEFAULT
};
/// Handles LMOVEM: replies with the moved elements in the order of the destination, or with null if
/// none was moved.
fn lmovem(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let ends = (end_named(args, 3)?, end_named(args, 4)?);
    let request = MoveMany::parse(args, ends, 5)?;
    if !request.run(ctx, args)? {
        ctx.reply.null_array();
    }
    Ok(())
}

pub(super) static BLMOVEM: Command = Command {
    name: "BLMOVEM",
    summary: "Moves elements from one end of a list to one end of another list and returns them. Blocks \
         until there are enough elements.",
    history: History::since("8.10.0"),
    group: Group::List,
    complexity: "O(N) in the number of moved elements",
    arity: Arity::AtLeast(6),
    flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::BLOCKING),
    acl: Acl::WRITE.union(Acl::LIST).union(Acl::BLOCKING),
    keys: &[
        KeySpec::at(1, KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::DELETE)),
        KeySpec::at(2, KeyFlags::RW.union(KeyFlags::INSERT)),
    ],
    args: &[
        Arg::key("source", 0),
        Arg::key("destination", 1),
        Arg::one_of("wherefrom", &[Arg::word("left", "LEFT"), Arg::word("right", "RIGHT")]),
        Arg::one_of("whereto", &[Arg::word("left", "LEFT"), Arg::word("right", "RIGHT")]),
        Arg::double("timeout"),
        HOW_MANY,
    ],
    recorded_forms: &[RecordedForm::REPLACED],
    run: blmovem,
    ..Command::DEFAULT
};
/// Handles BLMOVEM: replies with the moved elements in the order of the destination, or with null
/// after the timeout.
fn blmovem(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let ends = (end_named(args, 3)?, end_named(args, 4)?);
    let timeout_ms = timeout_seconds(args, 5)?;
    let request = MoveMany::parse(args, ends, 6)?;
    if !request.run(ctx, args)? {
        ctx.block_or_reply_empty(timeout_ms, EmptyReply::NullArray, || {
            vec![BlockingKey::new(args.key(1), Awaited::List)]
        });
    }
    Ok(())
}

/// A parsed request of LMOVEM or BLMOVEM.
struct MoveMany {
    from: ListEnd,
    to: ListEnd,
    /// The least number of elements to move; with fewer, nothing is moved.
    count_min: usize,
    /// The most elements that LMOVEM moves.
    count_max: usize,
    order: PushOrder,
}

impl MoveMany {
    /// Parses the number of elements and their order, which begin at argument `at`.
    fn parse(args: &Args<'_>, (from, to): (ListEnd, ListEnd), at: usize) -> Result<Self, CommandError> {
        let order = PushOrder::AsPopped;
        match args.len() - at {
            0 => return Ok(Self { from, to, count_min: 1, count_max: 1, order }),
            3 if args.is(at, "COUNT") || args.is(at, "EXACTLY") => {}
            _ => return Err(CommandError::Syntax),
        }
        let count_max = at_least_one(args, at + 1, "ERR count should be greater than 0")?;
        let count_min = if args.is(at, "EXACTLY") { count_max } else { 1 };
        let order = if args.is(at + 2, "OBO") {
            PushOrder::AsPopped
        } else if args.is(at + 2, "BULK") {
            // Between different ends, popping and pushing in the same order preserves it.
            if from == to { PushOrder::Reversed } else { PushOrder::AsPopped }
        } else {
            return Err(CommandError::Syntax);
        };
        Ok(Self { from, to, count_min, count_max, order })
    }

    /// Moves the elements that LMOVEM requests and replies with them. Returns false if the source
    /// has too few.
    fn run(&self, ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<bool, CommandError> {
        let (source, destination) = (args.key(1), args.key(2));
        let Some(list) = ctx.db.write::<List>(source)? else { return Ok(false) };
        let len = list.len();
        if len < self.count_min {
            return Ok(false);
        }
        if source.bytes == destination.bytes {
            self.run_within(ctx, source, len)?;
        } else {
            self.run_between(ctx, source, destination)?;
        }
        Ok(true)
    }

    /// Moves elements from one list to another, as LMOVEM requests.
    fn run_between(
        &self,
        ctx: &mut Ctx<'_>,
        source: Key<'_>,
        destination: Key<'_>,
    ) -> Result<(), CommandError> {
        let limits = limits(ctx);
        // The destination's type is checked before an element is removed.
        ctx.db.write::<List>(destination)?;
        let mut moved = ElementBatch::default();
        let list = ctx.db.write::<List>(source)?.expect("the caller looked for it");
        list.pop(self.from, self.count_max, limits, |element| moved.push(element));
        let list = ctx.db.write_or_insert::<List>(destination)?;
        match self.order {
            PushOrder::AsPopped => list.push(self.to, moved.iter(), limits),
            PushOrder::Reversed => list.push(self.to, moved.iter().rev(), limits),
        }
        self.reply(ctx, &moved);
        ctx.changed_by(0, EventClass::LIST, push_event(self.to), destination);
        note_pop(ctx, moved.len(), self.from, source);
        ctx.record(|record| {
            if moved.len() == 1 {
                self.record_lmove(record, source, destination);
                return;
            }
            record.command(pop_command(self.from)).word(source.bytes).integer(moved.len());
            record.command(push_command(self.to)).word(destination.bytes);
            match self.order {
                PushOrder::AsPopped => record.words(moved.iter()),
                PushOrder::Reversed => record.words(moved.iter().rev()),
            };
        });
        Ok(())
    }

    /// Moves elements within the list at `key`, which has `len` elements, from one end to an end.
    fn run_within(&self, ctx: &mut Ctx<'_>, key: Key<'_>, len: usize) -> Result<(), CommandError> {
        let limits = limits(ctx);
        let list = ctx.db.write::<List>(key)?.expect("the caller looked for it");
        let moved = list.rotate_many((self.from, self.to), self.count_max, self.order, limits);
        self.reply(ctx, &moved);
        // Redis raises these events in the reverse order of LMOVE's.
        ctx.changed_by(0, EventClass::LIST, pop_event(self.from), key);
        ctx.changed_by(moved.len() as u64, EventClass::LIST, push_event(self.to), key);
        ctx.record(|record| self.record_within(record, key, &moved, len));
        Ok(())
    }

    /// Records commands that move elements within a list. They never remove the list, because its
    /// expiry would be lost.
    fn record_within(&self, record: &mut RecordWriter<'_>, key: Key<'_>, moved: &ElementBatch, len: usize) {
        let is_reversing = self.from == self.to && self.order == PushOrder::AsPopped;
        if moved.len() == 1 {
            self.record_lmove(record, key, key);
        } else if is_reversing && moved.len() == len {
            let other = opposite(self.from);
            record.command(pop_command(self.from)).word(key.bytes).integer(len - 1);
            record.command(push_command(other)).word(key.bytes).words(moved.iter().rev().skip(1));
        } else if moved.len() < len && (is_reversing || self.from != self.to) {
            record.command(pop_command(self.from)).word(key.bytes).integer(moved.len());
            record.command(push_command(self.to)).word(key.bytes).words(moved.iter());
        }
    }

    /// Records LMOVE, which moves one element, in place of LMOVEM.
    fn record_lmove(&self, record: &mut RecordWriter<'_>, source: Key<'_>, destination: Key<'_>) {
        let lmove = record.command("LMOVE").word(source.bytes).word(destination.bytes);
        lmove.word(end_word(self.from)).word(end_word(self.to));
    }

    /// Replies with the moved elements in the order that they have in the destination.
    fn reply(&self, ctx: &mut Ctx<'_>, moved: &ElementBatch) {
        ctx.reply.array(moved.len());
        let is_pushed_last_first = self.order == PushOrder::Reversed;
        if is_pushed_last_first == (self.to == ListEnd::Front) {
            moved.iter().for_each(|element| ctx.reply.bulk(element));
        } else {
            moved.iter().rev().for_each(|element| ctx.reply.bulk(element));
        }
    }
}

/// Returns the end of a list that is opposite to `end`.
const fn opposite(end: ListEnd) -> ListEnd {
    match end {
        ListEnd::Front => ListEnd::Back,
        ListEnd::Back => ListEnd::Front,
    }
}

/// Returns the argument (LEFT or RIGHT) that names the end `end` of a list.
const fn end_word(end: ListEnd) -> &'static [u8] {
    match end {
        ListEnd::Front => b"LEFT",
        ListEnd::Back => b"RIGHT",
    }
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, check};

    const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value|";
    const COUNT: &str = "-ERR count should be greater than 0|";
    const SYNTAX: &str = "-ERR syntax error|";

    /// Runs LMOVEM on the lists `1 2 3 4 5` and `x y`, and checks the reply and both lists.
    fn check_move(line: &str, moved: &str, source: &str, destination: &str) {
        let mut db = Harness::new();
        let show = |words: &str| {
            let words: Vec<&str> = words.split(' ').filter(|word| !word.is_empty()).collect();
            let bulks: String = words.iter().map(|word| format!("${}|{word}|", word.len())).collect();
            format!("*{}|{bulks}", words.len())
        };
        db.line("RPUSH a 1 2 3 4 5");
        db.line("RPUSH b x y");
        assert_eq!(db.line(line), show(moved), "{line}");
        assert_eq!(db.line("LRANGE a 0 -1"), show(source), "{line}");
        assert_eq!(db.line("LRANGE b 0 -1"), show(destination), "{line}");
    }

    #[test]
    fn elements_move_in_both_orders_between_all_ends() {
        check_move("LMOVEM a b LEFT RIGHT", "1", "2 3 4 5", "x y 1");
        check_move("LMOVEM a b right left", "5", "1 2 3 4", "5 x y");
        check_move("LMOVEM a b LEFT LEFT COUNT 3 OBO", "3 2 1", "4 5", "3 2 1 x y");
        check_move("LMOVEM a b LEFT LEFT COUNT 3 BULK", "1 2 3", "4 5", "1 2 3 x y");
        check_move("LMOVEM a b LEFT RIGHT COUNT 3 OBO", "1 2 3", "4 5", "x y 1 2 3");
        check_move("LMOVEM a b LEFT RIGHT COUNT 3 BULK", "1 2 3", "4 5", "x y 1 2 3");
        check_move("LMOVEM a b RIGHT RIGHT COUNT 3 OBO", "5 4 3", "1 2", "x y 5 4 3");
        check_move("LMOVEM a b RIGHT RIGHT COUNT 3 BULK", "3 4 5", "1 2", "x y 3 4 5");
        check_move("LMOVEM a b RIGHT LEFT EXACTLY 3 OBO", "3 4 5", "1 2", "3 4 5 x y");
        check_move("LMOVEM a b RIGHT LEFT exactly 3 bulk", "3 4 5", "1 2", "3 4 5 x y");
        check_move("LMOVEM a b LEFT RIGHT COUNT 100 BULK", "1 2 3 4 5", "", "x y 1 2 3 4 5");
        check_move("LMOVEM a b LEFT LEFT EXACTLY 5 OBO", "5 4 3 2 1", "", "5 4 3 2 1 x y");
    }

    #[test]
    fn elements_move_within_a_list() {
        check_move("LMOVEM a a LEFT LEFT EXACTLY 2 OBO", "2 1", "2 1 3 4 5", "x y");
        check_move("LMOVEM a a LEFT LEFT EXACTLY 2 BULK", "1 2", "1 2 3 4 5", "x y");
        check_move("LMOVEM a a RIGHT RIGHT COUNT 9 OBO", "5 4 3 2 1", "5 4 3 2 1", "x y");
        check_move("LMOVEM a a LEFT RIGHT COUNT 2 BULK", "1 2", "3 4 5 1 2", "x y");
        check_move("LMOVEM a a RIGHT LEFT COUNT 2 OBO", "4 5", "4 5 1 2 3", "x y");
        check_move("LMOVEM a a LEFT RIGHT COUNT 5 OBO", "1 2 3 4 5", "1 2 3 4 5", "x y");
        check_move("LMOVEM a a LEFT RIGHT", "1", "2 3 4 5 1", "x y");
    }

    #[test]
    fn too_few_elements_are_null() {
        check(&[
            ("RPUSH a 1 2", ":2|"),
            ("LMOVEM a b LEFT RIGHT EXACTLY 3 BULK", "_|"),
            ("LMOVEM none b LEFT RIGHT", "_|"),
            ("LMOVEM none b LEFT RIGHT COUNT 3 OBO", "_|"),
            ("BLMOVEM a b LEFT RIGHT 0 EXACTLY 3 BULK", "_|"),
            ("EXISTS b", ":0|"),
            ("LLEN a", ":2|"),
            ("BLMOVEM a b LEFT RIGHT 0 EXACTLY 2 BULK", "*2|$1|1|$1|2|"),
            ("EXISTS a", ":0|"),
            ("BLMOVEM b a LEFT LEFT 0", "*1|$1|1|"),
        ]);
        let mut db = Harness::new();
        assert_eq!(db.run(&["LMOVEM", "none", "b", "LEFT", "LEFT"]), "*-1|");
    }

    #[test]
    fn arguments_and_types_are_checked() {
        check(&[
            ("RPUSH a 1 2", ":2|"),
            ("SET s v", "+OK|"),
            ("LMOVEM a b UP LEFT", SYNTAX),
            ("LMOVEM a b LEFT UP", SYNTAX),
            ("LMOVEM a b LEFT LEFT COUNT 2", SYNTAX),
            ("LMOVEM a b LEFT LEFT COUNT 2 OBO extra", SYNTAX),
            ("LMOVEM a b LEFT LEFT BAD 2 OBO", SYNTAX),
            ("LMOVEM a b LEFT LEFT COUNT 2 BAD", SYNTAX),
            ("LMOVEM a b LEFT LEFT COUNT 0 BAD", COUNT),
            ("LMOVEM a b LEFT LEFT EXACTLY 0 OBO", COUNT),
            ("LMOVEM a b LEFT LEFT COUNT -1 BULK", COUNT),
            ("LMOVEM a b LEFT LEFT COUNT x BULK", COUNT),
            ("LMOVEM s b LEFT LEFT", WRONG_TYPE),
            ("LMOVEM a s LEFT LEFT COUNT 2 OBO", WRONG_TYPE),
            ("LMOVEM a s LEFT LEFT EXACTLY 3 OBO", "_|"),
            ("LLEN a", ":2|"),
            ("BLMOVEM a b LEFT LEFT x", "-ERR timeout is not a float or out of range|"),
            ("BLMOVEM a b LEFT LEFT -1", "-ERR timeout is negative|"),
            ("BLMOVEM a b LEFT LEFT 0 COUNT 2", SYNTAX),
        ]);
    }

    #[test]
    fn events_are_raised_once_for_each_list() {
        let mut db = Harness::new();
        db.check_events(&[
            ("RPUSH a 1 2 3 4", ":4|", "rpush a@0"),
            ("LMOVEM a b LEFT RIGHT COUNT 2 OBO", "*2|$1|1|$1|2|", "rpush b@0,lpop a@0"),
            ("LMOVEM a b RIGHT LEFT COUNT 9 BULK", "*2|$1|3|$1|4|", "lpush b@0,rpop a@0,del a@0"),
            ("LMOVEM b b LEFT LEFT COUNT 2 OBO", "*2|$1|4|$1|3|", "lpop b@0,lpush b@0"),
            ("LMOVEM a b LEFT LEFT", "*-1|", ""),
        ]);
        assert_eq!(db.effects.changes, 4 + 2 + 2 + 2);
    }
}
