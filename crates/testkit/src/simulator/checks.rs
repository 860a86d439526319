//! The checks of replies, data and the engine's tables at the end of a run of the simulator.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;

use engine::log::level::Level;
use engine::log::target::{LogTarget, Targets};
use engine::threads::Outbox;

use super::network::{Crash, Outcome};
use super::replay::{Contents, Inspector, expire_all, replay};
use super::replica::check_order;
use super::scenario::Scenario;
use super::scripted_client::ScriptedClient;
use super::targeted::is_for;
use super::world::World;
use crate::linearizability::{History, Operation, check, check_prefix};
use crate::sequential::keys_of;

/// The client number under which the model records the reads of the content that a crash has left.
const READER: usize = usize::MAX;

/// Checks the state of the engine after its threads have ended, and records each violation.
pub(super) fn check_engine(world: &World, outcome: &Outcome) {
    // The clients have disconnected, perhaps during a pause.
    world.engine.pause.until_ms.store(0, Relaxed);
    world.pause.finding().into_iter().for_each(|finding| world.find(finding));
    nothing_is_left(world);
    caches_are_current(world, outcome);
    events_are_complete(world, outcome);
    if world.engine.log.is_attached() {
        the_log_is_the_data(world);
    }
    if world.engine.log.targets().contains(Targets::REPLICAS) {
        messages_are_in_order(world, outcome);
    }
    for crash in &outcome.crashes {
        if let Err(finding) = acknowledged_changes_are_there(crash, outcome) {
            world.find(format!("after a crash at {}: {finding}", crash.step));
        }
    }
}

/// Checks that the part of the change log which survives a crash can be replayed. It must contain
/// every increment whose keyspace event a listener had received before.
fn acknowledged_changes_are_there(crash: &Crash, outcome: &Outcome) -> Result<(), String> {
    let (replica, clock) = replay(&crash.left)?;
    let mut inspector = Inspector::new(&replica, &clock);
    for scripted_client in outcome.players.iter().filter(|client| client.level == Level::Synced) {
        for key in scripted_client.increments.keys() {
            let received = scripted_client
                .received
                .iter()
                .filter(|(step, received)| step <= &crash.step && received == key)
                .count();
            let value = inspector.run(&[b"GET".to_vec(), key.clone()]);
            let value = value.as_bytes().and_then(stdx::number::parse_i64).unwrap_or(0);
            if received as i64 > value {
                return Err(format!(
                    "{received} increments of {} were heard of, {value} are there",
                    key.escape_ascii()
                ));
            }
        }
    }
    Ok(())
}

/// Checks that no queue or table of the engine holds an entry after all clients have disconnected.
fn nothing_is_left(world: &World) {
    let shared = &world.engine;
    let mut left = vec![
        ("clients", shared.clients.count()),
        ("blocked clients", shared.blocked.blocked_clients().load(Relaxed)),
        ("keys with blocked clients", shared.blocked.blocking_keys()),
        ("watching clients", shared.watchers.clients().load(Relaxed)),
        ("tracking clients", shared.tracking.clients()),
        ("tracked keys", shared.tracking.items()),
        ("subscribers", shared.pubsub.client_count()),
        ("patterns", shared.pubsub.pattern_count()),
        ("bytes of pushes", shared.pubsub.push_bytes().load(Relaxed) as usize),
        ("bytes of the log", shared.log.pending_bytes()),
        ("values to free", shared.freeing.pending_objects() as usize),
    ];
    for thread in 0..world.threads() {
        let inbound = shared.threads.take(thread).unwrap_or_default();
        left.push(("replies in an inbox", inbound.deliveries.len()));
    }
    for (what, count) in left.into_iter().filter(|&(_, count)| count > 0) {
        world.find(format!("{count} {what} are left when all clients have gone"));
    }
}

/// Checks that each value in a client-side cache equals the server's value. A difference means that
/// an invalidation was not sent.
fn caches_are_current(world: &World, outcome: &Outcome) {
    let mut inspector = Inspector::new(&world.engine, &world.clock);
    for (at, scripted_client) in outcome.players.iter().enumerate() {
        for (key, cached) in &scripted_client.cache {
            let value = inspector.run(&[b"GET".to_vec(), key.clone()]);
            // RESP2 and RESP3 have the same missing value here.
            if value != *cached {
                let key = key.escape_ascii();
                world.find(format!("client {at} has {key} = {cached} in its cache, the server {value}"));
            }
        }
    }
}

/// Checks that no listener received more increment events for a key than the key's final value.
fn events_are_complete(world: &World, outcome: &Outcome) {
    let mut inspector = Inspector::new(&world.engine, &world.clock);
    for (at, scripted_client) in outcome.players.iter().enumerate() {
        for (key, &received) in &scripted_client.increments {
            let value = inspector.run(&[b"GET".to_vec(), key.clone()]);
            let value = value.as_bytes().and_then(stdx::number::parse_i64).unwrap_or(0);
            if received > value {
                let key = key.escape_ascii();
                world.find(format!("client {at} heard of {received} increments of {key}, which is {value}"));
            }
        }
    }
}

/// Checks that a replay of the change log for each target gives the data, expiries included.
fn the_log_is_the_data(world: &World) {
    expire_all(&world.engine, &world.clock);
    let outbox = Outbox::default();
    world.engine.log.merge(&outbox);
    world.disk.sync(&world.engine, &outbox);
    replays_to_the_data(world, LogTarget::File, &world.disk.synced());
    if world.engine.log.targets().contains(Targets::REPLICAS) {
        replays_to_the_data(world, LogTarget::Replicas, &world.replica.stream());
    }
}

