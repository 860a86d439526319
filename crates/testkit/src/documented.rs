//! Random requests for every command that a server documents. The grammar is the reply to COMMAND
//! DOCS.
//!
//! A request is one random walk over the documented arguments, so it is nearly valid for any
//! command. The values are few and small, so that requests use each other's keys, or they are at
//! the limits of numbers. One request of five is then damaged: an argument is left out, doubled,
//! swapped or replaced, or an option's word stands in place of a value (`GROUP STREAMS c`). Two
//! parsers of the same arguments may treat such a word differently. All choices follow from a seed.
//! The hand-written rules of [`crate::differential`] make fewer but more effective requests.

use resp::Value;

use crate::client::Client;
use crate::rng::Rng;

/// Percentage of random requests that are damaged: an argument is left out, doubled, swapped or
/// replaced.
const DAMAGED_PERCENT: usize = 20;
/// Percentage of a command's optional arguments that a random request has.
const OPTIONAL_PERCENT: usize = 35;
/// Maximum number of repetitions of an argument that may occur several times.
const REPEATS_MAX: usize = 3;

/// The names of keys in random requests; some are named like options.
const KEYS: &[&str] = &["a", "b", "c", "d", "s", "h", "l", "z", "x", "STREAMS", "STORE", "KEYS", "BY", ""];
/// Integers in random requests: ordinary ones, and the limits of the number types.
const INTEGERS: &[&str] = &[
    "0",
    "1",
    "2",
    "3",
    "5",
    "10",
    "100",
    "-1",
    "-2",
    "-3",
    "-100",
    "65536",
    "1000000",
    "2147483647",
    "-2147483648",
    "4294967295",
    "4294967296",
    "9223372036854775806",
    "9223372036854775807",
    "-9223372036854775807",
    "-9223372036854775808",
    "4611686018427387904",
    "-4611686018427387904",
    "18446744073709551615",
    "1.5",
    "x",
];
/// Floats: ordinary ones, infinities, and the limits of the number type.
const DOUBLES: &[&str] =
    &["0", "1", "2.5", "-3", "15.1", "37.5", "1e308", "-1e308", "inf", "-inf", "nan", "5e-324"];
/// Values of all other kinds: members, IDs, bounds, types, units, names of options.
const STRINGS: &[&str] = &[
    "a",
    "b",
    "c",
    "f",
    "g",
    "m",
    "1",
    "2",
    "-7",
    "1.5",
    "",
    "$",
    ">",
    "*",
    "-",
    "+",
    "0-1",
    "1-1",
    "5-*",
    "(1",
    "[a",
    "(b",
    "(1-1",
    "~",
    "=",
    "#",
    "u8",
    "i64",
    "u63",
    "#3",
    "km",
    "list",
    "raw",
    "STREAMS",
    "STORE",
    "COUNT",
    "GET",
    "FIELDS",
    "LIMIT",
    "KEYS",
    "GROUP",
    "18446744073709551615-18446744073709551615",
    "9223372036854775807",
];
/// Patterns for keys, and for the options BY and GET of SORT.
const PATTERNS: &[&str] = &["*", "?", "a*", "[a-c]", "h*->f", "#", "s*x", "\\*", "[", "nosort"];
/// Unix times in random requests: long past and far in the future.
const TIMES: &[&str] =
    &["0", "1", "-1", "4000000000", "4000000000000", "9223372036854775807", "9223372036854775"];

/// A command that a server documents, with its arguments.
#[derive(Clone, Debug)]
pub struct Documented {
    /// The name of the command in lower case; `container|subcommand` for a subcommand.
    pub name: String,
    /// The group of the command in COMMAND DOCS, such as `string`.
    pub group: String,
    arguments: Vec<Argument>,
}

#[derive(Clone, Debug, Default)]
struct Argument {
    name: String,
    kind: String,
    token: Option<Vec<u8>>,
    flags: Vec<String>,
    parts: Vec<Argument>,
}

/// Returns every command that `client`'s server documents, sorted by name. In place of a command
/// with subcommands, its subcommands are returned (`config|get`).
///
/// # Panics
/// Panics if the server does not answer COMMAND DOCS in Redis' format.
pub fn documented(client: &mut Client) -> Vec<Documented> {
    let docs = client.command(&["COMMAND", "DOCS"]);
    let mut commands = Vec::new();
    collect(&docs, &mut commands);
    assert!(!commands.is_empty(), "COMMAND DOCS tells of no command");
    commands.sort_by(|a, b| a.name.cmp(&b.name));
    commands
}

fn collect(docs: &Value, commands: &mut Vec<Documented>) {
    for (name, facts) in pairs(docs) {
        let subcommands = fact(facts, "subcommands");
        if let Some(subcommands) = subcommands {
            collect(subcommands, commands);
            continue;
        }
        commands.push(Documented {
            name: text(name),
            group: fact(facts, "group").map(text).unwrap_or_default(),
            arguments: fact(facts, "arguments").map(arguments).unwrap_or_default(),
        });
    }
}

