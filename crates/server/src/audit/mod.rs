//! The audit log: one line of JSON for each event, with the user, the client and the outcome.
//!
//! ```text
//!   I/O threads ─► queue, at most QUEUE_BYTES_MAX ─► thread `audit` ─► the file
//! ```
//! An I/O thread formats its line and appends it to the queue. No thread holds the queue's lock
//! while a file is written. So a slow or full disk, or a pipe without a reader, loses lines and
//! never delays a request. A line is lost if the queue is full or the line cannot be written.
//! INFO's `audit_log_lost` counts lost lines, and a line in the file reports their number.
//!
//! `audit-log-events` and `audit-log-users` choose the events. A server without `audit-log-file`
//! pays one comparison per request.
//!
//! Lines contain names of commands, keys and users. They never contain values, passwords and other
//! arguments. The keys are those that a request's arguments name; of a script, its declared keys.

mod line;

use std::io;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use commands::table::{Acl, Flags};
use engine::client::ClientInfo;
use engine::settings::{AuditEvents, AuditFilter};
use engine::table::Registered;
use stdx::glob::glob_match;

pub use self::line::{Event, Outcome};
use crate::log_file::LogFile;

/// Maximum size of the queue of audit log lines, in bytes. Lines that do not fit are lost.
const QUEUE_BYTES_MAX: usize = 4 << 20;
/// Time for which a stopping server waits until queued lines of the audit log are written. Lines
/// not written by then are lost.
const END_TIMEOUT: Duration = Duration::from_secs(3);

/// The audit log of a server: its file, the queue of its lines, and the counts of lines.
#[derive(Debug, Default)]
pub struct Audit {
    file: Option<LogFile>,
    queue: Mutex<Queue>,
    /// The condition variable that wakes the thread `audit`. It is signaled when a line is queued,
    /// the file must be reopened, or the server stops.
    awake: Condvar,
    /// The condition variable for which a stopping server waits. It is signaled when the thread
    /// `audit` has ended.
    over: Condvar,
    /// Number of audit log lines that were queued since the server started.
    lines: AtomicU64,
    /// Number of audit log lines lost since the start: the queue was full, or they could not be
    /// written.
    lost: AtomicU64,
}

#[derive(Debug, Default)]
struct Queue {
    lines: Vec<u8>,
    /// Number of audit log lines that were dropped since the last line that fitted into the queue.
    lost: u64,
    reopens: bool,
    ends: bool,
    is_over: bool,
}

/// A login attempt, as the audit log records it.
pub struct Login<'a> {
    /// The time of the login attempt, in Unix milliseconds.
    pub unix_ms: i64,
    /// The outcome of the login attempt.
    pub outcome: Outcome,
    /// The user that logged in; for a failed login, the name that the client gave.
    pub user: &'a [u8],
    /// The client that tried to log in.
    pub client: &'a ClientInfo,
    /// The command of the attempt, such as `auth`; `certificate` for a login by certificate.
    pub by: &'static str,
}

impl Audit {
    /// Opens or creates the audit log's file at `path`. Without a path no event is recorded.
    pub fn open(path: Option<&Path>) -> io::Result<Self> {
        let file = path.map(|path| LogFile::open_private(path, loss_now)).transpose()?;
        Ok(Self { file, ..Self::default() })
    }

    /// Returns true if the audit log has a file.
    pub fn is_on(&self) -> bool {
        self.file.is_some()
    }

    /// Requests that the thread `audit` reopens the audit log's file by its name. Returns at once.
    pub fn reopen(&self) {
        self.lock().reopens = true;
        self.awake.notify_one();
    }

    /// Returns the number of queued lines and the number of lost lines, both since the start of the
    /// server.
    pub fn figures(&self) -> (u64, u64) {
        (self.lines.load(Relaxed), self.lost.load(Relaxed))
    }

    /// Records an event in the audit log if the filter selects its user. The caller has checked
    /// that the filter selects this kind of event.
    #[cold]
    pub fn note<'k>(&self, filter: &AuditFilter, event: Event<'_, impl Iterator<Item = &'k [u8]>>) {
        if self.file.is_none() || !is_noted(filter, event.user) {
            return;
        }
        let mut text = Vec::with_capacity(256);
        line::append(&mut text, event);
        self.push(&text);
    }

    /// Records a login attempt in the audit log if the filter selects logins and the user of this
    /// attempt.
    pub fn note_login(&self, filter: &AuditFilter, login: Login<'_>) {
        if filter.events.intersects(AuditEvents::AUTH | AuditEvents::ALL) {
            let Login { unix_ms, outcome, user, client, by } = login;
            let keys = std::iter::empty();
            self.note(filter, Event { unix_ms, kind: "auth", outcome, user, client, command: by, keys });
        }
    }

    fn push(&self, text: &[u8]) {
        let mut queue = self.lock();
        if queue.lines.len() + text.len() > QUEUE_BYTES_MAX {
            queue.lost += 1;
            self.lost.fetch_add(1, Relaxed);
            return;
        }
        let was_empty = queue.lines.is_empty();
        if queue.lost > 0 {
            let lost = std::mem::take(&mut queue.lost);
            queue.lines.extend_from_slice(loss_now(lost).as_bytes());
        }
        queue.lines.extend_from_slice(text);
        self.lines.fetch_add(1, Relaxed);
        drop(queue);
        if was_empty {
            self.awake.notify_one();
        }
    }

    /// Requests the end of the thread `audit` after it has written all queued lines, and waits for
    /// that at most [`END_TIMEOUT`]. Without this limit, a full pipe would keep the server from
    /// stopping.
    pub fn end(&self) {
        let mut queue = self.lock();
        queue.ends = true;
        self.awake.notify_one();
        let is_writing = |queue: &mut Queue| !queue.is_over;
        let waited = self.over.wait_timeout_while(queue, END_TIMEOUT, is_writing);
        if waited.expect("nothing panics while the queue is locked").1.timed_out() {
            tracing::warn!("the last lines of the audit log were not written in time");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("nothing panics while the queue is locked")
    }
}

