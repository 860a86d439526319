//! The cells as tables. A view contains the measurements under the same conditions, with a row per
//! test and a column per engine. If the study raises the number of connections, a row contains the
//! best cell of each engine.

use crate::compare::outcome::{Cell, Metric, Outcome};
use crate::compare::report::colour;
use crate::compare::report::text::io_threads_name;
use crate::compare::rounds::transport_name;
use crate::compare::study::Point;
use crate::results::Transport;

/// The conditions under which the measurements of a [`View`] were made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conditions {
    /// The round trip time of the simulated link, in milliseconds; 0 without a link.
    pub round_trip_ms: u32,
    /// The transport of the connections to the server.
    pub transport: Transport,
    /// The number of I/O threads of the engines.
    pub io_threads: u32,
    /// The size of the values that requests write, in bytes.
    pub value_bytes: usize,
    /// The number of connections to the engine; `None` if each row of the view contains the best
    /// result of each engine over all numbers of connections.
    pub connections: Option<usize>,
}

/// A table of the measurements made under the same conditions.
#[derive(Clone, Debug)]
pub struct View<'a> {
    /// The conditions under which all rows of the table were measured.
    pub conditions: Conditions,
    /// The conditions in words: the conditions that differ within the study, or all if none
    /// differs.
    pub title: String,
    /// The rows of the table, one per test.
    pub rows: Vec<Row<'a>>,
}

/// A row of a [`View`]: the results of all engines in one test, under the view's conditions.
#[derive(Clone, Debug)]
pub struct Row<'a> {
    /// The name of the test whose results the row shows.
    pub test: &'a str,
    /// The results of each engine, in the order of [`engines`]; `None` if the engine was not
    /// measured.
    pub cells: Vec<Option<&'a Cell>>,
}

/// An engine as the reports show it: its name and its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Engine<'a> {
    /// The name of the engine in the study.
    pub name: &'a str,
    /// The number of the engine's colour in the style sheet of the charts.
    pub colour: usize,
}

/// Returns the engines that have results, in the study's order.
pub fn engines(outcome: &Outcome) -> Vec<Engine<'_>> {
    // Engines that were left out keep their colours, so they do not change the colours of others.
    let names: Vec<&str> = outcome.engines.iter().map(|engine| engine.name.as_str()).collect();
    let colours = colour::of(&names);
    let has_cells = |engine: &Engine<'_>| outcome.cells.iter().any(|cell| cell.engine == engine.name);
    names.iter().zip(colours).map(|(name, colour)| Engine { name, colour }).filter(has_cells).collect()
}

/// Returns the rows in which all engines have a value of `metric`. Engines without a value in any
/// row are ignored. A mean over different rows would compare the rows, not the engines.
pub fn common_rows<'v, 'a>(views: &'v [View<'a>], metric: Metric) -> Vec<&'v Row<'a>> {
    let rows: Vec<&Row<'_>> = views.iter().flat_map(|view| &view.rows).collect();
    let engines = rows.first().map_or(0, |row| row.cells.len());
    let has_figures = |at: &usize| rows.iter().any(|row| row.median(*at, metric).is_some());
    let engines: Vec<usize> = (0..engines).filter(has_figures).collect();
    let is_common = |row: &&Row<'_>| engines.iter().all(|at| row.median(*at, metric).is_some());
    rows.iter().copied().filter(is_common).collect()
}

/// Returns the index of the baseline engine in [`engines`], or 0 if the baseline has no results.
pub fn baseline_at(outcome: &Outcome) -> usize {
    engines(outcome).iter().position(|engine| engine.name == outcome.baseline).unwrap_or(0)
}

/// Returns the items without repetition, in the order of first occurrence.
pub fn distinct<T: PartialEq>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut all = Vec::new();
    for item in items {
        if !all.contains(&item) {
            all.push(item);
        }
    }
    all
}

