//! How Lua writes a number as text: `%.14g`, as Redis' Lua does.

use std::ffi::{c_char, c_int};

/// What Lua keeps for the text of a number, in bytes (`LUAI_MAXNUMBER2STR`).
const TEXT_LEN_MAX: usize = 32;

/// From here on `%.14g` writes an exponent.
const INTEGERS_END: f64 = 1e14;

unsafe extern "C" {
    /// The C library's.
    fn snprintf(buffer: *mut c_char, len: usize, format: *const c_char, ...) -> c_int;
}

/// Writes the text of a number and a zero byte; returns the text's length in bytes. Scripts build
/// the names of keys and fields from integers: these do not go through `snprintf`, which takes four
/// times as long.
///
/// # Safety
/// There are [`TEXT_LEN_MAX`] bytes at `buffer`.
#[unsafe(no_mangle)]
unsafe extern "C" fn script_number_text(buffer: *mut c_char, number: f64) -> c_int {
    let is_integer = number.abs() < INTEGERS_END && number.trunc() == number;
    if is_integer && !(number == 0.0 && number.is_sign_negative()) {
        let mut digits = itoa::Buffer::new();
        let text = digits.format(number as i64).as_bytes();
        assert!(text.len() < TEXT_LEN_MAX, "a sign and 14 digits");
        // SAFETY: the text is shorter than the caller's buffer, and not a part of it.
        unsafe { buffer.copy_from_nonoverlapping(text.as_ptr().cast(), text.len()) };
        // SAFETY: as above.
        let end = unsafe { buffer.add(text.len()) };
        // SAFETY: as above.
        unsafe { end.write(0) };
        return text.len() as c_int;
    }
    // SAFETY: the length is that of the caller's buffer, and the format takes one double.
    unsafe { snprintf(buffer, TEXT_LEN_MAX, c"%.14g".as_ptr(), number) }
}
