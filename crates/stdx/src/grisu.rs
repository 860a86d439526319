//! Short decimal digits of a double, by Grisu2 (Loitsch, "Printing floating-point numbers quickly
//! and accurately with integers", PLDI 2010).
//!
//! The digits always parse back to the same double. For 99.9 % of doubles they are the shortest
//! that do; for the rest they are one or two digits longer, and 1e23 prints as
//! 99999999999999990000000. The standard library's printer, whose digits are always the shortest,
//! is not used: replies and stored texts must agree with those of Redis, which uses Grisu2.
//!
//! Method: First, scale the double by a power of ten from a table, so that its integer part has few
//! bits. Then produce digits of the largest number that still parses back to this double, until the
//! remainder is inside the interval of such numbers. Last, lower the final digit to get closer to
//! the double itself. All arithmetic is on 64-bit integers; time is O(digits).

use std::f64::consts::LOG10_2;

/// The size of the buffer for the decimal digits of a double. Grisu2 writes at most 17, which
/// identify any double.
pub(crate) const DIGITS_MAX: usize = 18;

/// A floating-point number in the form `significand × 2^exponent`.
#[derive(Clone, Copy)]
struct Scaled {
    significand: u64,
    exponent: i32,
}

impl Scaled {
    fn normalized(self) -> Self {
        let shift = self.significand.leading_zeros();
        Self { significand: self.significand << shift, exponent: self.exponent - shift as i32 }
    }

    /// Returns the product of two scaled numbers, with its significand rounded to 64 bits.
    fn times(self, other: Self) -> Self {
        let product = self.significand as u128 * other.significand as u128;
        Self {
            significand: ((product + (1 << 63)) >> 64) as u64,
            exponent: self.exponent + other.exponent + 64,
        }
    }
}

/// Writes the digits of `value` (positive and finite). Returns the number of digits and the decimal
/// exponent of the last digit.
pub(crate) fn shortest_digits(value: f64, digits: &mut [u8; DIGITS_MAX]) -> (usize, i32) {
    debug_assert!(value > 0.0 && value.is_finite());
    let bits = value.to_bits();
    let fraction = bits & ((1 << 52) - 1);
    let number = match (bits >> 52) as i32 {
        0 => Scaled { significand: fraction, exponent: -1074 },
        biased => Scaled { significand: fraction | 1 << 52, exponent: biased - 1075 },
    };
    // The interval ends half way to each neighbouring double. The lower neighbour of a power of two
    // is only half as far away as the upper one.
    let upper =
        Scaled { significand: 2 * number.significand + 1, exponent: number.exponent - 1 }.normalized();
    let lower = if fraction == 0 {
        Scaled { significand: 4 * number.significand - 1, exponent: number.exponent - 2 }
    } else {
        Scaled { significand: 2 * number.significand - 1, exponent: number.exponent - 1 }
    };
    let lower = Scaled {
        significand: lower.significand << (lower.exponent - upper.exponent),
        exponent: upper.exponent,
    };

    let (power, power_exponent) = power_of_ten_for(upper.exponent);
    let number = number.normalized().times(power);
    let upper = upper.times(power);
    let lower = lower.times(power);
    // The products may be off by one unit: narrow the interval by one unit at each end.
    let (upper, below) = (Scaled { significand: upper.significand - 1, ..upper }, lower.significand + 1);
    let interval = Interval {
        upper,
        width: upper.significand - below,
        to_number: upper.significand - number.significand,
    };
    let (len, scale) = interval.digits(digits);
    (len, scale - power_exponent)
}

/// The interval of numbers that parse back to the double being printed. All its values are
/// multiplied by a power of ten from the table.
struct Interval {
    upper: Scaled,
    /// The distance from the lower end of the interval to its upper end.
    width: u64,
    /// The distance from the double being printed to the upper end of the interval.
    to_number: u64,
}

