//! Connections to other servers that stay open between two commands, because MIGRATE is called in
//! series.

use std::net::TcpStream;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Where a connection goes, and where from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// A name or an address.
    pub host: String,
    /// Its TCP port.
    pub port: u16,
    /// `bind-source-addr`.
    pub source: Vec<u8>,
}

/// ConnectionPool that are kept, in all.
const KEPT_MAX: usize = 64;
/// How long a connection is kept after its last use.
const KEPT_FOR: Duration = Duration::from_secs(10);

/// ConnectionPool to targets that are not in use, each for some seconds. Guarded by a lock of its
/// own, a leaf, never held across a system call.
#[derive(Debug, Default)]
pub struct ConnectionPool {
    kept: Mutex<Vec<Kept>>,
}

#[derive(Debug)]
struct Kept {
    target: Target,
    stream: TcpStream,
    db: Option<i64>,
    used: Instant,
}

impl ConnectionPool {
    /// Takes a connection to `target` out, with the database that it has selected, if
    /// known. O(connections).
    pub fn take(&self, target: &Target) -> Option<(TcpStream, Option<i64>)> {
        let mut kept = self.lock();
        let at = kept.iter().position(|kept| kept.target == *target && kept.used.elapsed() < KEPT_FOR)?;
        let found = kept.swap_remove(at);
        Some((found.stream, found.db))
    }

    /// Keeps a connection that has no answer outstanding. Closes another one
    /// when there are too many.
    pub fn keep(&self, target: Target, stream: TcpStream, db: Option<i64>) {
        let mut kept = self.lock();
        let displaced = if kept.len() >= KEPT_MAX { Some(kept.swap_remove(0)) } else { None };
        kept.push(Kept { target, stream, db, used: Instant::now() });
        drop(kept);
        // Closed here, after the lock.
        drop(displaced);
    }

    /// Closes what was not used for a while.
    pub fn close_idle(&self) {
        let idle: Vec<Kept> = self.lock().extract_if(.., |kept| kept.used.elapsed() >= KEPT_FOR).collect();
        drop(idle);
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Kept>> {
        self.kept.lock().expect("nothing panics while the connections are locked")
    }
}
