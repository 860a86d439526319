//! `cargo xtask package`: a Debian package of the release binaries, in target/package.
//!
//! This module creates the tree of files, and `dpkg-deb` packs it. That program exists wherever
//! Debian packages are made or installed, and takes a second. The alternative cargo-deb would be
//! compiled for minutes in each fresh CI. Crates that write the archive would be added to every
//! build of xtask. `dpkg-shlibdeps` finds the libraries that the binaries need, with their
//! versions.
//!
//! Packages of the same commit are equal byte for byte on the same system. All times are the
//! commit's time, and permissions do not depend on the umask.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};

use crate::progress::Session;
use crate::{programs, release, shell};

mod links;
pub mod notices;

/// The name of the Debian package.
const NAME: &str = "saker-server";
/// The programs that this module runs, each with the Debian package that contains it.
const TOOLS: &[(&str, &str)] = &[
    ("dpkg-deb", "dpkg"),
    ("dpkg-shlibdeps", "dpkg-dev"),
    ("dpkg-parsechangelog", "dpkg-dev"),
    ("strip", "binutils"),
    ("gzip", "gzip"),
];
const PAGES_LIMIT: Duration = Duration::from_secs(240);
const PACK_LIMIT: Duration = Duration::from_secs(480);

/// The files of the repository that the Debian package contains, each with its installed path.
const COPIED: &[(&str, &str)] = &[
    ("packaging/saker.conf", "etc/saker/saker.conf"),
    ("packaging/debian/logrotate", "etc/logrotate.d/saker-server"),
    ("packaging/debian/saker-server.service", "usr/lib/systemd/system/saker-server.service"),
    ("packaging/debian/lintian-overrides", "usr/share/lintian/overrides/saker-server"),
    ("packaging/debian/copyright", "usr/share/doc/saker-server/copyright"),
    ("packaging/debian/changelog", "usr/share/doc/saker-server/changelog.Debian"),
    ("packaging/saker-server.1", "usr/share/man/man1/saker-server.1"),
    ("CHANGELOG.md", "usr/share/doc/saker-server/changelog"),
    ("README.md", "usr/share/doc/saker-server/README.md"),
    ("docs/operations.md", "usr/share/doc/saker-server/operations.md"),
    ("docs/installation.md", "usr/share/doc/saker-server/installation.md"),
    ("docs/compatibility.md", "usr/share/doc/saker-server/compatibility.md"),
    ("docs/migration.md", "usr/share/doc/saker-server/migration.md"),
    ("docs/options.md", "usr/share/doc/saker-server/options.md"),
    ("docs/metrics.md", "usr/share/doc/saker-server/metrics.md"),
    ("packaging/grafana/saker.json", "usr/share/doc/saker-server/examples/saker.json"),
    ("packaging/prometheus/alerts.yml", "usr/share/doc/saker-server/examples/alerts.yml"),
    ("packaging/prometheus/alerts_test.yml", "usr/share/doc/saker-server/examples/alerts_test.yml"),
];
/// The generated pages that the Debian package contains, each with its installed path.
const PAGES: &[(&str, &str)] = &[
    ("saker.conf.5", "usr/share/man/man5/saker.conf.5"),
    ("saker-bench.1", "usr/share/man/man1/saker-bench.1"),
    ("saker-bench-run.1", "usr/share/man/man1/saker-bench-run.1"),
    ("saker-bench-compare.1", "usr/share/man/man1/saker-bench-compare.1"),
    ("saker-check.1", "usr/share/man/man1/saker-check.1"),
    ("saker-check-aof.1", "usr/share/man/man1/saker-check-aof.1"),
    ("saker-check-rdb.1", "usr/share/man/man1/saker-check-rdb.1"),
    ("saker-copy.1", "usr/share/man/man1/saker-copy.1"),
    ("saker-server.bash", "usr/share/bash-completion/completions/saker-server"),
    ("saker-bench.bash", "usr/share/bash-completion/completions/saker-bench"),
    ("saker-check.bash", "usr/share/bash-completion/completions/saker-check"),
    ("saker-copy.bash", "usr/share/bash-completion/completions/saker-copy"),
    ("_saker-server", "usr/share/zsh/vendor-completions/_saker-server"),
    ("_saker-bench", "usr/share/zsh/vendor-completions/_saker-bench"),
    ("_saker-check", "usr/share/zsh/vendor-completions/_saker-check"),
    ("_saker-copy", "usr/share/zsh/vendor-completions/_saker-copy"),
    ("saker-server.fish", "usr/share/fish/vendor_completions.d/saker-server.fish"),
    ("saker-bench.fish", "usr/share/fish/vendor_completions.d/saker-bench.fish"),
    ("saker-check.fish", "usr/share/fish/vendor_completions.d/saker-check.fish"),
    ("saker-copy.fish", "usr/share/fish/vendor_completions.d/saker-copy.fish"),
];
/// The crates of the programs that the Debian package installs.
const PROGRAMS: &[&str] = &["server", "bench", "check", "copy"];
/// The files of the package's folder DEBIAN besides `control`, with their permissions.
const CONTROL: &[(&str, u32)] =
    &[("conffiles", 0o644), ("postinst", 0o755), ("prerm", 0o755), ("postrm", 0o755)];
