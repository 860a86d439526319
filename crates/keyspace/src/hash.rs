//! The hash type: a listpack of fields and values for few short fields, a table for all other
//! hashes.
//!
//! A packed hash is one block, `field value field value …`. A larger hash is a table of pairs. A
//! field with its value is one allocation, which is overwritten in place if the size class stays
//! the same. In a table, finding, setting, removing and choosing at random are O(1). A table does
//! not become packed again.
//!
//! Fields may have deadlines. A packed hash then becomes a listpack of triples (`timed_pack`), and
//! remains one. In a table each pair may have its own deadline (`pairs`). A lower bound of the
//! nearest deadline of a hash can be read in O(1). A hash without deadlines uses no memory for
//! them. A field is *due* when its deadline has passed. It stays until it is explicitly removed.
//! The methods of [`Hash`] include due fields; those of [`Hash::live`] do not.

use crate::freeing::FreeingSteps;
use structures::listpack::element::{Element, IntText};
use structures::listpack::{Cursor, Listpack};
use structures::table::Table;
use structures::walk_state::WalkState;

use crate::expiry::Expiry;
use crate::key::Hasher;
use crate::limits::PackLimits;
use crate::one_of::OneOfTwo;
use crate::packed::PackDefect;
use crate::sample::{Selection, index_below, sample_table};

mod pairs;
mod timed_pack;

use pairs::Pairs;
use timed_pack::{STRIDE, TimedPack, deadline_of};

/// A map of fields to values. See the module's comment.
#[derive(Clone)]
pub struct Hash {
    repr: Repr,
}

#[derive(Clone)]
enum Repr {
    /// A listpack of few short fields with their values, none with a deadline.
    Pack(Listpack),
    /// All other hashes, behind a pointer so that an object stays three words.
    Boxed(Box<Boxed>),
}

#[derive(Clone)]
enum Boxed {
    Table(Pairs),
    /// A listpack of few short fields of a hash that has, or has had, deadlines.
    Timed(TimedPack),
}

// A whole size class. Deadlines must not cost memory in hashes without any.
const _: () = assert!(size_of::<Boxed>() <= 64);

/// A field of a hash with its value and deadline, borrowed from the hash.
#[derive(Clone, Copy, Debug)]
pub struct HashField<'a> {
    /// The name of the field.
    pub name: Element<'a>,
    /// The value of the field.
    pub value: Element<'a>,
    /// The deadline (expiry) of the field, in Unix milliseconds; `None` if the field does not
    /// expire.
    pub deadline_ms: Option<i64>,
}

/// A field that a command writes, with its new value.
#[derive(Clone, Copy, Debug)]
pub struct FieldWrite<'a> {
    /// The name of the field that is written.
    pub name: &'a [u8],
    /// The new value of the field.
    pub value: &'a [u8],
    /// The effect of the write on the field's deadline.
    pub expiry: Expiry,
}

/// The result of a search for a field that must not have expired.
#[derive(Clone, Copy, Debug)]
pub enum Lookup<'a> {
    /// The field has this value and has not expired.
    Live(Element<'a>),
    /// The field has expired (is due), but is not yet removed: for clients it is absent.
    Due,
    /// The hash has no such field.
    Absent,
}

impl<'a> Lookup<'a> {
    /// Returns the value of a field that has not expired ([`Lookup::Live`]), else `None`.
    #[inline]
    pub fn live(self) -> Option<Element<'a>> {
        if let Lookup::Live(value) = self { Some(value) } else { None }
    }
}

#[inline]
fn is_due(deadline_ms: Option<i64>, now_ms: i64) -> bool {
    deadline_ms.is_some_and(|at_ms| at_ms <= now_ms)
}

impl Default for Hash {
    fn default() -> Self {
        Self { repr: Repr::Pack(Listpack::new()) }
    }
}

impl std::fmt::Debug for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hash({}, {} fields)", self.encoding_name(), self.len())
    }
}

/// Returns the cursor at the name of `field` in a packed hash without deadlines; `None` if there is
/// no such field.
#[inline]
fn find_field(pack: &Listpack, field: &[u8]) -> Option<Cursor> {
    pack.find(pack.first()?, field, 1)
}

/// The layout of a packed hash: the listpack elements of each field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Two listpack elements for each field: name and value.
    Pairs,
    /// Three listpack elements for each field: name, value and deadline.
    Triples,
}

impl Form {
    /// Returns the number of listpack elements that a field takes in this layout.
    #[inline]
    fn stride(self) -> usize {
        match self {
            Form::Pairs => 2,
            Form::Triples => STRIDE,
        }
    }
}

/// Returns an iterator over the fields of a packed hash, due fields included.
fn packed_fields(pack: &Listpack, form: Form) -> impl Iterator<Item = HashField<'_>> {
    let mut elements = pack.iter();
    std::iter::from_fn(move || {
        let (name, value) = (elements.next()?, elements.next()?);
        let deadline_ms = match form {
            Form::Pairs => None,
            Form::Triples => deadline_of(elements.next()?),
        };
        Some(HashField { name, value, deadline_ms })
    })
}

