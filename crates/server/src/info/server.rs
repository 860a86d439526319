//! Sections of INFO about the server itself, its clients, threads, persistence, replication, TLS
//! and CPU.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use engine::client::ClientInfo;
use engine::shared::PauseReason;
use net::Address;
use persist::aof::writer;

use super::Fields;
use crate::REDIS_VERSION;
use crate::append_only;
use crate::config::table::network;
use crate::context::unix_ms;
use crate::shared::{Listening, Shared};
use crate::snapshots::{Figures, LoadFigures};
use crate::tls::certificate::Facts;

const DAY_S: u64 = 24 * 60 * 60;

/// Writes the Server section of INFO.
pub fn server(shared: &Shared, fields: &mut Fields) {
    let uptime_s = shared.uptime_ms() / 1000;
    let system = rustix::system::uname();
    let os = [system.sysname(), system.release(), system.machine()]
        .map(|part| part.to_string_lossy().into_owned());
    fields.add("redis_version", REDIS_VERSION);
    fields.add("saker_version", env!("CARGO_PKG_VERSION"));
    fields.add("redis_git_sha1", "00000000");
    fields.add("redis_git_dirty", 0);
    fields.add("redis_build_id", env!("CARGO_PKG_VERSION"));
    fields.add("redis_mode", "standalone");
    fields.add("os", os.join(" "));
    fields.add("arch_bits", usize::BITS);
    fields.add("monotonic_clock", "POSIX clock_gettime");
    fields.add("multiplexing_api", shared.backend.name());
    fields.add("io_backend", shared.backend.name());
    fields.add("atomicvar_api", "rust-std");
    fields.add("gcc_version", "0.0.0");
    fields.add("process_id", std::process::id());
    fields.add("process_supervised", shared.supervisor);
    fields.add("run_id", &shared.run_id);
    fields.add("tcp_port", shared.tcp_port());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    fields.add("server_time_usec", now.as_micros());
    fields.add("uptime_in_seconds", uptime_s);
    fields.add("uptime_in_days", uptime_s / DAY_S);
    let hz = shared.engine.settings.get().hz;
    fields.add("hz", hz);
    fields.add("configured_hz", hz);
    fields.add("lru_clock", (unix_ms() / 1000) & 0x00FF_FFFF);
    let executable = std::env::current_exe().map(|path| path.display().to_string()).unwrap_or_default();
    fields.add("executable", executable);
    let file = shared.config().file().map(|file| file.display().to_string()).unwrap_or_default();
    fields.add("config_file", file);
    fields.add("io_threads_active", u8::from(shared.engine.threads.len() > 1));
    if let Some(until_ms) = shared.shutdown_request.waits_until_ms() {
        fields.add("shutdown_in_milliseconds", until_ms.saturating_sub(shared.uptime_ms()));
    }
    let zone = String::from_utf8_lossy(network::AVAILABILITY_ZONE.of(&shared.config())).into_owned();
    fields.add("availability_zone", zone);
    for (index, listener) in listeners(&shared.listening()).iter().enumerate() {
        fields.add(&format!("listener{index}"), listener);
    }
}

/// Describes the listeners: one text for all TCP addresses, which share a port, one for each Unix
/// socket, and one for all TLS addresses.
fn listeners(listening: &[Listening]) -> Vec<String> {
    let tcp = |name: &str, is_encrypted: bool| {
        let of_kind = listening.iter().filter(|listening| listening.is_encrypted == is_encrypted);
        let addresses: Vec<SocketAddr> = of_kind.filter_map(Listening::tcp).collect();
        let port = addresses.last()?.port();
        let binds: String = addresses.iter().map(|address| format!("bind={},", address.ip())).collect();
        Some(format!("name={name},{binds}port={port}"))
    };
    let unix = listening.iter().filter_map(|listening| match &listening.address {
        Address::Unix(path) => Some(format!("name=unix,bind={}", path.display())),
        Address::Tcp(_) => None,
    });
    tcp("tcp", false).into_iter().chain(unix).chain(tcp("tls", true)).collect()
}

