//! The line of fields that CLIENT LIST and CLIENT INFO show for a client.

use std::sync::atomic::Ordering::Relaxed;

use engine::client::{ClientInfo, Mode};
use net::Address;

use crate::replication::table::unread_bytes;
use crate::shared::Shared;

/// Formats one client as CLIENT LIST shows it, with a line end (`\n`). If the client itself runs
/// the command, `own` contains the words of its request, which is still in the query buffer;
/// otherwise `own` is empty.
pub fn client_line(shared: &Shared, client: &ClientInfo, own: &[&[u8]]) -> String {
    let now = shared.uptime_ms();
    let names = client.names().clone();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let command = match client.traffic.last_command.load(Relaxed) {
        0 => "NULL",
        id => shared.engine.table.by_id(id as usize - 1).full_name,
    };
    let mut flags = flags(client);
    if flags.is_empty() {
        flags.push('N');
    }
    let argument_bytes = own.iter().map(|word| word.len()).sum::<usize>()
        + client.held.blocked_text_bytes.load(Relaxed) as usize;
    let mut request = Vec::new();
    if !own.is_empty() {
        resp::encode_request(own, &mut request);
    }
    // The recorded input may already include this request, or a part of it.
    let noted = client.held.pending_input_bytes.load(Relaxed);
    let unread = noted.max(request.len() as u64);
    let (unsent, chunks) = unsent(shared, client);
    let stream_bytes = if client.is_replica() { unsent } else { 0 };
    let (in_buffer, in_list) = if chunks > 0 { (0, unsent) } else { (unsent, 0) };
    let tracks = client.tracking.mode().contains(Mode::ON);
    let capabilities = if client.choices.handles_redirects.load(Relaxed) { "r" } else { "" };
    format!(
        "id={id} addr={addr} laddr={laddr} fd={fd} name={name} age={age_s} idle={idle_s} flags={flags} db={db} sub={sub} \
         psub={psub} ssub={ssub} multi={queued} watch={watched} qbuf={unread} qbuf-free={room} \
         argv-mem={argument_bytes} multi-mem={queued_bytes} rbs={buffer} rbp={peak} obl={in_buffer} oll={chunks} \
         omem={in_list} tot-mem={total} events={events} cmd={command} user={user} redir={redir} resp={resp} \
         lib-name={lib_name} lib-ver={lib_ver} io-thread={thread} tot-net-in={tot_in} tot-net-out={tot_out} \
         tot-cmds={tot_cmds} capa={capabilities}\n",
        sub = client.subscriptions[0].load(Relaxed),
        psub = client.subscriptions[1].load(Relaxed),
        ssub = client.subscriptions[2].load(Relaxed),
        id = client.id,
        addr = address_text(&client.peer),
        laddr = address_text(&client.local),
        fd = client.fd,
        name = text(&names.name),
        age_s = now.saturating_sub(client.connected_ms) / 1000,
        idle_s = now.saturating_sub(client.traffic.last_active_ms.load(Relaxed)) / 1000,
        db = client.db.load(Relaxed),
        queued = client.queued.load(Relaxed) as i64 - 1,
        watched = client.watched.load(Relaxed),
        room = client.held.input_room_bytes.load(Relaxed),
        queued_bytes = client.held.queued_bytes.load(Relaxed),
        buffer = client.held.output_buffer_bytes.load(Relaxed),
        peak = client.held.output_peak_bytes.load(Relaxed),
        // The client's own thread may have consumed the recorded input meanwhile.
        total = client.memory_bytes() + (unread - noted) + stream_bytes,
        events = if unsent > 0 { "rw" } else { "r" },
        user = text(&names.user),
        redir = if tracks { client.tracking.redirect() as i64 } else { -1 },
        resp = client.resp.load(Relaxed),
        lib_name = text(&names.lib_name),
        lib_ver = text(&names.lib_version),
        thread = client.thread,
        tot_in = client.traffic.input_bytes.load(Relaxed) + request.len() as u64,
        tot_out = client.traffic.output_bytes.load(Relaxed),
        tot_cmds = client.traffic.commands.load(Relaxed),
    )
}

/// Returns the number of bytes that are not sent to a client yet, and the number of buffers
/// (chunks) that hold these bytes. The unsent bytes of a replica are in the backlog, which all
/// replicas share.
fn unsent(shared: &Shared, client: &ClientInfo) -> (u64, u64) {
    if client.is_replica() {
        let bytes = unread_bytes(&shared.replication.primary(), client.id);
        return (bytes, u64::from(bytes > 0));
    }
    let held = &client.held;
    (held.pending_output_bytes.load(Relaxed), held.pending_output_chunks.load(Relaxed))
}

/// Returns the flag letters of a client's type and state; an empty text for a client without flags,
/// for which CLIENT LIST shows `N`.
pub fn flags(client: &ClientInfo) -> String {
    let tracking = client.tracking.mode();
    let letters = [
        (client.state.monitoring.load(Relaxed), 'O'),
        (client.is_replica(), 'S'),
        (client.is_primary(), 'M'),
        (client.is_subscriber(), 'P'),
        (client.queued.load(Relaxed) > 0, 'x'),
        (client.state.postponed.load(Relaxed) || client.held.blocked_bytes.load(Relaxed) > 0, 'b'),
        (tracking.contains(Mode::ON), 't'),
        (tracking.contains(Mode::BROKEN), 'R'),
        (tracking.contains(Mode::BCAST), 'B'),
        (client.watch_dirty.load(Relaxed), 'd'),
        (client.state.closing.load(Relaxed), 'c'),
        (client.state.kill_requested.load(Relaxed), 'A'),
        (client.peer.is_unix(), 'U'),
        (client.choices.no_evict.load(Relaxed), 'e'),
        (client.choices.no_touch.load(Relaxed), 'T'),
        (client.choices.import_source.load(Relaxed), 'I'),
    ];
    letters.iter().filter(|(set, _)| *set).map(|(_, letter)| letter).collect()
}

/// Formats an address as Redis does: `ip:port`, `[ip6]:port`, `/path:0`.
pub fn address_text(address: &Address) -> String {
    match address {
        Address::Tcp(address) => address.to_string(),
        Address::Unix(path) => format!("{}:0", path.display()),
    }
}
