//! The functions of mimalloc that the allocator calls, from the library that `build.rs` makes of
//! the patched sources. `mimalloc.h` describes them.

use std::ffi::{c_char, c_int, c_long, c_void};

/// The number of an option, as in `mi_option_t` of `mimalloc.h`.
pub(super) type OptionNumber = c_int;
/// A function that receives a zero-terminated text that mimalloc prints and the argument of its
/// registration.
pub(super) type Output = unsafe extern "C" fn(message: *const c_char, argument: *mut c_void);

unsafe extern "C" {
    pub(super) fn mi_malloc(len_bytes: usize) -> *mut c_void;
    pub(super) fn mi_zalloc(len_bytes: usize) -> *mut c_void;
    pub(super) fn mi_realloc(block: *mut c_void, len_bytes: usize) -> *mut c_void;
    pub(super) fn mi_malloc_aligned(len_bytes: usize, alignment: usize) -> *mut c_void;
    pub(super) fn mi_zalloc_aligned(len_bytes: usize, alignment: usize) -> *mut c_void;
    pub(super) fn mi_realloc_aligned(block: *mut c_void, len_bytes: usize, alignment: usize) -> *mut c_void;
    pub(super) fn mi_free(block: *mut c_void);
    pub(super) fn mi_usable_size(block: *const c_void) -> usize;
    #[cfg(test)]
    pub(super) fn mi_good_size(len_bytes: usize) -> usize;
    pub(super) fn mi_collect(force: bool);
    pub(super) fn mi_option_set(option: OptionNumber, value: c_long);
    pub(super) fn mi_version() -> c_int;
    pub(super) fn mi_stats_print_out(output: Option<Output>, argument: *mut c_void);
    pub(super) fn mi_process_info(
        elapsed_ms: *mut usize,
        user_ms: *mut usize,
        system_ms: *mut usize,
        rss_bytes: *mut usize,
        rss_peak_bytes: *mut usize,
        committed_bytes: *mut usize,
        committed_peak_bytes: *mut usize,
        page_faults: *mut usize,
    );
}
