//! An engine under measurement ([`Running`]). Either it is started in a scratch directory and
//! stopped when the [`Running`] is dropped, or it already runs and is left running.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, TcpListener, ToSocketAddrs};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::command_line::{self, Places};
use super::control::{Control, info_field};
use super::network::{Link, Namespace};
use super::outcome::EngineFacts;
use super::relay::Relay;
use super::study::{Engine, Study};
use crate::interrupt::{CleanupAction, Interrupt};
use crate::results::Transport;
use crate::spec::{Endpoint, Target, Tls};

/// The longest wait for the reply to PING that shows if an engine still replies after a failed run.
const ANSWERS_TIMEOUT: Duration = Duration::from_secs(5);
/// The interval between two checks that an engine is ready or has ended.
const READY_POLL: Duration = Duration::from_millis(20);
/// The time that an engine has to end after SIGTERM before SIGKILL is sent.
const END_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest wait until an engine has freed deleted data, and the time between two readings of
/// its memory.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);
const SETTLE_POLL: Duration = Duration::from_millis(50);
/// The largest difference of two readings that count as equal, in bytes: what connections need.
const SETTLED_BYTES: u64 = 64 * 1024;
/// The number of characters of an engine's last output line that an error message contains.
const LOG_TAIL_CHARS: usize = 160;
/// The fields of INFO that may hold the version, the most specific first. Forks also report a
/// `redis_version` for the sake of clients.
const VERSION_FIELDS: &[&str] = &[
    "saker_version",
    "valkey_version",
    "dragonfly_version",
    "keydb_version",
    "garnet_version",
    "redis_version",
];
/// The server options that must be equal for all engines, so that the comparison is fair.
const EQUAL_SETTINGS: &[&str] = &["maxmemory", "maxmemory-policy", "save", "appendonly"];
/// The options that reports show in addition to [`EQUAL_SETTINGS`]. They may differ.
const SHOWN_SETTINGS: &[&str] = &["appendfsync", "io-threads"];

/// The surroundings in which an engine is started: link, TLS certificate and interrupt.
#[derive(Clone, Copy)]
pub struct Environment<'a> {
    /// The simulated link to the engines; `None` without one.
    pub link: Option<&'a Link>,
    /// The TLS certificate of the engines, if TLS is measured.
    pub certificate: Option<&'a Certificate>,
    /// The interrupt that ends the wait for an engine to become ready.
    pub interrupt: &'a Interrupt,
}

/// A temporary TLS certificate and key for the engines of a study.
pub struct Certificate {
    dir: TempDir,
}

impl Certificate {
    /// Creates a TLS certificate and key with openssl. The error is one line.
    pub fn make() -> Result<Self, String> {
        let dir = tempfile::Builder::new().prefix("saker-bench-tls-").tempdir();
        let dir = dir.map_err(|error| format!("cannot prepare its folder: {error}"))?;
        let certificate = Self { dir };
        let (cert, key) = certificate.files();
        let mut command = Command::new("openssl");
        command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]);
        command.args(["-days", "30", "-subj", "/CN=localhost", "-keyout"]).arg(&key).arg("-out").arg(&cert);
        let output = command.stdin(Stdio::null()).output().map_err(|error| format!("openssl: {error}"))?;
        match output.status.success() {
            true => Ok(certificate),
            false => {
                Err(String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or_default().to_owned())
            }
        }
    }

    /// Copies the certificate and its key into `folder`, and returns the paths of the copies.
    fn copy_to(&self, folder: &Path) -> io::Result<(PathBuf, PathBuf)> {
        let (cert, key) = self.files();
        let copies = (folder.join("cert.pem"), folder.join("key.pem"));
        fs::copy(cert, &copies.0)?;
        fs::copy(key, &copies.1)?;
        Ok(copies)
    }

    /// Returns the paths of the TLS certificate and its key.
    fn files(&self) -> (PathBuf, PathBuf) {
        (self.dir.path().join("cert.pem"), self.dir.path().join("key.pem"))
    }
}

