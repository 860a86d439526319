//! MIGRATE: moves keys to another server. A key is removed here after the target has confirmed it.
//!
//! Redis stops as a whole until the target has replied. Here only the thread of this connection
//! waits, with the thread's other connections. Nothing is locked while the thread waits for the
//! network, so a key may change during this time. The steps are:
//!
//! ```text
//!   1. each key's value is serialized under its shard's lock
//!   2. without access to the keyspace: all values are sent, and the replies are read
//!   3. under the shard's lock again: a key that still has this value and expiry is removed
//!   4. for keys that changed meanwhile: steps 1 to 3 again with exclusive access, as always in
//!      Redis; the new value replaces the copy on the target; a key that was removed or has expired
//!      here is deleted on the target
//! ```
//! A key is therefore always on at least one of the two servers, with all acknowledged writes. A
//! key is removed here only if its value and expiry are those that the target has confirmed. In
//! step 4 all clients wait for one round trip to the target. Each system call waits at most for the
//! command's timeout.
//!
//! A connection to a target stays open for some seconds, because keys are migrated in series
//! ([`ConnectionPool`]). With `tls-cluster` it is encrypted, as in Redis.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use ::commands::table::{Acl, Arg, Arity, Command, Flags, Group, History, KeyFlags, KeySpec};
use ::commands::{Args, CommandError, EventClass};
use engine::call::DataAccess;
use keyspace::{Key, KeyEntry};
use persist::dump;
use persist::rdb::Compression;
use rustls::ClientConfig;
use socket2::{Domain, Protocol, Socket, Type};

use crate::config::table::network;
use crate::config::table::tls::CLUSTER;
use crate::connection_pool::{ConnectionPool, Encryption, Stream, Target};
use crate::context::{Runner, ServerCtx, unix_ms};
use crate::shared::Shared;

/// The commands that this file adds to the command table, through [`super::all`].
pub static COMMANDS: &[&Command<Runner>] = &[&MIGRATE];

const KEY: KeyFlags = KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::DELETE);

static MIGRATE: Command<Runner> = Command {
    name: "MIGRATE",
    summary: "Moves keys to another server.",
    history: History::since("2.6.0").changed(&[
        ("3.0.0", "takes COPY and REPLACE"),
        ("3.0.6", "takes KEYS"),
        ("4.0.7", "takes AUTH"),
        ("6.0.0", "takes AUTH2"),
    ]),
    group: Group::Generic,
    complexity: "O(N) where N is the size of the values in bytes, here and on the other server.",
    arity: Arity::AtLeast(6),
    flags: Flags::WRITE,
    acl: Acl::KEYSPACE.union(Acl::WRITE).union(Acl::DANGEROUS),
    keys: &[KeySpec::at(3, KEY), KeySpec::keyword("KEYS", -2, -1, 0, KEY.union(KeyFlags::INCOMPLETE))],
    tips: &["nondeterministic_output"],
    args: &[
        Arg::string("host"),
        Arg::integer("port"),
        Arg::one_of("key-selector", &[Arg::key("key", 0), Arg::word("empty-string", "")]),
        Arg::integer("destination-db"),
        Arg::integer("timeout"),
        Arg::word("copy", "COPY").since("3.0.0").optional(),
        Arg::word("replace", "REPLACE").since("3.0.0").optional(),
        Arg::one_of(
            "authentication",
            &[
                Arg::string("auth").shown_as("password").token("AUTH").since("4.0.7"),
                Arg::block("auth2", &[Arg::string("username"), Arg::string("password")])
                    .token("AUTH2")
                    .since("6.0.0"),
            ],
        )
        .optional(),
        Arg::key("keys", 1).shown_as("key").token("KEYS").since("3.0.6").optional().multiple(),
    ],
    run: Runner::Server(migrate),
    ..Command::DEFAULT
};
/// Handles MIGRATE host port key|"" db timeout [COPY] [REPLACE] [AUTH password | AUTH2 user
/// password] [KEYS key ...]: replies OK, or NOKEY if none of the keys exists. After an error, the
/// keys that the target confirmed are removed.
fn migrate(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let way = ConnectionOptions::of(ctx.shared);
    let order = MigrateRequest::parse(args, way)?;
    let (shared, db) = (ctx.shared, ctx.session.db());
    let mut parcels: Vec<SerializedKey<'_>> = order
        .keys
        .clone()
        .filter_map(|at| SerializedKey::serialize(&mut ctx.data, db, args.key(at)))
        .collect();
    if parcels.is_empty() {
        ctx.reply.simple("NOKEY");
        return Ok(());
    }
    // Expired keys are found here only if the client imports data (`import-mode`). They are not
    // sent and stay here, as in Valkey.
    let now_ms = ctx.data.now_ms();
    parcels.retain(|parcel| !parcel.is_expired(now_ms));
    // Step 1 may have removed expired keys. Clients that receive events for them must not wait for
    // the target, which may be slow.
    shared.wake(&ctx.data.commit.outbox);
    let mut delivery = ctx.pass.outside(|| deliver(&shared.migrations, &order, &parcels));
    if !order.copy {
        // The removal of a key is a change. If clients were paused while this thread was outside
        // the gate, the keys stay on both servers, as after a lost reply.
        let is_paused = || shared.engine.pause.is_on(unix_ms());
        parcels =
            parcels.into_iter().zip(&delivery.taken).filter(|(_, taken)| **taken).map(|it| it.0).collect();
        if !is_paused() {
            parcels.retain(|parcel| !parcel.remove_if_unchanged(&mut ctx.data, db));
        }
        if !parcels.is_empty() {
            let data = &mut ctx.data;
            let late = ctx.pass.exclusive(|_alone| match is_paused() {
                true => Some(Failure::Paused),
                false => resend_changed(data, db, &parcels, &order, &shared.migrations),
            });
            delivery.failure = delivery.failure.or(late);
        }
    }
    match delivery.failure {
        None => ctx.reply.ok(),
        Some(failure) => return Err(failure.into()),
    }
    Ok(())
}

