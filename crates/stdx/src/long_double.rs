//! The 80-bit floating point numbers of x87, computed in software.
//!
//! INCRBYFLOAT and HINCRBYFLOAT compute with C's `long double` of x86-64. Results are rounded to a
//! 64-bit significand and printed with 17 decimals, without trailing zeros. So 0.1 + 0.2 is 0.3 and
//! not 0.30000000000000004. `rustc_apfloat` parses and adds; this module prints. C prints the exact
//! value: the digits of `significand × 2^exponent`, rounded half to even at the seventeenth
//! decimal. Time and memory are O(1) except for very large numbers, whose up to 4,933 digits take
//! some microseconds.

use std::fmt;

use rustc_apfloat::ieee::X87DoubleExtended;
use rustc_apfloat::{Float, FloatConvert, Round, ieee};

use crate::number::{Form, NumberText};

/// The maximum length in bytes of a text that is parsed as an 80-bit number.
const TEXT_LEN_MAX: usize = 5 * 1024 - 1;
/// The maximum number of printed digits after the decimal point.
const DECIMALS: usize = 17;
/// Ten to the power of [`DECIMALS`], the factor that makes all decimals an integer.
const DECIMALS_UNIT: u128 = 100_000_000_000_000_000;

/// An 80-bit number, finite or infinite, never NaN.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct LongDouble(X87DoubleExtended);

impl LongDouble {
    /// The 80-bit number zero.
    pub const ZERO: Self = Self(X87DoubleExtended::ZERO);

    /// Parses a number as C's `strtold` does: decimal, hexadecimal or infinity. All of `text`, at
    /// most 5,119 bytes, must be the number. `None` for anything else and for NaN, overflow and
    /// underflow to zero. O(bytes²) for long texts.
    pub fn parse(text: &[u8]) -> Option<Self> {
        if text.len() > TEXT_LEN_MAX {
            return None;
        }
        let number = NumberText::scan(text)?;
        let magnitude: X87DoubleExtended = number.to_apfloat()?;
        let overflows = magnitude.is_infinite() && number.form != Form::Infinity;
        let underflows = magnitude.is_zero() && number.form != Form::Zero;
        (!overflows && !underflows).then_some(Self(if number.negative { -magnitude } else { magnitude }))
    }

    /// Converts a double that is not NaN to an 80-bit number, without loss.
    pub fn from_f64(value: f64) -> Self {
        assert!(!value.is_nan(), "NaN is no number");
        // 80 bits represent every double exactly.
        Self(ieee::Double::from_bits(value.to_bits() as u128).convert(&mut false).value)
    }

    /// Returns the double that is nearest to the 80-bit number, or infinity if the number is out of
    /// the range of doubles.
    pub fn to_f64(self) -> f64 {
        let converted: ieee::Double = self.0.convert(&mut false).value;
        f64::from_bits(converted.to_bits() as u64)
    }

    /// Returns the largest finite 80-bit number.
    pub fn largest() -> Self {
        Self(X87DoubleExtended::largest())
    }

    /// Returns the rounded sum of two 80-bit numbers; `None` if it is NaN or infinite.
    pub fn checked_add(self, other: Self) -> Option<Self> {
        let sum = self.0.add_r(other.0, Round::NearestTiesToEven).value;
        sum.is_finite().then_some(Self(sum))
    }

    /// Formats the number with up to 17 significant digits, as C's `%.17Lg` does: with an exponent
    /// below 1e-4 and from 1e17 on, without trailing zeros.
    pub fn text_of_17_digits(self) -> String {
        if self.0.is_infinite() || self.0.is_zero() {
            return self.to_string();
        }
        // The digits with an exponent, in one of several forms.
        let text = format!("{:.17}", self.0);
        let (sign, text) = text.strip_prefix('-').map_or(("", &*text), |magnitude| ("-", magnitude));
        let (mantissa, exponent) = text.split_once('E').unwrap_or((text, "0"));
        let (whole, decimals) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = format!("{whole}{decimals}");
        let leading = all.len() - all.trim_start_matches('0').len();
        let digits = all.trim_matches('0');
        let exponent: i32 = exponent.parse().expect("the exponent is an integer");
        let exponent = exponent + whole.len() as i32 - 1 - leading as i32;
        if !(-4..17).contains(&exponent) {
            let (first, rest) = digits.split_at(1);
            let point = if rest.is_empty() { "" } else { "." };
            let exponent_sign = if exponent < 0 { '-' } else { '+' };
            return format!("{sign}{first}{point}{rest}e{exponent_sign}{:02}", exponent.abs());
        }
        let Ok(point) = usize::try_from(exponent + 1) else {
            return format!("{sign}0.{}{digits}", "0".repeat((-1 - exponent) as usize));
        };
        match digits.split_at_checked(point) {
            Some((whole, "")) => format!("{sign}{whole}"),
            Some(("", decimals)) => format!("{sign}0.{decimals}"),
            Some((whole, decimals)) => format!("{sign}{whole}.{decimals}"),
            None => format!("{sign}{digits}{}", "0".repeat(point - digits.len())),
        }
    }

