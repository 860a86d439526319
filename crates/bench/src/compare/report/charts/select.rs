//! The choice of charts for a study. It depends on the dimensions that have more than one value.

use super::bars::{self, Bar, BarGroup};
use super::heat::{self, Place};
use super::lines::{self, Axis, Dot, Kind, Plot, Series};
use super::radar;
use super::recall::recall_against_rate;
use super::svg::{Group, Picture};
use crate::compare::outcome::{Cell, Metric, Outcome};
use crate::compare::report::text::{duration, io_threads_name, percent, short, slug};
use crate::compare::report::view::{Engine, Row, View, distinct, engines, views};
use crate::compare::rounds::transport_name;
use crate::compare::stats;
use crate::results::{Bucket, Transport};

/// The maximum number of charts of one kind. Further charts are left out; their figures are in the
/// tables and in results.json.
const PICTURES_MAX: usize = 24;
/// The maximum number of rows of a single heat map for all tests. With more rows, each test has its
/// own map.
const HEAT_ROWS_MAX: usize = 24;
/// The number of points of a percentile curve.
const CURVE_POINTS: usize = 64;

/// Returns all charts for the outcome of a study, in a group for each kind of chart.
pub fn all(outcome: &Outcome) -> Vec<Group> {
    let engines = engines(outcome);
    let views = views(outcome);
    let mut groups = vec![
        metric_bars(
            &MetricBars {
                metric: Metric::Rate,
                format: short,
                id: "throughput",
                title: "Throughput",
                about: "Requests per second: medians over the rounds, with whiskers of the confidence \
                    interval. Hollow bars are client-bound: the load generator was the limit.",
            },
            (&engines, &views),
        ),
        heat_map(&engines, &views),
        radars(&engines, &views),
        rate_against_latency(outcome, &engines),
        latency_curves(&engines, &views),
        scaling(outcome, &engines),
        transports(outcome, &engines),
        metric_bars(
            &MetricBars {
                metric: Metric::ServerCpu,
                format: duration,
                id: "cpu",
                title: "Server CPU per request",
                about: "Processor time of the server's process, user and kernel, over the requests it \
                    served: it hardly moves with noise or with how fast the client is. Less is better.",
            },
            (&engines, &views),
        ),
        memory(outcome, &engines),
        recall_against_rate(outcome, &engines),
        metric_bars(
            &MetricBars {
                metric: Metric::VectorBytes,
                format: short,
                id: "vector-memory",
                title: "Memory per vector",
                about: "Growth of the memory that the server has allocated while the vectors were added, over \
                    their number: vector, links, name and all that the server keeps around them. Less is better.",
            },
            (&engines, &views),
        ),
    ];
    groups.retain(|group| !group.pictures.is_empty());
    // With a single condition most kinds have one chart. They come first, and the page shows them
    // side by side.
    if groups.first().is_some_and(|group| group.pictures.len() == 1) {
        groups.sort_by_key(|group| group.pictures.len() > 1);
    }
    for group in &mut groups {
        let all = group.pictures.len();
        if all > PICTURES_MAX {
            group.pictures.truncate(PICTURES_MAX);
            group.about +=
                &format!(" These are the first {PICTURES_MAX} of {all}; all figures are in results.csv.");
        }
    }
    groups
}

fn bar(cell: &Cell, metric: Metric) -> Option<Bar> {
    let estimate = cell.estimate(metric)?;
    let note = if cell.client_bound().is_some() { "client-bound" } else { "" };
    Some(Bar {
        value: estimate.median,
        interval: Some((estimate.low, estimate.high)),
        bound: cell.client_bound().map(str::to_owned),
        note: note.to_owned(),
    })
}

fn row_bars(row: &Row<'_>, label: &str, metric: Metric) -> BarGroup {
    let bars = row.cells.iter().map(|cell| cell.and_then(|cell| bar(cell, metric))).collect();
    BarGroup { label: label.to_owned(), bars }
}

