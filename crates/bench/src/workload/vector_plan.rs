//! The workloads of vector sets: VADD of a data set, VSIM of its queries, and VSIM beside GET.
//!
//! ```text
//!   for each quantization:  VADD, each row once, into an empty set
//!                           for each EF:  VSIM
//!                           VSIM beside GET, with the last EF
//! ```
//! The workloads of one quantization follow each other and use the same key, so VSIM searches what
//! VADD has added. The elements of a set are called by their row numbers.

use std::path::PathBuf;

use serde::Deserialize;

use super::vectors::{DIMENSIONS_MAX, Definition, ROWS_MAX, Source, Vectors};
use super::{Setup, Template, TemplateOptions, VectorTask, Weighted, Workload};
use crate::BenchError;

/// The number of keys that GET reads beside searches, and the size of their values in bytes.
const READ_KEYS: u64 = 10_000;
const READ_VALUE_BYTES: usize = 64;
/// The number of vectors per cluster if the number of clusters is not given.
const CLUSTER_ROWS: usize = 100;

/// The settings of the workloads of one data set of vectors.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct VectorPlan {
    /// The vectors: `clustered`, `uniform` or the path of a file.
    pub data: String,
    /// The number of vectors to add; of a file, the largest number.
    pub count: usize,
    /// The number of dimensions: 128 for generated vectors, all columns of a file.
    pub dimensions: Option<usize>,
    /// The number of clusters; one per hundred vectors when absent.
    pub clusters: Option<usize>,
    /// The distance of a vector from the centre of its cluster, as a share of the centre's norm.
    pub spread: f64,
    /// The number of different queries, the vectors that are searched for.
    pub queries: usize,
    /// The number of neighbours that a search asks for: COUNT.
    pub neighbours: usize,
    /// The seed from which vectors are generated.
    pub seed: u64,
    /// The forms in which the set keeps vectors; each is measured.
    pub quantization: Vec<Quantization>,
    /// The number of links of an element in the set's graph: M of VADD.
    pub m: u32,
    /// The number of candidates while an element is added: EF of VADD.
    pub build_ef: u32,
    /// The numbers of candidates of a search: EF of VSIM. Each is measured.
    pub ef: Vec<u32>,
    /// The number of GETs per VSIM in the workload that mixes them; 0 leaves it out.
    pub reads_per_search: u32,
}

impl Default for VectorPlan {
    fn default() -> Self {
        Self {
            data: "clustered".to_owned(),
            count: 100_000,
            dimensions: None,
            clusters: None,
            spread: 0.5,
            queries: 1_000,
            neighbours: 10,
            seed: 1,
            quantization: vec![Quantization::Q8],
            m: 16,
            build_ef: 200,
            ef: vec![100],
            reads_per_search: 0,
        }
    }
}

/// The form in which a vector set keeps its vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Quantization {
    /// Each component of a vector is an 8-bit integer.
    Q8,
    /// Each component of a vector is a 32-bit float.
    NoQuant,
    /// Each component of a vector is one bit.
    Bin,
}

impl Quantization {
    /// Returns the option of VADD for this form of vectors.
    pub fn word(self) -> &'static str {
        match self {
            Quantization::Q8 => "Q8",
            Quantization::NoQuant => "NOQUANT",
            Quantization::Bin => "BIN",
        }
    }

    /// Parses the name of a quantization: `q8`, `noquant` or `bin`, in any case.
    pub fn parse(text: &str) -> Result<Self, String> {
        [Quantization::Q8, Quantization::NoQuant, Quantization::Bin]
            .into_iter()
            .find(|form| form.word().eq_ignore_ascii_case(text))
            .ok_or_else(|| "use q8, noquant or bin".to_owned())
    }
}

