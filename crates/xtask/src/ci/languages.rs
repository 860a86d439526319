//! The requirements of the clients in other languages. apt installs compilers and interpreters
//! where that is allowed. The languages' own package managers install libraries at fixed versions
//! into the target folder. Each is fetched only once, and the steps share it.
//!
//! The outer error of each function is a failure, such as a program of ours that does not compile.
//! The inner error says in one line what is not available here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::progress::Session;
use crate::shell;

/// The time limit of fetching a language's libraries, and of building client programs with them.
const PREPARE_LIMIT: Duration = Duration::from_secs(2400);
/// The Python packages that the client programs need, at fixed versions.
const PYTHON_PACKAGES: &[&str] = &[
    "redis==8.1.0",
    "huey==3.5.4",
    "rq==2.12.0",
    "dramatiq==2.2.0",
    "celery==5.7.0",
    "channels-redis==4.3.0",
    "limits==5.8.0",
];
/// The packages that differ for an older Celery, which is tested in addition to the newer one.
const CELERY_OLD_PACKAGES: &[&str] = &["celery==5.4.0", "kombu==5.4.2"];
/// The Maven plugin that copies the libraries of a pom, at a fixed version.
const MAVEN_COPY: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies";

/// Returns the path of Python in a virtual environment that has all packages. Creates the
/// environment if needed.
pub fn python(session: &Session) -> Result<Result<PathBuf, String>> {
    let folder = session.target.join("venv");
    let python = folder.join("bin/python");
    // This file is written last, so that an interrupted installation starts again.
    let (written, wanted) = (folder.join("packages"), python_packages());
    if fs::read_to_string(&written).is_ok_and(|packages| packages == wanted) {
        return Ok(Ok(python));
    }
    if let Err(missing) = shell::ensure(session, "python3", "python3") {
        return Ok(Err(missing));
    }
    let create = || shell::succeeds(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder));
    if !create() {
        // On Debian the module is a package of its own, and no program on PATH shows if it is
        // installed.
        if let Err(missing) = shell::install(session, "python3-venv") {
            return Ok(Err(missing));
        }
        ensure!(create(), "python3 -m venv fails");
    }
    let pip = |options: &[&str], packages: &[&str]| {
        let mut pip = Command::new(&python);
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        shell::run_logged(session, "pip", pip.args(options).args(packages), PREPARE_LIMIT)
    };
    let old = celery_old(session);
    let beside = ["--no-deps", "--target", &old.to_string_lossy()];
    if pip(&[], PYTHON_PACKAGES).is_err() || pip(&beside, CELERY_OLD_PACKAGES).is_err() {
        return Ok(Err(cannot_fetch(session, "pip", &format!("pip install {}", python_packages()))));
    }
    fs::write(&written, wanted)?;
    Ok(Ok(python))
}

/// Returns the folder of the older Celery, which PYTHONPATH must contain to select it.
pub fn celery_old(session: &Session) -> PathBuf {
    session.target.join("venv/celery-old")
}

fn python_packages() -> String {
    [PYTHON_PACKAGES, CELERY_OLD_PACKAGES].concat().join(" ")
}

/// Builds the Go program in `tests/clients/FOLDER` and returns its path.
pub fn go(session: &Session, folder: &str) -> Result<Result<PathBuf, String>> {
    let go = match shell::ensure(session, "go", "golang-go") {
        Ok(go) => go,
        Err(missing) => return Ok(Err(missing)),
    };
    let source = session.root.join("tests/clients").join(folder);
    let program = session.target.join("clients").join(folder).join("program");
    let log = format!("go-{folder}");
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&go);
        // The installed compiler is used; no other one is fetched.
        command.current_dir(&source).args(arguments).env("GOTOOLCHAIN", "local");
        command.env("GOFLAGS", "-mod=readonly").env("CGO_ENABLED", "0");
        shell::run_logged(session, &log, &mut command, PREPARE_LIMIT)
    };
    if run(&["mod", "download"]).is_err() {
        return Ok(Err(cannot_fetch(session, &log, "go mod download")));
    }
    run(&["build", "-o", &program.to_string_lossy(), "."])?;
    Ok(Ok(program))
}

