//! The service of replicas: the thread `repl`, which owns their connections, and what it drives.
//!
//! | Module | Part |
//! |---|---|
//! | [`thread`] | the thread: pings, timeouts, acknowledgements, snapshots that begin |
//! | [`link`] | one connection of a replica |
//! | `cohort_sync` | the begin of a snapshot for a cohort of replicas |
//! | [`stream`] | the reader of the change log that fills the backlog |
//! | [`good_replicas`] | the replicas that `min-replicas-to-write` counts |

mod cohort_sync;
pub mod good_replicas;
pub mod link;
pub mod stream;
pub mod thread;
