//! The RDB file to check, with its progress bar.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use indicatif::ProgressBar;
use persist::folder::FileError;
use persist::load::ByteSource;

/// The number of bytes from the start of the file that are stored to recognize its kind.
const FIRST_BYTES: usize = 16;

/// Opens the file at `path`. Also returns its size in bytes; `None` for a file without a known
/// size, such as a pipe.
///
/// # Errors
/// If the system reports an error, or the path is a folder.
pub(crate) fn open(path: &Path) -> io::Result<(File, Option<u64>)> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        let what = "is a folder: name the file within it, such as dump.rdb";
        return Err(io::Error::new(io::ErrorKind::IsADirectory, what));
    }
    Ok((file, metadata.is_file().then_some(metadata.len())))
}

/// A source of an RDB file's bytes, which moves the progress bar as they are read.
pub(crate) struct FileSource {
    file: File,
    bar: ProgressBar,
    read_len_bytes: u64,
    first: Vec<u8>,
    failed: Option<io::Error>,
}

impl FileSource {
    /// Creates a source that reads `file` from its current position.
    pub(crate) fn new(file: File, bar: ProgressBar) -> Self {
        Self { file, bar, read_len_bytes: 0, first: Vec::new(), failed: None }
    }

    /// Returns the bytes that were read first, at most [`FIRST_BYTES`].
    pub(crate) fn first_bytes(&self) -> &[u8] {
        &self.first
    }

    /// Returns the size of the file in bytes as far as known: the larger of the size that the
    /// system reports and the number of bytes read.
    pub(crate) fn len_bytes(&self) -> u64 {
        let metadata = self.file.metadata().ok().filter(std::fs::Metadata::is_file);
        metadata.map_or(0, |metadata| metadata.len()).max(self.read_len_bytes)
    }

    /// Reads up to the end of the file and returns its size in bytes. The size of a pipe is known
    /// only after that. O(remaining bytes).
    pub(crate) fn len_to_the_end(&mut self) -> u64 {
        let mut buffer = vec![0; 64 * 1024];
        while ByteSource::read(self, &mut buffer).is_ok_and(|len| len > 0) {}
        self.len_bytes()
    }

    /// Ends the reading, and returns the number of bytes read from the file.
    ///
    /// # Errors
    ///
    /// If reading has failed: the error of the system.
    pub(crate) fn finish(self) -> io::Result<u64> {
        self.failed.map_or(Ok(self.read_len_bytes), Err)
    }
}

impl ByteSource for &mut FileSource {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, FileError> {
        ByteSource::read(*self, buffer)
    }
}

impl ByteSource for FileSource {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, FileError> {
        let read = loop {
            match self.file.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        match read {
            Ok(len) => {
                let wanted = FIRST_BYTES.saturating_sub(self.first.len()).min(len);
                self.first.extend_from_slice(&buffer[..wanted]);
                self.read_len_bytes += len as u64;
                self.bar.inc(len as u64);
                Ok(len)
            }
            // `finish` returns the error to the caller. The splitter sees the end of the file here.
            Err(error) => {
                self.failed = Some(error);
                Ok(0)
            }
        }
    }
}
