//! Checks of the append-only files that a crash leaves at each operation of the disk. The files
//! must hold a base and requests that together form a prefix of the tape, the record of all changes
//! ([`super::disk`]). The prefix must end with a whole command or transaction and contain at least
//! the promised part. Some of these files are also loaded, and the result is compared with the
//! replay of the tape.

use std::collections::HashMap;
use std::sync::Arc;

use engine::clock::ManualClock;
use engine::settings::Settings;

use super::aof_state::{Aof, Promise};
use super::load::{Found, Readings, find, load};
use super::replay::replay;
use super::walk::held_by;
use super::world::{World, engine};
use crate::Rng;
use crate::contents::{difference, of_keyspace};
use crate::disk::{Operation, SimulatedFolder};

/// Approximate maximum number of moments of one life of the server at which crashes are checked.
const MOMENTS_MAX: usize = 150;
/// Maximum number of crashes whose append-only files are loaded in one life, that is, one run of
/// the server's process. The crash with which the next life begins is loaded in addition.
const LOADED_MAX: usize = 2;

/// The length of a SELECT request for a database from 0 to 9, in bytes.
const SELECT_LEN_BYTES: usize = b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n".len();

/// The append-only files that a crash leaves, and the data in them.
pub(super) struct Left {
    pub folder: SimulatedFolder,
    /// The length in bytes of the part of the tape (the record of all changes) that the files hold:
    /// its beginning.
    pub end: usize,
    /// True if the crash was a power failure: then all remaining bytes of the files are synced.
    pub is_safe: bool,
}

/// The results of earlier checks of append-only files, by the bytes of the file. They save time
/// because successive crashes leave mostly the same files.
#[derive(Default)]
struct Known {
    /// For each base that was checked: the length of the tape (the record of all changes), in
    /// bytes, that corresponds to the base. The key is the content of the base.
    bases: HashMap<Vec<u8>, usize>,
    readings: Readings,
}

/// Checks crashes of a life that has ended. `crashes` lists crashes to check in any case, as
/// (number of disk operations before the crash, true for a kill). Returns the crash with which the
/// next life begins, and the length of the tape that each of `crashes` left.
pub(super) fn check(
    world: &World,
    aof: &Aof,
    crashes: &[(u64, bool)],
    rng: &mut Rng,
) -> Result<(Left, Vec<usize>), String> {
    let (promises, recorded_stream) = (aof.promises(), world.disk.all());
    let (kills, power_cuts) = (aof.folder.kills(), aof.folder.crashes(rng));
    let moments = kills.len();
    let (chosen, prefers_kill) = (rng.below(moments), rng.percent(50));
    let (mut next, mut known, mut loaded) = (None, Known::default(), 0);
    let mut ends = vec![None; crashes.len()];
    for (at, left) in kills.into_iter().zip(power_cuts).enumerate() {
        let is_noted = crashes.iter().any(|&(operations, _)| operations == at as u64);
        let is_drawn = moments <= MOMENTS_MAX || rng.below(moments) < MOMENTS_MAX;
        if !(is_noted || is_drawn || at + 1 == moments) {
            continue;
        }
        let promise = &promises[promises.partition_point(|promise| promise.operations <= at as u64) - 1];
        for (is_kill, folder) in [(true, left.0), (false, left.1)] {
            if promise.is_damaged && !is_kill {
                continue;
            }
            let loads = loaded < LOADED_MAX && rng.below(moments) < LOADED_MAX;
            loaded += usize::from(loads);
            let end = check_crash(world, &folder, (&recorded_stream, promise, is_kill), (&mut known, loads))
                .map_err(|finding| {
                    let what = if is_kill { "the process was killed" } else { "the power failed" };
                    format!("{what} at operation {at} of {moments} of the disk: {finding}")
                })?;
            for (end_of, crash) in ends.iter_mut().zip(crashes) {
                if *crash == (at as u64, is_kill) {
                    *end_of = Some(end);
                }
            }
            // After a failed sync, bytes that a killed process has written may be missing on the
            // disk, and the next process cannot see this.
            let is_fit =
                !is_kill || !promise.is_damaged && !aof.folder.failed().contains(&Operation::SyncFile);
            if is_fit && (next.is_none() || at <= chosen && is_kill == prefers_kill) {
                next = Some(Left { folder, end, is_safe: !is_kill });
            }
        }
    }
    let ends = ends.into_iter().map(|end| end.expect("each was looked into")).collect();
    Ok((next.ok_or("no crash can be gone on from")?, ends))
}

