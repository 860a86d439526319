//! The append-only file of a simulated server: the thread that writes and syncs it, its rewrites,
//! and the change of `appendonly` during a run. The order of operations is that of
//! `server/src/persistence/aof.rs`. The decisions are made in `persist::aof`.
//!
//! In parallel, a tape ([`super::disk`]) records the whole change log as the reference. A *promise*
//! states how many bytes of the tape must survive a crash, because clients have received replies
//! that depend on them. Each promise is recorded with the number of the disk's next operation. A
//! crash at this operation or a later one must leave at least these bytes: see [`super::crashes`].

use std::sync::Arc;
use std::time::Instant;

use engine::clock::{Clock as _, ManualClock};
use engine::log::level::Released;
use engine::log::merger::{LogBatch, LogReader, RetainedBytes};
use engine::log::target::LogTarget;
use engine::threads::Outbox;
use keyspace::Exclusive;
use persist::aof::files::{Files, Kept, NewBase};
use persist::aof::manifest::BaseKind;
use persist::aof::writer::{Appended, Moment, Next, SyncPolicy, Syncs, Times, Writer};
use persist::folder::{FileError, Folder as _, LogFile, Place, Syncing, Target, Unsaved, save_into};
use persist::save::Save;

use super::aof_state::{Active, Aof};
use super::kernel::{Message, Poll};
use super::load::Found;
use super::walk;
use super::world::World;
use crate::Rng;
use crate::disk::Plan;

/// Maximum sleep of the thread that writes the append-only file, while the file receives changes,
/// in milliseconds.
const LOOK_MS: u64 = 100;
/// The values from which a changed `appendfsync` is drawn.
const POLICIES: &[SyncPolicy] = &[SyncPolicy::Always, SyncPolicy::EverySecond, SyncPolicy::Never];

/// The reader that the change log calls; it passes each batch of changes to the file's writer.
struct AofReader {
    writer: Arc<Writer>,
    kept: RetainedBytes,
    clock: (ManualClock, Instant),
    poll: Arc<Poll>,
}

fn moment((clock, started): &(ManualClock, Instant)) -> Moment {
    let clock_ms = (clock.now() - *started).as_millis() as u64;
    Moment { clock_ms, unix_s: clock.unix_ms() / 1000 }
}

impl LogReader for AofReader {
    fn append(&mut self, batch: &LogBatch<'_>) -> Released {
        let appended = self.writer.append(batch, moment(&self.clock));
        self.kept.set(appended.kept_bytes);
        if appended.has_job {
            self.poll.wake();
        }
        appended.released()
    }
}

impl World {
    fn moment(&self) -> Moment {
        moment(&(self.clock.clone(), self.engine.started()))
    }

    fn aof_port(&self) -> usize {
        self.threads() + 2
    }

    /// Wakes the thread that writes the append-only file. Asks the thread that saves to rewrite the
    /// file if a rewrite is due.
    pub fn wake_aof(&self) {
        self.kernel.ports[self.aof_port()].poll.wake();
        // A full mailbox does no harm: the saver checks for a due rewrite after each message.
        let _ = self.kernel.ports[self.threads() + 1].mailbox.send(Message::RewriteIfDue);
    }
}

/// Runs the thread of the append-only file until it receives [`Message::Stop`]. The thread syncs
/// the file, and writes the bytes that the change log's reader could not write at once.
pub(super) fn run(world: &World) {
    let aof = world.aof.as_ref().expect("there is one");
    let port = &world.kernel.ports[world.aof_port()];
    let outbox = Outbox::default();
    while port.mailbox.receive() != Some(Message::Stop) {
        let next = {
            let mut state = aof.state();
            let active = state.active.clone();
            let next = active.map(|active| (active.writer.next(world.moment()), active));
            state.is_working = matches!(next, Some((Next::Job(_), _)));
            next
        };
        let deadline_ms = match next {
            None => None,
            Some((Next::Job(job), active)) => {
                shuttle::thread::yield_now();
                let appended = active.writer.done(job.run(), world.moment());
                aof.state().is_working = false;
                world.engine.log.kept().set(appended.kept_bytes);
                note(world, aof, &active, appended, &outbox);
                continue;
            }
            Some((next, active)) => {
                // Changes can be confirmed between jobs, too: a new base may hold the changes that
                // could not be written to the file.
                let appended = active.writer.appended(world.moment());
                note(world, aof, &active, appended, &outbox);
                let look_ms = world.uptime_ms() + LOOK_MS;
                Some(if let Next::At(clock_ms) = next { clock_ms.min(look_ms) } else { look_ms })
            }
        };
        let may_sleep = port.mailbox.prepare_sleep();
        port.poll.wait(may_sleep.then_some(deadline_ms));
        port.mailbox.awake();
    }
    world.kernel.leave();
}

