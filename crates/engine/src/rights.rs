//! The check of a client's rights to make a request, on every path by which it can run. A request
//! is checked when it arrives, when it is queued, when EXEC runs it, when a script calls it, and
//! when a blocked client is served.
//!
//! A client that has all rights costs only a load and a comparison ([`Identity::is_free`]). Refused
//! requests are counted and recorded for ACL LOG; their errors have Redis' texts.

use commands::table::Flags;
use commands::{Args, CommandError, ReadableKeys};
use stdx::ByteQueue;

use crate::acl::{AclRequest, Context, Denial, Identity, IdentityState, Reason, Refusal};
use crate::call::{Host, RefusedRequest};
use crate::client::ClientInfo;
use crate::clock::Clock;
use crate::request::Request;
use crate::run::Executor;
use crate::session::{Flow, Session};
use crate::settings::AuditEvents;
use crate::table::Registered;
use crate::wait::BlockedClient;

impl<C: Clock, H: Host> Executor<'_, C, H> {
    /// Checks that the rights of a client's user permit this request. Called for clients that are
    /// not known to have all rights.
    ///
    /// # Errors
    /// The reason for the refusal. `None` if the session is to be closed; then there is no reply.
    #[inline(never)]
    pub(crate) fn check_rights(
        &self,
        session: &mut Session,
        registered: &'static Registered,
        args: &Args<'_>,
        context: Context,
    ) -> Result<(), Option<Denied>> {
        let users = &self.shared().acl.users;
        if session.identity.is_stale(users) {
            session.refresh_rights(users);
            if session.flow == Flow::Closing {
                return Err(None);
            }
        }
        if session.identity.is_free(users) {
            return Ok(());
        }
        if session.identity.must_authenticate() && registered.needs_auth() {
            return Err(Some(Denied::Unauthenticated));
        }
        let asked = AclRequest { registered, args, db: session.db() };
        session.identity.check(asked).map_err(|denial| {
            if context != Context::Script || self.script_refusals.note() {
                self.note_denial(&session.info, &session.identity, asked, (denial, context));
            }
            Some(Denied::ByRules(denial))
        })
    }

    /// Checks a queued command again when EXEC runs it. If the client's rights no longer permit it,
    /// writes the error reply and returns true.
    #[inline]
    pub(crate) fn refuses_queued(
        &self,
        session: &mut Session,
        request: &Request<'_>,
        out: &mut ByteQueue,
    ) -> bool {
        !session.identity.is_free(&self.shared().acl.users) && self.refuse_queued(session, request, out)
    }

    #[inline(never)]
    fn refuse_queued(&self, session: &mut Session, request: &Request<'_>, out: &mut ByteQueue) -> bool {
        let denial = match self.check_rights(session, request.registered, &request.args, Context::Multi) {
            Ok(()) => return false,
            Err(Some(Denied::ByRules(denial))) => denial,
            // The user was removed, so all its rights have ended.
            Err(Some(Denied::Unauthenticated) | None) => Denial::Command,
        };
        self.refuse(session.protocol(), denial.exec_error(), out);
        true
    }

    /// Returns the error if the present rights of a blocked client no longer permit its request;
    /// `None` if they do.
    #[inline]
    pub(crate) fn refusal_of_blocked(
        &self,
        blocked: &BlockedClient,
        request: &Request<'_>,
    ) -> Option<CommandError> {
        let users = &self.shared().acl.users;
        if blocked.identity.is_free(users) {
            return None;
        }
        let mut identity = blocked.identity.clone();
        let identity_state = identity.refresh(users);
        let Request { registered, args, .. } = request;
        let asked = AclRequest { registered, args, db: blocked.db };
        let denial = match identity.check(asked) {
            Ok(()) if identity_state == IdentityState::Good => return None,
            // The user was removed; the client will be closed soon.
            Ok(()) => Denial::Command,
            Err(denial) => denial,
        };
        self.counters(registered).rejected.add(1);
        if let Some(info) = self.shared().clients.get(blocked.client) {
            self.note_denial(&info, &identity, asked, (denial, Context::TopLevel));
        }
        Some(denial.error(identity.name(), registered))
    }

    /// Returns the keys that a request may read by patterns (SORT). The keys named by its arguments
    /// were already checked.
    #[inline]
    pub(crate) fn readable_keys(&self, session: &Session, request: &Request<'_>) -> ReadableKeys {
        let Request { registered, args, .. } = request;
        if !registered.command.flags.contains(Flags::PATTERN_KEYS)
            || session.identity.is_free(&self.shared().acl.users)
        {
            return ReadableKeys::All;
        }
        match session.identity.user().may_read_all_keys(AclRequest { registered, args, db: session.db() }) {
            true => ReadableKeys::All,
            false => ReadableKeys::Declared,
        }
    }

    /// Counts a refused request, and records it for ACL LOG and the audit log.
    #[cold]
    pub fn note_denial(
        &self,
        client: &ClientInfo,
        identity: &Identity,
        asked: AclRequest<'_>,
        (denial, context): (Denial, Context),
    ) {
        if self.settings.audit.events.intersects(AuditEvents::DENIED | AuditEvents::ALL) {
            let AclRequest { registered, args, .. } = asked;
            let (user, reason) = (identity.name(), denial.reason());
            let refused = RefusedRequest { client, user, registered, args, reason };
            self.host.note_refused(&self.settings, self.now.unix_ms, refused);
        }
        let object = denial.object(asked.registered, asked.args).to_vec();
        self.note_refusal_of(
            client,
            Refusal {
                reason: denial.reason(),
                context,
                object,
                username: identity.name().to_vec(),
                client: Vec::new(),
                unix_ms: self.now.unix_ms,
            },
        );
    }

    /// Counts a refusal, and records it for ACL LOG with the present description of the client.
    #[cold]
    fn note_refusal_of(&self, client: &ClientInfo, mut refusal: Refusal) {
        let denied = &self.stats().denied;
        let counter = match refusal.reason {
            Reason::Database => &denied.databases,
            Reason::Command => &denied.commands,
            Reason::Key => &denied.keys,
            Reason::Channel => &denied.channels,
            Reason::Auth => &denied.auth,
        };
        counter.add(1);
        refusal.client = self.host.describe_client(client);
        self.shared().acl.log.note(refusal, self.settings.acl_log_len_max);
    }
}

/// The reason for which a client has no right to make a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// The client has not authenticated, but must.
    Unauthenticated,
    /// The rules of the client's user do not permit the request.
    ByRules(Denial),
}

impl Denied {
    /// Returns the error reply for the client of `session`.
    #[cold]
    pub fn error(self, session: &Session, registered: &Registered) -> CommandError {
        match self {
            Self::Unauthenticated => CommandError::Line("NOAUTH Authentication required."),
            Self::ByRules(denial) => denial.error(session.identity.name(), registered),
        }
    }
}
