//! Conversion between Unix times and dates with times of day in UTC.

/// Formats a Unix time in seconds as a date and time of day in UTC: `2026-11-23 09:40:18 UTC`. The
/// calendar is Gregorian, also for years before it was introduced.
pub fn utc(unix_s: i64) -> String {
    let (days, second) = (unix_s.div_euclid(86_400), unix_s.rem_euclid(86_400));
    // Years are counted from the first of March of the year 0, so that a leap day is the last day
    // of its year. 400 years have 146,097 days.
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// Parses a date and time of day in UTC, as [`utc`] formats it, to the Unix time in seconds. The
/// seconds, the time of day and `UTC` are optional. A `T` may separate date and time, and a `Z` may
/// replace `UTC`. Returns `None` for any other text, and for a day that the month does not have.
pub fn parse_utc(text: &str) -> Option<i64> {
    let text = text.trim().trim_end_matches("UTC").trim_end_matches('Z').trim_end();
    let (date, time) = text.split_once([' ', 'T']).unwrap_or((text, "00:00"));
    let numbers = |text: &str, separator: char| -> Option<Vec<i64>> {
        let is_number = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
        text.split(separator).map(|word| word.parse().ok().filter(|_| is_number(word))).collect()
    };
    let [year, month @ 1..=12, day @ 1..=31] = numbers(date, '-')?[..] else { return None };
    let (hour, minute, second) = match numbers(time, ':')?[..] {
        [hour, minute] => (hour, minute, 0),
        [hour, minute, second] => (hour, minute, second),
        _ => return None,
    };
    if year > 9999 || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // As in `utc`, years begin in March.
    let (year, month) = if month < 3 { (year - 1, month + 9) } else { (year, month - 3) };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_era =
        year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + (153 * month + 2) / 5 + day - 1;
    let days = era * 146_097 + day_of_era - 719_468;
    // A day that the month does not have would be a day of the next month.
    let has_day = utc(days * 86_400)[8..10].parse() == Ok(day);
    has_day.then_some(days * 86_400 + hour * 3_600 + minute * 60 + second)
}

/// Parses a time to Unix seconds: either a date as `2026-11-23 14:05:00` in UTC ([`parse_utc`]), or
/// the number of seconds.
pub fn parse_time(text: &str) -> Option<i64> {
    text.trim().parse().ok().or_else(|| parse_utc(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_dates_in_utc() {
        for (unix_s, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (951_868_800, "2000-03-01 00:00:00 UTC"),
            (-1, "1969-12-31 23:59:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(utc(unix_s), text);
            assert_eq!(parse_utc(text), Some(unix_s));
        }
        for text in ["2000-02-29T00:00:00Z", "2000-02-29 00:00", "2000-02-29"] {
            assert_eq!(parse_utc(text), Some(951_782_400));
        }
        for text in [
            "",
            "x",
            "2000-13-01",
            "2001-02-29",
            "2000-04-31",
            "2000-1",
            "2000-01-01 24:00",
            "+2000-01-01",
            "2000-01-01 1",
        ] {
            assert_eq!(parse_utc(text), None, "{text}");
        }
        assert_eq!(parse_time(" 951782400 "), Some(951_782_400));
        assert_eq!(parse_time("2000-02-29 00:00:01"), Some(951_782_401));
        assert_eq!(parse_time("12:00:06"), None);
        assert_eq!(parse_time("951782400.5"), None);
    }
}
