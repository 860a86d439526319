//! The settings of `cjson`, which scripts can change by its functions.

/// The treatment of infinities and NaN by `cjson.encode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Invalid {
    Refused,
    Allowed,
    Null,
}

/// The settings of a `cjson` table: limits, and the treatment of unusual numbers and arrays.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub converts_sparse: bool,
    pub sparse_ratio: i32,
    pub sparse_safe: i32,
    pub encode_depth_max: i32,
    pub decode_depth_max: i32,
    pub precision: i32,
    pub keeps_buffer: bool,
    pub encode_invalid: Invalid,
    pub decodes_invalid: bool,
}

impl Settings {
    const BYTES: usize = 5 * 4 + 4;

    /// Converts the settings of `cjson` to bytes that can be stored in a Lua string.
    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        let numbers = [
            self.sparse_ratio,
            self.sparse_safe,
            self.encode_depth_max,
            self.decode_depth_max,
            self.precision,
        ];
        let mut bytes = [0; Self::BYTES];
        for (place, number) in bytes.chunks_exact_mut(4).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes[Self::BYTES - 4..].copy_from_slice(&[
            u8::from(self.converts_sparse),
            u8::from(self.keeps_buffer),
            self.encode_invalid as u8,
            u8::from(self.decodes_invalid),
        ]);
        bytes
    }

    /// Reads the settings of `cjson` from the bytes of [`Settings::to_bytes`]; `None` if they are
    /// invalid.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (numbers, [converts_sparse, keeps_buffer, encode_invalid, decodes_invalid]) =
            bytes.split_last_chunk()?;
        let mut numbers = numbers.as_chunks().0.iter().map(|number| i32::from_le_bytes(*number));
        Some(Self {
            sparse_ratio: numbers.next()?,
            sparse_safe: numbers.next()?,
            encode_depth_max: numbers.next()?,
            decode_depth_max: numbers.next()?,
            precision: numbers.next()?,
            converts_sparse: *converts_sparse == 1,
            keeps_buffer: *keeps_buffer == 1,
            encode_invalid: *[Invalid::Refused, Invalid::Allowed, Invalid::Null]
                .get(usize::from(*encode_invalid))?,
            decodes_invalid: *decodes_invalid == 1,
        })
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            converts_sparse: false,
            sparse_ratio: 2,
            sparse_safe: 10,
            encode_depth_max: 1000,
            decode_depth_max: 1000,
            precision: 14,
            keeps_buffer: true,
            encode_invalid: Invalid::Refused,
            decodes_invalid: true,
        }
    }
}
