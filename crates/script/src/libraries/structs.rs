//! `struct`: values in the layout of C, as Lua's struct 0.2 packs them.

use crate::lua::{Function, Raise, Returns, Stack, truncate};

/// The functions of the Lua table `struct`, by name.
pub(crate) const FUNCTIONS: [(&[u8], Function); 3] = [(b"pack", pack), (b"unpack", unpack), (b"size", size)];

/// The size of the largest integer that `struct` packs, in bytes.
const INTEGER_BYTES_MAX: usize = 32;
/// The alignment that the option `!` of a `struct` format sets without a number, in bytes.
const ALIGNMENT_MAX: usize = 8;

/// A format string of `struct`, and the state of its parser.
struct Format {
    text: Vec<u8>,
    at: usize,
    is_big_endian: bool,
    alignment: usize,
}

impl Format {
    /// Creates a parser of the `struct` format in the first argument, which ends at a zero byte.
    fn new(stack: &Stack) -> Result<Self, Raise> {
        let text = stack.check_text(1)?;
        let text = text.split(|&byte| byte == 0).next().unwrap_or_default().to_vec();
        Ok(Self { text, at: 0, is_big_endian: false, alignment: 1 })
    }

    /// Returns the next option of the format and the size of its value in bytes; `None` at the end.
    fn next(&mut self, stack: &Stack) -> Result<Option<(u8, usize)>, Raise> {
        let Some(&option) = self.text.get(self.at) else { return Ok(None) };
        self.at += 1;
        let size = match option {
            b'B' | b'b' | b'x' => 1,
            b'H' | b'h' => 2,
            b'f' => 4,
            b'L' | b'l' | b'T' | b'd' => 8,
            b'c' => self.number(stack, 1)?,
            b'i' | b'I' => {
                let size = self.number(stack, 4)?;
                if size > INTEGER_BYTES_MAX {
                    let text = format!("integral size {size} is larger than limit of {INTEGER_BYTES_MAX}");
                    return Err(stack.raise_here(text.as_bytes()));
                }
                size
            }
            _ => 0,
        };
        Ok(Some((option, size)))
    }

    fn number(&mut self, stack: &Stack, default: usize) -> Result<usize, Raise> {
        let digits = self.text[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 {
            return Ok(default);
        }
        let mut number = 0_i32;
        for &digit in &self.text[self.at..self.at + digits] {
            let next = number.checked_mul(10).and_then(|tens| tens.checked_add(i32::from(digit - b'0')));
            number = next.ok_or_else(|| stack.raise_here(b"integral size overflow"))?;
        }
        self.at += digits;
        Ok(number as usize)
    }

    /// Returns the number of padding bytes before the value of an option of the `struct` format at
    /// offset `at`.
    fn padding(&self, at: usize, option: u8, size: usize) -> usize {
        if size == 0 || option == b'c' {
            return 0;
        }
        let size = size.min(self.alignment);
        size.wrapping_sub(at & size.wrapping_sub(1)) & size.wrapping_sub(1)
    }

    /// Handles an option of the `struct` format that has no value: sets the byte order or the
    /// alignment.
    fn control(&mut self, stack: &Stack, option: u8) -> Result<(), Raise> {
        match option {
            b' ' => {}
            b'>' => self.is_big_endian = true,
            b'<' => self.is_big_endian = false,
            b'!' => {
                let alignment = self.number(stack, ALIGNMENT_MAX)?;
                if !alignment.is_power_of_two() {
                    let text = format!("alignment {alignment} is not a power of 2");
                    return Err(stack.raise_here(text.as_bytes()));
                }
                self.alignment = alignment;
            }
            _ => {
                let text = format!("invalid format option '{}'", char::from(option));
                return Err(stack.raise_argument(1, &text));
            }
        }
        Ok(())
    }
}

fn pack(stack: &mut Stack) -> Returns {
    let mut format = Format::new(stack)?;
    // As in C: a missing argument is nil.
    stack.push_nil();
    let mut out: Vec<u8> = Vec::new();
    let mut argument = 2;
    while let Some((option, size)) = format.next(stack)? {
        out.resize(out.len() + format.padding(out.len(), option, size), 0);
        let put = |out: &mut Vec<u8>, mut bytes: Vec<u8>| {
            if format.is_big_endian {
                bytes.reverse();
            }
            out.extend_from_slice(&bytes);
        };
        match option {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                let number = stack.check_number(argument)?;
                argument += 1;
                let value = if number < 0.0 { truncate(number) as u64 } else { to_unsigned(number) };
                let mut bytes = value.to_le_bytes().to_vec();
                bytes.resize(size, 0);
                put(&mut out, bytes);
            }
            b'x' => out.push(0),
            b'f' => {
                let number = stack.check_number(argument)? as f32;
                argument += 1;
                put(&mut out, number.to_le_bytes().to_vec());
            }
            b'd' => {
                let number = stack.check_number(argument)?;
                argument += 1;
                put(&mut out, number.to_le_bytes().to_vec());
            }
            b'c' | b's' => {
                let text = stack.check_text(argument)?;
                argument += 1;
                let size = if size == 0 { text.len() } else { size };
                let Some(text) = text.get(..size) else {
                    return Err(stack.raise_argument(argument, "string too short"));
                };
                out.extend_from_slice(text);
                if option == b's' {
                    out.push(0);
                }
            }
            _ => format.control(stack, option)?,
        }
    }
    stack.push(&out);
    Ok(1)
}

