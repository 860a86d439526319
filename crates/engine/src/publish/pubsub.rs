//! Publish and subscribe: the subscribers of each channel, and the path of a message to them.
//!
//! ```text
//!   PUBLISH ─► directory: channel ─► count per thread    (one lock of many, by the channel's hash)
//!                  └► inbox of each subscribed thread    (one message for all subscribers)
//!                         └► table: channel ─► connections (the thread's own)  ─► output queues
//! ```
//!
//! **Order.** A message enters all inboxes under the lock of its channel. All subscribers of a
//! channel therefore receive its messages in the same order, and the messages of one publisher keep
//! their order across channels. An inbox numbers its messages. A subscription begins at a number
//! that is read under the channel's lock, so a subscriber receives no message that was published
//! before.
//!
//! A thread empties its inbox at the beginning and end of a turn, and around each request of a
//! client with subscriptions. A message that a client publishes to itself therefore follows its
//! reply. A subscription ends in three steps:
//! - The client is removed from the channel's subscriber count, which publishers read.
//! - The messages that were published before are written to the client.
//! - The end is confirmed.
//!
//! So PUBLISH replies with the exact number of receivers, and no message follows the confirmation.
//!
//! **Bounds.** An inbox with more than [`INBOX_BYTES_MAX`] is full. A client that publishes to it
//! must then wait (`Flow::AwaitingSubscribers`) until the inbox is emptied. Its thread does this
//! every turn, even if subscribers do not read. A subscriber that does not read is closed by its
//! output limit.
//!
//! **Cost.** PUBLISH takes one lock and one look-up, one push for each subscribed thread and, while
//! there are patterns, a comparison with each pattern. Consecutive messages of one channel are
//! encoded once for all connections of a protocol, as one frame. A connection gets a copy of the
//! frame, or a reference if it is big. Delivery therefore touches each connection once per turn,
//! independent of the number of messages.
//!
//! **Locks.** The order is: a part of a directory, the patterns, an inbox. They are leaves
//! otherwise, and may be taken under shard locks; this is how keyspace events keep the order of the
//! commands. Only the owning thread takes the lock of a table.

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

/// The number of bytes of messages in a thread's inbox above which publishers must wait.
pub const INBOX_BYTES_MAX: usize = 1 << 20;

/// The number of parts of a directory of channels, each with a lock of its own.
const PARTS: usize = 64;

/// The kind of a subscription: a channel, a pattern, or a channel of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A subscription to a channel (SUBSCRIBE).
    Channel,
    /// A subscription to the channels that match a glob pattern (PSUBSCRIBE).
    Pattern,
    /// A subscription to a channel of a shard in a cluster (SSUBSCRIBE).
    Shard,
}

/// The number of subscribers of one channel or pattern, by thread.
type Counts = SmallVec<[u32; 8]>;

/// A part of a directory of channels: some channels by name, each with its numbers of subscribers.
type Part = Lock<HashMap<Box<[u8]>, Counts>>;

/// The channels that have subscribers, in parts with a lock each.
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

/// A message that a client published on a channel.
struct Publication {
    kind: Kind,
    channel: Arc<[u8]>,
    /// The pattern that the channel matched, for subscribers of patterns; `None` for subscribers of
    /// the channel.
    pattern: Option<Arc<[u8]>>,
    payload: Arc<[u8]>,
    /// The log position up to which the message shows changes.
    position: u64,
}

impl Publication {
    fn len_bytes(&self) -> usize {
        size_of::<Self>() + self.channel.len() + self.payload.len()
    }

    fn subscribed(&self) -> &[u8] {
        self.pattern.as_deref().unwrap_or(&self.channel)
    }

