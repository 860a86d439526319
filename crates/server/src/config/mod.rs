//! Configuration: one table of options, one store of their values.
//!
//! ```text
//!   redis.conf ─► parse ─┐
//!   command line ────────┼─► ConfigStore ─► apply ─► Settings (threads), StartOptions (builder)
//!   CONFIG SET ──────────┘        │
//!                                 └─► CONFIG GET, CONFIG REWRITE, docs/options.md
//! ```
//!
//! [`table`] says what options there are, [`value`] and [`words`] how their values are read and shown.
//! The [`ConfigStore`] holds every option's value; whoever needs one on a request's path reads it from
//! the typed [`Settings`](engine::settings::Settings) that are derived anew after each change.

pub mod apply;
pub mod fuzz;
pub mod load;
pub mod option;
pub mod parse;
pub mod renames;
pub mod rewrite;
pub mod store;
pub mod table;
pub mod value;
pub mod words;

pub use load::{LoadError, Loaded};
pub use parse::{ConfigError, Directive, parse_config};
pub use store::ConfigStore;
