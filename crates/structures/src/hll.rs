//! HyperLogLog in Redis' format: a string that estimates the number of different elements added to
//! it.
//!
//! ```text
//!  0      4          5        8                16
//! ["HYLL"|encoding u8|not used|count u64, LE   |registers]
//!                              bit 63: the count is out of date
//! ```
//! An element's hash (MurmurHash64A) selects one of 16,384 registers by its low 14 bits. The
//! register keeps the greatest number of trailing zeros, plus one, in the other 50 bits. The
//! estimate is computed from the number of registers that hold each value (`estimate`). Encoding 0
//! is dense, 6 bits a register (`dense`). Encoding 1 is sparse, runs of equal registers (`sparse`).
//! A sparse HyperLogLog grows with the elements up to a configured length and then becomes dense.
//! It never becomes sparse again.
//!
//! GET returns these bytes and SET accepts any bytes, so they are not trusted. [`Hll::of`] checks
//! the header and the length. Runs that do not describe 16,384 registers give [`Corrupted`] when
//! they are read. The same elements in the same order give the same bytes as in Redis.
//!
//! Costs: adding is O(1) when dense, O(bytes) when sparse; counting and merging are O(registers).
//! The last count is cached in the header.
//!
//! Sources: Heule, Nunkesser, Hall, "HyperLogLog in Practice" (2013), for the sparse idea. Ertl,
//! "New cardinality estimation algorithms for HyperLogLog sketches" (2017), for the estimate.
//! Redis' documentation of PFADD, for the layout.

use std::fmt;

mod dense;
mod estimate;
#[doc(hidden)]
pub mod fuzz;
mod murmur;
mod sparse;

pub use estimate::Histogram;
pub use sparse::Run;

/// The number of registers of a HyperLogLog.
pub const REGISTERS: usize = 1 << REGISTER_BITS;
/// The length in bytes of a dense HyperLogLog.
pub const DENSE_LEN_BYTES: usize = HEADER_LEN_BYTES + dense::LEN_BYTES;

const REGISTER_BITS: u32 = 14;
/// The number of bits of an element's hash that do not select the HyperLogLog's register.
const RANK_BITS: u32 = 64 - REGISTER_BITS;
const HASH_SEED: u64 = 0xadc8_3b19;

const HEADER_LEN_BYTES: usize = 16;
const MAGIC: &[u8; 4] = b"HYLL";
const ENCODING_AT: usize = 4;
const COUNT_AT: usize = 8;
/// The bit of a HyperLogLog's cached count that marks the count as out of date.
const STALE: u64 = 1 << 63;

/// The error for bytes that are not a HyperLogLog: wrong magic, unknown encoding or impossible
/// length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotHll;

/// The error for a HyperLogLog with a valid header, whose runs do not describe exactly all
/// registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupted;

impl fmt::Display for NotHll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a HyperLogLog")
    }
}

impl fmt::Display for Corrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a HyperLogLog with broken runs")
    }
}

impl std::error::Error for NotHll {}
impl std::error::Error for Corrupted {}

/// The layouts of a HyperLogLog's registers. Each discriminant is the number in the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Encoding {
    /// The layout with six bits for each register.
    Dense = 0,
    /// The layout as runs of equal registers.
    Sparse = 1,
}

impl Encoding {
    /// Returns the name of the registers' layout, as PFDEBUG ENCODING shows it.
    pub fn name(self) -> &'static str {
        match self {
            Encoding::Dense => "dense",
            Encoding::Sparse => "sparse",
        }
    }
}

/// The effect of adding an element to a HyperLogLog: a register and its least value afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// The index of the register that the element's hash selects.
    pub register: usize,
    /// The least value of that register after the element was added, 1 to 51.
    pub rank: u8,
}

