//! Sections of INFO with counters of requests, commands, errors and keys.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use engine::log::level::Level;
use engine::publish::pubsub::Kind;
use engine::stats::compaction::CompactionStats;
use engine::stats::histogram::Times;
use engine::stats::{Counter, Denials, ThreadStats};
use keyspace::SizedType;
use keyspace::sizes::bin_start;

use super::Fields;
use crate::config::table::diagnostics;
use crate::context::unix_ms;
use crate::oidc::Oidc;
use crate::shared::Shared;

/// The names of the Keysizes section's fields, by the type of value. Redis has no field for
/// streams.
const SIZE_FIELDS: [(SizedType, &str); 6] = [
    (SizedType::String, "strings_sizes"),
    (SizedType::List, "lists_items"),
    (SizedType::Set, "sets_items"),
    (SizedType::Zset, "zsets_items"),
    (SizedType::Hash, "hashes_items"),
    (SizedType::Array, "arrays_items"),
];

/// Writes the Stats section of INFO.
pub fn stats(shared: &Shared, fields: &mut Fields) {
    requests(shared, fields);
    let replication = &shared.replication.figures;
    fields.add("sync_full", replication.sync_full.load(Relaxed));
    fields.add("sync_partial_ok", replication.sync_partial_ok.load(Relaxed));
    fields.add("sync_partial_err", replication.sync_partial_err.load(Relaxed));
    expired(shared, fields);
    evicted(shared, fields);
    fields.add("keyspace_hits", shared.engine.threads.sum(|stats| &stats.hits));
    fields.add("keyspace_misses", shared.engine.threads.sum(|stats| &stats.misses));
    fields.add("pubsub_channels", shared.engine.pubsub.channel_count(Kind::Channel));
    fields.add("pubsub_patterns", shared.engine.pubsub.pattern_count());
    fields.add("pubsubshard_channels", shared.engine.pubsub.channel_count(Kind::Shard));
    fields.zeros(&["latest_fork_usec", "total_forks"]);
    fields.add("migrate_cached_sockets", shared.migrations.count());
    fields.add("slave_expires_tracked_keys", shared.engine.server_state.role.local_deadlines.len());
    compaction(&shared.engine.upkeep.compaction, fields);
    fields.add("tracking_total_keys", shared.engine.tracking.keys());
    fields.add("tracking_total_items", shared.engine.tracking.items());
    fields.add("tracking_total_prefixes", shared.engine.tracking.prefix_count());
    fields.add("unexpected_error_replies", shared.engine.threads.sum(|stats| &stats.unexpected_errors));
    fields.add("total_error_replies", shared.engine.threads.sum(|stats| &stats.errors));
    // Every RESTORE validates its payload in depth.
    let commands = (0..shared.engine.table.id_count()).map(|id| shared.engine.table.by_id(id));
    let restores = commands.filter(|command| command.full_name == "restore");
    let payloads: u64 =
        restores.map(|restore| shared.engine.threads.sum(|stats| &stats.commands[restore.id].calls)).sum();
    fields.add("dump_payload_sanitizations", payloads);
    let (reads, writes) =
        (shared.engine.threads.sum(|stats| &stats.reads), shared.engine.threads.sum(|stats| &stats.writes));
    fields.add("total_reads_processed", reads);
    fields.add("total_writes_processed", writes);
    fields.add("io_threaded_reads_processed", reads);
    fields.add("io_threaded_writes_processed", writes);
    let query_limit = shared.engine.threads.sum(|stats| &stats.disconnections.query_limit);
    fields.add("client_query_buffer_limit_disconnections", query_limit);
    let output_limit = shared.engine.threads.sum(|stats| &stats.disconnections.output_limit);
    fields.add("client_output_buffer_limit_disconnections", output_limit);
    fields.zeros(&["reply_buffer_shrinks", "reply_buffer_expands"]);
    turns(shared, fields);
    let denied =
        |counter: fn(&Denials) -> &Counter| shared.engine.threads.sum(|stats| counter(&stats.denied));
    fields.add("acl_access_denied_auth", denied(|denied| &denied.auth));
    fields.add("acl_access_denied_cmd", denied(|denied| &denied.commands));
    fields.add("acl_access_denied_key", denied(|denied| &denied.keys));
    fields.add("acl_access_denied_channel", denied(|denied| &denied.channels));
    fields.add("acl_access_denied_db", denied(|denied| &denied.databases));
    let (delayed, refused, addresses) = shared.login_delays.figures();
    fields.add("auth_delayed", delayed);
    fields.add("auth_refused", refused);
    fields.add("auth_failing_addresses", addresses);
    let (lines, lost) = shared.audit.figures();
    fields.add("audit_log_lines", lines);
    fields.add("audit_log_lost", lost);
    let (logins, refusals, keys) = shared.oidc.as_deref().map_or((0, 0, 0), Oidc::figures);
    fields.add("oidc_logins", logins);
    fields.add("oidc_refused", refusals);
    fields.add("oidc_keys", keys);
}

