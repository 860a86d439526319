//! Publish and subscribe: who listens to which channel, and how a message gets there.
//!
//! ```text
//!   PUBLISH ─► directory: channel ─► count per thread    (one lock of many, by the channel's hash)
//!                  └► inbox of each thread that listens  (one message for all subscribers)
//!                         └► table: channel ─► connections (the thread's own)  ─► output queues
//! ```
//!
//! **Order.** A message enters all inboxes under the lock of its channel, so all subscribers of a
//! channel see one order, and messages of one publisher, on whatever channels, keep theirs. An
//! inbox numbers its messages; a subscription begins at a number read under the channel's lock, so
//! that nobody gets what was published before. A thread empties its inbox when a turn begins and
//! ends, and around each request of a client that has subscriptions: what a client publishes to
//! itself comes right behind the reply. A subscription ends in three steps: publishers do not count
//! the client any more; what they published before, while they did, is written out; the end is
//! confirmed. So PUBLISH's reply is true, and nothing comes behind the confirmation.
//!
//! **Bounds.** An inbox that holds more than [`INBOX_BYTES_MAX`] is crowded: who adds to it is held
//! back (`Flow::AwaitingSubscribers`) until it was emptied, which its thread does every turn,
//! whether subscribers read or not. A subscriber that does not read is closed by its output limit.
//!
//! **Cost.** PUBLISH is one lock and one look-up, plus one push for each listening thread and,
//! while there are patterns, a comparison with each. Messages in a row to one channel are encoded
//! once for all connections of a protocol, as one frame; a connection gets a copy of that, or a
//! reference to it when it is big. So what a turn delivers touches each connection once, however
//! many messages there are.
//!
//! Locks: a part of a directory, then the patterns, then an inbox; all are leaves otherwise and may
//! be taken under shard locks, which is how keyspace events keep the order of the commands. A
//! table's lock is taken by its own thread alone.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};

use crossbeam_utils::CachePadded;
use resp::{Protocol, Reply};
use smallvec::SmallVec;
use stdx::ByteQueue;
use stdx::ConnId;
use stdx::glob::glob_match;
use structures::lock::Lock;

use super::Outputs;
use super::push::{Push, SHARED_BYTES_MIN};
use crate::client::ClientInfo;

/// Bytes of messages in a thread's inbox at which publishers must wait.
pub const INBOX_BYTES_MAX: usize = 1 << 20;

/// Locks of a directory.
const PARTS: usize = 64;

/// The kind of name of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A channel.
    Channel,
    /// Channels by a glob pattern.
    Pattern,
    /// A channel of a cluster's shard.
    Shard,
}

/// Subscribers of something by thread.
type Counts = SmallVec<[u32; 8]>;

/// Channels by name, a part of all.
type Part = Lock<HashMap<Box<[u8]>, Counts>>;

/// Channels that have subscribers.
struct Directory {
    parts: Box<[Part]>,
    len: AtomicUsize,
}

impl Directory {
    fn new() -> Self {
        let parts = (0..PARTS).map(|_| Lock::new(HashMap::new())).collect();
        Self { parts, len: AtomicUsize::new(0) }
    }
}

/// A published message.
struct Publication {
    kind: Kind,
    channel: Arc<[u8]>,
    /// The pattern that the channel matched, for subscribers of patterns.
    pattern: Option<Arc<[u8]>>,
    payload: Arc<[u8]>,
    /// The position of the change log that it shows.
    position: u64,
}

impl Publication {
    fn len_bytes(&self) -> usize {
        size_of::<Self>() + self.channel.len() + self.payload.len()
    }

    fn subscribed(&self) -> &[u8] {
        self.pattern.as_deref().unwrap_or(&self.channel)
    }

    /// Returns true if the same subscribers get both.
    fn same_subscribers(&self, other: &Self) -> bool {
        self.kind == other.kind && self.subscribed() == other.subscribed()
    }

    fn encode(&self, reply: &mut Reply<'_>) {
        match (&self.pattern, self.kind) {
            (Some(pattern), _) => {
                reply.push(4);
                reply.bulk(b"pmessage");
                reply.bulk(pattern);
            }
            (None, Kind::Shard) => {
                reply.push(3);
                reply.bulk(b"smessage");
            }
            (None, _) => {
                reply.push(3);
                reply.bulk(b"message");
            }
        }
        reply.bulk(&self.channel);
        reply.bulk(&self.payload);
    }
}

