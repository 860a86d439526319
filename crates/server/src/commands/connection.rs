//! Commands about the connection itself: protocol, authentication, database.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use ::commands::table::{Acl, Arg, Arity, Command, Flags, Group, History};
use ::commands::{Args, CommandError};
use engine::acl::{Context, DEFAULT_USER, Identity, Reason, Refusal, User};
use engine::client::ClientNames;
use engine::session::{Flow, ReplyMode};
use resp::Protocol;

use crate::REDIS_VERSION;
use crate::audit::{Login, Outcome};
use crate::client_line::client_line;
use crate::config::table::network;
use crate::context::Runner;
use crate::context::ServerCtx;
use crate::login_delays::TOO_MANY_FAILED_LOGINS;
use crate::oidc::{is_token, user_of};

/// The commands that this file adds to the command table, through [`super::all`].
pub static COMMANDS: &[&Command<Runner>] = &[&AUTH, &ECHO, &HELLO, &PING, &QUIT, &RESET, &SELECT];

static AUTH: Command<Runner> = Command {
    name: "AUTH",
    summary: "Authenticates the connection.",
    history: History::since("1.0.0").changed(&[("6.0.0", "takes the name of a user")]),
    group: Group::Connection,
    complexity: "O(N)",
    arity: Arity::AtLeast(2),
    flags: Flags::NOSCRIPT
        .union(Flags::LOADING)
        .union(Flags::STALE)
        .union(Flags::FAST)
        .union(Flags::NO_AUTH)
        .union(Flags::ALLOW_BUSY),
    acl: Acl::CONNECTION,
    args: &[Arg::string("username").since("6.0.0").optional(), Arg::string("password")],
    run: Runner::Server(auth),
    ..Command::DEFAULT
};
/// Handles AUTH [username] password: logs the connection in as a user. The user `default` is meant
/// if no name is given.
fn auth(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    match args.len() {
        2 if ctx.shared.engine.acl.users.default_user().needs_no_password()
            && !is_token_login(ctx, args.get(1)) =>
        {
            return Err(CommandError::Line(
                "ERR AUTH <password> called without any password configured for the default user. Are you sure \
                 your configuration is correct?",
            ));
        }
        2 => authenticate(ctx, args, (DEFAULT_USER, args.get(1)))?,
        3 => authenticate(ctx, args, (args.get(1), args.get(2)))?,
        _ => return Err(CommandError::Syntax),
    }
    ctx.reply.ok();
    Ok(())
}

/// Logs the session in: with a valid token as the token's user, else as the user with this name and
/// password. The error is that of Redis for a wrong password.
fn authenticate(
    ctx: &mut ServerCtx<'_, '_, '_>,
    args: &Args<'_>,
    (name, password): (&[u8], &[u8]),
) -> Result<(), CommandError> {
    let (shared, delay_ms) = (ctx.shared, ctx.settings.clients.auth_failure_delay_ms);
    // Outside a transaction, a login attempt was delayed before it ran. A transaction cannot wait,
    // so the attempt is rejected.
    if delay_ms > 0
        && ctx.session.in_exec
        && shared.login_delays.must_wait(&ctx.session.info.peer, shared.uptime_ms())
    {
        return Err(CommandError::Line(TOO_MANY_FAILED_LOGINS));
    }
    let users = &shared.engine.acl.users;
    let by_password = || users.get(name).filter(|user| user.accepts(password)).map(|user| (user, 0));
    let Some((user, expires_s)) = by_token(ctx, name, password).or_else(by_password) else {
        note_failed_login(ctx, args.get(0), name);
        note_login(ctx, name, Outcome::Denied("auth"));
        return Err(CommandError::Line("WRONGPASS invalid username-password pair or user is disabled."));
    };
    user.name().clone_into(&mut ctx.session.info.names().user);
    ctx.session.identity.authenticate(user, users);
    ctx.session.expires_s = expires_s;
    ctx.session.unauthenticated_noted = false;
    if delay_ms > 0 {
        shared.login_delays.note_success(&ctx.session.info.peer, name, shared.uptime_ms());
    }
    note_login(ctx, ctx.session.identity.name(), Outcome::Allowed);
    Ok(())
}

