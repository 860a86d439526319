//! `--check-config`: what would keep a server from starting, as far as that shows without starting
//! one. The lines of its files were read before.

use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use server::config::apply::{self, PortZero};
use server::config::{ConfigStore, table};
use server::snapshots::{append_only_files, save_rules};

/// Everything that is wrong, a sentence each, for people.
pub fn problems(store: &ConfigStore) -> Vec<String> {
    let mut problems = Vec::new();
    match apply::start_options(store, PortZero::NoTcp) {
        Err(error) => problems.push(error.to_string()),
        Ok(start) if start.port.is_none() && start.unix_socket.is_none() => {
            problems.push("there is nothing to listen on: 'port' is 0 and 'unixsocket' is not set".to_owned())
        }
        Ok(_) => {}
    }
    let folder = table::persistence::DIR.of(store);
    problems.extend(folder_problem(store, folder));
    if let Some(path) = append_only_files(store) {
        problems.push(format!(
            "the data is in {}, an append-only file, which cannot be read yet (option 'appendonly')",
            path.display()
        ));
    }
    let files = [
        ("logfile", table::process::LOGFILE.of(store)),
        ("unixsocket", table::network::UNIXSOCKET.of(store)),
    ];
    let named = files.into_iter().filter(|(_, path)| !path.as_os_str().is_empty());
    problems.extend(named.filter_map(|(option, path)| file_problem(option, &folder.join(path))));
    problems
}

/// What is wrong with the folder of the data.
fn folder_problem(store: &ConfigStore, folder: &Path) -> Option<String> {
    if !folder.is_dir() {
        return Some(format!("there is no folder '{}' (option 'dir')", folder.display()));
    }
    let saves = !save_rules(store).is_empty();
    let is_writable = access(folder, Access::WRITE_OK | Access::EXEC_OK).is_ok();
    (saves && !is_writable).then(|| {
        format!(
            "the folder '{}' (option 'dir') is not writable for this user, so that nothing could be saved; 'save \"\"' \
             saves nothing",
            folder.display()
        )
    })
}

/// What is wrong with a file that `option` has the server make.
fn file_problem(option: &str, path: &Path) -> Option<String> {
    let folder = path.parent().map_or_else(|| PathBuf::from("/"), Path::to_owned);
    let shown = path.display();
    if !folder.is_dir() {
        return Some(format!("there is no folder for '{shown}' (option '{option}')"));
    }
    let is_there = path.exists();
    let place = if is_there { path } else { &folder };
    if path.is_dir() {
        return Some(format!("'{shown}' is a folder (option '{option}')"));
    }
    let what = if is_there { "written" } else { "created" };
    let is_writable = access(place, Access::WRITE_OK).is_ok();
    (!is_writable).then(|| format!("'{shown}' cannot be {what} by this user (option '{option}')"))
}
