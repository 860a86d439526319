//! A check of arbitrary bytes that claim to be a HyperLogLog. A fuzzer or a plain loop calls it; it
//! panics if a property does not hold.

use super::{Encoding, Hll, HllMut, Observation, REGISTERS, Registers, empty};

/// The length limit in bytes of a sparse HyperLogLog to which fuzzed elements are added.
const SPARSE_LEN_BYTES_MAX: usize = 512;

/// Uses `data` as a HyperLogLog, as the runs of one, and as elements to add. Each use must give a
/// result or an error. A valid HyperLogLog is also merged, made dense and extended; all these forms
/// must have the same registers.
pub fn fuzz_hll(data: &[u8]) {
    check(data, data);
    let mut with_header = empty()[..16].to_vec();
    with_header.extend_from_slice(data);
    check(&with_header, data);
    let mut followed = empty()[..16].to_vec();
    followed.extend_from_slice(data);
    // The number of registers that the runs in `data` cover.
    let covered: usize = Hll::of(&followed).map_or(0, |hll| hll.runs().flatten().map(|run| run.len).sum());
    if covered < REGISTERS {
        followed.extend_from_slice(&super::sparse::zeros(REGISTERS - covered));
        check(&followed, data);
    }
}

fn registers(bytes: &[u8]) -> Option<Registers> {
    let mut registers = Registers::new();
    registers.merge(&Hll::of(bytes).ok()?).ok()?;
    Some(registers)
}

fn check(bytes: &[u8], elements: &[u8]) {
    let mut bytes = bytes.to_vec();
    let Ok(hll) = Hll::of(&bytes) else { return };
    let (encoding, count, before) = (hll.encoding(), hll.count(), registers(&bytes));
    assert_eq!(count.is_ok(), before.is_some());
    if let Some(registers) = &before {
        assert_eq!(count, Ok(registers.count()));
    }
    let len_before = bytes.len();
    let mut twin = before;
    for element in elements.chunks(3).take(64) {
        let observation = Observation::of(element);
        let added = HllMut::of(&mut bytes)
            .expect("adding leaves a HyperLogLog")
            .add(observation, SPARSE_LEN_BYTES_MAX);
        let Some(twin) = &mut twin else { continue };
        let value = &mut twin.values[observation.register];
        assert_eq!(added, Ok(*value < observation.rank));
        *value = (*value).max(observation.rank);
    }
    let hll = Hll::of(&bytes).expect("adding leaves a HyperLogLog");
    if hll.encoding() == Encoding::Sparse {
        assert!(encoding == Encoding::Sparse && bytes.len() <= len_before.max(SPARSE_LEN_BYTES_MAX));
    }
    assert!(twin.is_none() || registers(&bytes) == twin);
    let dense = HllMut::of(&mut bytes).expect("it is one, see above").make_dense();
    assert!(dense.is_ok() || twin.is_none());
    assert!(twin.is_none() || registers(&bytes) == twin);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_runs_end_in_an_answer(data in prop::collection::vec(any::<u8>(), 0..200)) {
            fuzz_hll(&data);
        }

        #[test]
        fn damaged_bytes_end_in_an_answer(
            elements in prop::collection::vec(any::<u8>(), 0..100),
            at in 0..64_usize,
            byte in any::<u8>(),
        ) {
            let mut bytes = empty();
            for element in elements.chunks(2) {
                let mut hll = HllMut::of(&mut bytes).unwrap();
                hll.add(Observation::of(element), 3000).unwrap();
            }
            let at = at % bytes.len();
            bytes[at] = byte;
            fuzz_hll(&bytes);
        }
    }
}