impl Observation {
    /// Computes the effect (a register and its least value) of adding `element` to a HyperLogLog.
    /// O(bytes).
    #[inline]
    pub fn of(element: &[u8]) -> Self {
        let hash = murmur::murmur64a(element, HASH_SEED);
        // The added bit limits the count of trailing zeros to 50, if the rest of the hash is zero.
        let rest = (hash >> REGISTER_BITS) | 1 << RANK_BITS;
        Observation { register: hash as usize % REGISTERS, rank: rest.trailing_zeros() as u8 + 1 }
    }
}

/// A HyperLogLog whose bytes are borrowed for reading.
#[derive(Clone, Copy, Debug)]
pub struct Hll<'a> {
    bytes: &'a [u8],
    encoding: Encoding,
}

impl<'a> Hll<'a> {
    /// Interprets `bytes` as a HyperLogLog; checks the header and the length. O(1).
    pub fn of(bytes: &'a [u8]) -> Result<Self, NotHll> {
        if bytes.len() < HEADER_LEN_BYTES || !bytes.starts_with(MAGIC) {
            return Err(NotHll);
        }
        let encoding = match bytes[ENCODING_AT] {
            0 if bytes.len() == DENSE_LEN_BYTES => Encoding::Dense,
            1 => Encoding::Sparse,
            _ => return Err(NotHll),
        };
        Ok(Hll { bytes, encoding })
    }

    /// Returns the layout of the HyperLogLog's registers: dense or sparse. O(1).
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Returns the cached count of different elements, or `None` if elements were added since.
    /// O(1).
    pub fn cached_count(&self) -> Option<u64> {
        let count = self.bytes[COUNT_AT..].first_chunk().expect("a header is longer");
        Some(u64::from_le_bytes(*count)).filter(|count| count & STALE == 0)
    }

    /// Computes the estimated number of different elements from the registers. O(registers).
    pub fn count(&self) -> Result<u64, Corrupted> {
        Ok(self.histogram()?.estimate())
    }

    fn histogram(&self) -> Result<Histogram, Corrupted> {
        match self.encoding {
            Encoding::Dense => Ok(dense::histogram(self.registers())),
            Encoding::Sparse => {
                let mut histogram = Histogram::default();
                for run in self.runs() {
                    let run = run?;
                    histogram.add(run.value, run.len);
                }
                Ok(histogram)
            }
        }
    }

    /// Returns true if adding `observation` would change nothing. O(1) when dense, O(bytes) when
    /// sparse.
    pub fn covers(&self, observation: Observation) -> Result<bool, Corrupted> {
        let value = match self.encoding {
            Encoding::Dense => dense::get(self.registers(), observation.register),
            Encoding::Sparse => sparse::locate(self.registers(), observation.register)?.run.value,
        };
        Ok(value >= observation.rank)
    }

    /// Returns the runs of a sparse HyperLogLog, in order. If they do not describe all registers,
    /// the last item is an error.
    pub fn runs(&self) -> impl Iterator<Item = Result<Run, Corrupted>> + use<'a> {
        debug_assert!(self.encoding == Encoding::Sparse);
        sparse::Runs::covering(REGISTERS, self.registers())
    }

    /// Returns the runs of a sparse HyperLogLog up to the first invalid one, even if they do not
    /// cover all registers.
    pub fn runs_as_they_are(&self) -> impl Iterator<Item = Run> + use<'a> {
        debug_assert!(self.encoding == Encoding::Sparse);
        sparse::Runs::covering(usize::MAX, self.registers()).map_while(Result::ok)
    }

    fn registers(&self) -> &'a [u8] {
        &self.bytes[HEADER_LEN_BYTES..]
    }
}

/// All registers of a HyperLogLog, one byte each: the form for merging.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registers {
    values: Box<[u8]>,
}

impl Registers {
    /// Creates the registers of an empty HyperLogLog, all with the value 0.
    pub fn new() -> Self {
        Self { values: vec![0; REGISTERS].into() }
    }

    /// Borrows the values of all registers, indexed by register.
    pub fn values(&self) -> &[u8] {
        &self.values
    }