/// An engine under measurement that has been started or was already running.
pub struct Running {
    /// The name of the engine in the study.
    pub name: String,
    /// The process ID of the engine; `None` if it runs on another machine or the ID is unknown.
    pub pid: Option<u32>,
    tcp: Option<(String, u16)>,
    tls: Option<(String, u16)>,
    socket: Option<PathBuf>,
    password: Option<String>,
    /// The relays that clients connect to instead of the engine, with the transport of each, if a
    /// relay simulates the link.
    relays: Vec<(Transport, Relay)>,
    /// The process of the engine, if this value started it.
    child: Option<Arc<Mutex<Child>>>,
    _leftover: Option<CleanupAction>,
    ready_within: Duration,
    log: PathBuf,
    _dir: Option<TempDir>,
}

impl Running {
    /// Starts `engine` with `threads` I/O threads and waits until it replies to PING. An engine
    /// that already runs must reply at once. Starts a relay for each of its TCP ports if relays
    /// simulate the link. The error is one line.
    pub fn start(
        study: &Study,
        engine: &Engine,
        threads: u32,
        around: Environment<'_>,
    ) -> Result<Self, String> {
        let mut running = match (&engine.start, &engine.address) {
            (Some(line), _) => Self::spawn(study, engine, line.get_ref(), threads, around)?,
            (None, Some(address)) => Self::found(study, engine.name(), address.get_ref())?,
            (None, None) => return Err("neither start nor address".to_owned()),
        };
        running.wait_until_ready(around.interrupt)?;
        if running.child.is_none() {
            running.pid = running.local_pid();
        }
        if let Some(shape) = around.link.and_then(Link::shape) {
            for (transport, place) in [(Transport::Tcp, &running.tcp), (Transport::Tls, &running.tls)] {
                let Some((host, port)) = place else { continue };
                let failed = |error: io::Error| format!("cannot start a relay to the engine: {error}");
                let mut addresses = (host.as_str(), *port).to_socket_addrs().map_err(failed)?;
                let address = addresses.next().ok_or("its host name has no address")?;
                running.relays.push((transport, Relay::start(address, shape).map_err(failed)?));
            }
        }
        Ok(running)
    }

    fn spawn(
        study: &Study,
        engine: &Engine,
        line: &str,
        threads: u32,
        around: Environment<'_>,
    ) -> Result<Self, String> {
        let namespace = around.link.and_then(Link::namespace);
        let tls = around.certificate.zip(engine.tls_options.as_ref());
        let line = command_line::whole(line, tls.map(|(_, options)| options.get_ref().as_str()));
        let system = |error: io::Error| format!("cannot prepare its folder: {error}");
        let dir = scratch_folder(engine).map_err(system)?;
        let certificate = tls.map(|(certificate, _)| certificate.copy_to(dir.path())).transpose();
        let (cert, key) = certificate.map_err(system)?.unwrap_or_default();
        let socket = dir.path().join("engine.sock");
        let seen = |path: &Path| engine.sees(path);
        let places = Places {
            port: free_port().map_err(system)?,
            socket: seen(&socket),
            threads,
            password: study.load.password.clone().unwrap_or_default(),
            dir: seen(dir.path()),
            bind: namespace.map_or_else(|| Ipv4Addr::LOCALHOST.to_string(), Namespace::address),
            tls_port: free_port().map_err(system)?,
            certificate: (seen(&cert), seen(&key)),
        };
        let words = command_line::fill(&line, &places)?;
        let program =
            command_line::find_program(&words[0]).ok_or(format!("{} is not installed", words[0]))?;
        let prefix: Vec<String> =
            namespace.map_or_else(Vec::new, |namespace| namespace.prefix().map(str::to_owned).to_vec());
        let program = [program.to_string_lossy().into_owned()];
        let words: Vec<&String> = prefix.iter().chain(&program).chain(&words[1..]).collect();
        let log_path = dir.path().join("engine.log");
        let log = File::create(&log_path).map_err(system)?;
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir(dir.path()).stdin(Stdio::null());
        command.stdout(log.try_clone().map_err(system)?).stderr(log);
        // A separate process group. Ctrl-C reaches only saker-bench, which then stops the engine in
        // order.
        command.process_group(0);
        let child = command.spawn().map_err(|error| format!("cannot start {}: {error}", words[0]))?;
        let pid = child.id();
        let child = Arc::new(Mutex::new(child));
        let (left, left_dir) = (Arc::clone(&child), dir.path().to_owned());
        let leftover = around.interrupt.on_exit(move || {
            // Both fail only if the process or the directory no longer exists.
            let _ = lock(&left).kill();
            let _ = fs::remove_dir_all(left_dir);
        });
        let uses = |place: &str| line.contains(place);
        Ok(Self {
            name: engine.name().to_owned(),
            pid: Some(pid),
            tls: tls.map(|_| (places.bind.clone(), places.tls_port)),
            tcp: uses("{port}").then(|| (places.bind.clone(), places.port)),
            socket: uses("{socket}").then_some(socket),
            password: study.load.password.clone(),
            relays: Vec::new(),
            child: Some(child),
            _leftover: Some(leftover),
            ready_within: Duration::from_secs_f64(engine.ready_within_seconds),
            log: log_path,
            _dir: Some(dir),
        })
    }

