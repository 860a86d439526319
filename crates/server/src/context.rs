//! What a command about the server or its connection may touch.

use std::sync::Arc;

use commands::{Args, CommandError};
use keyspace::gate::SharedPass;
use resp::Reply;

use crate::command_table::Registered;
use crate::session::Session;
use crate::settings::Settings;
use crate::shared::Shared;

/// The function that runs a server command.
pub type ServerHandler = fn(&mut ServerCtx<'_, '_>, &Args<'_>) -> Result<(), CommandError>;

/// A server command's surroundings.
pub struct ServerCtx<'a, 'g> {
    /// The server.
    pub shared: &'a Arc<Shared>,
    /// The settings of this turn.
    pub settings: &'a Settings,
    /// The client that asks.
    pub session: &'a mut Session,
    /// The command itself.
    pub registered: &'static Registered,
    /// Where the reply goes.
    pub reply: Reply<'a>,
    /// The thread that runs it.
    pub thread: usize,
    /// This turn's pass through the gate: can be made exclusive. No shard is locked.
    pub pass: &'a mut SharedPass<'g>,
    /// Now, in Unix milliseconds.
    pub now_ms: i64,
    /// Random numbers.
    pub rng: &'a mut fastrand::Rng,
}
