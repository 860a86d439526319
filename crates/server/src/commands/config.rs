//! CONFIG: shows and changes the options of the running server, and writes them to the
//! configuration file.

use std::collections::BTreeSet;
use std::sync::Once;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use ::commands::table::{Acl, Arg, Arity, Command, Flags, Group, History};
use ::commands::{Args, CommandError};
use engine::client_eviction;
use engine::stats::Counter;
use keyspace::key::SHARD_COUNT;
use keyspace::{Access, access_clock};
use net::Address;

use crate::commands::help;
use crate::config::Refusal;
use crate::config::apply::PortZeros;
use crate::config::option::{FollowUp, OnChange, Opt, Prepare};
use crate::config::rewrite::Added;
use crate::config::store::{ConfigStore, Permission, SetError};
use crate::config::table::{self, OptId, clients, persistence, process, security};
use crate::config::{apply, rewrite};
use crate::context::Runner;
use crate::context::ServerCtx;
use crate::persistence::aof::{self, Unprepared};
use crate::primary_link::engine_role::update_engine;
use crate::replicas::good_replicas::update_good_replicas;
use crate::shared::{Message, Shared};
use crate::start_error::StartError;
use crate::{limits, listen, logging, tls, users};

/// The commands that this file adds to the command table, through [`super::all`].
pub static COMMANDS: &[&Command<Runner>] = &[&CONFIG];

/// The command flags of all CONFIG subcommands except HELP.
const FLAGS: Flags = Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::LOADING).union(Flags::STALE);
/// The ACL categories of all CONFIG subcommands except HELP.
const ACL: Acl = Acl::ADMIN.union(Acl::DANGEROUS);

