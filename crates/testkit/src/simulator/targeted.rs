//! Scripts that choose the targets of their writes. They write to keys of their own, whose names
//! tell the targets. So each target's stream must lead to the data without the keys that it does
//! not get.

use engine::log::target::LogTarget;

use crate::Rng;

/// The script that increments keys: each argument pair is the flags of `redis.set_repl` and the
/// database for the key with the same number.
const TARGETED: &str = "\
for at = 1, #KEYS do
  redis.set_repl(tonumber(ARGV[2 * at - 1]))
  redis.call('SELECT', ARGV[2 * at])
  redis.call('INCR', KEYS[at])
end
return #KEYS
";

/// The beginnings of the names of keys that are written for some targets only, by the flags of
/// `redis.set_repl`.
const TARGETS: [&str; 4] = ["none:", "file:", "copy:", "both:"];

/// Generates a script that writes for several targets.
pub(super) fn targeted_script(rng: &mut Rng) -> Vec<Vec<u8>> {
    let count = 1 + rng.below(4);
    let flags: Vec<usize> = (0..count).map(|_| rng.below(TARGETS.len())).collect();
    let mut words: Vec<String> = vec!["EVAL".into(), TARGETED.into(), count.to_string()];
    words.extend(flags.iter().map(|&flags| format!("{}{}", TARGETS[flags], rng.below(2))));
    words.extend(flags.iter().flat_map(|flags| [flags.to_string(), rng.below(2).to_string()]));
    words.into_iter().map(String::into_bytes).collect()
}

/// Returns true if a key is written for this target.
pub(super) fn is_for(target: LogTarget, key: &[u8]) -> bool {
    let others = match target {
        LogTarget::File => ["none:", "copy:"],
        LogTarget::Replicas => ["none:", "file:"],
    };
    !others.iter().any(|other| key.starts_with(other.as_bytes()))
}
