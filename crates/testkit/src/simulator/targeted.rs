//! Scripts that choose the targets (append-only file, replicas) of their writes with
//! `redis.set_repl`. They write to keys of their own, whose prefixes name the targets. So a replay
//! of the change log for a target must give all data except the keys of other targets.

use engine::log::target::LogTarget;

use crate::Rng;

/// A script that increments keys. For each key it has two arguments: the flags for
/// `redis.set_repl`, and the number of the database.
const TARGETED: &str = "\
for at = 1, #KEYS do
  redis.set_repl(tonumber(ARGV[2 * at - 1]))
  redis.call('SELECT', ARGV[2 * at])
  redis.call('INCR', KEYS[at])
end
return #KEYS
";

/// The prefixes of keys whose writes only some targets of the change log receive. The index is the
/// numeric flag of `redis.set_repl`.
const TARGETS: [&str; 4] = ["none:", "file:", "copy:", "both:"];

/// Generates a call of the script [`TARGETED`] for random keys and targets of the change log.
pub(super) fn targeted_script(rng: &mut Rng) -> Vec<Vec<u8>> {
    let count = 1 + rng.below(4);
    let flags: Vec<usize> = (0..count).map(|_| rng.below(TARGETS.len())).collect();
    let mut words: Vec<String> = vec!["EVAL".into(), TARGETED.into(), count.to_string()];
    words.extend(flags.iter().map(|&flags| format!("{}{}", TARGETS[flags], rng.below(2))));
    words.extend(flags.iter().flat_map(|flags| [flags.to_string(), rng.below(2).to_string()]));
    words.into_iter().map(String::into_bytes).collect()
}

/// Returns true if the writes of a key are recorded for this target of the change log.
pub(super) fn is_for(target: LogTarget, key: &[u8]) -> bool {
    let others = match target {
        LogTarget::File => ["none:", "copy:"],
        LogTarget::Replicas => ["none:", "file:"],
    };
    !others.iter().any(|other| key.starts_with(other.as_bytes()))
}