/// The settings of the bar charts of one metric.
struct MetricBars {
    metric: Metric,
    /// The function that formats a value of the metric.
    format: fn(f64) -> String,
    id: &'static str,
    title: &'static str,
    about: &'static str,
}

/// Draws the bar charts of a metric: one per view (a table of the measurements under the same
/// conditions), or one per test if there are fewer tests than views.
fn metric_bars(wanted: &MetricBars, (engines, views): (&[Engine<'_>], &[View<'_>])) -> Group {
    let MetricBars { metric, format, id, title, about } = *wanted;
    let tests = distinct(views.iter().flat_map(|view| view.rows.iter().map(|row| row.test)));
    let mut pictures = Vec::new();
    let mut add = |name: &str, mut groups: Vec<BarGroup>| {
        groups.retain(|group| group.bars.iter().any(Option::is_some));
        if !groups.is_empty() {
            let id = format!("{id}-{}", slug(name));
            pictures.push(bars::draw(id, name.to_owned(), engines, &groups, format));
        }
    };
    if views.len() > tests.len() {
        for test in tests {
            let rows = views.iter().flat_map(|view| view.rows.iter().map(move |row| (view, row)));
            let rows = rows.filter(|(_, row)| row.test == test);
            add(test, rows.map(|(view, row)| row_bars(row, &view.title, metric)).collect());
        }
    } else {
        for view in views {
            add(&view.title, view.rows.iter().map(|row| row_bars(row, row.test, metric)).collect());
        }
    }
    Group { id, title: title.to_owned(), about: about.to_owned(), pictures }
}

fn heat_map(engines: &[Engine<'_>], views: &[View<'_>]) -> Group {
    let place = |row: &Row<'_>, at: usize| {
        let (value, best) = (row.median(at, Metric::Rate)?, row.best(Metric::Rate)?);
        let share = if best > 0.0 { value / best } else { 0.0 };
        let bound = row.cells[at].is_some_and(|cell| cell.client_bound().is_some());
        Some(Place { share, texts: [short(value), format!("{:.0} %", share * 100.0)], bound })
    };
    let places = |row: &Row<'_>| (0..engines.len()).map(|at| place(row, at)).collect();
    let all = || views.iter().flat_map(|view| view.rows.iter().map(move |row| (view, row)));
    let draw = |id: String, title: &str, rows: Vec<(String, Vec<Option<Place>>)>| {
        heat::draw(id, title.to_owned(), engines, &rows)
    };
    let pictures = if engines.len() < 2 || views.is_empty() {
        Vec::new()
    } else if all().count() <= HEAT_ROWS_MAX {
        let name = |view: &View<'_>, row: &Row<'_>| match views.len() {
            1 => row.test.to_owned(),
            _ => format!("{}, {}", row.test, view.title),
        };
        let rows = all().map(|(view, row)| (name(view, row), places(row))).collect();
        vec![draw("heat-map".to_owned(), "Requests per second", rows)]
    } else {
        let per_test = |test: &str| {
            let rows = all().filter(|(_, row)| row.test == test);
            let rows = rows.map(|(view, row)| (view.title.clone(), places(row))).collect();
            draw(format!("heat-map-{}", slug(test)), test, rows)
        };
        distinct(all().map(|(_, row)| row.test)).into_iter().map(per_test).collect()
    };
    Group {
        id: "heat",
        title: "Heat map".to_owned(),
        about:
            "Each engine's requests per second and its share of the row's best: the stronger, the closer. \
                ⚠ is client-bound."
                .to_owned(),
        pictures,
    }
}

