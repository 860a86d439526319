//! A radar: an axis per test, an outline per engine, relative to each test's best.

use std::f64::consts::TAU;

use maud::html;

use super::svg::{Picture, WIDTH, colour, n};

const HEIGHT: f64 = 340.0;
const RADIUS: f64 = 128.0;
const CENTRE: (f64, f64) = (WIDTH / 2.0, HEIGHT / 2.0);

/// Draws `outlines`, one per engine with a share from 0 to 1 per test.
pub fn draw(id: String, title: String, engines: &[&str], tests: &[&str], outlines: &[Vec<f64>]) -> Picture {
    let place = |at: usize, share: f64| {
        let angle = at as f64 / tests.len() as f64 * TAU;
        (CENTRE.0 + share * RADIUS * angle.sin(), CENTRE.1 - share * RADIUS * angle.cos())
    };
    let outline = |shares: &mut dyn Iterator<Item = f64>| {
        let points = shares.enumerate().map(|(at, share)| place(at, share));
        points.map(|(x, y)| format!("{},{}", n(x), n(y))).collect::<Vec<_>>().join(" ")
    };
    let anchor = |x: f64| match x - CENTRE.0 {
        right if right > 4.0 => "start",
        left if left < -4.0 => "end",
        _ => "middle",
    };
    let drawing = html! {
        @for ring in [0.25, 0.5, 0.75, 1.0] {
            polygon class="grid" points=(outline(&mut tests.iter().map(|_| ring))) {}
        }
        @for (at, test) in tests.iter().enumerate() {
            @let end = place(at, 1.0);
            @let text = place(at, 1.09);
            line class="grid" x1=(n(CENTRE.0)) y1=(n(CENTRE.1)) x2=(n(end.0)) y2=(n(end.1)) {}
            text class="dim small" x=(n(text.0)) y=(n(text.1 + 4.0)) text-anchor=(anchor(text.0)) { (test) }
        }
        @for (at, shares) in outlines.iter().enumerate() {
            polygon class={ "area " (colour(at)) } points=(outline(&mut shares.iter().copied())) {
                title { (engines[at]) }
            }
        }
    };
    Picture::new(id, title, HEIGHT, engines, &drawing)
}
