//! Steps of CI: real clients against the release server, on each backend of its event loop.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use testkit::ServerProcess;

use super::languages;
use crate::progress::{Outcome, Session};
use crate::{release, server, shell};

/// The backends of the event loop, by their names for the option `io-backend`.
const BACK_ENDS: &[&str] = &["epoll", "io_uring"];
/// The password of the servers that require one in these steps.
const PASSWORD: &str = "correct-horse";
/// The time limit of each run of a client program.
const CLIENT_LIMIT: Duration = Duration::from_secs(720);

/// Runs redis-cli with the options that users need most.
pub fn redis_cli(session: &Session) -> Result<Outcome> {
    let cli = match shell::ensure(session, "redis-cli", "redis-tools") {
        Ok(cli) => cli,
        Err(missing) => return Ok(Outcome::Skipped(missing)),
    };
    on_each_back_end(session, |server| {
        let say = |arguments: &[&str], input: &str| cli_says(&cli, server, arguments, input);
        let expect = |arguments: &[&str], input: &str, wanted: &str| {
            let got = say(arguments, input)?;
            ensure!(got.contains(wanted), "redis-cli {arguments:?} printed {got:?}, wanted {wanted:?}");
            Ok(())
        };
        expect(&["ping"], "", "PONG")?;
        expect(&["set", "greeting", "hello world"], "", "OK")?;
        expect(&["--no-raw", "get", "greeting"], "", "\"hello world\"")?;
        expect(&["-x", "set", "from-stdin"], "piped", "OK")?;
        expect(&["-n", "3", "set", "elsewhere", "1"], "", "OK")?;
        expect(&["-3", "--no-raw", "hset", "map", "field", "1"], "", "(integer) 1")?;
        expect(&["-3", "--no-raw", "hgetall", "map"], "", "1# \"field\" => \"1\"")?;
        expect(&["--no-raw", "nosuchcommand"], "", "ERR unknown command")?;
        // A session: commands from standard input. Some of them fail, and the connection must
        // survive.
        expect(&[], "rpush list a b c\nlrange list 0 -1\nincr greeting\nping\n", "PONG")?;
        let inserts: String = (0..1_000).map(|i| format!("SET mass:{i} {i}\r\n")).collect();
        expect(&["--pipe"], &inserts, "errors: 0, replies: 1000")?;
        let scanned = say(&["--scan", "--pattern", "mass:*"], "")?;
        ensure!(scanned.lines().count() == 1_000, "--scan found {} of 1000 keys", scanned.lines().count());
        expect(&["--bigkeys"], "", "Biggest string found")?;
        expect(&["info", "server"], "", "redis_version:")?;
        expect(&["flushall"], "", "OK")
    })
}

/// Runs redis-benchmark: all default tests over TCP and a Unix socket, with and without a password,
/// with 1 to 2,000 connections.
pub fn redis_benchmark(session: &Session) -> Result<Outcome> {
    let benchmark = match shell::ensure(session, "redis-benchmark", "redis-tools") {
        Ok(benchmark) => benchmark,
        Err(missing) => return Ok(Outcome::Skipped(missing)),
    };
    let run = |arguments: &[&str], rows_min: usize| {
        let mut command = Command::new(&benchmark);
        command.arg("--csv").args(arguments);
        let text = shell::run_logged(session, "redis-benchmark", &mut command, CLIENT_LIMIT)?;
        check_benchmark(&text, arguments, rows_min)
    };
    let outcome = on_each_back_end(session, |server| {
        let port = server.port().to_string();
        let unix = server::unix_socket(server).to_string_lossy().into_owned();
        // The default tests are PING twice, SET, GET, INCR, pushes, pops, SADD, HSET, SPOP, ZADD,
        // ZPOPMIN, the LPUSH for four LRANGEs, and MSET. Redis 8's tool ends with XADD. Older ones
        // do not know it, so it is sent as a request of our own.
        run(&["-p", &port, "-n", "2000"], 20)?;
        run(&["-p", &port, "-n", "2000", "-P", "8", "XADD", "mystream", "*", "myfield", "data"], 1)?;
        const PIPELINED: &str = "set,get,incr,lpush,hset,sadd,zadd";
        run(&["-p", &port, "-n", "20000", "-P", "16", "-r", "10000", "-t", PIPELINED], 7)?;
        run(&["-p", &port, "-n", "1000", "-c", "1", "-3", "-t", "set,get"], 2)?;
        run(&["-p", &port, "-n", "20000", "-c", "2000", "--threads", "2", "-t", "set,get"], 2)?;
        run(&["-s", &unix, "-n", "2000"], 20)?;
        run(&["-s", &unix, "-n", "5000", "-d", "20000", "-t", "set,get"], 2)
    })?;
    let server = server::start(&release::build(session)?.server, &["--requirepass", PASSWORD])?;
    let (port, unix) =
        (server.port().to_string(), server::unix_socket(&server).to_string_lossy().into_owned());
    run(&["-p", &port, "-a", PASSWORD, "-n", "2000"], 20)?;
    run(&["-s", &unix, "--user", "default", "-a", PASSWORD, "-n", "2000", "-t", "set,get"], 2)?;
    server::stop(server)?;
    Ok(outcome)
}