fn radars(engines: &[Engine<'_>], views: &[View<'_>]) -> Group {
    let draw = |view: &View<'_>| {
        let complete = |row: &&Row<'_>| (0..engines.len()).all(|at| row.median(at, Metric::Rate).is_some());
        let rows: Vec<&Row<'_>> = view.rows.iter().filter(complete).collect();
        if rows.len() < 3 || engines.len() < 2 {
            return None;
        }
        let tests: Vec<&str> = rows.iter().map(|row| row.test).collect();
        let share = |row: &Row<'_>, at| match (row.median(at, Metric::Rate), row.best(Metric::Rate)) {
            (Some(value), Some(best)) if best > 0.0 => value / best,
            _ => 0.0,
        };
        let outlines: Vec<Vec<f64>> =
            (0..engines.len()).map(|at| rows.iter().map(|row| share(row, at)).collect()).collect();
        let id = format!("radar-{}", slug(&view.title));
        Some(radar::draw(id, view.title.clone(), engines, &tests, &outlines))
    };
    Group {
        id: "radar",
        title: "Radar".to_owned(),
        about: "Requests per second relative to each test's best, which is the rim.".to_owned(),
        pictures: views.iter().filter_map(draw).collect(),
    }
}

/// Returns the latency in microseconds that `share` (0 to 1) of all `total` requests do not exceed,
/// from a histogram of latencies. `histogram` has the buckets of all rounds, in ascending order.
fn quantile(histogram: &[Bucket], total: u64, share: f64) -> f64 {
    let wanted = (share * total as f64).ceil().max(1.0) as u64;
    let mut seen = 0;
    for bucket in histogram {
        seen += bucket.count;
        if seen >= wanted {
            return bucket.upper_us;
        }
    }
    histogram.last().map_or(0.0, |bucket| bucket.upper_us)
}

/// Returns the percentile curve of a cell over the requests of all its rounds. x is the number of
/// nines: 1 is p90, 2 is p99. y is the latency in microseconds.
fn curve(cell: &Cell) -> Vec<Dot> {
    let mut histogram: Vec<Bucket> = cell.rounds.iter().flat_map(|run| run.histogram.clone()).collect();
    histogram.sort_by(|one, other| one.upper_us.total_cmp(&other.upper_us));
    let total: u64 = histogram.iter().map(|bucket| bucket.count).sum();
    if total == 0 {
        return Vec::new();
    }
    // The highest percentile of `total` requests is that of one request in `total`.
    let nines_max = (total as f64).log10().min(4.0);
    let dot = |at: usize| {
        let x = at as f64 / CURVE_POINTS as f64 * nines_max;
        Dot { x, y: quantile(&histogram, total, 1.0 - 10f64.powf(-x)), ..Dot::default() }
    };
    (0..=CURVE_POINTS).map(dot).filter(|dot| dot.y > 0.0).collect()
}

fn latency_curves(engines: &[Engine<'_>], views: &[View<'_>]) -> Group {
    let marks = [(0.0, ""), (0.301, "p50"), (1.0, "p90"), (2.0, "p99"), (3.0, "p99.9"), (4.0, "p99.99")];
    let mut panels: Vec<(String, Vec<Series>)> = Vec::new();
    for view in views {
        for row in &view.rows {
            let cells = row.cells.iter().enumerate().filter_map(|(at, cell)| Some((at, (*cell)?)));
            let series: Vec<Series> = cells
                .map(|(engine, cell)| Series { engine, dots: curve(cell), joined: true, dotted: false })
                .filter(|series| !series.dots.is_empty())
                .collect();
            if series.is_empty() {
                continue;
            }
            let name =
                if views.len() > 1 { format!("{}, {}", row.test, view.title) } else { row.test.to_owned() };
            panels.push((name, series));
        }
    }
    let reach = lines::reach(panels.iter().flat_map(|(_, series)| series));
    let draw = |(title, series): (String, Vec<Series>)| {
        let marks = marks.map(|(at, text)| (at, text.to_owned())).to_vec();
        let x = Axis { title: "share of requests", kind: Kind::Marks(marks), format: short, reach: None };
        let y = Axis { title: "latency", kind: Kind::Logarithmic, format: duration, reach };
        let id = format!("latency-{}", slug(&title));
        lines::draw(Plot { id, title, engines, series, x, y, key: Vec::new() })
    };
    let pictures = panels.into_iter().map(draw).collect();
    Group {
        id: "latency",
        title: "Latency".to_owned(),
        about: "How long requests took, all rounds together: p99 is what 99 of 100 requests stayed under. \
                Both axes widen what is rare and slow, and are the same in all pictures. Lower is better."
            .to_owned(),
        pictures,
    }
}

