//! Each structure compared with its equivalent in the standard library or hashbrown.
//!
//! ```text
//! cargo bench -p structures                 all; `-- table` only names with "table"
//! ```
//! Members are `member:` and ten digits, 17 bytes. All benchmarks run on the server's own
//! allocator. A figure is the time of one batch of [`BATCH`] operations, or of one whole build if
//! the name says so. The throughput column is in operations a second. Baselines own their bytes,
//! like our structures.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};

use ahash::RandomState;
use divan::{Bencher, black_box, counter::ItemsCount};
use structures::alloc::CountingAllocator;
use structures::intset::Intset;
use structures::listpack::Listpack;
use structures::member::Member;
use structures::packed_set::PackedSet;
use structures::quicklist::{NodeLimit, Quicklist};
use structures::ranked_members::RankedMembers;
use structures::table::Table;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// The number of elements of a big collection: more than fit in the second-level cache.
const MANY: usize = 200_000;
/// The number of operations in one batch, whose time is one figure.
const BATCH: usize = 1000;

fn main() {
    divan::main();
}

fn name(number: usize) -> Vec<u8> {
    format!("member:{number:010}").into_bytes()
}

/// Returns names of members of a big collection in an order without a pattern.
fn scattered() -> Vec<Vec<u8>> {
    (0..BATCH).map(|i| name(i * 7919 * 31 % MANY)).collect()
}

fn hasher() -> RandomState {
    RandomState::with_seeds(1, 2, 3, 4)
}

/// Measures a batch: runs `operation` once for each of `inputs`, over and over.
fn each<T>(bencher: Bencher<'_, '_>, inputs: &[T], mut operation: impl FnMut(&T)) {
    bencher
        .counter(ItemsCount::new(inputs.len()))
        .bench_local(|| inputs.iter().for_each(|input| operation(black_box(input))));
}

/// Measures `build`, which makes a collection of `len` elements: runs it over and over.
fn builds<T>(bencher: Bencher<'_, '_>, len: usize, build: impl FnMut() -> T) {
    bencher.counter(ItemsCount::new(len)).bench_local(build);
}

mod table {
    use super::*;

    fn ours(len: usize) -> Table<Member<()>> {
        let (state, mut table) = (hasher(), Table::new());
        for member in (0..len).map(name) {
            table.insert(state.hash_one(&member[..]), Member::new(&member, ()), &|key: &[u8]| {
                state.hash_one(key)
            });
        }
        table
    }

    fn boxed(len: usize) -> impl Iterator<Item = Box<[u8]>> {
        (0..len).map(|number| name(number).into_boxed_slice())
    }

    #[divan::bench]
    fn find_ours(bencher: Bencher<'_, '_>) {
        let (table, state) = (ours(MANY), hasher());
        each(bencher, &scattered(), |member| {
            black_box(table.find(state.hash_one(&member[..]), member));
        });
    }

    #[divan::bench]
    fn find_std(bencher: Bencher<'_, '_>) {
        let set: HashSet<Box<[u8]>> = boxed(MANY).collect();
        each(bencher, &scattered(), |member| {
            black_box(set.get(&member[..]));
        });
    }

    #[divan::bench]
    fn find_hashbrown(bencher: Bencher<'_, '_>) {
        let mut set = hashbrown::HashSet::with_hasher(hasher());
        set.extend(boxed(MANY));
        each(bencher, &scattered(), |member| {
            black_box(set.get(&member[..]));
        });
    }

    #[divan::bench(sample_count = 20)]
    fn build_ours(bencher: Bencher<'_, '_>) {
        builds(bencher, MANY, || ours(MANY));
    }

    #[divan::bench(sample_count = 20)]
    fn build_std(bencher: Bencher<'_, '_>) {
        builds(bencher, MANY, || boxed(MANY).collect::<HashSet<_>>());
    }

    #[divan::bench(sample_count = 20)]
    fn build_hashbrown(bencher: Bencher<'_, '_>) {
        builds(bencher, MANY, || {
            let mut set = hashbrown::HashSet::with_hasher(hasher());
            set.extend(boxed(MANY));
            set
        });
    }
}

mod packed_set {
    use super::*;

    fn ours(len: usize) -> PackedSet {
        let (state, mut set) = (hasher(), PackedSet::new());
        let position_of = |member: &[u8]| state.hash_one(member);
        for member in (0..len).map(name) {
            set.insert(position_of(&member), &member, &position_of);
        }
        set
    }

