//! A simulated link: a network namespace joined to ours by a pair of virtual interfaces, each of which
//! holds what it sends back for half of the round trip (netem). An engine started inside is reached
//! through that link and nothing else on the machine is slowed.
//!
//! ```text
//!   load generator ── skbN-a 10.213.N.1 ══ delay ══ delay ══ 10.213.N.2 skbN-b ── engine (namespace skbN)
//! ```
//! All of it needs the right to administer the network (root) and the kernel's netem; without either the
//! study leaves the link out and says so.

use std::process::{Command, Stdio};

/// A link and its namespace, removed when dropped.
pub struct Link {
    name: String,
    number: u8,
}

impl Link {
    /// Makes a link of `round_trip_ms`. `Err` is one line that says what is not permitted or missing.
    pub fn make(number: u8, round_trip_ms: u32) -> Result<Self, String> {
        // The process' number keeps studies that run at once apart.
        let name = format!("skb{}n{number}", std::process::id() % 100_000);
        let number = (std::process::id() as u8).wrapping_add(number);
        let link = Self { name, number };
        let (name, here, there) = (link.name.clone(), link.interface('a'), link.interface('b'));
        let ours = format!("10.213.{number}.1/24");
        let theirs = format!("{}/24", link.address());
        let half = format!("{}us", u64::from(round_trip_ms) * 500);
        // Room for what is on its way: netem drops beyond its limit of packets.
        let netem = ["root", "netem", "limit", "1000000", "delay", &half];
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

impl Drop for Link {
    fn drop(&mut self) {
        // What was not made yet cannot be removed; the pair goes with the namespace.
        let _ = run("ip", &["link", "delete", &self.interface('a')]);
        let _ = run("ip", &["netns", "delete", &self.name]);
    }
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
