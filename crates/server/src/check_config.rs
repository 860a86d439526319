//! `--check-config`: finds problems that would keep a server from starting, without starting one.
//! The caller has already checked the syntax of the configuration files.

use std::path::{Path, PathBuf};

use persist::aof::files::Files;
use rustix::fs::{Access, access};
use server::append_only::{files_name, files_path};
use server::commands;
use server::config::apply::{self, PortZeros};
use server::config::choices::ReadableSecrets;
use server::config::readable_secrets::ReadableSecret;
use server::config::{ConfigStore, table};
use server::snapshots::{DataFolder, save_rules};
use server::tls;
use server::users;

/// Returns all problems of a configuration, each as a sentence for the user.
pub fn problems(store: &ConfigStore) -> Vec<String> {
    let mut problems = Vec::new();
    match apply::start_options(store, PortZeros::default()) {
        Err(error) => problems.push(error.to_string()),
        Ok(start) if start.port.or(start.tls_port).is_none() && start.unix_socket.is_none() => {
            let problem =
                "there is nothing to listen on: 'port' and 'tls-port' are 0 and 'unixsocket' is not set";
            problems.push(problem.to_owned());
        }
        Ok(_) => {}
    }
    if table::security::SECRETS_IN_READABLE_FILES.of(store) == ReadableSecrets::Refuse {
        let refused = |secret: &ReadableSecret| format!("{secret} (option 'secrets-in-readable-files')");
        problems.extend(store.readable_secrets().iter().map(refused));
    }
    problems.extend(users::problem(store, &commands::table().0, &apply::settings(store)));
    if tls::is_wanted(store)
        && let Err(problem) = tls::Tls::default().configure(store)
    {
        problems.push(problem);
    }
    let folder = table::persistence::DIR.of(store);
    problems.extend(folder_problem(store, folder));
    problems.extend(manifest_problem(store));
    let files = [
        ("logfile", table::process::LOGFILE.of(store)),
        ("unixsocket", table::network::UNIXSOCKET.of(store)),
    ];
    let named = files.into_iter().filter(|(_, path)| !path.as_os_str().is_empty());
    problems.extend(named.filter_map(|(option, path)| file_problem(option, &folder.join(path))));
    problems
}

/// Returns the problem with the manifest of the append-only file; `None` if it can be used or
/// `appendonly` is `no`.
fn manifest_problem(store: &ConfigStore) -> Option<String> {
    if !table::persistence::APPENDONLY.of(store) {
        return None;
    }
    let path = files_path(store);
    let error = Files::open(&DataFolder::new(&path), &files_name(store)).err()?;
    Some(format!("the manifest in '{}' cannot be used: {error}", path.display()))
}

/// Returns the problem with the data folder; `None` if the server can use the folder.
fn folder_problem(store: &ConfigStore, folder: &Path) -> Option<String> {
    if !folder.is_dir() {
        return Some(format!("the folder '{}' does not exist (option 'dir')", folder.display()));
    }
    let saves = !save_rules(store).is_empty() || table::persistence::APPENDONLY.of(store);
    let is_writable = access(folder, Access::WRITE_OK | Access::EXEC_OK).is_ok();
    (saves && !is_writable).then(|| {
        format!(
            "this user cannot write to the folder '{}' (option 'dir'), so saving would fail: make it \
             writable, or turn snapshots off with 'save \"\"'",
            folder.display()
        )
    })
}

/// Returns the problem with the file that the server would create or write because of `option`;
/// `None` if it can do so.
fn file_problem(option: &str, path: &Path) -> Option<String> {
    let folder = path.parent().map_or_else(|| PathBuf::from("/"), Path::to_owned);
    let shown = path.display();
    if !folder.is_dir() {
        return Some(format!("the folder of '{shown}' does not exist (option '{option}')"));
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
