//! Data commands on locked shards, and what follows from them while the shards are locked: watchers are
//! marked, clients that wait for a changed key are served, oldest first.
//!
//! Serving runs the waiting client's request by its command's own handler, with the reply going to the
//! client's thread, before the writer's own reply leaves. What that needs beyond the writer's keys (BLPOP's
//! other keys, BLMOVE's destination and those of clients that wait for it) is found and locked before the writer
//! runs ([`lock_reach`]), for as many clients as the command brings elements, so that a write and what it leads
//! to are one step for all others. Where more is needed, the locks are given up, those of the key and of what
//! is missing are taken in ascending order, and the queue is looked at from there on: where a key goes without a
//! writer that named it (expiry, eviction); where a command brings more than it has arguments (RENAME); where
//! the request of a waiting client fails, so that the element is the next one's. To others that next client
//! was served a moment later; nobody's request is divided.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use commands::ctx::{DbChange, Told, Touched};
use commands::keys::for_each_key;
use commands::table::{Command, Flags};
use commands::{Args, Awaited, AwaitedKey, CommandError, Ctx, Effects, Patience, ValueLimits, Wait};
use keyspace::key::shard_of;
use keyspace::view::{Access, Moment, Overdue, Tally, View};
use keyspace::{Db, Hasher, Key, Locked, Shard};
use resp::{Protocol, Reply};
use smallvec::SmallVec;
use stdx::ByteQueue;
use structures::claim::Claim;
use structures::entry::View as EntryView;

use crate::command_table::{Registered, Runner};
use crate::follow::{FilledKey, WaitedKey, Waiter};
use crate::notify::{Notifications, Notifier};
use crate::owned_args::OwnedArgs;
use crate::push::push_reply;
use crate::session::{ClientInfo, Session};
use crate::shared::{Delivery, Shared};
use crate::spikes::Event;
use crate::tracking::{Mode, OwnPushes, Place, Reader, Writer};
use crate::worker::unix_ms;

/// Hashes of the keys of one request.
type Hashes = SmallVec<[u64; 4]>;

/// How often a writer looks for what its waiters need before it runs; what is missing then is locked later.
const REACH_ATTEMPTS_MAX: usize = 4;

/// What runs data commands on an I/O thread, for the time of one request.
pub struct Executor<'e> {
    /// The server.
    pub shared: &'e Shared,
    /// What is the same for all requests of the turn, the time excepted.
    pub standing: &'e mut Standing,
    /// What is counted and collected.
    pub tally: &'e mut Tally,
    /// What commands do to the data.
    pub effects: &'e mut Effects,
    /// Random numbers.
    pub rng: &'e mut fastrand::Rng,
    /// Limits that shape values.
    pub limits: &'e ValueLimits,
    /// Messages for the client whose command runs.
    pub own: &'e mut OwnPushes,
}

/// What is the same for all requests of a turn.
pub struct Standing {
    /// Which I/O thread this is.
    pub thread: usize,
    /// Now, in Unix milliseconds: one reading per turn, and one before clients are served that waited for a key. So
    /// a key that expired while a long command or a transaction ran serves nobody.
    pub now_ms: i64,
    /// The server's monotonic clock, in milliseconds: one reading per turn.
    pub uptime_ms: u64,
    /// How accesses are noted.
    pub access: Access,
    /// Whether somebody is told all commands.
    pub monitored: bool,
    /// `latency-monitor-threshold`.
    pub latency_ms: u64,
    /// Which events are published.
    pub notifications: Notifications,
    /// `tracking-table-max-keys`.
    pub tracking_keys_max: usize,
    /// `import-mode`.
    pub import_mode: bool,
}

impl Standing {
    /// What becomes of keys past their time when this command of this client finds them.
    #[inline]
    pub fn overdue(&self, client: &ClientInfo, command: &Command<Runner>) -> Overdue {
        match self.import_mode {
            true => overdue_while_importing(client.import_source.load(Relaxed), command),
            false => Overdue::Removed,
        }
    }

