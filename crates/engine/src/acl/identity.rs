//! The identity of a session. Thread: the session's.

use std::sync::Arc;

use super::denial::Denial;
use super::selector::Asked;
use super::user::{DEFAULT_USER, User};
use super::users::Users;

/// The user of a session, and its rights as far as they are known without a look at a request.
#[derive(Clone, Debug)]
pub struct Identity {
    user: Arc<User>,
    /// The version of the users that it was looked up at; 0 for not yet.
    version: u64,
    /// The version at which it may do everything; 0 where it may not. So one comparison tells a
    /// request that there is nothing to check.
    free_at: u64,
    origin: Origin,
    /// It has to authenticate before most commands.
    must_authenticate: bool,
}

/// The origin of a session's rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// It has authenticated.
    Authenticated,
    /// It is `default`, as long as that needs no password.
    Connected,
    /// It is the server's own: it may do everything.
    Internal,
}

/// The result of a look at the users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The session goes on.
    Good,
    /// The session's user was removed: it is to be closed.
    Gone,
}

impl Identity {
    /// Creates the identity of a client that has just connected: `default`, and authenticated if
    /// that needs no password.
    pub fn of_connection(users: &Users) -> Self {
        let default = users.default_user();
        let origin = if default.is_open() { Origin::Authenticated } else { Origin::Connected };
        let mut identity = Self { user: default, version: 0, free_at: 0, origin, must_authenticate: false };
        identity.refresh(users);
        identity
    }

    /// Creates the identity of the server itself, for a replay of a file or a test. It may do
    /// everything, whatever users there are.
    pub fn internal() -> Self {
        let user = Arc::new(User::unrestricted(DEFAULT_USER));
        Self { user, version: 0, free_at: 0, origin: Origin::Internal, must_authenticate: false }
    }

    /// Makes it this user's.
    pub fn authenticate(&mut self, user: Arc<User>, users: &Users) {
        (self.user, self.origin) = (user, Origin::Authenticated);
        self.refresh(users);
    }

    /// Its user.
    pub fn user(&self) -> &Arc<User> {
        &self.user
    }

    /// Returns the name of its user.
    pub fn name(&self) -> &[u8] {
        self.user.name()
    }

    /// Returns true if it must authenticate before most commands.
    pub fn must_authenticate(&self) -> bool {
        self.must_authenticate
    }

    /// Returns true if it may do everything, and no user has changed since that was found.
    #[inline]
    pub fn is_free(&self, users: &Users) -> bool {
        self.free_at == users.version()
    }

    /// Returns true if users have changed since they were looked at.
    #[inline]
    pub fn is_stale(&self, users: &Users) -> bool {
        self.version != users.version()
    }

    /// Looks at the users again.
    #[cold]
    pub fn refresh(&mut self, users: &Users) -> Standing {
        if self.origin == Origin::Internal {
            self.version = users.version();
            self.free_at = self.version;
            return Standing::Good;
        }
        let (user, default, version) = users.look_up(self.user.name());
        self.version = version;
        let Some(user) = user else {
            // Nobody: what it may do from now on is to end.
            (self.free_at, self.must_authenticate) = (0, true);
            return Standing::Gone;
        };
        self.user = user;
        self.must_authenticate = self.origin == Origin::Connected && !default.is_open();
        let is_free = !self.must_authenticate && self.user.is_unrestricted();
        self.free_at = if is_free { version } else { 0 };
        Standing::Good
    }

    /// Checks that it may make a request.
    ///
    /// # Errors
    /// The reason why not.
    #[inline]
    pub fn check(&self, asked: Asked<'_>) -> Result<(), Denial> {
        self.user.check(asked)
    }
}
