//! Skips values: finds the end of a value without decoding it. The splitter uses this to divide
//! files into batches that several threads decode. It allocates nothing, and checks only what is
//! necessary to find the end.

use super::VALKEY_VERSION;
use super::error::FormatErrorKind;
use super::templates::Templates;

/// The reason why the end of an encoded value was not found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unskipped {
    /// The encoded value continues after the bytes in memory, so more bytes are needed.
    Short,
    /// The bytes are not a valid value of the RDB format, for this reason.
    Broken(FormatErrorKind),
}

use Unskipped::{Broken, Short};

/// A cursor in RDB bytes that moves past values without decoding them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Skipper<'b> {
    bytes: &'b [u8],
    at: usize,
}

/// The decoded form of a length: a number, or a string encoding that stands in place of the length.
enum Length {
    Plain(u64),
    Encoded(u8),
}

impl<'b> Skipper<'b> {
    pub fn new(bytes: &'b [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    /// Returns the index in the slice of the next byte to be skipped.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Moves past the next `len` bytes, and returns them.
    #[inline]
    pub fn take(&mut self, len: u64) -> Result<&'b [u8], Unskipped> {
        let end = usize::try_from(len).ok().and_then(|len| self.at.checked_add(len)).ok_or(Short)?;
        let taken = self.bytes.get(self.at..end).ok_or(Short)?;
        self.at = end;
        Ok(taken)
    }

    #[inline]
    pub fn byte(&mut self) -> Result<u8, Unskipped> {
        let byte = *self.bytes.get(self.at).ok_or(Short)?;
        self.at += 1;
        Ok(byte)
    }

    fn number<const N: usize>(&mut self) -> Result<[u8; N], Unskipped> {
        let bytes = self.take(N as u64)?;
        bytes.try_into().map_err(|_| Short)
    }

    #[inline]
    fn length_or_encoding(&mut self) -> Result<Length, Unskipped> {
        let first = self.byte()?;
        let low = first & 0x3F;
        Ok(match (first >> 6, first) {
            (0, _) => Length::Plain(low.into()),
            (1, _) => Length::Plain(u64::from(low) << 8 | u64::from(self.byte()?)),
            (_, 0x80) => Length::Plain(u32::from_be_bytes(self.number()?).into()),
            (_, 0x81) => Length::Plain(u64::from_be_bytes(self.number()?)),
            (3, _) => Length::Encoded(low),
            _ => return Err(Broken(FormatErrorKind::BrokenLength)),
        })
    }

    pub fn length(&mut self) -> Result<u64, Unskipped> {
        match self.length_or_encoding()? {
            Length::Plain(length) => Ok(length),
            Length::Encoded(_) => Err(Broken(FormatErrorKind::BrokenLength)),
        }
    }

    #[inline]
    pub fn string(&mut self) -> Result<(), Unskipped> {
        let len = match self.length_or_encoding()? {
            Length::Plain(len) => len,
            Length::Encoded(0) => 1,
            Length::Encoded(1) => 2,
            Length::Encoded(2) => 4,
            Length::Encoded(3) => {
                let compressed_len = self.length()?;
                self.length()?;
                compressed_len
            }
            Length::Encoded(encoding) => {
                return Err(Broken(FormatErrorKind::UnknownStringEncoding(encoding)));
            }
        };
        self.take(len).map(drop)
    }

    /// Reads a count, and calls `each` that number of times to skip one item each.
    fn counted(&mut self, mut each: impl FnMut(&mut Self) -> Result<(), Unskipped>) -> Result<(), Unskipped> {
        let count = self.length()?;
        (0..count).try_for_each(|_| each(self))
    }

    fn strings(&mut self, per_element: usize) -> Result<(), Unskipped> {
        self.counted(|it| (0..per_element).try_for_each(|_| it.string()))
    }

    fn lengths(&mut self, count: usize) -> Result<(), Unskipped> {
        (0..count).try_for_each(|_| self.length().map(drop))
    }

    /// Skips a value of type `kind` in this version of the format. `templates` are the shared field
    /// names of its file.
    pub fn value(&mut self, kind: u8, version: u16, templates: &Templates) -> Result<(), Unskipped> {
        let of_valkey = version >= VALKEY_VERSION;
        match kind {
            0 | 9..=13 | 16 | 17 | 20 => self.string(),
            1 | 2 | 14 => self.strings(1),
            4 => self.strings(2),
            3 => self.counted(|it| {
                it.string()?;
                match it.byte()? {
                    253..=255 => Ok(()),
                    len => it.take(len.into()).map(drop),
                }
            }),
            5 => self.counted(|it| {
                it.string()?;
                it.take(8).map(drop)
            }),
            7 => self.module(),
            15 | 19 | 21 => self.stream(kind),
            18 => self.counted(|it| {
                it.length()?;
                it.string()
            }),
            22 | 23 if of_valkey => self.hash_of_valkey(kind),
            _ if of_valkey => Err(Broken(FormatErrorKind::UnknownType(kind))),
            22..=25 => self.timed_hash(kind),
            26 | 27 => self.stream(kind),
            28 => self.array(),
            29..=32 => self.hash_with_names_apart(kind, templates),
            _ => Err(Broken(FormatErrorKind::UnknownType(kind))),
        }
    }

    /// Skips a hash in the RDB layout of Valkey: one whose fields expire, or one with paths.
    fn hash_of_valkey(&mut self, kind: u8) -> Result<(), Unskipped> {
        self.counted(|it| {
            it.string()?;
            if kind == 23 {
                return it.strings(2);
            }
            it.string()?;
            it.take(8).map(drop)
        })
    }

