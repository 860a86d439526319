//! Commands about the server and its connections.

use ::commands::table::Command;
use ::commands::{Args, CommandError};

use crate::command_table::Runner;
use crate::context::ServerCtx;

pub mod acl;
pub mod big_keys;
pub mod client;
pub mod cluster;
pub mod command;
pub mod config;
pub mod connection;
pub mod debug;
pub mod dump;
pub mod hot_keys;
pub mod latency;
pub mod memory;
pub mod migrate;
pub mod module;
pub mod pubsub;
pub mod script;
pub mod server;
pub mod slowlog;

/// All server commands.
pub fn all() -> impl Iterator<Item = &'static Command<Runner>> {
    [
        acl::COMMANDS,
        big_keys::COMMANDS,
        client::COMMANDS,
        cluster::COMMANDS,
        command::COMMANDS,
        config::COMMANDS,
        connection::COMMANDS,
        debug::COMMANDS,
        dump::COMMANDS,
        hot_keys::COMMANDS,
        latency::COMMANDS,
        memory::COMMANDS,
        migrate::COMMANDS,
        module::COMMANDS,
        pubsub::COMMANDS,
        script::COMMANDS,
        server::COMMANDS,
        slowlog::COMMANDS,
        crate::monitor::COMMANDS,
        crate::transaction::COMMANDS,
    ]
    .into_iter()
    .flatten()
    .copied()
}

/// Runs a container (CONFIG) without a known subcommand: dispatch has answered.
fn container(ctx: &mut ServerCtx<'_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    Err(CommandError::WrongArity(ctx.registered.full_name))
}

/// Answers a container's HELP: for each subcommand its syntax, then its lines, indented.
pub fn help(ctx: &mut ServerCtx<'_, '_>, container: &str, subcommands: &[(&str, &[&str])]) {
    ::commands::help::reply_help(&mut ctx.reply, container, subcommands);
}
