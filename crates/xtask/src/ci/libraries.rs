//! Client libraries of other languages, each with a program of `tests/clients` that does a round
//! over the data types, against the release server on each back end of its event loop.
//!
//! What a language needs is installed through apt where that is allowed, and its libraries
//! through its own package manager into the target folder, in the versions that a lock file names
//! by their digests. What cannot be had makes the step a skipped one; what does not compile or
//! does not pass makes it fail.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::clients::{on_each_back_end, over_tls};
use crate::progress::{Outcome, Session};
use crate::shell;

/// For fetching a language's libraries, and for building with them.
const PREPARE_LIMIT: Duration = Duration::from_secs(240);
/// For one run of a program.
const RUN_LIMIT: Duration = Duration::from_secs(120);
/// The plugin that copies what a pom names, at a fixed version.
const MAVEN_COPY: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies";

/// go-redis.
pub fn go_redis(session: &Session) -> Result<Outcome> {
    let go = match shell::ensure(session, "go", "golang-go") {
        Ok(go) => go,
        Err(missing) => return Ok(Outcome::Skipped(missing)),
    };
    let source = session.root.join("tests/clients/go");
    let program = session.target.join("clients/go/round");
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&go);
        // The installed compiler is good enough; none is fetched.
        command
            .current_dir(&source)
            .args(arguments)
            .env("GOTOOLCHAIN", "local")
            .env("GOFLAGS", "-mod=readonly");
        shell::run_logged(session, "go-redis", &mut command, PREPARE_LIMIT)
    };
    if run(&["mod", "download"]).is_err() {
        return Ok(cannot_fetch(session, "go-redis", "go mod download"));
    }
    run(&["build", "-o", &program.to_string_lossy(), "."])?;
    drive(session, "go-redis", &program, &[])
}

/// ioredis.
pub fn ioredis(session: &Session) -> Result<Outcome> {
    on_node(session, "round.mjs")
}

/// BullMQ, and a rate limiter: scripts whose keys are not all declared.
pub fn bullmq(session: &Session) -> Result<Outcome> {
    on_node(session, "bullmq.mjs")
}

fn on_node(session: &Session, program: &str) -> Result<Outcome> {
    let node = match shell::ensure(session, "node", "nodejs") {
        Ok(node) => node,
        Err(missing) => return Ok(Outcome::Skipped(missing)),
    };
    if let Err(missing) = shell::ensure(session, "npm", "npm") {
        return Ok(Outcome::Skipped(missing));
    }
    let files = [".npmrc", "package.json", "package-lock.json", "round.mjs", "bullmq.mjs"];
    let folder = copy_program(session, "node", &files)?;
    let mut npm = Command::new("npm");
    npm.current_dir(&folder).args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"]);
    if shell::run_logged(session, "npm", &mut npm, PREPARE_LIMIT).is_err() {
        return Ok(cannot_fetch(session, "npm", "npm ci"));
    }
    drive(session, program, &node, &[&folder.join(program).to_string_lossy()])
}

/// Jedis.
pub fn jedis(session: &Session) -> Result<Outcome> {
    // The compiler is what a mere run-time environment lacks, and `java`
    // needs it for a source file.
    if let Err(missing) = shell::ensure(session, "javac", "default-jdk-headless") {
        return Ok(Outcome::Skipped(missing));
    }
    let java = match shell::ensure(session, "java", "default-jdk-headless") {
        Ok(java) => java,
        Err(missing) => return Ok(Outcome::Skipped(missing)),
    };
    let folder = copy_program(session, "java", &["pom.xml", "jars.sha256", "Round.java"])?;
    let lib = folder.join("lib");
    fs::create_dir_all(&lib)?;
    let mut check = Command::new("sha256sum");
    check.args(["--check", "--strict", "--quiet", "../jars.sha256"]).current_dir(&lib);
    if !shell::succeeds(&mut check) {
        if let Err(missing) = shell::ensure(session, "mvn", "maven") {
            return Ok(Outcome::Skipped(missing));
        }
        let mut maven = Command::new("mvn");
        maven.current_dir(&folder).args(["-q", "-B", "-C", MAVEN_COPY]);
        maven.args(["-DoutputDirectory=lib", "-DincludeScope=runtime"]);
        if shell::run_logged(session, "jedis", &mut maven, PREPARE_LIMIT).is_err() {
            return Ok(cannot_fetch(session, "jedis", "mvn"));
        }
        shell::run_logged(session, "jedis", &mut check, RUN_LIMIT)
            .context("the jars are not those locked")?;
    }
    let class_path = format!("{}/*", lib.display());
    let program = folder.join("Round.java");
    drive(session, "jedis", &java, &["-cp", &class_path, &program.to_string_lossy()])
}

/// Runs `program` with `arguments` and the server's port, on each back end; one that does a round
/// over the data types once more over TLS.
fn drive(session: &Session, log: &str, program: &Path, arguments: &[&str]) -> Result<Outcome> {
    let run = |more: &[&str]| {
        let mut command = Command::new(program);
        shell::run_logged(session, log, command.args(arguments).args(more), RUN_LIMIT).map(drop)
    };
    let outcome = on_each_back_end(session, |server| run(&[&server.port().to_string()]))?;
    if log != "bullmq.mjs" {
        over_tls(session, |port, files| run(&[&[port], files].concat()))?;
    }
    Ok(outcome)
}

/// Copies `files` of `tests/clients/LANGUAGE` to below the target folder, where the
/// package manager may write.
fn copy_program(session: &Session, language: &str, files: &[&str]) -> Result<PathBuf> {
    let from = session.root.join("tests/clients").join(language);
    let to = session.target.join("clients").join(language);
    fs::create_dir_all(&to)?;
    for file in files {
        fs::copy(from.join(file), to.join(file)).with_context(|| format!("cannot copy {file}"))?;
    }
    Ok(to)
}

fn cannot_fetch(session: &Session, log: &str, what: &str) -> Outcome {
    Outcome::Skipped(format!("{what} could not fetch the library; see {}", session.log_path(log).display()))
}
