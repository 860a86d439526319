//! Project automation. `cargo xtask test` runs all steps of CI; `cargo xtask help` lists the other
//! tasks.
#![forbid(unsafe_code)]

mod bench;
mod ci;
mod docs;
mod package;
mod peer;
mod programs;
mod progress;
mod redis_suite;
mod release;
mod server;
mod shell;
mod simulate;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};

use progress::{Order, Selection, Session};

/// Builds, checks, measures and documents Saker.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run all steps of CI, as the CI service does.
    Test(TestArguments),
    /// Print the times of the steps of the last run of `cargo xtask test` that had several steps.
    CiTimes,
    /// Check the structure rules that a program can check (see tidy.toml).
    Tidy(TidyArguments),
    /// Measure Saker and the peers on PATH (redis-server, valkey-server) in turn, and print a
    /// table.
    Bench(bench::BenchArguments),
    /// Write the generated pages: commands, options, metrics, unsafe code, and the configuration
    /// file.
    Docs,
    /// Build a Debian package of the release binaries, in target/package.
    Package,
    /// Print the licenses and notices of the libraries that are linked into programs.
    Notices {
        /// The crates of the programs, such as server, bench or check.
        #[arg(required = true)]
        programs: Vec<String>,
    },
    /// Run fuzz targets; interesting inputs are stored below the target folder.
    Fuzz(FuzzArguments),
    /// Kill the server and workers of frameworks together, and count lost jobs.
    Crashes(ci::crashes::CrashArguments),
    /// Run engines with simulated threads, clients, replication links, clock and disk, until the
    /// time is over or a check fails.
    Simulate(simulate::SimulateArguments),
    /// Check that the simulator finds known bugs; each is planted in a copy of the sources.
    Plant(simulate::plant::PlantArguments),
    /// Run Redis' own test suite against Saker, without the parts that tests/redis-suite/skip.toml
    /// leaves out.
    RedisSuite(redis_suite::SuiteArguments),
}

#[derive(Args)]
struct TidyArguments {
    /// Print the sizes of the functions, structs and circles of modules of each crate, and check
    /// nothing.
    #[arg(long)]
    figures: bool,
}

#[derive(Args)]
struct FuzzArguments {
    /// Targets of fuzz/fuzz_targets; all when none is named.
    targets: Vec<String>,
    /// The time that each target runs, in seconds.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// The seed of random choices.
    #[arg(long)]
    seed: Option<u64>,
}

#[derive(Args)]
struct TestArguments {
    /// Run only these steps.
    #[arg(long, value_name = "STEP", value_delimiter = ',')]
    only: Vec<String>,
    /// Leave these steps out.
    #[arg(long, value_name = "STEP", value_delimiter = ',')]
    skip: Vec<String>,
    /// Print the list of steps and exit.
    #[arg(long)]
    list: bool,
    /// Run one step at a time. Without it, the steps that mostly wait for servers run in parallel
    /// with the steps that compute.
    #[arg(long)]
    sequential: bool,
    /// The seed of random choices. A failure prints the seed that repeats it.
    #[arg(long)]
    seed: Option<u64>,
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a task. Returns true if the task found no problem.
fn run(arguments: Arguments) -> Result<bool> {
    let root = root()?;
    match arguments.command {
        Task::Test(arguments) => test(root, arguments),
        Task::CiTimes => {
            let path = Session::new(root, 0).times_path();
            print!("{}", std::fs::read_to_string(path).context("no run of `cargo xtask test` is on record")?);
            Ok(true)
        }
        Task::Fuzz(arguments) => {
            let session = Session::new(root, arguments.seed.unwrap_or_else(fresh_seed));
            ci::fuzz::run(&session, &arguments.targets, arguments.seconds)
        }
        Task::Crashes(mut arguments) => {
            let seed = *arguments.seed.get_or_insert_with(fresh_seed);
            ci::crashes::run(&Session::new(root, seed), &arguments)
        }
        Task::RedisSuite(arguments) => redis_suite::run(&Session::new(root, fresh_seed()), &arguments),
        Task::Simulate(arguments) => simulate::run(&Session::new(root, fresh_seed()), &arguments),
        Task::Plant(arguments) => simulate::plant::run(&Session::new(root, fresh_seed()), &arguments),
        Task::Docs => docs::write(&Session::new(root, fresh_seed())),
        Task::Package => package::run(&Session::new(root, fresh_seed())),
        Task::Notices { programs } => package::notices::print(&Session::new(root, fresh_seed()), &programs),
        Task::Bench(arguments) => bench::run(&Session::new(root, fresh_seed()), &arguments),
        Task::Tidy(arguments) if arguments.figures => {
            print!("{}", tidy::figures(&root)?);
            Ok(true)
        }
        Task::Tidy(_) => {
            let findings = tidy::check(&root)?;
            findings.iter().for_each(|finding| println!("{finding}"));
            println!("tidy: {} findings", findings.len());
            Ok(findings.is_empty())
        }
    }
}

fn test(root: PathBuf, arguments: TestArguments) -> Result<bool> {
    if arguments.list {
        progress::list(ci::STEPS);
        return Ok(true);
    }
    let seed = arguments.seed.unwrap_or_else(fresh_seed);
    let session = Session::new(root, seed);
    shell::clear_logs(&session);
    println!("seed {seed} (repeat with --seed {seed})");
    let order = if arguments.sequential { Order::Sequential } else { Order::Parallel };
    progress::run(&session, ci::STEPS, &Selection { only: arguments.only, skip: arguments.skip }, order)
}

/// Returns the repository's root: the folder above `crates/xtask`.
fn root() -> Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    Ok(here.ancestors().nth(2).context("xtask lies in crates/ of the repository")?.to_path_buf())
}

/// Returns a seed that differs from run to run and is short enough to type.
fn fresh_seed() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| time.as_secs())
}