/// Writes the fields of the Stats section about connections, requests and bytes.
fn requests(shared: &Shared, fields: &mut Fields) {
    let samples = &shared.samples;
    let kbps = |bytes: u64| format!("{:.2}", bytes as f64 / 1024.0);
    fields.add("total_connections_received", shared.engine.threads.sum(|stats| &stats.connections));
    fields.add("total_commands_processed", shared.engine.threads.sum(|stats| &stats.processed));
    fields.add("instantaneous_ops_per_sec", samples.ops_per_second.load(Relaxed));
    fields.add("total_net_input_bytes", shared.engine.threads.sum(|stats| &stats.input_bytes));
    fields.add("total_net_output_bytes", shared.engine.threads.sum(|stats| &stats.output_bytes));
    let replication = &shared.replication.figures;
    fields.add("total_net_repl_input_bytes", replication.input_bytes.load(Relaxed));
    fields.add("total_net_repl_output_bytes", replication.output_bytes.load(Relaxed));
    fields.add("instantaneous_input_kbps", kbps(samples.input_bytes_per_second.load(Relaxed)));
    fields.add("instantaneous_output_kbps", kbps(samples.output_bytes_per_second.load(Relaxed)));
    let (input, output) =
        (&samples.replication_input_bytes_per_second, &samples.replication_output_bytes_per_second);
    fields.add("instantaneous_input_repl_kbps", kbps(input.load(Relaxed)));
    fields.add("instantaneous_output_repl_kbps", kbps(output.load(Relaxed)));
    fields.add("rejected_connections", shared.rejected_connections.load(Relaxed));
}

/// Writes the fields of the Stats section about removed expired keys and hash fields. Commands and
/// the housekeeper remove them.
fn expired(shared: &Shared, fields: &mut Fields) {
    let expiry = &shared.engine.upkeep.expiry;
    let hash_fields = shared.engine.threads.sum(|stats| &stats.expired_fields) + expiry.fields.get();
    fields.add("expired_subkeys", hash_fields);
    let keys = shared.engine.threads.sum(|stats| &stats.expired_keys) + expiry.keys.get();
    fields.add("expired_keys", keys);
    let stale_percent = expiry.stale_millionths.load(Relaxed) as f64 / 1e4;
    fields.add("expired_stale_perc", format_args!("{stale_percent:.2}"));
    fields.add("expired_time_cap_reached_count", expiry.cut_short.get());
    fields.add("expire_cycle_cpu_milliseconds", expiry.nanos.get() / 1_000_000);
}

/// Writes the fields of the Stats section about evictions, about runs of scripts, and about the
/// time for which used memory exceeded its limit.
fn evicted(shared: &Shared, fields: &mut Fields) {
    fields.add("evicted_keys", shared.engine.threads.sum(|stats| &stats.evicted_keys));
    fields.add("evicted_clients", shared.engine.threads.sum(|stats| &stats.evicted_clients));
    fields.add("evicted_scripts", shared.script_cache.evicted());
    let threads = &shared.engine.threads;
    fields.add("scripts_parallel", threads.sum(|stats| &stats.scripts.parallel));
    fields.add("scripts_alone", threads.sum(|stats| &stats.scripts.alone));
    fields.add("scripts_rerun", threads.sum(|stats| &stats.scripts.rerun));
    let (total, current) = shared.engine.over_limit.times(shared.engine.uptime(Instant::now()));
    fields.add("total_eviction_exceeded_time", (total + current).as_millis());
    fields.add("current_eviction_exceeded_time", current.as_millis());
}