/// The options of the server for connections to other servers.
struct ConnectionOptions {
    source: Vec<u8>,
    encryption: Encryption,
    /// The TLS configuration of connections to other servers; `None` if they are not encrypted.
    tls: Option<Arc<ClientConfig>>,
}

impl ConnectionOptions {
    fn of(shared: &Shared) -> Self {
        let config = shared.config();
        let encryption = if CLUSTER.of(&config) { Encryption::Tls } else { Encryption::None };
        let source = network::BIND_SOURCE_ADDR.of(&config).to_vec();
        Self { source, encryption, tls: shared.tls.nodes() }
    }
}

/// The parsed arguments of MIGRATE.
struct MigrateRequest<'a> {
    target: Target,
    tls: Option<Arc<ClientConfig>>,
    db: i64,
    timeout: Duration,
    copy: bool,
    existing: Existing,
    /// The arguments for AUTH on the target: a password, or a user and a password. `None` sends no
    /// AUTH.
    credentials: Option<Vec<&'a [u8]>>,
    /// The indexes of those arguments of MIGRATE that are keys.
    keys: std::ops::Range<usize>,
}

/// The treatment of a key that already exists on the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Existing {
    /// The target's key stays, and the target rejects the migrated key.
    Kept,
    /// The migrated key replaces the key of the target (REPLACE).
    Replaced,
}

/// Timeout in milliseconds that is used if the client gives a timeout of 0 or less.
const TIMEOUT_MS_DEFAULT: u64 = 1000;

impl<'a> MigrateRequest<'a> {
    /// Parses the arguments of MIGRATE. `way` contains the server's options for the connection.
    fn parse(args: &Args<'a>, way: ConnectionOptions) -> Result<Self, CommandError> {
        let (mut copy, mut existing, mut credentials, mut keys) = (false, Existing::Kept, None, 3..4);
        let mut at = 6;
        while at < args.len() {
            let left = args.len() - at - 1;
            if args.is(at, "COPY") {
                copy = true;
            } else if args.is(at, "REPLACE") {
                existing = Existing::Replaced;
            } else if args.is(at, "AUTH") && left >= 1 {
                credentials = Some(vec![args.get(at + 1)]);
                at += 1;
            } else if args.is(at, "AUTH2") && left >= 2 {
                credentials = Some(vec![args.get(at + 1), args.get(at + 2)]);
                at += 2;
            } else if args.is(at, "KEYS") {
                if !args.get(3).is_empty() {
                    return Err(CommandError::Line(KEY_BESIDE_KEYS));
                }
                keys = at + 1..args.len();
                break;
            } else {
                return Err(CommandError::Syntax);
            }
            at += 1;
        }
        let timeout_ms = args.integer(5)?;
        let db = args.integer(4)?;
        let timeout_ms = u64::try_from(timeout_ms).ok().filter(|&ms| ms > 0).unwrap_or(TIMEOUT_MS_DEFAULT);
        let port = stdx::number::parse_i64(args.get(2)).and_then(|port| u16::try_from(port).ok());
        // An invalid port becomes 0, to which no connection is possible.
        let host = String::from_utf8_lossy(args.get(1)).into_owned();
        let ConnectionOptions { source, encryption, tls } = way;
        let target = Target { host, port: port.unwrap_or(0), source, encryption };
        let timeout = Duration::from_millis(timeout_ms);
        Ok(Self { target, tls, db, timeout, copy, existing, credentials, keys })
    }
}

