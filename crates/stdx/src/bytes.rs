//! Comparison and packing of short byte strings without a loop or a call.

/// Returns true if two byte strings are equal. O(bytes). Strings of up to 32 bytes, as most names
/// and keys are, are compared without a loop or a call: by their first and last bytes, which may
/// overlap.
#[inline]
pub fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len()
        && match a.len() {
            0 => true,
            len @ 1..=3 => a[0] == b[0] && a[len / 2] == b[len / 2] && a[len - 1] == b[len - 1],
            4..=8 => same_ends(a, b, u32::from_ne_bytes),
            9..=16 => same_ends(a, b, u64::from_ne_bytes),
            17..=32 => same_ends(a, b, u128::from_ne_bytes),
            _ => a == b,
        }
}

/// Returns true if `a` and `b` have the same first `N` bytes and the same last `N` bytes. Both hold
/// at least `N` bytes. `number` converts `N` bytes to an integer.
#[inline]
fn same_ends<const N: usize, T: PartialEq>(a: &[u8], b: &[u8], number: fn([u8; N]) -> T) -> bool {
    let ends = |bytes: &[u8]| Some((number(*bytes.first_chunk()?), number(*bytes.last_chunk()?)));
    ends(a) == ends(b)
}

/// Packs a byte string of at most six bytes into a little-endian number, whose upper two bytes are
/// zero and free for other uses. Returns `None` for a longer string. O(1).
#[inline]
pub fn word(bytes: &[u8]) -> Option<u64> {
    let byte_at = |at: usize| u64::from(bytes[at]) << (8 * at);
    match bytes.len() {
        0 => Some(0),
        // The reads may overlap: a byte that is read twice is put at the same place both times.
        len @ 1..=3 => Some(byte_at(0) | byte_at(len / 2) | byte_at(len - 1)),
        len @ 4..=6 => {
            let first = u32::from_le_bytes(*bytes.first_chunk()?);
            let last = u32::from_le_bytes(*bytes.last_chunk()?);
            Some(u64::from(first) | u64::from(last) << (8 * (len - 4)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn up_to_six_bytes_are_a_word() {
        let bytes = [0x81, 0x92, 0xA3, 0xB4, 0xC5, 0xD6, 0xE7];
        for len in 0..=6 {
            let mut padded = [0; 8];
            padded[..len].copy_from_slice(&bytes[..len]);
            assert_eq!(word(&bytes[..len]), Some(u64::from_le_bytes(padded)), "{len}");
        }
        assert_eq!(word(&bytes), None);
    }

    #[test]
    fn strings_are_compared_to_their_last_byte() {
        for len in 0..70 {
            let bytes: Vec<u8> = (0..len).collect();
            assert!(same(&bytes, &bytes.clone()), "{len}");
            for at in 0..bytes.len() {
                let mut other = bytes.clone();
                other[at] ^= 1;
                assert!(!same(&bytes, &other), "{len} {at}");
                assert!(!same(&bytes, &bytes[..at]), "{len} {at}");
            }
        }
    }
}
