//! Checks of packed sets against a naive twin: a tree set.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use super::Script;
use super::tables::{crowded, mixed};
use crate::packed_set::PackedSet;
use crate::walk_state::WalkState;

type Twin = BTreeSet<Vec<u8>>;

fn check_packed_set(set: &PackedSet, twin: &Twin, hash: fn(&[u8]) -> u64) {
    assert_eq!(set.len(), twin.len());
    for member in twin {
        let place = set.find(hash(member), member).expect("the twin has it");
        assert_eq!(set.at(place), member);
    }
    let (mut seen, mut cursor) = (Vec::new(), 0);
    loop {
        cursor = set.scan(cursor, |member| seen.push(member.to_vec()));
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(seen.len(), twin.len());
    assert!(seen.into_iter().collect::<Twin>() == *twin);
    assert!(set.iter().map(<[u8]>::to_vec).collect::<Twin>() == *twin);
}

/// Changes a packed set by the script `data`, while walks visit it, and compares it and the walks
/// with its twin, a tree set.
pub fn fuzz_packed_set(data: &[u8]) {
    let (mut script, mut done) = (Script(data), 0);
    let hash = if script.byte() < 128 { mixed } else { crowded };
    let (mut set, mut twin) = (PackedSet::new(), Twin::new());
    // The members at the start of the walk in progress, and those that it has visited.
    let mut walk: Option<(Twin, Vec<Vec<u8>>)> = None;
    while let Some(op) = script.next_op(&mut done) {
        match op % 7 {
            0 | 1 => {
                let member = script.text();
                assert_eq!(set.insert(hash(&member), &member, &hash), twin.insert(member));
            }
            2 => {
                let start = usize::from(script.byte()) * 100;
                for number in start..start + usize::from(script.byte()) * 4 {
                    let member = number.to_string().into_bytes();
                    assert_eq!(set.insert(hash(&member), &member, &hash), twin.insert(member));
                }
            }
            3 => {
                let start = script.text();
                let gone: Vec<_> = twin.range(start..).take(script.byte().into()).cloned().collect();
                for member in gone {
                    set.remove(set.find(hash(&member), &member).expect("the twin has it"));
                    twin.remove(&member);
                }
            }
            4 => {
                let place = set.random(|| mixed(&script.bytes(2)));
                assert_eq!(place.is_none(), twin.is_empty());
                if let Some(place) = place {
                    assert!(twin.remove(set.at(place)));
                    set.remove(place);
                }
            }
            5 if walk.is_none() => {
                set = set.clone();
                let copied_len_bytes = Arc::new(AtomicUsize::new(0));
                set.begin(WalkState { ticket: 1, position_of: Arc::new(hash), copied_len_bytes });
                walk = Some((twin.clone(), Vec::new()));
            }
            _ => {
                let Some((start, shown)) = &mut walk else { continue };
                if !set.walk_next(script.byte().into(), |member| shown.push(member.to_vec())) {
                    assert_eq!(shown.len(), start.len());
                    assert!(shown.drain(..).collect::<Twin>() == *start);
                    walk = None;
                }
            }
        }
    }
    check_packed_set(&set, &twin, hash);
    check_packed_set(&set.clone(), &twin, hash);
}
