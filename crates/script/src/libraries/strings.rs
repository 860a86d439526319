//! Functions of `string` that PUC Lua cannot interrupt: all functions with patterns, and `rep`.

use crate::errors;
use crate::lua::{BuiltinStringFn, Function, Raise, Returns, Stack, Type};
use crate::pattern::{CaptureEnd, Failure, Matcher, Texts};

/// The functions that replace Lua's own, each with Lua's function for calls that cannot take long.
/// `gsub` also replaces Lua's own, but has an upvalue and is added separately.
pub(super) const FUNCTIONS: [(&[u8], BuiltinStringFn, Function); 5] = [
    (b"find", BuiltinStringFn::Find, find),
    (b"match", BuiltinStringFn::Match, first_match),
    (b"gmatch", BuiltinStringFn::Gmatch, gmatch),
    (b"gfind", BuiltinStringFn::Gmatch, gmatch),
    (b"rep", BuiltinStringFn::Rep, rep),
];

/// Sets our functions in the `string` table, which is on top of Lua's stack.
pub(crate) fn add(stack: &mut Stack) {
    for (name, builtin, function) in FUNCTIONS {
        stack.push_function_unless_builtin(builtin, function, 0);
        stack.raw_set_field(-2, name);
    }
    stack.push_function(errors::note_place, 0);
    stack.push_function_unless_builtin(BuiltinStringFn::Gsub, gsub, 1);
    stack.raw_set_field(-2, b"gsub");
}

/// The number of bytes that are compared by the simple search for a plain text, before `find`
/// changes to a search in linear time.
const NAIVE_BYTES: usize = 4096;

/// Converts a position to an offset, as `lstrlib.c` does: a negative position counts from the end.
fn offset(position: i64, len: usize) -> usize {
    let position = if position < 0 { position.saturating_add(len as i64 + 1) } else { position };
    usize::try_from(position.max(1) - 1).map_or(len, |offset| offset.min(len))
}

/// Returns the pattern up to its first zero byte, at which Lua's patterns end.
#[inline]
fn until_zero(pattern: &[u8]) -> &[u8] {
    match memchr::memchr(0, pattern) {
        Some(end) => &pattern[..end],
        None => pattern,
    }
}

/// Returns the first two arguments as texts, and the number of all arguments. A number is a text.
#[inline]
fn check_texts(stack: &Stack) -> Result<([&[u8]; 2], i32), Raise> {
    if let Some(texts) = stack.first_texts() {
        return Ok(texts);
    }
    stack.check_text(1)?;
    Err(stack.check_text(2).err().unwrap_or(Raise))
}

/// Returns the first argument (the searched text), which the caller has checked.
#[inline]
fn subject(stack: &Stack) -> &[u8] {
    stack.first_texts().map_or(&[], |([subject], _)| subject)
}

/// Returns the subject and the pattern of a search without its `^`, and true if the pattern is
/// anchored by `^`.
#[inline]
fn anchored<'a>([subject, pattern]: [&'a [u8]; 2]) -> (Texts<'a>, bool) {
    let pattern = until_zero(pattern);
    match pattern.strip_prefix(b"^") {
        Some(pattern) => (Texts { subject, pattern }, true),
        None => (Texts { subject, pattern }, false),
    }
}

/// Converts the failure of a pattern's match to an error that is raised in Lua.
fn raise(stack: &Stack, failure: Failure<Raise>) -> Raise {
    match failure {
        Failure::Pattern(text) => stack.raise_here(text.as_bytes()),
        Failure::Stopped(raise) => raise,
    }
}

/// Calls `work` with a pattern matcher that no other running call uses.
#[inline]
fn with_matcher<'a, R>(stack: &'a Stack, work: impl FnOnce(&'a Stack, &mut Matcher) -> R) -> R {
    let mut matcher = stack.context().matcher.take().unwrap_or_default();
    matcher.reset();
    let result = work(stack, &mut matcher);
    stack.context().matcher.set(Some(matcher));
    result
}