impl Interval {
    /// Writes decimal digits of the interval's upper end until the remainder lies inside the
    /// interval. Returns the number of digits and the decimal exponent of the last digit.
    fn digits(&self, digits: &mut [u8; DIGITS_MAX]) -> (usize, i32) {
        let shift = -self.upper.exponent;
        let one = 1_u64 << shift;
        let mut integer = self.upper.significand >> shift;
        let mut rest = self.upper.significand & (one - 1);
        let mut len = 0;
        for scale in (0..10).rev() {
            let unit = 10_u64.pow(scale);
            let digit = integer / unit;
            integer %= unit;
            if digit > 0 || len > 0 {
                digits[len] = b'0' + digit as u8;
                len += 1;
            }
            let left = (integer << shift) + rest;
            if left <= self.width {
                let ends = Bounds { width: self.width, to_number: self.to_number };
                ends.step_down(&mut digits[len - 1], left, unit << shift);
                return (len, scale as i32);
            }
        }
        let mut width = self.width;
        let mut ten_power = 1_u64;
        for scale in 1.. {
            rest *= 10;
            width *= 10;
            ten_power = ten_power.wrapping_mul(10);
            let digit = rest >> shift;
            rest &= one - 1;
            if digit > 0 || len > 0 {
                digits[len] = b'0' + digit as u8;
                len += 1;
            }
            if rest < width {
                let ends = Bounds { width, to_number: self.to_number.wrapping_mul(ten_power) };
                ends.step_down(&mut digits[len - 1], rest, one);
                return (len, -scale);
            }
        }
        unreachable!("the width grows tenfold with each digit and ends the loop")
    }
}

/// The distances of an [`Interval`] at the time when the last digit is written. They were
/// multiplied by ten for each digit after the decimal point.
struct Bounds {
    width: u64,
    to_number: u64,
}

impl Bounds {
    /// Lowers the last digit while that brings the digits closer to the double and keeps them
    /// inside the interval. `left` is the distance from the digits to the upper end; `unit` is the
    /// value of one in the last digit.
    fn step_down(&self, last: &mut u8, mut left: u64, unit: u64) {
        while left < self.to_number
            && self.width - left >= unit
            && (left + unit < self.to_number || self.to_number - left > left + unit - self.to_number)
        {
            *last -= 1;
            left += unit;
        }
    }
}

/// Returns a power of ten and its decimal exponent. The product of that power and a number with
/// this binary `exponent` has a binary exponent between -60 and -32. So the integer part of the
/// product fits 32 bits, and a digit times ten does not overflow.
fn power_of_ten_for(exponent: i32) -> (Scaled, i32) {
    // The decimal exponent to start at, rounded towards zero: log10(2) times the negated sum of the
    // binary exponent and 87, the length of the table. If two powers fit, this start decides which
    // one is taken.
    let wanted = (f64::from(-(exponent + POWERS.len() as i32)) * LOG10_2) as i32;
    let mut index = ((wanted - POWER_MIN) / POWER_STEP) as usize;
    loop {
        let power_exponent = POWER_MIN + index as i32 * POWER_STEP;
        // floor(log2(10^n)) - 63, exact for the exponents of the table.
        let power = Scaled { significand: POWERS[index], exponent: ((power_exponent * 217_706) >> 16) - 63 };
        match exponent + power.exponent + 64 {
            ..-60 => index += 1,
            -60..=-32 => return (power, power_exponent),
            _ => index -= 1,
        }
    }
}

const POWER_MIN: i32 = -348;
const POWER_STEP: i32 = 8;

