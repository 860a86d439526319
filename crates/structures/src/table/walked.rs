//! A table that a snapshot can walk while the table changes (see `walk_state`).
//!
//! It is a [`Table`] whose changes all go through this module. During a walk, an element that is
//! not visited yet is copied before it is changed or removed (`walk` explains why that is
//! sufficient). Without a walk, a change pays one check of a field beside the table. Only some
//! tables have a walk or the owner's data `X`, so both are behind one pointer.

use std::ops::Deref;
use std::sync::Arc;

use crate::walk_state::{CopiedBytes, MemorySize, PositionOf, WalkState};

use super::{BorrowedMut, Place, Sweep, SweepBudget, SweptParts, Table, Thin, WalkPoint};

/// A table that a snapshot can walk while the table changes. `X` is data that the owner stores with
/// the table. See the module's comment.
pub struct WalkedTable<E: Thin, X = ()> {
    table: Table<E>,
    rare: Option<Box<Rare<E, X>>>,
}

struct Rare<E, X> {
    walk: Option<Walk<E>>,
    extra: Option<X>,
}

struct Walk<E> {
    ticket: u32,
    position_of: PositionOf,
    point: WalkPoint,
    /// Copies of elements in their state at the start of the snapshot's walk. These elements have
    /// changed or left the table since and are not visited yet.
    copied: Vec<E>,
    copied_len_bytes: CopiedBytes,
}

impl<E: Thin + MemorySize> Walk<E> {
    fn take_copied(&mut self) -> Option<E> {
        let element = self.copied.pop()?;
        self.copied_len_bytes.sub(element.weight_bytes());
        Some(element)
    }

    fn keep(&mut self, element: E) {
        self.copied_len_bytes.add(element.weight_bytes());
        self.copied.push(element);
    }
}

impl<E: Thin, X> Default for WalkedTable<E, X> {
    fn default() -> Self {
        Self { table: Table::new(), rare: None }
    }
}

impl<E: Thin, X> Deref for WalkedTable<E, X> {
    type Target = Table<E>;

    #[inline]
    fn deref(&self) -> &Table<E> {
        &self.table
    }
}

impl<E: Thin + Clone, X: Clone> Clone for WalkedTable<E, X> {
    /// Copies the table, but not a snapshot's walk in progress. O(n).
    fn clone(&self) -> Self {
        let extra = self.extra().cloned();
        let rare = extra.map(|extra| Box::new(Rare { walk: None, extra: Some(extra) }));
        Self { table: self.table.clone(), rare }
    }
}

impl<E: Thin, X> WalkedTable<E, X> {
    /// Borrows the data that the owner stores with the table; `None` if there is none. O(1).
    #[inline]
    pub fn extra(&self) -> Option<&X> {
        self.rare.as_ref()?.extra.as_ref()
    }

    /// Borrows the data that the owner stores with the table mutably; `None` if there is none.
    /// O(1).
    #[inline]
    pub fn extra_mut(&mut self) -> Option<&mut X> {
        self.rare.as_mut()?.extra.as_mut()
    }

    /// Borrows the data that the owner stores with the table mutably; first stores the result of
    /// `extra` if there is none. O(1).
    pub fn extra_or_insert_with(&mut self, extra: impl FnOnce() -> X) -> &mut X {
        let rare = self.rare.get_or_insert_with(|| Box::new(Rare { walk: None, extra: None }));
        rare.extra.get_or_insert_with(extra)
    }

    /// Converts this to a plain table. A snapshot's walk in progress and the owner's data are
    /// dropped.
    pub fn into_table(self) -> Table<E> {
        self.table
    }

    #[inline]
    fn walk_mut(&mut self) -> Option<(&mut Table<E>, &mut Walk<E>)> {
        Some((&mut self.table, self.rare.as_mut()?.walk.as_mut()?))
    }

    /// Returns the ticket ([`WalkState::ticket`]) that identifies the snapshot's walk of the table;
    /// `None` if there is none. O(1).
    pub fn ticket(&self) -> Option<u32> {
        Some(self.rare.as_ref()?.walk.as_ref()?.ticket)
    }
}

impl<E: Thin + Clone + MemorySize, X> WalkedTable<E, X> {
    /// Inserts an element like [`Table::insert`]. A snapshot's walk in progress does not visit the
    /// new element.
    #[inline]
    pub fn insert(&mut self, position: u64, element: E, position_of: &impl Fn(&[u8]) -> u64) -> Place {
        let place = self.table.insert(position, element, position_of);
        if let Some((table, walk)) = self.walk_mut() {
            table.mark_added(place, position, walk.point);
        }
        place
    }

