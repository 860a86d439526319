//! The sorted set type: a sorted listpack for few short members, a table with a tree for all other
//! sorted sets.
//!
//! A packed sorted set is one block, `member score member score …`, ascending by score, then by
//! member. A whole score is stored as an integer, any other score as its shortest text. A larger
//! set is a [`RankedMembers`]: a table that finds members, and a counted tree that orders them. All
//! operations by rank, score and lexical order are O(log n). It does not become packed again.
//!
//! All ranges here are ranges of ranks. [`Zset::score_ranks`] and [`Zset::lex_ranks`] convert
//! bounds to ranks, and [`Zset::range`] returns the members from either end.

use crate::freeing::FreeingSteps;
use std::cmp::Ordering;
use std::ops::Range;

use stdx::number;
use structures::listpack::element::{Element, IntText};
use structures::listpack::{Cursor, Iter, Listpack};
use structures::ranked_members::{RankedMembers, order};
use structures::walk_state::WalkState;

use crate::key::Hasher;
use crate::limits::PackLimits;
use crate::one_of::OneOfTwo;
use crate::packed::PackDefect;
use crate::sample::{Selection, index_below};

/// A set of members ordered by their scores. See the module's comment.
#[derive(Clone)]
pub struct Zset {
    repr: Repr,
}

#[derive(Clone)]
enum Repr {
    Pack(Listpack),
    Ranked(Box<RankedMembers>),
}

/// A lower or upper bound of a range of scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScoreBound {
    /// The score of the bound, which must not be NaN.
    pub score: f64,
    /// True if members with exactly the bound's score are excluded.
    pub exclusive: bool,
}

/// A lower or upper bound of a range of members in lexical order. Meaningful for sets whose scores
/// are all equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LexBound<'a> {
    /// The bound before every member: `-` in ZRANGEBYLEX.
    Lowest,
    /// The bound after every member: `+` in ZRANGEBYLEX.
    Highest,
    /// A bound of a lexical range that includes this member.
    Inclusive(&'a [u8]),
    /// A bound of a lexical range that excludes this member.
    Exclusive(&'a [u8]),
}

/// The scores of a member before and after [`Zset::update`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Updated {
    /// The score of the member before the update; `None` if the member was not in the set.
    pub old: Option<f64>,
    /// The score of the member after the update; `None` if the member is not in the set.
    pub new: Option<f64>,
}

impl Default for Zset {
    fn default() -> Self {
        Self { repr: Repr::Pack(Listpack::new()) }
    }
}

impl std::fmt::Debug for Zset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Zset({}, {} members)", self.encoding_name(), self.len())
    }
}

/// A member of a sorted set with its score.
type Pair<'a> = (Element<'a>, f64);

/// A double-ended iterator over the members and scores of a packed sorted set.
#[derive(Clone)]
struct PackedPairs<'a> {
    elements: Iter<'a>,
}

impl<'a> Iterator for PackedPairs<'a> {
    type Item = Pair<'a>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        Some((self.elements.next()?, score_of(self.elements.next()?)))
    }
}

impl DoubleEndedIterator for PackedPairs<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        let score = score_of(self.elements.next_back()?);
        Some((self.elements.next_back()?, score))
    }
}

/// Returns the score that an element of the set's listpack represents.
#[inline]
fn score_of(element: Element<'_>) -> f64 {
    read_score(element).expect("a packed sorted set holds scores")
}

/// Returns the score that an untrusted listpack element represents; `None` if it is not a number.
#[inline]
fn read_score(element: Element<'_>) -> Option<f64> {
    match element {
        Element::Int(score) => Some(score as f64),
        Element::Bytes(text) => {
            let score = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
            score.filter(|score: &f64| !score.is_nan())
        }
    }
}

/// The magnitude up to which a whole score is stored as an integer in a packed sorted set.
const SCORE_INT_MAX: f64 = (i64::MAX / 2) as f64;

/// Calls `store` with the listpack element that represents `score`.
fn with_score<T>(score: f64, store: impl FnOnce(Element<'_>) -> T) -> T {
    if score.abs() <= SCORE_INT_MAX && score.trunc() == score {
        return store(Element::Int(score as i64));
    }
    store(Element::Bytes(number::format_f64(score, &mut [0; number::F64_TEXT_LEN_MAX]).as_bytes()))
}

fn pairs(pack: &Listpack) -> PackedPairs<'_> {
    PackedPairs { elements: pack.iter() }
}