impl VectorPlan {
    /// Checks the settings, and returns the data set of vectors, whose data is not made yet. The
    /// error names the setting that is out of range.
    pub fn vectors(&self) -> Result<Vectors, BenchError> {
        let counts = [
            ("count", self.count, ROWS_MAX),
            ("dimensions", self.dimensions.unwrap_or(1), DIMENSIONS_MAX),
            ("clusters", self.clusters.unwrap_or(1), ROWS_MAX),
            ("queries", self.queries, ROWS_MAX),
            ("neighbours", self.neighbours, self.count),
            ("m", self.m as usize, 4_096),
            ("build_ef", self.build_ef as usize, 1_000_000),
        ];
        let ef = self.ef.iter().map(|ef| ("ef", *ef as usize, 1_000_000));
        for (name, value, max) in counts.into_iter().chain(ef) {
            if !(1..=max).contains(&value) {
                return Err(BenchError::Usage(format!("{name} is {value}: it must be 1 to {max}")));
            }
        }
        if !(self.spread >= 0.0 && self.spread <= 1e6) {
            return Err(BenchError::Usage(format!("spread is {}: it must be 0 to 1000000", self.spread)));
        }
        if self.quantization.is_empty() || self.data.is_empty() {
            return Err(BenchError::Usage("data and quantization must not be empty".to_owned()));
        }
        let (source, dimensions) = match self.data.as_str() {
            "uniform" => (Source::Uniform, self.dimensions.or(Some(128))),
            "clustered" => {
                let clusters = self.clusters.unwrap_or(self.count.div_ceil(CLUSTER_ROWS));
                (Source::Clustered { clusters, spread: self.spread }, self.dimensions.or(Some(128)))
            }
            path => (Source::File(PathBuf::from(path)), self.dimensions),
        };
        let (rows, queries, neighbours, seed) = (self.count, self.queries, self.neighbours, self.seed);
        Ok(Vectors::new(Definition { source, rows, dimensions, queries, neighbours, seed }))
    }

    /// Returns the name of the data set in results: `clustered 128`, or the name of the file
    /// without its folder and extension.
    fn title(&self, vectors: &Vectors) -> String {
        let definition = vectors.definition();
        let name = match &definition.source {
            Source::File(path) => path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
            _ => self.data.clone(),
        };
        definition.dimensions.map_or_else(|| name.clone(), |dimensions| format!("{name} {dimensions}"))
    }

    /// Returns the workloads in the order in which they run. `name` replaces the name of the data
    /// set in their names unless it is empty.
    pub fn workloads(&self, name: &str, vectors: &Vectors) -> Result<Vec<Workload>, BenchError> {
        let title = if name.is_empty() { self.title(vectors) } else { name.to_owned() };
        let mut all = Vec::new();
        for quantization in &self.quantization {
            let label = format!("{title} {}", quantization.word());
            let set = PlannedSet { plan: self, vectors, key: slug(&label), label };
            all.push(set.add(*quantization)?);
            for ef in &self.ef {
                all.push(set.search(*ef)?);
            }
            if let Some(ef) = self.ef.last()
                && self.reads_per_search > 0
            {
                all.push(set.search_beside_reads(*ef)?);
            }
        }
        Ok(all)
    }
}

/// A vector set that the workloads of one quantization share.
struct PlannedSet<'a> {
    plan: &'a VectorPlan,
    vectors: &'a Vectors,
    key: String,
    label: String,
}

impl PlannedSet<'_> {
    fn add(&self, quantization: Quantization) -> Result<Workload, BenchError> {
        let VectorPlan { build_ef, m, .. } = self.plan;
        let (key, word) = (&self.key, quantization.word());
        let line = format!("VADD {key} FP32 {{vector}} {{element}} {word} EF {build_ef} M {m}");
        let mut workload = self.workload("VADD", None, &[(1, &line)])?;
        workload.setup.push(Setup { workload: plain(&format!("DEL {key}"))?, requests: 1 });
        if let Some(task) = &mut workload.vectors {
            task.adds_all = true;
        }
        Ok(workload)
    }

    fn search(&self, ef: u32) -> Result<Workload, BenchError> {
        self.workload("VSIM", Some(ef), &[(1, &self.search_line(ef))])
    }

    fn search_beside_reads(&self, ef: u32) -> Result<Workload, BenchError> {
        let get = format!("GET {{key uniform {READ_KEYS}}}");
        let lines = [(1, self.search_line(ef)), (self.plan.reads_per_search, get)];
        let lines = lines.each_ref().map(|(weight, line)| (*weight, line.as_str()));
        let mut workload = self.workload("VSIM and GET", Some(ef), &lines)?;
        let fill = format!("SET {{key sequence {READ_KEYS}}} {{value {READ_VALUE_BYTES}}}");
        workload.setup.push(Setup { workload: plain(&fill)?, requests: READ_KEYS });
        Ok(workload)
    }

    fn search_line(&self, ef: u32) -> String {
        format!("VSIM {} FP32 {{query}} COUNT {} EF {ef}", self.key, self.plan.neighbours)
    }

    fn workload(&self, what: &str, ef: Option<u32>, lines: &[(u32, &str)]) -> Result<Workload, BenchError> {
        let options = TemplateOptions { vectors: Some(self.vectors.clone()), ..TemplateOptions::default() };
        let with_ef = ef.map_or_else(String::new, |ef| format!(" EF {ef}"));
        let name = format!("{what} {}{with_ef}", self.label);
        let mut workload = Workload::from_templates(&name, lines, &options)?;
        workload.vectors = Some(VectorTask {
            vectors: self.vectors.clone(),
            label: self.label.clone(),
            ef,
            adds_all: false,
        });
        Ok(workload)
    }
}

