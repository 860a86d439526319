//! Opening of the sockets on which the server listens, as the configuration states.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use net::{Address, Listener, TlsServer};
use rustix::io::Errno;

use crate::config::apply::{BindAddress, StartOptions};
use crate::shared::{Listening, Message, Shared};
use crate::start_error::{Place, StartError};

/// Number of ports that are tried if the system may choose the port. A chosen port must be free on
/// all addresses, but may be in use on some of them.
const ANY_PORT_ATTEMPTS: usize = 16;

/// Time for which the server retries to listen on an address in use. After a `kill -9`, the kernel
/// closes the listening sockets of an io_uring about 0.1 s after the end of the process. A
/// supervisor may start the next process before that.
const TAKEN_TRIED_FOR: Duration = Duration::from_secs(1);
/// Pause between two attempts to listen on an address in use.
const TAKEN_PAUSE: Duration = Duration::from_millis(50);

/// The listening sockets that a server opens at its start.
pub struct Listeners {
    /// All listening sockets: TCP, TLS and Unix.
    pub all: Vec<Listener>,
    /// The port for TCP without TLS; `None` if the server does not listen on one.
    pub port: Option<u16>,
    /// The port for TLS; `None` if the server does not listen on one.
    pub tls_port: Option<u16>,
}

/// Opens the listeners for the addresses and ports in `start`. Those on the TLS port use `tls`.
pub fn listen(start: &StartOptions, tls: Option<&TlsServer>) -> Result<Listeners, StartError> {
    let (mut listeners, mut port, mut tls_port) = (Vec::new(), None, None);
    if let Some(wanted) = start.port.filter(|_| !start.addresses.is_empty()) {
        let found = retry_while_in_use(|| tcp(&start.addresses, wanted, start.tcp_backlog))?;
        (listeners, port) = (found.0, Some(found.1));
    }
    if let (Some(wanted), Some(tls)) = (start.tls_port.filter(|_| !start.addresses.is_empty()), tls) {
        let found = retry_while_in_use(|| tcp(&start.addresses, wanted, start.tcp_backlog))?;
        listeners.extend(found.0.into_iter().map(|listener| listener.encrypted(tls.clone())));
        tls_port = Some(found.1);
    }
    if let Some((path, mode)) = &start.unix_socket {
        let address = || path.display().to_string();
        let failed = |error| StartError::Listen { place: Place::UnixSocket, address: address(), error };
        listeners
            .push(retry_while_in_use(|| Listener::unix(path, *mode, start.tcp_backlog).map_err(failed))?);
    }
    if listeners.is_empty() {
        return Err(StartError::NowhereToListen);
    }
    Ok(Listeners { all: listeners, port, tls_port })
}

/// Calls `attempt` again and again while it fails because the address is in use, for at most
/// [`TAKEN_TRIED_FOR`].
pub fn retry_while_in_use<T>(attempt: impl Fn() -> Result<T, StartError>) -> Result<T, StartError> {
    let begun = Instant::now();
    let mut waits = false;
    loop {
        match attempt() {
            Err(StartError::Listen { address, error, .. })
                if error.kind() == io::ErrorKind::AddrInUse && begun.elapsed() < TAKEN_TRIED_FOR =>
            {
                if !waits {
                    tracing::info!("{address} is in use, trying again for a second.");
                }
                waits = true;
                std::thread::sleep(TAKEN_PAUSE);
            }
            result => return result,
        }
    }
}