/// The offsets of a pattern's match in the searched text: its start and its end.
type Span = (usize, usize);

/// Returns the offsets of the first match of the pattern from offset `from` of the searched text
/// on; `None` if there is none. An anchored pattern matches only at `from`.
fn search(
    stack: &Stack,
    matcher: &mut Matcher,
    (texts, is_anchored): (Texts<'_>, bool),
    mut from: usize,
) -> Result<Option<Span>, Failure<Raise>> {
    let ask = || stack.interrupt();
    let first_byte = if is_anchored { None } else { texts.first_byte(0) };
    loop {
        if let Some(byte) = first_byte {
            let skipped = memchr::memchr(byte, &texts.subject[from..]);
            matcher.step(skipped.unwrap_or(texts.subject.len() - from) / 64, &ask)?;
            let Some(skipped) = skipped else { return Ok(None) };
            from += skipped;
        }
        if let Some(end) = matcher.match_at(texts, from, &ask)? {
            return Ok(Some((from, end)));
        }
        if is_anchored || from == texts.subject.len() {
            return Ok(None);
        }
        from += 1;
    }
}

/// Returns the offset of the first occurrence of `wanted` in `subject`; `None` if there is none.
/// O(bytes).
fn search_plain(subject: &[u8], wanted: &[u8]) -> Option<usize> {
    let Some((&first, rest)) = wanted.split_first() else { return Some(0) };
    let (mut from, mut compared) = (0, 0);
    while let Some(window) = subject.get(from..)
        && compared < NAIVE_BYTES
    {
        let found = memchr::memchr(first, window)?;
        from += found + 1;
        let candidate = &subject[from..];
        if candidate.starts_with(rest) {
            return Some(from - 1);
        }
        compared += 1 + candidate.iter().zip(rest).take_while(|(left, right)| left == right).count();
    }
    memchr::memmem::find(subject.get(from..)?, wanted).map(|found| from + found)
}

/// Returns the 0-based offset where a search begins, from the third of the `count` arguments; 0 if
/// there are fewer.
#[inline]
fn start(stack: &Stack, count: i32, len: usize) -> Result<usize, Raise> {
    if count < 3 {
        return Ok(0);
    }
    let position = stack.number_or_zero(3);
    if (1.0..1e15).contains(&position) {
        return Ok((position as usize - 1).min(len));
    }
    Ok(offset(stack.optional_integer(3, 1)?, len))
}

/// Returns true if each byte of the pattern, up to a zero byte, matches only itself. `find` then
/// searches for the pattern as plain text.
#[inline]
fn is_plain(pattern: &[u8]) -> bool {
    pattern.iter().take_while(|&&byte| byte != 0).all(|byte| !b"^$*+?.([%-".contains(byte))
}

fn find(stack: &mut Stack) -> Returns {
    let (texts, count) = check_texts(stack)?;
    let [subject, pattern] = texts;
    let from = start(stack, count, subject.len())?;
    if !(count > 3 && stack.boolean(4) || is_plain(pattern)) {
        return with_matcher(stack, |stack, matcher| {
            let found = search(stack, matcher, anchored(texts), from);
            let Some((start, end)) = found.map_err(|failure| raise(stack, failure))? else {
                stack.push_nil();
                return Ok(1);
            };
            stack.push_numbers((start + 1) as f64, end as f64);
            Ok(2 + push_captures(stack, matcher, subject, None)?)
        });
    }
    let Some(found) = search_plain(&subject[from..], pattern) else {
        stack.work(subject.len() - from)?;
        stack.push_nil();
        return Ok(1);
    };
    stack.work(found)?;
    stack.push_numbers((from + found + 1) as f64, (from + found + pattern.len()) as f64);
    Ok(2)
}

/// Handles `string.match`: returns the captures of the pattern's first match.
fn first_match(stack: &mut Stack) -> Returns {
    let (texts, count) = check_texts(stack)?;
    let from = start(stack, count, texts[0].len())?;
    with_matcher(stack, |stack, matcher| {
        let found = search(stack, matcher, anchored(texts), from);
        match found.map_err(|failure| raise(stack, failure))? {
            Some(span) => push_captures(stack, matcher, texts[0], Some(span)),
            None => {
                stack.push_nil();
                Ok(1)
            }
        }
    })
}

/// Pushes the captures of a pattern's match. If the pattern has none, pushes the whole match
/// `whole`.
fn push_captures(stack: &Stack, matcher: &Matcher, subject: &[u8], whole: Option<Span>) -> Returns {
    let count = matcher.captures().len();
    if count == 0 {
        let Some((start, end)) = whole else { return Ok(0) };
        stack.push(&subject[start..end]);
        return Ok(1);
    }
    if !stack.has_room(count as i32) {
        return Err(stack.raise_here(b"stack overflow (too many captures)"));
    }
    for index in 0..count {
        push_capture(stack, matcher, index, (subject, whole.unwrap_or_default()))?;
    }
    Ok(count)
}

/// Pushes one capture of a pattern's match. If the pattern has no captures, the first one is the
/// whole match.
fn push_capture(
    stack: &Stack,
    matcher: &Matcher,
    index: usize,
    (subject, whole): (&[u8], Span),
) -> Result<(), Raise> {
    match captured(matcher, index, whole) {
        Ok(Captured::Text((start, end))) => stack.push(&subject[start..end]),
        Ok(Captured::Position(position)) => stack.push_number(position as f64),
        Err(text) => return Err(stack.raise_here(text)),
    }
    Ok(())
}

/// The value of a capture of a pattern: a part of the text or a position.
enum Captured {
    Text(Span),
    /// A position in the text, counted from 1: the capture `()`.
    Position(usize),
}

/// Returns one capture of a pattern's match. If the pattern has no captures, the first one is the
/// whole match. Returns the error's text if there is no such capture.
fn captured(matcher: &Matcher, index: usize, whole: Span) -> Result<Captured, &'static [u8]> {
    let Some(capture) = matcher.captures().get(index) else {
        return if index == 0 { Ok(Captured::Text(whole)) } else { Err(b"invalid capture index") };
    };
    match capture.end {
        CaptureEnd::Open => Err(b"unfinished capture"),
        CaptureEnd::Position => Ok(Captured::Position(capture.start + 1)),
        CaptureEnd::At(end) => Ok(Captured::Text((capture.start, end))),
    }
}

