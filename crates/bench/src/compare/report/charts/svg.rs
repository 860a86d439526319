//! Common parts of all charts: the frame, the colours, scales with round ticks, the legend.

use maud::{Markup, PreEscaped, html};

use crate::compare::report::view::Engine;

/// The width of every chart, in units of the chart. A phone has about this many pixels, so text has
/// its full size there.
pub const WIDTH: f64 = 360.0;
/// The font size of legends and headings, as in [`STYLE`]. `FONT_SIZE_SMALL` is that of small text.
const FONT_SIZE: f64 = 12.5;
const FONT_SIZE_SMALL: f64 = 11.5;
/// The width of a character of the bold titles, in units of the chart. `TITLE_LINE` is the height
/// of a line of a title.
const TITLE_CHAR_WIDTH: f64 = 7.7;
const TITLE_LINE: f64 = 16.0;
/// The height of a line of the legend, in units of the chart.
const LEGEND_LINE: f64 = 20.0;

/// The style sheet of the charts. report.html and the file of each chart include it.
pub const STYLE: &str = "\
:root{--paper:#fff;--ink:#1c2430;--dim:#5b6675;--grid:#e3e8ef;--heat:#12935f;\
--e0:#2563eb;--e1:#e08a00;--e2:#7c3aed;--e3:#0891b2;--e4:#c026d3;--e5:#8b5e34;--e6:#64748b;--e7:#1f2937}\
@media(prefers-color-scheme:dark){:root{--paper:#161b22;--ink:#e6ebf2;--dim:#9aa7b8;--grid:#2b3340;--heat:#1fa971;\
--e0:#5b9bff;--e1:#fbb03b;--e2:#b197fc;--e3:#22d3ee;--e4:#f08bff;--e5:#c89b6d;--e6:#94a3b8;--e7:#e5e7eb}}\
.chart{font:12.5px system-ui,-apple-system,'Segoe UI',Roboto,sans-serif}.chart text{fill:var(--ink)}\
.chart .dim{fill:var(--dim);font-size:12px}.chart .strong{font-weight:600}.chart .small{font-size:11.5px}\
.chart .grid{stroke:var(--grid);fill:none}.chart .bar{fill:var(--c)}.chart .bar.bound{fill-opacity:.35;stroke:var(--c);stroke-dasharray:3 2}\
.chart .line{stroke:var(--c);fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}\
.chart .dot{fill:var(--c);stroke:var(--paper)}.chart .dot.bound{fill:var(--paper);stroke:var(--c);stroke-width:2}\
.chart .whisker{stroke:var(--ink);stroke-width:1.3;fill:none}.chart .area{fill:var(--c);fill-opacity:.12;stroke:var(--c);stroke-width:2}\
.chart .heat{fill:var(--heat)}.chart .joint{stroke:var(--dim);stroke-width:.7}\
.chart .over{paint-order:stroke;stroke:var(--paper);stroke-width:2.5;stroke-linejoin:round}\
.c0{--c:var(--e0)}.c1{--c:var(--e1)}.c2{--c:var(--e2)}.c3{--c:var(--e3)}.c4{--c:var(--e4)}.c5{--c:var(--e5)}.c6{--c:var(--e6)}.c7{--c:var(--e7)}";

/// Returns the CSS class that gives `engine` its colour.
pub fn colour(engine: Engine<'_>) -> String {
    format!("c{}", engine.colour)
}

/// A group of charts of the same kind, which report.html shows under one heading.
pub struct Group {
    /// The anchor of the group in report.html.
    pub id: &'static str,
    /// The heading above the charts of the group.
    pub title: String,
    /// The explanation of the charts, which report.html shows above them.
    pub about: String,
    /// The charts of the group, in their order on the page.
    pub pictures: Vec<Picture>,
}

/// A finished chart, ready to be put into report.html and into its own file.
pub struct Picture {
    /// The name of the chart's file without the extension, and its anchor in report.html.
    pub id: String,
    /// The title of the chart, which is drawn above it.
    pub title: String,
    height: f64,
    drawing: Markup,
}

