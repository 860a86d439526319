//! The cluster part of a worker: sends each request to the node that serves its key, and follows
//! redirections.
//!
//! A client has a connection to every node. A connection to a node that is added during the run is
//! opened at its first use. The bytes of a request are kept until it is answered, so that it can be
//! sent again to another node. The latency of a request counts from the time it was due and
//! includes redirections. Redirections are counted separately. They are errors only if one request
//! is redirected more than [`REDIRECTIONS_MAX`] times.

use net::ConnId;

use super::super::cluster::{ClusterMap, Redirect};
use super::super::replies::Reply;
use super::{Client, Conn, Sent, Stop, Worker};
use crate::BenchError;
use crate::error::connect_reason;

/// The maximum number of redirections of one request that are followed.
const REDIRECTIONS_MAX: u8 = 16;
/// The maximum number of buffers of answered requests that are kept for reuse.
const SPARE_MAX: usize = 1024;
/// The value of [`Sent::request`] that stands for ASKING, whose reply is ignored.
const ASKING: u32 = u32::MAX;

/// The state of a worker thread that is only needed for a cluster: slot map and redirected
/// requests.
pub(super) struct Routing {
    pub(super) map: ClusterMap,
    /// The buffers of answered requests, kept for new requests.
    spare: Vec<Vec<u8>>,
    /// The redirected requests that must be sent to another node.
    again: Vec<Addressed>,
    /// The number of requests of the measured part that each node answered, by the index of the
    /// node.
    answered: Vec<u64>,
}

/// The bytes of a request that was sent to a node, and the number of times that it was redirected.
#[derive(Default)]
pub(super) struct Routed {
    bytes: Vec<u8>,
    redirections: u8,
}

/// A request and the node to which it must be sent. ASKING precedes it if `asking` is true.
struct Addressed {
    node: usize,
    asking: bool,
    sent: Sent,
    routed: Routed,
}

impl Routing {
    pub(super) fn new(map: ClusterMap) -> Self {
        let (spare, again, answered) = Default::default();
        Self { map, spare, again, answered }
    }

    /// Returns the name of each node and the number of requests of the measured part that it
    /// answered.
    pub(super) fn answered(&self) -> impl Iterator<Item = (String, u64)> {
        let count = |at: usize| self.answered.get(at).copied().unwrap_or(0);
        self.map.nodes.iter().enumerate().map(move |(at, node)| (node.name(), count(at)))
    }

    fn keep(&mut self, mut buffer: Vec<u8>) {
        if self.spare.len() < SPARE_MAX {
            buffer.clear();
            self.spare.push(buffer);
        }
    }
}

