//! A test that a walk over the keyspace, which writes a snapshot, returns the keyspace in its state
//! at the start. Random changes of every kind are made between its steps; the result is compared
//! with a copy made at the start.

use std::collections::BTreeMap;

use fastrand::Rng;
use keyspace::compaction::{self, Moved, PageUse};
use keyspace::key::SHARD_COUNT;
use keyspace::parts::ValuePart;
use keyspace::snapshot::{BigValue, OnFlush, Part, Stepped, Work};
use keyspace::string::stored;
use keyspace::view::{AccessContext, AccessResults, ExpiredAccess};
use keyspace::{
    Access, Beside, Criteria, Evictor, Expiry, FieldWrite, Gate, Hash, Keep, Keyspace, List, ListEnd,
    ListLimits, Measure, Object, PackLimits, Policy, References, Set, SetLimits, Stream, StreamId,
    StreamLimits, SweepPoint, SweepResult, TrimEffort, View, Zset,
};
use structures::entry::View as EntryView;
use structures::listpack::element::{Element, IntText};
use structures::listpack::{Listpack, header, terminator};
use structures::quicklist::NodeView;
use structures::table::SweepBudget;

const DBS: usize = 4;
const NOW_MS: i64 = 1_000_000;
const PACK: PackLimits = PackLimits { entries_max: 16, value_len_bytes_max: 64 };
const SET: SetLimits = SetLimits { intset_entries_max: 16, pack: PACK };
const STREAM: StreamLimits = StreamLimits { node_bytes_max: 4096, node_entries_max: 100 };
const CONTEXT: AccessContext = AccessContext {
    now_ms: NOW_MS,
    touch: true,
    access: Access::Lru { clock_s: 7 },
    expired_access: ExpiredAccess::Remove,
};

fn list_limits() -> ListLimits {
    ListLimits::from_option(128)
}

/// A value as text, equal for equal values, with its key's expiry.
type Content = (String, Option<i64>);
/// All keys of all databases with their values, by database number and name.
type Contents = BTreeMap<(usize, Vec<u8>), Content>;

fn text(element: Element<'_>) -> String {
    String::from_utf8_lossy(element.text(&mut IntText::new())).into_owned()
}

/// A collector of the elements of one value, which was visited as a whole or in pieces.
#[derive(Default)]
struct Parts {
    ordered: Vec<String>,
    unordered: Vec<String>,
}

impl Parts {
    fn node(&mut self, node: NodeView<'_>) {
        match node {
            NodeView::Plain(bytes) => self.ordered.push(String::from_utf8_lossy(bytes).into_owned()),
            NodeView::Packed { run, count } => {
                let bytes = [&header(run.len(), count)[..], run, &terminator()].concat();
                let pack = Listpack::from_bytes(bytes.into()).expect("a node holds elements");
                pack.iter().for_each(|element| self.ordered.push(text(element)));
            }
        }
    }

    fn add(&mut self, piece: ValuePart<'_>) {
        match piece {
            ValuePart::Node(node) => self.node(node),
            ValuePart::Member(member) => self.unordered.push(text(member)),
            ValuePart::Field(field) => {
                self.unordered.push(format!(
                    "{}={}@{:?}",
                    text(field.name),
                    text(field.value),
                    field.deadline_ms
                ));
            }
            ValuePart::Scored(member, score) => {
                self.unordered.push(format!("{}={score}", String::from_utf8_lossy(member)));
            }
            ValuePart::Entries(entries) => {
                for entry in entries {
                    self.ordered.push(format!(
                        "{:?} {:?}",
                        entry.id,
                        entry.pairs.clone().collect::<Vec<_>>()
                    ));
                }
            }
            ValuePart::StreamEnd(end) => {
                self.ordered.push(format!(
                    "{} {:?} {:?}",
                    end.len,
                    end.first_entry_id,
                    stream_rest(&end.rest)
                ));
            }
        }
    }

    fn content(mut self) -> String {
        self.unordered.sort_unstable();
        format!("{:?} {:?}", self.ordered, self.unordered)
    }
}

