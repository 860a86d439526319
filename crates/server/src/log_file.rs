//! The log file. Its name is checked for every line, so that after a rotation, lines are written to
//! the new file with this name.
//!
//! Redis opens and closes its log file for each line. Here the file stays open, and a line costs a
//! `stat` of the name besides its `write`. If the name refers to another file or to none, the file
//! is opened or created again. While that fails (no folder, no permission, no space), lines are
//! lost. The server continues, and the log reports the number of lost lines as soon as it can.
//! After a partly written line, the next line starts on a new line.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use rustix::fs::OFlags;

/// A log file that is reopened when its name refers to another file. Its lock is held while a line
/// is written, and no other lock is taken under it.
#[derive(Debug)]
pub struct LogFile {
    /// The path of the log file. It is absolute, because the working folder may change.
    path: PathBuf,
    /// The permission bits of a new log file, before the umask.
    mode: u32,
    /// The function that formats the line about a number of lost lines.
    loss: fn(u64) -> String,
    open: Mutex<Open>,
}

#[derive(Debug)]
struct Open {
    /// The open log file; `None` after it could not be opened.
    file: Option<(File, Identity)>,
    lost_lines: u64,
    /// The identity of the log file whose last line was written only partly; `None` if there is no
    /// such file.
    torn: Option<Identity>,
}

/// The device and inode number of a file. No other file has them while the file is open.
type Identity = (u64, u64);

impl LogFile {
    /// Opens or creates the log file at `path`. `loss` formats the line, newline included, that
    /// reports a number of lost lines.
    pub fn open(path: &Path, loss: fn(u64) -> String) -> io::Result<Self> {
        // The umask decides which users may read the log. Only the server may write to it.
        Self::with_mode(path, 0o644, loss)
    }

    /// Opens the log file at `path`, or creates one that only the server and its group may read.
    pub fn open_private(path: &Path, loss: fn(u64) -> String) -> io::Result<Self> {
        Self::with_mode(path, 0o640, loss)
    }

    fn with_mode(path: &Path, mode: u32, loss: fn(u64) -> String) -> io::Result<Self> {
        let path = std::path::absolute(path)?;
        let open = Open { file: Some(open(&path, mode)?), lost_lines: 0, torn: None };
        Ok(Self { path, mode, loss, open: Mutex::new(open) })
    }

    /// Reopens the log file by its name, even if the open file still has this name.
    pub fn reopen(&self) -> io::Result<()> {
        let mut open = self.lock();
        open.file = None;
        open.file = Some(self::open(&self.path, self.mode)?);
        Ok(())
    }

    /// Writes `lines`, which contain their newlines, to the log file. Returns the number of lost
    /// lines.
    pub fn append(&self, lines: &[u8]) -> u64 {
        let mut open = self.lock();
        let Err((written, error)) = self.try_write(&mut open, lines) else { return 0 };
        let lost = lines[written..].iter().filter(|&&byte| byte == b'\n').count() as u64;
        if open.lost_lines == 0 {
            // Standard error may have no reader. That error is ignored.
            let _ = writeln!(
                io::stderr(),
                "saker-server: cannot write to the log {}: {error}",
                self.path.display()
            );
        }
        open.lost_lines += lost;
        lost
    }

    /// Writes `lines` to the log file, after a line about lost lines if there are any. An error
    /// includes the number of bytes of `lines` that were written.
    fn try_write(&self, open: &mut Open, lines: &[u8]) -> Result<(), (usize, io::Error)> {
        let found = fs::metadata(&self.path).ok();
        let named = found.as_ref().map(identity);
        if named.is_none() || open.file.as_ref().map(|(_, identity)| *identity) != named {
            open.file = None;
            open.file = Some(self::open(&self.path, self.mode).map_err(|error| (0, error))?);
        }
        let Some((file, identity)) = &mut open.file else { unreachable!("opened above") };
        // A file that was truncated meanwhile is empty and needs no newline.
        if open.torn == Some(*identity) && found.is_some_and(|found| found.len() > 0) {
            file.write_all(b"\n").map_err(|error| (0, error))?;
        }
        let mut write = |lines: &[u8]| {
            let (written, result) = write_all(file, lines);
            let is_torn = lines[..written].last().is_some_and(|&byte| byte != b'\n');
            open.torn = is_torn.then_some(*identity);
            result.map_err(|error| (written, error))
        };
        if open.lost_lines > 0 {
            write((self.loss)(open.lost_lines).as_bytes()).map_err(|(_, error)| (0, error))?;
            open.lost_lines = 0;
        }
        write(lines)
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().expect("nothing panics while a line is written")
    }
}

