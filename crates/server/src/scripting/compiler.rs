//! A thread's Lua for what it does not run itself: to see that scripts compile and libraries load.

use std::cell::RefCell;

use commands::CommandError;
use script::{Commands, CompileError, Library, LogLevel, ScriptFlags, Sha, Vm};

use crate::scripting::vm_options;

thread_local! {
    /// The Lua that this thread compiles in what it does not run itself: SCRIPT LOAD.
    static COMPILER: RefCell<Option<Vm>> = const { RefCell::new(None) };
}

/// Whether a script compiles, and what it says about itself.
///
/// # Errors
/// It does not.
pub fn compile(sha: &Sha, body: &[u8]) -> Result<ScriptFlags, CompileError> {
    COMPILER.with_borrow_mut(|vm| {
        let vm = vm.get_or_insert_with(|| Vm::new(&vm_options()));
        let flags = vm.compile(sha, body);
        vm.evict(sha);
        flags
    })
}

/// Loads a library, to see that it loads and what it registers.
///
/// # Errors
/// It does not load.
pub fn load_library(source: &[u8], commands: &mut dyn Commands) -> Result<Library, CommandError> {
    COMPILER.with_borrow_mut(|vm| {
        let vm = vm.get_or_insert_with(|| Vm::new(&vm_options()));
        let library = vm.load_library(source, commands).map_err(|error| CommandError::Bytes(error.0))?;
        vm.drop_library(&library.name);
        Ok(library)
    })
}

/// A line of `redis.log`.
pub fn log(level: LogLevel, message: &[u8]) {
    let message = message.escape_ascii();
    match level {
        LogLevel::Debug => tracing::trace!("{message}"),
        LogLevel::Verbose => tracing::debug!("{message}"),
        LogLevel::Notice => tracing::info!("{message}"),
        LogLevel::Warning => tracing::warn!("{message}"),
    }
}