/// Handles the result of an append to the append-only file, or of a write or sync job. Records that
/// the synced bytes must survive a crash, releases replies, and makes the engine refuse or permit
/// writes. If a sync has failed, schedules a rewrite.
fn note(world: &World, aof: &Aof, active: &Active, appended: Appended, outbox: &Outbox) {
    let figures = active.writer.figures();
    let damages = active.writer.needs_rewrite();
    let synced = world.disk.end_of(figures.synced_position);
    aof.promise(|promise| {
        promise.is_damaged |= damages;
        promise.killed = promise.killed.max(synced);
        if !promise.is_damaged {
            promise.powerless = promise.powerless.max(synced);
        }
    });
    world.engine.server_state.note_log(figures.trouble.as_ref().map(|trouble| &*trouble.0));
    if damages {
        let mut state = aof.state();
        (state.is_scheduled, state.is_damaged_since_point) = (true, true);
        drop(state);
        world.wake_aof();
    }
    world.engine.log.confirm([(active.reader, appended.released())], outbox);
    world.wake(outbox);
}

/// Attaches a new writer of the append-only file to the change log. It appends to `file`, whose
/// `len_bytes` bytes hold all changes so far.
fn attach(
    world: &World,
    aof: &Aof,
    alone: &Exclusive,
    (file, len_bytes): (Arc<dyn LogFile>, u64),
    outbox: &Outbox,
) -> Active {
    let log = &world.engine.log;
    let writer = Arc::new(Writer::new(file, len_bytes, SyncPolicy::EverySecond, log.drawn()));
    aof.set_up(&writer);
    let reader = AofReader {
        writer: Arc::clone(&writer),
        kept: log.kept().clone(),
        clock: (world.clock.clone(), world.engine.started()),
        poll: Arc::clone(&world.kernel.ports[world.aof_port()].poll),
    };
    let reader =
        log.attach(alone, (Box::new(reader), LogTarget::File), outbox).expect("there is room for it");
    Active { writer, reader }
}

/// Opens the append-only files after their data was loaded, and creates missing ones. Called once,
/// at the start of a life (one run of the server process).
pub(super) fn open(world: &World, aof: &Aof, found: Found, rng: &mut Rng) -> Result<(), String> {
    let (last_len_bytes, mut files) = (found.last_len_bytes(), found.files);
    if files.manifest().is_empty() {
        aof.state().files = Some(files);
        return match rewrite(world, aof, rng) {
            Ok(()) => Ok(()),
            Err(unsaved) => Err(format!("the first base cannot be written: {unsaved:?}")),
        };
    }
    let file = match files.last_incr() {
        Some(_) => files.resume_incr(&aof.folder, last_len_bytes),
        None => files.begin_incr(&aof.folder),
    };
    let file = file.map_err(|trouble| trouble.to_string())?;
    let outbox = Outbox::default();
    let active =
        world.engine.gate.exclusive(|alone| attach(world, aof, alone, (file, last_len_bytes), &outbox));
    let mut state = aof.state();
    (state.files, state.active) = (Some(files), Some(active));
    drop(state);
    // A killed process may have left bytes that were not synced.
    let before = world.disk.end_of(0);
    aof.promise(|promise| promise.powerless = promise.powerless.max(before));
    Ok(())
}

/// The file that receives the changes after the moment at which a rewrite of the append-only file
/// begins.
enum Follows {
    Nowhere,
    Named(Arc<dyn LogFile>, i64),
    Unnamed(Arc<dyn LogFile>),
}

/// Rewrites the append-only file: writes a new base from a snapshot, then replaces the old files.
/// Called by the thread that saves.
pub(super) fn rewrite(world: &World, aof: &Aof, rng: &mut Rng) -> Result<(), Unsaved> {
    let mut files = {
        let mut state = aof.state();
        state.is_scheduled = false;
        state.files.take().expect("nobody else rewrites")
    };
    let result = rewrite_files(world, aof, &mut files, rng);
    aof.state().files = Some(files);
    result
}

