//! INFO. Each section is a function that writes its fields from the counters and the state of the
//! server.
//!
//! The fields have Redis' names and order. A field about a feature that this server does not have
//! (forks, modules) has the value that Redis shows for an unused feature. Monitoring tools ask for
//! such fields.

use std::fmt::Write;

use engine::shared::GateSlot;

use crate::shared::Shared;

mod memory;
mod replication;
mod server;
mod stats;

pub use memory::{Excess, MemoryFigures, ratio};

/// A section of INFO: its name in a request, its heading and its writer.
pub struct Section {
    /// The name by which a request for INFO selects the section, in lower case.
    pub name: &'static str,
    heading: &'static str,
    by_default: bool,
    /// True if the writer locks shards. The calling thread must then be inside the gate that guards
    /// the keyspace.
    locks_shards: bool,
    write: fn(&Shared, &mut Fields),
}

impl Section {
    const fn new(name: &'static str, heading: &'static str, write: fn(&Shared, &mut Fields)) -> Self {
        Self { name, heading, by_default: true, locks_shards: false, write }
    }

    const fn on_shards(name: &'static str, heading: &'static str, write: fn(&Shared, &mut Fields)) -> Self {
        Self { locks_shards: true, ..Self::new(name, heading, write) }
    }

    const fn on_demand(self) -> Self {
        Self { by_default: false, ..self }
    }
}

/// All sections of INFO, in the order in which INFO shows them.
pub static SECTIONS: &[Section] = &[
    Section::new("server", "Server", server::server),
    Section::new("clients", "Clients", server::clients),
    Section::on_shards("memory", "Memory", memory::memory),
    Section::new("persistence", "Persistence", server::persistence),
    Section::new("threads", "Threads", server::threads),
    Section::new("stats", "Stats", stats::stats),
    Section::new("changelog", "Changelog", stats::change_log),
    Section::new("replication", "Replication", replication::replication),
    Section::new("tls", "TLS", server::tls).on_demand(),
    Section::new("cpu", "CPU", server::cpu),
    Section::new("modules", "Modules", |_, _| ()),
    Section::new("commandstats", "Commandstats", stats::commandstats).on_demand(),
    Section::new("latencystats", "Latencystats", stats::latencystats).on_demand(),
    Section::new("hotkeys", "Hotkeys", stats::hotkeys).on_demand(),
    Section::new("errorstats", "Errorstats", stats::errorstats),
    Section::new("cluster", "Cluster", server::cluster),
    Section::on_shards("keyspace", "Keyspace", stats::keyspace),
    Section::new("keysizes", "Keysizes", stats::keysizes),
];

/// The text of a section's fields that have been written so far.
#[derive(Default)]
pub struct Fields(String);

impl Fields {
    /// Appends a line of INFO with the field `name` and its value.
    pub fn add(&mut self, name: &str, value: impl std::fmt::Display) {
        // Writing to a String cannot fail.
        let _ = write!(self.0, "{name}:{value}\r\n");
    }

    /// Adds a field with the value 0 for each of `names`.
    pub fn zeros(&mut self, names: &[&str]) {
        for name in names {
            self.add(name, 0);
        }
    }

    /// Adds a size as two fields: `name` in bytes, and `name_human` with a unit.
    pub fn size(&mut self, name: &str, bytes: u64) {
        self.add(name, bytes);
        self.add(&format!("{name}_human"), stdx::memory_size::format_memory(bytes));
    }
}

/// Calls `visit` for all fields of the `wanted` sections, with the section's name, the field's name
/// and its value. The calling thread is outside the gate that guards the keyspace, and enters it at
/// `slot` only to write a section that locks shards. Skips such sections while a busy script owns
/// the keyspace.
pub fn each_field(
    shared: &Shared,
    slot: GateSlot,
    wanted: impl Fn(&str) -> bool,
    mut visit: impl FnMut(&str, &str, &str),
) {
    for section in SECTIONS.iter().filter(|section| wanted(section.name)) {
        let mut fields = Fields::default();
        let enter = || shared.engine.gate.shared_unless_busy(shared.engine.gate_index(slot));
        let pass = section.locks_shards.then(enter);
        if pass.as_ref().is_some_and(|pass| !pass.is_inside()) {
            // A busy script owns the keyspace: this section is skipped this time.
            continue;
        }
        (section.write)(shared, &mut fields);
        drop(pass);
        for (name, value) in fields.0.lines().filter_map(|line| line.split_once(':')) {
            visit(section.name, name, value);
        }
    }
}

/// Returns the text of INFO for the sections that `asked` names in lower case. An empty `asked`
/// selects the default sections.
pub fn text(shared: &Shared, asked: &[String]) -> String {
    let has = |word: &str| asked.iter().any(|name| name == word);
    let all = has("all") || has("everything");
    let default = asked.is_empty() || has("default");
    let mut fields = Fields::default();
    for section in SECTIONS {
        if all || (default && section.by_default) || has(section.name) {
            if !fields.0.is_empty() {
                fields.0.push_str("\r\n");
            }
            let _ = write!(fields.0, "# {}\r\n", section.heading);
            (section.write)(shared, &mut fields);
        }
    }
    fields.0
}
