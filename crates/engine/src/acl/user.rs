//! A user: its passwords and its rights.

use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

use super::denial::Denial;
use super::selector::{AclRequest, Selector};

/// The name of the user of a connection that has not authenticated as another.
pub const DEFAULT_USER: &[u8] = b"default";

/// The length of a password's digest, in hexadecimal digits.
const DIGEST_LEN: usize = 64;

/// A password's SHA-256, in lower-case hexadecimal digits.
pub(super) type PasswordDigest = [u8; DIGEST_LEN];

/// Computes the digest of a password, in lower-case hexadecimal digits.
pub fn hash_password(password: &[u8]) -> [u8; DIGEST_LEN] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut digest = [0; DIGEST_LEN];
    for (two, byte) in digest.chunks_exact_mut(2).zip(Sha256::digest(password)) {
        two.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
    digest
}

/// An immutable user. A change replaces it in [`Users`](super::users::Users).
#[derive(Clone, Debug)]
pub struct User {
    pub(super) name: Box<[u8]>,
    pub(super) is_on: bool,
    pub(super) needs_no_password: bool,
    pub(super) checks_payloads: bool,
    pub(super) passwords: Vec<PasswordDigest>,
    /// The selector of the rules outside parentheses, then one for each pair of parentheses.
    pub(super) selectors: Vec<Selector>,
}

impl User {
    /// Creates a user that cannot log in and has no rights.
    pub fn new(name: &[u8]) -> Self {
        Self {
            name: name.into(),
            is_on: false,
            needs_no_password: false,
            checks_payloads: true,
            passwords: Vec::new(),
            selectors: vec![Selector::new()],
        }
    }

    /// Creates a user that has all rights and can log in without a password.
    pub fn unrestricted(name: &[u8]) -> Self {
        let selectors = vec![Selector::everything()];
        Self { is_on: true, needs_no_password: true, selectors, ..Self::new(name) }
    }

    /// Returns the name of the user.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Returns true if the user can log in.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Returns true if the user accepts any password.
    pub fn needs_no_password(&self) -> bool {
        self.needs_no_password
    }

    /// Returns true if a connection can act as this user without a password: the user is on and
    /// accepts any password.
    pub fn is_open(&self) -> bool {
        self.is_on && self.needs_no_password
    }

    /// Replaces all passwords by `password`. If it is empty, the user accepts any password.
    pub fn set_only_password(&mut self, password: &[u8]) {
        self.passwords.clear();
        self.needs_no_password = password.is_empty();
        if !password.is_empty() {
            self.passwords.push(hash_password(password));
        }
    }

    /// Returns true if the user can log in with this password. The time does not depend on how many
    /// bytes of the password are right.
    pub fn accepts(&self, password: &[u8]) -> bool {
        if !self.is_on || self.needs_no_password {
            return self.is_on;
        }
        let digest = hash_password(password);
        let same = |known: &PasswordDigest| known.as_slice().ct_eq(&digest);
        self.passwords.iter().map(same).fold(Choice::from(0), |any, same| any | same).into()
    }

    /// Returns true if the user has all rights, so that no request must be checked.
    pub fn is_unrestricted(&self) -> bool {
        self.selectors.iter().any(Selector::is_everything)
    }

    /// Checks that the user may make a request: one of the selectors must permit it.
    ///
    /// # Errors
    /// Of the reasons of all selectors, the one that comes last in [`Denial`].
    #[inline]
    pub fn check(&self, asked: AclRequest<'_>) -> Result<(), Denial> {
        let [first, others @ ..] = &*self.selectors else { return Err(Denial::Command) };
        match first.check(asked) {
            Err(denial) if !others.is_empty() => Self::check_others(others, asked, denial),
            result => result,
        }
    }

    #[inline(never)]
    fn check_others(others: &[Selector], asked: AclRequest<'_>, mut gravest: Denial) -> Result<(), Denial> {
        for selector in others {
            match selector.check(asked) {
                Ok(()) => return Ok(()),
                Err(denial) => gravest = gravest.max(denial),
            }
        }
        Err(gravest)
    }

    /// Returns true if the user may make a request that can read any key. A single selector must
    /// permit the request and all keys.
    pub fn may_read_all_keys(&self, asked: AclRequest<'_>) -> bool {
        self.selectors.iter().any(|selector| selector.reads_all_keys() && selector.check(asked).is_ok())
    }

    /// Returns true if this user may use all channels that `other` may use. Compares the texts of
    /// their patterns only.
    pub(crate) fn has_channels_of(&self, other: &Self) -> bool {
        other.selectors.iter().all(|selector| Selector::has_channels_of(&self.selectors, selector))
    }

    /// Returns true if one of the user's selectors permits this channel.
    pub(crate) fn permits_channel(&self, name: &[u8]) -> bool {
        self.selectors.iter().any(|selector| selector.permits_channel(name))
    }

    /// Returns true if one of the user's selectors permits this pattern of channels.
    pub(crate) fn permits_channel_pattern(&self, pattern: &[u8]) -> bool {
        self.selectors.iter().any(|selector| selector.permits_channel_pattern(pattern))
    }

    /// Returns the user's flags, such as `on` or `nopass`, in the form that ACL LIST shows.
    pub fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec![if self.is_on { "on" } else { "off" }];
        if self.needs_no_password {
            flags.push("nopass");
        }
        flags.push(if self.checks_payloads { "sanitize-payload" } else { "skip-sanitize-payload" });
        flags
    }

    /// Lists the digests of the user's passwords.
    pub fn passwords(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.passwords.iter().map(|digest| digest.as_slice())
    }

    /// Returns the selector (set of rights) of the user's rules outside parentheses.
    pub fn root(&self) -> &Selector {
        &self.selectors[0]
    }

    /// Returns the selectors (sets of rights) of the user's rules in parentheses, one for each
    /// pair.
    pub fn selectors(&self) -> &[Selector] {
        &self.selectors[1..]
    }

    /// Formats the user's rules. Applied to a new user, they create an equal user.
    pub fn rules_text(&self) -> Vec<u8> {
        let mut words: Vec<Vec<u8>> = self.flags().into_iter().map(|flag| flag.as_bytes().to_vec()).collect();
        words.extend(self.passwords().map(|digest| [b"#", digest].concat()));
        words.push(self.root().text());
        words.extend(self.selectors().iter().map(|it| [b"(".as_slice(), &it.text(), b")"].concat()));
        words.join(&b' ')
    }
}
