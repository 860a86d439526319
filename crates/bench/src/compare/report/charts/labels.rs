//! The placement of short labels beside the dots of a chart. A label avoids the dots and the other
//! labels if there is space. The first choice is the best of eight places around the dot, if a
//! label there covers nothing. The second is the nearest free place farther away, and a line joins
//! the label to its dot. The last is the place of the eight at which the label covers least. O(n²)
//! for n labels.

use std::f64::consts::TAU;

use super::svg::small_width;

/// The height of small text above its baseline, in units of the chart.
const TEXT_HEIGHT: f64 = 9.0;
/// The covered area up to which a label counts as not covered: the rounding error of floating-point
/// sums.
const HIDDEN_MAX: f64 = 1e-6;
/// The space between a dot and its label, in units of the chart.
const GAP: f64 = 3.0;

/// The distances from a dot at which its label is tried if no place beside the dot is free, in
/// units of the chart. `DIRECTIONS` is the number of directions tried at each distance.
const DISTANCES: [f64; 7] = [12.0, 18.0, 25.0, 33.0, 42.0, 52.0, 64.0];
const DIRECTIONS: u32 = 24;

/// The chosen position of a dot's label in a chart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    /// The point (x, y) at which the baseline of the label's text starts.
    pub text: (f64, f64),
    /// The point (x, y) at which the line from the dot to the label ends; `None` for a label beside
    /// its dot, which needs no line.
    pub joint: Option<(f64, f64)>,
}

/// A rectangle in units of the chart: left, top, right, bottom.
type Area = (f64, f64, f64, f64);

/// The areas of a chart that dots and labels already use.
pub struct Labels {
    frame: Area,
    taken: Vec<Area>,
}

impl Labels {
    /// Creates the areas of a chart inside `frame`, with dots of the given radius at the points
    /// `dots` and without labels.
    pub fn new(frame: Area, dots: impl IntoIterator<Item = (f64, f64)>, radius: f64) -> Self {
        let area = |(x, y): (f64, f64)| (x - radius, y - radius, x + radius, y + radius);
        Self { frame, taken: dots.into_iter().map(area).collect() }
    }

    /// Chooses and reserves the position of the label `text`. It belongs to the dot of the given
    /// radius at (`x`, `y`).
    pub fn place(&mut self, (x, y): (f64, f64), radius: f64, text: &str) -> Place {
        let width = small_width(text);
        let (right, left, centre) = (x + radius + GAP, x - radius - GAP - width, x - width / 2.0);
        let (above, middle, below) =
            (y - radius - GAP, y + TEXT_HEIGHT / 2.0, y + radius + GAP + TEXT_HEIGHT - 1.0);
        let places = [
            (right, middle),
            (left, middle),
            (centre, above),
            (centre, below),
            (right, above),
            (right, below),
            (left, above),
            (left, below),
        ];
        let area = |(x, y): (f64, f64)| (x - 1.5, y - TEXT_HEIGHT, x + width + 1.5, y + 1.0);
        let hidden = |place: &(f64, f64)| {
            let area = area(*place);
            let outside = (area.2 - area.0) * (area.3 - area.1) - common(area, self.frame);
            self.taken.iter().map(|taken| common(area, *taken)).sum::<f64>() + 2.0 * outside
        };
        let best = places.into_iter().min_by(|one, other| hidden(one).total_cmp(&hidden(other)));
        let best = best.unwrap_or((right, middle));
        let far = DISTANCES.iter().flat_map(|distance| {
            let angle = |at| f64::from(at) / f64::from(DIRECTIONS) * TAU;
            (0..DIRECTIONS).map(move |at| (x + distance * angle(at).cos(), y + distance * angle(at).sin()))
        });
        let beginning = |(x, y): (f64, f64)| (x - width / 2.0, y + TEXT_HEIGHT / 2.0);
        let mut free = far.filter(|centre| hidden(&beginning(*centre)) < HIDDEN_MAX);
        let joint = if hidden(&best) < HIDDEN_MAX { None } else { free.next() };
        let text = joint.map_or(best, beginning);
        self.taken.push(area(text));
        Place { text, joint }
    }
}

/// Returns the size of the area that two rectangles have in common.
fn common(one: Area, other: Area) -> f64 {
    let width = one.2.min(other.2) - one.0.max(other.0);
    let height = one.3.min(other.3) - one.1.max(other.1);
    width.max(0.0) * height.max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_hide_neither_dots_nor_each_other() {
        let dots = [(50.0, 50.0), (60.0, 50.0), (50.0, 62.0), (99.0, 50.0)];
        let mut labels = Labels::new((0.0, 0.0, 100.0, 100.0), dots, 4.0);
        for dot in dots {
            labels.place(dot, 4.0, "12");
        }
        let texts = &labels.taken[dots.len()..];
        for (at, text) in texts.iter().enumerate() {
            let others = labels.taken.iter().enumerate().filter(|(other, _)| *other != at + dots.len());
            assert!(others.map(|(_, area)| common(*text, *area)).sum::<f64>() < 1e-9, "{texts:?}");
            assert!(text.2 <= 100.0, "within the frame: {texts:?}");
        }
    }
}
