//! Line and scatter charts with two axes: percentile curves, scaling, throughput against latency.

use maud::{Markup, html};

use super::labels::Labels;
use super::svg::{Picture, Scale, WIDTH, colour, cut, n, small_width};
use crate::compare::report::view::Engine;

const LEFT: f64 = 54.0;
/// The space to the right of the axes, in units of the chart: half of the width of the longest
/// label below the axis.
const RIGHT: f64 = 22.0;
const TOP: f64 = 22.0;
const HEIGHT: f64 = 200.0;
/// The height of the axes of a chart whose dots have numbers and a legend below, in units of the
/// chart.
const HEIGHT_NUMBERED: f64 = 300.0;
const DOT_RADIUS: f64 = 4.0;
/// The height of a line of the legend, in units of the chart. `KEY_CHARS_MAX` is the maximum number
/// of characters of an entry.
const KEY_LINE: f64 = 17.0;
const KEY_CHARS_MAX: usize = 24;
const BOTTOM: f64 = 40.0;

/// A measured point of a line or scatter chart, drawn as a dot.
#[derive(Clone, Debug, Default)]
pub struct Dot {
    /// The value of the point on the horizontal axis.
    pub x: f64,
    /// The value of the point on the vertical axis.
    pub y: f64,
    /// The ends of the whisker: the confidence interval of `y`; `None` for no whisker.
    pub interval: Option<(f64, f64)>,
    /// The text of the dot's tooltip, without the name of the engine.
    pub label: String,
    /// The text beside the dot; empty for none.
    pub text: String,
    /// True if the load generator was the bottleneck; the dot is then hollow.
    pub bound: bool,
}

/// The points of one engine, and the way to draw them.
pub struct Series {
    /// The index of the series' engine in [`Plot::engines`].
    pub engine: usize,
    /// The points, in the order in which a line joins them.
    pub dots: Vec<Dot>,
    /// True if a line joins the points of the series.
    pub joined: bool,
    /// True if each point of the series is drawn as a dot.
    pub dotted: bool,
}

/// A line or scatter chart to draw.
pub struct Plot<'a> {
    /// The name of the file of the chart, without the extension.
    pub id: String,
    /// The title of the chart, above it.
    pub title: String,
    /// All engines; each series belongs to one of them.
    pub engines: &'a [Engine<'a>],
    /// The lines or point sets, one for each engine.
    pub series: Vec<Series>,
    /// The horizontal axis of the chart.
    pub x: Axis,
    /// The vertical axis of the chart.
    pub y: Axis,
    /// The meanings of the numbers beside the dots; the first entry is the meaning of number 1.
    /// Empty for a chart without a key.
    pub key: Vec<String>,
}

/// An axis of a line or scatter chart.
pub struct Axis {
    /// The name and the unit of the values on the axis.
    pub title: &'static str,
    /// The scale of the axis: linear, logarithmic or with given ticks.
    pub kind: Kind,
    /// The function that formats the values at the axis ticks.
    pub format: fn(f64) -> String,
    /// The range of values that the axis covers at least; `None` if the chart's own values
    /// determine it. Charts with the same range have the same scale.
    pub reach: Option<(f64, f64)>,
}

/// The kind of scale by which an axis maps values to positions.
pub enum Kind {
    /// The scale is linear and begins at 0.
    Linear,
    /// The scale is logarithmic; its ticks are at 1, 2 and 5 times powers of ten.
    Logarithmic,
    /// The scale is linear, from 0 to the last of these values. Ticks are only at the values,
    /// labelled with these texts.
    Marks(Vec<(f64, String)>),
}

impl Axis {
    fn scale(&self, values: &[f64], range: (f64, f64)) -> (Scale, Vec<(f64, String)>) {
        let (least, most) = self.reach.unwrap_or((f64::INFINITY, 0.0));
        let max = values.iter().copied().fold(most, f64::max);
        let min = values.iter().copied().fold(least, f64::min).min(max);
        let named = |scale: Scale| {
            let ticks = scale.ticks().into_iter().map(|tick| (tick, (self.format)(tick))).collect();
            (scale, ticks)
        };
        match &self.kind {
            Kind::Linear => named(Scale::linear(max, range)),
            Kind::Logarithmic => named(Scale::logarithmic(min, max, range)),
            Kind::Marks(marks) => {
                // The scale must end exactly at the last mark, even if that is not a round value.
                let last = marks.last().map_or(max, |(at, _)| *at);
                let whole = Scale::linear(last, (0.0, 1.0)).at(last);
                let end = range.0 + (range.1 - range.0) / whole;
                (Scale::linear(last, (range.0, end)), marks.clone())
            }
        }
    }
}

/// Returns the smallest and the largest y value of all points in `series`, whiskers included, for
/// [`Axis::reach`]; `None` without points.
pub fn reach<'a>(series: impl IntoIterator<Item = &'a Series>) -> Option<(f64, f64)> {
    let dots = series.into_iter().flat_map(|series| &series.dots);
    let ends =
        dots.map(|dot| dot.interval.map_or((dot.y, dot.y), |(low, high)| (low.min(dot.y), high.max(dot.y))));
    ends.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))
}

