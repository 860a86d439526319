//! The stream note: the position in the replication stream, as the last line of an append-only
//! file, written when the server stops. It names the position in the replication stream to which
//! the data of the file corresponds.
//!
//! ```text
//!   #REPL:<replication ID>:<offset>:<database>\r\n
//! ```
//! The note describes the data before it, so it counts only if nothing follows it in the file.
//! Redis 7 and later, and Valkey, ignore the line as an annotation.

use stdx::number::parse_i64;

/// The beginning of the line with a stream note.
const PREFIX: &[u8] = b"#REPL:";
/// The length of a replication ID in bytes.
const ID_LEN_BYTES: usize = 40;

/// A position in the replication stream, as the last line of an append-only file states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamNote {
    /// The replication ID of the stream: its 40 characters.
    pub id: [u8; ID_LEN_BYTES],
    /// The offset in the replication stream after the last change that the file holds, in bytes.
    pub offset_bytes: u64,
    /// The database that is selected in the replication stream at that offset.
    pub stream_db: u32,
}

impl StreamNote {
    /// Returns the stream note as a line of the append-only file, with its line end.
    pub fn line(&self) -> Vec<u8> {
        let mut line = [PREFIX, &self.id].concat();
        line.extend_from_slice(format!(":{}:{}\r\n", self.offset_bytes, self.stream_db).as_bytes());
        line
    }

    /// Reads the note from a line without its line end; `None` if the line is no valid note.
    pub fn parse(line: &[u8]) -> Option<Self> {
        let (id, rest) = line.strip_prefix(PREFIX)?.split_first_chunk()?;
        let mut numbers = rest.strip_prefix(b":")?.split(|&byte| byte == b':').map(parse_i64);
        let (offset, db) = (numbers.next()??, numbers.next()??);
        if numbers.next().is_some() || !id.iter().all(u8::is_ascii_graphic) {
            return None;
        }
        Some(Self { id: *id, offset_bytes: offset.try_into().ok()?, stream_db: db.try_into().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTE: StreamNote = StreamNote { id: [b'a'; 40], offset_bytes: 123_456, stream_db: 9 };

    #[test]
    fn a_note_is_read_as_it_was_written() {
        let line = NOTE.line();
        assert_eq!(line, [&b"#REPL:"[..], &[b'a'; 40], b":123456:9\r\n"].concat());
        assert_eq!(StreamNote::parse(line.strip_suffix(b"\r\n").expect("a line end")), Some(NOTE));
    }

    #[test]
    fn other_lines_are_no_notes() {
        let id = "a".repeat(40);
        for line in [
            "#TS:1700000000".to_owned(),
            "#REPL:".to_owned(),
            format!("#REPL:{id}"),
            format!("#REPL:{id}:1"),
            format!("#REPL:{id}:1:"),
            format!("#REPL:{id}:-1:0"),
            format!("#REPL:{id}:1:-1"),
            format!("#REPL:{id}:1:0:0"),
            format!("#REPL:{id}:1:x"),
            format!("#REPL:{id}a:1:0"),
            format!("#REPL:{}:1:0", " ".repeat(40)),
        ] {
            assert_eq!(StreamNote::parse(line.as_bytes()), None, "{line}");
        }
    }
}
