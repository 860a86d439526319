//! `bit`: operations on 32 bits, as in LuaBitOp.

use crate::lua::{Function, Raise, Returns, Stack};

/// The functions of the Lua table `bit`, by name.
pub(crate) const FUNCTIONS: [(&[u8], Function); 12] = [
    (b"tobit", to_bit),
    (b"bnot", |stack| one(stack, |bits| !bits)),
    (b"band", |stack| fold(stack, |bits, other| bits & other)),
    (b"bor", |stack| fold(stack, |bits, other| bits | other)),
    (b"bxor", |stack| fold(stack, |bits, other| bits ^ other)),
    (b"lshift", |stack| shift(stack, u32::wrapping_shl)),
    (b"rshift", |stack| shift(stack, u32::wrapping_shr)),
    (b"arshift", |stack| shift(stack, |bits, by| (bits as i32).wrapping_shr(by) as u32)),
    (b"rol", |stack| shift(stack, |bits, by| bits.rotate_left(by & 31))),
    (b"ror", |stack| shift(stack, |bits, by| bits.rotate_right(by & 31))),
    (b"bswap", |stack| one(stack, u32::swap_bytes)),
    (b"tohex", to_hex),
];

/// Converts an argument to 32 bits: rounds it to the nearest integer (halves to even), and takes it
/// modulo 2^32. The result is the low bits of its sum with 2^52 + 2^51.
fn bits(stack: &Stack, argument: i32) -> Result<u32, Raise> {
    const SHIFTED: f64 = 6_755_399_441_055_744.0;
    Ok((stack.check_number(argument)? + SHIFTED).to_bits() as u32)
}

fn give(stack: &mut Stack, bits: u32) -> Returns {
    stack.push_number(f64::from(bits as i32));
    Ok(1)
}

fn to_bit(stack: &mut Stack) -> Returns {
    one(stack, |bits| bits)
}

fn one(stack: &mut Stack, change: impl FnOnce(u32) -> u32) -> Returns {
    let changed = change(bits(stack, 1)?);
    give(stack, changed)
}

fn fold(stack: &mut Stack, join: impl Fn(u32, u32) -> u32) -> Returns {
    let mut joined = bits(stack, 1)?;
    for argument in (2..=stack.top()).rev() {
        joined = join(joined, bits(stack, argument)?);
    }
    give(stack, joined)
}

fn shift(stack: &mut Stack, shifted: impl FnOnce(u32, u32) -> u32) -> Returns {
    let (value, by) = (bits(stack, 1)?, bits(stack, 2)?);
    give(stack, shifted(value, by & 31))
}

fn to_hex(stack: &mut Stack) -> Returns {
    let value = bits(stack, 1)?;
    let digits = if stack.top() < 2 { 8 } else { bits(stack, 2)? as i32 };
    let text = if digits < 0 { format!("{value:08X}") } else { format!("{value:08x}") };
    let len = digits.unsigned_abs().min(8) as usize;
    stack.push(&text.as_bytes()[8 - len..]);
    Ok(1)
}
