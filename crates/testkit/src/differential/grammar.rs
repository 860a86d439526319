//! Random commands, generated from the lines of [`super::rules`].
//!
//! A line is parsed once into a tree; a command is one random walk over the tree. Some commands are
//! then damaged, so that error replies are compared as well. An argument is dropped, doubled,
//! swapped or replaced, or an option is added. Names may change case.

use super::rules::{RULES, SESSION_RULES};
use super::values;
use crate::rng::Rng;

/// Percentage of random commands that are damaged, to compare error replies.
const DAMAGED_PERCENT: usize = 7;

/// Percentage of commands whose name is written in lower case.
const SMALL_LETTERS_PERCENT: usize = 5;

/// Maximum number of repetitions of the repeated part (`< … >`) of a rule.
const REPEATS_MAX: usize = 4;

/// Minimum expiry of keys in milliseconds. Commands with a shorter positive expiry are not
/// generated.
const EXPIRY_MS_MIN: i64 = 1_000_000;

/// A command: its name and arguments.
pub type Args = Vec<Vec<u8>>;

#[derive(Clone, Debug)]
enum Node {
    Word(&'static str),
    Class(&'static str),
    Optional(Vec<Node>),
    Choice(Vec<Vec<Node>>),
    AnyOrder(Vec<Node>),
    Repeat(Vec<Node>),
}

/// The rules from which the commands of sequences are generated.
#[derive(Clone, Debug)]
pub struct Grammar {
    rules: Vec<Vec<Node>>,
    session_rules: Vec<Vec<Node>>,
}

/// The kind of commands in a sequence: data commands only, or session commands, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only commands that read and write keys.
    Data,
    /// Data commands mixed with session commands: transactions, subscriptions, blocking commands.
    Sessions,
}

/// Percentage of session commands among the commands of a sequence of [`Kind::Sessions`].
const SESSION_PERCENT: usize = 30;

/// Maximum timeout of a blocking command in seconds. Both servers block for that time.
const WAIT_S_MAX: f64 = 0.1;

impl Grammar {
    /// Parses the rules of those commands for which `wanted` returns true. `wanted` receives the
    /// command name in capitals.
    pub fn new(wanted: impl Fn(&str) -> bool) -> Self {
        let parsed = |rules: &'static [&'static str]| {
            rules.iter().filter(|line| wanted(name(line))).map(|line| parse(line)).collect()
        };
        Self { rules: parsed(RULES), session_rules: parsed(SESSION_RULES) }
    }

    /// Returns the names of all commands in the table of rules, each once.
    pub fn names() -> Vec<&'static str> {
        let mut names: Vec<_> = RULES.iter().chain(SESSION_RULES).map(|line| name(line)).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Returns true if the grammar has no rules, because no command was wanted.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.session_rules.is_empty()
    }

    /// Returns a random command whose effect Redis specifies. `clock` is the counter from which
    /// stream IDs are made.
    pub fn command(&self, kind: Kind, clock: &mut u64, rng: &mut Rng) -> Args {
        loop {
            let args = self.any_command(kind, clock, rng);
            if !is_unspecified(&args) {
                return args;
            }
        }
    }

    fn any_command(&self, kind: Kind, clock: &mut u64, rng: &mut Rng) -> Args {
        let about_sessions = kind == Kind::Sessions && rng.percent(SESSION_PERCENT);
        let rules = match about_sessions && !self.session_rules.is_empty() || self.rules.is_empty() {
            true => &self.session_rules,
            false => &self.rules,
        };
        let rule = rng.pick(rules);
        let mut args = Vec::new();
        generate(rule, clock, rng, &mut args);
        if rng.percent(DAMAGED_PERCENT) && !keeps_scores_equal(rule) {
            damage(rule, rng, &mut args);
        }
        if rng.percent(SMALL_LETTERS_PERCENT) {
            args[0].make_ascii_lowercase();
        }
        args
    }
}

/// Returns the name of the command that a line of the rules describes.
fn name(line: &str) -> &str {
    line.split(' ').next().unwrap_or_default()
}

fn parse(line: &'static str) -> Vec<Node> {
    let mut words = line.split_whitespace();
    let (nodes, _) = parse_until(&mut words, "");
    nodes
}

