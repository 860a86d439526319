//! Keyspace notifications: changes of keys by commands, expiry and eviction, published on channels.
//!
//! ```text
//!   __keyspace@<db>__:<key>      message: the event     letter K
//!   __keyevent@<db>__:<event>    message: the key       letter E, published second
//! ```
//! `notify-keyspace-events` selects the two kinds of channels and the classes of events; without K
//! and E nothing is published. A thread determines the wanted events once a turn
//! (`Changes::wanted_events`). While there are no subscriptions at all it wants none, so a write
//! costs one branch. A subscription takes effect in the turn after its confirmation is sent.
//! Requests sent after the confirmation run in such a turn.
//!
//! **Order.** The events of a command are published at its end, under the locks of the shards of
//! its keys. The events of a key are therefore in the order of its changes, and those of a client
//! in the order of its commands. No other lock is taken under the locks of the inboxes that receive
//! them (`pubsub.rs`).
//!
//! **Bounds.** A client whose events fill an inbox must wait, like a client that publishes too
//! fast.

use commands::{EventClass, KeyEvent};

use super::pubsub::Kind;
use super::send::Sender;

/// The keyspace events to publish, as `notify-keyspace-events` selects them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Notifications {
    /// True if events are published on the channels of keys (`__keyspace@<db>__:<key>`).
    pub keyspace: bool,
    /// True if events are published on the channels of events (`__keyevent@<db>__:<event>`).
    pub keyevent: bool,
    /// The classes of keyspace events that are published.
    pub classes: EventClass,
}

impl Notifications {
    /// Parses the letters of the option `notify-keyspace-events`. The caller has rejected invalid
    /// letters.
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
            b'a' => EventClass::ARRAY,
            b'm' => EventClass::MISSED,
            b'n' => EventClass::NEW,
            // `A` does not include missed and new keys, which need their own letters.
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

    /// Returns the classes of keyspace events that are published on any channel.
    fn wanted(&self) -> EventClass {
        if self.keyspace || self.keyevent { self.classes } else { EventClass::empty() }
    }
}

/// Returns the classes of keyspace events that commands raise: none while there are no
/// subscriptions.
#[inline]
pub fn wanted(notifications: Notifications, subscribers: usize) -> EventClass {
    if subscribers == 0 { EventClass::empty() } else { notifications.wanted() }
}

/// Publishes a keyspace event. The caller holds the lock of the shard of the event's key.
#[cold]
pub fn publish(sender: Sender<'_>, notifications: Notifications, event: &KeyEvent) {
    let KeyEvent { event, db, key, .. } = event;
    let mut channel = Vec::new();
    let mut publish = |prefix: &str, name: &[u8], payload: &[u8]| {
        channel.clear();
        channel.extend_from_slice(format!("{prefix}@{db}__:").as_bytes());
        channel.extend_from_slice(name);
        sender.publish(Kind::Channel, (&channel, payload), None::<fn()>);
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