    /// Adds the element that `observation` describes to the registers. O(1).
    pub fn observe(&mut self, observation: Observation) {
        let value = &mut self.values[observation.register];
        *value = observation.rank.max(*value);
    }

    /// Raises each register to its value in `hll`, if that is greater. On error some registers may
    /// have been raised. O(registers).
    pub fn merge(&mut self, hll: &Hll<'_>) -> Result<(), Corrupted> {
        match hll.encoding {
            Encoding::Dense => dense::merge_into(hll.registers(), &mut self.values),
            Encoding::Sparse => {
                let mut first = 0;
                for run in hll.runs() {
                    let run = run?;
                    if run.value > 0 {
                        let covered = self.values[first..first + run.len].iter_mut();
                        covered.for_each(|value| *value = run.value.max(*value));
                    }
                    first += run.len;
                }
            }
        }
        Ok(())
    }

    /// Computes the estimated number of different elements from the registers. O(registers).
    pub fn count(&self) -> u64 {
        let mut histogram = Histogram::default();
        self.values.iter().for_each(|&value| histogram.add(value, 1));
        histogram.estimate()
    }
}

impl Default for Registers {
    fn default() -> Self {
        Self::new()
    }
}

/// A HyperLogLog whose bytes are borrowed for changes.
#[derive(Debug)]
pub struct HllMut<'a> {
    bytes: &'a mut Vec<u8>,
    encoding: Encoding,
}

/// Returns the bytes of an empty HyperLogLog: sparse, one run of zeros.
pub fn empty() -> Vec<u8> {
    let mut bytes = vec![0; HEADER_LEN_BYTES];
    bytes[..MAGIC.len()].copy_from_slice(MAGIC);
    bytes[ENCODING_AT] = Encoding::Sparse as u8;
    bytes.extend_from_slice(&sparse::zeros(REGISTERS));
    bytes
}

/// Stores `count` as the cached count in the header of the HyperLogLog `bytes`. The count is valid
/// until the registers change. O(1).
///
/// # Panics
/// If `bytes` are shorter than a header.
pub fn cache_count(bytes: &mut [u8], count: u64) {
    bytes[COUNT_AT..HEADER_LEN_BYTES].copy_from_slice(&count.to_le_bytes());
}

impl<'a> HllMut<'a> {
    /// Interprets `bytes` as a HyperLogLog; checks the header and the length. O(1).
    pub fn of(bytes: &'a mut Vec<u8>) -> Result<Self, NotHll> {
        let encoding = Hll::of(bytes)?.encoding;
        Ok(HllMut { bytes, encoding })
    }

    /// Adds the element that `observation` describes to the HyperLogLog. Returns true if that
    /// changed a register.
    ///
    /// A sparse HyperLogLog becomes dense if it would become longer than `sparse_len_bytes_max`,
    /// header included, or hold a value above 32. The cached count does not change, see
    /// [`HllMut::forget_count`]. O(1) when dense, O(bytes) when sparse.
    pub fn add(&mut self, observation: Observation, sparse_len_bytes_max: usize) -> Result<bool, Corrupted> {
        if self.encoding == Encoding::Sparse {
            let room = sparse_len_bytes_max.saturating_sub(HEADER_LEN_BYTES);
            match sparse::raise(self.bytes, HEADER_LEN_BYTES, observation, room)? {
                sparse::Raised::No => return Ok(false),
                sparse::Raised::Yes => return Ok(true),
                sparse::Raised::OutOfRoom => self.make_dense().map(drop)?,
            }
        }
        Ok(dense::raise(&mut self.bytes[HEADER_LEN_BYTES..], observation))
    }

