//! A TCP proxy between a replica and its primary.
//!
//! Each connection has two threads, one per direction. Faults apply to the bytes from the primary.
//! These bytes are counted from the start of the proxy, over all connections. After a cut the proxy
//! accepts new connections.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

/// Maximum number of bytes that the proxy forwards at a time.
const CHUNK_BYTES: usize = 16 * 1024;

/// Number of intervals per second for limiting the rate. In each interval, a connection may forward
/// its share of the bytes per second.
const SLICES_PER_S: u64 = 50;

/// The settings and counters of a proxy between replica and primary.
#[derive(Debug, Default)]
struct State {
    /// The number of bytes from the primary that were forwarded so far.
    passed_bytes: u64,
    /// The number of bytes from the primary, since the start of the proxy, after which all
    /// connections are cut; `None` for no cut.
    cut_at: Option<u64>,
    /// The number of times that all connections were cut so far.
    cuts: u64,
    /// The index of the byte from the primary to change, counted from the start of the proxy;
    /// `None` for no change.
    corrupt_at: Option<u64>,
    /// The text whose first byte is changed when the primary next sends it; `None` for no change.
    /// The text must arrive in one piece.
    corrupt_text: Option<&'static [u8]>,
    /// The time for which each piece of bytes from the primary is held back.
    delay: Duration,
    /// The maximum number of bytes that a connection forwards per second; `None` for no limit.
    throttle_bytes: Option<u64>,
    /// True while the proxy reads nothing from the primary.
    is_stalled: bool,
    /// True after the proxy has been dropped, so that its threads must end.
    is_closed: bool,
    /// The sockets of the open connections, to replicas and to the primary.
    sockets: Vec<TcpStream>,
    /// The number of connections that the proxy has accepted so far.
    connections: u64,
}

impl State {
    /// Closes all open connections of the proxy, and counts this as one cut.
    fn cut(&mut self) {
        self.cut_at = None;
        self.cuts += 1;
        for socket in self.sockets.drain(..) {
            // The other side may have closed it.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

/// The state of the proxy, and the signal that it has changed.
#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread of the proxy panics with the lock")
    }
}

/// A TCP proxy between a replica and its primary, which listens on the loopback.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

impl Proxy {
    /// Starts a proxy to `target_port` on the loopback.
    ///
    /// # Errors
    /// No port is free.
    pub fn start(target_port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        thread::spawn(move || accept(&listener, target_port, &of_thread));
        Ok(Self { port, shared })
    }

    /// Returns the port on which the proxy listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Cuts all connections as soon as `bytes` bytes from the primary have been forwarded, counted
    /// from the start of the proxy.
    pub fn cut_after(&self, bytes: u64) {
        self.change(|state| state.cut_at = Some(bytes));
    }

    /// Cuts all open connections of the proxy now.
    pub fn cut(&self) {
        self.change(State::cut);
    }

    /// Changes the byte at index `position` of the bytes from the primary, counted from the start
    /// of the proxy.
    pub fn corrupt(&self, position: u64) {
        self.change(|state| state.corrupt_at = Some(position));
    }

    /// Changes the first byte of the next occurrence of `text`. The primary must send the text in
    /// one piece.
    pub fn corrupt_text(&self, text: &'static [u8]) {
        self.change(|state| state.corrupt_text = Some(text));
    }

    /// Delays each piece of bytes received from the primary by `delay`.
    pub fn delay(&self, delay: Duration) {
        self.change(|state| state.delay = delay);
    }

    /// Limits the bytes per second from the primary. `None` removes the limit.
    pub fn throttle(&self, bytes_per_s: Option<u64>) {
        self.change(|state| state.throttle_bytes = bytes_per_s);
    }

    /// Makes the proxy stop reading from the primary. The connections stay open.
    pub fn stall(&self) {
        self.change(|state| state.is_stalled = true);
    }

    /// Makes the proxy read from the primary again after [`Self::stall`].
    pub fn resume(&self) {
        self.change(|state| state.is_stalled = false);
    }

    /// Returns the number of bytes from the primary that the proxy has forwarded.
    pub fn passed_bytes(&self) -> u64 {
        self.shared.lock().passed_bytes
    }

    /// Returns the number of times that the proxy has cut its connections so far.
    pub fn cuts(&self) -> u64 {
        self.shared.lock().cuts
    }

    /// Returns the number of connections that the proxy has accepted so far.
    pub fn connections(&self) -> u64 {
        self.shared.lock().connections
    }

