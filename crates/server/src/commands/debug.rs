//! DEBUG: commands for test suites and for examining a server. They require `enable-debug-command`.
//!
//! DEBUG has no subcommands in the command table. As in Redis, one record covers all, and an
//! unknown word and a wrong number of arguments give the same error. Commands that would end or
//! damage the process are refused.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use ::commands::table::{Acl, Arity, Command, Flags, Group, History};
use ::commands::{Args, CommandError};
use engine::settings::Checksums;
use keyspace::key::SHARD_COUNT;
use keyspace::string::{encoding_name, stored};
use keyspace::{Access, Key, KeyEntry, ListView, Object};
use resp::Protocol;
use stdx::glob::glob_match;
use stdx::memory_size::parse_memory;
use structures::entry::View;

use crate::config::rewrite::Added;
use crate::config::table::security;
use crate::context::Runner;
use crate::context::ServerCtx;
use crate::random::random_repl_id;

mod change_log;
mod digest;
mod reload;
mod stand_in;

use digest::Digest;

/// The commands that this file adds to the command table, through [`super::all`].
pub static COMMANDS: &[&Command<Runner>] = &[&DEBUG];

static DEBUG: Command<Runner> = Command {
    name: "DEBUG",
    summary: "A container for commands for tests and diagnosis.",
    history: History::since("1.0.0"),
    group: Group::Server,
    complexity: "Depends on subcommand.",
    arity: Arity::AtLeast(2),
    flags: Flags::ADMIN
        .union(Flags::NOSCRIPT)
        .union(Flags::LOADING)
        .union(Flags::STALE)
        .union(Flags::INTERNAL),
    acl: Acl::ADMIN.union(Acl::DANGEROUS),
    run: Runner::Server(debug),
    ..Command::DEFAULT
};
/// Handles DEBUG subcommand [argument ...]: calls the function of the subcommand.
fn debug(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    if !is_permitted(ctx) {
        return Err(CommandError::Line(NOT_PERMITTED));
    }
    match (args.get(1).to_ascii_lowercase().as_slice(), args.len()) {
        (b"help", 2) => help(ctx),
        (b"sleep", 3) => sleep(ctx, args.get(2)),
        (b"script-standin", 4..) => return stand_in::run(ctx, args),
        (b"object", 3) => return object(ctx, args.key(2)),
        (b"listpack", 3) => return listpack(ctx, args.key(2)),
        (b"quicklist", 3 | 4) => return quicklist(ctx, args.key(2)),
        (b"sdslen", 3) => return string_sizes(ctx, args.key(2)),
        (b"structsize", 2) => struct_sizes(ctx),
        (b"pause-cron", 3) => {
            ctx.shared.switched_off.cron.store(c_integer(args.get(2)) != 0, Relaxed);
            ctx.reply.ok();
        }
        (b"aof-flush-sleep", 3) => {
            let sleep_us = u64::try_from(c_integer(args.get(2))).unwrap_or(0);
            ctx.shared.append_only.sleep_us.store(sleep_us, Relaxed);
            ctx.reply.ok();
        }
        (b"set-active-expire", 3) => {
            ctx.shared.switched_off.active_expire.store(c_integer(args.get(2)) == 0, Relaxed);
            ctx.reply.ok();
        }
        (b"digest", 2) => {
            let shared = ctx.shared;
            let digest = ctx.pass.exclusive(|_alone| Digest::of_keyspace(&shared.engine.keyspace));
            ctx.reply.simple(&digest.hex());
        }
        (b"digest-value", _) => digest_values(ctx, args),
        (b"populate", 3..=5) => return populate(ctx, args),
        (b"protocol", 3) => return protocol(ctx, args.get(2)),
        (b"error", 3) => return Err(CommandError::Bytes(one_line(args.get(2)))),
        (b"log", 3) => {
            tracing::warn!(message = %String::from_utf8_lossy(args.get(2)), "DEBUG LOG");
            ctx.reply.ok();
        }
        (b"htstats", 3 | 4) => return table_stats(ctx, args),
        (b"htstats-key", 3 | 4) => return value_table_stats(ctx, args.key(2)),
        (b"change-repl-id", 2) => change_repl_id(ctx),
        (b"change-log", _) => return change_log::change_log(ctx, args),
        (b"reload", _) => return reload::reload(ctx, args),
        (b"loadaof", 2) => return reload::load_append_only(ctx),
        (b"set-disable-deny-scripts", 3) => allow_in_scripts(ctx, args.get(2)),
        (b"set-skip-checksum-validation", 3) => skip_checksums(ctx, args.get(2)),
        (b"quicklist-packed-threshold", 3) => return packed_threshold(ctx, args.get(2)),
        (b"stringmatch-len", 4) => return match_length(ctx, args.get(2), args.get(3)),
        (b"config-rewrite-force-all", 2) => return super::config::rewrite_file(ctx, Added::All),
        // Accepted without effect: threads write replies into their own buffers. No client owns a
        // buffer that could be resized.
        (b"replybuffer", 4) if args.is(2, "RESIZING") || args.is(2, "PEAK-RESET-TIME") => ctx.reply.ok(),
        (b"dict-resizing", 3) => return Err(CommandError::Line(FIXED)),
        (b"clusterlink", 5) if args.is(2, "KILL") => return Err(CommandError::Line(NO_CLUSTER)),
        (b"internal_secret", 2) => return Err(CommandError::Line("ERR Internal secret is missing")),
        (b"segfault" | b"panic" | b"assert" | b"oom" | b"leak" | b"restart" | b"crash-and-recover", _) => {
            return Err(CommandError::Line(REFUSED));
        }
        _ => {
            let before = "ERR unknown subcommand or wrong number of arguments for '";
            let asked = args.get(1);
            let asked = &asked[..asked.len().min(128)];
            return Err(CommandError::quoting(before, asked, "'. Try DEBUG HELP."));
        }
    }
    Ok(())
}