/// Runs redis-py over TCP, over the Unix socket, with a password, and over TLS.
pub fn redis_py(session: &Session) -> Result<Outcome> {
    let python = match languages::python(session)? {
        Ok(python) => python,
        Err(missing) => return Ok(Outcome::Skipped(missing)),
    };
    let script = session.root.join("crates/testkit/clients/redis_py_smoke.py");
    let drive = |arguments: &[&str]| {
        let mut command = Command::new(&python);
        shell::run_logged(session, "redis-py", command.arg(&script).args(arguments), CLIENT_LIMIT)
    };
    on_each_back_end(session, |server| {
        drive(&["--port", &server.port().to_string()])?;
        drive(&["--unix", &server::unix_socket(server).to_string_lossy()])?;
        Ok(())
    })?;
    let server = server::start(&release::build(session)?.server, &["--requirepass", PASSWORD])?;
    drive(&["--port", &server.port().to_string(), "--password", PASSWORD])?;
    server::stop(server)?;
    semantic_search(session, &python)?;
    over_tls(session, |port, files| drive(&[&["--port", port, "--tls"], files].concat()).map(drop))?;
    Ok(Outcome::Passed(String::new()))
}

/// Runs the program in docs/vector-sets.md, and compares its output with that in the page.
fn semantic_search(session: &Session, python: &Path) -> Result<()> {
    let page = fs::read_to_string(session.root.join("docs/vector-sets.md"))?;
    let (program, rest) = fenced(&page, "python").context("docs/vector-sets.md has no program")?;
    let (expected, _) = fenced(rest, "text").context("docs/vector-sets.md has no output")?;
    let file = session.target.join("clients/semantic_search.py");
    fs::create_dir_all(file.parent().unwrap_or(&session.target))?;
    fs::write(&file, program)?;
    let server = server::start(&release::build(session)?.server, &[])?;
    let output = Command::new(python).arg(&file).arg(server.port().to_string()).output()?;
    server::stop(server)?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let trimmed = |text: &str| text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
    ensure!(
        output.status.success() && trimmed(&printed) == trimmed(expected),
        "the program in docs/vector-sets.md prints:\n{printed}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// Returns the first block of `page` in the language `language`, and the text after it.
fn fenced<'a>(page: &'a str, language: &str) -> Option<(&'a str, &'a str)> {
    let (_, rest) = page.split_once(&format!("```{language}\n"))?;
    rest.split_once("```")
}

/// Starts the release server with a TLS port that requires client certificates, and calls `work`.
/// The arguments of `work` are the port and the files of the authority, the certificate and the
/// key. Without openssl to make the files, only reports that the TLS part is skipped.
pub fn over_tls(session: &Session, work: impl Fn(&str, &[&str]) -> Result<()>) -> Result<()> {
    let openssl = match shell::ensure(session, "openssl", "openssl") {
        Ok(openssl) => openssl,
        Err(missing) => {
            session.report(format!("SKIPPED in part: no test over TLS: {missing}"));
            return Ok(());
        }
    };
    let folder = session.target.join("clients/tls");
    make_certificates(session, &openssl, &folder)?;
    let file = |name: &str| folder.join(name).display().to_string();
    let (authority, certificate, key) = (file("ca.crt"), file("both.crt"), file("both.key"));
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
    let program = release::build(session)?.server;
    let options = [
        ["--tls-port", &port],
        ["--tls-cert-file", &certificate],
        ["--tls-key-file", &key],
        ["--tls-ca-cert-file", &authority],
        ["--enable-debug-command", "yes"],
    ];
    let server = server::start(&program, options.as_flattened())?;
    work(&port, &[&authority, &certificate, &key]).context("over TLS")?;
    server::stop(server)
}

/// Creates in `folder` the certificate of an authority, and a certificate for this machine that the
/// authority signs. Servers and clients can both show the signed certificate.
fn make_certificates(session: &Session, openssl: &Path, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join("names"), "subjectAltName=DNS:localhost,IP:127.0.0.1\n")?;
    let curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
    let authority = ["-x509", "-days", "2", "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.crt"];
    let request = ["-subj", "/CN=localhost", "-keyout", "both.key", "-out", "both.csr"];
    let signed = ["x509", "-req", "-in", "both.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial"];
    let rest = ["-days", "2", "-extfile", "names", "-out", "both.crt"];
    for arguments in [
        [&["req"], &curve[..], &authority].concat(),
        [&["req"], &curve[..], &request].concat(),
        [&signed[..], &rest].concat(),
    ] {
        let mut command = Command::new(openssl);
        shell::run_logged(session, "openssl", command.args(&arguments).current_dir(folder), CLIENT_LIMIT)?;
    }
    Ok(())
}

