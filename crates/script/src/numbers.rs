//! Numbers as C's `printf` writes them.

/// `%.{precision}g`: the shorter of fixed and scientific notation, without trailing zeros.
pub(crate) fn format_g(value: f64, precision: usize) -> String {
    if value.is_nan() {
        return if value.is_sign_negative() { "-nan" } else { "nan" }.to_owned();
    }
    if value.is_infinite() {
        return if value < 0.0 { "-inf" } else { "inf" }.to_owned();
    }
    let precision = precision.max(1);
    let scientific = format!("{:.*e}", precision - 1, value);
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if exponent < -4 || exponent >= precision as i32 {
        let digits = without_zeros(digits);
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.unsigned_abs());
    }
    let decimals = (precision as i32 - 1 - exponent).max(0) as usize;
    without_zeros(&format!("{value:.decimals$}")).to_owned()
}

/// A number as Lua's `tostring` writes it.
pub(crate) fn number_text(value: f64) -> String {
    format_g(value, 14)
}

fn without_zeros(digits: &str) -> &str {
    if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits }
}

#[cfg(test)]
mod tests {
    use super::format_g;

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
            (1.0 / 3.0, 17, "0.33333333333333331"),
        ] {
            assert_eq!(format_g(value, precision), text);
        }
    }
}