    /// Makes a sparse HyperLogLog dense. Returns true if it was sparse. The cached count is kept.
    /// O(registers).
    pub fn make_dense(&mut self) -> Result<bool, Corrupted> {
        if self.encoding == Encoding::Dense {
            return Ok(false);
        }
        let mut registers = Registers::new();
        registers.merge(&Hll { bytes: self.bytes, encoding: Encoding::Sparse })?;
        let mut bytes = Vec::with_capacity(DENSE_LEN_BYTES);
        bytes.extend_from_slice(&self.bytes[..HEADER_LEN_BYTES]);
        bytes[ENCODING_AT] = Encoding::Dense as u8;
        dense::append(&registers.values, &mut bytes);
        *self.bytes = bytes;
        self.encoding = Encoding::Dense;
        Ok(true)
    }

    /// Raises each register to its value in `registers`, if that is greater. A sparse HyperLogLog
    /// may become dense as in [`HllMut::add`]. O(registers) when dense, O(registers × bytes) when
    /// sparse.
    pub fn raise_to(&mut self, registers: &Registers, sparse_len_bytes_max: usize) -> Result<(), Corrupted> {
        for (register, &rank) in registers.values.iter().enumerate() {
            if rank > 0 {
                self.add(Observation { register, rank }, sparse_len_bytes_max)?;
            }
        }
        Ok(())
    }

    /// Marks the cached count of the HyperLogLog as out of date. O(1).
    pub fn forget_count(&mut self) {
        self.bytes[COUNT_AT + 7] |= (STALE >> 56) as u8;
    }
}

/// The greatest number of elements at which PFSELFTEST compares estimates with true counts. It
/// compares at each power of ten.
const SELF_TEST_ELEMENTS_MAX: u64 = 100_000;
/// The greatest difference, in standard errors, that PFSELFTEST allows between an estimate and the
/// true count.
const SELF_TEST_ERRORS_MAX: f64 = 6.0;