fn stream_rest(stream: &Stream) -> String {
    let groups: Vec<String> = stream
        .groups()
        .map(|group| {
            let pending: Vec<String> = group
                .pending_from(StreamId::MIN)
                .map(|(id, pending)| format!("{id:?}{}", pending.deliveries))
                .collect();
            format!("{:?} {:?} {pending:?}", group.name(), group.last_delivered())
        })
        .collect();
    format!("{:?} {:?} {} {groups:?}", stream.last_id(), stream.max_deleted_id(), stream.entries_added())
}

fn content_of(view: &EntryView<'_, Object>) -> String {
    let mut parts = Parts::default();
    match view {
        EntryView::Int(number) => parts.ordered.push(number.to_string()),
        EntryView::Bytes(bytes) => parts.ordered.push(String::from_utf8_lossy(bytes).into_owned()),
        EntryView::Object(Object::Blob(blob)) => {
            parts.ordered.push(String::from_utf8_lossy(blob).into_owned())
        }
        EntryView::Object(Object::List(list)) => list.visit(|element| parts.ordered.push(text(element))),
        EntryView::Object(Object::Set(set)) => {
            set.iter().for_each(|member| parts.add(ValuePart::Member(member)))
        }
        EntryView::Object(Object::Hash(hash)) => {
            hash.fields().for_each(|field| parts.add(ValuePart::Field(field)))
        }
        EntryView::Object(Object::Zset(zset)) => {
            for (member, score) in zset.range(0..zset.len()) {
                parts.add(ValuePart::Scored(member.text(&mut IntText::new()), score));
            }
        }
        EntryView::Object(Object::Stream(stream)) => {
            for entry in stream.range(StreamId::MIN, StreamId::MAX) {
                parts.add(ValuePart::Entries(&[entry]));
            }
            parts.ordered.push(format!(
                "{} {:?} {:?}",
                stream.len(),
                stream.first_entry_id(),
                stream_rest(stream)
            ));
        }
        EntryView::Object(Object::Array(array)) => {
            let element = |(index, element)| format!("{index} {}", text(element));
            parts.ordered.extend(array.elements().scan(0, u64::MAX).map(element));
            parts.ordered.push(format!("{:?}", array.last_insert()));
        }
        EntryView::Object(Object::Vector(set)) => {
            let index = set.index();
            let element =
                |slot| format!("{:?} {:?} {:?}", index.name(slot), index.raw(slot), index.attributes(slot));
            parts.ordered.extend(index.slots().map(element));
        }
    }
    parts.content()
}

/// A keyspace whose content a snapshot's walk visits, and the keys that the walk has visited.
struct Walked {
    keyspace: Keyspace,
    gate: Gate,
    rng: Rng,
    results: AccessResults,
    part: Option<Part>,
    big: Option<(BigValue, Parts)>,
    shown: Vec<((usize, Vec<u8>), Content)>,
}

impl Walked {
    fn new(seed: u64) -> Self {
        let keyspace = Keyspace::new(DBS, [seed, 2, 3, 4]);
        let results = AccessResults::of_thread(&keyspace, seed);
        let (part, big, shown) = (None, None, Vec::new());
        Self { keyspace, gate: Gate::new(1), rng: Rng::with_seed(seed), results, part, big, shown }
    }

    /// Returns all keys of the keyspace with their values and expiries in their present state.
    fn contents(&self) -> Contents {
        let mut contents = Contents::new();
        for shard in 0..SHARD_COUNT {
            let guard = self.keyspace.lock(shard);
            for (db, keys) in guard.dbs().enumerate() {
                for entry in keys.table().iter() {
                    contents
                        .insert((db, entry.key().to_vec()), (content_of(&entry.view()), entry.expiry_ms()));
                }
            }
        }
        contents
    }

    fn fix(&mut self, on_flush: OnFlush) {
        self.shown.clear();
        let fix = || self.gate.exclusive(|alone| self.keyspace.fix_snapshot(alone, on_flush));
        assert!(fix());
        assert!(!fix(), "one at a time");
    }

