//! Keyspace notifications: what commands, expiry and eviction do to keys, published on channels.
//!
//! ```text
//!   __keyspace@<db>__:<key>      message: the event     letter K
//!   __keyevent@<db>__:<event>    message: the key       letter E, published second
//! ```
//! `notify-keyspace-events` names the two kinds of channels and the classes of events; without K
//! and E nothing is published. A thread looks once a turn which events are wanted
//! (`Changes::wanted_events`), and wants none while nobody is subscribed to anything, so a write
//! pays one branch. A subscription counts from the turn after its confirmation left, and requests
//! sent after that are in such a turn.
//!
//! **Order.** Events are published under the locks of the shards whose keys they are about, when
//! the command is done: a key's events come in the order of its changes, a client's in the order of
//! its commands. The inboxes that take them (`pubsub.rs`) are leaves in the lock order.
//!
//! **Bounds.** A client whose events crowd an inbox is held back like one that publishes too fast.

use commands::{EventClass, KeyEvent};

use super::pubsub::Kind;
use super::send::Sender;

/// The events to publish: `notify-keyspace-events`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Notifications {
    /// On channels of keys.
    pub keyspace: bool,
    /// On channels of events.
    pub keyevent: bool,
    /// Events of these classes.
    pub classes: EventClass,
}

impl Notifications {
    /// Parses the option's letters. Invalid letters were rejected by the caller.
    pub fn parse(letters: &[u8]) -> Self {
        let class = |letter: &u8| match letter {
            b'g' => EventClass::GENERIC,
            b'$' => EventClass::STRING,
            b'l' => EventClass::LIST,
            b's' => EventClass::SET,
            b'h' => EventClass::HASH,
            b'z' => EventClass::ZSET,
            b'x' => EventClass::EXPIRED,
            b'e' => EventClass::EVICTED,
            b't' => EventClass::STREAM,
            b'm' => EventClass::MISSED,
            b'n' => EventClass::NEW,
            // Misses and new keys have to be asked for by their letters.
            b'A' => EventClass::all() - EventClass::MISSED - EventClass::NEW,
            // `d` is the class of module events, which do not exist; K and E are not classes.
            _ => EventClass::empty(),
        };
        Self {
            keyspace: letters.contains(&b'K'),
            keyevent: letters.contains(&b'E'),
            classes: letters.iter().map(class).fold(EventClass::empty(), EventClass::union),
        }
    }

    /// Returns the events that have a channel to be published on.
    fn wanted(&self) -> EventClass {
        if self.keyspace || self.keyevent { self.classes } else { EventClass::empty() }
    }
}

/// Returns the event classes to raise: none while there are no subscriptions.
#[inline]
pub fn wanted(notifications: Notifications, subscribers: usize) -> EventClass {
    if subscribers == 0 { EventClass::empty() } else { notifications.wanted() }
}

/// Publishes an event. The caller holds the lock of the shard of the key that it is about.
#[cold]
pub fn publish(sender: Sender<'_>, notifications: Notifications, event: &KeyEvent) {
    let KeyEvent { event, db, key, .. } = event;
    let mut channel = Vec::new();
    let mut publish = |prefix: &str, name: &[u8], payload: &[u8]| {
        channel.clear();
        channel.extend_from_slice(format!("{prefix}@{db}__:").as_bytes());
        channel.extend_from_slice(name);
        sender.publish(Kind::Channel, &channel, payload);
    };
    if notifications.keyspace {
        publish("__keyspace", key, event.as_bytes());
    }
    if notifications.keyevent {
        publish("__keyevent", event.as_bytes(), key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_wanted_where_they_have_a_channel() {
        let wanted = |letters: &str| Notifications::parse(letters.as_bytes()).wanted();
        assert_eq!(wanted(""), EventClass::empty());
        assert_eq!(wanted("Amn"), EventClass::empty());
        assert_eq!(wanted("KE"), EventClass::empty());
        assert_eq!(wanted("Kl$"), EventClass::LIST | EventClass::STRING);
        assert_eq!(wanted("EAmn"), EventClass::all());
        assert_eq!(wanted("KA"), EventClass::all() - EventClass::MISSED - EventClass::NEW);
        assert_eq!(wanted("Kd"), EventClass::empty());
    }
}
