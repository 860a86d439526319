//! Parsing and formatting of numbers, in the forms that Redis uses.
//!
//! An integer has exactly one valid text. A double is formatted with few digits that parse back to
//! it, nearly always the fewest (see `grisu.rs`). Whole numbers up to 2^62 are written in full.
//! Other numbers have an exponent (`1e+20`, `1.5e-9`) if many zeros would be needed without one.
//!
//! Doubles are parsed like C's `strtod`, with infinity and hexadecimal. But the whole text must be
//! the number, without blanks around it. NaN, overflow, and underflow to zero are rejected. All
//! results were compared with those of Redis 8.0.2.

use rustc_apfloat::{Float, Round, ieee};

use crate::grisu;
/// Parses a signed integer in its only valid form: no `+`, no spaces, no leading zeros, no `-0`, no
/// other bytes around it. So conversion between text and integer loses nothing in either direction.
#[inline]
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    let mut value: u64 = 0;
    for digit in digits {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        // Nineteen digits stay below 2^64.
        value = value * 10 + digit as u64;
    }
    if negative { 0_i64.checked_sub_unsigned(value) } else { i64::try_from(value).ok() }
}

/// Parses a double as C's `strtod` does, but only if the whole text is the number. `None` for any
/// other text and for NaN, overflow and underflow to zero. O(bytes).
pub fn parse_f64(text: &[u8]) -> Option<f64> {
    let number = NumberText::scan(text)?;
    let magnitude = match number.form {
        Form::Infinity => f64::INFINITY,
        Form::Zero => 0.0,
        Form::Decimal => std::str::from_utf8(number.magnitude).ok()?.parse().ok()?,
        Form::Hexadecimal => {
            let parsed: ieee::Double = number.to_apfloat()?;
            f64::from_bits(parsed.to_bits() as u64)
        }
    };
    if number.form != Form::Infinity
        && (magnitude.is_infinite() || (magnitude == 0.0) != (number.form == Form::Zero))
    {
        return None;
    }
    Some(if number.negative { -magnitude } else { magnitude })
}

/// The forms of a text that is a floating-point number: infinity, zero, decimal or hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Infinity,
    /// Any spelling of zero. If the text has any other form but its parsed value is zero, the value
    /// has underflowed.
    Zero,
    Decimal,
    Hexadecimal,
}

/// The parts of a text that is a floating-point number: its sign, form and magnitude.
pub(crate) struct NumberText<'a> {
    pub(crate) negative: bool,
    pub(crate) form: Form,
    /// The text of the number without its sign.
    magnitude: &'a [u8],
}

