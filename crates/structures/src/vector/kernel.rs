//! Products and differences of rows, by the vector instructions of the processor that runs.
//!
//! Rows have a length that is a multiple of 16 bytes, filled with zeros, so no form needs a loop
//! for single values. Each form has a scalar twin, which tests compare with the others. Sums of
//! bytes are exact in all of them; sums of floats differ in the last bits, because the order of
//! additions differs.
//!
//! | form | f32 | i8 | bits |
//! |---|---|---|---|
//! | AVX-512 | 4 sums of 16, fused | `vpdpbusd` with one side moved to unsigned | `vpopcntq` |
//! | AVX2 | 4 sums of 8, fused | widened to 16 bits, `vpmaddwd` | `popcnt` |
//! | NEON | 4 sums of 4, fused | `smull`, `sadalp` | `cnt`, `uadalp` |
//!
//! Rejected: `simsimd`, which is C; `pulp` and `wide`, which have no product of bytes.

/// The vector instructions of the processor with which distances are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Simd {
    /// No vector instructions: only those that every processor has.
    Scalar,
    /// The instructions AVX2, FMA and POPCNT of x86-64.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// The instructions AVX-512 of x86-64 with the extensions BW, VNNI and VPOPCNTDQ.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// The instructions NEON of aarch64.
    #[cfg(target_arch = "aarch64")]
    Neon,
}

impl Simd {
    /// Returns the best vector instructions that this processor has.
    pub(super) fn detect() -> Self {
        *Self::available().last().expect("the scalar form is always there")
    }

    /// Returns all sets of instructions that this processor can run, the best one last.
    pub(super) fn available() -> Vec<Self> {
        #[allow(unused_mut, reason = "no other form on some processors")]
        let mut forms = vec![Simd::Scalar];
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected as has;
            if has!("avx2") && has!("fma") && has!("popcnt") {
                forms.push(Simd::Avx2);
            }
            if has!("avx512f") && has!("avx512bw") && has!("avx512vnni") && has!("avx512vpopcntdq") {
                forms.push(Simd::Avx512);
            }
        }
        #[cfg(target_arch = "aarch64")]
        if std::arch::is_aarch64_feature_detected!("neon") {
            forms.push(Simd::Neon);
        }
        forms
    }

    /// Returns the sum of the products of two rows of little-endian floats.
    #[inline]
    pub(super) fn dot_f32(self, a: &[u8], b: &[u8]) -> f32 {
        debug_assert!(a.len() == b.len() && a.len().is_multiple_of(16));
        match self {
            Simd::Scalar => scalar::dot_f32(a, b),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `available` found the instructions.
            Simd::Avx2 => unsafe { avx2::dot_f32(a, b) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `available` found the instructions.
            Simd::Avx512 => unsafe { avx512::dot_f32(a, b) },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: `available` found the instructions.
            Simd::Neon => unsafe { neon::dot_f32(a, b) },
        }
    }

    /// Returns the sum of the products of two rows of signed bytes. Exact for rows up to
    /// [`super::DIM_MAX`].
    #[inline]
    pub(super) fn dot_i8(self, a: &[u8], b: &[u8]) -> i32 {
        debug_assert!(a.len() == b.len() && a.len().is_multiple_of(16));
        match self {
            Simd::Scalar => scalar::dot_i8(a, b),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `available` found the instructions.
            Simd::Avx2 => unsafe { avx2::dot_i8(a, b) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `available` found the instructions.
            Simd::Avx512 => unsafe { avx512::dot_i8(a, b) },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: `available` found the instructions.
            Simd::Neon => unsafe { neon::dot_i8(a, b) },
        }
    }

    /// Returns the number of bits that differ in two rows.
    #[inline]
    pub(super) fn different_bits(self, a: &[u8], b: &[u8]) -> u32 {
        debug_assert!(a.len() == b.len() && a.len().is_multiple_of(16));
        match self {
            Simd::Scalar => scalar::different_bits(a, b),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `available` found the instructions.
            Simd::Avx2 => unsafe { avx2::different_bits(a, b) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `available` found the instructions.
            Simd::Avx512 => unsafe { avx512::different_bits(a, b) },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: `available` found the instructions.
            Simd::Neon => unsafe { neon::different_bits(a, b) },
        }
    }
}

/// The products and differences of rows for every processor.
mod scalar {
    fn float(bytes: &[u8; 16], lane: usize) -> f32 {
        let at = lane * 4;
        f32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
    }

    pub(super) fn dot_f32(a: &[u8], b: &[u8]) -> f32 {
        let mut sums = [0.0f32; 4];
        for (a, b) in a.as_chunks::<16>().0.iter().zip(b.as_chunks::<16>().0) {
            for (lane, sum) in sums.iter_mut().enumerate() {
                *sum += float(a, lane) * float(b, lane);
            }
        }
        sums.iter().sum()
    }

    pub(super) fn dot_i8(a: &[u8], b: &[u8]) -> i32 {
        a.iter().zip(b).map(|(a, b)| i32::from(*a as i8) * i32::from(*b as i8)).sum()
    }

    pub(super) fn different_bits(a: &[u8], b: &[u8]) -> u32 {
        let words = a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0);
        words.map(|(a, b)| (u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b)).count_ones()).sum()
    }
}

