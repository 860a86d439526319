//! Certificates and keys from PEM files. Keys may be encrypted with a password: as PKCS #8 (PBES2),
//! or in the form of OpenSSL before 1.0 (`Proc-Type: 4,ENCRYPTED`).

use std::fs;
use std::path::Path;

use aes::cipher::block_padding::Pkcs7;
use aes::cipher::{BlockDecryptMut, KeyIvInit};
use md5::{Digest, Md5};
use pem::Pem;
use pkcs8::EncryptedPrivateKeyInfo;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Maximum size of a file with certificates or keys, in bytes: enough for hundreds of certificates.
const FILE_LEN_BYTES_MAX: u64 = 16 << 20;

/// Reads all certificates of a PEM file, in their order. A file without a certificate is an error.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let blocks = blocks(path)?
        .into_iter()
        .filter(|block| matches!(block.tag(), "CERTIFICATE" | "TRUSTED CERTIFICATE" | "X509 CERTIFICATE"));
    let found: Vec<_> = blocks.map(|block| CertificateDer::from(block.into_contents())).collect();
    if found.is_empty() { Err("the file has no certificate".to_owned()) } else { Ok(found) }
}

/// Reads the first private key of a PEM file. If the key is encrypted, decrypts it with `password`.
pub fn key(path: &Path, password: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    let block = blocks(path)?.into_iter().find(|block| block.tag().ends_with("PRIVATE KEY"));
    let block = block.ok_or_else(|| "the file has no private key".to_owned())?;
    let wrong_password = || match password.is_empty() {
        true => "the key is encrypted, but no password is set".to_owned(),
        false => "the key cannot be decrypted: the password is wrong, or the key is damaged".to_owned(),
    };
    if block.tag() == "ENCRYPTED PRIVATE KEY" {
        let unreadable = |error: pkcs8::Error| format!("the encrypted key cannot be read: {error}");
        let encrypted = EncryptedPrivateKeyInfo::try_from(block.contents()).map_err(unreadable)?;
        let key = encrypted.decrypt(password).map_err(|_| wrong_password())?;
        return Ok(PrivateKeyDer::Pkcs8(key.as_bytes().to_vec().into()));
    }
    let contents = match block.headers().get("DEK-Info") {
        Some(info) => decrypt_old(info, block.contents(), password).ok_or_else(wrong_password)?,
        None => block.contents().to_vec(),
    };
    match block.tag() {
        "PRIVATE KEY" => Ok(PrivateKeyDer::Pkcs8(contents.into())),
        "RSA PRIVATE KEY" => Ok(PrivateKeyDer::Pkcs1(contents.into())),
        "EC PRIVATE KEY" => Ok(PrivateKeyDer::Sec1(contents.into())),
        tag => Err(format!("{tag}: unknown form of key")),
    }
}

fn blocks(path: &Path) -> Result<Vec<Pem>, String> {
    let about = fs::metadata(path).map_err(|error| error.to_string())?;
    if about.len() > FILE_LEN_BYTES_MAX {
        return Err("the file is too long".to_owned());
    }
    let text = fs::read(path).map_err(|error| error.to_string())?;
    pem::parse_many(text).map_err(|error| format!("not PEM: {error}"))
}

/// Decrypts a private key that OpenSSL encrypted with the cipher and initialization vector in
/// `info`. Returns `None` if these are invalid or the password is wrong.
fn decrypt_old(info: &str, encrypted: &[u8], password: &[u8]) -> Option<Vec<u8>> {
    let (cipher, iv) = info.split_once(',')?;
    let iv = unhex(iv.trim())?;
    let key = |len| old_key(password, iv.get(..8)?, len);
    match cipher.trim() {
        "AES-128-CBC" => decrypt::<cbc::Decryptor<aes::Aes128>>(&key(16)?, &iv, encrypted),
        "AES-192-CBC" => decrypt::<cbc::Decryptor<aes::Aes192>>(&key(24)?, &iv, encrypted),
        "AES-256-CBC" => decrypt::<cbc::Decryptor<aes::Aes256>>(&key(32)?, &iv, encrypted),
        "DES-EDE3-CBC" => decrypt::<cbc::Decryptor<des::TdesEde3>>(&key(24)?, &iv, encrypted),
        _ => None,
    }
}

fn decrypt<C: KeyIvInit + BlockDecryptMut>(key: &[u8], iv: &[u8], encrypted: &[u8]) -> Option<Vec<u8>> {
    C::new_from_slices(key, iv).ok()?.decrypt_padded_vec_mut::<Pkcs7>(encrypted).ok()
}

