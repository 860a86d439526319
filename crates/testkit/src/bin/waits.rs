//! Measures the lateness of blocking commands: the time from the end of the requested timeout until
//! the reply.
//!
//! `cargo run -p testkit --bin waits -- --server target/release/saker-server`. For another server,
//! pass its command line and no back end: `--server redis-server --backends none`.
#![forbid(unsafe_code)]

use std::error::Error;
use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use testkit::ServerProcess;
use testkit::waits::{KINDS, Waits, run};

/// Counts blocking commands that end before their timeout, and measures the lateness of the others.
#[derive(Parser)]
struct Arguments {
    /// The server's command line, split at spaces.
    #[arg(long)]
    server: String,
    /// Back ends of the event loop; the measurement runs once with each. `none` for a server
    /// without that option.
    #[arg(long, value_delimiter = ',', default_values_t = ["epoll".to_owned(), "io_uring".to_owned()])]
    backends: Vec<String>,
    /// Numbers of clients that send pipelines of writes during the measurement, which runs once
    /// with each number.
    #[arg(long, value_delimiter = ',', default_values_t = [0, 4])]
    load: Vec<usize>,
    /// Number of simultaneous connections that send blocking commands.
    #[arg(long, default_value_t = 250)]
    connections: usize,
    /// Number of measured blocking commands of each kind, on all connections together.
    #[arg(long, default_value_t = 100_000)]
    waits: usize,
    /// Names of the blocking commands to measure; all if none is given.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// The seed from which the timeouts of the blocking commands are drawn.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> ExitCode {
    match waits(&Arguments::parse()) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(early) => {
            eprintln!("error: {early} waits ended early");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Measures all kinds of blocking commands. Returns the number of waits that ended too early.
fn waits(arguments: &Arguments) -> Result<usize, Box<dyn Error>> {
    let mut command_line: Vec<OsString> = arguments.server.split_whitespace().map(OsString::from).collect();
    // A server runs in its own folder, so a relative path would not be found.
    if let Some(program) = command_line.first_mut()
        && let Ok(path) = std::fs::canonicalize(&*program)
    {
        *program = path.into();
    }
    let mut early = 0;
    for backend in &arguments.backends {
        for &load_clients in &arguments.load {
            let mut options = vec!["--save", "", "--appendonly", "no"];
            if backend != "none" {
                options.extend(["--io-backend", backend]);
            }
            let options: Vec<String> = options.into_iter().map(str::to_owned).collect();
            let server = ServerProcess::start(&command_line, &options)?;
            let waits = Waits {
                address: server.address(),
                connections: arguments.connections,
                waits: arguments.waits.div_ceil(arguments.connections),
                load_clients,
                seed: arguments.seed,
            };
            let is_wanted =
                |name: &str| arguments.only.is_empty() || arguments.only.iter().any(|only| only == name);
            for kind in KINDS.iter().filter(|kind| is_wanted(kind.name)) {
                let report = run(&waits, kind);
                println!("{backend}, {load_clients} clients as load, {}: {report}", kind.name);
                early += report.early();
            }
        }
    }
    Ok(early)
}
