//! The filters of CLIENT LIST and CLIENT KILL, including the NOT- forms of Valkey. A request
//! selects the clients that match all of its filters.

use std::sync::atomic::Ordering::Relaxed;

use ::commands::{Args, CommandError};
use engine::client::ClientInfo;
use net::Address;

use crate::client_line::{address_text, flags};
use crate::context::ServerCtx;

/// The filters of a CLIENT LIST or CLIENT KILL request.
pub(super) struct Filter<'a> {
    conditions: Vec<Condition<'a>>,
    skip_me: bool,
}

/// One filter of a CLIENT LIST or CLIENT KILL request: its form, and the property that it compares.
struct Condition<'a> {
    what: What<'a>,
    form: Form,
}

/// The form of a filter of CLIENT LIST or CLIENT KILL: plain or with NOT-.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// A plain filter, which selects the clients that match it.
    Plain,
    /// A filter with NOT-, which selects the clients that do not match it.
    Negated,
}

/// The property of a client that a filter compares, and the expected value of the property.
enum What<'a> {
    Ids(Vec<u64>),
    Type(ClientType),
    User(&'a [u8]),
    Peer(&'a [u8]),
    Local(&'a [u8]),
    Ip(&'a [u8]),
    Name(&'a [u8]),
    LibName(&'a [u8]),
    LibVersion(&'a [u8]),
    Db(u64),
    Flags(&'a [u8]),
    Capabilities(&'a [u8]),
    AgeAtLeast(u64),
    IdleAtLeast(u64),
}

/// The value of the filter TYPE: a class of clients.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ClientType {
    Normal,
    Pubsub,
    Replica,
    Primary,
}

impl ClientType {
    fn of(client: &ClientInfo) -> Self {
        match () {
            () if client.is_primary() => ClientType::Primary,
            () if client.is_replica() => ClientType::Replica,
            () if client.is_subscriber() => ClientType::Pubsub,
            () => ClientType::Normal,
        }
    }
}

/// The letters of client flags that the filter FLAGS accepts.
const FLAG_LETTERS: &[u8] = b"OSMPxbtRBdcuAUreTIN";

impl<'a> Filter<'a> {
    /// Parses the arguments of CLIENT LIST as filters.
    pub(super) fn of_list(ctx: &ServerCtx<'_, '_, '_>, args: &Args<'a>) -> Result<Self, CommandError> {
        let id = |text: &[u8], _| match stdx::number::parse_i64(text) {
            // No client has an id below 1, but such an id is not an error.
            Some(id) => Ok(u64::try_from(id).unwrap_or(0)),
            None => Err(CommandError::Line("ERR Invalid client ID")),
        };
        Self { conditions: Vec::new(), skip_me: false }.parse(ctx, args, id)
    }

    /// Parses the filters of CLIENT KILL. Without SKIPME NO, they exclude the client that sends the
    /// command.
    pub(super) fn of_kill(ctx: &ServerCtx<'_, '_, '_>, args: &Args<'a>) -> Result<Self, CommandError> {
        let id = |text: &[u8], before| match stdx::number::parse_i64(text) {
            // After the first id, a word that is not a number counts as an unknown filter.
            None if before > 0 => Err(CommandError::Syntax),
            _ => positive(text, "ERR client-id should be greater than 0"),
        };
        Self { conditions: Vec::new(), skip_me: true }.parse(ctx, args, id)
    }

    /// Creates the filter of CLIENT KILL addr: clients that connected from `address`.
    pub(super) fn of_address(address: &'a [u8]) -> Self {
        let condition = Condition { what: What::Peer(address), form: Form::Plain };
        Self { conditions: vec![condition], skip_me: false }
    }

    /// Parses the filters in `args` and adds them to `self`. `id` parses a client's id in the
    /// filter ID; its second parameter is the number of earlier ids in the filter.
    fn parse(
        mut self,
        ctx: &ServerCtx<'_, '_, '_>,
        args: &Args<'a>,
        id: impl Fn(&[u8], usize) -> Result<u64, CommandError>,
    ) -> Result<Self, CommandError> {
        let mut at = 2;
        while at < args.len() {
            let option = args.get(at).to_ascii_lowercase();
            let value = args.try_get(at + 1).ok_or(CommandError::Syntax)?;
            at += 2;
            let plain = option.strip_prefix(b"not-");
            let form = if plain.is_some() { Form::Negated } else { Form::Plain };
            let what = match plain.unwrap_or(&option) {
                b"id" => {
                    let id = |text: &[u8], before| match form {
                        Form::Plain => id(text, before),
                        Form::Negated => other_id(text),
                    };
                    let mut ids = vec![id(value, 0)?];
                    // More ids may follow, up to the next filter.
                    while at < args.len() && !(is_filter(args.get(at)) && at + 1 < args.len()) {
                        ids.push(id(args.get(at), ids.len())?);
                        at += 1;
                    }
                    What::Ids(ids)
                }
                b"skipme" if form == Form::Plain => {
                    self.skip_me = match value.to_ascii_lowercase().as_slice() {
                        b"yes" => true,
                        b"no" => false,
                        _ => return Err(CommandError::Syntax),
                    };
                    continue;
                }
                b"maxage" if form == Form::Plain => What::AgeAtLeast(seconds(value, "maxage")?),
                b"idle" if form == Form::Plain => What::IdleAtLeast(seconds(value, "idle")?),
                name => What::parse(ctx, name, value, form)?,
            };
            self.conditions.push(Condition { what, form });
        }
        Ok(self)
    }

    /// Returns true if `client` matches all filters of the request.
    pub(super) fn fits(&self, ctx: &ServerCtx<'_, '_, '_>, client: &ClientInfo) -> bool {
        if self.skip_me && client.id == ctx.session.id {
            return false;
        }
        let now_ms = ctx.shared.uptime_ms();
        let fits = |it: &Condition<'_>| it.what.fits(client, now_ms) == (it.form == Form::Plain);
        self.conditions.iter().all(fits)
    }
}

impl<'a> What<'a> {
    /// Parses the value of the filter `name`, given without its NOT-; `form` states whether the
    /// name had a NOT-. The caller parses the filters ID, SKIPME, MAXAGE and IDLE itself.
    fn parse(
        ctx: &ServerCtx<'_, '_, '_>,
        name: &[u8],
        value: &'a [u8],
        form: Form,
    ) -> Result<Self, CommandError> {
        let unknown = |what: &str, option: &str| {
            let option = match form {
                Form::Plain => "provided".to_owned(),
                Form::Negated => format!("NOT-{option}"),
            };
            let value = String::from_utf8_lossy(value);
            Err(CommandError::Text(format!("ERR Unknown {what} found in the {option} filter: {value}")))
        };
        Ok(match name {
            b"type" => What::Type(client_type(value)?),
            b"user" if ctx.shared.engine.acl.users.get(value).is_some() => What::User(value),
            b"user" => return Err(CommandError::quoting("ERR No such user '", value, "'")),
            b"addr" => What::Peer(value),
            b"laddr" => What::Local(value),
            b"ip" => What::Ip(value),
            b"name" => What::Name(value),
            b"lib-name" => What::LibName(value),
            b"lib-ver" => What::LibVersion(value),
            b"flags" if value.iter().all(|letter| FLAG_LETTERS.contains(letter)) => What::Flags(value),
            b"flags" => return unknown("flags", "FLAGS"),
            b"capa" if value.iter().all(|&letter| letter == b'r') => What::Capabilities(value),
            b"capa" => return unknown("capa", "CAPA"),
            b"db" if form == Form::Negated => What::Db(db_index(ctx, value, "NOT-DB")?),
            b"db" => What::Db(db_index(ctx, value, "DB")?),
            _ => return Err(CommandError::Syntax),
        })
    }

    fn fits(&self, client: &ClientInfo, now_ms: u64) -> bool {
        let same = |wanted: &[u8], address: &Address| address_text(address).as_bytes() == wanted;
        let for_seconds = |since_ms: u64, s: u64| now_ms.saturating_sub(since_ms) / 1000 >= s;
        match *self {
            What::Ids(ref ids) => ids.contains(&client.id),
            What::Type(kind) => kind == ClientType::of(client),
            What::User(user) => client.names().user == user,
            What::Peer(peer) => same(peer, &client.peer),
            What::Local(local) => same(local, &client.local),
            What::Ip(ip) => match &client.peer {
                Address::Tcp(address) => address.ip().to_string().as_bytes() == ip,
                Address::Unix(_) => false,
            },
            What::Name(name) => !client.names().name.is_empty() && client.names().name == name,
            What::LibName(name) => !client.names().lib_name.is_empty() && client.names().lib_name == name,
            What::LibVersion(version) => {
                !client.names().lib_version.is_empty() && client.names().lib_version == version
            }
            What::Db(index) => client.db.load(Relaxed) == index,
            What::Flags(wanted) => {
                let has = flags(client);
                let fits =
                    |letter: u8| has.contains(char::from(letter)) || (letter == b'N' && has.is_empty());
                wanted.iter().all(|&letter| fits(letter))
            }
            What::Capabilities(wanted) => wanted.is_empty() || client.choices.handles_redirects.load(Relaxed),
            What::AgeAtLeast(age_s) => for_seconds(client.connected_ms, age_s),
            What::IdleAtLeast(idle_s) => for_seconds(client.traffic.last_active_ms.load(Relaxed), idle_s),
        }
    }
}

/// Returns true if `word` is the name of a filter, with or without NOT-. Such a word ends a list of
/// ids.
fn is_filter(word: &[u8]) -> bool {
    let word = word.to_ascii_lowercase();
    let name = word.strip_prefix(b"not-").unwrap_or(&word);
    let names: &[&[u8]] = &[
        b"id",
        b"type",
        b"user",
        b"addr",
        b"laddr",
        b"skipme",
        b"maxage",
        b"idle",
        b"flags",
        b"name",
        b"lib-name",
        b"lib-ver",
        b"db",
        b"capa",
        b"ip",
    ];
    names.contains(&name)
}

/// Parses a client id of the filter NOT-ID, for CLIENT LIST and CLIENT KILL.
fn other_id(text: &[u8]) -> Result<u64, CommandError> {
    stdx::number::parse_i64(text).ok_or(CommandError::Syntax)?;
    positive(text, "ERR client-id should be greater than 0")
}

fn positive(text: &[u8], line: &'static str) -> Result<u64, CommandError> {
    let number = stdx::number::parse_i64(text).and_then(|number| u64::try_from(number).ok());
    number.filter(|&number| number > 0).ok_or(CommandError::Line(line))
}

/// Parses the value of the filter `name` (`maxage` or `idle`): a positive number of seconds.
fn seconds(text: &[u8], name: &str) -> Result<u64, CommandError> {
    match stdx::number::parse_i64(text) {
        None => Err(CommandError::Text(format!("ERR {name} is not an integer or out of range"))),
        Some(number) if number <= 0 => {
            Err(CommandError::Text(format!("ERR {name} should be greater than 0")))
        }
        Some(number) => Ok(number as u64),
    }
}

fn db_index(ctx: &ServerCtx<'_, '_, '_>, text: &[u8], option: &str) -> Result<u64, CommandError> {
    let last = ctx.shared.engine.keyspace.db_count() as u64 - 1;
    match stdx::number::parse_i64(text).map(u64::try_from) {
        None => Err(CommandError::Text(format!("ERR {option} is not an integer or out of range"))),
        Some(Ok(index)) if index <= last => Ok(index),
        Some(_) => Err(CommandError::Text(format!("ERR {option} number should be between 0 and {last}"))),
    }
}

/// Parses the value of the filter TYPE, such as `normal` or `replica`, in upper or lower case.
fn client_type(name: &[u8]) -> Result<ClientType, CommandError> {
    match name.to_ascii_lowercase().as_slice() {
        b"normal" => Ok(ClientType::Normal),
        b"pubsub" => Ok(ClientType::Pubsub),
        b"slave" | b"replica" => Ok(ClientType::Replica),
        b"master" | b"primary" => Ok(ClientType::Primary),
        _ => Err(CommandError::quoting("ERR Unknown client type '", name, "'")),
    }
}