    /// As [`Standing::overdue`], for a client that waited for a key and is served now.
    fn overdue_for(&self, waiter: &Waiter) -> Overdue {
        match self.import_mode {
            true => overdue_while_importing(waiter.is_import_source, &waiter.registered.command),
            false => Overdue::Removed,
        }
    }

    /// A watched key with a time up to this one counts as absent for this client.
    #[inline]
    pub fn due_ms(&self, client: &ClientInfo) -> i64 {
        if self.import_mode && client.import_source.load(Relaxed) { i64::MIN } else { self.now_ms }
    }
}

/// While data is imported, only what writes without being the import itself removes what is past its time.
#[cold]
fn overdue_while_importing(is_import_source: bool, command: &Command<Runner>) -> Overdue {
    if is_import_source {
        Overdue::Shown
    } else if command.flags.contains(Flags::WRITE) {
        Overdue::RemovedWhenFound
    } else {
        Overdue::Hidden
    }
}

/// On whose behalf a command runs.
#[derive(Clone, Copy)]
pub struct Caller {
    /// The selected database.
    pub db: usize,
    /// Protocol of the reply.
    pub protocol: Protocol,
    /// Whether reads note accesses.
    pub touch: bool,
    /// What becomes of keys past their time.
    pub overdue: Overdue,
    /// Whether it may wait.
    pub patience: Patience,
}

/// Locks, beside what is locked, all that serving the first `served_max` waiters of each of `keys` may touch, the
/// keys of a command that has not run yet. O(keys + waiters looked at).
#[cold]
pub fn lock_reach<'k>(
    shared: &'k Shared,
    mut locked: Locked<'k>,
    keys: &[Key<'_>],
    served_max: usize,
) -> Locked<'k> {
    let Shared { keyspace, follows, .. } = shared;
    if follows.waiting_clients().load(Relaxed) == 0 {
        return locked;
    }
    for _ in 0..REACH_ATTEMPTS_MAX {
        let hashes = follows.reach(keys.iter().copied(), served_max);
        if locked.holds(hashes.iter().copied()) {
            break;
        }
        // Other clients may come to wait meanwhile, so it is looked again.
        locked = keyspace.lock_anew(locked, hashes.into_iter());
    }
    locked
}

/// [`lock_reach`] for one command, if it writes.
#[cold]
pub fn lock_reach_of<'k>(
    shared: &'k Shared,
    locked: Locked<'k>,
    registered: &Registered,
    args: &Args<'_>,
) -> Locked<'k> {
    if !registered.command.flags.contains(Flags::WRITE) {
        return locked;
    }
    let mut keys: SmallVec<[Key<'_>; 4]> = SmallVec::new();
    for_each_key(registered.command.keys, args, |at, _| keys.push(args.key(at)));
    lock_reach(shared, locked, &keys, served_max_of(args, keys.len()))
}

/// How many clients a command with these arguments may serve that wait for one of its `key_count` keys: an element
/// for each further argument, or what it moves, which counts as one.
pub fn served_max_of(args: &Args<'_>, key_count: usize) -> usize {
    args.len().saturating_sub(1 + key_count).max(1)
}

/// Whether a key of this shard exists, and its time is not over. An expired key is none, whether it has been
/// removed or not; it is left as it is. O(1).
pub fn is_live(shard: &Shard, db: usize, key: Key<'_>, now_ms: i64) -> bool {
    let entry = shard.db(db).map(Db::table).and_then(|table| table.get(key.position(), key.bytes));
    entry.is_some_and(|entry| entry.expiry_ms().is_none_or(|at_ms| at_ms > now_ms))
}

/// Who is to be remembered for its cache as the reader of what this command reads.
fn reader_of<'s>(session: &'s Session, registered: &Registered) -> Option<&'s Arc<Reader>> {
    let tracker = session.tracking.as_deref()?;
    if !registered.command.flags.contains(Flags::READONLY) {
        return None;
    }
    let mode = session.info.tracking.mode();
    let given = mode.contains(Mode::CACHING);
    let opted_out = (mode.contains(Mode::OPTIN) && !given) || (mode.contains(Mode::OPTOUT) && given);
    (!mode.contains(Mode::BCAST) && !opted_out).then_some(&tracker.reader)
}

