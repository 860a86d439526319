//! Formatting of numbers, keys and tables for people.

/// Formats `number` with a comma before each group of three digits.
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

/// Formats a number of bytes with about three digits and a unit: `71.3 MB`. Units are powers of
/// 1,000.
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

/// Formats `count` with `noun`, in the singular or plural: `1 key`, `2 keys`.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", grouped(count))
}

/// The maximum number of characters of a key that are shown.
const KEY_CHARS_MAX: usize = 100;

/// Formats a key as redis-cli shows it, but without the quotes. Control characters and invalid
/// UTF-8 are escaped, as in `\xhh`; other UTF-8 is not. Long keys are cut.
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

/// Formats a character of a key for people, escaped if needed.
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

/// The alignment of the texts in a table column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    /// The texts of the column are on its left side, for words.
    Left,
    /// The texts of the column are on its right side, for numbers.
    Right,
}

/// Formats a table with a line for each of `rows`; the first row is the head. `aligns` has the
/// alignment of each column. Columns are two spaces apart and begin two spaces from the margin.
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