/// Returns the cursor at `member` in a packed sorted set; `None` if it is absent.
#[inline]
fn find_member(pack: &Listpack, member: &[u8]) -> Option<Cursor> {
    pack.find(pack.first()?, member, 1)
}

/// Inserts a member with its score into a packed sorted set, in order. The caller has checked that
/// the set may be packed with it.
fn insert_packed(pack: &mut Listpack, member: &[u8], score: f64) {
    let mut at = pack.end();
    let mut next = pack.first();
    while let Some(cursor) = next
        && let Some((other, behind)) = pack.get_and_next(cursor)
        && let Some((other_score, behind)) = pack.get_and_next(behind)
    {
        let mut scratch = IntText::new();
        if order((score_of(other_score), other.text(&mut scratch)), (score, member)).is_gt() {
            at = cursor;
            break;
        }
        next = Some(behind);
    }
    with_score(score, |score| pack.insert_many(at, &[Element::Bytes(member), score]))
        .expect("the caller asked whether this much more fits");
}

/// Returns true if a score is below a range that starts at `min`.
fn is_before_min(score: f64, min: ScoreBound) -> bool {
    score < min.score || (min.exclusive && score == min.score)
}

/// Returns true if a score is not above a range that ends at `max`.
fn is_up_to_max(score: f64, max: ScoreBound) -> bool {
    score < max.score || (!max.exclusive && score == max.score)
}

impl LexBound<'_> {
    /// Compares a member with the bound of a lexical range. Never returns `Equal` for
    /// [`LexBound::Lowest`] and [`LexBound::Highest`].
    fn compare(self, member: &[u8]) -> Ordering {
        match self {
            LexBound::Lowest => Ordering::Greater,
            LexBound::Highest => Ordering::Less,
            LexBound::Inclusive(bound) | LexBound::Exclusive(bound) => member.cmp(bound),
        }
    }

    /// Returns true if `member` is below a range that starts at this bound.
    fn is_before_min(self, member: &[u8]) -> bool {
        self.compare(member).is_lt() || matches!(self, LexBound::Exclusive(bound) if bound == member)
    }

    /// Returns true if `member` is not above a range that ends at this bound.
    fn is_up_to_max(self, member: &[u8]) -> bool {
        self.compare(member).is_lt() || matches!(self, LexBound::Inclusive(bound) if bound == member)
    }
}

impl Zset {
    /// Creates an empty sorted set. One allocation.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a sorted set of the members and scores in `pack`, which is not trusted. The set is
    /// packed unless `pack` has more members than `limits` allow. O(n log n).
    ///
    /// # Errors
    /// If a member has no score or occurs twice, a score is not a number, or members are not in
    /// order.
    pub fn from_listpack(pack: Listpack, limits: &PackLimits, hasher: &Hasher) -> Result<Self, PackDefect> {
        if !pack.len().is_multiple_of(2) {
            return Err(PackDefect::HalfPair);
        }
        if !pack.iter().skip(1).step_by(2).all(|score| read_score(score).is_some()) {
            return Err(PackDefect::Score);
        }
        let ascending = |((one, one_score), (next, next_score)): (Pair<'_>, Pair<'_>)| {
            let (mut scratch, mut next_scratch) = (IntText::new(), IntText::new());
            order((one_score, one.text(&mut scratch)), (next_score, next.text(&mut next_scratch))).is_le()
        };
        if !pairs(&pack).zip(pairs(&pack).skip(1)).all(ascending) {
            return Err(PackDefect::Order);
        }
        if !pack.are_distinct(1) {
            return Err(PackDefect::Duplicate);
        }
        let mut zset = Self { repr: Repr::Pack(pack) };
        if !limits.admit_count(zset.len()) {
            zset.spread(hasher);
        }
        Ok(zset)
    }

    /// Borrows the listpack of a packed sorted set: each member before its score, in order. Returns
    /// `None` if the set is not packed. O(1).
    pub fn as_listpack(&self) -> Option<&Listpack> {
        if let Repr::Pack(pack) = &self.repr { Some(pack) } else { None }
    }

    /// Returns the number of members of the sorted set. O(1).
    #[inline]
    pub fn len(&self) -> usize {
        match &self.repr {
            Repr::Pack(pack) => pack.len() / 2,
            Repr::Ranked(members) => members.len(),
        }
    }

