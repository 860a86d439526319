//! Write load for a server that has replicas.

use super::run;
use crate::change_stream::replay::Commands;
use crate::client::Client;
use crate::process::ServerProcess;

/// Number of connections that send random commands at the same time.
const CONNECTIONS: usize = 3;

/// Number of random commands that a connection sends in one pipeline.
const BATCH: usize = 50;

/// Sends `batches` batches of random commands on each of several connections at the same time.
/// Errors in the replies are expected; no command leaves a connection in a transaction.
///
/// # Panics
/// Panics when the server does not answer.
pub fn send_random(server: &ServerProcess, commands: &mut Commands, batches: usize) {
    let mut clients: Vec<Client> = (0..CONNECTIONS).map(|_| server.connect()).collect();
    for _ in 0..batches {
        for client in &mut clients {
            let mut bytes = Vec::new();
            (0..BATCH).for_each(|_| resp::encode_request(&commands.next_command(), &mut bytes));
            client.send(&bytes).expect("the server reads");
        }
        for client in &mut clients {
            client.read_many(BATCH).expect("the server answers");
        }
    }
    for client in &mut clients {
        run(client, &["RESET"]);
    }
}

/// Sends requests, given as lines of words separated by spaces. None may fail.
///
/// # Panics
/// Panics with the first error.
pub fn send_lines<'l>(client: &mut Client, lines: impl IntoIterator<Item = &'l str>) {
    let requests: Vec<Vec<&str>> = lines.into_iter().map(|line| line.split(' ').collect()).collect();
    let replies = client.pipeline(&requests).expect("the server answers");
    for (request, reply) in requests.iter().zip(replies) {
        assert!(!reply.is_error(), "{request:?} was answered {reply}");
    }
}