/// The folders below usr/share whose files are compressed, as Debian's policy requires.
const COMPRESSED: &[&str] = &["usr/share/man", "usr/share/doc/saker-server"];
/// The size in bytes up to which a file of usr/share/doc is not compressed, because short texts
/// gain nothing. Manual pages and changelogs are always compressed. `copyright`, documents and
/// examples never are: the policy requires a readable `copyright`, documents link to each other,
/// and examples are used as they are.
const UNCOMPRESSED_LEN_BYTES_MAX: u64 = 4096;

/// Handles `cargo xtask package`: builds the package and prints its path and size. Returns true.
pub fn run(session: &Session) -> Result<bool> {
    let package = build(session)?;
    let len_bytes = fs::metadata(&package)?.len();
    println!("{} ({:.1} MB)", package.display(), len_bytes as f64 / 1e6);
    Ok(true)
}

/// Builds the Debian package from the release binaries. Returns its path.
pub fn build(session: &Session) -> Result<PathBuf> {
    for (program, package) in TOOLS {
        shell::ensure(session, program, package).map_err(|missing| anyhow!(missing))?;
    }
    let version = version(session)?;
    let programs = release::build(session)?;
    let pages = write_pages(session)?;
    let folder = session.target.join("package");
    let root = folder.join("root");
    if root.exists() {
        fs::remove_dir_all(&root)?;
    }
    for (program, name) in [
        (&programs.server, "saker-server"),
        (&programs.bench, "saker-bench"),
        (&programs.check, "saker-check"),
        (&programs.copy, "saker-copy"),
    ] {
        let installed = root.join("usr/bin").join(name);
        install(program, &installed, 0o755)?;
        logged(session, Command::new("strip").arg("--strip-unneeded").arg(&installed))?;
    }
    // The changelog is compressed, so a link to it would not open.
    let linked: Vec<_> = COPIED.iter().copied().filter(|(_, to)| !to.contains("/changelog")).collect();
    for (from, to) in COPIED {
        install(&session.root.join(from), &root.join(to), 0o644)?;
        if to.ends_with(".md") {
            let text = fs::read_to_string(root.join(to))?;
            fs::write(root.join(to), links::relinked(&text, from, to, &linked))?;
        }
    }
    for (from, to) in PAGES {
        install(&pages.join(from), &root.join(to), 0o644)?;
    }
    let doc = root.join("usr/share/doc").join(NAME);
    fs::write(doc.join("third-party-notices"), notices::text(session, PROGRAMS)?)?;
    COMPRESSED.iter().try_for_each(|folder| compress(session, &root.join(folder)))?;
    write_control(session, &root, &version)?;
    set_modes(&root)?;
    let architecture = shell::output(Command::new("dpkg").arg("--print-architecture"))?;
    let package = folder.join(format!("{NAME}_{version}_{}.deb", architecture.trim()));
    let mut pack = Command::new("dpkg-deb");
    pack.args(["--root-owner-group", "-Zxz", "--build"]).arg(&root).arg(&package);
    if let Ok(time) = shell::output(Command::new("git").args(["log", "-1", "--format=%ct"])) {
        pack.env("SOURCE_DATE_EPOCH", time.trim());
    }
    logged(session, &mut pack)?;
    Ok(package)
}

/// Returns the package's version from its Debian changelog. Returns an error if the version does
/// not belong to the present version of Saker.
fn version(session: &Session) -> Result<String> {
    let changelog = session.root.join("packaging/debian/changelog");
    let mut parse = Command::new("dpkg-parsechangelog");
    let version = shell::output(parse.args(["-S", "Version", "-l"]).arg(&changelog))?;
    let upstream = env!("CARGO_PKG_VERSION");
    ensure!(
        version.trim().rsplit_once('-').is_some_and(|(version, _)| version == upstream),
        "{} begins with version {}, but Saker has version {upstream}: add an entry",
        changelog.display(),
        version.trim()
    );
    Ok(version.trim().to_owned())
}

/// Writes manual pages and completions, with the examples of the crates that define the options and
/// arguments. Returns their folder.
fn write_pages(session: &Session) -> Result<PathBuf> {
    let folder = session.target.join("package/pages");
    let writers = [
        ("examples/package_files", &["pages"][..]),
        ("examples/bench_pages", &[]),
        ("examples/check_pages", &[]),
        ("examples/copy_pages", &[]),
    ];
    for (writer, arguments) in writers {
        let mut command = Command::new(programs::built(session, writer)?);
        command.current_dir(&session.root).args(arguments).arg(&folder);
        shell::run_logged(session, "package", &mut command, PAGES_LIMIT)?;
    }
    Ok(folder)
}

fn logged(session: &Session, command: &mut Command) -> Result<String> {
    shell::run_logged(session, "package", command, PACK_LIMIT)
}

