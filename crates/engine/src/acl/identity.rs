//! The user of a session and its cached rights. Used by the session's thread only.

use std::sync::Arc;

use super::denial::Denial;
use super::selector::AclRequest;
use super::user::{DEFAULT_USER, User};
use super::users::Users;

/// The user of a session, with two cached facts: if the user has all rights, and if the session
/// must authenticate first. With them, most requests need only a short check.
#[derive(Clone, Debug)]
pub struct Identity {
    user: Arc<User>,
    /// The version of access control's users ([`Users::version`]) when this user was last looked
    /// up; 0 before the first time.
    version: u64,
    /// The version of access control's users ([`Users::version`]) at which this user has all
    /// rights; 0 if it does not have them. A request of such a user therefore costs one comparison.
    free_at: u64,
    origin: Origin,
    /// True if the session must authenticate before most commands.
    must_authenticate: bool,
}

/// The origin of a session's rights: an authentication, the connection itself, or the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// The session has authenticated, or has connected while `default` needed no password.
    Authenticated,
    /// The session has not authenticated and has the user `default`. It must authenticate while
    /// `default` needs a password.
    Connected,
    /// The session is the server's own and has all rights.
    Internal,
}

/// The result of [`Identity::refresh`]: the session's user still exists, or it was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdentityState {
    /// The session's user exists, so the session continues.
    Good,
    /// The session's user was removed, so the session must be closed.
    Gone,
}

impl Identity {
    /// Creates the identity of a client that has just connected: the user `default`. It counts as
    /// authenticated if `default` needs no password.
    pub fn of_connection(users: &Users) -> Self {
        let default = users.default_user();
        let origin = if default.is_open() { Origin::Authenticated } else { Origin::Connected };
        let mut identity = Self { user: default, version: 0, free_at: 0, origin, must_authenticate: false };
        identity.refresh(users);
        identity
    }

    /// Creates the identity of the server itself, for loading a file or for a test. It has all
    /// rights, independent of the users that exist.
    pub fn internal() -> Self {
        let user = Arc::new(User::unrestricted(DEFAULT_USER));
        Self { user, version: 0, free_at: 0, origin: Origin::Internal, must_authenticate: false }
    }

    /// Makes `user` the session's user, which has authenticated.
    pub fn authenticate(&mut self, user: Arc<User>, users: &Users) {
        (self.user, self.origin) = (user, Origin::Authenticated);
        self.refresh(users);
    }

    /// Returns the session's user.
    pub fn user(&self) -> &Arc<User> {
        &self.user
    }

    /// Returns the name of the session's user.
    pub fn name(&self) -> &[u8] {
        self.user.name()
    }

    /// Returns true if the session must authenticate before most commands.
    pub fn must_authenticate(&self) -> bool {
        self.must_authenticate
    }

    /// Returns true if the session's user has all rights, and no user has changed since the rights
    /// were cached.
    #[inline]
    pub fn is_free(&self, users: &Users) -> bool {
        self.free_at == users.version()
    }

    /// Returns true if any users have changed since the session's user was last looked up.
    #[inline]
    pub fn is_stale(&self, users: &Users) -> bool {
        self.version != users.version()
    }

    /// Looks up the session's user by name, because users have changed, and updates the cached
    /// rights.
    #[cold]
    pub fn refresh(&mut self, users: &Users) -> IdentityState {
        if self.origin == Origin::Internal {
            self.version = users.version();
            self.free_at = self.version;
            return IdentityState::Good;
        }
        let (user, default, version) = users.look_up(self.user.name());
        self.version = version;
        let Some(user) = user else {
            // The user does not exist any more: the session loses all rights.
            (self.free_at, self.must_authenticate) = (0, true);
            return IdentityState::Gone;
        };
        self.user = user;
        self.must_authenticate = self.origin == Origin::Connected && !default.is_open();
        let is_free = !self.must_authenticate && self.user.is_unrestricted();
        self.free_at = if is_free { version } else { 0 };
        IdentityState::Good
    }

    /// Checks that the session's user may make a request.
    ///
    /// # Errors
    /// The reason for which the request is refused.
    #[inline]
    pub fn check(&self, asked: AclRequest<'_>) -> Result<(), Denial> {
        self.user.check(asked)
    }
}
