//! A simulated link. If the kernel has netem and the process may administer the network, the link
//! is a network namespace. A pair of virtual interfaces joins it to the namespace of the process.
//! Each interface delays its output by half of the round trip. An engine inside the namespace is
//! reached only through this link. Nothing else on the machine is slowed.
//!
//! ```text
//!                                                                  ┌─ namespace skbN ─┐
//!   load generator ── skbN-a 10.213.N.1 ══ delay ══ delay ══ 10.213.N.2 skbN-b ── engine
//! ```
//! Otherwise the link is a relay ([`super::relay`]) before each engine, and the reports say so.

use std::process::{Command, Stdio};
use std::time::Duration;

use super::relay::Shape;
use crate::interrupt::{CleanupAction, Interrupt};
use crate::results::LinkKind;

/// A simulated link between the load generator and the engines.
pub enum Link {
    /// The link is a network namespace whose interfaces delay packets with netem.
    Netem(Namespace),
    /// The link is a relay before each engine, with these properties.
    Relay(Shape),
}

/// The properties of a simulated link that a study requests.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// The simulator; when absent, the kernel's netem if possible, otherwise a relay.
    pub kind: Option<LinkKind>,
    /// The round trip time of a packet and its answer, in milliseconds.
    pub round_trip_ms: u32,
    /// The rate in each direction, in megabits per second; `None` for no limit.
    pub mbit_per_second: Option<f64>,
}

impl Link {
    /// Creates link `number` of the study with the properties `wanted`. If `wanted` names no
    /// simulator and netem fails, creates a relay and also returns the reason. The error is one
    /// line.
    pub fn make(
        number: u8,
        wanted: &Wanted,
        interrupt: &Interrupt,
    ) -> Result<(Self, Option<String>), String> {
        let relay = || {
            Link::Relay(Shape {
                one_way: Duration::from_micros(u64::from(wanted.round_trip_ms) * 500),
                bytes_per_second: wanted.mbit_per_second.map(|mbit| mbit * 1e6 / 8.0),
            })
        };
        if wanted.kind == Some(LinkKind::Relay) {
            return Ok((relay(), None));
        }
        match Namespace::make(number, wanted, interrupt) {
            Ok(namespace) => Ok((Link::Netem(namespace), None)),
            Err(reason) if wanted.kind == Some(LinkKind::Netem) => Err(reason),
            Err(reason) => Ok((relay(), Some(reason))),
        }
    }

    /// Returns the simulator of the link: netem or a relay.
    pub fn kind(&self) -> LinkKind {
        match self {
            Link::Netem(_) => LinkKind::Netem,
            Link::Relay(_) => LinkKind::Relay,
        }
    }

    /// Returns the network namespace in which engines start; `None` for a relay.
    pub fn namespace(&self) -> Option<&Namespace> {
        match self {
            Link::Netem(namespace) => Some(namespace),
            Link::Relay(_) => None,
        }
    }

    /// Returns the link properties that relays simulate; `None` for netem.
    pub fn shape(&self) -> Option<Shape> {
        match self {
            Link::Netem(_) => None,
            Link::Relay(shape) => Some(*shape),
        }
    }
}

/// A network namespace behind a link. Dropping it removes the namespace.
pub struct Namespace {
    name: String,
    number: u8,
    /// The cleanup that removes the namespace if a second signal ends the process.
    _leftover: CleanupAction,
}

impl Namespace {
    fn make(number: u8, wanted: &Wanted, interrupt: &Interrupt) -> Result<Self, String> {
        // The process ID separates studies that run at the same time.
        let name = format!("skb{}n{number}", std::process::id() % 100_000);
        let number = (std::process::id() as u8).wrapping_add(number);
        let left = name.clone();
        let link = Self { name, number, _leftover: interrupt.on_exit(move || remove(&left)) };
        let (name, here, there) = (link.name.clone(), link.interface('a'), link.interface('b'));
        let ours = format!("10.213.{number}.1/24");
        let theirs = format!("{}/24", link.address());
        let half = format!("{}us", u64::from(wanted.round_trip_ms) * 500);
        let rate = wanted.mbit_per_second.map(|mbit| format!("{}kbit", (mbit * 1e3).ceil()));
        // Space for all packets in transit: netem drops packets beyond its limit.
        let mut netem = vec!["root", "netem", "limit", "1000000", "delay", &half];
        if let Some(rate) = &rate {
            netem.extend(["rate", rate]);
        }
        run("ip", &["netns", "add", &name])?;
        run("ip", &["link", "add", &here, "type", "veth", "peer", "name", &there, "netns", &name])?;
        run("ip", &["address", "add", &ours, "dev", &here])?;
        run("ip", &["link", "set", &here, "up"])?;
        run("ip", &["-n", &name, "address", "add", &theirs, "dev", &there])?;
        run("ip", &["-n", &name, "link", "set", &there, "up"])?;
        run("ip", &["-n", &name, "link", "set", "lo", "up"])?;
        run("tc", &[&["qdisc", "add", "dev", &here], &netem[..]].concat())?;
        run("tc", &[&["-n", &name, "qdisc", "add", "dev", &there], &netem[..]].concat())?;
        Ok(link)
    }

    /// Returns the words that precede a command to run it inside the namespace: `ip netns exec` and
    /// the name.
    pub fn prefix(&self) -> [&str; 4] {
        ["ip", "netns", "exec", &self.name]
    }

    /// Returns the IPv4 address at which engines inside the network namespace listen.
    pub fn address(&self) -> String {
        format!("10.213.{}.2", self.number)
    }

    fn interface(&self, side: char) -> String {
        format!("{}{side}", self.name)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        remove(&self.name);
    }
}

/// Removes the network namespace `name` and the pair of virtual interfaces that leads to it.
fn remove(name: &str) {
    // Errors are ignored: the objects may not exist yet. The kernel removes the other interface of
    // the pair.
    let _ = run("ip", &["link", "delete", &format!("{name}a")]);
    let _ = run("ip", &["netns", "delete", name]);
}

/// Runs a command and waits for its end.
///
/// # Errors
///
/// The name of the command and the first line of its error output.
fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("cannot run {program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().next().unwrap_or("no reason given").trim();
    Err(format!("`{program} {}`: {said}", arguments.join(" ")))
}