    /// Removes an element like [`Table::remove`]. If a snapshot's walk in progress has not visited
    /// it yet, a copy is kept for the walk.
    #[inline]
    pub fn remove(&mut self, place: Place) -> E {
        self.keep(place);
        self.table.remove(place)
    }

    /// Borrows an element mutably like [`Table::at_mut`]. If a snapshot's walk in progress has not
    /// visited it yet, a copy is kept for the walk first.
    #[inline]
    pub fn at_mut(&mut self, place: Place) -> BorrowedMut<'_, E> {
        self.keep(place);
        self.table.at_mut(place)
    }

    #[inline]
    fn keep(&mut self, place: Place) {
        if self.rare.is_some() {
            self.keep_for_walk(place);
        }
    }

    #[cold]
    fn keep_for_walk(&mut self, place: Place) {
        let Some((table, walk)) = self.walk_mut() else { return };
        let position = (walk.position_of)(table.at(place).key());
        if table.claim(place, position, walk.point) {
            let copy = E::clone(&table.at(place));
            walk.keep(copy);
        }
    }

    /// Removes due elements like [`Table::sweep_due`], for elements without parts, and calls `due`
    /// with each removed element. Copies of elements that a walk in progress has not visited yet
    /// are kept for the walk.
    pub fn sweep_due(
        &mut self,
        cursor: u64,
        now_ms: i64,
        budget: SweepBudget,
        due: impl FnMut(E),
    ) -> Option<u64> {
        let walk = self.rare.as_mut().and_then(|rare| rare.walk.as_mut());
        self.table.sweep_due(cursor, now_ms, budget, &mut PreservedSweep { walk, due })
    }

    /// Starts a snapshot's walk, which reads the table's present state while the table changes;
    /// [`WalkedTable::walk_next`] visits its elements. Drops a walk in progress. O(1).
    pub fn begin(&mut self, walk_state: WalkState) {
        let rare = self.rare.get_or_insert_with(|| Box::new(Rare { walk: None, extra: None }));
        rare.walk = Some(Walk {
            ticket: walk_state.ticket,
            position_of: walk_state.position_of,
            point: WalkPoint::START,
            copied: Vec::new(),
            copied_len_bytes: CopiedBytes::new(walk_state.copied_len_bytes),
        });
    }

    /// Visits about the next `elements_max` elements of the snapshot's walk, in any order. Returns
    /// true if there are more.
    pub fn walk_next(&mut self, elements_max: usize, mut visit: impl FnMut(&E)) -> bool {
        let Some((table, walk)) = self.walk_mut() else { return false };
        let mut shown = 0;
        while shown < elements_max {
            if let Some(element) = walk.take_copied() {
                visit(&element);
                shown += 1;
            } else if walk.point == WalkPoint::END {
                if let Some(rare) = &mut self.rare {
                    rare.walk = None;
                    if rare.extra.is_none() {
                        self.rare = None;
                    }
                }
                return false;
            } else {
                let position_of = Arc::clone(&walk.position_of);
                // An empty bucket counts as one element, so that a step over empty buckets is
                // bounded, too.
                shown += 1;
                walk.point = table.walk(walk.point, &|key: &[u8]| position_of(key), |element| {
                    visit(element);
                    shown += 1;
                });
            }
        }
        true
    }
}

/// A sweep of due elements during a walk: keeps copies of the elements that it removes, for the
/// walk.
struct PreservedSweep<'w, E, F> {
    walk: Option<&'w mut Walk<E>>,
    due: F,
}

impl<E: Thin + Clone + MemorySize, F: FnMut(E)> Sweep<E> for PreservedSweep<'_, E, F> {
    fn claims(&mut self, element: &mut E) -> bool {
        let Some(walk) = &mut self.walk else { return false };
        let is_ahead = walk.point.is_before((walk.position_of)(element.key()));
        if is_ahead {
            walk.keep(element.clone());
        }
        is_ahead
    }

    fn due(&mut self, element: E) {
        (self.due)(element);
    }

    fn parts_due(&mut self, _element: &mut E) -> SweptParts {
        SweptParts { removed: 0, emptied: false }
    }

    fn emptied(&mut self, element: E) {
        (self.due)(element);
    }
}