    /// Takes one step of the snapshot's walk, as a thread that writes a snapshot does. Returns true
    /// if the walk has ended.
    fn step(&mut self) -> bool {
        let (snapshot, keyspace, shown) = (self.keyspace.snapshot(), &self.keyspace, &mut self.shown);
        if let Some((big, parts)) = &mut self.big {
            let stepped = keyspace.walk_big(big, self.rng.usize(1..300), &mut |piece| parts.add(piece));
            if stepped == Stepped::Finished {
                let (big, parts) = self.big.take().expect("it is under way");
                shown.push(((snapshot.db_of_big(&big), big.key.to_vec()), (parts.content(), big.expiry_ms)));
                snapshot.finished();
            }
            return false;
        }
        if let Some(part) = self.part {
            let db = snapshot.db_of(part);
            let stepped = keyspace.walk_part(part, self.rng.usize(1..4), |entry| {
                shown.push(((db, entry.key().to_vec()), (content_of(&entry.view()), entry.expiry_ms())));
            });
            if stepped == Stepped::Finished {
                self.part = None;
            }
            return false;
        }
        let mut walk_next = |db: usize, entry: &keyspace::KeyEntry| {
            shown.push(((db, entry.key().to_vec()), (content_of(&entry.view()), entry.expiry_ms())));
        };
        match snapshot.next_work() {
            Work::HandedOver(all) => {
                all.into_iter()
                    .for_each(|handed_over| snapshot.show_handed_over(handed_over, &mut walk_next));
                snapshot.finished();
            }
            Work::Flushed(mut flushed) => {
                while snapshot.walk_flushed(&mut flushed, &mut walk_next) {}
                snapshot.finished();
            }
            Work::Big(big) => self.big = Some((big, Parts::default())),
            Work::Part(part) => self.part = Some(part),
            Work::Wait => {}
            Work::Done => return true,
        }
        false
    }

    fn key_name(&mut self) -> Vec<u8> {
        format!("key{}", self.rng.u32(0..400)).into_bytes()
    }

    /// Makes one random change of a random kind to the keyspace.
    fn change(&mut self) {
        let (db, kind) = (self.rng.usize(0..DBS - 1), self.rng.u32(0..100));
        match kind {
            0..=84 => self.change_key(db),
            85..=89 => self.evict(),
            90..=93 => self.sweep(),
            94..=97 => self.compact(),
            98 if self.rng.u32(0..20) == 0 => {
                let from = self.rng.usize(0..DBS);
                let to = self.rng.usize(from..DBS) + 1;
                self.keyspace.empty_dbs(from..to, drop);
            }
            _ => {
                let (a, b) = (self.rng.usize(0..DBS), self.rng.usize(0..DBS));
                if a != b {
                    self.keyspace.swap_dbs(a, b);
                }
            }
        }
    }

    /// Checks the size counts and the index of big keys against the sizes of all keys.
    fn check_sizes(&self, seed: u64) {
        for db in 0..DBS {
            let (counted, found) = (self.keyspace.sizes().counts(db), self.keyspace.sizes_recounted(db));
            assert_eq!(counted, found, "seed {seed}");
        }
        let all = usize::MAX;
        for measure in [Measure::Bytes, Measure::Elements] {
            let (known, found) = (
                self.keyspace.big_keys(measure, None, all, i64::MIN),
                self.keyspace.big_keys_recomputed(measure),
            );
            assert_eq!(
                (known.known, known.keys.len()),
                (found.len(), found.len()),
                "seed {seed}, {measure:?}"
            );
        }
    }

    fn evict(&mut self) {
        let name = if self.rng.bool() { "allkeys-lru" } else { "allkeys-random" };
        let policy = Policy::named(name).expect("a policy");
        let criteria = Criteria { policy, access: Access::Lru { clock_s: 9 }, samples: 5 };
        let rng = &mut self.rng;
        Evictor::default().evict(&self.keyspace, &criteria, || rng.u64(..), |_, _| {});
    }

    fn sweep(&mut self) {
        let shard = self.rng.usize(0..SHARD_COUNT);
        let mut swept = SweepResult::up_to(NOW_MS);
        let mut next = Some(SweepPoint { shard, db: 0, cursor: 0 });
        while let Some(at) = next {
            let budget = SweepBudget { segments_max: 64, elements_max: 32 };
            next = self.keyspace.sweep_due(&mut self.keyspace.lock(shard), at, budget, &mut swept);
        }
    }