    fn found(study: &Study, name: &str, address: &str) -> Result<Self, String> {
        let (mut tcp, mut socket) = (None, None);
        match address.rsplit_once(':') {
            Some((host, port)) if !address.starts_with('/') => {
                let port = port.parse().map_err(|_| format!("{address:?} has no port"))?;
                tcp = Some((host.trim_matches(['[', ']']).to_owned(), port));
            }
            _ => socket = Some(PathBuf::from(address)),
        }
        let password = study.load.password.clone();
        Ok(Self {
            name: name.to_owned(),
            pid: None,
            tls: None,
            tcp,
            socket,
            password,
            relays: Vec::new(),
            child: None,
            _leftover: None,
            ready_within: Duration::ZERO,
            log: PathBuf::new(),
            _dir: None,
        })
    }

    /// Returns the address of the engine itself, not of a relay, for `transport`, with the settings
    /// for RESP version `resp`. Returns a one-line error if the engine does not have `transport`.
    pub fn target(&self, transport: Transport, resp: u8) -> Result<Target, String> {
        let endpoint = match transport {
            Transport::Tcp => {
                let tcp = self.tcp.clone().map(|(host, port)| Endpoint::Tcp { host, port });
                tcp.ok_or("its start command has no {port}")?
            }
            Transport::Unix => {
                Endpoint::Unix(self.socket.clone().ok_or("its start command has no {socket}")?)
            }
            Transport::Tls => {
                let tls = self.tls.clone().map(|(host, port)| Endpoint::Tcp { host, port });
                tls.ok_or("the study has no tls_options for it")?
            }
        };
        // The certificate was created for this study, so a check of it would prove nothing.
        let tls = (transport == Transport::Tls).then(|| Tls { insecure: true, ..Tls::default() });
        Ok(Target { endpoint, password: self.password.clone(), resp3: resp == 3, tls, ..Target::default() })
    }

    /// Returns the address to which the load is sent over `transport`: the relay if one simulates
    /// the link, otherwise the engine. `resp` is the version of RESP. Returns a one-line error if
    /// the engine does not have `transport`.
    pub fn distant(&self, transport: Transport, resp: u8) -> Result<Target, String> {
        let mut target = self.target(transport, resp)?;
        if let Some(relay) = self.relay(transport) {
            let address = relay.address();
            target.endpoint = Endpoint::Tcp { host: address.ip().to_string(), port: address.port() };
        }
        Ok(target)
    }

    /// Returns the relay in front of the engine for `transport`; `None` without one.
    pub fn relay(&self, transport: Transport) -> Option<&Relay> {
        self.relays.iter().find(|(way, _)| *way == transport).map(|(_, relay)| relay)
    }

    /// Opens a control connection to the engine and authenticates.
    pub fn control(&self) -> io::Result<Control> {
        Control::connect(&self.control_target()?)
    }

    /// Opens a control connection to the engine without AUTH. AUTH would wait for a reply, which a
    /// silent engine never sends.
    fn greet(&self) -> io::Result<Control> {
        Control::connect(&Target { password: None, ..self.control_target()? })
    }