/// Compares the files that one crash left with the tape, the record of all changes. Returns the
/// number of bytes of the tape, from its beginning, that the files hold.
fn check_crash(
    world: &World,
    folder: &SimulatedFolder,
    (recorded_stream, promise, is_kill): (&[u8], &Promise, bool),
    (known, loads): (&mut Known, bool),
) -> Result<usize, String> {
    let found = find(folder, &mut known.readings)?;
    let requests = &found.requests;
    let from = end_of_base(world, &found, known)?;
    if !recorded_stream[from..].starts_with(requests) {
        let same =
            requests.iter().zip(&recorded_stream[from..]).take_while(|(left, made)| left == made).count();
        let show = |bytes: &[u8]| {
            bytes[same.min(bytes.len())..].escape_ascii().to_string().chars().take(200).collect::<String>()
        };
        let (files, made) = (show(requests), show(&recorded_stream[from..]));
        let at = from + same;
        return Err(format!("at byte {at} of the tape the files have {files}, the tape has {made}"));
    }
    let end = from + requests.len();
    // A SELECT precedes the unit that it is for.
    let select = requests.len() - SELECT_LEN_BYTES.min(requests.len());
    let is_select = requests[select..].starts_with(b"*2\r\n$6\r\nSELECT");
    let is_whole = world.disk.is_end(end) || end < world.disk.end_of(0) || is_select;
    if !is_whole {
        return Err(format!("the files end at byte {end} of the tape, within a unit"));
    }
    let at_least = if is_kill { promise.killed } else { promise.powerless };
    if end < at_least {
        let lost = recorded_stream[end..at_least].escape_ascii();
        return Err(format!(
            "of {at_least} bytes of the tape that were promised {end} are left, without {lost}"
        ));
    }
    if loads {
        let (engine, clock) = engine(1, Settings::default(), 1);
        loads_as_recorded(&engine, &clock, (&found, 2), &recorded_stream[..end])?;
    }
    Ok(end)
}

/// Loads the append-only files into an empty engine, with `lanes` threads (lanes) of replay. Checks
/// that the data equals a replay of the beginning of the tape, the record of all changes.
pub(super) fn loads_as_recorded(
    engine: &Arc<engine::Shared>,
    clock: &ManualClock,
    (found, lanes): (&Found, usize),
    recorded_stream: &[u8],
) -> Result<(), String> {
    load(engine, clock, found, lanes)?;
    let (replica, _) = replay(recorded_stream)?;
    let contents = [&replica, engine].map(|engine| of_keyspace(&engine.keyspace));
    let [expected, loaded] = &contents;
    difference(("the tape up to there", expected), ("what was loaded", loaded)).map_or(Ok(()), Err)
}

/// Checks that a base of the append-only file holds the data of the moment of its snapshot. Returns
/// the length of the tape (the record of all changes) at that moment, in bytes.
fn end_of_base(world: &World, found: &Found, known: &mut Known) -> Result<usize, String> {
    let Some(base) = &found.base else {
        return if found.incr.is_empty() { Ok(0) } else { Err("there is no base".to_owned()) };
    };
    if let Some(&end) = known.bases.get(base) {
        return Ok(end);
    }
    let (number, contents) = held_by(world, base)?;
    let points = world.points.state();
    let point = points.get(number).ok_or("the base is of a point that there was not")?;
    let at_point = ("at its point the keyspace", &point.contents);
    if let Some(difference) = difference(at_point, ("the base", &contents)) {
        return Err(format!("base {number}: {difference}"));
    }
    known.bases.insert(base.clone(), point.end);
    Ok(point.end)
}
