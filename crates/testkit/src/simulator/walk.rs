//! The reading of the whole keyspace to write a file, and the identification of the save that wrote
//! it. Snapshots and rewrites of the append-only file share this code.

use keyspace::snapshot::OnFlush;
use persist::aof::manifest::BaseKind;
use persist::rdb::{Compression, Usage};
use persist::save::{self, ChunkSink, Save, SaveFormat, SaveOptions, Step, Way};

use super::replay::replay;
use super::world::World;
use crate::Rng;
use crate::contents::{Contents, of_file, of_keyspace};

/// The name of the AUX field that holds the number of the save in an RDB file.
const NUMBER: &str = "save";
/// The maximum number of threads that read the keyspace to write one file.
pub(super) const WALKERS_MAX: usize = 3;

/// Returns random options for the file of save `number`, and the kind of base that it is for an
/// append-only file. A base of commands holds the number of the save as its timestamp.
pub(super) fn options(number: usize, rng: &mut Rng) -> (BaseKind, SaveOptions) {
    let commands = SaveFormat::Commands { time_s: Some(number as i64) };
    let facts = vec![(NUMBER, number.to_string())];
    let options = SaveOptions {
        format: *rng.pick(&[SaveFormat::Rdb, commands]),
        contents: save::Contents::all(),
        on_flush: OnFlush::Abandon,
        compression: *rng.pick(&[Compression::None, Compression::Lzf]),
        checksum: true,
        usage: Usage::None,
        version: None,
        facts,
    };
    let kind = if options.format == SaveFormat::Rdb { BaseKind::Rdb } else { BaseKind::Aof };
    (kind, options)
}

/// Reads the keyspace with `walkers` threads, until the whole file of `save` is written to `out`.
pub(super) fn drive(world: &World, save: &Save, out: &(dyn ChunkSink + Sync), walkers: usize) {
    let walk = |number| {
        let mut walker = save.walker(number, Way::Gate);
        loop {
            match save.step(&world.engine, &mut walker, out) {
                Step::More => {}
                Step::Waiting => shuttle::thread::yield_now(),
                Step::Done => return,
            }
        }
    };
    shuttle::thread::scope(|scope| {
        for number in 1..walkers {
            scope.spawn(move || walk(number));
        }
        walk(0);
    });
}

/// Reads a file that a save wrote. Returns the number of the save, and the data that the file
/// holds.
pub(super) fn held_by(world: &World, bytes: &[u8]) -> Result<(usize, Contents), String> {
    let unnumbered = "the file does not say of which save it is";
    if let Some(rest) = bytes.strip_prefix(b"#TS:") {
        let end = rest.iter().position(|&byte| byte == b'\r').ok_or(unnumbered)?;
        let number = stdx::number::parse_i64(&rest[..end]).ok_or(unnumbered)?;
        let (engine, _) = replay(&rest[end + 2..])?;
        return Ok((number as usize, of_keyspace(&engine.keyspace)));
    }
    let file = of_file(bytes, world.engine.keyspace.hasher())?;
    let number = file.facts.get(NUMBER.as_bytes()).and_then(|text| stdx::number::parse_i64(text));
    Ok((number.ok_or(unnumbered)? as usize, file.keys))
}
