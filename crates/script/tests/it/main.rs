//! Programs and the replies of a real Redis 8.0.2, word for word; what scripts find of each other.

mod debugger;
mod depths;
mod endless;
mod extremes;
mod lists;
mod mends;
mod programs;
mod server;
