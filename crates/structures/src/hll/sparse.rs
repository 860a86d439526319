//! Sparse registers: runs of equal registers, in order, which together cover all 16,384.
//!
//! ```text
//! 00llllll            ZERO   l + 1 registers of 0, up to 64
//! 01llllll llllllll   XZERO  l + 1 registers of 0, up to 16,384, the high bits first
//! 1vvvvvll            VAL    l + 1 registers of v + 1, up to 4 of up to 32
//! ```
//! Raising a register splits its run into up to three runs, and then joins neighbours of the same
//! value if they fit one VAL. The choice of the joined runs determines the bytes, so it is exactly
//! that of Redis. It starts with the run before the changed one and takes at most
//! [`JOIN_STEPS_MAX`] steps. Runs of zeros are never joined.

use super::{Corrupted, Observation};

const XZERO: u8 = 0x40;
const VAL: u8 = 0x80;
const ZERO_LEN_MAX: usize = 64;
const VAL_LEN_MAX: usize = 4;
const VAL_VALUE_MAX: u8 = 32;
/// The most steps of [`join_neighbours`] after a change. A step moves to the next run or joins two.
const JOIN_STEPS_MAX: usize = 5;
/// The length in bytes of the longest sequence of runs that replaces one run: XZERO, VAL, XZERO.
const SPLIT_LEN_BYTES_MAX: usize = 5;

/// A run of registers with the same value in a sparse HyperLogLog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The value of the run's registers, at most 32.
    pub value: u8,
    /// The number of registers in the run, at least 1.
    pub len: usize,
    /// The number of bytes that encode the run, 1 or 2.
    pub len_bytes: usize,
}

impl Run {
    /// Reads the run at the start of `bytes`, which must not be empty. Fails if the run is cut
    /// short.
    #[inline]
    fn read(bytes: &[u8]) -> Result<Self, Corrupted> {
        let head = bytes[0];
        if head & VAL != 0 {
            return Ok(Run { value: (head >> 2 & 31) + 1, len: usize::from(head & 3) + 1, len_bytes: 1 });
        }
        let low = usize::from(head & 63);
        if head & XZERO == 0 {
            return Ok(Run { value: 0, len: low + 1, len_bytes: 1 });
        }
        let next = *bytes.get(1).ok_or(Corrupted)?;
        Ok(Run { value: 0, len: (low << 8 | usize::from(next)) + 1, len_bytes: 2 })
    }
}

/// Returns the two bytes of a run of `len` zeros, up to 16,384.
pub(super) fn zeros(len: usize) -> [u8; 2] {
    let len = len - 1;
    [XZERO | (len >> 8) as u8, len as u8]
}

fn val(value: u8, len: usize) -> u8 {
    VAL | (value - 1) << 2 | (len - 1) as u8
}

/// An iterator over all runs of a sparse HyperLogLog, which checks that they cover the expected
/// number of registers. If not, the last item is an error.
pub(super) struct Runs<'a> {
    rest: &'a [u8],
    registers_left: usize,
    ended: bool,
}

impl<'a> Runs<'a> {
    pub(super) fn covering(registers: usize, bytes: &'a [u8]) -> Self {
        Self { rest: bytes, registers_left: registers, ended: false }
    }

    fn end(&mut self) -> Option<Result<Run, Corrupted>> {
        self.ended = true;
        (self.registers_left > 0 || !self.rest.is_empty()).then_some(Err(Corrupted))
    }
}

impl Iterator for Runs<'_> {
    type Item = Result<Run, Corrupted>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        if self.rest.is_empty() {
            return self.end();
        }
        match Run::read(self.rest) {
            Ok(run) if run.len <= self.registers_left => {
                self.registers_left -= run.len;
                self.rest = &self.rest[run.len_bytes..];
                Some(Ok(run))
            }
            _ => self.end(),
        }
    }
}

/// A run of a sparse HyperLogLog, with its position.
pub(super) struct Located {
    pub(super) run: Run,
    /// The offset in bytes at which the run begins.
    at: usize,
    /// The offset in bytes at which the previous run begins; `None` for the first run.
    before: Option<usize>,
    /// The index of the first register of the run.
    first: usize,
}

/// Finds the run of a sparse HyperLogLog that covers `register`. Returns an error if no run does.
/// O(bytes).
pub(super) fn locate(bytes: &[u8], register: usize) -> Result<Located, Corrupted> {
    let (mut at, mut before, mut first) = (0, None, 0);
    while at < bytes.len() {
        let run = Run::read(&bytes[at..])?;
        if register < first + run.len {
            return Ok(Located { run, at, before, first });
        }
        first += run.len;
        before = Some(at);
        at += run.len_bytes;
    }
    Err(Corrupted)
}

/// The result of raising a register of a sparse HyperLogLog.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Raised {
    /// The register's value was already as high as requested.
    No,
    Yes,
    /// The register was not raised: runs cannot hold the value, or would become longer than the
    /// limit.
    OutOfRoom,
}

