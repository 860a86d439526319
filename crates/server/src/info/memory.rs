//! The use of memory, as INFO and MEMORY STATS show it.

use std::sync::atomic::Ordering::Relaxed;

use structures::alloc;

use super::Fields;
use crate::replication::memory::StreamMemory;
use crate::shared::Shared;

/// The memory statistics at one time, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct MemoryFigures {
    /// Memory that is allocated and not freed (`used_memory`).
    pub used: u64,
    /// The maximum of the used memory so far, sampled ten times a second.
    pub peak: u64,
    /// The used memory at the end of the server's start.
    pub startup: u64,
    /// Resident memory of the process, as the kernel counts it.
    pub rss: u64,
    /// The part of `rss` without file-backed pages: the heap and the threads' stacks.
    pub heap_rss: u64,
    /// The allocator's memory: `used`, and free memory that it keeps. Memory that was never written
    /// is not included.
    pub active: u64,
    /// The estimated size of the hash tables of all databases, without keys and values.
    pub tables: u64,
    /// `used` without the memory of the start, of clients, of the replication stream, of the change
    /// log and of the hash tables.
    pub dataset: u64,
    /// The memory of clients except replicas: sessions, buffers, queued commands, watched keys and
    /// subscriptions.
    pub clients: u64,
    /// The memory of the replication stream, and of snapshots for replicas.
    pub stream: StreamMemory,
    /// The total memory of the machine.
    pub system: u64,
}

impl MemoryFigures {
    /// Reads the present memory statistics of the server.
    pub fn now(shared: &Shared) -> Self {
        let used = alloc::used_memory_bytes() as u64;
        let clients = shared.engine.clients.all();
        let clients = clients.iter().filter(|client| !client.is_replica());
        let clients = clients.map(|client| client.memory_bytes()).sum();
        let queued = shared.replication.queued_bytes.load(Relaxed)
            + shared.engine.server_state.snapshot_buffer_bytes.load(Relaxed);
        let stream = StreamMemory::of(&shared.replication.primary()).with_queued(queued);
        let change_log = shared.engine.log.memory_bytes() as u64;
        let startup = shared.engine.startup_bytes.load(Relaxed);
        let dbs = 0..shared.engine.keyspace.db_count();
        let tables = dbs.map(|db| shared.engine.keyspace.table_bytes(db) as u64).sum();
        let (rss, heap_rss) = crate::process::resident_bytes();
        Self {
            used,
            peak: (alloc::peak_memory_bytes() as u64).max(used),
            startup,
            rss,
            heap_rss,
            active: crate::process::held_bytes(heap_rss),
            tables,
            dataset: used.saturating_sub(startup + clients + stream.total() + change_log + tables),
            clients,
            stream,
            system: crate::process::system_memory_bytes(),
        }
    }

    /// Returns the share of `dataset` in the memory allocated since the start, in percent.
    pub fn dataset_percent(&self) -> f64 {
        100.0 * ratio(self.dataset, self.used.saturating_sub(self.startup))
    }

    /// Returns the part of `used` that is not in `dataset`, in bytes.
    pub fn overhead(&self) -> u64 {
        self.used - self.dataset
    }

    /// Returns the excess of `active` over `used`, of `heap_rss` over `active`, of `rss` over
    /// `heap_rss`, and of `rss` over `used`.
    pub fn beyond(&self) -> [Excess; 4] {
        let step = |info, stats, more, less| Excess { info, stats, more, less };
        [
            step(
                "allocator_frag",
                ["allocator-fragmentation.ratio", "allocator-fragmentation.bytes"],
                self.active,
                self.used,
            ),
            step("allocator_rss", ["allocator-rss.ratio", "allocator-rss.bytes"], self.heap_rss, self.active),
            step("rss_overhead", ["rss-overhead.ratio", "rss-overhead.bytes"], self.rss, self.heap_rss),
            step("mem_fragmentation", ["fragmentation", "fragmentation.bytes"], self.rss, self.used),
        ]
    }

    /// Returns the resident memory divided by the used memory: `rss` / `used`.
    pub fn fragmentation(&self) -> f64 {
        ratio(self.rss, self.used)
    }
}

