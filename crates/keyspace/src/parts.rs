//! Walks of big values (`structures::walk_state`). A snapshot reads a value in *pieces* (members,
//! fields or nodes), in its state at the start, while other threads continue to change it.
//!
//! ```text
//!   begin_parts    starts a walk of the present state; returns the value's head, to be
//!                  written before the pieces
//!   next_parts     visits the next pieces. Until the last one, a change of the value first copies
//!                  the part that it is about to change (`structures::table::walk`, and
//!                  `structures::walked_row` for the nodes of lists and streams)
//! ```
//! Values up to [`WHOLE_LEN_BYTES_MAX`], and all values packed in one block, have no walks: a
//! snapshot copies them as a whole. It also copies the data of a stream's groups.
//!
//! The clone of a value does not inherit a walk in progress.

use structures::listpack::element::Element;
use structures::quicklist::NodeView;
use structures::walk_state::WalkState;

use crate::hash::HashField;
use crate::object::Object;
use crate::stream::{StreamEntry, StreamRest};
use crate::{Array, Hash, List, Set, VectorSet, Zset};

/// The size in bytes up to which a value is copied as a whole.
pub const WHOLE_LEN_BYTES_MAX: usize = 64 * 1024;

/// The description of a big value that is known when its walk starts and is visited before its
/// pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// The description of a list, visited before the list's nodes.
    List {
        /// The number of [`ValuePart::Node`]s of the list that follow.
        nodes: usize,
    },
    /// The description of a set, visited before the set's members.
    Set {
        /// The number of [`ValuePart::Member`]s of the set that follow.
        members: usize,
    },
    /// The description of a hash, visited before the hash's fields.
    Hash {
        /// The number of [`ValuePart::Field`]s of the hash that follow.
        fields: usize,
        /// A lower bound of the deadlines of the hash's fields, in Unix milliseconds; `None` if no
        /// field has one.
        deadline_min_ms: Option<i64>,
    },
    /// The description of a sorted set, visited before its members.
    Zset {
        /// The number of [`ValuePart::Scored`]s of the sorted set that follow.
        members: usize,
    },
    /// The description of a stream, visited before the stream's entries.
    Stream {
        /// The number of [`ValuePart::Entries`] that follow, before a [`ValuePart::StreamEnd`].
        nodes: usize,
    },
}

/// A piece of a big value that a snapshot's walk of the value visits.
pub enum ValuePart<'a> {
    /// A node of a list. The nodes come in order.
    Node(NodeView<'a>),
    /// A member of a set. Members come in any order.
    Member(Element<'a>),
    /// A field of a hash. Fields come in any order.
    Field(HashField<'a>),
    /// A member of a sorted set with its score. Members come in any order.
    Scored(&'a [u8], f64),
    /// The entries of a node of a stream, at least one, in order. The nodes come in order.
    Entries(&'a [StreamEntry<'a>]),
    /// The state of a stream besides its entries. It is the last piece of the stream.
    StreamEnd(&'a StreamRest),
}

impl Object {
    /// Returns true if a snapshot reads the value in pieces and does not copy it. O(1).
    pub fn is_piecewise(&self) -> bool {
        let (is_divided, len_bytes) = match self {
            Object::Set(set) => (set.is_table(), set.len_bytes()),
            Object::Hash(hash) => (hash.is_table(), hash.len_bytes()),
            Object::Zset(zset) => (zset.is_ranked(), zset.len_bytes()),
            Object::List(list) => (list.has_nodes(), list.len_bytes()),
            Object::Stream(stream) => (true, stream.len_bytes()),
            Object::Blob(_) | Object::Vector(_) | Object::Array(_) => return false,
        };
        is_divided && len_bytes > WHOLE_LEN_BYTES_MAX
    }

    /// Starts a snapshot's walk of the value's present state, whose pieces [`Object::next_parts`]
    /// visits. Returns the value's head, or `None` if the value is not
    /// [piecewise](Object::is_piecewise). O(1), except for a hash with deadlines (O(n / 400)) and
    /// for the copy of a stream's groups.
    pub fn begin_parts(&mut self, walk_state: WalkState) -> Option<Head> {
        if !self.is_piecewise() {
            return None;
        }
        Some(match self {
            Object::Set(set) => {
                set.begin_walk(walk_state);
                Head::Set { members: set.len() }
            }
            Object::Hash(hash) => {
                hash.begin_walk(walk_state);
                Head::Hash { fields: hash.len(), deadline_min_ms: hash.deadline_bound_ms() }
            }
            Object::Zset(zset) => {
                zset.begin_walk(walk_state);
                Head::Zset { members: zset.len() }
            }
            Object::List(list) => Head::List { nodes: list.begin_walk(&walk_state) },
            Object::Stream(stream) => Head::Stream { nodes: stream.begin_walk(&walk_state) },
            Object::Blob(_) | Object::Vector(_) | Object::Array(_) => return None,
        })
    }

    /// Returns the ticket ([`WalkState::ticket`]) that identifies the snapshot's walk of the value;
    /// `None` if there is none. O(1).
    pub fn parts_ticket(&self) -> Option<u32> {
        match self {
            Object::Set(set) => set.ticket(),
            Object::Hash(hash) => hash.ticket(),
            Object::Zset(zset) => zset.ticket(),
            Object::List(list) => list.ticket(),
            Object::Stream(stream) => stream.ticket(),
            Object::Blob(_) | Object::Vector(_) | Object::Array(_) => None,
        }
    }

    /// Calls `visit` with the next pieces of the snapshot's walk, about `elements_max` elements.
    /// Returns true if there are more pieces; otherwise the walk has ended. O(elements).
    pub fn next_parts(&mut self, elements_max: usize, visit: &mut dyn FnMut(ValuePart<'_>)) -> bool {
        match self {
            Object::Set(set) => set.walk_next(elements_max, |member| visit(ValuePart::Member(member))),
            Object::Hash(hash) => hash.walk_next(elements_max, |field| visit(ValuePart::Field(field))),
            Object::Zset(zset) => {
                zset.walk_next(elements_max, |member, score| visit(ValuePart::Scored(member, score)))
            }
            Object::List(list) => list.walk_next(elements_max, |node| visit(ValuePart::Node(node))),
            Object::Stream(stream) => {
                let rest = stream.walk_next(elements_max, |entries| visit(ValuePart::Entries(entries)));
                if let Some(rest) = &rest {
                    visit(ValuePart::StreamEnd(rest));
                }
                rest.is_none()
            }
            Object::Blob(_) | Object::Vector(_) | Object::Array(_) => false,
        }
    }

    /// Returns an empty value of the same type, which takes the place of a value that is moved out.
    pub(crate) fn empty_of_type(&self) -> Object {
        match self {
            Object::Blob(_) => Object::Blob(crate::object::Blob::default()),
            Object::List(_) => Object::List(List::new()),
            Object::Set(_) => Object::Set(Set::new()),
            Object::Hash(_) => Object::Hash(Hash::new()),
            Object::Zset(_) => Object::Zset(Zset::new()),
            Object::Stream(_) => Object::Stream(Box::default()),
            Object::Vector(_) => Object::Vector(Box::new(VectorSet::placeholder())),
            Object::Array(_) => Object::Array(Box::new(Array::new())),
        }
    }
}
