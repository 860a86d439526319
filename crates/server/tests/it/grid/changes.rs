//! The rows of the grid: every kind of change of a value.

use super::stage::Holds::{self, Any, Hash, List, Members, Nothing, Stream, Text};
use super::stage::{Blocked, Speaker, Stage, put, wait_until};

/// The preparation of a change, before any listener is attached.
#[derive(Clone, Copy)]
pub enum Before {
    /// Nothing is prepared besides the value of `k`.
    Quiet,
    /// These requests are sent before any listener is attached.
    Ask(&'static [&'static str]),
    /// The key `k` gets an expiry time.
    Expiry,
    /// These fields of the hash at `k` get an expiry time.
    FieldExpiry(&'static str),
    /// The settings make the key the only one that can be evicted.
    Evictable,
    /// An RDB file contains the key, which is changed after the save.
    Saved,
    /// Append-only files contain the data as a base, with no commands after it.
    Rewritten,
    /// A value exists in another place, from which the change takes it.
    Bring(Source),
}

/// The place from which a change takes a value.
#[derive(Clone, Copy)]
pub enum Source {
    /// The key `o` of the same database of the same server.
    Key,
    /// The key `k` of database 1 of the same server.
    OtherDatabase,
    /// A payload that DUMP returned, from which RESTORE takes the value.
    Payload,
    /// The key `k` of the other server of the test.
    OtherServer,
}

