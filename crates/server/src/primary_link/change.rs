//! The changes of the role that an operator requests: by the command REPLICAOF, or by the option
//! `replicaof` at the start.

use std::sync::Arc;

use engine::threads::Outbox;
use keyspace::Exclusive;
use resp::Reply;
use stdx::ByteQueue;

use super::engine_role::update_engine;
use super::{role, starter};
use crate::config::table::replication::REPLICAOF;
use crate::logging;
use crate::replication::upstream::PrimaryAddress;
use crate::shared::{Message, Shared};

/// The error reply of clients that are blocked when a primary becomes a replica. The text is that
/// of Redis.
const UNBLOCKED: &str =
    "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)";

/// Makes this server a replica of the primary at `address`, which is not its present one. Starts
/// the thread `primary-link`, which opens the link. Blocked clients get an error and are
/// disconnected, as in Redis. The caller is the exclusive owner of the keyspace.
pub fn follow(shared: &Arc<Shared>, alone: &Exclusive, address: PrimaryAddress, outbox: &Outbox) {
    REPLICAOF.put_words(&mut shared.config(), option_words(&address));
    role::follow(shared, alone, address, outbox);
    starter::start(shared);
    disconnect_blocked(shared, outbox);
    logging::show_replica();
    has_changed(shared);
}

/// Makes this replica a primary. The caller is the exclusive owner of the keyspace.
pub fn promote(shared: &Arc<Shared>, alone: &Exclusive, outbox: &Outbox) {
    REPLICAOF.put_words(&mut shared.config(), Vec::new());
    role::promote(shared, alone, outbox);
    logging::show_primary();
    has_changed(shared);
}

/// Makes this server a replica if the option `replicaof` names a primary. Called before the server
/// loads its data and serves clients. [`open_link_at_start`] opens the link.
pub fn follow_at_start(shared: &Arc<Shared>) {
    let configured = primary_of(REPLICAOF.of(&shared.config()));
    if let Some(address) = configured {
        let outbox = Outbox::default();
        shared.engine.gate.exclusive(|alone| role::follow(shared, alone, address, &outbox));
        shared.wake(&outbox);
        logging::show_replica();
    }
    update_engine(shared);
}

/// Starts the thread `primary-link` if [`follow_at_start`] has made this server a replica. The
/// thread opens the link once the server has loaded its own data. So the primary may continue the
/// replication stream from the point of this data. Called after the load has begun.
pub fn open_link_at_start(shared: &Arc<Shared>) {
    if shared.replication.upstream.is_replica() {
        starter::start(shared);
    }
}

/// Returns the primary that the words of the option `replicaof` name; `None` if they name none.
fn primary_of(words: &[Vec<u8>]) -> Option<PrimaryAddress> {
    let [host, port] = words else { return None };
    let port = std::str::from_utf8(port).ok()?.parse().ok()?;
    Some(PrimaryAddress { host: String::from_utf8_lossy(host).into_owned(), port })
}

/// Returns the words of the option `replicaof` that name the primary at `address`.
fn option_words(address: &PrimaryAddress) -> Vec<Vec<u8>> {
    vec![address.host.clone().into_bytes(), address.port.to_string().into_bytes()]
}

/// Passes the new role to the engine, and resumes clients whose requests were postponed.
fn has_changed(shared: &Arc<Shared>) {
    update_engine(shared);
    shared.broadcast(|| Message::Resume);
}

/// Replies to all blocked clients with an error, and disconnects them. O(clients).
fn disconnect_blocked(shared: &Shared, outbox: &Outbox) {
    let engine::Shared { clients, blocked, threads, .. } = &shared.engine;
    for waiter in clients.all().iter().filter_map(|client| blocked.of(client)) {
        // Otherwise the client has just been served, and continues.
        if blocked.end(&waiter) {
            shared.engine.count_failure(waiter.thread, waiter.registered, UNBLOCKED.as_bytes());
            let mut reply = ByteQueue::new();
            Reply::new(&mut reply, waiter.protocol).error(UNBLOCKED);
            let delivery = engine::threads::Delivery { closes: true, ..waiter.delivery(reply) };
            threads.deliver(waiter.thread, delivery, outbox);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_names_the_primary_that_is_followed() {
        let address = PrimaryAddress { host: "10.0.0.1".to_owned(), port: 6380 };
        assert_eq!(primary_of(&option_words(&address)), Some(address));
        assert_eq!(primary_of(&[]), None);
    }
}
