//! Optional work before and after a request. Login attempts can be delayed (`auth-failure-delay`),
//! and the audit log can record commands (`audit-log-file`).

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use engine::acl::DEFAULT_USER;
use engine::batch::Incoming;
use engine::request::keys_of_request;
use engine::session::{Flow, Session};
use engine::settings::{AuditEvents, Settings};
use engine::table::Registered;
use resp::Reply;
use stdx::ByteQueue;

use super::{Engine, Worker};
use crate::audit::{Event, Outcome, notes_command};
use crate::login_delays::{Delay, TOO_MANY_FAILED_LOGINS};
use crate::shared::Shared;

/// The optional work before and after requests that the settings enable. They are read once per
/// batch.
pub(super) struct RequestChecks {
    /// The settings at the start of the batch; `None` if the audit log records nothing. A request
    /// that changes the audit settings is therefore recorded as the old settings require.
    audited: Option<Arc<Settings>>,
    delay_ms: u64,
    /// The number of commands that the client's transaction had queued before the present request.
    queued: u64,
    /// The client's user before a RESET, which changes the user. Set only if the audit log is on.
    user_before: Vec<u8>,
}

impl RequestChecks {
    /// Returns the optional work before and after requests that `settings` enable, for one batch of
    /// requests.
    pub(super) fn of(settings: &Arc<Settings>) -> Self {
        let audited = (!settings.audit.events.is_empty()).then(|| Arc::clone(settings));
        Self { audited, delay_ms: settings.clients.auth_failure_delay_ms, queued: 0, user_before: Vec::new() }
    }

    /// Returns true if any of the optional work before and after requests is enabled.
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.audited.is_some() || self.delay_ms > 0
    }

    /// Delays or refuses a login attempt from an address with many failed ones. Also records the
    /// state before the request, for the audit log. Returns true if the request may run now;
    /// otherwise the session's field `flow` states the reason.
    #[cold]
    pub(super) fn admits(
        &mut self,
        shared: &Shared,
        session: &mut Session,
        request: &Incoming<'_>,
        out: &mut ByteQueue,
    ) -> bool {
        self.queued = session.info.queued.load(Relaxed);
        if self.audited.is_some() && command_of(request).is_some_and(is_reset) {
            self.user_before = session.identity.name().to_vec();
        }
        // A queued command is checked at EXEC, when it runs.
        if self.delay_ms == 0 || session.transaction.is_some() {
            return true;
        }
        let Some(user) = login_of(request) else { return true };
        let now_ms = shared.uptime_ms();
        if session.login_slot_ms == 0 {
            // The delay starts at the next whole millisecond, so it is never shorter than the
            // setting.
            match shared.login_delays.take_slot(&session.info.peer, user, now_ms + 1, self.delay_ms) {
                Delay::None => return true,
                Delay::Until(slot_ms) => session.login_slot_ms = slot_ms,
                Delay::Refused => {
                    let mut reply = Reply::new(out, session.protocol());
                    reply.error(TOO_MANY_FAILED_LOGINS);
                    session.flow = Flow::Closing;
                    return false;
                }
            }
        }
        if now_ms < session.login_slot_ms {
            session.flow = Flow::AwaitingLogin;
            return false;
        }
        session.login_slot_ms = 0;
        true
    }

    /// Records a request in the audit log, if the settings select it and the request has run or was
    /// queued. Also records the first request of a client that was rejected because the client must
    /// authenticate. Other code records logins and rejections by ACL rules.
    #[cold]
    pub(super) fn note(
        &self,
        (shared, engine): (&Shared, &Engine<'_>),
        session: &mut Session,
        request: &Incoming<'_>,
    ) {
        let Some(audit) = self.audited.as_deref().map(|settings| &settings.audit) else { return };
        let Some(registered) = command_of(request) else { return };
        let needs_login = session.identity.must_authenticate() && registered.needs_auth();
        let outcome = if engine.executor.meter.called {
            Outcome::Allowed
        } else if session.info.queued.load(Relaxed) > self.queued {
            Outcome::Queued
        } else if needs_login && !session.unauthenticated_noted {
            session.unauthenticated_noted = true;
            Outcome::Denied("unauthenticated")
        } else {
            return;
        };
        let is_noted = match outcome {
            Outcome::Denied(_) => audit.events.intersects(AuditEvents::DENIED | AuditEvents::ALL),
            _ => notes_command(audit.events, registered),
        };
        if !is_noted || registered.full_name == "auth" {
            return;
        }
        let keys = keys_of_request(registered, &request.args);
        let event = Event {
            unix_ms: engine.executor.now.unix_ms,
            kind: "command",
            outcome,
            user: if is_reset(registered) { &self.user_before } else { session.identity.name() },
            client: &session.info,
            command: registered.full_name,
            keys: keys.iter().map(|&at| request.args.get(at)),
        };
        shared.audit.note(audit, event);
    }
}

/// Returns the command or subcommand that a request names; `None` for an unknown command.
fn command_of(request: &Incoming<'_>) -> Option<&'static Registered> {
    request.registered.map(|registered| registered.called_by(&request.args))
}

/// Returns true if `registered` is RESET, which changes the client's user without a login.
fn is_reset(registered: &Registered) -> bool {
    registered.full_name == "reset"
}

/// Returns the user name in a login attempt (AUTH, or HELLO with AUTH); `None` for other requests.
fn login_of<'r>(request: &Incoming<'r>) -> Option<&'r [u8]> {
    let args = request.args;
    match (request.registered?.full_name, args.len()) {
        ("auth", 2) => Some(DEFAULT_USER),
        ("auth", 3..) => Some(args.get(1)),
        ("hello", 3..) => {
            let mut at = 2;
            while args.is(at, "SETNAME") {
                at += 2;
            }
            args.is(at, "AUTH").then(|| args.try_get(at + 1)).flatten()
        }
        _ => None,
    }
}

impl Worker<'_> {
    /// Resumes the clients whose delayed login attempts may run now.
    #[cold]
    pub(super) fn resume_logins(&mut self) {
        let now_ms = self.shared.uptime_ms();
        let (due, later) = std::mem::take(&mut self.awaiting_login)
            .into_iter()
            .partition(|(until_ms, _)| *until_ms <= now_ms);
        self.awaiting_login = later;
        let due: Vec<(u64, net::ConnId)> = due;
        for (_, conn) in due {
            self.resume(conn, Flow::AwaitingLogin);
        }
    }
}
