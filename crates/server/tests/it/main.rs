//! The server through its sockets, embedded in the test process, on each way to the kernel.

mod clients;
mod config;
mod debug;
mod differential;
mod dump;
mod events;
mod hostile;
mod hotkeys;
mod info;
mod keysizes;
mod latency;
mod linearizability;
mod memory;
mod metrics;
mod migrate;
mod monitor;
mod pubsub;
mod queue;
mod requests;
mod scripts;
mod sessions;
mod stalls;
mod stress;
mod subscribers;
mod support;
mod tracking;