/// By number, which both lists share.
#[derive(Default)]
struct Messages {
    waiting: Vec<(u64, Arc<Publication>)>,
    /// Messages for single clients.
    pushes: Vec<(u64, Push)>,
    next: u64,
}

/// A subscriber on its own thread.
struct Subscriber {
    conn: ConnId,
    client: Arc<ClientInfo>,
    /// The first message that is meant for it.
    since: u64,
}

/// Subscribers of one thread, by what they subscribed to and by client.
type Table = HashMap<Box<[u8]>, BTreeMap<u64, Subscriber>>;

/// Messages for a thread's subscribers, and its tables of subscribers.
#[derive(Default)]
struct Inbox {
    messages: Lock<Messages>,
    bytes: AtomicUsize,
    has_messages: AtomicBool,
    /// The part of [`PubSub::push_bytes`] that is sent with this turn's replies. Thread: the
    /// inbox's own.
    pushed_bytes: AtomicU64,
    tables: [Lock<Table>; 3],
}

impl Inbox {
    /// Appends a message for one client to its output. The limit of its class is looked at later.
    /// Gives its bytes.
    fn deliver_push(&self, push: Push, outputs: &mut impl Outputs, over: &mut Vec<ConnId>) -> u64 {
        self.pushed_bytes.fetch_add(push.counted_bytes(), Relaxed);
        let (conn, len_bytes) = (push.conn, push.bytes.len() as u64);
        if push.deliver(outputs) {
            over.push(conn);
        }
        len_bytes
    }

    /// Writes a message for the client whose reply this is.
    fn write_push(&self, push: Push, reply: &mut Reply<'_>) {
        self.pushed_bytes.fetch_add(push.counted_bytes(), Relaxed);
        push.write(reply);
    }
}

/// The receivers of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// The number of deliveries: a client gets it once for its channel and once for each pattern.
    pub receivers: u64,
    /// True if an inbox is crowded: the publisher must wait.
    pub subscribers_full: bool,
}

/// All subscriptions of all threads.
pub struct PubSub {
    channels: Directory,
    shard_channels: Directory,
    patterns: Lock<BTreeMap<Arc<[u8]>, Counts>>,
    pattern_count: AtomicUsize,
    clients: AtomicUsize,
    inboxes: Box<[CachePadded<Inbox>]>,
    subscribers_full: AtomicUsize,
    /// Bytes of messages for single clients between a thread's inbox and the network.
    push_bytes: AtomicU64,
    hasher: ahash::RandomState,
}

/// The result of emptying an inbox.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delivered {
    /// Bytes that were appended to outputs.
    pub len_bytes: u64,
    /// The inbox was crowded: those who wait to publish may go on.
    pub were_subscribers_full: bool,
}

impl PubSub {
    /// Creates the state without subscriptions, for this many threads. `seed` keys the hash of
    /// channels' names.
    pub fn new(threads: usize, seed: [u64; 4]) -> Self {
        Self {
            channels: Directory::new(),
            shard_channels: Directory::new(),
            patterns: Lock::new(BTreeMap::new()),
            pattern_count: AtomicUsize::new(0),
            clients: AtomicUsize::new(0),
            inboxes: (0..threads).map(|_| CachePadded::new(Inbox::default())).collect(),
            subscribers_full: AtomicUsize::new(0),
            push_bytes: AtomicU64::new(0),
            hasher: ahash::RandomState::with_seeds(seed[0], seed[1], seed[2], seed[3]),
        }
    }

    fn directory(&self, kind: Kind) -> &Directory {
        if kind == Kind::Shard { &self.shard_channels } else { &self.channels }
    }

    fn part(&self, kind: Kind, channel: &[u8]) -> &Lock<HashMap<Box<[u8]>, Counts>> {
        &self.directory(kind).parts[self.hasher.hash_one(channel) as usize % PARTS]
    }

    /// Channels with subscribers. Patterns do not count.
    pub fn channel_count(&self, kind: Kind) -> usize {
        self.directory(kind).len.load(Relaxed)
    }

    /// Patterns with subscribers.
    pub fn pattern_count(&self) -> usize {
        self.pattern_count.load(Relaxed)
    }

