//! A hint for the processor to load a cache line that will be needed soon.

/// Starts loading the cache line at the address `place` into all caches. Never faults, even for an
/// invalid address.
#[inline(always)]
pub fn prefetch_read<T>(place: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch of any address is allowed; it only hints.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(place.cast()) };
    }
    #[cfg(target_arch = "aarch64")]
    {
        // SAFETY: a prefetch of any address is allowed; it only hints.
        unsafe { std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) place, options(nostack, preserves_flags)) };
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = place;
}
