//! The server through its sockets, embedded in the test process, on each way to the kernel.

mod config;
mod differential;
mod hostile;
mod linearizability;
mod requests;
mod scripts;
mod support;
