//! Random changes of RDB files of real servers. Each changed file must be either rejected or
//! loaded, and must not take memory for lengths that it only claims.
//!
//! The test is a program of its own, because its allocator measures the peak of memory. The seed is
//! that of the property tests. A failure prints the number of the mutation; `SAKER_MUTATION=N`
//! repeats it. A longer run: `SAKER_MUTATIONS=1000000 cargo test -p persist --test mutated_files --
//! --nocapture`.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crc::{CRC_64_REDIS, Crc};
use keyspace::{Access, Hasher, KeyEntry, ListLimits, PackLimits, SetLimits, StreamLimits};
use persist::dump::{dump, restore};
use persist::load::{
    DecodeOptions, Decoded, Inspected, LoadOptions, Part, Splitter, Unsupported, decode_batch, inspect_batch,
};
use persist::rdb::{Compression, Encoder, FileVersion, Rules, Usage, VersionCheck};
use structures::alloc::peak::PeakAllocator;

#[global_allocator]
static ALLOCATOR: PeakAllocator = PeakAllocator::new();

static CRC: Crc<u64, crc::Table<16>> = Crc::<u64, crc::Table<16>>::new(&CRC_64_REDIS);

/// The number of changed RDB files that a run in CI loads.
const MUTATIONS: u64 = 6_000;
/// The memory that the load of any file may take in addition, in bytes. It covers the buffer, which
/// exists twice while it grows.
const MEMORY_FIXED_BYTES: usize = 4 << 20;
/// The maximum memory of a load per byte of the file. A compressed byte expands to up to 88 bytes,
/// and an element of two bytes becomes an entry of a table.
const MEMORY_PER_BYTE: usize = 100;

/// A generator of pseudo-random numbers from a seed (SplitMix64).
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

/// An RDB file as a server wrote it, and the ranges of its keys' records.
struct Original {
    bytes: Vec<u8>,
    records: Vec<std::ops::Range<usize>>,
}

fn originals(hasher: &Hasher) -> Vec<Original> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/files");
    let entries = std::fs::read_dir(folder).expect("the folder is there");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("readable").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "rdb"));
    paths.sort();
    let rules = rules(hasher, 64);
    let original = |path: &std::path::PathBuf| {
        let bytes = std::fs::read(path).expect("readable");
        let mut records = Vec::new();
        let mut splitter = Splitter::open(&bytes[..], load_options(true), 16).expect("a file");
        loop {
            match splitter.next_part().expect("a whole file") {
                Part::End => break,
                Part::Batch(batch) => inspect_batch(&batch, &decode_options(&rules), |record| {
                    let at = record.file_offset as usize;
                    assert!(
                        matches!(record.value, Ok(Inspected::Entry(_))),
                        "{}: {:?}",
                        path.display(),
                        record.name
                    );
                    records.push(at..at + record.len_bytes as usize);
                }),
                Part::Fact { .. } | Part::Function(_) | Part::DbSize { .. } | Part::Module { .. } => {}
            }
        }
        Original { bytes, records }
    };
    paths.iter().map(original).collect()
}

/// Returns limits for values by which collections of up to `entries_max` entries are packed.
fn rules(hasher: &Hasher, entries_max: usize) -> Rules<'_> {
    let pack = PackLimits { entries_max, value_len_bytes_max: 64 };
    Rules {
        hasher,
        list: ListLimits::from_option(entries_max as i64).with_compress_depth(1),
        set: SetLimits { intset_entries_max: entries_max, pack },
        hash: pack,
        zset: pack,
        stream: StreamLimits { node_bytes_max: 4096, node_entries_max: 100 },
        string_len_bytes_max: 512 << 20,
        versions: VersionCheck::Relaxed,
        skips_checksums: false,
    }
}

fn load_options(checksum: bool) -> LoadOptions {
    LoadOptions { versions: VersionCheck::Relaxed, checksum, unsupported: Unsupported::Refused }
}

fn decode_options<'a>(rules: &'a Rules<'a>) -> DecodeOptions<'a> {
    DecodeOptions { rules, access: Access::Lru { clock_s: 1_000_000 }, now_ms: 1 }
}

/// Encoded lengths and numbers that are very large or at a limit.
const CLAIMS: &[&[u8]] = &[
    b"\x00",
    b"\x3f",
    b"\x7f\xff",
    b"\x80\x7f\xff\xff\xff",
    b"\x80\xff\xff\xff\xff",
    b"\x80\x1f\xff\xff\xff",
    b"\x81\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\x81\x7f\xff\xff\xff\xff\xff\xff\xff",
    b"\x81\x00\x00\x00\x01\x00\x00\x00\x00",
    b"\xc0\xff",
    b"\xc3\x05\x80\x1f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\x7f",
    b"\xfe\xff\xff\xff\xff",
    b"\xff\xff",
    b"\xf4\xff\xff\xff\xff",
];

/// Chooses a random offset in the RDB file, mostly one inside a key's record.
fn place(bytes: &[u8], records: &[std::ops::Range<usize>], rng: &mut Rng) -> usize {
    if rng.below(8) > 0 && !records.is_empty() {
        let record = rng.pick(records);
        // An earlier mutation may have cut off this position.
        return (record.start + rng.below(record.len())).min(bytes.len() - 1);
    }
    rng.below(bytes.len())
}