/// Writes the TLS section of INFO: Valkey's fields, and the counters of handshakes.
pub fn tls(shared: &Shared, fields: &mut Fields) {
    for (name, facts) in ["server", "client", "ca"].iter().zip(shared.tls.facts()) {
        let serial = facts.as_ref().map_or("none", |facts| &facts.serial);
        fields.add(&format!("tls_{name}_cert_serial"), serial);
        let expires_in_s = facts.as_ref().map_or(0, Facts::expires_in_s);
        fields.add(&format!("tls_{name}_cert_expires_in_seconds"), expires_in_s);
    }
    fields.add("tls_full_handshakes", shared.tls.full_handshakes.load(Relaxed));
    fields.add("tls_resumed_handshakes", shared.tls.resumed_handshakes.load(Relaxed));
    fields.add("tls_failed_handshakes", shared.tls.failed_handshakes.load(Relaxed));
}

/// Writes the Clients section of INFO.
pub fn clients(shared: &Shared, fields: &mut Fields) {
    let clients = shared.engine.clients.all();
    let largest =
        |value: fn(&ClientInfo) -> u64| clients.iter().map(|client| value(client)).max().unwrap_or(0);
    fields.add("connected_clients", clients.iter().filter(|client| !client.is_replica()).count());
    fields.add("cluster_connections", 0);
    fields.add("maxclients", shared.engine.settings.get().clients.maxclients);
    let input = largest(|client| client.held.pending_input_bytes.load(Relaxed));
    let output = largest(|client| client.held.pending_output_bytes.load(Relaxed));
    fields.add("client_recent_max_input_buffer", input);
    fields.add("client_recent_max_output_buffer", output);
    let postponed = clients.iter().filter(|client| client.state.postponed.load(Relaxed)).count();
    let blocked = &shared.engine.blocked;
    fields.add("blocked_clients", postponed + blocked.blocked_clients().load(Relaxed));
    fields.add("tracking_clients", shared.engine.tracking.clients());
    fields.add("pubsub_clients", shared.engine.pubsub.client_count());
    fields.add("watching_clients", shared.engine.watchers.clients().load(Relaxed));
    let timed = |client: &&Arc<ClientInfo>| blocked.of(client).is_some_and(|by| by.deadline_ms.is_some());
    fields.add("clients_in_timeout_table", clients.iter().filter(timed).count());
    let watched: u64 = clients.iter().map(|client| client.watched.load(Relaxed)).sum();
    fields.add("total_watched_keys", watched);
    fields.add("total_blocking_keys", blocked.blocking_keys());
    fields.add("total_blocking_keys_on_nokey", blocked.group_keys());
    let paused_ms = shared.engine.pause.until_ms.load(Relaxed).saturating_sub(unix_ms()).max(0);
    let actions = match shared.engine.pause.all.load(Relaxed) {
        _ if paused_ms == 0 => "none",
        true => "all",
        false => "write",
    };
    let pause = &shared.engine.pause;
    let (reason, actions) = match paused_ms {
        0 if pause.is_for(PauseReason::Shutdown) => ("shutdown_in_progress", "write"),
        0 if pause.is_for(PauseReason::Failover) => ("failover_in_progress", "write"),
        0 => ("none", "none"),
        _ => ("client_pause", actions),
    };
    fields.add("paused_reason", reason);
    fields.add("paused_actions", actions);
    fields.add("paused_timeout_milliseconds", paused_ms);
}

