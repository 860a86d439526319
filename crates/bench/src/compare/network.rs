//! A simulated link. Where the kernel has netem and we may administer the network, it is a network
//! namespace joined to ours by a pair of virtual interfaces, each of which holds what it sends back
//! for half of the round trip. An engine started inside is reached through that link and nothing
//! else on the machine is slowed.
//!
//! ```text
//!                                                                  ┌─ namespace skbN ─┐
//!   load generator ── skbN-a 10.213.N.1 ══ delay ══ delay ══ 10.213.N.2 skbN-b ── engine
//! ```
//! Elsewhere it is a relay of our own ([`super::relay`]) before each engine,
//! and the reports say so.

use std::process::{Command, Stdio};
use std::time::Duration;

use super::relay::Shape;
use crate::interrupt::{Interrupt, Leftover};
use crate::results::LinkKind;

/// A link that engines are reached through.
pub enum Link {
    /// The kernel's.
    Netem(Namespace),
    /// A relay of this shape before each engine.
    Relay(Shape),
}

/// What is wanted of a link.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Which way to make it; the kernel's where possible when absent.
    pub kind: Option<LinkKind>,
    /// How long a packet and its answer take.
    pub round_trip_ms: u32,
    /// Megabits per second in each direction; `None` for no limit.
    pub mbit_per_second: Option<f64>,
}

impl Link {
    /// Makes a link, and says why it is not the kernel's where that was not asked for. `Err` is one
    /// line that says what is not permitted or missing.
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

    /// What it is.
    pub fn kind(&self) -> LinkKind {
        match self {
            Link::Netem(_) => LinkKind::Netem,
            Link::Relay(_) => LinkKind::Relay,
        }
    }

    /// The namespace to start engines in.
    pub fn namespace(&self) -> Option<&Namespace> {
        match self {
            Link::Netem(namespace) => Some(namespace),
            Link::Relay(_) => None,
        }
    }

    /// What relays are like, where there are any.
    pub fn shape(&self) -> Option<Shape> {
        match self {
            Link::Netem(_) => None,
            Link::Relay(shape) => Some(*shape),
        }
    }
}

/// A network namespace behind a link, removed when dropped.
pub struct Namespace {
    name: String,
    number: u8,
    /// Removes it where the process ends at once.
    _leftover: Leftover,
}

impl Namespace {
    fn make(number: u8, wanted: &Wanted, interrupt: &Interrupt) -> Result<Self, String> {
        // The process' number keeps studies that run at once apart.
        let name = format!("skb{}n{number}", std::process::id() % 100_000);
        let number = (std::process::id() as u8).wrapping_add(number);
        let left = name.clone();
        let link = Self { name, number, _leftover: interrupt.on_exit(move || remove(&left)) };
        let (name, here, there) = (link.name.clone(), link.interface('a'), link.interface('b'));
        let ours = format!("10.213.{number}.1/24");
        let theirs = format!("{}/24", link.address());
        let half = format!("{}us", u64::from(wanted.round_trip_ms) * 500);
        let rate = wanted.mbit_per_second.map(|mbit| format!("{}kbit", (mbit * 1e3).ceil()));
        // Room for what is on its way: netem drops beyond its limit of packets.
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

    /// What to put before a command line so that it runs inside.
    pub fn prefix(&self) -> [&str; 4] {
        ["ip", "netns", "exec", &self.name]
    }

    /// The address inside.
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

/// Removes namespace `name`, with the interface that leads to it.
fn remove(name: &str) {
    // What was not made yet cannot be removed; the pair goes with the namespace.
    let _ = run("ip", &["link", "delete", &format!("{name}a")]);
    let _ = run("ip", &["netns", "delete", name]);
}

/// Runs a command; `Err` is what it said, in one line.
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
