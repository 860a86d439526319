//! The files that make up an append-only file.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::report::{Problem, Role};
use persist::aof::manifest::{Manifest, Part};

/// A file to check, with its role in the append-only file.
#[derive(Clone, Debug)]
pub(crate) struct ListedFile {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) role: Role,
}

/// The files that make up an append-only file, as the manifest or the folder shows.
#[derive(Debug)]
pub(crate) struct Found {
    /// The folder that contains the files of the append-only file.
    pub(crate) folder: PathBuf,
    /// The name of the manifest and its content. `None` for an append-only file without a manifest;
    /// the inner value is `None` if the manifest is broken.
    pub(crate) manifest: Option<(String, Option<Manifest>)>,
    /// The files of the append-only file in the order in which they were written: history, base,
    /// incremental files. Empty if the manifest is broken.
    pub(crate) files: Vec<ListedFile>,
    /// The problem of a broken manifest; `None` if the manifest can be read.
    pub(crate) problem: Option<Problem>,
    /// Files of the folder that look like parts of the append-only file but are not in the
    /// manifest.
    pub(crate) unlisted: Vec<String>,
}

/// The maximum number of bytes of a manifest that are read.
const MANIFEST_LEN_BYTES_MAX: u64 = 64 << 20;

/// Finds the files of the append-only file at `path`. `path` may be the folder with the manifest,
/// the parent of that folder, the manifest, or a single file.
///
/// Returns an error if the system reports one, or if a folder has no manifest or more than one.
pub(crate) fn find(path: &Path) -> io::Result<Found> {
    if fs::metadata(path)?.is_dir() {
        return of_manifest(&manifest_in(path)?);
    }
    let has_name = path.extension().is_some_and(|extension| extension == "manifest");
    if has_name || begins_as_manifest(path)? {
        return of_manifest(path);
    }
    let file = ListedFile { name: name_of(path), path: path.to_owned(), role: Role::Single };
    Ok(Found {
        folder: folder_of(path),
        manifest: None,
        files: vec![file],
        problem: None,
        unlisted: Vec::new(),
    })
}

fn folder_of(path: &Path) -> PathBuf {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.map_or_else(|| PathBuf::from("."), Path::to_owned)
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Returns true if the file at `path` begins like a manifest: its first line that is not a comment
/// starts with `file `.
fn begins_as_manifest(path: &Path) -> io::Result<bool> {
    let mut first = Vec::new();
    fs::File::open(path)?.take(64 * 1024).read_to_end(&mut first)?;
    let line = first.split(|&byte| byte == b'\n').find(|line| !line.starts_with(b"#"));
    Ok(line.is_some_and(|line| line.starts_with(b"file ")))
}

/// Finds the manifest in `folder` or, if `folder` is a server's data folder, in one of its
/// subfolders. Returns an error if there is no manifest or more than one.
fn manifest_in(folder: &Path) -> io::Result<PathBuf> {
    let mut found = manifests_in(folder)?;
    if found.is_empty() {
        for entry in fs::read_dir(folder)? {
            let within = entry?.path();
            if within.is_dir() {
                // A folder that cannot be read does not belong to the server.
                found.extend(manifests_in(&within).unwrap_or_default());
            }
        }
    }
    match (found.pop(), found.is_empty()) {
        (Some(manifest), true) => Ok(manifest),
        (None, _) => {
            let what =
                "has no manifest of an append-only file, such as appendonlydir/appendonly.aof.manifest";
            Err(io::Error::new(io::ErrorKind::NotFound, what))
        }
        (Some(_), false) => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "has several manifests: name one of them"))
        }
    }
}

fn manifests_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let paths = fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path()));
    let mut paths = paths.collect::<io::Result<Vec<_>>>()?;
    paths.retain(|path| {
        let name = name_of(path);
        name.ends_with(".manifest") && !name.starts_with("temp-") && path.is_file()
    });
    Ok(paths)
}

fn of_manifest(path: &Path) -> io::Result<Found> {
    let mut text = Vec::new();
    fs::File::open(path)?.take(MANIFEST_LEN_BYTES_MAX).read_to_end(&mut text)?;
    let (folder, name) = (folder_of(path), name_of(path));
    let manifest = match Manifest::parse(&text) {
        Ok(manifest) => manifest,
        Err(error) => {
            let problem = Problem::of_manifest(name.clone(), error.to_string());
            let manifest = Some((name, None));
            return Ok(Found {
                folder,
                manifest,
                files: Vec::new(),
                problem: Some(problem),
                unlisted: Vec::new(),
            });
        }
    };
    let listed =
        |part: &Part, role| ListedFile { name: part.name.clone(), path: folder.join(&part.name), role };
    let history = manifest.history.iter().rev().map(|part| listed(part, Role::History));
    let base = manifest.base.iter().map(|part| listed(part, Role::Base));
    let incr = manifest.incr.iter().map(|part| listed(part, Role::Incr));
    let files: Vec<ListedFile> = history.chain(base).chain(incr).collect();
    let mut unlisted = Vec::new();
    for entry in fs::read_dir(&folder)? {
        let file = name_of(&entry?.path());
        let looks_like_one = file.ends_with(".aof") || file.ends_with(".rdb") || file.ends_with(".incr");
        if looks_like_one && files.iter().all(|listed| listed.name != file) {
            unlisted.push(file);
        }
    }
    unlisted.sort();
    Ok(Found { folder, manifest: Some((name, Some(manifest))), files, problem: None, unlisted })
}