const NOT_PERMITTED: &str = "ERR DEBUG command not allowed. If the enable-debug-command option is set to \
    \"local\", you can run it from a local connection, otherwise you need to set this option in the \
    configuration file, and then restart the server.";
const NO_CLUSTER: &str = "ERR Debug option only available for cluster mode enabled setup!";
const FIXED: &str = "ERR not supported: the hash tables of this server do not have this setting";
const REFUSED: &str =
    "ERR not supported: no request may crash or damage this server. Use SHUTDOWN to stop it";

/// Handles DEBUG STRUCTSIZE: replies with the sizes of basic structures, in bytes.
fn struct_sizes(ctx: &mut ServerCtx<'_, '_, '_>) {
    let (entry, object, key) = (size_of::<KeyEntry>(), size_of::<Object>(), size_of::<Key<'_>>());
    let bits = usize::BITS;
    ctx.reply.simple(&format!("bits:{bits} entry:{entry} object:{object} key:{key}"));
}

/// Returns true if `enable-debug-command` permits this client.
fn is_permitted(ctx: &ServerCtx<'_, '_, '_>) -> bool {
    security::ENABLE_DEBUG_COMMAND.of(&ctx.shared.config()).includes(&ctx.session.info.peer)
}

/// Parses an integer; returns 0 for any other text. Unlike C's `atoi`, it also returns 0 for digits
/// that other characters follow.
fn c_integer(text: &[u8]) -> i64 {
    stdx::number::parse_i64(text).unwrap_or(0)
}

/// Replaces line ends in `text` by spaces, because they would end a RESP line.
fn one_line(text: &[u8]) -> Vec<u8> {
    text.iter().map(|&byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }).collect()
}

fn help(ctx: &mut ServerCtx<'_, '_, '_>) {
    super::help(ctx, "DEBUG", HELP);
}