    /// Skips a hash whose fields expire, in the RDB layout of Redis. From the release of 7.4 on,
    /// the earliest deadline precedes the fields.
    fn timed_hash(&mut self, kind: u8) -> Result<(), Unskipped> {
        if kind >= 24 {
            self.take(8)?;
        }
        if kind == 23 || kind == 25 {
            return self.string();
        }
        self.counted(|it| {
            it.length()?;
            it.string()?;
            it.string()
        })
    }

    /// Skips a hash whose field names are stored before its values, or are shared and stored
    /// elsewhere in the file.
    fn hash_with_names_apart(&mut self, kind: u8, templates: &Templates) -> Result<(), Unskipped> {
        match kind {
            29 => {
                match self.length()? {
                    0 => self.string()?,
                    _ => self.strings(1)?,
                }
                self.string()
            }
            30 => self.string(),
            31 => {
                // The number of names in a listpack is unknown until it is unpacked. This form is
                // not written to files.
                if self.length()? != 1 {
                    return Err(Broken(FormatErrorKind::UnknownType(kind)));
                }
                let count = self.counted_strings()?;
                (0..count).try_for_each(|_| self.string())
            }
            _ => {
                let number = self.length()?;
                let count = templates.name_count(number);
                let count = count.ok_or(Broken(FormatErrorKind::UnknownFieldNames(number)))?;
                (0..count).try_for_each(|_| self.string())
            }
        }
    }

    /// Skips a count and that number of strings. Returns the count.
    fn counted_strings(&mut self) -> Result<u64, Unskipped> {
        let count = self.length()?;
        (0..count).try_for_each(|_| self.string())?;
        Ok(count)
    }

    /// Skips a value of Redis' type array: a count of elements, perhaps an index, and the index,
    /// kind and value of each element.
    fn array(&mut self) -> Result<(), Unskipped> {
        let count = self.length()?;
        match self.length()? {
            0 => {}
            1 => self.length().map(drop)?,
            _ => return Err(Broken(FormatErrorKind::BrokenLength)),
        }
        (0..count).try_for_each(|_| {
            self.length()?;
            match self.length()? {
                0 | 3 => self.string(),
                1 | 2 => self.take(8).map(drop),
                _ => Err(Broken(FormatErrorKind::BrokenLength)),
            }
        })
    }

    /// Skips the number of a list of shared field names, and the names.
    pub fn shared_names(&mut self) -> Result<(), Unskipped> {
        self.length()?;
        self.strings(1)
    }

    /// Skips a command in an RDB file of Valkey, encoded as in the client protocol. Returns the
    /// ranges in the slice of the command's name and first argument.
    pub fn command(&mut self) -> Result<[(usize, usize); 2], Unskipped> {
        let mut places = [(0, 0); 2];
        for at in 0..self.header(b'*')? {
            let len = self.header(b'$')?;
            let start = self.at;
            self.take(len)?;
            if let Some(place) = usize::try_from(at).ok().and_then(|at| places.get_mut(at)) {
                *place = (start, self.at);
            }
            if self.take(2)? != b"\r\n" {
                return Err(Broken(FormatErrorKind::BrokenCommand));
            }
        }
        Ok(places)
    }

    /// Skips a header of the client protocol: the byte `mark`, a number in decimal digits, and a
    /// line end. Returns the number.
    fn header(&mut self, mark: u8) -> Result<u64, Unskipped> {
        let broken = Broken(FormatErrorKind::BrokenCommand);
        if self.byte()? != mark {
            return Err(broken);
        }
        let mut number = 0_u64;
        loop {
            match self.byte()? {
                b'\r' if self.byte()? == b'\n' => return Ok(number),
                digit @ b'0'..=b'9' => {
                    let longer = number.checked_mul(10);
                    number = longer.and_then(|ten| ten.checked_add(u64::from(digit - b'0'))).ok_or(broken)?;
                }
                _ => return Err(broken),
            }
        }
    }

    /// Skips the metadata that modules store for a key of the RDB file: for each class, its number
    /// and its items.
    pub fn key_metadata(&mut self) -> Result<(), Unskipped> {
        self.counted(|it| {
            it.take(4)?;
            it.module_items()
        })
    }

    /// Skips a module's data outside keys: the number of its type, then its items.
    pub fn module(&mut self) -> Result<(), Unskipped> {
        self.length()?;
        self.module_items()
    }

    /// Skips the items of a module's value or data, including the end mark.
    pub fn module_items(&mut self) -> Result<(), Unskipped> {
        loop {
            match self.length()? {
                0 => return Ok(()),
                1 | 2 => self.length().map(drop)?,
                3 => self.take(4).map(drop)?,
                4 => self.take(8).map(drop)?,
                5 => self.string()?,
                _ => return Err(Broken(FormatErrorKind::BrokenLength)),
            }
        }
    }

    fn stream(&mut self, kind: u8) -> Result<(), Unskipped> {
        let has_figures = kind != 15;
        let has_active = kind >= 21;
        self.strings(2)?;
        self.lengths(if has_figures { 3 + 5 } else { 3 })?;
        self.counted(|it| {
            it.string()?;
            it.lengths(if has_figures { 3 } else { 2 })?;
            it.counted(|it| {
                it.take(24)?;
                it.length().map(drop)
            })?;
            it.counted(|it| {
                it.string()?;
                it.take(if has_active { 16 } else { 8 })?;
                it.counted(|it| it.take(16).map(drop))
            })?;
            if kind == 27 { it.counted(|it| it.take(16).map(drop)) } else { Ok(()) }
        })?;
        if kind >= 26 {
            self.lengths(2)?;
            self.counted(|it| {
                it.string()?;
                it.counted(|it| {
                    it.string()?;
                    it.lengths(2)
                })
            })?;
            self.lengths(2)?;
        }
        Ok(())
    }
}