impl<'a> NumberText<'a> {
    /// Splits `text` into its parts by C's grammar of floating-point numbers. `None` if it is not a
    /// number.
    pub(crate) fn scan(text: &'a [u8]) -> Option<Self> {
        let (negative, magnitude) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            rest => (false, rest),
        };
        if magnitude.eq_ignore_ascii_case(b"inf") || magnitude.eq_ignore_ascii_case(b"infinity") {
            return Some(Self { negative, form: Form::Infinity, magnitude });
        }
        let (form, digits, is_digit, exponent_letter): (_, _, fn(&u8) -> bool, _) = match magnitude {
            [b'0', b'x' | b'X', digits @ ..] => (Form::Hexadecimal, digits, u8::is_ascii_hexdigit, b'p'),
            digits => (Form::Decimal, digits, u8::is_ascii_digit, b'e'),
        };
        let count = |text: &[u8]| text.iter().take_while(|byte| is_digit(byte)).count();
        let (integer, rest) = digits.split_at(count(digits));
        let (fraction, rest) = match rest {
            [b'.', rest @ ..] => rest.split_at(count(rest)),
            rest => (&[][..], rest),
        };
        let exponent_is_fine = match rest {
            [] => true,
            [letter, b'+' | b'-', exponent @ ..] | [letter, exponent @ ..] => {
                letter.eq_ignore_ascii_case(&exponent_letter)
                    && !exponent.is_empty()
                    && exponent.iter().all(u8::is_ascii_digit)
            }
        };
        if integer.len() + fraction.len() == 0 || !exponent_is_fine {
            return None;
        }
        let is_zero = integer.iter().chain(fraction).all(|&digit| digit == b'0');
        Some(Self { negative, form: if is_zero { Form::Zero } else { form }, magnitude })
    }

    /// Returns the magnitude as an `F`, rounded to nearest: infinity on overflow, zero on
    /// underflow. Returns `None` if `rustc_apfloat` cannot parse the text.
    pub(crate) fn to_apfloat<F: Float>(&self) -> Option<F> {
        let text = std::str::from_utf8(self.magnitude).ok()?;
        let has_exponent = text.contains(['p', 'P']);
        let parsed = match self.form {
            Form::Infinity => return Some(F::INFINITY),
            Form::Zero => return Some(F::ZERO),
            // `rustc_apfloat` requires the exponent, which is optional in C.
            Form::Hexadecimal if !has_exponent => {
                F::from_str_r(&format!("{text}p0"), Round::NearestTiesToEven)
            }
            Form::Hexadecimal | Form::Decimal => F::from_str_r(text, Round::NearestTiesToEven),
        };
        Some(parsed.ok()?.value)
    }
}

/// The size in bytes of a buffer that holds the text of any double.
pub const F64_TEXT_LEN_MAX: usize = 40;

/// Writes `value` into `out` in the format that Redis uses for doubles (see the module) and returns
/// the written part.
pub fn format_f64(value: f64, out: &mut [u8; F64_TEXT_LEN_MAX]) -> &str {
    let len = write_f64(value, out);
    std::str::from_utf8(&out[..len]).expect("only ASCII was written")
}

/// Formats `value` with its shortest digits. Unlike [`format_f64`], it also gives long whole
/// numbers an exponent (`1e+17`). Redis formats scores so for DEBUG DIGEST. Allocates.
pub fn format_f64_shortest(value: f64) -> String {
    let mut out = [0; F64_TEXT_LEN_MAX];
    if !value.is_finite() || value == 0.0 {
        return format_f64(value, &mut out).to_owned();
    }
    let mut rest = &mut out[..];
    put_shortest(&mut rest, value);
    let len = F64_TEXT_LEN_MAX - rest.len();
    String::from_utf8_lossy(&out[..len]).into_owned()
}

/// Formats `value` with up to 17 digits, as C's `%.17g` does. Redis uses this format only for the
/// scores of ZSCAN. Allocates.
pub fn format_f64_17_digits(value: f64) -> String {
    if !value.is_finite() {
        return format_f64(value, &mut [0; F64_TEXT_LEN_MAX]).to_owned();
    }
    let scientific = format!("{value:.16e}");
    let (mantissa, exponent) = scientific.split_once('e').expect("the format has an exponent");
    let exponent: i32 = exponent.parse().expect("the exponent is an integer");
    let trimmed = |text: &str| text.trim_end_matches('0').trim_end_matches('.').to_owned();
    if !(-4..17).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs());
    }
    match (16 - exponent) as usize {
        0 => format!("{value:.0}"),
        decimals => trimmed(&format!("{value:.decimals$}")),
    }
}

fn write_f64(value: f64, out: &mut [u8; F64_TEXT_LEN_MAX]) -> usize {
    let mut rest = &mut out[..];
    let special = match value {
        _ if value.is_nan() => "nan",
        f64::INFINITY => "inf",
        f64::NEG_INFINITY => "-inf",
        _ if value == 0.0 && value.is_sign_negative() => "-0",
        _ => "",
    };
    // Whole numbers up to 2^62 convert exactly between `f64` and `i64`.
    if !special.is_empty() {
        put(&mut rest, special.as_bytes());
    } else if value.abs() <= (1_u64 << 62) as f64 && value.trunc() == value {
        put(&mut rest, itoa::Buffer::new().format(value as i64).as_bytes());
    } else {
        put_shortest(&mut rest, value);
    }
    let unused = rest.len();
    F64_TEXT_LEN_MAX - unused
}

