//! Numbers, times and keys as people read them, and tables of them.

/// `number` with a comma between each three digits.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A size with three digits or so: `71.3 MB`. Units are powers of 1,000.
pub(crate) fn size(len_bytes: u64) -> String {
    let mut amount = len_bytes as f64;
    let mut unit = "B";
    for next in ["kB", "MB", "GB", "TB"] {
        if amount < 1000.0 {
            break;
        }
        amount /= 1000.0;
        unit = next;
    }
    if unit == "B" { format!("{len_bytes} B") } else { format!("{amount:.1} {unit}") }
}

/// `count` with `noun` in the right number: `1 key`, `2 keys`.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", grouped(count))
}

/// A Unix time in seconds as a date and time of day in UTC: `2026-11-23 09:40:18 UTC`. The
/// calendar is the Gregorian one, also before it was invented.
pub(crate) fn utc(unix_s: i64) -> String {
    let (days, second) = (unix_s.div_euclid(86_400), unix_s.rem_euclid(86_400));
    // Days are counted from the first of March of the year 0, so that a leap day is the last of its
    // year; 400 years have 146,097 days.
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

/// The Unix time in seconds of a date and time of day in UTC, as [`utc`] writes it; the seconds,
/// the time of day and `UTC` may be left out, `T` and `Z` stand in their places.
pub(crate) fn parse_utc(text: &str) -> Option<i64> {
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
    // As above: years begin in March.
    let (year, month) = if month < 3 { (year - 1, month + 9) } else { (year, month - 3) };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_era =
        year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + (153 * month + 2) / 5 + day - 1;
    let days = era * 146_097 + day_of_era - 719_468;
    Some(days * 86_400 + hour * 3_600 + minute * 60 + second)
}

/// Characters of a key that are shown.
const KEY_CHARS_MAX: usize = 100;

/// A key as redis-cli shows it, without the quotes: what is no printable ASCII character is written
/// as `\xhh`, UTF-8 is kept. Long keys are cut.
pub(crate) fn key(bytes: &[u8]) -> String {
    let mut text = String::new();
    let mut count = 0;
    for chunk in bytes.utf8_chunks() {
        let valid = chunk.valid().chars().map(shown);
        for piece in valid.chain(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}"))) {
            if count == KEY_CHARS_MAX {
                return text + &format!("… ({} bytes)", grouped(bytes.len() as u64));
            }
            text += &piece;
            count += 1;
        }
    }
    text
}

/// A character of a key.
fn shown(char: char) -> String {
    match char {
        '\n' => "\\n".to_owned(),
        '\r' => "\\r".to_owned(),
        '\t' => "\\t".to_owned(),
        '"' | '\\' => format!("\\{char}"),
        char if char.is_control() => format!("\\x{:02x}", u32::from(char)),
        char => char.to_string(),
    }
}

/// Which way a column is aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// A table in columns, two spaces apart and two from the margin, each row a line; the first row is
/// the head.
pub(crate) fn table(aligns: &[Align], rows: &[Vec<String>]) -> String {
    let width_of =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..aligns.len()).map(|column| width_of(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for ((cell, align), width) in row.iter().zip(aligns).zip(&widths) {
            line += "  ";
            line += &match align {
                Align::Left => format!("{cell:<width$}"),
                Align::Right => format!("{cell:>width$}"),
            };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_sizes_have_units() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
        for (len_bytes, text) in [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (71_300_000, "71.3 MB")] {
            assert_eq!(size(len_bytes), text);
        }
        assert_eq!((counted(1, "key"), counted(2000, "key")), ("1 key".into(), "2,000 keys".into()));
    }

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
        for text in ["", "x", "2000-13-01", "2000-1", "2000-01-01 24:00", "+2000-01-01", "2000-01-01 1"] {
            assert_eq!(parse_utc(text), None, "{text}");
        }
    }

    #[test]
    fn keys_are_readable_whatever_is_in_them() {
        assert_eq!(key(b"user:1"), "user:1");
        assert_eq!(key("größe".as_bytes()), "größe");
        assert_eq!(key(b"a\"\\\n\0\xff"), "a\\\"\\\\\\n\\x00\\xff");
        assert!(key(&[b'x'; 1000]).ends_with("x… (1,000 bytes)"));
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [vec!["type".into(), "keys".into()], vec!["zset".into(), "12,345".into()]];
        assert_eq!(table(&[Align::Left, Align::Right], &rows), "  type    keys\n  zset  12,345\n");
    }
}