    /// Returns true if the sorted set has no members. O(1).
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Starts loading the bucket that a search for a member with this hash reads first. Does
    /// nothing for a packed set. O(1).
    #[inline]
    pub fn prefetch_bucket(&self, member_hash: u64) {
        if let Repr::Ranked(members) = &self.repr {
            members.prefetch_bucket(member_hash);
        }
    }

    /// Starts loading the member with this hash and length. For use after
    /// [`prefetch_bucket`](Self::prefetch_bucket) has loaded its bucket. O(1).
    #[inline]
    pub fn prefetch_member(&self, member_hash: u64, len_bytes: usize) {
        if let Repr::Ranked(members) = &self.repr {
            members.prefetch_member(member_hash, len_bytes);
        }
    }

    /// Returns true if the set is not packed, but stored as ranked members.
    pub fn is_ranked(&self) -> bool {
        matches!(self.repr, Repr::Ranked(_))
    }

    /// Returns the name of the set's encoding for OBJECT ENCODING. Ranked members have the name
    /// `skiplist`, as in Redis.
    pub fn encoding_name(&self) -> &'static str {
        match &self.repr {
            Repr::Pack(_) => "listpack",
            Repr::Ranked(_) => "skiplist",
        }
    }

    /// Starts a snapshot's walk, which reads the set's present state while the set changes;
    /// [`Zset::walk_next`] visits its members. Does nothing for a packed set. O(1).
    pub(crate) fn begin_walk(&mut self, walk_state: WalkState) {
        if let Repr::Ranked(ranked) = &mut self.repr {
            ranked.begin_walk(walk_state);
        }
    }

    /// Returns the ticket ([`WalkState::ticket`]) that identifies the snapshot's walk of the set;
    /// `None` if there is none. O(1).
    pub(crate) fn ticket(&self) -> Option<u32> {
        if let Repr::Ranked(ranked) = &self.repr { ranked.ticket() } else { None }
    }

    /// Visits about the next `members_max` members of the snapshot's walk that [`Zset::begin_walk`]
    /// started. Returns true if there are more.
    pub(crate) fn walk_next(&mut self, members_max: usize, visit: impl FnMut(&[u8], f64)) -> bool {
        if let Repr::Ranked(ranked) = &mut self.repr { ranked.walk_next(members_max, visit) } else { false }
    }

    /// Converts the set to an iterator that frees one node of the tree, or one member, in each
    /// step. A packed set takes one step. O(1).
    pub fn into_freed(self) -> FreeingSteps {
        match self.repr {
            Repr::Ranked(members) => Box::new(members.into_freed()),
            small => Box::new(std::iter::once(small).map(drop)),
        }
    }

    /// Returns the approximate bytes that the set owns outside its key's block. Table and tree
    /// count with their mean fill. O(1).
    #[inline]
    pub fn len_bytes(&self) -> usize {
        match &self.repr {
            Repr::Pack(pack) => pack.len_bytes(),
            Repr::Ranked(members) => members.len_bytes(),
        }
    }

    /// Returns the bytes that the set owns outside its key's block. Estimated if there are many
    /// members. O(n / 60) up to a bound.
    pub fn memory_usage(&self) -> usize {
        match &self.repr {
            Repr::Pack(pack) => pack.memory_usage(),
            Repr::Ranked(members) => size_of::<RankedMembers>() + members.memory_usage(),
        }
    }

    /// Returns the score of `member`; `None` if it is not in the set. O(1); packed, O(bytes).
    pub fn score(&self, member: &[u8], hasher: &Hasher) -> Option<f64> {
        match &self.repr {
            Repr::Pack(pack) => pack.get(pack.next(find_member(pack, member)?)?).map(score_of),
            Repr::Ranked(members) => {
                Some(members.score_at(members.find(hasher.hash_member(member), member)?))
            }
        }
    }

    /// Prepares for a write of `count` members, the longest of which has `len_bytes_max` bytes.
    /// Converts a packed set to ranked members if `count` alone exceeds the limit, or if the set is
    /// empty and that member is too long.
    pub fn expect(&mut self, count: usize, len_bytes_max: usize, limits: &PackLimits, hasher: &Hasher) {
        let too_long = self.is_empty() && len_bytes_max > limits.value_len_bytes_max;
        if too_long || !limits.admit_count(count) {
            self.spread(hasher);
        }
    }

    /// Sets the score of `member` to the result of `decide`, and adds the member if necessary.
    /// `decide` gets the present score, `None` for a new member. If its result is `None`, nothing
    /// changes. O(log n); packed, O(bytes).
    ///
    /// # Errors
    /// The error of `decide`; then nothing has changed.
    ///
    /// # Panics
    /// If the new score is NaN.
    #[inline]
    pub fn update<E>(
        &mut self,
        member: &[u8],
        limits: &PackLimits,
        hasher: &Hasher,
        decide: impl FnOnce(Option<f64>) -> Result<Option<f64>, E>,
    ) -> Result<Updated, E> {
        let Repr::Ranked(members) = &mut self.repr else {
            return self.update_packed(member, limits, hasher, decide);
        };
        let position = hasher.hash_member(member);
        let found = members.find(position, member);
        let old = found.map(|place| members.score_at(place));
        let new = decide(old)?;
        match (found, new) {
            (_, None) => {}
            (Some(_), Some(score)) if Some(score) == old => {}
            (Some(place), Some(score)) => members.set_score_at(place, score),
            (None, Some(score)) => {
                members.insert(position, member, score, &|key: &[u8]| hasher.hash_member(key));
            }
        }
        Ok(Updated { old, new: new.or(old) })
    }

    fn update_packed<E>(
        &mut self,
        member: &[u8],
        limits: &PackLimits,
        hasher: &Hasher,
        decide: impl FnOnce(Option<f64>) -> Result<Option<f64>, E>,
    ) -> Result<Updated, E> {
        let Repr::Pack(pack) = &mut self.repr else { unreachable!("the caller looked") };
        let found = find_member(pack, member);
        let old = found.and_then(|at| pack.get(pack.next(at)?)).map(score_of);
        let new = decide(old)?;
        let updated = Updated { old, new: new.or(old) };
        let Some(score) = new.filter(|_| new != old) else { return Ok(updated) };
        assert!(!score.is_nan(), "a score is a number");
        if let Some(at) = found {
            pack.delete_many(at, 2);
            insert_packed(pack, member, score);
            return Ok(updated);
        }
        let packs = limits.admit_count(pack.len() / 2 + 1) && limits.admit(member);
        if packs && pack.fits(member.len()) {
            insert_packed(pack, member, score);
        } else {
            self.ranked(hasher)
                .insert(hasher.hash_member(member), member, score, &|key: &[u8]| hasher.hash_member(key));
        }
        Ok(updated)
    }

    /// Sets the score of `member`; adds the member if necessary. Costs as for [`Zset::update`].
    pub fn set(&mut self, member: &[u8], score: f64, limits: &PackLimits, hasher: &Hasher) -> Updated {
        let updated = self.update(member, limits, hasher, |_| Ok::<_, std::convert::Infallible>(Some(score)));
        match updated {
            Ok(updated) => updated,
            Err(never) => match never {},
        }
    }

    /// Converts the set to ranked members, if it is packed. O(n).
    pub fn spread(&mut self, hasher: &Hasher) {
        self.ranked(hasher);
    }

    /// Borrows the ranked members; converts a packed set to ranked members first. O(1), or O(n) for
    /// a packed set.
    fn ranked(&mut self, hasher: &Hasher) -> &mut RankedMembers {
        if let Repr::Pack(pack) = &self.repr {
            let mut members = Box::<RankedMembers>::default();
            let position_of = |key: &[u8]| hasher.hash_member(key);
            for (member, score) in pairs(pack) {
                let mut scratch = IntText::new();
                let member = member.text(&mut scratch);
                members.insert(hasher.hash_member(member), member, score, &position_of);
            }
            self.repr = Repr::Ranked(members);
        }
        match &mut self.repr {
            Repr::Ranked(members) => members,
            Repr::Pack(_) => unreachable!("replaced above"),
        }
    }

    /// Removes `member`. Returns its score; `None` if it was not in the set. O(log n); packed,
    /// O(bytes).
    pub fn remove(&mut self, member: &[u8], hasher: &Hasher) -> Option<f64> {
        match &mut self.repr {
            Repr::Pack(pack) => {
                let at = find_member(pack, member)?;
                let score = pack.get(pack.next(at)?).map(score_of);
                pack.delete_many(at, 2);
                score
            }
            Repr::Ranked(members) => {
                let place = members.find(hasher.hash_member(member), member)?;
                Some(members.remove(place).payload())
            }
        }
    }

    /// Returns the rank in the sorted set of `member` (the number of members before it) and its
    /// score; `None` if it is not in the set. O(log n); packed, O(bytes).
    pub fn rank(&self, member: &[u8], hasher: &Hasher) -> Option<(usize, f64)> {
        match &self.repr {
            Repr::Pack(pack) => {
                let at = find_member(pack, member)?;
                let score = score_of(pack.get(pack.next(at)?)?);
                Some((pack.iter_before(at).count() / 2, score))
            }
            Repr::Ranked(members) => {
                let place = members.find(hasher.hash_member(member), member)?;
                Some((members.rank(place), members.score_at(place)))
            }
        }
    }

    /// Returns the range of ranks of the members whose scores are between the bounds. O(log n);
    /// packed, O(n).
    pub fn score_ranks(&self, min: ScoreBound, max: ScoreBound) -> Range<usize> {
        let (start, end) = match &self.repr {
            Repr::Pack(pack) => (
                pairs(pack).take_while(|&(_, score)| is_before_min(score, min)).count(),
                pairs(pack).take_while(|&(_, score)| is_up_to_max(score, max)).count(),
            ),
            Repr::Ranked(members) => (
                members.partition_point(|ranked| is_before_min(ranked.score(), min)),
                members.partition_point(|ranked| is_up_to_max(ranked.score(), max)),
            ),
        };
        start.min(end)..end
    }

    /// Returns the range of ranks of the members between the lexical bounds. Meaningful only if all
    /// scores are equal. O(log n); packed, O(n).
    pub fn lex_ranks(&self, min: LexBound<'_>, max: LexBound<'_>) -> Range<usize> {
        let (start, end) = match &self.repr {
            Repr::Pack(pack) => {
                let count = |holds: &dyn Fn(&[u8]) -> bool| {
                    let members = pairs(pack).map(|(member, _)| member);
                    members.take_while(|member| holds(member.text(&mut IntText::new()))).count()
                };
                (count(&|member| min.is_before_min(member)), count(&|member| max.is_up_to_max(member)))
            }
            Repr::Ranked(members) => (
                members.partition_point(|ranked| min.is_before_min(ranked.member())),
                members.partition_point(|ranked| max.is_up_to_max(ranked.member())),
            ),
        };
        start.min(end)..end
    }

    /// Returns a double-ended iterator over the members and scores of a range of ranks. O(log n) to
    /// begin; packed, O(n).
    pub fn range(&self, ranks: Range<usize>) -> impl DoubleEndedIterator<Item = (Element<'_>, f64)> {
        match &self.repr {
            Repr::Pack(pack) => {
                let start = pack.seek(2 * ranks.start).unwrap_or(pack.end());
                let end = pack.seek(2 * ranks.end).unwrap_or(pack.end());
                OneOfTwo::A(PackedPairs { elements: pack.iter_between(start, end) })
            }
            Repr::Ranked(members) => {
                OneOfTwo::B(members.range(ranks).map(|(member, score)| (Element::Bytes(member), score)))
            }
        }
    }

    /// Returns a double-ended iterator over all members and scores, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (Element<'_>, f64)> {
        self.range(0..self.len())
    }

    /// Removes the member at `rank`, after calling `visit` with the member and its score. Returns
    /// the result of `visit`; `None` if there is no such rank. O(log n); packed, O(bytes).
    pub fn take_at<T>(
        &mut self,
        rank: usize,
        hasher: &Hasher,
        visit: impl FnOnce(Element<'_>, f64) -> T,
    ) -> Option<T> {
        match &mut self.repr {
            Repr::Pack(pack) => {
                let at = pack.seek(2 * rank)?;
                let (member, behind) = pack.get_and_next(at)?;
                let result = visit(member, score_of(pack.get(behind)?));
                pack.delete_many(at, 2);
                Some(result)
            }
            Repr::Ranked(members) => {
                let member = members.remove_at(rank, &|key: &[u8]| hasher.hash_member(key))?;
                Some(visit(Element::Bytes(member.bytes()), member.payload()))
            }
        }
    }

    /// Removes the members of a range of ranks. Returns the number removed. O(log n) each; packed,
    /// O(bytes).
    pub fn remove_ranks(&mut self, ranks: Range<usize>, hasher: &Hasher) -> usize {
        let ranks = ranks.start..ranks.end.min(self.len());
        if let Repr::Pack(pack) = &mut self.repr {
            return pack.delete_range(2 * ranks.start, 2 * ranks.len()) / 2;
        }
        for rank in ranks.clone().rev() {
            self.take_at(rank, hasher, |_, _| ());
        }
        ranks.len()
    }

    /// Draws a member uniformly. Returns the member and its score; `None` if the set is empty.
    /// Expected O(1); packed, O(n).
    pub fn random(&self, draw: impl FnMut() -> u64) -> Option<(Element<'_>, f64)> {
        if self.is_empty() {
            return None;
        }
        match &self.repr {
            Repr::Pack(_) => self.range(index_below(self.len(), draw)..usize::MAX / 2).next(),
            Repr::Ranked(members) => {
                members.random(draw).map(|(member, score)| (Element::Bytes(member), score))
            }
        }
    }

    /// Visits `count` distinct members chosen uniformly, or all members if there are no more than
    /// `count`. O(count log n); packed, O(n).
    pub fn sample(
        &self,
        count: usize,
        mut draw: impl FnMut() -> u64,
        mut visit: impl FnMut(Element<'_>, f64),
    ) {
        let mut left = count.min(self.len());
        if let Repr::Ranked(members) = &self.repr
            && count < self.len() / 3
        {
            // If few of many members are requested, ranks are drawn until enough different ones
            // were drawn.
            let mut chosen = std::collections::BTreeSet::new();
            while left > 0 {
                let rank = index_below(members.len(), &mut draw);
                if chosen.insert(rank)
                    && let Some((member, score)) = members.at_rank(rank)
                {
                    visit(Element::Bytes(member), score);
                    left -= 1;
                }
            }
            return;
        }
        let mut selection = Selection::new(self.len(), count);
        let chosen = self.iter().filter(|_| selection.next(&mut draw));
        chosen.for_each(|(member, score)| visit(member, score));
    }

    /// Returns true if the set is packed in one listpack.
    pub fn is_packed(&self) -> bool {
        matches!(self.repr, Repr::Pack(_))
    }

    /// Visits the members at `cursor`, the cursor of ZSCAN. Returns the next cursor, 0 at the end.
    /// A packed set is visited in one call. Members that exist from the first call to the last are
    /// visited. O(1); packed, O(n).
    pub fn scan(&self, cursor: u64, mut visit: impl FnMut(Element<'_>, f64)) -> u64 {
        match &self.repr {
            Repr::Ranked(members) => {
                members.scan(cursor, |member, score| visit(Element::Bytes(member), score))
            }
            Repr::Pack(pack) => {
                pairs(pack).for_each(|(member, score)| visit(member, score));
                0
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    const LIMITS: PackLimits = PackLimits { entries_max: 8, value_len_bytes_max: 10 };

    fn hasher() -> Hasher {
        Hasher::with_seed([1, 2, 3, 4])
    }

    fn text(element: Element<'_>) -> Vec<u8> {
        element.text(&mut IntText::new()).to_vec()
    }

    type Twin = BTreeMap<Vec<u8>, f64>;

    fn sorted(twin: &Twin) -> Vec<(Vec<u8>, f64)> {
        let mut sorted: Vec<_> = twin.iter().map(|(member, &score)| (member.clone(), score)).collect();
        sorted.sort_by(|a, b| order((a.1, &a.0), (b.1, &b.0)));
        sorted
    }

    fn owned<'a>(items: impl Iterator<Item = (Element<'a>, f64)>) -> Vec<(Vec<u8>, f64)> {
        items.map(|(member, score)| (text(member), score)).collect()
    }

    fn check(zset: &Zset, twin: &Twin) {
        let sorted = sorted(twin);
        assert_eq!(owned(zset.iter()), sorted);
        let mut backwards = owned(zset.iter().rev());
        backwards.reverse();
        assert_eq!(backwards, sorted);
        for (rank, (member, score)) in sorted.iter().enumerate() {
            assert_eq!(zset.rank(member, &hasher()), Some((rank, *score)));
            assert_eq!(zset.score(member, &hasher()), Some(*score));
        }
        for start in 0..sorted.len() {
            let end = (start * 7 + 3) % (sorted.len() + 3);
            let expected = sorted.get(start..end.min(sorted.len())).unwrap_or_default();
            assert_eq!(owned(zset.range(start..end)), expected, "{start}..{end}");
        }
        check_score_ranks(zset, &sorted);
        let (mut scanned, mut cursor) = (Twin::new(), 0);
        loop {
            cursor = zset.scan(cursor, |member, score| {
                scanned.insert(text(member), score);
            });
            if cursor == 0 {
                break;
            }
        }
        assert_eq!(&scanned, twin);
    }

    fn check_score_ranks(zset: &Zset, sorted: &[(Vec<u8>, f64)]) {
        let ends = [f64::NEG_INFINITY, -2.0, -1.5, 0.0, 1.0, 2.5, f64::INFINITY];
        let bound = |score, exclusive| ScoreBound { score, exclusive };
        for (min, max) in ends.into_iter().flat_map(|min| ends.map(|max| (min, max))) {
            for (min_out, max_out) in [(false, false), (false, true), (true, false), (true, true)] {
                let inside = |score: f64| {
                    (score > min || (!min_out && score == min)) && (score < max || (!max_out && score == max))
                };
                let expected: Vec<_> = sorted.iter().filter(|(_, score)| inside(*score)).cloned().collect();
                let ranks = zset.score_ranks(bound(min, min_out), bound(max, max_out));
                assert_eq!(ranks.len(), expected.len());
                assert_eq!(owned(zset.range(ranks)), expected);
            }
        }
    }

    #[test]
    fn encoding_changes_beyond_the_limits() {
        let encoding_after = |members: usize, last: &str| {
            let mut zset = Zset::new();
            for i in 0..members {
                zset.set(format!("m{i}").as_bytes(), i as f64, &LIMITS, &hasher());
            }
            zset.set(last.as_bytes(), 0.5, &LIMITS, &hasher());
            zset.encoding_name()
        };
        assert_eq!(encoding_after(7, "x"), "listpack");
        assert_eq!(encoding_after(8, "m0"), "listpack");
        assert_eq!(encoding_after(8, "x"), "skiplist");
        assert_eq!(encoding_after(0, "0123456789"), "listpack");
        assert_eq!(encoding_after(0, "0123456789a"), "skiplist");
    }

    #[test]
    fn every_kind_of_score_survives_packing() {
        let scores = [0.0, -1.0, 0.1, 1e300, -1e-300, f64::INFINITY, f64::NEG_INFINITY, 9e18, 4e18, 1.5e-9];
        let mut zset = Zset::new();
        let limits = PackLimits { entries_max: 100, ..LIMITS };
        for (i, score) in scores.into_iter().enumerate() {
            zset.set(&[i as u8], score, &limits, &hasher());
        }
        for (i, score) in scores.into_iter().enumerate() {
            assert_eq!(zset.score(&[i as u8], &hasher()), Some(score));
        }
        assert_eq!(zset.encoding_name(), "listpack");
    }

    #[test]
    fn lexical_ranges_take_bounds_of_every_kind() {
        for entries_max in [0, 100] {
            let limits = PackLimits { entries_max, ..LIMITS };
            let mut zset = Zset::new();
            for member in ["a", "aa", "b", "c", "10", "9"] {
                zset.set(member.as_bytes(), 0.0, &limits, &hasher());
            }
            // The members in order: 10 9 a aa b c.
            use LexBound::{Exclusive, Highest, Inclusive, Lowest};
            assert_eq!(zset.lex_ranks(Lowest, Highest), 0..6);
            assert_eq!(zset.lex_ranks(Inclusive(b"9"), Inclusive(b"b")), 1..5);
            assert_eq!(zset.lex_ranks(Exclusive(b"9"), Exclusive(b"b")), 2..4);
            assert_eq!(zset.lex_ranks(Exclusive(b"a"), Highest), 3..6);
            assert_eq!(zset.lex_ranks(Inclusive(b"a!"), Inclusive(b"az")), 3..4);
            assert!(zset.lex_ranks(Highest, Lowest).is_empty());
            assert!(zset.lex_ranks(Inclusive(b"c"), Inclusive(b"a")).is_empty());
        }
    }

    #[test]
    fn samples_are_distinct_and_complete() {
        for n in [1, 8, 1000] {
            let mut zset = Zset::new();
            for i in 0..n {
                zset.set(i.to_string().as_bytes(), i as f64, &LIMITS, &hasher());
            }
            let mut state = 5_u64;
            let mut draw = move || {
                state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
                state ^ state >> 32
            };
            for count in [0, 1, n / 4, n / 2, n, n + 5] {
                let mut seen = BTreeSet::new();
                zset.sample(count, &mut draw, |member, _| assert!(seen.insert(text(member))));
                assert_eq!(seen.len(), count.min(n));
            }
            assert!(zset.random(&mut draw).is_some());
        }
    }

    #[test]
    fn a_listpack_of_somebody_else_is_taken_if_it_is_sorted_and_distinct() {
        let of = |elements: &[&str]| {
            let mut pack = Listpack::new();
            elements.iter().for_each(|text| pack.push_back(text.as_bytes()).expect("small"));
            Zset::from_listpack(pack, &LIMITS, &hasher())
        };
        let zset = of(&["b", "-inf", "a", "1", "c", "1", "0", "1.5"]).expect("sorted");
        let twin = [("b", f64::NEG_INFINITY), ("a", 1.0), ("c", 1.0), ("0", 1.5)];
        check(&zset, &twin.iter().map(|&(member, score)| (member.into(), score)).collect());
        assert!(zset.as_listpack().is_some());
        assert_eq!(of(&["a", "1", "b"]).err(), Some(PackDefect::HalfPair));
        assert_eq!(of(&["a", "1", "b", "nan"]).err(), Some(PackDefect::Score));
        assert_eq!(of(&["a", "1", "b", ""]).err(), Some(PackDefect::Score));
        assert_eq!(of(&["a", "2", "b", "1"]).err(), Some(PackDefect::Order));
        assert_eq!(of(&["b", "1", "a", "1"]).err(), Some(PackDefect::Order));
        assert_eq!(of(&["a", "1", "a", "1"]).err(), Some(PackDefect::Duplicate));
        assert_eq!(of(&["a", "1", "a", "2"]).err(), Some(PackDefect::Duplicate));
        let many: Vec<String> = (0..18).map(|i| (i / 2 + i % 2).to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(of(&many).map(|zset| zset.encoding_name()), Ok("skiplist"));
    }

    fn member() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            6 => (0..40_i64).prop_map(|i| i.to_string().into_bytes()),
            1 => prop::collection::vec(any::<u8>(), 0..12),
        ]
    }

    fn score() -> impl Strategy<Value = f64> {
        prop_oneof![
            4 => (-3..3_i8).prop_map(f64::from),
            1 => (-3..3_i8).prop_map(|tenths| f64::from(tenths) / 10.0),
            1 => prop_oneof![Just(f64::INFINITY), Just(f64::NEG_INFINITY)],
        ]
    }

    proptest! {
        #[test]
        fn any_sequence_leaves_what_a_map_holds(
            steps in prop::collection::vec((0..10_u8, member(), score()), 0..150)
        ) {
            let (mut zset, mut twin) = (Zset::new(), Twin::new());
            let hasher = hasher();
            for (kind, member, score) in steps {
                match kind {
                    0..=5 => {
                        let updated = zset.set(&member, score, &LIMITS, &hasher);
                        prop_assert_eq!(updated, Updated { old: twin.insert(member, score), new: Some(score) });
                    }
                    6 => prop_assert_eq!(zset.remove(&member, &hasher), twin.remove(&member)),
                    7 => {
                        let updated = zset.update(&member, &LIMITS, &hasher, |_| Err::<Option<f64>, _>("no"));
                        prop_assert_eq!(updated, Err("no"));
                    }
                    8 => {
                        let rank = member.len();
                        let expected = sorted(&twin).get(rank).cloned();
                        let taken = zset.take_at(rank, &hasher, |member, score| (text(member), score));
                        prop_assert_eq!(&taken, &expected);
                        expected.and_then(|(member, _)| twin.remove(&member));
                    }
                    _ => {
                        let ranks = member.len()..member.len() * 3 / 2;
                        let sorted = sorted(&twin);
                        let gone = sorted.get(ranks.start..ranks.end.min(sorted.len())).unwrap_or_default();
                        prop_assert_eq!(zset.remove_ranks(ranks, &hasher), gone.len());
                        gone.iter().for_each(|(member, _)| { twin.remove(member); });
                    }
                }
            }
            check(&zset, &twin);
            check(&zset.clone(), &twin);
        }
    }
}
