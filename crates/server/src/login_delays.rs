//! Failed logins by address, and the delay of the next login from an address with many failures.
//!
//! The first [`FREE_FAILURES`] failures of an address cause no delay. One failure is forgiven after
//! each [`FORGIVEN_EACH_MS`]. After these failures, the address has one slot per
//! `auth-failure-delay` milliseconds. Each login attempt, with a right or wrong password, waits for
//! the next free slot and takes it. So an address can test only one password per slot, with any
//! number of connections. An attempt that would wait for more than [`SLOTS_WAITING_MAX`] slots is
//! rejected before its password is checked. Only the connection waits, not its I/O thread.
//!
//! An attacker behind a shared address (NAT) could take all slots and thus lock out the other
//! clients. Therefore the last [`KNOWN_USERS_MAX`] users that logged in from an address have their
//! own slots there. Attempts with the name of such a user wait only for attempts with the same
//! name.
//!
//! An address here is an IPv4 address or the first 64 bits of an IPv6 address, because one network
//! receives that prefix. Loopback and Unix-socket clients are never delayed, because they may be a
//! proxy with many users. The size of the table is limited. A new address replaces one without a
//! delay, if there is one, and of these the one without attempts for longest. So an attacker with
//! very many addresses can displace other addresses.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};

use net::Address;

/// Number of failed logins of an address at which its further login attempts are delayed.
const FREE_FAILURES: u32 = 10;
/// Time after which one failed login of an address is forgiven, in milliseconds.
const FORGIVEN_EACH_MS: u64 = 60_000;
/// Maximum number of time slots for which a login attempt may wait.
const SLOTS_WAITING_MAX: u64 = 10;
/// Maximum number of addresses in the table of failed logins.
const ADDRESSES_MAX: usize = 4096;
/// Maximum number of users per address whose login attempts have their own time slots. A further
/// user replaces the one that was added first.
const KNOWN_USERS_MAX: usize = 8;

/// The error reply to a login attempt that is rejected because of many failures.
pub const TOO_MANY_FAILED_LOGINS: &str = "ERR too many failed logins from this address, try again later";

/// The delay of a login attempt, which the table of failed logins decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delay {
    /// The login attempt is not delayed.
    None,
    /// A delay until this time, in milliseconds of the server's clock.
    Until(u64),
    /// The attempt is rejected at once, without a check of the password.
    Refused,
}

/// The table of failed logins by address; the module describes it. Only logins take its lock, and
/// no other lock is taken under it.
#[derive(Debug, Default)]
pub struct LoginDelays {
    addresses: Mutex<HashMap<Network, LoginRecord>>,
    /// The hasher of user names. Its key is random, so that clients cannot find two names with the
    /// same hash.
    hasher: RandomState,
    delayed: AtomicU64,
    refused: AtomicU64,
}

/// The IPv4 address, or the first 64 bits of the IPv6 address, by which failed logins are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Network {
    V4([u8; 4]),
    V6([u8; 8]),
}

/// The failed logins, the time slots for login attempts, and the known users of an address. Times
/// are of the server's clock.
#[derive(Clone, Debug)]
struct LoginRecord {
    failures: u32,
    /// The time up to which failed logins were forgiven, in milliseconds of the server's clock.
    counted_ms: u64,
    /// The time of the last login attempt from the address, in milliseconds of the server's clock.
    seen_ms: u64,
    /// The time of the first free slot for users without their own slots, in milliseconds of the
    /// server's clock.
    next_slot_ms: u64,
    known: Vec<KnownUser>,
}

#[derive(Clone, Copy, Debug)]
struct KnownUser {
    name_hash: u64,
    next_slot_ms: u64,
}

impl LoginRecord {
    /// Removes the failed logins that are forgiven by `now_ms`. Returns true if login attempts must
    /// still be delayed.
    fn must_wait(&mut self, now_ms: u64) -> bool {
        let forgiven = now_ms.saturating_sub(self.counted_ms) / FORGIVEN_EACH_MS;
        self.failures = self.failures.saturating_sub(u32::try_from(forgiven).unwrap_or(u32::MAX));
        self.counted_ms += forgiven * FORGIVEN_EACH_MS;
        self.failures >= FREE_FAILURES
    }
}

