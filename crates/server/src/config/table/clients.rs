//! The table of options for connections of clients.

use crate::config::handle::{Handle, MemoryShare};
use crate::config::option::{ANY, FollowUp, INT, OnChange, Opt, Prepare};
use crate::config::value::Kind;
use crate::config::words;

/// The options of this file, in the order of docs/options.md.
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
    "The maximum number of client connections. At the start the server raises the limit of open \
         files to match. If it cannot, it lowers this option and writes a warning to the log.",
)
.on_change(OnChange::Prepare(Prepare::OpenFiles))
.typed();

/// The seconds without a request after which a client is closed; 0 for never.
pub static TIMEOUT: Handle<u64> = Opt::integer(
    "timeout",
    "0",
    INT,
    "The time without a request, in seconds, after which a client is closed; 0 for never. Blocked \
         clients, subscribers and clients in MONITOR are not closed.",
)
.typed();

/// The limits of output buffers: for each class of clients its name and its three limits, in the
/// order of [`words::OUTPUT_LIMITS`].
pub static CLIENT_OUTPUT_BUFFER_LIMIT: Handle<[Vec<u8>]> = Opt::new(
    "client-output-buffer-limit",
    Kind::Words(&words::OUTPUT_LIMITS),
    "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60",
    "The limits of unsent replies per class of clients: a hard limit in bytes, a soft limit in \
         bytes, and seconds. A client is closed if it exceeds the hard limit, or the soft limit for \
         that many seconds; 0 disables a limit. `pubsub` applies to subscribers, `replica` to clients \
         in MONITOR, `normal` to all others.",
)
.typed();

/// The maximum number of bytes of unfinished and queued requests per client.
pub static CLIENT_QUERY_BUFFER_LIMIT: Handle<u64> = Opt::memory(
    "client-query-buffer-limit",
    "1073741824",
    (1 << 20, i64::MAX as u64),
    "The maximum memory, in bytes, for the unfinished request of a client and the commands that \
         it has queued (MULTI). A client that exceeds it is closed.",
)
.typed();

/// The maximum length of an argument or a string value, in bytes.
pub static PROTO_MAX_BULK_LEN: Handle<u64> = Opt::memory(
    "proto-max-bulk-len",
    "536870912",
    (1 << 20, i64::MAX as u64),
    "The maximum length of an argument and of a string value, in bytes.",
)
.typed();

/// The limit on the memory of the buffers of all clients together; 0 for no limit.
pub static MAXMEMORY_CLIENTS: Handle<MemoryShare> = Opt::new(
    "maxmemory-clients",
    Kind::MemoryOrPercent,
    "0",
    "The maximum memory of all clients' buffers together: a size, or a percentage of `maxmemory`; \
         0 for no limit. Above it, the clients with the most memory are closed, except those with \
         CLIENT NO-EVICT. A limit below 128 KiB counts as 128 KiB.",
)
.on_change(OnChange::FollowUp(FollowUp::ClientMemory))
.typed();

/// The maximum number of keys for which the server remembers the tracking clients (client-side
/// caching); 0 for no limit.
pub static TRACKING_TABLE_MAX_KEYS: Handle<usize> = Opt::integer(
    "tracking-table-max-keys",
    "1000000",
    ANY,
    "The maximum number of keys in the tracking table (client-side caching); 0 for no limit. \
         Above it, keys are removed from the table, and their clients get invalidations.",
)
.typed();