/// What a request waits for, each key once, and the other keys that it names. O(keys).
fn keys_of_wait(
    registered: &Registered,
    args: &Args<'_>,
    awaited: Vec<AwaitedKey>,
    hasher: &Hasher,
) -> (Vec<WaitedKey>, Vec<FilledKey>) {
    let mut named: HashSet<&[u8]> = HashSet::with_capacity(awaited.len());
    let is_first: Vec<bool> = awaited.iter().map(|awaited| named.insert(&awaited.key)).collect();
    let mut filled = Vec::new();
    for_each_key(registered.command.keys, args, |at, _| {
        let Key { bytes, hash } = args.key(at);
        if named.insert(bytes) {
            filled.push(FilledKey { hash, key: bytes.into() });
        }
    });
    let first = awaited.into_iter().zip(is_first).filter(|(_, is_first)| *is_first);
    let keys =
        first.map(|(AwaitedKey { key, awaited }, _)| WaitedKey { hash: hasher.hash(&key), key, awaited });
    (keys.collect(), filled)
}

/// A key that clients wait for and that changed.
struct Ready {
    key: Touched,
    /// The first place in its queues that is looked at: who stands before it was looked at already.
    from: u64,
    /// The last place in its queues that is looked at: nobody is run twice for one change.
    up_to: u64,
}

impl<'e> Executor<'e> {
    /// Runs a handler on the locked shards; a failed one has replied nothing.
    #[inline]
    pub fn call(
        &mut self,
        locked: &mut Locked<'_>,
        caller: Caller,
        handler: commands::Handler,
        args: &Args<'_>,
        out: &mut ByteQueue,
    ) -> Result<(), CommandError> {
        let moment = Moment {
            now_ms: self.standing.now_ms,
            touch: caller.touch,
            access: self.standing.access,
            overdue: caller.overdue,
        };
        let reply = Reply::new(out, caller.protocol);
        let before = reply.mark();
        // A scope rather than a drop, which would move the context to its end.
        let (result, missed_lock) = {
            let mut ctx = Ctx {
                db: View::new(&self.shared.keyspace, locked, caller.db, moment, self.tally),
                reply,
                effects: self.effects,
                rng: self.rng,
                limits: self.limits,
                patience: caller.patience,
            };
            let result = handler(&mut ctx, args);
            let missed_lock = ctx.db.has_missed_lock();
            if result.is_err() || missed_lock {
                ctx.reply.truncate(before);
            }
            (result, missed_lock)
        };
        let result = if missed_lock { Err(self.note_undeclared(args)) } else { result };
        if !self.effects.wanted_events.is_empty() {
            self.publish_unfollowed();
        }
        result
    }

    /// Counts a request whose handler used a key that its record does not declare, and logs ever fewer of them.
    #[cold]
    fn note_undeclared(&mut self, args: &Args<'_>) -> CommandError {
        self.effects.wait = None;
        let count = &self.shared.threads[self.standing.thread].stats.undeclared_keys;
        count.add(1);
        if count.get().is_power_of_two() {
            tracing::error!(
                command = %args.get(0).escape_ascii(),
                arguments = args.len(),
                "a command used a key that it does not declare and was ended with an error: a defect of the server"
            );
        }
        CommandError::UndeclaredKey
    }

    /// Publishes the events of locked keys, those included that were noticed while looking for keys. Where
    /// changes may have to be told to caches as well, [`Executor::note_touched`] does both in their order.
    #[cold]
    fn publish_unfollowed(&mut self) {
        self.effects.absorb(self.tally);
        if !self.effects.events.is_empty() && self.effects.touched.is_empty() {
            let Standing { thread, notifications, .. } = *self.standing;
            let notifier = Notifier { shared: self.shared, thread: Some(thread), notifications };
            notifier.publish(self.effects.events.drain(..));
        }
    }

    /// Whether the last command did something that [`Executor::follow_up`] is for.
    #[inline]
    pub fn concerns_others(&self, session: &Session) -> bool {
        !self.effects.touched.is_empty()
            || self.effects.wait.is_some()
            || !self.effects.gone.is_empty()
            || !self.tally.noticed.is_empty()
            || session.tracking.is_some()
            || self.standing.monitored
    }

