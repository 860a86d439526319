//! The cache of scripts, shared by all threads. Its lock is a leaf in the lock order, and is held
//! only during look-ups and changes.
//!
//! As in Redis 8, the number of scripts from EVAL is limited; scripts from SCRIPT LOAD stay until
//! SCRIPT FLUSH. Each thread keeps references to scripts that it has found, so that it needs no
//! lock to find them again. [`CachedScript::is_removed`] returns true after the cache has removed
//! the script.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use engine::scripting::Learned;
use script::{ScriptFlags, Sha};

/// Maximum number of cached scripts from EVAL, as in Redis 8.
const EVAL_SCRIPTS_MAX: usize = 500;

/// The command that added a script to the script cache.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// EVAL, or a variant of it, added the script.
    Evaluated,
    /// SCRIPT LOAD added the script.
    Loaded,
}

/// A cached script: its text, its flags and the time of its last use.
pub struct CachedScript {
    /// The name of the script: the SHA1 of its text.
    pub sha: Sha,
    /// The text of the script.
    pub body: Box<[u8]>,
    /// The flags that the script declares.
    pub flags: ScriptFlags,
    /// True if SCRIPT LOAD has loaded the script, which then cannot be evicted.
    is_loaded: AtomicBool,
    /// True if the script was removed from the cache.
    is_removed: AtomicBool,
    /// The results of earlier runs of the script, which determine if the next run needs the whole
    /// keyspace.
    pub learned: Learned,
    /// The value of [`ScriptCache::clock`] when the script was last used.
    used: AtomicU64,
}

impl CachedScript {
    /// Returns true if the script was removed from the cache.
    pub fn is_removed(&self) -> bool {
        self.is_removed.load(Relaxed)
    }
}

/// The cache of the scripts of EVAL and SCRIPT LOAD, which all threads share.
#[derive(Default)]
pub struct ScriptCache {
    scripts: RwLock<Scripts>,
    /// The number of additions so far, including those of scripts that were already cached. It
    /// serves as the clock for [`CachedScript::used`].
    clock: AtomicU64,
    /// The number of evicted scripts; only scripts from EVAL are evicted.
    evicted: AtomicU64,
    /// The memory of the Lua states of all threads, in bytes.
    vm_bytes: AtomicU64,
}

#[derive(Default)]
struct Scripts {
    by_sha: HashMap<Sha, Arc<CachedScript>>,
    /// The number of scripts that EVAL added and SCRIPT LOAD did not load.
    evictable: usize,
    body_bytes: usize,
}

impl ScriptCache {
    fn read(&self) -> RwLockReadGuard<'_, Scripts> {
        self.scripts.read().expect("nothing panics while it is locked")
    }

    fn write(&self) -> RwLockWriteGuard<'_, Scripts> {
        self.scripts.write().expect("nothing panics while it is locked")
    }

    /// Finds a script by its SHA1, and records its use. Returns `None` if it is not cached.
    pub fn find(&self, sha: &Sha) -> Option<Arc<CachedScript>> {
        let script = self.read().by_sha.get(sha).map(Arc::clone)?;
        self.note_use(&script);
        Some(script)
    }

    /// Records that a script is used now, for the choice of the script to evict.
    #[inline]
    pub fn note_use(&self, script: &CachedScript) {
        let now = self.clock.load(Relaxed);
        if script.used.load(Relaxed) != now {
            script.used.store(now, Relaxed);
        }
    }

    /// Adds a script from EVAL, which has been compiled, and returns it. If the script is already
    /// cached, returns the cached one. Evicts another script from EVAL if there are
    /// [`EVAL_SCRIPTS_MAX`].
    pub fn add_evaluated(&self, sha: Sha, body: &[u8], flags: ScriptFlags) -> Arc<CachedScript> {
        self.add(sha, body, flags, Origin::Evaluated)
    }

    /// Adds a script from SCRIPT LOAD. The script stays until SCRIPT FLUSH, even if EVAL had added
    /// it before.
    pub fn add_loaded(&self, sha: Sha, body: &[u8], flags: ScriptFlags) {
        self.add(sha, body, flags, Origin::Loaded);
    }

    fn add(&self, sha: Sha, body: &[u8], flags: ScriptFlags, origin: Origin) -> Arc<CachedScript> {
        let loaded = origin == Origin::Loaded;
        let now = self.clock.fetch_add(1, Relaxed) + 1;
        let mut scripts = self.write();
        if let Some(found) = scripts.by_sha.get(&sha).map(Arc::clone) {
            if loaded && !found.is_loaded.swap(true, Relaxed) {
                scripts.evictable -= 1;
            }
            return found;
        }
        let script = Arc::new(CachedScript {
            sha,
            body: body.into(),
            flags,
            is_loaded: AtomicBool::new(loaded),
            is_removed: AtomicBool::new(false),
            learned: Learned::default(),
            used: AtomicU64::new(now),
        });
        if !loaded {
            if scripts.evictable >= EVAL_SCRIPTS_MAX {
                self.evict_one(&mut scripts);
            }
            scripts.evictable += 1;
        }
        scripts.body_bytes += body.len();
        scripts.by_sha.insert(sha, Arc::clone(&script));
        script
    }

    /// Evicts the least recently used script from EVAL. O(scripts).
    fn evict_one(&self, scripts: &mut Scripts) {
        let evictable = scripts.by_sha.values().filter(|script| !script.is_loaded.load(Relaxed));
        let Some(sha) = evictable.min_by_key(|script| script.used.load(Relaxed)).map(|script| script.sha)
        else {
            return;
        };
        if let Some(script) = scripts.by_sha.remove(&sha) {
            script.is_removed.store(true, Relaxed);
            scripts.body_bytes -= script.body.len();
        }
        scripts.evictable -= 1;
        self.evicted.fetch_add(1, Relaxed);
    }

    /// Removes all scripts, and returns them so that the caller can free their memory. O(scripts):
    /// marks each as removed after the lock is released.
    pub fn flush(&self) -> impl Send + use<> {
        let old = std::mem::take(&mut *self.write());
        old.by_sha.values().for_each(|script| script.is_removed.store(true, Relaxed));
        old.by_sha
    }

    /// Returns true if a script with this SHA1 is cached.
    pub fn contains(&self, sha: &Sha) -> bool {
        self.read().by_sha.contains_key(sha)
    }

    /// Returns the number of cached scripts.
    pub fn script_count(&self) -> usize {
        self.read().by_sha.len()
    }

    /// Returns the approximate memory of the cached scripts, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let scripts = self.read();
        scripts.body_bytes + scripts.by_sha.len() * (size_of::<CachedScript>() + 64)
    }

    /// Returns the memory of the Lua states of all threads, in bytes.
    pub fn vm_bytes(&self) -> u64 {
        self.vm_bytes.load(Relaxed)
    }

    /// Records that the memory of a thread's Lua state has changed from `old` to `new` bytes.
    pub fn note_vm(&self, old: usize, new: usize) {
        self.vm_bytes.fetch_add((new as u64).wrapping_sub(old as u64), Relaxed);
    }

    /// Returns the number of scripts from EVAL that were evicted.
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Relaxed)
    }
}