/// The structure that holds the fields of a hash: a listpack, or a table.
enum Parts<'a> {
    Packed(&'a Listpack, Form),
    Table(&'a Pairs),
}

impl Hash {
    /// Creates an empty hash. One allocation.
    pub fn new() -> Self {
        Self::default()
    }

    fn boxed(boxed: Boxed) -> Repr {
        Repr::Boxed(Box::new(boxed))
    }

    #[inline]
    fn parts(&self) -> Parts<'_> {
        match &self.repr {
            Repr::Pack(pack) => Parts::Packed(pack, Form::Pairs),
            Repr::Boxed(boxed) => match &**boxed {
                Boxed::Table(pairs) => Parts::Table(pairs),
                Boxed::Timed(timed) => Parts::Packed(&timed.pack, Form::Triples),
            },
        }
    }

    /// Creates a hash of the fields and values in `pack`, which is not trusted. The hash is packed
    /// unless `pack` has more fields than `limits` allow. O(n log n).
    ///
    /// # Errors
    /// If a field has no value, or occurs twice.
    pub fn from_listpack(pack: Listpack, limits: &PackLimits, hasher: &Hasher) -> Result<Self, PackDefect> {
        if !pack.len().is_multiple_of(2) {
            return Err(PackDefect::HalfPair);
        }
        if !pack.are_distinct(1) {
            return Err(PackDefect::Duplicate);
        }
        let mut hash = Self { repr: Repr::Pack(pack) };
        if !limits.admit_count(hash.len()) {
            hash.spread(hasher);
        }
        Ok(hash)
    }

    /// Creates a hash of the fields, values and deadlines (0 for none) in `pack`, which is not
    /// trusted. The form is that of [`Hash::as_timed_listpack`]. The hash is packed unless `pack`
    /// has more fields than `limits` allow. O(n log n).
    ///
    /// # Errors
    /// If a field has no value or deadline, or occurs twice; if a deadline is invalid, or deadlines
    /// are not in ascending order.
    pub fn from_timed_listpack(
        pack: Listpack,
        limits: &PackLimits,
        hasher: &Hasher,
    ) -> Result<Self, PackDefect> {
        let mut hash = Self { repr: Self::boxed(Boxed::Timed(TimedPack::from_listpack(pack)?)) };
        if !limits.admit_count(hash.len()) {
            hash.spread(hasher);
        }
        Ok(hash)
    }

    /// Borrows the listpack of a packed hash that never had deadlines: each field before its value.
    /// Returns `None` for other hashes. O(1).
    pub fn as_listpack(&self) -> Option<&Listpack> {
        if let Repr::Pack(pack) = &self.repr { Some(pack) } else { None }
    }

    /// Borrows the listpack of a packed hash that has or had deadlines: fields, values and
    /// deadlines in Unix milliseconds (0 for none). The earliest deadline comes first; fields
    /// without one come last. Returns `None` for other hashes. O(1).
    pub fn as_timed_listpack(&self) -> Option<&Listpack> {
        if let Parts::Packed(pack, Form::Triples) = self.parts() { Some(pack) } else { None }
    }

    /// Returns the number of fields, including those that have expired but are not yet removed.
    /// O(1).
    #[inline]
    pub fn len(&self) -> usize {
        match self.parts() {
            Parts::Packed(pack, form) => pack.len() / form.stride(),
            Parts::Table(pairs) => pairs.table.len(),
        }
    }

    /// Returns true if the hash has no fields. O(1).
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Starts loading the bucket that a search for a field with this hash reads first. Does nothing
    /// for a packed hash. O(1).
    #[inline]
    pub fn prefetch_bucket(&self, member_hash: u64) {
        if let Some(table) = self.table() {
            table.prefetch_bucket(member_hash);
        }
    }

    /// Starts loading the field with this hash and name length. For use after
    /// [`prefetch_bucket`](Self::prefetch_bucket) has loaded its bucket. O(1).
    #[inline]
    pub fn prefetch_member(&self, member_hash: u64, len_bytes: usize) {
        if let Some(table) = self.table() {
            table.prefetch_element(member_hash, len_bytes);
        }
    }

    /// Returns the name of the hash's encoding for OBJECT ENCODING.
    pub fn encoding_name(&self) -> &'static str {
        match self.parts() {
            Parts::Packed(_, Form::Pairs) => "listpack",
            Parts::Packed(_, Form::Triples) => "listpackex",
            Parts::Table(_) => "hashtable",
        }
    }

    /// Returns the approximate bytes that the hash owns outside its key's block. The buckets of a
    /// table count with their mean fill. O(1).
    #[inline]
    pub fn len_bytes(&self) -> usize {
        match self.parts() {
            Parts::Packed(pack, _) => pack.len_bytes(),
            Parts::Table(pairs) => pairs.len_bytes(),
        }
    }

    /// Returns the bytes that the hash owns outside its key's block. Estimated for a big table. O(n
    /// / 60) up to a bound.
    pub fn memory_usage(&self) -> usize {
        match self.parts() {
            Parts::Packed(pack, Form::Pairs) => pack.memory_usage(),
            Parts::Packed(pack, Form::Triples) => pack.memory_usage() + size_of::<Boxed>(),
            Parts::Table(pairs) => size_of::<Boxed>() + pairs.memory_usage(),
        }
    }

    /// Converts the hash to an iterator that frees one field in each step; a packed hash takes one
    /// step. O(1).
    pub fn into_freed(self) -> FreeingSteps {
        match self.repr {
            Repr::Boxed(boxed) => match *boxed {
                Boxed::Table(pairs) => Box::new(pairs.table.into_table().into_drain().map(drop)),
                Boxed::Timed(timed) => Box::new(std::iter::once(timed).map(drop)),
            },
            Repr::Pack(pack) => Box::new(std::iter::once(pack).map(drop)),
        }
    }

    /// Returns the value and deadline (Unix milliseconds) of `field`, expired or not; `None` if
    /// there is no such field. O(1); packed, O(bytes).
    #[inline]
    pub fn find(&self, field: &[u8], hasher: &Hasher) -> Option<(Element<'_>, Option<i64>)> {
        match &self.repr {
            Repr::Pack(pack) => Some((pack.get(pack.next(find_field(pack, field)?)?)?, None)),
            Repr::Boxed(boxed) => match &**boxed {
                Boxed::Table(pairs) => {
                    let pair = pairs.table.get(hasher.hash_member(field), field)?;
                    Some((Element::Bytes(pair.value()), pair.deadline_ms()))
                }
                Boxed::Timed(timed) => timed.value_and_deadline(timed.find(field)?),
            },
        }
    }

    /// Returns the value of `field`, expired or not; `None` if there is no such field. O(1);
    /// packed, O(bytes).
    #[inline]
    pub fn get(&self, field: &[u8], hasher: &Hasher) -> Option<Element<'_>> {
        self.find(field, hasher).map(|(value, _)| value)
    }

    /// Looks up `field`; returns its value unless the field has expired at `now_ms`. O(1); packed,
    /// O(bytes).
    #[inline]
    pub fn look_up(&self, field: &[u8], now_ms: i64, hasher: &Hasher) -> Lookup<'_> {
        match self.find(field, hasher) {
            None => Lookup::Absent,
            Some((_, deadline_ms)) if is_due(deadline_ms, now_ms) => Lookup::Due,
            Some((value, _)) => Lookup::Live(value),
        }
    }

    /// Returns a view of the fields that have not expired at `now_ms`.
    #[inline]
    pub fn live(&self, now_ms: i64) -> LiveFields<'_> {
        // If the nearest deadline is in the future, no field needs a check.
        let has_due = is_due(self.next_deadline_ms(), now_ms);
        LiveFields { hash: self, due_until_ms: has_due.then_some(now_ms) }
    }

    /// Prepares the hash for a write of `count` fields. Converts a packed hash to a table if
    /// `count` alone exceeds the limit; then O(n).
    pub fn expect(&mut self, count: usize, limits: &PackLimits, hasher: &Hasher) {
        if !limits.admit_count(count) {
            self.spread(hasher);
        }
    }

    /// Prepares a packed hash for deadlines of its fields: converts a listpack of pairs to one of
    /// triples. O(bytes) on the first call for a hash, then O(1).
    pub fn expect_deadlines(&mut self) {
        if let Repr::Pack(pack) = &self.repr {
            self.repr = Self::boxed(Boxed::Timed(TimedPack::of_pairs(pack)));
        }
    }

    /// Sets `field` to `value` and clears its deadline. Returns true if the field is new; a due
    /// field that is still stored is not new. O(1) amortised; packed, O(bytes).
    #[inline]
    pub fn set(&mut self, field: &[u8], value: &[u8], limits: &PackLimits, hasher: &Hasher) -> bool {
        self.set_with_expiry(FieldWrite { name: field, value, expiry: Expiry::Clear }, limits, hasher)
    }

    /// Sets a field's value and changes its deadline as `write` says. Returns true if the field is
    /// new. O(1) amortised; packed, O(bytes).
    #[inline]
    pub fn set_with_expiry(&mut self, write: FieldWrite<'_>, limits: &PackLimits, hasher: &Hasher) -> bool {
        let FieldWrite { name, value, expiry } = write;
        if let Repr::Boxed(boxed) = &mut self.repr
            && let Boxed::Table(pairs) = &mut **boxed
        {
            return pairs.set(name, value, expiry, hasher);
        }
        if matches!(expiry, Expiry::At(_)) {
            self.expect_deadlines();
        }
        self.set_packed(&write, limits, hasher)
    }

    fn set_packed(&mut self, write: &FieldWrite<'_>, limits: &PackLimits, hasher: &Hasher) -> bool {
        let &FieldWrite { name, value, expiry } = write;
        let fits = |pack: &Listpack| {
            limits.admit(name) && limits.admit(value) && pack.fits(name.len() + value.len())
        };
        let new = match &mut self.repr {
            Repr::Pack(pack) if fits(pack) => {
                let found = find_field(pack, name).and_then(|at| pack.next(at));
                let stored = match found {
                    Some(at) => pack.replace(at, value),
                    None => pack.extend_back(&[Element::Bytes(name), Element::Bytes(value)]),
                };
                stored.expect("`fits` said that this much more is not refused");
                Some(found.is_none())
            }
            Repr::Pack(_) => None,
            Repr::Boxed(boxed) => match &mut **boxed {
                Boxed::Timed(timed) if fits(&timed.pack) => Some(timed.set(name, value, expiry)),
                Boxed::Timed(_) => None,
                Boxed::Table(pairs) => return pairs.set(name, value, expiry, hasher),
            },
        };
        let Some(new) = new else {
            self.spread(hasher);
            return self.set_packed(write, limits, hasher);
        };
        if new && !limits.admit_count(self.len()) {
            self.spread(hasher);
        }
        new
    }

    /// Converts a packed hash to a table. O(n).
    fn spread(&mut self, hasher: &Hasher) {
        let Parts::Packed(pack, form) = self.parts() else { return };
        let mut pairs = Pairs::default();
        for field in packed_fields(pack, form) {
            let (mut name, mut value) = (IntText::new(), IntText::new());
            let expiry = field.deadline_ms.map_or(Expiry::Clear, Expiry::At);
            pairs.set(field.name.text(&mut name), field.value.text(&mut value), expiry, hasher);
        }
        self.repr = Self::boxed(Boxed::Table(pairs));
    }

    /// Sets or clears the deadline of `field`, in Unix milliseconds. Returns true if the field
    /// exists. O(1); packed, O(bytes).
    pub fn set_deadline_ms(&mut self, field: &[u8], deadline_ms: Option<i64>, hasher: &Hasher) -> bool {
        if deadline_ms.is_some() {
            self.expect_deadlines();
        }
        match &mut self.repr {
            Repr::Pack(pack) => find_field(pack, field).is_some(),
            Repr::Boxed(boxed) => match &mut **boxed {
                Boxed::Table(pairs) => pairs.set_deadline_ms(field, deadline_ms, hasher),
                Boxed::Timed(timed) => timed.set_deadline_ms(field, deadline_ms),
            },
        }
    }

    /// Returns a Unix time in milliseconds before which no field becomes due; `None` if no field
    /// has a deadline. O(1).
    #[inline]
    pub fn next_deadline_ms(&self) -> Option<i64> {
        match &self.repr {
            Repr::Pack(_) => None,
            Repr::Boxed(boxed) => match &**boxed {
                Boxed::Table(pairs) => pairs.next_deadline_ms(),
                Boxed::Timed(timed) => timed.next_deadline_ms(),
            },
        }
    }

    /// Removes fields that are due at `now_ms`, at most about `fields_max`, and calls `each` with
    /// their names. Returns the number removed. Afterwards [`Hash::next_deadline_ms`] is later than
    /// `now_ms` if all due fields were removed. O(fields removed + n / 400).
    pub fn remove_due(&mut self, now_ms: i64, fields_max: usize, each: impl FnMut(Element<'_>)) -> usize {
        match &mut self.repr {
            Repr::Pack(_) => 0,
            Repr::Boxed(boxed) => match &mut **boxed {
                Boxed::Table(pairs) => pairs.remove_due(now_ms, fields_max, each),
                Boxed::Timed(timed) => timed.remove_due(now_ms, fields_max, each),
            },
        }
    }

    /// Removes all fields that are due at `now_ms`, and calls `each` with their names. Returns the
    /// number removed. O(fields removed + n / 400).
    pub fn remove_all_due(&mut self, now_ms: i64, mut each: impl FnMut(Element<'_>)) -> usize {
        let mut removed = 0;
        while is_due(self.next_deadline_ms(), now_ms) {
            removed += self.remove_due(now_ms, usize::MAX, &mut each);
        }
        removed
    }

    /// Removes `field` if it is due at `now_ms`. Returns true if it has removed it. O(1); packed,
    /// O(bytes).
    pub fn remove_if_due(&mut self, field: &[u8], now_ms: i64, hasher: &Hasher) -> bool {
        matches!(self.look_up(field, now_ms, hasher), Lookup::Due) && self.remove(field, hasher)
    }

    /// Removes `field`, expired or not. Returns false if it did not exist. O(1) amortised; packed,
    /// O(bytes).
    pub fn remove(&mut self, field: &[u8], hasher: &Hasher) -> bool {
        let (pack, found, stride) = match &mut self.repr {
            Repr::Pack(pack) => {
                let found = find_field(pack, field);
                (pack, found, 2)
            }
            Repr::Boxed(boxed) => match &mut **boxed {
                Boxed::Table(pairs) => return pairs.remove(field, hasher),
                Boxed::Timed(timed) => {
                    let found = timed.find(field);
                    (&mut timed.pack, found, STRIDE)
                }
            },
        };
        let Some(at) = found else { return false };
        pack.delete_many(at, stride);
        true
    }

    /// Returns all fields with their values and deadlines, expired ones too. A packed hash returns
    /// them in the order of their deadlines; of equal deadlines, the one set last comes first.
    /// Fields without a deadline come last, in the order of insertion. A table returns fields in no
    /// particular order.
    pub fn fields(&self) -> impl Iterator<Item = HashField<'_>> {
        match self.parts() {
            Parts::Packed(pack, form) => OneOfTwo::A(packed_fields(pack, form)),
            Parts::Table(pairs) => OneOfTwo::B(pairs.table.iter().map(|pair| HashField {
                name: Element::Bytes(pair.field()),
                value: Element::Bytes(pair.value()),
                deadline_ms: pair.deadline_ms(),
            })),
        }
    }

    /// Returns all fields and values, expired ones too, in the order of [`Hash::fields`].
    pub fn iter(&self) -> impl Iterator<Item = (Element<'_>, Element<'_>)> {
        self.fields().map(|field| (field.name, field.value))
    }

    /// Draws a field of the hash uniformly, expired or not. Returns the field and its value; `None`
    /// if the hash is empty. Expected O(1); packed, O(n).
    pub fn random(&self, draw: impl FnMut() -> u64) -> Option<(Element<'_>, Element<'_>)> {
        if self.is_empty() {
            return None;
        }
        match self.parts() {
            Parts::Packed(pack, form) => {
                let at = pack.seek(form.stride() * index_below(self.len(), draw))?;
                let (field, behind) = pack.get_and_next(at)?;
                Some((field, pack.get(behind)?))
            }
            Parts::Table(pairs) => {
                let pair = pairs.table.at(pairs.table.random(draw)?);
                Some((Element::Bytes(pair.field()), Element::Bytes(pair.value())))
            }
        }
    }

    /// Visits `count` distinct fields of the hash chosen uniformly, or all fields if there are no
    /// more than `count`. Expired fields may be among them. Expected O(count); packed, O(n).
    pub fn sample(
        &self,
        count: usize,
        mut draw: impl FnMut() -> u64,
        mut visit: impl FnMut(Element<'_>, Element<'_>),
    ) {
        match self.parts() {
            Parts::Table(pairs) => sample_table(&pairs.table, count, draw, |pair| {
                visit(Element::Bytes(pair.field()), Element::Bytes(pair.value()));
            }),
            Parts::Packed(pack, form) => {
                let mut selection = Selection::new(self.len(), count);
                let chosen = packed_fields(pack, form).filter(|_| selection.next(&mut draw));
                chosen.for_each(|field| visit(field.name, field.value));
            }
        }
    }

    /// Returns true if the hash is a table. O(1).
    pub(crate) fn is_table(&self) -> bool {
        matches!(self.parts(), Parts::Table(_))
    }

    fn pairs_mut(&mut self) -> Option<&mut Pairs> {
        match &mut self.repr {
            Repr::Boxed(boxed) => match &mut **boxed {
                Boxed::Table(pairs) => Some(pairs),
                Boxed::Timed(_) => None,
            },
            Repr::Pack(_) => None,
        }
    }

    /// Starts a snapshot's walk, which reads the present state of a table while the hash changes;
    /// [`Hash::walk_next`] visits its fields. Does nothing for a packed hash. O(1).
    pub(crate) fn begin_walk(&mut self, walk_state: WalkState) {
        if let Some(pairs) = self.pairs_mut() {
            pairs.table.begin(walk_state);
        }
    }

    /// Returns the ticket ([`WalkState::ticket`]) that identifies the snapshot's walk of the hash;
    /// `None` if there is none. O(1).
    pub(crate) fn ticket(&self) -> Option<u32> {
        if let Parts::Table(pairs) = self.parts() { pairs.table.ticket() } else { None }
    }

    /// Returns a lower bound of the expiry times of the fields of a hash stored as a table, in Unix
    /// milliseconds. Returns `None` if no field expires. For a hash stored as a listpack, returns
    /// `None` without looking at its fields. O(1) if no field expires, else O(n / 400) for n
    /// fields.
    pub(crate) fn deadline_bound_ms(&self) -> Option<i64> {
        if let Parts::Table(pairs) = self.parts() { pairs.deadline_bound_ms() } else { None }
    }

    /// Visits about the next `fields_max` fields of the snapshot's walk that [`Hash::begin_walk`]
    /// started. Returns true if there are more.
    pub(crate) fn walk_next(&mut self, fields_max: usize, mut visit: impl FnMut(HashField<'_>)) -> bool {
        let Some(pairs) = self.pairs_mut() else { return false };
        pairs.table.walk_next(fields_max, |pair| {
            visit(HashField {
                name: Element::Bytes(pair.field()),
                value: Element::Bytes(pair.value()),
                deadline_ms: pair.deadline_ms(),
            });
        })
    }

    /// Borrows the table of fields; `None` if the hash is packed.
    fn table(&self) -> Option<&Table<structures::pair::Pair>> {
        if let Parts::Table(pairs) = self.parts() { Some(&*pairs.table) } else { None }
    }
}

/// The fields of a hash that have not expired. See [`Hash::live`].
#[derive(Clone, Copy)]
pub struct LiveFields<'a> {
    hash: &'a Hash,
    /// The time up to which deadlines are due, in Unix milliseconds; `None` if no field is due.
    due_until_ms: Option<i64>,
}

