//! report.html: one file with all tables and charts, readable without a network, on a phone, in
//! light and dark mode.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::charts::{Group, STYLE};
use super::markdown::{figure, order, thousands};
use super::text;
use super::view::{self, Row, Verdict, View, views};
use crate::compare::outcome::{Metric, Outcome};
use crate::compare::stats;

/// The style sheet of the page; the charts have their own.
const PAGE_STYLE: &str = include_str!("page.css");
/// The script of the page: it switches the metric of tables and enlarges charts.
const PAGE_SCRIPT: &str = include_str!("page.js");

/// The metrics that a reader can choose for the tables.
const METRICS: [Metric; 18] = [
    Metric::Rate,
    Metric::P50,
    Metric::P95,
    Metric::P99,
    Metric::P999,
    Metric::P9999,
    Metric::Mean,
    Metric::Max,
    Metric::ServerCpu,
    Metric::ClientCpu,
    Metric::LinkCpu,
    Metric::ServerBusy,
    Metric::ClientBusy,
    Metric::Switches,
    Metric::HitRate,
    Metric::Recall,
    Metric::BesideP99,
    Metric::VectorBytes,
];

/// Returns the text of report.html, with the charts of `groups`.
pub fn page(outcome: &Outcome, groups: &[Group]) -> String {
    let views = views(outcome);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width,initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (outcome.title) }
                style { (PreEscaped(STYLE)) (PreEscaped(PAGE_STYLE)) }
            }
            body {
                (header(outcome))
                main {
                    (notes(outcome))
                    (verdicts(outcome, &views))
                    nav {
                        a href="#figures" { "Figures" }
                        @for group in groups { a href={ "#" (group.id) } { (group.title) } }
                        a href="#setting" { "Setting" }
                    }
                    section id="figures" {
                        h2 { "Figures" }
                        p.about {
                            "Medians over the rounds; the difference is to " (outcome.baseline) ". "
                            span.better { "Green" } " is better, " span.worse { "red" }
                            " is worse, " span.noise { "grey" } " is within the noise: the confidence intervals overlap."
                        }
                        (metric_choice(outcome))
                        @for view in &views { (table(outcome, view)) }
                    }
                    @for run in groups.chunk_by(|one, other| is_single(one) && is_single(other)) {
                        @if is_single(&run[0]) {
                            div class={ "singles of-" (run.len().min(3)) } { @for group in run { (section(group)) } }
                        } @else {
                            (section(&run[0]))
                        }
                    }
                    (setting(outcome))
                }
                footer { "Made by saker-bench. All figures, round by round, are in results.json beside this page." }
                script { (PreEscaped(PAGE_SCRIPT)) }
            }
        }
    };
    page.into_string()
}

fn header(outcome: &Outcome) -> Markup {
    let machine = &outcome.machine;
    html! {
        header {
            h1 { (outcome.title) }
            @if !outcome.description.is_empty() { p.lead { (outcome.description) } }
            p.facts {
                span { (text::moment(outcome.started_unix_ms)) }
                span { (machine.cpu) ", " (machine.cores) " cores" }
                span { (outcome.rounds) " interleaved rounds" }
            }
        }
    }
}

/// Renders the warnings and notes that a reader needs before the figures.
fn notes(outcome: &Outcome) -> Markup {
    let bound = outcome.cells.iter().filter(|cell| cell.client_bound().is_some()).count();
    html! {
        @if outcome.quick {
            p.warning { strong { "A quick run." } " Shorter and with less load than the study is made for: it only demonstrates, its figures are nothing to rely on." }
        }
        @if let Some(sentence) = outcome.about_shortening() {
            p.warning { strong { (sentence) } " Differences and high percentiles are less sure than the study's." }
        }
        @if bound > 0 {
            p.warning {
                strong { (bound) " of " (outcome.cells.len()) " measurements are client-bound." }
                " There the load generator was the limit: the rate is a lower bound of what the server can do. \
                 Compare the server's CPU per request instead."
            }
        }
        @if !outcome.notes.is_empty() {
            details.notes open[outcome.notes.len() <= 4] {
                summary { (outcome.notes.len()) @if outcome.notes.len() == 1 { " note" } @else { " notes" } " on what was left out, done otherwise or failed" }
                ul { @for note in &outcome.notes { li { (note) } } }
            }
        }
    }
}

