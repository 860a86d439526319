//! A user: how it authenticates, and what it may do.

use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

use super::denial::Denial;
use super::selector::{Asked, Selector};

/// The user of a connection that has not authenticated as another.
pub const DEFAULT_USER: &[u8] = b"default";

/// Length of a password's digest, in hexadecimal digits.
const DIGEST_LEN: usize = 64;

/// A password's SHA-256, in lower-case hexadecimal digits.
pub(super) type PasswordDigest = [u8; DIGEST_LEN];

/// Computes the digest of a password.
pub fn hash_password(password: &[u8]) -> [u8; DIGEST_LEN] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut digest = [0; DIGEST_LEN];
    for (two, byte) in digest.chunks_exact_mut(2).zip(Sha256::digest(password)) {
        two.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
    digest
}

/// A user as it is at a time: it never changes, and another takes its place.
#[derive(Clone, Debug)]
pub struct User {
    pub(super) name: Box<[u8]>,
    pub(super) is_on: bool,
    pub(super) needs_no_password: bool,
    pub(super) checks_payloads: bool,
    pub(super) passwords: Vec<PasswordDigest>,
    /// By the rules outside of parentheses, then by each pair of parentheses.
    pub(super) selectors: Vec<Selector>,
}

impl User {
    /// Creates a user that cannot log in and may do nothing.
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

    /// Creates a user that may do everything and needs no password.
    pub fn unrestricted(name: &[u8]) -> Self {
        let selectors = vec![Selector::everything()];
        Self { is_on: true, needs_no_password: true, selectors, ..Self::new(name) }
    }

    /// Its name.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Returns true if it can log in.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Returns true if any password is right.
    pub fn needs_no_password(&self) -> bool {
        self.needs_no_password
    }

    /// Returns true if a connection becomes this user's without a password.
    pub fn is_open(&self) -> bool {
        self.is_on && self.needs_no_password
    }

    /// Sets the one password (none for an empty one: then any is right).
    pub fn set_only_password(&mut self, password: &[u8]) {
        self.passwords.clear();
        self.needs_no_password = password.is_empty();
        if !password.is_empty() {
            self.passwords.push(hash_password(password));
        }
    }

    /// Returns true if this is its password, in a time that depends on its length only. A user
    /// that is off has none.
    pub fn accepts(&self, password: &[u8]) -> bool {
        if !self.is_on || self.needs_no_password {
            return self.is_on;
        }
        let digest = hash_password(password);
        let same = |known: &PasswordDigest| known.as_slice().ct_eq(&digest);
        self.passwords.iter().map(same).fold(Choice::from(0), |any, same| any | same).into()
    }

    /// Returns true if it may do everything, so that no request needs a look at its rules.
    pub fn is_unrestricted(&self) -> bool {
        self.selectors.iter().any(Selector::is_everything)
    }

    /// Checks that it may make a request.
    ///
    /// # Errors
    /// The gravest reason of its selectors.
    #[inline]
    pub fn check(&self, asked: Asked<'_>) -> Result<(), Denial> {
        let [first, others @ ..] = &*self.selectors else { return Err(Denial::Command) };
        match first.check(asked) {
            Err(denial) if !others.is_empty() => Self::check_others(others, asked, denial),
            result => result,
        }
    }

    #[inline(never)]
    fn check_others(others: &[Selector], asked: Asked<'_>, mut gravest: Denial) -> Result<(), Denial> {
        for selector in others {
            match selector.check(asked) {
                Ok(()) => return Ok(()),
                Err(denial) => gravest = gravest.max(denial),
            }
        }
        Err(gravest)
    }

    /// Returns true if it may make a request that can read any key: one selector must permit both.
    pub fn may_read_all_keys(&self, asked: Asked<'_>) -> bool {
        self.selectors.iter().any(|selector| selector.reads_all_keys() && selector.check(asked).is_ok())
    }

    /// Returns true if it has all channels of `other`, as far as their patterns show.
    pub(crate) fn has_channels_of(&self, other: &Self) -> bool {
        other.selectors.iter().all(|selector| Selector::has_channels_of(&self.selectors, selector))
    }

    /// Returns true if one of its selectors permits this channel.
    pub(crate) fn permits_channel(&self, name: &[u8]) -> bool {
        self.selectors.iter().any(|selector| selector.permits_channel(name))
    }

    /// Returns true if one of its selectors permits this pattern of channels.
    pub(crate) fn permits_channel_pattern(&self, pattern: &[u8]) -> bool {
        self.selectors.iter().any(|selector| selector.permits_channel_pattern(pattern))
    }

    /// Its flags, as they are shown.
    pub fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec![if self.is_on { "on" } else { "off" }];
        if self.needs_no_password {
            flags.push("nopass");
        }
        flags.push(if self.checks_payloads { "sanitize-payload" } else { "skip-sanitize-payload" });
        flags
    }

    /// Lists the digests of its passwords.
    pub fn passwords(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.passwords.iter().map(|digest| digest.as_slice())
    }

    /// Returns its rights by the rules outside of parentheses.
    pub fn root(&self) -> &Selector {
        &self.selectors[0]
    }

    /// Returns its rights by each pair of parentheses.
    pub fn selectors(&self) -> &[Selector] {
        &self.selectors[1..]
    }

    /// Its rules: those that make the same user from a new one.
    pub fn rules_text(&self) -> Vec<u8> {
        let mut words: Vec<Vec<u8>> = self.flags().into_iter().map(|flag| flag.as_bytes().to_vec()).collect();
        words.extend(self.passwords().map(|digest| [b"#", digest].concat()));
        words.push(self.root().text());
        words.extend(self.selectors().iter().map(|it| [b"(".as_slice(), &it.text(), b")"].concat()));
        words.join(&b' ')
    }
}
