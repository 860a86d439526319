//! The metrics endpoint: the numbers of INFO in the text format of Prometheus or in OpenMetrics. It
//! serves plain HTTP on its own thread. Options: `metrics-port`, `metrics-bind`,
//! `metrics-per-command`.
//!
//! Nothing here runs on an I/O thread, and nothing is counted or timed a second time. `text.rs`
//! converts the fields of INFO to samples, as listed in `catalog.rs`. `page.rs` writes the samples
//! in either format. `http.rs` answers `GET /metrics`, in the format that `negotiate.rs` chooses
//! for the scraper.
//!
//! The page is created at most ten times a second, so frequent scrapes do not cause frequent shard
//! locks. The thread is inside the gate that guards the keyspace only while it counts keys and
//! tables, not while it reads /proc, sums counters or writes text.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use engine::shared::GateSlot;
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::config::apply::BindAddress;
use crate::shared::Shared;

pub mod catalog;
mod http;
mod negotiate;
mod page;
mod text;

use negotiate::{Coding, Form};
use page::{Format, Page};

/// Time for which a page is served again before a new one is created.
const FRESH: Duration = Duration::from_millis(100);

/// Listens for connections of scrapers on `addresses` at `port`. Skips an optional address that
/// this machine does not have. An error contains the address that failed.
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

/// Starts the thread that answers requests on `listeners` until the server stops.
pub fn start(listeners: Vec<TcpListener>, shared: Arc<Shared>) -> io::Result<JoinHandle<()>> {
    let body = move || {
        let mut last: Option<Forms> = None;
        let body = |form: Form| {
            if last.as_ref().is_none_or(|forms| forms.made.elapsed() >= FRESH) {
                last = None;
            }
            last.get_or_insert_with(|| Forms::new(text::page(&shared, GateSlot::Metrics))).get(form)
        };
        // Acquire: pairs with the swap in `Shared::stop`.
        http::serve(&listeners, body, || shared.stopping.load(Acquire));
    };
    std::thread::Builder::new().name("metrics".to_owned()).spawn(body)
}

/// A page of samples, and its text in each [`Form`] that was requested so far.
struct Forms {
    made: Instant,
    page: Page,
    texts: [Option<Arc<[u8]>>; Format::ALL.len()],
    compressed: [Option<Arc<[u8]>>; Format::ALL.len()],
}

impl Forms {
    fn new(page: Page) -> Self {
        Self { made: Instant::now(), page, texts: Default::default(), compressed: Default::default() }
    }

    fn get(&mut self, Form { format, coding }: Form) -> Arc<[u8]> {
        let text =
            self.texts[format as usize].get_or_insert_with(|| self.page.text(format).into_bytes().into());
        let body = match coding {
            Coding::Identity => text,
            Coding::Gzip => self.compressed[format as usize].get_or_insert_with(|| gzip(text).into()),
        };
        Arc::clone(body)
    }
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let written = encoder.write_all(text).and_then(|()| encoder.finish());
    written.expect("writing to a Vec cannot fail")
}
