//! Data commands on locked shards, and what follows from them while the shards are locked: watchers are
//! marked, clients that wait for a changed key are served, oldest first.
//!
//! Serving runs the waiting client's request by its command's own handler, with the reply going to the
//! client's thread, before the writer's own reply leaves. What that needs beyond the writer's keys (BLPOP's
//! other keys, BLMOVE's destination and those of clients that wait for it) is found and locked before the writer
//! runs ([`lock_reach`]), so that a write and what it leads to are one step for all others. Where a key
//! goes without a writer that named it (expiry, eviction), the locks are given up, those of the key and of what
//! is missing are taken in ascending order, and the queue is looked at again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use commands::ctx::{DbChange, Told, Touched};
use commands::keys::for_each_key;
use commands::table::Flags;
use commands::{Args, AwaitedKey, CommandError, Ctx, Effects, Patience, ValueLimits, Wait};
use keyspace::key::shard_of;
use keyspace::view::{Access, Moment, Tally, View};
use keyspace::{Db, Key, Locked, Shard};
use resp::{Protocol, Reply};
use smallvec::SmallVec;
use stdx::ByteQueue;
use structures::claim::Claim;
use structures::entry::View as EntryView;

use crate::command_table::{Registered, Runner};
use crate::follow::{Reach, WaitedKey, Waiter};
use crate::notify::{Notifications, Notifier};
use crate::owned_args::OwnedArgs;
use crate::push::push_reply;
use crate::session::{ClientInfo, Session};
use crate::shared::{Delivery, Shared};
use crate::spikes::Event;
use crate::tracking::{Mode, OwnPushes, Place, Writer};

/// Hashes of the keys of one request.
type Hashes = SmallVec<[u64; 4]>;

/// How often a writer looks for what its waiters need, before it locks everything.
const REACH_ATTEMPTS_MAX: usize = 4;

/// What runs data commands on an I/O thread, for the time of one request.
pub struct Executor<'e> {
    /// The server.
    pub shared: &'e Shared,
    /// What is the same for all requests of the turn.
    pub standing: &'e Standing,
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
    /// Now, in Unix milliseconds: one reading per turn.
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
    /// Whether it may wait.
    pub patience: Patience,
}

/// Locks, beside what is locked, all that serving the waiters of `keys` may touch, the keys of a command that
/// has not run yet. O(waiters that need other shards).
#[cold]
pub fn lock_reach<'k, 'a>(
    shared: &'k Shared,
    mut locked: Locked<'k>,
    keys: impl Iterator<Item = Key<'a>> + Clone,
) -> Locked<'k> {
    let Shared { keyspace, follows, .. } = shared;
    if follows.waiting_clients().load(Relaxed) == 0 {
        return locked;
    }
    for _ in 0..REACH_ATTEMPTS_MAX {
        match follows.reach(keys.clone()) {
            Reach::Hashes(hashes) if locked.holds(hashes.iter().copied()) => return locked,
            Reach::Hashes(hashes) => {
                // Other clients may come to wait meanwhile, so it is looked again.
                locked = keyspace.lock_anew(locked, hashes.into_iter());
            }
            Reach::Everything => break,
        }
    }
    drop(locked);
    keyspace.lock_all()
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
    lock_reach(shared, locked, keys.iter().copied())
}

/// Whether a key of this shard exists, and its time is not over. An expired key is none, whether it has been
/// removed or not; it is left as it is. O(1).
pub fn is_live(shard: &Shard, db: usize, key: Key<'_>, now_ms: i64) -> bool {
    let entry = shard.db(db).map(Db::table).and_then(|table| table.get(key.position(), key.bytes));
    entry.is_some_and(|entry| entry.expiry_ms().is_none_or(|at_ms| at_ms > now_ms))
}

