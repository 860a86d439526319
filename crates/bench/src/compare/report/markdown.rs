//! summary.md: tables for publication. For each test they show the values of all engines and the
//! difference to the baseline in percent: 🟢 better, 🔴 worse, ⚪ the confidence intervals overlap.

use std::fmt::Write;

use super::text;
use super::view::{self, Engine, Row, Verdict, View, views};
use crate::compare::outcome::{Cell, Metric, Outcome};

/// The metrics that have a table in addition to requests/s and the latencies. A metric without
/// values gets no table.
const FURTHER: [Metric; 11] = [
    Metric::ServerCpu,
    Metric::ClientCpu,
    Metric::LinkCpu,
    Metric::ServerBusy,
    Metric::ClientBusy,
    Metric::Rss,
    Metric::Switches,
    Metric::HitRate,
    Metric::Recall,
    Metric::BesideP99,
    Metric::VectorBytes,
];

/// The largest number of tests in a view with which each test gets a table of its own. With more
/// tests, each metric gets a table.
const FEW_TESTS_MAX: usize = 2;

/// Returns the text of summary.md for the outcome of a study.
pub fn text(outcome: &Outcome) -> String {
    let mut out = String::new();
    write_all(&mut out, outcome).expect("writing to a String does not fail");
    out
}

fn write_all(out: &mut String, outcome: &Outcome) -> std::fmt::Result {
    writeln!(out, "# {}\n", outcome.title)?;
    if !outcome.description.is_empty() {
        writeln!(out, "{}\n", outcome.description)?;
    }
    let machine = &outcome.machine;
    writeln!(
        out,
        "{}; {}, {} cores, {:.0} GB, {}. Medians of {} interleaved rounds.{}{}\n",
        text::moment(outcome.started_unix_ms),
        machine.cpu,
        machine.cores,
        machine.memory_bytes as f64 / 1e9,
        machine.system,
        outcome.rounds,
        outcome.seed.map_or_else(String::new, |seed| format!(" Seed {seed}.")),
        if outcome.quick { " A quick run: its figures only demonstrate." } else { "" },
    )?;
    if let Some(sentence) = outcome.about_shortening() {
        writeln!(out, "**{sentence}**\n")?;
    }
    writeln!(out, "| engine | version | started by |\n|---|---|---|")?;
    for engine in outcome.measured() {
        writeln!(out, "| {} | {} | `{}` |", engine.name, engine.version, engine.start)?;
    }
    writeln!(out)?;
    let links = outcome.about_links();
    for line in links.iter().chain(&outcome.notes) {
        writeln!(out, "- {line}")?;
    }
    if !links.is_empty() || !outcome.notes.is_empty() {
        writeln!(out)?;
    }
    writeln!(
        out,
        "Differences are to {}: 🟢 better, 🔴 worse, ⚪ within the noise (the confidence intervals overlap). \
         `client-bound`: the load generator was the limit, the rate says little about the server.\n",
        outcome.baseline
    )?;
    let views = views(outcome);
    for view in &views {
        writeln!(out, "## {}\n", capitalized(&view.title))?;
        if view.rows.len() <= FEW_TESTS_MAX {
            for row in &view.rows {
                table_of_test(out, outcome, row)?;
            }
            continue;
        }
        for metric in all_metrics() {
            table(out, outcome, view, metric)?;
        }
    }
    memory(out, outcome)
}

fn all_metrics() -> impl Iterator<Item = Metric> {
    [Metric::Rate].into_iter().chain(Metric::LATENCIES).chain(FURTHER)
}