impl<'a> LiveFields<'a> {
    #[inline]
    fn has(self, deadline_ms: Option<i64>) -> bool {
        self.due_until_ms.is_none_or(|now_ms| !is_due(deadline_ms, now_ms))
    }

    /// Returns the number of fields that have not expired. O(1) if no field has expired, else O(n).
    pub fn count(self) -> usize {
        match self.due_until_ms {
            None => self.hash.len(),
            Some(_) => self.hash.fields().filter(|field| self.has(field.deadline_ms)).count(),
        }
    }

    /// Returns the fields that have not expired, with their values, in the order of
    /// [`Hash::fields`].
    pub fn iter(self) -> impl Iterator<Item = (Element<'a>, Element<'a>)> {
        let live = self.hash.fields().filter(move |field| self.has(field.deadline_ms));
        live.map(|field| (field.name, field.value))
    }

    /// Visits the fields at `cursor`, the cursor of HSCAN, that have not expired. Returns the next
    /// cursor, 0 at the end. A packed hash is visited in one call. Fields that exist from the first
    /// call to the last are visited. O(1); packed, O(n).
    pub fn scan(self, cursor: u64, mut visit: impl FnMut(Element<'_>, Element<'_>)) -> u64 {
        let Some(table) = self.hash.table() else {
            self.iter().for_each(|(field, value)| visit(field, value));
            return 0;
        };
        table.scan(cursor, |pair| {
            if self.has(pair.deadline_ms()) {
                visit(Element::Bytes(pair.field()), Element::Bytes(pair.value()));
            }
        })
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

    fn check(hash: &Hash, twin: &BTreeMap<Vec<u8>, Vec<u8>>) {
        let pairs: BTreeMap<_, _> = hash.iter().map(|(field, value)| (text(field), text(value))).collect();
        assert_eq!(&pairs, twin);
        assert_eq!(hash.len(), twin.len());
        let (mut scanned, mut cursor) = (BTreeMap::new(), 0);
        loop {
            cursor = hash.live(0).scan(cursor, |field, value| {
                scanned.insert(text(field), text(value));
            });
            if cursor == 0 {
                break;
            }
        }
        assert_eq!(&scanned, twin);
    }

    #[test]
    fn encoding_changes_beyond_the_limits() {
        let encoding_after = |fields: usize, field: &str, value: &str| {
            let mut hash = Hash::new();
            for i in 0..fields {
                hash.set(format!("f{i}").as_bytes(), b"v", &LIMITS, &hasher());
            }
            hash.set(field.as_bytes(), value.as_bytes(), &LIMITS, &hasher());
            hash.encoding_name()
        };
        assert_eq!(encoding_after(7, "x", "y"), "listpack");
        assert_eq!(encoding_after(8, "f1", "y"), "listpack");
        assert_eq!(encoding_after(8, "x", "y"), "hashtable");
        assert_eq!(encoding_after(0, "0123456789", "0123456789"), "listpack");
        assert_eq!(encoding_after(0, "0123456789a", ""), "hashtable");
        assert_eq!(encoding_after(0, "", "0123456789a"), "hashtable");
    }

    #[test]
    fn a_hundred_thousand_fields_and_values_of_16_bytes_take_at_most_61_bytes_each() {
        let mut hash = Hash::new();
        for i in 0..100_000 {
            let (field, value) = (format!("field:{i:010}"), format!("value:{i:010}"));
            assert!(hash.set(field.as_bytes(), value.as_bytes(), &LIMITS, &hasher()));
        }
        assert!(hash.memory_usage() <= 6_100_000, "{}", hash.memory_usage());
    }

    #[test]
    fn samples_are_distinct_and_complete() {
        for n in [1, 8, 100, 1000] {
            let mut hash = Hash::new();
            for i in 0..n {
                hash.set(format!("{i}").as_bytes(), b"v", &LIMITS, &hasher());
            }
            let mut state = 5_u64;
            let mut draw = move || {
                state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
                state ^ state >> 32
            };
            for count in [0, 1, n / 4, n / 2, n, n + 5] {
                let mut seen = BTreeSet::new();
                hash.sample(count, &mut draw, |field, _| assert!(seen.insert(text(field))));
                assert_eq!(seen.len(), count.min(n));
            }
            let (field, _) = hash.random(&mut draw).expect("it is not empty");
            assert!(hash.get(&text(field), &hasher()).is_some());
        }
    }

    #[test]
    fn a_listpack_of_somebody_else_is_taken_if_its_fields_are_distinct() {
        let of = |elements: &[&str]| {
            let mut pack = Listpack::new();
            elements.iter().for_each(|text| pack.push_back(text.as_bytes()).expect("small"));
            Hash::from_listpack(pack, &LIMITS, &hasher())
        };
        let hash = of(&["a", "1", "1", "a"]).expect("two fields");
        check(&hash, &BTreeMap::from([(b"1".into(), b"a".into()), (b"a".into(), b"1".into())]));
        assert!(hash.as_listpack().is_some());
        assert_eq!(of(&["a", "1", "b"]).err(), Some(PackDefect::HalfPair));
        assert_eq!(of(&["a", "1", "b", "2", "a", "3"]).err(), Some(PackDefect::Duplicate));
        let many: Vec<String> = (0..18).map(|i| i.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let hash = of(&many).expect("nine fields");
        assert_eq!((hash.len(), hash.encoding_name()), (9, "hashtable"));
    }

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            6 => (0..20_i64).prop_map(|i| i.to_string().into_bytes()),
            1 => prop::collection::vec(any::<u8>(), 0..12),
        ]
    }

