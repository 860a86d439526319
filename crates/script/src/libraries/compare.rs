//! A comparison of our pattern functions with Lua's own, within one Lua state. Both must give the
//! same results and errors. Used by tests and a fuzz target.

use super::strings;
use crate::errors;
use crate::lua::{Stack, State};

/// A Lua chunk that runs each function in both implementations, and returns the first difference as
/// a text.
const COMPARE: &[u8] = br#"
    local ours, s, p, r, init, max = ...
    local function pack(...) return {n = select('#', ...), ...} end
    local function show(t)
        local out = {}
        for i = 1, t.n do out[i] = type(t[i]) .. ':' .. tostring(t[i]) end
        return table.concat(out, ' ')
    end
    local function matches(gmatch)
        local out = {}
        for a, b in gmatch(s, p) do
            out[#out + 1] = tostring(a) .. '|' .. tostring(b)
            if #out > 30 then break end
        end
        return table.concat(out, ' ')
    end
    local calls = {
        find = function(f) return f.find(s, p, init) end,
        plain = function(f) return f.find(s, p, init, true) end,
        match = function(f) return f.match(s, p, init) end,
        gmatch = function(f) return matches(f.gmatch) end,
        text = function(f) return f.gsub(s, p, r, max) end,
        table = function(f) return f.gsub(s, p, {a = 'x', b = 1, ab = false, [' '] = {}}) end,
        index = function(f) return f.gsub(s, p, setmetatable({}, {__index = function(_, k)
            if k == 'x' then error('odd') end return k .. '!' end}), max) end,
        call = function(f) return f.gsub(s, p, function(a, b)
            if a == 'b' then return nil elseif a == '1' then return {} elseif a == 'y' then error({}) end
            return tostring(b) end, max) end,
        rep = function(f) return f.rep(s, init) end,
    }
    for name, call in pairs(calls) do
        local lua, our = show(pack(pcall(call, string))), show(pack(pcall(call, ours)))
        lua, our = lua:gsub('table: %w+', 'table'), our:gsub('table: %w+', 'table')
        if lua ~= our then return name .. '\n  lua  ' .. lua .. '\n  ours ' .. our end
    end
"#;

/// The arguments with which the two implementations of a pattern function are compared.
pub(crate) struct Case<'a> {
    pub(crate) subject: &'a [u8],
    pub(crate) pattern: &'a [u8],
    /// The replacement text for `gsub`.
    pub(crate) replacement: &'a [u8],
    /// The position where a search begins, and the count of `rep`.
    pub(crate) init: f64,
    /// The maximum number of replacements by `gsub`.
    pub(crate) count_max: f64,
}

/// A Lua state without a sandbox. Its stack holds three values: a table with only our functions, a
/// table with the functions that scripts get, and the chunk `COMPARE`.
pub(crate) struct Comparison(State);

impl Comparison {
    pub(crate) fn new() -> Self {
        let mut state = State::new(None);
        let stack = state.stack();
        stack.push_table(0, 8);
        for (name, _, function) in strings::FUNCTIONS {
            stack.push_function(function, 0);
            stack.raw_set_field(-2, name);
        }
        stack.push_function(errors::note_place, 0);
        stack.push_function(strings::gsub, 1);
        stack.raw_set_field(-2, b"gsub");
        stack.push_table(0, 8);
        strings::add(stack);
        stack.load(COMPARE, c"=compare").expect("it compiles");
        Self(state)
    }

    pub(crate) fn stack(&mut self) -> &mut Stack {
        self.0.stack()
    }

    /// Compares our pattern functions with Lua's own for one case; panics if a result differs.
    pub(crate) fn check(&mut self, case: &Case<'_>) {
        let stack = self.0.stack();
        for native_depth in [1, 2] {
            stack.push_value(3);
            stack.push_value(native_depth);
            for text in [case.subject, case.pattern, case.replacement] {
                stack.push(text);
            }
            stack.push_number(case.init);
            stack.push_number(case.count_max);
            let done = stack.call(6, 1);
            let found = stack.bytes(-1).map(|text| text.escape_ascii().to_string());
            assert!(
                done.is_ok() && found.is_none(),
                "'{}' '{}' '{}' {} {}: {}",
                case.subject.escape_ascii(),
                case.pattern.escape_ascii(),
                case.replacement.escape_ascii(),
                case.init,
                case.count_max,
                found.unwrap_or_default()
            );
            stack.set_top(3);
        }
    }
}
