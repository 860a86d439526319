//! The command VADD, which adds an element to a vector set.

use keyspace::{Expiry, NewAttributes, Object, VectorSet};
use structures::vector::{
    Config, DIM_MAX, EF_CONSTRUCTION_DEFAULT, Inserted, M_DEFAULT, M_MAX, M_MIN, Projection, Quantization,
    VectorError,
};

use super::input::{INVALID_VECTOR, InputVector, wrong_dimension, wrong_input_dimension};
use crate::args::Args;
use crate::ctx::Ctx;
use crate::error::CommandError;
use crate::record::forms::{KnownSince, RecordedForm};
use crate::table::{Acl, Arg, Arity, Command, Flags, Group, History, KeyFlags, KeySpec};

/// The largest number of candidates (EF) for the links of a new element.
const EF_MAX: i64 = 1_000_000;

/// The largest number of values of the matrix that projects vectors (REDUCE).
const PROJECTION_VALUES_MAX: usize = 1 << 24;

pub(super) static VADD: Command = Command {
    name: "VADD",
    summary: "Adds an element to a vector set, or replaces its vector. Creates the vector set if it does not \
         exist.",
    history: History::since("8.0.0"),
    group: Group::VectorSet,
    complexity: "O(log(N)) with N being the number of elements",
    arity: Arity::AtLeast(5),
    flags: Flags::WRITE.union(Flags::DENYOOM),
    acl: Acl::WRITE,
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::UPDATE))],
    args: &[
        Arg::key("key", 0),
        Arg::integer("dim").token("REDUCE").optional(),
        Arg::one_of(
            "vector",
            &[
                Arg::string("blob").token("FP32"),
                Arg::block("values", &[Arg::integer("num").token("VALUES"), Arg::double("value").multiple()]),
            ],
        ),
        Arg::string("element"),
        Arg::word("cas", "CAS").optional(),
        Arg::one_of(
            "quantization",
            &[Arg::word("noquant", "NOQUANT"), Arg::word("q8", "Q8"), Arg::word("bin", "BIN")],
        )
        .optional(),
        Arg::integer("build-exploration-factor").token("EF").optional(),
        Arg::string("attributes").token("SETATTR").optional(),
        Arg::integer("numlinks").token("M").optional(),
    ],
    recorded_forms: &[RecordedForm::known_since(KnownSince::VECTOR_SETS)],
    run: vadd,
    ..Command::DEFAULT
};
/// Handles VADD: replies with true if the element is new. CAS has no effect, because the reply does
/// not wait for other threads in any case.
fn vadd(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let request = Request::parse(args)?;
    let key = args.key(1);
    let inserted = match ctx.db.write::<VectorSet>(key)? {
        Some(set) => {
            request.check(set)?;
            request.insert_into(set)?
        }
        None => {
            let mut set = request.new_set(ctx.rng)?;
            let inserted = request.insert_into(&mut set)?;
            ctx.db.set_object(key, Object::Vector(Box::new(set)), Expiry::Clear);
            inserted
        }
    };
    ctx.changed_without_event(1, key);
    ctx.reply.boolean(inserted == Inserted::Added);
    Ok(())
}

/// A parsed request of VADD.
struct Request<'a> {
    /// The number of dimensions to which the vector is reduced (REDUCE).
    reduced_dim: Option<usize>,
    vector: Vec<f32>,
    element: &'a [u8],
    quantization: Quantization,
    ef: usize,
    m: usize,
    attributes: Option<&'a [u8]>,
}

impl<'a> Request<'a> {
    fn parse(args: &Args<'a>) -> Result<Self, CommandError> {
        let mut at = 2;
        let mut reduced_dim = None;
        if args.is(at, "REDUCE") {
            let dim = usize::try_from(args.integer(at + 1).map_err(|_| INVALID_VECTOR)?);
            reduced_dim = Some(dim.ok().filter(|dim| (1..=DIM_MAX).contains(dim)).ok_or(INVALID_VECTOR)?);
            at += 2;
        }
        let InputVector { values: vector, next } = InputVector::parse(args, at)?;
        let element = args.try_get(next).ok_or(CommandError::WrongArity("vadd"))?;
        let mut request = Self {
            reduced_dim,
            vector,
            element,
            quantization: Quantization::Q8,
            ef: EF_CONSTRUCTION_DEFAULT,
            m: M_DEFAULT,
            attributes: None,
        };
        at = next + 1;
        while at < args.len() {
            at += request.parse_option(args, at)?;
        }
        Ok(request)
    }