    /// Counts a client that begins to have subscriptions.
    pub(crate) fn count_client(&self) {
        self.clients.fetch_add(1, Relaxed);
    }

    /// Counts a client out that has none any more.
    pub(crate) fn uncount_client(&self) {
        self.clients.fetch_sub(1, Relaxed);
    }

    /// Clients with subscriptions.
    pub fn client_count(&self) -> usize {
        self.clients.load(Relaxed)
    }

    /// Bytes of messages for single clients that are not with the network yet. The memory limit
    /// leaves them out: else the invalidations of evicted keys would make more keys be evicted.
    pub fn push_bytes(&self) -> &AtomicU64 {
        &self.push_bytes
    }

    /// Returns true if publishers must wait.
    pub fn are_subscribers_full(&self) -> bool {
        self.subscribers_full.load(Relaxed) > 0
    }

    /// Lists the channels with subscribers that match `pattern`. O(channels).
    pub fn channels(&self, kind: Kind, pattern: Option<&[u8]>) -> Vec<Box<[u8]>> {
        let mut found = Vec::new();
        for part in &self.directory(kind).parts {
            let part = part.lock();
            let fits = |channel: &[u8]| pattern.is_none_or(|pattern| glob_match(pattern, channel));
            found.extend(part.keys().filter(|channel| fits(channel)).cloned());
        }
        found
    }

    /// Subscribers of a channel, those of patterns not counted.
    pub fn subscriber_count(&self, kind: Kind, channel: &[u8]) -> u64 {
        self.part(kind, channel).lock().get(channel).map_or(0, total)
    }

