//! The state of a script's debugger. It is plain data: the debugger ([`crate::debug`]) works on it,
//! and code that raises an error writes to its log.

use std::ops::RangeInclusive;

/// The connection of a client that debugs a script.
pub trait DebugClient {
    /// Sends encoded output of the debugger to the client.
    fn send(&mut self, bytes: &[u8]);

    /// Waits for some time for input from the client, and appends the input to `input`.
    fn receive(&mut self, input: &mut Vec<u8>) -> Received;

    /// Returns true if the script has run for too long since the client's last input.
    fn is_overdue(&mut self) -> bool;
}

/// The result of waiting for input from a client that debugs a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// The client has sent input, which was appended.
    Bytes,
    /// The client has sent nothing during the wait.
    Nothing,
    /// The client has closed the connection.
    Gone,
}

/// The maximum number of breakpoints in a debugged script.
pub(crate) const BREAKPOINTS_MAX: usize = 64;
/// The default length at which the debugger cuts the texts of values, in bytes.
const LEN_BYTES_DEFAULT: usize = 256;
/// The maximum size of the debugger's log lines that are not sent yet, in bytes. Further lines are
/// dropped.
const LOG_BYTES_MAX: usize = 64 << 20;
/// The limit of input for the debugger that is not yet a whole command, in bytes.
pub(crate) const INPUT_BYTES_MAX: usize = 1 << 20;

/// The state of a script's debugger.
pub(crate) struct DebugState {
    client: Box<dyn DebugClient>,
    /// The received bytes of the debugging client that are not yet a whole command.
    pub(crate) input: Vec<u8>,
    /// The lines of the debugged script's source.
    lines: Vec<Vec<u8>>,
    pub(crate) breakpoints: Vec<i32>,
    pub(crate) current_line: i32,
    /// True if the script will stop at its next line. Until then the debugger logs the commands
    /// that it calls.
    pub(crate) steps: bool,
    /// True from the script's call of `redis.breakpoint` until the script stops.
    pub(crate) is_at_breakpoint: bool,
    /// True while code from the client (`eval`) runs. Steps and breakpoints have no effect in that
    /// code.
    pub(crate) evaluates: bool,
    /// The length at which the texts of values are cut, in bytes (`maxlen`); 0 for no limit.
    pub(crate) len_bytes_max: usize,
    /// True after the client was informed that long lines are cut, or has set the length itself.
    pub(crate) knows_cutting: bool,
    /// The debugger's log lines that are not sent yet, encoded for the client.
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

    /// Appends a line for the client to the debugger's log.
    pub(crate) fn log(&mut self, line: &[u8]) {
        if self.log.len() + line.len() > LOG_BYTES_MAX {
            return;
        }
        self.log.push(b'+');
        self.log.extend(line.iter().map(|&byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }));
        self.log.extend_from_slice(b"\r\n");
        self.log_lines += 1;
    }

    /// Appends the text of a value to the debugger's log, cut if it is too long.
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

    /// Appends a line of the script's source to the debugger's log, with its number and marks for
    /// the current line and breakpoints.
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

    /// Returns the range of the script's line numbers, from 1.
    pub(crate) fn line_numbers(&self) -> RangeInclusive<i32> {
        1..=i32::try_from(self.lines.len()).unwrap_or(i32::MAX)
    }

    /// Sends the debugger's log lines to the client, and empties the log.
    pub(crate) fn send(&mut self) {
        let mut bytes = format!("*{}\r\n", std::mem::take(&mut self.log_lines)).into_bytes();
        bytes.append(&mut self.log);
        self.client.send(&bytes);
    }

    /// Waits for some time for input from the client, and adds it to `input`.
    pub(crate) fn receive(&mut self) -> Received {
        self.client.receive(&mut self.input)
    }

    /// Returns true if the script has run for too long without a stop.
    pub(crate) fn is_overdue(&mut self) -> bool {
        self.client.is_overdue()
    }
}
