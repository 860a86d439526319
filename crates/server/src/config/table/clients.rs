//! Options of clients.

use crate::config::handle::{Handle, MemoryShare};
use crate::config::option::{ANY, FollowUp, INT, OnChange, Opt, Prepare};
use crate::config::value::Kind;
use crate::config::words;

/// The options of this theme.
pub static OPTIONS: &[&Opt] = &[
    &MAXCLIENTS.opt,
    &TIMEOUT.opt,
    &CLIENT_OUTPUT_BUFFER_LIMIT.opt,
    &CLIENT_QUERY_BUFFER_LIMIT.opt,
    &PROTO_MAX_BULK_LEN.opt,
    &MAXMEMORY_CLIENTS.opt,
    &TRACKING_TABLE_MAX_KEYS.opt,
];

/// The maximum number of client connections at the same time.
pub static MAXCLIENTS: Handle<usize> = Opt::integer(
    "maxclients",
    "10000",
    (1, u32::MAX as i64),
    "Connections at the same time. The limit of open files is raised to match; where that is forbidden, \
         this is lowered instead.",
)
.on_change(OnChange::Prepare(Prepare::OpenFiles))
.typed();

/// The seconds without a request after which a client is closed; 0 for never.
pub static TIMEOUT: Handle<u64> =
    Opt::integer("timeout", "0", INT, "Seconds of silence after which a client is closed; 0 for never.")
        .typed();

/// The limits of output buffers: for each class its name and its limits, in the order of
/// [`words::OUTPUT_LIMITS`].
pub static CLIENT_OUTPUT_BUFFER_LIMIT: Handle<[Vec<u8>]> = Opt::new(
        "client-output-buffer-limit",
        Kind::Words(&words::OUTPUT_LIMITS),
        "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60",
        "When a client that does not read its replies is closed: per class (`normal`, `replica`, `pubsub`) a hard \
         limit in bytes, and a soft limit with the seconds it may be exceeded. Acts for `normal`, and as `replica` for clients that MONITOR.",
    ).typed();

/// The maximum number of bytes of unfinished and queued requests per client.
pub static CLIENT_QUERY_BUFFER_LIMIT: Handle<u64> = Opt::memory(
    "client-query-buffer-limit",
    "1073741824",
    (1 << 20, i64::MAX as u64),
    "Bytes of unfinished requests and of queued ones (MULTI) that a client may pile up before it is closed.",
)
.typed();

/// The maximum length of an argument or a string value, in bytes.
pub static PROTO_MAX_BULK_LEN: Handle<u64> = Opt::memory(
    "proto-max-bulk-len",
    "536870912",
    (1 << 20, i64::MAX as u64),
    "Bytes of the longest argument, and of the longest string value.",
)
.typed();

/// The limit on the memory of the buffers of all clients together; 0 for no limit.
pub static MAXMEMORY_CLIENTS: Handle<MemoryShare> = Opt::new(
    "maxmemory-clients",
    Kind::MemoryOrPercent,
    "0",
    "Memory of all clients' buffers together, also as a percentage of `maxmemory`; 0 for no limit. \
         Above it the largest clients are closed, except those that asked for CLIENT NO-EVICT. \
         A limit below 128 KiB counts as 128 KiB.",
)
.on_change(OnChange::FollowUp(FollowUp::ClientMemory))
.typed();

/// The maximum number of tracked keys; 0 for no limit.
pub static TRACKING_TABLE_MAX_KEYS: Handle<usize> = Opt::integer(
    "tracking-table-max-keys",
    "1000000",
    ANY,
    "Maximum number of tracked keys; 0 for no limit. Beyond it keys leave the table and their clients get invalidations.",
)
.typed();
