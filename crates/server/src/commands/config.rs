//! CONFIG: the options of the running server.

use std::borrow::Cow;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use ::commands::table::{Acl, Arg, Arity, Command, Flags, Group, History};
use ::commands::{Args, CommandError};
use engine::client_eviction;
use engine::stats::Counter;
use net::Address;

use crate::commands::help;
use crate::config::option::Acts;
use crate::config::rewrite::Added;
use crate::config::store::{ConfigStore, Permission, SetError};
use crate::config::table::OptId;
use crate::config::{apply, rewrite};
use crate::context::Runner;
use crate::context::ServerCtx;
use crate::shared::{Message, Shared};
use crate::start_error::StartError;
use crate::{limits, listen, logging};

/// This group's commands.
pub static COMMANDS: &[&Command<Runner>] = &[&CONFIG];

/// How all subcommands but HELP behave.
const FLAGS: Flags = Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::LOADING).union(Flags::STALE);
/// What access control calls them.
const ACL: Acl = Acl::ADMIN.union(Acl::DANGEROUS);

static CONFIG: Command<Runner> = Command {
    name: "CONFIG",
    summary: "Commands about the server's options.",
    history: History::since("2.0.0"),
    group: Group::Server,
    complexity: "Depends on subcommand.",
    arity: Arity::AtLeast(2),
    flags: Flags::empty(),
    acl: Acl::empty(),
    subcommands: &[&CONFIG_GET, &CONFIG_HELP, &CONFIG_RESETSTAT, &CONFIG_REWRITE, &CONFIG_SET],
    run: Runner::Server(super::container),
    ..Command::DEFAULT
};

static CONFIG_GET: Command<Runner> = Command {
    name: "GET",
    summary: "Returns the values of options whose names match patterns.",
    history: History::since("2.0.0").changed(&[("7.0.0", "takes several patterns")]),
    group: Group::Server,
    complexity: "O(N) where N is the number of options times the number of patterns",
    arity: Arity::AtLeast(3),
    flags: FLAGS,
    acl: ACL,
    args: &[Arg::string("parameter").multiple()],
    run: Runner::Server(config_get),
    ..Command::DEFAULT
};
/// CONFIG GET pattern [pattern ...]: a map.
fn config_get(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let patterns: Vec<&[u8]> = args.from(2).collect();
    let found = ctx.shared.config().matching(&patterns);
    ctx.reply.map(found.len());
    for (name, value) in &found {
        ctx.reply.bulk(name);
        ctx.reply.bulk(value);
    }
    Ok(())
}

static CONFIG_SET: Command<Runner> = Command {
    name: "SET",
    summary: "Changes options, all of them or none.",
    history: History::since("2.0.0").changed(&[("7.0.0", "takes several options")]),
    group: Group::Server,
    complexity: "O(N) where N is the number of options",
    arity: Arity::AtLeast(4),
    flags: FLAGS,
    acl: ACL,
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    args: &[Arg::block("data", &[Arg::string("parameter"), Arg::string("value")]).multiple()],
    run: Runner::Server(config_set),
    ..Command::DEFAULT
};
/// CONFIG SET name value [name value ...].
fn config_set(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let words: Vec<&[u8]> = args.from(2).collect();
    let (pairs, []) = words.as_chunks::<2>() else { return Err(CommandError::Syntax) };
    let pairs: Vec<(&[u8], &[u8])> = pairs.iter().map(|[name, value]| (*name, *value)).collect();
    let mut config = ctx.shared.config();
    let permission = permission(&config, &ctx.session.info.peer);
    let mut changed = config.clone();
    let set = changed.set(&pairs, permission).map_err(set_error)?;
    let differs = |id: &&OptId| changed.value(**id) != config.value(**id);
    let names: Vec<&'static str> = set.iter().filter(differs).map(|id| id.option().name).collect();
    take_effect(ctx.shared, &names, &changed).map_err(|(name, reason)| refused(name.as_bytes(), &reason))?;
    for option in set.iter().filter(differs).map(|id| id.option()) {
        if let Acts::Accepted(why) = option.acts {
            tracing::warn!("Option '{}' was set and does nothing: {why}", option.name);
        }
    }
    ctx.shared.engine.settings.set(apply::settings(&changed));
    *config = changed;
    drop(config);
    ctx.shared
        .engine
        .hot_keys
        .windows
        .configure(ctx.shared.engine.settings.get().key_sampling, Instant::now());
    if names.iter().any(|name| matches!(*name, "maxmemory-clients" | "maxmemory")) {
        let limit_bytes = ctx.shared.engine.settings.get().maxmemory_clients_bytes;
        let outbox = &ctx.data.commit.outbox;
        client_eviction::evict(&ctx.shared.engine, ctx.thread, outbox, limit_bytes);
        ctx.shared.broadcast(|| Message::CountClients);
    }
    ctx.reply.ok();
    Ok(())
}

/// Whether this client may change protected options.
fn permission(config: &ConfigStore, peer: &Address) -> Permission {
    let local = match peer {
        Address::Tcp(peer) => peer.ip().to_canonical().is_loopback(),
        Address::Unix(_) => true,
    };
    match config.choice("enable-protected-configs") {
        "yes" => Permission::Protected,
        "local" if local => Permission::Protected,
        _ => Permission::Plain,
    }
}