/// Draws the axes, the lines, the dots and the key of `plot`.
pub fn draw(plot: Plot<'_>) -> Picture {
    let Plot { id, title, engines, series, x, y, key } = plot;
    let height = if key.is_empty() { HEIGHT } else { HEIGHT_NUMBERED };
    let xs: Vec<f64> = series.iter().flat_map(|series| &series.dots).map(|dot| dot.x).collect();
    let ys: Vec<f64> = reach(&series).map_or_else(Vec::new, |(low, high)| vec![low, high]);
    let (across, x_ticks) = x.scale(&xs, (LEFT, WIDTH - RIGHT));
    let (up, y_ticks) = y.scale(&ys, (TOP + height, TOP));
    let at = |dot: &Dot| (across.at(dot.x), up.at(dot.y));
    let path = |series: &Series| {
        let points = series.dots.iter().map(at).map(|(x, y)| format!("{} {}", n(x), n(y)));
        format!("M{}", points.collect::<Vec<_>>().join("L"))
    };
    let shown = || series.iter().filter(|series| series.dotted).flat_map(|series| &series.dots);
    let frame = (LEFT, TOP, WIDTH, TOP + height);
    let mut labels = Labels::new(frame, shown().map(at), DOT_RADIUS);
    let texts: Vec<_> = shown()
        .filter(|dot| !dot.text.is_empty())
        .map(|dot| (at(dot), labels.place(at(dot), DOT_RADIUS, &dot.text), &dot.text))
        .collect();
    let (key, key_height) = draw_key(&key, TOP + height + BOTTOM);
    let drawing = html! {
        text class="dim" x="0" y="8" { (y.title) }
        @for (at, text) in &y_ticks {
            line class="grid" x1=(n(LEFT)) x2=(n(WIDTH - RIGHT)) y1=(n(up.at(*at))) y2=(n(up.at(*at))) {}
            text class="dim small" x=(n(LEFT - 6.0)) y=(n(up.at(*at) + 4.0)) text-anchor="end" { (text) }
        }
        @for (at, text) in &x_ticks {
            line class="grid" x1=(n(across.at(*at))) x2=(n(across.at(*at))) y1=(n(TOP)) y2=(n(TOP + height)) {}
            text class="dim small" x=(n(across.at(*at))) y=(n(TOP + height + 15.0)) text-anchor="middle" { (text) }
        }
        text class="dim" x=(n(WIDTH - RIGHT)) y=(n(TOP + height + 32.0)) text-anchor="end" { (x.title) }
        @for (dot, place, _) in &texts {
            @if let Some(joint) = place.joint {
                line class="joint" x1=(n(dot.0)) y1=(n(dot.1)) x2=(n(joint.0)) y2=(n(joint.1)) {}
            }
        }
        @for one in &series {
            g class=(colour(engines[one.engine])) {
                @if one.joined && one.dots.len() > 1 {
                    path class="line" d=(path(one)) { title { (engines[one.engine].name) } }
                }
                @for dot in one.dots.iter().filter(|_| one.dotted) { (draw_dot(dot, at(dot), engines[one.engine], &up)) }
            }
        }
        @for (_, place, text) in &texts {
            text class="small over" x=(n(place.text.0)) y=(n(place.text.1)) { (text) }
        }
        (key)
    };
    let legend: Vec<Engine<'_>> = (0..engines.len())
        .filter(|engine| series.iter().any(|series| series.engine == *engine && !series.dots.is_empty()))
        .map(|engine| engines[engine])
        .collect();
    Picture::new(id, title, TOP + height + BOTTOM + key_height, &legend, &drawing)
}

fn draw_dot(dot: &Dot, (x, y): (f64, f64), engine: Engine<'_>, up: &Scale) -> Markup {
    html! {
        @if let Some((low, high)) = dot.interval.filter(|(low, high)| high > low) {
            line class="line" style="stroke-width:1.3" x1=(n(x)) x2=(n(x)) y1=(n(up.at(low))) y2=(n(up.at(high))) {}
        }
        circle class={ "dot" @if dot.bound { " bound" } } cx=(n(x)) cy=(n(y)) r=(n(DOT_RADIUS)) {
            title { (engine.name) ", " (dot.label) @if dot.bound { ", client-bound" } }
        }
    }
}

/// Draws the key: a numbered list of `key` below the height `top`, in as many columns as fit.
/// Returns the drawing and its height.
fn draw_key(key: &[String], top: f64) -> (Markup, f64) {
    let entry = |(at, word): (usize, &String)| format!("{} {}", at + 1, cut(word, KEY_CHARS_MAX));
    let entries: Vec<String> = key.iter().enumerate().map(entry).collect();
    let widest = entries.iter().map(|entry| small_width(entry)).fold(1.0, f64::max) + 12.0;
    let columns = ((WIDTH / widest) as usize).max(1);
    let lines = entries.len().div_ceil(columns);
    let step = WIDTH / columns as f64;
    let markup = html! {
        @for (at, entry) in entries.iter().enumerate() {
            @let (column, line) = (at / lines, at % lines);
            text class="dim small" x=(n(column as f64 * step)) y=(n((line as f64).mul_add(KEY_LINE, top + 12.0))) { (entry) }
        }
    };
    (markup, lines as f64 * KEY_LINE)
}