/// The excess of one memory statistic over another, which INFO shows as a ratio and as a
/// difference.
#[derive(Clone, Copy, Debug)]
pub struct Excess {
    /// The name of the excess in INFO, without `_ratio` and `_bytes`.
    pub info: &'static str,
    /// The names of the ratio and of the difference in MEMORY STATS.
    pub stats: [&'static str; 2],
    /// The statistic that is usually larger, in bytes.
    pub more: u64,
    /// The statistic that is usually smaller, in bytes.
    pub less: u64,
}

/// Returns `a / b`, or zero if `b` is zero.
pub fn ratio(a: u64, b: u64) -> f64 {
    if b == 0 { 0.0 } else { a as f64 / b as f64 }
}

/// Writes the fields of the Memory section about the memory of scripts. Functions run in the same
/// Lua state as scripts.
fn scripts(shared: &Shared, fields: &mut Fields) {
    let cache = &shared.script_cache;
    let (vm_bytes, text_bytes) = (cache.vm_bytes(), cache.memory_bytes() as u64);
    fields.size("used_memory_lua", vm_bytes);
    fields.add("used_memory_vm_eval", vm_bytes);
    fields.add("used_memory_scripts_eval", text_bytes);
    fields.add("number_of_cached_scripts", cache.script_count());
    let (functions, libraries, code_bytes) = {
        let loaded = shared.functions.read(&shared.persistence);
        let code = loaded.libraries.values().map(|library| library.library.code.len());
        (loaded.function_count(), loaded.libraries.len(), code.sum::<usize>() as u64)
    };
    fields.add("number_of_functions", functions);
    fields.add("number_of_libraries", libraries);
    fields.add("used_memory_vm_functions", 0);
    fields.size("used_memory_vm_total", vm_bytes);
    fields.add("used_memory_functions", code_bytes);
    fields.size("used_memory_scripts", text_bytes + code_bytes);
}

/// Writes the Memory section of INFO.
pub fn memory(shared: &Shared, fields: &mut Fields) {
    let figures = MemoryFigures::now(shared);
    let settings = shared.engine.settings.get();
    fields.size("used_memory", figures.used);
    fields.size("used_memory_rss", figures.rss);
    fields.size("used_memory_peak", figures.peak);
    fields.add("used_memory_peak_perc", format_args!("{:.2}%", 100.0 * ratio(figures.used, figures.peak)));
    fields.add("used_memory_overhead", figures.overhead());
    fields.add("used_memory_startup", figures.startup);
    fields.add("used_memory_dataset", figures.dataset);
    fields.add("used_memory_dataset_perc", format_args!("{:.2}%", figures.dataset_percent()));
    fields.add("allocator_allocated", figures.used);
    fields.add("allocator_active", figures.active);
    fields.add("allocator_resident", figures.heap_rss);
    fields.add("allocator_muzzy", 0);
    fields.size("total_system_memory", figures.system);
    scripts(shared, fields);
    fields.size("maxmemory", settings.maxmemory_bytes);
    fields.add("maxmemory_policy", settings.maxmemory_policy);
    for Excess { info, more, less, .. } in figures.beyond() {
        fields.add(&format!("{info}_ratio"), format_args!("{:.2}", ratio(more, less)));
        fields.add(&format!("{info}_bytes"), more as i64 - less as i64);
    }
    fields.add("mem_not_counted_for_evict", engine::evict::uncounted_bytes(&shared.engine));
    fields.add("mem_replication_backlog", figures.stream.backlog);
    fields.add("mem_total_replication_buffers", figures.stream.total());
    fields.add("mem_replica_full_sync_buffer", 0);
    fields.add("mem_clients_slaves", figures.stream.beyond);
    fields.add("mem_clients_normal", figures.clients);
    fields.zeros(&["mem_cluster_links", "mem_aof_buffer"]);
    fields.add("mem_allocator", alloc::allocator_name());
    fields.zeros(&["mem_overhead_db_hashtable_rehashing"]);
    fields.add("active_defrag_running", shared.engine.upkeep.compaction.share_percent.load(Relaxed));
    fields.add("lazyfree_pending_objects", shared.engine.freeing.pending_objects());
    fields.add("lazyfreed_objects", shared.engine.freeing.freed_objects());
}
