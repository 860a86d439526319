//! Nanoseconds per operation of the packed structures, beside the standard library's.
//!
//! ```text
//! cargo run --release -p structures --example packs_bench
//! ```
//! Each figure is the best of several rounds over elements of 3 and 15 bytes; "VecDeque" holds a
//! `Vec<u8>` for each element, as a list without packing would.

use std::collections::VecDeque;
use std::hint::black_box;
use std::time::Instant;
use structures::alloc::{self, CountingAllocator};
use structures::intset::Intset;
use structures::listpack::Listpack;
use structures::listpack::element::IntText;
use structures::quicklist::{NodeLimit, Quicklist};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const ROUNDS: usize = 5;
const ELEMENTS: usize = 1_000_000;

/// Best nanoseconds per operation of `run`, which does `operations` of them on what `prepare` made.
fn best<S>(operations: usize, mut prepare: impl FnMut() -> S, mut run: impl FnMut(&mut S)) -> f64 {
    let round = |_| {
        let mut state = prepare();
        let start = Instant::now();
        run(&mut state);
        start.elapsed().as_nanos() as f64 / operations as f64
    };
    (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min)
}

/// Keeps `value` from being optimised away.
fn sink<T>(value: T) {
    let _ = black_box(value);
}

fn report(name: &str, ours: f64, std: f64) {
    println!("{name:<34} {ours:>8.1} ns {std:>8.1} ns");
}

fn quicklist_of(value: &[u8]) -> Quicklist {
    let mut list = Quicklist::new(NodeLimit::default());
    (0..ELEMENTS).for_each(|_| list.push_back(value));
    list
}

fn deque_of(value: &[u8]) -> VecDeque<Vec<u8>> {
    (0..ELEMENTS).map(|_| value.to_vec()).collect()
}

/// The ends and the inside of a long list of `value`.
fn long_lists(value: &[u8]) {
    println!("\nquicklist, {} bytes: ours, VecDeque<Vec<u8>>", value.len());
    let empty = || Quicklist::new(NodeLimit::default());
    report(
        "push back",
        best(ELEMENTS, empty, |list| (0..ELEMENTS).for_each(|_| list.push_back(black_box(value)))),
        best(ELEMENTS, VecDeque::new, |list| {
            (0..ELEMENTS).for_each(|_| list.push_back(black_box(value).to_vec()));
        }),
    );
    report(
        "push front",
        best(ELEMENTS, empty, |list| (0..ELEMENTS).for_each(|_| list.push_front(black_box(value)))),
        best(ELEMENTS, VecDeque::new, |list| {
            (0..ELEMENTS).for_each(|_| list.push_front(black_box(value).to_vec()));
        }),
    );
    let len = |element: structures::listpack::element::Element<'_>| element.text_len_bytes();
    report(
        "pop front",
        best(ELEMENTS, || quicklist_of(value), |list| while black_box(list.pop_front_with(len)).is_some() {}),
        best(ELEMENTS, || deque_of(value), |list| while black_box(list.pop_front()).is_some() {}),
    );
    report(
        "pop back",
        best(ELEMENTS, || quicklist_of(value), |list| while black_box(list.pop_back_with(len)).is_some() {}),
        best(ELEMENTS, || deque_of(value), |list| while black_box(list.pop_back()).is_some() {}),
    );
    report(
        "queue: push back, pop front",
        best(
            ELEMENTS,
            || quicklist_of(value),
            |list| {
                for _ in 0..ELEMENTS {
                    list.push_back(black_box(value));
                    black_box(list.pop_front_with(len));
                }
            },
        ),
        best(
            ELEMENTS,
            || deque_of(value),
            |list| {
                for _ in 0..ELEMENTS {
                    list.push_back(black_box(value).to_vec());
                    black_box(list.pop_front());
                }
            },
        ),
    );
    inside(value);
}

