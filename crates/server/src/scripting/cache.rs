//! The texts of scripts, shared by all threads. Lock: a leaf; held for look-ups and changes only.
//!
//! As in Redis 8, scripts that came by EVAL are kept up to a number, those by SCRIPT LOAD until
//! SCRIPT FLUSH. Threads keep what they have found, so that a cached script costs no lock:
//! [`CachedScript::is_gone`] tells them when it is over.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use engine::scripting::Learned;
use script::{ScriptFlags, Sha};

/// Scripts of EVAL that are kept, as in Redis 8.
const EVAL_SCRIPTS_MAX: usize = 500;

/// How a script came.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// By EVAL.
    Evaluated,
    /// By SCRIPT LOAD.
    Loaded,
}

/// A script.
pub struct CachedScript {
    /// Its name.
    pub sha: Sha,
    /// Its text.
    pub body: Box<[u8]>,
    /// What it says about itself.
    pub flags: ScriptFlags,
    /// SCRIPT LOAD has loaded it: it is not forgotten for others.
    is_loaded: AtomicBool,
    /// It was forgotten.
    is_gone: AtomicBool,
    /// What its runs have taught.
    pub learned: Learned,
    /// When it was used last, in numbers of scripts that came since.
    used: AtomicU64,
}

impl CachedScript {
    /// Whether it was forgotten.
    pub fn is_gone(&self) -> bool {
        self.is_gone.load(Relaxed)
    }
}

/// All scripts.
#[derive(Default)]
pub struct ScriptCache {
    scripts: RwLock<Scripts>,
    /// Scripts that came so far: the clock of their use.
    clock: AtomicU64,
    /// Scripts of EVAL that were forgotten for others.
    evicted: AtomicU64,
    /// What the Lua of all threads takes, in bytes.
    vm_bytes: AtomicU64,
}

#[derive(Default)]
struct Scripts {
    by_sha: HashMap<Sha, Arc<CachedScript>>,
    /// Of these, those that came by EVAL only.
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

    /// A script by its name.
    pub fn find(&self, sha: &Sha) -> Option<Arc<CachedScript>> {
        let script = self.read().by_sha.get(sha).map(Arc::clone)?;
        self.note_use(&script);
        Some(script)
    }

    /// Notes that a script is used.
    #[inline]
    pub fn note_use(&self, script: &CachedScript) {
        let now = self.clock.load(Relaxed);
        if script.used.load(Relaxed) != now {
            script.used.store(now, Relaxed);
        }
    }

    /// Adds a script that compiles, by EVAL; one that is there stays.
    pub fn add_evaluated(&self, sha: Sha, body: &[u8], flags: ScriptFlags) -> Arc<CachedScript> {
        self.add(sha, body, flags, Origin::Evaluated)
    }

    /// Adds a script for good.
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
            is_gone: AtomicBool::new(false),
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

    /// Forgets the script of EVAL that was not used for longest. O(scripts).
    fn evict_one(&self, scripts: &mut Scripts) {
        let evictable = scripts.by_sha.values().filter(|script| !script.is_loaded.load(Relaxed));
        let Some(sha) = evictable.min_by_key(|script| script.used.load(Relaxed)).map(|script| script.sha)
        else {
            return;
        };
        if let Some(script) = scripts.by_sha.remove(&sha) {
            script.is_gone.store(true, Relaxed);
            scripts.body_bytes -= script.body.len();
        }
        scripts.evictable -= 1;
        self.evicted.fetch_add(1, Relaxed);
    }

    /// Forgets all; gives what is to be freed. O(scripts) relaxed stores under the lock.
    pub fn flush(&self) -> impl Send + use<> {
        let old = std::mem::take(&mut *self.write());
        old.by_sha.values().for_each(|script| script.is_gone.store(true, Relaxed));
        old.by_sha
    }

    /// Whether a script is cached.
    pub fn contains(&self, sha: &Sha) -> bool {
        self.read().by_sha.contains_key(sha)
    }

    /// How many scripts are cached.
    pub fn script_count(&self) -> usize {
        self.read().by_sha.len()
    }

    /// What the texts take, roughly, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let scripts = self.read();
        scripts.body_bytes + scripts.by_sha.len() * (size_of::<CachedScript>() + 64)
    }

    /// What the Lua of all threads takes, in bytes.
    pub fn vm_bytes(&self) -> u64 {
        self.vm_bytes.load(Relaxed)
    }

    /// A thread's Lua took `old` bytes and takes `new` now.
    pub fn note_vm(&self, old: usize, new: usize) {
        self.vm_bytes.fetch_add((new as u64).wrapping_sub(old as u64), Relaxed);
    }

    /// Scripts of EVAL that were forgotten for others.
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Relaxed)
    }
}
