//! The metrics endpoint: INFO's numbers for Prometheus and whatever else reads OpenMetrics text, over plain
//! HTTP, on a thread of its own (`metrics-port`, `metrics-bind`).
//!
//! Nothing here runs on an I/O thread and nothing is measured twice: `text.rs` turns the fields that INFO
//! writes into series, `http.rs` answers `GET /metrics` with them. The text is made at most ten times a
//! second however often it is asked for, so a flood of scrapes does not become a flood of shard locks. The
//! thread is inside the gate meanwhile, as an I/O thread that runs INFO is.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::config::apply::BindAddress;
use crate::shared::{GateSlot, Shared};

mod http;
mod text;

pub use text::text;

/// How long a text is given out before another is made.
const FRESH: Duration = Duration::from_millis(100);

/// Listens for scrapes on `addresses` at `port`. An address that may be missing on this machine may. An
/// error comes with the address.
pub fn listen(addresses: &[BindAddress], port: u16) -> Result<Vec<TcpListener>, (SocketAddr, io::Error)> {
    let mut listeners = Vec::new();
    for &BindAddress { ip, optional } in addresses {
        let address = SocketAddr::new(ip, port);
        let listener = TcpListener::bind(address).and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        match listener {
            Ok(listener) => listeners.push(listener),
            Err(error) if optional && crate::listen::is_missing(&error) => {}
            Err(error) => return Err((address, error)),
        }
    }
    Ok(listeners)
}

/// Starts the thread that answers on `listeners` until the server stops.
pub fn start(listeners: Vec<TcpListener>, shared: Arc<Shared>) -> io::Result<JoinHandle<()>> {
    let body = move || {
        let mut last: Option<(Instant, String)> = None;
        let page = || match &last {
            Some((made, page)) if made.elapsed() < FRESH => page.clone(),
            _ => {
                let _pass = shared.enter_gate(GateSlot::Metrics);
                last.insert((Instant::now(), text(&shared))).1.clone()
            }
        };
        // Acquire: pairs with the swap in `Shared::stop`.
        http::serve(&listeners, page, || shared.stopping.load(Acquire));
    };
    std::thread::Builder::new().name("metrics".to_owned()).spawn(body)
}
