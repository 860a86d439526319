//! Conversion of numbers to text, as C's `printf` writes them.

/// Formats a number as C's `%.{precision}g` does: in the shorter of fixed and scientific notation,
/// without trailing zeros.
pub(crate) fn format_g(value: f64, precision: usize) -> String {
    if value.is_nan() {
        return if value.is_sign_negative() { "-nan" } else { "nan" }.to_owned();
    }
    if value.is_infinite() {
        return if value < 0.0 { "-inf" } else { "inf" }.to_owned();
    }
    let precision = precision.max(1);
    let scientific = scientific(value, precision);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let mantissa = without_zeros(mantissa);
    if exponent < -4 || exponent >= precision as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs());
    }
    let sign = if mantissa.starts_with('-') { "-" } else { "" };
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    match usize::try_from(exponent) {
        Err(_) => format!("{sign}0.{}{digits}", "0".repeat(exponent.unsigned_abs() as usize - 1)),
        Ok(before) if digits.len() <= before + 1 => {
            format!("{sign}{digits}{}", "0".repeat(before + 1 - digits.len()))
        }
        Ok(before) => {
            let (whole, fraction) = digits.split_at(before + 1);
            format!("{sign}{whole}.{fraction}")
        }
    }
}

/// Formats a number in scientific notation with `precision` digits, or with fewer if the others are
/// zeros.
///
/// A double that is not subnormal preserves any 15 digits (`DBL_DIG`). So if its shortest unique
/// text has at most `precision` digits, these are also the rounded digits. Finding the shortest
/// text takes a tenth of the time.
fn scientific(value: f64, precision: usize) -> String {
    if precision <= f64::DIGITS as usize && !value.is_subnormal() {
        let shortest = format!("{value:e}");
        let mantissa = shortest.split('e').next().unwrap_or_default();
        if mantissa.bytes().filter(u8::is_ascii_digit).count() <= precision {
            return shortest;
        }
    }
    format!("{:.*e}", precision - 1, value)
}

/// Formats a number as Lua's `tostring` does, with 14 significant digits.
pub(crate) fn number_text(value: f64) -> String {
    format_g(value, 14)
}

fn without_zeros(digits: &str) -> &str {
    if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits }
}

#[cfg(test)]
mod tests {
    use super::{format_g, without_zeros};

    #[test]
    fn numbers_look_as_printf_writes_them() {
        for (value, precision, text) in [
            (0.1, 14, "0.1"),
            (1e15, 14, "1e+15"),
            (1e14, 14, "1e+14"),
            (123456789012345.0, 14, "1.2345678901234e+14"),
            (0.00001, 14, "1e-05"),
            (-2.5, 14, "-2.5"),
            (1e100, 14, "1e+100"),
            (0.0, 14, "0"),
            (100.0, 14, "100"),
            (5e-324, 14, "4.9406564584125e-324"),
            (1.0 / 3.0, 17, "0.33333333333333331"),
        ] {
            assert_eq!(format_g(value, precision), text);
        }
    }

    /// Formats a number by the definition of `%g`, as a reference: rounds first, chooses the
    /// notation by the exponent, and formats again.
    fn by_definition(value: f64, precision: usize) -> String {
        let rounded = format!("{:.*e}", precision - 1, value);
        let (mantissa, exponent) = rounded.split_once('e').expect("it is scientific");
        let exponent: i32 = exponent.parse().expect("it is a number");
        if exponent < -4 || exponent >= precision as i32 {
            let sign = if exponent < 0 { '-' } else { '+' };
            return format!("{}e{sign}{:02}", without_zeros(mantissa), exponent.unsigned_abs());
        }
        let decimals = (precision as i32 - 1 - exponent) as usize;
        without_zeros(&format!("{value:.decimals$}")).to_owned()
    }

    #[test]
    fn few_digits_are_the_same_digits() {
        let mut bits = 1_u64;
        for turn in 0..200_000 {
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let value = match turn % 4 {
                0 => f64::from_bits(bits),
                1 => (bits >> 40) as f64 / 1000.0,
                2 => (bits >> 11) as f64 / 1e9,
                _ => ((bits >> 50) as f64) * 10_f64.powi((bits % 40) as i32 - 20),
            };
            if value.is_finite() {
                for precision in [1, 3, 14, 15, 16, 17] {
                    assert_eq!(format_g(value, precision), by_definition(value, precision), "{value:e}");
                    assert_eq!(format_g(-value, precision), by_definition(-value, precision), "{value:e}");
                }
            }
        }
    }
}