/// Writes the Persistence section of INFO.
pub fn persistence(shared: &Shared, fields: &mut Fields) {
    let server_state = &shared.engine.server_state;
    fields.add("loading", u8::from(server_state.is_loading.load(Relaxed)));
    let is_async = shared.replication.upstream.is_async_loading.load(Relaxed);
    fields.add("async_loading", u8::from(is_async));
    let Figures { record, current } = shared.persistence.figures();
    let snapshot = shared.engine.keyspace.snapshot();
    let peak = snapshot.handed_over_len_bytes_peak();
    // The values that writers handed over correspond to the pages that a fork would copy.
    fields.add("current_cow_peak", if current.is_some() { peak } else { 0 });
    fields.add("current_cow_size", snapshot.handed_over_len_bytes());
    fields.add("current_cow_size_age", 0);
    let progress = current.map(|(progress, _)| progress);
    let (keys_done, keys) = progress.map_or((0, 0), |progress| (progress.keys_done, progress.keys));
    let percent = 100.0 * keys_done as f64 / keys.max(1) as f64;
    fields.add("current_fork_perc", format_args!("{percent:.2}"));
    fields.add("current_save_keys_processed", keys_done);
    fields.add("current_save_keys_total", keys);
    let unsaved = crate::persistence::changes(shared).saturating_sub(record.changes_saved);
    fields.add("rdb_changes_since_last_save", unsaved);
    fields.add("rdb_bgsave_in_progress", u8::from(current.is_some()));
    fields.add("rdb_last_save_time", record.last_save_s);
    fields.add("rdb_last_bgsave_status", if record.last_succeeded { "ok" } else { "err" });
    if let Some(trouble) = &record.last_error {
        fields.add("rdb_last_bgsave_error", trouble);
    }
    let seconds = |time: Option<u64>| time.map_or(-1, |time| time as i64);
    fields.add("rdb_last_bgsave_time_sec", seconds(record.last_took_s));
    fields.add("rdb_current_bgsave_time_sec", seconds(current.map(|(_, since)| since.as_secs())));
    fields.add("rdb_saves", record.saves);
    fields.add("rdb_last_cow_size", peak);
    let loading = &shared.persistence.loading;
    fields.add("rdb_last_load_keys_expired", loading.expired.load(Relaxed));
    fields.add("rdb_last_load_keys_loaded", loading.keys.load(Relaxed));
    let aof = shared.append_only.figures();
    append_only_figures(shared, &aof, fields);
    fields.zeros(&["module_fork_in_progress", "module_fork_last_cow_size"]);
    if let Some(writer) = &aof.writer {
        append_only_files(&aof, writer, fields);
    }
    if is_async || server_state.is_loading.load(Relaxed) {
        loading_figures(loading, fields);
    }
}

/// Writes the fields of the append-only file in the Persistence section.
fn append_only_figures(shared: &Shared, figures: &append_only::Figures, fields: &mut Fields) {
    let seconds = |time: Option<u64>| time.map_or(-1, |time| time as i64);
    let status = |is_ok: bool| if is_ok { "ok" } else { "err" };
    let record = &figures.record;
    fields.add("aof_enabled", u8::from(figures.is_enabled));
    fields.add("aof_rewrite_in_progress", u8::from(figures.rewrites_for.is_some()));
    fields.add("aof_rewrite_scheduled", u8::from(figures.is_scheduled));
    fields.add("aof_last_rewrite_time_sec", seconds(record.last_took_s));
    fields.add("aof_current_rewrite_time_sec", seconds(figures.rewrites_for.map(|time| time.as_secs())));
    fields.add("aof_last_bgrewrite_status", status(record.last_succeeded));
    fields.add("aof_rewrites", record.begun);
    fields.add("aof_rewrites_consecutive_failures", record.failures);
    let has_failed = shared.engine.server_state.log_failed.load(Relaxed);
    fields.add("aof_last_write_status", status(!has_failed));
    fields.add("aof_last_cow_size", shared.engine.keyspace.snapshot().handed_over_len_bytes_peak());
    let backup = shared.persistence.backup.figures().state;
    fields.add("backup_in_progress", u8::from(backup.is_in_progress()));
}

/// Writes the fields of the Persistence section about the files of an active append-only file.
fn append_only_files(figures: &append_only::Figures, writer: &writer::Figures, fields: &mut Fields) {
    fields.add("aof_current_size", figures.len_bytes);
    fields.add("aof_base_size", figures.base_len_bytes);
    fields.add("aof_pending_rewrite", 0);
    fields.add("aof_buffer_length", writer.kept_bytes);
    fields.add("aof_pending_bio_fsync", u8::from(writer.is_syncing));
    fields.add("aof_delayed_fsync", writer.delayed);
}