    /// Publishes a message that shows changes up to `position`: where it went, and the threads that
    /// may sleep beside it. O(threads), and a comparison with each pattern.
    pub(super) fn publish(
        &self,
        kind: Kind,
        (channel, payload): (&[u8], &[u8]),
        position: u64,
    ) -> (Published, SmallVec<[usize; 8]>) {
        let mut published = Published { receivers: 0, subscribers_full: false };
        let patterns = kind == Kind::Channel && self.pattern_count() > 0;
        let mut wake: SmallVec<[usize; 8]> = SmallVec::new();
        if self.channel_count(kind) == 0 && !patterns {
            return (published, wake);
        }
        {
            let part = self.part(kind, channel).lock();
            let mut words: Option<[Arc<[u8]>; 2]> = None;
            let mut tell = |counts: &Counts, pattern: Option<&Arc<[u8]>>| {
                let [channel, payload] = words.get_or_insert_with(|| [channel.into(), payload.into()]);
                let kind = if pattern.is_some() { Kind::Pattern } else { kind };
                let publication = Arc::new(Publication {
                    kind,
                    channel: Arc::clone(channel),
                    pattern: pattern.cloned(),
                    payload: Arc::clone(payload),
                    position,
                });
                published.receivers += total(counts);
                for (thread, _) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
                    let (is_first, are_subscribers_full) = self.push(thread, Arc::clone(&publication));
                    published.subscribers_full |= are_subscribers_full;
                    if is_first {
                        wake.push(thread);
                    }
                }
            };
            if let Some(counts) = part.get(channel) {
                tell(counts, None);
            }
            if patterns {
                for (pattern, counts) in &*self.patterns.lock() {
                    if glob_match(pattern, channel) {
                        tell(counts, Some(pattern));
                    }
                }
            }
        }
        (published, wake)
    }

    /// Puts a message into an inbox: whether its thread is to be woken, and
    /// whether the inbox is crowded.
    fn push(&self, thread: usize, publication: Arc<Publication>) -> (bool, bool) {
        let inbox = &self.inboxes[thread];
        let len_bytes = publication.len_bytes();
        let mut messages = inbox.messages.lock();
        let number = messages.next;
        messages.next += 1;
        messages.waiting.push((number, publication));
        // Under the inbox's lock, as all changes of it; so the count of crowded inboxes is exact.
        let before = inbox.bytes.fetch_add(len_bytes, Relaxed);
        if before <= INBOX_BYTES_MAX && before + len_bytes > INBOX_BYTES_MAX {
            self.subscribers_full.fetch_add(1, Relaxed);
        }
        drop(messages);
        let is_first = !inbox.has_messages.swap(true, SeqCst);
        (is_first, before + len_bytes > INBOX_BYTES_MAX)
    }

    /// Puts a message for one client into its thread's inbox: whether that is to be woken. It
    /// crowds no inbox: `Sender::push` bounds what waits for a client. A leaf in the lock order.
    pub(super) fn hand_over(&self, thread: usize, push: Push) -> bool {
        let inbox = &self.inboxes[thread];
        let mut messages = inbox.messages.lock();
        let number = messages.next;
        messages.next += 1;
        messages.pushes.push((number, push));
        drop(messages);
        !inbox.has_messages.swap(true, SeqCst)
    }

    /// Lets [`PubSub::push_bytes`] fall by what `thread` has sent. That thread only.
    #[inline]
    pub fn note_sent(&self, thread: usize) {
        let pushed_bytes = &self.inboxes[thread].pushed_bytes;
        let sent = pushed_bytes.load(Relaxed);
        if sent > 0 {
            pushed_bytes.store(0, Relaxed);
            self.push_bytes.fetch_sub(sent, Relaxed);
        }
    }

    /// Returns true if messages wait for `thread`.
    #[inline]
    pub fn has_messages(&self, thread: usize) -> bool {
        self.inboxes[thread].has_messages.load(SeqCst)
    }

    /// Appends what waits for `thread` to its subscribers' queues, and lists those whose
    /// queue then holds more than `limit_bytes`, or whose limit may be another. That
    /// thread only. O(deliveries).
    pub fn deliver(
        &self,
        thread: usize,
        outputs: &mut impl Outputs,
        limit_bytes: u64,
        over: &mut Vec<ConnId>,
    ) -> Delivered {
        let inbox = &self.inboxes[thread];
        if !inbox.has_messages.swap(false, SeqCst) {
            return Delivered::default();
        }
        let (messages, pushes, were_subscribers_full) = {
            let mut messages = inbox.messages.lock();
            let bytes = inbox.bytes.swap(0, Relaxed);
            let pushes = std::mem::take(&mut messages.pushes);
            (std::mem::take(&mut messages.waiting), pushes, bytes > INBOX_BYTES_MAX)
        };
        if were_subscribers_full {
            self.subscribers_full.fetch_sub(1, Relaxed);
        }
        let mut pushes = pushes.into_iter().peekable();
        let mut bytes = 0;
        // Where numbers are missing, there are messages for single clients between.
        for run in messages.chunk_by(|(at, one), (then, next)| at + 1 == *then && one.same_subscribers(next))
        {
            while let Some((_, push)) = pushes.next_if(|(number, _)| *number < run[0].0) {
                bytes += inbox.deliver_push(push, outputs, over);
            }
            let table = inbox.tables[run[0].1.kind as usize].lock();
            let Some(subscribers) = table.get(run[0].1.subscribed()) else { continue };
            let position = run.iter().map(|(_, message)| message.position).max().unwrap_or(0);
            // By protocol. Those who subscribed within the run, and get its end only, are rare.
            let mut frames = [const { None::<Frame> }; 2];
            for subscriber in subscribers.values() {
                let is_resp3 = subscriber.client.speaks_resp3();
                let protocol = if is_resp3 { Protocol::Resp3 } else { Protocol::Resp2 };
                let out = outputs.queue(subscriber.conn);
                let len_bytes = if subscriber.since <= run[0].0 {
                    frames[usize::from(is_resp3)]
                        .get_or_insert_with(|| Frame::new(run, protocol))
                        .append_to(out)
                } else {
                    let first = run.partition_point(|(number, _)| *number < subscriber.since);
                    if first == run.len() {
                        continue;
                    }
                    Frame::new(&run[first..], protocol).append_to(out)
                };
                bytes += len_bytes;
                subscriber.client.count_output(len_bytes);
                outputs.shows(subscriber.conn, len_bytes as usize, position);
                if outputs.len_bytes(subscriber.conn) as u64 > limit_bytes {
                    over.push(subscriber.conn);
                }
            }
        }
        for (_, push) in pushes {
            bytes += inbox.deliver_push(push, outputs, over);
        }
        over.sort_unstable_by_key(|conn| conn.to_u64());
        over.dedup();
        Delivered { len_bytes: bytes, were_subscribers_full }
    }

    /// Adds a subscriber on its own thread.
    pub(crate) fn add(&self, kind: Kind, name: &[u8], client: &Arc<ClientInfo>) {
        let thread = client.thread;
        let since = match kind {
            Kind::Pattern => {
                let mut patterns = self.patterns.lock();
                if count_in(patterns.entry(name.into()).or_default(), thread) {
                    self.pattern_count.fetch_add(1, SeqCst);
                }
                self.inboxes[thread].messages.lock().next
            }
            Kind::Channel | Kind::Shard => {
                let mut part = self.part(kind, name).lock();
                if count_in(part.entry(name.into()).or_default(), thread) {
                    self.directory(kind).len.fetch_add(1, SeqCst);
                }
                self.inboxes[thread].messages.lock().next
            }
        };
        let subscriber = Subscriber { conn: client.conn, client: Arc::clone(client), since };
        let mut table = self.inboxes[thread].tables[kind as usize].lock();
        table.entry(name.into()).or_default().insert(client.id, subscriber);
    }

    /// Keeps the messages of a transaction that wait in the thread's inbox for a client that is
    /// about to unsubscribe from these names. O(waiting messages × log names).
    pub(crate) fn keep(&self, kind: Kind, names: &BTreeSet<&[u8]>, client: &Arc<ClientInfo>) {
        let inbox = &self.inboxes[client.thread];
        let table = inbox.tables[kind as usize].lock();
        let is_lost = |number: u64, publication: &Publication| {
            let name = publication.subscribed();
            let subscriber = || table.get(name).and_then(|subscribers| subscribers.get(&client.id));
            publication.kind == kind
                && names.contains(name)
                && subscriber().is_some_and(|it| it.since <= number)
        };
        let mut messages = inbox.messages.lock();
        let Messages { waiting, pushes, .. } = &mut *messages;
        for (number, publication) in
            waiting.iter().filter(|(number, publication)| is_lost(*number, publication))
        {
            let mut out = ByteQueue::new();
            publication.encode(&mut Reply::new(&mut out, client.protocol()));
            let bytes: Arc<[u8]> = out.as_single().expect("names are copied into it, not shared").into();
            // With the message's own number, so that it keeps its place among the others.
            let position = publication.position;
            pushes.push((*number, Push::counted(&self.push_bytes, client, &bytes, position)));
        }
        pushes.sort_by_key(|(number, _)| *number);
    }

    /// Removes the client from the channel's subscriber count: later messages in the inbox are not
    /// for it. On its own thread.
    pub(crate) fn stop_counting(&self, kind: Kind, name: &[u8], client: &ClientInfo) {
        let thread = client.thread;
        let is_last = |counts: &mut Counts| {
            counts[thread] -= 1;
            counts.iter().all(|count| *count == 0)
        };
        if kind == Kind::Pattern {
            let mut patterns = self.patterns.lock();
            if patterns.get_mut(name).is_some_and(is_last) {
                patterns.remove(name);
                self.pattern_count.fetch_sub(1, SeqCst);
            }
        } else {
            let mut part = self.part(kind, name).lock();
            if part.get_mut(name).is_some_and(is_last) {
                part.remove(name);
                self.directory(kind).len.fetch_sub(1, SeqCst);
            }
        }
    }

    /// Delivers the messages for a client in its thread's inbox, in order. Gives the position of
    /// the change log that they show. On its own thread. O(messages that wait there).
    pub(crate) fn catch_up(
        &self,
        client: &ClientInfo,
        subscriptions: Option<&Subscriptions>,
        reply: &mut Reply<'_>,
    ) -> u64 {
        let inbox = &self.inboxes[client.thread];
        let Some(subscriptions) = subscriptions.filter(|_| inbox.has_messages.load(SeqCst)) else { return 0 };
        let (messages, pushes, next) = {
            let mut messages = inbox.messages.lock();
            let pushes = messages.pushes.extract_if(.., |(_, push)| push.conn == client.conn);
            let pushes: Vec<(u64, Push)> = pushes.collect();
            let subscribed = |message: &Publication| {
                subscriptions.names[message.kind as usize].contains(message.subscribed())
            };
            let waiting = messages.waiting.iter().filter(|(_, message)| subscribed(message));
            (waiting.cloned().collect::<Vec<_>>(), pushes, messages.next)
        };
        let mut position = pushes.iter().map(|(_, push)| push.position).max().unwrap_or(0);
        let mut pushes = pushes.into_iter().peekable();
        let mut audience = Vec::new();
        for (number, message) in messages {
            while let Some((_, push)) = pushes.next_if(|(at, _)| *at < number) {
                inbox.write_push(push, reply);
            }
            let mut table = inbox.tables[message.kind as usize].lock();
            let subscribers = table.get_mut(message.subscribed());
            let subscriber = subscribers.and_then(|subscribers| subscribers.get_mut(&client.id));
            if subscriber.expect("a subscription stands in its thread's table").since <= number {
                message.encode(reply);
                position = position.max(message.position);
                audience.push(message);
            }
        }
        pushes.for_each(|(_, push)| inbox.write_push(push, reply));
        // The other subscribers of the thread get it when the inbox is emptied, this one not again.
        for message in audience {
            let mut table = inbox.tables[message.kind as usize].lock();
            let subscribers = table.get_mut(message.subscribed());
            if let Some(it) = subscribers.and_then(|subscribers| subscribers.get_mut(&client.id)) {
                it.since = next;
            }
        }
        position
    }

    /// Takes a subscriber out that publishers do not count any more, on its own thread.
    pub(crate) fn remove(&self, kind: Kind, name: &[u8], client: &ClientInfo) {
        let mut table = self.inboxes[client.thread].tables[kind as usize].lock();
        if let Some(subscribers) = table.get_mut(name) {
            subscribers.remove(&client.id);
            if subscribers.is_empty() {
                table.remove(name);
            }
        }
    }
}

