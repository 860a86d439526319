//! Tests with random requests of all write commands on a few keys, while keys and fields expire.

use std::collections::BTreeSet;

use keyspace::view::ExpiredAccess;

use super::{Twins, contents, name_of, writers};

/// The templates of requests. `{s}`, `{p}`, `{l}`, `{t}`, `{h}`, `{z}` and `{x}` are keys of a
/// string, a HyperLogLog, a list, a set, a hash, a sorted set and a stream. `{e}` is a key of a
/// vector set, `{a}` of an array, `{k}` any key.
/// [`filled`] replaces the other placeholders.
const TEMPLATES: &str = include_str!("templates.txt");

const STEPS: usize = 12_000;
/// The number of random steps between comparisons of the source with the replica. If they differ,
/// the run is repeated with a comparison after each step.
const STEPS_BETWEEN_CHECKS: usize = 40;

fn templates() -> Vec<&'static str> {
    TEMPLATES.lines().filter(|line| !line.starts_with('#')).collect()
}

fn filled(template: &str, rng: &mut fastrand::Rng, now_ms: i64) -> String {
    let mut line = String::new();
    let mut rest = template;
    while let Some((before, behind)) = rest.split_once('{') {
        let (name, behind) = behind.split_once('}').expect("a placeholder ends");
        line += before;
        line += &match name {
            "s" | "p" | "l" | "t" | "h" | "z" | "x" | "e" | "a" => format!("{name}{}", rng.u8(1..3)),
            "k" => format!("{}{}", rng.choice(*b"splthzxea").map(char::from).expect("a type"), rng.u8(1..3)),
            "v" => rng.choice(["1", "2", "3.5", "x", "yy", "-7"]).expect("a value").to_string(),
            "m" => rng.choice(["a", "b", "c", "1", "2", "3"]).expect("a member").to_string(),
            "i" => rng.i64(-3..9).to_string(),
            "n" => rng.i64(1..6).to_string(),
            "f" => rng.choice(["0.1", "1.5", "-2", "3e2", "7"]).expect("a float").to_string(),
            "d" => rng.u8(0..3).to_string(),
            "ms" => rng.i64(-1..400).to_string(),
            "sec" => rng.i64(-1..4).to_string(),
            "at" => (now_ms + rng.i64(-20..400)).to_string(),
            "gr" => rng.choice(["g", "h"]).expect("a group").to_string(),
            "c" => rng.choice(["c", "d", "e"]).expect("a consumer").to_string(),
            // An ID near those of recent entries, which are times.
            "id" => format!("{}-{}", now_ms - rng.i64(0..60), rng.u8(..) / 200),
            other => panic!("no placeholder is called {other}"),
        };
        rest = behind;
    }
    line + rest
}

/// Runs random steps on a source, and the commands that it records on a replica. Compares the two
/// keyspaces after every `between` steps. Returns the names of the recorded commands.
///
/// # Errors
/// The number of the step after which the two keyspaces differ.
fn run(seed: u64, between: usize) -> Result<BTreeSet<String>, usize> {
    let (mut rng, mut twins, templates) = (fastrand::Rng::with_seed(seed), Twins::new(), templates());
    let mut recorded = BTreeSet::new();
    if seed.is_multiple_of(4) {
        twins.source.expired_access = ExpiredAccess::RemoveOnAccess;
    }
    if seed.is_multiple_of(3) {
        std::mem::swap(&mut twins.source.limits, &mut twins.replica.limits);
    }
    for step in 1..=STEPS {
        let template = templates[rng.usize(..templates.len())];
        // FLUSH commands run rarely; otherwise no data would accumulate.
        if template.starts_with("FLUSH") && rng.u8(..) > 20 {
            continue;
        }
        twins.source.now_ms += [0, 0, 0, 1, 3, 30][rng.usize(..6)];
        twins.source.db = if rng.u8(..) < 200 { 0 } else { rng.usize(1..3) };
        let line = filled(template, &mut rng, twins.source.now_ms);
        let (_, commands) = twins.step(&line);
        if !commands.is_empty() {
            recorded.insert(name_of(&line));
        }
        if between == 1 {
            twins.check(&format!("step {step} of seed {seed}, {line} recorded as {commands:?}"));
        } else if step % between == 0 && contents(&mut twins.source) != contents(&mut twins.replica) {
            return Err(step);
        }
    }
    Ok(recorded)
}

#[test]
fn the_records_of_random_requests_lead_to_the_same_data() {
    let mut recorded = BTreeSet::new();
    for seed in 1..=6 {
        match run(seed, STEPS_BETWEEN_CHECKS) {
            Ok(more) => recorded.extend(more),
            Err(step) => {
                let _ = run(seed, 1);
                panic!("the twins of seed {seed} differ after step {step}, and not when compared after each");
            }
        }
    }
    let missing: Vec<String> = writers().into_iter().filter(|name| !recorded.contains(name)).collect();
    assert!(missing.is_empty(), "write commands that never changed anything: {missing:?}");
}
