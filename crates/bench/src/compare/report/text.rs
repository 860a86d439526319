//! Numbers and times as text for people.

/// Formats a rate or a count with three digits: `1.23M`, `45.6k`, `789`.
pub fn short(value: f64) -> String {
    let (value, unit) = match value.abs() {
        big if big >= 999_500_000.0 => (value / 1e9, "G"),
        big if big >= 999_500.0 => (value / 1e6, "M"),
        big if big >= 999.5 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    digits(value) + unit
}

/// Formats microseconds with three digits and a unit: `12.3 µs`, `4.56 ms`, `1.2 s`.
pub fn duration(us: f64) -> String {
    match us.abs() {
        big if big >= 999_500.0 => digits(us / 1e6) + " s",
        big if big >= 999.5 => digits(us / 1e3) + " ms",
        _ => digits(us) + " µs",
    }
}

/// Formats a number with three significant digits, at most two of them after the point. Removes
/// trailing zeros after the point.
fn digits(value: f64) -> String {
    let places = match value.abs() {
        big if big >= 99.95 => 0,
        big if big >= 9.995 => 1,
        _ => 2,
    };
    let text = format!("{value:.places$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Formats a difference between two engines in percent with its sign: `+12.3 %`.
pub fn percent(value: f64) -> String {
    let places = if value.abs() < 99.95 { 1 } else { 0 };
    // A difference that rounds to zero has no minus sign.
    format!("{:+.places$} %", if value.abs() < 0.05 { 0.0 } else { value })
}

/// Formats a number of I/O threads: `1 I/O thread` or `2 I/O threads`.
pub fn io_threads_name(count: u32) -> String {
    format!("{count} I/O thread{}", if count == 1 { "" } else { "s" })
}

/// Formats a Unix time in milliseconds as `2026-07-05 14:03 UTC`. Source: the days-to-civil
/// algorithm of H. Hinnant.
pub fn moment(unix_ms: u64) -> String {
    let minutes = unix_ms / 60_000;
    let days = minutes / 1440 + 719_468;
    let era_day = days % 146_097;
    let era_year = (era_day - era_day / 1460 + era_day / 36_524 - era_day / 146_096) / 365;
    let year_day = era_day - (365 * era_year + era_year / 4 - era_year / 100);
    let month_from_march = (5 * year_day + 2) / 153;
    let day = year_day - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era_year + days / 146_097 * 400 + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02} {:02}:{:02} UTC", minutes / 60 % 24, minutes % 60)
}

/// Converts a name to a part of a file name: lower case letters, digits and dashes.
pub fn slug(name: &str) -> String {
    let dashed: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    dashed.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        for (value, text) in [
            (0.0, "0"),
            (7.0, "7"),
            (999.4, "999"),
            (999.6, "1k"),
            (45_600.0, "45.6k"),
            (1_234_567.0, "1.23M"),
        ] {
            assert_eq!(short(value), text);
        }
        assert_eq!(
            (duration(12.34), duration(4_560.0), duration(2e6)),
            ("12.3 µs".into(), "4.56 ms".into(), "2 s".into())
        );
        assert_eq!(
            (percent(12.34), percent(-0.01), percent(150.4)),
            ("+12.3 %".into(), "+0.0 %".into(), "+150 %".into())
        );
    }

    #[test]
    fn moments_are_dates() {
        assert_eq!(moment(0), "1970-01-01 00:00 UTC");
        assert_eq!(moment(951_782_400_000), "2000-02-29 00:00 UTC");
        assert_eq!(moment(1_783_260_180_000), "2026-07-05 14:03 UTC");
        assert_eq!(slug("LRANGE_100 (first)"), "lrange-100-first");
    }
}
