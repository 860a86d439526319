//! Signed tokens (JWT): their verification, and their claims about the bearer.
//!
//! ```text
//!   base64url(header) . base64url(claims) . base64url(signature)
//!   {"alg":"ES256",     {"iss":…,"aud":…,
//!    "kid":"1"}          "exp":…,"sub":…}
//! ```
//! The library jsonwebtoken reads keys and tokens, and checks claims and signatures. It uses
//! aws-lc-rs for signatures, as TLS does.
//!
//! The key determines the algorithm, never the token. Each key has one algorithm: its `alg`, or the
//! default algorithm of its type. The library gets this algorithm as the only permitted one, so it
//! refuses a token whose header names another one. No algorithm with a shared secret (HS256) is
//! accepted, and `none` is unknown.
//!
//! Cost: one to four signature checks, each about 30 µs for RS256 and 100 µs for the others. A
//! token is one word of a request, so before authentication it has at most 16 KiB. Source: RFC
//! 7515, 7517, 7518, 7519, 8037.

use std::fmt;

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use serde_json::{Map, Value};

/// Maximum number of public keys in the key set of an identity provider; further keys are left out.
const KEYS_MAX: usize = 64;
/// Maximum number of public keys that are tried to verify a token that names no key.
const TRIES_MAX: usize = 4;
/// Maximum number of users that a token of an identity provider may name.
const USERS_MAX: usize = 64;

/// A public key of the identity provider, by which signatures of tokens are verified.
#[derive(Clone, Debug)]
struct Key {
    id: Option<String>,
    algorithm: Algorithm,
    decoding: DecodingKey,
}

/// The public keys of an identity provider (JWKS), which verify its tokens.
#[derive(Clone, Debug, Default)]
pub struct Keys(Vec<Key>);

/// The reason why a text is not a set of public keys (JWKS).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeysError {
    /// The text of the key set is not JSON with a list `keys`.
    NoKeySet,
    /// No public key in the set is for a supported signature algorithm.
    NoUsableKey,
}

impl fmt::Display for KeysError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoKeySet => "not a key set: expected JSON with a list 'keys' (JWKS)",
            Self::NoUsableKey => "the key set has no key for RSA, ECDSA (P-256, P-384) or Ed25519 signatures",
        })
    }
}

impl std::error::Error for KeysError {}

impl Keys {
    /// Parses a set of public keys (JWKS) of an identity provider. Skips keys of unsupported types
    /// and keys that are not for signatures.
    pub fn parse(text: &[u8]) -> Result<Self, KeysError> {
        let set: Value = serde_json::from_slice(text).map_err(|_| KeysError::NoKeySet)?;
        let list = set.get("keys").and_then(Value::as_array).ok_or(KeysError::NoKeySet)?;
        let keys: Vec<Key> = list.iter().filter_map(parse_key).take(KEYS_MAX).collect();
        if keys.is_empty() { Err(KeysError::NoUsableKey) } else { Ok(Self(keys)) }
    }

    /// Returns the number of public keys of the identity provider in the set.
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

fn parse_key(key: &Value) -> Option<Key> {
    let key: Jwk = serde_json::from_value(key.clone()).ok()?;
    if key.common.public_key_use.as_ref().is_some_and(|used| *used != PublicKeyUse::Signature) {
        return None;
    }
    let of_type = match &key.algorithm {
        AlgorithmParameters::RSA(_) => Algorithm::RS256,
        AlgorithmParameters::EllipticCurve(point) => match point.curve {
            EllipticCurve::P256 => Algorithm::ES256,
            EllipticCurve::P384 => Algorithm::ES384,
            _ => return None,
        },
        AlgorithmParameters::OctetKeyPair(pair) if pair.curve == EllipticCurve::Ed25519 => Algorithm::EdDSA,
        _ => return None,
    };
    let algorithm = match key.common.key_algorithm {
        None => of_type,
        Some(named) => Algorithm::try_from(named).ok()?,
    };
    // A key of an elliptic curve has one algorithm, an RSA key several.
    let is_of_type =
        algorithm == of_type || algorithm.family() == of_type.family() && of_type == Algorithm::RS256;
    if !is_of_type {
        return None;
    }
    let decoding = DecodingKey::from_jwk(&key).ok()?;
    if !has_right_length(algorithm, &decoding) {
        return None;
    }
    Some(Key { id: key.common.key_id, algorithm, decoding })
}

/// Returns true if a public key has the correct length for its algorithm. aws-lc checks the length
/// of RSA keys.
fn has_right_length(algorithm: Algorithm, key: &DecodingKey) -> bool {
    let wanted = match algorithm {
        Algorithm::ES256 => 65,
        Algorithm::ES384 => 97,
        Algorithm::EdDSA => 32,
        _ => return true,
    };
    key.try_get_as_bytes().is_ok_and(|bytes| bytes.len() == wanted)
}

/// The claims that a token must have to be accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// The issuer: the required value of the claim `iss`.
    pub issuer: String,
    /// The accepted audiences: one of them must be in `aud`.
    pub audience: Vec<String>,
    /// The name of the claim that contains the user names of the token's bearer.
    pub user_claim: String,
    /// The accepted difference between the clocks of the server and the identity provider, in
    /// seconds.
    pub leeway_s: u64,
}