/// The products and differences of rows with AVX2, FMA and POPCNT.
#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    #[inline]
    #[target_feature(enable = "avx2,fma,popcnt")]
    fn load(bytes: &[u8; 32]) -> __m256 {
        // SAFETY: the array has the 32 bytes that are loaded, at any alignment.
        unsafe { _mm256_loadu_ps(bytes.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,popcnt")]
    fn load_half(bytes: &[u8; 16]) -> __m128i {
        // SAFETY: the array has the 16 bytes that are loaded, at any alignment.
        unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,popcnt")]
    fn sum_f32(sums: __m128) -> f32 {
        let pairs = _mm_add_ps(sums, _mm_movehl_ps(sums, sums));
        _mm_cvtss_f32(_mm_add_ss(pairs, _mm_shuffle_ps::<1>(pairs, pairs)))
    }

    #[target_feature(enable = "avx2,fma,popcnt")]
    pub(super) fn dot_f32(a: &[u8], b: &[u8]) -> f32 {
        let (a, a_half) = a.as_chunks::<32>();
        let (b, b_half) = b.as_chunks::<32>();
        let (a4, a1) = a.as_chunks::<4>();
        let (b4, b1) = b.as_chunks::<4>();
        let zero = _mm256_setzero_ps();
        let (mut sum0, mut sum1, mut sum2, mut sum3) = (zero, zero, zero, zero);
        for (a, b) in a4.iter().zip(b4) {
            sum0 = _mm256_fmadd_ps(load(&a[0]), load(&b[0]), sum0);
            sum1 = _mm256_fmadd_ps(load(&a[1]), load(&b[1]), sum1);
            sum2 = _mm256_fmadd_ps(load(&a[2]), load(&b[2]), sum2);
            sum3 = _mm256_fmadd_ps(load(&a[3]), load(&b[3]), sum3);
        }
        for (a, b) in a1.iter().zip(b1) {
            sum0 = _mm256_fmadd_ps(load(a), load(b), sum0);
        }
        let sum = _mm256_add_ps(_mm256_add_ps(sum0, sum1), _mm256_add_ps(sum2, sum3));
        let mut sum = _mm_add_ps(_mm256_castps256_ps128(sum), _mm256_extractf128_ps::<1>(sum));
        for (a, b) in a_half.as_chunks::<16>().0.iter().zip(b_half.as_chunks::<16>().0) {
            sum = _mm_fmadd_ps(_mm_castsi128_ps(load_half(a)), _mm_castsi128_ps(load_half(b)), sum);
        }
        sum_f32(sum)
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,popcnt")]
    fn products(a: &[u8; 16], b: &[u8; 16]) -> __m256i {
        _mm256_madd_epi16(_mm256_cvtepi8_epi16(load_half(a)), _mm256_cvtepi8_epi16(load_half(b)))
    }

    #[target_feature(enable = "avx2,fma,popcnt")]
    pub(super) fn dot_i8(a: &[u8], b: &[u8]) -> i32 {
        let (a2, a1) = a.as_chunks::<16>().0.as_chunks::<2>();
        let (b2, b1) = b.as_chunks::<16>().0.as_chunks::<2>();
        let (mut even, mut odd) = (_mm256_setzero_si256(), _mm256_setzero_si256());
        for (a, b) in a2.iter().zip(b2) {
            even = _mm256_add_epi32(even, products(&a[0], &b[0]));
            odd = _mm256_add_epi32(odd, products(&a[1], &b[1]));
        }
        for (a, b) in a1.iter().zip(b1) {
            even = _mm256_add_epi32(even, products(a, b));
        }
        let sum = _mm256_add_epi32(even, odd);
        let sum = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256::<1>(sum));
        let sum = _mm_add_epi32(sum, _mm_shuffle_epi32::<0b00_00_11_10>(sum));
        _mm_cvtsi128_si32(_mm_add_epi32(sum, _mm_shuffle_epi32::<0b00_00_00_01>(sum)))
    }

    #[target_feature(enable = "avx2,fma,popcnt")]
    pub(super) fn different_bits(a: &[u8], b: &[u8]) -> u32 {
        super::scalar::different_bits(a, b)
    }
}

/// The products and differences of rows with AVX-512, BW, VNNI and VPOPCNTDQ.
#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::x86_64::*;

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni,avx512vpopcntdq")]
    fn load(bytes: &[u8; 64]) -> __m512i {
        // SAFETY: the array has the 64 bytes that are loaded, at any alignment.
        unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
    }

    /// Loads fewer than 64 bytes into a vector register, with zeros after them.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni,avx512vpopcntdq")]
    fn load_rest(bytes: &[u8]) -> __m512i {
        debug_assert!(bytes.len() < 64);
        let mask = (1u64 << (bytes.len() % 64)) - 1;
        // SAFETY: the mask selects only bytes of the slice; others are not read.
        unsafe { _mm512_maskz_loadu_epi8(mask, bytes.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni,avx512vpopcntdq")]
    fn fused(a: __m512i, b: __m512i, sum: __m512) -> __m512 {
        _mm512_fmadd_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), sum)
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vnni,avx512vpopcntdq")]
    pub(super) fn dot_f32(a: &[u8], b: &[u8]) -> f32 {
        let (a, a_rest) = a.as_chunks::<64>();
        let (b, b_rest) = b.as_chunks::<64>();
        let (a4, a1) = a.as_chunks::<4>();
        let (b4, b1) = b.as_chunks::<4>();
        let zero = _mm512_setzero_ps();
        let (mut sum0, mut sum1, mut sum2, mut sum3) = (zero, zero, zero, zero);
        for (a, b) in a4.iter().zip(b4) {
            sum0 = fused(load(&a[0]), load(&b[0]), sum0);
            sum1 = fused(load(&a[1]), load(&b[1]), sum1);
            sum2 = fused(load(&a[2]), load(&b[2]), sum2);
            sum3 = fused(load(&a[3]), load(&b[3]), sum3);
        }
        for (a, b) in a1.iter().zip(b1) {
            sum0 = fused(load(a), load(b), sum0);
        }
        if !a_rest.is_empty() {
            sum1 = fused(load_rest(a_rest), load_rest(b_rest), sum1);
        }
        _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(sum0, sum1), _mm512_add_ps(sum2, sum3)))
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vnni,avx512vpopcntdq")]
    pub(super) fn dot_i8(a: &[u8], b: &[u8]) -> i32 {
        let (a, a_rest) = a.as_chunks::<64>();
        let (b, b_rest) = b.as_chunks::<64>();
        // The instruction multiplies unsigned by signed bytes: `(a + 128) * b`, of which the
        // second sum takes `128 * b` away. Sums may wrap; their difference fits.
        let shift = _mm512_set1_epi8(-128);
        let (mut sum, mut shifted) = (_mm512_setzero_si512(), _mm512_setzero_si512());
        for (a, b) in a.iter().zip(b) {
            let b = load(b);
            sum = _mm512_dpbusd_epi32(sum, _mm512_xor_si512(load(a), shift), b);
            shifted = _mm512_dpbusd_epi32(shifted, shift, b);
        }
        if !a_rest.is_empty() {
            let b = load_rest(b_rest);
            sum = _mm512_dpbusd_epi32(sum, _mm512_xor_si512(load_rest(a_rest), shift), b);
            shifted = _mm512_dpbusd_epi32(shifted, shift, b);
        }
        _mm512_reduce_add_epi32(_mm512_sub_epi32(sum, shifted))
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vnni,avx512vpopcntdq")]
    pub(super) fn different_bits(a: &[u8], b: &[u8]) -> u32 {
        let (a, a_rest) = a.as_chunks::<64>();
        let (b, b_rest) = b.as_chunks::<64>();
        let mut sum = _mm512_setzero_si512();
        for (a, b) in a.iter().zip(b) {
            sum = _mm512_add_epi64(sum, _mm512_popcnt_epi64(_mm512_xor_si512(load(a), load(b))));
        }
        if !a_rest.is_empty() {
            let bits = _mm512_xor_si512(load_rest(a_rest), load_rest(b_rest));
            sum = _mm512_add_epi64(sum, _mm512_popcnt_epi64(bits));
        }
        _mm512_reduce_add_epi64(sum) as u32
    }
}

/// The products and differences of rows with NEON instructions, for aarch64.
#[cfg(target_arch = "aarch64")]
mod neon {
    use std::arch::aarch64::*;

    #[inline]
    #[target_feature(enable = "neon")]
    fn load(bytes: &[u8; 16]) -> uint8x16_t {
        // SAFETY: the array has the 16 bytes that are loaded, at any alignment.
        unsafe { vld1q_u8(bytes.as_ptr()) }
    }

    #[inline]
    #[target_feature(enable = "neon")]
    fn fused(a: &[u8; 16], b: &[u8; 16], sum: float32x4_t) -> float32x4_t {
        vfmaq_f32(sum, vreinterpretq_f32_u8(load(a)), vreinterpretq_f32_u8(load(b)))
    }

    #[target_feature(enable = "neon")]
    pub(super) fn dot_f32(a: &[u8], b: &[u8]) -> f32 {
        let (a4, a1) = a.as_chunks::<16>().0.as_chunks::<4>();
        let (b4, b1) = b.as_chunks::<16>().0.as_chunks::<4>();
        let zero = vdupq_n_f32(0.0);
        let (mut sum0, mut sum1, mut sum2, mut sum3) = (zero, zero, zero, zero);
        for (a, b) in a4.iter().zip(b4) {
            sum0 = fused(&a[0], &b[0], sum0);
            sum1 = fused(&a[1], &b[1], sum1);
            sum2 = fused(&a[2], &b[2], sum2);
            sum3 = fused(&a[3], &b[3], sum3);
        }
        for (a, b) in a1.iter().zip(b1) {
            sum0 = fused(a, b, sum0);
        }
        vaddvq_f32(vaddq_f32(vaddq_f32(sum0, sum1), vaddq_f32(sum2, sum3)))
    }

    #[target_feature(enable = "neon")]
    pub(super) fn dot_i8(a: &[u8], b: &[u8]) -> i32 {
        let (mut low, mut high) = (vdupq_n_s32(0), vdupq_n_s32(0));
        for (a, b) in a.as_chunks::<16>().0.iter().zip(b.as_chunks::<16>().0) {
            let (a, b) = (vreinterpretq_s8_u8(load(a)), vreinterpretq_s8_u8(load(b)));
            low = vpadalq_s16(low, vmull_s8(vget_low_s8(a), vget_low_s8(b)));
            high = vpadalq_s16(high, vmull_high_s8(a, b));
        }
        vaddvq_s32(vaddq_s32(low, high))
    }

    #[target_feature(enable = "neon")]
    pub(super) fn different_bits(a: &[u8], b: &[u8]) -> u32 {
        let mut sum = vdupq_n_u64(0);
        for (a, b) in a.as_chunks::<16>().0.iter().zip(b.as_chunks::<16>().0) {
            let bits = vcntq_u8(veorq_u8(load(a), load(b)));
            sum = vpadalq_u32(sum, vpaddlq_u16(vpaddlq_u8(bits)));
        }
        vaddvq_u64(sum) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(a: &[u8], b: &[u8]) {
        let floats = |bytes: &[u8]| -> Vec<u8> {
            bytes.iter().flat_map(|byte| f32::from(*byte as i8).to_le_bytes()).collect()
        };
        let (floats_a, floats_b) = (floats(a), floats(b));
        let exact: i64 = a.iter().zip(b).map(|(a, b)| i64::from(*a as i8) * i64::from(*b as i8)).sum();
        let bits: u32 = a.iter().zip(b).map(|(a, b)| (a ^ b).count_ones()).sum();
        for simd in Simd::available() {
            assert_eq!(i64::from(simd.dot_i8(a, b)), exact, "{simd:?}");
            assert_eq!(simd.different_bits(a, b), bits, "{simd:?}");
            // Sums of whole numbers below 2²⁴ are exact in any order.
            assert_eq!(simd.dot_f32(&floats_a, &floats_b), exact as f32, "{simd:?}");
        }
    }

    #[test]
    fn every_form_agrees_for_every_length() {
        let mut number = 7u32;
        let mut byte = || {
            number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (number >> 24) as u8
        };
        for len in (0..=512).step_by(16) {
            let (a, b): (Vec<u8>, Vec<u8>) = (0..len).map(|_| (byte(), byte())).unzip();
            check(&a, &b);
        }
    }

    #[test]
    fn the_largest_products_of_the_longest_rows_are_exact() {
        let lowest = vec![128u8; super::super::DIM_MAX];
        let highest = vec![127u8; super::super::DIM_MAX];
        for simd in Simd::available() {
            assert_eq!(simd.dot_i8(&lowest, &lowest), 1 << 30, "{simd:?}");
            assert_eq!(simd.dot_i8(&lowest, &highest), -128 * 127 * (1 << 16), "{simd:?}");
            assert_eq!(simd.dot_i8(&highest, &lowest), -128 * 127 * (1 << 16), "{simd:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn floats_agree_within_their_precision(values in prop::collection::vec(-1.0f32..1.0, 1..70)) {
            let row: Vec<u8> = values.iter().flat_map(|value| [value, &0.5, &-1.0, &0.25])
                .flat_map(|value| value.to_le_bytes()).collect();
            let other: Vec<u8> = row.iter().rev().copied().collect::<Vec<u8>>().as_chunks::<4>().0.iter()
                .flat_map(|bytes| bytes.iter().rev().copied()).collect();
            let scalar = Simd::Scalar.dot_f32(&row, &other);
            for simd in Simd::available() {
                prop_assert!((simd.dot_f32(&row, &other) - scalar).abs() < 1e-3, "{:?}", simd);
            }
        }
    }
}
