//! Distances on earth, the shapes of searches, and the cells that cover a shape.
//!
//! A search visits at most nine cells: a cell and its neighbours, so big that the shape fits into
//! them. Every member of these cells is then tested. The choice and the order of the cells
//! determine the order of an unsorted reply. So both are the same as in Redis. All distances are
//! haversines on the sphere that Redis uses, with the same operations in the same order.

use super::cell::{Area, Cell, Point, STEP_MAX, Span};

/// The earth's quadratic mean radius in metres, as Redis uses it.
const EARTH_RADIUS_M: f64 = 6_372_797.560856;

/// Half of the width of the map (Mercator projection) in metres.
const MERCATOR_MAX_M: f64 = 20_037_726.37;

const DEGREE: f64 = std::f64::consts::PI / 180.0;

/// The outline of a searched shape. Its lengths are in units of [`Shape::unit_m`].
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Outline {
    /// A circle: all points at most this distance from the centre.
    Circle { radius: f64 },
    /// A box: all points at most half the height north or south of the centre and half the width
    /// east or west of it. The width is measured along the parallel of the point.
    Box { width: f64, height: f64 },
    /// A polygon: all points inside it, given by its corners (Valkey's BYPOLYGON).
    Polygon { corners: Vec<Point> },
}

/// A shape in which a geo command searches.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Shape {
    /// The centre of the shape, from which distances are measured.
    pub(super) center: Point,
    pub(super) outline: Outline,
    /// The length in metres of the unit in which the shape's lengths are given.
    pub(super) unit_m: f64,
}

/// Returns the distance in metres between two parallels, given as latitudes in degrees.
fn latitude_distance_m(a: f64, b: f64) -> f64 {
    EARTH_RADIUS_M * (b * DEGREE - a * DEGREE).abs()
}

/// Returns the distance between two points, in metres.
pub(super) fn distance_m(a: Point, b: Point) -> f64 {
    let v = ((b.longitude * DEGREE - a.longitude * DEGREE) / 2.0).sin();
    if v == 0.0 {
        return latitude_distance_m(a.latitude, b.latitude);
    }
    let (latitude_a, latitude_b) = (a.latitude * DEGREE, b.latitude * DEGREE);
    let u = ((latitude_b - latitude_a) / 2.0).sin();
    let square = u * u + latitude_a.cos() * latitude_b.cos() * v * v;
    2.0 * EARTH_RADIUS_M * square.sqrt().asin()
}

/// Returns the centre of gravity of a polygon's corners on the sphere.
pub(super) fn centroid(corners: &[Point]) -> Point {
    let (mut x, mut y, mut z) = (0.0, 0.0, 0.0);
    for corner in corners {
        let (longitude, latitude) = (corner.longitude * DEGREE, corner.latitude * DEGREE);
        x += EARTH_RADIUS_M * latitude.cos() * longitude.cos();
        y += EARTH_RADIUS_M * latitude.cos() * longitude.sin();
        z += EARTH_RADIUS_M * latitude.sin();
    }
    let count = corners.len() as f64;
    let (x, y, z): (f64, f64, f64) = (x / count, y / count, z / count);
    let from_axis = (x * x + y * y).sqrt();
    Point { longitude: y.atan2(x) / DEGREE, latitude: z.atan2(from_axis) / DEGREE }
}

/// Returns true if a point lies inside a polygon: edges cross the ray to its east an odd number of
/// times.
fn is_inside(corners: &[Point], point: Point) -> bool {
    let from = corners.iter().cycle().skip(corners.len() - 1);
    let crossed = corners.iter().zip(from).filter(|(a, b)| {
        (a.latitude > point.latitude) != (b.latitude > point.latitude)
            && point.longitude
                < (b.longitude - a.longitude) * (point.latitude - a.latitude) / (b.latitude - a.latitude)
                    + a.longitude
    });
    crossed.count() % 2 == 1
}

