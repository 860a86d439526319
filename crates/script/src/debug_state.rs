//! What the debugger of a script keeps between two lines of it. Plain data: the debugger itself
//! ([`crate::debug`]) works on it, and whatever raises an error says so in its log.

use std::ops::RangeInclusive;

/// The client that debugs a script.
pub trait DebugClient {
    /// Sends it what the debugger says.
    fn send(&mut self, bytes: &[u8]);

    /// Waits for some time for what it sends, and appends that to `input`.
    fn receive(&mut self, input: &mut Vec<u8>) -> Received;

    /// Whether the script has run for too long since the client was last received from.
    fn is_overdue(&mut self) -> bool;
}

/// What came of waiting for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// It has sent something.
    Bytes,
    /// It has sent nothing so far.
    Nothing,
    /// It is no longer connected.
    Gone,
}

/// Breakpoints at most.
pub(crate) const BREAKPOINTS_MAX: usize = 64;
/// What lines of values are cut at before the client says otherwise.
const LEN_BYTES_DEFAULT: usize = 256;
/// What is kept of lines that the client has not been sent.
const LOG_BYTES_MAX: usize = 64 << 20;
/// What a client may send beyond a command.
pub(crate) const INPUT_BYTES_MAX: usize = 1 << 20;

/// What the debugger of a script keeps.
pub(crate) struct DebugState {
    client: Box<dyn DebugClient>,
    /// What the client has sent and is not yet a whole command.
    pub(crate) input: Vec<u8>,
    /// The script.
    lines: Vec<Vec<u8>>,
    pub(crate) breakpoints: Vec<i32>,
    pub(crate) current_line: i32,
    /// It stops at the next line, and says meanwhile which commands run.
    pub(crate) steps: bool,
    /// The script has called `redis.breakpoint`.
    pub(crate) is_at_breakpoint: bool,
    /// Code of the client's runs, in which nothing stops.
    pub(crate) evaluates: bool,
    /// What lines of values are cut at, in bytes; 0 for nothing.
    pub(crate) len_bytes_max: usize,
    /// The client knows that lines are cut.
    pub(crate) knows_cutting: bool,
    /// Lines that the client has not been sent, as they will be.
    log: Vec<u8>,
    log_lines: usize,
}

impl DebugState {
    pub(crate) fn new(script: &[u8], client: Box<dyn DebugClient>) -> Self {
        let is_line_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
        let len = script.iter().rposition(|byte| !is_line_end(byte)).map_or(0, |last| last + 1);
        Self {
            client,
            input: Vec::new(),
            lines: script[..len].split(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect(),
            breakpoints: Vec::new(),
            current_line: 0,
            steps: true,
            is_at_breakpoint: false,
            evaluates: false,
            len_bytes_max: LEN_BYTES_DEFAULT,
            knows_cutting: false,
            log: Vec::new(),
            log_lines: 0,
        }
    }

    /// Adds a line for the client.
    pub(crate) fn log(&mut self, line: &[u8]) {
        if self.log.len() + line.len() > LOG_BYTES_MAX {
            return;
        }
        self.log.push(b'+');
        self.log.extend(line.iter().map(|&byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }));
        self.log.extend_from_slice(b"\r\n");
        self.log_lines += 1;
    }

    /// Adds a line of a value, cut where it is too long.
    pub(crate) fn log_value(&mut self, mut line: Vec<u8>) {
        if self.len_bytes_max == 0 || line.len() <= self.len_bytes_max {
            return self.log(&line);
        }
        line.truncate(self.len_bytes_max);
        line.extend_from_slice(b" ...");
        self.log(&line);
        if !std::mem::replace(&mut self.knows_cutting, true) {
            self.log(b"<hint> The above reply was trimmed. Use 'maxlen 0' to disable trimming.");
        }
    }

    /// Adds a line of the script.
    pub(crate) fn log_source(&mut self, number: i32) {
        let mark = match (self.current_line == number, self.breakpoints.contains(&number)) {
            (true, true) => "->#",
            (true, false) => "-> ",
            (false, true) => "  #",
            (false, false) => "   ",
        };
        let line = usize::try_from(number - 1).ok().and_then(|at| self.lines.get(at));
        let line = line.map_or(b"<out of range source code line>".as_slice(), Vec::as_slice);
        let line = [format!("{mark}{number:<3} ").as_bytes(), line].concat();
        self.log(&line);
    }

    /// The numbers of the script's lines.
    pub(crate) fn line_numbers(&self) -> RangeInclusive<i32> {
        1..=i32::try_from(self.lines.len()).unwrap_or(i32::MAX)
    }

    /// Sends the client the lines so far.
    pub(crate) fn send(&mut self) {
        let mut bytes = format!("*{}\r\n", std::mem::take(&mut self.log_lines)).into_bytes();
        bytes.append(&mut self.log);
        self.client.send(&bytes);
    }

    /// Waits for what the client sends.
    pub(crate) fn receive(&mut self) -> Received {
        self.client.receive(&mut self.input)
    }

    /// Whether the script has run for too long without a stop.
    pub(crate) fn is_overdue(&mut self) -> bool {
        self.client.is_overdue()
    }
}
