//! Figures, their medians, and the Markdown table that shows them.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// The figures of one run of redis-benchmark against one server: rate, latencies, CPU time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    requests_per_second: f64,
    cpu_us_per_request: f64,
    p50_ms: f64,
    p99_ms: f64,
}

impl Figures {
    /// Parses the last row of redis-benchmark's `--csv` output. Returns `None` if there is no valid
    /// row.
    pub fn parse(csv: &str, cpu_us_per_request: f64) -> Option<Self> {
        let row = csv.lines().rev().find(|line| line.starts_with('"') && !line.starts_with("\"test\""))?;
        // A custom command's name may hold commas: columns are counted from the end.
        let columns: Vec<&str> = row.trim_matches('"').split("\",\"").collect();
        let number = |from_end: usize| columns.get(columns.len().checked_sub(from_end)?)?.parse().ok();
        Some(Self {
            requests_per_second: number(7)?,
            cpu_us_per_request,
            p50_ms: number(4)?,
            p99_ms: number(2)?,
        })
    }

    /// Returns the median of each figure over `runs` of redis-benchmark, which must not be empty.
    pub fn median(runs: Vec<Self>) -> Self {
        let median_of = |figure: fn(&Self) -> f64| {
            let mut values: Vec<f64> = runs.iter().map(figure).collect();
            values.sort_by(f64::total_cmp);
            let upper = values[values.len() / 2];
            let lower = values[(values.len() - 1) / 2];
            f64::midpoint(lower, upper)
        };
        Self {
            requests_per_second: median_of(|run| run.requests_per_second),
            cpu_us_per_request: median_of(|run| run.cpu_us_per_request),
            p50_ms: median_of(|run| run.p50_ms),
            p99_ms: median_of(|run| run.p99_ms),
        }
    }
}

/// The medians of one test for each server: a row of the table.
pub struct Row {
    /// The name of the redis-benchmark test.
    pub test: String,
    /// The name and the medians of each server, in the order of measurement.
    pub figures: Vec<(String, Figures)>,
}

/// Formats the Markdown section of one measurement; its heading is the command.
pub fn section(command: &str, setting: &str, rows: &[Row]) -> String {
    let mut text = format!("## `{command}`\n\n{setting}\n\n");
    text += "| test | server | requests/s | CPU µs/request | p50 ms | p99 ms |\n|---|---|--:|--:|--:|--:|\n";
    for row in rows {
        for (at, (server, figures)) in row.figures.iter().enumerate() {
            let test = if at == 0 { &row.test } else { "" };
            text += &format!(
                "| {test} | {server} | {:.0} | {:.2} | {:.3} | {:.3} |\n",
                figures.requests_per_second, figures.cpu_us_per_request, figures.p50_ms, figures.p99_ms
            );
        }
    }
    text
}

/// Puts `section`, the table of a benchmark, into the file at `path`. It replaces the section with
/// the same heading, or is appended at the end.
pub fn write(path: &Path, section: &str) -> Result<()> {
    let old = if path.exists() { fs::read_to_string(path)? } else { String::new() };
    fs::write(path, placed(&old, section)).with_context(|| format!("cannot write {}", path.display()))
}

/// Returns `page`, the text of a Markdown file, with `section` added, or with the section of the
/// same heading replaced.
fn placed(page: &str, section: &str) -> String {
    let heading = section.lines().next().unwrap_or_default();
    let lines: Vec<&str> = page.lines().collect();
    let Some(begin) = lines.iter().position(|line| *line == heading) else {
        let before = if page.is_empty() { String::new() } else { format!("{}\n\n", page.trim_end()) };
        return format!("{before}{section}");
    };
    let rest = &lines[begin + 1..];
    let end = rest.iter().position(|line| line.starts_with("## ")).map_or(lines.len(), |at| begin + 1 + at);
    let mut parts: Vec<String> = lines[..begin].iter().map(ToString::to_string).collect();
    parts.push(section.trim_end().to_owned());
    if end < lines.len() {
        parts.push(String::new());
        parts.extend(lines[end..].iter().map(ToString::to_string));
    }
    parts.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    const CSV: &str = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"\n\
        \"SET\",\"90000.50\",\"0.3\",\"0.1\",\"0.271\",\"0.4\",\"0.511\",\"1.2\"\n";

    fn figures(rate: f64) -> Figures {
        Figures { requests_per_second: rate, cpu_us_per_request: 5.0, p50_ms: 0.271, p99_ms: 0.511 }
    }

    #[test]
    fn reads_what_redis_benchmark_prints() {
        assert_eq!(Figures::parse(CSV, 5.0), Some(figures(90_000.5)));
        assert_eq!(Figures::parse("Could not connect\n", 5.0), None);
        let custom = CSV.replace("\"SET\"", "\"lrange a, b\"");
        assert_eq!(Figures::parse(&custom, 5.0), Some(figures(90_000.5)));
    }

    #[test]
    fn the_median_is_the_middle_or_between_the_two_middles() {
        let median = |rates: &[f64]| {
            Figures::median(rates.iter().map(|rate| figures(*rate)).collect()).requests_per_second
        };
        assert_eq!(median(&[5.0]), 5.0);
        assert_eq!(median(&[9.0, 1.0, 5.0]), 5.0);
        assert_eq!(median(&[9.0, 1.0, 5.0, 7.0]), 6.0);
    }

    #[test]
    fn a_section_replaces_its_elder_and_leaves_the_rest() {
        let row = Row { test: "get".into(), figures: vec![("saker".into(), figures(7.0))] };
        let new = section("cargo xtask bench", "Setting.", &[row]);
        let page = "# Performance\n\n## `cargo xtask bench`\n\nold\n\n## Other\n\ntext\n";
        let placed_once = placed(page, &new);
        assert!(!placed_once.contains("old"));
        assert!(placed_once.starts_with("# Performance\n\n## `cargo xtask bench`\n\nSetting."));
        assert!(placed_once.ends_with("| 0.511 |\n\n## Other\n\ntext\n"));
        assert_eq!(placed(&placed_once, &new), placed_once);
        assert_eq!(placed("", &new), new);
    }
}
