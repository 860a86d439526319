//! Tests with a new connection for each request. No connection may stay open. Too low a limit of
//! open files must be reported.

use std::process::{Command, Output};

use crate::slow_server::{Oddities, SlowServer, pem};

/// Runs saker-bench with `arguments`, while at most `files` files may be open in its process.
fn with_few_files(files: u32, arguments: &[&str]) -> Output {
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("ulimit -n {files}; exec \"$@\"")).arg("sh");
    command.arg(env!("CARGO_BIN_EXE_saker-bench")).arg("run").args(arguments).output().unwrap()
}

#[test]
fn connections_are_closed_over_every_transport_and_back_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("server.sock");
    SlowServer::start_unix(&path);
    let ca = pem("ca.pem");
    let (plain, tls) = (SlowServer::start(Oddities::default()), SlowServer::start_tls(Oddities::default()));
    let (plain, tls) = (plain.port().to_string(), tls.port().to_string());
    let ways = [
        vec!["-p", &plain],
        vec!["-s", path.to_str().unwrap()],
        vec!["-p", &tls, "--tls", "--cacert", ca.to_str().unwrap()],
    ];
    for way in ways {
        for backend in ["epoll", "auto"] {
            // There are more requests than file descriptors. A client that leaves connections open
            // reaches the limit.
            let load =
                ["-k", "0", "-c", "5", "-n", "300", "-q", "--csv", "--io-backend", backend, "-t", "set"];
            let output = with_few_files(64, &[&way[..], &load[..]].concat());
            let (printed, errors) =
                (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            assert_eq!(output.status.code(), Some(0), "{way:?} {backend}: {errors}");
            assert!(printed.trim_end().ends_with("\"complete\""), "{printed}");
        }
    }
}

#[test]
fn more_connections_than_files_are_told() {
    let server = SlowServer::start(Oddities::default());
    let output = with_few_files(64, &["-p", &server.port().to_string(), "-c", "100", "-t", "set"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("`ulimit -n`") && errors.trim_end().lines().count() == 1, "{errors}");
}