/// Returns the workload of the single command `line`, parsed without template options.
fn plain(line: &str) -> Result<Workload, BenchError> {
    let mut sequences = 0;
    let template = Template::parse(line, &TemplateOptions::default(), &mut sequences)?;
    Ok(Workload::of(line, vec![Weighted { weight: 1, template }], sequences))
}

/// Returns `label`, the name of a vector set, as a key without blanks and braces:
/// `vectors:clustered-128-q8`.
fn slug(label: &str) -> String {
    let letter =
        |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' };
    format!("vectors:{}", label.chars().map(letter).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names_and_commands(plan: &VectorPlan, name: &str) -> Vec<(String, String)> {
        let workloads = plan.workloads(name, &plan.vectors().unwrap()).unwrap();
        workloads.into_iter().map(|workload| (workload.name.clone(), workload.command())).collect()
    }

    #[test]
    fn a_plan_adds_then_searches_each_quantization() {
        let plan = VectorPlan {
            quantization: vec![Quantization::Q8, Quantization::NoQuant],
            ef: vec![50, 100],
            reads_per_search: 9,
            ..VectorPlan::default()
        };
        let all = names_and_commands(&plan, "");
        let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            names[..4],
            [
                "VADD clustered 128 Q8",
                "VSIM clustered 128 Q8 EF 50",
                "VSIM clustered 128 Q8 EF 100",
                "VSIM and GET clustered 128 Q8 EF 100"
            ]
        );
        assert_eq!(names.len(), 8);
        let key = "vectors:clustered-128-q8";
        assert_eq!(all[0].1, format!("VADD {key} FP32 {{vector}} {{element}} Q8 EF 200 M 16"));
        let search = format!("VSIM {key} FP32 {{query}} COUNT 10 EF 100");
        assert_eq!(all[3].1, format!("1: {search}\n9: GET {{key uniform 10000}}"));
        assert!(all[4].1.contains("vectors:clustered-128-noquant"));
    }

    #[test]
    fn a_file_has_its_name_unless_another_is_given() {
        let plan = VectorPlan { data: "sets/digits.csv".to_owned(), ..VectorPlan::default() };
        assert_eq!(names_and_commands(&plan, "")[0].0, "VADD digits Q8");
        assert_eq!(names_and_commands(&plan, "my digits")[1].0, "VSIM my digits Q8 EF 100");
    }

    #[test]
    fn settings_out_of_range_are_named() {
        let refused = |change: fn(&mut VectorPlan)| {
            let mut plan = VectorPlan::default();
            change(&mut plan);
            plan.vectors().unwrap_err().to_string()
        };
        assert!(refused(|plan| plan.count = 0).starts_with("count is 0"));
        assert!(refused(|plan| plan.neighbours = 200_000).starts_with("neighbours is 200000"));
        assert!(refused(|plan| plan.ef = vec![10, 0]).starts_with("ef is 0"));
        assert!(refused(|plan| plan.spread = f64::NAN).starts_with("spread is NaN"));
        assert!(refused(|plan| plan.quantization.clear()).contains("quantization"));
        assert!(Quantization::parse("Bin").is_ok() && Quantization::parse("fp32").is_err());
    }
}
