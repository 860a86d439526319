//! `math.random` and `math.randomseed`: the generator of `drand48`, so that scripts draw the same
//! numbers as on Redis. Each thread has its own generator, whose state continues from script to
//! script.

use crate::lua::{Function, Returns, Rng, Stack};

/// The functions of `math` that replace Lua's own, by name.
pub(crate) const FUNCTIONS: [(&[u8], Function); 2] = [(b"random", random), (b"randomseed", seed)];

/// The modulus by which the generator's numbers are divided to get a fraction; the largest number
/// becomes 0.
const NUMBERS: u32 = 0x7fff_ffff;

fn random(stack: &mut Stack) -> Returns {
    let context = stack.context();
    let mut rng = context.rng.get();
    let drawn = f64::from(rng.next() % NUMBERS) / f64::from(NUMBERS);
    context.rng.set(rng);
    match stack.top() {
        0 => stack.push_number(drawn),
        1 => {
            let upper = stack.check_integer(1)? as i32;
            if upper < 1 {
                return Err(stack.raise_argument(1, "interval is empty"));
            }
            stack.push_number((drawn * f64::from(upper)).floor() + 1.0);
        }
        2 => {
            let lower = stack.check_integer(1)? as i32;
            let upper = stack.check_integer(2)? as i32;
            if lower > upper {
                return Err(stack.raise_argument(2, "interval is empty"));
            }
            let span = upper.wrapping_sub(lower).wrapping_add(1);
            stack.push_number((drawn * f64::from(span)).floor() + f64::from(lower));
        }
        _ => return Err(stack.raise_here(b"wrong number of arguments")),
    }
    Ok(1)
}

fn seed(stack: &mut Stack) -> Returns {
    let seed = stack.check_integer(1)? as i32;
    stack.context().rng.set(Rng::new(seed));
    Ok(0)
}
