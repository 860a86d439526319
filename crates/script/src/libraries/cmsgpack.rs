//! `cmsgpack`: values as MessagePack (msgpack.org), as lua-cmsgpack 0.4.0 reads and writes them.

use crate::lua::{Function, Raise, Returns, Stack, Type, truncate};

/// The functions of the Lua table `cmsgpack`, by name.
pub(crate) const FUNCTIONS: [(&[u8], Function); 4] =
    [(b"pack", pack), (b"unpack", unpack), (b"unpack_one", unpack_one), (b"unpack_limit", unpack_limit)];

/// The fields of `cmsgpack` that describe the library: name, version, copyright and description.
pub(crate) const TEXTS: [(&[u8], &[u8]); 4] = [
    (b"_NAME", b"cmsgpack"),
    (b"_VERSION", b"lua-cmsgpack 0.4.0"),
    (b"_COPYRIGHT", b"Copyright (C) 2012, Salvatore Sanfilippo"),
    (b"_DESCRIPTION", b"MessagePack C implementation for Lua"),
];

/// The maximum depth of nested tables that are packed; deeper tables become nil.
const NESTING_MAX: usize = 16;
/// The maximum depth of nested tables that are unpacked. At a greater depth, Redis exceeds Lua's
/// stack, and this code would exceed the thread's stack.
const DEPTH_MAX: usize = 3990;
/// The maximum number of values on Lua's stack while MessagePack is unpacked; when the stack has
/// this number, no further value is unpacked.
const TOP_MAX: i32 = 7990;
/// The number of packed or unpacked values after which the server is asked again if the script may
/// continue.
const VALUES_PER_INTERRUPT: usize = 10_000;

fn pack(stack: &mut Stack) -> Returns {
    let count = stack.top();
    if count == 0 {
        return Err(stack.raise_argument(0, "MessagePack pack needs input."));
    }
    let mut out = Packer { bytes: Vec::new(), values: 0 };
    for argument in 1..=count {
        stack.push_value(argument);
        out.value(stack, 0)?;
    }
    stack.push(&out.bytes);
    Ok(1)
}

struct Packer {
    bytes: Vec<u8>,
    values: usize,
}

impl Packer {
    /// Packs the value on top of Lua's stack as MessagePack, and pops it.
    fn value(&mut self, stack: &mut Stack, level: usize) -> Result<(), Raise> {
        self.values += 1;
        if self.values.is_multiple_of(VALUES_PER_INTERRUPT) {
            stack.interrupt()?;
        }
        match stack.kind(-1) {
            Type::String => self.text(stack.bytes(-1).unwrap_or_default()),
            Type::Boolean => self.bytes.push(if stack.boolean(-1) { 0xc3 } else { 0xc2 }),
            Type::Number => self.number(stack.number(-1).unwrap_or(0.0)),
            Type::Table if level < NESTING_MAX => self.table(stack, level)?,
            _ => self.bytes.push(0xc0),
        }
        stack.pop(1);
        Ok(())
    }

    fn text(&mut self, text: &[u8]) {
        let len = text.len();
        match len {
            0..=31 => self.bytes.push(0xa0 | len as u8),
            32..=0xff => self.bytes.extend_from_slice(&[0xd9, len as u8]),
            0x100..=0xffff => self.head16(0xda, len),
            _ => self.head32(0xdb, len),
        }
        self.bytes.extend_from_slice(text);
    }

    fn head16(&mut self, kind: u8, len: usize) {
        self.bytes.push(kind);
        self.bytes.extend_from_slice(&(len as u16).to_be_bytes());
    }

    fn head32(&mut self, kind: u8, len: usize) {
        self.bytes.push(kind);
        self.bytes.extend_from_slice(&(len as u32).to_be_bytes());
    }

    fn number(&mut self, number: f64) {
        let whole = truncate(number);
        if number.is_finite() && whole as f64 == number {
            return self.integer(whole);
        }
        let short = number as f32;
        if f64::from(short) == number {
            self.bytes.push(0xca);
            self.bytes.extend_from_slice(&short.to_be_bytes());
        } else {
            self.bytes.push(0xcb);
            self.bytes.extend_from_slice(&number.to_be_bytes());
        }
    }

    fn integer(&mut self, number: i64) {
        let wide = number.to_be_bytes();
        let (kind, len) = match number {
            -32..=127 => return self.bytes.push(number as u8),
            128..=0xff => (0xcc, 1),
            0x100..=0xffff => (0xcd, 2),
            0x1_0000..=0xffff_ffff => (0xce, 4),
            0x1_0000_0000.. => (0xcf, 8),
            -128..=-33 => (0xd0, 1),
            -32_768..=-129 => (0xd1, 2),
            -2_147_483_648..=-32_769 => (0xd2, 4),
            _ => (0xd3, 8),
        };
        self.bytes.push(kind);
        self.bytes.extend_from_slice(&wide[8 - len..]);
    }