/// Starts the release server on each backend of its event loop in turn, calls `work`, and stops the
/// server by SIGTERM. Skips a backend that is not available here, with a note in the report.
pub fn on_each_back_end(session: &Session, work: impl Fn(&ServerProcess) -> Result<()>) -> Result<Outcome> {
    let program = release::build(session)?.server;
    let mut refused = Vec::new();
    for back_end in BACK_ENDS {
        let server = server::start(&program, &["--io-backend", back_end, "--enable-debug-command", "yes"])?;
        if server::info(&server, "multiplexing_api")? != *back_end {
            refused.push(*back_end);
            continue;
        }
        work(&server).with_context(|| format!("on {back_end}"))?;
        server::stop(server)?;
    }
    match refused.as_slice() {
        [] => Ok(Outcome::Passed(BACK_ENDS.join(", "))),
        refused if refused.len() < BACK_ENDS.len() => {
            session
                .report(format!("SKIPPED in part: this kernel or container has no {}", refused.join(", ")));
            Ok(Outcome::Passed(format!("without {}, which is not available here", refused.join(", "))))
        }
        _ => bail!("the server supports none of the back ends {}", BACK_ENDS.join(", ")),
    }
}

/// Runs redis-cli with `arguments` and with `input` on its standard input. Returns its standard
/// output and its error output.
fn cli_says(cli: &Path, server: &ServerProcess, arguments: &[&str], input: &str) -> Result<String> {
    let mut command = Command::new(cli);
    command.args(["-p", &server.port().to_string()]).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("cannot start redis-cli")?;
    let mut stdin = child.stdin.take().context("redis-cli's standard input")?;
    stdin.write_all(input.as_bytes())?;
    drop(stdin);
    let output = child.wait_with_output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr))
}

/// Checks the last run in `log` of redis-benchmark with `arguments`. It must have reported at least
/// `rows_min` rates, all above zero, and no error reply.
fn check_benchmark(log: &str, arguments: &[&str], rows_min: usize) -> Result<()> {
    let last = log.rsplit("$ ").next().unwrap_or_default();
    let rates =
        last.lines().filter_map(|line| line.split("\",\"").nth(1)?.trim_matches('"').parse::<f64>().ok());
    let rates: Vec<f64> = rates.collect();
    ensure!(
        rates.len() >= rows_min,
        "redis-benchmark {arguments:?} gave {} of {rows_min} rates",
        rates.len()
    );
    ensure!(rates.iter().all(|rate| *rate > 0.0), "redis-benchmark {arguments:?} gave a rate of zero");
    ensure!(
        !last.contains("ERR") && !last.contains("WRONGTYPE"),
        "redis-benchmark {arguments:?} got an error reply"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "$ redis-benchmark --csv\n\"test\",\"rps\",\"avg_latency_ms\"\n";

    #[test]
    fn a_benchmark_run_must_give_every_rate() {
        let check = |rows: &str| check_benchmark(&format!("{HEADER}{rows}"), &[], 2).is_ok();
        assert!(check("\"SET\",\"100.5\",\"0.1\"\n\"GET\",\"99.0\",\"0.1\"\n"));
        assert!(!check("\"SET\",\"100.5\",\"0.1\"\n"));
        assert!(!check("\"SET\",\"100.5\",\"0.1\"\n\"GET\",\"0.0\",\"0.1\"\n"));
        assert!(!check("\"SET\",\"100.5\",\"0.1\"\n\"GET\",\"99.0\",\"0.1\"\nERR unknown command\n"));
    }

    #[test]
    fn only_the_last_run_of_a_log_is_looked_at() {
        let log = format!("{HEADER}\"SET\",\"1.0\",\"0.1\"\n{HEADER}");
        assert!(check_benchmark(&log, &[], 1).is_err());
    }
}
