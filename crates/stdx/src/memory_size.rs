//! Amounts of memory as text, as people write them in configuration files and INFO shows them:
//! `100mb`, `1.50M`.

/// The maximum number of digits of an amount of memory.
const DIGITS_MAX: usize = 127;

/// Parses an amount of memory to bytes: digits and a unit, in either case. The units `k` `m` `g`
/// are powers of 1,000, `kb` `mb` `gb` powers of 1,024, and `b` or no unit is bytes.
///
/// A number beyond 64 bits counts as the largest one, and no digits count as zero, because
/// configuration files written for Redis may contain them. Returns `None` for any other text, for
/// more than 127 digits, and if the product is beyond 64 bits.
pub fn parse_memory(text: &[u8]) -> Option<u64> {
    let digits_len = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, unit) = text.split_at(digits_len);
    if digits.len() > DIGITS_MAX {
        return None;
    }
    let unit_bytes: u64 = match unit.to_ascii_lowercase().as_slice() {
        b"" | b"b" => 1,
        b"k" => 1_000,
        b"kb" => 1 << 10,
        b"m" => 1_000_000,
        b"mb" => 1 << 20,
        b"g" => 1_000_000_000,
        b"gb" => 1 << 30,
        _ => return None,
    };
    let number = digits
        .iter()
        .fold(0_u64, |number, digit| number.saturating_mul(10).saturating_add((digit - b'0') as u64));
    number.checked_mul(unit_bytes)
}

/// Formats an amount of memory as INFO does: `512B`, `1.50M`. Amounts of 2^60 bytes or more are
/// written in plain bytes again.
pub fn format_memory(bytes: u64) -> String {
    let (power, unit) = match bytes.checked_ilog2().unwrap_or(0) {
        10..20 => (10, 'K'),
        20..30 => (20, 'M'),
        30..40 => (30, 'G'),
        40..50 => (40, 'T'),
        50..60 => (50, 'P'),
        _ => return format!("{bytes}B"),
    };
    format!("{:.2}{unit}", bytes as f64 / (1_u64 << power) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_with_their_units() {
        let cases: &[(&str, u64)] = &[
            ("0", 0),
            ("1b", 1),
            ("1k", 1000),
            ("1Kb", 1024),
            ("1m", 1_000_000),
            ("100MB", 100 << 20),
            ("1g", 1_000_000_000),
            ("1gb", 1 << 30),
            ("00001kb", 1024),
            ("", 0),
            ("k", 0),
            ("18446744073709551615", u64::MAX),
            ("18446744073709551616", u64::MAX),
            ("123456789012345678901234567890", u64::MAX),
        ];
        for &(text, expected) in cases {
            assert_eq!(parse_memory(text.as_bytes()), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_amount_is_refused() {
        let long = "1".repeat(128);
        for text in [
            "-1",
            "+1",
            " 1",
            "1 k",
            "1.5gb",
            "1t",
            "1tb",
            "1%",
            "1bb",
            "1kib",
            "0x10",
            "99999999999999gb",
            &long,
        ] {
            assert_eq!(parse_memory(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn amounts_are_shown_with_two_decimals() {
        let cases: &[(u64, &str)] = &[
            (0, "0B"),
            (1023, "1023B"),
            (1024, "1.00K"),
            (1_048_575, "1024.00K"),
            (1_572_864, "1.50M"),
            (1_000_000_000, "953.67M"),
            (1_500_000_000, "1.40G"),
            (1 << 40, "1.00T"),
            (1 << 50, "1.00P"),
            (1 << 60, "1152921504606846976B"),
        ];
        for &(bytes, expected) in cases {
            assert_eq!(format_memory(bytes), expected);
        }
    }
}