/// Writes a finite number other than zero to `out` with its shortest digits.
fn put_shortest(out: &mut &mut [u8], value: f64) {
    if value < 0.0 {
        put(out, b"-");
    }
    let mut digits = [0; grisu::DIGITS_MAX];
    let (len, scale) = grisu::shortest_digits(value.abs(), &mut digits);
    put_decimal(out, &digits[..len], scale);
}

/// Writes to `out` the number that is `digits` times ten to the power of `scale`, with an exponent
/// if many zeros would be needed without one.
fn put_decimal(out: &mut &mut [u8], digits: &[u8], scale: i32) {
    let len = digits.len() as i32;
    // The power of ten of the first digit.
    let exponent = scale + len - 1;
    if scale >= 0 && exponent < len + 7 {
        put(out, digits);
        (0..scale).for_each(|_| put(out, b"0"));
    } else if scale < 0 && (scale > -7 || exponent.abs() < 4) {
        let point = len + scale;
        if point <= 0 {
            put(out, b"0.");
            (point..0).for_each(|_| put(out, b"0"));
            put(out, digits);
        } else {
            put(out, &digits[..point as usize]);
            put(out, b".");
            put(out, &digits[point as usize..]);
        }
    } else {
        put(out, &digits[..1]);
        if len > 1 {
            put(out, b".");
            put(out, &digits[1..]);
        }
        put(out, if exponent < 0 { b"e-" } else { b"e+" });
        put(out, itoa::Buffer::new().format(exponent.unsigned_abs()).as_bytes());
    }
}