    fn table(&mut self, stack: &mut Stack, level: usize) -> Result<(), Raise> {
        match shape(stack) {
            Shape::Array => {
                let len = stack.len(-1);
                match len {
                    0..=15 => self.bytes.push(0x90 | len as u8),
                    16..=0xffff => self.head16(0xdc, len),
                    _ => self.head32(0xdd, len),
                }
                for at in 1..=len {
                    stack.raw_get_at(-1, at as i32);
                    self.value(stack, level + 1)?;
                }
            }
            Shape::Map(len) => {
                match len {
                    0..=15 => self.bytes.push(0x80 | len as u8),
                    16..=0xffff => self.head16(0xde, len),
                    _ => self.head32(0xdf, len),
                }
                stack.push_nil();
                while stack.next(-2) {
                    stack.push_value(-2);
                    self.value(stack, level + 1)?;
                    self.value(stack, level + 1)?;
                }
            }
        }
        Ok(())
    }
}

enum Shape {
    Array,
    Map(usize),
}

/// Returns the shape (array or map) of the table on top of Lua's stack. An array has the keys 1 to
/// n and no other.
fn shape(stack: &mut Stack) -> Shape {
    let (mut count, mut largest, mut is_array) = (0_usize, 0.0_f64, true);
    stack.push_nil();
    while stack.next(-2) {
        stack.pop(1);
        count += 1;
        if is_array {
            let key = if stack.kind(-1) == Type::Number { stack.number(-1) } else { None };
            match key {
                Some(key) if key > 0.0 && key.is_finite() && truncate(key) as f64 == key => {
                    largest = largest.max(key);
                }
                _ => is_array = false,
            }
        }
    }
    if is_array && largest == count as f64 { Shape::Array } else { Shape::Map(count) }
}

fn unpack(stack: &mut Stack) -> Returns {
    unpack_some(stack, 0, 0)
}

fn unpack_one(stack: &mut Stack) -> Returns {
    let offset = stack.optional_integer(2, 0)?;
    stack.set_top(stack.top().min(1));
    unpack_some(stack, 1, offset)
}

fn unpack_limit(stack: &mut Stack) -> Returns {
    let limit = stack.check_integer(2)?;
    let offset = stack.optional_integer(3, 0)?;
    stack.set_top(1);
    unpack_some(stack, limit, offset)
}

/// The reason why bytes cannot be unpacked as MessagePack.
enum UnpackError {
    Missing,
    BadFormat,
    Raised(Raise),
}

impl From<Raise> for UnpackError {
    fn from(raise: Raise) -> Self {
        Self::Raised(raise)
    }
}

/// Unpacks up to `limit` values from the byte at `offset` on, or all values if both are 0. Unless
/// both are 0, the first result is the offset of the next value, or -1 at the end.
fn unpack_some(stack: &mut Stack, limit: i64, offset: i64) -> Returns {
    let (limit, offset) = (limit as i32, offset as i32);
    let data = stack.check_text(1)?.to_vec();
    if offset < 0 || limit < 0 {
        let text =
            format!("Invalid request to unpack with offset of {offset} and limit of {}.", data.len() as i32);
        return Err(stack.raise_here(text.as_bytes()));
    }
    if offset as usize > data.len() {
        let text = format!("Start offset {offset} greater than input length {}.", data.len() as i32);
        return Err(stack.raise_here(text.as_bytes()));
    }
    let takes_all = limit == 0 && offset == 0;
    let limit = if takes_all { usize::MAX } else { limit as usize };
    let mut input = Unpacker { left: &data[offset as usize..], values: 0, depth: 0 };
    let mut count = 0;
    stack.set_top(1);
    while !input.left.is_empty() && count < limit {
        if stack.top() > TOP_MAX || !stack.has_room(4) {
            const TOO_MANY: &[u8] = b"stack overflow (too many return values at once; use unpack_one or \
                unpack_limit instead.)";
            return Err(stack.raise_here(TOO_MANY));
        }
        match input.value(stack) {
            Ok(()) => count += 1,
            Err(UnpackError::Missing) => return Err(stack.raise_here(b"Missing bytes in input.")),
            Err(UnpackError::BadFormat) => return Err(stack.raise_here(b"Bad data format in input.")),
            Err(UnpackError::Raised(raise)) => return Err(raise),
        }
    }
    if !takes_all {
        let next = if input.left.is_empty() { -1.0 } else { (data.len() - input.left.len()) as f64 };
        stack.push_number(next);
        stack.insert(2);
        count += 1;
    }
    Ok(count)
}

struct Unpacker<'a> {
    left: &'a [u8],
    values: usize,
    /// The number of nested tables that are being unpacked.
    depth: usize,
}