fn gmatch(stack: &mut Stack) -> Returns {
    stack.check_text(1)?;
    stack.check_text(2)?;
    stack.set_top(2);
    stack.push_number(0.0);
    stack.push_function(next_match, 3);
    Ok(1)
}

/// Handles a call of the function that `gmatch` returns. Its upvalues are the subject, the pattern
/// and the offset of the next search.
fn next_match(stack: &mut Stack) -> Returns {
    let from = stack.upvalue_number(3) as usize;
    let found = with_matcher(stack, |stack, matcher| {
        let [subject, pattern] = [1, 2].map(|at| stack.upvalue_bytes(at).unwrap_or_default());
        if from > subject.len() {
            return Ok(None);
        }
        // `gmatch` has no anchors: a `^` is a byte like others.
        let texts = Texts { subject, pattern: until_zero(pattern) };
        let found = search(stack, matcher, (texts, false), from);
        let Some((start, end)) = found.map_err(|failure| raise(stack, failure))? else { return Ok(None) };
        let count = push_captures(stack, matcher, subject, Some((start, end)))?;
        // After an empty match, the search continues at least one byte later.
        Ok(Some((count, end + usize::from(end == start))))
    });
    let Some((count, next)) = found? else { return Ok(0) };
    stack.push_number(next as f64);
    stack.replace_upvalue(3);
    Ok(count)
}