    /// What follows a command at once, in a transaction too: its changes are noted, its reads remembered for
    /// the client's cache, and monitors are told.
    #[cold]
    pub fn note(
        &mut self,
        locked: &mut Locked<'_>,
        session: &Session,
        registered: &'static Registered,
        args: &Args<'_>,
    ) {
        self.note_touched(locked, session.id);
        if let Some(reader) = reader_of(session, registered) {
            self.remember_reads(locked, reader, registered, args);
        }
        if self.standing.monitored {
            self.shared.monitors.tell(self.shared, session, registered, args);
        }
    }

    /// Lets the client of the last command wait if it asked to, and tells those who follow what it changed.
    #[cold]
    pub fn follow_up(
        &mut self,
        mut locked: Locked<'e>,
        session: &mut Session,
        registered: &'static Registered,
        args: &Args<'_>,
    ) {
        self.note(&mut locked, session, registered, args);
        if let Some(wait) = self.effects.wait.take() {
            self.begin_wait(&mut locked, session, (registered, args), wait);
        }
        self.tell_followers(locked, session.id);
    }

    /// Tells clients with a cache which followed keys changed, marks their watchers, and leaves those that
    /// clients wait for in `effects.gone`. Keys that expired on the way are among them.
    pub fn note_touched(&mut self, locked: &mut Locked<'_>, writer: u64) {
        self.publish_unfollowed();
        let Standing { thread, notifications, .. } = *self.standing;
        let notifier = Notifier { shared: self.shared, thread: Some(thread), notifications };
        let mut writer = Writer { client: writer, own: self.own };
        let mut published = 0;
        let mut events = self.effects.events.drain(..);
        for mut touched in self.effects.touched.drain(..) {
            let before = std::mem::take(&mut touched.events_before);
            notifier.publish(events.by_ref().take(before.saturating_sub(published)));
            published = published.max(before);
            if touched.told != Told::Waiting && self.shared.tracking.is_used() {
                let key = Key { bytes: &touched.key, hash: touched.hash };
                self.shared.tracking.changed(self.shared, Some(locked), key, &mut writer);
            }
            let waited_for = self.shared.follows.touch(&touched);
            touched.told = Told::All;
            // A key may be there again among others: then the queue is looked at once more, to find nobody.
            if waited_for && self.effects.gone.last() != Some(&touched) {
                self.effects.gone.push(touched);
            }
        }
        notifier.publish(events);
    }

    /// Remembers which keys a command read for its client's cache.
    fn remember_reads(
        &mut self,
        locked: &mut Locked<'_>,
        reader: &Arc<Reader>,
        registered: &'static Registered,
        args: &Args<'_>,
    ) {
        for_each_key(registered.command.keys, args, |at, _| {
            let key = args.key(at);
            if let Some(shard) = locked.shard_of_mut(key.hash) {
                self.shared.tracking.remember(shard, key, reader);
                if self.shared.tracking.keys() > self.standing.tracking_keys_max {
                    self.shared.tracking.forget_another(self.shared, shard, key, self.rng.u64(..));
                }
            }
        });
    }

    /// Notes which followed keys a command changed that changed whole databases. For the exclusive owner of
    /// the keyspace. O(followed keys).
    pub fn follow_db_changes(&mut self, writer: u64, place: Place) {
        let keyspace = &self.shared.keyspace;
        if self.effects.db_changes.iter().any(|change| matches!(change, DbChange::Emptied(_))) {
            let mut writer = Writer { client: writer, own: self.own };
            self.shared.tracking.flushed(self.shared, &mut writer, place);
        }
        let hash_of = |key: &[u8]| keyspace.hasher().hash(key);
        let now_ms = self.standing.now_ms;
        for change in std::mem::take(&mut self.effects.db_changes) {
            match change {
                // Who watches them sees that they are gone; who waits for their end must be told.
                DbChange::Emptied(db) => {
                    self.shared.hot_keys.windows.forget(db);
                    self.effects.gone.extend(self.shared.follows.keys_of(&[db], hash_of));
                }
                DbChange::Swapped(a, b) => {
                    let mut keys = self.shared.follows.keys_of(&[a, b], hash_of);
                    keys.retain(|touched| {
                        let shard = keyspace.lock(shard_of(touched.hash));
                        let key = Key { bytes: &touched.key, hash: touched.hash };
                        is_live(&shard, a, key, now_ms) || is_live(&shard, b, key, now_ms)
                    });
                    self.effects.touched.extend(keys);
                }
            }
        }
    }

