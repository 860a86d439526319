//! Checks of listpacks, intsets and quicklists against naive twins: the twin of an intset is a tree
//! set, the others' is a vector.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use super::Script;
use crate::intset::Intset;
use crate::listpack::Listpack;
use crate::listpack::element::Element;
use crate::quicklist::{NodeLimit, NodeView, Quicklist};

fn text(element: Element<'_>) -> Vec<u8> {
    let mut text = Vec::new();
    element.append_to(&mut text);
    text
}

fn check_listpack(pack: &Listpack, twin: &[Vec<u8>]) {
    assert_eq!(Listpack::from_bytes(pack.as_bytes().into()).as_ref(), Ok(pack), "edits keep it valid");
    assert_eq!(pack.len(), twin.len());
    assert!(pack.iter().map(text).eq(twin.iter().cloned()));
    assert!(pack.iter().rev().map(text).eq(twin.iter().rev().cloned()));
}

/// Edits a listpack by the script `data` and compares it with its twin, a vector, after each
/// operation. The listpack is initially `data` itself if these bytes are a valid listpack, else
/// empty.
pub fn fuzz_listpack(data: &[u8]) {
    let mut pack = Listpack::from_bytes(data.into()).unwrap_or_default();
    let mut twin: Vec<Vec<u8>> = pack.iter().map(text).collect();
    check_listpack(&pack, &twin);
    let distinct: BTreeSet<&Vec<u8>> = twin.iter().collect();
    assert_eq!(pack.are_distinct(0), distinct.len() == twin.len());

    let (mut script, mut done) = (Script(data), 0);
    while let Some(op) = script.next_op(&mut done) {
        let at = script.below(twin.len() + 1);
        match op % 8 {
            0 | 1 => {
                let value = script.text();
                pack.insert(pack.seek(at).unwrap_or(pack.end()), &value).expect("far below a gibibyte");
                twin.insert(at, value);
            }
            2 => {
                let values: Vec<Vec<u8>> = (0..script.byte() % 8).map(|_| script.text()).collect();
                let elements: Vec<Element<'_>> = values.iter().map(|value| value.into()).collect();
                pack.extend_back(&elements).expect("far below a gibibyte");
                twin.extend(values);
            }
            3 => {
                let value = script.text();
                pack.push_front(&value).expect("far below a gibibyte");
                twin.insert(0, value);
            }
            4 => {
                let value = script.text();
                if let Some(old) = twin.get_mut(at) {
                    let cursor = pack.seek(at).expect("the twin has so many");
                    pack.replace(cursor, &value).expect("far below a gibibyte");
                    *old = value;
                }
            }
            5 => {
                let count = script.below(8);
                let end = twin.len().min(at + count);
                assert_eq!(pack.delete_range(at, count), end - at);
                twin.drain(at..end);
            }
            6 => {
                let Some(value) = twin.get(at).cloned() else { continue };
                let (passed, max) = (script.below(3), script.below(4));
                let all: Vec<usize> = (0..twin.len()).filter(|&at| twin[at] == value).collect();
                let gone: Vec<usize> = all.into_iter().skip(passed).take(max).collect();
                assert_eq!(pack.delete_matches(&value, passed, max), gone.len());
                gone.into_iter().rev().for_each(|at| drop(twin.remove(at)));
            }
            _ => {
                let (value, skipped) = (script.text(), usize::from(op / 8 % 3));
                let expected = (at..twin.len()).step_by(skipped + 1).find(|&at| twin[at] == value);
                let found = pack.seek(at).and_then(|from| pack.find(from, &value, skipped));
                assert_eq!(found.map(|cursor| pack.iter_before(cursor).count()), expected);
            }
        }
        check_listpack(&pack, &twin);
    }
}

/// Edits an intset by the script `data` and compares it with its twin, a tree set, after each
/// operation. The intset is initially `data` itself if these bytes are a valid intset, else empty.
pub fn fuzz_intset(data: &[u8]) {
    let mut set = Intset::from_bytes(data.into()).unwrap_or_default();
    let mut twin: BTreeSet<i64> = set.iter().collect();
    let (mut script, mut done) = (Script(data), 0);
    loop {
        assert_eq!(Intset::from_bytes(set.as_bytes().into()).as_ref(), Ok(&set), "edits keep it valid");
        assert_eq!(set.len(), twin.len());
        assert!(set.iter().eq(twin.iter().copied()));
        assert!(set.iter().rev().eq(twin.iter().rev().copied()));
        let Some(op) = script.next_op(&mut done) else { return };
        let value = match op / 8 % 4 {
            0 => i64::from(script.byte()) - 128,
            1 => script.below(1 << 16) as i64 - (1 << 15),
            2 => i64::from(script.int() as i32),
            _ => script.int(),
        };
        assert_eq!(set.contains(value), twin.contains(&value));
        match op % 8 {
            0..5 => assert_eq!(set.insert(value), Ok(twin.insert(value))),
            5 | 6 => assert_eq!(set.remove(value), twin.remove(&value)),
            _ => {
                let index = value.unsigned_abs() as usize % (twin.len() + 1);
                let expected = twin.iter().nth(index).copied();
                assert_eq!(set.remove_at(index), expected);
                expected.inspect(|value| assert!(twin.remove(value)));
            }
        }
    }
}

