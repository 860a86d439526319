//! The colour of an engine. It depends on the engine's name, not on its position in the study. The
//! same engine thus has the same colour in every report. No colour is close to the green and the
//! red of better and worse.

/// The number of colours. The style sheet of the charts (`charts/svg.rs`) defines them.
pub const COLOURS: usize = 8;

/// The engines with reserved colours. The name of a variant begins with the name of its engine.
const KNOWN: [(&str, usize); 5] = [("saker", 0), ("redis", 1), ("valkey", 2), ("dragonfly", 3), ("keydb", 4)];

/// Returns the number of the colour of each engine in `names`. Up to [`COLOURS`] engines get
/// different colours, even if they prefer the same one.
pub fn of(names: &[&str]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..names.len()).collect();
    // Known names choose first, so the order of the study does not matter.
    order.sort_by_key(|at| (rank(names[*at]), names[*at]));
    let mut colours = vec![0; names.len()];
    let mut taken: Vec<usize> = Vec::new();
    for at in order {
        let wanted = wanted(names[at]);
        let mut near = (0..COLOURS).map(|step| (wanted + step) % COLOURS);
        colours[at] = near.find(|colour| !taken.contains(colour)).unwrap_or(wanted);
        taken.push(colours[at]);
    }
    colours
}

/// Returns the order in which engines choose their colours: 0 for a known name, 1 for a variant of
/// a known name, 2 for another name.
fn rank(name: &str) -> u8 {
    match known(name) {
        Some((known, _)) => u8::from(known.len() < name.len()),
        None => 2,
    }
}

fn known(name: &str) -> Option<(&'static str, usize)> {
    let name = name.to_ascii_lowercase();
    KNOWN.into_iter().find(|(known, _)| name.starts_with(known))
}

fn wanted(name: &str) -> usize {
    // Unknown names prefer a colour after the reserved ones.
    let sum = || name.bytes().fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    known(name).map_or_else(|| KNOWN.len() + sum() % (COLOURS - KNOWN.len()), |(_, colour)| colour)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_keeps_its_colour_wherever_it_stands() {
        assert_eq!(of(&["saker", "redis", "valkey"]), [0, 1, 2]);
        assert_eq!(of(&["valkey", "redis", "saker"]), [2, 1, 0]);
        assert_eq!(of(&["redis"]), [1]);
        let (one, other) = (of(&["saker-old", "saker", "mine"]), of(&["mine", "saker", "saker-old"]));
        assert_eq!((one[0], one[1], one[2]), (other[2], other[1], other[0]));
        assert_eq!(one[1], 0, "a variant does not take the colour of the engine itself");
    }

    #[test]
    fn engines_of_a_study_differ_in_colour() {
        let mut colours = of(&["a", "b", "c", "saker-1", "saker-2", "redis-7", "redis-8", "redis"]);
        colours.sort_unstable();
        assert_eq!(colours, [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(of(&["x"; COLOURS + 1]).len(), COLOURS + 1);
    }
}
