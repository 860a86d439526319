//! The chart of recall against rate: the figure by which indexes of vectors are compared.

use super::lines::{self, Axis, Dot, Kind, Plot, Series};
use super::svg::Group;
use crate::compare::outcome::{Cell, Metric, Outcome};
use crate::compare::report::text::{duration, io_threads_name, short, slug};
use crate::compare::report::view::{Engine, distinct};
use crate::compare::rounds::transport_name;
use crate::compare::study::Point;
use crate::results::VectorUse;

/// Draws a chart of recall and rate for each vector set and each set of conditions: a line per
/// engine, a dot per EF of the searches. Workloads that mix searches with other requests are left
/// out: their rate is not of searches.
pub(super) fn recall_against_rate(outcome: &Outcome, engines: &[Engine<'_>]) -> Group {
    let mut keys = Vec::new();
    for cell in &outcome.cells {
        keys.extend(searched(cell).map(|vectors| (vectors.set.clone(), conditions(cell))));
    }
    let keys = distinct(keys);
    let draw = |(set, point): &(String, Point)| {
        let here = |cell: &&Cell| {
            searched(cell).is_some_and(|vectors| vectors.set == *set) && conditions(cell) == *point
        };
        let series = |engine: usize| {
            let own = outcome.cells.iter().filter(|cell| cell.engine == engines[engine].name).filter(here);
            let mut dots: Vec<Dot> = own.filter_map(dot).collect();
            dots.sort_by(|one, other| one.x.total_cmp(&other.x));
            Series { engine, dots, joined: true, dotted: true }
        };
        let mut series: Vec<Series> = (0..engines.len()).map(series).collect();
        let (first, marks) = recall_marks(&series);
        // Axes begin at 0, so recalls are drawn as their distance from the first mark.
        series.iter_mut().flat_map(|series| &mut series.dots).for_each(|dot| dot.x -= first);
        let x = Axis { title: "recall, %", kind: Kind::Marks(marks), format: short, reach: None };
        let y = Axis { title: "searches/s", kind: Kind::Linear, format: short, reach: None };
        let title = title(set, point, &keys);
        let id = format!("recall-{}", slug(&title));
        lines::draw(Plot { id, title, engines, series, x, y, key: Vec::new() })
    };
    Group {
        id: "recall",
        title: "Recall against throughput".to_owned(),
        about: "Share of the true nearest neighbours that searches found, and searches per second. A point per EF, \
                which stands beside it: right and high is good. Hollow points are client-bound."
            .to_owned(),
        pictures: keys.iter().map(draw).collect(),
    }
}

/// Returns the vector workload of a cell whose requests are all searches of a vector set; `None`
/// for any other cell.
fn searched(cell: &Cell) -> Option<&VectorUse> {
    let vectors = cell.rounds.first()?.vectors.as_ref()?;
    (vectors.recall.is_some() && vectors.beside.is_none()).then_some(vectors)
}

/// Returns the conditions of `cell`: its point of measurement without the test's name.
fn conditions(cell: &Cell) -> Point {
    Point { test: String::new(), ..cell.point.clone() }
}

fn dot(cell: &Cell) -> Option<Dot> {
    let rate = cell.estimate(Metric::Rate)?;
    let recall = cell.median(Metric::Recall)?;
    let p50 = cell.median(Metric::P50).map_or_else(String::new, |us| format!(", p50 {}", duration(us)));
    let text = searched(cell)?.ef.map_or_else(String::new, |ef| ef.to_string());
    Some(Dot {
        x: recall,
        y: rate.median,
        interval: Some((rate.low, rate.high)),
        label: format!("EF {text}: recall {recall:.2} %, {} searches/s{p50}", short(rate.median)),
        text,
        bound: cell.client_bound().is_some(),
    })
}

/// Returns the first tick of the recall axis in percent, and all ticks as distances from it. They
/// are five steps up to 100 %; the lowest recall of `series` is above the first tick.
fn recall_marks(series: &[Series]) -> (f64, Vec<(f64, String)>) {
    let recalls = series.iter().flat_map(|series| series.dots.iter().map(|dot| dot.x));
    let least = recalls.fold(100.0, f64::min);
    let step = match 100.0 - least {
        gap if gap <= 1.0 => 0.2,
        gap if gap <= 5.0 => 1.0,
        gap if gap <= 25.0 => 5.0,
        _ => 20.0,
    };
    let first = 100.0 - 5.0 * step;
    let mark = |at: u32| (step * f64::from(at), short_percent(first + step * f64::from(at)));
    (first, (0..=5).map(mark).collect())
}

/// Formats a share in percent, with a decimal if it has one.
fn short_percent(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").unwrap_or(&text).to_owned()
}

/// Returns the title of a recall chart: the name of the vector set, and the conditions that differ
/// among `keys`, the charts.
fn title(set: &str, point: &Point, keys: &[(String, Point)]) -> String {
    let differs = |same: fn(&Point, &Point) -> bool| keys.iter().any(|(_, other)| !same(point, other));
    let mut words = vec![set.to_owned()];
    if differs(|one, other| one.transport == other.transport) {
        words.push(transport_name(point.transport).to_owned());
    }
    if differs(|one, other| one.round_trip_ms == other.round_trip_ms) {
        words.push(format!("{} ms link", point.round_trip_ms));
    }
    if differs(|one, other| one.io_threads == other.io_threads) {
        words.push(io_threads_name(point.io_threads));
    }
    if differs(|one, other| one.value_bytes == other.value_bytes) {
        words.push(format!("{}-byte values", point.value_bytes));
    }
    if differs(|one, other| one.connections == other.connections) {
        words.push(format!("{} connections", point.connections));
    }
    words.join(", ")
}
