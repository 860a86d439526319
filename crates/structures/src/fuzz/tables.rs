//! Checks of entries, tables and ranked members against naive twins: a plain struct and tree maps.
//! They test the unsafe modules through their safe interfaces under AddressSanitizer.

use std::collections::{BTreeMap, BTreeSet};

use super::Script;
use crate::entry::{Entry, INLINE_BYTES_MAX, NewValue, View};
use crate::pair::Pair;
use crate::ranked_members::{RankedMembers, order};
use crate::table::{Relocate, SweepBudget, Table, TableBlock};

/// Computes a hash of `key` whose bits are well mixed, as tables require.
pub(super) fn mixed(key: &[u8]) -> u64 {
    let mut hash = key.iter().fold(key.len() as u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(31)
    });
    hash = (hash ^ hash >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    hash ^ hash >> 31
}

/// Computes hashes that share their leading nine bits, which makes a table's directories deep.
pub(super) fn crowded(key: &[u8]) -> u64 {
    mixed(key) >> 9
}

/// The value and the deadline (in milliseconds) of a hash's field in a fuzz test.
type Value = (Vec<u8>, Option<i64>);

fn check_table(table: &Table<Pair>, twin: &BTreeMap<Vec<u8>, Value>, hash: fn(&[u8]) -> u64) {
    assert_eq!(table.len(), twin.len());
    assert_eq!(
        table.deadline_count(),
        twin.values().filter(|(_, deadline_ms)| deadline_ms.is_some()).count()
    );
    for (field, (value, deadline_ms)) in twin {
        let pair = table.get(hash(field), field).expect("the twin has it");
        assert_eq!((pair.value(), pair.deadline_ms()), (&value[..], *deadline_ms));
    }
    let (mut seen, mut cursor) = (BTreeSet::new(), 0);
    loop {
        cursor = table.scan(cursor, |pair| {
            seen.insert(pair.field().to_vec());
        });
        if cursor == 0 {
            break;
        }
    }
    assert!(seen.iter().eq(twin.keys()));
}

/// A visitor of a table's memory blocks that moves those whose address, divided by 16, shares a bit
/// with this mask.
struct MoveSome(u8);

impl MoveSome {
    fn wants(&self, address: usize) -> bool {
        (address >> 4) as u8 & self.0 != 0
    }
}

impl Relocate<Pair> for MoveSome {
    fn element(&mut self, pair: &mut Pair) {
        if self.wants(pair.field().as_ptr().addr()) {
            *pair = pair.clone();
        }
    }
    fn moves(&mut self, block: TableBlock) -> bool {
        self.wants(block.address >> 3)
    }
    fn moved(&mut self, block: TableBlock) {
        assert!(block.len_bytes > 0);
    }
    fn is_spent(&self) -> bool {
        self.0 > 127
    }
}

/// Changes a table of fields with values and deadlines by the script `data` and compares it with
/// its twin, a tree map.
pub fn fuzz_table(data: &[u8]) {
    let (mut script, mut done) = (Script(data), 0);
    let hash = if script.byte() < 128 { mixed } else { crowded };
    let mut table: Table<Pair> = Table::staggered(script.byte().into());
    let mut twin: BTreeMap<Vec<u8>, Value> = BTreeMap::new();
    while let Some(op) = script.next_op(&mut done) {
        match op % 9 {
            0 | 1 => {
                let deadline_ms = (op > 127).then(|| i64::from(script.byte()) * 100);
                put(&mut table, &mut twin, hash, script.text(), (script.text(), deadline_ms));
            }
            2 => {
                let start = usize::from(script.byte()) * 100;
                for number in start..start + usize::from(script.byte()) * 4 {
                    let deadline_ms = (number % 3 == 0).then_some(number as i64);
                    put(&mut table, &mut twin, hash, number.to_string().into_bytes(), (vec![], deadline_ms));
                }
            }
            3 => {
                let start = script.text();
                let gone: Vec<Vec<u8>> =
                    twin.range(start..).take(script.byte().into()).map(|(field, _)| field.clone()).collect();
                for field in gone {
                    let place = table.find(hash(&field), &field).expect("the twin has it");
                    assert_eq!(table.remove(place).field(), field);
                    twin.remove(&field);
                }
            }
            4 => {
                let now_ms = script.below(30_000) as i64;
                let budget = SweepBudget { segments_max: usize::MAX, elements_max: usize::MAX };
                let due = |(_, deadline_ms): &Value| deadline_ms.is_some_and(|at_ms| at_ms <= now_ms);
                table.sweep_due(0, now_ms, budget, &mut |pair: Pair| {
                    assert!(twin.remove(pair.field()).is_some_and(|value| due(&value)));
                });
                assert!(!twin.values().any(due));
            }
            5 => table = table.clone(),
            6 => {
                let mut draw = || mixed(&script.bytes(2));
                let place = table.random(&mut draw);
                assert_eq!(place.is_none(), twin.is_empty());
                let with_deadline = table.random_with_deadline(&mut draw);
                assert!(with_deadline.is_none_or(|place| table.at(place).deadline_ms().is_some()));
            }
            7 => {
                let (mut moving, mut cursor) = (MoveSome(script.byte()), Some(0));
                while let Some(at) = cursor {
                    cursor = table.relocate_segment(at, &mut moving);
                }
            }
            _ => {
                let field = script.text();
                assert_eq!(table.find(hash(&field), &field).is_some(), twin.contains_key(&field));
            }
        }
    }
    check_table(&table, &twin, hash);
}