static CONFIG: Command<Runner> = Command {
    name: "CONFIG",
    summary: "A container for commands that manage the server's options.",
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
/// Handles CONFIG GET pattern [pattern ...]: replies with a map from the names of matching options
/// to their values.
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
    summary: "Changes options atomically: all of them or none.",
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
/// Handles CONFIG SET name value [name value ...]: changes all options, or none after an error.
fn config_set(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let words: Vec<&[u8]> = args.from(2).collect();
    let (pairs, []) = words.as_chunks::<2>() else { return Err(CommandError::Syntax) };
    let pairs: Vec<(&[u8], &[u8])> = pairs.iter().map(|[name, value]| (*name, *value)).collect();
    let mut config = ctx.shared.config();
    let permission = permission(&config, &ctx.session.info.peer);
    let names_folder =
        |(name, _): &(&[u8], &[u8])| name.eq_ignore_ascii_case(persistence::DIR.opt.name.as_bytes());
    // `dir` cannot change while a file of this folder is being loaded, as in Redis.
    if permission == Permission::Protected
        && ctx.shared.engine.server_state.is_loading.load(Relaxed)
        && pairs.iter().any(names_folder)
    {
        return Err(CommandError::Line("LOADING Redis is loading the dataset in memory"));
    }
    let mut changed = config.clone();
    let set = changed.set(&pairs, permission).map_err(set_error)?;
    let differs = |id: &&OptId| changed.value(**id) != config.value(**id);
    let acts = |id: &&OptId| differs(id) || id.option().is_read_when_set();
    let options: Vec<&'static Opt> = set.iter().filter(acts).map(|id| id.option()).collect();
    prepare(ctx.shared, &options, &changed).map_err(|(name, reason)| {
        restore_tls(ctx.shared, &options, &config);
        refused(name.as_bytes(), &reason)
    })?;
    for option in &options {
        if let Some(why) = option.idle_reason() {
            tracing::warn!("Option '{}' was set but has no effect: {why}", option.name);
        }
    }
    let counted_uses = ctx.shared.engine.settings.get().lfu;
    ctx.shared.engine.settings.set(apply::settings(&changed));
    *config = changed;
    drop(config);
    if ctx.shared.engine.settings.get().lfu != counted_uses {
        convert_access_clocks(ctx);
    }
    follow_up(ctx, &options);
    ctx.reply.ok();
    Ok(())
}

/// Converts the access clocks of all keys to the kind (LRU or LFU) that the new eviction policy
/// uses. O(keys); one shard is locked at a time.
fn convert_access_clocks(ctx: &mut ServerCtx<'_, '_, '_>) {
    // After this step no thread is in a request that records accesses by the old policy.
    ctx.pass.exclusive(|_| ());
    let now_ms = ctx.now_ms;
    let to = match ctx.shared.engine.settings.get().lfu {
        true => Access::Lfu { clock_minutes: (now_ms / 60_000) as u32, log_factor: 0, decay_minutes: 0 },
        false => Access::Lru { clock_s: (now_ms / 1000) as u32 },
    };
    (0..SHARD_COUNT).for_each(|shard| access_clock::convert_shard(&ctx.shared.engine.keyspace, shard, to));
}

/// Returns the permission of a client with the address `peer` to change options. It includes
/// protected options if `enable-protected-configs` includes the address.
fn permission(config: &ConfigStore, peer: &Address) -> Permission {
    match security::ENABLE_PROTECTED_CONFIGS.of(config).includes(peer) {
        true => Permission::Protected,
        false => Permission::Plain,
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

/// Runs the actions ([`Prepare`]) that changed options need before their new values take effect. An
/// error names the option that caused it; the caller then changes no option.
fn prepare(
    shared: &Shared,
    changed: &[&'static Opt],
    new: &ConfigStore,
) -> Result<(), (&'static str, Refusal)> {
    let step = |option: &&'static Opt| match option.on_change {
        OnChange::Prepare(step) | OnChange::Both(step, _) => Some((step, option.name)),
        OnChange::Nothing | OnChange::FollowUp(_) => None,
    };
    let mut steps: Vec<(Prepare, &'static str)> = changed.iter().filter_map(step).collect();
    // Stable: of several options with the same step, the error names the first one of the request.
    steps.sort_by_key(|(step, _)| step.order());
    steps.dedup_by_key(|(step, _)| step.order());
    steps.into_iter().try_for_each(|(step, name)| take_step(shared, step, new).map_err(|why| (name, why)))
}

/// Loads the TLS certificates that `config` names again, after a failed CONFIG SET. `config` has
/// the values from before the command. Does nothing unless one of the options `changed` may have
/// replaced the certificates.
fn restore_tls(shared: &Shared, changed: &[&'static Opt], config: &ConfigStore) {
    let is_read = |option: &&Opt| option.on_change == OnChange::Prepare(Prepare::Tls);
    if changed.iter().any(is_read)
        && shared.tls.is_ahead_of(config)
        && let Err(problem) = shared.tls.configure(config)
    {
        tracing::warn!("Cannot go back to the previous TLS certificates: {problem}");
    }
}

/// Loads the files that the TLS options in `new` name. After an error, logs the reason and returns
/// a fixed text for the client.
fn configure_tls(shared: &Shared, new: &ConfigStore) -> Result<(), Refusal> {
    shared.tls.configure(new).map(|_| ()).map_err(|problem| {
        tracing::warn!("{problem}");
        "Unable to update TLS configuration. Check server logs.".into()
    })
}

/// Runs one action that a changed option needs before the option values in `new` take effect.
fn take_step(shared: &Shared, step: Prepare, new: &ConfigStore) -> Result<(), Refusal> {
    match step {
        Prepare::OpenFiles => fit_open_files(shared, clients::MAXCLIENTS.of(new) as u64),
        Prepare::Tls if tls::is_wanted(new) => configure_tls(shared, new),
        Prepare::Tls => Ok(()),
        Prepare::TlsLimits => {
            shared.tls.follow_limits(new);
            Ok(())
        }
        Prepare::ListenOnTlsPort => {
            if table::tls::PORT.of(new) != 0 {
                configure_tls(shared, new)?;
            }
            listen_as_configured(shared, new, "Unable to listen on this port. Check server logs.")
        }
        Prepare::ListenOnPort => {
            listen_as_configured(shared, new, "Unable to listen on this port. Check server logs.")
        }
        Prepare::ListenOnAddresses => {
            listen_as_configured(shared, new, "Failed to bind to specified addresses.")
        }
        Prepare::WorkingFolder => {
            std::env::set_current_dir(persistence::DIR.of(new)).map_err(|error| error.to_string().into())
        }
        Prepare::AppendOnly => aof::prepare(shared, new).map_err(|why| match why {
            Unprepared::Taken(trouble) => trouble.0.into(),
            Unprepared::Failed(trouble) => {
                tracing::warn!("The append-only file cannot be turned on: {trouble}");
                "Unable to turn on AOF. Check server logs.".into()
            }
        }),
        Prepare::LogLevel => {
            logging::set_level(process::LOGLEVEL.of(new));
            Ok(())
        }
        Prepare::LogForm => {
            logging::set_forms(process::LOG_FORMAT.of(new), process::LOG_TIMESTAMP_FORMAT.of(new));
            Ok(())
        }
    }
}

/// Runs the actions ([`FollowUp`]) that changed options need after their new values have taken
/// effect.
fn follow_up(ctx: &mut ServerCtx<'_, '_, '_>, changed: &[&'static Opt]) {
    let step = |option: &&'static Opt| match option.on_change {
        OnChange::FollowUp(step) | OnChange::Both(_, step) => Some(step),
        OnChange::Nothing | OnChange::Prepare(_) => None,
    };
    let settings = ctx.shared.engine.settings.get();
    for step in changed.iter().filter_map(step).collect::<BTreeSet<_>>() {
        match step {
            FollowUp::HotKeyWindows => {
                ctx.shared.engine.hot_keys.windows.configure(settings.key_sampling, Instant::now());
            }
            FollowUp::ClientMemory => {
                client_eviction::set_limit(
                    &ctx.shared.engine,
                    ctx.thread,
                    &ctx.data.commit.outbox,
                    settings.clients.maxmemory_clients_bytes,
                );
                ctx.shared.broadcast(|| Message::CountClients);
            }
            FollowUp::GoodReplicas => update_good_replicas(ctx.shared, ctx.shared.uptime_ms()),
            FollowUp::ReplicaOptions => update_engine(ctx.shared),
            FollowUp::DefaultPassword => {
                let password = security::REQUIREPASS.of(&ctx.shared.config()).to_vec();
                ctx.shared.engine.acl.users.set_default_password(&password);
            }
            FollowUp::AppendOnly => {
                let is_off = !persistence::APPENDONLY.of(&ctx.shared.config());
                let stopped = if is_off { ctx.pass.outside(|| aof::stop_rewrites(ctx.shared)) } else { None };
                aof::follow_options(ctx.shared, stopped, |act| ctx.pass.exclusive(|alone| act(alone)));
            }
        }
    }
}

/// Raises the limit of open files so that it suffices for `wanted` clients. Otherwise returns an
/// error with the number of clients that is possible.
fn fit_open_files(shared: &Shared, wanted: u64) -> Result<(), Refusal> {
    let possible = limits::raise_open_files(wanted, shared.engine.threads.len());
    if possible < wanted {
        let problem = "The operating system is not able to handle the specified number of clients";
        return Err(format!("{problem}, try with {possible}").into());
    }
    Ok(())
}

/// Listens on the addresses and ports that `config` names. After an error, logs the reason and
/// returns `refusal`, the text for the client.
fn listen_as_configured(shared: &Shared, config: &ConfigStore, refusal: &'static str) -> Result<(), Refusal> {
    try_listen(shared, config).map_err(|reason| {
        tracing::warn!("Could not listen on the new addresses: {reason}");
        refusal.into()
    })
}

fn try_listen(shared: &Shared, config: &ConfigStore) -> Result<(), String> {
    let start = apply::start_options(config, PortZeros::default()).map_err(|error| match error {
        StartError::InvalidAddress { address, .. } => format!("{address} is not a valid address"),
        other => other.to_string(),
    })?;
    listen::replace_listeners(shared, &start, shared.tls.server().as_ref()).map_err(|error| error.to_string())
}

static CONFIG_RESETSTAT: Command<Runner> = Command {
    name: "RESETSTAT",
    summary: "Resets the counters of INFO to zero.",
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
/// Handles CONFIG RESETSTAT: sets the counters of INFO to 0.
fn config_resetstat(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    ctx.shared.engine.threads.all_stats().for_each(engine::stats::ThreadStats::reset);
    let expiry = &ctx.shared.engine.upkeep.expiry;
    let counters = [&expiry.keys, &expiry.fields, &expiry.nanos, &expiry.cut_short];
    counters.into_iter().for_each(Counter::reset);
    expiry.stale_millionths.store(0, Relaxed);
    let compaction = &ctx.shared.engine.upkeep.compaction;
    [&compaction.moved, &compaction.kept, &compaction.nanos].into_iter().for_each(Counter::reset);
    ctx.shared.engine.errors.reset();
    ctx.shared.engine.over_limit.reset();
    ctx.shared.engine.freeing.reset_stats();
    ctx.shared.replication.figures.reset();
    ctx.shared.rejected_connections.store(0, Relaxed);
    ctx.shared.ports.iter().for_each(|port| port.reply_waits.reset());
    ctx.reply.ok();
    Ok(())
}

static CONFIG_REWRITE: Command<Runner> = Command {
    name: "REWRITE",
    summary: "Writes the current options to the configuration file.",
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
/// Handles CONFIG REWRITE: writes the options to the configuration file. Does so on the I/O thread,
/// because the command is rare and the file has a few kilobytes.
fn config_rewrite(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    rewrite_file(ctx, Added::Changed)
}

/// The guard that logs only once that there is no configuration file to rewrite.
static TOLD_OF_NO_FILE: Once = Once::new();

/// Rewrites the configuration file and replies OK. `added` selects the options that are added if
/// the file does not name them.
pub(super) fn rewrite_file(ctx: &mut ServerCtx<'_, '_, '_>, added: Added) -> Result<(), CommandError> {
    let config = ctx.shared.config().clone();
    let Some(path) = config.file() else {
        // A Sentinel ignores this error, so the log must report it.
        TOLD_OF_NO_FILE.call_once(|| {
            tracing::warn!(
                "CONFIG REWRITE failed: the server has no configuration file. After a restart, it has the role \
                 and the options of its command line."
            );
        });
        return Err(CommandError::Line("ERR The server is running without a config file"));
    };
    let users = users::Running { engine: &ctx.shared.engine, config: &config };
    rewrite::rewrite_file(path, &config, &users, added).map_err(|error| {
        tracing::warn!(%error, "CONFIG REWRITE failed");
        CommandError::Text(format!("ERR Rewriting config file: {error}"))
    })?;
    tracing::info!("CONFIG REWRITE executed with success.");
    ctx.reply.ok();
    Ok(())
}

static CONFIG_HELP: Command<Runner> =
    Command { group: Group::Server, run: Runner::Server(config_help), ..Command::HELP };
/// Handles CONFIG HELP: lists the subcommands with their syntax.
fn config_help(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    help(
        ctx,
        "CONFIG",
        &[
            (
                "GET <pattern> [<pattern> ...]",
                &["Show the options whose names match a pattern, and their values."],
            ),
            (
                "SET <option> <value> [<option> <value> ...]",
                &["Change options atomically: all of them or none."],
            ),
            ("RESETSTAT", &["Reset the counters of INFO to zero."]),
            ("REWRITE", &["Write the current options to the configuration file."]),
        ],
    );
    Ok(())
}