/// Parses the nodes of a rule's tree up to the word `close` or a `|`. Returns the nodes, and true
/// if a `|` ended them.
fn parse_until(words: &mut std::str::SplitWhitespace<'static>, close: &str) -> (Vec<Node>, bool) {
    let mut nodes = Vec::new();
    while let Some(word) = words.next() {
        nodes.push(match word {
            "|" => return (nodes, true),
            _ if word == close => break,
            "[" => Node::Optional(parse_until(words, "]").0),
            "{" => Node::AnyOrder(parse_until(words, "}").0),
            "<" => Node::Repeat(parse_until(words, ">").0),
            "(" => {
                let mut choices = Vec::new();
                loop {
                    let (choice, more) = parse_until(words, ")");
                    choices.push(choice);
                    if !more {
                        break Node::Choice(choices);
                    }
                }
            }
            _ => word.strip_prefix('$').map_or(Node::Word(word), Node::Class),
        });
    }
    (nodes, false)
}

fn generate(nodes: &[Node], clock: &mut u64, rng: &mut Rng, args: &mut Args) {
    for node in nodes {
        match node {
            Node::Word(word) => args.push(word.as_bytes().to_vec()),
            Node::Class(class) => {
                args.push(values::value(class, clock, rng).expect("a test checks that every class exists"));
            }
            Node::Optional(nodes) if rng.percent(35) => generate(nodes, clock, rng, args),
            Node::Optional(_) => {}
            Node::Choice(choices) => generate(rng.pick::<Vec<Node>>(choices), clock, rng, args),
            Node::AnyOrder(nodes) => {
                let mut order: Vec<usize> = (0..nodes.len()).collect();
                rng.shuffle(&mut order);
                for at in order {
                    generate(&nodes[at..=at], clock, rng, args);
                }
            }
            Node::Repeat(nodes) => {
                for _ in 0..=rng.below(REPEATS_MAX) {
                    generate(nodes, clock, rng, args);
                }
            }
        }
    }
}

/// Returns true if the effect of `args` in Redis is unspecified: it depends on Redis' memory layout
/// or on the time. Examples: LSET far outside of a packed list overwrites an element. A HyperLogLog
/// whose last run is cut short is read beyond its end. A key with a short expiry expires earlier in
/// one server.
///
/// Also returns true for commands that block for more than [`WAIT_S_MAX`] or that crash Redis.
fn is_unspecified(args: &Args) -> bool {
    let number = |at: usize| stdx::number::parse_i64(args.get(at)?);
    let behind = |word: &[u8]| {
        let at = args.iter().rposition(|arg| arg.eq_ignore_ascii_case(word))?;
        number(at + 1)
    };
    let soon = |time: Option<i64>, unit_ms: i64| {
        time.is_some_and(|time| (1..EXPIRY_MS_MIN / unit_ms).contains(&time))
    };
    let may_wait_long = |at: Option<usize>| {
        let timeout = at.and_then(|at| std::str::from_utf8(args.get(at)?).ok()?.trim().parse::<f64>().ok());
        timeout.is_some_and(|timeout| !(timeout < 0.0 || timeout > 0.0 && timeout <= WAIT_S_MAX))
    };
    let to_hll = args.get(1).is_some_and(|key| key.starts_with(b"p"));
    match &args[0].to_ascii_uppercase()[..] {
        b"APPEND" if to_hll => {
            args.get(2).is_some_and(|runs| runs.iter().any(|run| (0x40..0x80).contains(run)))
        }
        b"SETRANGE" if to_hll => number(2) != Some(8) || args.get(3).is_none_or(|count| count.len() != 8),
        b"BLPOP" | b"BRPOP" | b"BLMOVE" | b"BRPOPLPUSH" | b"BZPOPMIN" | b"BZPOPMAX" => {
            may_wait_long(Some(args.len() - 1))
        }
        b"BLMPOP" | b"BZMPOP" => may_wait_long(Some(1)),
        b"XREAD" | b"XREADGROUP" => {
            let words = args.windows(2).filter(|words| words[0].eq_ignore_ascii_case(b"BLOCK"));
            let mut times = words.filter_map(|words| stdx::number::parse_i64(&words[1]));
            times.any(|ms| ms == 0 || ms > (WAIT_S_MAX * 1000.0) as i64)
        }
        // Redis sends one reply for each channel. Only one channel is allowed, so that the client
        // can count replies.
        b"SUBSCRIBE" | b"PSUBSCRIBE" | b"SSUBSCRIBE" | b"UNSUBSCRIBE" | b"PUNSUBSCRIBE" | b"SUNSUBSCRIBE" => {
            args.len() != 2
        }
        b"LSET" => number(2).is_some_and(|index| index.unsigned_abs() > 1 << 31),
        b"SETEX" | b"EXPIRE" => soon(number(2), 1000),
        b"PSETEX" | b"PEXPIRE" => soon(number(2), 1),
        // Redis adds the current time to this value without an overflow check.
        b"RESTORE" => soon(number(2), 1) || number(2).is_some_and(|ms| ms > i64::MAX / 2),
        b"SET" | b"GETEX" => soon(behind(b"EX"), 1000) || soon(behind(b"PX"), 1),
        // Elements of equal weight (with ALPHA: equal up to a NUL) are returned in the order in
        // which the set is walked.
        b"SORT" | b"SORT_RO" => {
            let has = |word: &[u8]| args.iter().any(|arg| arg.eq_ignore_ascii_case(word));
            match args.get(1).and_then(|key| key.first()) {
                Some(b'r') => false,
                Some(b'y') => has(b"ALPHA"),
                _ => has(b"BY") || has(b"ALPHA") && !has(b"STORE"),
            }
        }
        b"HEXPIRE" => soon(number(2), 1000),
        b"HPEXPIRE" => soon(number(2), 1),
        // Redis 8.0.2 reads beyond the arguments of a request that ends in FIELDS, and crashes.
        b"HGETEX" | b"HSETEX" => {
            let cut_off = args.last().is_some_and(|last| last.eq_ignore_ascii_case(b"FIELDS"));
            cut_off || soon(behind(b"EX"), 1000) || soon(behind(b"PX"), 1)
        }
        // A stored range is walked in the order of its encoding.
        b"ZRANGESTORE" => behind(b"LIMIT").is_some_and(|offset| offset < 0),
        _ => false,
    }
}

