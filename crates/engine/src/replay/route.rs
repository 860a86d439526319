//! The router of a replay: assigns the requests of a file to lanes (threads).

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use commands::Args;
use keyspace::key::{KeyHash, shard_of};
use stdx::bytes::same;

use super::task::{Failed, Job, Meeting, Requests, Slice, Task};
use super::{LANES_MAX, lane_of};
use crate::request::RequestKeys;
use crate::shared::Shared;
use crate::table::{KeyPlan, Registered, Runner, Verb};

/// The minimum number of requests in a replayed batch for each meeting (a request that several
/// lanes, that is, threads, run together). If the batch has fewer for each of its meetings, the
/// whole batch runs in one meeting.
const REQUESTS_PER_MEETING_MIN: usize = 64;

/// A set of a replay's lanes (threads), one bit for each.
type Lanes = u32;

/// The reason for which a request of a replayed file cannot be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unroutable {
    /// No command or subcommand has the name in the replayed request.
    UnknownCommand,
    /// The number of arguments in the replayed request is wrong for its command.
    WrongArity,
}

/// A request of a replayed file that cannot be run: the file was not written by this server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotRouted {
    /// The offset of the request in the file, in bytes.
    pub offset: u64,
    /// The first word of the request that cannot be run.
    pub name: Vec<u8>,
    /// The reason for which the replayed request cannot be run.
    pub why: Unroutable,
}

impl fmt::Display for NotRouted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name.escape_ascii();
        match self.why {
            Unroutable::UnknownCommand => write!(f, "Unknown command '{name}'"),
            Unroutable::WrongArity => write!(f, "Wrong number of arguments for command '{name}'"),
        }
    }
}

impl std::error::Error for NotRouted {}

/// The results of assigning a replayed file's requests to lanes (threads), which the driver must
/// handle.
pub enum Routed<'a, R> {
    /// The new tasks of each lane (thread), to be added after its earlier ones.
    Tasks(Vec<Vec<Task<R>>>),
    /// A request about functions (FUNCTION LOAD and similar), which the driver must run.
    Function(Args<'a>),
    /// A request of the replayed file that failed before it was assigned to a thread, with the
    /// error that a client would get.
    Failed(Failed<'a>),
}

/// A request of a replayed file, and the lanes (threads) that own its keys.
struct Place {
    job: Job,
    lanes: Lanes,
}

/// The router of a replay, which assigns a file's requests to lanes (threads). Used by the thread
/// that reads the file.
pub struct Router<'s> {
    shared: &'s Shared,
    lanes: usize,
    db: u32,
    last: Option<&'static Registered>,
    places: Vec<Place>,
}

impl<'s> Router<'s> {
    /// Creates a router for a replay on this number of lanes (threads), with database 0 selected.
    ///
    /// # Panics
    /// Panics if `lanes` is 0 or more than [`LANES_MAX`].
    pub fn new(shared: &'s Shared, lanes: usize) -> Self {
        assert!((1..=LANES_MAX).contains(&lanes), "lanes are at least one");
        Self { shared, lanes, db: 0, last: None, places: Vec::new() }
    }

