//! The requests of a run as templates, alone or mixed by weight.
//!
//! A [`Workload`] is parsed once and shared by all threads. The state of its random choices belongs
//! to each thread (`draw.rs`). A workload is built from one of these:
//!
//! - the names of redis-benchmark's tests ([`Workload::default_tests`]),
//! - command templates ([`Workload::from_templates`]),
//! - a file of templates ([`Workload::from_file`]),
//! - memtier_benchmark's mix of SET and GET ([`Workload::memtier`]),
//! - the settings of a vector set ([`VectorPlan::workloads`]).

mod defaults;
mod distribution;
mod draw;
mod memtier;
mod slot;
mod template;
mod value;
mod vector_plan;
mod vectors;

use std::path::Path;

use crate::BenchError;

pub use defaults::{DEFAULT_TESTS, DefaultTestOptions};
pub use distribution::{KeyPattern, Keys, Zipf};
pub use draw::{Draw, Sequences, fresh_seed};
pub use memtier::Memtier;
pub use slot::{SLOTS, slot};
pub use template::{Template, TemplateOptions};
pub use value::{Content, Sizes, Values};
pub use vector_plan::{Quantization, VectorPlan};
pub use vectors::{Definition, ELEMENT_DIGITS, Source, Truth, VectorData, Vectors};

/// The requests that a run sends repeatedly: templates with weights, and the requests before them.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The name of the workload in results: redis-benchmark's title, the template of a single
    /// command, or the name of a file or mix.
    pub name: String,
    /// The requests of the workload with their weights. Never empty.
    pub requests: Vec<Weighted>,
    /// The number of different keys that requests choose from, as far as known; 0 if all use the
    /// same key.
    pub keyspace: u64,
    /// The sizes of values in bytes, as text such as `10-100`; empty if the workload has no values.
    pub value_bytes: String,
    /// The number of counters that the workload's sequential keys need.
    pub sequences: usize,
    /// The values that the workload writes. If replies are verified, also the values that its reads
    /// expect.
    pub values: Option<Values>,
    /// The unmeasured requests that are sent before a run, in this order.
    pub setup: Vec<Setup>,
    /// The part of the workload that concerns a vector set; `None` if it has none.
    pub vectors: Option<VectorTask>,
}

/// Requests that are sent without being measured before a run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The requests that are sent before a run.
    pub workload: Workload,
    /// The number of requests to send before a run.
    pub requests: u64,
}

/// The part of a workload for a vector set: its data and settings.
#[derive(Clone, Debug)]
pub struct VectorTask {
    /// The data set from which requests take vectors.
    pub vectors: Vectors,
    /// The name of the vector set in results: its data and its quantization.
    pub label: String,
    /// The EF of searches, their number of candidates; `None` if it is not known.
    pub ef: Option<u32>,
    /// True if a run adds each vector once, whatever the limit of the load.
    pub adds_all: bool,
}

/// A request template and its weight in a mix.
#[derive(Clone, Debug)]
pub struct Weighted {
    /// The weight of the request relative to the other requests of the mix.
    pub weight: u32,
    /// The template from which the request is rendered.
    pub template: Template,
}

impl Workload {
    /// Creates a workload called `name` that sends `requests` and has `sequences` counters for
    /// sequential keys.
    fn of(name: &str, requests: Vec<Weighted>, sequences: usize) -> Self {
        let templates = || requests.iter().map(|request| &request.template);
        let keyspace = templates().map(Template::keyspace).max().unwrap_or(0);
        let values = templates().find_map(Template::values).cloned();
        let value_bytes = values.as_ref().map_or_else(String::new, |values| values.sizes().to_string());
        Self {
            name: name.to_owned(),
            keyspace,
            value_bytes,
            sequences,
            values,
            requests,
            setup: Vec::new(),
            vectors: None,
        }
    }

