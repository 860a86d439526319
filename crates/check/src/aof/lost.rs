//! A search for whole commands after a broken place in an append-only file. These commands are lost
//! if the file is cut at the broken place.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use persist::aof::reader::{AofError, End, Next, Reader, request_within};
use persist::folder::FileError;
use persist::load::ByteSource;

/// The number of bytes of the file that are searched at once for a command: a window.
const WINDOW_LEN_BYTES: u64 = 1 << 20;
/// The number of bytes in which two successive windows overlap: enough for a line end and the
/// beginning of a request.
const OVERLAP_LEN_BYTES: u64 = 4096;
/// The maximum number of offsets at which the search tries to read commands.
const TRIES_MAX: u32 = 100;

struct Source<'f>(&'f mut File);

impl ByteSource for Source<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, FileError> {
        loop {
            match self.0.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return read.map_err(|error| FileError(error.to_string())),
            }
        }
    }
}

/// Returns the number of whole commands found after the offset `from`, at which no command begins.
/// The file may contain more: the search ends after [`TRIES_MAX`] tries. O(bytes).
///
/// # Errors
/// If the file cannot be read.
pub(crate) fn commands_behind(file: &mut File, from: u64) -> io::Result<u64> {
    let (mut commands, mut at) = (0, from.saturating_sub(2));
    for _ in 0..TRIES_MAX {
        let Some(start) = next_request(file, at)? else { break };
        file.seek(SeekFrom::Start(start))?;
        let mut reader = Reader::behind(Source(file), Vec::new(), start);
        let end = loop {
            match reader.next_batch() {
                Ok(Next::Batch(batch)) => commands += batch.len() as u64,
                Ok(Next::End(End::Whole)) => return Ok(commands),
                Ok(Next::End(End::TornTail(torn))) => match torn.request_within {
                    Some(within) => break within - 2,
                    None => return Ok(commands),
                },
                Err(AofError::Broken(broken)) => break broken.offset,
                Err(AofError::Reading(trouble)) => return Err(io::Error::other(trouble)),
            }
        };
        at = end.max(start);
    }
    Ok(commands)
}

/// Returns the next offset after `from` at which the request of a command seems to begin; `None` if
/// there is none.
fn next_request(file: &mut File, from: u64) -> io::Result<Option<u64>> {
    let mut at = from;
    let mut window = Vec::new();
    loop {
        file.seek(SeekFrom::Start(at))?;
        window.clear();
        (&mut *file).take(WINDOW_LEN_BYTES).read_to_end(&mut window)?;
        if let Some(found) = request_within(&window) {
            return Ok(Some(at + found as u64));
        }
        if (window.len() as u64) < WINDOW_LEN_BYTES {
            return Ok(None);
        }
        at += WINDOW_LEN_BYTES - OVERLAP_LEN_BYTES;
    }
}
