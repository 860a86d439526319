//! Hashes, sets and streams compared with equivalents in the standard library or hashbrown.
//!
//! ```text
//! cargo bench -p keyspace                   all; `-- hash` only names with "hash"
//! ```
//! Names are `member:` and ten digits. All benchmarks run on the server's own allocator. A figure
//! is the time of one batch of [`BATCH`] operations, or of one whole build. The throughput column
//! is in operations a second. Baselines own their bytes, like our structures.

use std::collections::{BTreeMap, HashMap, HashSet};

use divan::{Bencher, black_box, counter::ItemsCount};
use keyspace::stream::{Stream, StreamId, StreamLimits};
use keyspace::{Hash, Hasher, PackLimits, Set, SetLimits};
use structures::alloc::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// The number of elements of a big collection: more than fit in the second-level cache.
const MANY: usize = 200_000;
/// The number of operations in one batch, whose time is one figure.
const BATCH: usize = 1000;
const PACK: PackLimits = PackLimits { entries_max: 128, value_len_bytes_max: 64 };
const VALUE: &[u8] = b"fifteen bytes!!";

fn main() {
    divan::main();
}

fn name(number: usize) -> Vec<u8> {
    format!("member:{number:010}").into_bytes()
}

/// Returns names of a big collection's members in an order without a pattern.
fn scattered() -> Vec<Vec<u8>> {
    (0..BATCH).map(|i| name(i * 7919 * 31 % MANY)).collect()
}

fn hasher() -> Hasher {
    Hasher::with_seed([1, 2, 3, 4])
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

mod hash {
    use super::*;

    fn ours(len: usize) -> Hash {
        let (mut hash, hasher) = (Hash::new(), hasher());
        (0..len).for_each(|number| assert!(hash.set(&name(number), VALUE, &PACK, &hasher)));
        hash
    }

    fn pairs(len: usize) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
        (0..len).map(|number| (name(number), VALUE.to_vec()))
    }

    fn hashbrown(len: usize) -> hashbrown::HashMap<Vec<u8>, Vec<u8>> {
        pairs(len).collect()
    }

    #[divan::bench(sample_count = 20)]
    fn build_ours(bencher: Bencher<'_, '_>) {
        builds(bencher, MANY, || ours(MANY));
    }

    #[divan::bench(sample_count = 20)]
    fn build_std(bencher: Bencher<'_, '_>) {
        builds(bencher, MANY, || pairs(MANY).collect::<HashMap<_, _>>());
    }

    #[divan::bench(sample_count = 20)]
    fn build_hashbrown(bencher: Bencher<'_, '_>) {
        builds(bencher, MANY, || hashbrown(MANY));
    }

    #[divan::bench]
    fn get_ours(bencher: Bencher<'_, '_>) {
        let (hash, hasher) = (ours(MANY), hasher());
        each(bencher, &scattered(), |field| {
            black_box(hash.get(field, &hasher));
        });
    }

    #[divan::bench]
    fn get_hashbrown(bencher: Bencher<'_, '_>) {
        let map = hashbrown(MANY);
        each(bencher, &scattered(), |field| {
            black_box(map.get(field));
        });
    }

    #[divan::bench]
    fn overwrite_ours(bencher: Bencher<'_, '_>) {
        let (mut hash, hasher) = (ours(MANY), hasher());
        each(bencher, &scattered(), |field| {
            black_box(hash.set(field, VALUE, &PACK, &hasher));
        });
    }

    #[divan::bench]
    fn overwrite_hashbrown(bencher: Bencher<'_, '_>) {
        let mut map = hashbrown(MANY);
        each(bencher, &scattered(), |field| {
            black_box(map.insert(field.clone(), VALUE.to_vec()));
        });
    }

    /// Gets from a listpack of a hundred fields.
    #[divan::bench]
    fn get_packed_ours(bencher: Bencher<'_, '_>) {
        let (hash, hasher) = (ours(100), hasher());
        each(bencher, &[name(50)], |field| {
            black_box(hash.get(field, &hasher));
        });
    }
}

mod set {
    use super::*;

    const LIMITS: SetLimits = SetLimits { intset_entries_max: 512, pack: PACK };

    fn ours(len: usize) -> Set {
        let (mut set, hasher) = (Set::new(), hasher());
        (0..len).for_each(|number| assert!(set.add(&name(number), &LIMITS, &hasher)));
        set
    }

    fn hashbrown(len: usize) -> hashbrown::HashSet<Vec<u8>> {
        (0..len).map(name).collect()
    }