impl Picture {
    /// Creates a chart: the title, the legend of `engines`, and below them `drawing`, which is
    /// `height` units high.
    pub fn new(id: String, title: String, height: f64, engines: &[Engine<'_>], drawing: &Markup) -> Self {
        let (legend, legend_height) = legend(engines);
        let lines = title_lines(&title);
        let top = (lines.len() as f64).mul_add(TITLE_LINE, 10.0);
        let drawing = html! {
            @for (at, line) in lines.iter().enumerate() {
                text class="strong" x="0" y=(n((at as f64).mul_add(TITLE_LINE, 14.0))) { (line) }
            }
            g transform=(translate(0.0, top)) { (legend) }
            g transform=(translate(0.0, top + legend_height)) { (drawing) }
        };
        Self { id, title, height: top + height + legend_height, drawing }
    }

    /// Returns the chart as part of a page that includes [`STYLE`].
    pub fn inline(&self) -> Markup {
        html! {
            svg class="chart" id=(self.id) role="img" aria-label=(self.title)
                viewBox=(format!("0 0 {WIDTH} {:.0}", self.height)) { (self.drawing) }
        }
    }

    /// Returns the chart as the text of an SVG file of its own.
    pub fn file(&self) -> String {
        let (width, height) = (WIDTH + 32.0, self.height + 32.0);
        let svg = html! {
            svg xmlns="http://www.w3.org/2000/svg" class="chart" role="img" aria-label=(self.title)
                width=(width) height=(format!("{height:.0}"))
                viewBox=(format!("-16 -16 {width} {height:.0}")) {
                style { (PreEscaped(STYLE)) }
                rect x="-16" y="-16" width=(width) height=(format!("{height:.0}")) style="fill:var(--paper)" {}
                (self.drawing)
            }
        };
        svg.into_string()
    }
}

/// Splits a title into lines that fit the width of a chart. Lines end after commas only.
fn title_lines(title: &str) -> Vec<String> {
    let chars_max = (WIDTH / TITLE_CHAR_WIDTH) as usize;
    let mut lines: Vec<String> = Vec::new();
    for part in title.split_inclusive(", ") {
        match lines.last_mut() {
            Some(line) if (line.chars().count() + part.trim_end().chars().count()) <= chars_max => {
                line.push_str(part);
            }
            _ => lines.push(part.to_owned()),
        }
    }
    lines
}

/// Draws the names of the engines with their colours, in as many lines as needed. Returns the
/// drawing and its height.
fn legend(engines: &[Engine<'_>]) -> (Markup, f64) {
    let (mut x, mut y) = (0.0, 0.0);
    let mut places = Vec::new();
    for engine in engines {
        let width = 28.0 + text_width(engine.name);
        if x > 0.0 && x + width > WIDTH {
            (x, y) = (0.0, y + LEGEND_LINE);
        }
        places.push((x, y, engine));
        x += width;
    }
    let markup = html! {
        @for (x, y, engine) in &places {
            rect class={ "bar " (colour(**engine)) } x=(n(*x)) y=(n(*y)) width="11" height="11" rx="2" {}
            text x=(n(x + 16.0)) y=(n(y + 10.0)) { (engine.name) }
        }
    };
    (markup, if engines.is_empty() { 0.0 } else { y + LEGEND_LINE + 4.0 })
}

/// Estimates the width of `text` in legends and headings, for a wide font. The result is in units
/// of the chart.
pub fn text_width(text: &str) -> f64 {
    em_width(text) * FONT_SIZE
}

/// Estimates the width of `text` in the small font size. The result is in units of the chart.
pub fn small_width(text: &str) -> f64 {
    em_width(text) * FONT_SIZE_SMALL
}

fn em_width(text: &str) -> f64 {
    let of = |char: char| match char {
        ' ' | '.' | ',' | ':' | '·' | '-' => 0.35,
        'm' | 'w' | '%' | 'M' | 'W' | '⚠' => 0.95,
        upper if upper.is_ascii_uppercase() => 0.69,
        _ => 0.63,
    };
    text.chars().map(of).sum()
}

/// Shortens `text` with an ellipsis if it has more than `chars_max` characters.
pub fn cut(text: &str, chars_max: usize) -> String {
    match text.chars().count() > chars_max {
        true => text.chars().take(chars_max.saturating_sub(1)).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

/// Formats a coordinate of a chart with at most one decimal.
pub fn n(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// Returns the value of the `transform` attribute that moves a group by (`x`, `y`).
pub fn translate(x: f64, y: f64) -> String {
    format!("translate({} {})", n(x), n(y))
}

/// A scale of a chart's axis, which maps values to coordinates.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// The values at the two ends of the axis scale.
    domain: (f64, f64),
    /// The coordinates at the two ends of the axis scale.
    range: (f64, f64),
    logarithmic: bool,
}

impl Scale {
    /// Creates a linear scale of an axis, from 0. It ends at `max` or slightly above, so that the
    /// last tick is round.
    pub fn linear(max: f64, range: (f64, f64)) -> Self {
        let step = step(max);
        Self { domain: (0.0, (max / step).ceil().max(1.0) * step), range, logarithmic: false }
    }

    /// Creates a logarithmic scale from `min` to `max`, extended on both sides to 1, 2 or 5 times a
    /// power of ten.
    pub fn logarithmic(min: f64, max: f64, range: (f64, f64)) -> Self {
        let min = min.max(f64::MIN_POSITIVE);
        let ticks = decade_ticks(min / 5.0, max.max(min * 1.01) * 5.0);
        let low = ticks.iter().copied().filter(|tick| *tick <= min * 1.001).fold(min / 5.0, f64::max);
        let high = ticks.iter().copied().filter(|tick| *tick >= max * 0.999 && *tick > low);
        Self { domain: (low, high.fold(max * 5.0, f64::min)), range, logarithmic: true }
    }

    /// Returns the coordinate of `value`. A value outside the scale gets the coordinate of the
    /// nearest end.
    pub fn at(&self, value: f64) -> f64 {
        let map = |value: f64| if self.logarithmic { value.max(self.domain.0).ln() } else { value };
        let (low, high) = (map(self.domain.0), map(self.domain.1));
        let part = ((map(value) - low) / (high - low)).clamp(0.0, 1.0);
        self.range.0 + part * (self.range.1 - self.range.0)
    }

    /// Returns the round values at which the axis has ticks.
    pub fn ticks(&self) -> Vec<f64> {
        if self.logarithmic {
            let ticks = decade_ticks(self.domain.0 * 0.999, self.domain.1 * 1.001);
            // With many decades, only the powers of ten are ticks.
            let is_power = |tick: &f64| (tick.log10() - tick.log10().round()).abs() < 1e-9;
            return if ticks.len() > 7 { ticks.into_iter().filter(is_power).collect() } else { ticks };
        }
        let step = step(self.domain.1);
        (0..=8).map(|at| f64::from(at) * step).take_while(|tick| *tick <= self.domain.1 * 1.001).collect()
    }
}

/// Returns a round step between a quarter and a half of `max`.
fn step(max: f64) -> f64 {
    let rough = max.max(1e-9) / 4.0;
    let power = 10f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|factor| factor * power >= rough * 0.999);
    factor.unwrap_or(10.0) * power
}

/// Returns the numbers from `min` to `max` that are 1, 2 or 5 times a power of ten.
fn decade_ticks(min: f64, max: f64) -> Vec<f64> {
    let (first, last) = (min.log10().floor() as i32, max.log10().ceil() as i32);
    let all = (first..=last).flat_map(|power| [1.0, 2.0, 5.0].map(|factor| factor * 10f64.powi(power)));
    all.filter(|tick| (min..=max).contains(tick)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_cover_the_values() {
        for max in [0.3, 1.0, 7.0, 99.0, 123_456.0] {
            let scale = Scale::linear(max, (0.0, 100.0));
            let ticks = scale.ticks();
            assert!(
                (3..=7).contains(&ticks.len()) && *ticks.last().unwrap() >= max * 0.999,
                "{max}: {ticks:?}"
            );
            assert!(scale.at(max) > 60.0);
        }
        let scale = Scale::logarithmic(30.0, 4_000.0, (0.0, 100.0));
        assert!((scale.at(20.0), scale.at(5_000.0)) == (0.0, 100.0), "{scale:?}");
        assert!(scale.ticks().len() >= 2);
    }

    #[test]
    fn long_titles_are_broken_behind_commas() {
        assert_eq!(title_lines("SET"), ["SET"]);
        let title = "this machine, Unix socket, 1 I/O thread, 3-byte values, 1024 connections";
        let lines = title_lines(title);
        assert_eq!(lines, ["this machine, Unix socket, 1 I/O thread, ", "3-byte values, 1024 connections"]);
        assert_eq!(lines.concat(), title);
    }

    #[test]
    fn a_file_carries_its_style_and_escapes_names() {
        let picture =
            Picture::new("a".into(), "a < b".into(), 10.0, &[Engine { name: "x & y", colour: 0 }], &html! {});
        let file = picture.file();
        assert!(
            file.contains("prefers-color-scheme") && file.contains("a &lt; b") && file.contains("x &amp; y")
        );
    }
}
