//! Numbers as text, in the forms users of the protocol know: doubles as short as they round trip.
//!
//! Text of a double: the digits are the shortest that read back as the same double; integers up to
//! 2^62 are written out; else the decimal point moves while that costs few zeros, and what is left
//! is written with an exponent (`1e+20`, `1.5e-9`). Compared with what Redis 8.0.2 answers.

use std::io::Write;

/// Reads a signed integer written the one canonical way: no `+`, no spaces, no leading zeros, no
/// `-0`, nothing else around it. So text and integer turn into each other without loss.
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

/// Bytes that hold the text of any double.
pub const F64_TEXT_LEN_MAX: usize = 40;

/// Writes the text of `value` into `out` and gives back the part that was written.
pub fn format_f64(value: f64, out: &mut [u8; F64_TEXT_LEN_MAX]) -> &str {
    let len = write_f64(value, out);
    std::str::from_utf8(&out[..len]).expect("only ASCII was written")
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
    // Up to 2^62 the conversion is exact in both directions.
    if !special.is_empty() {
        put(&mut rest, special.as_bytes());
    } else if value.abs() <= (1_u64 << 62) as f64 && value.trunc() == value {
        put(&mut rest, itoa::Buffer::new().format(value as i64).as_bytes());
    } else {
        let mut scientific = [0_u8; F64_TEXT_LEN_MAX];
        let mut cursor = &mut scientific[..];
        write!(cursor, "{:e}", value.abs()).expect("17 digits and an exponent fit");
        let unused = cursor.len();
        let text = &scientific[..F64_TEXT_LEN_MAX - unused];
        let e = text.iter().position(|&b| b == b'e').expect("{:e} writes an exponent");
        let exponent: i32 =
            std::str::from_utf8(&text[e + 1..]).ok().and_then(|t| t.parse().ok()).expect("digits");
        let mut digits = [0_u8; 24];
        let mut len = 0;
        for &digit in text[..e].iter().filter(|&&b| b != b'.') {
            digits[len] = digit;
            len += 1;
        }
        if value < 0.0 {
            put(&mut rest, b"-");
        }
        put_decimal(&mut rest, &digits[..len], exponent + 1 - len as i32);
    }
    let unused = rest.len();
    F64_TEXT_LEN_MAX - unused
}

/// Writes `digits` times ten to the power of `scale`.
fn put_decimal(out: &mut &mut [u8], digits: &[u8], scale: i32) {
    let len = digits.len() as i32;
    // The exponent of the first digit.
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

/// Copies `bytes` to the front of `out` and moves `out` behind them.
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
}