    /// Puts a client into the queues of the keys that it waits for, all of which are locked. O(keys), each with one
    /// look-up.
    fn begin_wait(
        &mut self,
        locked: &mut Locked<'_>,
        session: &mut Session,
        (registered, args): (&'static Registered, &Args<'_>),
        wait: Wait,
    ) {
        let follows = &self.shared.follows;
        let hasher = self.shared.keyspace.hasher();
        let (keys, filled) = keys_of_wait(registered, args, wait.wait_for.keys, hasher);
        let request = wait.wait_for.request.map(|words| OwnedArgs::new(words.iter().map(|word| &**word)));
        let args = OwnedArgs::new(args.from(0));
        let is_told = session.subscriptions.is_some() || session.tracking.is_some();
        let ticket = follows.next_ticket();
        let waiter = Arc::new(Waiter {
            ticket,
            place: ticket.into(),
            client: session.id,
            thread: self.standing.thread,
            conn: session.conn,
            db: session.db,
            protocol: session.protocol,
            touch: !session.no_touch,
            is_import_source: session.info.import_source.load(Relaxed),
            registered,
            empty: wait.empty,
            deadline_ms: wait.timeout_ms.map(|timeout_ms| self.standing.uptime_ms.saturating_add(timeout_ms)),
            held_bytes: args.len_bytes()
                + request.as_ref().map_or(0, OwnedArgs::len_bytes)
                + keys.iter().map(WaitedKey::held_bytes).sum::<usize>(),
            args,
            request,
            reader: reader_of(session, registered).cloned(),
            listener: (is_told && !session.is_silenced()).then(|| Arc::clone(&session.info)),
            near_keys: keys.iter().take_while(|key| shard_of(key.hash) == shard_of(keys[0].hash)).count(),
            keys,
            filled,
            over: Claim::default(),
        });
        for (index, key) in waiter.keys.iter().enumerate() {
            let shard = locked.shard_of_mut(key.hash).expect("a command waits for keys that it declares");
            shard.add_follower();
            follows.add_waiter(&waiter, index);
        }
        session.wait(waiter, self.shared);
    }

    /// Marks the watchers of changed keys and serves who waits for them, and for what serving changes.
    /// Gives the locks back.
    pub fn tell_followers(&mut self, mut locked: Locked<'e>, writer: u64) {
        let keyspace = &self.shared.keyspace;
        let mut ready: VecDeque<Ready> = VecDeque::new();
        let mut later: VecDeque<(Ready, Hashes)> = VecDeque::new();
        loop {
            loop {
                self.note_touched(&mut locked, writer);
                let up_to = self.shared.follows.last_ticket();
                ready.extend(self.effects.gone.drain(..).map(|key| Ready { key, from: 0, up_to }));
                let Some(mut key) = ready.pop_front() else { break };
                self.standing.now_ms = unix_ms();
                if let Some(needed) = self.serve_key(&mut locked, &mut key) {
                    later.push_back((key, needed));
                }
            }
            let Some((key, needed)) = later.pop_front() else { return };
            // Given up before others are taken: locks are taken in ascending order only.
            drop(locked);
            locked = keyspace.lock_all_of(needed.into_iter());
            ready.push_back(key);
        }
    }