impl LoginDelays {
    /// Takes a time slot for an attempt of `peer` to log in as `user`, if such attempts must wait.
    /// Returns the delay of the attempt. `delay_ms` is `auth-failure-delay`. O(1).
    #[cold]
    pub fn take_slot(&self, peer: &Address, user: &[u8], now_ms: u64, delay_ms: u64) -> Delay {
        let Some(network) = network(peer) else { return Delay::None };
        let mut addresses = self.lock();
        let Some(tries) = addresses.get_mut(&network) else { return Delay::None };
        if !tries.must_wait(now_ms) {
            return Delay::None;
        }
        tries.seen_ms = now_ms;
        let name_hash = self.hasher.hash_one(user);
        let known = tries.known.iter_mut().find(|known| known.name_hash == name_hash);
        let next_slot_ms = known.map_or(&mut tries.next_slot_ms, |known| &mut known.next_slot_ms);
        let slot_ms = (*next_slot_ms).max(now_ms.saturating_add(delay_ms));
        if slot_ms - now_ms > delay_ms.saturating_mul(SLOTS_WAITING_MAX) {
            self.refused.fetch_add(1, Relaxed);
            return Delay::Refused;
        }
        *next_slot_ms = slot_ms.saturating_add(delay_ms);
        self.delayed.fetch_add(1, Relaxed);
        Delay::Until(slot_ms)
    }

    /// Returns true if login attempts from the address `peer` must be delayed. O(1).
    #[cold]
    pub fn must_wait(&self, peer: &Address, now_ms: u64) -> bool {
        let Some(network) = network(peer) else { return false };
        self.lock().get_mut(&network).is_some_and(|tries| tries.must_wait(now_ms))
    }

    /// Records a failed login attempt from the address `peer`. O(1), O(addresses) when the table is
    /// full.
    #[cold]
    pub fn note_failure(&self, peer: &Address, now_ms: u64) {
        let Some(network) = network(peer) else { return };
        let mut addresses = self.lock();
        let tries = entry(&mut addresses, network, now_ms);
        tries.failures = tries.failures.saturating_add(1);
    }

    /// Records that `peer` has logged in as `user`. O(1), O(addresses) when the table is full.
    #[cold]
    pub fn note_success(&self, peer: &Address, user: &[u8], now_ms: u64) {
        let Some(network) = network(peer) else { return };
        let name_hash = self.hasher.hash_one(user);
        let mut addresses = self.lock();
        let tries = entry(&mut addresses, network, now_ms);
        if tries.known.iter().any(|known| known.name_hash == name_hash) {
            return;
        }
        if tries.known.len() >= KNOWN_USERS_MAX {
            tries.known.remove(0);
        }
        tries.known.push(KnownUser { name_hash, next_slot_ms: 0 });
    }