    /// Compacts the memory of a shard: moves its blocks out of sparse pages. All pages seem sparse
    /// here, because blocks of other shards in the same page are not counted.
    fn compact(&mut self) {
        let shard = self.rng.usize(0..SHARD_COUNT);
        let mut locked = self.keyspace.lock(shard);
        let (mut pages, mut moved) = (PageUse::default(), Moved::default());
        let (mut counted, mut visited) = (Some(SweepPoint { shard, db: 0, cursor: 0 }), None);
        while let Some(at) = counted {
            visited = Some(SweepPoint { shard, db: 0, cursor: 0 });
            counted = compaction::count_pages(&mut locked, at, &mut pages);
        }
        while let Some(at) = visited {
            visited = compaction::move_sparse(&mut locked, at, &mut pages, &mut moved);
        }
        let keys: usize = locked.dbs().map(|db| db.table().len()).sum();
        assert_eq!((moved.entries + moved.kept) as usize, keys);
        assert!(keys == 0 || moved.entries > 0, "{moved:?}");
    }

    fn change_key(&mut self, db: usize) {
        let (name, other) = (self.key_name(), self.key_name());
        let [key, other] = [&name, &other].map(|name| self.keyspace.hasher().key(name));
        let hasher = self.keyspace.hasher();
        let mut locked = self.keyspace.lock_all_of([key.hash, other.hash].into_iter());
        let mut view = View::new(&self.keyspace, &mut locked, db, CONTEXT, &mut self.results);
        let rng = &mut self.rng;
        let expiry = match rng.u32(0..6) {
            0 => Expiry::At(NOW_MS + rng.i64(1..1000)),
            1 => Expiry::Keep,
            _ => Expiry::Clear,
        };
        let word = |rng: &mut Rng| format!("word-{}-{}", rng.u32(0..3000), "x".repeat(rng.usize(0..40)));
        let many = if rng.u32(0..12) == 0 { rng.usize(0..2500) } else { rng.usize(1..6) };
        match rng.u32(0..22) {
            0 | 1 => {
                let len = if rng.u32(0..8) == 0 { rng.usize(4000..9000) } else { rng.usize(0..100) };
                view.set_value(key, stored(word(rng).repeat(1 + len / 20).as_bytes()), expiry);
            }
            2 => {
                let number = rng.i64(0..1000);
                let _ = view.renumber(key, |entry| match entry.view() {
                    EntryView::Object(_) => Err(()),
                    EntryView::Bytes(_) | EntryView::Int(_) => Ok(number),
                });
            }
            3 => drop(view.remove(key)),
            4 => drop(view.remove_even_expired(key)),
            5 => {
                let at_ms = rng.bool().then(|| NOW_MS + rng.i64(-5..1000));
                view.set_expiry_ms(key, at_ms);
            }
            6 => {
                if key.bytes != other.bytes
                    && let Some(entry) = view.take(key)
                {
                    view.replace(other, entry.renamed(other.bytes));
                }
            }
            7 => {
                let to = (db + 1) % DBS;
                view.select(to);
                let free = !view.contains(key);
                view.select(db);
                if free && let Some(entry) = view.take(key) {
                    view.select(to);
                    view.insert_new(key, entry);
                }
            }
            8 => {
                let copy = view.peek(key).map(|entry| entry.duplicate(other.bytes, 1));
                if let Some(copy) = copy.filter(|_| key.bytes != other.bytes) {
                    view.replace(other, copy);
                }
            }
            9 => {
                if let Some(blob) = view.blob_mut(key) {
                    std::sync::Arc::make_mut(blob).push(b'!');
                }
            }
            10..=12 => {
                if let Ok(list) = view.write_or_insert::<List>(key) {
                    for _ in 0..many {
                        let end = if rng.bool() { ListEnd::Front } else { ListEnd::Back };
                        list.push(end, std::iter::once(word(rng).as_bytes()), list_limits());
                    }
                    for _ in 0..rng.usize(0..8) {
                        let at = rng.usize(0..list.len().max(1)) as i64;
                        list.set(at, word(rng).as_bytes(), list_limits());
                    }
                    change_list(list, rng);
                }
                view.remove_if_empty::<List>(key);
            }
            13..=15 => {
                if let Ok(set) = view.write_or_insert::<Set>(key) {
                    for _ in 0..many {
                        set.add(word(rng).as_bytes(), &SET, hasher);
                    }
                    for _ in 0..rng.usize(0..20) {
                        set.remove(word(rng).as_bytes(), hasher);
                    }
                }
                view.remove_if_empty::<Set>(key);
            }
            16..=18 => {
                if let Ok(hash) = view.write_or_insert::<Hash>(key) {
                    for _ in 0..many {
                        let expiry = if rng.u32(0..4) == 0 {
                            Expiry::At(NOW_MS + rng.i64(-5..50))
                        } else {
                            Expiry::Clear
                        };
                        let (name, value) = (word(rng), word(rng));
                        let write = FieldWrite { name: name.as_bytes(), value: value.as_bytes(), expiry };
                        hash.set_with_expiry(write, &PACK, hasher);
                    }
                    for _ in 0..rng.usize(0..20) {
                        hash.remove(word(rng).as_bytes(), hasher);
                    }
                }
                view.note_field_deadlines(key);
                view.remove_if_empty::<Hash>(key);
            }
            19 | 20 => {
                if let Ok(zset) = view.write_or_insert::<Zset>(key) {
                    for _ in 0..many {
                        let score = f64::from(rng.i32(-50..50));
                        zset.set(word(rng).as_bytes(), score, &PACK, hasher);
                    }
                    for _ in 0..rng.usize(0..20) {
                        zset.remove(word(rng).as_bytes(), hasher);
                    }
                }
                view.remove_if_empty::<Zset>(key);
            }
            _ => {
                if let Ok(stream) = view.write_or_insert::<Stream>(key) {
                    for _ in 0..many {
                        let id = StreamId { ms: stream.last_id().ms + 1, seq: 0 };
                        let (field, value) = (word(rng), word(rng));
                        let words = [field.as_bytes(), value.as_bytes()];
                        stream.append(id, words.iter().copied(), STREAM).expect("above the last");
                    }
                    change_stream(stream, rng);
                }
            }
        }
        drop(view);
        drop(self.results.take());
    }

