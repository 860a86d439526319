//! A lane of a replay: runs one thread's share of the requests of an append-only file.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use commands::table::Flags;
use commands::{Args, BlockingMode, CommandError, Handler, Origin, ReadableKeys};
use keyspace::Locked;
use keyspace::gate::SharedPass;
use keyspace::view::ExpiredAccess;
use resp::Protocol;
use stdx::{Address, ByteQueue, ConnId};

use super::task::{Failed, Job, Requests, Slice};
use crate::acl::Identity;
use crate::call::{Call, Host};
use crate::client::{ClientInfo, Place};
use crate::clock::Clock;
use crate::expiry_rule::ExpiryRule;
use crate::fetch::{self, Lookup, Sought};
use crate::pass::TurnPass;
use crate::publish::notify::Notifications;
use crate::request::Request;
use crate::run::{Caller, Executor};
use crate::session::Session;
use crate::settings::Settings;
use crate::shared::Shared;
use crate::stats::ThreadStats;
use crate::table::{HostCommand, KeyPlan, Runner};

/// The number of requests of a replayed file that are prefetched together.
const GROUP_REQUESTS: usize = 128;

/// The client id of requests that are replayed from an append-only file and come from no client.
const CLIENT: u64 = u64::MAX;

/// A host that runs no server commands: a replayed file has only commands of the engine.
struct NoHost;

impl Host for NoHost {
    fn run(&self, _: HostCommand, _: Call<'_, '_, '_>, _: &Args<'_>) -> Result<(), CommandError> {
        Err(CommandError::Line("ERR this command is not run from a file"))
    }
}

/// A request of a replayed file that is prepared to run: its arguments are found and its key is
/// being prefetched.
struct Ready<'a> {
    job: Job,
    args: Args<'a>,
    lookup: Lookup,
}

impl AsRef<Lookup> for Ready<'_> {
    fn as_ref(&self) -> &Lookup {
        &self.lookup
    }
}

/// The part of a replay of an append-only file that one thread runs.
pub struct Lane<'s, C> {
    executor: Executor<'s, C, NoHost>,
    session: Session,
    /// The settings that requests of the replayed file use.
    settings: Arc<Settings>,
    out: ByteQueue,
}

impl<'s, C: Clock> Lane<'s, C> {
    /// Creates a lane (the part of one thread) of a replay that counts its commands in `stats`.
    /// `seed` is the seed of its random numbers.
    pub fn new(shared: &'s Shared, stats: &'s ThreadStats, seed: u64, clock: C) -> Self {
        let mut executor = Executor::with_stats(shared, (None, stats), seed, (clock, NoHost));
        executor.commit.is_unrecorded = true;
        let place = Place { thread: 0, conn: ConnId::new(0, 0), fd: -1 };
        let address = || Address::Tcp(([127, 0, 0, 1], 0).into());
        let info = Arc::new(ClientInfo::new(CLIENT, place, (address(), address()), 0));
        // With `import_mode`, which `begin` sets, no key expires for this client.
        info.choices.import_source.store(true, Relaxed);
        let session = Session::new(info, Identity::internal());
        Self { executor, session, settings: Arc::default(), out: ByteQueue::new() }
    }

    /// Returns the threads that the replayed requests have sent messages to. The driver wakes them
    /// after each [`Slice`].
    pub fn outbox(&self) -> &crate::threads::Outbox {
        &self.executor.commit.outbox
    }