/// Handles `string.gsub`: replaces the matches of a pattern. The upvalue is `errors::note_place`.
pub(super) fn gsub(stack: &mut Stack) -> Returns {
    let ([subject, _], count) = check_texts(stack)?;
    let replaced_max =
        if count < 4 { i32::MAX } else { stack.optional_integer(4, subject.len() as i64 + 1)? as i32 };
    let kind = stack.kind(3);
    let mut matcher = stack.context().matcher.take().unwrap_or_default();
    matcher.reset();
    let mut out = std::mem::take(&mut matcher.replaced);
    let done = match kind {
        Type::Number | Type::String => replace_by_template(stack, &mut matcher, &mut out, replaced_max),
        Type::Function | Type::Table => {
            // The error handler for calls of the function, or of the table's `__index`.
            stack.set_top(3);
            stack.push_upvalue(1);
            replace_by_calls(stack, &mut matcher, &mut out, replaced_max)
        }
        _ => Err(stack.raise_argument(3, "string/function/table expected")),
    };
    let done = done.map(|replaced| {
        if replaced == 0 {
            stack.push_value(1)
        } else {
            stack.push(&out)
        }
        stack.push_number(f64::from(replaced));
        2
    });
    out.clear();
    if out.capacity() <= REPLACED_BYTES_KEPT_MAX {
        matcher.replaced = out;
    }
    stack.context().matcher.set(Some(matcher));
    done
}

/// The capacity above which a buffer of `gsub` is not kept for the next call, in bytes.
const REPLACED_BYTES_KEPT_MAX: usize = 64 << 10;

/// The progress of `gsub` in the text that it searches.
#[derive(Default)]
struct Cursor {
    from: usize,
    count: i32,
    /// True if the search of `gsub` for matches has ended.
    is_over: bool,
}