    /// Returns true unless the number is infinite.
    pub fn is_finite(self) -> bool {
        self.0.is_finite()
    }
}

impl std::ops::Neg for LongDouble {
    type Output = Self;
    fn neg(self) -> Self {
        Self(-self.0)
    }
}

/// Formats the number with up to 17 decimals, without trailing zeros or exponent, never as `-0`.
impl fmt::Display for LongDouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The x87 layout: a 64-bit significand with an explicit leading one, a 15-bit exponent, a
        // sign bit.
        let bits = self.0.to_bits();
        let sign = if self.0.is_negative() { "-" } else { "" };
        if self.0.is_infinite() {
            return write!(f, "{sign}inf");
        }
        let biased = (bits >> 64) as i32 & 0x7fff;
        // Denormals have the exponent of the smallest normal numbers.
        let exponent = biased.max(1) - 16383 - 63;
        let text = magnitude_text(bits as u64, exponent);
        write!(f, "{}{text}", if text == "0" { "" } else { sign })
    }
}

/// Formats `significand × 2^exponent` with up to 17 decimals.
fn magnitude_text(significand: u64, exponent: i32) -> String {
    if exponent >= 0 {
        return shifted_integer_text(significand, exponent as u32);
    }
    // The product is below 2^(64+57), so it fits.
    let scaled = significand as u128 * DECIMALS_UNIT;
    let units = shift_right_half_to_even(scaled, exponent.unsigned_abs());
    let (integer, decimals) = (units / DECIMALS_UNIT, units % DECIMALS_UNIT);
    let text = format!("{integer}.{decimals:0DECIMALS$}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Returns `value / 2^shift`, rounded to the nearest integer. A half is rounded to the even
/// integer.
fn shift_right_half_to_even(value: u128, shift: u32) -> u128 {
    if shift > 127 {
        // `value` is below 2^121, which is less than half of 2^shift.
        return 0;
    }
    let (quotient, rest) = (value >> shift, value & ((1 << shift) - 1));
    let half = (1 << shift) >> 1;
    quotient + u128::from(rest > half || (rest == half && quotient & 1 == 1))
}

/// Formats the decimal digits of `significand × 2^shift`, with `shift` up to 16,320.
fn shifted_integer_text(significand: u64, shift: u32) -> String {
    const CHUNK: u64 = 1_000_000_000_000_000_000;
    const CHUNK_DIGITS: usize = 18;
    // Limbs of 32 bits, the lowest first: significand × 2^shift.
    let mut limbs = vec![0_u32; shift as usize / 32];
    let top = (significand as u128) << (shift % 32);
    limbs.extend([top as u32, (top >> 32) as u32, (top >> 64) as u32]);
    let mut chunks = Vec::new();
    while let Some(highest) = limbs.iter().rposition(|&limb| limb != 0) {
        limbs.truncate(highest + 1);
        let mut rest = 0_u64;
        for limb in limbs.iter_mut().rev() {
            let dividend = (rest as u128) << 32 | *limb as u128;
            *limb = (dividend / CHUNK as u128) as u32;
            rest = (dividend % CHUNK as u128) as u64;
        }
        chunks.push(rest);
    }
    let mut text = chunks.pop().unwrap_or(0).to_string();
    for chunk in chunks.iter().rev() {
        text.push_str(&format!("{chunk:0CHUNK_DIGITS$}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> LongDouble {
        LongDouble::parse(text.as_bytes()).expect("a number")
    }

    fn check_sum(a: &str, b: &str, expected: &str) {
        assert_eq!(read(a).checked_add(read(b)).expect("finite").to_string(), expected, "{a} + {b}");
    }

    #[test]
    fn sums_are_those_people_expect() {
        check_sum("10.5", "0.1", "10.6");
        check_sum("5.0e3", "2.0e2", "5200");
        check_sum("0.1", "0.2", "0.3");
        check_sum("3", "-3", "0");
        check_sum("-0", "-0", "0");
        check_sum("1.5", "-2.75", "-1.25");
        check_sum("9223372036854775807", "1", "9223372036854775808");
        check_sum("18446744073709551615", "1", "18446744073709551616");
        check_sum("0x10", "0x.8", "16.5");
        check_sum("1", "0x1p-56", "1.00000000000000001");
    }

    #[test]
    fn decimals_are_rounded_half_to_even_behind_the_seventeenth() {
        for (text, expected) in [
            ("1e-17", "0.00000000000000001"),
            ("5e-18", "0"),
            ("6e-18", "0.00000000000000001"),
            ("1.5e-17", "0.00000000000000002"),
            ("-1e-20", "0"),
            ("1e-320", "0"),
            ("0x1.0000000000000801p0", "1.00000000000000011"),
            ("17179869184.5", "17179869184.5"),
            ("100", "100"),
            ("-100.250", "-100.25"),
        ] {
            assert_eq!(read(text).to_string(), expected, "{text}");
        }
    }

    #[test]
    fn large_numbers_print_all_their_digits() {
        let text = read("1e308").to_string();
        assert!(text.starts_with("999999999999999999966858796558456456605600998474155672077970479949217"));
        assert_eq!(text.len(), 308);
        assert_eq!(read("1e4932").to_string().len(), 4933);
        assert_eq!(read("36893488147419103232").to_string(), "36893488147419103232");
        assert_eq!(read("0x1p100").to_string(), "1267650600228229401496703205376");
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in
            ["", " 1", "1 ", "nan", "1.2e4932", "0x1p16384", "1e-4960", "1e", "0x", "1\0", "1e99999999999999"]
        {
            assert_eq!(LongDouble::parse(text.as_bytes()), None, "{text}");
        }
        assert!(LongDouble::parse(&b"0".repeat(5119)).is_some());
        assert!(LongDouble::parse(&b"0".repeat(5120)).is_none());
        assert!(LongDouble::parse(b"3.7e-4951").is_some(), "the smallest denormal is a number");
    }

    #[test]
    fn an_infinite_sum_is_none() {
        assert_eq!(read("inf").to_string(), "inf");
        assert!(!read("-inf").is_finite());
        assert_eq!(read("inf").checked_add(read("-inf")), None);
        assert_eq!(read("1e4932").checked_add(read("1e4932")), None);
    }

    #[test]
    fn doubles_convert_exactly_and_back() {
        for value in [0.0, -1.5, 0.1, 1e300, 5e-324, f64::MAX, f64::NEG_INFINITY] {
            assert_eq!(LongDouble::from_f64(value).to_f64(), value);
        }
        assert_eq!(LongDouble::from_f64(0.1).to_string(), "0.10000000000000001");
    }

    #[test]
    fn seventeen_digits_are_shown_as_c_shows_them() {
        for (text, shown) in [
            ("0", "0"),
            ("-0", "0"),
            ("6", "6"),
            ("-120", "-120"),
            ("1.5", "1.5"),
            ("0.3", "0.29999999999999999"),
            ("0.0001", "0.0001"),
            ("0.00001", "1.0000000000000001e-05"),
            ("12345678901234568", "12345678901234568"),
            ("100000000000000000", "1e+17"),
            ("123456789012345678", "1.2345678901234568e+17"),
            ("1e300", "1.0000000000000001e+300"),
            ("inf", "inf"),
        ] {
            let number = LongDouble::from_f64(text.parse().unwrap());
            assert_eq!(number.text_of_17_digits(), shown, "{text}");
        }
        let sum = LongDouble::from_f64(0.1).checked_add(LongDouble::from_f64(0.2)).unwrap();
        assert_eq!(sum.text_of_17_digits(), "0.30000000000000002");
    }
}
