//! Reading and writing of sorted sets in the RDB format.

use keyspace::Zset;
use structures::listpack::element::{Element, IntText};

use super::error::{FormatError, FormatErrorKind};
use super::rules::Rules;
use super::sink::{Sink, Writer};
use super::source::{Reader, Source};
use super::value_type::ValueType;
use super::ziplist::Ziplist;

/// The form of the scores of a stored sorted set, which follow its members.
#[derive(Clone, Copy)]
pub(super) enum Scores {
    /// The scores are text: a length byte, then decimal digits. The lengths 253, 254 and 255 mean
    /// NaN, infinity and minus infinity.
    Text,
    /// The scores are floating-point numbers of eight bytes, little-endian.
    Binary,
}

/// The maximum number of a sorted set's members that are read before they are added, a [`Run`].
const RUN_MEMBERS_MAX: usize = 1 << 20;
/// The total length of a [`Run`]'s members, in bytes, from which no more members are read before
/// they are added.
const RUN_BYTES_MAX: usize = 32 << 20;

fn add(zset: &mut Zset, member: &[u8], score: f64, rules: &Rules<'_>) -> Result<(), FormatErrorKind> {
    if score.is_nan() {
        return Err(FormatErrorKind::Score);
    }
    let new = zset.set(member, score, &rules.zset, rules.hasher).old.is_none();
    if new { Ok(()) } else { Err(FormatErrorKind::Duplicate) }
}

/// Reads a sorted set that is stored in the RDB format as a count, then each member with its score.
pub(super) fn read_members<S: Source>(
    scores: Scores,
    reader: &mut Reader<S>,
    rules: &Rules<'_>,
) -> Result<Zset, FormatError> {
    let count = reader.length()?;
    let mut zset = Zset::new();
    let expected = usize::try_from(count).unwrap_or(usize::MAX);
    let mut run = Run::default();
    for left in (0..count).rev() {
        let member = reader.string()?;
        let score = match scores {
            Scores::Binary => f64::from_le_bytes(reader.array()?),
            Scores::Text => read_text_score(reader)?,
        };
        run.push(&member, score);
        if left == 0 || run.is_full() {
            if zset.is_empty() {
                // The sorted set gets its final encoding from the beginning, because the packed
                // encoding has no negative zero.
                zset.expect(expected, run.longest_len_bytes(), &rules.zset, rules.hasher);
            }
            run.add_to(&mut zset, rules).map_err(|kind| reader.error(kind))?;
        }
    }
    Ok(zset)
}

/// A group of a sorted set's members that were read together and are added in the order of their
/// scores. So most insertions continue at the previous position in the tree, without a search from
/// the root.
#[derive(Default)]
struct Run {
    text: Vec<u8>,
    /// For each member: its score, and the start and the end of its bytes in `text`.
    members: Vec<(f64, usize, usize)>,
}

impl Run {
    fn push(&mut self, member: &[u8], score: f64) {
        let start = self.text.len();
        self.text.extend_from_slice(member);
        self.members.push((score, start, self.text.len()));
    }

    /// Returns the length of the longest member of this group, in bytes.
    fn longest_len_bytes(&self) -> usize {
        self.members.iter().map(|(_, start, end)| end - start).max().unwrap_or(0)
    }

    fn is_full(&self) -> bool {
        self.members.len() >= RUN_MEMBERS_MAX || self.text.len() >= RUN_BYTES_MAX
    }

    fn add_to(&mut self, zset: &mut Zset, rules: &Rules<'_>) -> Result<(), FormatErrorKind> {
        self.members.sort_by(|(a, ..), (b, ..)| a.total_cmp(b));
        let added = self
            .members
            .iter()
            .try_for_each(|&(score, start, end)| add(zset, &self.text[start..end], score, rules));
        self.members.clear();
        self.text.clear();
        added
    }
}

fn read_text_score<S: Source>(reader: &mut Reader<S>) -> Result<f64, FormatError> {
    match reader.byte()? {
        253 => Ok(f64::NAN),
        254 => Ok(f64::INFINITY),
        255 => Ok(f64::NEG_INFINITY),
        len => {
            let text = reader.bytes(len.into())?;
            stdx::number::parse_f64(&text).ok_or(reader.error(FormatErrorKind::Score))
        }
    }
}

/// Reads a sorted set that is stored in the RDB format as one ziplist of members and scores.
pub(super) fn read_ziplist<S: Source>(
    reader: &mut Reader<S>,
    rules: &Rules<'_>,
) -> Result<Zset, FormatError> {
    let bytes = reader.string()?;
    let mut zset = Zset::new();
    let result = Ziplist::new(&bytes).and_then(|ziplist| {
        ziplist.pairs().try_for_each(|pair| {
            let (member, score) = pair?;
            let score = match score {
                Element::Int(score) => score as f64,
                Element::Bytes(text) => stdx::number::parse_f64(text).ok_or(FormatErrorKind::Score)?,
            };
            add(&mut zset, member.text(&mut IntText::new()), score, rules)
        })
    });
    result.map(|()| zset).map_err(|kind| reader.error(kind))
}

/// Reads a sorted set that is stored in the RDB format as one listpack of members and scores.
pub(super) fn read_listpack<S: Source>(
    reader: &mut Reader<S>,
    rules: &Rules<'_>,
) -> Result<Zset, FormatError> {
    let pack = reader.listpack()?;
    Zset::from_listpack(pack, &rules.zset, rules.hasher).map_err(|defect| reader.error(defect))
}

/// Returns the RDB type as which a sorted set is written if every type is permitted.
pub(super) fn type_of(zset: &Zset) -> ValueType {
    if zset.as_listpack().is_some() { ValueType::ZsetListpack } else { ValueType::Zset2 }
}

/// Writes a sorted set as the RDB type `kind`: the type of [`type_of`], or [`ValueType::Zset2`]. A
/// listpack is written unchanged. In `Zset2` the members go from last to first, as in Redis, so
/// that a reader always inserts at the front.
pub(super) fn write<S: Sink>(kind: ValueType, writer: &mut Writer<S>, zset: &Zset) {
    if let (ValueType::ZsetListpack, Some(pack)) = (kind, zset.as_listpack()) {
        return writer.blob(pack.as_bytes());
    }
    writer.length(zset.len() as u64);
    zset.iter().rev().for_each(|(member, score)| {
        writer.element(member);
        writer.raw(&score.to_le_bytes());
    });
}