    /// Serves who waits for a key, as far as there is something. Gives the hashes to lock first where more
    /// is needed than is locked. O(clients served, or found over, or run in vain).
    fn serve_key(&mut self, locked: &mut Locked<'_>, ready: &mut Ready) -> Option<Hashes> {
        let Ready { key, from, up_to } = ready;
        if !locked.holds(std::iter::once(key.hash)) {
            return Some(Hashes::from_slice(&[key.hash]));
        }
        loop {
            // Looked at first: what cannot be served must not ask for locks, or two of them in the queue would
            // have it begun anew for ever. One that is run in vain goes behind `up_to`.
            let met = self.met_by(locked, key);
            let met = |awaited| met[awaited as usize];
            let (place, waiter, index) = self.shared.follows.next_waiter(key, *from..=*up_to, met)?;
            *from = place;
            if !waiter.over.is_over() && !locked.holds(waiter.reached(index)) {
                return Some(waiter.reached(index).collect());
            }
            *from += 1;
            let follows = &self.shared.follows;
            // One that was over has not been taken out by its thread yet.
            let is_over =
                follows.end_if(&waiter, || self.reply_for(locked, &waiter)) || waiter.over.is_over();
            if is_over && follows.remove_waiter(&waiter, index) {
                locked.shard_of_mut(key.hash).expect("it was looked at above").remove_follower();
            }
        }
    }

    /// What the key holds of what clients wait for, by [`Awaited::ALL`]. Its shard is locked.
    fn met_by(&mut self, locked: &mut Locked<'_>, key: &Touched) -> [bool; Awaited::ALL.len()] {
        let moment = Moment {
            now_ms: self.standing.now_ms,
            touch: false,
            access: self.standing.access,
            // While data is imported, the client's own request decides.
            overdue: if self.standing.import_mode { Overdue::Shown } else { Overdue::Removed },
        };
        let mut view = View::new(&self.shared.keyspace, locked, key.db, moment, self.tally);
        let entry = view.peek(Key { bytes: &key.key, hash: key.hash });
        let object = entry.as_ref().and_then(|entry| match entry.view() {
            EntryView::Object(object) => Some(object),
            EntryView::Bytes(_) | EntryView::Int(_) => None,
        });
        Awaited::ALL.map(|awaited| awaited.is_met_by(object))
    }

    /// Runs a waiting client's request, as if it had come now; whether that gave it its reply.
    fn reply_for(&mut self, locked: &mut Locked<'_>, waiter: &Arc<Waiter>) -> bool {
        let Runner::Data(handler) = waiter.registered.command.run else { return false };
        let caller = Caller {
            db: waiter.db,
            protocol: waiter.protocol,
            touch: waiter.touch,
            overdue: self.standing.overdue_for(waiter),
            patience: Patience::StillWaits,
        };
        let since = Instant::now();
        let mut out = ByteQueue::new();
        let args = waiter.request().args(self.shared.keyspace.hasher());
        let result = self.call(locked, caller, handler, &args, &mut out);
        if self.effects.wait.take().is_some() {
            self.shared.follows.requeue(waiter);
            return false;
        }
        if let Err(error) = result {
            let line = error.line();
            self.shared.count_failure(self.standing.thread, waiter.registered, &line);
            Reply::new(&mut out, waiter.protocol).error_bytes(&line);
        }
        if let Some(reader) = &waiter.reader {
            self.remember_reads(locked, reader, waiter.registered, &args);
        }
        let reply_bytes = out.len_bytes();
        if let Some(listener) = &waiter.listener {
            // Through the inbox of messages, ahead of the events of its own command.
            push_reply(self.shared, listener, &std::mem::take(&mut out));
        }
        // What the client caches and its own command changed: behind the reply.
        let mut own = OwnPushes::default();
        self.own.swap_messages(&mut own);
        self.note_touched(locked, waiter.client);
        self.own.swap_messages(&mut own);
        let mut pushes = std::mem::take(&mut own.behind);
        if let Some(listener) = &waiter.listener
            && !pushes.is_empty()
        {
            push_reply(self.shared, listener, &std::mem::take(&mut pushes));
        }
        let took = since.elapsed();
        self.shared.threads[waiter.thread].deliver(Delivery {
            conn: waiter.conn,
            client: waiter.client,
            ticket: waiter.ticket,
            reply: out,
            reply_bytes,
            pushes,
            took,
        });
        own.redirect(self.shared);
        if self.standing.latency_ms > 0 {
            self.shared.spikes.note(self.standing.latency_ms, Event::CommandUnblocking, took);
        }
        true
    }
}
