//! Tests of handlers that use a key which their command's record does not declare: the request must
//! fail.

use commands::table::{Arity, Command, Flags, KeyFlags, KeySpec};
use commands::{Args, CommandError, Ctx, Handler, Search};
use engine::settings::Settings;
use engine::table::Runner;
use keyspace::{Expiry, Leftover};
use resp::Reply;

use crate::driver::{Thread, shared_with};

/// A declaration of keys that names only the first argument of a command.
const DECLARED: &[KeySpec] = &[KeySpec::at(1, KeyFlags::RW)];

/// Creates a command whose record declares the first key only.
fn stray(name: &'static str, run: Handler) -> Command<Runner> {
    let record = Command {
        name,
        arity: Arity::Exactly(3),
        flags: Flags::WRITE,
        keys: DECLARED,
        run,
        ..Command::DEFAULT
    };
    record.map(Runner::Data)
}

/// Reads the second key, which is not declared, by a typed accessor, which returns an error.
fn read(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let found = ctx.db.string(args.key(2))?.is_some();
    ctx.reply.integer(found.into());
    Ok(())
}

/// Sets and removes the second key, which is not declared, and replies without an error.
fn write(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    ctx.db.set_string(args.key(2), b"stray", Expiry::Clear);
    ctx.db.remove(args.key(2));
    ctx.db.set_string(args.key(2), b"stray", Expiry::At(1));
    ctx.reply.ok();
    Ok(())
}

/// Leaves a search, and reads the second key, which is not declared.
fn search(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    ctx.effects.search = Some(Box::new(Stray));
    read(ctx, args)
}

/// A search that must not run.
struct Stray;

impl Search for Stray {
    fn run(&mut self, _: &mut Reply<'_>, _: &mut dyn FnMut() -> bool) -> bool {
        panic!("the command has failed")
    }

    fn end(self: Box<Self>) -> Option<Leftover> {
        None
    }
}

#[test]
fn an_undeclared_key_ends_the_command_with_an_error_and_is_left_alone() {
    let further = [stray("STRAYREAD", read), stray("STRAYWRITE", write), stray("STRAYSEARCH", search)];
    let (shared, clock) = shared_with(1, Settings::default(), &further);
    let [declared, other] = [&b"k"[..], b"other"].map(|key| shared.keyspace.hasher().key(key).shard());
    assert_ne!(declared, other, "with one shard for both nothing is missed");
    let mut thread = Thread::new(&shared, &clock, 0);
    let client = thread.connect();
    thread.run(client, "MSET k 1 other 2");
    let error = "-ERR internal error: the command used a key that it does not declare, \
                 please report this request|";
    for request in ["STRAYREAD k other", "STRAYWRITE k other", "STRAYSEARCH k other"] {
        assert_eq!(thread.run(client, request).0, error, "{request}");
        assert_eq!(thread.run(client, "MGET k other").0, "*2|$1|1|$1|2|", "{request}");
        assert_eq!(thread.run(client, "TTL other").0, ":-1|", "{request}");
    }
    for request in ["MULTI", "STRAYWRITE k absent", "EXISTS k"] {
        thread.run(client, request);
    }
    assert_eq!(thread.run(client, "EXEC").0, format!("*2|{error}:1|"));
    assert_eq!(thread.run(client, "EXISTS absent").0, ":0|");
    assert_eq!(shared.threads.sum(|stats| &stats.unexpected_errors), 4);
}