impl<'a> Unpacker<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], UnpackError> {
        let (taken, left) = self.left.split_at_checked(len).ok_or(UnpackError::Missing)?;
        self.left = left;
        Ok(taken)
    }

    fn number<const N: usize>(&mut self) -> Result<[u8; N], UnpackError> {
        let bytes = self.take(N)?;
        Ok(bytes.try_into().expect("so many were taken"))
    }

    /// Reads a length that MessagePack stores in `bytes` bytes: 1, 2 or 4.
    fn len(&mut self, bytes: usize) -> Result<usize, UnpackError> {
        Ok(self.take(bytes)?.iter().fold(0, |len, &byte| len << 8 | usize::from(byte)))
    }

    /// Unpacks the next value of the MessagePack bytes, and pushes it on Lua's stack.
    fn value(&mut self, stack: &mut Stack) -> Result<(), UnpackError> {
        self.values += 1;
        if self.values.is_multiple_of(VALUES_PER_INTERRUPT) {
            stack.interrupt()?;
        }
        if stack.top() > TOP_MAX || !stack.has_room(4) {
            return Err(stack.raise_here(b"stack overflow (in function mp_decode_to_lua_type)").into());
        }
        let kind = self.take(1)?[0];
        match kind {
            0x00..=0x7f => stack.push_number(f64::from(kind)),
            0xe0..=0xff => stack.push_number(f64::from(kind as i8)),
            0x80..=0x8f => return self.map(stack, usize::from(kind & 15)),
            0x90..=0x9f => return self.array(stack, usize::from(kind & 15)),
            0xa0..=0xbf => stack.push(self.take(usize::from(kind & 31))?),
            0xc0 => stack.push_nil(),
            0xc2 => stack.push_boolean(false),
            0xc3 => stack.push_boolean(true),
            0xca => stack.push_number(f64::from(f32::from_be_bytes(self.number()?))),
            0xcb => stack.push_number(f64::from_be_bytes(self.number()?)),
            0xcc => stack.push_number(f64::from(u8::from_be_bytes(self.number()?))),
            0xcd => stack.push_number(f64::from(u16::from_be_bytes(self.number()?))),
            0xce => stack.push_number(f64::from(u32::from_be_bytes(self.number()?))),
            // As in C: an unsigned number becomes signed.
            0xcf => stack.push_number(i64::from_be_bytes(self.number()?) as f64),
            0xd0 => stack.push_number(f64::from(i8::from_be_bytes(self.number()?))),
            0xd1 => stack.push_number(f64::from(i16::from_be_bytes(self.number()?))),
            0xd2 => stack.push_number(f64::from(i32::from_be_bytes(self.number()?))),
            0xd3 => stack.push_number(i64::from_be_bytes(self.number()?) as f64),
            0xd9 => self.text(stack, 1)?,
            0xda => self.text(stack, 2)?,
            0xdb => self.text(stack, 4)?,
            0xdc | 0xdd => {
                let len = self.len(if kind == 0xdc { 2 } else { 4 })?;
                return self.array(stack, len);
            }
            0xde | 0xdf => {
                let len = self.len(if kind == 0xde { 2 } else { 4 })?;
                return self.map(stack, len);
            }
            _ => return Err(UnpackError::BadFormat),
        }
        Ok(())
    }

    fn text(&mut self, stack: &mut Stack, len_bytes: usize) -> Result<(), UnpackError> {
        let len = self.len(len_bytes)?;
        stack.push(self.take(len)?);
        Ok(())
    }

    /// Counts the beginning of a nested table that is unpacked. Raises the error `too_deep` if too
    /// many tables are nested.
    fn descend(&mut self, stack: &Stack, too_deep: &[u8]) -> Result<(), UnpackError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX { Err(stack.raise_here(too_deep).into()) } else { Ok(()) }
    }

    fn array(&mut self, stack: &mut Stack, len: usize) -> Result<(), UnpackError> {
        self.descend(stack, b"stack overflow (in function mp_decode_to_lua_array)")?;
        stack.push_table(len.min(self.left.len()).min(1024), 0);
        for at in 1..=len {
            self.value(stack)?;
            stack.raw_set_at(-2, at as i32);
        }
        self.depth -= 1;
        Ok(())
    }

    fn map(&mut self, stack: &mut Stack, len: usize) -> Result<(), UnpackError> {
        self.descend(stack, b"stack overflow (in function mp_decode_to_lua_hash)")?;
        stack.push_table(0, len.min(self.left.len()).min(1024));
        for _ in 0..len {
            self.value(stack)?;
            self.value(stack)?;
            match (stack.kind(-2), stack.number(-2)) {
                (Type::Nil, _) => return Err(stack.raise(b"table index is nil").into()),
                (Type::Number, Some(key)) if key.is_nan() => {
                    return Err(stack.raise(b"table index is NaN").into());
                }
                _ => stack.raw_set(-3),
            }
        }
        self.depth -= 1;
        Ok(())
    }
}
