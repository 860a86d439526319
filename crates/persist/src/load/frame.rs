//! Compressed files, as Valkey 9.2 writes them with `rdbcompression lz4`: an RDB file inside an LZ4
//! frame, decompressed while it is read.
//!
//! ```text
//!   envelope  'V' 'C' 'S' | version 1 | codec 1: LZ4 | 0 | kind 1: RDB | frame
//!   frame     04 22 4D 18 | flags | block size | [content length u64] | check byte
//!             { block } … | 0 u32 | [XXH32 of the uncompressed content]
//!   block     length u32, highest bit: not compressed | bytes | [XXH32 of the bytes]
//!   flags     01······ version   ··1····· independent blocks   ···1···· blocks have checksums
//!             ····1··· content length   ·····1·· checksum of the content   ·······1 dictionary
//!   size      ·100···· 64 KiB   ·101···· 256 KiB   ·110···· 1 MiB   ·111···· 4 MiB
//! ```
//! Numbers are little-endian. The check byte is the second byte of the XXH32 of the bytes from the
//! flags to the content length. A block that is not independent refers to the 64 KiB of content
//! before it.
//!
//! The reader holds in memory the bytes of one block, those 64 KiB, and the decompressed block. The
//! latter is at most as long as the header states, and at most 255 times the compressed block.
//! Source: the description of the LZ4 frame format, version 1.6.4; the envelope: Valkey's.

use lz4_flex::block::decompress_into_with_dict;
use xxhash_rust::xxh32::{Xxh32, xxh32};

use super::{Behind, ByteSource, Checksums, LoadErrorKind};
use crate::rdb::FormatErrorKind;

/// The first bytes of a compressed RDB file, whose version and codec are supported.
pub(super) const ENVELOPE: [u8; 7] = [b'V', b'C', b'S', 1, 1, 0, 1];
/// The part of the envelope that all versions and codecs have in common.
pub(super) const ENVELOPE_MARK: &[u8] = b"VCS";

const MAGIC: [u8; 4] = [0x04, 0x22, 0x4D, 0x18];
const FLAGS_VERSION: u8 = 0b0100_0000;
const FLAG_ALONE: u8 = 0b0010_0000;
const FLAG_BLOCK_CHECKSUMS: u8 = 0b0001_0000;
const FLAG_CONTENT_LEN: u8 = 0b0000_1000;
const FLAG_CONTENT_CHECKSUM: u8 = 0b0000_0100;
const FLAGS_UNKNOWN: u8 = 0b1000_0011;
/// The bit in a block's length that marks a block as not compressed.
const UNCOMPRESSED: u32 = 1 << 31;
/// The maximum distance to earlier content to which a compressed block may refer, in bytes.
const WINDOW_LEN_BYTES: usize = 64 * 1024;
/// The number of bytes that are read from the compressed file at a time.
const READ_LEN_BYTES: usize = 64 * 1024;
/// The maximum number of bytes to which one byte of a block expands.
const EXPANSION_MAX: usize = 255;

/// A reader that decompresses the LZ4 frame of a compressed RDB file.
pub(super) struct Frame<S> {
    source: S,
    checksums: Checksums,
    /// The bytes of the frame read so far; the first `used` of them are already processed.
    input: Vec<u8>,
    used: usize,
    /// The number of bytes of the file before `input`.
    input_offset: u64,
    flags: u8,
    block_len_bytes_max: usize,
    content_len_bytes: Option<u64>,
    /// The decompressed bytes to which later blocks may refer, then the bytes of the last block.
    /// The first `given` bytes were already returned.
    output: Vec<u8>,
    given: usize,
    unpacked_len_bytes: u64,
    content: Xxh32,
    is_over: bool,
}

fn broken(what: &'static str) -> LoadErrorKind {
    LoadErrorKind::Frame(what)
}

impl<S: ByteSource> Frame<S> {
    /// Opens a frame that begins with `begun` and continues in `source`, and reads its header.
    pub(super) fn open(source: S, begun: Vec<u8>, checksums: Checksums) -> Result<Self, LoadErrorKind> {
        let mut frame = Self {
            source,
            checksums,
            input: begun,
            used: 0,
            input_offset: ENVELOPE.len() as u64,
            flags: 0,
            block_len_bytes_max: 0,
            content_len_bytes: None,
            output: Vec::new(),
            given: 0,
            unpacked_len_bytes: 0,
            content: Xxh32::new(0),
            is_over: false,
        };
        frame.read_header()?;
        Ok(frame)
    }

    fn read_header(&mut self) -> Result<(), LoadErrorKind> {
        if self.array()? != MAGIC {
            return Err(broken("no LZ4 frame at the beginning"));
        }
        let [flags, size] = self.array()?;
        let mut described = vec![flags, size];
        if flags & (FLAGS_VERSION | FLAGS_UNKNOWN) != FLAGS_VERSION {
            return Err(broken("an LZ4 frame of an unknown version, or with a dictionary"));
        }
        self.flags = flags;
        self.block_len_bytes_max = match size {
            0x40 | 0x50 | 0x60 | 0x70 => 1 << (8 + 2 * (size >> 4)),
            _ => return Err(broken("an LZ4 frame with an unknown block size")),
        };
        if flags & FLAG_CONTENT_LEN != 0 {
            let len = self.array()?;
            described.extend_from_slice(&len);
            self.content_len_bytes = Some(u64::from_le_bytes(len));
        }
        let [check] = self.array()?;
        if check != (xxh32(&described, 0) >> 8) as u8 {
            return Err(broken("the header of the LZ4 frame is damaged"));
        }
        Ok(())
    }

