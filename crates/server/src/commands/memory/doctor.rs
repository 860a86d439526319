//! MEMORY DOCTOR: a report in words on unusual memory use.

use stdx::memory_size::format_memory;

use crate::info::{MemoryFigures, ratio};

/// Minimum memory in use, in bytes, for a report with findings. It is also the minimum size of
/// client buffers, and of memory that waits to be freed, for a finding about them.
const WORTH_BYTES_MIN: u64 = 5 << 20;
/// Minimum size, in bytes, of resident memory without data for a finding of MEMORY DOCTOR: free
/// space of the heap, or file-backed pages.
const WASTE_BYTES_MIN: u64 = 10 << 20;
/// Average size of a client's buffers, in bytes, above which the report of MEMORY DOCTOR has a
/// finding about the buffers.
const CLIENT_BYTES_MAX: u64 = 200 << 10;

/// The input of MEMORY DOCTOR's report in addition to [`MemoryFigures`].
#[derive(Clone, Copy, Debug)]
pub struct DoctorInput {
    /// Number of connected clients.
    pub clients: u64,
    /// Number of bytes that wait to be freed in the background.
    pub pending_bytes: u64,
    /// The memory limit `maxmemory`, in bytes; 0 for no limit.
    pub limit_bytes: u64,
    /// True if `maxmemory-policy` permits the eviction of keys when used memory reaches
    /// `maxmemory`.
    pub evicts: bool,
}

/// Formats the report of MEMORY DOCTOR: one line for each finding, or one line that states that
/// there is none.
pub fn report(figures: &MemoryFigures, around: DoctorInput) -> String {
    if figures.used < WORTH_BYTES_MIN {
        return "This server holds very little data: there is nothing to diagnose yet.\n".to_owned();
    }
    let findings = findings(figures, around);
    if findings.is_empty() {
        return "No memory problem found.\n".to_owned();
    }
    findings.iter().map(|finding| format!("* {finding}\n")).collect()
}

fn findings(figures: &MemoryFigures, around: DoctorInput) -> Vec<String> {
    let mut findings = Vec::new();
    let MemoryFigures { used, peak, rss, heap_rss, active, clients, stream, system, .. } = *figures;
    if peak > used + used / 2 {
        findings.push(format!(
            "Peak: the server once used {}, {:.1} times what it uses now. Memory of that time may still be \
             resident; MEMORY PURGE gives back what is free.",
            format_memory(peak),
            ratio(peak, used)
        ));
    }
    if ratio(active, used) > 1.4 && active - used > WASTE_BYTES_MIN {
        findings.push(format!(
            "Fragmentation: {} are resident for {} of used memory. The rest is free space between values; it is \
             used again for values of the sizes that were there.",
            format_memory(active),
            format_memory(used)
        ));
    }
    if ratio(rss, heap_rss) > 1.1 && rss - heap_rss > WASTE_BYTES_MIN {
        let bytes = format_memory(rss - heap_rss);
        findings.push(format!("Overhead of the process: {bytes} of files are resident besides the heap."));
    }
    if clients > WORTH_BYTES_MIN && clients / around.clients.max(1) > CLIENT_BYTES_MAX {
        findings.push(format!(
            "Clients: {} wait in their buffers, {} each on average. CLIENT LIST shows whose (qbuf, omem): such \
             clients do not read their replies, or send large requests.",
            format_memory(clients),
            format_memory(clients / around.clients.max(1))
        ));
    }
    if stream.beyond > WORTH_BYTES_MIN {
        findings.push(format!(
            "Replicas: {} of the replication stream are kept for slow replicas, beyond repl-backlog-size. INFO \
             replication shows whose (offset, lag).",
            format_memory(stream.beyond)
        ));
    }
    if around.pending_bytes > WORTH_BYTES_MIN {
        findings.push(format!(
            "Freeing: {} wait to be freed in the background. They will be, soon.",
            format_memory(around.pending_bytes)
        ));
    }
    if around.limit_bytes > 0 && ratio(used, around.limit_bytes) > 0.95 {
        let then = if around.evicts { "keys are evicted" } else { "writes are refused (maxmemory-policy)" };
        let percent = 100.0 * ratio(used, around.limit_bytes);
        findings.push(format!("Limit: {percent:.1}% of maxmemory are used; at the limit {then}."));
    }
    if system > 0 && ratio(rss, system) > 0.9 {
        let percent = 100.0 * ratio(rss, system);
        findings.push(format!(
            "Machine: {percent:.1}% of its memory are this server's. When it runs out, the system ends a process."
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replication::memory::StreamMemory;

    const GOOD: MemoryFigures = MemoryFigures {
        used: 100 << 20,
        peak: 110 << 20,
        startup: 1 << 20,
        rss: 115 << 20,
        heap_rss: 110 << 20,
        active: 108 << 20,
        tables: 10 << 20,
        dataset: 80 << 20,
        clients: 1 << 20,
        stream: StreamMemory { backlog: 1 << 20, beyond: 0 },
        system: 1 << 30,
    };
    const CALM: DoctorInput = DoctorInput { clients: 10, pending_bytes: 0, limit_bytes: 0, evicts: false };

    /// Checks the words before the colon of each finding in a report.
    fn check(figures: MemoryFigures, around: DoctorInput, expected: &[&str]) {
        let found: Vec<String> = findings(&figures, around)
            .iter()
            .map(|text| text.split(':').next().unwrap_or_default().to_owned())
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn each_figure_that_is_off_is_named() {
        check(GOOD, CALM, &[]);
        check(MemoryFigures { peak: 200 << 20, ..GOOD }, CALM, &["Peak"]);
        let gaps = MemoryFigures { active: 150 << 20, heap_rss: 150 << 20, rss: 152 << 20, ..GOOD };
        check(gaps, CALM, &["Fragmentation"]);
        check(MemoryFigures { rss: 140 << 20, ..GOOD }, CALM, &["Overhead of the process"]);
        let stream = StreamMemory { beyond: 6 << 20, ..GOOD.stream };
        check(MemoryFigures { stream, ..GOOD }, CALM, &["Replicas"]);
        check(MemoryFigures { clients: 10 << 20, ..GOOD }, CALM, &["Clients"]);
        check(MemoryFigures { clients: 10 << 20, ..GOOD }, DoctorInput { clients: 1000, ..CALM }, &[]);
        check(GOOD, DoctorInput { pending_bytes: 6 << 20, ..CALM }, &["Freeing"]);
        check(GOOD, DoctorInput { limit_bytes: 101 << 20, ..CALM }, &["Limit"]);
        check(MemoryFigures { system: 120 << 20, ..GOOD }, CALM, &["Machine"]);
    }

    #[test]
    fn a_small_server_is_not_diagnosed() {
        assert!(report(&MemoryFigures { used: 1 << 20, ..GOOD }, CALM).contains("very little"));
        assert!(report(&GOOD, CALM).contains("No memory problem"));
    }
}