impl Cursor {
    /// Finds the next match of `gsub`, and appends the text before it to `out`.
    #[inline]
    fn next(
        &self,
        stack: &Stack,
        matcher: &mut Matcher,
        texts: (Texts<'_>, bool),
        out: &mut Vec<u8>,
    ) -> Result<Option<Span>, Raise> {
        if self.is_over {
            return Ok(None);
        }
        let found = search(stack, matcher, texts, self.from).map_err(|failure| raise(stack, failure))?;
        if let Some((start, _)) = found {
            append(stack, out, &texts.0.subject[self.from..start])?;
        }
        Ok(found)
    }

    /// Moves the search past a match that `gsub` has replaced.
    #[inline]
    fn pass(&mut self, (start, end): Span, (texts, is_anchored): (Texts<'_>, bool), out: &mut Vec<u8>) {
        self.count += 1;
        self.from = end;
        self.is_over = is_anchored || start == texts.subject.len();
        if start == end && !self.is_over {
            // After an empty match the next byte is copied: two empty matches are at least one byte
            // apart.
            out.push(texts.subject[end]);
            self.from += 1;
        }
    }
}

/// Appends the subject to `out`, with its matches replaced by the template text at stack index 3.
/// Returns the number of matches.
fn replace_by_template(
    stack: &Stack,
    matcher: &mut Matcher,
    out: &mut Vec<u8>,
    replaced_max: i32,
) -> Result<i32, Raise> {
    let Some(([subject, pattern, template], _)) = stack.first_texts() else { return Ok(0) };
    let (texts, mut cursor) = (anchored([subject, pattern]), Cursor::default());
    while cursor.count < replaced_max
        && let Some(span) = cursor.next(stack, matcher, texts, out)?
    {
        add_template(stack, matcher, (subject, template, span), out)?;
        cursor.pass(span, texts, out);
    }
    append(stack, out, &subject[cursor.from..])?;
    Ok(cursor.count)
}

/// Appends the subject to `out`, with its matches replaced by results of the function or table at
/// stack index 3. Returns the number of matches.
fn replace_by_calls(
    stack: &mut Stack,
    matcher: &mut Matcher,
    out: &mut Vec<u8>,
    replaced_max: i32,
) -> Result<i32, Raise> {
    let mut cursor = Cursor::default();
    while cursor.count < replaced_max {
        let texts = anchored(check_texts(stack)?.0);
        let Some(span) = cursor.next(stack, matcher, texts, out)? else { break };
        add_result(stack, matcher, span, out)?;
        cursor.pass(span, anchored(check_texts(stack)?.0), out);
    }
    append(stack, out, &subject(stack)[cursor.from..])?;
    Ok(cursor.count)
}

/// Appends `bytes` to the result `out`, which is not yet a Lua string. Raises an error if the
/// result would exceed the memory limit.
#[inline]
fn append(stack: &Stack, out: &mut Vec<u8>, bytes: &[u8]) -> Result<(), Raise> {
    if out.capacity() - out.len() < bytes.len() {
        stack.claim(out.len() + bytes.len())?;
    }
    out.extend_from_slice(bytes);
    stack.work(bytes.len())
}

/// Appends the replacement of a match by `gsub`: the result of the function or table at stack index
/// 3.
fn add_result(stack: &mut Stack, matcher: &Matcher, span: Span, out: &mut Vec<u8>) -> Result<(), Raise> {
    if stack.kind(3) == Type::Function {
        stack.push_value(3);
        let count = push_captures(stack, matcher, subject(stack), Some(span))?;
        stack.call_with_handler(count as i32, 1, 4)?;
    } else {
        push_capture(stack, matcher, 0, (subject(stack), span))?;
        get(stack)?;
    }
    match stack.kind(-1) {
        Type::Nil | Type::Boolean if !stack.boolean(-1) => {
            append(stack, out, &subject(stack)[span.0..span.1])?;
        }
        Type::String | Type::Number => append(stack, out, stack.text(-1).unwrap_or_default())?,
        _ => {
            let text = format!("invalid replacement value (a {})", stack.type_name(-1));
            return Err(stack.raise_here(text.as_bytes()));
        }
    }
    stack.set_top(4);
    Ok(())
}

/// Appends the replacement of a match by `gsub`: a template text, in which `%1` stands for the
/// first capture.
#[inline]
fn add_template(
    stack: &Stack,
    matcher: &Matcher,
    (subject, mut template, span): (&[u8], &[u8], Span),
    out: &mut Vec<u8>,
) -> Result<(), Raise> {
    while let Some(at) = memchr::memchr(b'%', template) {
        append(stack, out, &template[..at])?;
        // In C, a text has a zero byte after its end.
        match template.get(at + 1).copied().unwrap_or(0) {
            b'0' => append(stack, out, &subject[span.0..span.1])?,
            digit @ b'1'..=b'9' => match captured(matcher, usize::from(digit - b'1'), span) {
                Ok(Captured::Text((start, end))) => append(stack, out, &subject[start..end])?,
                Ok(Captured::Position(position)) => append(stack, out, position.to_string().as_bytes())?,
                Err(text) => return Err(stack.raise_here(text)),
            },
            byte => append(stack, out, &[byte])?,
        }
        template = template.get(at + 2..).unwrap_or_default();
    }
    append(stack, out, template)
}

/// The maximum length of a chain of `__index` metamethods that a lookup follows.
const INDEX_STEPS_MAX: usize = 100;

/// Replaces the key on top of the stack by its value in the table at stack index 3, following
/// `__index` metamethods.
fn get(stack: &mut Stack) -> Result<(), Raise> {
    stack.push_value(3);
    for _ in 0..INDEX_STEPS_MAX {
        // On top: the key, and the value in which it is looked up.
        if stack.kind(-1) == Type::Table {
            stack.push_value(-2);
            stack.raw_get(-2);
            if stack.kind(-1) != Type::Nil {
                return Ok(());
            }
            stack.pop(1);
        }
        if !stack.metatable(-1) {
            if stack.kind(-1) == Type::Table {
                stack.push_nil();
                return Ok(());
            }
            let text = format!("attempt to index a {} value", stack.type_name(-1));
            return Err(stack.raise(text.as_bytes()));
        }
        stack.raw_get_field(-1, b"__index");
        match stack.kind(-1) {
            Type::Nil if stack.kind(-3) == Type::Table => return Ok(()),
            Type::Nil => {
                let text = format!("attempt to index a {} value", stack.type_name(-3));
                return Err(stack.raise(text.as_bytes()));
            }
            Type::Function => {
                stack.push_value(-3);
                stack.push_value(-5);
                return stack.call_with_handler(2, 1, 4);
            }
            _ => {
                // Keeps only the key and the next value in which it is looked up.
                stack.remove(-2);
                stack.remove(-2);
            }
        }
    }
    Err(stack.raise(b"loop in gettable"))
}

fn rep(stack: &mut Stack) -> Returns {
    stack.check_text(1)?;
    let count = usize::try_from(stack.check_integer(2)? as i32).unwrap_or(0);
    let text = stack.bytes(1).unwrap_or_default();
    let len = text.len().saturating_mul(count);
    if len == 0 {
        stack.push(b"");
        return Ok(1);
    }
    // At the end the text is in memory twice, because Lua copies it.
    stack.claim(len)?;
    let mut repeated = Vec::new();
    if repeated.try_reserve_exact(len).is_err() {
        return Err(stack.raise(b"not enough memory"));
    }
    repeated.extend_from_slice(text);
    while repeated.len() < len {
        let more = repeated.len().min(len - repeated.len()).min(PIECE_BYTES);
        repeated.extend_from_within(..more);
        stack.work(more)?;
    }
    stack.push(&repeated);
    Ok(1)
}

/// The number of bytes after which `string.rep` asks again if the script may continue.
const PIECE_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::libraries::compare::{Case, Comparison};

    fn draw(random: &mut u64, below: usize) -> usize {
        *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*random >> 33) as usize % below
    }