    /// Checks that the snapshot's walk has visited exactly the keys of `at_point`, the contents at
    /// its start, each once and with the same value.
    fn check(&mut self, at_point: &Contents, seed: u64) {
        assert_eq!(self.shown.len(), at_point.len(), "seed {seed}: each key once");
        let names: std::collections::BTreeSet<_> = self.shown.iter().map(|(key, _)| key).collect();
        assert_eq!(names.len(), self.shown.len(), "seed {seed}: no key twice");
        for (key, content) in self.shown.drain(..) {
            let expected = &at_point[&key];
            assert!(*expected == content, "seed {seed}: {key:?} is {content:?}, not {expected:?}");
        }
    }
}

/// Makes one change in the middle of a list, or removes much of it.
fn change_list(list: &mut List, rng: &mut Rng) {
    let len = list.len() as i64;
    let at = rng.i64(0..len.max(1));
    let mut there = Vec::new();
    list.with(at, |element| element.append_to(&mut there));
    match rng.u32(0..12) {
        0 => drop(list.trim(at / 2, at.max(len - 40), list_limits())),
        1 => drop(list.trim(0, at, list_limits())),
        2 | 3 => drop(list.remove(rng.i64(-3..3), &there, list_limits())),
        4 | 5 => drop(list.insert_beside(Beside::After, &there, b"inserted", list_limits())),
        6 => drop(list.insert_beside(Beside::Before, &there, &b"long".repeat(3000), list_limits())),
        7 | 8 => drop(list.pop(ListEnd::Back, rng.usize(0..300), list_limits(), |_| {})),
        9 => drop(list.pop(ListEnd::Front, at as usize, list_limits(), |_| {})),
        _ => {}
    }
}

