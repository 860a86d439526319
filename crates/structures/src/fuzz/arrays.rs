//! Checks of the sparse array against an ordered map.

use std::collections::BTreeMap;

use super::Script;
use crate::array::{Array, INDEX_MAX};
use crate::listpack::element::IntText;

/// The naive twin of an array.
pub(crate) type ArrayTwin = BTreeMap<u64, Vec<u8>>;

/// Applies the script `data` to an array and to its twin.
pub fn fuzz_arrays(data: &[u8]) {
    let (mut script, mut done) = (Script(data), 0);
    let (mut array, mut twin) = (Array::new(), ArrayTwin::new());
    let (mut version, mut of_version) = (array.clone(), twin.clone());
    while let Some(op) = script.next_op(&mut done) {
        let first = index(&mut script);
        match op % 8 {
            0..3 => {
                let text = script.text();
                assert_eq!(array.set(first, &text), twin.insert(first, text).is_none());
            }
            3 => {
                for index in (first..=INDEX_MAX).take(usize::from(script.byte())) {
                    let text = script.byte().to_string().into_bytes();
                    assert_eq!(array.set(index, &text), twin.insert(index, text).is_none());
                }
            }
            4 => assert_eq!(array.remove(first), twin.remove(&first).is_some()),
            5 => {
                let last = index(&mut script);
                let before = twin.len() as u64;
                twin.retain(|index, _| !(first..=last).contains(index));
                assert_eq!(array.remove_range(first, last), before - twin.len() as u64);
            }
            6 => {
                let last = index(&mut script);
                let range = first.min(last)..=first.max(last);
                let mut expected: Vec<u64> = twin.range(range).map(|(&index, _)| index).collect();
                if first > last {
                    expected.reverse();
                }
                assert!(array.scan(first, last).map(|(index, _)| index).eq(expected));
            }
            _ => {
                check_array(&version, &of_version);
                (version, of_version) = (array.clone(), twin.clone());
            }
        }
    }
    check_array(&version, &of_version);
    version.into_freed().for_each(drop);
    check_array(&array, &twin);
}

/// Reads an index: often near a power of two.
fn index(script: &mut Script<'_>) -> u64 {
    let near = 1_u64 << (script.byte() % 64);
    let distance = script.below(600) as u64;
    if script.byte().is_multiple_of(2) {
        near.saturating_sub(distance)
    } else {
        near.saturating_add(distance)
    }
    .min(INDEX_MAX)
}

/// Checks that the array has the elements of the twin, and that its numbers and sizes are right.
///
/// # Panics
/// If not.
pub(crate) fn check_array(array: &Array, twin: &ArrayTwin) {
    let elements = array.scan(0, u64::MAX).map(|(index, element)| {
        assert_eq!(array.get(index), Some(element));
        (index, element.text(&mut IntText::new()).to_vec())
    });
    assert!(elements.eq(twin.iter().map(|(&index, text)| (index, text.clone()))));
    assert_eq!(array.count(), twin.len() as u64);
    assert_eq!(array.len(), twin.last_key_value().map_or(0, |(&index, _)| index + 1));
    assert_eq!(array.is_empty(), twin.is_empty());
    array.check_totals();
}
