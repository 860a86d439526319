//! The data of one Lua state that our code keeps in addition to Lua's own data.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::ptr::{self, NonNull};

use resp::Protocol;

use super::blocks::Blocks;
use crate::commands::{Commands, Stop};
use crate::debug_state::DebugState;
use crate::json_settings::Settings;
use crate::pattern::Matcher;

/// The number of allocated or processed bytes after which the server is asked if the script may
/// continue. Writing this number of bytes takes about a millisecond.
const WORKED_BYTES_MAX: usize = 4 << 20;

/// A place in a script: the name of its source and the line number.
pub(crate) type Place = (Vec<u8>, i32);

/// The data of one Lua state that our code keeps. Lua passes its address to our allocator and
/// functions.
pub(crate) struct Context {
    /// The free blocks of memory, kept for Lua's next allocations.
    pub(super) blocks: Blocks,
    /// The memory that the Lua state holds, in bytes.
    pub(super) used_bytes: Cell<usize>,
    /// The memory limit for Lua's own code, in bytes; `usize::MAX` without a limit.
    pub(super) limit_bytes: Cell<usize>,
    /// The number of bytes allocated or processed since the server was last asked if the script may
    /// continue.
    pub(super) worked_bytes: Cell<usize>,
    /// The number of nested functions of ours that run above the innermost Lua code. 0 while Lua's
    /// own code runs: only then may the allocator refuse memory. The code outside of all calls
    /// counts as one function.
    pub(super) native_depth: Cell<u32>,
    /// The interface to the server while a script runs; otherwise `None`.
    pub(super) commands: Cell<Option<NonNull<dyn Commands>>>,
    /// The reason why the script must end. `None` if it may continue. A stopped script raises an
    /// error again and again until it has ended.
    pub(super) stopped: Cell<Option<Stop>>,
    /// The protocol of the replies that the script gets, set by `redis.setresp`.
    pub(crate) protocol: Cell<Protocol>,
    /// True while a library of functions is being loaded. Only then may `redis.register_function`
    /// be called.
    pub(crate) loading: Cell<bool>,
    /// True while a function of a library (FCALL) runs.
    pub(crate) in_function: Cell<bool>,
    /// The state of the random number generator of `math.random`.
    pub(crate) rng: Cell<Rng>,
    /// The settings of the `cjson` table, as scripts have set them.
    pub(crate) json: Cell<Settings>,
    /// The output buffer of `cjson.encode`, kept for the next call.
    pub(crate) json_buffer: RefCell<Vec<u8>>,
    /// The addresses of all shells: the empty tables through which scripts read the tables that
    /// they may not change (see `shell`).
    pub(crate) shells: RefCell<Vec<usize>>,
    /// The source and line where the script was stopped; `None` if it was not.
    pub(crate) stopped_at: RefCell<Option<Place>>,
    /// The address in the thread's stack (not Lua's) where the script's run began, from which the
    /// used part of that stack is measured.
    pub(crate) stack_start: Cell<usize>,
    /// The debugger's state, `None` unless the script is debugged.
    pub(crate) debugging: RefCell<Option<Box<DebugState>>>,
    /// The address of the function to call when the script begins a line; null if lines are not
    /// watched.
    pub(super) on_event: Cell<*const c_void>,
    /// The pattern matcher of the last call of a pattern function, kept for the next one.
    pub(crate) matcher: Cell<Option<Box<Matcher>>>,
    /// The last error raised by a function that one of our functions called: its text or address,
    /// and the source and line where it was raised.
    pub(crate) raised_at: RefCell<Option<(Vec<u8>, Place)>>,
    /// The functions that a library being loaded has registered.
    pub(crate) registered: RefCell<crate::flags::Registered>,
}

/// The state of the random number generator of `math.random`: the 48 bits of `lrand48`.
#[derive(Clone, Copy)]
pub(crate) struct Rng(u64);

