//! Tests of the array against an ordered map, and of its sizes.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::fuzz::{ArrayTwin, check_array};
use crate::listpack::element::IntText;

fn text_at(array: &Array, index: u64) -> Option<Vec<u8>> {
    array.get(index).map(|element| element.text(&mut IntText::new()).to_vec())
}

fn scanned(array: &Array, start: u64, end: u64) -> Vec<u64> {
    array.scan(start, end).map(|(index, _)| index).collect()
}

/// Generates indexes near the places where slices, nodes or levels end.
fn index() -> impl Strategy<Value = u64> {
    let place =
        prop_oneof![Just(0), Just(4096), Just(1 << 18), Just(1 << 24), Just(1 << 63), Just(INDEX_MAX)];
    let distance = prop_oneof![0..40_u64, 0..9000_u64];
    (place, distance, any::<bool>()).prop_map(|(place, distance, below)| {
        if below { place.saturating_sub(distance) } else { place.saturating_add(distance).min(INDEX_MAX) }
    })
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        any::<i64>().prop_map(|number| number.to_string().into_bytes()),
        (-300..300_i64).prop_map(|number| number.to_string().into_bytes()),
        vec(any::<u8>(), 0..9),
        vec(any::<u8>(), 0..40),
    ]
}

#[derive(Clone, Debug)]
enum Op {
    Set(u64, Vec<u8>),
    Fill(u64, u16),
    Remove(u64),
    RemoveRange(u64, u64),
    Clone,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (index(), text()).prop_map(|(index, text)| Op::Set(index, text)),
        1 => (index(), 1..300_u16).prop_map(|(index, count)| Op::Fill(index, count)),
        2 => index().prop_map(Op::Remove),
        1 => (index(), index()).prop_map(|(one, other)| Op::RemoveRange(one.min(other), one.max(other))),
        1 => (index(), 0..50_u64).prop_map(|(index, count)| {
            Op::RemoveRange(index, index.saturating_add(count).min(INDEX_MAX))
        }),
        1 => Just(Op::Clone),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn an_array_does_as_an_ordered_map(ops in vec(op(), 0..60)) {
        let (mut array, mut twin) = (Array::new(), ArrayTwin::new());
        let mut version = (array.clone(), twin.clone());
        for op in ops {
            match op {
                Op::Set(index, text) => {
                    prop_assert_eq!(array.set(index, &text), twin.insert(index, text).is_none());
                }
                Op::Fill(index, count) => {
                    for index in (index..=INDEX_MAX).take(count.into()) {
                        let text = format!("{}", index.wrapping_mul(0x9E37_79B9)).into_bytes();
                        prop_assert_eq!(array.set(index, &text), twin.insert(index, text).is_none());
                    }
                }
                Op::Remove(index) => {
                    prop_assert_eq!(array.remove(index), twin.remove(&index).is_some());
                }
                Op::RemoveRange(first, last) => {
                    let before = twin.len() as u64;
                    twin.retain(|index, _| !(first..=last).contains(index));
                    prop_assert_eq!(array.remove_range(first, last), before - twin.len() as u64);
                }
                Op::Clone => {
                    check_array(&version.0, &version.1);
                    version = (array.clone(), twin.clone());
                }
            }
        }
        check_array(&version.0, &version.1);
        version.0.into_freed().for_each(drop);
        check_array(&array, &twin);
        for (low, high) in [(0, 4096), (5, 1 << 20), (4095, INDEX_MAX), (1 << 63, u64::MAX), (7, 7)] {
            let mut expected: Vec<u64> = twin.range(low..=high).map(|(&index, _)| index).collect();
            prop_assert_eq!(scanned(&array, low, high), expected.clone());
            expected.reverse();
            if low != high {
                prop_assert_eq!(scanned(&array, high, low), expected);
            }
        }
        prop_assert_eq!(array.remove_range(INDEX_MAX, 0), 0);
        array.remove_range(0, u64::MAX);
        check_array(&array, &BTreeMap::new());
    }
}