/// The subcommands that DEBUG HELP lists: for each its syntax and the lines of its explanation.
const HELP: &[(&str, &[&str])] = &[
    (
        "AOF-FLUSH-SLEEP <microseconds>",
        &["Delays each write of the thread that syncs the append-only file by this time."],
    ),
    (
        "CHANGE-LOG (DISCARD|FILE <path>|MANUAL) [REPLICAS] | CONFIRM [WRITTEN] | LEVEL (WRITTEN|SYNCED) | OFF",
        &[
            "Attaches a reader to the change log. DISCARD discards all changes, FILE writes them to a file,",
            "MANUAL holds replies back until CONFIRM. REPLICAS: the reader gets what replicas get, instead",
            "of the records for the append-only file. LEVEL sets the level that this client's replies wait",
            "for. OFF detaches all readers. CONFIRM and OFF do not affect the append-only file.",
        ],
    ),
    ("CHANGE-REPL-ID", &["Generates a new replication ID."]),
    (
        "CONFIG-REWRITE-FORCE-ALL",
        &["Like CONFIG REWRITE, but also writes all options that the file does not name."],
    ),
    ("DIGEST", &["A digest of all databases, the same as Redis' for the same data."]),
    ("DIGEST-VALUE <key> [<key> ...]", &["A digest of each key's value."]),
    ("ERROR <string>", &["Replies with the error <string>."]),
    ("HTSTATS <dbid> [full]", &["Sizes of the tables of a database."]),
    ("HTSTATS-KEY <key> [full]", &["Size of the table at <key>."]),
    ("LISTPACK <key>", &["Writes the size of the listpack at <key> to the log."]),
    ("LOG <message>", &["Writes <message> to the log."]),
    ("OBJECT <key>", &["The encoding of the value of <key>."]),
    (
        "POPULATE <count> [<prefix>] [<size>]",
        &["Adds missing strings with the names key:<number> or <prefix>:<number>."],
    ),
    (
        "PROTOCOL <type>",
        &[
            "Replies with a value of this type: string, integer, double, bignum, null, array, set, map,",
            "attrib, push, verbatim, true, false.",
        ],
    ),
    (
        "QUICKLIST-PACKED-THRESHOLD <size>",
        &["Strings of at least this size get their own list node. 0 restores the default."],
    ),
    ("QUICKLIST <key> [<0|1>]", &["Writes the size of the quicklist at <key> to the log."]),
    ("PAUSE-CRON <0|1>", &["Pauses (1) or continues (0) periodic work."]),
    (
        "RELOAD [NOSAVE] [MERGE] [NOFLUSH]",
        &["Saves the data, empties all databases and loads the file. NOSAVE and NOFLUSH skip the first \
         steps."],
    ),
    (
        "REPLYBUFFER (RESIZING <0|1>|PEAK-RESET-TIME <ms>)",
        &["Has no effect, because clients have no reply buffer. For tests of Redis."],
    ),
    (
        "SCRIPT-STANDIN <milliseconds> <SCRIPT|FUNCTION> [<key> ...]",
        &["Behaves like a script of this duration, on the shards of the keys or on all. For tests."],
    ),
    ("SDSLEN <key>", &["Lengths and memory of <key> and of its string."]),
    ("SET-ACTIVE-EXPIRE <0|1>", &["Turns active expiry on (1) or off (0)."]),
    (
        "SET-DISABLE-DENY-SCRIPTS <0|1>",
        &["Permits (1) all commands in scripts, or only the usual ones (0). For tests."],
    ),
    (
        "SET-SKIP-CHECKSUM-VALIDATION <0|1>",
        &["Turns the check of checksums in RESTORE and loading off (1) or on (0). For tests."],
    ),
    ("SLEEP <seconds>", &["Blocks the thread of this connection for this time. Fractions are allowed."]),
    (
        "STRINGMATCH-LEN <len> <pattern>",
        &["Matches <len> bytes of x against <pattern>, and replies 1 if they match."],
    ),
    ("STRUCTSIZE", &["Sizes of the structures of a key."]),
];

/// Handles DEBUG SET-DISABLE-DENY-SCRIPTS 0|1: with 1, scripts may also run the commands that are
/// forbidden in scripts.
fn allow_in_scripts(ctx: &mut ServerCtx<'_, '_, '_>, allows: &[u8]) {
    let scripts = &ctx.shared.engine.scripts;
    if c_integer(allows) == 0 {
        scripts.allow_usual()
    } else {
        scripts.allow_all()
    }
    ctx.reply.ok();
}