/// Derives a key of `len` bytes from a password, like OpenSSL's EVP_BytesToKey with MD5 and one
/// iteration. The key is the beginning of a sequence of hashes. Each hash covers the previous hash,
/// the password and the salt.
fn old_key(password: &[u8], salt: &[u8], len: usize) -> Option<Vec<u8>> {
    let mut key: Vec<u8> = Vec::new();
    let mut last: Vec<u8> = Vec::new();
    while key.len() < len {
        last = Md5::new().chain_update(&last).chain_update(password).chain_update(salt).finalize().to_vec();
        key.extend_from_slice(&last);
    }
    key.truncate(len);
    Some(key)
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One private key in three formats, each encrypted by OpenSSL with the password `secret`.
    const ENCRYPTED: [&str; 3] = [
        "-----BEGIN ENCRYPTED PRIVATE KEY-----
MIHsMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAi3EulkS/XKPAICCAAw
DAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEEFsmGNTIAAiRhh+ME/CgRNoEgZDG
mKdFQa668cy6CepEH7YWfpV1A25C6vP2JdL3EG8kA+oHCfeZY0hTCVoP74qQ+4Xo
jDxaAt7v8pZ6nJ7XZ3HDtFddcaiZocaDu/NuCIWET1D7qgJM6k3b9D/ibvmwmUrg
sdRjzwyeOidllRvlyyp8gBLrn35P/woFQ36iEnE84nP4w1UsBg79NN1Ke3coUHs=
-----END ENCRYPTED PRIVATE KEY-----
",
        "-----BEGIN EC PRIVATE KEY-----
Proc-Type: 4,ENCRYPTED
DEK-Info: AES-256-CBC,81F6EE5B393624CB4C6503C3CDA1AE87

mjIVA7Mp/jAP76XlSsMBkLozZTIoQtgCf+AnGVDhvjZABTbClGWkoYSgANxv6NtJ
O7hfJMuIBCp6Njlnf30JURebp/5wnZBbone3vvb9a32+3zwClYo0DEOYYAHbOkpR
oReQTNJN9QOITR70XZSHZYqdpeDFcHwwRluFwom2gvo=
-----END EC PRIVATE KEY-----
",
        "-----BEGIN EC PRIVATE KEY-----
Proc-Type: 4,ENCRYPTED
DEK-Info: DES-EDE3-CBC,7CAAB50D2D79079F

TAtQIEVD4gOpPZEnd8uzA7jsHz5nQX7kgtogYGUMxkk9y7OWaTNyESG67obZ0ZzJ
Dekdhb/MUZkYR+5jl1kM/Mmp1E5f/zssifOOclHN07/Co0DMlt2fzy1eEGmkP7Fq
mhGzw2xlXL0bVHcHnR0NfIpyDP6OCceI8ZPdV3yf6fg=
-----END EC PRIVATE KEY-----
",
    ];

    fn key_of(text: &str, password: &str) -> Result<PrivateKeyDer<'static>, String> {
        let file = tempfile::NamedTempFile::new().expect("a scratch file");
        fs::write(file.path(), text).expect("written");
        key(file.path(), password.as_bytes())
    }

    #[test]
    fn keys_are_decrypted_by_their_password() {
        for text in ENCRYPTED {
            let key = key_of(text, "secret").expect("decrypted");
            rustls::crypto::aws_lc_rs::sign::any_ecdsa_type(&key).expect("a key");
            assert!(key_of(text, "wrong").expect_err("refused").contains("the password is wrong"));
            assert!(key_of(text, "").expect_err("refused").contains("no password is set"));
        }
    }

    #[test]
    fn what_is_no_key_is_refused_with_the_reason() {
        let check = |text: &str, words: &str| {
            let problem = key_of(text, "").expect_err("refused");
            assert!(problem.contains(words), "{problem}");
        };
        check("root:x:0:0:", "the file has no private key");
        check("", "the file has no private key");
        check("-----BEGIN DSA PRIVATE KEY-----\nAAAA\n-----END DSA PRIVATE KEY-----\n", "unknown form");
        check(
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
            "be read",
        );
        for cut in [60, 120, 180] {
            assert!(key_of(&ENCRYPTED[0][..cut], "secret").is_err());
            assert!(key_of(&ENCRYPTED[1][..cut], "secret").is_err());
        }
        assert!(key(Path::new("/does/not/exist"), b"").expect_err("refused").contains("No such file"));
    }
}
