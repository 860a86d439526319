//! The contents of a certificate: the names, the time of expiry, the serial number.
//!
//! Names are compared as bytes. A name with a zero byte is ignored, because a program that reads
//! text up to a zero byte would take it for another name. A certificate with several common names
//! counts as one without a common name.

use std::time::{SystemTime, UNIX_EPOCH};

use rustls::pki_types::CertificateDer;
use x509_cert::Certificate;
use x509_cert::der::asn1::{Ia5StringRef, PrintableStringRef, TeletexStringRef, Utf8StringRef};
use x509_cert::der::oid::ObjectIdentifier;
use x509_cert::der::{Any, Decode, Encode, Tag, Tagged};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

use crate::config::choices::CertificateUser;

/// The object identifier of the attribute `commonName` in certificates.
const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");

/// The properties of a certificate that INFO shows: its serial number and its time of expiry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The serial number of the certificate, in hexadecimal digits.
    pub serial: String,
    /// The time at which the certificate expires, in Unix seconds.
    pub not_after_unix_s: u64,
}

impl Facts {
    /// Reads the serial number and the time of expiry of a certificate; `None` if it cannot be
    /// parsed.
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let certificate = Certificate::from_der(certificate).ok()?.tbs_certificate;
        let serial = certificate.serial_number.as_bytes();
        let serial = serial.iter().map(|byte| format!("{byte:02X}")).collect();
        let not_after_unix_s = certificate.validity.not_after.to_unix_duration().as_secs();
        Some(Self { serial, not_after_unix_s })
    }

    /// Returns the seconds until the certificate expires; 0 if it has expired.
    pub fn expires_in_s(&self) -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        self.not_after_unix_s.saturating_sub(now)
    }
}

/// Returns the public key of a certificate, encoded as `SubjectPublicKeyInfo`.
pub fn public_key(certificate: &CertificateDer<'_>) -> Option<Vec<u8>> {
    let certificate = Certificate::from_der(certificate).ok()?;
    certificate.tbs_certificate.subject_public_key_info.to_der().ok()
}

/// Returns the common name of a certificate's subject; `None` unless it has exactly one.
pub fn common_name(certificate: &CertificateDer<'_>) -> Option<Vec<u8>> {
    let certificate = Certificate::from_der(certificate).ok()?;
    let attributes = certificate.tbs_certificate.subject.0.iter().flat_map(|part| part.0.iter());
    let mut names = attributes.filter(|attribute| attribute.oid == COMMON_NAME);
    let (Some(name), None) = (names.next(), names.next()) else { return None };
    text(&name.value).filter(|name| is_name(name))
}

/// Returns the URIs among the certificate's subject alternative names, in their order.
pub fn uris(certificate: &CertificateDer<'_>) -> Vec<Vec<u8>> {
    let Ok(certificate) = Certificate::from_der(certificate) else { return Vec::new() };
    let Ok(Some((_, names))) = certificate.tbs_certificate.get::<SubjectAltName>() else { return Vec::new() };
    let uris = names.0.iter().filter_map(|name| match name {
        GeneralName::UniformResourceIdentifier(uri) => Some(uri.as_bytes().to_vec()),
        _ => None,
    });
    uris.filter(|uri| is_name(uri)).collect()
}

/// Returns the names of users that a certificate may log in, from the field that
/// `tls-auth-clients-user` selects.
pub fn user_names(certificate: &CertificateDer<'_>, field: CertificateUser) -> Vec<Vec<u8>> {
    match field {
        CertificateUser::Off => Vec::new(),
        CertificateUser::CommonName => common_name(certificate).into_iter().collect(),
        CertificateUser::Uri => uris(certificate),
    }
}

fn is_name(bytes: &[u8]) -> bool {
    !bytes.is_empty() && !bytes.contains(&0)
}

/// Returns the bytes of a text in a certificate; `None` for string types whose bytes are not the
/// text itself.
fn text(value: &Any) -> Option<Vec<u8>> {
    let bytes = match value.tag() {
        Tag::Utf8String => value.decode_as::<Utf8StringRef<'_>>().ok()?.as_bytes().to_vec(),
        Tag::PrintableString => value.decode_as::<PrintableStringRef<'_>>().ok()?.as_bytes().to_vec(),
        Tag::Ia5String => value.decode_as::<Ia5StringRef<'_>>().ok()?.as_bytes().to_vec(),
        Tag::TeletexString => value.decode_as::<TeletexStringRef<'_>>().ok()?.as_bytes().to_vec(),
        _ => return None,
    };
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};

    use super::*;

    fn made(names: &[&str], uris: &[&str]) -> CertificateDer<'static> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for name in names {
            params.distinguished_name.push(DnType::CommonName, *name);
        }
        let san = |uri: &&str| SanType::URI((*uri).try_into().expect("ASCII"));
        params.subject_alt_names = uris.iter().map(san).collect();
        let key = KeyPair::generate().expect("a key");
        params.self_signed(&key).expect("signed").der().clone()
    }

    #[test]
    fn names_are_whole_and_without_a_zero() {
        assert_eq!(common_name(&made(&["alice"], &[])), Some(b"alice".to_vec()));
        assert_eq!(common_name(&made(&["alice\0.evil"], &[])), None);
        assert_eq!(common_name(&made(&[""], &[])), None);
        assert_eq!(common_name(&made(&[], &[])), None);
        assert_eq!(common_name(&made(&["Zoë"], &[])), Some("Zoë".as_bytes().to_vec()));
        let uris = uris(&made(&["a"], &["urn:user:bob", "spiffe://x/y", "urn:\0bob"]));
        assert_eq!(uris, [b"urn:user:bob".to_vec(), b"spiffe://x/y".to_vec()]);
        assert_eq!(common_name(&CertificateDer::from(vec![1, 2, 3])), None);
    }

    #[test]
    fn facts_have_the_serial_number_and_the_last_second() {
        let facts = Facts::of(&made(&["a"], &[])).expect("readable");
        assert!(facts.serial.len() >= 2 && facts.expires_in_s() > 0);
    }
}
