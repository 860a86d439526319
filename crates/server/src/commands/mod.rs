//! Commands about the server and its connections. Commands about keys are in the crate `commands`.

use std::sync::Arc;

use ::commands::table::Command;
use ::commands::{Args, CommandError};
use engine::table::CommandTable;

use crate::context::Runner;
use crate::context::{Handlers, ServerCtx, ServerHandler};

pub mod acl;
pub mod backup;
pub mod big_keys;
pub mod client;
pub mod cluster;
pub mod command;
pub mod config;
pub mod connection;
pub mod debug;
pub mod dump;
mod function;
pub mod hot_keys;
pub mod latency;
pub mod memory;
pub mod migrate;
pub mod module;
pub mod monitor;
pub mod pubsub;
pub mod replication;
pub mod save;
pub mod script;
pub mod server;
pub mod slowlog;
pub mod wait;

/// Returns the commands of this crate: those whose handlers use the state of the server, and DUMP
/// and RESTORE.
pub fn all() -> impl Iterator<Item = &'static Command<Runner>> {
    [
        acl::COMMANDS,
        backup::COMMANDS,
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
        monitor::COMMANDS,
        pubsub::COMMANDS,
        replication::COMMANDS,
        save::COMMANDS,
        wait::COMMANDS,
        function::COMMANDS,
        script::COMMANDS,
        server::COMMANDS,
        slowlog::COMMANDS,
    ]
    .into_iter()
    .flatten()
    .copied()
}

/// Returns true if a command of this name exists, of data or of the server. `name` is in capitals.
/// O(commands).
pub fn is_command(name: &str) -> bool {
    let on_keys = ::commands::all().map(|command| command.name);
    let data = on_keys.chain(::commands::walkers().map(|command| command.name));
    let engines = engine::exec::commands().chain(engine::eval::commands()).map(|command| command.name);
    data.chain(engines).chain(all().map(|command| command.name)).any(|known| known == name)
}

/// Builds the table of all commands. Also returns the handlers of server commands; a command's
/// record in the table holds the index of its handler.
pub fn table() -> (CommandTable, Arc<[ServerHandler]>) {
    let handlers = Handlers::default();
    let own = all().map(|command| handlers.register(command));
    let table = CommandTable::new(engine::exec::commands().chain(engine::eval::commands()).chain(own));
    (table, handlers.into_shared())
}

/// Handles a container command, such as CONFIG, without a known subcommand. It is never called,
/// because dispatch replies to such a request itself.
fn container(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    Err(CommandError::WrongArity(ctx.registered.full_name))
}

/// Replies to HELP of a container command, such as CONFIG: for each subcommand its syntax, then its
/// lines of explanation, indented.
pub fn help(ctx: &mut ServerCtx<'_, '_, '_>, container: &str, subcommands: &[(&str, &[&str])]) {
    ::commands::help::reply_help(&mut ctx.reply, container, subcommands);
}

#[cfg(test)]
mod tests {
    use ::commands::record::forms::{KnownSince, ServerVersion};
    use ::commands::table::{Arg, Flags, Origin};
    use engine::table::KeyPlan;

    use super::*;

    #[test]
    fn a_renamed_command_keeps_its_id_and_full_name() {
        let mut table = table().0;
        let (get, long) = (table.find(b"GET").expect("it exists").id, "X".repeat(2 * 32));
        table.rename("GET", &long);
        table.rename("CONFIG", "");
        assert!(table.find(b"get").is_none() && table.find_full(b"config|get").is_none());
        let found = table.find(long.to_ascii_lowercase().as_bytes()).expect("it was renamed");
        assert_eq!((found.id, found.full_name, found.command.name), (get, "get", long.as_str()));
        assert_eq!(table.by_id(get).command.name, long);
        table.rename("CLIENT", "GET");
        assert_eq!(table.find_full(b"get|id").expect("a subcommand").full_name, "client|id");
    }

    #[test]
    fn a_command_writes_exactly_if_one_of_its_keys_is_written() {
        use commands::table::KeyFlags;
        let written = KeyFlags::RW | KeyFlags::OW | KeyFlags::RM;
        for registered in table().0.iter() {
            let command = &registered.command;
            // PFCOUNT caches its result in the value, which no reader can notice. XREADGROUP
            // changes the state of its consumer group, which counts as reading the key in Redis.
            // The effects of a script are known only when it runs.
            if ["pfcount", "xreadgroup", "eval", "evalsha", "fcall"].contains(&registered.full_name) {
                continue;
            }
            if command.keys.is_empty()
                || command.keys.iter().any(|spec| spec.flags.contains(KeyFlags::NOT_KEY))
            {
                continue;
            }
            let writes = command.keys.iter().any(|spec| spec.flags.intersects(written));
            assert_eq!(command.flags.contains(Flags::WRITE), writes, "{}", registered.full_name);
        }
    }