    fn control_target(&self) -> io::Result<Target> {
        let transport = if self.tcp.is_some() { Transport::Tcp } else { Transport::Unix };
        self.target(transport, 2).map_err(io::Error::other)
    }

    /// Returns true if this value started the engine and may delete its data.
    pub fn is_started_by_study(&self) -> bool {
        self.child.is_some()
    }

    /// Returns true if the process of the engine runs. For an engine that this value did not start,
    /// returns true if it accepts connections.
    pub fn is_alive(&self) -> bool {
        match &self.child {
            Some(child) => matches!(lock(child).try_wait(), Ok(None)),
            None => self.greet().is_ok(),
        }
    }

    /// Returns true if the engine replies to PING within the smaller of `within` and
    /// [`ANSWERS_TIMEOUT`].
    pub fn answers(&self, within: Duration) -> bool {
        let ask = |mut control: Control| {
            control.wait_at_most(within.min(ANSWERS_TIMEOUT))?;
            control.ask(&["PING"])
        };
        self.greet().and_then(ask).is_ok()
    }

    fn wait_until_ready(&mut self, interrupt: &Interrupt) -> Result<(), String> {
        let deadline = Instant::now() + self.ready_within;
        loop {
            if interrupt.is_set() {
                return Err("interrupted".to_owned());
            }
            if let Some(child) = &self.child
                && let Ok(Some(status)) = lock(child).try_wait()
            {
                return Err(format!("exited during its start ({status}): {}", self.log_tail()));
            }
            let error = match self.control().and_then(|mut control| control.ask(&["PING"])) {
                Ok(resp::Value::Simple(_)) => return Ok(()),
                Ok(resp::Value::Error(reason)) => {
                    let reason = String::from_utf8_lossy(&reason).into_owned();
                    // LOADING is temporary; any other error is permanent.
                    if !reason.starts_with("LOADING") {
                        return Err(format!("replies to PING with {reason}"));
                    }
                    reason
                }
                Ok(_) => "the reply to PING is unexpected".to_owned(),
                Err(error) => error.to_string(),
            };
            let final_word = error.starts_with("WRONGPASS") || error.starts_with("ERR");
            if self.child.is_none() || final_word || Instant::now() > deadline {
                return Err(format!("does not reply: {error} {}", self.log_tail()).trim_end().to_owned());
            }
            thread::sleep(READY_POLL);
        }
    }

    /// Returns the beginning of the last line that the engine printed, for error messages.
    fn log_tail(&self) -> String {
        let bytes = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let last = text.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default();
        last.chars().take(LOG_TAIL_CHARS).collect()
    }

    /// Returns the process ID of an engine that already ran before the study; `None` if it runs on
    /// another machine.
    fn local_pid(&self) -> Option<u32> {
        let host = self.tcp.as_ref().map(|(host, _)| host.as_str());
        if !matches!(host, None | Some("127.0.0.1" | "::1" | "localhost")) {
            return None;
        }
        let info = self.control().ok()?.ask_text(&["INFO", "server"]).ok()??;
        let pid: u32 = info_field(&info, "process_id")?.parse().ok()?;
        Path::new(&format!("/proc/{pid}/stat")).exists().then_some(pid)
    }

    /// Reads the version and the settings of the engine. Returns a one-line error if the engine
    /// does not reply or has another version than the study expects.
    pub fn facts(&self, engine: &Engine) -> Result<EngineFacts, String> {
        let lost = |error: io::Error| format!("cannot read its settings: {error}");
        let mut control = self.control().map_err(lost)?;
        let info = control.ask_text(&["INFO", "server"]).map_err(lost)?.unwrap_or_default();
        let version = VERSION_FIELDS.iter().find_map(|field| info_field(&info, field)).unwrap_or_default();
        if let Some(expected) = &engine.expect_version
            && !version
                .trim_start_matches(['v', 'V'])
                .trim_start_matches("df-v")
                .starts_with(expected.as_str())
        {
            return Err(format!("its version is {version:?} instead of {expected}"));
        }
        let mut facts = EngineFacts {
            name: self.name.clone(),
            version: version.to_owned(),
            start: [&engine.start, &engine.address]
                .into_iter()
                .flatten()
                .map(|line| line.get_ref().clone())
                .collect(),
            ..EngineFacts::default()
        };
        for name in EQUAL_SETTINGS.iter().chain(SHOWN_SETTINGS) {
            if let Some(value) = control.config(name).map_err(lost)? {
                facts.settings.insert((*name).to_owned(), value);
            }
        }
        Ok(facts)
    }

