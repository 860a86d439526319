//! What scripts set of `cjson`.

/// What becomes of infinities and of what is no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Invalid {
    Refused,
    Allowed,
    Null,
}

/// What scripts can set.
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