#[test]
fn all_texts_come_back_as_they_were() {
    let texts: Vec<Vec<u8>> = ["", "0", "-0", "007", "7 bytes", "8 bytes!", "2305843009213693951"]
        .iter()
        .chain(["2305843009213693952", "-2305843009213693952", "-2305843009213693953", "1.5", "\0\0"].iter())
        .map(|text| text.as_bytes().to_vec())
        .collect();
    let mut array = Array::new();
    for (index, text) in texts.iter().enumerate() {
        assert!(array.set(index as u64 * 1000, text));
    }
    for (index, text) in texts.iter().enumerate() {
        assert_eq!(text_at(&array, index as u64 * 1000).as_ref(), Some(text));
        assert!(!array.set(index as u64 * 1000, b"a text of more than seven bytes"));
    }
    assert_eq!(array.count(), texts.len() as u64);
}

#[test]
fn a_dense_array_takes_one_word_for_a_number_and_a_lone_element_little() {
    let mut array = Array::new();
    (0..100_000).for_each(|index| assert!(array.set(index, b"12345")));
    assert_eq!((array.slices(), array.nodes()), (25, 1));
    assert!(array.len_bytes() < 100_000 * 9 + 25 * 10_000, "{}", array.len_bytes());
    let mut lone = Array::new();
    lone.set(INDEX_MAX, b"a");
    assert_eq!((lone.len(), lone.nodes(), lone.slices()), (u64::MAX, 9, 1));
    assert!(lone.len_bytes() < 1200, "{}", lone.len_bytes());
    lone.set(0, b"b");
    assert!(lone.remove(INDEX_MAX));
    assert_eq!((lone.len(), lone.nodes(), lone.slices()), (1, 0, 1));
}

#[test]
fn slices_change_their_layout_with_their_elements() {
    let mut array = Array::new();
    for index in (0..4096).rev() {
        array.set(index, b"x");
    }
    let stats = array.slice_stats();
    assert_eq!((stats.dense, stats.sparse, stats.dense_elements), (1, 0, 4096));
    array.remove_range(1, 4094);
    let stats = array.slice_stats();
    assert_eq!((stats.dense, stats.sparse, array.count()), (0, 1, 2));
    assert!(array.len_bytes() < 300, "{}", array.len_bytes());
    for index in (0..4096).step_by(100) {
        array.set(index, b"y");
    }
    assert_eq!(array.slice_stats().sparse, 1);
}

#[test]
fn a_dense_slice_that_loses_its_end_gives_its_memory_back() {
    let mut array = Array::new();
    (0..4096).for_each(|index| assert!(array.set(index, b"x")));
    array.remove_range(500, 4095);
    let stats = array.slice_stats();
    assert_eq!((stats.dense, stats.dense_places, array.count()), (1, 500, 500));
    assert!(array.len_bytes() < 500 * 8 + 500, "{}", array.len_bytes());
}

#[test]
fn a_range_over_all_indexes_visits_only_what_exists() {
    let mut array = Array::new();
    let indexes: Vec<u64> = (0..64).map(|bit| (1_u64 << bit) - 1).collect();
    indexes.iter().for_each(|&index| assert!(array.set(index, b"v")));
    assert_eq!(scanned(&array, 0, u64::MAX), indexes);
    assert_eq!(array.remove_range(1 << 20, u64::MAX), 43);
    assert_eq!(array.len(), 1 << 20);
}

#[test]
fn a_big_array_is_freed_in_steps_and_shared_parts_by_the_last_owner() {
    let mut array = Array::new();
    (0..1_000_000).step_by(100).for_each(|index| assert!(array.set(index, b"a longer text")));
    let mut copy = array.clone();
    copy.set(0, b"another");
    // The root, its nodes, and the slices of the one node that is not shared.
    assert_eq!(array.into_freed().count(), 1 + 4 + 64);
    assert_eq!((copy.count(), text_at(&copy, 999_900)), (10_000, Some(b"a longer text".to_vec())));
    assert!(copy.into_freed().count() > 245);
}