/// Returns true if the server accepts tokens (`oidc-keys-file` or `oidc-keys-url`) and the password
/// has the form of a token.
fn is_token_login(ctx: &ServerCtx<'_, '_, '_>, password: &[u8]) -> bool {
    ctx.shared.oidc.is_some() && is_token(password)
}

/// Returns the user that a token logs in, and the time at which the login ends, in Unix seconds; 0
/// for no end. Returns `None` if the password is no valid token. If `name` is empty or `default`,
/// the token alone determines the user, because clients send `default` by themselves.
fn by_token(ctx: &ServerCtx<'_, '_, '_>, name: &[u8], token: &[u8]) -> Option<(Arc<User>, u64)> {
    let oidc = ctx.shared.oidc.as_ref().filter(|_| is_token(token))?;
    let login = oidc
        .login(token)
        .inspect_err(|refusal| {
            tracing::debug!(client = ctx.session.id, "a login with a token was refused: {refusal}")
        })
        .ok()?;
    let users = &ctx.shared.engine.acl.users;
    let asked = if name == DEFAULT_USER { b"" } else { name };
    let is_user = |name: &str| users.get(name.as_bytes()).is_some_and(|user| user.is_on());
    let user = users.get(user_of(&login, asked, is_user)?.as_bytes())?;
    oidc.note_login();
    Some((user, login.expires_s.unwrap_or(0)))
}

/// Records a login attempt in the audit log, and counts a failed attempt for the delay of further
/// logins.
fn note_login(ctx: &ServerCtx<'_, '_, '_>, user: &[u8], outcome: Outcome) {
    let (client, audit) = (&ctx.session.info, &ctx.settings.audit);
    if matches!(outcome, Outcome::Denied(_)) && ctx.settings.clients.auth_failure_delay_ms > 0 {
        ctx.shared.login_delays.note_failure(&client.peer, ctx.shared.uptime_ms());
    }
    let login = Login { unix_ms: ctx.now_ms, outcome, user, client, by: ctx.registered.full_name };
    ctx.shared.audit.note_login(audit, login);
}

/// Counts a failed login attempt in INFO, and adds it to ACL LOG.
#[cold]
fn note_failed_login(ctx: &ServerCtx<'_, '_, '_>, command: &[u8], username: &[u8]) {
    ctx.shared.engine.threads[ctx.thread].stats.denied.auth.add(1);
    let mut client = client_line(ctx.shared, &ctx.session.info, &[]).into_bytes();
    client.pop();
    let refusal = Refusal {
        reason: Reason::Auth,
        context: if ctx.session.in_exec { Context::Multi } else { Context::TopLevel },
        object: command.to_vec(),
        username: username.to_vec(),
        client,
        unix_ms: ctx.now_ms,
    };
    ctx.shared.engine.acl.log.note(refusal, ctx.settings.acl_log_len_max);
}

static ECHO: Command<Runner> = Command {
    name: "ECHO",
    summary: "Returns the given string.",
    history: History::since("1.0.0"),
    group: Group::Connection,
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    flags: Flags::LOADING.union(Flags::STALE).union(Flags::FAST),
    acl: Acl::CONNECTION,
    args: &[Arg::string("message")],
    run: Runner::Server(echo),
    ..Command::DEFAULT
};
/// Handles ECHO message: replies with the message.
fn echo(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    ctx.reply.bulk(args.get(1));
    Ok(())
}