    proptest! {
        #[test]
        fn any_sequence_leaves_what_a_map_holds(
            steps in prop::collection::vec((0..8_u8, bytes(), bytes()), 0..200)
        ) {
            let (mut hash, mut twin) = (Hash::new(), BTreeMap::new());
            let hasher = hasher();
            for (kind, field, value) in steps {
                match kind {
                    0..=4 => {
                        let new = hash.set(&field, &value, &LIMITS, &hasher);
                        prop_assert_eq!(new, twin.insert(field, value).is_none());
                    }
                    5 => prop_assert_eq!(hash.remove(&field, &hasher), twin.remove(&field).is_some()),
                    _ => prop_assert_eq!(hash.get(&field, &hasher).map(text), twin.get(&field).cloned()),
                }
            }
            check(&hash, &twin);
            check(&hash.clone(), &twin);
        }

        #[test]
        fn fields_with_deadlines_leave_what_a_map_with_a_clock_holds(
            entries_max in prop_oneof![Just(2_usize), Just(8), Just(1000)],
            steps in prop::collection::vec((0..12_u8, bytes(), bytes(), 0..2_000_i64), 0..200)
        ) {
            let limits = PackLimits { entries_max, value_len_bytes_max: 10 };
            let (mut hash, mut twin, mut now_ms) = (Hash::new(), Twin::new(), 0);
            let hasher = hasher();
            let write = |hash: &mut Hash, name: &[u8], value: &[u8], expiry: Expiry| {
                hash.set_with_expiry(FieldWrite { name, value, expiry }, &limits, &hasher)
            };
            for (kind, field, value, by_ms) in steps {
                let at_ms = now_ms + 1 + by_ms;
                let had = twin.get(&field).and_then(|(_, deadline_ms)| *deadline_ms);
                match kind {
                    0 | 1 => {
                        let new = hash.set(&field, &value, &limits, &hasher);
                        prop_assert_eq!(new, twin.insert(field, (value, None)).is_none());
                    }
                    2 | 3 => {
                        let new = write(&mut hash, &field, &value, Expiry::At(at_ms));
                        prop_assert_eq!(new, twin.insert(field, (value, Some(at_ms))).is_none());
                    }
                    4 => {
                        let new = write(&mut hash, &field, &value, Expiry::Keep);
                        prop_assert_eq!(new, twin.insert(field, (value, had)).is_none());
                    }
                    5 | 6 => {
                        let deadline_ms = (kind == 5).then_some(at_ms);
                        let there = hash.set_deadline_ms(&field, deadline_ms, &hasher);
                        prop_assert_eq!(there, twin.contains_key(&field));
                        twin.entry(field).and_modify(|entry| entry.1 = deadline_ms);
                    }
                    7 => prop_assert_eq!(hash.remove(&field, &hasher), twin.remove(&field).is_some()),
                    8 => {
                        let due = had.is_some_and(|at_ms| at_ms <= now_ms);
                        prop_assert_eq!(hash.remove_if_due(&field, now_ms, &hasher), due);
                        if due {
                            twin.remove(&field);
                        }
                    }
                    9 => {
                        now_ms += by_ms;
                        let due = twin.values().filter(|entry| is_due(entry.1, now_ms)).count();
                        prop_assert_eq!(hash.remove_all_due(now_ms, |_| {}), due);
                        twin.retain(|_, entry| !is_due(entry.1, now_ms));
                    }
                    _ => now_ms += by_ms / 2,
                }
                check_timed(&hash, &twin, now_ms);
            }
            check_timed(&hash.clone(), &twin, now_ms);
            if let Some(pack) = hash.as_timed_listpack() {
                let again = Hash::from_timed_listpack(pack.clone(), &limits, &hasher);
                check_timed(&again.expect("it is what we wrote"), &twin, now_ms);
            }
        }
    }