/// Handles DEBUG SET-SKIP-CHECKSUM-VALIDATION 0|1: with 1, the checksums of snapshots and of
/// RESTORE payloads are not checked. The change applies to each thread from the next turn of its
/// loop.
fn skip_checksums(ctx: &mut ServerCtx<'_, '_, '_>, skips: &[u8]) {
    let checksums = if c_integer(skips) == 0 { Checksums::Compared } else { Checksums::Skipped };
    ctx.shared.engine.settings.set_checksums(checksums);
    ctx.reply.ok();
}

/// Handles DEBUG CHANGE-REPL-ID: gives the replication history a new random id.
fn change_repl_id(ctx: &mut ServerCtx<'_, '_, '_>) {
    tracing::info!("the replication id changes because of DEBUG CHANGE-REPL-ID");
    ctx.shared.replication.primary().renew_id(random_repl_id());
    ctx.reply.ok();
}

/// Handles DEBUG QUICKLIST-PACKED-THRESHOLD size: sets the minimum length, in bytes, of a list
/// element that gets its own node. The change applies to new lists, on each thread from the next
/// turn of its loop.
fn packed_threshold(ctx: &mut ServerCtx<'_, '_, '_>, size: &[u8]) -> Result<(), CommandError> {
    let refused =
        CommandError::Line("ERR argument must be a memory value bigger than 1 and smaller than 4gb");
    let size = parse_memory(size).and_then(|bytes| u32::try_from(bytes).ok()).ok_or(refused)?;
    ctx.shared.engine.settings.set_list_plain_from(if size == 0 { u32::MAX } else { size });
    ctx.reply.ok();
    Ok(())
}

/// Maximum length of the text that DEBUG STRINGMATCH-LEN matches, in bytes.
const MATCHED_LEN_BYTES_MAX: i64 = 1 << 20;

/// Handles DEBUG STRINGMATCH-LEN len pattern: matches a text of `len` bytes, to measure slow
/// patterns.
fn match_length(ctx: &mut ServerCtx<'_, '_, '_>, len: &[u8], pattern: &[u8]) -> Result<(), CommandError> {
    let len = stdx::number::parse_i64(len).ok_or(CommandError::NotAnInteger)?;
    if !(0..=MATCHED_LEN_BYTES_MAX).contains(&len) {
        return Err(CommandError::OutOfRange("value"));
    }
    let matches = glob_match(pattern, &vec![b'x'; len as usize]);
    ctx.reply.integer(matches.into());
    Ok(())
}

/// Interval at which DEBUG SLEEP checks whether the server stops.
const SLEEP_STEP: Duration = Duration::from_millis(50);
/// Maximum duration of DEBUG SLEEP, in seconds: a year.
const SLEEP_S_MAX: f64 = 365.0 * 86_400.0;

/// Handles DEBUG SLEEP seconds. In Redis, the whole server stops. Here only the I/O thread of this
/// connection sleeps, so its other connections wait too. It has no access to the keyspace during
/// the sleep, so other threads can get exclusive access. The sleep ends early when the server
/// stops.
fn sleep(ctx: &mut ServerCtx<'_, '_, '_>, seconds: &[u8]) {
    let seconds = stdx::number::parse_f64(seconds).filter(|seconds| *seconds > 0.0).unwrap_or(0.0);
    let end = Instant::now() + Duration::from_secs_f64(seconds.min(SLEEP_S_MAX));
    let stopping = &ctx.shared.stopping;
    ctx.pass.outside(|| {
        // Relaxed: noticing the stop one round later is soon enough.
        while !stopping.load(Relaxed) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            std::thread::sleep(left.min(SLEEP_STEP));
        }
    });
    ctx.reply.ok();
}

/// Calls `look` with the entry at `key` of the selected database, and returns its result; `None` if
/// there is no entry. The entry may have expired. Does not count as an access to the key.
fn with_entry<T>(ctx: &ServerCtx<'_, '_, '_>, key: Key<'_>, look: impl FnOnce(&KeyEntry) -> T) -> Option<T> {
    let guard = ctx.shared.engine.keyspace.lock(key.shard());
    let entry = guard.db(ctx.session.db())?.table().get(key.position(), key.bytes)?;
    Some(look(&entry))
}

