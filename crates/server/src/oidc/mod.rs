//! Log in with a token of an identity provider (OpenID Connect): `AUTH user token`.
//!
//! ```text
//!   oidc-keys-file, oidc-keys-url ─► thread `oidc-keys` ─► keys ─┐
//!   AUTH "" eyJ…  ──────────────────────────────────► token ─────┴─► names ─► a user of ACL
//! ```
//! A token contains one or more user names of its bearer: the values of the claim `oidc-user-claim`
//! (a text, or a list of texts), each with the prefix `oidc-user-prefix`. ACL defines the
//! permissions of these users, as of any other user.
//!
//! AUTH with a user's name logs in as that user, if the token contains the name. AUTH with an empty
//! name, or with only the token, logs in as the first of the names that is a user. The user must
//! exist and be on; it needs no password. No token can log in as `default`.
//!
//! Keys are read again every `oidc-keys-refresh` seconds. They are also read when a token names an
//! unknown key, at most every [`FETCH_RETRY_AFTER`]. If reading fails, the earlier keys stay. The
//! thread that receives AUTH verifies the token. This thread never waits for a file or a web
//! server.

mod fetch;
mod token;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, RwLock};
use std::time::{Duration, Instant};

use self::fetch::{WebSource, from_file, is_safe};
pub use self::token::{Expected, Refusal, is_token};
use self::token::{Keys, verify};

/// Minimum time between two fetches of the identity provider's public keys, if the second one is
/// caused by a token that names an unknown key.
const FETCH_RETRY_AFTER: Duration = Duration::from_secs(10);

/// The values of the options whose names begin with `oidc-`.
#[derive(Clone, Debug, Default)]
pub struct OidcOptions {
    /// The file with the identity provider's public keys: `oidc-keys-file`; `None` if it is not
    /// set.
    pub keys_file: Option<PathBuf>,
    /// The URL of the identity provider's public keys: `oidc-keys-url`; `None` if it is not set.
    pub keys_url: Option<String>,
    /// The file with the authorities of the identity provider's web server: `oidc-ca-file`; `None`
    /// if it is not set.
    pub ca_file: Option<PathBuf>,
    /// The interval at which the identity provider's public keys are read again:
    /// `oidc-keys-refresh`.
    pub refresh: Duration,
    /// The claims that a token must have to be accepted.
    pub expected: Expected,
    /// The text that is put before each user name of a token: `oidc-user-prefix`.
    pub user_prefix: String,
    /// True if a session ends when its token expires: `oidc-end-sessions`.
    pub closes_sessions: bool,
}

/// The state of logins by token: the options, the identity provider's public keys and the counters
/// for INFO.
pub struct Oidc {
    options: OidcOptions,
    web: Option<WebSource>,
    keys: RwLock<Arc<Keys>>,
    asked: Mutex<FetchState>,
    /// The condition variable that wakes the thread `oidc-keys`. It is signalled when the identity
    /// provider's public keys are requested, or when the server stops.
    awake: Condvar,
    logins: AtomicU64,
    refusals: AtomicU64,
}

#[derive(Default)]
struct FetchState {
    for_keys: bool,
    has_ended: bool,
}

/// A login that a token permits: the users of its bearer and its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// The names of the users as which the bearer may log in.
    pub users: Vec<String>,
    /// The end of the session, in Unix seconds: the expiry of the token plus `oidc-leeway`. `None`
    /// if a session may outlive its token (`oidc-end-sessions no`).
    pub expires_s: Option<u64>,
}

impl Oidc {
    /// Creates the state of logins by OIDC tokens from the options. Returns `None` if they name no
    /// source of the identity provider's public keys, which verify tokens.
    ///
    /// # Errors
    /// The name of an invalid option, and the reason.
    pub fn new(options: OidcOptions) -> Result<Option<Self>, (&'static str, String)> {
        if options.keys_file.is_none() && options.keys_url.is_none() {
            return Ok(None);
        }
        let missing = |option| (option, "it must be set if AUTH accepts tokens".to_owned());
        if options.expected.issuer.is_empty() {
            return Err(missing("oidc-issuer"));
        }
        if options.expected.audience.is_empty() {
            return Err(missing("oidc-audience"));
        }
        let keys = match &options.keys_file {
            Some(path) => {
                from_file(path).map_err(|error| ("oidc-keys-file", format!("{}: {error}", path.display())))?
            }
            None => Keys::default(),
        };
        let web = match &options.keys_url {
            Some(url) if !is_safe(url) => {
                return Err((
                    "oidc-keys-url",
                    "it must be an https URL, or an http URL on this machine".to_owned(),
                ));
            }
            Some(url) => {
                let source = WebSource::new(url, options.ca_file.as_deref());
                Some(source.map_err(|error| ("oidc-ca-file", error.to_string()))?)
            }
            None => None,
        };
        Ok(Some(Self {
            options,
            web,
            keys: RwLock::new(Arc::new(keys)),
            asked: Mutex::default(),
            awake: Condvar::new(),
            logins: AtomicU64::new(0),
            refusals: AtomicU64::new(0),
        }))
    }