/// The rounded top 64 bits of 10^-348, 10^-340, … 10^340.
#[rustfmt::skip]
const POWERS: [u64; 87] = [
    0xfa8f_d5a0_081c_0288, 0xbaae_e17f_a23e_bf76, 0x8b16_fb20_3055_ac76, 0xcf42_894a_5dce_35ea,
    0x9a6b_b0aa_5565_3b2d, 0xe61a_cf03_3d1a_45df, 0xab70_fe17_c79a_c6ca, 0xff77_b1fc_bebc_dc4f,
    0xbe56_91ef_416b_d60c, 0x8dd0_1fad_907f_fc3c, 0xd351_5c28_3155_9a83, 0x9d71_ac8f_ada6_c9b5,
    0xea9c_2277_23ee_8bcb, 0xaecc_4991_4078_536d, 0x823c_1279_5db6_ce57, 0xc210_9436_4dfb_5637,
    0x9096_ea6f_3848_984f, 0xd774_85cb_2582_3ac7, 0xa086_cfcd_97bf_97f4, 0xef34_0a98_172a_ace5,
    0xb238_67fb_2a35_b28e, 0x84c8_d4df_d2c6_3f3b, 0xc5dd_4427_1ad3_cdba, 0x936b_9fce_bb25_c996,
    0xdbac_6c24_7d62_a584, 0xa3ab_6658_0d5f_daf6, 0xf3e2_f893_dec3_f126, 0xb5b5_ada8_aaff_80b8,
    0x8762_5f05_6c7c_4a8b, 0xc9bc_ff60_34c1_3053, 0x964e_858c_91ba_2655, 0xdff9_7724_7029_7ebd,
    0xa6df_bd9f_b8e5_b88f, 0xf8a9_5fcf_8874_7d94, 0xb944_7093_8fa8_9bcf, 0x8a08_f0f8_bf0f_156b,
    0xcdb0_2555_6531_31b6, 0x993f_e2c6_d07b_7fac, 0xe45c_10c4_2a2b_3b06, 0xaa24_2499_6973_92d3,
    0xfd87_b5f2_8300_ca0e, 0xbce5_0864_9211_1aeb, 0x8cbc_cc09_6f50_88cc, 0xd1b7_1758_e219_652c,
    0x9c40_0000_0000_0000, 0xe8d4_a510_0000_0000, 0xad78_ebc5_ac62_0000, 0x813f_3978_f894_0984,
    0xc097_ce7b_c907_15b3, 0x8f7e_32ce_7bea_5c70, 0xd5d2_38a4_abe9_8068, 0x9f4f_2726_179a_2245,
    0xed63_a231_d4c4_fb27, 0xb0de_6538_8cc8_ada8, 0x83c7_088e_1aab_65db, 0xc45d_1df9_4271_1d9a,
    0x924d_692c_a61b_e758, 0xda01_ee64_1a70_8dea, 0xa26d_a399_9aef_774a, 0xf209_787b_b47d_6b85,
    0xb454_e4a1_79dd_1877, 0x865b_8692_5b9b_c5c2, 0xc835_53c5_c896_5d3d, 0x952a_b45c_fa97_a0b3,
    0xde46_9fbd_99a0_5fe3, 0xa59b_c234_db39_8c25, 0xf6c6_9a72_a398_9f5c, 0xb7dc_bf53_54e9_bece,
    0x88fc_f317_f222_41e2, 0xcc20_ce9b_d35c_78a5, 0x9816_5af3_7b21_53df, 0xe2a0_b5dc_971f_303a,
    0xa8d9_d153_5ce3_b396, 0xfb9b_7cd9_a4a7_443c, 0xbb76_4c4c_a7a4_4410, 0x8bab_8eef_b640_9c1a,
    0xd01f_ef10_a657_842c, 0x9b10_a4e5_e991_3129, 0xe710_9bfb_a19c_0c9d, 0xac28_20d9_623b_f429,
    0x8044_4b5e_7aa7_cf85, 0xbf21_e440_03ac_dd2d, 0x8e67_9c2f_5e44_ff8f, 0xd433_179d_9c8c_b841,
    0x9e19_db92_b4e3_1ba9, 0xeb96_bf6e_badf_77d9, 0xaf87_023b_9bf0_ee6b,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_read_back_as_the_same_double() {
        let mut state = 1_u64;
        for i in 0..300_000_u64 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let bits = match i % 3 {
                0 => state >> 1,
                1 => (state >> 1) & !((1 << 52) - 1),
                _ => state >> (12 + state % 50),
            };
            let value = f64::from_bits(bits);
            if !value.is_finite() || value == 0.0 {
                continue;
            }
            let mut digits = [0; DIGITS_MAX];
            let (len, scale) = shortest_digits(value, &mut digits);
            let text = format!("{}e{scale}", std::str::from_utf8(&digits[..len]).expect("digits"));
            assert_eq!(text.parse::<f64>().expect("a number"), value, "{text}");
        }
    }
}
