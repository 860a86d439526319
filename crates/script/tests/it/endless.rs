//! Tests of the scripts in `endless.txt`, which never end, or only after hours. Each must ask the
//! server often enough if it may continue. It must end if it may not, and leave no memory in use.

use std::time::Duration;

use resp::Protocol;
use script::{Commands, LogLevel, NoSuchCall, Repl, Stop, Vm};

use crate::server::{Server, eval, options};

/// The number of calls of [`Commands::interrupt`] that let a script continue; the next one ends it.
const PATIENCE: u32 = 20;
/// The maximum CPU time between two calls of [`Commands::interrupt`] in a debug build. It is long
/// because a huge value is made in one step.
const GAP_MAX: Duration = Duration::from_millis(500);
/// The maximum memory that Lua may hold after an endless script was ended, in bytes.
const MEMORY_MAX: usize = 8 << 20;

/// A server that measures the longest CPU time between two calls of [`Commands::interrupt`].
#[derive(Default)]
struct Watch {
    server: Server,
    asked: u32,
    last: Duration,
    longest: Duration,
}

/// Returns the CPU time that the thread has used so far.
fn thread_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux has it");
    let ns = text.split(' ').next().and_then(|ns| ns.parse().ok());
    Duration::from_nanos(ns.expect("the first number"))
}

impl Watch {
    fn look(&mut self) {
        let now = thread_time();
        self.longest = self.longest.max(now - self.last);
        self.last = now;
    }
}

impl Commands for Watch {
    fn call(&mut self, words: &[&[u8]], protocol: Protocol) -> Result<&[u8], Stop> {
        self.interrupt()?;
        self.server.call(words, protocol)
    }

    fn interrupt(&mut self) -> Result<(), Stop> {
        self.look();
        self.asked += 1;
        if self.asked > PATIENCE { Err(Stop::Killed) } else { Ok(()) }
    }

    fn log(&mut self, level: LogLevel, message: &[u8]) {
        self.server.log(level, message);
    }

    fn set_repl(&mut self, repl: Repl) {
        self.server.set_repl(repl);
    }

    fn acl_check_cmd(&mut self, words: &[&[u8]]) -> Result<bool, NoSuchCall> {
        self.server.acl_check_cmd(words)
    }
}

#[test]
fn scripts_that_never_end_are_asked_often_and_can_be_ended() {
    let mut vm = Vm::new(&options());
    let mut slow = Vec::new();
    for script in include_str!("endless.txt").lines() {
        let mut watch = Watch { last: thread_time(), ..Watch::default() };
        let reply = eval(&mut vm, &mut watch, script.as_bytes(), Protocol::Resp2);
        watch.look();
        let reply = reply.escape_ascii().to_string();
        assert!(reply.starts_with("-ERR Script killed by user"), "{script}: {reply}");
        println!("{:>5} ms {script}", watch.longest.as_millis());
        if watch.longest > GAP_MAX {
            slow.push(format!("{:?} {script}", watch.longest));
        }
    }
    assert!(slow.is_empty(), "asked too rarely:\n{}", slow.join("\n"));
    vm.collect_garbage();
    vm.collect_garbage();
    assert!(vm.memory_bytes() < MEMORY_MAX, "{} bytes", vm.memory_bytes());
}
