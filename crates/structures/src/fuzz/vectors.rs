//! Checks of the vector index against a set of names, and of loading nodes from arbitrary bytes.

use super::Script;
use crate::vector::{Config, Limits, NodeImage, Quantization, Rebuild, VectorIndex};
use std::collections::BTreeSet;

/// Applies the script `data` to a vector index. Loads a second index from node images that the
/// script contains.
pub fn fuzz_vectors(data: &[u8]) {
    let (mut script, mut done) = (Script(data), 0);
    let quantization = [Quantization::F32, Quantization::Q8, Quantization::Binary][script.below(3)];
    let config = Config { dim: 1 + script.below(70), quantization, m: 4 + script.below(3) };
    let mut index = VectorIndex::new(config, 1);
    let mut rebuild = Rebuild::new(config, 1);
    let mut twin: BTreeSet<Vec<u8>> = BTreeSet::new();
    let (mut version, mut of_version) = (index.clone(), twin.clone());
    while let Some(op) = script.next_op(&mut done) {
        match op % 8 {
            0..4 => {
                let name = script.text();
                let vector = values(&mut script, config.dim);
                index.insert(&name, &vector, usize::from(op), None).expect("values are finite");
                twin.insert(name);
            }
            4 => {
                let name = script.text();
                assert_eq!(index.remove(&name), twin.remove(&name));
            }
            5 => {
                let query = index.query(&values(&mut script, config.dim)).expect("values are finite");
                let limits = Limits { count: 4, ef: 8, effort_max: None };
                let found = index.search(&query, limits, |slot| index.name(slot).len().is_multiple_of(2));
                assert!(found.windows(2).all(|pair| pair[0].1 >= pair[1].1));
                assert!(found.iter().all(|(slot, _)| twin.contains(index.name(*slot))));
            }
            6 => {
                check(&version, &of_version);
                (version, of_version) = (index.clone(), twin.clone());
            }
            _ => push(&mut rebuild, &mut script, config),
        }
    }
    check(&version, &of_version);
    version.into_freed().for_each(drop);
    check(&index, &twin);
    if let Ok((loaded, _)) = rebuild.finish(8) {
        loaded.check();
    }
}

fn check(index: &VectorIndex, twin: &BTreeSet<Vec<u8>>) {
    index.check();
    assert!(index.slots().map(|slot| index.name(slot).to_vec()).collect::<BTreeSet<_>>() == *twin);
}

fn values(script: &mut Script<'_>, dim: usize) -> Vec<f32> {
    script.bytes(dim).into_iter().map(|byte| f32::from(byte as i8)).collect()
}

/// Adds the image of a node to `rebuild`, which loads a vector index. Its links often name nodes of
/// other images.
fn push(rebuild: &mut Rebuild, script: &mut Script<'_>, config: Config) {
    let uid = match script.byte() {
        255 => script.int() as u64,
        uid => u64::from(uid % 8),
    };
    let name = [uid as u8];
    let len_bytes = match config.quantization {
        Quantization::F32 => config.dim * 4,
        Quantization::Q8 => config.dim,
        Quantization::Binary => config.dim.div_ceil(64) * 8,
    };
    let is_long = script.byte() == 255;
    let vector = script.bytes(len_bytes + usize::from(is_long));
    let lists = script.below(4);
    let links = (0..lists).map(|_| (0..script.below(6)).map(|_| u64::from(script.byte() % 8)).collect());
    let links = links.collect();
    let range = f32::from_bits(script.int() as u32);
    let _ = rebuild.push(&NodeImage {
        uid,
        name: &name,
        attributes: None,
        vector: &vector,
        norm: 1.0,
        range,
        links,
    });
}