/// Groups the measured cells by `key`, which returns the dimensions that stay fixed in a chart. The
/// groups (families) are in the order of first occurrence.
fn families<K: PartialEq>(outcome: &Outcome, key: impl Fn(&Cell) -> K) -> Vec<(K, Vec<&Cell>)> {
    let measured = || outcome.cells.iter().filter(|cell| !cell.rounds.is_empty());
    let keys = distinct(measured().map(&key));
    keys.into_iter()
        .map(|wanted| {
            let cells = measured().filter(|cell| key(cell) == wanted).collect();
            (wanted, cells)
        })
        .collect()
}

/// Returns the name of the family (chart) of `cell`: the test, and each of value size, transport
/// and link that has several values in the study.
fn family_name(outcome: &Outcome, cell: &Cell) -> String {
    family_words(outcome, cell, Some(cell.point.transport))
}

/// Returns the name of the family (chart) of `cell`. `transport` is the transport of the cell, or
/// `None` for a chart that shows all transports.
fn family_words(outcome: &Outcome, cell: &Cell, transport: Option<Transport>) -> String {
    let point = &cell.point;
    let differs = |same: fn(&Cell, &Cell) -> bool| outcome.cells.iter().any(|other| !same(cell, other));
    let mut words = vec![point.test.clone()];
    if differs(|one, other| one.point.value_bytes == other.point.value_bytes) {
        words.push(format!("{}-byte values", point.value_bytes));
    }
    if let Some(transport) = transport
        && differs(|one, other| one.point.transport == other.point.transport)
    {
        words.push(transport_name(transport).to_owned());
    }
    if differs(|one, other| one.point.round_trip_ms == other.point.round_trip_ms) {
        words.push(outcome.link_name(point.round_trip_ms));
    }
    words.join(", ")
}

fn dot(cell: &Cell, x: f64, y: Metric, label: String) -> Option<Dot> {
    let estimate = cell.estimate(y)?;
    let interval = Some((estimate.low, estimate.high));
    let bound = cell.client_bound().is_some();
    Some(Dot { x, y: estimate.median, interval, label, bound, ..Dot::default() })
}

