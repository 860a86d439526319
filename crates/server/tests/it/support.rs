//! Embedded servers for the tests.

use net::{Backend, BackendChoice};
use server::Server;
use testkit::{Address, Client, Protocol, ServerProcess, Value, saker};

/// The version of the payloads that a server's DUMP makes, and at least that its RESTORE takes.
pub fn payload_version(client: &mut Client) -> u16 {
    client.command(&["SET", "probe", "1"]);
    let Value::Bulk(payload) = client.command(&["DUMP", "probe"]) else { panic!("a payload") };
    client.command(&["DEL", "probe"]);
    version_of(&payload)
}

/// The version that a payload says: two bytes in front of the checksum.
pub fn version_of(payload: &[u8]) -> u16 {
    let at = payload.len() - 10;
    u16::from_le_bytes([payload[at], payload[at + 1]])
}

/// Does `test` with a server on each back end that the kernel permits.
pub fn on_each_back_end(test: impl Fn(&Server)) {
    test(&start(BackendChoice::Epoll));
    // Containers often forbid io_uring: then epoll is served instead, and was tested above.
    let server = start(BackendChoice::Auto);
    if server.backend() == Backend::IoUring {
        test(&server);
    }
}

/// Does `test` with a server of so many I/O threads on each back end that the kernel permits.
pub fn on_each_back_end_with(io_threads: usize, test: impl Fn(&Server)) {
    let start = |choice| {
        Server::builder().port(0).io_threads(io_threads).backend(choice).start().expect("the server starts")
    };
    test(&start(BackendChoice::Epoll));
    // Containers often forbid io_uring: then epoll is served instead, and was tested above.
    let server = start(BackendChoice::Auto);
    if server.backend() == Backend::IoUring {
        test(&server);
    }
}

/// Does `test` with a server in a process of its own, whose memory is its own too, on each back end.
pub fn as_process_on_each_back_end(test: impl Fn(&ServerProcess)) {
    for backend in ["epoll", "auto"] {
        let options = ["--io-backend", backend, "--io-threads", "2"];
        let server = saker::start_binary(env!("CARGO_BIN_EXE_saker-server"), &options);
        test(&server.unwrap_or_else(|error| panic!("{error}")));
    }
}

/// A server with two I/O threads on a free port.
pub fn start(backend: BackendChoice) -> Server {
    let builder = Server::builder().port(0).io_threads(2).backend(backend);
    builder.option("enable-debug-command", "yes").start().expect("the server starts")
}

/// A connection.
pub fn connect(server: &Server) -> Client {
    Client::to_port(server.port())
}

/// A connection that speaks `protocol`.
pub fn speaking(server: &Server, protocol: Protocol) -> Client {
    Client::speaking(&Address::port(server.port()), protocol)
}