/// Writes the header row of a table and the rule below it.
fn heading(out: &mut String, first: &str, engines: &[Engine<'_>], base: usize) -> std::fmt::Result {
    let mut heading = format!("| {first} |");
    let mut rule = "|---|".to_owned();
    for at in order(engines.len(), base) {
        write!(heading, " {} |", engines[at].name)?;
        rule += "--:|";
        if at != base {
            heading += " difference |";
            rule += "--:|";
        }
    }
    writeln!(out, "{heading}\n{rule}")
}

/// Writes a table of all figures of one test: a line per metric.
fn table_of_test(out: &mut String, outcome: &Outcome, row: &Row<'_>) -> std::fmt::Result {
    let engines = view::engines(outcome);
    let base = view::baseline_at(outcome);
    writeln!(out, "### {}\n", row.test)?;
    heading(out, "", &engines, base)?;
    for metric in all_metrics() {
        if metric != Metric::Rate && (0..engines.len()).all(|at| row.median(at, metric).is_none()) {
            continue;
        }
        write!(out, "| {} |", metric.title())?;
        figures(out, row, (engines.len(), base), metric)?;
    }
    writeln!(out)
}

/// Writes the figures of `metric` of all engines into a table line, with the differences to the
/// baseline.
fn figures(
    out: &mut String,
    row: &Row<'_>,
    (engines, base): (usize, usize),
    metric: Metric,
) -> std::fmt::Result {
    for at in order(engines, base) {
        write!(out, " {} |", value(row, at, metric))?;
        if at != base {
            write!(out, " {} |", difference(row, at, base, metric))?;
        }
    }
    writeln!(out)
}

/// Writes a table of one metric for all tests of a view: a line per test.
fn table(out: &mut String, outcome: &Outcome, view: &View<'_>, metric: Metric) -> std::fmt::Result {
    let engines = view::engines(outcome);
    let base = view::baseline_at(outcome);
    let known = |row: &&Row<'_>| {
        let figures = (0..engines.len()).any(|at| row.median(at, metric).is_some());
        figures || metric == Metric::Rate
    };
    let rows: Vec<_> = view.rows.iter().filter(known).collect();
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(out, "### {}\n", capitalized(metric.title()))?;
    heading(out, "test", &engines, base)?;
    for row in rows {
        write!(out, "| {} |", row.test)?;
        figures(out, row, (engines.len(), base), metric)?;
    }
    writeln!(out)
}

/// Returns the indexes of the engines in the order of the table columns. The baseline, at index
/// `base`, comes first.
pub fn order(engines: usize, base: usize) -> impl Iterator<Item = usize> {
    std::iter::once(base).chain((0..engines).filter(move |at| *at != base)).take(engines)
}

/// Formats the value of `metric` for the engine at index `at`, with its warnings.
fn value(row: &Row<'_>, at: usize, metric: Metric) -> String {
    let Some(cell) = row.cells[at] else { return "–".to_owned() };
    let mark = if metric == Metric::Rate { cell.mark() } else { bound_only(cell) };
    let mark = if mark.is_empty() { mark } else { format!(" `{mark}`") };
    let figure = cell.median(metric).map_or_else(|| "–".to_owned(), |value| figure(value, metric));
    figure + &mark
}

fn bound_only(cell: &Cell) -> String {
    if cell.client_bound().is_some() { "client-bound".to_owned() } else { String::new() }
}

/// Formats a value of `metric`, without its unit, which is part of the metric's title.
pub fn figure(value: f64, metric: Metric) -> String {
    match metric {
        Metric::Rate => thousands(value),
        Metric::ServerCpu | Metric::ClientCpu | Metric::LinkCpu | Metric::Recall => format!("{value:.2}"),
        _ if value >= 1000.0 => thousands(value),
        _ => format!("{value:.1}"),
    }
}

/// Formats a number, rounded to a whole number, with a comma before each group of three digits.
pub fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn difference(row: &Row<'_>, at: usize, base: usize, metric: Metric) -> String {
    let Some(difference) = row.difference(at, base, metric) else { return "–".to_owned() };
    let mark = match difference.verdict {
        Verdict::Better => "🟢",
        Verdict::Worse => "🔴",
        Verdict::Noise => "⚪",
        Verdict::None => "",
    };
    format!("{mark} {}", text::percent(difference.percent)).trim_start().to_owned()
}

fn memory(out: &mut String, outcome: &Outcome) -> std::fmt::Result {
    if outcome.memory.is_empty() {
        return Ok(());
    }
    writeln!(out, "## Memory per key\n")?;
    writeln!(out, "Growth of resident memory while the keys were written, over their number.\n")?;
    writeln!(out, "| engine | I/O threads | value bytes | keys | bytes per key |\n|---|--:|--:|--:|--:|")?;
    for memory in &outcome.memory {
        writeln!(
            out,
            "| {} | {} | {} | {} | {:.1} |",
            memory.engine,
            memory.io_threads,
            memory.value_bytes,
            thousands(memory.keys as f64),
            memory.bytes_per_key
        )?;
    }
    Ok(())
}

fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    // Words that begin with `p`, such as p99, keep their case.
    match chars.next() {
        Some(first) if !text.starts_with('p') => first.to_uppercase().chain(chars).collect(),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_have_commas() {
        assert_eq!(
            (thousands(7.0), thousands(123.4), thousands(1_234_567.8)),
            ("7".into(), "123".into(), "1,234,568".into())
        );
    }

    #[test]
    fn the_baseline_is_the_first_column() {
        assert_eq!(order(3, 1).collect::<Vec<_>>(), [1, 0, 2]);
    }
}