fn rewrite_files(world: &World, aof: &Aof, files: &mut Files, rng: &mut Rng) -> Result<(), Unsaved> {
    let (engine, folder) = (&*world.engine, &aof.folder);
    let (active, awaits_base, policy) = {
        let state = aof.state();
        (state.active.clone(), state.is_wanted && state.active.is_none(), state.policy)
    };
    let follows = match &active {
        Some(_) => {
            let never = policy == SyncPolicy::Never;
            if let Some(last) = files.manifest().incr.last().filter(|_| never) {
                // If this sync fails, the base replaces the file.
                if folder.sync_file(&last.name).is_err() {
                    note_damage(aof);
                }
            }
            let file = files.begin_incr(folder)?;
            Follows::Named(file, files.last_incr().expect("it was begun"))
        }
        None if awaits_base => Follows::Unnamed(files.begin_unnamed_incr(folder)?),
        None => Follows::Nowhere,
    };
    let (outbox, mut attached) = (Outbox::default(), None);
    let number = world.points.state().len();
    let (kind, options) = walk::options(number, rng);
    let mut point_end = 0;
    let save = engine.gate.exclusive(|alone| {
        let save = Save::begin(engine, alone, options, Vec::new())?;
        match (&follows, &active) {
            (Follows::Named(file, _), Some(active)) => {
                engine.log.begin_part(alone, LogTarget::File, &outbox);
                active.writer.turn_to(Arc::clone(file));
            }
            (Follows::Unnamed(file), _) => {
                let unnamed = attach(world, aof, alone, (Arc::clone(file), 0), &outbox);
                // Replies do not wait for a sync: without its base the file is useless.
                unnamed.writer.set_up(SyncPolicy::EverySecond, aof.state().times);
                unnamed.writer.set_syncs(Syncs::Resting);
                attached = Some(unnamed);
            }
            _ => {}
        }
        aof.state().is_damaged_since_point = false;
        point_end = world.points.add((engine, &world.disk), alone, &outbox);
        Some(save)
    });
    world.wake(&outbox);
    world.wake_aof();
    let save = save.ok_or(FileError("another save is in progress".to_owned()))?;
    world.saves.state().current = Some(Arc::clone(&save));
    let syncing = *rng.pick(&[Syncing::AtEnd, Syncing::Every { len_bytes: 1 }]);
    let temporary = "temp-rewriteaof-bg-7.aof".to_owned();
    let name = files.next_base(folder, kind);
    let target = Target { folder, temporary, name, place: Place::Free, syncing };
    let walkers = 1 + rng.below(walk::WALKERS_MAX);
    let result = save_into(target, &save, engine, |out| walk::drive(world, &save, out, walkers));
    world.saves.state().current = None;
    match result {
        Ok(()) => finish(world, aof, files, (kind, follows, attached), point_end),
        Err(unsaved) => {
            if let Follows::Unnamed(_) = follows {
                give_up_turning_on(world, attached);
                files.drop_unnamed_incr(folder);
            }
            Err(unsaved)
        }
    }
}

/// Records a failed sync of the append-only file. The content of the disk is then unknown until a
/// new base is written. Schedules a rewrite.
fn note_damage(aof: &Aof) {
    aof.promise(|promise| promise.is_damaged = true);
    aof.state().is_scheduled = true;
}

fn finish(
    world: &World,
    aof: &Aof,
    files: &mut Files,
    (kind, follows, attached): (BaseKind, Follows, Option<Active>),
    point_end: usize,
) -> Result<(), Unsaved> {
    let kept = match &follows {
        Follows::Nowhere => Kept::None,
        Follows::Named(_, seq) => Kept::From { seq: *seq },
        Follows::Unnamed(_) => Kept::Unnamed,
    };
    let now_s = world.clock.unix_ms() / 1000;
    let base = NewBase { kind, kept, now_s, restored_until_s: None };
    if let Err(trouble) = files.take_base(&aof.folder, base) {
        if kept == Kept::Unnamed {
            give_up_turning_on(world, attached);
        }
        return Err(trouble.into());
    }
    if let Some(attached) = attached {
        aof.set_up(&attached.writer);
        let drawn = world.engine.log.drawn();
        let mut state = aof.state();
        state.policy_since = drawn;
        state.active = Some(attached);
        drop(state);
        world.wake_aof();
    }
    let active = aof.state().active.clone();
    if let (Follows::Named(file, _), Some(active)) = (&follows, active) {
        // Bytes that could not be written before the point are in the base.
        active.writer.base_is_in(file);
        world.wake_aof();
    }
    let is_damaged = aof.state().is_damaged_since_point;
    aof.promise(|promise| {
        promise.killed = promise.killed.max(point_end);
        promise.powerless = promise.powerless.max(point_end);
        // Changes written before the base's point are in the base.
        promise.is_damaged = is_damaged;
    });
    // The next rewrite removes the remaining files.
    let _ = files.remove_history(&aof.folder, now_s, 0);
    Ok(())
}

