//! Scripts that are drawn for histories: [`crate::programs`] says what they do.

use crate::programs::{IF_ODD, NEXT, RAISES, TEXT, is_reading};
use crate::sequential::keys_of;

/// A command and its arguments.
type Args = Vec<Vec<u8>>;

/// Commands of a program at most.
const COMMANDS_MAX: usize = 4;
/// Texts of scripts that keep to what they declare, of others, and of those that visit all keys.
/// Of the last ones there are many, because a text runs alone from then on.
const TEXTS: [usize; 3] = [2, 3, 200];

/// Which keys a script declares.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Declares {
    All,
    Some,
    None,
}

/// What else a script may do than run its commands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// It uses these keys and no others, and runs each command.
    Plain,
    /// It uses these keys and no others.
    Named,
    /// It uses others of the same kind as well, of which there are so many.
    Among(usize),
}

/// How many commands the next program has.
pub fn length(rng: &mut fastrand::Rng) -> usize {
    1 + rng.usize(..COMMANDS_MAX)
}

/// A script that runs these commands; those with [`IF_ODD`] ahead only in that case.
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

/// A key as it stands in a program.
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

/// Adds what touches no key of the selected database.
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

/// A command, and whether it has a condition ahead.
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