fn inside(value: &[u8]) {
    let (list, deque) = (quicklist_of(value), deque_of(value));
    let mut out = Vec::with_capacity(600 * (value.len() + 8));
    report(
        "600 in the middle, each",
        best(
            600,
            || 0,
            |_| {
                list.iter_from(ELEMENTS / 2).take(600).for_each(sink);
            },
        ),
        best(
            600,
            || 0,
            |_| {
                deque.range(ELEMENTS / 2..).take(600).for_each(sink);
            },
        ),
    );
    report(
        "first 600, copied out, each",
        best(
            600,
            || (),
            |()| {
                out.clear();
                list.iter().take(600).for_each(|element| element.append_to(&mut out));
            },
        ),
        best(
            600,
            || (),
            |()| {
                out.clear();
                deque.iter().take(600).for_each(|element| out.extend_from_slice(element));
            },
        ),
    );
    report(
        "get, random index",
        best(
            1000,
            || 1_usize,
            |at| {
                for _ in 0..1000 {
                    *at = (*at * 7919 + 13) % ELEMENTS;
                    black_box(list.get(*at));
                }
            },
        ),
        best(
            1000,
            || 1_usize,
            |at| {
                for _ in 0..1000 {
                    *at = (*at * 7919 + 13) % ELEMENTS;
                    black_box(deque.get(*at));
                }
            },
        ),
    );
    report(
        "insert, random index",
        best(
            1000,
            || (list.clone(), 1_usize),
            |(list, at)| {
                for _ in 0..1000 {
                    *at = (*at * 7919 + 13) % ELEMENTS;
                    list.insert(*at, black_box(value));
                }
            },
        ),
        f64::NAN,
    );
}

fn memory(value: &[u8]) {
    let per_element = |before: usize| (alloc::used_memory_bytes() - before) as f64 / ELEMENTS as f64;
    let before = alloc::used_memory_bytes();
    let list = quicklist_of(value);
    let ours = per_element(before);
    let before = alloc::used_memory_bytes();
    let deque = deque_of(value);
    let std = per_element(before);
    println!("bytes allocated for an element of {:<2}    {ours:>8.2}    {std:>8.2}", value.len());
    drop((list, deque));
}

fn small_packs() {
    println!("\nlistpack of 128 elements of 15 bytes: ours, Vec<Vec<u8>>");
    let value = b"fifteen bytes!!".as_slice();
    // Blocks of all sizes are in use in a server; alone, the allocator would set up pages each time.
    let kept: Vec<Box<[u8]>> = (0..2400).map(|len| vec![0; len].into()).collect();
    report(
        "push back, from empty",
        best(128, Listpack::new, |pack| (0..128).for_each(|_| pack.push_back(value).expect("small"))),
        best(128, Vec::new, |pack| (0..128).for_each(|_| pack.push(value.to_vec()))),
    );
    drop(kept);
    let mut pack = Listpack::new();
    (0..128).for_each(|_| pack.push_back(value).expect("small"));
    pack.push_back(b"the last field").expect("small");
    let vector: Vec<Vec<u8>> =
        pack.iter().map(|element| element.text(&mut IntText::new()).to_vec()).collect();
    let first = pack.first().expect("not empty");
    report(
        "find the last",
        best(
            1000,
            || (),
            |()| {
                (0..1000).for_each(|_| sink(pack.find(first, black_box(b"the last field"), 0)));
            },
        ),
        best(
            1000,
            || (),
            |()| {
                let needle = b"the last field";
                (0..1000).for_each(|_| sink(vector.iter().position(|v| v == black_box(needle))));
            },
        ),
    );
    println!("\nintset of 512: ours, Vec<i64>");
    let full = || {
        let mut set = Intset::new();
        (0..512).for_each(|value| sink(set.insert(value * 3)));
        set
    };
    let set = full();
    let sorted: Vec<i64> = set.iter().collect();
    report(
        "contains",
        best(1536, || (), |()| (0..1536).for_each(|value| sink(set.contains(value)))),
        best(1536, || (), |()| (0..1536).for_each(|value| sink(sorted.binary_search(&value)))),
    );
    report("insert ascending, from empty", best(512, || (), |()| sink(full())), f64::NAN);
}

fn main() {
    for value in [b"VXK".as_slice(), b"fifteen bytes!!"] {
        long_lists(value);
        memory(value);
    }
    small_packs();
}
