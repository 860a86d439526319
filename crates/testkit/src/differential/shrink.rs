//! Reduction of a failing sequence by delta debugging (Zeller, Hildebrandt 2002): first removes
//! commands, then arguments of the remaining commands. The number of replays and the time are
//! bounded.

use std::time::{Duration, Instant};

use super::grammar::Args;
use super::pair::{Difference, Pair, RunError};

/// Maximum number of times that commands are run again to shrink one failing sequence.
const REPLAYS_MAX: usize = 3_000;

/// Maximum time to shrink one failing sequence.
const TIME_MAX: Duration = Duration::from_secs(20);

/// Finds a smaller sequence of commands on which the two servers still differ. Returns its
/// difference. `found` is the difference of the whole sequence.
pub fn shrink(pair: &mut Pair, commands: &[Args], found: Difference) -> Result<Difference, RunError> {
    let mut shrinking = Shrinking { pair, best: found, replays: 0, until: Instant::now() + TIME_MAX };
    // Commands after the difference had no influence, unless the difference is in the dump.
    let mut kept = commands.to_vec();
    let shown_by = shrinking.best.commands.len();
    if shown_by < kept.len() && shrinking.fails(&kept[..shown_by])? {
        kept.truncate(shown_by);
    }
    kept = shrinking.commands(kept)?;
    shrinking.arguments(kept)?;
    Ok(shrinking.best)
}

struct Shrinking<'a> {
    pair: &'a mut Pair,
    best: Difference,
    replays: usize,
    until: Instant,
}

impl Shrinking<'_> {
    /// Runs `commands` on both servers. Returns true if the replies differ, and then stores the
    /// difference as the smallest one so far.
    fn fails(&mut self, commands: &[Args]) -> Result<bool, RunError> {
        if self.replays >= REPLAYS_MAX || Instant::now() > self.until {
            return Ok(false);
        }
        self.replays += 1;
        match self.pair.run(commands)? {
            Some(difference) => {
                self.best = difference;
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// Removes parts of the sequence of commands, first long ones, then shorter ones, as long as
    /// the servers still differ. Returns the remaining commands.
    fn commands(&mut self, mut kept: Vec<Args>) -> Result<Vec<Args>, RunError> {
        let mut piece = kept.len().div_ceil(2).max(1);
        loop {
            let mut at = 0;
            let mut removed = false;
            while at < kept.len() {
                let end = (at + piece).min(kept.len());
                let rest = [&kept[..at], &kept[end..]].concat();
                if self.fails(&rest)? {
                    kept = rest;
                    removed = true;
                } else {
                    at = end;
                }
            }
            if piece == 1 && !removed {
                return Ok(kept);
            }
            piece = if removed { piece } else { piece.div_ceil(2) };
            piece = piece.min(kept.len().max(1));
        }
    }

    /// Removes arguments of the commands, the last ones first, as long as the servers still differ.
    fn arguments(&mut self, mut kept: Vec<Args>) -> Result<(), RunError> {
        for command in 0..kept.len() {
            for at in (1..kept[command].len()).rev() {
                let mut shorter = kept.clone();
                shorter[command].remove(at);
                if self.fails(&shorter)? {
                    kept = shorter;
                }
            }
        }
        Ok(())
    }
}