/// The claims of a verified token that a login needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    /// The user names in the claim `oidc-user-claim`, at least one.
    pub users: Vec<String>,
    /// The time at which the token expires, in Unix seconds.
    pub expires_s: u64,
}

/// The reason why a token is refused. It is written to the log and never sent to the client, and it
/// reveals nothing of the token's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The text does not have the form of a token, or its algorithm is unknown.
    Malformed,
    /// The token's algorithm is not that of the public key that must verify it.
    Algorithm,
    /// The token has extensions that the server must understand (`crit`); it understands none.
    Critical,
    /// No public key of the identity provider has the token's key id, or the set is empty.
    UnknownKey,
    /// The signature of the token is wrong.
    Signature,
    /// A required claim is missing, or a claim has the wrong type.
    Claim,
    /// The claim `iss` names another issuer.
    Issuer,
    /// The claim `aud` contains none of the accepted audiences.
    Audience,
    /// The token has expired: the time of the claim `exp` has passed.
    Expired,
    /// The token is not valid yet: the time of the claim `nbf` is in the future.
    NotYet,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "it is not a token signed with a known algorithm",
            Self::Algorithm => "its algorithm differs from the algorithm of its key",
            Self::Critical => "it has critical extensions, which are not supported",
            Self::UnknownKey => "the key that signed it is unknown",
            Self::Signature => "its signature is wrong",
            Self::Claim => "a claim is missing or of the wrong type",
            Self::Issuer => "its issuer is not the one of oidc-issuer",
            Self::Audience => "its audience is not in oidc-audience",
            Self::Expired => "it has expired",
            Self::NotYet => "it is not valid yet",
        })
    }
}

impl From<jsonwebtoken::errors::Error> for Refusal {
    fn from(error: jsonwebtoken::errors::Error) -> Self {
        match error.into_kind() {
            ErrorKind::InvalidAlgorithm | ErrorKind::MissingAlgorithm | ErrorKind::UnsupportedAlgorithm => {
                Self::Algorithm
            }
            ErrorKind::InvalidSignature => Self::Signature,
            ErrorKind::MissingRequiredClaim(_) | ErrorKind::InvalidClaimFormat(_) => Self::Claim,
            ErrorKind::InvalidIssuer => Self::Issuer,
            ErrorKind::InvalidAudience => Self::Audience,
            ErrorKind::ExpiredSignature => Self::Expired,
            ErrorKind::ImmatureSignature => Self::NotYet,
            _ => Self::Malformed,
        }
    }
}

/// Returns true if the bytes have the form of a signed token: three parts separated by dots, of
/// which the first begins like an encoded JSON object. Fast enough to be called for each password.
pub fn is_token(bytes: &[u8]) -> bool {
    // `ey` is the beginning of `{"` in base64url.
    bytes.starts_with(b"ey") && bytes.iter().filter(|&&byte| byte == b'.').count() == 2
}

