//! The options table: all options, in groups. The configuration file, the command line, CONFIG and
//! docs/options.md read it.
//!
//! To add an option, add one record ([`Opt`]) to a file of this folder. If the option has an
//! effect, its record is part of a [`Handle`](super::handle::Handle), through which code reads the
//! value. If requests need the value, `config/apply.rs` copies it into the settings. The record's
//! `on_change` states further actions of CONFIG SET.
//!
//! All options of Redis 8.0 and Valkey 8.1 are known, so that their configurations work unchanged.
//! The record of an option without effect gives the reason.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::option::Opt;

pub mod clients;
mod cluster;
pub mod diagnostics;
pub mod memory;
pub mod network;
pub mod persistence;
pub mod process;
pub mod replication;
pub mod security;
pub mod tls;
pub mod values;

/// A group of options that belong together, such as the options of TLS.
#[derive(Debug)]
pub struct OptionGroup {
    /// The heading of the group in docs/options.md.
    pub title: &'static str,
    /// The options of the group.
    pub options: &'static [&'static Opt],
}

/// All options, in groups. docs/options.md shows the groups in this order.
pub static THEMES: &[OptionGroup] = &[
    OptionGroup { title: "Network", options: network::OPTIONS },
    OptionGroup { title: "TLS", options: tls::OPTIONS },
    OptionGroup { title: "Clients", options: clients::OPTIONS },
    OptionGroup { title: "Security", options: security::OPTIONS },
    OptionGroup { title: "Memory and expiry", options: memory::OPTIONS },
    OptionGroup { title: "Encodings of values", options: values::OPTIONS },
    OptionGroup { title: "Persistence", options: persistence::OPTIONS },
    OptionGroup { title: "Replication", options: replication::OPTIONS },
    OptionGroup { title: "Cluster", options: cluster::OPTIONS },
    OptionGroup { title: "Scripts, latency and slow commands", options: diagnostics::OPTIONS },
    OptionGroup { title: "Process and log", options: process::OPTIONS },
];

/// The reason why options of cluster mode have no effect.
const NO_CLUSTER: &str = "Saker has no cluster mode yet";
/// The reason why options that tune another design have no effect.
const OTHER_DESIGN: &str = "the design of Saker does not need it";

/// The index of an option in the table, counted from 0 through all groups of [`THEMES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OptId(usize);

impl OptId {
    /// Returns the index of the option in the table as a number.
    pub fn index(self) -> usize {
        self.0
    }

    /// Returns the option's record: its name, kind, default and documentation.
    pub fn option(self) -> &'static Opt {
        TABLE.options[self.0]
    }
}

/// An option's own name or alias, with the index of the option.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    /// The index of the option with this name.
    pub id: OptId,
    /// The name as in the table: the option's own name or an alias.
    pub name: &'static str,
}

struct Table {
    options: Vec<&'static Opt>,
    by_name: HashMap<&'static str, Named>,
    names: Vec<Named>,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let options: Vec<&'static Opt> = THEMES.iter().flat_map(|theme| theme.options).copied().collect();
    let mut table = Table { options, by_name: HashMap::new(), names: Vec::new() };
    for (index, option) in table.options.iter().enumerate() {
        for name in std::iter::once(&option.name).chain(option.aliases) {
            let named = Named { id: OptId(index), name };
            let earlier = table.by_name.insert(name, named);
            assert!(earlier.is_none(), "two options are called {name}");
            table.names.push(named);
        }
    }
    table
});

/// Returns all options, in the order of the table.
pub fn all() -> impl ExactSizeIterator<Item = (OptId, &'static Opt)> {
    TABLE.options.iter().enumerate().map(|(index, option)| (OptId(index), *option))
}

/// Returns all names. The aliases of an option follow its own name.
pub fn names() -> &'static [Named] {
    &TABLE.names
}

/// Finds an option by its own name or an alias, in upper or lower case. O(length).
pub fn find(name: &[u8]) -> Option<Named> {
    let name = name.to_ascii_lowercase();
    TABLE.by_name.get(std::str::from_utf8(&name).ok()?).copied()
}

/// Returns the option name most similar to `name`, if the similarity suggests a typing error.
/// O(names).
pub fn nearest(name: &str) -> Option<&'static str> {
    /// The minimum similarity of two names for a typing error, from 0 (nothing in common) to 1
    /// (equal). One extra letter or two swapped letters give 0.9 or more.
    const LIKE: f64 = 0.9;
    /// The maximum length, in bytes, of a mistyped option name for which the most similar option is
    /// searched. All names of options are shorter. The limit is needed because comparing two names
    /// takes quadratic time.
    const LEN_BYTES_MAX: usize = 64;
    if name.len() > LEN_BYTES_MAX {
        return None;
    }
    let shown = names().iter().filter(|named| !named.id.option().hidden);
    let like = shown.map(|named| (strsim::jaro_winkler(name, named.name), named.name));
    like.filter(|(like, _)| *like >= LIKE).max_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, name)| name)
}

/// Returns the index of an option's record in the table. O(length of the name).
///
/// # Panics
/// If no group of [`THEMES`] contains the record.
pub fn id_of(option: &Opt) -> OptId {
    let named = TABLE.by_name.get(option.name);
    named.unwrap_or_else(|| panic!("no theme lists the option {}", option.name)).id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_record_is_complete() {
        for (_, option) in all() {
            assert_eq!(option.name, option.name.to_ascii_lowercase());
            assert!(option.summary.ends_with('.'), "{}", option.name);
            // This call panics if the default is not a value of the option's kind.
            let shown = option.default_value().to_text();
            assert!(!shown.contains(&b'\n'), "{}", option.name);
            if let Some(why) = option.idle_reason() {
                assert!(!why.is_empty(), "{}", option.name);
            }
        }
    }

    #[test]
    fn every_handle_is_in_the_list_of_its_theme() {
        let themes = [
            include_str!("clients.rs"),
            include_str!("diagnostics.rs"),
            include_str!("memory.rs"),
            include_str!("network.rs"),
            include_str!("persistence.rs"),
            include_str!("process.rs"),
            include_str!("replication.rs"),
            include_str!("security.rs"),
            include_str!("tls.rs"),
            include_str!("values.rs"),
        ];
        for theme in themes {
            let handles = theme.split("pub static ").skip(1).filter_map(|text| text.split_once(": Handle<"));
            for (name, _) in handles {
                assert!(theme.contains(&format!("&{name}.opt,")), "{name} is not listed");
            }
        }
    }

    #[test]
    fn names_are_found_in_any_case_and_by_their_aliases() {
        assert_eq!(find(b"MaxMemory").map(|named| named.name), Some("maxmemory"));
        let old = find(b"hash-max-ziplist-entries").expect("an alias");
        assert_eq!(old.id.option().name, "hash-max-listpack-entries");
        assert!(find(b"nonsense").is_none());
        assert!(find(b"\xff").is_none());
    }

    #[test]
    fn a_slip_is_recognized_and_a_long_name_is_not_compared() {
        assert_eq!(nearest("maxmemroy"), Some("maxmemory"));
        // Without the limit, the comparison with every name would take minutes.
        assert_eq!(nearest(&"maxmemory-policy".repeat(1 << 18)), None);
        assert!(names().iter().all(|named| named.name.len() < 60));
    }
}
