//! The check of a client's rights to make a request, on every path: when it arrives, when it is
//! queued and again when EXEC runs it, when a script calls it, when a blocked client's request is
//! served.
//!
//! A client that may do everything costs a load and a comparison ([`Identity::is_free`]). Refused
//! requests are counted, noted for ACL LOG, and answered in Redis' words.

use commands::table::Flags;
use commands::{Args, CommandError, ReadableKeys};
use stdx::ByteQueue;

use crate::acl::{Asked, Context, Denial, Identity, Reason, Refusal, Standing};
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
    /// Checks that a client that is not free to do everything may make this request.
    ///
    /// # Errors
    /// The reason why not; `None` if its session has ended, which gets no answer.
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
        let asked = Asked { registered, args, db: session.db() };
        session.identity.check(asked).map_err(|denial| {
            if context != Context::Script || self.script_refusals.note() {
                self.note_denial(&session.info, &session.identity, asked, (denial, context));
            }
            Some(Denied::ByRules(denial))
        })
    }

    /// Answers a queued command that its client may not run any more; whether it may not.
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
            // Its user has gone: nothing is anybody's any more.
            Err(Some(Denied::Unauthenticated) | None) => Denial::Command,
        };
        self.refuse(session.protocol(), denial.exec_error(), out);
        true
    }

    /// Returns the reason for which a blocked client's request may not run any more, if there is
    /// one: its present rights count.
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
        let standing = identity.refresh(users);
        let Request { registered, args, .. } = request;
        let asked = Asked { registered, args, db: blocked.db };
        let denial = match identity.check(asked) {
            Ok(()) if standing == Standing::Good => return None,
            // It is closed in a moment.
            Ok(()) => Denial::Command,
            Err(denial) => denial,
        };
        self.counters(registered).rejected.add(1);
        if let Some(info) = self.shared().clients.get(blocked.client) {
            self.note_denial(&info, &identity, asked, (denial, Context::TopLevel));
        }
        Some(denial.error(identity.name(), registered))
    }

    /// Returns the keys that a request may read although its arguments name them by patterns only.
    #[inline]
    pub(crate) fn readable_keys(&self, session: &Session, request: &Request<'_>) -> ReadableKeys {
        let Request { registered, args, .. } = request;
        if !registered.command.flags.contains(Flags::PATTERN_KEYS)
            || session.identity.is_free(&self.shared().acl.users)
        {
            return ReadableKeys::All;
        }
        match session.identity.user().may_read_all_keys(Asked { registered, args, db: session.db() }) {
            true => ReadableKeys::All,
            false => ReadableKeys::Declared,
        }
    }

    /// Counts a refusal and notes it for ACL LOG.
    #[cold]
    pub fn note_denial(
        &self,
        client: &ClientInfo,
        identity: &Identity,
        asked: Asked<'_>,
        (denial, context): (Denial, Context),
    ) {
        if self.settings.audit.events.intersects(AuditEvents::DENIED | AuditEvents::ALL) {
            let Asked { registered, args, .. } = asked;
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

    /// Counts what was refused to a client, and notes it for ACL LOG with the client as it is.
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

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// Its client has not authenticated.
    Unauthenticated,
    /// The rules of its user do not permit it.
    ByRules(Denial),
}

impl Denied {
    /// Returns the error to reply with.
    #[cold]
    pub fn error(self, session: &Session, registered: &Registered) -> CommandError {
        match self {
            Self::Unauthenticated => CommandError::Line("NOAUTH Authentication required."),
            Self::ByRules(denial) => denial.error(session.identity.name(), registered),
        }
    }
}