    type Twin = BTreeMap<Vec<u8>, (Vec<u8>, Option<i64>)>;

    fn check_timed(hash: &Hash, twin: &Twin, now_ms: i64) {
        let all = hash.fields().map(|field| (text(field.name), (text(field.value), field.deadline_ms)));
        assert_eq!(&all.collect::<Twin>(), twin);
        let live: BTreeMap<_, _> =
            hash.live(now_ms).iter().map(|(name, value)| (text(name), text(value))).collect();
        let alive = twin.iter().filter(|(_, entry)| !is_due(entry.1, now_ms));
        let alive: BTreeMap<_, _> = alive.map(|(name, (value, _))| (name.clone(), value.clone())).collect();
        assert_eq!(live, alive);
        assert_eq!((hash.len(), hash.live(now_ms).count()), (twin.len(), alive.len()));
        let nearest = twin.values().filter_map(|entry| entry.1).min();
        let bound = hash.next_deadline_ms();
        assert_eq!(bound.is_some(), nearest.is_some());
        assert!(bound <= nearest);
        if let Some(pack) = hash.as_timed_listpack() {
            assert_eq!(bound, nearest);
            let deadlines: Vec<_> = pack.iter().skip(2).step_by(3).map(|at| at.as_int().unwrap()).collect();
            assert!(deadlines.is_sorted_by_key(|&at_ms| if at_ms == 0 { i64::MAX } else { at_ms }));
        }
    }

