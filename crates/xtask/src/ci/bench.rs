//! A step of CI: a small real study by saker-bench, whose report is opened in a headless browser.
//! The page's script must end without an error, and every picture must be present. Screenshots are
//! stored for people to look at.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::peer;
use crate::progress::{Outcome, Session};
use crate::{release, shell};

/// The time limit of the small study by saker-bench, which takes a few seconds.
const STUDY_LIMIT: Duration = Duration::from_secs(360);
/// The recall that every search of the study must exceed, in percent.
const RECALL_PERCENT_MIN: f64 = 80.0;
const BROWSER_LIMIT: Duration = Duration::from_secs(240);
/// Headless browsers that can open the report, as (program, Debian package).
const BROWSERS: &[(&str, &str)] =
    &[("chromium-headless-shell", "chromium-headless-shell"), ("chromium", "chromium")];

/// The browser windows of the screenshots, as (name, width and height in pixels). Each is used with
/// every colour scheme.
const SCREENS: &[(&str, &str)] = &[("phone", "390,2600"), ("laptop", "1280,2600"), ("wide", "1920,2600")];
/// The colour schemes of the screenshots, each with the browser's setting for it.
const SCHEMES: &[(&str, &str)] = &[("dark", "preferredColorScheme=0"), ("light", "preferredColorScheme=1")];

const STUDY: &str = "\
title = 'A small study of CI'
description = 'Makes a report with every kind of picture that two engines allow.'
rounds = 2
allow_different_settings = true
[load]
requests = 3000
connections = [4, 16]
keyspace = 2000
io_threads = [1, 2]
transports = ['tcp', 'unix']
value_bytes = [64]
[preload]
[[engine]]
name = 'saker'
start = \"@SAKER --port {port} --unixsocket {socket} --io-threads {threads} --save '' --appendonly no\"
[[engine]]
name = 'peer'
start = \"@PEER --port {port} --save '' --appendonly no --daemonize no\"
[[workload]]
tests = ['set', 'get', 'lpush', 'lrange_100']
";

/// The study of vector sets. It has no peer, because the peer may have no vector sets.
const VECTOR_STUDY: &str = "\
title = 'A small study of vector sets'
rounds = 1
[load]
requests = 2000
connections = [4]
[[engine]]
name = 'saker'
start = \"@SAKER --port {port} --io-threads {threads} --save '' --appendonly no\"
[[workload]]
vectors = { count = 1000, dimensions = 32, queries = 50, ef = [20, 100], reads_per_search = 3 }
";

/// Runs the step: makes the report of a study, opens it in a headless browser and takes
/// screenshots.
pub fn step(session: &Session) -> Result<Outcome> {
    let release::Programs { server, bench, .. } = release::build(session)?;
    let peer = peer::find(session)?;
    let peer_line = peer.as_deref().unwrap_or("redis-server");
    let folder = session.target.join("bench-report");
    fs::create_dir_all(&folder)?;
    let study = folder.join("study.toml");
    fs::write(&study, STUDY.replace("@SAKER", &server.to_string_lossy()).replace("@PEER", peer_line))?;
    let mut compare = Command::new(&bench);
    compare.arg("compare").arg(&study).arg("--out").arg(&folder);
    if peer.is_err() {
        compare.args(["--engines", "saker"]);
    }
    shell::run_logged(session, "bench", &mut compare, STUDY_LIMIT)?;
    study_vectors(session, &server, &bench)?;
    let browser = match browser(session) {
        Ok(browser) => browser,
        Err(missing) => return Ok(Outcome::Skipped(format!("the report is made but not opened: {missing}"))),
    };
    let page = folder.join("report.html");
    let dom = run_browser(session, &browser, &page, &["--dump-dom"])?;
    let pictures = check(&dom, &fs::read_to_string(&page)?, &folder)?;
    for ((name, size), (scheme, setting)) in
        SCREENS.iter().flat_map(|screen| SCHEMES.iter().map(move |scheme| (screen, scheme)))
    {
        let picture = folder.join(format!("screen-{name}-{scheme}.png"));
        let screenshot = format!("--screenshot={}", picture.display());
        let (window, colours) = (format!("--window-size={size}"), format!("--blink-settings={setting}"));
        run_browser(session, &browser, &page, &[&screenshot, &window, &colours])?;
        let len_bytes = fs::metadata(&picture).context("the browser wrote no screenshot")?.len();
        ensure!(len_bytes > 20_000, "the screenshot {} is empty: {len_bytes} bytes", picture.display());
    }
    Ok(Outcome::Passed(format!("{pictures} pictures; {}", folder.join("screen-*.png").display())))
}