fn mutate(originals: &[Original], rng: &mut Rng) -> Vec<u8> {
    let original = rng.pick(originals);
    let mut bytes = original.bytes.clone();
    for _ in 0..1 + rng.below(4) {
        let at = place(&bytes, &original.records, rng);
        let end = (at + 1 + rng.below(24)).min(bytes.len());
        match rng.below(10) {
            0 => bytes[at] ^= 1 << rng.below(8),
            1 => bytes[at] = rng.next() as u8,
            2 => bytes[at] = bytes[at].wrapping_add(if rng.below(2) == 0 { 1 } else { 255 }),
            3 => drop(bytes.drain(at..end)),
            4 => bytes.splice(at..at, rng.pick(CLAIMS).iter().copied()).for_each(drop),
            5 => {
                let claim = *rng.pick(CLAIMS);
                let end = (at + claim.len()).min(bytes.len());
                bytes[at..end].copy_from_slice(&claim[..end - at]);
            }
            6 => {
                let other = &rng.pick(originals).bytes;
                let from = rng.below(other.len());
                let to = (from + 1 + rng.below(64)).min(other.len());
                let end = if rng.below(2) == 0 { at } else { end };
                bytes.splice(at..end, other[from..to].iter().copied()).for_each(drop);
            }
            7 | 8 => {
                // A record of this or another file is inserted before a record.
                let other = rng.pick(originals);
                let record = other.bytes[rng.pick(&other.records).clone()].to_vec();
                let before = rng.pick(&original.records).start.min(bytes.len());
                bytes.splice(before..before, record).for_each(drop);
            }
            _ => bytes.truncate(at.max(9)),
        }
        if bytes.len() < 20 {
            break;
        }
    }
    bytes
}

/// Replaces the checksum at the end of the RDB file by the right one.
fn mend_checksum(bytes: &mut [u8]) {
    if let Some((body, sum)) = bytes.split_last_chunk_mut::<8>() {
        *sum = CRC.checksum(body).to_le_bytes();
    }
}

/// Loads an RDB file as a server does. Returns the keys loaded, and true if the file was accepted.
fn load(bytes: &[u8], rules: &Rules<'_>, checksum: bool) -> (Vec<KeyEntry>, bool) {
    let mut keys = Vec::new();
    let Ok(mut splitter) = Splitter::open(bytes, load_options(checksum), 16) else { return (keys, false) };
    loop {
        match splitter.next_part() {
            Ok(Part::End) => return (keys, true),
            Ok(Part::Batch(batch)) => {
                let add = |decoded: Decoded<'_>| {
                    if let Decoded::Key(entry) = decoded {
                        keys.push(entry);
                    }
                };
                if decode_batch(&batch, &decode_options(rules), add).is_err() {
                    return (keys, false);
                }
            }
            Ok(Part::Fact { .. } | Part::Function(_) | Part::DbSize { .. } | Part::Module { .. }) => {}
            Err(_) => return (keys, false),
        }
    }
}

/// Checks a mutated RDB file. Returns true if it was accepted, and the bytes of memory it took per
/// byte of the file.
fn check(originals: &[Original], hasher: &Hasher, number: u64) -> (bool, usize) {
    let mut rng = Rng(number.wrapping_mul(0x2545_f491_4f6c_dd1d));
    let mut bytes = mutate(originals, &mut rng);
    let (checksum, entries_max) = (rng.below(2) == 0, [4, 16, 128][rng.below(3)]);
    if rng.below(4) > 0 {
        mend_checksum(&mut bytes);
    }
    let rules = rules(hasher, entries_max);
    ALLOCATOR.reset();
    let used_bytes = ALLOCATOR.used_bytes();
    let (keys, accepted) = load(&bytes, &rules, checksum);
    let took_bytes = ALLOCATOR.peak_bytes() - used_bytes;
    let allowed_bytes = MEMORY_FIXED_BYTES + MEMORY_PER_BYTE * bytes.len();
    assert!(took_bytes <= allowed_bytes, "{took_bytes} bytes for a file of {}", bytes.len());
    // All accepted keys can be saved and read again.
    let mut encoder = Encoder::new(FileVersion::Redis7Dot4, Compression::Lzf, Usage::None);
    for key in &keys {
        encoder.entry(key);
        restore(&dump(&key.view(), Compression::None), &rules).expect("what was accepted is a value");
    }
    (accepted, took_bytes.saturating_sub(MEMORY_FIXED_BYTES) / bytes.len().max(1))
}

fn number_from(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn mutated_files_are_refused_or_loaded_within_bounds() {
    let hasher = Hasher::with_seed([1, 2, 3, 4]);
    let originals = originals(&hasher);
    let first = number_from("SAKER_MUTATION");
    let seed = number_from("PROPTEST_RNG_SEED").unwrap_or(1).wrapping_mul(1 << 32);
    let count = if first.is_some() { 1 } else { number_from("SAKER_MUTATIONS").unwrap_or(MUTATIONS) };
    let first = first.unwrap_or(seed);
    let (mut accepted, mut most, mut failed) = (0_u64, 0, 0);
    for number in (0..count).map(|at| first.wrapping_add(at)) {
        match catch_unwind(AssertUnwindSafe(|| check(&originals, &hasher, number))) {
            Ok((is_accepted, took)) => {
                accepted += u64::from(is_accepted);
                most = most.max(took);
            }
            Err(_) => {
                eprintln!("mutation {number} fails: SAKER_MUTATION={number} repeats it");
                failed += 1;
            }
        }
    }
    println!("{count} mutations: {accepted} files loaded, {most} bytes of memory a byte at most");
    assert_eq!(failed, 0, "see above");
    assert!(count < 1000 || (count / 100..count * 9 / 10).contains(&accepted), "both happens: {accepted}");
}
