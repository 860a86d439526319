//! `saker-server`: starts the server and runs it until a signal or SHUTDOWN.

use std::process::ExitCode;

use server::Server;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

fn main() -> ExitCode {
    tracing_subscriber::fmt().with_target(false).init();
    let mut builder = Server::builder();
    let args: Vec<String> = std::env::args().skip(1).collect();
    for pair in args.chunks(2) {
        if let [name, value] = pair {
            builder = match name.as_str() {
                "--port" => builder.port(value.parse().unwrap_or(6379)),
                "--io-threads" => builder.io_threads(value.parse().unwrap_or(1)),
                "--unixsocket" => builder.unix_socket(value, None),
                "--io-backend" if value == "epoll" => builder.backend(net::BackendChoice::Epoll),
                _ => builder,
            };
        }
    }
    let server = match builder.start() {
        Ok(server) => server,
        Err(error) => {
            eprintln!("saker-server: {error}");
            return ExitCode::FAILURE;
        }
    };
    tracing::info!(port = server.port(), backend = server.backend().name(), "ready to accept connections");
    let shared = std::sync::Arc::clone(server.shared());
    match Signals::new([SIGTERM, SIGINT]) {
        Ok(mut signals) => {
            std::thread::spawn(move || {
                if signals.forever().next().is_some() {
                    shared.stop();
                }
            });
        }
        Err(error) => tracing::warn!(%error, "signals cannot be handled"),
    }
    server.wait();
    ExitCode::SUCCESS
}