/// Renders a card per engine with its result of the whole study: the geometric mean of the ratios
/// to the baseline.
fn verdicts(outcome: &Outcome, views: &[View<'_>]) -> Markup {
    let engines = view::engines(outcome);
    let base = view::baseline_at(outcome);
    let rows = view::common_rows(views, Metric::Rate);
    let all_rows = views.iter().map(|view| view.rows.len()).sum::<usize>();
    let ratio = |at: usize, metric: Metric| {
        let one = |row: &&Row<'_>| {
            Some(row.median(at, metric)? / row.median(base, metric).filter(|value| *value > 0.0)?)
        };
        let rows = view::common_rows(views, metric);
        stats::geometric_mean(rows.iter().filter_map(one)).map(|ratio| (ratio - 1.0) * 100.0)
    };
    let count = |at: usize, verdict: Verdict| {
        let verdicts = rows.iter().filter_map(|row| row.difference(at, base, Metric::Rate));
        verdicts.filter(|difference| difference.verdict == verdict).count()
    };
    let over = match rows.len() {
        1 => "1 row".to_owned(),
        count => format!("{count} rows"),
    };
    let over = if rows.len() < all_rows { format!("the {over} that all engines have") } else { over };
    html! {
        div.cards {
            @for at in order(engines.len(), base) {
                @let facts = outcome.engines.iter().find(|engine| engine.name == engines[at].name);
                div class={ "card " (super::charts::colour_class(engines[at])) } {
                    h3 { (engines[at].name) " " small { (facts.map_or("", |facts| facts.version.as_str())) } }
                    @if at == base {
                        p { "The baseline that the others are compared with." }
                    } @else {
                        @if let Some(rate) = ratio(at, Metric::Rate) {
                            p.big { (text::percent(rate)) }
                            p { "requests/s, geometric mean over " (over) }
                        } @else {
                            p { "No row has figures of all engines." }
                        }
                        p {
                            span.better { (count(at, Verdict::Better)) " better" } " · "
                            span.worse { (count(at, Verdict::Worse)) " worse" } " · "
                            span.noise { (count(at, Verdict::Noise)) " within noise" }
                        }
                        p.minor {
                            @if let Some(p99) = ratio(at, Metric::P99) { "p99 " (text::percent(p99)) }
                            @if let Some(cpu) = ratio(at, Metric::ServerCpu) { " · CPU/request " (text::percent(cpu)) }
                        }
                    }
                }
            }
        }
    }
}

/// Returns the metrics in [`METRICS`] for which at least one engine of the study has a value.
fn known(outcome: &Outcome) -> Vec<Metric> {
    let is_known = |metric: &Metric| outcome.cells.iter().any(|cell| cell.median(*metric).is_some());
    METRICS.into_iter().filter(is_known).collect()
}

fn metric_choice(outcome: &Outcome) -> Markup {
    html! {
        div.choice role="group" aria-label="Metric" {
            @for (at, metric) in known(outcome).into_iter().enumerate() {
                button type="button" data-metric=(text::slug(metric.title())) aria-pressed=(at == 0) { (metric.title()) }
            }
        }
    }
}

/// Renders the table of the measurements under the same conditions (a view), with a table body per
/// metric. The script shows one table body at a time; without the script all are visible.
fn table(outcome: &Outcome, view: &View<'_>) -> Markup {
    let engines = view::engines(outcome);
    let base = view::baseline_at(outcome);
    html! {
        h3 { (view.title) }
        div.scroll tabindex="0" {
            table {
                thead {
                    tr {
                        th { "test" }
                        @for at in order(engines.len(), base) {
                            th.number { (engines[at].name) }
                            @if at != base { th.number { "difference" } }
                        }
                    }
                }
                @for metric in known(outcome) {
                    tbody data-metric=(text::slug(metric.title())) {
                        tr.metric { th colspan=(engines.len() * 2) { (metric.title()) } }
                        @for row in &view.rows { (table_row(row, engines.len(), base, metric)) }
                    }
                }
            }
        }
        (scroll_hint())
    }
}

/// Renders the hint that a table is wider than the page and can be scrolled.
fn scroll_hint() -> Markup {
    html! { p.hint { "The table goes on to the side: scroll it. →" } }
}

