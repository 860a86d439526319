//! Support for tests that run on each back end of the event loop. Include the module with
//! `#[macro_use]`.

use net::{BackendChoice, EventLoop, LoopOptions};

/// Defines tests: for each named function, one with each back end. The functions take the back end
/// as their argument.
macro_rules! on_each_backend {
    ($($name:ident,)*) => {
        mod epoll {
            $(#[test] fn $name() { super::$name(net::BackendChoice::Epoll); })*
        }
        mod io_uring {
            $(#[test] fn $name() {
                if crate::back_ends::io_uring_works() { super::$name(net::BackendChoice::IoUring); }
            })*
        }
    };
}

/// Returns true if the kernel permits io_uring here; containers often forbid it.
pub(crate) fn io_uring_works() -> bool {
    let options = LoopOptions { backend: BackendChoice::IoUring, ..LoopOptions::default() };
    EventLoop::new(&options).inspect_err(|error| println!("skipped: no io_uring here: {error}")).is_ok()
}