const KEY_BESIDE_KEYS: &str =
    "ERR When using MIGRATE KEYS option, the key argument must be set to the empty string";

/// A key with its serialized value (a DUMP payload) and its expiry.
struct SerializedKey<'a> {
    key: Key<'a>,
    payload: Vec<u8>,
    expiry_ms: Option<i64>,
}

impl<'a> SerializedKey<'a> {
    /// Serializes the value of `key`; `None` if the key does not exist.
    fn serialize(data: &mut DataAccess<'_, '_>, db: usize, key: Key<'a>) -> Option<Self> {
        data.with_key(db, key, |view, _| {
            let entry = view.get(key)?;
            Some(Self {
                key,
                payload: dump::dump(&entry.view(), Compression::Lzf),
                expiry_ms: entry.expiry_ms(),
            })
        })
    }

    /// Returns true if the expiry time of the key is before `now_ms`.
    fn is_expired(&self, now_ms: i64) -> bool {
        self.expiry_ms.is_some_and(|at_ms| at_ms < now_ms)
    }

    /// Returns true if `entry`, the key's present state, still has the serialized value and expiry.
    fn is_of(&self, entry: &KeyEntry) -> bool {
        entry.expiry_ms() == self.expiry_ms && dump::dump(&entry.view(), Compression::Lzf) == self.payload
    }

    /// Removes the key on this server if its value and expiry are still those that were serialized.
    /// Returns true if the key was removed.
    fn remove_if_unchanged(&self, data: &mut DataAccess<'_, '_>, db: usize) -> bool {
        data.with_key(db, self.key, |view, effects| {
            if !view.peek(self.key).is_some_and(|entry| self.is_of(&entry)) {
                return false;
            }
            let entry = view.remove(self.key).expect("it was just looked at");
            effects.changes += 1;
            effects.record.replace(db, |record| {
                record.command("DEL").word(self.key.bytes);
            });
            effects.raise(EventClass::GENERIC, "del", db, self.key.bytes);
            if view.has_registrations(self.key) {
                effects.touch(db, self.key);
            }
            effects.discard(entry);
            true
        })
    }

    /// Returns the RESTORE command that creates the key on the target.
    fn request<'p>(&'p self, existing: Existing, now_ms: i64, ttl_text: &'p mut String) -> Vec<&'p [u8]> {
        // Relative, as in Redis: the two servers' clocks may differ.
        *ttl_text = self.expiry_ms.map_or(0, |at_ms| at_ms.saturating_sub(now_ms).max(1)).to_string();
        let mut request = vec![b"RESTORE".as_slice(), self.key.bytes, ttl_text.as_bytes(), &self.payload];
        if existing == Existing::Replaced {
            request.push(b"REPLACE");
        }
        request
    }
}