fn unpack(stack: &mut Stack) -> Returns {
    let mut format = Format::new(stack)?;
    let data = stack.check_text(2)?.to_vec();
    let start = stack.optional_integer(3, 1)?;
    if start == 0 {
        return Err(stack.raise_argument(3, "offset must be 1 or greater"));
    }
    // As in C: an offset before the start becomes an offset far after the end.
    let mut at = start.wrapping_sub(1) as usize;
    let mut count = 0;
    while let Some((option, mut size)) = format.next(stack)? {
        at = at.saturating_add(format.padding(at, option, size));
        let too_short = |stack: &Stack| stack.raise_argument(2, "data string too short");
        let mut bytes =
            at.checked_add(size).and_then(|end| data.get(at..end)).ok_or_else(|| too_short(stack))?;
        if !stack.has_room(2) {
            return Err(stack.raise_here(b"stack overflow (too many results)"));
        }
        match option {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                let number = integer(bytes, &format, option);
                stack.push_number(number);
                count += 1;
            }
            b'x' => {}
            b'f' => {
                let bytes: [u8; 4] = bytes.try_into().expect("its size");
                let big = format.is_big_endian;
                let number = if big { f32::from_be_bytes(bytes) } else { f32::from_le_bytes(bytes) };
                stack.push_number(f64::from(number));
                count += 1;
            }
            b'd' => {
                let bytes: [u8; 8] = bytes.try_into().expect("its size");
                let big = format.is_big_endian;
                stack.push_number(if big { f64::from_be_bytes(bytes) } else { f64::from_le_bytes(bytes) });
                count += 1;
            }
            b'c' => {
                if size == 0 {
                    let previous = if count > 0 { stack.number(-1) } else { None };
                    let Some(previous) = previous else {
                        return Err(stack.raise_here(b"format 'c0' needs a previous size"));
                    };
                    stack.pop(1);
                    count -= 1;
                    size = if previous < 0.0 { usize::MAX } else { previous as usize };
                    let found = at.checked_add(size).and_then(|end| data.get(at..end));
                    bytes = found.ok_or_else(|| too_short(stack))?;
                }
                stack.push(bytes);
                count += 1;
            }
            b's' => {
                let Some(len) = data[at..].iter().position(|&byte| byte == 0) else {
                    return Err(stack.raise_here(b"unfinished string in data"));
                };
                stack.push(&data[at..at + len]);
                count += 1;
                size = len + 1;
            }
            _ => format.control(stack, option)?,
        }
        at += size;
    }
    stack.push_number(at as f64 + 1.0);
    Ok(count + 1)
}

/// Converts a number that is not negative, as `(unsigned long long)number` does on x86-64. The low
/// bytes are zero for a number that is too large, and for NaN.
fn to_unsigned(number: f64) -> u64 {
    const HALF: f64 = 9_223_372_036_854_775_808.0;
    if number >= HALF { (truncate(number - HALF) as u64) ^ (1 << 63) } else { truncate(number) as u64 }
}

/// Reads an integer that `struct` has packed as a number. It is signed if the option is a lowercase
/// letter.
fn integer(bytes: &[u8], format: &Format, option: u8) -> f64 {
    let join = |value: u64, &byte: &u8| value << 8 | u64::from(byte);
    let value =
        if format.is_big_endian { bytes.iter().fold(0, join) } else { bytes.iter().rev().fold(0, join) };
    if option.is_ascii_uppercase() {
        return value as f64;
    }
    let mask = u64::MAX.wrapping_shl((bytes.len() as u32).wrapping_mul(8).wrapping_sub(1));
    (if value & mask != 0 { value | mask } else { value }) as i64 as f64
}

fn size(stack: &mut Stack) -> Returns {
    let mut format = Format::new(stack)?;
    let mut at = 0_usize;
    while let Some((option, size)) = format.next(stack)? {
        at = at.saturating_add(format.padding(at, option, size));
        if option == b's' {
            return Err(stack.raise_argument(1, "option 's' has no fixed size"));
        }
        if option == b'c' && size == 0 {
            return Err(stack.raise_argument(1, "option 'c0' has no fixed size"));
        }
        if !option.is_ascii_alphanumeric() {
            format.control(stack, option)?;
        }
        at = at.saturating_add(size);
    }
    stack.push_number(at as f64);
    Ok(1)
}