fn put(
    table: &mut Table<Pair>,
    twin: &mut BTreeMap<Vec<u8>, Value>,
    hash: fn(&[u8]) -> u64,
    field: Vec<u8>,
    (value, deadline_ms): Value,
) {
    match table.find(hash(&field), &field) {
        Some(place) => {
            let mut pair = table.at_mut(place);
            pair.set_value(&value);
            pair.set_deadline_ms(deadline_ms);
        }
        None => {
            table.insert(hash(&field), Pair::new(&field, &value, deadline_ms), &hash);
        }
    }
    twin.insert(field, (value, deadline_ms));
}

/// Changes members with scores (a sorted set) by the script `data` and compares them with their
/// twin, a tree map.
pub fn fuzz_ranked_members(data: &[u8]) {
    let (mut script, mut done) = (Script(data), 0);
    let mut members = RankedMembers::new();
    let mut twin: BTreeMap<Vec<u8>, f64> = BTreeMap::new();
    while let Some(op) = script.next_op(&mut done) {
        let score = match op / 8 % 4 {
            0..3 => f64::from(script.byte() % 8),
            _ => {
                Some(f64::from_bits(script.int() as u64)).filter(|score| !score.is_nan()).unwrap_or_default()
            }
        };
        match op % 8 {
            0..3 => set(&mut members, &mut twin, script.text(), score),
            3 => {
                let start = usize::from(script.byte());
                for number in start..start + usize::from(script.byte()) {
                    set(&mut members, &mut twin, number.to_string().into_bytes(), score);
                }
            }
            4 | 5 => {
                let start = script.text();
                let gone: Vec<Vec<u8>> = twin
                    .range(start..)
                    .take(script.byte().into())
                    .map(|(member, _)| member.clone())
                    .collect();
                for member in gone {
                    let place = members.find(mixed(&member), &member).expect("the twin has it");
                    assert_eq!(Some(members.remove(place).payload()), twin.remove(&member));
                }
            }
            6 => {
                let rank = script.below(twin.len() + 1);
                let removed = members.remove_at(rank, &mixed);
                assert_eq!(removed.is_none(), rank == twin.len());
                removed.inspect(|member| assert_eq!(twin.remove(member.bytes()), Some(member.payload())));
            }
            _ => members = members.clone(),
        }
    }
    let mut sorted: Vec<(&[u8], f64)> = twin.iter().map(|(member, &score)| (&member[..], score)).collect();
    sorted.sort_by(|a, b| order((a.1, a.0), (b.1, b.0)));
    assert!(members.range(0..usize::MAX).eq(sorted.iter().copied()));
    assert!(members.range(0..usize::MAX).rev().eq(sorted.iter().rev().copied()));
    for (rank, &(member, score)) in sorted.iter().enumerate() {
        let place = members.find(mixed(member), member).expect("the twin has it");
        assert_eq!((members.rank(place), members.score_at(place)), (rank, score));
    }
}