/// Raises a register of a sparse HyperLogLog to the observation's value. The runs begin at offset
/// `start` of `bytes` and may take up to `room` bytes. O(bytes).
pub(super) fn raise(
    bytes: &mut Vec<u8>,
    start: usize,
    observation: Observation,
    room: usize,
) -> Result<Raised, Corrupted> {
    if observation.rank > VAL_VALUE_MAX {
        return Ok(Raised::OutOfRoom);
    }
    let located = locate(&bytes[start..], observation.register)?;
    if located.run.value >= observation.rank {
        return Ok(Raised::No);
    }
    let split = Split::of(&located, observation);
    let len_bytes = bytes.len() - start - located.run.len_bytes + split.len;
    if split.len > located.run.len_bytes && len_bytes > room {
        return Ok(Raised::OutOfRoom);
    }
    let at = start + located.at;
    bytes.splice(at..at + located.run.len_bytes, split.bytes[..split.len].iter().copied());
    join_neighbours(bytes, start + located.before.unwrap_or(0));
    Ok(Raised::Yes)
}

/// The encoded runs of a sparse HyperLogLog that replace one run when one of its registers is
/// raised.
struct Split {
    bytes: [u8; SPLIT_LEN_BYTES_MAX],
    len: usize,
}

impl Split {
    /// Returns the runs that replace the located run when one of its registers, the observation's,
    /// is raised.
    fn of(located: &Located, observation: Observation) -> Self {
        let Located { run, first, .. } = located;
        let before = observation.register - first;
        let mut split = Split { bytes: [0; SPLIT_LEN_BYTES_MAX], len: 0 };
        split.push_run(run.value, before);
        split.push(&[val(observation.rank, 1)]);
        split.push_run(run.value, run.len - before - 1);
        split
    }

    fn push_run(&mut self, value: u8, len: usize) {
        match (value, len) {
            (_, 0) => {}
            (0, 1..=ZERO_LEN_MAX) => self.push(&[len as u8 - 1]),
            (0, _) => self.push(&zeros(len)),
            _ => self.push(&[val(value, len)]),
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }
}

/// Joins neighbouring VAL runs of the same value, if one VAL can hold the registers of both. Starts
/// at the run at byte offset `at`, and takes at most [`JOIN_STEPS_MAX`] steps.
fn join_neighbours(bytes: &mut Vec<u8>, mut at: usize) {
    for _ in 0..JOIN_STEPS_MAX {
        let Some(&head) = bytes.get(at) else { return };
        match bytes.get(at + 1) {
            _ if head & VAL == 0 => at += if head & XZERO == 0 { 1 } else { 2 },
            // For the same value, only the two bits of the length differ.
            Some(&next) if (head ^ next) < VAL_LEN_MAX as u8 => {
                let len = usize::from(head & 3) + usize::from(next & 3) + 2;
                if len > VAL_LEN_MAX {
                    at += 1;
                    continue;
                }
                bytes[at] = val((head >> 2 & 31) + 1, len);
                bytes.remove(at + 1);
            }
            _ => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::REGISTERS;
    use super::*;

    /// Formats the runs of a sparse HyperLogLog as PFDEBUG DECODE does.
    fn text(bytes: &[u8]) -> String {
        let runs = Runs::covering(REGISTERS, bytes).map(|run| match run.unwrap() {
            Run { value: 0, len, len_bytes: 1 } => format!("z:{len}"),
            Run { value: 0, len, .. } => format!("Z:{len}"),
            Run { value, len, .. } => format!("v:{value},{len}"),
        });
        runs.collect::<Vec<_>>().join(" ")
    }

    fn check(steps: &[(usize, u8)], expected: &str) {
        let mut bytes = zeros(REGISTERS).to_vec();
        for &(register, rank) in steps {
            raise(&mut bytes, 0, Observation { register, rank }, usize::MAX).unwrap();
        }
        assert_eq!(text(&bytes), expected, "{steps:?}");
    }

    #[test]
    fn raising_splits_a_run() {
        check(&[], "Z:16384");
        check(&[(0, 1)], "v:1,1 Z:16383");
        check(&[(16383, 32)], "Z:16383 v:32,1");
        check(&[(64, 2)], "z:64 v:2,1 Z:16319");
        check(&[(65, 2)], "Z:65 v:2,1 Z:16318");
        check(&[(0, 2), (1, 2), (2, 2), (1, 3)], "v:2,1 v:3,1 v:2,1 Z:16381");
        check(&[(0, 1), (2, 1), (1, 1)], "v:1,3 Z:16381");
    }

    #[test]
    fn neighbours_are_joined_up_to_four() {
        check(&[(0, 2), (1, 2), (2, 2), (3, 2)], "v:2,4 Z:16380");
        check(&[(0, 2), (1, 2), (2, 2), (3, 2), (4, 2)], "v:2,4 v:2,1 Z:16379");
        check(&[(0, 2), (2, 2), (1, 1), (1, 2)], "v:2,3 Z:16381");
    }

    #[test]
    fn a_lower_rank_changes_nothing_and_room_is_respected() {
        let mut bytes = zeros(REGISTERS).to_vec();
        let seen = |register, rank| Observation { register, rank };
        assert_eq!(raise(&mut bytes, 0, seen(9, 3), 3), Ok(Raised::OutOfRoom));
        assert_eq!(raise(&mut bytes, 0, seen(9, 3), 4), Ok(Raised::Yes));
        assert_eq!(raise(&mut bytes, 0, seen(9, 3), 0), Ok(Raised::No));
        assert_eq!(raise(&mut bytes, 0, seen(9, 4), 0), Ok(Raised::Yes));
        assert_eq!(raise(&mut bytes, 0, seen(9, 33), 99), Ok(Raised::OutOfRoom));
        assert_eq!(text(&bytes), "z:9 v:4,1 Z:16374");
    }
}
