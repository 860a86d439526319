//! A step of CI: the tests of the crates with unsafe code, run under AddressSanitizer, or under
//! valgrind if the compiler has no AddressSanitizer.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::progress::{Outcome, Session};
use crate::shell;

/// The crates whose unsafe code the sanitizer or valgrind checks.
const CRATES: &[&str] = &["structures", "net", "script"];
/// The time limit of building and running the tests of all these crates.
const LIMIT: Duration = Duration::from_secs(2400);

/// Runs the step: the tests of [`CRATES`] under AddressSanitizer or valgrind.
pub fn step(session: &Session) -> Result<Outcome> {
    let host = host(session)?;
    if has_address_sanitizer(session, &host)? {
        address_sanitizer(session, &host)?;
        return Ok(Outcome::Passed(format!("AddressSanitizer over {}", CRATES.join(", "))));
    }
    if let Err(missing) = shell::ensure(session, "valgrind", "valgrind") {
        return Ok(Outcome::Skipped(format!("this compiler has no AddressSanitizer, and {missing}")));
    }
    valgrind(session, &host)?;
    Ok(Outcome::Passed(format!("valgrind over {}", CRATES.join(", "))))
}

/// Returns the target for which the compiler builds by default, such as `x86_64-unknown-linux-gnu`.
pub fn host(session: &Session) -> Result<String> {
    let version = shell::output(Command::new("rustc").arg("-vV").current_dir(&session.root))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc -vV names its host")?.to_owned())
}

/// Returns true if the compiler has AddressSanitizer's run-time library for `host`. The stable
/// compiler has it.
pub fn has_address_sanitizer(session: &Session, host: &str) -> Result<bool> {
    let folder = shell::output(
        Command::new("rustc").args(["--print", "target-libdir", "--target", host]).current_dir(&session.root),
    )?;
    let entries = std::fs::read_dir(folder.trim()).context("the compiler's library folder")?;
    Ok(entries.flatten().any(|entry| entry.file_name().to_string_lossy().contains("rt.asan")))
}

fn address_sanitizer(session: &Session, host: &str) -> Result<()> {
    let mut command = test(session, host, "asan");
    // The flag is unstable, but the stable compiler includes the library that it needs. This
    // variable allows the flag.
    command.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", "-Zsanitizer=address");
    command.env("ASAN_OPTIONS", "detect_stack_use_after_return=1");
    shell::run_logged(session, "sanitizers", &mut command, LIMIT)?;
    Ok(())
}

fn valgrind(session: &Session, host: &str) -> Result<()> {
    let mut command = test(session, host, "valgrind");
    let runner = format!("CARGO_TARGET_{}_RUNNER", host.to_uppercase().replace('-', "_"));
    command.env(runner, "valgrind --quiet --error-exitcode=99 --leak-check=no");
    shell::run_logged(session, "sanitizers", &mut command, LIMIT)?;
    Ok(())
}

/// Returns the command `cargo test` for [`CRATES`], in the target folder `folder` of its own. The
/// command names the target, so that flags and runner apply to the tests and not to the build
/// scripts.
fn test(session: &Session, host: &str, folder: &str) -> Command {
    let mut command = shell::cargo(session);
    command.args(["test", "--locked", "--lib", "--tests", "--target", host]);
    CRATES.iter().for_each(|name| {
        command.args(["-p", name]);
    });
    command.env("CARGO_TARGET_DIR", session.target.join(folder));
    command
}
