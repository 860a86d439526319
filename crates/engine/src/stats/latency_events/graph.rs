//! LATENCY GRAPH: a series of latency spikes as columns of characters, in the form that Redis
//! draws.
//!
//! Each spike is a column of four rows with three heights each, scaled from the shortest to the
//! longest sample. Below a column is its age, written from top to bottom. A graph wider than a
//! terminal continues in a further strip below.

use super::{Sample, Series};

/// The number of columns of a strip of LATENCY GRAPH.
const COLUMNS: usize = 80;
/// The number of rows of a strip of LATENCY GRAPH, without its labels.
const ROWS: u64 = 4;
/// The characters for the heights within a row of LATENCY GRAPH, from low to high. The rows below
/// the top of a column are filled with [`FULL`].
const HEIGHTS: [u8; 3] = *b"_o#";
const FULL: u8 = b'|';

/// Draws LATENCY GRAPH for a series of latency spikes, with their ages at `now_unix_s`.
pub fn graph(series: &Series, now_unix_s: i64) -> String {
    // An event shorter than a millisecond has no height.
    let samples: Vec<Sample> = series.samples.iter().copied().filter(|sample| sample.ms > 0).collect();
    let high = samples.iter().map(|sample| sample.ms).max().unwrap_or(0);
    let low = samples.iter().map(|sample| sample.ms).min().unwrap_or(0);
    let (name, max) = (series.name, series.max_ms);
    let mut text = format!("{name} - high {high} ms, low {low} ms (all time high {max} ms)\n");
    text.push_str(&"-".repeat(COLUMNS));
    text.push('\n');
    for (at, strip) in samples.chunks(COLUMNS).enumerate() {
        if at > 0 {
            text.push('\n');
        }
        for row in (0..ROWS).rev() {
            let drawn = strip.iter().map(|sample| char::from(cell(step(sample.ms, low, high), row)));
            text.extend(drawn.chain(['\n']));
        }
        let labels: Vec<String> = strip.iter().map(|sample| age(now_unix_s - sample.unix_s)).collect();
        text.push_str(&" ".repeat(strip.len()));
        text.push('\n');
        let longest = labels.iter().map(String::len).max().unwrap_or(0);
        for at in 0..longest {
            let drawn = labels.iter().map(|label| label.as_bytes().get(at).map_or(' ', |&byte| byte.into()));
            text.extend(drawn.chain(['\n']));
        }
    }
    text
}

/// Returns the height of a spike's column in LATENCY GRAPH, from 0 to below `ROWS × HEIGHTS`. `low`
/// and `high` are the lengths of the shortest and the longest spike in milliseconds.
fn step(ms: u64, low: u64, high: u64) -> u64 {
    let steps = ROWS * HEIGHTS.len() as u64;
    ((ms - low) * steps / (high - low).max(1)).min(steps - 1)
}

/// Returns the character in a row of LATENCY GRAPH of a column with the height `step`; row 0 is the
/// lowest.
fn cell(step: u64, row: u64) -> u8 {
    let base = row * HEIGHTS.len() as u64;
    match step.checked_sub(base) {
        None => b' ',
        Some(height) => HEIGHTS.get(height as usize).copied().unwrap_or(FULL),
    }
}

/// Formats a spike's age in seconds, in the largest unit of which it has at least one.
fn age(seconds: i64) -> String {
    match seconds.max(0) {
        seconds @ ..60 => format!("{seconds}s"),
        seconds @ ..3600 => format!("{}m", seconds / 60),
        seconds @ ..86_400 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_picture_is_the_one_redis_draws() {
        // A series of Redis 8.0.2, and the graph that Redis drew of it.
        let samples = [
            (17, 20),
            (16, 110),
            (14, 50),
            (13, 310),
            (11, 12),
            (10, 5),
            (9, 200),
            (7, 70),
            (6, 90),
            (4, 140),
            (3, 300),
            (1, 260),
        ];
        let samples = samples.map(|(ago, ms)| Sample { unix_s: 100 - ago, ms });
        let series = Series { name: "command", samples: samples.into(), max_ms: 310 };
        let expected = [
            "command - high 310 ms, low 5 ms (all time high 310 ms)",
            &"-".repeat(80),
            "   #      #o",
            "   |  o   ||",
            " o |  | _#||",
            "_|o|__|#||||",
            "            ",
            "111111976431",
            "764310ssssss",
            "ssssss      ",
            "",
        ];
        assert_eq!(graph(&series, 100), expected.join("\n"));
    }

    #[test]
    fn one_height_only_is_drawn_low_and_many_samples_below_each_other() {
        let samples: Vec<Sample> = (0..81).map(|at| Sample { unix_s: at * 3600, ms: 7 }).collect();
        let series = Series { name: "x", samples: samples.into(), max_ms: 7 };
        let text = graph(&series, 81 * 3600);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[5], "_".repeat(80));
        assert_eq!(lines[10..], ["", " ", " ", " ", "_", " ", "1", "h"]);
    }

    #[test]
    fn ages_are_in_the_largest_unit() {
        let ages: Vec<String> = [-1, 0, 59, 60, 3599, 3600, 86_399, 86_400].map(age).into();
        assert_eq!(ages, ["0s", "0s", "59s", "1m", "59m", "1h", "23h", "1d"]);
    }
}