/// Checks that the page's script ended without an error, and that every picture of `page` is in the
/// browser's document `dom` and in `folder`. Returns the number of pictures.
fn check(dom: &str, page: &str, folder: &Path) -> Result<usize> {
    ensure!(dom.contains("data-ready=\"yes\""), "the script of the page did not finish");
    ensure!(!dom.contains("data-error"), "the script of the page failed");
    let ids: Vec<&str> =
        page.split("class=\"chart\" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    ensure!(ids.len() >= 12, "the page has only {} pictures", ids.len());
    for id in &ids {
        ensure!(dom.contains(&format!("id=\"{id}\"")), "the browser shows no picture {id}");
        let file = folder.join(format!("pictures/{id}.svg"));
        ensure!(file.is_file(), "{} is missing", file.display());
    }
    Ok(ids.len())
}

/// Runs the study of vector sets and checks the recall of its searches.
fn study_vectors(session: &Session, server: &Path, bench: &Path) -> Result<()> {
    let folder = session.target.join("bench-report-vectors");
    fs::create_dir_all(&folder)?;
    let study = folder.join("study.toml");
    fs::write(&study, VECTOR_STUDY.replace("@SAKER", &server.to_string_lossy()))?;
    let mut compare = Command::new(bench);
    compare.arg("compare").arg(&study).arg("--out").arg(&folder);
    shell::run_logged(session, "bench", &mut compare, STUDY_LIMIT)?;
    check_recall(&fs::read_to_string(folder.join("results.csv"))?)
}

/// Checks that searches of vector sets were measured, and that each found most true neighbours.
fn check_recall(csv: &str) -> Result<()> {
    let cells = |line: &str| line.split("\",\"").map(|cell| cell.trim_matches('"').to_owned()).collect();
    let mut lines = csv.lines();
    let header: Vec<String> = lines.next().map(cells).unwrap_or_default();
    let at = header.iter().position(|name| name == "recall_percent").context("no recall in results.csv")?;
    let mut searches = 0;
    for line in lines.filter(|line| line.starts_with("\"VSIM")) {
        let cells: Vec<String> = cells(line);
        let recall: f64 = cells.get(at).and_then(|cell| cell.parse().ok()).unwrap_or(0.0);
        ensure!(recall > RECALL_PERCENT_MIN, "a recall of {recall} %: {line}");
        searches += 1;
    }
    ensure!(searches > 0, "no search of a vector set was measured");
    Ok(())
}

fn browser(session: &Session) -> Result<PathBuf, String> {
    let there = BROWSERS.iter().find_map(|(program, _)| shell::find(program));
    if let Some(program) = there {
        return Ok(program);
    }
    let mut last = String::new();
    for (program, package) in BROWSERS {
        match shell::ensure(session, program, package) {
            Ok(program) => return Ok(program),
            Err(missing) => last = missing,
        }
    }
    Err(last)
}

/// Opens `page` in the browser with `options`. Returns all output of the browser logged by this
/// step so far.
fn run_browser(session: &Session, browser: &Path, page: &Path, options: &[&str]) -> Result<String> {
    let mut command = Command::new(browser);
    // Containers lack the kernel features that the sandbox needs. The page is our own, so it needs
    // none.
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]);
    command.args(options).arg(format!("file://{}", page.display()));
    shell::run_logged(session, "browser", &mut command, BROWSER_LIMIT)
}
