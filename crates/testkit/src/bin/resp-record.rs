//! Records the replies of a real Redis into `.resp` scripts: `SAKER_PEER=… cargo run -p testkit
//! --bin resp-record -- tests/cmd/*.resp`.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use testkit::{Client, peer, script};

/// Runs the commands of scripts against a real Redis and fills in or corrects their replies.
#[derive(Parser)]
struct Arguments {
    /// The command line of the server to record from. Without it, $SAKER_PEER, or redis-server.
    #[arg(long)]
    peer: Option<String>,
    /// The `.resp` scripts whose replies are recorded.
    #[arg(required = true)]
    files: Vec<PathBuf>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let started = match &arguments.peer {
        Some(line) => peer::start_command(line),
        None => peer::start(),
    };
    let server = match started {
        Ok(server) => server,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut failed = false;
    for path in &arguments.files {
        match script::record(path, &|protocol| Client::speaking(&server.address(), protocol)) {
            Ok(recorded) => {
                println!("{}: recorded {} replies", path.display(), recorded.replies);
                for untrue in &recorded.untrue_patterns {
                    println!("pattern does not hold: {untrue}");
                    failed = true;
                }
            }
            Err(error) => {
                eprintln!("{error}");
                failed = true;
            }
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