    /// Verifies `token` and returns the login that it permits. Counts a refused token. If the token
    /// names an unknown key, requests that the identity provider's public keys are read again, and
    /// does not wait for them.
    pub fn login(&self, token: &[u8]) -> Result<Login, Refusal> {
        let keys = Arc::clone(&self.keys.read().expect("nothing panics while keys are locked"));
        let claims = verify(token, &keys, &self.options.expected).inspect_err(|refusal| {
            self.refusals.fetch_add(1, Relaxed);
            if *refusal == Refusal::UnknownKey {
                self.ask_for_keys();
            }
        })?;
        let users = claims.users.iter().map(|user| format!("{}{user}", self.options.user_prefix));
        let users = users.filter(|user| user != "default").collect();
        let leeway_s = self.options.expected.leeway_s;
        let expires_s = self.options.closes_sessions.then(|| claims.expires_s.saturating_add(leeway_s));
        Ok(Login { users, expires_s })
    }

    /// Counts a successful login by token.
    pub fn note_login(&self) {
        self.logins.fetch_add(1, Relaxed);
    }

    /// Returns the numbers of successful logins, of refused tokens and of known public keys of the
    /// identity provider.
    pub fn figures(&self) -> (u64, u64, u64) {
        let keys = self.keys.read().expect("nothing panics while keys are locked").len() as u64;
        (self.logins.load(Relaxed), self.refusals.load(Relaxed), keys)
    }

    fn ask_for_keys(&self) {
        self.asked.lock().expect("nothing panics while it is locked").for_keys = true;
        self.awake.notify_one();
    }

    /// Requests the end of the thread that fetches the identity provider's public keys, and does
    /// not wait for it.
    pub fn end(&self) {
        self.asked.lock().expect("nothing panics while it is locked").has_ended = true;
        self.awake.notify_one();
    }

    /// Reads the identity provider's public keys once from the file and from the web server. If
    /// both have keys, those of the web server replace all others. If neither has, the earlier keys
    /// stay.
    fn refresh(&self) {
        let mut found = None;
        if let Some(path) = &self.options.keys_file {
            match from_file(path) {
                Ok(keys) => found = Some(keys),
                Err(error) => tracing::warn!("oidc-keys-file {}: {error}", path.display()),
            }
        }
        if let Some(web) = &self.web {
            match web.keys() {
                Ok(keys) => found = Some(keys),
                Err(error) => tracing::warn!("oidc-keys-url: {error}"),
            }
        }
        if let Some(keys) = found {
            tracing::debug!(keys = keys.len(), "keys of the identity provider were read");
            *self.keys.write().expect("nothing panics while keys are locked") = Arc::new(keys);
        }
    }
}

/// Reads the identity provider's public keys, which verify OIDC tokens, from the file and the web
/// server. Does so every `oidc-keys-refresh` seconds and on request, until the server stops. This
/// is the body of the thread `oidc-keys`.
pub fn run(oidc: &Oidc) {
    let mut is_first = oidc.web.is_some();
    loop {
        let looked = Instant::now();
        if is_first {
            oidc.refresh();
        }
        is_first = true;
        let mut asked = oidc.asked.lock().expect("nothing panics while it is locked");
        loop {
            let refresh = oidc.options.refresh;
            let wanted = if asked.for_keys { refresh.min(FETCH_RETRY_AFTER) } else { refresh };
            let left = (looked + wanted).saturating_duration_since(Instant::now());
            if asked.has_ended {
                return;
            }
            if left.is_zero() {
                break;
            }
            asked = oidc.awake.wait_timeout(asked, left).expect("nothing panics while it is locked").0;
        }
        asked.for_keys = false;
    }
}

/// Checks that arbitrary bytes are not accepted as a token. Called by a fuzzer.
///
/// # Panics
/// If a token is accepted.
#[doc(hidden)]
pub fn fuzz_token(data: &[u8]) {
    // Half of the input is the key, so that the parser of keys is fuzzed too.
    let (keys, token) = data.split_at(data.len() / 2);
    let known = Keys::parse(
        br#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#,
    );
    for keys in [Keys::parse(keys), known].into_iter().flatten() {
        assert!(verify(token, &keys, &Expected::default()).is_err());
    }
}

/// Returns the name of the user that a login gets: `asked`, if the token contains this name and it
/// is a user. If `asked` is empty, returns the first name of the token that is a user. Returns
/// `None` if there is no such user. `is_user` returns true for the name of a user.
pub fn user_of<'l>(login: &'l Login, asked: &[u8], is_user: impl Fn(&str) -> bool) -> Option<&'l str> {
    let mut names = login.users.iter().map(String::as_str);
    names.find(|name| (asked.is_empty() || name.as_bytes() == asked) && is_user(name))
}