    /// Returns the token of an argument, and the tokens of all arguments nested in it.
    fn tokens(arg: &Arg) -> Vec<&'static str> {
        arg.token.into_iter().chain(arg.args.iter().flat_map(tokens)).collect()
    }

    /// Returns the tokens of those arguments that are newer than Redis 6.2.
    fn newer_tokens(args: &[Arg]) -> Vec<&'static str> {
        let of = |arg: &Arg| if is_newer(arg.since) { tokens(arg) } else { newer_tokens(arg.args) };
        args.iter().flat_map(of).collect()
    }

    /// Returns true if `since` is newer than Redis 6.2 or Valkey 7.2. `None` stands for a feature
    /// of the first version.
    fn is_newer(since: Option<&str>) -> bool {
        let since = since.map(|text| ServerVersion::parse(text).expect("it is a version"));
        since.is_some_and(|since| since > KnownSince::ALL.redis)
    }

    #[test]
    fn new_write_commands_and_options_have_a_decision_about_their_records() {
        let table = table().0;
        let all = (0..table.id_count()).map(|id| table.by_id(id));
        let mut undecided = Vec::new();
        for registered in
            all.filter(|known| known.command.flags.intersects(Flags::WRITE | Flags::MAY_REPLICATE))
        {
            let Command { history, args, recorded_forms: forms, .. } = &registered.command;
            let has = |word: Option<&str>| forms.iter().any(|form| form.word == word);
            // A command without keys that was replaced, or is marked, as a whole needs no more.
            if has(None) && forms.iter().all(|form| form.known.is_none()) {
                continue;
            }
            let mut changes = history.all_changes();
            if is_newer(Some(history.since)) && !has(None)
                || changes.any(|(_, (since, _))| is_newer(Some(since))) && forms.is_empty()
            {
                undecided.push(registered.full_name.to_owned());
            }
            let words = newer_tokens(args).into_iter().filter(|&word| !has(Some(word)));
            undecided.extend(words.map(|word| format!("{} {word}", registered.full_name)));
        }
        assert!(undecided.is_empty(), "set recorded_forms (commands::record::forms) of {undecided:?}");
    }

    #[test]
    fn records_need_the_versions_of_their_forms() {
        let table = table().0;
        let needs = |line: &str| {
            let found = table.find(line.split(' ').next().unwrap_or_default().as_bytes()).expect("known");
            found.command.known_since(line.split(' ').map(str::as_bytes))
        };
        assert_eq!(needs("SET k v PXAT 1"), KnownSince::ALL);
        assert_eq!(needs("XGROUP SETID s g 1-1"), KnownSince::ALL);
        assert_eq!(needs("xgroup setid s g 1-1 entriesread 1"), KnownSince::REDIS_7);
        assert_eq!(needs("XSETID s 1 ENTRIESADDED 1 MAXDELETEDID 0-0"), KnownSince::REDIS_7);
        assert_eq!(needs("FUNCTION FLUSH"), KnownSince::REDIS_7);
        assert_eq!(needs("HPERSIST h FIELDS 1 f"), KnownSince::FIELD_EXPIRY);
        assert_eq!(needs("HSETEX h KEEPTTL FIELDS 1 f v"), KnownSince::HSETEX);
    }

    #[test]
    fn histories_go_from_version_to_version_and_tell_nothing_twice() {
        fn version(text: &str) -> Vec<u32> {
            let parts: Vec<u32> = text.split('.').filter_map(|part| part.parse().ok()).collect();
            assert!(parts.len() == 3 && parts.iter().map(u32::to_string).eq(text.split('.')), "{text:?}");
            parts
        }
        let table = table().0;
        for registered in (0..table.id_count()).map(|id| table.by_id(id)) {
            let (name, history) = (registered.full_name, &registered.command.history);
            let first = version(history.since);
            assert!(history.deprecated.is_none_or(|it| version(it.since) >= first), "{name}");
            for of_one in [history.changes, history.valkey_changes] {
                assert!(of_one.is_sorted_by_key(|(since, _)| version(since)), "{name}: oldest first");
            }
            // Redis has no 8.1 and no 9; Valkey forked from Redis 7.2.4.
            let is_possible = |origin, number: &[u32]| match origin {
                Origin::Redis => !number.starts_with(&[8, 1]) && number < &[9][..],
                Origin::Valkey => number > &[7, 2, 4][..],
                Origin::Saker => true,
            };
            assert!(is_possible(history.origin, &first), "{name}: since {}", history.since);
            let changes: Vec<_> = history.all_changes().collect();
            for (at, (origin, (since, change))) in changes.iter().enumerate() {
                assert!(is_possible(*origin, &version(since)), "{name}: {since} {change}");
                let is_sentence = change.ends_with('.') || !change.starts_with(|c: char| c.is_lowercase());
                assert!(!is_sentence, "{name}: the change is told as a verb and what follows it: {change}");
                assert!(changes[..at].iter().all(|(_, (_, earlier))| earlier != change), "{name}: {change}");
            }
        }
    }

    #[test]
    fn issue_33_commands_of_other_servers_are_not_of_this_one() {
        let table = table().0;
        let own: Vec<_> =
            engine::foreign::COMMANDS.iter().filter(|name| table.original(name).is_some()).collect();
        assert!(own.is_empty(), "this server has them now: {own:?}");
    }

    #[test]
    fn the_smallest_accepted_request_has_room_for_the_first_key() {
        for registered in table().0.iter() {
            let smallest = registered.command.arity.as_number().unsigned_abs() as usize;
            if let KeyPlan::One(at) = registered.key_plan {
                assert!(at < smallest, "{}", registered.full_name);
            }
        }
    }
}