/// Verifies `token` and returns its claims. Returns the reason if the token is not genuine, not
/// valid now or lacks an expected claim.
pub fn verify(token: &[u8], keys: &Keys, expected: &Expected) -> Result<Claims, Refusal> {
    let header = decode_header(token)?;
    if header.crit.is_some() {
        return Err(Refusal::Critical);
    }
    let is_named = |key: &&Key| header.kid.is_none() || header.kid == key.id;
    let named: Vec<&Key> = keys.0.iter().filter(is_named).collect();
    if named.is_empty() {
        return Err(Refusal::UnknownKey);
    }
    let fitting = named.into_iter().filter(|key| key.algorithm == header.alg).take(TRIES_MAX);
    let mut refusal = Refusal::Algorithm;
    for key in fitting {
        let validation = validation(key.algorithm, expected);
        match decode::<Map<String, Value>>(token, &key.decoding, &validation) {
            Ok(token) => return claims(&token.claims, expected),
            Err(error) => refusal = error.into(),
        }
        if refusal != Refusal::Signature {
            break;
        }
    }
    Err(refusal)
}

/// Returns the rules by which the library checks a token.
fn validation(algorithm: Algorithm, expected: &Expected) -> Validation {
    let mut validation = Validation::new(algorithm);
    validation.set_required_spec_claims(&["exp", "iss", "aud"]);
    validation.set_issuer(&[&expected.issuer]);
    validation.set_audience(&expected.audience);
    validation.leeway = expected.leeway_s;
    validation.validate_nbf = true;
    validation
}

/// Returns those claims that a login needs. The library has checked the values of `iss`, `aud`,
/// `exp` and `nbf`.
fn claims(claims: &Map<String, Value>, expected: &Expected) -> Result<Claims, Refusal> {
    let expires_s = claims.get("exp").and_then(|exp| exp.as_u64().or(exp.as_f64().map(|exp| exp as u64)));
    let users = words(claims.get(&expected.user_claim)).filter(|users| !users.is_empty());
    Ok(Claims { users: users.ok_or(Refusal::Claim)?, expires_s: expires_s.ok_or(Refusal::Claim)? })
}

