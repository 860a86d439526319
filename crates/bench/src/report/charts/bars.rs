//! Horizontal bars with confidence whiskers, grouped: a heading per group, a bar per engine.

use maud::{Markup, html};

use super::svg::{Picture, Scale, WIDTH, colour, n, text_width};

const BAR_HEIGHT: f64 = 13.0;
const BAR_STEP: f64 = 17.0;
const HEADING_HEIGHT: f64 = 19.0;
const GROUP_GAP: f64 = 9.0;
/// Room for the figure behind the longest bar.
const FIGURE_WIDTH: f64 = 62.0;
const AXIS_HEIGHT: f64 = 20.0;

/// A bar.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Its length.
    pub value: f64,
    /// The ends of its whisker.
    pub interval: Option<(f64, f64)>,
    /// Why the client was the limit; the bar is hollow then.
    pub bound: Option<String>,
    /// What stands behind it beside its figure.
    pub note: String,
}

/// Bars with a common heading, one per engine.
pub struct BarGroup {
    /// The heading.
    pub label: String,
    /// A bar per engine, as far as there is one.
    pub bars: Vec<Option<Bar>>,
}

/// Draws `groups`, figures written by `format`.
pub fn draw(
    id: String,
    title: String,
    engines: &[&str],
    groups: &[BarGroup],
    format: fn(f64) -> String,
) -> Picture {
    let all = || groups.iter().flat_map(|group| group.bars.iter().flatten());
    let max =
        all().map(|bar| bar.interval.map_or(bar.value, |(_, high)| high.max(bar.value))).fold(0.0, f64::max);
    let notes = all().map(|bar| text_width(&bar.note)).fold(0.0, f64::max);
    let scale = Scale::linear(max, (0.0, WIDTH - FIGURE_WIDTH - notes));
    let mut y = AXIS_HEIGHT;
    let mut parts: Vec<Markup> = Vec::new();
    for group in groups {
        parts.push(html! { text class="dim" x="0" y=(n(y + 13.0)) { (group.label) } });
        y += HEADING_HEIGHT;
        for (at, bar) in group.bars.iter().enumerate() {
            let Some(bar) = bar else { continue };
            parts.push(one(at, engines[at], bar, y, &scale, format));
            y += BAR_STEP;
        }
        y += GROUP_GAP;
    }
    let drawing = html! {
        @for tick in scale.ticks() {
            line class="grid" x1=(n(scale.at(tick))) x2=(n(scale.at(tick))) y1=(n(AXIS_HEIGHT - 4.0)) y2=(n(y - GROUP_GAP)) {}
            text class="dim small" x=(n(scale.at(tick))) y="10" text-anchor=(if tick == 0.0 { "start" } else { "middle" }) { (format(tick)) }
        }
        @for part in &parts { (part) }
    };
    Picture::new(id, title, y - GROUP_GAP + 6.0, engines, &drawing)
}

fn one(at: usize, engine: &str, bar: &Bar, y: f64, scale: &Scale, format: fn(f64) -> String) -> Markup {
    let width = scale.at(bar.value).max(1.0);
    let middle = y + BAR_HEIGHT / 2.0;
    let end = bar.interval.map_or(width, |(_, high)| scale.at(high).max(width));
    let bound = if bar.bound.is_some() { " bound" } else { "" };
    html! {
        g {
            title {
                (engine) ": " (format(bar.value))
                @if let Some((low, high)) = bar.interval { " (" (format(low)) " to " (format(high)) ")" }
                @if let Some(reason) = &bar.bound { "; client-bound: " (reason) }
            }
            rect class={ "bar " (colour(at)) (bound) } x="0" y=(n(y)) width=(n(width)) height=(n(BAR_HEIGHT)) rx="2" {}
            @if let Some((low, high)) = bar.interval.filter(|(low, high)| high > low) {
                path class="whisker" d=(format!(
                    "M{0} {1}V{2}M{0} {3}H{4}M{4} {1}V{2}",
                    n(scale.at(low)), n(middle - 3.5), n(middle + 3.5), n(middle), n(scale.at(high))
                )) {}
            }
            text class="small" x=(n(end + 5.0)) y=(n(middle + 4.0)) {
                (format(bar.value)) @if !bar.note.is_empty() { " " (bar.note) }
            }
        }
    }
}