    /// Returns the resident memory of the engine in bytes: from /proc if the process ID is known,
    /// otherwise from INFO. Returns `None` if it cannot be read.
    pub fn rss_bytes(&self) -> Option<u64> {
        if let Some(pid) = self.pid {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
            return Some(line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()? * 1024);
        }
        self.memory_field("used_memory_rss")
    }

    /// Returns the memory that the engine has allocated, in bytes, once two readings are equal or
    /// after [`SETTLE_TIMEOUT`]. An engine may free deleted data after its reply. Returns `None` if
    /// the engine does not report it.
    pub fn settled_memory_bytes(&self) -> Option<u64> {
        let deadline = Instant::now() + SETTLE_TIMEOUT;
        let mut last = self.memory_field("used_memory")?;
        loop {
            thread::sleep(SETTLE_POLL);
            let now = self.memory_field("used_memory")?;
            if now.abs_diff(last) <= SETTLED_BYTES || Instant::now() >= deadline {
                return Some(now);
            }
            last = now;
        }
    }

    /// Returns the number that the engine's INFO shows for `field` in its section about memory;
    /// `None` if there is none.
    fn memory_field(&self, field: &str) -> Option<u64> {
        let info = self.control().ok()?.ask_text(&["INFO", "memory"]).ok()??;
        info_field(&info, field)?.parse().ok()
    }
}

impl Drop for Running {
    /// Stops an engine that this value started: SIGTERM, then SIGKILL after [`END_TIMEOUT`].
    fn drop(&mut self) {
        let Some(child) = &self.child else { return };
        let deadline = Instant::now() + END_TIMEOUT;
        let is_there = || matches!(lock(child).try_wait(), Ok(None));
        if let Some(pid) = self.pid.and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw)
            && is_there()
        {
            // Both fail only if the process has already ended. A stopped process receives SIGTERM
            // when it continues.
            let _ = kill_process(pid, Signal::TERM);
            let _ = kill_process(pid, Signal::CONT);
        }
        while is_there() && Instant::now() < deadline {
            thread::sleep(READY_POLL);
        }
        // Both fail only if the process has already ended.
        let _ = lock(child).kill();
        let _ = lock(child).wait();
    }
}

/// Locks the process handle of an engine. The lock is held only during short system calls: `wait`
/// is called only after SIGKILL.
fn lock(child: &Mutex<Child>) -> MutexGuard<'_, Child> {
    child.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns one line for each of [`EQUAL_SETTINGS`] that differs between the engines.
pub fn differences(engines: &[EngineFacts]) -> Vec<String> {
    let mut lines = Vec::new();
    for name in EQUAL_SETTINGS {
        let known: Vec<_> = engines
            .iter()
            .filter_map(|engine| Some((&engine.name, normal(engine.settings.get(*name)?))))
            .collect();
        if known.windows(2).any(|pair| pair[0].1 != pair[1].1) {
            let values: Vec<_> = known.iter().map(|(engine, value)| format!("{engine} {value:?}")).collect();
            lines.push(format!("{name} differs: {}", values.join(", ")));
        }
    }
    lines
}

/// Removes quotes and spaces around the value of a setting, because some engines show an empty
/// value as quotes.
fn normal(value: &str) -> &str {
    value.trim_matches('"').trim()
}

/// Creates a temporary scratch directory for `engine`, inside its root directory if it has one.
fn scratch_folder(engine: &Engine) -> io::Result<TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("saker-bench-");
    let Some(root) = &engine.root else { return builder.tempdir() };
    let tmp = root.join("tmp");
    builder.tempdir_in(if tmp.is_dir() { &tmp } else { root })
}

/// Returns a TCP port of the loopback interface on which no program listens at present.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}
