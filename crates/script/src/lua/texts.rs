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

    /// Whether the value at `place`, from the bottom, is a table with the keys 1 to `count`,
    /// nothing else and no metatable. O(count).
    pub(crate) fn is_list(&self, place: i32, count: usize) -> bool {
        let top = self.top();
        assert!((1..=top).contains(&place), "the caller counted the values on its stack");
        // SAFETY: there is a value.
        if unsafe { self.kind_at(place) } != ffi::LUA_TTABLE {
            return false;
        }
        self.reserve(2);
        // SAFETY: there is a value, and room.
        if unsafe { ffi::lua_getmetatable(self.l, place) } != 0 {
            self.drop_top(1);
            return false;
        }
        // SAFETY: there is room.
        unsafe { ffi::lua_pushnil(self.l) };
        let mut passed = 0;
        // SAFETY: it is a table, the key is nil or one of its keys, and there is room.
        while unsafe { ffi::lua_next(self.l, place) } != 0 {
            passed += 1;
            // SAFETY: there is a key, and its value above it.
            let kind = unsafe { self.kind_at(top + 1) };
            // SAFETY: there is a key; a number stays one.
            let number = unsafe { ffi::lua_tonumber(self.l, top + 1) };
            // SAFETY: there is at least the key.
            unsafe { ffi::lua_settop(self.l, top + 1) };
            if passed > count || kind != ffi::LUA_TNUMBER || number != passed as f64 {
                self.drop_top(1);
                return false;
            }
        }
        passed == count
    }

    /// Has the table at `place`, a list of `old_count`, contain these texts instead.
    pub(crate) fn refill_list(&self, place: i32, old_count: usize, texts: &[&[u8]]) {
        // SAFETY: there is a value.
        let is_table = (1..=self.top()).contains(&place) && unsafe { self.kind_at(place) } == ffi::LUA_TTABLE;
        assert!(is_table, "the caller looked");
        self.reserve(1);
        for (at, text) in (1..).zip(texts) {
            // SAFETY: it is one, and there is room.
            unsafe { self.set_text(place, at, text) };
        }
        for at in texts.len()..old_count {
            // SAFETY: there is room.
            unsafe { ffi::lua_pushnil(self.l) };
            // SAFETY: there are the table and the value, which is popped.
            unsafe { ffi::lua_rawseti_(self.l, place, at as i32 + 1) };
        }
    }

    /// Sets a text in a table.
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

    /// Pushes a table of texts.
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
