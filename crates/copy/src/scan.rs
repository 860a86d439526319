//! The state of a scan (SCAN) over databases. It keeps the cursor from which the scan continues,
//! also after a lost connection.

use std::collections::VecDeque;

use resp::Value;

/// A scan (SCAN) over the keys of some databases, one after the other.
#[derive(Debug, Default)]
pub struct Scan {
    databases: VecDeque<u32>,
    /// The cursor of SCAN in the first remaining database: the text from the server's last reply.
    cursor: Vec<u8>,
    is_waiting: bool,
}

impl Scan {
    /// Creates a scan (SCAN) over all keys of `databases`.
    pub fn over(databases: &[u32]) -> Self {
        Self { databases: databases.iter().copied().collect(), cursor: b"0".to_vec(), is_waiting: false }
    }

    /// Returns the next SCAN request, as a database and a cursor. `None` while a reply is awaited
    /// and after the end.
    pub fn request(&mut self) -> Option<(u32, &[u8])> {
        let db = *self.databases.front()?;
        if std::mem::replace(&mut self.is_waiting, true) {
            return None;
        }
        Some((db, &self.cursor))
    }

    /// Handles the reply of SCAN. Returns the database and its keys, or the server's error.
    pub fn reply(&mut self, reply: Value) -> Result<(u32, Vec<Value>), String> {
        self.is_waiting = false;
        let db = *self.databases.front().ok_or("a reply without a request")?;
        match reply {
            Value::Array(parts) => match <[Value; 2]>::try_from(parts) {
                Ok([Value::Bulk(cursor), Value::Array(keys)]) => {
                    if cursor == b"0" {
                        self.databases.pop_front();
                    }
                    self.cursor = cursor;
                    Ok((db, keys))
                }
                _ => Err("SCAN: an unexpected reply".to_owned()),
            },
            Value::Error(error) => Err(format!("SCAN: {}", error.escape_ascii())),
            other => Err(format!("SCAN: an unexpected reply: {other}")),
        }
    }

    /// Forgets the SCAN request whose reply was lost with the connection. The next request has the
    /// same cursor.
    pub fn lost(&mut self) {
        self.is_waiting = false;
    }

    /// Returns true after the last reply of SCAN for the last database.
    pub fn is_done(&self) -> bool {
        self.databases.is_empty()
    }
}

/// Returns the databases and their numbers of keys, as INFO keyspace lists them.
pub fn databases_in(info: &[u8]) -> Vec<(u32, u64)> {
    let text = String::from_utf8_lossy(info);
    let entry = |line: &str| {
        let (db, facts) = line.strip_prefix("db")?.split_once(":keys=")?;
        let keys = facts.split(',').next()?.trim().parse().ok()?;
        Some((db.parse().ok()?, keys))
    };
    text.lines().filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(cursor: &str, keys: &[&str]) -> Value {
        let bulk = |text: &&str| Value::Bulk(text.as_bytes().to_vec());
        Value::Array(vec![bulk(&cursor), Value::Array(keys.iter().map(bulk).collect())])
    }

    #[test]
    fn a_scan_goes_on_from_its_cursor_after_a_loss() {
        let mut scan = Scan::over(&[0, 5]);
        assert_eq!(scan.request(), Some((0, &b"0"[..])));
        assert_eq!(scan.request(), None);
        assert_eq!(scan.reply(reply("17", &["a"])).unwrap(), (0, vec![Value::Bulk(b"a".to_vec())]));
        assert_eq!(scan.request(), Some((0, &b"17"[..])));
        scan.lost();
        assert_eq!(scan.request(), Some((0, &b"17"[..])));
        assert_eq!(scan.reply(reply("0", &[])).unwrap().0, 0);
        assert_eq!(scan.request(), Some((5, &b"0"[..])));
        assert!(!scan.is_done());
        scan.reply(reply("0", &["b"])).unwrap();
        assert!(scan.is_done());
        assert_eq!(scan.request(), None);
    }

    #[test]
    fn errors_of_the_server_are_passed_on() {
        let mut scan = Scan::over(&[0]);
        scan.request();
        assert_eq!(scan.reply(Value::Error(b"NOPERM no".to_vec())), Err("SCAN: NOPERM no".to_owned()));
        assert!(Scan::default().is_done());
    }

    #[test]
    fn databases_are_read_from_info() {
        let info = b"# Keyspace\r\ndb0:keys=12,expires=1,avg_ttl=0\r\ndb15:keys=3,expires=0\r\n";
        assert_eq!(databases_in(info), [(0, 12), (15, 3)]);
        assert_eq!(databases_in(b"# Keyspace\r\n"), []);
    }
}