    /// Returns true if both published messages go to the same subscribers.
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

/// The messages in the inbox of a thread: published ones and those for single clients. A message of
/// either list has a number, and the numbers order all messages.
#[derive(Default)]
struct Messages {
    waiting: Vec<(u64, Arc<Publication>)>,
    /// The messages for single clients, each with its number.
    pushes: Vec<(u64, Push)>,
    next: u64,
}

/// A subscriber of a channel or pattern, in the table of the subscriber's thread.
struct Subscriber {
    conn: ConnId,
    client: Arc<ClientInfo>,
    /// The number, in the inbox, of the first message that the subscriber receives.
    since: u64,
}

/// The subscribers of one thread, by channel or pattern and by client id.
type Table = HashMap<Box<[u8]>, BTreeMap<u64, Subscriber>>;

/// The inbox of a thread: its incoming messages for clients, and its tables of subscribers.
#[derive(Default)]
struct Inbox {
    messages: Lock<Messages>,
    bytes: AtomicUsize,
    has_messages: AtomicBool,
    /// The part of [`PubSub::push_bytes`] whose messages are sent together with the replies of this
    /// turn (pass of the event loop). Written by the inbox's own thread.
    pushed_bytes: AtomicU64,
    tables: [Lock<Table>; 3],
}

impl Inbox {
    /// Appends a message for one client to the client's output, and the connection to `over`, whose
    /// output limit the caller checks later. Returns the bytes of the message.
    fn deliver_push(&self, push: Push, outputs: &mut impl Outputs, over: &mut Vec<ConnId>) -> u64 {
        self.pushed_bytes.fetch_add(push.counted_bytes(), Relaxed);
        let (conn, len_bytes) = (push.conn, push.bytes.len() as u64);
        if push.deliver(outputs) {
            over.push(conn);
        }
        len_bytes
    }

    /// Writes a message for a client into the output before the client's present reply.
    fn write_push(&self, push: Push, reply: &mut Reply<'_>) {
        self.pushed_bytes.fetch_add(push.counted_bytes(), Relaxed);
        push.write(reply);
    }
}

/// The result of publishing a message on a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// The number of deliveries of the message. A client is counted once for its channel and once
    /// for each pattern.
    pub receivers: u64,
    /// True if the inbox of a subscriber's thread is full, so that the publisher must wait.
    pub subscribers_full: bool,
}

/// The subscriptions of all clients, with the threads' inboxes of messages.
pub struct PubSub {
    channels: Directory,
    shard_channels: Directory,
    patterns: Lock<BTreeMap<Arc<[u8]>, Counts>>,
    pattern_count: AtomicUsize,
    clients: AtomicUsize,
    inboxes: Box<[CachePadded<Inbox>]>,
    subscribers_full: AtomicUsize,
    /// The bytes of messages for single clients that are in inboxes or not yet sent.
    push_bytes: AtomicU64,
    hasher: ahash::RandomState,
}

/// The result of emptying a thread's inbox of messages to clients.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delivered {
    /// The number of bytes of messages appended to the outputs of clients.
    pub len_bytes: u64,
    /// True if the inbox was full: clients that wait to publish may continue.
    pub were_subscribers_full: bool,
}

impl PubSub {
    /// Creates the state of publish and subscribe without subscriptions, for this number of
    /// threads. `seed` is the key of the hash of channel names.
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

    /// Returns the number of channels of a kind (channels or shard channels) with subscribers.
    /// Subscribers of patterns do not count.
    pub fn channel_count(&self, kind: Kind) -> usize {
        self.directory(kind).len.load(Relaxed)
    }

    /// Returns the number of patterns that have subscribers.
    pub fn pattern_count(&self) -> usize {
        self.pattern_count.load(Relaxed)
    }

    /// Counts a client when it gets its first subscription.
    pub(crate) fn count_client(&self) {
        self.clients.fetch_add(1, Relaxed);
    }

    /// Stops counting a client when it has lost its last subscription.
    pub(crate) fn uncount_client(&self) {
        self.clients.fetch_sub(1, Relaxed);
    }

    /// Returns the number of clients with subscriptions.
    pub fn client_count(&self) -> usize {
        self.clients.load(Relaxed)
    }

