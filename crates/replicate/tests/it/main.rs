//! Simulations of whole primaries and replicas, over the decisions of the crate `replicate`.

mod links;
mod links_chain;
