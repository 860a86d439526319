//! All users, by name.
//!
//! Behind a lock that is a leaf in the lock order. Requests do not take it: a session keeps its
//! user and looks here again when the version has changed. Under it a user is found, or the rules
//! of one request are applied to a copy that takes its place.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::user::{DEFAULT_USER, User};

/// Users by name; there is always one called `default`.
pub(super) type UserMap = BTreeMap<Box<[u8]>, Arc<User>>;

/// See the module.
#[derive(Debug)]
pub struct Users {
    users: RwLock<UserMap>,
    /// Changes with each change of users, under the lock. From 1 on: 0 is the version of a session
    /// that has not looked yet.
    version: AtomicU64,
    /// Changes when sessions may have to be closed: their user was removed, or lost channels.
    closings: AtomicU64,
}

impl Default for Users {
    /// Creates a set of the user `default` alone, who needs no password and may do everything.
    fn default() -> Self {
        let user = User::unrestricted(DEFAULT_USER);
        Self {
            users: RwLock::new(UserMap::from([(DEFAULT_USER.into(), Arc::new(user))])),
            version: 1.into(),
            closings: 0.into(),
        }
    }
}

impl Users {
    /// Gives the user `default` one password, or none if that is empty: `requirepass`.
    pub fn set_default_password(&self, password: &[u8]) {
        let result: Result<bool, std::convert::Infallible> = self.set(DEFAULT_USER, |old| {
            let mut user = old.cloned().unwrap_or_else(|| User::unrestricted(DEFAULT_USER));
            user.set_only_password(password);
            Ok(user)
        });
        // Its channels stay, so no session is closed.
        let Ok(_) = result;
    }

    /// Changes with each change of users.
    #[inline]
    pub fn version(&self) -> u64 {
        // Relaxed: it changes under the lock, which whoever sees the change takes next.
        self.version.load(Relaxed)
    }

    /// Changes when sessions may have to be closed.
    #[inline]
    pub fn closings(&self) -> u64 {
        // Relaxed: as `version`.
        self.closings.load(Relaxed)
    }

    /// Returns the user called `name`. O(log users).
    pub fn get(&self, name: &[u8]) -> Option<Arc<User>> {
        self.read().get(name).cloned()
    }

    /// Returns the user `default`.
    pub fn default_user(&self) -> Arc<User> {
        Arc::clone(&self.read()[DEFAULT_USER])
    }

    /// Returns the user called `name`, the user `default`, and the version that both are of.
    pub(super) fn look_up(&self, name: &[u8]) -> (Option<Arc<User>>, Arc<User>, u64) {
        let users = self.read();
        (users.get(name).cloned(), Arc::clone(&users[DEFAULT_USER]), self.version())
    }

    /// Returns all users, by name. O(users).
    pub fn all(&self) -> Vec<Arc<User>> {
        self.read().values().cloned().collect()
    }

    /// Puts a user in the place of the one of its name, or adds it. Whether sessions may have to be
    /// closed: the caller then has all threads look ([`closings`](Self::closings)).
    ///
    /// `change` makes it from the one that is there; its error changes nothing.
    ///
    /// # Errors
    /// That of `change`.
    pub fn set<E>(
        &self,
        name: &[u8],
        change: impl FnOnce(Option<&User>) -> Result<User, E>,
    ) -> Result<bool, E> {
        let mut users = self.write();
        let old = users.get(name).map(Arc::clone);
        let new = change(old.as_deref())?;
        let loses_channels = old.as_ref().is_some_and(|old| !new.has_channels_of(old));
        users.insert(name.into(), Arc::new(new));
        self.publish();
        if loses_channels {
            self.publish_closings();
        }
        Ok(loses_channels)
    }

    /// Removes users; how many there were. Their sessions are to be closed. The user `default`
    /// stays.
    pub fn remove<'n>(&self, names: impl Iterator<Item = &'n [u8]>) -> usize {
        let mut users = self.write();
        let is_removed = |name: &&[u8]| *name != DEFAULT_USER && users.remove(*name).is_some();
        let removed = names.filter(is_removed).count();
        if removed > 0 {
            self.publish();
            self.publish_closings();
        }
        removed
    }

    /// Puts these users in the place of all. A user `default` that is not among them is as it was
    /// when the first server of this kind started: it may do everything.
    pub fn replace_all(&self, new: impl IntoIterator<Item = User>) {
        let mut all: UserMap = new.into_iter().map(|user| (user.name().into(), Arc::new(user))).collect();
        all.entry(DEFAULT_USER.into()).or_insert_with(|| Arc::new(User::unrestricted(DEFAULT_USER)));
        let mut users = self.write();
        let old = std::mem::replace(&mut *users, all);
        self.publish();
        self.publish_closings();
        drop(users);
        drop(old);
    }

    /// Publishes a new version of the users. The caller holds the lock.
    fn publish(&self) {
        self.version.fetch_add(1, Relaxed);
    }

    /// Publishes that clients must close. The caller holds the lock.
    fn publish_closings(&self) {
        self.closings.fetch_add(1, Relaxed);
    }

    fn read(&self) -> RwLockReadGuard<'_, UserMap> {
        self.users.read().expect("nothing panics while the users are locked")
    }

    fn write(&self) -> RwLockWriteGuard<'_, UserMap> {
        self.users.write().expect("nothing panics while the users are locked")
    }
}