/// Copies `bytes` to the front of the output buffer `out`, and shortens `out` by them.
fn put(out: &mut &mut [u8], bytes: &[u8]) {
    let (head, rest) = std::mem::take(out).split_at_mut(bytes.len());
    head.copy_from_slice(bytes);
    *out = rest;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: f64) -> String {
        format_f64(value, &mut [0; F64_TEXT_LEN_MAX]).to_owned()
    }

    #[test]
    fn only_canonical_integers_are_read() {
        for value in [0, 1, -1, 9, 10, -10, 1 << 40, i64::MAX, i64::MIN, i64::MAX - 1, i64::MIN + 1] {
            assert_eq!(parse_i64(value.to_string().as_bytes()), Some(value));
        }
        let wrong = [
            "",
            "-",
            "+1",
            "-0",
            "00",
            "01",
            "-01",
            " 1",
            "1 ",
            "1a",
            "a",
            "1.0",
            "--1",
            "0x1",
            "1\0",
            "9223372036854775808",
            "-9223372036854775809",
            "10000000000000000000",
            "18446744073709551617",
        ];
        for text in wrong {
            assert_eq!(parse_i64(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn doubles_print_as_redis_prints_them() {
        let cases = [
            (0.0, "0"),
            (-0.0, "-0"),
            (-1.0, "-1"),
            (0.1, "0.1"),
            (3e-7, "3e-7"),
            (1e-4, "0.0001"),
            (1e-6, "0.000001"),
            (1e-7, "1e-7"),
            (1.5e-5, "0.000015"),
            (123e-7, "1.23e-5"),
            (0.00012345, "1.2345e-4"),
            (3.25, "3.25"),
            (17179869184.5, "17179869184.5"),
            (1e15, "1000000000000000"),
            (1e18, "1000000000000000000"),
            (9e18, "9e+18"),
            (1e20, "1e+20"),
            (-1e20, "-1e+20"),
            (1e21, "1e+21"),
            (1e22, "1e+22"),
            (1e23, "99999999999999990000000"),
            (1.2345e21, "1234499999999999900000"),
            (1.2345678901234567e24, "1.2345678901234568e+24"),
            (2.2250738585072014e-308, "2.2250738585072014e-308"),
            (123456789012345680000.0, "123456789012345680000"),
            (1.2345678901234567e22, "12345678901234568000000"),
            (4611686018427387904.0, "4611686018427387904"),
            (9223372036854775807.0, "9223372036854776000"),
            (1.7976931348623157e308, "1.7976931348623157e+308"),
            (5e-324, "5e-324"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
        ];
        for (value, expected) in cases {
            assert_eq!(text(value), expected);
        }
    }

    #[test]
    fn doubles_are_read_as_strtod_reads_them() {
        let cases = [
            ("0", 0.0),
            ("+1", 1.0),
            ("-1", -1.0),
            ("1.", 1.0),
            (".5", 0.5),
            ("+.5e1", 5.0),
            ("1E5", 1e5),
            ("1e+05", 1e5),
            ("00012", 12.0),
            ("1e00000000000000000005", 1e5),
            ("0e99999999999999999999", 0.0),
            ("0x0p99999999999999", 0.0),
            ("inf", f64::INFINITY),
            ("+Inf", f64::INFINITY),
            ("-infinity", f64::NEG_INFINITY),
            ("0x10", 16.0),
            ("-0X1.8P-1", -0.75),
            ("0x.8", 0.5),
            ("0x1.", 1.0),
            ("0x1.0000000000000801p0", 1.0000000000000002),
            ("3e-324", 5e-324),
            ("1e-320", 1e-320),
            ("0x1p-1074", 5e-324),
            ("0x1.8p-1075", 5e-324),
            ("1.7976931348623157e308", f64::MAX),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_f64(text.as_bytes()), Some(expected), "{text}");
        }
        assert!(parse_f64(b"-0").expect("a number").is_sign_negative());
    }

    #[test]
    fn what_is_only_nearly_a_double_is_refused() {
        let wrong = [
            "",
            " 1",
            "1 ",
            "--1",
            ".",
            "1e",
            "1e+",
            "1d5",
            "infinit",
            "infx",
            "i",
            "nan",
            "-nan",
            "nan(1)",
            "0x",
            "0x1p",
            "0xg",
            "0xp1",
            "1e309",
            "-1e400",
            "1e99999999999999999999",
            "1e-324",
            "2e-324",
            "1e-400",
            "0x1p1024",
            "0x1p-1075",
            "1\0",
            "1_000",
            "1,5",
            "0b11",
            "1f",
            "\t1",
            "é",
        ];
        for text in wrong {
            assert_eq!(parse_f64(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn shortest_digits_take_an_exponent_for_long_whole_numbers() {
        let cases = [(1e17, "1e+17"), (-3e18, "-3e+18"), (1e-5, "0.00001"), (1.5e-7, "1.5e-7"), (3.0, "3")];
        for (value, text) in cases {
            assert_eq!(format_f64_shortest(value), text);
        }
        assert_eq!(format_f64_shortest(-0.0), "-0");
        assert_eq!(format_f64_shortest(f64::INFINITY), "inf");
    }

    #[test]
    fn seventeen_digits_are_written_as_c_does() {
        let cases = [
            (0.1, "0.10000000000000001"),
            (-2.5, "-2.5"),
            (0.0, "0"),
            (-0.0, "-0"),
            (1e-7, "9.9999999999999995e-08"),
            (1e-4, "0.0001"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (123456789012345680.0, "1.2345678901234568e+17"),
            (1.0 / 3.0, "0.33333333333333331"),
            (1e300, "1.0000000000000001e+300"),
            (f64::NEG_INFINITY, "-inf"),
        ];
        for (value, expected) in cases {
            assert_eq!(format_f64_17_digits(value), expected);
        }
    }
}
