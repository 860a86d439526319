//! A heat map: a row per test and a column per engine. The closer a value is to the best value of
//! its row, the stronger is its colour.

use maud::html;

use super::svg::{Picture, WIDTH, cut, n, text_width};
use crate::compare::report::view::Engine;

const ROW_HEIGHT: f64 = 26.0;
/// The height of a line of text, in units of the chart. A rectangle with two lines is higher by
/// this height.
const LINE: f64 = 15.0;
const HEADING_HEIGHT: f64 = 20.0;
/// The height of the name above a row, in units of the chart.
const NAME_HEIGHT: f64 = 17.0;
const GAP: f64 = 3.0;

/// A rectangle of the heat map: the result of one engine in one test.
#[derive(Clone, Debug)]
pub struct Place {
    /// The value divided by the best value of the row, from 0 to 1.
    pub share: f64,
    /// The two texts in the rectangle: the value, and its share of the row's best value in percent.
    pub texts: [String; 2],
    /// True if the load generator was the bottleneck; the text then has a warning sign.
    pub bound: bool,
}

impl Place {
    fn mark(&self) -> &'static str {
        if self.bound { " ⚠" } else { "" }
    }

    fn line(&self) -> String {
        self.texts.join(" · ") + self.mark()
    }

    fn two_lines(&self) -> Vec<String> {
        let [figure, share] = &self.texts;
        vec![figure.clone(), format!("{share}{}", self.mark())]
    }
}

/// Draws a heat map of `rows`. A row has a name and a rectangle for each of `engines`; `None` if
/// the engine has no value.
pub fn draw(
    id: String,
    title: String,
    engines: &[Engine<'_>],
    rows: &[(String, Vec<Option<Place>>)],
) -> Picture {
    let width = (WIDTH + GAP) / engines.len().max(1) as f64;
    let places = || rows.iter().flat_map(|(_, places)| places.iter().flatten());
    let chars_max = ((width - GAP) / text_width("x")) as usize;
    let fits = |text: &str| text_width(text) <= width - GAP;
    // If a figure and its share do not fit side by side, all places use two lines.
    let is_high = !places().all(|place| fits(&place.line()));
    let lines = |place: &Place| if is_high { place.two_lines() } else { vec![place.line()] };
    let row_height = if is_high { ROW_HEIGHT + LINE } else { ROW_HEIGHT };
    let row_step = NAME_HEIGHT + row_height + GAP;
    let drawing = html! {
        @for (at, engine) in engines.iter().enumerate() {
            text class="strong" x=(n((at as f64).mul_add(width, (width - GAP) / 2.0))) y="12" text-anchor="middle" { (cut(engine.name, chars_max)) }
        }
        @for (row, (name, places)) in rows.iter().enumerate() {
            @let y = (row as f64).mul_add(row_step, HEADING_HEIGHT);
            text class="dim" x="0" y=(n(y + 13.0)) { (name) }
            @for (at, place) in places.iter().enumerate() {
                @let x = at as f64 * width;
                @match place {
                    Some(place) => g {
                        title { (name) ", " (engines[at].name) ": " (place.texts.join(" · ")) @if place.bound { ", client-bound" } }
                        rect class="heat" x=(n(x)) y=(n(y + NAME_HEIGHT)) width=(n(width - GAP)) height=(n(row_height)) rx="4"
                            fill-opacity=(format!("{:.2}", strength(place.share))) {}
                        @for (line, text) in lines(place).iter().enumerate() {
                            text x=(n(x + (width - GAP) / 2.0)) y=(n((line as f64).mul_add(LINE, y + NAME_HEIGHT + 17.0))) text-anchor="middle" { (text) }
                        }
                    },
                    None => text class="dim" x=(n(x + (width - GAP) / 2.0)) y=(n(y + NAME_HEIGHT + 17.0)) text-anchor="middle" { "–" },
                }
            }
        }
    };
    Picture::new(id, title, (rows.len() as f64).mul_add(row_step, HEADING_HEIGHT + 4.0), &[], &drawing)
}

/// Returns the opacity of a rectangle whose value is `share` of the row's best value. At half of
/// the best value it is already faint.
fn strength(share: f64) -> f64 {
    ((share - 0.4) / 0.6).clamp(0.0, 1.0).powf(1.4).mul_add(0.62, 0.04)
}
