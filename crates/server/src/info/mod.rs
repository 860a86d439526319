//! INFO: every section is a function that writes its fields from what the threads count and share.
//!
//! The field names and their order are Redis'. A field of something this server does not do (forks,
//! modules) is there with the value Redis shows when it is not in use, because monitors ask for it.

use std::fmt::Write;

use crate::shared::Shared;

mod memory;
mod server;
mod stats;

pub use memory::{Beyond, MemoryFigures, ratio};

/// A section: its name in a request, its heading, whether a plain INFO shows it, and its writer.
pub struct Section {
    /// As a client asks for it.
    pub name: &'static str,
    heading: &'static str,
    by_default: bool,
    write: fn(&Shared, &mut Fields),
}

/// All sections, in the order INFO shows them.
pub static SECTIONS: &[Section] = &[
    Section { name: "server", heading: "Server", by_default: true, write: server::server },
    Section { name: "clients", heading: "Clients", by_default: true, write: server::clients },
    Section { name: "memory", heading: "Memory", by_default: true, write: memory::memory },
    Section { name: "persistence", heading: "Persistence", by_default: true, write: server::persistence },
    Section { name: "threads", heading: "Threads", by_default: true, write: server::threads },
    Section { name: "stats", heading: "Stats", by_default: true, write: stats::stats },
    Section { name: "replication", heading: "Replication", by_default: true, write: server::replication },
    Section { name: "cpu", heading: "CPU", by_default: true, write: server::cpu },
    Section { name: "modules", heading: "Modules", by_default: true, write: |_, _| () },
    Section { name: "commandstats", heading: "Commandstats", by_default: false, write: stats::commandstats },
    Section { name: "latencystats", heading: "Latencystats", by_default: false, write: stats::latencystats },
    Section { name: "hotkeys", heading: "Hotkeys", by_default: false, write: stats::hotkeys },
    Section { name: "errorstats", heading: "Errorstats", by_default: true, write: stats::errorstats },
    Section { name: "cluster", heading: "Cluster", by_default: true, write: server::cluster },
    Section { name: "keyspace", heading: "Keyspace", by_default: true, write: stats::keyspace },
    Section { name: "keysizes", heading: "Keysizes", by_default: true, write: stats::keysizes },
];

/// Fields of a section on their way into the reply.
#[derive(Default)]
pub struct Fields(String);

impl Fields {
    /// One field.
    pub fn add(&mut self, name: &str, value: impl std::fmt::Display) {
        // Writing to a String cannot fail.
        let _ = write!(self.0, "{name}:{value}\r\n");
    }

    /// Several fields that are all zero here.
    pub fn zeros(&mut self, names: &[&str]) {
        for name in names {
            self.add(name, 0);
        }
    }

    /// A size twice: in bytes, and readable.
    pub fn size(&mut self, name: &str, bytes: u64) {
        self.add(name, bytes);
        self.add(&format!("{name}_human"), stdx::memory_size::format_memory(bytes));
    }
}

/// Visits all fields of all sections: the section's name, the field's, its value.
pub fn each_field(shared: &Shared, mut visit: impl FnMut(&str, &str, &str)) {
    for section in SECTIONS {
        let mut fields = Fields::default();
        (section.write)(shared, &mut fields);
        for (name, value) in fields.0.lines().filter_map(|line| line.split_once(':')) {
            visit(section.name, name, value);
        }
    }
}

/// INFO's text for the asked sections (lower case); none for the default ones.
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