/// Performs the checks of PFSELFTEST. Neighbouring registers must keep their values; the estimates
/// of sparse and dense HyperLogLogs must agree and be close to the true count. `draw` returns
/// random numbers. Takes milliseconds.
///
/// # Errors
/// A description of the failed check.
pub fn self_test(mut draw: impl FnMut() -> u64) -> Result<(), String> {
    let mut packed = vec![0; dense::LEN_BYTES];
    let expected: Vec<u8> = (0..REGISTERS).map(|_| draw() as u8 % 64).collect();
    for (register, &rank) in expected.iter().enumerate() {
        dense::raise(&mut packed, Observation { register, rank });
    }
    for (register, &rank) in expected.iter().enumerate() {
        let value = dense::get(&packed, register);
        if value != rank {
            return Err(format!("Register {register} should be {rank} but is {value}"));
        }
    }
    let (mut sparse, mut dense) = (empty(), empty());
    let (seed, mut checked_at) = (draw(), 1);
    let broken = |_: Corrupted| "A HyperLogLog made here is corrupted".to_string();
    HllMut { bytes: &mut dense, encoding: Encoding::Sparse }.make_dense().map_err(broken)?;
    for added in 1..=SELF_TEST_ELEMENTS_MAX {
        let observation = Observation::of(&(seed ^ added).to_le_bytes());
        for bytes in [&mut sparse, &mut dense] {
            let mut hll = HllMut::of(bytes).map_err(|error| error.to_string())?;
            hll.add(observation, DENSE_LEN_BYTES / 4).map_err(broken)?;
        }
        if added == checked_at {
            let counts = [&sparse, &dense].map(|bytes| Hll::of(bytes).map(|hll| hll.count()));
            let [Ok(Ok(from_sparse)), Ok(Ok(count))] = counts else { return Err(broken(Corrupted)) };
            if from_sparse != count {
                return Err(format!("sparse counts {from_sparse}, dense {count}"));
            }
            let error_max = SELF_TEST_ERRORS_MAX * 1.04 / (REGISTERS as f64).sqrt() * added as f64;
            if count.abs_diff(added) as f64 > error_max.ceil() {
                return Err(format!("Too big error. card:{added} estimate:{count}"));
            }
            checked_at *= 10;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Creates a HyperLogLog of the decimal texts of the numbers `from..to`.
    fn of_numbers(from: u64, to: u64, sparse_len_bytes_max: usize) -> Vec<u8> {
        let mut bytes = empty();
        for number in from..to {
            let observation = Observation::of(number.to_string().as_bytes());
            HllMut::of(&mut bytes).unwrap().add(observation, sparse_len_bytes_max).unwrap();
        }
        bytes
    }

    fn count(bytes: &[u8]) -> u64 {
        Hll::of(bytes).unwrap().count().unwrap()
    }

    fn registers(bytes: &[u8]) -> Registers {
        let mut registers = Registers::new();
        registers.merge(&Hll::of(bytes).unwrap()).unwrap();
        registers
    }

    #[test]
    fn bytes_that_are_none_are_refused() {
        let dense = of_numbers(0, 1, 0);
        assert_eq!(dense.len(), DENSE_LEN_BYTES);
        for bytes in [&b""[..], b"HYLL", b"HYLK\x01___________", &dense[1..], &dense[..DENSE_LEN_BYTES - 1]] {
            assert_eq!(Hll::of(bytes).unwrap_err(), NotHll);
            assert_eq!(HllMut::of(&mut bytes.to_vec()).unwrap_err(), NotHll);
        }
        let mut unknown = empty();
        unknown[ENCODING_AT] = 2;
        assert!(Hll::of(&unknown).is_err());
    }

    #[test]
    fn runs_that_do_not_cover_all_registers_are_refused() {
        let header = &empty()[..HEADER_LEN_BYTES];
        let broken: [&[u8]; 6] = [
            b"",
            b"\x7f",                 // half of an XZERO
            b"\x7f\xfe",             // one register short
            b"\x7f\xff\x00",         // one too many
            b"\x7f\xff\x80",         // one value too many
            b"\x7f\xff\x7f\xff\x80", // twice as many
        ];
        for runs in broken {
            let mut bytes = [header, runs].concat();
            assert_eq!(Hll::of(&bytes).unwrap().count(), Err(Corrupted), "{runs:?}");
            assert_eq!(Registers::new().merge(&Hll::of(&bytes).unwrap()), Err(Corrupted), "{runs:?}");
            assert_eq!(HllMut::of(&mut bytes).unwrap().make_dense(), Err(Corrupted), "{runs:?}");
        }
        let mut short = [header, b"\x7f\xfe"].concat();
        let last = Observation { register: REGISTERS - 1, rank: 1 };
        assert_eq!(HllMut::of(&mut short).unwrap().add(last, 3000), Err(Corrupted));
    }

    #[test]
    fn all_observations_fall_into_a_register() {
        for number in 0..100_000_u64 {
            let observation = Observation::of(&number.to_le_bytes());
            assert!(observation.register < REGISTERS && (1..=51).contains(&observation.rank));
        }
    }

    #[test]
    fn the_count_is_kept_until_forgotten() {
        let mut bytes = empty();
        assert_eq!(Hll::of(&bytes).unwrap().cached_count(), Some(0));
        cache_count(&mut bytes, 0x0102_0304_0506_0708);
        assert_eq!(Hll::of(&bytes).unwrap().cached_count(), Some(0x0102_0304_0506_0708));
        HllMut::of(&mut bytes).unwrap().forget_count();
        assert_eq!(Hll::of(&bytes).unwrap().cached_count(), None);
        HllMut::of(&mut bytes).unwrap().make_dense().unwrap();
        assert_eq!(Hll::of(&bytes).unwrap().cached_count(), None);
    }

    #[test]
    fn estimates_stay_within_four_standard_errors() {
        let mut bytes = empty();
        for added in 1..=200_000_u64 {
            let observation = Observation::of(added.to_string().as_bytes());
            HllMut::of(&mut bytes).unwrap().add(observation, 3000).unwrap();
            if [1, 10, 100, 1000, 10_000, 50_000, 200_000].contains(&added) {
                let off = count(&bytes).abs_diff(added) as f64 / added as f64;
                assert!(off < 4.0 * 1.04 / 128.0, "{added}: {off}");
            }
        }
        assert_eq!(Hll::of(&bytes).unwrap().encoding(), Encoding::Dense);
    }

    #[test]
    fn a_sparse_one_becomes_dense_where_its_limit_says() {
        for limit in [0, 18, 20, 100, 1000, 3000] {
            let mut bytes = empty();
            for number in 0..3000_u64 {
                let before = bytes.len();
                let observation = Observation::of(&number.to_le_bytes());
                HllMut::of(&mut bytes).unwrap().add(observation, limit).unwrap();
                let hll = Hll::of(&bytes).unwrap();
                assert!(hll.covers(observation).unwrap());
                match hll.encoding() {
                    Encoding::Sparse => assert!(bytes.len() <= limit.max(before)),
                    Encoding::Dense => break,
                }
            }
            assert_eq!(bytes.len(), DENSE_LEN_BYTES, "{limit}");
        }
    }

    #[test]
    fn a_value_that_runs_cannot_hold_makes_it_dense() {
        let mut bytes = empty();
        for (rank, encoding) in [(32, Encoding::Sparse), (33, Encoding::Dense)] {
            let observation = Observation { register: 7, rank };
            assert_eq!(HllMut::of(&mut bytes).unwrap().add(observation, 3000), Ok(true));
            assert_eq!(HllMut::of(&mut bytes).unwrap().add(observation, 3000), Ok(false));
            assert_eq!(Hll::of(&bytes).unwrap().encoding(), encoding);
            assert_eq!(registers(&bytes).values()[7], rank);
        }
    }

    #[test]
    fn registers_above_what_a_hash_gives_count_as_redis_counts_them() {
        let mut bytes = of_numbers(0, 1, 0);
        bytes[HEADER_LEN_BYTES..].fill(0xff);
        assert_eq!(count(&bytes), 1 << 63);
    }

    #[test]
    fn the_self_test_passes() {
        let mut state = 7_u64;
        let draw = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state ^ state >> 29
        };
        assert_eq!(self_test(draw), Ok(()));
    }

    proptest! {
        /// Checks that adding elements gives the same registers as the naive twin (one byte per
        /// register), in both encodings.
        #[test]
        fn adding_raises_one_register(
            steps in prop::collection::vec((0..40_usize, 0..4_usize, 1..40_u8), 0..200),
            limit in 0..200_usize,
        ) {
            let (mut sparse, mut limited, mut twin) = (empty(), empty(), vec![0_u8; REGISTERS]);
            for (place, region, rank) in steps {
                let register = [0, 64, 5000, REGISTERS - 40][region] + place;
                let observation = Observation { register, rank };
                let raises = twin[register] < rank;
                twin[register] = twin[register].max(rank);
                for (bytes, limit) in [(&mut sparse, usize::MAX), (&mut limited, limit)] {
                    prop_assert_eq!(Hll::of(bytes).unwrap().covers(observation), Ok(!raises));
                    prop_assert_eq!(HllMut::of(bytes).unwrap().add(observation, limit), Ok(raises));
                    let registers = registers(bytes);
                    prop_assert_eq!(registers.values(), &twin[..]);
                    prop_assert_eq!(registers.count(), count(bytes));
                }
            }
        }

        #[test]
        fn merging_is_adding_all_elements(from in 0..500_u64, len in 0..500_u64, limit in 0..3000_usize) {
            let (a, b) = (of_numbers(0, 500, 3000), of_numbers(from, from + len, limit));
            let mut both = registers(&a);
            both.merge(&Hll::of(&b).unwrap()).unwrap();
            let expected = of_numbers(0, 500.max(from + len), 0);
            if from <= 500 {
                prop_assert_eq!(&both, &registers(&expected));
            }
            let mut merged = empty();
            HllMut::of(&mut merged).unwrap().raise_to(&both, limit).unwrap();
            prop_assert_eq!(registers(&merged), both);
        }
    }
}
