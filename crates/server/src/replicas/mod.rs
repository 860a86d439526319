//! The service of replicas: the thread `repl`, which owns their connections, and the functions that
//! it calls.
//!
//! | Module | Part |
//! |---|---|
//! | [`thread`] | the thread: pings, timeouts, acknowledgements, snapshots that begin |
//! | [`link`] | one connection of a replica |
//! | `cohort_sync` | the beginning of a snapshot for a cohort of replicas |
//! | [`good_replicas`] | the replicas that `min-replicas-to-write` counts |

mod cohort_sync;
pub mod good_replicas;
pub mod link;
pub mod thread;
