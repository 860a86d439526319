//! String values, in all the forms in which they are stored.

use structures::entry::{INLINE_BYTES_MAX, NewValue, View as EntryView};

use crate::object::{Blob, KeyEntry, Object};

/// The length in bytes of the longest text of an `i64`.
const INT_TEXT_LEN_MAX: usize = 20;
/// The length in bytes of the longest string that OBJECT ENCODING calls `embstr`, as in Redis.
const EMBSTR_LEN_MAX: usize = 44;

/// A string value, borrowed from its entry.
#[derive(Clone, Copy, Debug)]
pub enum Str<'a> {
    /// Bytes that are stored after their key in its block.
    Bytes(&'a [u8]),
    /// A string that is stored as a number: the decimal text of this number.
    Int(i64),
    /// A string longer than [`INLINE_BYTES_MAX`] bytes.
    Blob(&'a Blob),
}

impl<'a> Str<'a> {
    /// Borrows the string that an entry holds; `None` if it holds another type.
    #[inline]
    pub fn of(view: EntryView<'a, Object>) -> Option<Self> {
        match view {
            EntryView::Bytes(bytes) => Some(Str::Bytes(bytes)),
            EntryView::Int(number) => Some(Str::Int(number)),
            EntryView::Object(Object::Blob(blob)) => Some(Str::Blob(blob)),
            EntryView::Object(_) => None,
        }
    }

    /// Returns the length of the string in bytes. O(1).
    pub fn len(&self) -> usize {
        match self {
            Str::Bytes(bytes) => bytes.len(),
            Str::Int(number) => IntText::new().format(*number).len(),
            Str::Blob(blob) => blob.len(),
        }
    }

    /// Returns true if the string is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes of the string; a number's text is written to `text`.
    #[inline]
    pub fn bytes(self, text: &'a mut IntText) -> &'a [u8] {
        match self {
            Str::Bytes(bytes) => bytes,
            Str::Int(number) => text.format(number),
            Str::Blob(blob) => blob,
        }
    }
}

/// Returns the name for OBJECT ENCODING of an entry's value. A short string with the mark of a
/// change in place is `raw`.
pub fn encoding_name(entry: &KeyEntry) -> &'static str {
    match entry.view() {
        EntryView::Int(_) => "int",
        EntryView::Bytes(bytes) if bytes.len() <= EMBSTR_LEN_MAX && !entry.is_marked() => "embstr",
        EntryView::Bytes(_) => "raw",
        EntryView::Object(object) => object.encoding_name(),
    }
}

/// A buffer into which the text of an integer is written.
pub struct IntText(itoa::Buffer);

impl IntText {
    /// Creates an empty buffer for the text of one integer.
    pub fn new() -> Self {
        Self(itoa::Buffer::new())
    }

    /// Writes the decimal text of `number` to the buffer, and returns it.
    #[inline]
    pub fn format(&mut self, number: i64) -> &[u8] {
        self.0.format(number).as_bytes()
    }
}

impl Default for IntText {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the form in which a string is stored. The canonical text of a number is stored as a
/// number, another short string after its key, and a long one as an object. O(bytes).
#[inline]
pub fn stored(bytes: &[u8]) -> NewValue<'_, Object> {
    if let Some(number) = canonical_int(bytes) { NewValue::Int(number) } else { stored_as_text(bytes) }
}

/// Returns the stored form of a string that must remain text, even if it looks like a number.
/// O(bytes).
#[inline]
pub fn stored_as_text(bytes: &[u8]) -> NewValue<'_, Object> {
    if bytes.len() <= INLINE_BYTES_MAX {
        NewValue::Bytes(bytes)
    } else {
        NewValue::Object(Object::Blob(Blob::new(bytes.to_vec())))
    }
}

/// Borrows an entry's string for changes in place, first extended with zeros to at least
/// `len_bytes` bytes. A number becomes text. OBJECT ENCODING then calls the value raw. Amortised
/// O(bytes added). If the string is being sent to a client, it also costs a copy of the string.
///
/// # Panics
/// If the entry does not hold a string.
pub fn bytes_to_change(entry: &mut KeyEntry, len_bytes: usize) -> &mut [u8] {
    if let EntryView::Int(number) = entry.view() {
        entry.set(NewValue::Bytes(IntText::new().format(number)));
    }
    if len_bytes > INLINE_BYTES_MAX
        && let EntryView::Bytes(bytes) = entry.view()
    {
        let mut blob = Vec::with_capacity(len_bytes);
        blob.extend_from_slice(bytes);
        entry.set(NewValue::Object(Object::Blob(Blob::new(blob))));
    }
    if let EntryView::Object(_) = entry.view() {
        let Some(Object::Blob(blob)) = entry.object_mut() else { panic!("the caller checked the type") };
        let bytes = Blob::make_mut(blob);
        if bytes.len() < len_bytes {
            bytes.resize(len_bytes, 0);
        }
        return bytes;
    }
    entry.grow_bytes(len_bytes);
    entry.mark();
    entry.bytes_mut().expect("what is no object and no number is bytes")
}

/// Changes an entry's string with `work`, which may change its length. OBJECT ENCODING then calls
/// the value raw. A long string is changed in place, as by [`bytes_to_change`]; a short one is
/// copied out and back. Returns the result of `work`.
///
/// # Panics
/// If the entry does not hold a string.
pub fn edit<R>(entry: &mut KeyEntry, work: impl FnOnce(&mut Vec<u8>) -> R) -> R {
    let (result, bytes) = if let Some(object) = entry.object_mut() {
        let Object::Blob(blob) = object else { panic!("the caller checked the type") };
        let bytes = Blob::make_mut(blob);
        let result = work(bytes);
        if bytes.len() > INLINE_BYTES_MAX {
            return result;
        }
        (result, std::mem::take(bytes))
    } else {
        let string = Str::of(entry.view()).expect("what is no object is a string");
        let mut bytes = string.bytes(&mut IntText::new()).to_vec();
        (work(&mut bytes), bytes)
    };
    entry.set(raw(bytes, &mut Vec::new()));
    entry.mark();
    result
}

/// Returns the stored form of bytes that a command has composed. If they are short enough to be
/// stored after their key, they are moved to `short`, from which the result borrows.
pub(crate) fn raw(bytes: Vec<u8>, short: &mut Vec<u8>) -> NewValue<'_, Object> {
    if bytes.len() > INLINE_BYTES_MAX {
        return NewValue::Object(Object::Blob(Blob::new(bytes)));
    }
    *short = bytes;
    NewValue::Bytes(short)
}

/// Parses the canonical text of a number: decimal, no sign but `-`, no leading zeros, within 64
/// bits. Returns `None` for other bytes. O(1).
#[inline]
pub fn canonical_int(bytes: &[u8]) -> Option<i64> {
    match bytes.first() {
        Some(b'0'..=b'9' | b'-') if bytes.len() <= INT_TEXT_LEN_MAX => {}
        _ => return None,
    }
    stdx::number::parse_i64(bytes)
}