impl Worker<'_> {
    /// Opens a connection of `client` to every node before the run, and queues the greeting on
    /// each.
    pub(super) fn connect_to_nodes(&mut self, client: usize) -> Result<(), BenchError> {
        let nodes = self.routing.as_ref().map_or(0, |routing| routing.map.nodes.len());
        for node in 0..nodes {
            let Some(routing) = &self.routing else { break };
            let node_there = &routing.map.nodes[node];
            let refused = |error| BenchError::Connect { address: node_there.name(), error };
            let socket = self.server.connect(Some(node_there)).map_err(refused)?;
            let id = self.net.adopt(socket).map_err(refused)?;
            self.keep(id, client, node, self.server.greeting_replies);
            self.write(id, &self.server.greeting);
            self.clients[client].nodes.push(Some(id));
        }
        Ok(())
    }

    /// Queues request number `request` of the workload for the node that serves its key.
    pub(super) fn send_routed(&mut self, client: usize, request: usize, due_ns: u64) -> Result<(), Stop> {
        let Some(routing) = &mut self.routing else { return Ok(()) };
        let mut bytes = routing.spare.pop().unwrap_or_default();
        self.workload.requests[request].template.render(&mut bytes, &mut self.draw);
        let node = routing.map.node_of(request, &bytes);
        let sent = Sent { due_ns, key: self.draw.key(), request: request as u32 };
        self.clients[client].in_flight += 1;
        self.in_flight += 1;
        let routed = Routed { bytes, redirections: 0 };
        self.send_to_node(client, Addressed { node, asking: false, sent, routed })
    }

    /// Queues a request of `client` on the connection to its node, which is opened if needed.
    fn send_to_node(&mut self, client: usize, request: Addressed) -> Result<(), Stop> {
        let Addressed { node, asking, sent, routed } = request;
        let id = match self.clients[client].nodes.get(node).copied().flatten() {
            Some(id) => id,
            None => self.connect_to_node(client, node)?,
        };
        if asking {
            self.write(id, b"*1\r\n$6\r\nASKING\r\n");
        }
        self.write(id, &routed.bytes);
        let Some(Some(conn)) = self.conns.get_mut(id.index()) else { return Ok(()) };
        if asking {
            conn.in_flight.push_back(Sent { due_ns: 0, key: 0, request: ASKING });
            conn.routed.push_back(Routed::default());
        }
        conn.in_flight.push_back(sent);
        conn.routed.push_back(routed);
        self.note_queued(id);
        Ok(())
    }

    /// Opens a connection of `client` to `node` during the run.
    fn connect_to_node(&mut self, client: usize, node: usize) -> Result<ConnId, Stop> {
        let place = self.routing.as_ref().and_then(|routing| routing.map.nodes.get(node));
        let name = place.map(super::super::cluster::Node::name).unwrap_or_default();
        let socket = self.server.begin_to_connect(place);
        let id = socket.and_then(|socket| self.net.adopt(socket));
        let failed = |error| format!("no connection to node {name}: {}", connect_reason(&error));
        let id = id.map_err(|error| Stop::Refused(failed(error)))?;
        self.keep(id, client, node, self.server.greeting_again_replies);
        self.write(id, &self.server.reconnect_commands);
        let nodes = &mut self.clients[client].nodes;
        if nodes.len() <= node {
            nodes.resize(node + 1, None);
        }
        nodes[node] = Some(id);
        Ok(id)
    }

    /// Returns true if `reply` does not complete the request `sent` on `conn`: it is the reply to
    /// ASKING or a redirection. A redirected request is put into a list, which
    /// [`send_again`](Self::send_again) sends.
    pub(super) fn is_redirected(&mut self, conn: &mut Conn, sent: &Sent, reply: &Reply) -> bool {
        let (Some(routing), Some(mut routed)) = (&mut self.routing, conn.routed.pop_front()) else {
            return false;
        };
        if sent.request == ASKING {
            return true;
        }
        let measured = sent.due_ns >= self.times.measured_ns;
        if let Reply::Error(text) = reply
            && routed.redirections < REDIRECTIONS_MAX
            && let Some(redirect) = routing.map.redirect(text, conn.node)
        {
            routed.redirections += 1;
            let (node, asking) = match redirect {
                Redirect::Moved(node) => (node, false),
                Redirect::Ask(node) => (node, true),
            };
            let count = if asking { &mut self.tally.asked } else { &mut self.tally.moved };
            *count += u64::from(measured);
            let sent = Sent { due_ns: sent.due_ns, key: sent.key, request: sent.request };
            routing.again.push(Addressed { node, asking, sent, routed });
            return true;
        }
        if measured {
            if routing.answered.len() <= conn.node {
                routing.answered.resize(conn.node + 1, 0);
            }
            routing.answered[conn.node] += 1;
        }
        routing.keep(routed.bytes);
        false
    }

    /// Queues the redirected requests of `client` for their new nodes. Returns true if there were
    /// any.
    pub(super) fn send_again(&mut self, client: usize) -> Result<bool, Stop> {
        let Some(routing) = &mut self.routing else { return Ok(false) };
        let again = std::mem::take(&mut routing.again);
        let any = !again.is_empty();
        for request in again {
            self.send_to_node(client, request)?;
        }
        Ok(any)
    }

    /// Closes all connections of `client`. They are opened again when they are needed.
    pub(super) fn disconnect_from_nodes(&mut self, client: usize) {
        for id in std::mem::take(&mut self.clients[client].nodes).into_iter().flatten() {
            self.conns[id.index()] = None;
            self.net.close(id);
        }
    }

    /// Returns the name of the peer of connection `id`, for messages: `node 127.0.0.1:7001` in a
    /// cluster, otherwise `the server`.
    pub(super) fn name_of(&self, id: ConnId) -> String {
        let conn = self.conns.get(id.index()).and_then(Option::as_ref);
        let node =
            self.routing.as_ref().zip(conn).and_then(|(routing, conn)| routing.map.nodes.get(conn.node));
        node.map_or_else(|| "the server".to_owned(), |node| format!("node {}", node.name()))
    }

    /// Returns the names of the nodes that have not answered requests, for messages; `the server`
    /// without a cluster.
    pub(super) fn unresponsive_nodes(&self) -> String {
        let Some(routing) = &self.routing else { return "the server".to_owned() };
        let waits = |node: usize| {
            self.conns.iter().flatten().any(|conn| conn.node == node && !conn.in_flight.is_empty())
        };
        let nodes = routing.map.nodes.iter().enumerate();
        let names: Vec<String> =
            nodes.filter(|(at, _)| waits(*at)).map(|(_, node)| format!("node {}", node.name())).collect();
        names.join(" and ")
    }
}

impl Client {
    /// Creates a client of a cluster. It has no connections yet.
    pub(super) fn of_cluster() -> Self {
        Self { conn: None, nodes: Vec::new(), in_flight: 0, listed: false }
    }
}