    #[divan::bench(sample_count = 20)]
    fn build_ours(bencher: Bencher<'_, '_>) {
        builds(bencher, MANY, || ours(MANY));
    }

    #[divan::bench(sample_count = 20)]
    fn build_std(bencher: Bencher<'_, '_>) {
        builds(bencher, MANY, || (0..MANY).map(name).collect::<HashSet<_>>());
    }

    #[divan::bench(sample_count = 20)]
    fn build_hashbrown(bencher: Bencher<'_, '_>) {
        builds(bencher, MANY, || hashbrown(MANY));
    }

    #[divan::bench]
    fn contains_ours(bencher: Bencher<'_, '_>) {
        let (set, hasher) = (ours(MANY), hasher());
        each(bencher, &scattered(), |member| {
            black_box(set.contains(member, &hasher));
        });
    }

    #[divan::bench]
    fn contains_hashbrown(bencher: Bencher<'_, '_>) {
        let set = hashbrown(MANY);
        each(bencher, &scattered(), |member| {
            black_box(set.contains(member));
        });
    }

    #[divan::bench]
    fn remove_and_add_ours(bencher: Bencher<'_, '_>) {
        let (mut set, hasher) = (ours(MANY), hasher());
        each(bencher, &scattered(), |member| {
            set.remove(member, &hasher);
            set.add(member, &LIMITS, &hasher);
        });
    }

    #[divan::bench]
    fn remove_and_add_hashbrown(bencher: Bencher<'_, '_>) {
        let mut set = hashbrown(MANY);
        each(bencher, &scattered(), |member| {
            set.remove(member);
            set.insert(member.clone());
        });
    }
}

mod stream {
    use super::*;

    const LIMITS: StreamLimits = StreamLimits { node_bytes_max: 4096, node_entries_max: 100 };
    const WORDS: [&[u8]; 4] = [b"sensor", b"1234", b"temperature", b"19.8"];

    fn id(number: usize) -> StreamId {
        StreamId { ms: 1_700_000_000_000 + number as u64, seq: 0 }
    }

    fn ours(len: usize) -> Stream {
        let mut stream = Stream::new();
        for number in 0..len {
            stream.append(id(number), WORDS.into_iter(), LIMITS).expect("IDs ascend");
        }
        stream
    }

    fn std(len: usize) -> BTreeMap<(u64, u64), Vec<Vec<u8>>> {
        let mut entries = BTreeMap::new();
        for number in 0..len {
            entries.insert((id(number).ms, 0), WORDS.map(<[u8]>::to_vec).to_vec());
        }
        entries
    }

    #[divan::bench(sample_count = 20)]
    fn append_ours(bencher: Bencher<'_, '_>) {
        builds(bencher, MANY, || ours(MANY));
    }

    #[divan::bench(sample_count = 20)]
    fn append_std(bencher: Bencher<'_, '_>) {
        builds(bencher, MANY, || std(MANY));
    }

    /// Measures reading a thousand consecutive stream entries, from the middle of the stream on.
    #[divan::bench]
    fn walk_ours(bencher: Bencher<'_, '_>) {
        let stream = ours(MANY);
        builds(bencher, BATCH, || {
            let entries = stream.range(id(MANY / 2), id(MANY / 2 + BATCH - 1));
            entries.map(|entry| entry.pairs.count()).sum::<usize>()
        });
    }

    #[divan::bench]
    fn walk_std(bencher: Bencher<'_, '_>) {
        let entries = std(MANY);
        builds(bencher, BATCH, || {
            let range = entries.range((id(MANY / 2).ms, 0)..(id(MANY / 2 + BATCH).ms, 0));
            range.map(|(_, words)| words.len() / 2).sum::<usize>()
        });
    }

    /// Measures reading single stream entries by their IDs, which are spread over the stream.
    #[divan::bench]
    fn seek_ours(bencher: Bencher<'_, '_>) {
        let stream = ours(MANY);
        let ids: Vec<StreamId> = (0..BATCH).map(|i| id(i * 7919 * 31 % MANY)).collect();
        each(bencher, &ids, |&id| {
            black_box(stream.range(id, id).next());
        });
    }

    #[divan::bench]
    fn seek_std(bencher: Bencher<'_, '_>) {
        let entries = std(MANY);
        let ids: Vec<(u64, u64)> = (0..BATCH).map(|i| (id(i * 7919 * 31 % MANY).ms, 0)).collect();
        each(bencher, &ids, |id| {
            black_box(entries.get(id));
        });
    }
}