    /// Reads the next `len` bytes of the LZ4 frame and returns their range in `input`. Memory grows
    /// only as these bytes arrive.
    fn take(&mut self, len: usize) -> Result<std::ops::Range<usize>, LoadErrorKind> {
        while self.input.len() - self.used < len {
            self.input_offset += self.used as u64;
            self.input.drain(..std::mem::take(&mut self.used));
            let had = self.input.len();
            self.input.resize(had + READ_LEN_BYTES, 0);
            let read = self.source.read(&mut self.input[had..]);
            self.input.truncate(had + *read.as_ref().unwrap_or(&0));
            if read.map_err(LoadErrorKind::Reading)? == 0 {
                return Err(LoadErrorKind::Format(FormatErrorKind::EndOfInput));
            }
        }
        let start = self.used;
        self.used += len;
        Ok(start..self.used)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], LoadErrorKind> {
        let place = self.take(N)?;
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.input[place]);
        Ok(bytes)
    }

    fn compares(&self, flag: u8) -> bool {
        self.flags & flag != 0 && self.checksums == Checksums::Compared
    }

    /// Decompresses the next block of the LZ4 frame, or reads the end of the frame.
    fn next_block(&mut self) -> Result<(), LoadErrorKind> {
        let word = u32::from_le_bytes(self.array()?);
        if word == 0 {
            self.is_over = true;
            return self.read_end();
        }
        let len = (word & !UNCOMPRESSED) as usize;
        if len > self.block_len_bytes_max {
            return Err(broken("a block that is longer than the block size of the frame"));
        }
        let has_checksum = self.flags & FLAG_BLOCK_CHECKSUMS != 0;
        let place = self.take(len + if has_checksum { 4 } else { 0 })?;
        let (block, checksum) = self.input[place].split_at(len);
        if self.compares(FLAG_BLOCK_CHECKSUMS) && xxh32(block, 0).to_le_bytes() != checksum {
            return Err(LoadErrorKind::Checksum);
        }
        let window = if self.flags & FLAG_ALONE == 0 { WINDOW_LEN_BYTES } else { 0 };
        self.output.drain(..self.output.len().saturating_sub(window));
        let begin = self.output.len();
        self.given = begin;
        if word & UNCOMPRESSED != 0 {
            self.output.extend_from_slice(block);
        } else {
            let len_max = self.block_len_bytes_max.min(len.saturating_mul(EXPANSION_MAX));
            self.output.resize(begin + len_max, 0);
            let (before, unpacked) = self.output.split_at_mut(begin);
            let unpacked_len = decompress_into_with_dict(block, unpacked, before);
            let unpacked_len = unpacked_len.map_err(|_| broken("a block cannot be unpacked"))?;
            self.output.truncate(begin + unpacked_len);
        }
        let unpacked = &self.output[begin..];
        self.unpacked_len_bytes += unpacked.len() as u64;
        if self.compares(FLAG_CONTENT_CHECKSUM) {
            self.content.update(unpacked);
        }
        Ok(())
    }

    fn read_end(&mut self) -> Result<(), LoadErrorKind> {
        if self.content_len_bytes.is_some_and(|len| len != self.unpacked_len_bytes) {
            return Err(broken("its unpacked length differs from the length in the frame"));
        }
        if self.flags & FLAG_CONTENT_CHECKSUM != 0 {
            let checksum = u32::from_le_bytes(self.array()?);
            if self.compares(FLAG_CONTENT_CHECKSUM) && checksum != self.content.digest() {
                return Err(LoadErrorKind::Checksum);
            }
        }
        Ok(())
    }

    /// Reads decompressed bytes. Returns the number of read bytes, 0 at the end of the frame.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Result<usize, LoadErrorKind> {
        while self.given == self.output.len() && !self.is_over {
            self.next_block()?;
        }
        let rest = &self.output[self.given..];
        let len = rest.len().min(buffer.len());
        buffer[..len].copy_from_slice(&rest[..len]);
        self.given += len;
        Ok(len)
    }

    /// Returns true if all decompressed bytes were returned and the next read of the source would
    /// wait.
    pub(super) fn is_dry(&mut self) -> bool {
        self.given == self.output.len() && !self.is_over && self.source.is_dry()
    }

    /// Returns the file's content after the LZ4 frame, which must have been read to its end.
    pub(super) fn into_behind(mut self) -> Behind<S> {
        let file_offset = self.input_offset + self.used as u64;
        Behind { source: self.source, ahead: self.input.split_off(self.used), file_offset }
    }

    /// Reads the LZ4 frame to its end and checks its checksum.
    pub(super) fn finish(&mut self) -> Result<(), LoadErrorKind> {
        while !self.is_over {
            self.next_block()?;
        }
        Ok(())
    }
}
