//! Access to several texts on Lua's stack at once.

use std::ffi::c_int;

use mlua_sys as ffi;

use super::stack::Stack;

// unit.c
unsafe extern "C" {
    /// Returns nonzero if the value at the stack index `place` is a table with `count` array slots,
    /// no hash part and no metatable.
    fn script_is_list(l: *const ffi::lua_State, place: c_int, count: c_int) -> c_int;
}

impl Stack {
    /// Returns true if the first `count` values on Lua's stack are strings.
    pub(crate) fn are_strings(&self, count: i32) -> bool {
        let top = self.top();
        assert!(count <= top, "the caller counted the values on its stack");
        // SAFETY: there are that many values.
        (1..=count).all(|place| unsafe { ffi::lua_type(self.l, place) } == ffi::LUA_TSTRING)
    }

    /// Reads the first values on Lua's stack, which are strings, into `slots`. If a value is
    /// neither a string nor a number, its slot does not change.
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

    /// Returns the first `N` values on Lua's stack as texts, and the number of all values. Returns
    /// `None` if there are too few values, or if one is neither a string nor a number. A number
    /// becomes a string in its place.
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

    /// Puts texts into the table at the stack index `place`, counted from the bottom. Returns
    /// false, and changes nothing, if the table does not have the layout that
    /// [`push_texts`](Self::push_texts) makes for this number of texts. The old values of the slots
    /// may be anything. O(texts).
    pub(crate) fn refill_texts(&self, place: i32, texts: &[&[u8]]) -> bool {
        assert!((1..=self.top()).contains(&place), "the caller counted the values on its stack");
        let Ok(count) = c_int::try_from(texts.len()) else { return false };
        // SAFETY: the state is live, and there is a value.
        if unsafe { script_is_list(self.l, place, count) } == 0 {
            return false;
        }
        self.reserve(1);
        for (at, text) in (1..).zip(texts) {
            // SAFETY: it is a table, and there is room.
            unsafe { self.set_text(place, at, text) };
        }
        true
    }

    /// Sets the element `at` of the Lua table at stack index `table` to a text.
    ///
    /// # Safety
    /// There is a table at `table`, and room for one more value.
    unsafe fn set_text(&self, table: i32, at: i32, text: &[u8]) {
        // SAFETY: there is room, and the bytes are readable; an empty slice's address is not null.
        // No memory is refused while our code runs.
        unsafe { ffi::lua_pushlstring_(self.l, text.as_ptr().cast(), text.len()) };
        // SAFETY: there are the table and the string, which is popped.
        unsafe { ffi::lua_rawseti_(self.l, table, at) };
    }

    /// Pushes a new Lua table (array) of texts.
    pub(crate) fn push_texts(&self, texts: &[&[u8]]) {
        self.push_table(texts.len(), 0);
        let table = self.top();
        self.reserve(1);
        for (at, text) in (1..).zip(texts) {
            // SAFETY: it was just pushed, and there is room.
            unsafe { self.set_text(table, at, text) };
        }
    }
}