/// Checks that a replay of the change log's stream for a target gives the data, without the keys
/// not written for it.
fn replays_to_the_data(world: &World, target: LogTarget, stream: &[u8]) {
    let (replica, clock) = match replay(stream) {
        Ok(replayed) => replayed,
        Err(finding) => return world.find(format!("{target:?}: {finding}")),
    };
    let mut expected = Inspector::new(&world.engine, &world.clock).contents();
    expected.retain(|(_, key), _| is_for(target, key));
    let replayed = Inspector::new(&replica, &clock).contents();
    if let Some(difference) = difference(&expected, &replayed) {
        world.find(format!("the replayed log for {target:?} is not the data: {difference}"));
    }
}

/// Checks that the replication stream has published messages in the order in which listeners
/// received them.
fn messages_are_in_order(world: &World, outcome: &Outcome) {
    let published = world.replica.published();
    for (at, scripted_client) in outcome.players.iter().enumerate() {
        for received in &scripted_client.messages {
            if let Err(finding) = check_order(&published, received) {
                world.find(format!("client {at}: {finding}"));
            }
        }
    }
}

/// Describes the first key whose expected and replayed contents differ; `None` if there is no
/// difference.
fn difference(expected: &Contents, replayed: &Contents) -> Option<String> {
    let keys: BTreeSet<_> = expected.keys().chain(replayed.keys()).collect();
    let differing = keys.into_iter().find(|key| expected.get(key) != replayed.get(key))?;
    let (db, key) = differing;
    let show = |contents: &Contents| contents.get(differing).map_or("missing", |text| text).to_owned();
    let (held, made) = (show(expected), show(replayed));
    Some(format!("{} of database {db} holds {held}; replayed: {made}", key.escape_ascii()))
}

/// Checks the recorded replies to clients against the model of Redis. Needs no engine.
pub(super) fn check_histories(
    scenario: &Scenario,
    outcome: &Outcome,
    crashes: &[(u64, History)],
) -> Vec<String> {
    if !scenario.kind.is_modelled() {
        return Vec::new();
    }
    let history: History =
        outcome.players.iter().flat_map(|scripted_client| scripted_client.history.clone()).collect();
    let mut findings = Vec::new();
    if let Err(counterexample) = check(&history) {
        findings.push(format!("no order of the commands explains the replies:\n{counterexample}"));
    }
    for (step, reads) in crashes {
        let mut history = history_at(&history, *step, &outcome.players);
        history.extend_from_slice(reads);
        if let Err(counterexample) = check_prefix(&history, u64::MAX - 1) {
            let what = "what clients were told is not what the disk holds";
            findings.push(format!("after a crash at {step} {what}:\n{counterexample}"));
        }
    }
    findings
}

/// Returns the operations begun by step `step`, the moment of a crash. An operation that was
/// not answered by then may have taken effect or not. The same holds for clients whose replies do
/// not wait for a sync.
///
/// The change of a blocked client that is served follows in the log the change of the client that
/// served it. A crash between the two leaves the element in its list, and the blocked client has
/// received no reply. So a blocking command is changed into one that takes effect at one instant
/// and pops an existing element.
fn history_at(history: &[Operation], step: u64, players: &[ScriptedClient]) -> History {
    let mut at_the_step = History::new();
    // The begin and the end of a wait follow each other.
    let mut begun = 0;
    for operation in history {
        let mut operation = operation.clone();
        match &*operation.args[0] {
            b"BEGIN" => {
                begun = operation.invoked;
                continue;
            }
            b"END" => {
                operation.args.remove(0);
                operation.args.push(b"0".to_vec());
                operation.invoked = begun;
            }
            _ => {}
        }
        let sent = |player: &&ScriptedClient| player.sent(&operation);
        let is_durable = players.iter().find(sent).is_none_or(|player| player.level == Level::Synced);
        if operation.returned > step || !is_durable {
            operation.returned = u64::MAX;
        }
        if operation.invoked <= step {
            at_the_step.push(operation);
        }
    }
    at_the_step
}

/// Returns the content after a crash as operations of one client that reads each key of `history`.
pub(super) fn reads_after(crash: &Crash, history: &[Operation]) -> History {
    let Ok((replica, clock)) = replay(&crash.left) else { return Vec::new() };
    let mut inspector = Inspector::new(&replica, &clock);
    let named = history.iter().filter_map(|operation| keys_of(&operation.args)).flatten();
    let keys: BTreeSet<Vec<u8>> = named.collect();
    let mut reads = History::new();
    for key in keys {
        let words = |line: &[&str]| -> Vec<Vec<u8>> {
            let mut args: Vec<Vec<u8>> = line.iter().map(|word| word.as_bytes().to_vec()).collect();
            args.insert(1, key.clone());
            args
        };
        let mut read = |args: Vec<Vec<u8>>| {
            let reply = inspector.run(&args);
            let (invoked, returned) = (crash.step + 1, crash.step + 2);
            reads.push(Operation { client: READER, args, reply: reply.clone(), invoked, returned });
            reply
        };
        let kind = read(words(&["TYPE"]));
        match kind.as_bytes().unwrap_or_default() {
            b"string" => drop(read(words(&["GET"]))),
            b"list" => drop(read(words(&["LRANGE", "0", "-1"]))),
            b"set" => drop(read(words(&["SMEMBERS"]))),
            b"zset" => drop(read(words(&["ZRANGE", "0", "-1"]))),
            b"hash" => {
                (0..4).for_each(|field| drop(read(words(&["HGET", &format!("m{field}")]))));
            }
            _ => {}
        }
    }
    reads
}