impl Shape {
    /// Returns the distance of a point from the centre in metres. Returns `None` if the point lies
    /// outside the shape.
    pub(super) fn distance_within_m(&self, point: Point) -> Option<f64> {
        let inside = match &self.outline {
            Outline::Circle { radius } => {
                // A distance that is NaN counts as inside.
                let distance_m = distance_m(self.center, point);
                let outside = distance_m > radius * self.unit_m;
                return (!outside).then_some(distance_m);
            }
            Outline::Box { width, height } => {
                let level = Point { latitude: point.latitude, ..self.center };
                let too_far_north =
                    latitude_distance_m(point.latitude, self.center.latitude) > height * self.unit_m / 2.0;
                let too_far_east = !too_far_north && distance_m(point, level) > width * self.unit_m / 2.0;
                !too_far_north && !too_far_east
            }
            Outline::Polygon { corners } => is_inside(corners, point),
        };
        inside.then(|| distance_m(self.center, point))
    }

    /// Returns the rectangle around the searched shape. Its width in degrees is computed at the
    /// edge farther from the equator.
    fn bounds(&self) -> Area {
        let (height_m, width_m) = match &self.outline {
            Outline::Circle { radius } => (self.unit_m * radius, self.unit_m * radius),
            Outline::Box { width, height } => (self.unit_m * height / 2.0, self.unit_m * width / 2.0),
            Outline::Polygon { corners } => return around(corners),
        };
        let Point { longitude, latitude } = self.center;
        let north = height_m / EARTH_RADIUS_M / DEGREE;
        let parallel = if latitude < 0.0 { latitude - north } else { latitude + north };
        let east = width_m / EARTH_RADIUS_M / (parallel * DEGREE).cos() / DEGREE;
        Area {
            longitude: Span { min: longitude - east, max: longitude + east },
            latitude: Span { min: latitude - north, max: latitude + north },
        }
    }

    /// Returns the largest distance from the centre that the search must reach, in metres. For a
    /// polygon that is the distance to the farthest corner of `bounds`.
    fn reach_m(&self, bounds: Area) -> f64 {
        let reach = match &self.outline {
            Outline::Circle { radius } => *radius,
            Outline::Box { width, height } => {
                ((width / 2.0) * (width / 2.0) + (height / 2.0) * (height / 2.0)).sqrt()
            }
            Outline::Polygon { .. } => {
                let Area { longitude, latitude } = bounds;
                let corners = [
                    (longitude.min, latitude.max),
                    (longitude.max, latitude.max),
                    (longitude.min, latitude.min),
                    (longitude.max, latitude.min),
                ];
                let distance = |(longitude, latitude)| distance_m(self.center, Point { longitude, latitude });
                corners.map(distance).into_iter().fold(0.0, f64::max)
            }
        };
        reach * self.unit_m
    }

    /// Returns the map cells that cover the shape, in the order in which they are searched.
    pub(super) fn cells(&self) -> impl Iterator<Item = Cell> {
        /// The steps to the east and to the north from the centre's cell to the nine cells, in the
        /// order in which they are searched.
        const AROUND: [(i8, i8); 9] =
            [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1)];
        let bounds = self.bounds();
        let mut step = estimated_step(self.reach_m(bounds), self.center.latitude);
        let mut cell = Cell::at(self.center, step);
        if step > 1 && !neighbours_reach(cell, bounds) {
            step -= 1;
            cell = Cell::at(self.center, step);
        }
        let area = cell.area();
        // If the cell itself extends beyond the shape on one side, the neighbours on that side hold
        // no results.
        let needed = move |&(east, north): &(i8, i8)| {
            step < 2
                || !(north < 0 && area.latitude.min < bounds.latitude.min
                    || north > 0 && area.latitude.max > bounds.latitude.max
                    || east < 0 && area.longitude.min < bounds.longitude.min
                    || east > 0 && area.longitude.max > bounds.longitude.max)
        };
        let mut last = None;
        AROUND.into_iter().filter(needed).filter_map(move |(east, north)| {
            let neighbor = cell.neighbor(east, north);
            // If the map has few cells, some neighbours are the same cell. Like Redis, this code
            // compares a cell only with the previous one, and not with the middle one.
            if last == Some(neighbor) {
                return None;
            }
            last = ((east, north) != (0, 0)).then_some(neighbor);
            Some(neighbor)
        })
    }
}