/// Draws charts of p99 against requests/s. If the study has several numbers of connections, a line
/// joins them; otherwise each test is a point.
fn rate_against_latency(outcome: &Outcome, engines: &[Engine<'_>]) -> Group {
    let place = |cell: &Cell, text: String| {
        let rate = cell.median(Metric::Rate)?;
        let label = format!(
            "{}, {} connections: {} requests/s, p99 {}",
            cell.point.test,
            cell.point.connections,
            short(rate),
            duration(cell.median(Metric::P99)?)
        );
        Some(Dot { interval: None, text, ..dot(cell, rate, Metric::P99, label)? })
    };
    let is_over_connections = distinct(outcome.cells.iter().map(|cell| cell.point.connections)).len() > 1;
    let mut panels: Vec<(String, Vec<Series>, Vec<String>)> = Vec::new();
    let key = |cell: &Cell| {
        let point = &cell.point;
        let test = is_over_connections.then(|| point.test.clone());
        (test, point.transport, point.round_trip_ms, point.value_bytes, point.io_threads)
    };
    for ((test, _, _, _, io_threads), cells) in families(outcome, key) {
        // The text beside a dot: the number of connections for a dot of a line, otherwise the
        // number of the test.
        let tests = distinct(cells.iter().map(|cell| cell.point.test.clone()));
        let number = |cell: &Cell| match &test {
            Some(_) => cell.point.connections,
            None => tests.iter().position(|test| *test == cell.point.test).map_or(0, |at| at + 1),
        };
        let series = |engine: usize| {
            let own = cells.iter().filter(|cell| cell.engine == engines[engine].name);
            let dots = own.filter_map(|cell| place(cell, number(cell).to_string()));
            Series { engine, dots: dots.collect(), joined: test.is_some(), dotted: true }
        };
        let series: Vec<Series> = (0..engines.len()).map(series).collect();
        let mut name = family_name(outcome, cells[0]);
        if test.is_none() {
            name = name.replacen(&cells[0].point.test, "All tests", 1);
        }
        if distinct(outcome.cells.iter().map(|cell| cell.point.io_threads)).len() > 1 {
            name += &format!(", {}", io_threads_name(io_threads));
        }
        let key = if test.is_some() { Vec::new() } else { tests };
        panels.push((name, series, key));
    }
    let reach = lines::reach(panels.iter().flat_map(|(_, series, _)| series));
    let draw = |(title, series, key): (String, Vec<Series>, Vec<String>)| {
        let x = Axis { title: "requests/s", kind: Kind::Linear, format: short, reach: None };
        let y = Axis { title: "p99 latency", kind: Kind::Logarithmic, format: duration, reach };
        let id = format!("rate-latency-{}", slug(&title));
        lines::draw(Plot { id, title, engines, series, x, y, key })
    };
    let pictures = panels.into_iter().map(draw).collect();
    Group {
        id: "rate-latency",
        title: "Throughput against latency".to_owned(),
        about: if is_over_connections {
            "A point per number of connections, which stands beside it, joined as they rise: right and low is good, \
             and a line that turns upwards has reached its limit. Hollow points are client-bound."
        } else {
            "A point per test, with its number: right and low is good. Hollow points are client-bound."
        }
        .to_owned(),
        pictures,
    }
}

fn scaling(outcome: &Outcome, engines: &[Engine<'_>]) -> Group {
    let mut pictures = Vec::new();
    let key = |cell: &Cell| {
        let point = &cell.point;
        (point.test.clone(), point.transport, point.round_trip_ms, point.value_bytes)
    };
    for (_, cells) in families(outcome, key) {
        let mut threads = distinct(cells.iter().map(|cell| cell.point.io_threads));
        threads.sort_unstable();
        if threads.len() < 2 {
            continue;
        }
        let best = |engine: &str, threads: u32| {
            let here = cells.iter().filter(|cell| cell.engine == engine && cell.point.io_threads == threads);
            let rate = |cell: &Cell| cell.median(Metric::Rate).unwrap_or(0.0);
            let cell = here.max_by(|one, other| rate(one).total_cmp(&rate(other)))?;
            let label = format!("{}: {} requests/s", io_threads_name(threads), short(rate(cell)));
            dot(cell, f64::from(threads), Metric::Rate, label)
        };
        let series = |engine: usize| Series {
            engine,
            dots: threads.iter().filter_map(|threads| best(engines[engine].name, *threads)).collect(),
            joined: true,
            dotted: true,
        };
        let series: Vec<Series> = (0..engines.len()).map(series).collect();
        let marks = threads.iter().map(|threads| (f64::from(*threads), threads.to_string())).collect();
        let x = Axis { title: "I/O threads", kind: Kind::Marks(marks), format: short, reach: None };
        let y = Axis { title: "requests/s", kind: Kind::Linear, format: short, reach: None };
        let title = family_name(outcome, cells[0]);
        let id = format!("scaling-{}", slug(&title));
        pictures.push(lines::draw(Plot { id, title, engines, series, x, y, key: Vec::new() }));
    }
    Group {
        id: "scaling",
        title: "Scaling over I/O threads".to_owned(),
        about:
            "Requests per second for each number of I/O threads, at the number of connections that serves \
                best. Hollow points are client-bound: there the server might do more."
                .to_owned(),
        pictures,
    }
}

/// Draws bar charts of the rate over each transport, with the difference to plain TCP.
fn transports(outcome: &Outcome, engines: &[Engine<'_>]) -> Group {
    let ways = distinct(outcome.cells.iter().map(|cell| cell.point.transport));
    let mut pictures = Vec::new();
    let key = |cell: &Cell| {
        let point = &cell.point;
        (point.test.clone(), point.round_trip_ms, point.value_bytes, point.io_threads, point.connections)
    };
    let families = if ways.len() > 1 { families(outcome, key) } else { Vec::new() };
    for ((_, _, _, io_threads, connections), cells) in families {
        let find = |engine: &str, way: Transport| {
            cells.iter().copied().find(|cell| cell.engine == engine && cell.point.transport == way)
        };
        let bar = |engine: &Engine<'_>, way: Transport| {
            let mut bar = bar(find(engine.name, way)?, Metric::Rate)?;
            let plain = find(engine.name, Transport::Tcp).and_then(|cell| cell.median(Metric::Rate));
            if let Some(difference) = plain.and_then(|plain| stats::percent(bar.value, plain))
                && way != Transport::Tcp
            {
                bar.note = format!("{} {}", percent(difference), bar.note).trim().to_owned();
            }
            Some(bar)
        };
        let group = |way: &Transport| BarGroup {
            label: transport_name(*way).to_owned(),
            bars: engines.iter().map(|engine| bar(engine, *way)).collect(),
        };
        let groups: Vec<BarGroup> = ways.iter().map(group).collect();
        let name = format!(
            "{}, {}, {connections} connections",
            family_words(outcome, cells[0], None),
            io_threads_name(io_threads)
        );
        let id = format!("transports-{}", slug(&name));
        pictures.push(bars::draw(id, name, engines, &groups, short));
    }
    let with_tls = ways.contains(&Transport::Tls);
    Group {
        id: "transports",
        title: if with_tls { "TLS against plain" } else { "Ways to the server" }.to_owned(),
        about: "Requests per second over each way to the server, and the difference to plain TCP.".to_owned(),
        pictures,
    }
}

fn memory(outcome: &Outcome, engines: &[Engine<'_>]) -> Group {
    let sizes = distinct(outcome.memory.iter().map(|memory| (memory.value_bytes, memory.io_threads)));
    let several_threads = distinct(sizes.iter().map(|(_, threads)| *threads)).len() > 1;
    let group = |&(value_bytes, io_threads): &(usize, u32)| {
        let bar = |engine: &Engine<'_>| {
            let here = outcome.memory.iter().filter(|memory| {
                memory.engine == engine.name
                    && (memory.value_bytes, memory.io_threads) == (value_bytes, io_threads)
            });
            let value = stats::median(here.map(|memory| memory.bytes_per_key))?;
            Some(Bar { value, interval: None, bound: None, note: String::new() })
        };
        let threads =
            if several_threads { format!(", {}", io_threads_name(io_threads)) } else { String::new() };
        BarGroup {
            label: format!("{value_bytes}-byte values{threads}"),
            bars: engines.iter().map(bar).collect(),
        }
    };
    let groups: Vec<BarGroup> = sizes.iter().map(group).collect();
    let pictures: Vec<Picture> = if groups.is_empty() {
        Vec::new()
    } else {
        vec![bars::draw("memory-per-key".into(), "Bytes per key".into(), engines, &groups, short)]
    };
    Group {
        id: "memory",
        title: "Memory per key".to_owned(),
        about: "Growth of resident memory while keys were written into the fresh server, over their number: \
                key, value and all that the server keeps around them. Less is better."
            .to_owned(),
        pictures,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_read_from_the_histogram() {
        let bucket = |upper_us, count| Bucket { upper_us, count };
        let histogram = [bucket(10.0, 90), bucket(20.0, 9), bucket(100.0, 1)];
        let read = |share| quantile(&histogram, 100, share);
        assert_eq!(
            (read(0.0), read(0.9), read(0.91), read(0.99), read(1.0)),
            (10.0, 10.0, 20.0, 20.0, 100.0)
        );
    }
}
