//! Dense registers: 6 bits each, little-endian, so that four registers are three bytes.
//!
//! ```text
//!  byte 0   byte 1   byte 2
//! [11000000|22221111|33333322]   bits written from the highest to the lowest of each byte
//! ```

use super::{Histogram, Observation, REGISTERS};

/// The length in bytes of all 16,384 dense registers.
pub(super) const LEN_BYTES: usize = REGISTERS / GROUP * GROUP_LEN_BYTES;

/// The number of dense registers (6 bits each) that together fill whole bytes.
const GROUP: usize = 4;
const GROUP_LEN_BYTES: usize = 3;
const VALUE_BITS: usize = 6;
const VALUE_MASK: u32 = 63;

fn unpack(group: [u8; GROUP_LEN_BYTES]) -> [u8; GROUP] {
    let word = u32::from_le_bytes([group[0], group[1], group[2], 0]);
    std::array::from_fn(|at| (word >> (at * VALUE_BITS) & VALUE_MASK) as u8)
}

fn pack(values: [u8; GROUP]) -> [u8; GROUP_LEN_BYTES] {
    let word = values.iter().rev().fold(0, |word, &value| word << VALUE_BITS | u32::from(value) & VALUE_MASK);
    let [low, middle, high, _] = word.to_le_bytes();
    [low, middle, high]
}

/// Returns the value of register `register` in the dense registers `packed`. O(1).
pub(super) fn get(packed: &[u8], register: usize) -> u8 {
    unpack(packed.as_chunks().0[register / GROUP])[register % GROUP]
}

/// Raises a dense register to the observation's value, if the register is lower. Returns true if it
/// was lower. O(1).
pub(super) fn raise(packed: &mut [u8], observation: Observation) -> bool {
    let group = &mut packed.as_chunks_mut().0[observation.register / GROUP];
    let mut values = unpack(*group);
    let value = &mut values[observation.register % GROUP];
    if *value >= observation.rank {
        return false;
    }
    *value = observation.rank;
    *group = pack(values);
    true
}

/// Appends the dense form of the registers' `values` to `bytes`.
pub(super) fn append(values: &[u8], bytes: &mut Vec<u8>) {
    values.as_chunks().0.iter().for_each(|group| bytes.extend_from_slice(&pack(*group)));
}

/// Raises each value in `values` to that of its register in the dense registers `packed`, if the
/// register's value is greater.
pub(super) fn merge_into(packed: &[u8], values: &mut [u8]) {
    for (group, values) in packed.as_chunks().0.iter().zip(values.as_chunks_mut::<GROUP>().0) {
        let other = unpack(*group);
        *values = std::array::from_fn(|at| values[at].max(other[at]));
    }
}

/// Counts the dense registers that hold each value.
pub(super) fn histogram(packed: &[u8]) -> Histogram {
    let mut histogram = Histogram::default();
    for group in packed.as_chunks().0 {
        unpack(*group).into_iter().for_each(|value| histogram.add(value, 1));
    }
    histogram
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_registers_are_three_bytes() {
        assert_eq!(pack([0b11_1111, 0, 0, 0]), [0b0011_1111, 0, 0]);
        assert_eq!(pack([0, 0b11_1111, 0, 0]), [0b1100_0000, 0b1111, 0]);
        assert_eq!(pack([0, 0, 0b11_1111, 0]), [0, 0b1111_0000, 0b11]);
        assert_eq!(pack([0, 0, 0, 0b11_1111]), [0, 0, 0b1111_1100]);
        for value in 0..64 {
            let values = [value, 63 - value, value ^ 21, value];
            assert_eq!(unpack(pack(values)), values);
        }
    }
}