/// Returns the smallest rectangle on the map that contains all `points`.
fn around(points: &[Point]) -> Area {
    let span = |degrees: &dyn Fn(&Point) -> f64| Span {
        min: points.iter().map(degrees).fold(f64::INFINITY, f64::min),
        max: points.iter().map(degrees).fold(f64::NEG_INFINITY, f64::max),
    };
    Area { longitude: span(&|point| point.longitude), latitude: span(&|point| point.latitude) }
}

/// Returns the step of cells that are about as big as a circle with this radius at this latitude.
fn estimated_step(radius_m: f64, latitude: f64) -> u32 {
    if radius_m == 0.0 {
        return STEP_MAX;
    }
    let (mut radius_m, mut step) = (radius_m, 1_i32);
    while radius_m < MERCATOR_MAX_M {
        radius_m *= 2.0;
        step += 1;
    }
    // Two steps less give larger cells, so that the circle mostly fits. Towards the poles, where
    // the map is stretched, the cells must be larger still.
    step -= 2 + i32::from(latitude.abs() > 66.0) + i32::from(latitude.abs() > 80.0);
    step.clamp(1, STEP_MAX as i32) as u32
}

/// Returns true if a map cell with its neighbours covers the searched rectangle.
fn neighbours_reach(cell: Cell, bounds: Area) -> bool {
    let neighbor = |east, north| cell.neighbor(east, north).area();
    neighbor(0, 1).latitude.max >= bounds.latitude.max
        && neighbor(0, -1).latitude.min <= bounds.latitude.min
        && neighbor(1, 0).longitude.max >= bounds.longitude.max
        && neighbor(-1, 0).longitude.min <= bounds.longitude.min
}

#[cfg(test)]
mod tests {
    use super::*;

    const PALERMO: Point = Point { longitude: 13.361389338970184, latitude: 38.1155563954963 };
    const CATANIA: Point = Point { longitude: 15.087267458438873, latitude: 37.50266842333162 };

    #[test]
    fn distances_are_those_of_redis() {
        assert_eq!(format!("{:.4}", distance_m(PALERMO, CATANIA)), "166274.1516");
        let north = Point { latitude: 39.0, ..PALERMO };
        assert_eq!(distance_m(PALERMO, north), latitude_distance_m(PALERMO.latitude, 39.0));
    }

    #[test]
    fn shapes_hold_what_lies_inside() {
        let shape = |outline| Shape { center: PALERMO, outline, unit_m: 1000.0 };
        let holds = |outline| shape(outline).distance_within_m(CATANIA).is_some();
        assert!(holds(Outline::Circle { radius: 167.0 }));
        assert!(!holds(Outline::Circle { radius: 166.0 }));
        assert!(holds(Outline::Box { width: 306.0, height: 137.0 }));
        assert!(!holds(Outline::Box { width: 302.0, height: 137.0 }));
        assert!(!holds(Outline::Box { width: 306.0, height: 136.0 }));
    }

    #[test]
    fn every_point_of_a_circle_lies_in_one_of_its_cells() {
        for latitude in [-84.9, -70.0, -30.0, 0.0, 45.0, 67.0, 81.0] {
            for longitude in [-179.0, -90.0, 0.0, 12.5, 179.0] {
                for radius in [1.0, 100.0, 10_000.0, 300_000.0] {
                    let center = Point { longitude, latitude };
                    let shape = Shape { center, outline: Outline::Circle { radius }, unit_m: 1.0 };
                    let cells: Vec<_> = shape.cells().map(Cell::area).collect();
                    assert!(cells.len() <= 9);
                    for (east, north) in [(1.0, 0.0), (-1.0, 0.0), (0.0, 1.0), (0.0, -1.0)] {
                        let reach = radius * 0.99 / EARTH_RADIUS_M / DEGREE;
                        let point = Point {
                            longitude: longitude + east * reach / (latitude * DEGREE).cos(),
                            latitude: latitude + north * reach,
                        };
                        let on_map = point.longitude.abs() < 180.0 && point.latitude.abs() < 85.0;
                        let covered = cells.iter().any(|area| {
                            area.longitude.contains(point.longitude) && area.latitude.contains(point.latitude)
                        });
                        assert!(covered || !on_map, "{center:?} {radius} {point:?}");
                    }
                }
            }
        }
    }
}
