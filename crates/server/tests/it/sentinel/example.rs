//! The example script that starts servers and Sentinels on one machine.

use std::path::Path;
use std::process::{Command, Output};

use super::*;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/high-availability/try.sh");

/// The folder of the servers that the script starts. The servers are ended when this value is
/// dropped.
struct Example {
    folder: TempDir,
    ports: [u16; 2 * COUNT],
}

impl Example {
    /// Runs a subcommand of the script, and returns its output.
    fn run(&self, subcommand: &str) -> Output {
        let list = |ports: &[u16]| ports.iter().map(u16::to_string).collect::<Vec<_>>().join(" ");
        Command::new("sh")
            .args([SCRIPT, subcommand])
            .env("FOLDER", self.folder.path().join("servers"))
            .env("SAKER", BINARY)
            .env("SENTINEL", peer::command_line())
            .env("SERVER_PORTS", list(&self.ports[..COUNT]))
            .env("SENTINEL_PORTS", list(&self.ports[COUNT..]))
            // A busy machine does not make a server seem dead.
            .env("DOWN_AFTER_MS", "5000")
            .output()
            .expect("runs")
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        self.run("stop");
    }
}

/// Returns true if a client program that the script needs is installed.
fn has_client() -> bool {
    let has = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|folder| Path::new(&folder).join("redis-cli").is_file())
    });
    if !has {
        eprintln!("no redis-cli on the PATH: the example is not run");
    }
    has
}

#[test]
fn the_example_shows_a_failover() {
    if is_without_peer() || !has_client() {
        return;
    }
    let folder = tempfile::tempdir().expect("a scratch folder");
    let example = Example { folder, ports: [(); 2 * COUNT].map(|()| free_port().expect("a port is free")) };
    for (subcommand, expected) in [
        ("start", "knows 2 replicas and 2 other Sentinels"),
        ("status", "the primary is 127.0.0.1:"),
        ("kill-primary", "is the primary and accepts writes, after "),
    ] {
        let output = example.run(subcommand);
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && printed.contains(expected), "{subcommand}: {output:?}");
    }
    let mut printed = String::new();
    let has_two_replicas = happens(|| {
        printed = String::from_utf8_lossy(&example.run("status").stdout).into_owned();
        printed.matches("slave, link up").count() == 2
    });
    assert!(has_two_replicas, "{printed}");
    assert!(example.run("stop").status.success());
    assert!(!example.folder.path().join("servers").exists());
}
