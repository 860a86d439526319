//! A server for tests: an implementation of [`Commands`] that stores only strings.

use std::collections::BTreeMap;

use resp::Protocol;
use script::{Call, Commands, LogLevel, NoSuchCall, Repl, RunError, Sha, Stop, Vm, VmOptions};
use stdx::ByteQueue;

#[derive(Default)]
pub struct Server {
    pub strings: BTreeMap<Vec<u8>, Vec<u8>>,
    pub log: Vec<(LogLevel, Vec<u8>)>,
    /// The number of times that `interrupt` lets a script continue; `None` for no limit.
    pub patience: Option<u32>,
    /// The reply to the last command that a script called.
    pub reply: Vec<u8>,
}

impl Commands for Server {
    fn call(&mut self, words: &[&[u8]], protocol: Protocol) -> Result<&[u8], Stop> {
        let reply = &mut self.reply;
        reply.clear();
        let null: &[u8] = if protocol == Protocol::Resp2 { b"$-1\r\n" } else { b"_\r\n" };
        match (words[0].to_ascii_lowercase().as_slice(), &words[1..]) {
            (b"set", [key, value]) => {
                self.strings.insert(key.to_vec(), value.to_vec());
                reply.extend_from_slice(b"+OK\r\n");
            }
            (b"get", [key]) => match self.strings.get(*key) {
                Some(value) => {
                    reply.extend_from_slice(format!("${}\r\n", value.len()).as_bytes());
                    reply.extend_from_slice(value);
                    reply.extend_from_slice(b"\r\n");
                }
                None => reply.extend_from_slice(null),
            },
            // Returns the reply that the argument gives.
            (b"reply", [raw]) => reply.extend_from_slice(raw),
            (b"again", []) => return Err(Stop::Again),
            (b"eval", _) => {
                reply.extend_from_slice(b"-ERR This Redis command is not allowed from script\r\n");
            }
            (b"set" | b"get" | b"incr", _) => {
                reply.extend_from_slice(b"-ERR Wrong number of args calling Redis command from script\r\n");
            }
            _ => reply.extend_from_slice(b"-ERR Unknown Redis command called from script\r\n"),
        }
        Ok(reply)
    }

    fn interrupt(&mut self) -> Result<(), Stop> {
        match &mut self.patience {
            Some(0) => Err(Stop::Killed),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn log(&mut self, level: LogLevel, message: &[u8]) {
        self.log.push((level, message.to_vec()));
    }

    fn set_repl(&mut self, _: Repl) {}

    fn acl_check_cmd(&mut self, words: &[&[u8]]) -> Result<bool, NoSuchCall> {
        let is_known = [b"set".as_slice(), b"get", b"incr"].contains(&words[0]);
        if is_known { Ok(true) } else { Err(NoSuchCall::Command) }
    }
}

pub fn options() -> VmOptions {
    VmOptions {
        redis_version: "8.0.2".to_owned(),
        redis_version_number: 0x0008_0002,
        server_name: "saker".to_owned(),
        server_version: "0.1.0".to_owned(),
        memory_limit_bytes: None,
    }
}

/// Runs EVAL; returns its reply as bytes on the wire.
pub fn eval(vm: &mut Vm, server: &mut dyn Commands, program: &[u8], protocol: Protocol) -> Vec<u8> {
    let sha = Sha::of(program);
    if let Err(error) = vm.compile(&sha, program) {
        return [b"-", error.0.as_slice(), b"\r\n"].concat();
    }
    let call = Call { keys: &[], args: &[b"a", b"b"], protocol };
    let mut reply = ByteQueue::new();
    match vm.run(&sha, &call, server, &mut reply) {
        Ok(()) => reply.as_single().unwrap_or_default().to_vec(),
        Err(RunError::Error(error) | RunError::Killed(error)) => {
            [b"-", error.line.as_slice(), b"\r\n"].concat()
        }
        Err(error) => format!("{error:?}").into_bytes(),
    }
}