/// Replaces the TCP listeners of a running server by those for the addresses and ports in `start`;
/// those on the TLS port use `tls`. Listeners on unchanged addresses stay, and connections stay
/// open. After an error nothing is changed. A new address that overlaps with one to be removed (`*`
/// and 127.0.0.1) is an error.
pub fn replace_listeners(shared: &Shared, start: &StartOptions, tls: Option<&TlsServer>) -> io::Result<()> {
    let mut listening = shared.listening();
    let (mut add, mut keep) = (Vec::new(), Vec::new());
    let ports = [(start.port, None), (start.tls_port.filter(|_| tls.is_some()), tls)];
    for (port, tls) in ports.into_iter().filter_map(|(port, tls)| Some((port?, tls))) {
        for &BindAddress { ip, optional } in &start.addresses {
            let address = SocketAddr::new(ip, port);
            let wanted = Listening { address: Address::Tcp(address), is_encrypted: tls.is_some() };
            if listening.contains(&wanted) {
                keep.push(wanted);
                continue;
            }
            match Listener::tcp(address, start.tcp_backlog) {
                Ok(listener) => add.push(match tls {
                    Some(tls) => listener.encrypted(tls.clone()),
                    None => listener,
                }),
                Err(error) if optional && is_missing(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }
    let added: Vec<Listening> = add.iter().map(Listening::of).collect();
    let message = Message::Listen { add, keep: keep.clone() };
    if shared.ports[shared.accepting_thread()].mailbox.send(message).is_err() {
        return Err(io::Error::other("the queue of the thread that accepts connections is full"));
    }
    listening.retain(|listening| listening.tcp().is_none() || keep.contains(listening));
    listening.extend(added);
    Ok(())
}

/// Listens on one port of all `addresses`. With port 0, chooses a port that is free on all of them.
/// Returns the listeners and the port.
fn tcp(addresses: &[BindAddress], port: u16, backlog: u32) -> Result<(Vec<Listener>, u16), StartError> {
    for attempt in 1.. {
        match tcp_once(addresses, port, backlog) {
            Err(error) if port == 0 && error.is_taken() && attempt < ANY_PORT_ATTEMPTS => {}
            result => return result,
        }
    }
    unreachable!("the last attempt returns")
}

fn tcp_once(addresses: &[BindAddress], port: u16, backlog: u32) -> Result<(Vec<Listener>, u16), StartError> {
    let (mut listeners, mut port) = (Vec::new(), port);
    for &BindAddress { ip, optional } in addresses {
        let address = SocketAddr::new(ip, port);
        match Listener::tcp(address, backlog) {
            Ok(listener) => {
                if let Address::Tcp(local) = listener.local_address() {
                    port = local.port();
                }
                listeners.push(listener);
            }
            Err(error) if optional && is_missing(&error) => {}
            Err(error) => {
                let (place, address) = (Place::Clients(port), address.to_string());
                return Err(StartError::Listen { place, address, error });
            }
        }
    }
    Ok((listeners, port))
}

/// Returns true if the error means that the machine does not have the address or its address
/// family.
pub fn is_missing(error: &io::Error) -> bool {
    let missing = [
        Errno::ADDRNOTAVAIL,
        Errno::AFNOSUPPORT,
        Errno::NOPROTOOPT,
        Errno::PFNOSUPPORT,
        Errno::PROTONOSUPPORT,
        Errno::SOCKTNOSUPPORT,
    ];
    Errno::from_io_error(error).is_some_and(|errno| missing.contains(&errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> BindAddress {
        BindAddress { ip: text.parse().expect("an address"), optional: false }
    }

    fn optional(text: &str) -> BindAddress {
        BindAddress { optional: true, ..address(text) }
    }

    #[test]
    fn an_optional_address_may_be_missing() {
        // 192.0.2.0/24 is reserved for documentation: no machine has such an address.
        let addresses = [address("127.0.0.1"), optional("192.0.2.1")];
        let (listeners, port) = tcp(&addresses, 0, 16).expect("the loopback is there");
        assert_eq!(listeners.len(), 1);
        assert_ne!(port, 0);
        let wanted = tcp(&[address("192.0.2.1")], 0, 16);
        assert!(matches!(wanted, Err(StartError::Listen { .. })));
    }

    #[test]
    fn a_port_that_becomes_free_within_a_second_is_taken() {
        let (taken, port) = tcp(&[address("127.0.0.1")], 0, 16).expect("a free port");
        let attempts = std::cell::Cell::new(0);
        let taken = std::cell::RefCell::new(Some(taken));
        let found = retry_while_in_use(|| {
            attempts.set(attempts.get() + 1);
            if attempts.get() == 3 {
                taken.take();
            }
            tcp(&[address("127.0.0.1")], port, 16)
        });
        assert_eq!((found.expect("free").1, attempts.get()), (port, 3));
    }

    #[test]
    fn a_taken_port_is_refused() {
        let addresses = [optional("127.0.0.1")];
        let (_taken, port) = tcp(&addresses, 0, 16).expect("a free port");
        assert!(matches!(tcp(&addresses, port, 16), Err(StartError::Listen { .. })));
    }
}
