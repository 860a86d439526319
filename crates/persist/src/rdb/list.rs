//! Reading and writing of lists in the RDB format.

use keyspace::{List, ListView};
use structures::listpack::element::Element;
use structures::listpack::{Listpack, header, terminator};
use structures::pack_error::PackFull;
use structures::quicklist::{NodeLimit, NodeView, Quicklist};

use super::error::{FormatError, FormatErrorKind};
use super::rules::Rules;
use super::sink::{Sink, Writer};
use super::source::{Reader, Source};
use super::value_type::ValueType;
use super::ziplist::{self, TooLong, Ziplist};

/// The code of a list's node in the RDB format that is one long string.
const PLAIN: u64 = 1;
/// The code of a list's node in the RDB format that is a listpack.
const PACKED: u64 = 2;

/// Reads a list that is stored in the RDB format as a count and its elements one by one.
pub(super) fn read_elements<S: Source>(
    reader: &mut Reader<S>,
    rules: &Rules<'_>,
) -> Result<List, FormatError> {
    let mut list = Quicklist::new(rules.list.node());
    for _ in 0..reader.length()? {
        list.push_back(&reader.string()?);
    }
    Ok(List::from_quicklist(list, rules.list))
}

/// Reads a list that is stored in the RDB format as `count` ziplists. Each becomes a node of the
/// list, as in Redis.
pub(super) fn read_ziplists<S: Source>(
    count: u64,
    reader: &mut Reader<S>,
    rules: &Rules<'_>,
) -> Result<List, FormatError> {
    let mut list = Quicklist::new(rules.list.node());
    for _ in 0..count {
        let bytes = reader.string()?;
        let elements = Ziplist::new(&bytes).and_then(|ziplist| ziplist.collect::<Result<Vec<_>, _>>());
        let elements = elements.map_err(|kind| reader.error(kind))?;
        let mut pack = Listpack::new();
        match pack.extend_back(&elements) {
            Ok(()) => push_node(&mut list, pack, rules.list.node()),
            Err(PackFull) => elements.iter().for_each(|&element| list.push_back(element)),
        }
    }
    Ok(List::from_quicklist(list, rules.list))
}

/// Appends a listpack to a list as a node. If the listpack is over `limit`, its elements are
/// appended one by one instead.
fn push_node(list: &mut Quicklist, pack: Listpack, limit: NodeLimit) {
    if limit.allows_listpack(pack.len_bytes(), pack.len()) {
        list.push_listpack(pack);
    } else {
        pack.iter().for_each(|element| list.push_back(element));
    }
}

/// Reads a list that is stored in the RDB format as a count and its nodes one by one.
pub(super) fn read_nodes<S: Source>(reader: &mut Reader<S>, rules: &Rules<'_>) -> Result<List, FormatError> {
    let limit = rules.list.node();
    let mut list = Quicklist::new(limit);
    for _ in 0..reader.length()? {
        match reader.length()? {
            PLAIN => {
                let bytes = reader.string()?;
                if bytes.is_empty() {
                    return Err(reader.error(FormatErrorKind::EmptyNode));
                }
                list.push_plain(bytes.into());
            }
            PACKED => {
                let pack = reader.listpack()?;
                if pack.is_empty() {
                    return Err(reader.error(FormatErrorKind::Empty));
                }
                push_node(&mut list, pack, limit);
            }
            _ => return Err(reader.error(FormatErrorKind::UnknownNode)),
        }
    }
    Ok(List::from_quicklist(list, rules.list))
}

/// Writes a list as nodes of `kind`: [`ValueType::ListQuicklist2`] or [`ValueType::ListQuicklist`].
/// The latter cannot hold every string.
pub(super) fn write<S: Sink>(kind: ValueType, writer: &mut Writer<S>, list: &List) -> Result<(), TooLong> {
    match list.view() {
        ListView::Pack(pack) => {
            writer.length(1);
            if kind == ValueType::ListQuicklist {
                return write_ziplist(writer, pack.iter());
            }
            writer.length(PACKED);
            writer.blob(pack.as_bytes());
            Ok(())
        }
        ListView::Quick(list) => {
            writer.length(list.node_count() as u64);
            let mut result = Ok(());
            list.visit_nodes(|node| {
                if result.is_ok() {
                    result = write_node(kind, writer, node);
                }
            });
            result
        }
    }
}

/// Writes a node of a list in the RDB format of the type `kind`; see [`write`].
pub(super) fn write_node<S: Sink>(
    kind: ValueType,
    writer: &mut Writer<S>,
    node: NodeView<'_>,
) -> Result<(), TooLong> {
    let pack = |run: &[u8], count| [&header(run.len(), count)[..], run, &terminator()].concat();
    match (kind, node) {
        (ValueType::ListQuicklist, NodeView::Plain(bytes)) => {
            return write_ziplist(writer, [Element::Bytes(bytes)].into_iter());
        }
        (ValueType::ListQuicklist, NodeView::Packed { run, count }) => {
            let pack = Listpack::from_bytes(pack(run, count).into()).expect("a node's elements are valid");
            return write_ziplist(writer, pack.iter());
        }
        (_, NodeView::Plain(bytes)) => {
            writer.length(PLAIN);
            writer.blob(bytes);
        }
        (_, NodeView::Packed { run, count }) => {
            writer.length(PACKED);
            writer.blob(&pack(run, count));
        }
    }
    Ok(())
}

fn write_ziplist<'e, S: Sink>(
    writer: &mut Writer<S>,
    elements: impl Iterator<Item = Element<'e>>,
) -> Result<(), TooLong> {
    writer.blob(&ziplist::pack(elements)?);
    Ok(())
}
