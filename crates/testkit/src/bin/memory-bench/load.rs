//! The load of the stall measurements: a value of millions of elements. This file defines how the
//! value grows and how it is removed: at once, or a few elements at a time.

use std::error::Error;
use std::time::Duration;

use clap::Args;
use testkit::{Client, Value};

use crate::{Servers, info, set_option};

#[derive(Args)]
pub struct Options {
    #[command(flatten)]
    pub servers: Servers,
    /// Number of elements of the big value whose growth and removal are measured.
    #[arg(long, default_value_t = 1_000_000)]
    pub elements: usize,
    /// Names of the measurements, as in the table: `growing`, or a way to remove or shrink the big
    /// value. All if none is given.
    #[arg(long, value_delimiter = ',')]
    ways: Vec<String>,
    /// Types of the big value to measure, such as `hash`.
    #[arg(long, value_delimiter = ',', default_value = "set,hash,zset,list")]
    pub types: Vec<String>,
}

impl Options {
    /// Returns true if the options select the measurement with this name.
    pub fn wants(&self, way: &str) -> bool {
        self.ways.is_empty() || self.ways.iter().any(|wanted| wanted == way)
    }
}

/// Number of elements that one request adds or removes. It is so small that the request itself does
/// not count as a stall.
const ELEMENTS_PER_REQUEST: usize = 10;
/// Number of elements that one request adds outside of measurements.
const ELEMENTS_PER_REQUEST_UNMEASURED: usize = 200;
/// Number of requests that the client sends in one pipeline.
const BATCH: usize = 10;
/// Time for which the used memory stays over the lowered `maxmemory`, before the limit is removed
/// again.
const EVICTING: Duration = Duration::from_millis(1500);

/// A step of a way ([`Way`]) to remove or shrink the big value.
#[derive(Clone, Copy)]
pub enum Step {
    /// Sends these requests, one after the other.
    Send(&'static [&'static str]),
    /// Lowers `maxmemory` so that the server evicts the big value.
    Evict,
    /// Sends requests with this command name, of ten elements each, until the value is empty.
    Shrink(&'static str),
}

use Step::{Evict, Send, Shrink};

/// A measured way to remove or shrink the big value.
pub struct Way {
    pub name: &'static str,
    /// The types of the values that can be removed in this way; empty for all types.
    types: &'static [&'static str],
    /// The steps that prepare the big value before the measurement begins.
    pub before: &'static [Step],
    /// The steps that are measured: they remove or shrink the big value.
    pub steps: &'static [Step],
}

impl Way {
    /// Returns true if this way applies to values of the type `kind`.
    pub fn is_for(&self, kind: &str) -> bool {
        self.types.is_empty() || self.types.contains(&kind)
    }
}

const fn way(name: &'static str, steps: &'static [Step]) -> Way {
    Way { name, types: &[], before: &[], steps }
}