    #[divan::bench]
    fn find(bencher: Bencher<'_, '_>) {
        let (set, state) = (ours(MANY), hasher());
        each(bencher, &scattered(), |member| {
            black_box(set.find(state.hash_one(&member[..]), member));
        });
    }

    #[divan::bench(sample_count = 20)]
    fn build(bencher: Bencher<'_, '_>) {
        builds(bencher, MANY, || ours(MANY));
    }
}

mod sorted_set {
    use super::*;

    fn score(number: usize) -> f64 {
        (number * 7919 % 1_000_003) as f64
    }

    fn ours(len: usize) -> RankedMembers {
        let (state, mut members) = (hasher(), RankedMembers::new());
        let position_of = |key: &[u8]| state.hash_one(key);
        for number in 0..len {
            let member = name(number);
            members.insert(position_of(&member), &member, score(number), &position_of);
        }
        members
    }

    /// Builds a map ordered by the bits of scores. The scores are whole and positive, so their bits
    /// have the same order.
    fn std(len: usize) -> BTreeMap<(u64, Vec<u8>), ()> {
        let mut members = BTreeMap::new();
        members.extend((0..len).map(|number| ((score(number).to_bits(), name(number)), ())));
        members
    }

    #[divan::bench(sample_count = 10)]
    fn build_ours(bencher: Bencher<'_, '_>) {
        builds(bencher, MANY, || ours(MANY));
    }

    /// Builds only the ordered map; look-up by name would need a second map.
    #[divan::bench(sample_count = 10)]
    fn build_std(bencher: Bencher<'_, '_>) {
        builds(bencher, MANY, || std(MANY));
    }

    /// Measures finding ranks. The standard library has no counterpart: its maps would need O(n).
    #[divan::bench]
    fn rank_ours(bencher: Bencher<'_, '_>) {
        let (members, state) = (ours(MANY), hasher());
        each(bencher, &scattered(), |member| {
            let place = members.find(state.hash_one(&member[..]), member);
            black_box(place.map(|place| members.rank(place)));
        });
    }

    #[divan::bench]
    fn walk_ours(bencher: Bencher<'_, '_>) {
        let members = ours(MANY);
        builds(bencher, BATCH, || {
            members.range(MANY / 2..MANY / 2 + BATCH).map(|(name, _)| name.len()).sum::<usize>()
        });
    }

    #[divan::bench]
    fn walk_std(bencher: Bencher<'_, '_>) {
        let members = std(MANY);
        let middle = (500_000_f64.to_bits(), Vec::new());
        builds(bencher, BATCH, || {
            members.range(&middle..).take(BATCH).map(|((_, name), ())| name.len()).sum::<usize>()
        });
    }
}

mod listpack {
    use super::*;

    /// The most members of a packed collection.
    const FEW: usize = 128;

    fn ours() -> Listpack {
        let mut pack = Listpack::new();
        (0..FEW).for_each(|number| pack.push_back(&name(number)).expect("small"));
        pack
    }

    #[divan::bench]
    fn build_ours(bencher: Bencher<'_, '_>) {
        builds(bencher, FEW, ours);
    }

    #[divan::bench]
    fn build_std(bencher: Bencher<'_, '_>) {
        builds(bencher, FEW, || (0..FEW).map(name).collect::<Vec<_>>());
    }

    #[divan::bench]
    fn find_last_ours(bencher: Bencher<'_, '_>) {
        let pack = ours();
        let first = pack.first().expect("it is not empty");
        each(bencher, &[name(FEW - 1)], |member| {
            black_box(pack.find(first, member, 0));
        });
    }

    #[divan::bench]
    fn find_last_std(bencher: Bencher<'_, '_>) {
        let members: Vec<Vec<u8>> = (0..FEW).map(name).collect();
        each(bencher, &[name(FEW - 1)], |member| {
            black_box(members.iter().position(|other| other == member));
        });
    }
}

mod intset {
    use super::*;

    /// The most members of an intset.
    const FEW: i64 = 512;

    fn ours() -> Intset {
        let mut set = Intset::new();
        (0..FEW).for_each(|value| assert!(set.insert(value * 37 % 1009).is_ok()));
        set
    }

    fn values() -> Vec<i64> {
        (0..BATCH as i64).map(|i| i * 31 % 1009).collect()
    }

    #[divan::bench]
    fn build_ours(bencher: Bencher<'_, '_>) {
        builds(bencher, FEW as usize, ours);
    }