/// Fetches the libraries for Node. Returns the folder with the programs for Node and their
/// libraries.
pub fn node(session: &Session) -> Result<Result<PathBuf, String>> {
    for (program, package) in [("node", "nodejs"), ("npm", "npm")] {
        if let Err(missing) = shell::ensure(session, program, package) {
            return Ok(Err(missing));
        }
    }
    let folder = copy_programs(session, "node")?;
    // npm writes this file at the end of an installation. `npm ls` fails unless the packages are
    // those of the lock file.
    let mut list = Command::new("npm");
    list.current_dir(&folder).args(["ls", "--silent"]);
    if folder.join("node_modules/.package-lock.json").is_file() && shell::succeeds(&mut list) {
        return Ok(Ok(folder));
    }
    let mut npm = Command::new("npm");
    npm.current_dir(&folder).args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"]);
    if shell::run_logged(session, "npm", &mut npm, PREPARE_LIMIT).is_err() {
        return Ok(Err(cannot_fetch(session, "npm", "npm ci")));
    }
    Ok(Ok(folder))
}

/// Compiles the Java programs. Returns the class path of the programs and their libraries.
pub fn java(session: &Session) -> Result<Result<String, String>> {
    for program in ["javac", "java"] {
        if let Err(missing) = shell::ensure(session, program, "default-jdk-headless") {
            return Ok(Err(missing));
        }
    }
    let folder = copy_programs(session, "java")?;
    let lib = folder.join("lib");
    fs::create_dir_all(&lib)?;
    let mut check = Command::new("sha256sum");
    check.args(["--check", "--strict", "--quiet", "../jars.sha256"]).current_dir(&lib);
    if !shell::succeeds(&mut check) {
        if let Err(missing) = shell::ensure(session, "mvn", "maven") {
            return Ok(Err(missing));
        }
        let mut maven = Command::new("mvn");
        maven.current_dir(&folder).args(["-q", "-B", "-C", MAVEN_COPY]);
        maven.args(["-DoutputDirectory=lib", "-DincludeScope=runtime"]);
        if shell::run_logged(session, "maven", &mut maven, PREPARE_LIMIT).is_err() {
            return Ok(Err(cannot_fetch(session, "maven", "mvn")));
        }
        shell::run_logged(session, "maven", &mut check, PREPARE_LIMIT)
            .context("the jars differ from the locked ones")?;
    }
    let libraries = format!("{}/*", lib.display());
    let mut compiler = Command::new("javac");
    compiler.current_dir(&folder).args(["-cp", &libraries, "-d", "classes"]);
    compiler.args(["Round.java", "Locks.java", "ListCrashes.java"]);
    shell::run_logged(session, "javac", &mut compiler, PREPARE_LIMIT)?;
    Ok(Ok(format!("{}:{libraries}", folder.join("classes").display())))
}

/// Returns the path of Ruby, and installs it and Sidekiq from Debian's packages if needed. The
/// error says what is missing.
pub fn ruby(session: &Session) -> Result<PathBuf, String> {
    shell::ensure(session, "sidekiq", "ruby-sidekiq")?;
    shell::ensure(session, "ruby", "ruby")
}

/// Copies the files of `tests/clients/LANGUAGE` to a folder below the target folder, where the
/// package manager may write. Returns that folder.
fn copy_programs(session: &Session, language: &str) -> Result<PathBuf> {
    let from = session.root.join("tests/clients").join(language);
    let to = session.target.join("clients").join(language);
    fs::create_dir_all(&to)?;
    for entry in fs::read_dir(&from).with_context(|| format!("cannot read {}", from.display()))? {
        copy_changed(&entry?.path(), &to)?;
    }
    Ok(to)
}

/// Copies a file into `folder`, unless `folder` already has the file with the same content.
fn copy_changed(file: &Path, folder: &Path) -> Result<()> {
    let name = file.file_name().context("a file's name")?;
    let (content, to) = (fs::read(file)?, folder.join(name));
    if fs::read(&to).is_ok_and(|there| there == content) {
        return Ok(());
    }
    fs::write(&to, content).with_context(|| format!("cannot write {}", to.display()))
}

fn cannot_fetch(session: &Session, log: &str, what: &str) -> String {
    format!("{what} could not fetch the libraries; see {}", session.log_path(log).display())
}
