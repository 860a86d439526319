//! Tests of vector workloads against a server that searches exactly: all vectors are added once,
//! and the recall is that of the replies.

use std::fs;
use std::path::Path;
use std::process::Command;

use bench::results::RunResult;
use bench::spec::{Limit, RunSpec};
use bench::workload::VectorPlan;
use bench::{run, set_up};

use crate::slow_server::{Oddities, SlowServer};

/// Runs the workloads of `plan` with 60 requests each on `server`. Returns their results.
fn results(server: &SlowServer, plan: &VectorPlan) -> Vec<RunResult> {
    let workloads = plan.workloads("", &plan.vectors().unwrap()).unwrap();
    let run_one = |workload| {
        let spec = RunSpec { workload, ..server.spec("PING", 3, Limit::Requests(60)) };
        set_up(&spec).unwrap();
        run(&spec).unwrap()
    };
    workloads.into_iter().map(run_one).collect()
}

fn plan() -> VectorPlan {
    VectorPlan {
        count: 300,
        dimensions: Some(8),
        queries: 20,
        neighbours: 5,
        reads_per_search: 3,
        ..VectorPlan::default()
    }
}

#[test]
fn every_vector_is_added_once_and_an_exact_search_finds_all_neighbours() {
    let server = SlowServer::start(Oddities::default());
    let all = results(&server, &plan());
    let [add, search, mix] = &all[..] else { panic!("{all:?}") };
    assert_eq!(server.vector_counts().into_values().collect::<Vec<_>>(), [300]);
    assert_eq!((add.requests, add.vectors.as_ref().unwrap().recall), (300, None));
    let found = search.vectors.as_ref().unwrap();
    assert_eq!((found.recall, found.searches, found.neighbours), (Some(1.0), 60, 5));
    assert_eq!((found.rows, found.dimensions, found.ef), (300, 8, Some(100)));
    assert!(found.beside.is_none());
    let mixed = mix.vectors.as_ref().unwrap();
    assert_eq!(mixed.recall, Some(1.0));
    assert_eq!(mixed.searches + mixed.beside.as_ref().unwrap().requests, 60);
    assert_eq!((mix.hits, mix.misses), (60 - mixed.searches, 0));
}

#[test]
fn a_wrong_element_in_each_reply_lowers_the_recall() {
    let server = SlowServer::start(Oddities { forges: true, ..Oddities::default() });
    let all = results(&server, &plan());
    assert_eq!(all[1].vectors.as_ref().unwrap().recall, Some(0.8));
}

/// Runs `saker-bench run` with these arguments, and returns its output and its results.
fn command(server: &SlowServer, dir: &Path, arguments: &[&str]) -> (String, Vec<RunResult>) {
    let json = dir.join("results.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_saker-bench"));
    command.args(["run", "-p", &server.port().to_string(), "-n", "40", "-c", "2", "-q", "--json"]);
    let output = command.arg(&json).args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let results = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    (String::from_utf8(output.stdout).unwrap(), results)
}

#[test]
fn a_file_of_vectors_is_added_and_searched_by_options_and_by_commands() {
    let dir = tempfile::tempdir().unwrap();
    let server = SlowServer::start(Oddities::default());
    let file = dir.path().join("points.csv");
    let row = |at: u32| format!("{},{},{at}\n", f64::from(at * at) + 1.0, 50 - at);
    fs::write(&file, (0..50).map(row).collect::<String>()).unwrap();
    let data = ["--vectors", file.to_str().unwrap(), "--vector-queries", "10", "--vector-dimensions", "2"];
    let data = [&data[..], &["--vector-neighbours", "4"]].concat();
    let (text, results) = command(&server, dir.path(), &[&data[..], &["--vector-ef", "20,40"]].concat());
    let names: Vec<&str> = results.iter().map(|result| result.test.as_str()).collect();
    assert_eq!(names, ["VADD points 2 Q8", "VSIM points 2 Q8 EF 20", "VSIM points 2 Q8 EF 40"]);
    assert!(text.lines().nth(2).unwrap().contains(", recall=100.00 %"), "{text}");
    assert_eq!(server.vector_counts()["vectors:points-2-q8"], 40);
    // The same vectors in commands of one's own.
    command(&server, dir.path(), &[&data[..], &["VADD own FP32 {vector} {element} NOQUANT"]].concat());
    let search = "VSIM own FP32 {query} COUNT 4";
    let (_, results) = command(&server, dir.path(), &[&data[..], &[search]].concat());
    assert_eq!(results[0].vectors.as_ref().unwrap().recall, Some(1.0));
}

#[test]
fn a_study_with_vectors_reports_recall_in_all_reports() {
    let dir = tempfile::tempdir().unwrap();
    let server = SlowServer::start(Oddities::default());
    let study = format!(
        "title = 'x'\nrounds = 1\n[load]\nrequests = 50\nconnections = [2]\n[[engine]]\nname = 'a'\n\
         address = '127.0.0.1:{}'\n[[workload]]\nname = 'points'\n\
         vectors = {{ data = 'uniform', count = 200, dimensions = 4, queries = 9, ef = [10, 20] }}\n",
        server.port()
    );
    let path = dir.path().join("study.toml");
    fs::write(&path, study).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_saker-bench"));
    let output = command.arg("compare").arg(&path).arg("--out").arg(dir.path()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
    let csv = read("results.csv");
    assert_eq!(csv.matches("\"100.000\"").count(), 2, "{csv}");
    assert!(read("summary.md").contains("Recall, %"));
    let page = read("report.html");
    assert!(page.contains("Recall against throughput") && page.contains("VSIM points Q8 EF 20"), "{page}");
    let chart = read("pictures/recall-points-q8.svg");
    assert!(chart.contains("EF 10: recall 100 %") || chart.contains("EF 10: recall 100.00 %"), "{chart}");
    assert_eq!(server.vector_counts()["vectors:points-q8"], 200);
}
