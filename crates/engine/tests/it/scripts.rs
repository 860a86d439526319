//! Tests that an undone run of a script leaves no effects. A script here is two lists of commands,
//! for its first and second run, so that the second run can differ as if other clients had changed
//! keys.

use std::rc::Rc;
use std::time::Duration;

use commands::CommandError;
use commands::table::{Acl, Arity, Command, Flags, Group, History};
use engine::Shared;
use engine::clock::ManualClock;
use engine::publish::notify::Notifications;
use engine::publish::pubsub::Kind;
use engine::scripting::{
    Known, Lesson, Prepared, ScriptCall, ScriptCommands, ScriptEnd, ScriptEngine, ScriptTraits, Source, Stop,
};
use engine::scripts::ScriptKind;
use engine::settings::Settings;
use engine::table::{HostCommand, Runner};
use resp::Protocol;
use stdx::ByteQueue;

use crate::busy::busy_script;
use crate::driver::{Thread, shared_with};
use crate::log::Kept;

/// A script engine that runs, for `SET,k,1;DBSIZE//GET,k`, the commands before `//` in the first
/// attempt and those after it in the second.
#[derive(Default)]
struct Attempts {
    left: Vec<Vec<Vec<String>>>,
}

impl ScriptEngine for Attempts {
    fn prepare(&mut self, source: Source<'_>) -> Result<Prepared, CommandError> {
        let Source::Text(text) = source else { return Err(CommandError::Line("ERR no text")) };
        let text = String::from_utf8_lossy(text).into_owned();
        let words = |command: &str| command.split(',').map(str::to_owned).collect();
        let attempt = |text: &str| text.split(';').map(words).collect();
        self.left = text.split("//").map(attempt).collect();
        self.left.reverse();
        let (name, known): (Rc<[u8]>, _) = (b"test".as_slice().into(), Known::Shares);
        Ok(Prepared { kind: ScriptKind::Script, name, traits: ScriptTraits::COMPATIBLE, known })
    }

    fn run(
        &mut self,
        _: &ScriptCall<'_>,
        commands: &mut dyn ScriptCommands,
        reply: &mut ByteQueue,
    ) -> ScriptEnd {
        for words in self.left.pop().expect("there are as many as it runs") {
            let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
            match commands.call(&words, Protocol::Resp2) {
                Ok(_) => {}
                Err(Stop::Again) => return ScriptEnd::Again,
                Err(Stop::Killed) => panic!("nobody kills it"),
            }
        }
        resp::Reply::new(reply, Protocol::Resp2).ok();
        ScriptEnd::Replied
    }

    fn learn(&mut self, _: Lesson) {}
}

const SELECT: Command<Runner> = Command {
    name: "SELECT",
    summary: "",
    history: History::since(""),
    group: Group::Connection,
    complexity: "",
    arity: Arity::Exactly(2),
    flags: Flags::FAST,
    acl: Acl::empty(),
    keys: &[],
    tips: &[],
    args: &[],
    recorded_forms: &[],
    subcommands: &[],
    run: Runner::Host(HostCommand(0)),
};

fn shared(settings: Settings) -> (Shared, ManualClock) {
    let further: Vec<_> = engine::eval::commands().chain([SELECT]).collect();
    shared_with(2, settings, &further)
}

fn thread<'s>(shared: &'s Shared, clock: &ManualClock) -> Thread<'s> {
    Thread::new(shared, clock, 0).with_scripts(Box::new(Attempts::default()))
}

#[test]
fn issue_18_a_script_runs_again_in_the_database_in_which_it_began() {
    let (shared, clock) = shared(Settings::default());
    let mut thread = thread(&shared, &clock);
    let client = thread.connect();
    let attempt = "SET,k,1;SELECT,1;DBSIZE";
    assert_eq!(thread.run(client, &format!("EVAL {attempt}//{attempt} 1 k")).0, "+OK|");
    assert_eq!(thread.run(client, "GET k").0, "$1|1|");
}

