//! Geohash cells: the map divided into 4^step rectangles, and their numbers.
//!
//! A step halves longitude and latitude once. In a cell's number the odd bits are its place between
//! west and east, the even bits its place between south and north, most significant first:
//!
//! ```text
//! step 2, number 0b0110:  longitude bits 0 1, latitude bits 1 0
//! ```
//!
//! The cells inside a cell therefore have its number as prefix. Cells with near numbers are mostly
//! near on the map. A member's score is the number of its cell of step 26: 52 bits, which a float
//! holds exactly. All members of a bigger cell lie in one range of scores. Both halves of a number
//! are computed as floats, in the order of operations of Redis, so that scores agree to the last
//! bit. Source: the geohash of G. Niemeyer; the ranges of WGS 84's Web Mercator map.

use std::ops::Range;

/// The number of steps of a member's cell: how often longitude and latitude are halved.
pub(super) const STEP_MAX: u32 = 26;

/// The longitudes that places may have, in degrees.
pub(super) const LONGITUDES: Span = Span { min: -180.0, max: 180.0 };

/// The latitudes that can be stored, in degrees: the latitudes of a square Mercator map.
pub(super) const LATITUDES: Span = Span { min: -85.051_128_78, max: 85.051_128_78 };

/// The latitudes of the standard geohash strings that other software uses, in degrees.
const LATITUDES_STANDARD: Span = Span { min: -90.0, max: 90.0 };

/// The 32 digits of geohash strings, lowest first.
const BASE32: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";

/// The number of digits of a geohash string: ten from the available bits, and a zero.
pub(super) const TEXT_LEN: usize = 11;

const LATITUDE_BITS: u64 = 0x5555_5555_5555_5555;
const LONGITUDE_BITS: u64 = 0xAAAA_AAAA_AAAA_AAAA;

/// A point on earth, in degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) longitude: f64,
    pub(super) latitude: f64,
}

/// An interval of longitudes or of latitudes, in degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Span {
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Span {
    pub(super) fn contains(self, degrees: f64) -> bool {
        degrees >= self.min && degrees <= self.max
    }

    /// Divides the interval into 2^step equal parts and returns the index of the part that contains
    /// `degrees`.
    fn part_of(self, degrees: f64, step: u32) -> u64 {
        let share = (degrees - self.min) / (self.max - self.min);
        u64::from((share * (1_u64 << step) as f64) as u32)
    }

    /// Divides the interval into 2^step equal parts and returns the part with the index `part`.
    fn part(self, part: u64, step: u32) -> Span {
        let (scale, parts) = (self.max - self.min, (1_u64 << step) as f64);
        Span {
            min: self.min + (part as f64 / parts) * scale,
            max: self.min + ((part + 1) as f64 / parts) * scale,
        }
    }

    /// Returns the middle of the interval of degrees, limited to values within `limits`.
    fn middle(self, limits: Span) -> f64 {
        ((self.min + self.max) / 2.0).clamp(limits.min, limits.max)
    }
}

/// A rectangle on the map, in degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Area {
    pub(super) longitude: Span,
    pub(super) latitude: Span,
}

/// A cell: one of the 4^step rectangles into which the map is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    bits: u64,
    step: u32,
}

impl Cell {
    /// Returns the map cell of step `step` (1 to 26) that contains a point.
    pub(super) fn at(point: Point, step: u32) -> Self {
        Self::within(point, LATITUDES, step)
    }

    fn within(point: Point, latitudes: Span, step: u32) -> Self {
        let latitude = latitudes.part_of(point.latitude, step);
        let longitude = LONGITUDES.part_of(point.longitude, step);
        Self { bits: interleave(latitude) | interleave(longitude) << 1, step }
    }

    /// Returns the map cell that a member's score encodes. Every score has a cell, also one that
    /// GEOADD never stores.
    pub(super) fn of_score(score: f64) -> Self {
        Self { bits: to_u64(score), step: STEP_MAX }
    }

    /// Returns the rectangle on the map that the cell covers.
    pub(super) fn area(self) -> Area {
        Area {
            longitude: LONGITUDES.part(deinterleave(self.bits >> 1), self.step),
            latitude: LATITUDES.part(deinterleave(self.bits), self.step),
        }
    }

    /// Returns the middle of the cell, which GEOPOS reports as the position of its members.
    pub(super) fn center(self) -> Point {
        let area = self.area();
        Point { longitude: area.longitude.middle(LONGITUDES), latitude: area.latitude.middle(LATITUDES) }
    }

    /// Returns the range of the scores of members inside the cell.
    pub(super) fn scores(self) -> Range<f64> {
        let shift = 2 * (STEP_MAX - self.step);
        (self.bits << shift) as f64..((self.bits + 1) << shift) as f64
    }

    /// Returns the cell `east` cells to the east and `north` to the north, each -1, 0 or 1. Wraps
    /// around at the map's edge.
    pub(super) fn neighbor(self, east: i8, north: i8) -> Self {
        let bits = shifted(self.bits, LONGITUDE_BITS, east, self.step);
        Self { bits: shifted(bits, LATITUDE_BITS, north, self.step), ..self }
    }
}