    /// Returns the bytes of messages for single clients that are not yet sent. The memory limit
    /// does not count them; otherwise the invalidations of evicted keys would cause more evictions.
    pub fn push_bytes(&self) -> &AtomicU64 {
        &self.push_bytes
    }

    /// Returns true if the inbox of any thread is full, so that publishers must wait.
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

    /// Returns the number of subscribers of a channel, without those of patterns.
    pub fn subscriber_count(&self, kind: Kind, channel: &[u8]) -> u64 {
        self.part(kind, channel).lock().get(channel).map_or(0, total)
    }

    /// Publishes a message that shows changes up to `position`. Returns its receivers, and the
    /// threads to wake. Calls `record` under the channel's lock, so that messages are recorded in
    /// the order in which subscribers receive them. O(threads), and a comparison with each pattern.
    pub(super) fn publish(
        &self,
        kind: Kind,
        (channel, payload): (&[u8], &[u8]),
        position: u64,
        record: Option<impl FnOnce()>,
    ) -> (Published, SmallVec<[usize; 8]>) {
        let mut published = Published { receivers: 0, subscribers_full: false };
        let patterns = kind == Kind::Channel && self.pattern_count() > 0;
        let mut wake: SmallVec<[usize; 8]> = SmallVec::new();
        if self.channel_count(kind) == 0 && !patterns && record.is_none() {
            return (published, wake);
        }
        {
            let part = self.part(kind, channel).lock();
            if let Some(record) = record {
                record();
            }
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

    /// Puts a published message into the inbox of a thread. Returns two values: true if the inbox's
    /// thread must be woken, and true if the inbox is now full.
    fn push(&self, thread: usize, publication: Arc<Publication>) -> (bool, bool) {
        let inbox = &self.inboxes[thread];
        let len_bytes = publication.len_bytes();
        let mut messages = inbox.messages.lock();
        let number = messages.next;
        messages.next += 1;
        messages.waiting.push((number, publication));
        // The inbox's lock protects all changes of `bytes`, so the count of full inboxes is exact.
        let before = inbox.bytes.fetch_add(len_bytes, Relaxed);
        if before <= INBOX_BYTES_MAX && before + len_bytes > INBOX_BYTES_MAX {
            self.subscribers_full.fetch_add(1, Relaxed);
        }
        drop(messages);
        let is_first = !inbox.has_messages.swap(true, SeqCst);
        (is_first, before + len_bytes > INBOX_BYTES_MAX)
    }

    /// Puts a message for one client into the inbox of the client's thread. Returns true if the
    /// thread must be woken. The message does not count towards the limit of the inbox. Other
    /// limits apply: `Sender::push` limits the waiting bytes of each client, and
    /// `Sender::push_reply` passes at most one reply per request. No other lock is taken under the
    /// lock of the inbox.
    pub(super) fn hand_over(&self, thread: usize, push: Push) -> bool {
        let inbox = &self.inboxes[thread];
        let mut messages = inbox.messages.lock();
        let number = messages.next;
        messages.next += 1;
        messages.pushes.push((number, push));
        drop(messages);
        !inbox.has_messages.swap(true, SeqCst)
    }

    /// Subtracts the bytes of messages that `thread` has sent from [`PubSub::push_bytes`]. Only
    /// that thread may call it.
    #[inline]
    pub fn note_sent(&self, thread: usize) {
        let pushed_bytes = &self.inboxes[thread].pushed_bytes;
        let sent = pushed_bytes.load(Relaxed);
        if sent > 0 {
            pushed_bytes.store(0, Relaxed);
            self.push_bytes.fetch_sub(sent, Relaxed);
        }
    }

    /// Returns true if messages to clients are waiting in the inbox of `thread`.
    #[inline]
    pub fn has_messages(&self, thread: usize) -> bool {
        self.inboxes[thread].has_messages.load(SeqCst)
    }

    /// Appends the waiting messages of `thread` to the output queues of their subscribers. Adds to
    /// `over` the connections whose queue then holds more than `limit_bytes`. Also adds those that
    /// got messages for single clients, because their limit may differ. Only that thread may call
    /// this. O(deliveries).
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
        // A missing number stands for a message to a single client.
        for run in messages.chunk_by(|(at, one), (then, next)| at + 1 == *then && one.same_subscribers(next))
        {
            while let Some((_, push)) = pushes.next_if(|(number, _)| *number < run[0].0) {
                bytes += inbox.deliver_push(push, outputs, over);
            }
            let table = inbox.tables[run[0].1.kind as usize].lock();
            let Some(subscribers) = table.get(run[0].1.subscribed()) else { continue };
            let position = run.iter().map(|(_, message)| message.position).max().unwrap_or(0);
            // One frame for each protocol. A subscriber that joined between these messages is rare
            // and gets a frame of its own.
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

    /// Adds a client to the subscribers of the channel or pattern `name`. Called on the client's
    /// own thread.
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

    /// Converts the messages of channels or patterns `names` that wait for a client into messages
    /// for this client alone. Called before the client unsubscribes within a transaction: otherwise
    /// it would not receive the messages that the transaction published. O(waiting messages × log
    /// names).
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
            // The copy has the number of the message, and so keeps its order among the others.
            let position = publication.position;
            pushes.push((*number, Push::counted(&self.push_bytes, client, &bytes, position)));
        }
        pushes.sort_by_key(|(number, _)| *number);
    }

    /// Removes the client from the channel's subscriber count, so that messages published later are
    /// not for this client. Called on the client's own thread.
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

    /// Writes the messages for a client that wait in its thread's inbox, in order. Returns the log
    /// position that they show. Called on the client's own thread. O(waiting messages).
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
        // The thread's other subscribers receive them when the inbox is emptied; this client does
        // not again.
        for message in audience {
            let mut table = inbox.tables[message.kind as usize].lock();
            let subscribers = table.get_mut(message.subscribed());
            if let Some(it) = subscribers.and_then(|subscribers| subscribers.get_mut(&client.id)) {
                it.since = next;
            }
        }
        position
    }

