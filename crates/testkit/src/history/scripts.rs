//! Random scripts for histories. A script interprets a small program in its arguments, see
//! [`crate::programs`].

use crate::programs::{IF_ODD, NEXT, RAISES, TEXT, is_reading};
use crate::sequential::keys_of;

/// A command and its arguments.
type Args = Vec<Vec<u8>>;

/// The maximum number of commands of a random script.
const COMMANDS_MAX: usize = 4;
/// The number of different script texts of each kind: texts that use only declared keys, other
/// texts, and texts that visit all keys. The last kind has many texts: after its first run, such a
/// text always runs while no other thread may access the keyspace.
const TEXTS: [usize; 3] = [2, 3, 200];

/// The keys of a random script that its EVAL declares.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Declares {
    All,
    Some,
    None,
}

/// The extent to which a random script goes beyond its commands and their keys: with other keys,
/// conditions and additional commands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// The script uses only the keys of its commands, and runs only these commands,
    /// unconditionally.
    Plain,
    /// The script uses only the keys of its commands. PING and SELECT may be inserted, and
    /// conditions added to commands.
    Named,
    /// The script has the additions of [`Reach::Named`] and may also use other keys of the same
    /// kind. The field is the number of keys of each kind.
    Among(usize),
}

/// Returns a random number of commands for the next random script.
pub fn length(rng: &mut fastrand::Rng) -> usize {
    1 + rng.usize(..COMMANDS_MAX)
}

/// Returns an EVAL whose script runs these commands. A command that begins with [`IF_ODD`] runs
/// only under that condition.
pub fn script(commands: Vec<Args>, reach: Reach, rng: &mut fastrand::Rng) -> Args {
    let declares = match rng.u8(..10) {
        0..4 => Declares::All,
        4..7 => Declares::Some,
        _ => Declares::None,
    };
    let plain = || commands.iter().cloned().map(|command| unconditional(command).0);
    let visits_all = plain().any(|command| keys_of(&command).is_none());
    let only_reads = plain().all(|command| is_reading(&command[0]));
    let (mut declared, mut program) = (Args::new(), Args::new());
    let is_plain = reach == Reach::Plain;
    let commands = if is_plain { commands } else { with_asides(commands, rng) };
    for (command, is_conditional) in commands.into_iter().map(unconditional) {
        if !program.is_empty() {
            program.push(NEXT.to_vec());
            if is_conditional || rng.u8(..5) == 0 && !is_plain {
                program.push(IF_ODD.to_vec());
            }
        }
        if rng.u8(..6) == 0 {
            program.push(RAISES.to_vec());
        }
        let named: Args = keys_of_one(&command).unwrap_or_default();
        for word in command {
            let is_key = named.contains(&word);
            program.push(if is_key { key(word, (declares, reach), &mut declared, rng) } else { word });
        }
    }
    let kind = if visits_all { 2 } else { usize::from(declares != Declares::All) };
    let number = 100 * kind + rng.usize(..TEXTS[kind]);
    let reads = !is_plain && if only_reads { rng.bool() } else { rng.u8(..20) == 0 };
    let verb = if reads { "EVAL_RO" } else { "EVAL" };
    let mut args: Args = vec![verb.into(), format!("{TEXT}-- {number}").into()];
    args.push(declared.len().to_string().into());
    args.extend(declared);
    args.extend(program);
    args
}

/// Returns the word for a key in a program: the key itself, `@n`, or a text that ends with `%n`. If
/// the script declares the key, appends it to `declared`.
fn key(
    name: Vec<u8>,
    (declares, reach): (Declares, Reach),
    declared: &mut Args,
    rng: &mut fastrand::Rng,
) -> Vec<u8> {
    if let Reach::Among(keys) = reach
        && declares != Declares::All
        && rng.u8(..4) == 0
    {
        let start = name.iter().rposition(|&byte| byte == b':').map_or(name.len(), |at| at + 1);
        return [&name[..start], format!("%{keys}").as_bytes()].concat();
    }
    let declares_it = match declares {
        Declares::All => true,
        Declares::Some => rng.bool(),
        Declares::None => false,
    };
    let at = declared.iter().position(|known| *known == name);
    let at = match (at, declares_it) {
        (Some(at), _) => at,
        (None, true) if declared.len() < 9 => {
            declared.push(name);
            declared.len() - 1
        }
        _ => return name,
    };
    format!("@{}", at + 1).into()
}

/// Inserts PING and SELECT before some commands of a script.
fn with_asides(commands: Vec<Args>, rng: &mut fastrand::Rng) -> Vec<Args> {
    let mut all = Vec::new();
    for command in commands {
        match rng.u8(..40) {
            0 => all.push(words("PING")),
            1 => all.push(words("SELECT 1")),
            2 => all.push(words("SELECT 0")),
            _ => {}
        }
        all.push(command);
    }
    all
}

/// Returns a command without the condition at its start, and true if it had the condition.
fn unconditional(mut command: Args) -> (Args, bool) {
    let is_conditional = command[0] == IF_ODD;
    if is_conditional {
        command.remove(0);
    }
    (command, is_conditional)
}

fn words(line: &str) -> Args {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

fn keys_of_one(command: &Args) -> Option<Args> {
    match &command[0][..] {
        b"PING" | b"SELECT" => None,
        _ => keys_of(command),
    }
}
