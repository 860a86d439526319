//! Listening on the addresses of the configuration.

use std::io;
use std::net::SocketAddr;

use net::{Address, Listener};
use rustix::io::Errno;

use crate::builder::StartError;
use crate::config::apply::{BindAddress, StartOptions};
use crate::shared::{Message, Shared};

/// How often another port is tried when any will do and one address has it free but another has not.
const ANY_PORT_ATTEMPTS: usize = 16;

/// Listens where `start` says. Gives the TCP port, where there is one.
pub fn listen(start: &StartOptions) -> Result<(Vec<Listener>, Option<u16>), StartError> {
    let (mut listeners, mut port) = (Vec::new(), None);
    if let Some(wanted) = start.port.filter(|_| !start.addresses.is_empty()) {
        let found = tcp(&start.addresses, wanted, start.tcp_backlog)?;
        (listeners, port) = (found.0, Some(found.1));
    }
    if let Some((path, mode)) = &start.unix_socket {
        let failed = |error| StartError::Listen { address: path.display().to_string(), error };
        listeners.push(Listener::unix(path, *mode, start.tcp_backlog).map_err(failed)?);
    }
    if listeners.is_empty() {
        return Err(StartError::NowhereToListen);
    }
    Ok((listeners, port))
}

/// Makes a running server listen on `addresses` at `port` (`None`: nowhere) instead of the TCP addresses it
/// has; an address it has already stays as it is. Connections stay. An error leaves things as they were;
/// one is that an address overlaps with one that is to go (`*` and 127.0.0.1).
pub fn listen_elsewhere(
    shared: &Shared,
    addresses: &[BindAddress],
    port: Option<u16>,
    backlog: u32,
) -> io::Result<()> {
    let mut listening = shared.listening();
    let (mut add, mut keep) = (Vec::new(), Vec::new());
    for &BindAddress { ip, optional } in port.map_or(&[][..], |_| addresses) {
        let address = SocketAddr::new(ip, port.unwrap_or(0));
        if listening.contains(&Address::Tcp(address)) {
            keep.push(address);
            continue;
        }
        match Listener::tcp(address, backlog) {
            Ok(listener) => add.push(listener),
            Err(error) if optional && is_missing(&error) => {}
            Err(error) => return Err(error),
        }
    }
    let added: Vec<Address> = add.iter().map(|listener| listener.local_address().clone()).collect();
    let message = Message::Listen { add, keep: keep.clone() };
    if shared.threads[0].mailbox.send(message).is_err() {
        return Err(io::Error::other("too many messages wait for the thread that accepts"));
    }
    listening.retain(|address| !matches!(address, Address::Tcp(address) if !keep.contains(address)));
    listening.extend(added);
    Ok(())
}

/// Listens on one port of all `addresses`; port 0 takes one that is free on all.
fn tcp(addresses: &[BindAddress], port: u16, backlog: u32) -> Result<(Vec<Listener>, u16), StartError> {
    for attempt in 1.. {
        match tcp_once(addresses, port, backlog) {
            Err(StartError::Listen { error, .. })
                if port == 0 && error.kind() == io::ErrorKind::AddrInUse && attempt < ANY_PORT_ATTEMPTS => {}
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
            Err(error) => return Err(StartError::Listen { address: address.to_string(), error }),
        }
    }
    Ok((listeners, port))
}

/// Whether the machine does not have the address, or not even its family.
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

    fn address(text: &str, optional: bool) -> BindAddress {
        BindAddress { ip: text.parse().expect("an address"), optional }
    }

    #[test]
    fn an_optional_address_may_be_missing() {
        // 192.0.2.0/24 is for documentation: no machine has it.
        let addresses = [address("127.0.0.1", false), address("192.0.2.1", true)];
        let (listeners, port) = tcp(&addresses, 0, 16).expect("the loopback is there");
        assert_eq!(listeners.len(), 1);
        assert_ne!(port, 0);
        let wanted = tcp(&[address("192.0.2.1", false)], 0, 16);
        assert!(matches!(wanted, Err(StartError::Listen { .. })));
    }

    #[test]
    fn a_taken_port_is_refused() {
        let addresses = [address("127.0.0.1", true)];
        let (_taken, port) = tcp(&addresses, 0, 16).expect("a free port");
        assert!(matches!(tcp(&addresses, port, 16), Err(StartError::Listen { .. })));
    }
}