static HELLO: Command<Runner> = Command {
    name: "HELLO",
    summary: "Selects the protocol version. Can also authenticate and name the connection.",
    history: History::since("6.0.0").changed(&[("6.2.0", "keeps the protocol version if none is given")]),
    group: Group::Connection,
    complexity: "O(1)",
    arity: Arity::AtLeast(1),
    flags: Flags::NOSCRIPT
        .union(Flags::LOADING)
        .union(Flags::STALE)
        .union(Flags::FAST)
        .union(Flags::NO_AUTH)
        .union(Flags::ALLOW_BUSY),
    acl: Acl::CONNECTION,
    args: &[Arg::block(
        "arguments",
        &[
            Arg::integer("protover"),
            Arg::block("auth", &[Arg::string("username"), Arg::string("password")]).token("AUTH").optional(),
            Arg::string("clientname").token("SETNAME").optional(),
        ],
    )
    .optional()],
    run: Runner::Server(hello),
    ..Command::DEFAULT
};
/// Handles HELLO [protover [AUTH username password] [SETNAME name]]: selects the protocol, and
/// replies with a description of the server and the connection.
fn hello(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let protocol = match args.try_get(1) {
        None => ctx.session.protocol(),
        Some(version) => match stdx::number::parse_i64(version) {
            Some(2) => Protocol::Resp2,
            Some(3) => Protocol::Resp3,
            Some(_) => return Err(CommandError::Line("NOPROTO unsupported protocol version")),
            None => {
                return Err(CommandError::Line("ERR Protocol version is not an integer or out of range"));
            }
        },
    };
    let (mut at, mut name) = (2, None);
    while at < args.len() {
        if args.is(at, "AUTH") && at + 2 < args.len() {
            authenticate(ctx, args, (args.get(at + 1), args.get(at + 2)))?;
            at += 3;
        } else if args.is(at, "SETNAME") && at + 1 < args.len() {
            name = Some(super::client::valid_name(args.get(at + 1))?);
            at += 2;
        } else {
            return Err(CommandError::quoting("ERR Syntax error in HELLO option '", args.get(at), "'"));
        }
    }
    if ctx.session.identity.must_authenticate() {
        return Err(CommandError::Line(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH \
             <user> <pass> option can be used to authenticate the client and select the RESP protocol version at \
             the same time",
        ));
    }
    if let Some(name) = name {
        ctx.session.info.names().name = name;
    }
    switch_protocol(ctx, protocol);
    ctx.reply.set_protocol(protocol);
    let zone = network::AVAILABILITY_ZONE.of(&ctx.shared.config()).to_vec();
    ctx.reply.map(if zone.is_empty() { 7 } else { 8 });
    ctx.reply.bulk(b"server");
    ctx.reply.bulk(b"redis");
    ctx.reply.bulk(b"version");
    ctx.reply.bulk(REDIS_VERSION.as_bytes());
    ctx.reply.bulk(b"proto");
    ctx.reply.integer(ctx.session.info.resp.load(Relaxed) as i64);
    ctx.reply.bulk(b"id");
    ctx.reply.integer(ctx.session.id as i64);
    ctx.reply.bulk(b"mode");
    ctx.reply.bulk(b"standalone");
    ctx.reply.bulk(b"role");
    ctx.reply.bulk(if ctx.shared.replication.upstream.is_replica() { b"replica" } else { b"master" });
    ctx.reply.bulk(b"modules");
    ctx.reply.empty_array();
    if !zone.is_empty() {
        ctx.reply.bulk(b"availability_zone");
        ctx.reply.bulk(&zone);
    }
    Ok(())
}

fn switch_protocol(ctx: &mut ServerCtx<'_, '_, '_>, protocol: Protocol) {
    let version = if protocol == Protocol::Resp3 { 3 } else { 2 };
    ctx.session.info.resp.store(version, Relaxed);
}

static PING: Command<Runner> = Command {
    name: "PING",
    summary: "Returns PONG or the given string, to test the connection.",
    history: History::since("1.0.0"),
    group: Group::Connection,
    complexity: "O(1)",
    arity: Arity::AtLeast(1),
    flags: Flags::FAST.union(Flags::FOR_SUBSCRIBERS),
    acl: Acl::CONNECTION,
    tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
    args: &[Arg::string("message").optional()],
    run: Runner::Server(ping),
    ..Command::DEFAULT
};
/// Handles PING [message]: replies PONG, or with the message.
fn ping(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    match args.len() {
        1 | 2 if ctx.session.subscriptions.is_some() && ctx.session.protocol() == Protocol::Resp2 => {
            // The reply has the form of a message, because RESP2 subscribers expect only messages.
            ctx.reply.array(2);
            ctx.reply.bulk(b"pong");
            ctx.reply.bulk(args.try_get(1).unwrap_or_default());
        }
        1 => ctx.reply.simple("PONG"),
        2 => ctx.reply.bulk(args.get(1)),
        _ => return Err(CommandError::WrongArity("ping")),
    }
    Ok(())
}