/// Adds `by` (-1, 0 or 1) to one coordinate in the cell number `bits`: the latitude or the
/// longitude, whose bits are in `mask`. The coordinate wraps around.
fn shifted(bits: u64, mask: u64, by: i8, step: u32) -> u64 {
    let unused = 64 - 2 * step;
    // In the other half, ones pass a carry on to the next bit of this half; zeroes pass a borrow
    // on.
    let (half, filler) = (bits & mask, !mask >> unused);
    let moved = match by {
        0 => return bits,
        1.. => half.wrapping_add(filler + 1),
        _ => (half | filler).wrapping_sub(filler + 1),
    };
    moved & (mask >> unused) | bits & !mask
}

/// Spreads the lower 32 bits of `number` over the even bits of the result.
fn interleave(number: u64) -> u64 {
    let mut bits = number & 0xFFFF_FFFF;
    bits = (bits | bits << 16) & 0x0000_FFFF_0000_FFFF;
    bits = (bits | bits << 8) & 0x00FF_00FF_00FF_00FF;
    bits = (bits | bits << 4) & 0x0F0F_0F0F_0F0F_0F0F;
    bits = (bits | bits << 2) & 0x3333_3333_3333_3333;
    (bits | bits << 1) & LATITUDE_BITS
}

/// Collects the even bits of `bits` in the lower 32 bits of the result.
fn deinterleave(bits: u64) -> u64 {
    let mut bits = bits & LATITUDE_BITS;
    bits = (bits | bits >> 1) & 0x3333_3333_3333_3333;
    bits = (bits | bits >> 2) & 0x0F0F_0F0F_0F0F_0F0F;
    bits = (bits | bits >> 4) & 0x00FF_00FF_00FF_00FF;
    bits = (bits | bits >> 8) & 0x0000_FFFF_0000_FFFF;
    (bits | bits >> 16) & 0xFFFF_FFFF
}

/// Converts a member's score to 64 bits. Negative scores are in two's complement; scores out of
/// range convert as on x86-64.
fn to_u64(score: f64) -> u64 {
    const TOP: f64 = (1_u64 << 63) as f64;
    if score < TOP { to_i64(score) as u64 } else { to_i64(score - TOP) as u64 ^ 1 << 63 }
}

/// Converts a member's score to a signed number. A score out of range gives the lowest number, as
/// on x86-64.
pub(super) fn to_i64(score: f64) -> i64 {
    const END: f64 = (1_u64 << 63) as f64;
    if (-END..END).contains(&score) { score as i64 } else { i64::MIN }
}

/// Returns the geohash string of a point, as GEOHASH replies it.
pub(super) fn text(point: Point) -> [u8; TEXT_LEN] {
    let bits = Cell::within(point, LATITUDES_STANDARD, STEP_MAX).bits;
    std::array::from_fn(|digit| match 2 * STEP_MAX as usize / 5 {
        digits if digit < digits => BASE32[(bits >> (47 - 5 * digit) & 31) as usize],
        _ => BASE32[0],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PALERMO: Point = Point { longitude: 13.361389, latitude: 38.115556 };

    #[test]
    fn a_point_has_the_score_and_the_text_that_redis_gives() {
        let cell = Cell::at(PALERMO, STEP_MAX);
        assert_eq!(cell.scores().start, 3_479_099_956_230_698.0);
        let center = Cell::of_score(cell.scores().start).center();
        assert_eq!(format!("{:.17} {:.17}", center.longitude, center.latitude), {
            "13.36138933897018433 38.11555639549629859"
        });
        assert_eq!(&text(center), b"sqc8b49rny0");
    }

    #[test]
    fn halves_of_numbers_come_apart_again() {
        for number in [0, 1, 0xFFFF_FFFF, 0x1234_5678] {
            assert_eq!(deinterleave(interleave(number)), number);
        }
    }

    #[test]
    fn every_cell_is_beside_those_that_touch_it() {
        for step in 1..6 {
            for bits in 0..1_u64 << (2 * step) {
                let cell = Cell { bits, step };
                let sides = 1_u64 << step;
                let around = |at: u64, by: i8| (at + sides).wrapping_add_signed(by.into()) % sides;
                for (east, north) in [(1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, -1), (1, -1)] {
                    let neighbor = cell.neighbor(east, north);
                    assert_eq!(deinterleave(neighbor.bits >> 1), around(deinterleave(bits >> 1), east));
                    assert_eq!(deinterleave(neighbor.bits), around(deinterleave(bits), north));
                }
            }
        }
    }

    #[test]
    fn scores_beyond_all_cells_convert_as_the_processor_does() {
        assert_eq!(to_u64(-1.0), u64::MAX);
        assert_eq!(to_u64(f64::INFINITY), 0);
        assert_eq!(to_u64(f64::NEG_INFINITY), 1 << 63);
        assert_eq!(to_u64(9.3e18), 9_300_000_000_000_000_000);
        assert_eq!(to_i64(1e19), i64::MIN);
    }
}
