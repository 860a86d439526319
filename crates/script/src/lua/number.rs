//! Lua's conversion of a number to text: `%.14g`, as in Redis' Lua.

use std::ffi::{c_char, c_int};

use crate::numbers::number_text;

/// The size of Lua's buffer for the text of a number, in bytes (`LUAI_MAXNUMBER2STR`).
const TEXT_LEN_MAX: usize = 32;

/// The smallest positive integer that `%.14g` writes with an exponent.
const INTEGERS_END: f64 = 1e14;

/// Writes the text of a number and a zero byte; returns the text's length in bytes. Integers have
/// their own code, because scripts build the names of keys and fields from them. C's `printf`,
/// which Lua itself uses, takes four times as long for them.
///
/// # Safety
/// There are [`TEXT_LEN_MAX`] bytes at `buffer`.
#[unsafe(no_mangle)]
unsafe extern "C" fn script_number_text(buffer: *mut c_char, number: f64) -> c_int {
    let is_integer = number.abs() < INTEGERS_END && number.trunc() == number;
    let (mut digits, other);
    let text = if is_integer && !(number == 0.0 && number.is_sign_negative()) {
        digits = itoa::Buffer::new();
        digits.format(number as i64)
    } else {
        other = number_text(number);
        &other
    };
    assert!(text.len() < TEXT_LEN_MAX, "a sign, 14 digits, a point, and an exponent at most");
    // SAFETY: the text is shorter than the caller's buffer, and not a part of it.
    unsafe { buffer.copy_from_nonoverlapping(text.as_ptr().cast(), text.len()) };
    // SAFETY: as above.
    let end = unsafe { buffer.add(text.len()) };
    // SAFETY: as above.
    unsafe { end.write(0) };
    text.len() as c_int
}
