//! DEBUG SCRIPT-STANDIN: imitates a long script. Other clients notice no difference. Tests use it
//! to check the replies to other clients while a script runs.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use commands::{Args, CommandError};
use engine::scripts::{Script, ScriptKind, ScriptName};
use keyspace::Key;

use crate::context::ServerCtx;

/// Time between two checks of the simulated script: is its time over, or has a client killed it?
const STEP: Duration = Duration::from_millis(1);

/// Handles DEBUG SCRIPT-STANDIN milliseconds SCRIPT|FUNCTION [key ...]. Holds the locks of the
/// keys' shards, or the whole keyspace if no keys are given. The simulated script ends when the
/// time has passed or a client kills it.
pub(super) fn run(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let time_ms = stdx::number::parse_i64(args.get(2)).and_then(|ms| u64::try_from(ms).ok());
    let time = Duration::from_millis(time_ms.ok_or(CommandError::NotAnInteger)?);
    let kind = if args.is(3, "SCRIPT") {
        ScriptKind::Script
    } else if args.is(3, "FUNCTION") {
        ScriptKind::Function
    } else {
        return Err(CommandError::Syntax);
    };
    let name =
        ScriptName { kind, name: Box::from(&b"stand-in"[..]), command: Vec::new(), thread: ctx.thread };
    let keys: Vec<Key<'_>> = (4..args.len()).map(|at| args.key(at)).collect();
    let engine::Shared { keyspace, scripts, .. } = &ctx.shared.engine;
    let stand_in = StandIn { stopping: &ctx.shared.stopping, threshold: ctx.settings.busy_threshold, time };
    let pass = &mut *ctx.pass;
    let was_killed = if keys.is_empty() {
        pass.alone_unless_busy(|pass| {
            let script = scripts.begin(name, Instant::now());
            stand_in.take_time(&script, || pass.mark_busy())
        })
    } else {
        keyspace.lock_all_of_unless_busy(keys.iter().map(|key| key.hash)).map(|locked| {
            let script = scripts.begin(name, Instant::now());
            let was_killed = stand_in.take_time(&script, || {
                locked.mark_busy();
                pass.mark_busy();
            });
            drop(locked);
            pass.end_busy();
            was_killed
        })
    };
    match was_killed {
        None => Err(scripts.error()),
        Some(true) => Err(CommandError::Line("ERR Script killed by user with SCRIPT KILL...")),
        Some(false) => {
            ctx.reply.ok();
            Ok(())
        }
    }
}

/// A simulated script: its duration, and the run time after which it counts as busy.
struct StandIn<'a> {
    stopping: &'a std::sync::atomic::AtomicBool,
    threshold: Option<Duration>,
    time: Duration,
}

impl StandIn<'_> {
    /// Sleeps for the script's duration, and calls `mark_busy` when the script counts as busy.
    /// Returns true if a client killed the script.
    fn take_time(&self, script: &Script<'_>, mut mark_busy: impl FnMut()) -> bool {
        let end = Instant::now() + self.time;
        // Relaxed: noticing the stop one step later is soon enough.
        while !self.stopping.load(Relaxed) {
            if script.is_killed() {
                return true;
            }
            let now = Instant::now();
            if script.exceeds(self.threshold, now) {
                mark_busy();
            }
            let left = end.saturating_duration_since(now);
            if left.is_zero() {
                break;
            }
            std::thread::sleep(left.min(STEP));
        }
        false
    }
}
