//! Lines and points over two axes: percentile curves, scaling, throughput against latency.

use maud::html;

use super::svg::{Picture, Scale, WIDTH, colour, n};

const LEFT: f64 = 58.0;
/// Half of the longest word below the axis.
const RIGHT: f64 = 22.0;
const TOP: f64 = 22.0;
const HEIGHT: f64 = 200.0;
const BOTTOM: f64 = 40.0;

/// A point of a line.
#[derive(Clone, Debug, Default)]
pub struct Dot {
    /// Its place.
    pub x: f64,
    /// Its place.
    pub y: f64,
    /// The ends of its whisker, along y.
    pub interval: Option<(f64, f64)>,
    /// What is told of it when asked.
    pub label: String,
    /// Whether the client was the limit there; it is hollow then.
    pub bound: bool,
}

/// A line of one engine.
pub struct Series {
    /// The engine's place, which is its colour.
    pub engine: usize,
    /// Its points in order.
    pub dots: Vec<Dot>,
    /// Whether points are joined.
    pub joined: bool,
    /// Whether points are shown.
    pub dotted: bool,
}

/// An axis.
pub struct Axis {
    /// Its name and unit.
    pub title: &'static str,
    /// Its kind.
    pub kind: Kind,
    /// How its figures are written.
    pub format: fn(f64) -> String,
}

/// What an axis does with values.
pub enum Kind {
    /// From 0.
    Linear,
    /// By ratio.
    Logarithmic,
    /// At these places, with these words, from the first to the last.
    Marks(Vec<(f64, String)>),
}

impl Axis {
    fn scale(&self, values: &[f64], range: (f64, f64)) -> (Scale, Vec<(f64, String)>) {
        let max = values.iter().copied().fold(0.0, f64::max);
        let min = values.iter().copied().fold(f64::INFINITY, f64::min).min(max);
        let named = |scale: Scale| {
            let ticks = scale.ticks().into_iter().map(|tick| (tick, (self.format)(tick))).collect();
            (scale, ticks)
        };
        match &self.kind {
            Kind::Linear => named(Scale::linear(max, range)),
            Kind::Logarithmic => named(Scale::logarithmic(min, max, range)),
            Kind::Marks(marks) => {
                // The last mark is where the scale ends, as round as it may be.
                let last = marks.last().map_or(max, |(at, _)| *at);
                let whole = Scale::linear(last, (0.0, 1.0)).at(last);
                let end = range.0 + (range.1 - range.0) / whole;
                (Scale::linear(last, (range.0, end)), marks.clone())
            }
        }
    }
}

/// Draws `series`.
pub fn draw(id: String, title: String, engines: &[&str], series: &[Series], x: &Axis, y: &Axis) -> Picture {
    let dots = || series.iter().flat_map(|series| &series.dots);
    let xs: Vec<f64> = dots().map(|dot| dot.x).collect();
    let ys: Vec<f64> = dots().flat_map(|dot| [dot.y, dot.interval.map_or(dot.y, |(_, high)| high)]).collect();
    let (across, x_ticks) = x.scale(&xs, (LEFT, WIDTH - RIGHT));
    let (up, y_ticks) = y.scale(&ys, (TOP + HEIGHT, TOP));
    let path = |series: &Series| {
        let points: Vec<_> =
            series.dots.iter().map(|dot| format!("{} {}", n(across.at(dot.x)), n(up.at(dot.y)))).collect();
        format!("M{}", points.join("L"))
    };
    let drawing = html! {
        text class="dim" x="0" y="8" { (y.title) }
        @for (at, text) in &y_ticks {
            line class="grid" x1=(n(LEFT)) x2=(n(WIDTH - RIGHT)) y1=(n(up.at(*at))) y2=(n(up.at(*at))) {}
            text class="dim small" x=(n(LEFT - 6.0)) y=(n(up.at(*at) + 4.0)) text-anchor="end" { (text) }
        }
        @for (at, text) in &x_ticks {
            line class="grid" x1=(n(across.at(*at))) x2=(n(across.at(*at))) y1=(n(TOP)) y2=(n(TOP + HEIGHT)) {}
            text class="dim small" x=(n(across.at(*at))) y=(n(TOP + HEIGHT + 15.0)) text-anchor="middle" { (text) }
        }
        text class="dim" x=(n(WIDTH - RIGHT)) y=(n(TOP + HEIGHT + 32.0)) text-anchor="end" { (x.title) }
        @for one in series {
            g class=(colour(one.engine)) {
                @if one.joined && one.dots.len() > 1 {
                    path class="line" d=(path(one)) { title { (engines[one.engine]) } }
                }
                @for dot in one.dots.iter().filter(|_| one.dotted) {
                    @if let Some((low, high)) = dot.interval.filter(|(low, high)| high > low) {
                        line class="line" style="stroke-width:1.3" x1=(n(across.at(dot.x))) x2=(n(across.at(dot.x)))
                            y1=(n(up.at(low))) y2=(n(up.at(high))) {}
                    }
                    circle class={ "dot" @if dot.bound { " bound" } } cx=(n(across.at(dot.x))) cy=(n(up.at(dot.y))) r="4.5" {
                        title { (engines[one.engine]) ", " (dot.label) @if dot.bound { ", client-bound" } }
                    }
                }
            }
        }
    };
    Picture::new(id, title, TOP + HEIGHT + BOTTOM, engines, &drawing)
}