fn set_error(error: SetError) -> CommandError {
    match error {
        SetError::Unknown(name) => {
            CommandError::quoting("ERR Unknown option or number of arguments for CONFIG SET - '", &name, "'")
        }
        SetError::Refused { name, reason } => refused(&name, &reason),
    }
}

fn refused(name: &[u8], reason: &str) -> CommandError {
    let name = String::from_utf8_lossy(name);
    CommandError::Text(format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}"))
}

/// Does what the changed options `names` need beside new settings. An error says which option is to
/// blame, and that nothing is to change.
fn take_effect(
    shared: &Shared,
    names: &[&'static str],
    new: &ConfigStore,
) -> Result<(), (&'static str, Cow<'static, str>)> {
    let has = |name: &str| names.contains(&name);
    if has("maxclients") {
        let wanted = new.integer("maxclients") as u64;
        let possible = limits::raise_open_files(wanted, shared.engine.threads.len());
        if possible < wanted {
            let problem = "The operating system is not able to handle the specified number of clients";
            return Err(("maxclients", format!("{problem}, try with {possible}").into()));
        }
    }
    if let Some(&name) = names.iter().find(|&&name| name == "port" || name == "bind") {
        let refusal = match name {
            "port" => "Unable to listen on this port. Check server logs.",
            _ => "Failed to bind to specified addresses.",
        };
        listen_as_configured(shared, new).map_err(|reason| {
            tracing::warn!("Listening elsewhere failed: {reason}");
            (name, refusal.into())
        })?;
    }
    if has("dir") {
        let folder = apply::path(new.text("dir"));
        std::env::set_current_dir(folder).map_err(|error| ("dir", error.to_string().into()))?;
    }
    if has("loglevel") {
        logging::set_level(new.choice("loglevel"));
    }
    if has("log-format") || has("log-timestamp-format") {
        logging::set_forms(new.choice("log-format"), new.choice("log-timestamp-format"));
    }
    Ok(())
}

fn listen_as_configured(shared: &Shared, config: &ConfigStore) -> Result<(), String> {
    let start = apply::start_options(config, false).map_err(|error| match error {
        StartError::NoAddress { address, .. } => format!("{address} is no address"),
        other => other.to_string(),
    })?;
    listen::listen_elsewhere(shared, &start.addresses, start.port, start.tcp_backlog)
        .map_err(|error| error.to_string())
}

static CONFIG_RESETSTAT: Command<Runner> = Command {
    name: "RESETSTAT",
    summary: "Sets the counters of INFO back to zero.",
    history: History::since("2.0.0"),
    group: Group::Server,
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    flags: FLAGS,
    acl: ACL,
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    run: Runner::Server(config_resetstat),
    ..Command::DEFAULT
};
/// CONFIG RESETSTAT.
fn config_resetstat(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    ctx.shared.engine.threads.all_stats().for_each(engine::stats::ThreadStats::reset);
    let expiry = &ctx.shared.engine.expiry;
    let counters = [&expiry.keys, &expiry.fields, &expiry.nanos, &expiry.cut_short];
    counters.into_iter().for_each(Counter::reset);
    expiry.stale_millionths.store(0, Relaxed);
    ctx.shared.engine.errors.reset();
    ctx.shared.engine.over_limit.reset();
    ctx.shared.engine.freeing.reset_stats();
    ctx.shared.rejected_connections.store(0, Relaxed);
    ctx.reply.ok();
    Ok(())
}

static CONFIG_REWRITE: Command<Runner> = Command {
    name: "REWRITE",
    summary: "Writes the options as they are now to the configuration file.",
    history: History::since("2.8.0"),
    group: Group::Server,
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    flags: FLAGS,
    acl: ACL,
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    run: Runner::Server(config_rewrite),
    ..Command::DEFAULT
};
/// CONFIG REWRITE. Writes a file on the I/O thread: it is an operator's rare wish, and a few kilobytes.
fn config_rewrite(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    rewrite_file(ctx, Added::Changed)
}

/// Rewrites the configuration file, with what is added of the options that it does not name.
pub(super) fn rewrite_file(ctx: &mut ServerCtx<'_, '_, '_>, added: Added) -> Result<(), CommandError> {
    let config = ctx.shared.config().clone();
    let Some(path) = config.file() else {
        return Err(CommandError::Line("ERR The server is running without a config file"));
    };
    rewrite::rewrite_file(path, &config, added).map_err(|error| {
        tracing::warn!(%error, "CONFIG REWRITE failed");
        CommandError::Text(format!("ERR Rewriting config file: {error}"))
    })?;
    tracing::info!("CONFIG REWRITE executed with success.");
    ctx.reply.ok();
    Ok(())
}

static CONFIG_HELP: Command<Runner> = Command {
    name: "HELP",
    summary: "Explains the subcommands.",
    history: History::since("5.0.0"),
    group: Group::Server,
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    flags: Flags::LOADING.union(Flags::STALE),
    acl: Acl::empty(),
    run: Runner::Server(config_help),
    ..Command::DEFAULT
};
/// CONFIG HELP.
fn config_help(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    help(
        ctx,
        "CONFIG",
        &[
            ("GET <pattern> [<pattern> ...]", &["Show the options that match a pattern, and their values."]),
            ("SET <option> <value> [<option> <value> ...]", &["Change options, all of them or none."]),
            ("RESETSTAT", &["Set the counters of INFO back to zero."]),
            ("REWRITE", &["Write the options as they are now to the configuration file."]),
        ],
    );
    Ok(())
}
