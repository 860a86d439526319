//! Comparing short byte strings.

/// Whether two byte strings are the same. Those of up to 32 bytes, as names and keys are, are compared without a
/// loop or a call: by their ends, which overlap. O(bytes).
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

/// Whether the first and the last `N` bytes are the same; there are so many.
#[inline]
fn same_ends<const N: usize, T: PartialEq>(a: &[u8], b: &[u8], number: fn([u8; N]) -> T) -> bool {
    let ends = |bytes: &[u8]| Some((number(*bytes.first_chunk()?), number(*bytes.last_chunk()?)));
    ends(a) == ends(b)
}

#[cfg(test)]
mod tests {
    use super::*;

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