/// Handles DEBUG OBJECT key: replies with one line of properties of the value. `serializedlength`
/// is the size of the value in memory, because the value is not serialized.
fn object(ctx: &mut ServerCtx<'_, '_, '_>, key: Key<'_>) -> Result<(), CommandError> {
    let now_s = (ctx.now_ms / 1000) as u32 & 0x00FF_FFFF;
    let shares = ctx.settings.limits.shares_integers;
    let line = with_entry(ctx, key, |entry| {
        let (refcount, bytes, extra) = match entry.view() {
            View::Int(number @ 0..10_000) if shares => (i32::MAX, number.to_string().len(), String::new()),
            View::Int(number) => (1, number.to_string().len(), String::new()),
            View::Bytes(bytes) => (1, bytes.len() + 1, String::new()),
            View::Object(object) => (1, object.memory_usage(), quicklist_figures(object)),
        };
        format!(
            "Value at:{entry:p} refcount:{refcount} encoding:{} serializedlength:{bytes} lru:{} \
             lru_seconds_idle:{}{extra}",
            encoding_name(entry),
            entry.access(),
            now_s.wrapping_sub(entry.access()) & 0x00FF_FFFF,
        )
    });
    ctx.reply.simple(&line.ok_or(CommandError::NoSuchKey)?);
    Ok(())
}

/// Formats the additional fields of DEBUG OBJECT for a quicklist. `ql_compressed` is 1 if nodes may
/// be compressed.
fn quicklist_figures(object: &Object) -> String {
    let Object::List(list) = object else { return String::new() };
    let ListView::Quick(quicklist) = list.view() else { return String::new() };
    let nodes = quicklist.node_count();
    let average = quicklist.len() as f64 / nodes.max(1) as f64;
    format!(
        " ql_nodes:{nodes} ql_avg_node:{average:.2} ql_listpack_max:{} ql_compressed:{} ql_uncompressed_size:{}",
        quicklist.node_limit_option(),
        u8::from(quicklist.compresses()),
        quicklist.uncompressed_len_bytes(),
    )
}

/// Handles DEBUG LISTPACK key: logs the numbers of elements and bytes of a listpack.
fn listpack(ctx: &mut ServerCtx<'_, '_, '_>, key: Key<'_>) -> Result<(), CommandError> {
    let figures = with_entry(ctx, key, |entry| match entry.view() {
        View::Object(object) if object.encoding_name() == "listpack" => {
            Some((object.element_count(), object.memory_usage()))
        }
        _ => None,
    });
    let (elements, bytes) = figures
        .ok_or(CommandError::NoSuchKey)?
        .ok_or(CommandError::Line("ERR Not a listpack encoded object."))?;
    tracing::warn!(elements, bytes, "DEBUG LISTPACK");
    ctx.reply.simple("Listpack described in the log");
    Ok(())
}

/// Handles DEBUG QUICKLIST key [0|1]: logs the numbers of elements and nodes of a list. The
/// requested level of detail is ignored.
fn quicklist(ctx: &mut ServerCtx<'_, '_, '_>, key: Key<'_>) -> Result<(), CommandError> {
    let figures = with_entry(ctx, key, |entry| match entry.view() {
        View::Object(object) if object.encoding_name() == "quicklist" => {
            Some((object.element_count(), quicklist_figures(object)))
        }
        _ => None,
    });
    let (elements, figures) = figures
        .ok_or(CommandError::NoSuchKey)?
        .ok_or(CommandError::Line("ERR Not a quicklist encoded object."))?;
    tracing::warn!(elements, figures = figures.trim_start(), "DEBUG QUICKLIST");
    ctx.reply.simple("Quicklist described in the log");
    Ok(())
}