    #[test]
    fn a_packed_hash_changes_its_encoding_for_deadlines_and_never_back() {
        let mut hash = Hash::new();
        hash.set(b"a", b"1", &LIMITS, &hasher());
        assert_eq!((hash.encoding_name(), hash.next_deadline_ms()), ("listpack", None));
        assert!(hash.set_deadline_ms(b"a", Some(5), &hasher()));
        assert_eq!((hash.encoding_name(), hash.next_deadline_ms()), ("listpackex", Some(5)));
        assert!(hash.set_deadline_ms(b"a", None, &hasher()));
        assert_eq!((hash.encoding_name(), hash.next_deadline_ms()), ("listpackex", None));
        hash.set(b"b", b"0123456789a", &LIMITS, &hasher());
        assert_eq!(hash.encoding_name(), "hashtable");
    }

    #[test]
    fn many_due_fields_go_a_bounded_number_at_a_time() {
        let (mut hash, hasher) = (Hash::new(), hasher());
        for i in 0..50_000_i64 {
            let expiry = if i % 5 == 0 { Expiry::Clear } else { Expiry::At(10_000 + i) };
            let name = format!("f{i}");
            hash.set_with_expiry(FieldWrite { name: name.as_bytes(), value: b"v", expiry }, &LIMITS, &hasher);
        }
        assert_eq!(hash.remove_due(9_999, 10, |_| {}), 0);
        let (mut removed, mut steps) = (0, 0);
        while hash.next_deadline_ms().is_some_and(|at_ms| at_ms <= 30_000) {
            let step = hash.remove_due(30_000, 32, |_| {});
            assert!(step <= 32 + 63 * 8, "{step}");
            (removed, steps) = (removed + step, steps + 1);
        }
        assert!(steps > 20);
        assert_eq!((removed, hash.len()), (16_000, 34_000));
        assert_eq!(hash.live(30_000).count(), 34_000);
    }

    #[test]
    fn a_timed_listpack_of_somebody_else_must_be_in_order() {
        let of = |elements: &[&str]| {
            let mut pack = Listpack::new();
            elements.iter().for_each(|text| pack.push_back(text.as_bytes()).expect("small"));
            Hash::from_timed_listpack(pack, &LIMITS, &hasher()).map(|hash| hash.next_deadline_ms())
        };
        assert_eq!(of(&["a", "1", "5", "b", "2", "5", "c", "3", "0"]).ok(), Some(Some(5)));
        assert_eq!(of(&["a", "1", "5", "b", "2"]).err(), Some(PackDefect::HalfPair));
        assert_eq!(of(&["a", "1", "5", "a", "2", "6"]).err(), Some(PackDefect::Duplicate));
        assert_eq!(of(&["a", "1", "5", "b", "2", "4"]).err(), Some(PackDefect::Order));
        assert_eq!(of(&["a", "1", "0", "b", "2", "4"]).err(), Some(PackDefect::Order));
        assert_eq!(of(&["a", "1", "x"]).err(), Some(PackDefect::Deadline));
        assert_eq!(of(&["a", "1", "-1"]).err(), Some(PackDefect::Deadline));
    }
}