/// Serializes the keys `changed` again, which changed after their serialization, and replaces or
/// deletes their copies on the target. The caller has exclusive access to the keyspace.
fn resend_changed(
    data: &mut DataAccess<'_, '_>,
    db: usize,
    changed: &[SerializedKey<'_>],
    order: &MigrateRequest<'_>,
    pool: &ConnectionPool,
) -> Option<Failure> {
    let mut gone = Vec::new();
    let mut again = Vec::new();
    for parcel in changed {
        match SerializedKey::serialize(data, db, parcel.key) {
            Some(parcel) if !parcel.is_expired(data.now_ms()) => again.push(parcel),
            Some(_) | None => gone.push(parcel.key.bytes),
        }
    }
    let mut link = match Link::open(pool, order) {
        Ok(link) => link,
        Err(failure) => return Some(failure),
    };
    let deleted = gone.iter().map(|key| vec![b"DEL".as_slice(), key]);
    let mut ttl_texts = vec![String::new(); again.len()];
    let sent = again
        .iter()
        .zip(&mut ttl_texts)
        .map(|(parcel, text)| parcel.request(Existing::Replaced, data.now_ms(), text));
    let delivery = link.exchange(deleted.chain(sent).collect(), order);
    link.close(pool, &delivery);
    for (parcel, _) in again.iter().zip(&delivery.taken[gone.len()..]).filter(|(_, taken)| **taken) {
        parcel.remove_if_unchanged(data, db);
    }
    delivery.failure
}

/// The result of sending a group of RESTORE requests to the target.
struct SendResult {
    /// True for each RESTORE request that the target has executed, in the order of the requests.
    taken: Vec<bool>,
    /// The first failure to send a key; `None` if the target executed all requests.
    failure: Option<Failure>,
}

/// The reason why not all keys were migrated.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Failure {
    Connecting,
    Writing,
    Reading,
    /// The clients were paused, such as by CLIENT PAUSE, before the keys could be removed.
    Paused,
    /// The target replied with an error. Contains the error line, without its `-`.
    Refused(Vec<u8>),
}

impl From<Failure> for CommandError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Connecting => CommandError::Line("IOERR error or timeout connecting to the client"),
            Failure::Writing => CommandError::Line("IOERR error or timeout writing to target instance"),
            Failure::Reading => CommandError::Line("IOERR error or timeout reading from target instance"),
            Failure::Paused => CommandError::Line(
                "IOERR clients were paused while the keys were sent: they are on both servers; repeat with REPLACE",
            ),
            Failure::Refused(line) => {
                CommandError::Bytes([b"ERR Target instance replied with error: ", &line[..]].concat())
            }
        }
    }
}

/// Sends the serialized keys `parcels` to the target of MIGRATE. If a connection from the pool
/// turns out to be closed, takes the next one or opens a new one.
fn deliver(pool: &ConnectionPool, order: &MigrateRequest<'_>, parcels: &[SerializedKey<'_>]) -> SendResult {
    let now_ms = unix_ms();
    loop {
        let mut link = match Link::open(pool, order) {
            Ok(link) => link,
            Err(failure) => return SendResult { taken: vec![false; parcels.len()], failure: Some(failure) },
        };
        let mut ttl_texts = vec![String::new(); parcels.len()];
        let requests = parcels.iter().zip(&mut ttl_texts);
        let requests = requests.map(|(parcel, text)| parcel.request(order.existing, now_ms, text)).collect();
        let delivery = link.exchange(requests, order);
        let is_dead = matches!(delivery.failure, Some(Failure::Writing | Failure::Reading));
        if is_dead && link.was_kept && !link.timed_out && !delivery.taken.contains(&true) {
            continue;
        }
        link.close(pool, &delivery);
        return delivery;
    }
}

/// An open connection to a target of MIGRATE.
struct Link {
    target: Target,
    stream: BufReader<Stream>,
    /// The database that the target has selected for this connection; `None` if it is not known.
    db: Option<i64>,
    was_kept: bool,
    timed_out: bool,
}

/// Maximum length of a reply line of the target, in bytes.
const ANSWER_LEN_BYTES_MAX: u64 = 64 * 1024;

impl Link {
    /// Takes a connection to the target from the pool, or opens a new one.
    fn open(pool: &ConnectionPool, order: &MigrateRequest<'_>) -> Result<Self, Failure> {
        let target = order.target.clone();
        let link = match pool.take(&target) {
            Some((stream, db)) => {
                Self { target, stream: BufReader::new(stream), db, was_kept: true, timed_out: false }
            }
            None => {
                let stream = connect(&target, order).map_err(|error| match error.kind() {
                    // Redis notices a refused connection only when it writes.
                    io::ErrorKind::ConnectionRefused => Failure::Writing,
                    _ => Failure::Connecting,
                })?;
                Self { target, stream: BufReader::new(stream), db: None, was_kept: false, timed_out: false }
            }
        };
        limit(link.stream.get_ref().socket(), order.timeout).map_err(|_| Failure::Connecting)?;
        Ok(link)
    }