    /// Assigns the requests of `range` in a batch to lanes (threads), and calls `hand_out` with the
    /// results. The requests follow all earlier requests of the file. A transaction must be
    /// complete in the range. O(requests).
    ///
    /// # Errors
    /// The first request that cannot be run. The requests after it are not routed. Of those before
    /// it in the range, only function requests and failed ones were passed on.
    pub fn route<R: Requests>(
        &mut self,
        batch: &Arc<R>,
        range: Range<usize>,
        mut hand_out: impl FnMut(Routed<'_, R>),
    ) -> Result<(), NotRouted> {
        self.places.clear();
        for index in range {
            let (bytes, spans) = batch.request(index);
            let args = Args::new(bytes, spans, self.shared.keyspace.hasher());
            let unroutable = |why| NotRouted { offset: batch.offset(index), name: args.get(0).to_vec(), why };
            let Some(registered) = self.command(&args).map_err(unroutable)? else {
                hand_out(Routed::Function(args));
                continue;
            };
            let taken = match registered.command.run {
                // The range contains the complete transaction, and its requests run like all
                // others.
                Runner::Transaction(Verb::Discard) => Err("ERR DISCARD without MULTI"),
                Runner::Transaction(_) => Ok(()),
                Runner::Host(_) if registered.full_name == "select" => self.select(&args),
                _ => {
                    let place = self.place(registered, &args, index as u32);
                    self.places.push(place);
                    Ok(())
                }
            };
            if let Err(error) = taken {
                let (offset, command) = (batch.offset(index), registered.full_name);
                hand_out(Routed::Failed(Failed { offset, command, error: error.as_bytes() }));
            }
        }
        if !self.places.is_empty() {
            hand_out(Routed::Tasks(self.plan(batch)));
        }
        Ok(())
    }

    /// Finds the command of a request in a replayed file; `None` for a request about functions.
    #[inline]
    fn command(&mut self, args: &Args<'_>) -> Result<Option<&'static Registered>, Unroutable> {
        let name = args.get(0);
        let found = match self.last {
            Some(last) if same(last.command.name.as_bytes(), name) => last,
            _ => {
                let Some(found) = self.shared.table.find(name) else {
                    let is_function = name.eq_ignore_ascii_case(b"function");
                    return if is_function { Ok(None) } else { Err(Unroutable::UnknownCommand) };
                };
                self.last = Some(found);
                found
            }
        };
        if found.full_name == "function" {
            return Ok(None);
        }
        let mut registered = found;
        if !found.subcommands.is_empty() && args.len() > 1 {
            registered = found.subcommand(args.get(1)).ok_or(Unroutable::UnknownCommand)?;
        }
        if !registered.command.accepts(args.len()) {
            return Err(Unroutable::WrongArity);
        }
        Ok(Some(registered))
    }

    fn select(&mut self, args: &Args<'_>) -> Result<(), &'static str> {
        let db = args.db_index(1, self.shared.keyspace.db_count());
        self.db = db.map_err(|_| "ERR DB index is out of range")? as u32;
        Ok(())
    }

    /// Returns a request together with the set of lanes (threads) that own its keys.
    #[inline]
    fn place(&self, registered: &'static Registered, args: &Args<'_>, request: u32) -> Place {
        let job = |hash| Job { registered, hash, request, db: self.db };
        if let (KeyPlan::One(at), Runner::Data(_)) = (registered.key_plan, registered.command.run)
            && !registered.command.runs_alone(args)
        {
            let hash = self.shared.keyspace.hasher().hash_key(args.get(at));
            return Place { job: job(hash), lanes: 1 << self.lane(hash) };
        }
        Place { job: job(KeyHash::first_of_shard(0)), lanes: self.lanes_of(registered, args) }
    }

    #[inline]
    fn lane(&self, hash: KeyHash) -> usize {
        lane_of(shard_of(hash), self.lanes)
    }

    /// Returns the lanes (threads) that a request needs if it does not have exactly one key.
    #[inline(never)]
    fn lanes_of(&self, registered: &'static Registered, args: &Args<'_>) -> Lanes {
        let all = (1 << self.lanes) - 1;
        if !matches!(registered.command.run, Runner::Data(_)) || registered.command.runs_alone(args) {
            return all;
        }
        let keys = RequestKeys::find(registered, args);
        let lanes = keys.as_slice().iter().fold(0, |lanes, key| lanes | 1 << self.lane(key.hash));
        if lanes == 0 { all } else { lanes }
    }

    /// Returns the tasks of each lane (thread) for the routed requests of a batch of the replayed
    /// file.
    fn plan<R: Requests>(&self, batch: &Arc<R>) -> Vec<Vec<Task<R>>> {
        let meets = |place: &Place| !place.lanes.is_power_of_two();
        let runs = self.places.chunk_by(|a, b| meets(a) && meets(b));
        let meetings = runs.filter(|places| meets(&places[0])).count();
        let mut plan = Plan::new(batch, self.lanes);
        if meetings * REQUESTS_PER_MEETING_MIN > self.places.len() {
            plan.met_lanes = (1 << self.lanes) - 1;
            plan.met = self.places.iter().map(|place| place.job).collect();
        } else {
            self.places.iter().for_each(|place| plan.add(place));
        }
        plan.into_tasks()
    }
}

/// The plan of the tasks of a replay's lanes (threads) for one batch, while it is being made.
struct Plan<'a, R> {
    batch: &'a Arc<R>,
    /// For each lane (thread), the requests that are planned but not yet in a task.
    jobs: Vec<Vec<Job>>,
    tasks: Vec<Vec<Task<R>>>,
    /// The requests of the meeting that is being planned, whose keys belong to several lanes
    /// (threads). They run after all requests and tasks planned so far.
    met: Vec<Job>,
    met_lanes: Lanes,
}

impl<'a, R> Plan<'a, R> {
    fn new(batch: &'a Arc<R>, lanes: usize) -> Self {
        let (jobs, tasks) = (0..lanes).map(|_| (Vec::new(), Vec::new())).unzip();
        Self { batch, jobs, tasks, met: Vec::new(), met_lanes: 0 }
    }

    #[inline]
    fn add(&mut self, place: &Place) {
        if place.lanes.is_power_of_two() {
            if !self.met.is_empty() {
                self.meet();
            }
            self.jobs[place.lanes.trailing_zeros() as usize].push(place.job);
        } else {
            self.met.push(place.job);
            self.met_lanes |= place.lanes;
        }
    }

    /// Converts the meeting that is being planned to a task of each lane (thread) that takes part.
    fn meet(&mut self) {
        let (lanes, jobs) = (std::mem::take(&mut self.met_lanes), std::mem::take(&mut self.met));
        let slice = Slice { batch: Arc::clone(self.batch), jobs };
        let meeting = Arc::new(Meeting::new(slice, lanes.count_ones()));
        for lane in (0..self.tasks.len()).filter(|lane| lanes & (1 << lane) != 0) {
            self.run(lane);
            self.tasks[lane].push(Task::Meet(Arc::clone(&meeting)));
        }
    }

    /// Converts the planned requests of a lane (thread) to a task of that lane.
    fn run(&mut self, lane: usize) {
        let jobs = std::mem::take(&mut self.jobs[lane]);
        if !jobs.is_empty() {
            self.tasks[lane].push(Task::Run(Slice { batch: Arc::clone(self.batch), jobs }));
        }
    }

    fn into_tasks(mut self) -> Vec<Vec<Task<R>>> {
        if !self.met.is_empty() {
            self.meet();
        }
        (0..self.tasks.len()).for_each(|lane| self.run(lane));
        self.tasks
    }
}