fn table_row(row: &Row<'_>, engines: usize, base: usize, metric: Metric) -> Markup {
    html! {
        tr {
            th { (row.test) }
            @for at in order(engines, base) {
                td.number {
                    @match row.cells[at] {
                        Some(cell) => {
                            @match cell.estimate(metric) {
                                Some(estimate) => span title={
                                    (figure(estimate.low, metric)) " to " (figure(estimate.high, metric))
                                    ", which holds the true median with " (format!("{:.0}", estimate.coverage * 100.0)) " %"
                                } { (figure(estimate.median, metric)) },
                                None => "–",
                            }
                            @if !cell.mark().is_empty() {
                                br; small.mark title=[cell.client_bound().or(cell.failure.as_deref())] { (cell.mark()) }
                            }
                        },
                        None => "–",
                    }
                }
                @if at != base {
                    td.number {
                        @match row.difference(at, base, metric) {
                            Some(difference) => span class=(class(difference.verdict)) { (text::percent(difference.percent)) },
                            None => "–",
                        }
                    }
                }
            }
        }
    }
}

fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Better => "better",
        Verdict::Worse => "worse",
        Verdict::Noise | Verdict::None => "noise",
    }
}

/// Returns true if the group has a single chart. The page shows adjacent groups of this kind side
/// by side.
fn is_single(group: &Group) -> bool {
    group.pictures.len() == 1
}

fn section(group: &Group) -> Markup {
    html! {
        section id=(group.id) {
            h2 { (group.title) }
            p.about { (group.about) }
            div.pictures {
                @for picture in &group.pictures { figure { (picture.inline()) } }
            }
        }
    }
}

/// Returns the number of client threads in words: `1 thread`, or `1 to 8 threads` if the runs
/// differ.
fn client_threads(outcome: &Outcome) -> String {
    let all = || outcome.cells.iter().flat_map(|cell| &cell.rounds).map(|run| run.settings.threads);
    match (all().min().unwrap_or(0), all().max().unwrap_or(0)) {
        (1, 1) => "1 thread".to_owned(),
        (least, most) if least == most => format!("{most} threads"),
        (least, most) => format!("{least} to {most} threads"),
    }
}

/// Returns the number of keys that requests used in words: `1,000 keys`, or `1,000 to 9,000 keys`
/// if the runs differ; `None` if all requests used the same key.
fn keyspace(outcome: &Outcome) -> Option<String> {
    let runs = outcome.cells.iter().flat_map(|cell| &cell.rounds);
    let counts: Vec<u64> = runs.map(|run| run.settings.keyspace).filter(|count| *count > 0).collect();
    let (least, most) = (*counts.iter().min()?, *counts.iter().max()?);
    let thousands = |count: u64| thousands(count as f64);
    Some(match least == most {
        true => format!("{} keys", thousands(most)),
        false => format!("{} to {} keys", thousands(least), thousands(most)),
    })
}

fn setting(outcome: &Outcome) -> Markup {
    let machine = &outcome.machine;
    let one = outcome.cells.iter().find_map(|cell| cell.rounds.first());
    html! {
        section id="setting" {
            h2 { "Setting" }
            dl {
                dt { "Machine" }
                dd { (machine.cpu) ", " (machine.cores) " cores, " (format!("{:.0}", machine.memory_bytes as f64 / 1e9)) " GB, " (machine.system) }
                @if let Some(run) = one {
                    dt { "Load generator" }
                    dd {
                        (client_threads(outcome))
                        ", pipeline " (run.settings.pipeline) ", RESP" (run.settings.resp)
                        @if let Some(keys) = keyspace(outcome) { ", " (keys) }
                        ", " (run.settings.io_backend)
                        @if let Some(seed) = outcome.seed { ", seed " (seed) }
                        ", on the same machine unless an engine's address says otherwise"
                    }
                }
                @for about in outcome.about_links() { dt { "Link" } dd { (about) } }
                dt { "Confidence" }
                dd { "Intervals of medians come from order statistics of the rounds: with few rounds they are the whole range." }
            }
            div.scroll tabindex="0" {
                table {
                    thead { tr { th { "engine" } th { "version" } th { "started by" } th { "settings" } } }
                    tbody {
                        @for engine in &outcome.engines {
                            tr {
                                th { (engine.name) }
                                td { (engine.version) @if let Some(reason) = &engine.left_out { "left out: " (reason) } }
                                td { code { (engine.start) } }
                                td { @for (name, value) in &engine.settings { code { (name) " " (if value.is_empty() { "\"\"" } else { value }) } br; } }
                            }
                        }
                    }
                }
            }
            (scroll_hint())
        }
    }
}