/// Handles DEBUG SDSLEN key: replies with one line of the sizes of key and value. They share a
/// block of memory unless the value is long, so the size of the block is reported for the key.
fn string_sizes(ctx: &mut ServerCtx<'_, '_, '_>, key: Key<'_>) -> Result<(), CommandError> {
    let line = with_entry(ctx, key, |entry| {
        let (len, room, own_bytes) = match entry.view() {
            View::Bytes(bytes) => (bytes.len(), 0, 0),
            View::Object(object @ Object::Blob(blob)) => {
                (blob.len(), blob.capacity() - blob.len(), object.memory_usage())
            }
            View::Int(_) | View::Object(_) => return None,
        };
        Some(format!(
            "key_sds_len:{}, key_sds_avail:0, key_zmalloc: {}, val_sds_len:{len}, val_sds_avail:{room}, \
             val_zmalloc: {own_bytes}",
            entry.key().len(),
            entry.block_len_bytes(),
        ))
    });
    let line = line.ok_or(CommandError::NoSuchKey)?;
    ctx.reply.simple(&line.ok_or(CommandError::Line("ERR Not an sds encoded string."))?);
    Ok(())
}

/// Handles DEBUG DIGEST-VALUE key ...: replies with the digest of each value, and with zeros for a
/// missing key.
fn digest_values(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) {
    ctx.reply.array(args.len() - 2);
    for at in 2..args.len() {
        let digest = with_entry(ctx, args.key(at), Digest::of_value).unwrap_or_default();
        ctx.reply.simple(&digest.hex());
    }
}

/// Number of keys that DEBUG POPULATE adds before it lets other threads get exclusive access to the
/// keyspace, and checks the memory limit and the stop of the server.
const POPULATE_STEP: u64 = 1024;

/// Handles DEBUG POPULATE count [prefix] [size]: creates strings `prefix:number` with the value
/// `value:number`. With `size` the value is cut, or filled with zero bytes, to `size` bytes.
/// Existing keys stay unchanged. Stops with an error at `maxmemory`.
fn populate(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let positive = |at: usize| {
        let number = args.integer(at).ok().and_then(|number| u64::try_from(number).ok());
        number.ok_or(CommandError::Line("ERR value is out of range, must be positive"))
    };
    let count = positive(2)?;
    let prefix = args.try_get(3).unwrap_or(b"key");
    let size = if args.len() == 5 { positive(4)? } else { 0 };
    if size > ctx.settings.limits.string_len_bytes_max {
        return Err(CommandError::StringTooLong);
    }
    let access = if ctx.settings.lfu {
        let clock_minutes = (ctx.now_ms / 60_000) as u32;
        Access::Lfu { clock_minutes, log_factor: 0, decay_minutes: 0 }.fresh()
    } else {
        Access::Lru { clock_s: (ctx.now_ms / 1000) as u32 }.fresh()
    };
    let keyspace = &ctx.shared.engine.keyspace;
    for number in 0..count {
        if number % POPULATE_STEP == 0 {
            // The stream does not contain these keys, so the server must not return to the former
            // history. This is repeated because the role may have changed during the last pause.
            ctx.shared.replication.primary().forbid_return();
        }
        let name = [prefix, format!(":{number}").as_bytes()].concat();
        let mut value = format!("value:{number}").into_bytes();
        if size > 0 {
            value.resize(size as usize, 0);
        }
        let key = keyspace.hasher().key(&name);
        let mut guard = keyspace.lock(key.shard());
        let entry = KeyEntry::new(&name, stored(&value), None, access);
        keyspace.insert_absent(&mut guard, ctx.session.db(), entry);
        drop(guard);
        if number % POPULATE_STEP == POPULATE_STEP - 1 {
            ctx.pass.outside(|| ());
            let limit = ctx.settings.maxmemory_bytes;
            if limit > 0 && structures::alloc::used_memory_bytes() as u64 > limit {
                return Err(CommandError::Line("OOM command not allowed when used memory > 'maxmemory'."));
            }
            if ctx.shared.stopping.load(Relaxed) {
                break;
            }
        }
    }
    ctx.reply.ok();
    Ok(())
}