    fn text(random: &mut u64, pieces: &[&[u8]], len_max: usize) -> Vec<u8> {
        (0..draw(random, len_max + 1)).flat_map(|_| pieces[draw(random, pieces.len())].to_vec()).collect()
    }

    #[test]
    fn patterns_match_as_those_of_lua() {
        const SUBJECT: &[&[u8]] = &[
            b"a", b"b", b"ab", b"c", b"x", b"y", b"(", b")", b" ", b"1", b"_", b"]", b"-", b"A", b"\0", b"%",
            b"^", b"\xe4", b"\x0b", b".",
        ];
        const PATTERN: &[&[u8]] = &[
            b"a",
            b"b",
            b".",
            b"%a",
            b"%d",
            b"%s",
            b"%w",
            b"%x",
            b"%p",
            b"%l",
            b"%u",
            b"%c",
            b"%z",
            b"%A",
            b"%Z",
            b"%%",
            b"%-",
            b"[ab]",
            b"[^a]",
            b"[a-c]",
            b"[%a_]",
            b"[^%s%d]",
            b"[]]",
            b"[^]]",
            b"[a-]",
            b"[%]]",
            b"[%a-z]",
            b"[",
            b"]",
            b"(",
            b")",
            b"(",
            b")",
            b"()",
            b"(a*)",
            b"(.-)",
            b"%1",
            b"%2",
            b"%0",
            b"*",
            b"+",
            b"-",
            b"?",
            b"*",
            b"+",
            b"-",
            b"?",
            b"^",
            b"$",
            b"%bxy",
            b"%b()",
            b"%b",
            b"%f[%a]",
            b"%f[^a]",
            b"%f",
            b"%",
            b"\0",
            b"[\xe4-\xff]",
        ];
        const TEMPLATE: &[&[u8]] = &[b"x", b"%0", b"%1", b"%2", b"%%", b"%", b"%a", b"\0"];
        let mut random = 7;
        let cases = std::env::var("SAKER_PATTERNS").map_or(5_000, |cases| cases.parse().expect("a number"));
        let mut comparison = Comparison::new();
        for _ in 0..cases {
            let random = &mut random;
            let (subject, pattern) = (text(random, SUBJECT, 12), text(random, PATTERN, 7));
            let replacement = text(random, TEMPLATE, 3);
            let (init, count_max) = (draw(random, 20) as f64 - 6.0, draw(random, 6) as f64 - 1.0);
            comparison.check(&Case {
                subject: &subject,
                pattern: &pattern,
                replacement: &replacement,
                init,
                count_max,
            });
        }
    }