/// Makes one change that removes entries of a stream, or changes its groups.
fn change_stream(stream: &mut Stream, rng: &mut Rng) {
    let (len, id) = (stream.len() as u64, StreamId { ms: rng.u64(0..=stream.last_id().ms), seq: 0 });
    let references = if rng.bool() { References::Keep } else { References::Delete };
    match rng.u32(0..8) {
        0 => drop(stream.trim(Keep::Last(rng.u64(0..=len)), TrimEffort::Exact, references)),
        1 => drop(stream.trim(Keep::From(id), TrimEffort::Exact, references)),
        2 => drop(stream.trim(
            Keep::Last(len / 2),
            TrimEffort::WholeNodes { entries_max: 400 },
            References::Keep,
        )),
        3 => drop(stream.create_group(b"group", id, Some(0))),
        _ => drop(stream.remove(id)),
    }
}

#[test]
fn a_walk_shows_the_keyspace_of_its_point_whatever_happens_meanwhile() {
    let seeds = std::env::var("SNAPSHOT_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(60);
    let first = std::env::var("SNAPSHOT_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    let (mut flushes, mut flushes_in_big) = (0, 0);
    for seed in first..first + seeds {
        let mut walked = Walked::new(seed);
        for _ in 0..3 {
            (0..walked.rng.usize(0..1500)).for_each(|_| walked.change());
            let at_point = walked.contents();
            let on_flush = if walked.rng.bool() { OnFlush::Continue } else { OnFlush::Abandon };
            walked.fix(on_flush);
            let pace = [0, 1, 3][walked.rng.usize(0..3)];
            let abandoned = walked.rng.u32(0..4) == 0;
            let mut flush_due = walked.rng.u32(0..4) == 0;
            let mut steps = 0;
            while !walked.step() {
                (0..pace).filter(|_| steps % 3 == 0).for_each(|_| walked.change());
                steps += 1;
                if abandoned && steps == 700 {
                    walked.keyspace.snapshot().abandon();
                }
                // Flushes while a big value is being read in pieces, if one is read soon.
                if flush_due && (steps == 600 || steps >= 500 && walked.big.is_some()) {
                    flush_due = false;
                    let was_whole = walked.keyspace.snapshot().is_preserved_for();
                    walked.keyspace.empty_dbs(0..DBS, drop);
                    let is_whole = walked.keyspace.snapshot().is_preserved_for();
                    assert_eq!(is_whole, was_whole && on_flush == OnFlush::Continue, "seed {seed}");
                    flushes += usize::from(is_whole);
                    flushes_in_big += usize::from(is_whole && walked.big.is_some());
                }
            }
            let is_whole = walked.keyspace.snapshot().is_preserved_for();
            assert!(is_whole || abandoned || on_flush == OnFlush::Abandon, "seed {seed}");
            assert_eq!(walked.keyspace.snapshot().held_len_bytes(), 0);
            walked.keyspace.snapshot().end();
            walked.check_sizes(seed);
            if is_whole {
                walked.check(&at_point, seed);
            }
        }
    }
    assert!(flushes >= seeds as usize / 8, "{flushes} walks continued after a flush");
    assert!(seeds < 60 || flushes_in_big > 0, "a flush came in the middle of a big value");
}

/// Fills database 0 with small keys, and with sets that a snapshot visits in pieces.
fn fill(walked: &mut Walked) {
    let keyspace = &walked.keyspace;
    for number in 0..20_000 {
        let name = format!("key{number}");
        let key = keyspace.hasher().key(name.as_bytes());
        let mut locked = keyspace.lock_one(key.hash);
        let mut view = View::new(keyspace, &mut locked, 0, CONTEXT, &mut walked.results);
        view.set_value(key, stored(&[b'x'; 100]), Expiry::Clear);
    }
    for number in 0..4 {
        let name = format!("set{number}");
        let key = keyspace.hasher().key(name.as_bytes());
        let mut locked = keyspace.lock_one(key.hash);
        let mut view = View::new(keyspace, &mut locked, 0, CONTEXT, &mut walked.results);
        let set = view.write_or_insert::<Set>(key).expect("a set");
        for member in 0..3000 {
            set.add(format!("member{member}").as_bytes(), &SET, keyspace.hasher());
        }
    }
}

/// Checks that a snapshot's walk over the keyspace frees each flushed table as soon as it has
/// visited the table's keys.
#[test]
fn flushed_keys_are_freed_behind_the_walk() {
    let mut walked = Walked::new(1);
    fill(&mut walked);
    let at_point = walked.contents();
    walked.fix(OnFlush::Continue);
    let mut left = 0;
    walked.keyspace.empty_dbs(0..DBS, |keys| left += keys.len());
    assert_eq!(left, 0, "the walk owns all keys");
    let mut held = walked.keyspace.snapshot().held_len_bytes();
    let (at_flush, mut steps_down) = (held, 0);
    assert!(at_flush > 20_000 * 100, "{at_flush} bytes");
    while !walked.step() {
        let now = walked.keyspace.snapshot().held_len_bytes();
        // The elements that move from a flushed table to the walk are counted with the table.
        assert!(now <= held, "{now} bytes after {held}");
        steps_down += usize::from(now < held);
        held = now;
    }
    assert!(steps_down >= 1000, "freed in {steps_down} steps");
    assert_eq!(held, 0);
    assert!(walked.keyspace.snapshot().is_preserved_for());
    walked.keyspace.snapshot().end();
    walked.check(&at_point, 1);
    assert!(walked.contents().is_empty());
}

/// Checks that keys that are written after a flush are neither visited nor marked by the snapshot's
/// walk, and that a second flush finds them in the keyspace.
#[test]
fn keys_written_after_a_flush_do_not_belong_to_the_walk() {
    let mut walked = Walked::new(2);
    fill(&mut walked);
    let at_point = walked.contents();
    walked.fix(OnFlush::Continue);
    (0..300).for_each(|_| assert!(!walked.step()));
    walked.keyspace.empty_dbs(0..DBS, drop);
    fill(&mut walked);
    (0..300).for_each(|_| assert!(!walked.step()));
    let mut second = 0;
    walked.keyspace.empty_dbs(0..DBS, |keys| second += keys.len());
    assert_eq!(second, 20_004);
    fill(&mut walked);
    while !walked.step() {}
    walked.keyspace.snapshot().end();
    walked.check(&at_point, 2);
    assert_eq!(walked.contents(), at_point);
    walked.check_sizes(2);
}

/// Checks that flushed keys do not become the property of a snapshot's walk that was abandoned: the
/// flush frees them.
#[test]
fn an_abandoned_walk_takes_over_no_keys() {
    for (abandon_first, on_flush) in [(true, OnFlush::Continue), (false, OnFlush::Abandon)] {
        let mut walked = Walked::new(3);
        fill(&mut walked);
        walked.fix(on_flush);
        (0..300).for_each(|_| assert!(!walked.step()));
        if abandon_first {
            walked.keyspace.snapshot().abandon();
        }
        let mut left = 0;
        walked.keyspace.empty_dbs(0..DBS, |keys| left += keys.len());
        assert!(left > 19_000, "{left} keys are freed by the flush");
        while !walked.step() {}
        assert!(!walked.keyspace.snapshot().is_preserved_for());
        assert_eq!(walked.keyspace.snapshot().held_len_bytes(), 0);
        walked.keyspace.snapshot().end();
    }
}

#[test]
fn a_list_that_shrinks_at_the_end_of_a_walk_is_as_big_as_it_is_known_to_be() {
    let mut walked = Walked::new(1);
    let limits = ListLimits::from_option(-5);
    let change = |walked: &mut Walked, number: i64, change: &mut dyn FnMut(&mut List)| {
        let name = format!("list{number}");
        let key = walked.keyspace.hasher().key(name.as_bytes());
        let mut locked = walked.keyspace.lock_one(key.hash);
        let mut view = View::new(&walked.keyspace, &mut locked, 0, CONTEXT, &mut walked.results);
        change(view.write_or_insert::<List>(key).expect("a list"));
    };
    let element = [b'x'; 100];
    for number in 0..100 {
        change(&mut walked, number, &mut |list| {
            list.push(ListEnd::Back, std::iter::repeat_n(&element[..], 1000), limits)
        });
    }
    walked.fix(OnFlush::Abandon);
    for number in 0..100 {
        change(&mut walked, number, &mut |list| drop(list.trim(0, 150 + number, limits)));
    }
    while !walked.step() {}
    walked.keyspace.snapshot().end();
    walked.check_sizes(1);
}