fn set(members: &mut RankedMembers, twin: &mut BTreeMap<Vec<u8>, f64>, member: Vec<u8>, score: f64) {
    match members.find(mixed(&member), &member) {
        Some(place) => members.set_score_at(place, score),
        None => members.insert(mixed(&member), &member, score, &mixed),
    }
    twin.insert(member, score);
}

/// The value in the naive twin of an entry, with which a fuzz test compares the entry.
#[derive(Clone, PartialEq, Debug)]
enum Held {
    Bytes(Vec<u8>),
    Int(i64),
    Object(Vec<u8>),
}

impl Held {
    fn read(script: &mut Script<'_>) -> Self {
        match script.byte() % 4 {
            0 | 1 => {
                let mut bytes = script.text();
                bytes.truncate(INLINE_BYTES_MAX);
                Held::Bytes(bytes)
            }
            2 => Held::Int(script.int()),
            _ => Held::Object(script.text()),
        }
    }

    fn value(&self) -> NewValue<'_, Vec<u8>> {
        match self {
            Held::Bytes(bytes) => NewValue::Bytes(bytes),
            Held::Int(value) => NewValue::Int(*value),
            Held::Object(object) => NewValue::Object(object.clone()),
        }
    }
}

/// Makes the string or object of the entry and of its twin `held` longer. Does nothing if the value
/// is an integer.
fn grow(entry: &mut Entry<Vec<u8>>, held: &mut Held, script: &mut Script<'_>) {
    match held {
        Held::Bytes(bytes) => {
            let len_bytes = script.below(INLINE_BYTES_MAX + 1);
            entry.grow_bytes(len_bytes);
            bytes.resize(len_bytes.max(bytes.len()), 0);
        }
        Held::Object(object) => {
            let more = script.text();
            object.extend_from_slice(&more);
            entry.object_mut().expect("it holds one").extend_from_slice(&more);
        }
        Held::Int(_) => {}
    }
}

/// Changes an entry, whose objects own memory, by the script `data` and compares it with its twin,
/// a plain struct.
pub fn fuzz_entry(data: &[u8]) {
    let (mut script, mut done) = (Script(data), 0);
    let (mut key, mut held, mut expiry_ms) = (script.text(), Held::read(&mut script), None);
    let (mut access, mut marked) = (7, false);
    let mut entry: Entry<Vec<u8>> = Entry::new(&key, held.value(), expiry_ms, access);
    loop {
        assert_eq!(entry.key(), key);
        match (entry.view(), &held) {
            (View::Bytes(is), Held::Bytes(expected)) => assert_eq!(is, expected),
            (View::Int(is), Held::Int(expected)) => assert_eq!(is, *expected),
            (View::Object(is), Held::Object(expected)) => assert_eq!(is, expected),
            (is, expected) => panic!("the entry has {is:?}, not {expected:?}"),
        }
        assert_eq!((entry.expiry_ms(), entry.access(), entry.is_marked()), (expiry_ms, access, marked));
        let Some(op) = script.next_op(&mut done) else { break };
        match op % 9 {
            0 | 1 => {
                held = Held::read(&mut script);
                entry.set(held.value());
                marked = false;
            }
            2 => {
                expiry_ms = (op > 127).then(|| script.int());
                entry.set_expiry_ms(expiry_ms);
            }
            3 => {
                access = u32::from(script.byte()) << 16 | 3;
                entry.set_access(access);
                if op > 127 {
                    marked = true;
                    entry.mark();
                }
            }
            4 => {
                key = script.text();
                entry = entry.renamed(&key);
            }
            5 => {
                key = script.text();
                access = 9;
                entry = entry.duplicate(&key, access);
            }
            6 => grow(&mut entry, &mut held, &mut script),
            7 => {
                let before = entry.address();
                entry.relocate();
                assert_ne!(entry.address(), before);
            }
            _ => {
                if let (Some(is), Held::Bytes(expected)) = (entry.bytes_mut(), &mut held)
                    && let Some(last) = expected.last_mut()
                {
                    *last = op;
                    is[is.len() - 1] = op;
                }
            }
        }
    }
    let object = entry.into_object();
    assert_eq!(object.map(Held::Object), Some(held).filter(|held| matches!(held, Held::Object(_))));
}
