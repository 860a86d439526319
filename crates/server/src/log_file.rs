//! The log's file, found by its name at every line: after a rotation lines go to the file that has
//! the name now.
//!
//! Redis opens and closes its log file for each line. Here it stays open, and a line costs a `stat`
//! of the name beside its `write`. Where the name leads to another file, or to none, it is opened
//! anew and created. While that fails (no folder, no permission, no space) lines are lost: the
//! server goes on, and the log says how many were lost as soon as it can. Where only a part of a
//! line could be written, the next one begins on a new line.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

/// A log file that follows its name. One lock, a leaf in the lock order, held while a line is
/// written.
#[derive(Debug)]
pub struct LogFile {
    /// Absolute: the working folder may change.
    path: PathBuf,
    /// The line that says how many were lost.
    loss: fn(u64) -> String,
    open: Mutex<Open>,
}

#[derive(Debug)]
struct Open {
    /// `None` while the file cannot be opened.
    file: Option<(File, Identity)>,
    lost_lines: u64,
    /// The file that ends with a part of a line.
    torn: Option<Identity>,
}

/// The device and the number of a file. It is of no other file while the file is open.
type Identity = (u64, u64);

impl LogFile {
    /// Opens or creates the file at `path`. `loss` writes the line, newline included, for a number
    /// of lines that were lost.
    pub fn open(path: &Path, loss: fn(u64) -> String) -> io::Result<Self> {
        let path = std::path::absolute(path)?;
        let open = Open { file: Some(open(&path)?), lost_lines: 0, torn: None };
        Ok(Self { path, loss, open: Mutex::new(open) })
    }

    /// Opens the file anew, whatever its name led to before.
    pub fn reopen(&self) -> io::Result<()> {
        let mut open = self.lock();
        open.file = None;
        open.file = Some(self::open(&self.path)?);
        Ok(())
    }

    /// Writes one line, newline included.
    fn write_line(&self, line: &[u8]) {
        let mut open = self.lock();
        if let Err(error) = self.try_write(&mut open, line) {
            open.lost_lines += 1;
            if open.lost_lines == 1 {
                // Nobody may be there to read it: that is no reason to stop.
                let _ = writeln!(io::stderr(), "saker-server: the log {}: {error}", self.path.display());
            }
        }
    }

    fn try_write(&self, open: &mut Open, line: &[u8]) -> io::Result<()> {
        let found = fs::metadata(&self.path).ok();
        let named = found.as_ref().map(identity);
        if named.is_none() || open.file.as_ref().map(|(_, identity)| *identity) != named {
            open.file = None;
            open.file = Some(self::open(&self.path)?);
        }
        let Some((file, identity)) = &mut open.file else { unreachable!("opened above") };
        // A file that was cut meanwhile is empty and needs no new line.
        if open.torn == Some(*identity) && found.is_some_and(|found| found.len() > 0) {
            file.write_all(b"\n")?;
        }
        let mut write = |line: &[u8]| {
            let (is_torn, result) = write_line(file, line);
            open.torn = is_torn.then_some(*identity);
            result
        };
        if open.lost_lines > 0 {
            write((self.loss)(open.lost_lines).as_bytes())?;
            open.lost_lines = 0;
        }
        write(line)
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().expect("nothing panics while a line is written")
    }
}

/// One call is one line. It always succeeds, as far as the caller is concerned: the loss of a line
/// is dealt with here.
impl Write for &LogFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.write_line(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a line. The first of the result is whether an error left a part of the line in the file.
fn write_line(file: &mut File, line: &[u8]) -> (bool, io::Result<()>) {
    let mut written = 0;
    while written < line.len() {
        match file.write(&line[written..]) {
            Ok(0) => return (written > 0, Err(io::ErrorKind::WriteZero.into())),
            Ok(len_bytes) => written += len_bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (written > 0, Err(error)),
        }
    }
    (false, Ok(()))
}

fn open(path: &Path) -> io::Result<(File, Identity)> {
    // The group may read the log, whatever the umask leaves it: writing is for the server.
    let file = OpenOptions::new().create(true).append(true).mode(0o644).open(path)?;
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
        // As logrotate does with `copytruncate`.
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
}
