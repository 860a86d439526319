//! What belongs to one Lua state besides Lua's own data.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::ptr::{self, NonNull};

use resp::Protocol;

use super::blocks::Blocks;
use crate::commands::{Commands, Stop};
use crate::debug_state::DebugState;
use crate::json_settings::Settings;
use crate::pattern::Matcher;

/// So many bytes take about a millisecond to write.
const WORKED_BYTES_MAX: usize = 4 << 20;

/// A line of a script: source and line.
pub(crate) type Place = (Vec<u8>, i32);

/// What belongs to one Lua state; Lua holds its address as that of the allocator's data.
pub(crate) struct Context {
    /// What Lua gave back and will want again.
    pub(super) blocks: Blocks,
    /// Bytes that Lua holds.
    pub(super) used_bytes: Cell<usize>,
    /// Above that, Lua's own code gets no memory; `usize::MAX` without a limit.
    pub(super) limit_bytes: Cell<usize>,
    /// Bytes that were allocated or worked through since it was asked whether the script may go on.
    pub(super) worked_bytes: Cell<usize>,
    /// How many functions of ours are on the stack above Lua's innermost code.
    pub(super) ours: Cell<u32>,
    /// The server, while a script runs.
    pub(super) commands: Cell<Option<NonNull<dyn Commands>>>,
    /// Set once the script has to end: it is raised again and again until it has.
    pub(super) stopped: Cell<Option<Stop>>,
    /// `redis.setresp`.
    pub(crate) protocol: Cell<Protocol>,
    /// A library is being loaded: what it may call differs.
    pub(crate) loading: Cell<bool>,
    /// A function of a library runs.
    pub(crate) in_function: Cell<bool>,
    /// `math.random`.
    pub(crate) rng: Cell<Rng>,
    /// What scripts have set of `cjson`.
    pub(crate) json: Cell<Settings>,
    /// What `cjson` writes into.
    pub(crate) json_buffer: RefCell<Vec<u8>>,
    /// The addresses of tables that stand for read-only ones.
    pub(crate) shells: RefCell<Vec<usize>>,
    /// Where the script was when it was stopped: source and line.
    pub(crate) stopped_at: RefCell<Option<Place>>,
    /// Where the stack of the thread was when the run began.
    pub(crate) stack_start: Cell<usize>,
    /// What the debugger keeps, where the script is debugged.
    pub(crate) debugging: RefCell<Option<Box<DebugState>>>,
    /// The address of what is called as lines begin, where they are watched.
    pub(super) on_event: Cell<*const c_void>,
    /// What matched patterns last.
    pub(crate) matcher: Cell<Option<Box<Matcher>>>,
    /// An error that a function called from one of ours has raised, and where.
    pub(crate) raised_at: RefCell<Option<(Vec<u8>, Place)>>,
    /// Functions that a library being loaded has registered.
    pub(crate) registered: RefCell<crate::flags::Registered>,
}

/// The state of `math.random`: the 48 bits of `lrand48`.
#[derive(Clone, Copy)]
pub(crate) struct Rng(u64);

impl Rng {
    /// As `drand48` starts without a seed.
    pub(crate) fn unseeded() -> Self {
        Self(0x1234_abcd_330e)
    }

    /// `srand48`.
    pub(crate) fn new(seed: i32) -> Self {
        Self((u64::from(seed as u32) << 16) | 0x330e)
    }

    /// `lrand48`: 31 bits.
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
            ours: Cell::new(1),
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

    /// Runs `ask` with the server; `None` when none is here.
    pub(crate) fn with_commands<R>(&self, ask: impl FnOnce(&mut dyn Commands) -> R) -> Option<R> {
        let mut commands = self.commands.take()?;
        // SAFETY: `State::with_commands` put the address here of what it has borrowed mutably until
        // it takes it away, and taking it out of the cell makes this the only user.
        let result = ask(unsafe { commands.as_mut() });
        self.commands.set(Some(commands));
        Some(result)
    }

    /// Asks whether the script may go on, in the middle of long work.
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

    /// Counts bytes that were allocated or worked through; asks whether the script may go on when
    /// they are many.
    #[inline]
    pub(super) fn work(&self, len_bytes: usize) -> Result<(), Stop> {
        let worked = self.worked_bytes.get().saturating_add(len_bytes);
        self.worked_bytes.set(worked);
        if worked < WORKED_BYTES_MAX { Ok(()) } else { self.interrupt() }
    }

    /// Ends the script: every function of ours and every hook raises from now on.
    pub(crate) fn stop(&self, stop: Stop) {
        self.stopped.set(Some(stop));
    }

    /// Returns the memory above which Lua's own code gets none, in bytes; `usize::MAX` without a
    /// limit.
    pub(crate) fn limit_bytes(&self) -> usize {
        self.limit_bytes.get()
    }

    /// What Lua's own code may take from now on, in bytes.
    pub(crate) fn set_limit(&self, limit_bytes: Option<usize>) {
        self.limit_bytes.set(limit_bytes.unwrap_or(usize::MAX));
    }

    /// Whether Lua holds more than it may.
    pub(super) fn is_over_limit(&self) -> bool {
        self.used_bytes.get() > self.limit_bytes.get()
    }
}