impl Rng {
    /// Creates the random number generator in the state that `drand48` has without a seed.
    pub(crate) fn unseeded() -> Self {
        Self(0x1234_abcd_330e)
    }

    /// Creates the random number generator from a seed, as `srand48` does.
    pub(crate) fn new(seed: i32) -> Self {
        Self((u64::from(seed as u32) << 16) | 0x330e)
    }

    /// Returns the next 31 random bits, as `lrand48` does.
    pub(crate) fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(0x5_deec_e66d).wrapping_add(0xb) & 0xffff_ffff_ffff;
        (self.0 >> 17) as u32
    }
}

impl Context {
    pub(super) fn new(limit_bytes: Option<usize>) -> Self {
        Self {
            blocks: Blocks::new(),
            used_bytes: Cell::new(0),
            limit_bytes: Cell::new(limit_bytes.unwrap_or(usize::MAX)),
            worked_bytes: Cell::new(0),
            native_depth: Cell::new(1),
            commands: Cell::new(None),
            stopped: Cell::new(None),
            protocol: Cell::new(Protocol::Resp2),
            loading: Cell::new(false),
            in_function: Cell::new(false),
            rng: Cell::new(Rng::unseeded()),
            json: Cell::new(Settings::default()),
            json_buffer: RefCell::new(Vec::new()),
            shells: RefCell::new(Vec::new()),
            stopped_at: RefCell::new(None),
            stack_start: Cell::new(0),
            debugging: RefCell::new(None),
            on_event: Cell::new(ptr::null()),
            matcher: Cell::new(None),
            raised_at: RefCell::new(None),
            registered: RefCell::default(),
        }
    }

    /// Calls `ask` with the interface to the server; returns `None` if no script runs.
    pub(crate) fn with_commands<R>(&self, ask: impl FnOnce(&mut dyn Commands) -> R) -> Option<R> {
        let mut commands = self.commands.take()?;
        // SAFETY: `State::with_commands` stored this address, and borrows its target mutably until
        // it removes the address. Taking the address out of the cell makes this the only user.
        let result = ask(unsafe { commands.as_mut() });
        self.commands.set(Some(commands));
        Some(result)
    }

    /// Asks the server, in the middle of long work, if the script may continue. Returns `Err` if it
    /// must end.
    pub(crate) fn interrupt(&self) -> Result<(), Stop> {
        self.worked_bytes.set(0);
        if let Some(stop) = self.stopped.get() {
            return Err(stop);
        }
        match self.with_commands(|commands| commands.interrupt()) {
            Some(Err(stop)) => {
                self.stopped.set(Some(stop));
                Err(stop)
            }
            _ => Ok(()),
        }
    }

    /// Counts bytes that were allocated or processed. After [`WORKED_BYTES_MAX`], asks the server
    /// if the script may continue (`Err` if it must end), and begins to count anew.
    #[inline]
    pub(super) fn work(&self, len_bytes: usize) -> Result<(), Stop> {
        let worked = self.worked_bytes.get().saturating_add(len_bytes);
        self.worked_bytes.set(worked);
        if worked < WORKED_BYTES_MAX { Ok(()) } else { self.interrupt() }
    }

    /// Ends the script: from then on every call of our functions and of the periodic hook raises an
    /// error.
    pub(crate) fn stop(&self, stop: Stop) {
        self.stopped.set(Some(stop));
    }

    /// Returns the memory limit of Lua's own code, in bytes; `usize::MAX` without a limit.
    pub(crate) fn limit_bytes(&self) -> usize {
        self.limit_bytes.get()
    }

    /// Sets the memory limit of Lua's own code, in bytes.
    pub(crate) fn set_limit(&self, limit_bytes: Option<usize>) {
        self.limit_bytes.set(limit_bytes.unwrap_or(usize::MAX));
    }

    /// Returns true if Lua holds more memory than its limit.
    pub(super) fn is_over_limit(&self) -> bool {
        self.used_bytes.get() > self.limit_bytes.get()
    }
}