#[test]
fn issue_18_events_of_what_was_undone_do_not_leave() {
    let notifications = Notifications::parse(b"AKE");
    let (shared, clock) = shared(Settings { notifications, ..Settings::default() });
    let mut thread = thread(&shared, &clock);
    let [listener, writer] = [0, 1].map(|_| thread.connect());
    thread.session(listener).subscribe(&shared.pubsub, Kind::Pattern, b"*");
    for (script, leave) in [("SET,k,1;SELECT,0;DBSIZE//DBSIZE", false), ("SET,k,1;SELECT,0", true)] {
        assert_eq!(thread.run(writer, &format!("EVAL {script} 1 k")).0, "+OK|");
        assert_eq!(shared.pubsub.has_messages(0), leave, "{script}");
    }
}

#[test]
fn issue_18_transactions_do_not_fail_for_what_was_undone() {
    let (shared, clock) = shared(Settings::default());
    let mut thread = thread(&shared, &clock);
    let [watcher, writer] = [0, 1].map(|_| thread.connect());
    for (script, reply) in [("SET,k,1;DBSIZE//DBSIZE", "*1|$-1|"), ("SET,k,1", "*-1|")] {
        thread.run(watcher, "WATCH k other");
        assert_eq!(thread.run(writer, &format!("EVAL {script} 1 k")).0, "+OK|");
        thread.run(watcher, "MULTI");
        thread.run(watcher, "GET k");
        assert_eq!(thread.run(watcher, "EXEC").0, reply, "{script}");
    }
}

#[test]
fn issue_18_what_an_undone_script_found_expired_is_logged_when_it_is_removed() {
    let (shared, clock) = shared(Settings::default());
    let mut thread = thread(&shared, &clock);
    let client = thread.connect();
    for request in ["SET old 1 PX 10", "HSET h a 1 b 2", "HPEXPIRE h 10 FIELDS 1 a", "SET k 0"] {
        thread.run(client, request);
    }
    clock.advance(Duration::from_millis(20));
    let kept = Kept::confirming();
    kept.attach(&shared);
    let script = "GET,old;HMGET,h,a,b;SET,k,1;DBSIZE//SET,k,2";
    assert_eq!(thread.run(client, &format!("EVAL {script} 3 old h k")).0, "+OK|");
    assert_eq!(kept.commands(&shared), ["SELECT 0", "SET k 2"]);
    assert_eq!(thread.run(client, "GET old").0, "$-1|");
    assert_eq!(thread.run(client, "HMGET h a b").0, "*2|$-1|$1|2|");
    assert_eq!(kept.commands(&shared)[2..], ["DEL old", "HDEL h a"]);
}

#[test]
fn issue_18_a_script_locks_what_it_serves_by_keys_in_shards_that_it_holds() {
    let (shared, clock) = shared(Settings::default());
    let mut thread = thread(&shared, &clock);
    let [reader, writer] = [0, 1].map(|_| thread.connect());
    let shard_of = |name: &str| shared.keyspace.hasher().key(name.as_bytes()).shard();
    let near = (0..).map(|number| format!("near:{number}")).find(|name| shard_of(name) == shard_of("k"));
    let near = near.expect("one is found");
    thread.run(reader, &format!("BLPOP far {near} 0"));
    let script = busy_script(&shared, &clock);
    let far = shared.keyspace.hasher().hash_key(b"far");
    let held = shared.keyspace.lock_all_of([far].into_iter());
    held.mark_busy();
    let request = format!("EVAL RPUSH,{near},x//RPUSH,{near},x 1 k");
    assert!(thread.run(writer, &request).0.starts_with("-BUSY"), "it does not wait in the middle");
    drop((held, script));
    assert_eq!(thread.run(writer, &request).0, "+OK|");
    assert_eq!(thread.deliveries().len(), 1);
}