    /// Sends AUTH and SELECT, if they are necessary, and all `requests` to the target, together.
    /// Then reads all replies.
    fn exchange(&mut self, requests: Vec<Vec<&[u8]>>, order: &MigrateRequest<'_>) -> SendResult {
        let count = requests.len();
        let mut delivery = SendResult { taken: vec![false; count], failure: None };
        let db = order.db.to_string();
        let mut preparations = Vec::new();
        if let Some(credentials) = &order.credentials {
            preparations.push([&[b"AUTH".as_slice()], &credentials[..]].concat());
        }
        if self.db != Some(order.db) {
            preparations.push(vec![b"SELECT", db.as_bytes()]);
        }
        let prepared = preparations.len();
        let mut out = Vec::new();
        preparations.iter().chain(&requests).for_each(|request| append_request(&mut out, request));
        if let Err(error) = self.stream.get_mut().write_all(&out) {
            self.note(&error);
            delivery.failure = Some(Failure::Writing);
            return delivery;
        }
        let mut is_prepared = true;
        for at in 0..prepared + count {
            let refusal = match self.answer() {
                Ok(refusal) => refusal,
                Err(error) => {
                    self.note(&error);
                    delivery.failure.get_or_insert(Failure::Reading);
                    return delivery;
                }
            };
            match (at.checked_sub(prepared), refusal) {
                (None, Some(line)) => {
                    is_prepared = false;
                    delivery.failure.get_or_insert(Failure::Refused(line));
                }
                (Some(at), None) => delivery.taken[at] = is_prepared,
                (Some(_), Some(line)) => {
                    delivery.failure.get_or_insert(Failure::Refused(line));
                }
                (None, None) => {}
            }
        }
        self.db = is_prepared.then_some(order.db);
        delivery
    }

    /// Reads the next reply of the target, which is one line. Returns the text of an error reply;
    /// `None` for any other reply.
    fn answer(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        (&mut self.stream).take(ANSWER_LEN_BYTES_MAX).read_until(b'\n', &mut line)?;
        let Some(line) = line.strip_suffix(b"\r\n") else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        match line.split_first() {
            Some((b'-', text)) => Ok(Some(text.to_vec())),
            Some((b'+' | b':', _)) => Ok(None),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    fn note(&mut self, error: &io::Error) {
        self.timed_out = matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
    }

    /// Returns the connection to the pool for later commands. Closes it instead if `delivery`
    /// reports a failure to write or read.
    fn close(self, pool: &ConnectionPool, delivery: &SendResult) {
        if !matches!(delivery.failure, Some(Failure::Writing | Failure::Reading)) {
            pool.keep(self.target, self.stream.into_inner(), self.db);
        }
    }
}

/// Sets the read and write timeouts of `socket`.
fn limit(socket: &TcpStream, timeout: Duration) -> io::Result<()> {
    socket.set_read_timeout(Some(timeout))?;
    socket.set_write_timeout(Some(timeout))
}

fn connect(target: &Target, order: &MigrateRequest<'_>) -> io::Result<Stream> {
    let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in (&*target.host, target.port).to_socket_addrs()? {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        bind_source(&socket, &target.source, address);
        match socket.connect_timeout(&address.into(), order.timeout).map(|()| TcpStream::from(socket)) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                limit(&stream, order.timeout)?;
                return match (target.encryption, &order.tls) {
                    (Encryption::None, _) => Ok(Stream::Plain(stream)),
                    (Encryption::Tls, Some(tls)) => Stream::encrypted(stream, Arc::clone(tls), &target.host),
                    (Encryption::Tls, None) => Err(io::Error::other("TLS is not configured")),
                };
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// Binds the socket of a connection of MIGRATE, before it connects to `address`, to the local
/// address `source`. If that is impossible, the system chooses the local address, as for outgoing
/// connections of Redis.
fn bind_source(socket: &Socket, source: &[u8], address: SocketAddr) {
    let Some(source) = std::str::from_utf8(source).ok().filter(|source| !source.is_empty()) else { return };
    let mut found = (source, 0).to_socket_addrs().into_iter().flatten();
    let Some(local) = found.find(|local| local.is_ipv4() == address.is_ipv4()) else {
        tracing::debug!(
            "bind-source-addr {source} has no address of the same family as {address}: the system chooses \
             the source address"
        );
        return;
    };
    if let Err(error) = socket.bind(&local.into()) {
        tracing::warn!(
            "Cannot connect to {address} from bind-source-addr {source}: {error}. The system chooses the \
             source address."
        );
    }
}

fn append_request(out: &mut Vec<u8>, words: &[&[u8]]) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}