/// Whether what this command reads is to be remembered for its client's cache.
fn tracks_reads(session: &Session, registered: &Registered) -> bool {
    if !session.tracking || !registered.command.flags.contains(Flags::READONLY) {
        return false;
    }
    let mode = session.info.tracking.mode();
    let given = mode.contains(Mode::CACHING);
    let opted_out = (mode.contains(Mode::OPTIN) && !given) || (mode.contains(Mode::OPTOUT) && given);
    !mode.contains(Mode::BCAST) && !opted_out
}

/// A key that clients wait for and that changed.
struct Ready {
    key: Touched,
    /// The last place in its queue that is looked at: nobody is run twice for one change.
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
        let moment =
            Moment { now_ms: self.standing.now_ms, touch: caller.touch, access: self.standing.access };
        let reply = Reply::new(out, caller.protocol);
        let before = reply.mark();
        // A scope rather than a drop, which would move the context to its end.
        let result = {
            let mut ctx = Ctx {
                db: View::new(&self.shared.keyspace, locked, caller.db, moment, self.tally),
                reply,
                effects: self.effects,
                rng: self.rng,
                limits: self.limits,
                patience: caller.patience,
            };
            let result = handler(&mut ctx, args);
            if result.is_err() {
                ctx.reply.truncate(before);
            }
            result
        };
        if !self.effects.wanted_events.is_empty() {
            self.publish_unfollowed();
        }
        result
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
            || session.tracking
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
        if tracks_reads(session, registered) {
            self.remember_reads(locked, &session.info, registered, args);
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
        let mut writer = Writer { client: writer, thread, own: self.own };
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
            if waited_for && !self.effects.gone.contains(&touched) {
                self.effects.gone.push(touched);
            }
        }
        notifier.publish(events);
    }

    /// Remembers which keys a command read for its client's cache.
    fn remember_reads(
        &mut self,
        locked: &mut Locked<'_>,
        reader: &Arc<ClientInfo>,
        registered: &'static Registered,
        args: &Args<'_>,
    ) {
        for_each_key(registered.command.keys, args, |at, _| {
            let key = args.key(at);
            if let Some(shard) = locked.shard_of_mut(key.hash) {
                self.shared.tracking.remember(shard, key, reader);
            }
        });
    }

    /// Notes which followed keys a command changed that changed whole databases. For the exclusive owner of
    /// the keyspace. O(followed keys).
    pub fn follow_db_changes(&mut self, writer: u64, place: Place) {
        let keyspace = &self.shared.keyspace;
        if self.effects.db_changes.iter().any(|change| matches!(change, DbChange::Emptied(_))) {
            let mut writer = Writer { client: writer, thread: self.standing.thread, own: self.own };
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

    /// Puts a client into the queues of the keys that it waits for, all of which are locked.
    fn begin_wait(
        &mut self,
        locked: &mut Locked<'_>,
        session: &mut Session,
        (registered, args): (&'static Registered, &Args<'_>),
        wait: Wait,
    ) {
        let follows = &self.shared.follows;
        let hasher = self.shared.keyspace.hasher();
        let mut keys: Vec<WaitedKey> = Vec::with_capacity(wait.wait_for.keys.len());
        for AwaitedKey { key, awaited } in wait.wait_for.keys {
            if keys.iter().all(|other| other.key != key) {
                keys.push(WaitedKey { hash: hasher.hash(&key), key, awaited });
            }
        }
        let mut reached = SmallVec::new();
        let mut filled: Vec<(Box<[u8]>, u64)> = Vec::new();
        for_each_key(registered.command.keys, args, |at, _| {
            let key = args.key(at);
            reached.push(key.hash);
            if keys.iter().all(|other| *other.key != *key.bytes) {
                filled.push((key.bytes.into(), key.hash));
            }
        });
        let request = wait.wait_for.request.map(|words| OwnedArgs::new(words.iter().map(|word| &**word)));
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
            registered,
            empty: wait.empty,
            deadline_ms: wait.timeout_ms.map(|timeout_ms| self.standing.uptime_ms.saturating_add(timeout_ms)),
            args: OwnedArgs::new(args.from(0)),
            request,
            reader: tracks_reads(session, registered).then(|| Arc::clone(&session.info)),
            subscriber: (session.subscriptions.is_some() && !session.is_silenced())
                .then(|| Arc::clone(&session.info)),
            keys,
            reached,
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
                for key in self.effects.gone.drain(..) {
                    if ready.iter().all(|other| other.key != key) {
                        ready.push_back(Ready { key, up_to: self.shared.follows.last_ticket() });
                    }
                }
                let Some(key) = ready.pop_front() else { break };
                if let Some(needed) = self.serve_key(&mut locked, &key) {
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
    /// is needed than is locked.
    fn serve_key(&mut self, locked: &mut Locked<'_>, Ready { key, up_to }: &Ready) -> Option<Hashes> {
        if !locked.holds(std::iter::once(key.hash)) {
            return Some(Hashes::from_slice(&[key.hash]));
        }
        let mut served_up_to = 0;
        loop {
            let exists = self.key_exists(locked, key);
            let places = served_up_to + 1..=*up_to;
            let (place, waiter, index) = self.shared.follows.next_waiter(key, places, exists)?;
            served_up_to = place;
            let waited = &waiter.keys[index];
            // Looked at first: what cannot be served must not ask for locks, or two of them in the queue would
            // have it begun anew for ever. One that is over has not been taken out by its thread yet. One that is
            // run in vain goes behind `up_to`.
            if waiter.over.is_over() || !self.is_met(locked, &waiter, waited) {
                continue;
            }
            if !locked.holds(waiter.reached.iter().copied()) {
                return Some(waiter.reached.clone());
            }
            waiter.over.end_if(|| self.reply_for(locked, &waiter));
        }
    }

    fn key_exists(&mut self, locked: &mut Locked<'_>, key: &Touched) -> bool {
        self.view(locked, key.db, |view, key| view.contains(key), key.hash, &key.key)
    }

    /// Looks at a key of locked shards.
    fn view<R>(
        &mut self,
        locked: &mut Locked<'_>,
        db: usize,
        look: impl FnOnce(&mut View<'_>, Key<'_>) -> R,
        hash: u64,
        key: &[u8],
    ) -> R {
        let moment = Moment { now_ms: self.standing.now_ms, touch: false, access: self.standing.access };
        let mut view = View::new(&self.shared.keyspace, locked, db, moment, self.tally);
        look(&mut view, Key { bytes: key, hash })
    }

    /// Whether the key holds what a client waits for there. Its shard is locked.
    fn is_met(&mut self, locked: &mut Locked<'_>, waiter: &Waiter, waited: &WaitedKey) -> bool {
        let met = |view: &mut View<'_>, key: Key<'_>| {
            let entry = view.peek(key);
            let object = entry.as_ref().and_then(|entry| match entry.view() {
                EntryView::Object(object) => Some(object),
                EntryView::Bytes(_) | EntryView::Int(_) => None,
            });
            waited.awaited.is_met_by(object)
        };
        self.view(locked, waiter.db, met, waited.hash, &waited.key)
    }

    /// Runs a waiting client's request, as if it had come now; whether that gave it its reply.
    fn reply_for(&mut self, locked: &mut Locked<'_>, waiter: &Arc<Waiter>) -> bool {
        let Runner::Data(handler) = waiter.registered.command.run else { return false };
        let caller = Caller {
            db: waiter.db,
            protocol: waiter.protocol,
            touch: waiter.touch,
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
        if let Some(subscriber) = &waiter.subscriber {
            // Through the inbox of messages, ahead of the events of its own command.
            push_reply(self.shared, subscriber, &std::mem::take(&mut out));
        }
        // What the client caches and its own command changed: behind the reply.
        let mut own = std::mem::take(self.own);
        self.note_touched(locked, waiter.client);
        std::mem::swap(self.own, &mut own);
        let mut pushes = std::mem::take(&mut own.behind);
        if let Some(subscriber) = &waiter.subscriber
            && !pushes.is_empty()
        {
            push_reply(self.shared, subscriber, &std::mem::take(&mut pushes));
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
