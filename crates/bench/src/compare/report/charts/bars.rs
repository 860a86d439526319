//! Horizontal bar charts with confidence whiskers. Bars are grouped: a heading per group, a bar per
//! engine.

use maud::{Markup, html};

use super::svg::{Picture, Scale, WIDTH, colour, n, small_width};
use crate::compare::report::view::Engine;

const BAR_HEIGHT: f64 = 13.0;
const BAR_STEP: f64 = 17.0;
const HEADING_HEIGHT: f64 = 19.0;
const GROUP_GAP: f64 = 9.0;
/// The space between a figure, its bar and its note, in units of the chart.
const GAP: f64 = 7.0;
/// The space to the right of the bars, in units of the chart: half of the width of the last axis
/// label.
const RIGHT: f64 = 18.0;
const AXIS_HEIGHT: f64 = 20.0;

/// A bar of the chart: the value of one engine, with its whisker and its note.
#[derive(Clone, Debug)]
pub struct Bar {
    /// The value that the bar shows, in the unit of the chart's axis.
    pub value: f64,
    /// The ends of the whisker: the confidence interval of `value`.
    pub interval: Option<(f64, f64)>,
    /// The reason why the load generator was the bottleneck; the bar is then hollow. `None` if it
    /// was not.
    pub bound: Option<String>,
    /// The text to the right of the bar; empty for none.
    pub note: String,
}

/// The bars of one test or one view below a common heading, one bar per engine.
pub struct BarGroup {
    /// The heading of the group, above its bars.
    pub label: String,
    /// The bar of each engine, in the order of the engines; `None` if an engine has no value.
    pub bars: Vec<Option<Bar>>,
}

/// Draws a bar chart of `groups`. Each group has a bar for each of `engines`. `format` formats the
/// values.
pub fn draw(
    id: String,
    title: String,
    engines: &[Engine<'_>],
    groups: &[BarGroup],
    format: fn(f64) -> String,
) -> Picture {
    let all = || groups.iter().flat_map(|group| group.bars.iter().flatten());
    let max =
        all().map(|bar| bar.interval.map_or(bar.value, |(_, high)| high.max(bar.value))).fold(0.0, f64::max);
    // Figures are in a column to the left of their bars. At the end of a whisker a figure would
    // look like the value of the whisker.
    let figures = all().map(|bar| small_width(&format(bar.value))).fold(0.0, f64::max);
    let left = figures + GAP;
    // Returns the largest length of the axis with which the note of `bar` fits after the bar.
    let room = |bar: &Bar| {
        let end = bar.interval.map_or(bar.value, |(_, high)| high.max(bar.value));
        let share = Scale::linear(max, (0.0, 1.0)).at(end).max(0.01);
        (WIDTH - small_width(&bar.note) - GAP - left) / share
    };
    let noted = all().filter(|bar| !bar.note.is_empty());
    let length = noted.map(room).fold(WIDTH - RIGHT - left, f64::min);
    let scale = Scale::linear(max, (left, left + length));
    let shown = |at: &usize| groups.iter().any(|group| group.bars[*at].is_some());
    let legend: Vec<Engine<'_>> = (0..engines.len()).filter(shown).map(|at| engines[at]).collect();
    let mut y = AXIS_HEIGHT;
    let mut parts: Vec<Markup> = Vec::new();
    for group in groups {
        parts.push(html! { text class="dim" x="0" y=(n(y + 13.0)) { (group.label) } });
        y += HEADING_HEIGHT;
        for (at, bar) in group.bars.iter().enumerate() {
            let Some(bar) = bar else { continue };
            parts.push(one(engines[at], bar, y, &scale, format));
            y += BAR_STEP;
        }
        y += GROUP_GAP;
    }
    let drawing = html! {
        @for tick in scale.ticks() {
            line class="grid" x1=(n(scale.at(tick))) x2=(n(scale.at(tick))) y1=(n(AXIS_HEIGHT - 4.0)) y2=(n(y - GROUP_GAP)) {}
            text class="dim small" x=(n(scale.at(tick))) y="10" text-anchor="middle" { (format(tick)) }
        }
        @for part in &parts { (part) }
    };
    Picture::new(id, title, y - GROUP_GAP + 6.0, &legend, &drawing)
}

fn one(engine: Engine<'_>, bar: &Bar, y: f64, scale: &Scale, format: fn(f64) -> String) -> Markup {
    let start = scale.at(0.0);
    let width = (scale.at(bar.value) - start).max(1.0);
    let middle = y + BAR_HEIGHT / 2.0;
    let bound = if bar.bound.is_some() { " bound" } else { "" };
    html! {
        g {
            title {
                (engine.name) ": " (format(bar.value))
                @if let Some((low, high)) = bar.interval { " (" (format(low)) " to " (format(high)) ")" }
                @if let Some(reason) = &bar.bound { "; client-bound: " (reason) }
            }
            rect class={ "bar " (colour(engine)) (bound) } x=(n(start)) y=(n(y)) width=(n(width)) height=(n(BAR_HEIGHT)) rx="2" {}
            @if let Some((low, high)) = bar.interval.filter(|(low, high)| high > low) {
                path class="whisker" d=(format!(
                    "M{0} {1}V{2}M{0} {3}H{4}M{4} {1}V{2}",
                    n(scale.at(low)), n(middle - 3.5), n(middle + 3.5), n(middle), n(scale.at(high))
                )) {}
            }
            text class="small" x=(n(start - GAP)) y=(n(middle + 4.0)) text-anchor="end" { (format(bar.value)) }
            @if !bar.note.is_empty() {
                text class="dim small" x=(n(WIDTH)) y=(n(middle + 4.0)) text-anchor="end" { (bar.note) }
            }
        }
    }
}