fn arguments(list: &Value) -> Vec<Argument> {
    let Value::Array(list) = list else { return Vec::new() };
    let argument = |facts: &Value| Argument {
        name: fact(facts, "name").map(text).unwrap_or_default(),
        kind: fact(facts, "type").map(text).unwrap_or_default(),
        token: fact(facts, "token").map(|token| text(token).into_bytes()),
        flags: match fact(facts, "flags") {
            Some(Value::Array(flags) | Value::Set(flags)) => flags.iter().map(text).collect(),
            _ => Vec::new(),
        },
        parts: fact(facts, "arguments").map(arguments).unwrap_or_default(),
    };
    list.iter().map(argument).collect()
}

/// Returns the pairs of a map. In RESP2, a map is an array of alternating names and values.
fn pairs(value: &Value) -> Vec<(&Value, &Value)> {
    match value {
        Value::Map(pairs) => pairs.iter().map(|(name, value)| (name, value)).collect(),
        Value::Array(items) => items.chunks_exact(2).map(|pair| (&pair[0], &pair[1])).collect(),
        _ => Vec::new(),
    }
}

fn fact<'v>(facts: &'v Value, name: &str) -> Option<&'v Value> {
    pairs(facts).into_iter().find(|(known, _)| text(known) == name).map(|(_, value)| value)
}

fn text(value: &Value) -> String {
    String::from_utf8_lossy(value.as_bytes().unwrap_or_default()).into_owned()
}

impl Documented {
    /// Generates a random request of this command. O(arguments).
    pub fn request(&self, rng: &mut Rng) -> Vec<Vec<u8>> {
        let mut walk = Walk { rng, key_count: None, words: Vec::new() };
        walk.words.extend(self.name.split('|').map(|word| word.to_ascii_uppercase().into_bytes()));
        let fixed = walk.words.len();
        self.arguments.iter().for_each(|argument| walk.argument(argument));
        if walk.rng.percent(DAMAGED_PERCENT) {
            walk.damage(fixed);
        }
        walk.words
    }
}

/// A request under construction, with the state of the random walk over the documented arguments.
struct Walk<'r> {
    rng: &'r mut Rng,
    /// The number of keys that the next argument with several keys must have. An earlier argument
    /// (`numkeys`) or the surrounding block of arguments has set it; `None` if any number is
    /// allowed.
    key_count: Option<usize>,
    words: Vec<Vec<u8>>,
}

impl Walk<'_> {
    fn argument(&mut self, argument: &Argument) {
        let has = |flag: &str| argument.flags.iter().any(|known| known == flag);
        if has("optional") && !self.rng.percent(OPTIONAL_PERCENT) {
            return;
        }
        let mut repeats = if has("multiple") { 1 + self.rng.below(REPEATS_MAX) } else { 1 };
        if has("multiple") && argument.kind == "key" {
            repeats = self.key_count.take().unwrap_or(repeats);
        }
        for repeat in 0..repeats {
            if let Some(token) = &argument.token
                && (repeat == 0 || has("multiple_token"))
            {
                self.words.push(token.clone());
            }
            self.value(argument);
        }
    }

    fn value(&mut self, argument: &Argument) {
        let choices = match &argument.kind[..] {
            "pure-token" => return,
            "oneof" if !argument.parts.is_empty() => {
                let at = self.rng.below(argument.parts.len());
                return self.argument(&argument.parts[at]);
            }
            "block" => {
                // Parallel lists (keys and IDs) in a block have the same length.
                self.key_count = Some(1 + self.rng.below(REPEATS_MAX));
                let count = self.key_count;
                for part in &argument.parts {
                    self.key_count = count;
                    self.argument(part);
                }
                self.key_count = None;
                return;
            }
            "integer" if matches!(&argument.name[..], "numkeys" | "numfields") && !self.rng.percent(10) => {
                let count = 1 + self.rng.below(REPEATS_MAX);
                self.key_count = Some(count);
                return self.words.push(count.to_string().into_bytes());
            }
            "integer" => INTEGERS,
            "double" => DOUBLES,
            "key" => KEYS,
            "pattern" => PATTERNS,
            "unix-time" => TIMES,
            _ => STRINGS,
        };
        let word = *self.rng.pick(choices);
        self.words.push(word.as_bytes().to_vec());
    }

    /// Damages one argument of the request. The first `fixed` words, which are the command's name,
    /// stay unchanged.
    fn damage(&mut self, fixed: usize) {
        let pools = [KEYS, INTEGERS, DOUBLES, STRINGS, PATTERNS];
        let pool = *self.rng.pick(&pools);
        let word = self.rng.pick(pool).as_bytes().to_vec();
        if self.words.len() == fixed {
            return self.words.push(word);
        }
        let at = fixed + self.rng.below(self.words.len() - fixed);
        match self.rng.below(6) {
            0 => drop(self.words.pop()),
            1 => drop(self.words.remove(at)),
            2 => self.words.insert(at, self.words[at].clone()),
            3 => self.words[at] = word,
            4 => self.words.insert(at, word),
            _ => {
                let other = fixed + self.rng.below(self.words.len() - fixed);
                self.words.swap(at, other);
            }
        }
    }
}
