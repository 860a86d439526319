//! TLS sessions that clients may resume. With tickets, the client stores the session. Sessions of
//! TLS 1.2 with an identifier are stored in this module. Both kinds are valid for
//! `tls-session-cache-timeout`. At most `tls-session-cache-size` sessions are stored; the oldest
//! are removed first.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::server::{NoServerSessionStorage, ProducesTickets, StoresServerSessions};

/// Maximum number of stored sessions. `tls-session-cache-size 0`, which means no limit in Redis,
/// uses this number too.
const SESSIONS_MAX: usize = 1 << 20;
/// Number of session tickets that a TLS 1.3 client receives with each handshake. One is enough: the
/// next handshake gives the client a new ticket.
const TICKETS: usize = 1;

/// The keys of a server's session tickets, and the TLS sessions that the server has stored. Clones
/// of this value share them.
#[derive(Clone, Debug)]
pub struct Resumption {
    tickets: Arc<Tickets>,
    sessions: Arc<Sessions>,
}

impl Resumption {
    /// Creates a store without sessions, for the values of `tls-session-cache-size` and
    /// `tls-session-cache-timeout`. A timeout of 0 means no limit.
    /// # Errors
    /// If the system has no random numbers.
    pub fn new(size: usize, timeout_s: u32) -> Result<Self, String> {
        let inner = Ticketer::new().map_err(|error| error.to_string())?;
        let count_max = if size == 0 { SESSIONS_MAX } else { size.min(SESSIONS_MAX) };
        let timeout_s = if timeout_s == 0 { u32::MAX } else { timeout_s };
        Ok(Self {
            tickets: Arc::new(Tickets { inner, timeout_s }),
            sessions: Arc::new(Sessions { kept: Mutex::default(), count_max, timeout_s }),
        })
    }

    /// Configures a server to resume the TLS sessions of `resumption`; `None` turns resumption off.
    pub fn put_into(resumption: Option<&Self>, config: &mut ServerConfig) {
        match resumption {
            Some(resumption) => {
                config.ticketer = Arc::clone(&resumption.tickets) as Arc<dyn ProducesTickets>;
                config.session_storage = Arc::clone(&resumption.sessions) as Arc<dyn StoresServerSessions>;
                config.send_tls13_tickets = TICKETS;
            }
            None => {
                config.session_storage = Arc::new(NoServerSessionStorage {});
                config.send_tls13_tickets = 0;
            }
        }
    }
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The producer of session tickets, based on that of rustls, whose keys change every six hours.
/// Each ticket contains its creation time.
struct Tickets {
    inner: Arc<dyn ProducesTickets>,
    timeout_s: u32,
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        self.inner.enabled()
    }

    fn lifetime(&self) -> u32 {
        self.timeout_s.min(self.inner.lifetime())
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let dated = [&now().as_secs().to_be_bytes()[..], plain].concat();
        self.inner.encrypt(&dated)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let dated = self.inner.decrypt(ticket)?;
        let (made, plain) = dated.split_first_chunk::<8>()?;
        let age_s = now().as_secs().checked_sub(u64::from_be_bytes(*made))?;
        (age_s <= u64::from(self.timeout_s)).then(|| plain.to_vec())
    }
}

impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tickets")
    }
}

/// The stored TLS sessions by their identifiers. No other lock is taken under the lock.
struct Sessions {
    kept: Mutex<CachedSession>,
    count_max: usize,
    timeout_s: u32,
}

#[derive(Default)]
struct CachedSession {
    by_id: HashMap<Vec<u8>, (u64, Vec<u8>)>,
    /// The identifiers of the TLS sessions, in the order in which the sessions were stored. They
    /// include those of sessions that were removed.
    order: VecDeque<Vec<u8>>,
}

impl Sessions {
    fn lock(&self) -> std::sync::MutexGuard<'_, CachedSession> {
        self.kept.lock().expect("nothing panics while the sessions are locked")
    }

    fn is_fresh(&self, made_s: u64) -> bool {
        now().as_secs().saturating_sub(made_s) <= u64::from(self.timeout_s)
    }
}

impl StoresServerSessions for Sessions {
    fn put(&self, id: Vec<u8>, session: Vec<u8>) -> bool {
        let mut kept = self.lock();
        while kept.order.len() >= self.count_max {
            let Some(oldest) = kept.order.pop_front() else { break };
            kept.by_id.remove(&oldest);
        }
        kept.order.push_back(id.clone());
        kept.by_id.insert(id, (now().as_secs(), session));
        true
    }

    fn get(&self, id: &[u8]) -> Option<Vec<u8>> {
        let kept = self.lock();
        let (made_s, session) = kept.by_id.get(id)?;
        self.is_fresh(*made_s).then(|| session.clone())
    }

    fn take(&self, id: &[u8]) -> Option<Vec<u8>> {
        let (made_s, session) = self.lock().by_id.remove(id)?;
        self.is_fresh(made_s).then_some(session)
    }

    fn can_cache(&self) -> bool {
        true
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sessions")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_kept_up_to_their_number() {
        let resumption = Resumption::new(3, 300).expect("randomness");
        for id in 0..5_u8 {
            assert!(resumption.sessions.put(vec![id], vec![id; 9]));
        }
        let found: Vec<bool> = (0..5).map(|id| resumption.sessions.get(&[id]).is_some()).collect();
        assert_eq!(found, [false, false, true, true, true]);
        assert_eq!(resumption.sessions.take(&[4]), Some(vec![4; 9]));
        assert_eq!(resumption.sessions.get(&[4]), None);
    }

    #[test]
    fn tickets_say_when_they_were_made() {
        let resumption = Resumption::new(0, 5).expect("randomness");
        let ticket = resumption.tickets.encrypt(b"state").expect("encrypted");
        assert_eq!(resumption.tickets.decrypt(&ticket), Some(b"state".to_vec()));
        let old = [&(now().as_secs() - 6).to_be_bytes()[..], b"state"].concat();
        let old = resumption.tickets.inner.encrypt(&old).expect("encrypted");
        assert_eq!(resumption.tickets.decrypt(&old), None);
        assert_eq!(resumption.tickets.lifetime(), 5);
    }
}