/// The values of `list-max-listpack-size` that the checks choose from.
const LIMITS: [i64; 8] = [-2, -5, -1, 0, 1, 2, 3, 128];

fn check_quicklist(list: &Quicklist, twin: &[Vec<u8>], index: usize) {
    assert_eq!(list.len(), twin.len());
    let (mut all, mut from, mut before, mut counts) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    list.visit(0, usize::MAX, |element| all.push(text(element)));
    assert!(all == twin);
    list.visit(index, usize::MAX, |element| from.push(text(element)));
    assert_eq!(from, twin.get(index..).unwrap_or_default());
    let end = list.try_visit_rev(index, |element| {
        before.push(text(element));
        ControlFlow::<()>::Continue(())
    });
    assert!(end.is_continue() && before.iter().eq(twin.get(..=index).unwrap_or_default().iter().rev()));
    list.visit_nodes(|node| {
        counts.push(match node {
            NodeView::Plain(_) => 1,
            NodeView::Packed { count, .. } => count,
        });
    });
    assert!(!counts.contains(&0), "no node is empty");
    assert_eq!(counts.len(), list.node_count());
    assert_eq!(counts.iter().sum::<usize>(), twin.len());
}

/// Edits a quicklist by the script `data` and compares it with its twin, a vector, after each
/// operation. If `data` is also a valid listpack, it is the quicklist's first node.
pub fn fuzz_quicklist(data: &[u8]) {
    let (mut script, mut done) = (Script(data), 0);
    let limit = NodeLimit::from_option(LIMITS[script.below(LIMITS.len())]);
    let mut list = Quicklist::new(limit.with_compress_depth(script.below(4) as i64));
    let foreign = Listpack::from_bytes(data.into()).unwrap_or_default();
    let mut twin: Vec<Vec<u8>> = foreign.iter().map(text).collect();
    list.push_listpack(foreign);
    while let Some(op) = script.next_op(&mut done) {
        let at = script.below(twin.len() + 1);
        edit_quicklist(op, at, &mut script, &mut list, &mut twin);
        check_quicklist(&list, &twin, at);
    }
}

fn edit_quicklist(op: u8, at: usize, script: &mut Script<'_>, list: &mut Quicklist, twin: &mut Vec<Vec<u8>>) {
    match op % 8 {
        0 => {
            let value = script.text();
            for _ in 0..script.byte() % 32 {
                list.push_back(&value);
                twin.push(value.clone());
            }
        }
        1 => {
            let value = script.text();
            for _ in 0..script.byte() % 32 {
                list.push_front(&value);
                twin.insert(0, value.clone());
            }
        }
        2 | 3 => {
            let value = script.text();
            list.insert(at, &value);
            twin.insert(at, value);
        }
        4 => {
            let value = script.text();
            assert_eq!(list.replace(at, &value), at < twin.len());
            twin.get_mut(at).into_iter().for_each(|old| old.clone_from(&value));
        }
        5 => {
            let count = script.below(60);
            let end = twin.len().min(at + count);
            assert_eq!(list.remove_range(at, count), end - at);
            twin.drain(at..end);
        }
        6 => {
            let Some(value) = twin.get(at).cloned() else { return };
            let max = script.below(6);
            let mut gone: Vec<usize> = (0..twin.len()).filter(|&at| twin[at] == value).collect();
            if op < 128 {
                assert_eq!(list.remove_first_matches(&value, max), gone.len().min(max));
            } else {
                assert_eq!(list.remove_last_matches(&value, max), gone.len().min(max));
                gone.reverse();
            }
            gone.truncate(max);
            gone.sort_unstable();
            gone.into_iter().rev().for_each(|at| drop(twin.remove(at)));
        }
        _ => {
            let expected = (!twin.is_empty()).then(|| twin.remove(0));
            assert_eq!(list.pop_front_with(text), expected);
            assert_eq!(list.pop_back_with(text), twin.pop());
        }
    }
}
