//! The Replication section of INFO.

use std::sync::atomic::Ordering::Relaxed;

use replicate::history::ReplId;
use replicate::primary::Primary;

use super::Fields;
use crate::config::store::ConfigStore;
use crate::config::table::replication as options;
use crate::replicas::good_replicas::Demand;
use crate::replication::memory::backlog_limit_bytes;
use crate::replication::table::{Row, rows};
use crate::replication::upstream::{Link, LinkPhase};
use crate::shared::Shared;

/// Writes the Replication section of INFO.
pub fn replication(shared: &Shared, fields: &mut Fields) {
    let (demand, backlog_size, shown) = {
        let config = shared.config();
        (Demand::of(&config), backlog_limit_bytes(&config), ReplicaOptions::of(&config))
    };
    let upstream = &shared.replication.upstream;
    let failover_state = shared.replication.failover.lock().state_name();
    let link = upstream.link().clone();
    let (read_offset, failed) = (upstream.read_offset.load(Relaxed), upstream.failed_commands.load(Relaxed));
    let (primary, now_ms) = (shared.replication.primary(), shared.uptime_ms());
    fields.add("role", if link.is_some() { "slave" } else { "master" });
    if let Some(link) = &link {
        let offsets = Offsets { read: read_offset, applied: primary.end() };
        write_link(link, offsets, now_ms, fields);
        let ReplicaOptions { priority, is_read_only, is_announced } = shown;
        fields.add("slave_priority", priority);
        fields.add("slave_read_only", u8::from(is_read_only));
        fields.add("replica_announced", u8::from(is_announced));
        fields.add("master_link_failed_commands", failed);
        if !link.last_error.is_empty() {
            fields.add("master_link_last_error", one_line(&link.last_error));
        }
    }
    write(&primary, demand, (backlog_size, failover_state), now_ms, fields);
}

/// The options of a replica that the Replication section shows.
struct ReplicaOptions {
    priority: u64,
    is_read_only: bool,
    is_announced: bool,
}

impl ReplicaOptions {
    fn of(config: &ConfigStore) -> Self {
        Self {
            priority: options::REPLICA_PRIORITY.of(config),
            is_read_only: options::REPLICA_READ_ONLY.of(config),
            is_announced: options::REPLICA_ANNOUNCED.of(config),
        }
    }
}

/// The offsets of a replica in the replication stream of its primary.
#[derive(Clone, Copy)]
struct Offsets {
    /// The offset after the last byte that the replica has received.
    read: u64,
    /// The offset after the last byte that the replica has applied.
    applied: u64,
}

/// Writes the fields of a replica about the link to its primary. The sizes of the buffer for a full
/// sync are 0, because no replication stream is received while a snapshot arrives. The second name
/// of each size is that of Valkey.
fn write_link(link: &Link, offsets: Offsets, now_ms: u64, fields: &mut Fields) {
    let seconds_since = |time_ms: u64| now_ms.saturating_sub(time_ms) / 1000;
    let seconds = |time_ms: Option<u64>| time_ms.map_or(-1, |time_ms| seconds_since(time_ms) as i64);
    let is_up = link.phase == LinkPhase::Connected;
    fields.add("master_host", one_line(&link.primary.host));
    fields.add("master_port", link.primary.port);
    fields.add("master_link_status", if is_up { "up" } else { "down" });
    fields.add("master_last_io_seconds_ago", if is_up { seconds(link.last_io_ms) } else { -1 });
    fields.add("master_sync_in_progress", u8::from(link.phase == LinkPhase::Transfer));
    // Bytes that were received but not applied are dropped at the end of a connection.
    fields.add(
        "slave_read_repl_offset",
        if is_up { offsets.read.max(offsets.applied) } else { offsets.applied },
    );
    fields.add("slave_repl_offset", offsets.applied);
    fields.zeros(&["replica_full_sync_buffer_size", "replica_full_sync_buffer_peak"]);
    fields.zeros(&["replicas_repl_buffer_size", "replicas_repl_buffer_peak"]);
    if link.phase == LinkPhase::Transfer {
        let progress = link.transfer.unwrap_or_default();
        // Redis shows 0 for a snapshot of unknown length.
        let total = progress.total_bytes.unwrap_or(0);
        let percent = if total == 0 { 0.0 } else { progress.read_bytes as f64 / total as f64 * 100.0 };
        fields.add("master_sync_total_bytes", total);
        fields.add("master_sync_read_bytes", progress.read_bytes);
        fields.add("master_sync_left_bytes", total as i64 - progress.read_bytes as i64);
        fields.add("master_sync_perc", format_args!("{percent:.2}"));
        fields.add("master_sync_last_io_seconds_ago", seconds_since(progress.last_io_ms));
    }
    if !is_up {
        fields.add("master_link_down_since_seconds", seconds(link.down_since_ms));
    }
}