static QUIT: Command<Runner> = Command {
    name: "QUIT",
    summary: "Closes the connection.",
    history: History::since("1.0.0").deprecated("7.2.0", "just closing the connection"),
    group: Group::Connection,
    complexity: "O(1)",
    arity: Arity::AtLeast(1),
    flags: Flags::NOSCRIPT
        .union(Flags::LOADING)
        .union(Flags::STALE)
        .union(Flags::FAST)
        .union(Flags::NO_AUTH)
        .union(Flags::ALLOW_BUSY)
        .union(Flags::FOR_SUBSCRIBERS)
        .union(Flags::UNQUEUED),
    acl: Acl::CONNECTION,
    run: Runner::Server(quit),
    ..Command::DEFAULT
};
/// Handles QUIT: replies OK and closes the connection.
fn quit(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    ctx.reply.ok();
    ctx.session.flow = Flow::Closing;
    Ok(())
}

static RESET: Command<Runner> = Command {
    name: "RESET",
    summary: "Resets the connection to its initial state.",
    history: History::since("6.2.0"),
    group: Group::Connection,
    complexity: "O(1)",
    arity: Arity::Exactly(1),
    flags: Flags::NOSCRIPT
        .union(Flags::LOADING)
        .union(Flags::STALE)
        .union(Flags::FAST)
        .union(Flags::NO_AUTH)
        .union(Flags::ALLOW_BUSY)
        .union(Flags::FOR_SUBSCRIBERS)
        .union(Flags::UNQUEUED),
    acl: Acl::CONNECTION,
    run: Runner::Server(reset),
    ..Command::DEFAULT
};
/// Handles RESET: gives the connection the state of a new one. Only the name and version of its
/// client library stay.
fn reset(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    let engine::Shared { pubsub, watchers, tracking, monitors, keyspace, scripts, .. } = &ctx.shared.engine;
    if ctx.session.tracking.is_some() && (scripts.is_any_busy() || !ctx.pass.is_inside()) {
        // Unlike in Redis, because the client's tracked keys are recorded in shards that a script
        // may hold.
        return Err(scripts.error());
    }
    ctx.session.unsubscribe_all(pubsub, Some(&mut ctx.reply));
    switch_protocol(ctx, Protocol::Resp2);
    ctx.reply.set_protocol(Protocol::Resp2);
    let session = &mut *ctx.session;
    session.drop_transaction();
    session.field_sets.clear();
    if ctx.pass.is_inside() {
        session.unwatch(watchers, keyspace);
    } else {
        session.unwatch_later();
    }
    session.stop_tracking(tracking, keyspace);
    session.stop_monitoring(monitors);
    session.info.db.store(0, Relaxed);
    session.identity = Identity::of_connection(&ctx.shared.engine.acl.users);
    session.expires_s = 0;
    session.reply_mode = ReplyMode::On;
    session.info.choices.no_touch.store(false, Relaxed);
    ctx.shared.engine.clients.unprotect(&session.info);
    session.info.choices.import_source.store(false, Relaxed);
    let mut names = session.info.names();
    *names = ClientNames {
        user: b"default".to_vec(),
        lib_name: std::mem::take(&mut names.lib_name),
        lib_version: std::mem::take(&mut names.lib_version),
        name: Vec::new(),
    };
    drop(names);
    ctx.reply.simple("RESET");
    Ok(())
}

static SELECT: Command<Runner> = Command {
    name: "SELECT",
    summary: "Selects the database of the connection.",
    history: History::since("1.0.0"),
    group: Group::Connection,
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    flags: Flags::LOADING.union(Flags::STALE).union(Flags::FAST),
    acl: Acl::CONNECTION,
    args: &[Arg::integer("index")],
    run: Runner::Server(select),
    ..Command::DEFAULT
};
/// Handles SELECT index: selects the database for the next commands of the connection.
fn select(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let index = args.db_index(1, ctx.shared.engine.keyspace.db_count())?;
    ctx.session.info.db.store(index as u64, Relaxed);
    ctx.reply.ok();
    Ok(())
}
