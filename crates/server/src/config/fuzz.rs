//! The fuzz target of configuration files. A fuzzer or a test calls it with arbitrary bytes.

use super::parse::parse_config;
use super::rewrite::{Added, rewrite};
use super::store::ConfigStore;
use super::table;

/// Checks that the parser of configuration files accepts or refuses any bytes without a panic.
/// Checks that CONFIG REWRITE preserves the values of options.
///
/// # Panics
/// If an option has another value after a rewrite.
pub fn fuzz_config(data: &[u8]) {
    let Ok(directives) = parse_config(data) else { return };
    let mut first = ConfigStore::new(is_command);
    for directive in &directives {
        // Invalid values are refused; the valid values take effect.
        let _ = first.load(&directive.name, &directive.words);
    }
    for old in [&b""[..], data] {
        let text = rewrite(old, &first, &[], Added::Changed);
        let mut second = ConfigStore::new(is_command);
        for directive in parse_config(&text).expect("what was written is well formed") {
            let taken = second.load(&directive.name, &directive.words);
            let known = table::find(&directive.name).is_some();
            assert!(taken.is_ok() || !known, "{}: {taken:?}", directive.line.escape_ascii());
        }
        for (id, option) in table::all() {
            assert_eq!(first.value(id), second.value(id), "{}", option.name);
        }
    }
}

/// Returns true for names of up to three letters, so that a fuzzer easily finds both existing and
/// missing command names.
fn is_command(name: &str) -> bool {
    name.len() <= 3
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

        #[test]
        fn random_lines_survive_a_rewrite(
            lines in proptest::collection::vec((0..table::names().len(), "[ -~\n\\x00-\\xff]{0,12}"), 0..8),
        ) {
            let mut text = Vec::new();
            for (index, value) in lines {
                text.extend_from_slice(table::names()[index].name.as_bytes());
                text.push(b' ');
                text.extend_from_slice(value.as_bytes());
                text.push(b'\n');
            }
            fuzz_config(&text);
        }

        #[test]
        fn likely_values_survive_a_rewrite(
            lines in proptest::collection::vec(
                (0..table::names().len(), "(yes|no|[0-9]{1,3}(kb|gb|%)?|\"[^\"]{0,5}\"|[0-9] [0-9]|\"\")"),
                0..8,
            ),
        ) {
            let text: Vec<String> =
                lines.iter().map(|(index, value)| format!("{} {value}", table::names()[*index].name)).collect();
            fuzz_config(text.join("\n").as_bytes());
        }
    }
}
