//! The limits of the size of a quicklist's nodes and of their compression, from the server's
//! options.

use crate::listpack::OVERHEAD_LEN_BYTES;
use crate::listpack::element::Element;

/// The most bytes of a list node's listpack when the option `list-max-listpack-size` limits the
/// number of elements.
const COUNTED_LEN_BYTES_MAX: u32 = 8 * 1024;

/// The limit of a node and the depth of compression: the options `list-max-listpack-size` and
/// `list-compress-depth`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeLimit {
    /// The most bytes of a node's elements, without header and terminator.
    pub(super) run_len_max: u32,
    pub(super) count_max: u32,
    /// The most bytes of a whole listpack of a list, header and terminator included.
    pub(super) listpack_len_max: u32,
    /// The length in bytes from which a string has a node of its own.
    plain_len_min: u32,
    /// The number of nodes at either end that are not compressed; with 0 no node is compressed.
    pub(super) compress_depth: u16,
    unit: Unit,
}

/// The unit of the option `list-max-listpack-size`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    /// The option limits the bytes of a node: its value is negative.
    Bytes,
    /// The option limits the elements of a node: its value is positive.
    Elements,
}

impl NodeLimit {
    /// Converts a value of `list-max-listpack-size` to a limit. The values -1 to -5 mean 4, 8, 16,
    /// 32 and 64 KiB; lower values count as -5. A positive value is a number of elements (in at
    /// most 8 KiB); 0 counts as 1.
    pub const fn from_option(list_max_listpack_size: i64) -> Self {
        if list_max_listpack_size < 0 {
            let step = if list_max_listpack_size < -5 { 4 } else { -list_max_listpack_size - 1 };
            Self::new(4096 << step, u32::MAX, Unit::Bytes)
        } else {
            let count = match list_max_listpack_size {
                0 => 1,
                more if more > u32::MAX as i64 => u32::MAX,
                count => count as u32,
            };
            Self::new(COUNTED_LEN_BYTES_MAX, count, Unit::Elements)
        }
    }

    const fn new(listpack_len_max: u32, count_max: u32, unit: Unit) -> Self {
        let run_len_max = listpack_len_max - OVERHEAD_LEN_BYTES as u32;
        let plain_len_min = listpack_len_max + 1;
        Self { run_len_max, count_max, listpack_len_max, plain_len_min, compress_depth: 0, unit }
    }

    /// Adds the rule that strings of `len_bytes` or more have a node of their own. For tests of
    /// lists that consist of such nodes.
    pub const fn with_plain_from(self, len_bytes: u32) -> Self {
        let plain_len_min = if len_bytes < self.plain_len_min { len_bytes } else { self.plain_len_min };
        Self { plain_len_min, ..self }
    }

    /// Sets the option `list-compress-depth`: nodes further than `depth` nodes from either end are
    /// compressed. 0, the default, compresses none. Greater depths than [`u16::MAX`] count as it.
    pub const fn with_compress_depth(self, depth: i64) -> Self {
        let compress_depth = match depth {
            ..=0 => 0,
            0xFFFF.. => u16::MAX,
            depth => depth as u16,
        };
        Self { compress_depth, ..self }
    }

    /// Returns true if the limit has a compress depth, so that nodes may be compressed.
    pub const fn compresses(self) -> bool {
        self.compress_depth > 0
    }

    /// Returns this limit as a value of `list-max-listpack-size`: -1 to -5, or a number of
    /// elements.
    pub const fn to_option(self) -> i64 {
        match self.unit {
            Unit::Elements => self.count_max as i64,
            Unit::Bytes => 11 - self.listpack_len_max.ilog2() as i64,
        }
    }

    /// Returns true if a listpack of this length and count is within the limit. O(1).
    pub const fn allows_listpack(self, len_bytes: usize, count: usize) -> bool {
        len_bytes <= self.listpack_len_max as usize && count <= self.count_max as usize
    }

    /// Returns true if a listpack of this length and count is within half the limit. Only then does
    /// a shrinking list become a listpack again. A limit by count considers only the count. O(1).
    pub const fn allows_shrunk_listpack(self, len_bytes: usize, count: usize) -> bool {
        match self.unit {
            Unit::Elements => count <= self.count_max as usize / 2,
            Unit::Bytes => len_bytes <= self.listpack_len_max as usize / 2,
        }
    }

    /// Returns true if `element` is so long that it needs a node of the list of its own.
    pub(super) fn is_big(self, element: Element<'_>) -> bool {
        matches!(element, Element::Bytes(bytes) if bytes.len() >= self.plain_len_min as usize)
    }
}

impl Default for NodeLimit {
    /// Returns the limit of a list's nodes for the default of `list-max-listpack-size`, -2: 8 KiB.
    fn default() -> Self {
        Self::from_option(-2)
    }
}
