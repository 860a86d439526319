//! Sorting of only the part of a list that a range of the result needs.
//!
//! The quicksort of Bentley and McIlroy ("Engineering a Sort Function", 1993): a pivot, the median
//! of three or of nine elements, splits the list into three parts. Parts outside the range are not
//! sorted. The sort is not stable, but the order of equal elements is deterministic and the same as
//! in Redis, which uses the same algorithm: SORT with LIMIT and GEOSEARCH with COUNT depend on it.
//! Expected time O(n + k log k) for n elements, k of them in the range. The worst case of quicksort
//! is quadratic: beyond a depth that is very unlikely, the standard library sorts the rest.

use std::cmp::Ordering;
use std::ops::RangeInclusive;

/// The length below which a part of the list is sorted by insertion.
const INSERTION_LEN: usize = 7;

/// The length above which the pivot of a part of the list is the median of nine elements.
const MEDIAN_OF_NINE_LEN: usize = 40;

/// Sorts `items` so that the elements with an index in `range` are those of a full sort, except for
/// the order of equal elements. `compare` must be a total order. `range` may reach beyond the last
/// element.
pub fn partial_sort<T>(
    items: &mut [T],
    range: RangeInclusive<usize>,
    mut compare: impl FnMut(&T, &T) -> Ordering,
) {
    let depth_max = 4 * (usize::BITS - items.len().leading_zeros());
    sort_part(items, 0, &range, depth_max, &mut compare);
}

/// Sorts the elements of `part` that have an index in `range`; `part` starts at index `offset` of
/// the whole list. After `depth_max` partitions, the standard library sorts the rest.
fn sort_part<T>(
    mut part: &mut [T],
    mut offset: usize,
    range: &RangeInclusive<usize>,
    mut depth_max: u32,
    compare: &mut impl FnMut(&T, &T) -> Ordering,
) {
    let wanted = |start: usize, len: usize| *range.start() < start + len && *range.end() >= start;
    loop {
        if part.len() < INSERTION_LEN {
            insertion_sort(part, compare);
            return;
        }
        if depth_max == 0 {
            part.sort_by(compare);
            return;
        }
        depth_max -= 1;
        let (less, greater) = partition(part, compare);
        let greater_at = part.len() - greater;
        let (left, right) = part.split_at_mut(greater_at);
        if less > 1 && wanted(offset, less) {
            sort_part(&mut left[..less], offset, range, depth_max, compare);
        }
        if greater <= 1 || !wanted(offset + greater_at, greater) {
            return;
        }
        (part, offset) = (right, offset + greater_at);
    }
}

fn insertion_sort<T>(part: &mut [T], compare: &mut impl FnMut(&T, &T) -> Ordering) {
    for end in 1..part.len() {
        let mut at = end;
        while at > 0 && compare(&part[at - 1], &part[at]).is_gt() {
            part.swap(at - 1, at);
            at -= 1;
        }
    }
}

/// Moves the elements of `part` that are less than a pivot to the front and those greater to the
/// back. Returns the number of lesser elements and the number of greater elements.
fn partition<T>(part: &mut [T], compare: &mut impl FnMut(&T, &T) -> Ordering) -> (usize, usize) {
    let len = part.len();
    let pivot = pivot_of(part, compare);
    part.swap(0, pivot);
    // | equal | less | not seen | greater | equal |
    // 0    equal_end   at      end     greater_end
    let (mut equal_end, mut at, mut end, mut greater_end) = (1, 1, len, len);
    loop {
        while at < end {
            match compare(&part[at], &part[0]) {
                Ordering::Greater => break,
                Ordering::Equal => {
                    part.swap(equal_end, at);
                    equal_end += 1;
                }
                Ordering::Less => {}
            }
            at += 1;
        }
        while at < end {
            match compare(&part[end - 1], &part[0]) {
                Ordering::Less => break,
                Ordering::Equal => {
                    greater_end -= 1;
                    part.swap(end - 1, greater_end);
                }
                Ordering::Greater => {}
            }
            end -= 1;
        }
        if at >= end {
            break;
        }
        part.swap(at, end - 1);
        at += 1;
        end -= 1;
    }
    let (less, greater) = (at - equal_end, greater_end - end);
    let moved = equal_end.min(less);
    swap_ranges(part, 0, at - moved, moved);
    let moved = greater.min(len - greater_end);
    swap_ranges(part, at, len - moved, moved);
    (less, greater)
}

fn swap_ranges<T>(part: &mut [T], a: usize, b: usize, len: usize) {
    for at in 0..len {
        part.swap(a + at, b + at);
    }
}

/// Chooses the pivot for the partition of `part` and returns its index.
fn pivot_of<T>(part: &[T], compare: &mut impl FnMut(&T, &T) -> Ordering) -> usize {
    let len = part.len();
    let (mut first, mut middle, mut last) = (0, len / 2, len - 1);
    if len == INSERTION_LEN {
        return middle;
    }
    let mut median = |a: usize, b: usize, c: usize| {
        if compare(&part[a], &part[b]).is_lt() {
            match () {
                () if compare(&part[b], &part[c]).is_lt() => b,
                () if compare(&part[a], &part[c]).is_lt() => c,
                () => a,
            }
        } else {
            match () {
                () if compare(&part[b], &part[c]).is_gt() => b,
                () if compare(&part[a], &part[c]).is_lt() => a,
                () => c,
            }
        }
    };
    if len > MEDIAN_OF_NINE_LEN {
        let step = len / 8;
        first = median(first, first + step, first + 2 * step);
        middle = median(middle - step, middle, middle + step);
        last = median(last - 2 * step, last - step, last);
    }
    median(first, middle, last)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns `len` pseudo-random numbers below `limit` for the tests.
    fn numbers(len: usize, limit: u64) -> Vec<u64> {
        let mut state = len as u64 + 1;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % limit
        };
        (0..len).map(|_| next()).collect()
    }

    #[test]
    fn the_range_is_that_of_a_full_sort() {
        for len in 0..120 {
            for limit in [1, 3, 1000] {
                let mut sorted = numbers(len, limit);
                sorted.sort_unstable();
                for (start, end) in [(0, 0), (0, len), (len / 3, len / 2), (len, len + 5)] {
                    let mut part = numbers(len, limit);
                    partial_sort(&mut part, start..=end, Ord::cmp);
                    let range = start.min(len)..(end + 1).min(len);
                    assert_eq!(part[range.clone()], sorted[range], "{len} below {limit}, {start} to {end}");
                    part.sort_unstable();
                    assert_eq!(part, sorted, "nothing is lost");
                }
            }
        }
    }

    #[test]
    fn what_makes_quicksorts_slow_does_not() {
        let len = 20_000;
        for mut items in [(0..len).collect::<Vec<_>>(), (0..len).rev().collect(), vec![1; len]] {
            let mut compared = 0;
            partial_sort(&mut items, 0..=len, |a, b| {
                compared += 1;
                a.cmp(b)
            });
            assert!(items.is_sorted() && compared < len * 40, "{compared}");
        }
    }
}