/// Writes the fields of the Stats section about the turns of all threads' event loops.
fn turns(shared: &Shared, fields: &mut Fields) {
    let usec = |counter: fn(&ThreadStats) -> &Counter| shared.engine.threads.sum(counter) / 1000;
    fields.add("eventloop_cycles", shared.engine.threads.sum(|stats| &stats.cycles));
    fields.add("eventloop_duration_sum", usec(|stats| &stats.cycles_nanos));
    fields.add("eventloop_duration_cmd_sum", usec(|stats| &stats.running_nanos));
    let cycles = shared.samples.cycles_per_second.load(Relaxed);
    let nanos = shared.samples.cycles_nanos_per_second.load(Relaxed);
    fields.add("instantaneous_eventloop_cycles_per_sec", cycles);
    fields.add("instantaneous_eventloop_duration_usec", nanos / cycles.max(1) / 1000);
}

/// Writes the Changelog section of INFO: the positions of the change log, and the number of replies
/// that wait for its readers. Its main readers are the append-only file and the replication stream.
pub fn change_log(shared: &Shared, fields: &mut Fields) {
    let log = &shared.engine.log;
    let (merged, is_attached) = (log.progress(), log.is_attached());
    fields.add("change_log_active", u8::from(is_attached));
    fields.add("change_log_position", log.drawn());
    // Without a reader no reply waits.
    let released = |level| if is_attached { log.released(level).min(log.drawn()) } else { log.drawn() };
    fields.add("change_log_released_position", released(Level::Written));
    fields.add("change_log_synced_position", released(Level::Synced));
    fields.add("change_log_offset", merged.offset_bytes);
    fields.add("change_log_pending_bytes", log.pending_bytes());
    fields.add("change_log_memory_bytes", log.memory_bytes());
    fields.add("change_log_replica_excess_bytes", log.replica_excess().get());
    let waits = || shared.ports.iter().map(|port| &port.reply_waits);
    let waiting: u64 = waits().map(|waits| waits.waiting.load(Relaxed)).sum();
    fields.add("change_log_waiting_replies", waiting);
    let nanos: u64 = waits().map(|waits| waits.nanos.load(Relaxed)).sum();
    fields.add("change_log_reply_wait_usec", nanos / 1000);
    let nanos_max = waits().map(|waits| waits.nanos_max.load(Relaxed)).max().unwrap_or(0);
    fields.add("change_log_reply_wait_usec_max", nanos_max / 1000);
}

/// Writes the Commandstats section: calls, times and errors of each command that was called.
pub fn commandstats(shared: &Shared, fields: &mut Fields) {
    for id in 0..shared.engine.table.id_count() {
        let sum = |counter: fn(&engine::stats::CommandCounters) -> u64| -> u64 {
            shared.engine.threads.all_stats().map(|stats| counter(&stats.commands[id])).sum()
        };
        let (calls, rejected) = (sum(|command| command.calls.get()), sum(|command| command.rejected.get()));
        if calls + rejected == 0 {
            continue;
        }
        let usec = sum(|command| command.nanos.get()) / 1000;
        let per_call = if calls == 0 { 0.0 } else { usec as f64 / calls as f64 };
        let failed = sum(|command| command.failed.get());
        fields.add(
            &format!("cmdstat_{}", shared.engine.table.by_id(id).full_name),
            format_args!(
                "calls={calls},usec={usec},usec_per_call={per_call:.2},rejected_calls={rejected},failed_calls={failed}"
            ),
        );
    }
}