    /// Returns true if a planned change of a byte has not happened yet.
    pub fn is_corruption_pending(&self) -> bool {
        let state = self.shared.lock();
        state.corrupt_at.is_some() || state.corrupt_text.is_some()
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.shared.lock());
        self.shared.changed.notify_all();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.change(|state| {
            state.cut();
            state.is_closed = true;
        });
        // Wakes the thread that accepts.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

/// Accepts connections of replicas until the proxy is closed.
fn accept(listener: &TcpListener, target_port: u16, shared: &Arc<Shared>) {
    for socket in listener.incoming() {
        if shared.lock().is_closed {
            return;
        }
        let Ok(socket) = socket else { continue };
        // Without a primary the connection ends at once.
        let Ok(primary) = TcpStream::connect((Ipv4Addr::LOCALHOST, target_port)) else { continue };
        let _ = join(socket, primary, shared);
    }
}

/// Connects a replica to the primary and starts one thread for each direction.
fn join(replica: TcpStream, primary: TcpStream, shared: &Arc<Shared>) -> io::Result<()> {
    replica.set_nodelay(true)?;
    primary.set_nodelay(true)?;
    let (from_replica, to_primary) = (replica.try_clone()?, primary.try_clone()?);
    {
        let mut state = shared.lock();
        state.connections += 1;
        state.sockets.extend([replica.try_clone()?, primary.try_clone()?]);
    }
    let of_thread = Arc::clone(shared);
    thread::spawn(move || {
        let _ = forward(&primary, &replica, &of_thread);
        close([&primary, &replica]);
    });
    thread::spawn(move || {
        let _ = io::copy(&mut &from_replica, &mut &to_primary);
        close([&from_replica, &to_primary]);
    });
    Ok(())
}

fn close(sockets: [&TcpStream; 2]) {
    for socket in sockets {
        // It may be closed.
        let _ = socket.shutdown(Shutdown::Both);
    }
}

/// Forwards the primary's bytes to the replica, with the set faults, until the connection ends.
fn forward(mut primary: &TcpStream, mut replica: &TcpStream, shared: &Shared) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let (len_bytes, pause) = {
            let mut state = shared.lock();
            while state.is_stalled && !state.is_closed {
                state = shared.changed.wait(state).expect("no thread panics with the lock");
            }
            match state.throttle_bytes {
                None => (CHUNK_BYTES, state.delay),
                Some(rate) => {
                    let share = usize::try_from(rate / SLICES_PER_S).unwrap_or(CHUNK_BYTES);
                    (share.clamp(1, CHUNK_BYTES), state.delay + Duration::from_secs(1) / SLICES_PER_S as u32)
                }
            }
        };
        let len_bytes = primary.read(&mut chunk[..len_bytes])?;
        if len_bytes == 0 {
            return Ok(());
        }
        thread::sleep(pause);
        let mut state = shared.lock();
        let first = state.passed_bytes;
        let end = first + len_bytes as u64;
        let end = state.cut_at.map_or(end, |cut| end.min(cut.max(first)));
        if let Some(at) = state.corrupt_at.filter(|at| (first..end).contains(at)) {
            chunk[(at - first) as usize] ^= 0x15;
            state.corrupt_at = None;
        }
        let found = |text: &[u8]| chunk[..len_bytes].windows(text.len()).position(|part| part == text);
        if let Some(at) = state.corrupt_text.and_then(found) {
            chunk[at] ^= 0x15;
            state.corrupt_text = None;
        }
        state.passed_bytes = end;
        let is_cut = state.cut_at.is_some_and(|cut| end >= cut);
        if !is_cut {
            drop(state);
            replica.write_all(&chunk[..len_bytes])?;
            continue;
        }
        // The last bytes are few: they fit in the socket's buffer unless the replica is stopped.
        replica.write_all(&chunk[..(end - first) as usize])?;
        state.cut();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a proxy to a server that sends `bytes` on each connection and then only reads.
    fn proxy_of(bytes: &'static [u8]) -> Proxy {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let proxy = Proxy::start(listener.local_addr().unwrap().port()).unwrap();
        thread::spawn(move || {
            for socket in listener.incoming() {
                let mut socket = socket.unwrap();
                socket.write_all(bytes).unwrap();
                thread::spawn(move || io::copy(&mut socket, &mut io::sink()));
            }
        });
        proxy
    }

    fn connect(proxy: &Proxy) -> TcpStream {
        TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port())).unwrap()
    }

    fn read_all(proxy: &Proxy) -> Vec<u8> {
        let mut got = Vec::new();
        // A cut may be seen as a reset.
        let _ = connect(proxy).read_to_end(&mut got);
        got
    }

    #[test]
    fn a_cut_comes_at_its_byte_and_the_next_connection_passes() {
        let proxy = proxy_of(b"0123456789");
        proxy.cut_after(4);
        assert_eq!(read_all(&proxy), b"0123");
        proxy.cut_after(11);
        assert_eq!(read_all(&proxy), b"0123456");
        assert_eq!((proxy.passed_bytes(), proxy.cuts(), proxy.connections()), (11, 2, 2));
    }

    #[test]
    fn one_byte_is_changed_and_all_pass_at_any_rate() {
        let proxy = proxy_of(b"0123456789");
        proxy.corrupt(3);
        proxy.throttle(Some(100));
        proxy.delay(Duration::from_millis(1));
        let mut got = [0; 10];
        connect(&proxy).read_exact(&mut got).unwrap();
        assert_eq!(&got, b"012&456789");
        assert!(!proxy.is_corruption_pending());
    }

    #[test]
    fn the_first_byte_of_a_text_is_changed_once() {
        let proxy = proxy_of(b"0123456789");
        proxy.corrupt_text(b"456");
        for expected in [b"0123!56789", b"0123456789"] {
            let mut got = [0; 10];
            connect(&proxy).read_exact(&mut got).unwrap();
            assert_eq!(&got, expected);
        }
    }

    #[test]
    fn a_stalled_connection_stays_open_and_goes_on() {
        let proxy = proxy_of(b"0123456789");
        proxy.stall();
        let mut socket = connect(&proxy);
        socket.set_read_timeout(Some(Duration::from_millis(30))).unwrap();
        assert!(socket.read(&mut [0; 1]).is_err());
        proxy.resume();
        socket.set_read_timeout(None).unwrap();
        socket.read_exact(&mut [0; 10]).unwrap();
    }
}