/// Replaces line ends in `text` by spaces, because a line end would end the field.
fn one_line(text: &str) -> String {
    text.replace(['\r', '\n'], " ")
}

/// Writes the fields of the Replication section that both primaries and replicas have, after the
/// role. `backlog_size` is the configured size, in bytes. `now_ms` is the server's clock.
fn write(
    primary: &Primary,
    demand: Option<Demand>,
    (backlog_size, failover_state): (u64, &str),
    now_ms: u64,
    fields: &mut Fields,
) {
    fields.add("connected_slaves", primary.replicas().count());
    if let Some(demand) = demand {
        fields.add("min_slaves_good_slaves", demand.count_good(primary, now_ms));
    }
    for (number, row) in rows(primary, now_ms).iter().enumerate() {
        let Row { ip, port, state, offset, lag_s, .. } = row;
        let value = format_args!("ip={ip},port={port},state={state},offset={offset},lag={lag_s}");
        fields.add(&format!("slave{number}"), value);
    }
    fields.add("master_failover_state", failover_state);
    let history = primary.history();
    fields.add("master_replid", history.id);
    let (second, second_end) = history.second.map_or((ReplId::NONE, None), |(id, end)| (id, Some(end)));
    fields.add("master_replid2", second);
    fields.add("master_repl_offset", primary.end());
    fields.add("second_repl_offset", second_end.map_or(-1, |end| end as i64 + 1));
    let backlog = primary.backlog();
    fields.add("repl_backlog_active", u8::from(backlog.is_some()));
    fields.add("repl_backlog_size", backlog_size);
    // Redis counts the bytes of the stream from 1.
    fields.add("repl_backlog_first_byte_offset", backlog.map_or(0, |backlog| backlog.start() + 1));
    fields.add("repl_backlog_histlen", backlog.map_or(0, |backlog| backlog.end() - backlog.start()));
}

#[cfg(test)]
mod tests {
    use replicate::handshake::Handshake;
    use replicate::replica::{Dialect, Phase, Replica};

    use super::*;
    use crate::replication::upstream::{PrimaryAddress, TransferProgress};

    fn text(primary: &Primary, demand: Option<Demand>, now_ms: u64) -> String {
        let mut fields = Fields::default();
        write(primary, demand, (1 << 20, "no-failover"), now_ms, &mut fields);
        fields.0.replace("\r\n", "\n")
    }

    fn id(digit: u64) -> ReplId {
        ReplId::of_bits(digit, 0, 0)
    }

    #[test]
    fn a_primary_without_replicas_has_no_backlog() {
        let expected = "\
connected_slaves:0
master_failover_state:no-failover
master_replid:0000000000000001000000000000000000000000
master_replid2:0000000000000000000000000000000000000000
master_repl_offset:0
second_repl_offset:-1
repl_backlog_active:0
repl_backlog_size:1048576
repl_backlog_first_byte_offset:0
repl_backlog_histlen:0
";
        assert_eq!(text(&Primary::new(id(1)), None, 0), expected);
    }

