//! The saver: a thread that saves snapshots on request, with further threads that read the keyspace
//! in parallel. It saves to a simulated folder ([`crate::disk`]). It also rewrites the append-only
//! file. At the moment whose data a save holds, no other thread accesses the keyspace. Then the
//! saver records the required content of the file: the keyspace, and the length of the change log.

use std::sync::Arc;

use engine::threads::Outbox;
use persist::folder::{Folder as _, Place, Syncing, Target, Unsaved, save_into, temporary_name, writer_pid};
use persist::save::Save;

use super::aof;
use super::aof_state::Aof;
use super::kernel::Message;
use super::replay::replay;
use super::saves::Point;
use super::walk::{WALKERS_MAX, drive, held_by, options};
use super::world::World;
use crate::Rng;
use crate::contents::{difference, of_keyspace};
use crate::disk::{Operation, Plan, SimulatedFolder};

/// The name of the snapshot file in the simulated folder.
const NAME: &str = "dump.rdb";
/// The process id that the names of temporary files contain.
const PID: u32 = 7;

/// Runs the thread that saves until it receives [`Message::Stop`].
pub(super) fn run(world: &World, seed: u64) {
    let port = &world.kernel.ports[world.threads() + 1];
    let mut rng = Rng::new(seed ^ 0x7361_7665_7273);
    loop {
        match port.mailbox.receive() {
            Some(Message::Stop) => break,
            Some(Message::Save) => save(world, &mut rng),
            Some(message) => {
                if let Some(aof) = &world.aof {
                    run_for_aof(world, aof, message, &mut rng);
                }
            }
            None => {
                let may_sleep = port.mailbox.prepare_sleep();
                port.poll.wait(may_sleep.then_some(None));
                port.mailbox.awake();
            }
        }
    }
    world.kernel.leave();
}

/// Handles a message to the thread that saves (the saver) about the append-only file: a rewrite or
/// a change of options.
fn run_for_aof(world: &World, aof: &Aof, message: Message, rng: &mut Rng) {
    match message {
        Message::Rewrite => {
            // The checks of the folder find out whether the rewrite succeeded.
            let _ = aof::rewrite(world, aof, rng);
        }
        Message::ChangeOptions => aof::change_options(world, aof, rng),
        _ => {}
    }
    aof::rewrite_if_due(world, aof, rng);
}

/// Begins a save of the present data while no other thread accesses the keyspace. Records the
/// required content of its file. Returns `None` if no save begins.
fn begin(world: &World, rng: &mut Rng) -> Option<Arc<Save>> {
    let (engine, saves) = (&*world.engine, &world.saves);
    let number = saves.state().points.len();
    let (_, options) = options(number, rng);
    let outbox = Outbox::default();
    let begun = engine.gate.exclusive(|alone| {
        let save = Save::begin(engine, alone, options, Vec::new())?;
        let contents = of_keyspace(&engine.keyspace);
        let log_len_bytes = world.disk.cut(engine, alone, &outbox);
        saves.state().points.push(Point { contents, log_len_bytes, reported_at: None });
        Some(save)
    });
    world.wake(&outbox);
    begun
}

fn save(world: &World, rng: &mut Rng) {
    let (engine, saves) = (&*world.engine, &world.saves);
    let Some(save) = begin(world, rng) else {
        world.find("a save cannot begin, and none is under way".to_owned());
        return;
    };
    let folder = {
        let mut state = saves.state();
        state.current = Some(Arc::clone(&save));
        state.folder.clone()
    };
    let syncing = *rng.pick(&[Syncing::AtEnd, Syncing::Every { len_bytes: 1 }]);
    let (temporary, name) = (temporary_name(PID), NAME.to_owned());
    let set_aside = |name: &str| world.find(format!("a file of this life was kept as {name}"));
    let place = Place::Over { known: &saves.known, set_aside: &set_aside };
    let target = Target { folder: &folder, temporary, name, place, syncing };
    let (walkers, failed_before) = (1 + rng.below(WALKERS_MAX), folder.failed().len());
    let result = save_into(target, &save, engine, |out| drive(world, &save, out, walkers));
    let mut state = saves.state();
    state.current = None;
    let failed = &folder.failed()[failed_before..];
    match result {
        Ok(()) => {
            let reported_at = folder.operations();
            state.points.last_mut().expect("it has begun").reported_at = Some(reported_at);
            if !failed.is_empty() {
                world.find(format!("a save counts as done of which {failed:?} has failed"));
            }
        }
        Err(Unsaved::Failed(trouble)) if failed.is_empty() => {
            world.find(format!("a save failed, and the disk did not: {trouble}"));
        }
        Err(_) => {}
    }
    // A file whose removal failed may exist until it is written again.
    let is_left = folder.names().iter().any(|name| name != NAME);
    if is_left && !folder.failed().contains(&Operation::Remove) {
        world.find(format!("a save left {:?}", folder.names()));
    }
}

/// Checks, after the run, the folder that a crash after each disk operation would leave. Its file
/// must belong to the last save that was reported before the crash, or to a later save. The file
/// must hold the keyspace as it was when the save began. Replaying the change log up to that moment
/// must give the same keyspace.
pub(super) fn check(world: &World, rng: &mut Rng) {
    let state = world.saves.state();
    let mut are_right = vec![None; state.points.len()];
    for (operations, folder) in (0..).zip(state.folder.crashes(rng)) {
        if let Err(finding) = check_crash(world, &state.points, (operations, &folder), &mut are_right) {
            world.find(format!("after a crash at operation {operations} of the disk: {finding}"));
            return;
        }
    }
}

/// Checks the snapshot file that one crash left. `are_right` caches the verified file of each save.
fn check_crash(
    world: &World,
    points: &[Point],
    (operations, folder): (u64, &SimulatedFolder),
    are_right: &mut [Option<Vec<u8>>],
) -> Result<(), String> {
    for name in folder.names().iter().filter(|name| writer_pid(name).is_some()) {
        folder.plan(Plan::Never);
        folder.remove(name).map_err(|trouble| trouble.to_string())?;
    }
    let reported = |point: &Point| point.reported_at.is_some_and(|at| at <= operations);
    let reported = points.iter().rposition(reported);
    let Some(bytes) = folder.file(NAME) else {
        return reported.map_or(Ok(()), |save| Err(format!("the file of save {save} is lost")));
    };
    if are_right.iter().skip(reported.unwrap_or(0)).flatten().any(|right| *right == bytes) {
        return Ok(());
    }
    let (number, keys) = held_by(world, &bytes)?;
    if reported.is_some_and(|reported| number < reported) {
        return Err(format!("the file is that of save {number}, and {reported:?} was reported"));
    }
    let point = &points[number];
    let at_point = ("at its point the keyspace", &point.contents);
    if let Some(difference) = difference(at_point, ("the file", &keys)) {
        return Err(format!("save {number}: {difference}"));
    }
    if let Some(len_bytes) = point.log_len_bytes {
        let (replica, _) = replay(&world.disk.all()[..len_bytes])?;
        let replayed = of_keyspace(&replica.keyspace);
        if let Some(difference) = difference(at_point, ("the log up to there", &replayed)) {
            return Err(format!("save {number}: {difference}"));
        }
    }
    are_right[number] = Some(bytes);
    Ok(())
}
