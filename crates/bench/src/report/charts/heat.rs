//! A heat map: a row per test, a column per engine, each place as strong as it is close to the row's best.

use maud::html;

use super::svg::{Picture, WIDTH, n};

const ROW_HEIGHT: f64 = 26.0;
const HEADING_HEIGHT: f64 = 20.0;
/// Height of a row's name where it stands above its row.
const NAME_HEIGHT: f64 = 17.0;
const GAP: f64 = 3.0;

/// A place of the map.
#[derive(Clone, Debug)]
pub struct Place {
    /// Its figure over the row's best, 0 to 1.
    pub share: f64,
    /// What stands in it.
    pub text: String,
    /// Whether the client was the limit; it has a mark then.
    pub bound: bool,
}

/// Draws rows of a name and a place per engine.
pub fn draw(id: String, title: String, engines: &[&str], rows: &[(String, Vec<Option<Place>>)]) -> Picture {
    let width = (WIDTH + GAP) / engines.len().max(1) as f64;
    let row_step = NAME_HEIGHT + ROW_HEIGHT + GAP;
    let drawing = html! {
        @for (at, name) in engines.iter().enumerate() {
            text class="strong" x=(n((at as f64).mul_add(width, (width - GAP) / 2.0))) y="12" text-anchor="middle" { (name) }
        }
        @for (row, (name, places)) in rows.iter().enumerate() {
            @let y = (row as f64).mul_add(row_step, HEADING_HEIGHT);
            text class="dim" x="0" y=(n(y + 13.0)) { (name) }
            @for (at, place) in places.iter().enumerate() {
                @let x = at as f64 * width;
                @match place {
                    Some(place) => g {
                        title { (name) ", " (engines[at]) ": " (place.text) @if place.bound { ", client-bound" } }
                        rect class="heat" x=(n(x)) y=(n(y + NAME_HEIGHT)) width=(n(width - GAP)) height=(n(ROW_HEIGHT)) rx="4"
                            fill-opacity=(format!("{:.2}", strength(place.share))) {}
                        text x=(n(x + (width - GAP) / 2.0)) y=(n(y + NAME_HEIGHT + 17.0)) text-anchor="middle" {
                            (place.text) @if place.bound { " ⚠" }
                        }
                    },
                    None => text class="dim" x=(n(x + (width - GAP) / 2.0)) y=(n(y + NAME_HEIGHT + 17.0)) text-anchor="middle" { "–" },
                }
            }
        }
    };
    Picture::new(id, title, (rows.len() as f64).mul_add(row_step, HEADING_HEIGHT + 4.0), &[], &drawing)
}

/// How strong the colour of a share is: half of the best is faint already.
fn strength(share: f64) -> f64 {
    ((share - 0.4) / 0.6).clamp(0.0, 1.0).powf(1.4).mul_add(0.62, 0.04)
}