/// Messages in a row that the same subscribers get, encoded.
enum Frame {
    Small(Vec<u8>),
    Big(Arc<Vec<u8>>),
}

impl Frame {
    fn new(run: &[(u64, Arc<Publication>)], protocol: Protocol) -> Self {
        let mut encoded = ByteQueue::new();
        for (_, publication) in run {
            publication.encode(&mut Reply::new(&mut encoded, protocol));
        }
        let bytes = std::mem::take(encoded.tail_mut());
        if bytes.len() < SHARED_BYTES_MIN { Frame::Small(bytes) } else { Frame::Big(Arc::new(bytes)) }
    }

    /// Appends it and gives its bytes.
    #[inline]
    fn append_to(&self, out: &mut ByteQueue) -> u64 {
        match self {
            Frame::Small(bytes) => {
                out.tail_mut().extend_from_slice(bytes);
                bytes.len() as u64
            }
            Frame::Big(bytes) => {
                out.push_shared(Arc::clone(bytes) as stdx::SharedBytes);
                bytes.len() as u64
            }
        }
    }
}

fn total(counts: &Counts) -> u64 {
    counts.iter().map(|&count| u64::from(count)).sum()
}

/// Counts a subscriber of `thread`; whether it is the first of all.
fn count_in(counts: &mut Counts, thread: usize) -> bool {
    let is_first = counts.iter().all(|count| *count == 0);
    if counts.len() <= thread {
        counts.resize(thread + 1, 0);
    }
    counts[thread] += 1;
    is_first
}

/// Returns the length of a subscription, in bytes: an entry and a copy of its name with the
/// client, in its thread's table and in the directory.
pub(crate) fn subscription_bytes(name: &[u8]) -> u64 {
    const OVERHEAD: usize = size_of::<Box<[u8]>>() + size_of::<Subscriber>() + 560;
    (OVERHEAD + 3 * name.len()) as u64
}

/// The subscriptions of a client. Thread: the client's.
#[derive(Default)]
pub struct Subscriptions {
    pub(crate) names: [BTreeSet<Box<[u8]>>; 3],
}

impl Subscriptions {
    /// Lists all names of one kind.
    pub fn names(&self, kind: Kind) -> impl Iterator<Item = &[u8]> {
        self.names[kind as usize].iter().map(|name| &**name)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.names.iter().all(BTreeSet::is_empty)
    }
}

/// Writes the reply of a command that subscribes or unsubscribes, from its first word on.
pub fn write_subscription(reply: &mut Reply<'_>, word: &str, name: Option<&[u8]>, count: usize) {
    reply.push(3);
    reply.bulk(word.as_bytes());
    match name {
        Some(name) => reply.bulk(name),
        None => reply.null(),
    }
    reply.integer(count as i64);
}
