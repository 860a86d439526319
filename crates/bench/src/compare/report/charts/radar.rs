//! A radar chart: an axis per test and an outline per engine, at the value relative to the best
//! engine of each test.

use std::f64::consts::TAU;

use maud::html;

use super::svg::{Picture, WIDTH, colour, cut, n, small_width};
use crate::compare::report::view::Engine;

/// The maximum number of characters of a test's name at the rim.
const NAME_CHARS_MAX: usize = 16;
/// The distance of names from the centre, as a multiple of the radius.
const NAMES_AT: f64 = 1.08;
/// The space for the names above and below the rim, in units of the chart.
const MARGIN: f64 = 26.0;
/// The largest number of tests with which all names have the same distance from the rim. With more
/// tests, the names at the top and at the bottom are moved away from the rim by `STEP_ASIDE`, so
/// that they do not touch their neighbours.
const TESTS_APART: usize = 8;
const STEP_ASIDE: f64 = 12.0;

/// Draws a radar chart with an axis for each of `tests`. `outlines` has, for each engine, its share
/// of the best value in each test, from 0 to 1.
pub fn draw(
    id: String,
    title: String,
    engines: &[Engine<'_>],
    tests: &[&str],
    outlines: &[Vec<f64>],
) -> Picture {
    let names: Vec<String> = tests.iter().map(|test| cut(test, NAME_CHARS_MAX)).collect();
    let widest = names.iter().map(|name| small_width(name)).fold(0.0, f64::max);
    let radius = (WIDTH / 2.0 - widest) / NAMES_AT;
    let height = 2.0 * radius.mul_add(NAMES_AT, MARGIN);
    let centre = (WIDTH / 2.0, height / 2.0);
    let place = |at: usize, share: f64| {
        let angle = at as f64 / tests.len() as f64 * TAU;
        (centre.0 + share * radius * angle.sin(), centre.1 - share * radius * angle.cos())
    };
    let outline = |shares: &mut dyn Iterator<Item = f64>| {
        let points = shares.enumerate().map(|(at, share)| place(at, share));
        points.map(|(x, y)| format!("{},{}", n(x), n(y))).collect::<Vec<_>>().join(" ")
    };
    let anchor = |x: f64| match x - centre.0 {
        right if right > 4.0 => "start",
        left if left < -4.0 => "end",
        _ => "middle",
    };
    let text_at = |at: usize| {
        let (x, y) = place(at, NAMES_AT);
        let aside = tests.len() > TESTS_APART && anchor(x) == "middle";
        (x, y + if aside { (y - centre.1).signum() * STEP_ASIDE } else { 0.0 })
    };
    let drawing = html! {
        @for ring in [0.25, 0.5, 0.75, 1.0] {
            polygon class="grid" points=(outline(&mut tests.iter().map(|_| ring))) {}
        }
        @for (at, name) in names.iter().enumerate() {
            @let end = place(at, 1.0);
            @let text = text_at(at);
            line class="grid" x1=(n(centre.0)) y1=(n(centre.1)) x2=(n(end.0)) y2=(n(end.1)) {}
            text class="dim small" x=(n(text.0)) y=(n(text.1 + 4.0)) text-anchor=(anchor(text.0)) { (name) }
        }
        @for (at, shares) in outlines.iter().enumerate() {
            polygon class={ "area " (colour(engines[at])) } points=(outline(&mut shares.iter().copied())) {
                title { (engines[at].name) }
            }
        }
    };
    Picture::new(id, title, height, engines, &drawing)
}
