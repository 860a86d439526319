//! The second Lua state of a thread, which only checks that scripts compile and that libraries
//! load. The first state runs them.

use std::cell::RefCell;

use commands::CommandError;
use script::{Commands, CompileError, Library, LogLevel, ScriptFlags, Sha, Vm};

use crate::scripting::vm_options;

thread_local! {
    /// The Lua state in which this thread checks the scripts of SCRIPT LOAD and the libraries.
    static COMPILER: RefCell<Option<Vm>> = const { RefCell::new(None) };
}

/// Compiles a script as a check, and returns the flags that it declares.
///
/// # Errors
/// The script does not compile.
pub fn compile(sha: &Sha, body: &[u8]) -> Result<ScriptFlags, CompileError> {
    COMPILER.with_borrow_mut(|vm| {
        let vm = vm.get_or_insert_with(|| Vm::new(&vm_options()));
        let flags = vm.compile(sha, body);
        vm.evict(sha);
        flags
    })
}

/// Loads a library of functions as a check, and returns its description. Afterwards removes the
/// library from the Lua state in which it was checked.
///
/// # Errors
/// The library does not load.
pub fn load_library(source: &[u8], commands: &mut dyn Commands) -> Result<Library, CommandError> {
    COMPILER.with_borrow_mut(|vm| {
        let vm = vm.get_or_insert_with(|| Vm::new(&vm_options()));
        let library = vm.load_library(source, commands).map_err(|error| CommandError::Bytes(error.0))?;
        vm.drop_library(&library.name);
        Ok(library)
    })
}

/// Logs a message of `redis.log` at the matching level.
pub fn log(level: LogLevel, message: &[u8]) {
    let message = message.escape_ascii();
    match level {
        LogLevel::Debug => tracing::trace!("{message}"),
        LogLevel::Verbose => tracing::debug!("{message}"),
        LogLevel::Notice => tracing::info!("{message}"),
        LogLevel::Warning => tracing::warn!("{message}"),
    }
}