/// Handles DEBUG PROTOCOL type: replies with Redis' example of this protocol type.
#[expect(clippy::approx_constant, reason = "the double that Redis answers")]
fn protocol(ctx: &mut ServerCtx<'_, '_, '_>, kind: &[u8]) -> Result<(), CommandError> {
    let resp3 = ctx.session.protocol() == Protocol::Resp3;
    let reply = &mut ctx.reply;
    match kind.to_ascii_lowercase().as_slice() {
        b"string" => reply.bulk(b"Hello World"),
        b"integer" => reply.integer(12345),
        b"double" => reply.double(3.141),
        b"null" => reply.null(),
        b"array" => {
            reply.array(3);
            (0..3).for_each(|number| reply.integer(number));
        }
        b"set" => {
            reply.set(3);
            (0..3).for_each(|number| reply.integer(number));
        }
        b"map" => {
            reply.map(3);
            (0..3).for_each(|number| {
                reply.integer(number);
                reply.boolean(number == 1);
            });
        }
        b"attrib" => {
            if resp3 {
                reply.attribute(1);
                reply.bulk(b"key-popularity");
                reply.array(2);
                reply.bulk(b"key:123");
                reply.integer(90);
            }
            reply.bulk(b"Some real reply following the attribute");
        }
        b"push" if !resp3 => {
            return Err(CommandError::Line("ERR RESP2 is not supported by this command"));
        }
        b"push" => {
            reply.bulk(b"Some real reply following the push reply");
            reply.push(2);
            reply.bulk(b"server-cpu-usage");
            reply.integer(42);
        }
        b"verbatim" => reply.verbatim(*b"txt", b"This is a verbatim\nstring"),
        b"true" => reply.boolean(true),
        b"false" => reply.boolean(false),
        b"bignum" => reply.big_number("1234567999999999999999999999999999999"),
        _ => {
            return Err(CommandError::Line(
                "ERR Wrong protocol type name. Please use one of the following: \
                 string|integer|double|bignum|null|array|set|map|attrib|push|verbatim|true|false",
            ));
        }
    }
    Ok(())
}

/// Formats the size of a hash table with `elements` elements in the words of Redis. `slots` is the
/// number of slots of the table; `None` if it is not known.
fn table_text(slots: Option<usize>, elements: usize) -> String {
    if elements == 0 {
        return "No stats available for empty dictionaries\n".to_owned();
    }
    let size = slots.map(|slots| format!(" table size: {slots}\n")).unwrap_or_default();
    format!("Hash table 0 stats (main hash table):\n{size} number of elements: {elements}\n")
}

/// Handles DEBUG HTSTATS db [full]: replies with the sizes of a database's tables, summed over all
/// shards.
fn table_stats(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let keyspace = &ctx.shared.engine.keyspace;
    let db = usize::try_from(args.integer(2)?).ok().filter(|&db| db < keyspace.db_count());
    let db = db.ok_or(CommandError::Line("ERR Out of range database"))?;
    let slots_of = |shard| keyspace.lock(shard).db(db).map_or(0, |db| db.table().slot_count());
    let slots: usize = (0..SHARD_COUNT).map(slots_of).sum();
    let size = keyspace.reachable_db_size(db);
    let text = format!(
        "[Dictionary HT]\n{}[Expires HT]\n{}",
        table_text(Some(slots), size.keys),
        table_text(None, size.expires)
    );
    ctx.reply.verbatim(*b"txt", text.as_bytes());
    Ok(())
}

/// Handles DEBUG HTSTATS-KEY key [full]: replies with the number of elements of a set, hash or
/// sorted set that has a hash table.
fn value_table_stats(ctx: &mut ServerCtx<'_, '_, '_>, key: Key<'_>) -> Result<(), CommandError> {
    let elements = with_entry(ctx, key, |entry| match entry.view() {
        View::Object(object) if matches!(object.encoding_name(), "hashtable" | "skiplist") => {
            Some(object.element_count())
        }
        _ => None,
    });
    let elements = elements.ok_or(CommandError::NoSuchKey)?.ok_or(CommandError::Line(
        "ERR The value stored at the specified key is not represented using an hash table",
    ))?;
    ctx.reply.verbatim(*b"txt", table_text(None, elements).as_bytes());
    Ok(())
}