fn give_up_turning_on(world: &World, attached: Option<Active>) {
    let Some(attached) = attached else { return };
    let outbox = Outbox::default();
    let log = &world.engine.log;
    world.engine.gate.exclusive(|alone| drop(log.detach(alone, attached.reader, &outbox)));
    world.wake(&outbox);
}

/// Changes one option of the append-only file, chosen at random. Called by the thread that saves.
pub(super) fn change_options(world: &World, aof: &Aof, rng: &mut Rng) {
    match rng.below(4) {
        0 => {
            let is_wanted = !aof.state().is_wanted;
            aof.state().is_wanted = is_wanted;
            if !is_wanted {
                turn_off(world, aof);
            }
            return;
        }
        1 => {
            // Replies can be sent under the old or the new policy until the writer has changed,
            // too.
            let mut state = aof.state();
            (state.policy, state.policy_since) = (*rng.pick(POLICIES), u64::MAX);
        }
        2 => {
            let mut state = aof.state();
            (state.syncs, state.policy_since) = (*rng.pick(&[Syncs::Done, Syncs::Resting]), u64::MAX);
        }
        _ => aof.state().times = *rng.pick(&[Times::Written, Times::Left]),
    }
    let active = aof.state().active.clone();
    if let Some(active) = active {
        aof.set_up(&active.writer);
        world.wake_aof();
    }
    let merged = world.engine.log.progress().position;
    let drawn = world.engine.log.drawn();
    aof.state().policy_since = merged.max(drawn);
}

fn turn_off(world: &World, aof: &Aof) {
    let active = {
        let mut state = aof.state();
        state.is_scheduled = false;
        state.active.take()
    };
    let Some(active) = active else { return };
    let (outbox, mut end) = (Outbox::default(), 0);
    world.engine.gate.exclusive(|alone| {
        world.engine.log.detach(alone, active.reader, &outbox);
        end = world.disk.cut(&world.engine, alone, &outbox).expect("there is a tape");
    });
    world.wake(&outbox);
    while aof.state().is_working {
        shuttle::thread::yield_now();
    }
    let result = active.writer.finish();
    let damages = active.writer.needs_rewrite();
    aof.promise(|promise| {
        promise.is_damaged |= damages;
        if result.is_ok() {
            promise.killed = promise.killed.max(end);
            if !promise.is_damaged {
                promise.powerless = promise.powerless.max(end);
            }
        }
    });
    world.engine.log.kept().set(0);
    world.engine.server_state.note_log(None);
}

/// Rewrites the append-only file if a rewrite is scheduled or needed. Called by the thread that
/// saves.
pub(super) fn rewrite_if_due(world: &World, aof: &Aof, rng: &mut Rng) {
    let is_due = {
        let state = aof.state();
        // A file that may lack changes after the point of the last base needs another one.
        let is_damaged = |active: &Active| active.writer.figures().is_damaged;
        state.is_scheduled || (state.is_wanted && state.active.as_ref().is_none_or(is_damaged))
    };
    if is_due && rewrite(world, aof, rng).is_err() {
        let mut state = aof.state();
        // After a failed sync, the rewrite is tried again until a new base is written.
        state.is_scheduled =
            state.is_wanted && state.promises.last().is_some_and(|promise| promise.is_damaged);
    }
}

/// Writes and syncs all changes that the append-only file does not hold yet. Called after the
/// threads of a server that was asked to stop have ended.
pub(super) fn finish_all(world: &World, aof: &Aof) {
    aof.folder.plan(Plan::Never);
    let active = aof.state().active.clone();
    let Some(active) = active else { return };
    let outbox = Outbox::default();
    world.engine.log.readers(&outbox);
    let finished = active.writer.finish();
    if let Err(trouble) = finished
        && !active.writer.figures().is_damaged
    {
        world.find(format!("the append-only file cannot be brought to its end: {trouble}"));
    }
    let end = world.disk.all().len();
    aof.promise(|promise| {
        promise.killed = promise.killed.max(end);
        if !promise.is_damaged {
            promise.powerless = promise.powerless.max(end);
        }
    });
}