    #[test]
    fn long_texts_are_found_however_often_they_nearly_occur() {
        let subject = [b"ab".repeat(20_000).as_slice(), b"aac"].concat();
        for len in [1, 2, 3, 100, 9_999] {
            let wanted = [b"ab".repeat(len).as_slice(), b"aac"].concat();
            assert_eq!(search_plain(&subject, &wanted), Some(subject.len() - wanted.len()), "{len}");
            assert_eq!(search_plain(&subject, &[b"b".as_slice(), &wanted, b"d"].concat()), None);
        }
        assert_eq!((search_plain(b"", b""), search_plain(b"", b"a")), (Some(0), None));
    }

    /// Prints the times of ordinary patterns:
    /// `cargo test --release -p script speed -- --ignored --nocapture`
    #[test]
    #[ignore = "prints times"]
    fn speed_of_ordinary_patterns() {
        const MEASURE: &[u8] = br#"
            local alone, ours = ...
            local keys, line = 'bull:queue:job:12345:events', '  some words,  with spaces = and 12 numbers 345  '
            local csv = ('some,words,12345,'):rep(60)
            local long = ('x'):rep(2000) .. 'needle' .. ('y'):rep(100)
            local works = {
                {'gmatch [^:]+', function(f) for w in f.gmatch(keys, '[^:]+') do end end},
                {'gsub %s+', function(f) return f.gsub(line, '%s+', '') end},
                {'gsub trim', function(f) return f.gsub(line, '^%s*(.-)%s*$', '%1') end},
                {'gsub function', function(f) return f.gsub(line, '%w+', function(w) return w end) end},
                {'gsub table', function(f) return f.gsub(line, '%w+', {some = 'x'}) end},
                {'find plain', function(f) return f.find(keys, 'job', 1, true) end},
                {'find plain long', function(f) return f.find(long, 'needle', 1, true) end},
                {'find literal', function(f) return f.find(keys, 'events') end},
                {'match (%d+)', function(f) return f.match(keys, '(%d+)') end},
                {'match anchored', function(f) return f.match(keys, '^(%w+):(%w+)') end},
                {'match k=v', function(f) return f.match('key=value', '^(%w+)%s*=%s*(%w+)$') end},
                {'find long .-', function(f) return f.find(long, 'x.-needle') end},
                {'match %b', function(f) return f.match('f(a(b)c)d', '%b()') end},
                {'gmatch csv 1 KB', function(f) for w in f.gmatch(csv, '[^,]+') do end end, 20},
                {'rep', function(f) return f.rep('ab', 10) end},
            }
            local out = {}
            for _, work in ipairs(works) do
                local best = {}
                for round = 1, 9 do
                    for at, f in ipairs({string, ours, alone}) do
                        local start, run = os.clock(), work[2]
                        for i = 1, 20000 / (work[3] or 1) do run(f) end
                        local took = (os.clock() - start) / 20000 * (work[3] or 1) * 1e9
                        best[at] = math.min(best[at] or took, took)
                    end
                end
                out[#out + 1] = string.format('%-18s lua %8.0f ns, scripts %8.0f ns, %.2f, alone %.2f', work[1],
                    best[1], best[2], best[2] / best[1], best[3] / best[1])
            end
            return table.concat(out, '\n')
        "#;
        let mut comparison = Comparison::new();
        let stack = comparison.stack();
        stack.load(MEASURE, c"=measure").expect("it compiles");
        stack.push_value(1);
        stack.push_value(2);
        stack.call(2, 1).expect("it runs");
        println!("{}", String::from_utf8_lossy(stack.bytes(-1).unwrap_or_default()));
    }
}
