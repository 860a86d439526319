//! The encoding of lengths, strings and numbers of the RDB format, written to a sink.

use stdx::number::parse_i64;
use structures::listpack::element::Element;
use structures::lzf::Compressor;

/// A destination of the bytes of a value or file in RDB format. A sink that can fail records the
/// failure and ignores further bytes; its owner checks for a failure at the end.
pub trait Sink {
    /// Appends `bytes` to the destination; ignores them after a failure.
    fn put(&mut self, bytes: &[u8]);
}

impl Sink for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// The length up to which strings are not compressed, in bytes, as in Redis.
const UNCOMPRESSED_LEN_BYTES_MAX: usize = 20;
/// The maximum length, in bytes, of a text that may be stored as a number: that of `-2147483648`.
const INT32_TEXT_LEN_MAX: usize = 11;

/// The compression of strings in RDB files: `rdbcompression`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Strings in RDB files are not compressed.
    None,
    /// Strings are compressed with LZF if that makes them shorter.
    Lzf,
}

/// A writer of lengths, strings and numbers of the RDB format to a sink.
#[derive(Debug)]
pub struct Writer<S> {
    sink: S,
    /// The tables and buffers of the compression; `None` if strings are not compressed.
    compressor: Option<Compressor>,
}

impl<S: Sink> Writer<S> {
    /// Creates a writer to `sink`. If strings are compressed, the compressor's tables are
    /// allocated.
    pub fn new(sink: S, compression: Compression) -> Self {
        let compressor = match compression {
            Compression::None => None,
            Compression::Lzf => Some(Compressor::new()),
        };
        Self { sink, compressor }
    }

    /// Ends writing in the RDB format and returns the sink, which has all the bytes.
    pub fn into_sink(self) -> S {
        self.sink
    }

    /// Returns the memory of the compressor's tables and buffers, in bytes. O(1).
    pub fn compressor_memory_usage(&self) -> usize {
        self.compressor.as_ref().map_or(0, Compressor::memory_usage)
    }

    /// Borrows the sink of the RDB bytes, so that the caller can take the bytes.
    pub fn sink_mut(&mut self) -> &mut S {
        &mut self.sink
    }

    /// Writes bytes unchanged to the sink, without a length before them.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.sink.put(bytes);
    }

    /// Writes a length or another unsigned number, in the format's 1, 2, 5 or 9 bytes.
    pub fn length(&mut self, length: u64) {
        match length {
            0..0x40 => self.sink.put(&[length as u8]),
            0x40..0x4000 => self.sink.put(&[0x40 | (length >> 8) as u8, length as u8]),
            _ => match u32::try_from(length) {
                Ok(length) => {
                    self.sink.put(&[0x80]);
                    self.sink.put(&length.to_be_bytes());
                }
                Err(_) => {
                    self.sink.put(&[0x81]);
                    self.sink.put(&length.to_be_bytes());
                }
            },
        }
    }

    /// Writes a Unix time in milliseconds, as eight bytes.
    pub fn time_ms(&mut self, at_ms: i64) {
        self.sink.put(&at_ms.to_le_bytes());
    }

    /// Writes a string in the shortest form: as a number, compressed, or unchanged. O(bytes).
    pub fn string(&mut self, bytes: &[u8]) {
        if bytes.len() <= INT32_TEXT_LEN_MAX
            && let Some(number) = parse_i64(bytes)
            && i32::try_from(number).is_ok()
        {
            return self.integer(number);
        }
        self.blob(bytes);
    }

    /// Writes a string of the RDB format that is the decimal text of `number`.
    pub fn integer(&mut self, number: i64) {
        if let Ok(number) = i8::try_from(number) {
            self.sink.put(&[0xC0, number as u8]);
        } else if let Ok(number) = i16::try_from(number) {
            self.sink.put(&[0xC1]);
            self.sink.put(&number.to_le_bytes());
        } else if let Ok(number) = i32::try_from(number) {
            self.sink.put(&[0xC2]);
            self.sink.put(&number.to_le_bytes());
        } else {
            let text = number.to_string();
            self.length(text.len() as u64);
            self.sink.put(text.as_bytes());
        }
    }

    /// Writes an element of a packed structure (such as a listpack) as a string of the RDB format.
    pub fn element(&mut self, element: Element<'_>) {
        match element {
            Element::Int(number) => self.integer(number),
            Element::Bytes(bytes) => self.string(bytes),
        }
    }

    /// Writes a string that is never stored as a number, such as a packed structure. O(bytes).
    pub fn blob(&mut self, bytes: &[u8]) {
        if bytes.len() > UNCOMPRESSED_LEN_BYTES_MAX
            && let Some(mut compressor) = self.compressor.take()
        {
            let shorter = compressor.compress(bytes);
            if let Some(compressed) = shorter {
                self.sink.put(&[0xC3]);
                self.length(compressed.len() as u64);
                self.length(bytes.len() as u64);
                self.sink.put(compressed);
            }
            let done = shorter.is_some();
            self.compressor = Some(compressor);
            if done {
                return;
            }
        }
        self.length(bytes.len() as u64);
        self.sink.put(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::super::source::Reader;
    use super::*;
    use proptest::prelude::*;

    fn written(write: impl Fn(&mut Writer<Vec<u8>>)) -> Vec<u8> {
        let mut writer = Writer::new(Vec::new(), Compression::None);
        write(&mut writer);
        writer.into_sink()
    }

    #[test]
    fn lengths_and_numbers_take_the_fewest_bytes() {
        for (length, bytes) in
            [(0, 1), (63, 1), (64, 2), (16_383, 2), (16_384, 5), (u64::from(u32::MAX), 5), (1 << 32, 9)]
        {
            let out = written(|writer| writer.length(length));
            assert_eq!((out.len(), Reader::new(&*out, 0, 0).length()), (bytes, Ok(length)));
        }
        for (text, bytes) in [
            ("0", 2),
            ("-128", 2),
            ("128", 3),
            ("32768", 5),
            ("-2147483648", 5),
            ("2147483648", 11),
            ("007", 4),
            ("-0", 3),
            ("", 1),
        ] {
            let out = written(|writer| writer.string(text.as_bytes()));
            assert_eq!((out.len(), Reader::new(&*out, 0, 99).string()), (bytes, Ok(text.into())));
        }
    }

    proptest! {
        #[test]
        fn strings_come_back(
            texts in proptest::collection::vec(
                prop_oneof![
                    proptest::collection::vec(any::<u8>(), 0..300),
                    proptest::collection::vec(0..3_u8, 0..20_000),
                    any::<i64>().prop_map(|number| number.to_string().into_bytes()),
                ],
                0..8,
            ),
        ) {
            for compression in [Compression::None, Compression::Lzf] {
                let mut writer = Writer::new(Vec::new(), compression);
                texts.iter().for_each(|text| writer.string(text));
                let out = writer.into_sink();
                let mut reader = Reader::new(&*out, 0, 1 << 20);
                for text in &texts {
                    prop_assert_eq!(&reader.string().expect("it was written"), text);
                }
                prop_assert_eq!(reader.into_source(), b"");
            }
        }
    }
}
