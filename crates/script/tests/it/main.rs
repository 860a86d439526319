//! Programs and the replies of a real Redis 8.0.2, word for word; what scripts find of each other.

mod endless;
mod lists;
mod programs;
mod server;
