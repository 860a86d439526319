//! Programs and the replies of a real Redis 8.0.2, word for word.

mod endless;
mod programs;
mod server;