/// Writes the fields of the Persistence section about the progress of loading the data.
fn loading_figures(loading: &LoadFigures, fields: &mut Fields) {
    let (began_s, total) = (loading.began_s.load(Relaxed), loading.total_bytes.load(Relaxed));
    let loaded = loading.loaded_bytes.load(Relaxed);
    let elapsed_s = (unix_ms() / 1000 - began_s).max(0) as u64;
    fields.add("loading_start_time", began_s);
    fields.add("loading_total_bytes", total);
    fields.add("loading_rdb_used_mem", 0);
    fields.add("loading_loaded_bytes", loaded);
    let percent = 100.0 * loaded as f64 / total.max(1) as f64;
    fields.add("loading_loaded_perc", format_args!("{percent:.2}"));
    let left_s = elapsed_s * total.saturating_sub(loaded) / loaded.max(1);
    fields.add("loading_eta_seconds", left_s);
}

/// Writes the Threads section: the work of each I/O thread. `busy_usec` is the time for which it
/// ran on a core, `wait_usec` the time for which it was ready to run but had no core. The kernel
/// measures these times.
pub fn threads(shared: &Shared, fields: &mut Fields) {
    for (index, port) in shared.engine.threads.iter().enumerate() {
        let stats = &port.stats;
        let (clients, reads, writes) = (stats.clients.get(), stats.reads.get(), stats.writes.get());
        let (commands, turns) = (stats.processed.get(), stats.cycles.get());
        let time = crate::process::thread_time(shared.ports[index].tid.load(Relaxed));
        let (busy, wait) = (time.running.as_micros(), time.ready.as_micros());
        fields.add(
            &format!("io_thread_{index}"),
            format_args!(
                "clients={clients},reads={reads},writes={writes},commands={commands},turns={turns},\
                 busy_usec={busy},wait_usec={wait}"
            ),
        );
    }
}

/// Writes the CPU section of INFO: the CPU times of this process, as the kernel counts them.
pub fn cpu(shared: &Shared, fields: &mut Fields) {
    let (user, system) = crate::process::cpu_time();
    let seconds = |time: Duration| format!("{:.6}", time.as_secs_f64());
    fields.add("used_cpu_sys", seconds(system));
    fields.add("used_cpu_user", seconds(user));
    fields.add("used_cpu_sys_children", "0.000000");
    fields.add("used_cpu_user_children", "0.000000");
    // The I/O threads do the work of Redis' main thread.
    let times = shared.ports.iter().map(|port| crate::process::thread_cpu_time(port.tid.load(Relaxed)));
    let (user, system) =
        times.fold((Duration::ZERO, Duration::ZERO), |sum, time| (sum.0 + time.0, sum.1 + time.1));
    fields.add("used_cpu_sys_main_thread", seconds(system));
    fields.add("used_cpu_user_main_thread", seconds(user));
}

/// Writes the Cluster section of INFO.
pub fn cluster(_shared: &Shared, fields: &mut Fields) {
    fields.add("cluster_enabled", 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_of_tcp_share_a_line() {
        let tcp = |text: &str| Address::Tcp(text.parse().expect("an address"));
        let unix = || Address::Unix(std::path::Path::new("/tmp/s").into());
        let all = [tcp("127.0.0.1:70"), unix(), tcp("[::1]:70")];
        let of = |addresses: &[Address], is_encrypted| -> Vec<Listening> {
            addresses.iter().map(|address| Listening { address: address.clone(), is_encrypted }).collect()
        };
        let both = [of(&all, false), of(&[all[0].clone(), all[2].clone()], true)].concat();
        let tcp = "bind=127.0.0.1,bind=::1,port=70";
        let texts =
            [format!("name=tcp,{tcp}"), "name=unix,bind=/tmp/s".to_owned(), format!("name=tls,{tcp}")];
        assert_eq!(listeners(&of(&all, false)), texts[..2]);
        assert_eq!(listeners(&both), texts);
        assert_eq!(listeners(&of(&[unix()], false)), ["name=unix,bind=/tmp/s"]);
    }
}