    /// Removes a client from its thread's table of subscribers, after [`Self::stop_counting`].
    /// Called on the client's own thread.
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

/// The encoding of consecutive published messages with the same subscribers, made once for all of
/// them.
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

    /// Appends the encoded messages to the output of a connection. Returns their length in bytes.
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

/// Counts a subscriber whose client belongs to `thread`. Returns true if it is the first on any
/// thread.
fn count_in(counts: &mut Counts, thread: usize) -> bool {
    let is_first = counts.iter().all(|count| *count == 0);
    if counts.len() <= thread {
        counts.resize(thread + 1, 0);
    }
    counts[thread] += 1;
    is_first
}

/// Returns the memory of a subscription in bytes: an entry and a copy of the name in the client, in
/// its thread's table, and in the directory.
pub(crate) fn subscription_bytes(name: &[u8]) -> u64 {
    const OVERHEAD: usize = size_of::<Box<[u8]>>() + size_of::<Subscriber>() + 560;
    (OVERHEAD + 3 * name.len()) as u64
}

/// The channels and patterns to which a client is subscribed. Used by the client's thread only.
#[derive(Default)]
pub struct Subscriptions {
    pub(crate) names: [BTreeSet<Box<[u8]>>; 3],
}

impl Subscriptions {
    /// Lists the names of the channels or patterns of one kind to which the client is subscribed.
    pub fn names(&self, kind: Kind) -> impl Iterator<Item = &[u8]> {
        self.names[kind as usize].iter().map(|name| &**name)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.names.iter().all(BTreeSet::is_empty)
    }
}

/// Writes the confirmation of a command that subscribes or unsubscribes. `word` is the first
/// element of the reply, `count` the number of remaining subscriptions.
pub fn write_subscription(reply: &mut Reply<'_>, word: &str, name: Option<&[u8]>, count: usize) {
    reply.push(3);
    reply.bulk(word.as_bytes());
    match name {
        Some(name) => reply.bulk(name),
        None => reply.null(),
    }
    reply.integer(count as i64);
}
