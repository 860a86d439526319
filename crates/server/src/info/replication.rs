//! INFO: the Replication section.

use replicate::history::ReplId;
use replicate::primary::Primary;

use super::Fields;
use crate::replicas::good_replicas::Demand;
use crate::replication::memory::backlog_limit_bytes;
use crate::replication::table::{Row, rows};
use crate::shared::Shared;

/// Writes the Replication section.
pub fn replication(shared: &Shared, fields: &mut Fields) {
    let (demand, backlog_size) = {
        let config = shared.config();
        (Demand::of(&config), backlog_limit_bytes(&config))
    };
    write(&shared.replication.primary(), demand, backlog_size, shared.uptime_ms(), fields);
}

/// Writes the section of a primary. `backlog_size` is the configured size, in bytes. `now_ms` is
/// the time of the clock of the table of replicas.
fn write(primary: &Primary, demand: Option<Demand>, backlog_size: u64, now_ms: u64, fields: &mut Fields) {
    fields.add("role", "master");
    fields.add("connected_slaves", primary.replicas().count());
    if let Some(demand) = demand {
        fields.add("min_slaves_good_slaves", demand.count_good(primary, now_ms));
    }
    for (number, row) in rows(primary, now_ms).iter().enumerate() {
        let Row { ip, port, state, offset, lag_s, .. } = row;
        let value = format_args!("ip={ip},port={port},state={state},offset={offset},lag={lag_s}");
        fields.add(&format!("slave{number}"), value);
    }
    fields.add("master_failover_state", "no-failover");
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

    fn text(primary: &Primary, demand: Option<Demand>, now_ms: u64) -> String {
        let mut fields = Fields::default();
        write(primary, demand, 1 << 20, now_ms, &mut fields);
        fields.0.replace("\r\n", "\n")
    }

    fn id(digit: u64) -> ReplId {
        ReplId::of_bits(digit, 0, 0)
    }

    #[test]
    fn a_primary_without_replicas_has_no_backlog() {
        let expected = "\
role:master
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
role:master
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
}