/// The way in which the change of a row happens.
#[derive(Clone, Copy)]
pub enum How {
    /// A client makes the change by these requests.
    Ask(&'static [&'static str]),
    /// These requests are sent after the expiry, while active expiry is off, so that they find the
    /// expired key or fields.
    Expired(&'static [&'static str]),
    /// Active expiry makes the change. It has done so when this field of INFO has grown by at least
    /// this number.
    Swept(&'static str, i64),
    /// A write at the memory limit evicts the key.
    Evicted,
    /// The first request blocks a client, and the second one serves this client.
    Served(&'static str, &'static str),
    /// MIGRATE moves the key `k` to the other server.
    MigratedAway,
    /// MIGRATE on the other server moves its key to this one.
    MigratedHere,
    /// RESTORE creates the key from the payload, with this option.
    Restored(&'static str),
}

/// The facts about a row of the grid, a change of a value.
pub struct Row {
    /// The type of the key `k` before the change.
    pub holds: Holds,
    /// The oldest Redis version (major, minor) that has the command.
    pub since: (u32, u32),
    pub before: Before,
    pub how: How,
}

/// The version of rows whose commands every compared Redis has.
const OLD: (u32, u32) = (0, 0);
/// The first Redis version with hash fields that expire.
const FIELDS: (u32, u32) = (7, 4);
/// The first Redis version with HGETDEL, HGETEX and HSETEX.
const FIELDS_8: (u32, u32) = (8, 0);

/// Defines the enum of the rows and their facts from one list, so that every row has facts.
macro_rules! rows {
    ($($(#[$doc:meta])* $name:ident: $holds:expr, $since:expr, $before:expr, $how:expr;)+) => {
        /// A way in which a value changes or may change.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Change { $($(#[$doc])* $name,)+ }

        impl Change {
            /// All rows of the grid: every kind of change of a value.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// Returns the facts about this row of the grid.
            pub fn row(self) -> Row {
                match self {
                    $(Self::$name => Row { holds: $holds, since: $since, before: $before, how: $how },)+
                }
            }
        }
    };
}

use Before::{Bring, Evictable, Expiry, FieldExpiry, Quiet, Rewritten, Saved};
use How::{Ask, Evicted, Expired, MigratedAway, MigratedHere, Restored, Served, Swept};

const FUNCTION: &str = "FUNCTION LOAD REPLACE #!lua~name=grid\nredis.register_function('grid',\
                        function(keys)~return~redis.call('SET',keys[1],'new')~end)";

rows! {
    // Commands on strings and on keys of any type.
    Set: Any, OLD, Quiet, Ask(&["SET k new"]);
    SetSame: Text, OLD, Quiet, Ask(&["SET k old"]);
    SetNothing: Any, OLD, Quiet, Ask(&["SET k new NX"]);
    SetMany: Any, OLD, Quiet, Ask(&["MSET a new k new z new"]);
    SetExpiring: Any, OLD, Quiet, Ask(&["SET k new EX 1000"]);
    Append: Text, OLD, Quiet, Ask(&["APPEND k new"]);
    AppendNothing: Text, OLD, Quiet, Ask(&["APPEND k ''"]);
    SetRangeNothing: Text, OLD, Quiet, Ask(&["SETRANGE k 0 ''"]);
    SetBitSame: Text, OLD, Quiet, Ask(&["SETBIT k 0 0"]);
    Increment: Nothing, OLD, Quiet, Ask(&["INCR k"]);
    BitOpOfNothing: Text, OLD, Quiet, Ask(&["BITOP AND k missing"]);
    BitFieldRead: Text, OLD, Quiet, Ask(&["BITFIELD k GET u8 0"]);
    GetDel: Text, OLD, Quiet, Ask(&["GETDEL k"]);
    GetEx: Text, OLD, Quiet, Ask(&["GETEX k EX 1000"]);
    PfAdd: Nothing, OLD, Quiet, Ask(&["PFADD k a"]);
    Del: Any, OLD, Quiet, Ask(&["DEL k"]);
    DelMany: Any, OLD, Quiet, Ask(&["DEL missing k other"]);
    Unlink: Any, OLD, Quiet, Ask(&["UNLINK k"]);
    Expire: Any, OLD, Quiet, Ask(&["EXPIRE k 1000"]);
    ExpireInThePast: Any, OLD, Quiet, Ask(&["EXPIRE k -1"]);
    Persist: Any, OLD, Before::Ask(&["EXPIRE k 1000"]), Ask(&["PERSIST k"]);
    PersistNothing: Any, OLD, Quiet, Ask(&["PERSIST k"]);
    Touch: Any, OLD, Quiet, Ask(&["TOUCH k"]);
    RenameAway: Any, OLD, Quiet, Ask(&["RENAME k away"]);
    RenameHere: Any, OLD, Bring(Source::Key), Ask(&["RENAME o k"]);
    CopyHere: Any, OLD, Bring(Source::Key), Ask(&["COPY o k REPLACE"]);
    MoveAway: Any, OLD, Quiet, Ask(&["MOVE k 1"]);
    MoveHere: Nothing, OLD, Bring(Source::OtherDatabase), Ask(&["SELECT 1", "MOVE k 0", "SELECT 0"]);
    StoreNothing: Any, OLD, Quiet, Ask(&["SUNIONSTORE k missing"]);
    StoreRange: Any, OLD, Before::Ask(&["ZADD o 1 new"]), Ask(&["ZRANGESTORE k o 0 -1"]);
    // Commands on collections.
    Push: Nothing, OLD, Quiet, Ask(&["RPUSH k new"]);
    PushMore: List, OLD, Quiet, Ask(&["RPUSH k new"]);
    PopLast: List, OLD, Quiet, Ask(&["LPOP k"]);
    ListMove: List, OLD, Quiet, Ask(&["LMOVE k k LEFT RIGHT"]);
    SortStore: List, OLD, Quiet, Ask(&["SORT k BY nothing STORE k"]);
    ScoreSame: Members, OLD, Quiet, Ask(&["ZADD k 1 old"]);
    ScoreOther: Members, OLD, Quiet, Ask(&["ZADD k 2 old"]);
    RemoveLast: Members, OLD, Quiet, Ask(&["ZREM k old"]);
    StreamAdd: Stream, OLD, Quiet, Ask(&["XADD k 2-1 field new"]);
    StreamTrim: Stream, OLD, Quiet, Ask(&["XTRIM k MAXLEN 0"]);
    HashSet: Hash, OLD, Quiet, Ask(&["HSET k a new"]);
    HashDelNothing: Hash, OLD, Quiet, Ask(&["HDEL k missing"]);
    HashDelAll: Hash, OLD, Quiet, Ask(&["HDEL k a b"]);
    HashExpire: Hash, FIELDS, Quiet, Ask(&["HPEXPIRE k 1000000 FIELDS 1 a"]);
    HashExpireInThePast: Hash, FIELDS, Quiet, Ask(&["HPEXPIRE k 0 FIELDS 1 a"]);
    HashExpireAllInThePast: Hash, FIELDS, Quiet, Ask(&["HPEXPIRE k 0 FIELDS 2 a b"]);
    HashPersist: Hash, FIELDS, Before::Ask(&["HPEXPIRE k 1000000 FIELDS 1 a"]), Ask(&["HPERSIST k FIELDS 1 a"]);
    HashPersistNothing: Hash, FIELDS, Quiet, Ask(&["HPERSIST k FIELDS 1 a"]);
    HashGetEx: Hash, FIELDS_8, Quiet, Ask(&["HGETEX k EX 1000 FIELDS 1 a"]);
    HashSetEx: Hash, FIELDS_8, Quiet, Ask(&["HSETEX k EX 1000 FIELDS 1 a new"]);
    HashGetDel: Hash, FIELDS_8, Quiet, Ask(&["HGETDEL k FIELDS 1 a"]);
    HashGetDelAll: Hash, FIELDS_8, Quiet, Ask(&["HGETDEL k FIELDS 2 a b"]);
    // Several commands in one unit, and served clients.
    Transaction: Any, OLD, Quiet, Ask(&["MULTI", "SET k new", "SET k newer", "EXEC"]);
    Script: Any, OLD, Quiet, Ask(&["EVAL redis.call('SET',KEYS[1],'new') 1 k"]);
    ScriptOfUndeclaredKey: Any, OLD, Quiet, Ask(&["EVAL redis.call('SET','k','new') 0"]);
    ScriptTwice: Any, OLD, Quiet, Ask(&["EVAL redis.call('SET','k','new')redis.call('DEL','k') 1 k"]);
    ScriptInTransaction: Any, OLD, Quiet, Ask(&["MULTI", "EVAL redis.call('SET','k','new') 1 k", "EXEC"]);
    Function: Any, OLD, Before::Ask(&[FUNCTION]), Ask(&["FCALL grid 1 k"]);
    ServedInto: Nothing, OLD, Quiet, Served("BLMOVE source k LEFT LEFT 0", "RPUSH source new");
    ServedFrom: Nothing, OLD, Quiet, Served("BLMOVE k target LEFT LEFT 0", "RPUSH k new");
    ServedInTransaction: Nothing, OLD, Quiet, Served("BLMPOP 0 1 k LEFT", "EVAL redis.call('RPUSH','k','new') 1 k");
    // Expiry, found by a read, a write, SCAN or RANDOMKEY, and active expiry.
    KeyExpiryLazy: Any, OLD, Expiry, Expired(&["EXISTS k"]);
    KeyExpiryWrite: Any, OLD, Expiry, Expired(&["SET k new"]);
    KeyExpiryDel: Any, OLD, Expiry, Expired(&["DEL k"]);
    KeyExpiryTransaction: Any, OLD, Expiry, Expired(&["MULTI", "EXISTS k", "EXEC"]);
    KeyExpiryScript: Any, OLD, Expiry, Expired(&["EVAL redis.call('EXISTS','k') 1 k"]);
    KeyExpiryScan: Any, OLD, Expiry, Expired(&["SCAN 0 COUNT 10000"]);
    KeyExpiryKeys: Any, OLD, Expiry, Expired(&["KEYS *"]);
    KeyExpiryRandomKey: Any, OLD, Expiry, Expired(&["RANDOMKEY"]);
    KeyExpiryActive: Any, OLD, Expiry, Swept("expired_keys", 1);
    FieldExpiryLazy: Hash, FIELDS, FieldExpiry("1 a"), Expired(&["HGETALL k"]);
    FieldExpiryWrite: Hash, FIELDS, FieldExpiry("1 a"), Expired(&["HSET k b new"]);
    FieldExpiryOfWritten: Hash, FIELDS, FieldExpiry("1 a"), Expired(&["HSET k a new"]);
    FieldExpiryDel: Hash, FIELDS, FieldExpiry("1 a"), Expired(&["HDEL k a"]);
    FieldExpiryAllLazy: Hash, FIELDS, FieldExpiry("2 a b"), Expired(&["HGET k a", "HGETALL k"]);
    FieldExpiryAllWrite: Hash, FIELDS, FieldExpiry("2 a b"), Expired(&["HSET k a new"]);
    FieldExpiryActive: Hash, FIELDS, FieldExpiry("1 a"), Swept("expired_subkeys", 1);
    FieldExpiryActiveAll: Hash, FIELDS, FieldExpiry("2 a b"), Swept("expired_subkeys", 2);
    Eviction: Any, OLD, Evictable, Evicted;
    // Keys from and to other places, and whole databases.
    MigrateAway: Any, OLD, Quiet, MigratedAway;
    MigrateHere: Nothing, OLD, Bring(Source::OtherServer), MigratedHere;
    Restore: Nothing, OLD, Bring(Source::Payload), Restored("ABSTTL");
    RestoreReplace: Any, OLD, Bring(Source::Payload), Restored("REPLACE");
    FlushDb: Any, OLD, Quiet, Ask(&["FLUSHDB"]);
    FlushDbAsync: Any, OLD, Quiet, Ask(&["FLUSHDB ASYNC"]);
    FlushAll: Any, OLD, Quiet, Ask(&["FLUSHALL"]);
    FlushAllAsync: Any, OLD, Quiet, Ask(&["FLUSHALL ASYNC"]);
    FlushOtherDb: Any, OLD, Quiet, Ask(&["SELECT 1", "FLUSHDB", "SELECT 0"]);
    SwapDbAway: Any, OLD, Quiet, Ask(&["SWAPDB 0 1"]);
    SwapDbHere: Nothing, OLD, Bring(Source::OtherDatabase), Ask(&["SWAPDB 0 1"]);
    SwapDbBoth: Any, OLD, Bring(Source::OtherDatabase), Ask(&["SWAPDB 1 0"]);
    Loading: Any, OLD, Rewritten, Ask(&["DEBUG LOADAOF"]);
    DebugReload: Any, OLD, Quiet, Ask(&["DEBUG RELOAD"]);
    DebugReloadNoSave: Any, OLD, Saved, Ask(&["DEBUG RELOAD NOSAVE"]);
}

impl Change {
    /// Prepares the change on the servers of `stage`. The value of `k` already exists.
    pub fn prepare(self, stage: &mut Stage<'_>) {
        match self.row().before {
            Quiet => {}
            Before::Ask(lines) => stage.admin.ask_all(lines),
            Expiry => expire(stage, "PEXPIREAT k", ""),
            FieldExpiry(fields) => expire(stage, "HPEXPIREAT k", &format!(" FIELDS {fields}")),
            Evictable => {
                stage.admin.ask_all(&["EXPIRE k 1000", "CONFIG SET maxmemory-policy volatile-ttl"]);
            }
            Saved => stage.admin.ask_all(&["SAVE", "EXPIRE k 1000"]),
            Rewritten => {
                let admin = &mut stage.admin;
                let before = admin.number("persistence", "aof_rewrites");
                admin.ask_all(&["BGREWRITEAOF"]);
                wait_until("the end of the rewrite", || {
                    admin.number("persistence", "aof_rewrites") > before
                        && admin.number("persistence", "aof_rewrite_in_progress") == 0
                });
            }
            Bring(source) => bring(stage, source),
        }
    }

    /// Makes the change. If a client makes it, `writer` is that client.
    pub fn happen(self, stage: &mut Stage<'_>, writer: &mut Speaker) {
        match self.row().how {
            Ask(lines) => writer.ask_all(lines),
            Expired(lines) => {
                stage.wait_for_expiry();
                writer.ask_all(lines);
            }
            Swept(field, count) => {
                let admin = &mut stage.admin;
                let before = admin.number("stats", field);
                admin.ask_all(&["DEBUG SET-ACTIVE-EXPIRE 1"]);
                wait_until(field, || admin.number("stats", field) >= before + count);
                // This command waits for the lock under which the removal is announced.
                admin.ask_all(&["EXISTS k"]);
            }
            Evicted => {
                let before = stage.admin.number("stats", "evicted_keys");
                stage.admin.ask_all(&["CONFIG SET maxmemory 1"]);
                // It fails, because nothing else can be evicted.
                writer.ask("SET z new");
                wait_until("the eviction", || stage.admin.number("stats", "evicted_keys") > before);
                stage.admin.ask_all(&["CONFIG SET maxmemory 0", "EXISTS k"]);
            }
            Served(blocked, then) => {
                let mut client = Blocked::on(stage, blocked);
                writer.ask_all(&[then]);
                // The listener may be blocked on the key too, and may have taken the element.
                client.end(stage);
            }
            MigratedAway => migrate(writer, stage.far.port()),
            MigratedHere => migrate(&mut stage.far_admin, stage.here.port()),
            Restored(option) => {
                let reply = writer.ask_words(&[b"RESTORE", b"k", b"0", &stage.payload, option.as_bytes()]);
                assert!(!reply.is_error(), "RESTORE: {reply}");
            }
        }
    }
}

/// Gives the key or its fields an expiry time that is soon, but after the listener is attached.
fn expire(stage: &mut Stage<'_>, command: &str, fields: &str) {
    stage.expires_at_ms = stage.admin.now_ms() + stage.margin_ms;
    let line = format!("{command} {}{fields}", stage.expires_at_ms);
    stage.admin.ask_all(&["DEBUG SET-ACTIVE-EXPIRE 0", &line]);
}

fn bring(stage: &mut Stage<'_>, source: Source) {
    let (brings, large, admin) = (stage.brings, stage.large, &mut stage.admin);
    match source {
        Source::Key => put(admin, "o", brings, "new", large),
        Source::OtherDatabase => {
            admin.ask_all(&["SELECT 1"]);
            put(admin, "k", brings, "new", large);
            admin.ask_all(&["SELECT 0"]);
        }
        Source::Payload => {
            put(&mut stage.far_admin, "k", brings, "new", large);
            let reply = stage.far_admin.ask("DUMP k");
            stage.payload = reply.as_bytes().expect("a payload").to_vec();
        }
        Source::OtherServer => put(&mut stage.far_admin, "k", brings, "new", large),
    }
}

fn migrate(client: &mut Speaker, port: u16) {
    client.ask_all(&[&format!("MIGRATE 127.0.0.1 {port} k 0 60000")]);
}