    /// Runs requests of the replayed file on the lane's thread, inside the gate (the keyspace's
    /// shared lock). Calls `report` for each one that fails. O(requests).
    pub fn run<R: Requests>(
        &mut self,
        slice: &Slice<R>,
        pass: &mut SharedPass<'_>,
        mut report: impl FnMut(Failed<'_>),
    ) {
        let began = self.executor.clock.now();
        self.begin();
        let mut ready = Vec::with_capacity(GROUP_REQUESTS.min(slice.jobs.len()));
        for jobs in slice.jobs.chunks(GROUP_REQUESTS) {
            if pass.is_wanted() {
                pass.outside(|| ());
            }
            ready.extend(jobs.iter().map(|job| self.prepare(&*slice.batch, job)));
            let sought = ready.iter().fold(Sought::Keys, |sought, ready| sought.with(&ready.lookup));
            fetch::ahead(&ready, sought, &self.executor.shared().keyspace);
            for Ready { job, args, .. } in ready.drain(..) {
                if !self.run_job(&job, args, pass) {
                    let offset = slice.batch.offset(job.request as usize);
                    let bytes = self.out.as_single().unwrap_or_default();
                    let error = bytes.strip_prefix(b"-").unwrap_or(bytes).trim_ascii_end();
                    report(Failed { offset, command: job.registered.full_name, error });
                }
                self.out.truncate(0);
            }
            self.executor.free_queued(|clock| clock.now() - began);
        }
        self.executor.commit.broadcast();
        self.executor.end_turn();
        self.executor.free_displaced_values(|clock| clock.now() - began);
    }

    /// Reads the clocks and loads the current settings, before the replaying thread runs requests.
    fn begin(&mut self) {
        let now = self.executor.clock.now();
        self.executor.begin_turn(now);
        if !Arc::ptr_eq(&self.settings, &self.executor.settings) {
            let mut settings = self.executor.settings.for_records();
            settings.import_mode = true;
            self.settings = Arc::new(settings);
            self.executor.settings = Arc::clone(&self.settings);
        }
        self.executor.now.expiry_rule = ExpiryRule::Importing;
        self.executor.now.is_monitored = false;
        self.executor.commit.take_notifications(Notifications::default());
    }

    /// Prepares a request of the replayed file to run and starts loading its key into the cache.
    #[inline]
    fn prepare<'a, R: Requests>(&self, batch: &'a R, job: &Job) -> Ready<'a>
    where
        's: 'a,
    {
        let shared = self.executor.shared();
        let (bytes, spans) = batch.request(job.request as usize);
        let args = Args::new(bytes, spans, shared.keyspace.hasher());
        let db = job.db as usize;
        match job.registered.key_plan {
            KeyPlan::One(at) => {
                // The key was not hashed if the command runs alone.
                let hash =
                    if job.registered.command.runs_alone(&args) { args.key(at).hash } else { job.hash };
                let args = args.with_first_key(at, hash);
                Ready {
                    job: *job,
                    args,
                    lookup: Lookup::of_key((job.registered, at), hash, &args, db, shared),
                }
            }
            _ => Ready { job: *job, args, lookup: Lookup::none(db) },
        }
    }

    /// Runs a request of the replayed file. Returns true if it succeeded; otherwise the error is in
    /// `out`.
    #[inline]
    fn run_job(&mut self, job: &Job, args: Args<'_>, pass: &mut SharedPass<'_>) -> bool {
        let request = Request::new(job.registered, args);
        let keyspace = &self.executor.shared().keyspace;
        match job.registered.command.run {
            Runner::Data(handler) if job.registered.command.runs_alone(&args) => {
                pass.alone(|_| self.run_data(keyspace.lock_all(), handler, job, &request))
            }
            Runner::Data(handler) => self.run_data(request.keys.lock(keyspace), handler, job, &request),
            Runner::Walk(walker) => {
                self.session.info.db.store(u64::from(job.db), Relaxed);
                let Self { executor, session, out, .. } = self;
                let succeeded = executor.run_walker(session, walker, &request, out, &mut TurnPass::new(pass));
                executor.end_unlocked(0);
                executor.commit.effects.freed_before_reply = false;
                succeeded
            }
            Runner::Host(_) | Runner::Script(_)
                if job.registered.command.flags.intersects(Flags::WRITE | Flags::MAY_REPLICATE) =>
            {
                let error = CommandError::Line("ERR this command is not run from a file");
                self.executor.refuse(Protocol::Resp2, error, &mut self.out);
                false
            }
            // Such a command changes nothing.
            Runner::Host(_) | Runner::Transaction(_) | Runner::Script(_) => true,
        }
    }

    #[inline]
    fn run_data(
        &mut self,
        mut locked: Locked<'s>,
        handler: Handler,
        job: &Job,
        request: &Request<'_>,
    ) -> bool {
        let caller = Caller {
            client: 0,
            shown: None,
            db: job.db as usize,
            protocol: Protocol::Resp2,
            touch: true,
            expired_access: ExpiredAccess::Show,
            on_empty: BlockingMode::Reply,
            origin: Origin::Client,
            readable: ReadableKeys::All,
            reader: None,
            field_sets: None,
        };
        let succeeded = self.executor.run_one(&mut locked, &caller, handler, request, &mut self.out);
        if self.executor.commit.is_pending() {
            self.executor.commit.release(0);
            // Blocked clients are not served, since the data is not complete.
            drop(self.executor.commit.take_ready());
        }
        succeeded
    }
}
