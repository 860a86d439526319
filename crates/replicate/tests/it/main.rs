//! Tests of replication's decisions as a whole.

mod links;
mod links_chain;
