//! The steps before and after the copy: questions to both servers, switching keyspace events on and
//! off, and copying functions.

use resp::Value;

use crate::client::Client;
use crate::event::with_events;
use crate::lane::Dialect;
use crate::scan::databases_in;
use crate::verdict::{ExpiryForm, Method};

/// The maximum number of databases that the search for their number tries.
const DATABASES_MAX: u32 = 1 << 20;

/// Returns the error text of `reply`; `None` if the reply is not an error.
fn error(reply: &Value) -> Option<String> {
    reply.is_error().then(|| reply.as_bytes().unwrap_or_default().escape_ascii().to_string())
}

/// Reads the databases with keys and their numbers of keys. Without the right to call INFO, returns
/// database 0 only.
pub fn databases(server: &mut Client) -> Result<Vec<(u32, u64)>, String> {
    let reply = server.one(&[b"INFO", b"keyspace"])?;
    if !reply.is_error() {
        return Ok(databases_in(reply.as_bytes().unwrap_or_default()));
    }
    let Value::Integer(keys) = server.one(&[b"DBSIZE"])? else { return Ok(vec![(0, 0)]) };
    Ok(if keys > 0 { vec![(0, keys.unsigned_abs())] } else { Vec::new() })
}

/// Returns the number of databases of `server`, which its replies to SELECT show.
pub fn count_databases(server: &mut Client) -> Result<u32, String> {
    let mut exists = |db: u32| -> Result<bool, String> {
        Ok(!server.one(&[b"SELECT", db.to_string().as_bytes()])?.is_error())
    };
    let (mut low, mut high) = (0, 1);
    while high < DATABASES_MAX && exists(high)? {
        (low, high) = (high, high * 2);
    }
    // `low` exists, and `high` does not.
    while high - low > 1 {
        let middle = low.midpoint(high);
        if exists(middle)? { low = middle } else { high = middle }
    }
    exists(0)?;
    Ok(high)
}

/// Determines the commands, known to both servers, by which expiries are read and values are
/// compared.
pub fn dialect(source: &mut Client, target: &mut Client) -> Result<Dialect, String> {
    let mut both_know = |words: &[&[u8]]| -> Result<bool, String> {
        Ok(!source.one(words)?.is_error() && !target.one(words)?.is_error())
    };
    let expiry = if both_know(&[b"PEXPIRETIME", b""])? { ExpiryForm::Absolute } else { ExpiryForm::Relative };
    let method = if both_know(&[b"DEBUG", b"DIGEST-VALUE", b""])? { Method::Digest } else { Method::Payload };
    Ok(Dialect { expiry, method })
}

/// The value that the option `notify-keyspace-events` of the source had before the copy, if the
/// copy has changed it.
#[derive(Debug)]
pub struct Notify {
    before: Option<String>,
}

impl Notify {
    /// Changes `notify-keyspace-events` of the source so that it sends events for all changes.
    /// Returns a warning instead of the state if the source refuses the change.
    pub fn enable(source: &mut Client) -> Result<Result<Self, String>, String> {
        let reply = source.one(&[b"CONFIG", b"GET", b"notify-keyspace-events"])?;
        let present = match &reply {
            Value::Array(pair) => pair.get(1).and_then(Value::as_bytes),
            _ => None,
        };
        let Some(present) = present else {
            let reason = error(&reply).unwrap_or_else(|| "there is no such option".to_owned());
            return Ok(Err(format!(
                "cannot read notify-keyspace-events of the source ({reason}). Changes during the copy are \
                 followed only if it is set to AE or more"
            )));
        };
        let present = String::from_utf8_lossy(present).into_owned();
        let Some(wanted) = with_events(&present) else { return Ok(Ok(Self { before: None })) };
        let reply = source.one(&[b"CONFIG", b"SET", b"notify-keyspace-events", wanted.as_bytes()])?;
        Ok(match error(&reply) {
            None => Ok(Self { before: Some(present) }),
            Some(reason) => Err(format!(
                "cannot set notify-keyspace-events of the source ({reason}), which is {present:?}. Changes \
                 during the copy are followed only if it is set to AE or more"
            )),
        })
    }

    /// Sets the option `notify-keyspace-events` of the source to its value before the copy.
    pub fn restore(&self, source: &mut Client) -> Result<(), String> {
        let Some(before) = &self.before else { return Ok(()) };
        let reply = source.one(&[b"CONFIG", b"SET", b"notify-keyspace-events", before.as_bytes()])?;
        match error(&reply) {
            None => Ok(()),
            Some(reason) => Err(format!("notify-keyspace-events is not set back to {before:?}: {reason}")),
        }
    }
}

/// Copies the libraries of functions. Returns a note about what was not copied, if anything.
pub fn copy_functions(source: &mut Client, target: &mut Client) -> Result<Option<String>, String> {
    let reply = source.one(&[b"FUNCTION", b"DUMP"])?;
    let Value::Bulk(payload) = &reply else {
        let reason = error(&reply).unwrap_or_else(|| "no reply of bytes".to_owned());
        // Servers before Redis 7 have none.
        let is_unknown = reason.starts_with("ERR unknown command");
        return Ok((!is_unknown).then(|| format!("functions are not copied: {reason}")));
    };
    let restored = target.one(&[b"FUNCTION", b"RESTORE", payload, b"REPLACE"])?;
    if !restored.is_error() {
        return Ok(None);
    }
    let list = source.one(&[b"FUNCTION", b"LIST", b"WITHCODE"])?;
    let Value::Array(libraries) = &list else {
        return Ok(error(&restored).map(|reason| format!("functions are not copied: {reason}")));
    };
    for library in libraries {
        let Value::Array(facts) = library else { continue };
        let code = facts.chunks(2).find(|pair| pair[0].as_bytes() == Some(b"library_code"));
        let Some(code) = code.and_then(|pair| pair.get(1)).and_then(Value::as_bytes) else { continue };
        let loaded = target.one(&[b"FUNCTION", b"LOAD", b"REPLACE", code])?;
        if let Some(reason) = error(&loaded) {
            return Ok(Some(format!("a library of functions is not copied: {reason}")));
        }
    }
    Ok(None)
}