    /// Returns the number of delayed login attempts, the number of rejected ones, and the number of
    /// addresses with failed logins.
    pub fn figures(&self) -> (u64, u64, usize) {
        let failing = self.lock().values().filter(|tries| tries.failures > 0).count();
        (self.delayed.load(Relaxed), self.refused.load(Relaxed), failing)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Network, LoginRecord>> {
        self.addresses.lock().expect("nothing panics while addresses are locked")
    }
}

/// Returns the record of an address, without the failed logins that are forgiven by `now_ms`.
/// Creates a missing record, and removes another one for it if the table is full.
fn entry(addresses: &mut HashMap<Network, LoginRecord>, network: Network, now_ms: u64) -> &mut LoginRecord {
    if addresses.len() >= ADDRESSES_MAX && !addresses.contains_key(&network) {
        let rank = |tries: &LoginRecord| (tries.failures >= FREE_FAILURES, tries.seen_ms);
        let least = addresses.iter().min_by_key(|(_, tries)| rank(tries)).map(|(key, _)| *key);
        least.map(|least| addresses.remove(&least));
    }
    let fresh =
        LoginRecord { failures: 0, counted_ms: now_ms, seen_ms: now_ms, next_slot_ms: 0, known: Vec::new() };
    let tries = addresses.entry(network).or_insert(fresh);
    tries.must_wait(now_ms);
    tries.seen_ms = now_ms;
    tries
}

/// Returns the network by which failed logins from `peer` are counted: the IPv4 address, or the
/// first 64 bits of the IPv6 address. Returns `None` for an address of this machine.
fn network(peer: &Address) -> Option<Network> {
    let Address::Tcp(peer) = peer else { return None };
    match peer.ip().to_canonical() {
        ip if ip.is_loopback() => None,
        IpAddr::V4(ip) => Some(Network::V4(ip.octets())),
        IpAddr::V6(ip) => ip.octets().first_chunk().copied().map(Network::V6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(ip: &str) -> Address {
        Address::Tcp((ip.parse::<IpAddr>().expect("an address"), 1).into())
    }

    #[test]
    fn the_first_failures_are_free_then_each_try_waits_for_its_slot() {
        let delays = LoginDelays::default();
        let (bad, good) = (peer("192.0.2.1"), peer("192.0.2.2"));
        for _ in 0..FREE_FAILURES {
            assert_eq!(delays.take_slot(&bad, b"u", 1_000, 100), Delay::None);
            delays.note_failure(&bad, 1_000);
        }
        let slots = (0..11).map(|_| delays.take_slot(&bad, b"u", 1_000, 100)).collect::<Vec<_>>();
        assert_eq!(slots[..3], [Delay::Until(1_100), Delay::Until(1_200), Delay::Until(1_300)]);
        assert_eq!(slots[9..], [Delay::Until(2_000), Delay::Refused]);
        assert_eq!(delays.take_slot(&good, b"u", 1_000, 100), Delay::None);
        // After a minute one failure is forgiven.
        assert_eq!(delays.take_slot(&bad, b"u", 1_000 + FORGIVEN_EACH_MS, 100), Delay::None);
        delays.note_failure(&bad, 61_000);
        assert_eq!(delays.take_slot(&bad, b"u", 61_000, 100), Delay::Until(61_100));
        assert_eq!(delays.figures(), (11, 1, 1));
    }

    #[test]
    fn networks_are_told_apart_and_this_machine_is_free() {
        let delays = LoginDelays::default();
        for _ in 0..100 {
            for free in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
                delays.note_failure(&peer(free), 0);
            }
            delays.note_failure(&peer("2001:db8::1"), 0);
            delays.note_failure(&peer("::ffff:192.0.2.9"), 0);
        }
        let waits = |ip: &str| delays.take_slot(&peer(ip), b"u", 0, 100) != Delay::None;
        assert!(waits("2001:db8::2") && waits("192.0.2.9"));
        assert!(!waits("2001:db8:0:1::1") && !waits("127.0.0.1") && !waits("::1") && !waits("192.0.2.8"));
    }

    #[test]
    fn who_has_logged_in_from_an_address_has_slots_of_its_own() {
        let delays = LoginDelays::default();
        let shared = peer("192.0.2.1");
        (0..10).for_each(|at| delays.note_success(&shared, format!("user-{at}").as_bytes(), 0));
        (0..1_000).for_each(|_| delays.note_failure(&shared, 0));
        assert!(delays.must_wait(&shared, 0) && !delays.must_wait(&peer("192.0.2.2"), 0));
        while delays.take_slot(&shared, b"guessed", 0, 100) != Delay::Refused {}
        assert_eq!(delays.take_slot(&shared, b"user-9", 0, 100), Delay::Until(100));
        assert_eq!(delays.take_slot(&shared, b"user-2", 0, 100), Delay::Until(100));
        // This user has no own slots any more, because their number is limited.
        assert_eq!(delays.take_slot(&shared, b"user-1", 0, 100), Delay::Refused);
        // A user's own slots are bounded, too.
        let slots = (0..10).map(|_| delays.take_slot(&shared, b"user-9", 0, 100)).collect::<Vec<_>>();
        assert_eq!(slots[8..], [Delay::Until(1_000), Delay::Refused]);
    }

    #[test]
    fn the_table_is_bounded() {
        let delays = LoginDelays::default();
        for at in 0..2 * ADDRESSES_MAX as u64 {
            delays.note_failure(&peer(&format!("10.0.{}.{}", at / 256, at % 256)), at);
        }
        assert_eq!(delays.figures().2, ADDRESSES_MAX);
        let knows = |ip| delays.lock().contains_key(&Network::V4(ip));
        assert!(!knows([10, 0, 0, 0]), "the oldest is still there");
        // An address that must wait stays in the table while there are other addresses to remove.
        let attacker = peer("192.0.2.1");
        (0..FREE_FAILURES).for_each(|_| delays.note_failure(&attacker, 10_000));
        for at in 0..ADDRESSES_MAX as u64 {
            delays.note_success(&peer(&format!("10.1.{}.{}", at / 256, at % 256)), b"u", 10_001 + at);
        }
        assert!(knows([192, 0, 2, 1]));
        assert_eq!(delays.lock().len(), ADDRESSES_MAX);
    }
}