const fn shrinking(name: &'static str, types: &'static [&'static str], steps: &'static [Step]) -> Way {
    Way { name, types, before: &[], steps }
}

const fn over(name: &'static str, types: &'static [&'static str], steps: &'static [Step]) -> Way {
    Way { name, types, before: OTHERS, steps }
}

/// Steps that create small values, which later overwrite the big value.
const OTHERS: &[Step] = &[
    Send(&["SET", "other", "x"]),
    Send(&["SADD", "other-set", "member"]),
    Send(&["ZADD", "other-zset", "1", "member"]),
];

/// All ways to remove or shrink the big value.
pub const WAYS: &[Way] = &[
    way("DEL", &[Send(&["DEL", "big"])]),
    way("UNLINK", &[Send(&["UNLINK", "big"])]),
    way("expiry", &[Send(&["PEXPIRE", "big", "1"])]),
    way("SET over it", &[Send(&["SET", "big", "x"])]),
    over("RENAME onto it", &[], &[Send(&["RENAME", "other", "big"])]),
    over("COPY REPLACE onto it", &[], &[Send(&["COPY", "other", "big", "REPLACE"])]),
    over("SUNIONSTORE onto it", &["set", "hash", "list"], &[Send(&["SUNIONSTORE", "big", "other-set"])]),
    over("ZUNIONSTORE onto it", &["zset"], &[Send(&["ZUNIONSTORE", "big", "1", "other-zset"])]),
    way("FLUSHALL", &[Send(&["FLUSHALL"])]),
    way("FLUSHDB SYNC", &[Send(&["FLUSHDB", "SYNC"])]),
    way("FLUSHDB ASYNC", &[Send(&["FLUSHDB", "ASYNC"])]),
    way("eviction", &[Evict]),
    shrinking("SREM", &["set"], &[Shrink("SREM")]),
    shrinking("SPOP count", &["set"], &[Shrink("SPOP")]),
    shrinking("HDEL", &["hash"], &[Shrink("HDEL")]),
    shrinking("ZREM", &["zset"], &[Shrink("ZREM")]),
    shrinking("ZPOPMIN count", &["zset"], &[Shrink("ZPOPMIN")]),
    shrinking("LTRIM", &["list"], &[Shrink("LTRIM")]),
    shrinking("LPOP count", &["list"], &[Shrink("LPOP")]),
];

/// Runs one step of a way on the big value. Calls `after_batch` after each batch of replies.
pub fn take(
    step: Step,
    client: &mut Client,
    kind: &str,
    elements: usize,
    after_batch: &mut dyn FnMut() -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    match step {
        Send(request) => {
            let reply = client.request(request)?;
            if matches!(reply, Value::Error(_)) {
                return Err(format!("{request:?}: {reply:?}").into());
            }
            after_batch()
        }
        Evict => {
            evict(client)?;
            after_batch()
        }
        Shrink(verb) => shrink(client, kind, verb, elements, after_batch),
    }
}

/// Lowers `maxmemory` below the used memory for [`EVICTING`], so that the server evicts the big
/// value.
fn evict(client: &mut Client) -> Result<(), Box<dyn Error>> {
    client.request(&["PEXPIRE", "big", "100000000"])?;
    let used = info(client, "memory", "used_memory")?;
    set_option(client, "maxmemory-policy", "volatile-ttl")?;
    set_option(client, "maxmemory", &(used - 1_000_000).to_string())?;
    std::thread::sleep(EVICTING);
    set_option(client, "maxmemory", "0")
}

/// The number of elements that one request adds to the big value.
#[derive(Clone, Copy)]
pub enum Pace {
    /// Ten elements per request, so that a request itself is no stall.
    Measured,
    /// More elements per request ([`ELEMENTS_PER_REQUEST_UNMEASURED`]), outside of measurements.
    Quick,
}

/// Adds `elements` elements to the big value. Calls `after_batch` after each batch of replies.
pub fn fill(
    client: &mut Client,
    kind: &str,
    elements: usize,
    pace: Pace,
    after_batch: &mut dyn FnMut() -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let each = match pace {
        Pace::Measured => ELEMENTS_PER_REQUEST,
        Pace::Quick => ELEMENTS_PER_REQUEST_UNMEASURED,
    };
    let (verb, with_number, with_value) = match kind {
        "set" => ("SADD", false, false),
        "hash" => ("HSET", false, true),
        "zset" => ("ZADD", true, false),
        _ => ("RPUSH", false, false),
    };
    let mut next = 0;
    while next < elements {
        let mut requests: Vec<Vec<String>> = Vec::with_capacity(BATCH);
        while requests.len() < BATCH && next < elements {
            let mut request = vec![verb.to_owned(), "big".to_owned()];
            let end = (next + each).min(elements);
            for n in next..end {
                request.extend(with_number.then(|| score(n)));
                request.push(element(n));
                request.extend(with_value.then(|| "value".to_owned()));
            }
            requests.push(request);
            next = end;
        }
        client.pipeline(&requests)?;
        after_batch()?;
    }
    Ok(())
}

fn element(number: usize) -> String {
    format!("element:{number}")
}

/// Returns the score of element `number`. Successive elements have unordered scores.
fn score(number: usize) -> String {
    ((number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 24).to_string()
}

/// Removes all elements of the big value, a few per request, by the command `name`.
fn shrink(
    client: &mut Client,
    kind: &str,
    verb: &str,
    elements: usize,
    after_batch: &mut dyn FnMut() -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let request = |first: usize| -> Vec<String> {
        let mut request = vec![verb.to_owned(), "big".to_owned()];
        match verb {
            "LTRIM" => request.extend([ELEMENTS_PER_REQUEST.to_string(), "-1".to_owned()]),
            "SPOP" | "ZPOPMIN" | "LPOP" => request.push(ELEMENTS_PER_REQUEST.to_string()),
            _ => request.extend((first..first + ELEMENTS_PER_REQUEST).map(element)),
        }
        request
    };
    for batch in 0..elements.div_ceil(BATCH * ELEMENTS_PER_REQUEST) {
        let requests: Vec<_> =
            (0..BATCH).map(|at| request((batch * BATCH + at) * ELEMENTS_PER_REQUEST)).collect();
        for reply in client.pipeline(&requests)? {
            if matches!(reply, Value::Error(_)) {
                return Err(format!("{verb} of a {kind}: {reply:?}").into());
            }
        }
        after_batch()?;
    }
    Ok(())
}
