//! The limit of open files: each client needs one file descriptor.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Number of open files that the server needs besides clients, such as the log and the listeners.
/// Each I/O thread needs [`RESERVED_FILES_PER_THREAD`] more, for its event loop and its waker.
const RESERVED_FILES: u64 = 32;
const RESERVED_FILES_PER_THREAD: u64 = 8;

/// Raises the limit of open files, as far as permitted, to the number that `clients` connections
/// and the server's own files need. Returns the possible number of clients, at most `clients`. The
/// limit belongs to the process, so an embedded server raises it for its host too. It is never
/// lowered.
pub fn raise_open_files(clients: u64, io_threads: usize) -> u64 {
    let reserved = RESERVED_FILES + RESERVED_FILES_PER_THREAD * io_threads as u64;
    let wanted = clients.saturating_add(reserved);
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let current = current.unwrap_or(u64::MAX);
    if current >= wanted {
        return clients;
    }
    // Raising the hard limit needs privileges; every process may use its hard limit.
    let attempts = [maximum.map(|maximum| maximum.max(wanted)), maximum];
    for maximum in attempts {
        let limit = Rlimit { current: Some(wanted.min(maximum.unwrap_or(u64::MAX))), maximum };
        if setrlimit(Resource::Nofile, limit).is_ok() {
            break;
        }
    }
    let current = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    current.saturating_sub(reserved).clamp(1, clients)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_permitted_already_is_granted() {
        assert_eq!(raise_open_files(1, 1), 1);
        assert!(raise_open_files(u64::MAX, 1) >= 1);
    }
}
