//! Recall against exact search, the invariants after random operations, and hostile images.

use super::*;
use proptest::prelude::*;

const FORMS: [Quantization; 3] = [Quantization::F32, Quantization::Q8, Quantization::Binary];

fn config(dim: usize, quantization: Quantization, m: usize) -> Config {
    Config { dim, quantization, m }
}

/// A source of pseudo-random vectors for tests, from a seed.
struct Source(u64);

impl Source {
    fn uniform(&mut self) -> f32 {
        self.0 += 1;
        (mix(self.0) >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    fn vector(&mut self, dim: usize) -> Vec<f32> {
        (0..dim).map(|_| self.uniform() + self.uniform() + self.uniform()).collect()
    }

    fn near(&mut self, center: &[f32]) -> Vec<f32> {
        center.iter().map(|value| value + 0.4 * (self.uniform() + self.uniform())).collect()
    }

    /// Returns vectors around `clusters` centers, or uniformly distributed ones for zero clusters.
    fn vectors(&mut self, count: usize, dim: usize, clusters: usize) -> Vec<Vec<f32>> {
        let centers: Vec<_> = (0..clusters).map(|_| self.vector(dim)).collect();
        let vector =
            |at: usize| if clusters == 0 { self.vector(dim) } else { self.near(&centers[at % clusters]) };
        (0..count).map(vector).collect()
    }
}

fn filled(config: Config, vectors: &[Vec<f32>]) -> VectorIndex {
    let mut index = VectorIndex::new(config, 7);
    for (at, vector) in vectors.iter().enumerate() {
        assert_eq!(index.insert(at.to_string().as_bytes(), vector, 100, None), Ok(Inserted::Added));
    }
    index
}

/// Returns the fraction of the true ten nearest elements that a search finds.
fn recall(index: &VectorIndex, queries: &[Vec<f32>], ef: usize) -> f64 {
    let mut found = 0;
    for query in queries {
        let query = index.query(query).unwrap();
        let worst = index.scan(&query, 10, |_| true).last().unwrap().1;
        let result = index.search(&query, Limits { count: 10, ef, effort_max: None }, |_| true);
        assert!(result.windows(2).all(|pair| pair[0].1 >= pair[1].1));
        found += result.iter().filter(|(_, similarity)| *similarity >= worst).count();
    }
    found as f64 / (queries.len() * 10) as f64
}

#[test]
fn searches_find_nearly_all_true_neighbours() {
    for (quantization, clusters, expected) in [
        (Quantization::F32, 0, 0.95),
        (Quantization::F32, 40, 0.97),
        (Quantization::Q8, 0, 0.95),
        (Quantization::Q8, 40, 0.97),
        (Quantization::Binary, 40, 0.9),
    ] {
        let mut source = Source(1);
        let mut vectors = source.vectors(2050, 48, clusters);
        let queries = vectors.split_off(2000);
        let index = filled(config(48, quantization, 16), &vectors);
        index.check();
        assert_eq!(index.reachable(), index.len(), "{quantization:?} {clusters}");
        let recall = recall(&index, &queries, 100);
        assert!(recall >= expected, "{quantization:?} {clusters}: {recall}");
    }
}

#[test]
fn recall_does_not_decay_with_removals() {
    for clusters in [0, 30] {
        let mut source = Source(2);
        let mut vectors = source.vectors(1530, 32, clusters);
        let queries = vectors.split_off(1500);
        let mut index = filled(config(32, Quantization::F32, 8), &vectors);
        let before = recall(&index, &queries, 60);
        for round in 0..10 {
            for at in (0..1500).filter(|at| mix(round * 10_000 + at).is_multiple_of(2)) {
                assert!(index.remove(at.to_string().as_bytes()));
            }
            let halved = recall(&index, &queries, 60);
            assert!(halved > before - 0.04, "{clusters}, round {round}: {halved} after {before}");
            for (at, vector) in vectors.iter().enumerate() {
                if index.find(at.to_string().as_bytes()).is_none() {
                    index.insert(at.to_string().as_bytes(), vector, 100, None).unwrap();
                }
            }
        }
        index.check();
        let after = recall(&index, &queries, 60);
        assert!(after > before - 0.02, "{clusters}: {after} after {before}");
    }
}

#[test]
fn equal_vectors_do_not_cut_the_graph() {
    let mut source = Source(3);
    let mut vectors = source.vectors(300, 16, 0);
    let twin = source.vector(16);
    vectors.extend(std::iter::repeat_n(twin.clone(), 700));
    vectors.extend(source.vectors(300, 16, 0));
    for quantization in FORMS {
        let index = filled(config(16, quantization, 4), &vectors);
        index.check();
        assert_eq!(index.reachable(), index.len(), "{quantization:?}");
        let query = index.query(&twin).unwrap();
        let result = index.search(&query, Limits { count: 50, ef: 100, effort_max: None }, |_| true);
        assert!(result.iter().all(|(slot, _)| index.vector(*slot) == index.vector(result[0].0)));
        assert_eq!(result.len(), 50);
    }
}

#[test]
fn filters_search_until_enough_are_accepted_or_the_effort_ends() {
    let mut source = Source(4);
    let vectors = source.vectors(2000, 24, 20);
    let index = filled(config(24, Quantization::Q8, 16), &vectors);
    let query = index.query(&vectors[5]).unwrap();
    let is_rare = |slot: Slot| index.uid(slot) % 50 == 7;
    let limits = Limits { count: 10, ef: 20, effort_max: None };
    let found = index.search(&query, limits, is_rare);
    assert!(found.len() == 10 && found.iter().all(|(slot, _)| is_rare(*slot)));
    let exact = index.scan(&query, 10, is_rare);
    assert!(found.iter().filter(|near| exact.contains(near)).count() >= 9);
    let mut calls = 0;
    let limited = index.search(&query, Limits { effort_max: Some(100), ..limits }, |_| {
        calls += 1;
        false
    });
    assert!(limited.is_empty() && calls <= 100 + 32, "{calls}");
    assert_eq!(index.search(&query, Limits { count: 0, ..limits }, |_| true), []);
    assert_eq!(index.search(&query, Limits { count: 5000, ..limits }, |_| true).len(), 2000);
}

/// Checks the stored forms and similarities of some vectors against values of Redis 8.0.2.
#[test]
fn stored_forms_and_similarities_are_those_of_redis() {
    let close = |a: f32, b: f32| assert!((a - b).abs() < 2e-7 * b.abs().max(1.0), "{a} {b}");
    let cases = [
        (Quantization::F32, [1.0, 2.0, 3.0, -4.5], 0.511_735_5, [0.512_539_24, 0.5, 0.437_606_57]),
        (
            Quantization::Q8,
            [0.992_125_9, 1.984_251_9, 3.011_811, -4.5],
            0.511_413_9,
            [0.511_549_56, 0.5, 0.437_784_5],
        ),
        (Quantization::Binary, [1.0, 1.0, 1.0, -1.0], 0.75, [0.5, 0.0, 0.75]),
    ];
    for (quantization, vector, similarity, similarities) in cases {
        let mut index = VectorIndex::new(config(4, quantization, 16), 1);
        index.insert(b"a", &[1.0, 2.0, 3.0, -4.5], 200, None).unwrap();
        index.insert(b"b", &[3.0, -2.0, 0.5, 0.0], 200, None).unwrap();
        index.insert(b"z", &[0.0; 4], 200, None).unwrap();
        let [a, b, z] = [b"a", b"b", b"z"].map(|name| index.find(name).unwrap());
        index.vector(a).iter().zip(vector).for_each(|(a, b)| close(*a, b));
        close(index.raw(a).norm, 5.852_35);
        close(index.raw(z).norm, 1.0);
        close(index.similarity(a, b) as f32, similarity);
        let query = index.query(&[1.0, 2.0, 3.0, 4.0]).unwrap();
        [b, z, a]
            .into_iter()
            .zip(similarities)
            .for_each(|(slot, expected)| close(index.similarity_to(&query, slot) as f32, expected));
        match quantization {
            Quantization::F32 => assert_eq!(index.raw(a).bytes.len(), 16),
            Quantization::Q8 => {
                assert_eq!(index.raw(a).bytes, b"\x1c8U\x81");
                close(index.raw(a).range.unwrap(), 0.768_921_9);
            }
            Quantization::Binary => assert_eq!(index.raw(b).bytes, [5, 0, 0, 0, 0, 0, 0, 0]),
        }
    }
}

#[test]
fn odd_vectors_are_defined() {
    for quantization in FORMS {
        let mut index = VectorIndex::new(config(1, quantization, 4), 1);
        assert_eq!(index.insert(b"n", &[f32::NAN], 200, None), Err(VectorError::NotFinite));
        assert_eq!(index.insert(b"i", &[f32::INFINITY], 200, None), Err(VectorError::NotFinite));
        assert_eq!(index.insert(b"d", &[1.0, 2.0], 200, None), Err(VectorError::Dimension));
        assert_eq!(index.query(&[]).err(), Some(VectorError::Dimension));
        for (name, value) in
            [("+", 1e30), ("-", -1e-30), ("0", 0.0), ("max", f32::MAX), ("min", f32::MIN_POSITIVE)]
        {
            assert_eq!(index.insert(name.as_bytes(), &[value], 0, None), Ok(Inserted::Added));
        }
        index.check();
        let query = index.query(&[2.0]).unwrap();
        let found = index.search(&query, Limits { count: 3, ef: 3, effort_max: None }, |_| true);
        assert!(found.iter().all(|(_, similarity)| *similarity == 1.0), "{quantization:?} {found:?}");
        let minus = index.find(b"-").unwrap();
        assert_eq!(index.similarity_to(&query, minus), 0.0);
    }
}

#[test]
fn updates_keep_attributes_and_empty_indexes_return_their_memory() {
    let mut index = VectorIndex::new(config(3, Quantization::Q8, 4), 1);
    let empty = index.memory_usage();
    assert_eq!(index.random(5), None);
    index.insert(b"a", &[1.0, 0.0, 0.0], 10, Some(b"{}")).unwrap();
    assert_eq!(index.insert(b"a", &[0.0, 1.0, 0.0], 10, None), Ok(Inserted::Updated));
    let slot = index.find(b"a").unwrap();
    assert_eq!((index.attributes(slot), index.uid(slot), index.attributes_count()), (Some(&b"{}"[..]), 2, 1));
    assert_eq!(index.insert(b"a", &[0.0, 1.0, 0.0], 10, Some(b"")), Ok(Inserted::Updated));
    let slot = index.find(b"a").unwrap();
    assert_eq!(index.attributes(slot), Some(&b""[..]));
    index.set_attributes(slot, None);
    assert_eq!((index.attributes(slot), index.attributes_count()), (None, 0));
    assert_eq!(index.random(5), Some(slot));
    assert!(index.remove(b"a") && !index.remove(b"a"));
    assert_eq!((index.memory_usage(), index.uid_max(), index.find(b"a")), (empty, 3, None));
    index.check();
}

#[test]
fn random_elements_cover_the_index() {
    let mut index = filled(config(4, Quantization::F32, 4), &Source(5).vectors(600, 4, 0));
    for at in 0..550 {
        index.remove(at.to_string().as_bytes());
    }
    let drawn: std::collections::HashSet<_> =
        (0..1000).filter_map(|number| index.random(mix(number))).collect();
    assert_eq!(drawn.len(), 50);
    index.check();
}

fn images(index: &VectorIndex) -> Vec<NodeImage<'_>> {
    index.slots().map(|slot| index.image(slot)).collect()
}

fn rebuilt(config: Config, images: &[NodeImage<'_>]) -> Result<(VectorIndex, Graph), ImageError> {
    let mut rebuild = Rebuild::new(config, 9);
    images.iter().try_for_each(|image| rebuild.push(image))?;
    rebuild.finish(50)
}

#[test]
fn images_give_the_same_index() {
    for quantization in FORMS {
        let mut source = Source(6);
        let mut index = filled(config(20, quantization, 6), &source.vectors(700, 20, 5));
        index.set_attributes(index.find(b"3").unwrap(), Some(b"{\"a\":1}"));
        index.remove(b"5");
        let mut shuffled = images(&index);
        shuffled.sort_by_key(|image| mix(image.uid));
        let (loaded, graph) = rebuilt(index.config(), &shuffled).unwrap();
        loaded.check();
        assert_eq!(graph, Graph::Kept);
        let query = index.query(&source.vector(20)).unwrap();
        let similarities = |index: &VectorIndex| -> Vec<f64> {
            let found = index.search(&query, Limits { count: 10, ef: 300, effort_max: None }, |_| true);
            found.iter().map(|(_, similarity)| *similarity).collect()
        };
        assert_eq!(similarities(&index), similarities(&loaded));
        for (mut before, mut after) in images(&index).into_iter().zip(images(&loaded)) {
            before.links.iter_mut().chain(&mut after.links).for_each(|links| links.sort_unstable());
            assert_eq!(before, after);
        }
        assert_eq!((loaded.uid_max(), loaded.max_level()), (index.uid_max(), index.max_level()));
        assert_eq!(loaded.slots().map(|slot| loaded.uid(slot)).max(), Some(700));
    }
}

#[test]
fn damaged_links_are_built_anew() {
    let index = filled(config(8, Quantization::Q8, 4), &Source(7).vectors(200, 8, 0));
    let whole = images(&index);
    let damages: [fn(&mut Vec<NodeImage<'_>>); 9] = [
        |images| images[3].links.clear(),
        |images| images[3].links[0][0] = 5000,
        |images| images[3].links[0][0] = images[3].uid,
        |images| images[3].links[0][1] = images[3].links[0][0],
        |images| images[3].links[0].truncate(1),
        |images| images[3].links[0].extend(1..100),
        |images| images[3].links.resize(40, Vec::new()),
        |images| drop(images.pop()),
        |images| images.iter_mut().for_each(|image| image.links = vec![Vec::new()]),
    ];
    for damage in damages {
        let mut damaged = whole.clone();
        damage(&mut damaged);
        let (loaded, graph) = rebuilt(index.config(), &damaged).unwrap();
        loaded.check();
        assert_eq!((graph, loaded.reachable()), (Graph::Rebuilt, damaged.len()));
    }
    type Damage = fn(&mut NodeImage<'_>);
    let refused: [(Damage, ImageError); 7] = [
        (|image| image.vector = b"short", ImageError::VectorLength),
        (|image| image.norm = f32::NAN, ImageError::NotFinite),
        (|image| image.range = f32::INFINITY, ImageError::NotFinite),
        (|image| image.uid = 0, ImageError::Uid),
        (|image| image.uid = u64::MAX - 1, ImageError::Uid),
        (|image| image.uid = 1, ImageError::Uid),
        (|image| image.name = b"0", ImageError::Name),
    ];
    for (damage, expected) in refused {
        let mut damaged = whole.clone();
        damage(&mut damaged[3]);
        assert_eq!(rebuilt(index.config(), &damaged).err(), Some(expected));
    }
}

#[test]
fn a_node_without_links_gets_some() {
    let index = filled(config(8, Quantization::Q8, 4), &Source(7).vectors(200, 8, 0));
    let mut damaged = images(&index);
    let uid = damaged[3].uid;
    damaged.iter_mut().flat_map(|image| &mut image.links).for_each(|links| links.retain(|link| *link != uid));
    damaged[3].links = vec![Vec::new()];
    let (loaded, graph) = rebuilt(index.config(), &damaged).unwrap();
    loaded.check();
    assert_eq!((graph, loaded.reachable()), (Graph::Kept, 200));
}

#[test]
fn a_copy_is_independent_and_searches_run_side_by_side() {
    let vectors = Source(8).vectors(500, 16, 0);
    let index = filled(config(16, Quantization::F32, 8), &vectors);
    let mut copy = index.clone();
    for at in 0..400 {
        copy.remove(at.to_string().as_bytes());
    }
    copy.check();
    index.check();
    let limits = Limits { count: 1, ef: 30, effort_max: None };
    let hits = |part: &[Vec<f32>]| {
        let best =
            part.iter().map(|vector| index.search(&index.query(vector).unwrap(), limits, |_| true)[0].1);
        best.filter(|similarity| *similarity > 0.999).count()
    };
    let found: usize = std::thread::scope(|scope| {
        let parts: Vec<_> = vectors.chunks(125).map(|part| scope.spawn(move || hits(part))).collect();
        parts.into_iter().map(|part| part.join().unwrap()).sum()
    });
    assert!(found >= 495, "{found}");
}

/// Returns everything that callers can read from a version of an index, as text.
fn shown(index: &VectorIndex, query: &Query) -> Vec<String> {
    let found = index.search(query, Limits { count: 5, ef: 9, effort_max: None }, |_| true);
    let found = found.into_iter().chain(index.scan(query, 4, |_| true));
    let found = found.map(|(slot, score)| format!("{:?} {score}", index.name(slot)));
    found.chain(images(index).iter().map(|image| format!("{image:?}"))).collect()
}

#[test]
fn an_emptied_index_of_many_places_is_usable_and_freed_in_steps() {
    let mut index = VectorIndex::new(config(2, Quantization::Binary, 4), 1);
    let add = |index: &mut VectorIndex, name: usize| {
        index.insert(name.to_string().as_bytes(), &[1.0, name as f32], 1, None).unwrap()
    };
    (0..RESET_LEN_MAX + 1).for_each(|name| assert_eq!(add(&mut index, name), Inserted::Added));
    (0..RESET_LEN_MAX + 1).for_each(|name| assert!(index.remove(name.to_string().as_bytes())));
    index.check();
    assert_eq!(index.max_level(), 0);
    add(&mut index, 3);
    index.check();
    assert!(index.into_freed().count() > 100);
}

#[test]
fn a_version_is_searched_while_the_index_changes() {
    let mut source = Source(10);
    let vectors = source.vectors(600, 16, 0);
    let mut index = filled(config(16, Quantization::Q8, 8), &vectors);
    let queries: Vec<_> =
        source.vectors(20, 16, 0).iter().map(|vector| index.query(vector).unwrap()).collect();
    std::thread::scope(|scope| {
        for round in 0..6 {
            let (version, queries) = (index.clone(), &queries);
            let expected: Vec<_> = queries.iter().map(|query| shown(&version, query)).collect();
            scope.spawn(move || {
                assert!(
                    queries.iter().zip(expected).all(|(query, expected)| shown(&version, query) == expected)
                );
                version.into_freed().for_each(drop);
            });
            for at in (round * 90..).take(90) {
                index.remove(at.to_string().as_bytes());
                index.insert(format!("new {at}").as_bytes(), &vectors[at], 50, Some(b"{}")).unwrap();
            }
        }
    });
    index.check();
}

#[test]
fn a_search_in_steps_finds_the_same_and_each_step_is_short() {
    let mut source = Source(11);
    let index = filled(config(8, Quantization::F32, 8), &source.vectors(9000, 8, 0));
    for vector in source.vectors(5, 8, 0) {
        let query = index.query(&vector).unwrap();
        for (count, ef, effort_max) in
            [(10, 40, None), (10, 40, Some(300)), (6000, 6000, None), (9000, 9000, None), (0, 9, None)]
        {
            let accept = |slot: Slot| !index.uid(slot).is_multiple_of(7);
            let limits = Limits { count, ef, effort_max };
            let scan = (index.begin_scan(count), index.scan(&query, count, accept));
            let walk = (index.begin_search(&query, limits), index.search(&query, limits, accept));
            for (mut search, expected) in [scan, walk] {
                let (mut steps, mut calls_max) = (0, 0);
                let mut has_ended = false;
                while !has_ended {
                    let mut calls = 0;
                    let mut counted = |slot| {
                        calls += 1;
                        accept(slot)
                    };
                    has_ended = index.advance(&mut search, &query, 2000, &mut counted);
                    steps += 1;
                    calls_max = calls_max.max(calls);
                }
                assert!(calls_max <= FEW && (steps > 10 || count == 0), "{calls_max} {steps}");
                for (at, (_, least)) in expected.iter().enumerate().step_by(97) {
                    let len = search.found_len(|similarity| similarity >= *least);
                    assert!(len > at && search.found_at(at..len).eq(expected[at..len].iter().copied()));
                    assert!(expected.get(len).is_none_or(|(_, similarity)| similarity < least));
                }
                assert_eq!(search.into_found(), expected);
            }
        }
    }
}

/// The accepted elements of a step of 2000 bytes.
const FEW: usize = 20;

#[test]
fn projections_keep_directions_apart() {
    let projection = Projection::new(64, 24);
    assert_eq!((projection.from(), projection.to(), projection.matrix().len()), (64, 24, 64 * 24));
    let given = Projection::from_matrix(64, 24, projection.matrix().into()).unwrap();
    let vector = Source(9).vector(64);
    assert_eq!(given.apply(&vector), projection.apply(&vector));
    assert_eq!(projection.apply(&vector).len(), 24);
    assert!(projection.matrix().iter().all(|value| value.abs() == 0.125));
    assert_eq!(Projection::from_matrix(64, 23, projection.matrix().into()), None);
    assert_eq!(Projection::from_matrix(1, 1, [f32::NAN].into()), None);
    assert_eq!(Projection::from_matrix(0, 0, [].into()), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn operations_keep_the_invariants(
        seed in any::<u64>(),
        form in 0..3usize,
        ops in prop::collection::vec((any::<u8>(), 0..90u32, prop::collection::vec(-2i8..3, 3)), 1..250),
    ) {
        let mut index = VectorIndex::new(config(3, FORMS[form], 4), seed);
        let mut twin = std::collections::BTreeMap::new();
        for (op, name, values) in ops {
            let name = name.to_string().into_bytes();
            let vector: Vec<f32> = values.iter().map(|value| f32::from(*value)).collect();
            match op % 8 {
                0..=4 => {
                    let inserted = index.insert(&name, &vector, usize::from(op / 8), None).unwrap();
                    prop_assert_eq!(inserted == Inserted::Updated, twin.insert(name, ()).is_some());
                }
                5 | 6 => prop_assert_eq!(index.remove(&name), twin.remove(&name).is_some()),
                _ => {
                    let query = index.query(&vector).unwrap();
                    let found = index.search(&query, Limits { count: 3, ef: 8, effort_max: None }, |_| true);
                    prop_assert_eq!(found.len(), twin.len().min(3));
                }
            }
            prop_assert_eq!(index.len(), twin.len());
        }
        index.check();
        let names: std::collections::BTreeSet<_> = index.slots().map(|slot| index.name(slot).to_vec()).collect();
        prop_assert_eq!(names, twin.into_keys().collect());
        let whole = images(&index);
        let (loaded, graph) = rebuilt(index.config(), &whole).unwrap();
        loaded.check();
        prop_assert_eq!(graph, Graph::Kept);
    }
    #[test]
    fn versions_keep_their_answers(
        form in 0..3usize,
        ops in prop::collection::vec((any::<u8>(), 0..60u32, prop::collection::vec(-2i8..3, 3)), 1..200),
    ) {
        let mut index = VectorIndex::new(config(3, FORMS[form], 4), 1);
        let query = index.query(&[1.0, -1.0, 0.5]).unwrap();
        let mut versions = std::collections::VecDeque::new();
        for (op, name, values) in ops {
            let name = name.to_string().into_bytes();
            let vector: Vec<f32> = values.iter().map(|value| f32::from(*value)).collect();
            match op % 8 {
                0..=3 => drop(index.insert(&name, &vector, usize::from(op / 8), Some(&name)).unwrap()),
                4 => drop(index.remove(&name)),
                5 => {
                    if let Some(slot) = index.find(&name) {
                        index.set_attributes(slot, None);
                    }
                }
                _ => versions.push_back((index.clone(), shown(&index, &query))),
            }
            if versions.len() > 5 {
                let (version, expected) = versions.pop_front().unwrap();
                version.check();
                prop_assert_eq!(shown(&version, &query), expected);
                // A version can be changed, too.
                let mut version = version;
                version.insert(b"other", &[0.5; 3], 4, None).unwrap();
                version.check();
                version.into_freed().take(usize::from(op) / 16).for_each(drop);
            }
        }
        index.check();
        prop_assert!(versions.into_iter().all(|(version, expected)| shown(&version, &query) == expected));
    }
}