/// Formats the line of the audit log that reports `lost` lost lines, with the current time.
fn loss_now(lost: u64) -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let time = line::time(since.as_millis() as i64);
    format!("{{\"time\":\"{time}\",\"event\":\"lost\",\"lines\":{lost}}}\n")
}

/// Returns true if the filter selects the user. The last pattern that matches the user decides; a
/// pattern that begins with `!` excludes users. If no pattern matches, the result is false.
fn is_noted(filter: &AuditFilter, user: &[u8]) -> bool {
    let decides = filter.users.iter().rev().find_map(|pattern| match pattern.strip_prefix(b"!") {
        Some(pattern) => glob_match(pattern, user).then_some(false),
        None => glob_match(pattern, user).then_some(true),
    });
    decides.unwrap_or(false)
}

/// Writes queued lines of the audit log to its file until the server stops. This is the body of the
/// thread `audit`.
pub fn run(audit: &Audit) {
    let Some(file) = &audit.file else { return };
    let mut lines = Vec::new();
    loop {
        let mut queue = audit.lock();
        while queue.lines.is_empty() && !queue.ends && !queue.reopens {
            queue = audit.awake.wait(queue).expect("nothing panics while the queue is locked");
        }
        if std::mem::take(&mut queue.reopens) {
            drop(queue);
            if let Err(error) = file.reopen() {
                tracing::warn!("the audit log cannot be opened: {error}");
            }
            continue;
        }
        if queue.lines.is_empty() {
            queue.is_over = true;
            audit.over.notify_all();
            return;
        }
        std::mem::swap(&mut lines, &mut queue.lines);
        drop(queue);
        audit.lost.fetch_add(file.append(&lines), Relaxed);
        lines.clear();
    }
}

/// Returns true if calls of the command `registered` are of a kind that `events` selects.
pub fn notes_command(events: AuditEvents, registered: &Registered) -> bool {
    let command = &registered.command;
    events.contains(AuditEvents::ALL)
        || events.contains(AuditEvents::ADMIN) && command.acl.intersects(Acl::ADMIN | Acl::DANGEROUS)
        || events.contains(AuditEvents::WRITE) && command.flags.contains(Flags::WRITE)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::OpenOptionsExt;
    use std::sync::Arc;
    use std::time::Instant;

    use super::*;

    #[test]
    fn the_last_pattern_that_matches_decides() {
        let check = |patterns: &[&str], user: &str| {
            let users = patterns.iter().map(|pattern| pattern.as_bytes().to_vec()).collect();
            is_noted(&AuditFilter { events: AuditEvents::ALL, users }, user.as_bytes())
        };
        assert!(
            check(&["*"], "alice")
                && check(&["*", "!app-*"], "alice")
                && check(&["*", "!a*", "alice"], "alice")
        );
        assert!(!check(&["*", "!app-*"], "app-1") && !check(&["bob"], "alice") && !check(&[], "alice"));
    }

    #[test]
    fn what_finds_the_queue_full_is_lost_and_counted() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let path = folder.path().join("audit.log");
        let audit = Arc::new(Audit::open(Some(&path)).expect("opens"));
        let line = [&[b'x'; 1023][..], b"\n"].concat();
        // No thread writes yet.
        for _ in 0..QUEUE_BYTES_MAX / line.len() + 3 {
            audit.push(&line);
        }
        assert_eq!(audit.figures(), ((QUEUE_BYTES_MAX / line.len()) as u64, 3));
        let writer = Arc::clone(&audit);
        let thread = std::thread::spawn(move || run(&writer));
        while !audit.lock().lines.is_empty() {
            std::thread::yield_now();
        }
        audit.push(b"next\n");
        audit.end();
        thread.join().expect("ends");
        let text = std::fs::read_to_string(&path).expect("written");
        assert!(text.ends_with("\"event\":\"lost\",\"lines\":3}\nnext\n"), "{}", &text[text.len() - 100..]);
    }

    #[test]
    fn a_pipe_that_nobody_reads_keeps_nobody_waiting() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let path = folder.path().join("audit.log");
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0)
            .expect("made");
        let at_once = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let reader = std::fs::OpenOptions::new().read(true).custom_flags(at_once).open(&path);
        let reader = reader.expect("opens");
        let audit = Arc::new(Audit::open(Some(&path)).expect("somebody reads"));
        let writer = Arc::clone(&audit);
        let thread = std::thread::spawn(move || run(&writer));
        let line = [&[b'x'; 1023][..], b"\n"].concat();
        while audit.figures().1 == 0 {
            audit.push(&line);
        }
        assert!(audit.lock().lines.len() <= QUEUE_BYTES_MAX);
        audit.reopen();
        let began = Instant::now();
        audit.end();
        assert!(began.elapsed() < 3 * END_TIMEOUT);
        // Without a reader the blocked write fails, so the writing thread can end.
        drop(reader);
        thread.join().expect("ends");
    }

    #[test]
    fn a_full_disk_loses_lines_and_counts_them() {
        let audit = Arc::new(Audit::open(Some(Path::new("/dev/full"))).expect("opens"));
        let writer = Arc::clone(&audit);
        let thread = std::thread::spawn(move || run(&writer));
        audit.push(b"1\n");
        audit.push(b"2\n");
        audit.end();
        thread.join().expect("ends");
        assert_eq!(audit.figures(), (2, 2));
    }
}