#[cfg(test)]
mod tests {
    use super::token::tests::Signer;
    use super::*;

    /// An expiry time in the year 2100.
    const EXPIRES_S: u64 = 4_102_444_800;

    fn options(folder: &std::path::Path, keys: &[serde_json::Value]) -> OidcOptions {
        let path = folder.join("keys.json");
        std::fs::write(&path, serde_json::json!({ "keys": keys }).to_string()).expect("written");
        let expected = Expected {
            issuer: "i".to_owned(),
            audience: vec!["a".to_owned()],
            user_claim: "groups".to_owned(),
            leeway_s: 5,
        };
        let refresh = Duration::from_secs(300);
        let user_prefix = "team-".to_owned();
        OidcOptions {
            keys_file: Some(path),
            refresh,
            expected,
            user_prefix,
            closes_sessions: true,
            ..OidcOptions::default()
        }
    }

    fn token(signer: &Signer, groups: serde_json::Value) -> String {
        let claims = serde_json::json!({"iss": "i", "aud": "a", "exp": EXPIRES_S, "groups": groups});
        signer.sign(&serde_json::json!({"alg": "EdDSA", "kid": "1"}), &claims)
    }

    #[test]
    fn names_are_those_of_the_claim_behind_the_prefix() {
        let (folder, signer) = (tempfile::tempdir().expect("a scratch folder"), Signer::ed25519());
        let mut options = options(folder.path(), &[signer.public("1")]);
        let oidc = Oidc::new(options.clone()).expect("usable").expect("on");
        let login = oidc.login(token(&signer, "dba".into()).as_bytes()).expect("genuine");
        assert_eq!(login, Login { users: vec!["team-dba".to_owned()], expires_s: Some(EXPIRES_S + 5) });
        let login = oidc.login(token(&signer, vec!["x", "dba", "app"].into()).as_bytes()).expect("genuine");
        let user = |asked: &str| user_of(&login, asked.as_bytes(), |name| name != "team-x");
        assert_eq!((user(""), user("team-app")), (Some("team-dba"), Some("team-app")));
        assert_eq!((user("dba"), user("team-x"), user("default")), (None, None, None));
        // No token can log in as `default`.
        (options.user_prefix, options.closes_sessions) = (String::new(), false);
        let oidc = Oidc::new(options).expect("usable").expect("on");
        let login = oidc.login(token(&signer, vec!["default", "dba"].into()).as_bytes()).expect("genuine");
        assert_eq!(login, Login { users: vec!["dba".to_owned()], expires_s: None });
    }

    #[test]
    fn incomplete_options_are_refused() {
        let (folder, signer) = (tempfile::tempdir().expect("a scratch folder"), Signer::ed25519());
        let options = options(folder.path(), &[signer.public("1")]);
        let refused = |change: fn(&mut OidcOptions)| {
            let mut changed = options.clone();
            change(&mut changed);
            Oidc::new(changed).err().map(|(option, _)| option)
        };
        assert_eq!(refused(|_| {}), None);
        assert_eq!(refused(|options| options.expected.issuer.clear()), Some("oidc-issuer"));
        assert_eq!(refused(|options| options.expected.audience.clear()), Some("oidc-audience"));
        assert_eq!(refused(|options| options.keys_file = Some("/nowhere".into())), Some("oidc-keys-file"));
        let url = |options: &mut OidcOptions| options.keys_url = Some("http://issuer.example/".to_owned());
        assert_eq!(refused(url), Some("oidc-keys-url"));
        assert!(Oidc::new(OidcOptions::default()).is_ok_and(|oidc| oidc.is_none()));
    }

    #[test]
    fn an_unknown_key_makes_the_thread_look_again() {
        let (folder, signers) =
            (tempfile::tempdir().expect("a scratch folder"), [Signer::ed25519(), Signer::ed25519()]);
        let mut options = options(folder.path(), &[signers[0].public("0")]);
        options.refresh = Duration::from_millis(20);
        let oidc = Arc::new(Oidc::new(options.clone()).expect("usable").expect("on"));
        let token = token(&signers[1], "dba".into());
        assert_eq!(oidc.login(token.as_bytes()), Err(Refusal::UnknownKey));
        let thread = std::thread::spawn({
            let oidc = Arc::clone(&oidc);
            move || run(&oidc)
        });
        // The issuer has a new key. While the file is unreadable, the earlier keys stay.
        std::fs::write(options.keys_file.as_ref().expect("a file"), "half").expect("written");
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(oidc.figures().2, 1);
        self::options(folder.path(), &[signers[0].public("0"), signers[1].public("1")]);
        let began = Instant::now();
        while oidc.figures().2 < 2 {
            assert!(began.elapsed() < Duration::from_secs(20), "the new key is not read");
            std::thread::yield_now();
        }
        assert!(oidc.login(token.as_bytes()).is_ok());
        oidc.end();
        thread.join().expect("ends");
    }
}
