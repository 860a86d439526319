//! The servers of one run of the failover measurement: a primary, two replicas and three Sentinels;
//! and the ways to lose the primary.

use std::ffi::OsString;
use std::fmt::{self, Display, Formatter};
use std::fs;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use testkit::process::free_port;
use testkit::replication::Proxy;
use testkit::{Address, Client, ServerProcess, Value};

/// The number of servers of one run (a primary and its replicas), and also the number of Sentinels.
const COUNT: usize = 3;
/// The name under which the Sentinels monitor the primary.
const NAME: &str = "main";
/// Maximum time until the Sentinels know all servers and each other.
const DISCOVERED_WITHIN: Duration = Duration::from_secs(120);
/// Pause between two queries to the Sentinels about the servers that they know.
const POLL: Duration = Duration::from_millis(50);

/// A way in which the primary is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Loss {
    /// The primary is killed by SIGKILL: its process ends and its connections are closed.
    Kill,
    /// The primary is suspended by SIGSTOP. Its connections stay open, and it does not answer.
    Stop,
    /// The proxy in front of the primary forwards nothing more. Its connections stay open.
    Cut,
}

impl Display for Loss {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value().expect("no value is hidden");
        f.write_str(value.get_name())
    }
}

impl Loss {
    /// Returns the name of this way to lose the primary, as in the table of results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kill => "killed",
            Self::Stop => "stopped",
            Self::Cut => "cut off",
        }
    }
}

/// A primary or replica, and the proxy through which all others reach it if the primary is lost by
/// [`Loss::Cut`].
struct Server {
    /// The process of the primary or replica; `None` after it was killed.
    process: Option<ServerProcess>,
    proxy: Option<Proxy>,
    port: u16,
}

impl Server {
    /// Returns the port at which clients and other servers reach this server: that of the proxy, if
    /// there is one.
    fn outer_port(&self) -> u16 {
        self.proxy.as_ref().map_or(self.port, Proxy::port)
    }
}

/// The servers of one run and their Sentinels. The first server is the primary.
pub struct Set {
    servers: Vec<Server>,
    sentinels: Vec<ServerProcess>,
    /// The folder of the configuration files, which the Sentinels make the servers rewrite.
    folder: TempDir,
}

impl Set {
    /// Starts the servers and Sentinels, and waits until the Sentinels know all of them. `server`
    /// is (command line, options after the configuration file). `sentinel` is (command line,
    /// `down-after-milliseconds`). With [`Loss::Cut`], the servers are reached by proxies.
    pub fn start(
        server: (&[OsString], &[String]),
        sentinel: (&[OsString], u32),
        loss: Loss,
    ) -> io::Result<Self> {
        let mut set = Self { servers: Vec::new(), sentinels: Vec::new(), folder: tempfile::tempdir()? };
        for _ in 0..COUNT {
            set.start_server(server, loss)?;
        }
        for _ in 0..COUNT {
            set.start_sentinel(sentinel)?;
        }
        let deadline = Instant::now() + DISCOVERED_WITHIN;
        while !set.sentinels.iter().all(knows_all) {
            if Instant::now() > deadline {
                return Err(io::Error::other("the Sentinels do not find all servers"));
            }
            thread::sleep(POLL);
        }
        Ok(set)
    }

    fn start_server(&mut self, (line, options): (&[OsString], &[String]), loss: Loss) -> io::Result<()> {
        let port = free_port()?;
        let dir = self.folder.path().join(port.to_string());
        fs::create_dir(&dir)?;
        let mut text = format!("port {port}\ndir {}\nsave \"\"\nrepl-diskless-sync-delay 0\n", dir.display());
        let proxy = if loss == Loss::Cut { Some(Proxy::start(port)?) } else { None };
        if let Some(proxy) = &proxy {
            text += &format!("replica-announce-ip 127.0.0.1\nreplica-announce-port {}\n", proxy.port());
        }
        if let Some(primary) = self.servers.first() {
            text += &format!("replicaof 127.0.0.1 {}\n", primary.outer_port());
        }
        let file = dir.join("conf");
        fs::write(&file, text)?;
        let line = [line, &[file.into()]].concat();
        let process = Some(ServerProcess::start_on(&line, port, options)?);
        self.servers.push(Server { process, proxy, port });
        Ok(())
    }

    fn start_sentinel(&mut self, (line, down_after_ms): (&[OsString], u32)) -> io::Result<()> {
        let port = self.servers[0].outer_port();
        let file = self.folder.path().join(format!("sentinel{}", self.sentinels.len()));
        let text = format!(
            "sentinel monitor {NAME} 127.0.0.1 {port} 2\n\
             sentinel down-after-milliseconds {NAME} {down_after_ms}\n\
             sentinel failover-timeout {NAME} 10000\n"
        );
        fs::write(&file, text)?;
        let line = [line, &[file.into()]].concat();
        self.sentinels.push(ServerProcess::start(&line, &["--sentinel".to_owned()])?);
        Ok(())
    }

    /// Returns the port at which clients reach the server that is the primary at the start.
    pub fn primary_port(&self) -> u16 {
        self.servers[0].outer_port()
    }

    /// Returns the ports of the two replicas themselves, not of their proxies.
    pub fn replica_ports(&self) -> impl Iterator<Item = u16> {
        self.servers[1..].iter().map(|server| server.port)
    }

    /// Asks one Sentinel after the other for the primary. Returns the port that the first answer
    /// names; `None` if no Sentinel answers.
    pub fn named_primary(&self) -> Option<u16> {
        self.sentinels.iter().find_map(|sentinel| {
            let mut client = Client::connect(&Address::port(sentinel.port())).ok()?;
            let reply = client.request(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME]).ok()?;
            let Value::Array(words) = reply else { return None };
            std::str::from_utf8(words.get(1)?.as_bytes()?).ok()?.parse().ok()
        })
    }

    /// Causes the loss of the primary.
    ///
    /// # Errors
    /// The primary's process has already ended.
    pub fn lose(&mut self, loss: Loss) -> io::Result<()> {
        let primary = &mut self.servers[0];
        match loss {
            Loss::Kill => primary.process = None,
            Loss::Stop => {
                let pid = primary.process.as_ref().and_then(|process| Pid::from_raw(process.pid() as i32));
                kill_process(pid.ok_or_else(|| io::Error::other("no process"))?, Signal::STOP)?;
            }
            Loss::Cut => primary.proxy.iter().for_each(Proxy::stall),
        }
        Ok(())
    }
}

/// Returns true if a Sentinel knows all servers and Sentinels, and considers the primary up.
fn knows_all(sentinel: &ServerProcess) -> bool {
    let Ok(mut client) = Client::connect(&sentinel.address()) else { return false };
    let Ok(Value::Array(words)) = client.request(&["SENTINEL", "MASTER", NAME]) else { return false };
    let has = |name: &str, value: &str| {
        let is = |word: &Value, text: &str| word.as_bytes() == Some(text.as_bytes());
        words.chunks_exact(2).any(|pair| is(&pair[0], name) && is(&pair[1], value))
    };
    has("num-slaves", "2") && has("num-other-sentinels", "2") && has("flags", "master")
}
