//! All of CI as a list of steps. The cheapest steps come first, so that simple mistakes are found
//! within seconds.

mod bench;
mod cargo;
mod clients;
mod compare;
pub mod crashes;
mod dependencies;
mod frameworks;
pub mod fuzz;
mod languages;
mod libraries;
mod package;
mod prometheus;
mod sanitize;
mod unit;

use anyhow::Result;

use crate::progress::AfterFailure::{Repeat, Stop};
use crate::progress::Lane::{Models, Servers, Sources};
use crate::progress::{Outcome, Session, Step};
use crate::{docs, redis_suite, release, simulate, tidy};

const CLIENT_REMEDY: &str = "start `target/release/saker-server` and repeat the client's command by hand";
const FRAMEWORK_REMEDY: &str = "start `target/release/saker-server` and run the log's last command with its port; the last word is the seed";

/// The steps of `cargo xtask test`. The lanes run in parallel, each in this order. With
/// `--sequential`, all steps run in this order.
pub const STEPS: &[Step] = &[
    Step {
        name: "fmt",
        about: "sources are formatted",
        remedy: "run `cargo fmt --all` and commit what it changes",
        lane: Sources,
        after_failure: Stop,
        run: cargo::fmt,
    },
    Step {
        name: "clippy",
        about: "no warning of the compiler or clippy, in any target",
        remedy: "mend what is shown above; an `#[allow]` needs its reason beside it",
        lane: Sources,
        after_failure: Stop,
        run: cargo::clippy,
    },
    Step {
        name: "tidy",
        about: "the structure rules that a program can check",
        remedy: "mend what is shown above; tidy.toml holds the allowances, each with its reason",
        lane: Sources,
        after_failure: Stop,
        run: tidy_step,
    },
    Step {
        name: "dependencies",
        about: "licenses, sources and known flaws of the libraries (cargo-deny, deny.toml)",
        remedy: "`cargo deny check` shows the library; deny.toml holds the exceptions, each with its reason",
        lane: Sources,
        after_failure: Stop,
        run: dependencies::step,
    },
    Step {
        name: "unit",
        about: "every test of the workspace (cargo test)",
        remedy: "`cargo test -p CRATE NAME` repeats one test",
        lane: Sources,
        after_failure: Stop,
        run: unit::step,
    },
    Step {
        name: "docs",
        about: "the command and option pages are what the records say, and every command has an example",
        remedy: "run `cargo xtask docs`, append the examples that it misses to tests/cmd, commit what changes",
        lane: Sources,
        after_failure: Stop,
        run: docs::check,
    },
    Step {
        name: "loom",
        about: "all interleavings of the concurrent pieces",
        remedy: "`RUSTFLAGS='--cfg loom' LOOM_LOG=1 cargo test -p CRATE --test NAME` shows the interleaving",
        lane: Models,
        after_failure: Stop,
        run: cargo::loom,
    },
    Step {
        name: "shuttle",
        about: "the concurrent pieces under random schedules",
        remedy: "the log has the schedule; `shuttle::replay` repeats it",
        lane: Models,
        after_failure: Stop,
        run: cargo::shuttle,
    },
    Step {
        name: "simulator",
        about: "an engine with simulated threads, clients, links, clock and disk, for a minute",
        remedy: "`cargo xtask simulate --scenario SEED` repeats the scenario that failed",
        lane: Models,
        after_failure: Stop,
        run: simulate::step,
    },
    Step {
        name: "sanitizers",
        about: "the crates with unsafe code, under AddressSanitizer or valgrind",
        remedy: "the log shows the bad access and both stacks",
        lane: Models,
        after_failure: Stop,
        run: sanitize::step,
    },
    Step {
        name: "fuzz",
        about: "each fuzz target for a few seconds",
        remedy: "the log names the input it found; run the target's binary with that file, then make it a unit test",
        lane: Models,
        after_failure: Stop,
        run: fuzz::smoke,
    },
    Step {
        name: "release",
        about: "the release binaries build; their sizes",
        remedy: "`cargo build --release` shows the same",
        lane: Servers,
        after_failure: Stop,
        run: release::step,
    },
    Step {
        name: "prometheus",
        about: "promtool on the metrics of a server, the alert rules and the dashboard's expressions",
        remedy: "the log has promtool's words; `promtool check rules packaging/prometheus/alerts.yml` repeats the first",
        lane: Servers,
        after_failure: Repeat,
        run: prometheus::step,
    },
    Step {
        name: "redis-cli",
        about: "redis-cli against the server, on each back end",
        remedy: CLIENT_REMEDY,
        lane: Servers,
        after_failure: Repeat,
        run: clients::redis_cli,
    },
    Step {
        name: "redis-benchmark",
        about: "all default tests of redis-benchmark, on each back end",
        remedy: CLIENT_REMEDY,
        lane: Servers,
        after_failure: Repeat,
        run: clients::redis_benchmark,
    },
    Step {
        name: "bench",
        about: "a small study by saker-bench, its report opened in a headless browser",
        remedy: "open target/bench-report/report.html; `saker-bench compare target/bench-report/study.toml` repeats it",
        lane: Servers,
        after_failure: Repeat,
        run: bench::step,
    },
    Step {
        name: "redis-py",
        about: "redis-py over every type, TCP, Unix socket, password, RESP2 and RESP3",
        remedy: CLIENT_REMEDY,
        lane: Servers,
        after_failure: Repeat,
        run: clients::redis_py,
    },
    Step {
        name: "go-redis",
        about: "go-redis over every type, RESP2 and RESP3, on each back end",
        remedy: CLIENT_REMEDY,
        lane: Servers,
        after_failure: Repeat,
        run: libraries::go_redis,
    },
    Step {
        name: "ioredis",
        about: "ioredis over every type, on each back end",
        remedy: CLIENT_REMEDY,
        lane: Servers,
        after_failure: Repeat,
        run: libraries::ioredis,
    },
    Step {
        name: "jedis",
        about: "Jedis over every type, RESP2 and RESP3, on each back end",
        remedy: CLIENT_REMEDY,
        lane: Servers,
        after_failure: Repeat,
        run: libraries::jedis,
    },
    Step {
        name: "frameworks-python",
        about: "huey, rq, dramatiq, Celery 5.4 and 5.7, kombu, channels_redis, limits: a thousand jobs each, workers killed",
        remedy: FRAMEWORK_REMEDY,
        lane: Servers,
        after_failure: Repeat,
        run: frameworks::python,
    },
    Step {
        name: "frameworks-go",
        about: "asynq: a thousand jobs, workers killed, on each back end",
        remedy: FRAMEWORK_REMEDY,
        lane: Servers,
        after_failure: Repeat,
        run: frameworks::go,
    },
    Step {
        name: "frameworks-node",
        about: "BullMQ and rate-limiter-flexible: a thousand jobs each, workers killed, on each back end",
        remedy: FRAMEWORK_REMEDY,
        lane: Servers,
        after_failure: Repeat,
        run: frameworks::node,
    },
    Step {
        name: "frameworks-java",
        about: "Redisson's locks: a thousand sections, holders killed, on each back end",
        remedy: FRAMEWORK_REMEDY,
        lane: Servers,
        after_failure: Repeat,
        run: frameworks::java,
    },
    Step {
        name: "frameworks-ruby",
        about: "Sidekiq: a thousand jobs, processes killed, on each back end",
        remedy: FRAMEWORK_REMEDY,
        lane: Servers,
        after_failure: Repeat,
        run: frameworks::ruby,
    },
    // This step needs programs of the debug profile, as later ones do. `unit` builds them in the
    // same target folder, and an earlier step would wait for that build.
    Step {
        name: "package",
        about: "the Debian package: lintian, its server with its saker.conf, manual pages, completions",
        remedy: "`cargo xtask package` builds it; `lintian -i target/package/*.deb` explains a tag",
        lane: Servers,
        after_failure: Repeat,
        run: package::step,
    },
    Step {
        name: "redis-suite",
        about: "Redis' own test suite, without what tests/redis-suite/skip.toml leaves out",
        remedy: "`cargo xtask redis-suite --only UNIT --single TEST` repeats one test",
        lane: Servers,
        after_failure: Stop,
        run: redis_suite::step,
    },
    Step {
        name: "scripts",
        about: "every script of tests/cmd, on RESP2 and RESP3, on each back end",
        remedy: "`cargo run -p testkit --bin resp-run -- --port N FILE` repeats one against a server you started",
        lane: Servers,
        after_failure: Repeat,
        run: compare::scripts,
    },
    Step {
        name: "differential",
        about: "random commands to the server and to a real redis-server, replies compared",
        remedy: "the log has the shrunk sequence and its seed; what Redis replies decides",
        lane: Servers,
        after_failure: Stop,
        run: compare::differential,
    },
    Step {
        name: "soak",
        about: "clients that check every reply beside all that misbehaves, on each back end, 1, 2 and 8 threads",
        remedy: "`cargo run -p testkit --features soak --bin soak -- --server FILE --threads N --only NAME` narrows it down",
        lane: Servers,
        after_failure: Repeat,
        run: compare::soak,
    },
];

fn tidy_step(session: &Session) -> Result<Outcome> {
    let findings = tidy::check(&session.root)?;
    if findings.is_empty() {
        return Ok(Outcome::Passed(String::new()));
    }
    findings.iter().for_each(|finding| println!("{finding}"));
    anyhow::bail!("{} findings", findings.len())
}