    /// Creates a workload from weighted command lines with placeholders. If `name` is empty, the
    /// first line is the name. Returns an error if a line is invalid, a weight is out of range or
    /// there is no line.
    pub fn from_templates(
        name: &str,
        lines: &[(u32, &str)],
        options: &TemplateOptions,
    ) -> Result<Self, BenchError> {
        let mut sequences = 0;
        let mut requests = Vec::new();
        for &(weight, line) in lines {
            if !(1..=WEIGHT_MAX).contains(&weight) {
                return Err(BenchError::Usage(format!("{line:?}: a weight must be 1 to {WEIGHT_MAX}")));
            }
            requests.push(Weighted { weight, template: Template::parse(line, options, &mut sequences)? });
        }
        if requests.is_empty() {
            return Err(BenchError::Usage("no command to send".to_owned()));
        }
        let name = if name.is_empty() { lines[0].1 } else { name };
        Ok(Self::of(name, requests, sequences))
    }

    /// Creates a workload of one command whose words are already split, as by a shell.
    pub fn from_arguments(arguments: &[Vec<u8>], options: &TemplateOptions) -> Result<Self, BenchError> {
        let mut sequences = 0;
        let template = Template::from_arguments(arguments, options, &mut sequences)?;
        let name = template.text().to_owned();
        Ok(Self::of(&name, vec![Weighted { weight: 1, template }], sequences))
    }

    /// Creates a workload from a file of commands, one per line. A weight and a colon precede the
    /// command if the weight is not 1 (`15: GET {key uniform 1000}`). Empty lines and lines that
    /// begin with `#` are ignored.
    pub fn from_file(path: &Path, options: &TemplateOptions) -> Result<Self, BenchError> {
        let unreadable = |error| BenchError::Usage(format!("cannot read {}: {error}", path.display()));
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let lines: Vec<(u32, &str)> = lines.map(weight_and_line).collect();
        let name = path.file_name().map_or_else(|| path.to_string_lossy(), |name| name.to_string_lossy());
        Self::from_templates(&name, &lines, options)
            .map_err(|error| BenchError::Usage(format!("{}: {error}", path.display())))
    }

    /// Returns the command template of the workload. For a mix, returns one line per command, each
    /// with its weight.
    pub fn command(&self) -> String {
        if let [only] = &self.requests[..] {
            return only.template.text().to_owned();
        }
        let lines =
            self.requests.iter().map(|request| format!("{}: {}", request.weight, request.template.text()));
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// The largest weight of a request in a mix.
const WEIGHT_MAX: u32 = 1_000_000;

/// Splits `15: GET x` into weight and command. The weight is 1 if the line has none.
fn weight_and_line(line: &str) -> (u32, &str) {
    let weighted = line.split_once(':').and_then(|(weight, rest)| Some((weight.trim().parse().ok()?, rest)));
    weighted.map_or((1, line), |(weight, rest)| (weight, rest.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_commands_is_a_mix() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mix");
        std::fs::write(
            &path,
            "# reads and writes\n\n15: GET {key uniform 9}\nSET {key uniform 7} {value 5}\n",
        )
        .unwrap();
        let workload = Workload::from_file(&path, &TemplateOptions::default()).unwrap();
        assert_eq!(workload.command(), "15: GET {key uniform 9}\n1: SET {key uniform 7} {value 5}");
        assert_eq!(
            (workload.name.as_str(), workload.keyspace, workload.value_bytes.as_str()),
            ("mix", 9, "5")
        );
    }

    #[test]
    fn a_bad_file_is_told_with_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let read = |text: &str| {
            let path = dir.path().join("bad");
            std::fs::write(&path, text).unwrap();
            Workload::from_file(&path, &TemplateOptions::default()).unwrap_err().to_string()
        };
        for text in ["", "# nothing", "0: GET a", "GET {key wrong 1}", "SET 'a"] {
            let error = read(text);
            assert!(error.contains("bad") && error.lines().count() == 1, "{error}");
        }
        let missing = Workload::from_file(&dir.path().join("none"), &TemplateOptions::default());
        assert!(missing.unwrap_err().to_string().contains("cannot read"));
    }

    #[test]
    fn a_ratio_is_two_counts() {
        assert_eq!(Workload::parse_ratio("1:15").unwrap(), (1, 15));
        for text in ["", "1", "1:", ":1", "-1:2", "1:2:3", "9999999:1"] {
            assert!(Workload::parse_ratio(text).is_err(), "{text}");
        }
    }
}
