//! Several texts of a stack at once.

use mlua_sys as ffi;

use super::stack::Stack;

impl Stack {
    /// Whether the first `count` values are strings.
    pub(crate) fn are_strings(&self, count: i32) -> bool {
        let top = self.top();
        assert!(count <= top, "the caller counted the values on its stack");
        // SAFETY: there are that many values.
        (1..=count).all(|place| unsafe { ffi::lua_type(self.l, place) } == ffi::LUA_TSTRING)
    }

    /// Reads the first values, which are strings; a value that is none leaves its slot as it is.
    pub(crate) fn read_strings<'a>(&'a self, slots: &mut [&'a [u8]]) {
        assert!(slots.len() <= self.top() as usize, "the caller counted the values on its stack");
        for (place, slot) in (1..).zip(slots) {
            let mut len = 0;
            // SAFETY: there is a value, and no memory is refused while our code runs.
            let bytes = unsafe { ffi::lua_tolstring(self.l, place, &raw mut len) };
            if !bytes.is_null() {
                // SAFETY: Lua's strings do not move; see the module about how long they live.
                *slot = unsafe { std::slice::from_raw_parts(bytes.cast(), len) };
            }
        }
    }

    /// The first values as texts, and how many values there are; `None` where one is no text. A
    /// number becomes a string in its place.
    #[inline]
    pub(crate) fn first_texts<const N: usize>(&self) -> Option<([&[u8]; N], i32)> {
        let top = self.top();
        let mut texts: [&[u8]; N] = [&[]; N];
        if top < N as i32 {
            return None;
        }
        for (place, text) in (1..).zip(&mut texts) {
            let mut len = 0;
            // SAFETY: there is a value, and no memory is refused while our code runs.
            let bytes = unsafe { ffi::lua_tolstring(self.l, place, &raw mut len) };
            if bytes.is_null() {
                return None;
            }
            // SAFETY: Lua's strings do not move; see the module about how long they live.
            *text = unsafe { std::slice::from_raw_parts(bytes.cast(), len) };
        }
        Some((texts, top))
    }

    /// Pushes a table of texts.
    pub(crate) fn push_texts(&self, texts: &[&[u8]]) {
        self.push_table(texts.len(), 0);
        let table = self.top();
        self.reserve(1);
        for (place, text) in (1..).zip(texts) {
            // SAFETY: there is room, and the bytes are readable; an empty slice's address is not
            // null. No memory is refused while our code runs.
            unsafe { ffi::lua_pushlstring_(self.l, text.as_ptr().cast(), text.len()) };
            // SAFETY: there are the table and the string, which is popped.
            unsafe { ffi::lua_rawseti_(self.l, table, place) };
        }
    }
}
