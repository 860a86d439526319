//! The sizes of the functions, structs and circles of modules in each crate, without tests, as
//! `cargo xtask tidy --figures` prints them.

use std::collections::BTreeMap;

use super::measure::{Function, Measured, Struct, measure};
use super::modules::largest_cycles;
use super::tree::Tree;

/// The titles of the columns in the table of sizes.
const TITLES: [&str; 7] = ["crate", "functions", "median", "p90", "longest", "biggest struct", "circle"];

/// Formats a row for each crate and one for all. A row has the number of functions and the lines of
/// the median, of the 90th percentile and of the longest function. Then follow the fields of the
/// biggest struct and the modules of the largest circle.
pub fn table(tree: &Tree) -> String {
    let mut crates: BTreeMap<&str, Figures> = BTreeMap::new();
    let mut all = Figures::default();
    for source in &tree.sources {
        if let Some(krate) = source.krate() {
            crates.entry(krate).or_default().add(measure(source));
            all.add(measure(source));
        }
    }
    for (within, cycle) in largest_cycles(tree) {
        let krate = within.split("::").next().unwrap_or_default();
        if let Some(figures) = crates.get_mut(krate) {
            figures.add_cycle(&within, cycle.len());
            all.add_cycle(&within, cycle.len());
        }
    }
    let mut rows = vec![TITLES.map(str::to_owned)];
    rows.extend(crates.iter().map(|(name, figures)| figures.row(name)));
    rows.push(all.row("all"));
    aligned(&rows)
}

/// The largest size found so far (of a function, struct or circle) and the name of the item that
/// has it. The size comes first, so that the greatest can be chosen.
type Record = Option<(usize, String)>;

/// The sizes of a crate's functions, structs and circles of modules.
#[derive(Default)]
struct Figures {
    /// The number of lines and the name of each function of the crate.
    function_lines: Vec<(usize, String)>,
    biggest_struct: Record,
    largest_cycle: Record,
}

impl Figures {
    fn add(&mut self, measured: Measured) {
        let Measured { functions, structs } = measured;
        let with_body = |Function { name, lines, .. }| Some((lines?, name));
        self.function_lines.extend(functions.into_iter().filter_map(with_body));
        let biggest = structs.into_iter().map(|Struct { name, fields, .. }| (fields, name)).max();
        self.biggest_struct = self.biggest_struct.take().max(biggest);
    }

    fn add_cycle(&mut self, within: &str, modules: usize) {
        self.largest_cycle = self.largest_cycle.take().max(Some((modules, within.to_owned())));
    }

    fn row(&self, name: &str) -> [String; TITLES.len()] {
        let mut lines: Vec<usize> = self.function_lines.iter().map(|(lines, _)| *lines).collect();
        lines.sort_unstable();
        let lines_at = |percent| percentile(&lines, percent).map_or_else(String::new, |it| it.to_string());
        [
            name.to_owned(),
            lines.len().to_string(),
            lines_at(50),
            lines_at(90),
            described(self.function_lines.iter().max()),
            described(self.biggest_struct.as_ref()),
            described(self.largest_cycle.as_ref()),
        ]
    }
}

/// Returns the least of the `sorted` sizes that at least `percent` percent of them do not exceed.
fn percentile(sorted: &[usize], percent: usize) -> Option<usize> {
    sorted.get((sorted.len() * percent).div_ceil(100).saturating_sub(1)).copied()
}

/// Formats the largest size with the name of the item that has it, or a dash for `None`.
fn described(record: Option<&(usize, String)>) -> String {
    record.map_or_else(|| "-".into(), |(size, name)| format!("{size} {name}"))
}

/// Formats the rows of the table as lines whose columns are aligned.
fn aligned(rows: &[[String; TITLES.len()]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..TITLES.len()).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells: Vec<_> = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_crate_has_a_row_and_all_have_one() {
        let table = table(&Tree::sample(&[
            ("crates/a/src/lib.rs", "struct S { a: u8, b: u8 }\nfn f() {}\nimpl S {\n fn long() {\n }\n}\n"),
            (
                "crates/a/src/b.rs",
                "use crate::c::C;\nfn test_free() {}\n#[cfg(test)]\nmod tests {\nfn t() {\n\n\n}\n}\n",
            ),
            ("crates/a/src/c.rs", "use crate::b::B;"),
            ("crates/d/src/lib.rs", "trait T { fn declared(); }"),
        ]));
        let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["a", "3", "1", "2", "2", "S::long", "2", "S", "2", "a"]);
        assert_eq!(lines[2], ["d", "0", "-", "-", "-"]);
        assert_eq!(lines[3], ["all", "3", "1", "2", "2", "S::long", "2", "S", "2", "a"]);
    }

    #[test]
    fn a_percentile_is_the_size_of_one_function() {
        let sorted: Vec<usize> = (1..=10).collect();
        assert_eq!(percentile(&sorted, 50), Some(5));
        assert_eq!(percentile(&sorted, 90), Some(9));
        assert_eq!(percentile(&sorted, 100), Some(10));
        assert_eq!(percentile(&[7], 50), Some(7));
        assert_eq!(percentile(&[], 50), None);
    }
}