/// Each call of `write` receives one or more whole lines of the log. It always returns success:
/// lost lines are counted instead.
impl Write for &LogFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.append(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes `lines` to `file`. Returns the number of bytes written, and the error that prevented
/// more.
fn write_all(file: &mut File, lines: &[u8]) -> (usize, io::Result<()>) {
    let mut written = 0;
    while written < lines.len() {
        match file.write(&lines[written..]) {
            Ok(0) => return (written, Err(io::ErrorKind::WriteZero.into())),
            Ok(len_bytes) => written += len_bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (written, Err(error)),
        }
    }
    (written, Ok(()))
}

fn open(path: &Path, mode: u32) -> io::Result<(File, Identity)> {
    // If the file is a named pipe without a reader, opening it must fail instead of waiting for a
    // reader.
    let at_once = OFlags::NONBLOCK.bits() as i32;
    let file = OpenOptions::new().create(true).append(true).mode(mode).custom_flags(at_once).open(path)?;
    rustix::fs::fcntl_setfl(&file, OFlags::APPEND)?;
    let identity = identity(&file.metadata()?);
    Ok((file, identity))
}

fn identity(found: &fs::Metadata) -> Identity {
    (found.dev(), found.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(path: &Path) -> String {
        fs::read_to_string(path).expect("the file is there")
    }

    #[test]
    fn lines_follow_the_name_of_the_file() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let (path, old) = (folder.path().join("a.log"), folder.path().join("a.log.1"));
        let log = LogFile::open(&path, |lost| format!("{lost} lost\n")).expect("opens");
        let line = |text: &str| (&log).write_all(text.as_bytes()).expect("always succeeds");
        line("1\n");
        fs::rename(&path, &old).expect("rotated");
        line("2\n");
        assert_eq!((written(&old), written(&path)), ("1\n".into(), "2\n".into()));
        fs::remove_file(&path).expect("removed");
        line("3\n");
        assert_eq!(written(&path), "3\n");
        // Like logrotate with `copytruncate`.
        fs::write(&path, "").expect("cut");
        line("4\n");
        assert_eq!(written(&path), "4\n");
        fs::rename(&path, &old).expect("rotated");
        log.reopen().expect("reopens");
        assert_eq!((written(&old), written(&path)), ("4\n".into(), String::new()));
    }

    #[test]
    fn lost_lines_are_counted_and_the_log_goes_on() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let (logs, gone) = (folder.path().join("logs"), folder.path().join("gone"));
        fs::create_dir(&logs).expect("made");
        let path = logs.join("a.log");
        let log = LogFile::open(&path, |lost| format!("{lost} lost\n")).expect("opens");
        let line = |text: &str| (&log).write_all(text.as_bytes()).expect("always succeeds");
        line("1\n");
        fs::rename(&logs, &gone).expect("moved");
        line("2\n");
        line("3\n");
        log.reopen().expect_err("there is no folder");
        fs::create_dir(&logs).expect("made");
        line("4\n");
        line("5\n");
        assert_eq!(written(&gone.join("a.log")), "1\n");
        assert_eq!(written(&path), "2 lost\n4\n5\n");
    }

    #[test]
    fn a_pipe_without_a_reader_is_an_error_and_one_with_a_reader_a_log() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let path = folder.path().join("a.log");
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0)
            .expect("made");
        LogFile::open(&path, |lost| format!("{lost} lost\n")).expect_err("nobody reads");
        let at_once = OFlags::NONBLOCK.bits() as i32;
        let mut reader = OpenOptions::new().read(true).custom_flags(at_once).open(&path).expect("opens");
        let log = LogFile::open(&path, |lost| format!("{lost} lost\n")).expect("somebody reads");
        assert_eq!(log.append(b"1\n2\n"), 0);
        let mut text = [0; 4];
        io::Read::read_exact(&mut reader, &mut text).expect("it is there");
        assert_eq!(&text, b"1\n2\n");
        drop(reader);
        assert_eq!(log.append(b"3\n4\n"), 2);
    }

    #[test]
    fn what_a_full_disk_does_not_take_is_counted() {
        let log = LogFile::open(Path::new("/dev/full"), |lost| format!("{lost} lost\n")).expect("opens");
        assert_eq!([log.append(b"1\n2\n"), log.append(b"3\n")], [2, 1]);
        assert_eq!(log.lock().lost_lines, 3);
    }
}