/// Returns true if a rule writes to a sorted set for which lexical ranges are requested. The scores
/// of such a set must stay equal.
fn keeps_scores_equal(rule: &[Node]) -> bool {
    matches!(rule, [Node::Word("ZADD"), Node::Class("lex_zset"), ..])
}

/// Damages the command `args` in one random place, never its name. A command without arguments can
/// only receive an additional one.
fn damage(rule: &[Node], rng: &mut Rng, args: &mut Args) {
    let kind = if args.len() == 1 { 4 } else { rng.below(6) };
    let at = 1 + rng.below(args.len().max(2) - 1);
    match kind {
        0 => {
            args.pop();
        }
        1 => {
            args.remove(at);
        }
        2 => args.insert(at, args[at].clone()),
        3 => args[at] = values::oddity(rng),
        4 => args.push(values::oddity(rng)),
        _ => {
            let mut words = Vec::new();
            collect_words(&rule[1..], &mut words);
            if words.is_empty() {
                let other = 1 + rng.below(args.len() - 1);
                args.swap(at, other);
            } else {
                args.push(rng.pick(&words).as_bytes().to_vec());
            }
        }
    }
}

/// Collects into `words` the option names in the nodes of a rule's tree.
fn collect_words(nodes: &[Node], words: &mut Vec<&'static str>) {
    for node in nodes {
        match node {
            Node::Word(word) => words.push(word),
            Node::Class(_) => {}
            Node::Optional(nodes) | Node::AnyOrder(nodes) | Node::Repeat(nodes) => {
                collect_words(nodes, words);
            }
            Node::Choice(choices) => choices.iter().for_each(|nodes| collect_words(nodes, words)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_makes_commands_of_its_name() {
        for line in RULES.iter().chain(SESSION_RULES) {
            let rule = parse(line);
            let (mut clock, mut rng) = (0, Rng::new(1));
            for _ in 0..200 {
                let mut args = Vec::new();
                generate(&rule, &mut clock, &mut rng, &mut args);
                assert_eq!(args[0], name(line).as_bytes());
                damage(&rule, &mut rng, &mut args);
                assert_eq!(args[0], name(line).as_bytes());
            }
        }
    }

    #[test]
    fn brackets_mean_what_the_table_says() {
        let rule = parse("X { [ A ] [ ( B 1 | C ) ] } < 2 >");
        let (mut clock, mut rng) = (0, Rng::new(3));
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..2000 {
            let mut args = Vec::new();
            generate(&rule, &mut clock, &mut rng, &mut args);
            let words: Vec<_> = args.iter().map(|arg| String::from_utf8_lossy(arg).into_owned()).collect();
            seen.insert(words.join(" "));
        }
        for line in ["X 2", "X A 2", "X C A 2 2", "X A B 1 2 2 2 2", "X B 1 A 2"] {
            assert!(seen.contains(line), "{line}");
        }
        assert!(!seen.contains("X A A 2") && !seen.contains("X"));
    }
}