    /// Parses the option of VADD at argument `at`. Returns the number of the option's words.
    fn parse_option(&mut self, args: &Args<'a>, at: usize) -> Result<usize, CommandError> {
        let has_value = at + 1 < args.len();
        let number = |limits: std::ops::RangeInclusive<i64>, error: &'static str| {
            let number = args.integer(at + 1).ok().filter(|number| limits.contains(number));
            number.map(|number| number as usize).ok_or(CommandError::Line(error))
        };
        if args.is(at, "CAS") {
            return Ok(1);
        } else if args.is(at, "NOQUANT") {
            self.quantization = Quantization::F32;
            return Ok(1);
        } else if args.is(at, "Q8") {
            self.quantization = Quantization::Q8;
            return Ok(1);
        } else if args.is(at, "BIN") {
            self.quantization = Quantization::Binary;
            return Ok(1);
        } else if args.is(at, "EF") && has_value {
            self.ef = number(1..=EF_MAX, "ERR invalid EF")?;
        } else if args.is(at, "M") && has_value {
            self.m = number(M_MIN as i64..=M_MAX as i64, "ERR invalid M")?;
        } else if args.is(at, "SETATTR") && has_value {
            self.attributes = Some(args.get(at + 1));
        } else {
            return Err(CommandError::Line("ERR invalid option after element"));
        }
        Ok(2)
    }

    /// Checks that the request's element can be added to an existing vector set.
    fn check(&self, set: &VectorSet) -> Result<(), CommandError> {
        let Config { quantization, m, .. } = set.index().config();
        if self.quantization != quantization {
            return Err(CommandError::Line("ERR asked quantization mismatch with existing vector set"));
        }
        if self.m != m {
            return Err(CommandError::Line("ERR asked M value mismatch with existing vector set"));
        }
        let (got, dim) = (self.vector.len(), set.dim());
        match (set.projection(), self.reduced_dim) {
            (Some(projection), Some(reduced)) if reduced == dim => {
                let expected = projection.from();
                if got == expected { Ok(()) } else { Err(wrong_input_dimension(got, expected)) }
            }
            (Some(_), _) => Err(wrong_dimension(got, dim)),
            (None, _) if got != dim => Err(wrong_dimension(got, dim)),
            (None, Some(_)) => {
                Err(CommandError::Line("ERR cannot add projection to existing set without projection"))
            }
            (None, None) => Ok(()),
        }
    }

    /// Creates the vector set for its first element.
    fn new_set(&self, rng: &mut fastrand::Rng) -> Result<VectorSet, CommandError> {
        let from = self.vector.len();
        if self.reduced_dim.is_some_and(|to| from * to > PROJECTION_VALUES_MAX) {
            return Err(CommandError::Text(format!(
                "ERR REDUCE is limited to {PROJECTION_VALUES_MAX} as the product of both numbers of dimensions"
            )));
        }
        let projection = self.reduced_dim.map(|to| Projection::new(from, to));
        let dim = self.reduced_dim.unwrap_or(from);
        let config = Config { dim, quantization: self.quantization, m: self.m };
        Ok(VectorSet::new(config, projection, rng.u64(..)))
    }

    fn insert_into(&self, set: &mut VectorSet) -> Result<Inserted, CommandError> {
        // As in Redis, empty attributes are kept for a new element, and remove those of another.
        let attributes = match self.attributes {
            None => NewAttributes::Kept,
            Some(b"") if set.index().find(self.element).is_some() => NewAttributes::Removed,
            Some(attributes) => NewAttributes::Set(attributes),
        };
        set.insert(self.element, &self.vector, self.ef, attributes).map_err(|error| match error {
            VectorError::Dimension | VectorError::NotFinite => INVALID_VECTOR,
            VectorError::Full => CommandError::Line("ERR the vector set has too many elements"),
        })
    }
}
