//! Borrowed elements of a table, through which callers read and change them.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

use super::bucket::{DUE_FLAGS, POINTER_MASK, address_of, pointer_of};
use super::deadlines::{DueCounts, StoredDeadlines};
use super::segment::Segment;
use super::{Place, Table, Thin};

/// A shared borrow of an element in a table, for reading.
pub struct Borrowed<'a, E> {
    element: ManuallyDrop<E>,
    table: PhantomData<&'a E>,
}

impl<E: Thin> Borrowed<'_, E> {
    /// Creates a borrow of the element whose address is in the bucket's word `word`. Private: the
    /// caller ties its lifetime to the table that owns the element.
    #[inline]
    pub(super) fn new(word: u64) -> Self {
        // SAFETY: the word holds an element that the table owns; `ManuallyDrop` keeps it the owner.
        let element = unsafe { E::from_raw(pointer_of(word)) };
        Borrowed { element: ManuallyDrop::new(element), table: PhantomData }
    }
}

impl<E> Deref for Borrowed<'_, E> {
    type Target = E;
    #[inline]
    fn deref(&self) -> &E {
        &self.element
    }
}

/// A handle of an element that was found in a table. The element can be read, changed or removed.
/// The handle borrows the table, so that the element's place stays valid. It holds the bucket's
/// word, so that no access searches for the element again.
pub struct Occupied<'a, E: Thin> {
    pub(super) table: &'a mut Table<E>,
    pub(super) place: Place,
    /// The bucket's word at `place`, which contains the element's address.
    pub(super) word: u64,
}

impl<'a, E: Thin> Occupied<'a, E> {
    /// Returns the place of the handle's element in the table; valid until the table next changes.
    #[inline]
    pub fn place(&self) -> Place {
        self.place
    }

    /// Borrows the element that the handle refers to. O(1).
    #[inline]
    pub fn get(&self) -> Borrowed<'_, E> {
        Borrowed::new(self.word)
    }

    /// Borrows the element that the handle refers to, as long as the table is borrowed. O(1).
    #[inline]
    pub fn into_ref(self) -> Borrowed<'a, E> {
        Borrowed::new(self.word)
    }

    /// Borrows the element that the handle refers to mutably, as long as the table is borrowed.
    /// O(1).
    #[inline]
    pub fn into_mut(self) -> BorrowedMut<'a, E> {
        self.table.at_mut(self.place)
    }

    /// Returns the element as an owned value that is not dropped. The table remains the owner:
    /// callers must not drop or replace the element, nor change its deadlines.
    #[inline]
    pub(crate) fn as_owned(&mut self) -> ManuallyDrop<E> {
        // SAFETY: the word holds an element that the table owns; `ManuallyDrop` keeps it the owner.
        ManuallyDrop::new(unsafe { E::from_raw(pointer_of(self.word)) })
    }

    /// Removes the element that the handle refers to from the table and returns it. O(1) amortised.
    pub fn remove(self) -> E {
        self.table.remove(self.place)
    }
}

/// An exclusive borrow of an element in a table. The borrower may replace the element by one with
/// the same key. When the borrow ends, the table stores the element's new address and deadlines.
pub struct BorrowedMut<'a, E: Thin> {
    pub(super) element: ManuallyDrop<E>,
    pub(super) word: &'a mut u64,
    pub(super) segment: &'a mut Segment,
    pub(super) due_counts: &'a mut DueCounts,
}

impl<E: Thin> Deref for BorrowedMut<'_, E> {
    type Target = E;
    #[inline]
    fn deref(&self) -> &E {
        &self.element
    }
}

impl<E: Thin> DerefMut for BorrowedMut<'_, E> {
    #[inline]
    fn deref_mut(&mut self) -> &mut E {
        &mut self.element
    }
}

impl<E: Thin> Drop for BorrowedMut<'_, E> {
    #[inline]
    fn drop(&mut self) {
        let dues = StoredDeadlines::of::<E>(&self.element);
        // SAFETY: the handle ends here; the element goes back into its word and is not used again.
        let element = unsafe { ManuallyDrop::take(&mut self.element) };
        let address = address_of(element.into_raw());
        let had = *self.word & DUE_FLAGS;
        *self.word = (*self.word & !(POINTER_MASK | DUE_FLAGS)) | address | dues.flags;
        self.segment.note(had, dues, self.due_counts);
    }
}
