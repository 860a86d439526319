//! The program `saker-copy`: its command line and its exit status.

use std::env;
use std::io::{self, Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::error::ErrorKind;
use clap::{Parser, ValueEnum};

use crate::interrupt::{INTERRUPTED, Interrupt};
use crate::progress::{Progress, Quiet};
use crate::report::summary;
use crate::run::{Existing, Options, Stop, Until, run};
use crate::server::{Server, TlsOptions};
use crate::url::Endpoint;

/// The exit status if keys differ or were refused.
const DIFFERENT: u8 = 1;
/// The exit status if the copy failed, and for invalid arguments.
const FAILED: u8 = 2;

/// Copies all data live from one server of the Redis protocol to another.
///
/// It needs no replication: it reads with SCAN and DUMP and writes with RESTORE. Keyspace events
/// name keys that change meanwhile, and these are copied again. The source is not changed, except
/// for its option notify-keyspace-events, which is set back at the end.
///
/// A server is a URL: redis://user:password@host:port, rediss:// for TLS, or unix:///path. In place
/// of a password in a URL, the variables SAKER_COPY_SOURCE_PASSWORD and SAKER_COPY_TARGET_PASSWORD
/// are used.
///
/// The exit status is 0 if all keys are equal at the end. It is 1 if keys differ or were refused, 2
/// if the copy failed, and 130 if it was interrupted.
#[derive(Debug, Parser)]
#[command(name = "saker-copy", version)]
pub struct Program {
    /// The server to read.
    source: String,
    /// The server to write.
    target: String,
    /// Databases to copy, separated by commas [default: all].
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',')]
    db: Vec<u32>,
    /// Follow changes until Ctrl-C, then compare.
    #[arg(long, conflicts_with_all = ["until_equal", "no_events"])]
    follow: bool,
    /// Follow changes until both servers are equal and no change waits.
    #[arg(long, conflicts_with_all = ["no_events", "no_compare"])]
    until_equal: bool,
    /// Data that the target has already: `refuse` to begin, `keep` it, or `remove` keys that the
    /// source lacks.
    #[arg(long, value_name = "WHAT", default_value = "refuse", hide_possible_values = true)]
    existing: ExistingArgument,
    /// Copy keys for which DUMP or RESTORE is refused by the commands of their types.
    #[arg(long)]
    rewrite: bool,
    /// Maximum number of keys read from the source per second.
    #[arg(long, value_name = "KEYS", value_parser = positive)]
    rate: Option<f64>,
    /// Maximum number of bytes of values read from the source per second, such as 10mb.
    #[arg(long, value_name = "BYTES", value_parser = memory)]
    bandwidth: Option<u64>,
    /// Connections to each server that copy keys.
    #[arg(long, value_name = "COUNT", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    connections: u8,
    /// Memory for the names of changed keys. If it is used up, everything is copied again.
    #[arg(long, value_name = "BYTES", value_parser = memory, default_value = "256mb")]
    queue_memory: u64,
    /// Seconds for which a server may be unreachable.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    retry_for: u32,
    /// Do not follow changes: the source gets no events to send.
    #[arg(long)]
    no_events: bool,
    /// Do not compare keys at the end, and do not remove keys that the source lacks.
    #[arg(long)]
    no_compare: bool,
    /// CA certificate that is trusted besides those of the system, as PEM.
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,
    /// Accept any certificate of the servers.
    #[arg(long, conflicts_with = "cacert")]
    insecure: bool,
    /// Client certificate, as PEM.
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// Private key of the client certificate, as PEM.
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Show no progress.
    #[arg(short, long)]
    quiet: bool,
}

/// The values of `--existing`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum ExistingArgument {
    Refuse,
    Keep,
    Remove,
}

fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| *number > 0.0 && number.is_finite());
    number.ok_or_else(|| "use a number above 0".to_owned())
}

fn memory(text: &str) -> Result<u64, String> {
    let bytes = stdx::memory_size::parse_memory(text.as_bytes()).filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| "use a number of bytes, such as 10mb".to_owned())
}

impl Program {
    fn options(&self) -> Options {
        Options {
            databases: self.db.clone(),
            existing: match self.existing {
                ExistingArgument::Refuse => Existing::Refuse,
                ExistingArgument::Keep => Existing::Keep,
                ExistingArgument::Remove => Existing::Remove,
            },
            until: match (self.follow, self.until_equal) {
                (true, _) => Until::Interrupted,
                (_, true) => Until::Equal,
                _ => Until::Copied,
            },
            rewrites: self.rewrite,
            compares: !self.no_compare,
            has_events: !self.no_events,
            lanes: self.connections.into(),
            keys_per_second: self.rate,
            bytes_per_second: self.bandwidth.map(|bytes| bytes as f64),
            changed_len_bytes_max: self.queue_memory as usize,
            retry_for: Duration::from_secs(self.retry_for.into()),
        }
    }

    /// Returns the server of the URL `text`. The password is that of the variable `variable` if the
    /// URL has none.
    fn server(&self, text: &str, variable: &str) -> Result<Server, String> {
        let mut endpoint = Endpoint::parse(text)?;
        if endpoint.password.is_none() {
            endpoint.password = env::var(variable).ok().filter(|password| !password.is_empty());
        }
        let tls = TlsOptions {
            ca: self.cacert.clone(),
            is_insecure: self.insecure,
            identity: self.cert.clone().zip(self.key.clone()),
        };
        Server::new(endpoint, &tls)
    }

    fn run(&self) -> Result<ExitCode, Stop> {
        let source = self.server(&self.source, "SAKER_COPY_SOURCE_PASSWORD")?;
        let target = self.server(&self.target, "SAKER_COPY_TARGET_PASSWORD")?;
        if source.endpoint.place == target.endpoint.place {
            return Err(Stop::Failed("source and target are the same server".to_owned()));
        }
        let interrupt = Interrupt::by_signals().map_err(|error| error.to_string())?;
        let mut progress = Progress::new(Quiet(self.quiet));
        let begun = Instant::now();
        let done = run(&source, &target, &self.options(), &interrupt, &mut progress)?;
        print(&summary(&done.tally, done.comparison.as_ref(), begun.elapsed().as_secs_f64()))
            .map_err(|error| error.to_string())?;
        let is_equal = done.comparison.is_none_or(|comparison| comparison.is_equal());
        let is_good = is_equal && done.tally.refused == 0;
        Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::from(DIFFERENT) })
    }
}

/// Runs saker-copy with the arguments of the process, and returns its exit status.
pub fn main() -> ExitCode {
    let program = match Program::try_parse() {
        Ok(program) => program,
        Err(error) => {
            let is_asked_for = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            // If printing fails, the error cannot be reported anywhere.
            let _ = error.print();
            return if is_asked_for { ExitCode::SUCCESS } else { ExitCode::from(FAILED) };
        }
    };
    match program.run() {
        Ok(status) => status,
        Err(Stop::Interrupted) => {
            eprintln!("saker-copy: interrupted; the target is incomplete");
            ExitCode::from(INTERRUPTED)
        }
        Err(Stop::Failed(error)) => {
            eprintln!("saker-copy: {error}");
            ExitCode::from(FAILED)
        }
    }
}

fn print(text: &str) -> io::Result<()> {
    match stdout().write_all(text.as_bytes()) {
        // The exit status still shows the result.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}
