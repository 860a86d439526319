//! Subscribes a session's client to channels and patterns, and ends its subscriptions.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;

use resp::Reply;

use crate::publish::pubsub::{Kind, PubSub, subscription_bytes};
use crate::session::Session;

impl Session {
    /// Subscribes the client to the channel or pattern `name`. Does nothing if the client is
    /// already subscribed.
    pub fn subscribe(&mut self, pubsub: &PubSub, kind: Kind, name: &[u8]) {
        let is_first = self.subscriptions.is_none();
        let subscriptions = self.subscriptions.get_or_insert_default();
        if !subscriptions.names[kind as usize].insert(name.into()) {
            return;
        }
        if is_first {
            pubsub.count_client();
        }
        pubsub.add(kind, name, &self.info);
        self.info.held.watched_and_subscribed_bytes.fetch_add(subscription_bytes(name), Relaxed);
        self.show_subscriptions();
    }

    /// Ends the client's subscriptions to `names`, as far as they exist. Before that, writes to the
    /// reply the messages of these channels that were already published. Calls `confirm` for each
    /// name, with the number of remaining subscriptions.
    pub fn unsubscribe(
        &mut self,
        pubsub: &PubSub,
        kind: Kind,
        names: &[Box<[u8]>],
        reply: &mut Reply<'_>,
        mut confirm: impl FnMut(&mut Reply<'_>, &[u8], usize),
    ) {
        let has = |name: &[u8]| {
            self.subscriptions.as_ref().is_some_and(|all| all.names[kind as usize].contains(name))
        };
        let ending: BTreeSet<&[u8]> = names.iter().map(|name| &**name).filter(|name| has(name)).collect();
        ending.iter().for_each(|name| pubsub.stop_counting(kind, name, &self.info));
        self.catch_up_outside_exec(pubsub, reply);
        if self.in_exec {
            pubsub.keep(kind, &ending, &self.info);
        }
        for name in names {
            self.forget_subscription(pubsub, kind, name);
            confirm(reply, name, self.subscription_count(kind));
        }
    }

    /// Writes the client's waiting messages to its reply before a subscription ends, unless a
    /// transaction runs. A transaction has written them at its start. Messages that the transaction
    /// itself has published since then follow its reply (see [`PubSub::keep`]).
    fn catch_up_outside_exec(&self, pubsub: &PubSub, reply: &mut Reply<'_>) {
        if !self.in_exec {
            self.catch_up(pubsub, reply);
        }
    }

    /// Writes to the reply the messages of subscribed channels that wait for this client in its
    /// thread's inbox.
    pub(crate) fn catch_up(&self, pubsub: &PubSub, reply: &mut Reply<'_>) {
        self.saw(pubsub.catch_up(&self.info, self.subscriptions.as_deref(), reply));
    }

    /// Removes a subscription from the session and from the table of the session's thread, if it
    /// exists.
    fn forget_subscription(&mut self, pubsub: &PubSub, kind: Kind, name: &[u8]) {
        let Some(subscriptions) = &mut self.subscriptions else { return };
        if !subscriptions.names[kind as usize].remove(name) {
            return;
        }
        if subscriptions.is_empty() {
            self.subscriptions = None;
            pubsub.uncount_client();
        }
        pubsub.remove(kind, name, &self.info);
        self.info.held.watched_and_subscribed_bytes.fetch_sub(subscription_bytes(name), Relaxed);
        self.show_subscriptions();
    }

    /// Ends all subscriptions of the client. With a `reply`, first writes to it the messages that
    /// were already published.
    pub fn unsubscribe_all(&mut self, pubsub: &PubSub, reply: Option<&mut Reply<'_>>) {
        let Some(subscriptions) = &self.subscriptions else { return };
        const KINDS: [Kind; 3] = [Kind::Channel, Kind::Pattern, Kind::Shard];
        for kind in KINDS {
            subscriptions.names(kind).for_each(|name| pubsub.stop_counting(kind, name, &self.info));
        }
        if let Some(reply) = reply {
            self.catch_up_outside_exec(pubsub, reply);
        }
        let Some(subscriptions) = self.subscriptions.take() else { return };
        pubsub.uncount_client();
        for kind in KINDS {
            for name in subscriptions.names(kind) {
                pubsub.remove(kind, name, &self.info);
                self.info.held.watched_and_subscribed_bytes.fetch_sub(subscription_bytes(name), Relaxed);
            }
        }
        self.show_subscriptions();
    }

    /// Returns the number of subscriptions that a confirmation of this kind shows. Channels and
    /// patterns count together.
    pub fn subscription_count(&self, kind: Kind) -> usize {
        let count = |kind| self.subscriptions.as_ref().map_or(0, |all| all.names[kind as usize].len());
        if kind == Kind::Shard { count(kind) } else { count(Kind::Channel) + count(Kind::Pattern) }
    }

    /// Returns the number of confirmations that a subscription command writes if it succeeds. It is
    /// one for each of the `names`. For an unsubscribing command without names, it is one for each
    /// subscription of the kind, at least one. O(1).
    pub(crate) fn confirmation_count(&self, full_name: &str, names: usize) -> usize {
        let kind = match full_name {
            "unsubscribe" => Kind::Channel,
            "punsubscribe" => Kind::Pattern,
            "sunsubscribe" => Kind::Shard,
            _ => return names,
        };
        if names > 0 {
            return names;
        }
        self.subscriptions.as_ref().map_or(0, |all| all.names[kind as usize].len()).max(1)
    }

    /// Stores the numbers of the client's subscriptions where other threads can read them, for
    /// CLIENT LIST.
    fn show_subscriptions(&self) {
        for (index, shown) in self.info.subscriptions.iter().enumerate() {
            let count = self.subscriptions.as_ref().map_or(0, |all| all.names[index].len());
            shown.store(count as u64, Relaxed);
        }
    }
}