/// Writes the Latencystats section: percentiles of the duration of each command. Separate fields
/// cover the time from the arrival of the request to the sending of the reply.
pub fn latencystats(shared: &Shared, fields: &mut Fields) {
    if !shared.engine.settings.get().thresholds.histograms {
        return;
    }
    let words = diagnostics::LATENCY_TRACKING_INFO_PERCENTILES.of(&shared.config()).to_vec();
    let percentiles: Vec<f64> =
        words.iter().filter_map(|word| std::str::from_utf8(word).ok()?.parse().ok()).collect();
    let mut add = |name: &str, id: usize, times: Times| {
        if times.calls > 0 && !percentiles.is_empty() {
            let shown = percentiles
                .iter()
                .map(|&percent| format!("p{percent}={:.3}", times.percentile_nanos(percent) as f64 / 1000.0));
            let name = format!("{name}_{}", shared.engine.table.by_id(id).full_name);
            fields.add(&name, shown.collect::<Vec<_>>().join(","));
        }
    };
    for id in 0..shared.engine.table.id_count() {
        add("latency_percentiles_usec", id, shared.engine.threads.times_of(id));
        add("latency_end_to_end_usec", id, shared.engine.threads.end_to_end_of(id));
    }
}

/// Writes the Errorstats section: the number of error replies for each first word of an error.
pub fn errorstats(shared: &Shared, fields: &mut Fields) {
    for (code, count) in shared.engine.errors.by_code() {
        fields.add(&format!("errorstat_{code}"), format_args!("count={count}"));
    }
}

/// Writes the Hotkeys section: the number of samples and the duration of the last window of HOTKEYS
/// (`hotkeys-top-k`).
pub fn hotkeys(shared: &Shared, fields: &mut Fields) {
    let (samples, took) = shared.engine.hot_keys.windows.last();
    fields.add("hotkeys_last_window_samples", samples);
    fields.add("hotkeys_last_window_duration_ms", took.as_millis());
}

/// Writes the Keysizes section: the distribution of the lengths of strings and of the sizes of
/// collections.
pub fn keysizes(shared: &Shared, fields: &mut Fields) {
    for db in 0..shared.engine.keyspace.db_count() {
        let counts = shared.engine.keyspace.sizes().counts(db);
        for (kind, name) in SIZE_FIELDS {
            let bins = counts[kind as usize - 1].iter().enumerate().filter(|&(_, &count)| count > 0);
            let parts: Vec<String> =
                bins.map(|(bin, count)| format!("{}={count}", short_size(bin_start(bin)))).collect();
            if !parts.is_empty() {
                fields.add(&format!("db{db}_distrib_{name}"), parts.join(","));
            }
        }
    }
}

/// Formats a power of two as `512`, `4K`, `2M`.
fn short_size(size: u64) -> String {
    let unit = size.checked_ilog2().unwrap_or(0) / 10;
    format!("{}{}", size >> (10 * unit), ["", "K", "M", "G", "T", "P", "E"][unit as usize])
}

/// Writes the Keyspace section: the databases that are not empty.
pub fn keyspace(shared: &Shared, fields: &mut Fields) {
    for db in 0..shared.engine.keyspace.db_count() {
        let size = shared.engine.keyspace.reachable_db_size(db);
        if size.keys > 0 {
            let (keys, expires, fields_expire) = (size.keys, size.expires, size.field_expires);
            let ttl_ms = if expires == 0 { 0 } else { shared.engine.keyspace.average_ttl_ms(db, unix_ms()) };
            let value =
                format_args!("keys={keys},expires={expires},avg_ttl={ttl_ms},subexpiry={fields_expire}");
            fields.add(&format!("db{db}"), value);
        }
    }
}

/// Adds the fields of INFO about compaction (active defragmentation). Each moved block of memory
/// belongs to one key.
fn compaction(stats: &CompactionStats, fields: &mut Fields) {
    fields.add("active_defrag_hits", stats.moved.get());
    fields.add("active_defrag_misses", stats.kept.get());
    fields.add("active_defrag_key_hits", stats.moved.get());
    fields.add("active_defrag_key_misses", stats.kept.get());
    fields.add("total_active_defrag_time", stats.nanos.get() / 1_000_000);
    fields.add("current_active_defrag_time", stats.pass_ms.load(Relaxed));
}