/// Returns the texts of a claim that is a text or a list of at most [`USERS_MAX`] texts; `None` for
/// any other claim.
fn words(claim: Option<&Value>) -> Option<Vec<String>> {
    match claim? {
        Value::String(word) => Some(vec![word.clone()]),
        Value::Array(list) if list.len() <= USERS_MAX => {
            list.iter().map(|word| word.as_str().map(str::to_owned)).collect()
        }
        _ => None,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use aws_lc_rs::rand::SystemRandom;
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};
    use base64::Engine as _;
    use base64::prelude::BASE64_URL_SAFE_NO_PAD as URL_SAFE_NO_PAD;
    use jsonwebtoken::get_current_timestamp as now_s;
    use serde_json::json;

    use super::*;

    /// A token that `openssl dgst -sha256 -sign` has signed with a key of 2,048 bits, which no
    /// longer exists. It expires in 2100.
    const RSA_TOKEN: &str = "eyJhbGciOiJSUzI1NiIsImtpZCI6InJzYS0xIiwidHlwIjoiSldUIn0.eyJpc3MiOiJodHRwczovL2lzc3Vlci5leGFtcGxl\
        IiwiYXVkIjoic2FrZXIiLCJzdWIiOiJhbGljZSIsImV4cCI6NDEwMjQ0NDgwMH0.ugyEoQ9SWZnHb-Tvd4A90jbIiPxhPWvm\
        BuCL1x6Ks1uFo8RWnWnOEAhjOLtIK2vwBZYtQS8PvwM2VuW-CnjqP7gIRlcJDefr_p8iJbSxUtQ7hJTfqBx2ark8R713p4ER\
        cJmjMEvlK_wk2ZHvVX0IVukNhquuJ3IhAPpOFflp7IRWuDh-gsRe3Kg1fYcTR6GhaHUmwSOfF1EFJZqYKyVyIg8Wm3eCFFkf\
        6CEgGjgZspnTx3aIEomeWv_WvsMj4gz0sTiYimXcwJhOpMPBDesnPwNlSae-Z17pLE5OF5mrNRqv2fekJzoaVAhSYwCMAJUx\
        1TsUU-S7lkT4PEgc8EPnUg";
    const RSA_MODULUS: &str = "zSsdWMRTdVQCzahN2TjG1dDj0Y4I-vVm_wrIiZIH3MIJDHWEGjAc6rJpUis9wTvPgn1gYZRGvwLQL0oInBHvgHr9lGEMjZnE\
        ExUeYTgqoDZgoBaUtq-hjBKhuXkaYSh0s0ooeH22CSkQ1WyEHjKQZ8aOlRwLOzrF5s1-X6tI-anRTePgkPo42HhuAnDM9w6H\
        NgO4vYsNwme0ue4S0m6LsfTxBcacFeHJzXxvFNr__zQVjUBBwc9Ad99_z9ZFPmpDREU2YUe1OSf-ey972ccXjJVpA8RqBcKR\
        D2D5CELTEXPtH-PyVy-5ZpITzqt6CceXHKJlgLlN8xXzS164je8Hpw";

    /// Encodes bytes in base64url.
    pub fn encode_base64url(bytes: &[u8]) -> String {
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// A key pair that signs tokens.
    pub enum Signer {
        Ed25519(Ed25519KeyPair),
        P256(Box<EcdsaKeyPair>),
    }

    impl Signer {
        pub fn ed25519() -> Self {
            let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("random");
            Self::Ed25519(Ed25519KeyPair::from_pkcs8(document.as_ref()).expect("just made"))
        }

        pub fn p256() -> Self {
            let (rng, kind) = (SystemRandom::new(), &ECDSA_P256_SHA256_FIXED_SIGNING);
            let document = EcdsaKeyPair::generate_pkcs8(kind, &rng).expect("random");
            Self::P256(Box::new(EcdsaKeyPair::from_pkcs8(kind, document.as_ref()).expect("just made")))
        }

        /// Returns the public key as JSON (JWK) with the key id `id`.
        pub fn public(&self, id: &str) -> Value {
            match self {
                Self::Ed25519(pair) => {
                    let x = encode_base64url(pair.public_key().as_ref());
                    json!({"kty": "OKP", "crv": "Ed25519", "kid": id, "x": x})
                }
                Self::P256(pair) => {
                    let [x, y] =
                        [1..33, 33..65].map(|place| encode_base64url(&pair.public_key().as_ref()[place]));
                    json!({"kty": "EC", "crv": "P-256", "kid": id, "x": x, "y": y})
                }
            }
        }

        /// Signs a token with this header and these claims, and returns its text.
        pub fn sign(&self, header: &Value, claims: &Value) -> String {
            let parts = [header, claims].map(|part| encode_base64url(part.to_string().as_bytes()));
            let message = parts.join(".");
            let signature = match self {
                Self::Ed25519(pair) => pair.sign(message.as_bytes()).as_ref().to_vec(),
                Self::P256(pair) => {
                    let signature = pair.sign(&SystemRandom::new(), message.as_bytes()).expect("random");
                    signature.as_ref().to_vec()
                }
            };
            format!("{message}.{}", encode_base64url(&signature))
        }
    }

    fn keys(list: &[Value]) -> Keys {
        Keys::parse(json!({ "keys": list }).to_string().as_bytes()).expect("usable keys")
    }

    fn expected() -> Expected {
        Expected {
            issuer: "https://issuer.example".to_owned(),
            audience: vec!["saker".to_owned()],
            user_claim: "sub".to_owned(),
            leeway_s: 30,
        }
    }

    fn claims() -> Value {
        json!({"iss": "https://issuer.example", "aud": "saker", "sub": "alice", "exp": now_s() + 60})
    }

    /// Checks the result for claims in which `name` is set to `value`, or removed if `value` is
    /// null. For some claims of a wrong type, the library refuses the whole token.
    fn check(name: &str, value: Value, result: Result<&[&str], Refusal>) {
        let signer = Signer::ed25519();
        let mut changed = claims();
        match value {
            Value::Null => drop(changed.as_object_mut().expect("an object").remove(name)),
            value => changed[name] = value,
        }
        let token = signer.sign(&json!({"alg": "EdDSA", "kid": "1"}), &changed);
        let verified = verify(token.as_bytes(), &keys(&[signer.public("1")]), &expected());
        let users = verified.map(|claims| claims.users).map_err(|refusal| match refusal {
            Refusal::Malformed => Refusal::Claim,
            refusal => refusal,
        });
        let result = result.map(|users| users.iter().map(|user| (*user).to_owned()).collect::<Vec<_>>());
        assert_eq!(users, result, "{changed}");
    }

    #[test]
    fn genuine_tokens_of_each_algorithm_are_taken() {
        for (signer, algorithm) in [(Signer::ed25519(), "EdDSA"), (Signer::p256(), "ES256")] {
            let keys = keys(&[Signer::p256().public("0"), signer.public("1")]);
            for header in [json!({"alg": algorithm, "kid": "1", "typ": "JWT"}), json!({"alg": algorithm})] {
                let token = signer.sign(&header, &claims());
                assert!(is_token(token.as_bytes()));
                let verified = verify(token.as_bytes(), &keys, &expected());
                let users = verified.map(|claims| claims.users);
                assert_eq!(users, Ok(vec!["alice".to_owned()]), "{header}");
            }
        }
        let keys =
            keys(&[json!({"kty": "RSA", "kid": "rsa-1", "n": RSA_MODULUS, "e": "AQAB", "alg": "RS256"})]);
        let verified = verify(RSA_TOKEN.as_bytes(), &keys, &expected());
        assert_eq!(verified.map(|claims| claims.expires_s), Ok(4_102_444_800));
    }

    #[test]
    fn any_changed_letter_is_noticed() {
        let signer = Signer::ed25519();
        let keys = keys(&[signer.public("1")]);
        let token = signer.sign(&json!({"alg": "EdDSA"}), &claims());
        for at in 0..token.len() {
            let mut changed = token.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            assert!(verify(&changed, &keys, &expected()).is_err(), "letter {at}");
            assert!(verify(&token.as_bytes()[..at], &keys, &expected()).is_err(), "{at} letters");
        }
    }

    #[test]
    fn the_key_decides_the_algorithm() {
        let (signer, other) = (Signer::p256(), Signer::ed25519());
        let keys = keys(&[signer.public("1")]);
        let try_with = |signer: &Signer, header: Value| {
            verify(signer.sign(&header, &claims()).as_bytes(), &keys, &expected()).err()
        };
        for name in ["none", "None", "NONE", "ES512", ""] {
            let refusal = try_with(&signer, json!({"alg": name, "kid": "1"}));
            assert_eq!(refusal, Some(Refusal::Malformed), "{name}");
        }
        for name in ["HS256", "HS512", "RS512", "PS256", "ES384"] {
            let refusal = try_with(&signer, json!({"alg": name, "kid": "1"}));
            assert_eq!(refusal, Some(Refusal::Algorithm), "{name}");
        }
        // In order: the header names another algorithm than the key's; header and signature are of
        // another algorithm; the signature is of another key; the key id is unknown.
        assert_eq!(try_with(&signer, json!({"alg": "RS256", "kid": "1"})), Some(Refusal::Algorithm));
        assert_eq!(try_with(&other, json!({"alg": "EdDSA", "kid": "1"})), Some(Refusal::Algorithm));
        assert_eq!(try_with(&other, json!({"alg": "ES256", "kid": "1"})), Some(Refusal::Signature));
        assert_eq!(try_with(&signer, json!({"alg": "ES256", "kid": "2"})), Some(Refusal::UnknownKey));
        assert_eq!(
            try_with(&signer, json!({"alg": "ES256", "crit": ["b64"], "b64": false})),
            Some(Refusal::Critical)
        );
        let unsigned = signer.sign(&json!({"alg": "ES256"}), &claims());
        let unsigned = &unsigned[..=unsigned.rfind('.').expect("it has dots")];
        assert_eq!(verify(unsigned.as_bytes(), &keys, &expected()), Err(Refusal::Signature));
    }

    #[test]
    fn claims_must_be_there_and_of_their_types() {
        let now_s = now_s();
        check("sub", json!("alice"), Ok(&["alice"]));
        // The standard permits only one subject.
        check("sub", json!(["alice"]), Err(Refusal::Claim));
        check("sub", json!(7), Err(Refusal::Claim));
        check("sub", Value::Null, Err(Refusal::Claim));
        check("iss", json!("https://issuer.example/"), Err(Refusal::Issuer));
        check("iss", json!(7), Err(Refusal::Claim));
        check("iss", Value::Null, Err(Refusal::Claim));
        check("aud", json!(["other", "saker"]), Ok(&["alice"]));
        check("aud", json!("other"), Err(Refusal::Audience));
        check("aud", json!([]), Err(Refusal::Audience));
        check("aud", Value::Null, Err(Refusal::Claim));
        for wrong in
            [Value::Null, json!((now_s + 60).to_string()), json!(-1), json!(1e300), json!([now_s + 60])]
        {
            check("exp", wrong, Err(Refusal::Claim));
        }
        check("exp", json!(now_s as f64 + 60.5), Ok(&["alice"]));
        check("exp", json!(now_s - 10), Ok(&["alice"]));
        check("exp", json!(now_s - 40), Err(Refusal::Expired));
        check("exp", json!(0), Err(Refusal::Expired));
        check("exp", json!(u64::MAX), Ok(&["alice"]));
        check("nbf", json!(now_s + 20), Ok(&["alice"]));
        check("nbf", json!(now_s + 60), Err(Refusal::NotYet));
        check("nbf", json!("never"), Err(Refusal::Claim));
    }

    #[test]
    fn another_claim_may_have_a_list_of_users() {
        let signer = Signer::ed25519();
        let expected = Expected { user_claim: "groups".to_owned(), ..expected() };
        let check = |groups: Value| {
            let mut changed = claims();
            changed["groups"] = groups;
            let token = signer.sign(&json!({"alg": "EdDSA", "kid": "1"}), &changed);
            verify(token.as_bytes(), &keys(&[signer.public("1")]), &expected).map(|claims| claims.users)
        };
        assert_eq!(check(json!(["a", "b"])), Ok(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(check(json!("a")), Ok(vec!["a".to_owned()]));
        for wrong in [json!(7), json!(["a", 7]), json!([]), json!(vec!["a"; USERS_MAX + 1]), Value::Null] {
            assert_eq!(check(wrong), Err(Refusal::Claim));
        }
    }

    #[test]
    fn rsa_keys_are_for_one_algorithm_each() {
        let key = |algorithm: Option<&str>| {
            let mut key = json!({"kty": "RSA", "kid": "rsa-1", "n": RSA_MODULUS, "e": "AQAB"});
            if let Some(algorithm) = algorithm {
                key["alg"] = json!(algorithm);
            }
            keys(&[key])
        };
        let check = |algorithm| verify(RSA_TOKEN.as_bytes(), &key(algorithm), &expected()).err();
        assert_eq!((check(None), check(Some("RS256"))), (None, None));
        for other in ["RS512", "PS256"] {
            assert_eq!(check(Some(other)), Some(Refusal::Algorithm));
        }
        let encrypts = json!({"keys": [{"kty": "RSA", "n": RSA_MODULUS, "e": "AQAB", "alg": "RSA-OAEP"}]});
        assert_eq!(Keys::parse(encrypts.to_string().as_bytes()).err(), Some(KeysError::NoUsableKey));
    }

    #[test]
    fn keys_of_other_kinds_are_passed_over() {
        let signer = Signer::p256();
        let with = |name: &str, value: Value| {
            let mut key = signer.public("1");
            key[name] = value;
            Keys::parse(json!({"keys": [key]}).to_string().as_bytes()).map(|keys| keys.len())
        };
        assert_eq!(with("use", json!("sig")), Ok(1));
        for (name, value) in
            [("use", "enc"), ("alg", "ES384"), ("crv", "P-521"), ("kty", "oct"), ("x", "AA"), ("y", "!")]
        {
            assert_eq!(with(name, json!(value)), Err(KeysError::NoUsableKey), "{name} {value}");
        }
        let secret = json!({"keys": [{"kty": "oct", "k": "c2VjcmV0", "alg": "HS256"}]}).to_string();
        assert_eq!(Keys::parse(secret.as_bytes()).err(), Some(KeysError::NoUsableKey));
        assert_eq!(Keys::parse(b"{}").err(), Some(KeysError::NoKeySet));
        assert_eq!(Keys::parse(b"-----BEGIN PUBLIC KEY-----").err(), Some(KeysError::NoKeySet));
    }
}
