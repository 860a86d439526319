//! All users, by name.
//!
//! A lock protects them, under which no other lock is taken. Requests do not take it: a session
//! keeps its user, and looks the user up again when the version has changed. Work under the lock is
//! the look-up of a user, or the replacement of a user by a copy with the rules of one request.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::user::{DEFAULT_USER, User};

/// Users by name; there is always one called `default`.
pub(super) type UserMap = BTreeMap<Box<[u8]>, Arc<User>>;

/// All users of access control. Two counters increase with changes of the users, so that sessions
/// notice the changes.
#[derive(Debug)]
pub struct Users {
    users: RwLock<UserMap>,
    /// The version of the set of users: a counter that starts at 1 and increases with each change
    /// of users, under the lock. A session that has not looked up its user yet has version 0.
    version: AtomicU64,
    /// A counter that increases when sessions may have to be closed: their user was removed, or
    /// lost the right to a channel.
    closings: AtomicU64,
}

impl Default for Users {
    /// Creates a set of users with only `default`, which has all rights and needs no password.
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
    /// Applies `requirepass`: makes `password` the only password of the user `default`. If it is
    /// empty, any password is accepted.
    pub fn set_default_password(&self, password: &[u8]) {
        let result: Result<bool, std::convert::Infallible> = self.set(DEFAULT_USER, |old| {
            let mut user = old.cloned().unwrap_or_else(|| User::unrestricted(DEFAULT_USER));
            user.set_only_password(password);
            Ok(user)
        });
        // The user keeps its channels, so no session must be closed.
        let Ok(_) = result;
    }

    /// Returns the version of the set of users: a counter that increases with each change of a
    /// user.
    #[inline]
    pub fn version(&self) -> u64 {
        // Relaxed: the version changes under the lock, and a thread that sees the change takes the
        // lock next.
        self.version.load(Relaxed)
    }

    /// Returns the counter that increases when sessions may have to be closed, because their user
    /// was removed or lost rights.
    #[inline]
    pub fn closings(&self) -> u64 {
        // Relaxed for the same reason as `version`.
        self.closings.load(Relaxed)
    }

    /// Returns the user called `name`; `None` if there is none. O(log users).
    pub fn get(&self, name: &[u8]) -> Option<Arc<User>> {
        self.read().get(name).cloned()
    }

    /// Returns the user `default`.
    pub fn default_user(&self) -> Arc<User> {
        Arc::clone(&self.read()[DEFAULT_USER])
    }

    /// Returns the user called `name`, the user `default`, and the version of the set of users in
    /// which both were found.
    pub(super) fn look_up(&self, name: &[u8]) -> (Option<Arc<User>>, Arc<User>, u64) {
        let users = self.read();
        (users.get(name).cloned(), Arc::clone(&users[DEFAULT_USER]), self.version())
    }

    /// Returns all users, sorted by name. O(users).
    pub fn all(&self) -> Vec<Arc<User>> {
        self.read().values().cloned().collect()
    }

    /// Adds a user or replaces the one of the same name. `change` creates the new user from the old
    /// one.
    ///
    /// Returns true if the user lost the right to a channel, so that sessions may have to be
    /// closed. In this case, the caller must make all threads check their sessions
    /// ([`closings`](Self::closings)).
    ///
    /// # Errors
    /// The error of `change`; the users are then unchanged.
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

    /// Removes the named users, except `default`. Returns the number of removed users. The caller
    /// must close the sessions of these users.
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

    /// Replaces all users. If the new ones do not include `default`, adds it with all rights and no
    /// password.
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

    /// Increases the version of the set of users, by which sessions notice changes. The caller
    /// holds the lock.
    fn publish(&self) {
        self.version.fetch_add(1, Relaxed);
    }

    /// Publishes that sessions may have to be closed, because a user was removed or lost rights.
    /// The caller holds the lock.
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