/// Returns a table (view) for each set of conditions of the study, in the order of measurement.
pub fn views(outcome: &Outcome) -> Vec<View<'_>> {
    let engines = engines(outcome);
    let all = distinct(outcome.cells.iter().map(|cell| conditions(outcome, &cell.point)));
    let view = |conditions: &Conditions| {
        let here: Vec<&Cell> = outcome
            .cells
            .iter()
            .filter(|cell| self::conditions(outcome, &cell.point) == *conditions)
            .collect();
        let tests = distinct(here.iter().map(|cell| cell.point.test.as_str()));
        let best = |test: &str, engine: &str| {
            let cells = here.iter().copied().filter(|cell| cell.engine == engine && cell.point.test == test);
            let rate = |cell: &&Cell| cell.median(Metric::Rate).unwrap_or(-1.0);
            cells.max_by(|one, other| rate(one).total_cmp(&rate(other)))
        };
        let row = |test| Row { test, cells: engines.iter().map(|engine| best(test, engine.name)).collect() };
        View {
            conditions: *conditions,
            title: title(outcome, conditions, &all),
            rows: tests.into_iter().map(row).collect(),
        }
    };
    all.iter().map(view).collect()
}

fn conditions(outcome: &Outcome, point: &Point) -> Conditions {
    Conditions {
        round_trip_ms: point.round_trip_ms,
        transport: point.transport,
        io_threads: point.io_threads,
        value_bytes: point.value_bytes,
        connections: (!outcome.rising_connections).then_some(point.connections),
    }
}

/// Describes in words those of `conditions` that differ among `all`, or all conditions if none
/// differs.
fn title(outcome: &Outcome, conditions: &Conditions, all: &[Conditions]) -> String {
    let link = outcome.link_name(conditions.round_trip_ms);
    let connections = match conditions.connections {
        Some(count) => format!("{count} connections"),
        None => "as many connections as serve best".to_owned(),
    };
    let parts: [(String, bool); 5] = [
        (link, all.iter().any(|other| other.round_trip_ms != conditions.round_trip_ms)),
        (
            transport_name(conditions.transport).to_owned(),
            all.iter().any(|other| other.transport != conditions.transport),
        ),
        (
            io_threads_name(conditions.io_threads),
            all.iter().any(|other| other.io_threads != conditions.io_threads),
        ),
        (
            format!("{}-byte values", conditions.value_bytes),
            all.iter().any(|other| other.value_bytes != conditions.value_bytes),
        ),
        (connections, all.iter().any(|other| other.connections != conditions.connections)),
    ];
    let none = parts.iter().all(|(_, differs)| !differs);
    let shown: Vec<String> =
        parts.into_iter().filter(|(_, differs)| *differs || none).map(|(text, _)| text).collect();
    shown.join(", ")
}

impl Row<'_> {
    /// Returns the median of `metric` for the engine at index `at` in this row's test; `None` if
    /// the engine has no value.
    pub fn median(&self, at: usize, metric: Metric) -> Option<f64> {
        self.cells[at]?.median(metric)
    }

    /// Compares the engine at index `at` with the engine at index `base` by `metric`; `None` if one
    /// of them has no value.
    pub fn difference(&self, at: usize, base: usize, metric: Metric) -> Option<Difference> {
        let (value, base) = (self.cells[at]?.estimate(metric)?, self.cells[base]?.estimate(metric)?);
        let percent = crate::compare::stats::percent(value.median, base.median)?;
        let better = (percent > 0.0) == metric.more_is_better();
        let verdict = match (value.is_apart(&base), better) {
            _ if !metric.is_judged() => Verdict::None,
            (false, _) => Verdict::Noise,
            (true, true) => Verdict::Better,
            (true, false) => Verdict::Worse,
        };
        Some(Difference { percent, verdict })
    }

    /// Returns the best median of `metric` among all engines in this row's test; `None` if no
    /// engine has a value.
    pub fn best(&self, metric: Metric) -> Option<f64> {
        let values = (0..self.cells.len()).filter_map(|at| self.median(at, metric));
        if metric.more_is_better() { values.max_by(f64::total_cmp) } else { values.min_by(f64::total_cmp) }
    }
}

/// The comparison of one engine with another by one metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// The difference of the two medians, in percent of the second engine's median.
    pub percent: f64,
    /// The meaning of the difference: better, worse or noise.
    pub verdict: Verdict,
}

/// The meaning of a difference between two engines: better, worse or noise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The first engine is better, and the confidence intervals do not overlap.
    Better,
    /// The first engine is worse, and the confidence intervals do not overlap.
    Worse,
    /// The confidence intervals overlap, so that the difference may be noise.
    Noise,
    /// The difference means neither better nor worse, because engines are not judged by the metric.
    None,
}
