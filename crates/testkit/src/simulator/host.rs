//! The connection commands that a simulated client needs, in their simplest form: SELECT, HELLO,
//! SUBSCRIBE, PSUBSCRIBE, PUBLISH, CLIENT TRACKING, PING. The server's own commands are not used,
//! so that the simulator does not depend on the server.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use commands::table::{Acl, Arity, Command, Flags, Group, History};
use commands::{Args, CommandError};
use engine::Shared;
use engine::call::{Call, Host};
use engine::client::Mode;
use engine::publish::pubsub::{Kind, write_subscription};
use engine::session::Flow;
use engine::table::{HostCommand, Runner};
use engine::track::TrackingOptions;

/// The host of the simulated engine: see the module.
#[derive(Clone)]
pub(super) struct SimulatedHost(pub Arc<Shared>);

const fn command(name: &'static str, number: u16, arity: Arity, flags: Flags) -> Command<Runner> {
    Command {
        name,
        summary: "",
        history: History::since(""),
        group: Group::Connection,
        complexity: "",
        arity,
        flags,
        acl: Acl::empty(),
        keys: &[],
        tips: &[],
        args: &[],
        subcommands: &[],
        run: Runner::Host(HostCommand(number)),
    }
}

/// The commands of this host.
pub(super) static COMMANDS: &[Command<Runner>] = &[
    command("PING", 0, Arity::AtLeast(1), Flags::FOR_SUBSCRIBERS),
    command("SELECT", 1, Arity::Exactly(2), Flags::FAST),
    command("HELLO", 2, Arity::Exactly(2), Flags::FAST),
    command("SUBSCRIBE", 3, Arity::AtLeast(2), Flags::PUBSUB.union(Flags::SUBSCRIPTION)),
    command("PSUBSCRIBE", 4, Arity::AtLeast(2), Flags::PUBSUB.union(Flags::SUBSCRIPTION)),
    command("PUBLISH", 5, Arity::Exactly(3), Flags::PUBSUB),
    // Stands for CLIENT TRACKING ON.
    command("TRACKING", 6, Arity::AtLeast(1), Flags::FAST),
];

impl Host for SimulatedHost {
    fn run(
        &self,
        command: HostCommand,
        mut call: Call<'_, '_, '_>,
        args: &Args<'_>,
    ) -> Result<(), CommandError> {
        let shared = &*self.0;
        match command.0 {
            0 => call.reply.simple("PONG"),
            1 => {
                let db = args.db_index(1, shared.keyspace.db_count())?;
                call.session.info.db.store(db as u64, Relaxed);
                call.reply.ok();
            }
            2 => {
                call.session.info.resp.store(3, Relaxed);
                call.reply.ok();
            }
            3 => subscribe(shared, &mut call, args, (Kind::Channel, "subscribe")),
            4 => subscribe(shared, &mut call, args, (Kind::Pattern, "psubscribe")),
            5 => {
                let published = call.data.commit.sender().publish(Kind::Channel, args.get(1), args.get(2));
                if published.subscribers_full && call.session.flow == Flow::Running {
                    call.session.flow = Flow::AwaitingSubscribers;
                }
                call.reply.integer(published.receivers as i64);
            }
            _ => {
                let wish = TrackingOptions { mode: Mode::empty(), redirect: 0, prefixes: Vec::new() };
                let session = &mut *call.session;
                shared.tracking.enable(&shared.keyspace, &mut session.tracking, &session.info, &wish);
                call.reply.ok();
            }
        }
        Ok(())
    }
}

fn subscribe(shared: &Shared, call: &mut Call<'_, '_, '_>, args: &Args<'_>, (kind, word): (Kind, &str)) {
    for name in args.from(1) {
        call.session.subscribe(&shared.pubsub, kind, name);
        write_subscription(&mut call.reply, word, Some(name), call.session.subscription_count(kind));
    }
}
