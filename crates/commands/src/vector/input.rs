//! The parsing of vectors in requests of VADD and VSIM.

use structures::vector::DIM_MAX;

use crate::args::Args;
use crate::error::CommandError;

/// The error for a vector in a request that cannot be read.
pub const INVALID_VECTOR: CommandError = CommandError::Line("ERR invalid vector specification");

/// The vector that a VADD or VSIM request contains.
pub struct InputVector {
    /// The values of the vector, at least one and at most [`DIM_MAX`].
    pub values: Vec<f32>,
    /// The index of the request's argument after the vector.
    pub next: usize,
}

impl InputVector {
    /// Parses the vector at argument `index`: `FP32 bytes` or `VALUES count value …`. O(values).
    ///
    /// # Errors
    /// If the words are none of these, a value is not a number, or there are too many values.
    pub fn parse(args: &Args<'_>, index: usize) -> Result<Self, CommandError> {
        let parsed = if args.is(index, "FP32") {
            Self::parse_blob(args, index)
        } else if args.is(index, "VALUES") {
            Self::parse_values(args, index)
        } else {
            None
        };
        parsed.ok_or(INVALID_VECTOR)
    }

    fn parse_blob(args: &Args<'_>, index: usize) -> Option<Self> {
        let (values, []) = args.try_get(index + 1)?.as_chunks::<4>() else { return None };
        let fits = (1..=DIM_MAX).contains(&values.len());
        let values = values.iter().map(|bytes| f32::from_le_bytes(*bytes));
        fits.then(|| Self { values: values.collect(), next: index + 2 })
    }

    fn parse_values(args: &Args<'_>, index: usize) -> Option<Self> {
        args.try_get(index + 1)?;
        let count = usize::try_from(args.integer(index + 1).ok()?).ok()?;
        let first = index + 2;
        let fits = (1..=DIM_MAX).contains(&count) && count <= args.len().saturating_sub(first);
        let values = fits.then(|| (first..first + count).map(|at| args.float(at).ok()))?;
        Some(Self {
            values: values.map(|value| Some(value? as f32)).collect::<Option<_>>()?,
            next: first + count,
        })
    }
}

/// Returns the error for a vector of `got` values in a vector set with `expected` dimensions.
pub fn wrong_dimension(got: usize, expected: usize) -> CommandError {
    CommandError::Text(format!("ERR Vector dimension mismatch - got {got} but set has {expected}"))
}

/// Returns the error for a vector of `got` values in a vector set whose projection takes vectors of
/// `expected` values.
pub fn wrong_input_dimension(got: usize, expected: usize) -> CommandError {
    CommandError::Text(format!(
        "ERR Input dimension mismatch for projection - got {got} but projection expects {expected}"
    ))
}