    #[test]
    fn replicas_have_lines_with_their_phase_and_lag() {
        let mut primary = Primary::new(id(1));
        primary.open_backlog(1 << 20, id(2));
        primary.append(&[b'x'; 64]);
        for client in 1..=4 {
            let handshake = Handshake { listening_port: 7000 + client as u16, ..Handshake::default() };
            primary.add(client, Replica::new(handshake, Dialect::Psync, "127.0.0.1".to_owned(), 0));
        }
        primary.set_phase(1, Phase::SnapshotSent, 0);
        primary.set_phase(2, Phase::ReceivesSnapshot, 64);
        primary.set_phase(3, Phase::Online, 50);
        primary.acknowledge(3, 50, None, 1000);
        let demand = Demand { replicas: 1, lag_max_s: 10 };
        let shown = text(&primary, Some(demand), 3500);
        let expected = "\
connected_slaves:4
min_slaves_good_slaves:1
slave0:ip=127.0.0.1,port=7002,state=send_bulk,offset=0,lag=0
slave1:ip=127.0.0.1,port=7003,state=online,offset=50,lag=2
slave2:ip=127.0.0.1,port=7004,state=wait_bgsave,offset=0,lag=0
master_failover_state:no-failover
";
        assert!(shown.starts_with(expected), "{shown}");
        assert!(shown.contains("\nmaster_repl_offset:64\n"), "{shown}");
        let backlog = "repl_backlog_active:1\nrepl_backlog_size:1048576\nrepl_backlog_first_byte_offset:1\n\
                       repl_backlog_histlen:64\n";
        assert!(shown.ends_with(backlog), "{shown}");
        assert!(text(&primary, Some(demand), 12_000).contains("\nmin_slaves_good_slaves:0\n"));
    }

    /// Returns the fields of a link to the primary in `phase`, 5 seconds after the last received
    /// bytes. `change` sets other values of the link.
    fn link_text(phase: LinkPhase, change: impl FnOnce(&mut Link)) -> String {
        let mut link = Link::new(PrimaryAddress { host: "10.0.0.1".to_owned(), port: 6380 });
        link.phase = phase;
        change(&mut link);
        let mut fields = Fields::default();
        write_link(&link, Offsets { read: 120, applied: 100 }, 9500, &mut fields);
        fields.0.replace("\r\n", "\n")
    }

    /// The fields of buffer sizes, which are 0 in all phases and follow the offsets.
    const BUFFERS: &str = "\
replica_full_sync_buffer_size:0
replica_full_sync_buffer_peak:0
replicas_repl_buffer_size:0
replicas_repl_buffer_peak:0
";

    #[test]
    fn a_link_that_was_never_up_has_no_times() {
        let expected = format!(
            "\
master_host:10.0.0.1
master_port:6380
master_link_status:down
master_last_io_seconds_ago:-1
master_sync_in_progress:0
slave_read_repl_offset:100
slave_repl_offset:100
{BUFFERS}master_link_down_since_seconds:-1
"
        );
        for phase in [LinkPhase::Connect, LinkPhase::Connecting, LinkPhase::Handshake] {
            assert_eq!(link_text(phase, |_| ()), expected);
        }
    }

    #[test]
    fn a_link_that_is_up_shows_both_offsets() {
        let expected = format!(
            "\
master_host:10.0.0.1
master_port:6380
master_link_status:up
master_last_io_seconds_ago:5
master_sync_in_progress:0
slave_read_repl_offset:120
slave_repl_offset:100
{BUFFERS}"
        );
        assert_eq!(link_text(LinkPhase::Connected, |link| link.last_io_ms = Some(4000)), expected);
    }

    #[test]
    fn a_snapshot_shows_its_progress() {
        let progress = TransferProgress { total_bytes: Some(400), read_bytes: 100, last_io_ms: 8000 };
        let text = |progress| {
            link_text(LinkPhase::Transfer, |link| {
                (link.transfer, link.down_since_ms) = (Some(progress), Some(2000));
            })
        };
        let end = |total: u64, left: i64, percent: &str| {
            format!(
                "\
master_sync_in_progress:1
slave_read_repl_offset:100
slave_repl_offset:100
{BUFFERS}master_sync_total_bytes:{total}
master_sync_read_bytes:100
master_sync_left_bytes:{left}
master_sync_perc:{percent}
master_sync_last_io_seconds_ago:1
master_link_down_since_seconds:7
"
            )
        };
        let shown = text(progress);
        assert!(shown.ends_with(&end(400, 300, "25.00")), "{shown}");
        let shown = text(TransferProgress { total_bytes: None, ..progress });
        assert!(shown.ends_with(&end(0, -100, "0.00")), "{shown}");
    }

    #[test]
    fn a_host_cannot_add_fields() {
        let shown = link_text(LinkPhase::Connect, |link| link.primary.host = "a\r\nb:1".to_owned());
        assert!(shown.starts_with("master_host:a  b:1\nmaster_port"), "{shown}");
    }
}