    #[divan::bench]
    fn build_std(bencher: Bencher<'_, '_>) {
        builds(bencher, FEW as usize, || ours().iter().collect::<BTreeSet<_>>());
    }

    #[divan::bench]
    fn contains_ours(bencher: Bencher<'_, '_>) {
        let set = ours();
        each(bencher, &values(), |&value| {
            black_box(set.contains(value));
        });
    }

    #[divan::bench]
    fn contains_std(bencher: Bencher<'_, '_>) {
        let set: BTreeSet<i64> = ours().iter().collect();
        each(bencher, &values(), |value| {
            black_box(set.contains(value));
        });
    }

    #[divan::bench]
    fn contains_hashbrown(bencher: Bencher<'_, '_>) {
        let mut set = hashbrown::HashSet::with_hasher(hasher());
        set.extend(ours().iter());
        each(bencher, &values(), |value| {
            black_box(set.contains(value));
        });
    }
}

mod quicklist {
    use super::*;

    const VALUE: &[u8] = b"fifteen bytes!!";

    fn ours(len: usize) -> Quicklist {
        let mut list = Quicklist::new(NodeLimit::default());
        (0..len).for_each(|_| list.push_back(VALUE));
        list
    }

    fn std(len: usize) -> VecDeque<Vec<u8>> {
        (0..len).map(|_| VALUE.to_vec()).collect()
    }

    #[divan::bench(sample_count = 20)]
    fn build_ours(bencher: Bencher<'_, '_>) {
        builds(bencher, MANY, || ours(MANY));
    }

    #[divan::bench(sample_count = 20)]
    fn build_std(bencher: Bencher<'_, '_>) {
        builds(bencher, MANY, || std(MANY));
    }

    #[divan::bench]
    fn queue_ours(bencher: Bencher<'_, '_>) {
        let mut list = ours(MANY);
        each(bencher, &[VALUE; BATCH], |value| {
            list.push_back(*value);
            list.pop_front_with(|element| black_box(element.text_len_bytes()));
        });
    }

    #[divan::bench]
    fn queue_std(bencher: Bencher<'_, '_>) {
        let mut list = std(MANY);
        each(bencher, &[VALUE; BATCH], |value| {
            list.push_back(value.to_vec());
            black_box(list.pop_front());
        });
    }

    /// Measures a queue whose elements are all in one nearly full node.
    #[divan::bench]
    fn queue_in_one_node_ours(bencher: Bencher<'_, '_>) {
        let mut list = ours(470);
        each(bencher, &[VALUE; BATCH], |value| {
            list.push_back(*value);
            list.pop_front_with(|element| black_box(element.text_len_bytes()));
        });
    }

    #[divan::bench]
    fn insert_in_the_middle_ours(bencher: Bencher<'_, '_>) {
        let mut list = ours(MANY);
        each(bencher, &[VALUE; BATCH], |value| list.insert(MANY / 2, *value));
    }
}

mod hyperloglog {
    use super::*;
    use structures::hll::{self, Hll, HllMut, Observation};

    fn ours(len: usize) -> Vec<u8> {
        let mut bytes = hll::empty();
        let mut hll = HllMut::of(&mut bytes).expect("it was made here");
        for element in (0..len).map(name) {
            hll.add(Observation::of(&element), 3000).expect("it is whole");
        }
        bytes
    }

    /// Adds elements to a dense HyperLogLog; few of its registers change.
    #[divan::bench]
    fn add_ours(bencher: Bencher<'_, '_>) {
        let mut bytes = ours(MANY);
        let mut hll = HllMut::of(&mut bytes).expect("it was made here");
        each(bencher, &scattered(), |element| {
            black_box(hll.add(Observation::of(element), 3000).is_ok());
        });
    }

    /// Counts exactly, at 17 bytes and a table entry for each element.
    #[divan::bench]
    fn add_std(bencher: Bencher<'_, '_>) {
        let mut set: HashSet<Vec<u8>> = (0..MANY).map(name).collect();
        each(bencher, &scattered(), |element| {
            black_box(set.insert(element.clone()));
        });
    }

    #[divan::bench]
    fn count_ours(bencher: Bencher<'_, '_>) {
        let bytes = ours(MANY);
        each(bencher, &[()], |()| {
            black_box(Hll::of(&bytes).expect("it was made here").count().is_ok());
        });
    }
}