/// Copies the file `from` to `to`, with the permissions `mode`. Creates missing folders.
fn install(from: &Path, to: &Path, mode: u32) -> Result<()> {
    fs::create_dir_all(to.parent().context("a file in the root")?)?;
    fs::copy(from, to).with_context(|| format!("cannot install {}", from.display()))?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode))?;
    Ok(())
}

/// Compresses with gzip the files below `folder` that must be compressed, without time stamps.
fn compress(session: &Session, folder: &Path) -> Result<()> {
    let is_manual = folder.ends_with("man");
    for file in files(folder)? {
        let is_log = file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("changelog"));
        let is_long = fs::metadata(&file)?.len() > UNCOMPRESSED_LEN_BYTES_MAX;
        let is_plain = file.ends_with("copyright")
            || file.extension().is_some_and(|extension| extension == "md")
            || file.parent().is_some_and(|folder| folder.ends_with("examples"));
        if is_manual || is_log || (is_long && !is_plain) {
            logged(session, Command::new("gzip").args(["-9n"]).arg(&file))?;
        }
    }
    Ok(())
}

/// Sets the permissions of all files below `root`: folders, programs and scripts get 0755, other
/// files get 0644. The result does not depend on the umask.
fn set_modes(root: &Path) -> Result<()> {
    let mut paths = vec![root.to_owned()];
    while let Some(path) = paths.pop() {
        let metadata = fs::symlink_metadata(&path)?;
        let is_executable = metadata.is_dir() || metadata.permissions().mode() & 0o100 != 0;
        let mode = if is_executable { 0o755 } else { 0o644 };
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
        if metadata.is_dir() {
            for entry in fs::read_dir(&path)? {
                paths.push(entry?.path());
            }
        }
    }
    Ok(())
}

/// Returns the paths of all files below `folder`, sorted.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
            let entry = entry?;
            let list = if entry.file_type()?.is_dir() { &mut folders } else { &mut found };
            list.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// Writes the folder DEBIAN of the package: control file, checksums and scripts.
fn write_control(session: &Session, root: &Path, version: &str) -> Result<()> {
    let installed = files(root)?;
    let folder = root.join("DEBIAN");
    fs::create_dir_all(&folder)?;
    for (name, mode) in CONTROL {
        install(&session.root.join("packaging/debian").join(name), &folder.join(name), *mode)?;
    }
    let mut checksums = String::new();
    let mut len_bytes = 0;
    for file in &installed {
        let name = file.strip_prefix(root)?;
        len_bytes += fs::metadata(file)?.len().next_multiple_of(1024);
        if !name.starts_with("etc") {
            checksums += &shell::output(Command::new("md5sum").arg(name).current_dir(root))?;
        }
    }
    fs::write(folder.join("md5sums"), checksums)?;
    let architecture = shell::output(Command::new("dpkg").arg("--print-architecture"))?;
    let control = fs::read_to_string(session.root.join("packaging/debian/control"))?;
    let control = control
        .replace("@VERSION@", version)
        .replace("@ARCHITECTURE@", architecture.trim())
        .replace("@INSTALLED_SIZE@", &(len_bytes / 1024).to_string())
        .replace("@DEPENDS@", &shared_libraries(session, root)?);
    fs::write(folder.join("control"), control)?;
    Ok(())
}

/// Returns the Debian packages of the shared libraries that the programs need, for the field
/// Depends.
fn shared_libraries(session: &Session, root: &Path) -> Result<String> {
    // dpkg-shlibdeps must run in a source package.
    let source = session.target.join("package/source");
    fs::create_dir_all(source.join("debian"))?;
    fs::write(
        source.join("debian/control"),
        format!("Source: {NAME}\n\nPackage: {NAME}\nArchitecture: any\n"),
    )?;
    let mut command = Command::new("dpkg-shlibdeps");
    command.arg("-O").current_dir(&source);
    for program in ["saker-server", "saker-bench", "saker-check", "saker-copy"] {
        command.arg(root.join("usr/bin").join(program));
    }
    let output = shell::output(&mut command)?;
    let depends = output.trim().strip_prefix("shlibs:Depends=").context("what dpkg-shlibdeps found")?;
    Ok(depends.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_in_the_package_do_not_depend_on_the_umask() {
        for umask in ["002", "022", "077"] {
            let folder = tempfile::tempdir().unwrap();
            let root = folder.path().join("root");
            let script = format!(
                "umask {umask} && mkdir -p root/usr/bin root/etc && cd root && echo 1 > usr/bin/program && \
                 echo 2 > etc/conf && chmod u+x usr/bin/program && chmod g+s etc"
            );
            shell::output(Command::new("sh").args(["-c", &script]).current_dir(folder.path())).unwrap();
            set_modes(&root).unwrap();
            let modes = ["", "etc", "etc/conf", "usr", "usr/bin", "usr/bin/program"]
                .map(|path| fs::metadata(root.join(path)).unwrap().permissions().mode() & 0o7777);
            assert_eq!(modes, [0o755, 0o755, 0o644, 0o755, 0o755, 0o755], "umask {umask}");
        }
    }
}
