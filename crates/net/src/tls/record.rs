//! Protected records of TLS 1.2 and 1.3, opened where they were received and sealed where they
//! are sent from.
//!
//! ```text
//!   received  [header][ciphertext + tag][header][ciphertext + tag][part of a record]
//!   opened    [plaintext][plaintext]……                             kept for the next bytes
//!   to send   [header][plaintext copied from the queue, sealed in place][tag][header]…
//! ```
//! rustls makes the handshake and derives all keys; this is what the kernel does where it has TLS
//! of its own. rustls' record layer would give each record in a `Vec` and take each as one, with
//! a copy more on both ways, as its source shows; the two have not been timed side by side.
//!
//! A key protects [`BLOCKS_PER_KEY_MAX`] blocks at most. Sources: RFC 8446 (5.2, 5.5), RFC 5246
//! (6.2.3.3), RFC 5288, RFC 7905.

use ring::aead::{AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use rustls::{ConnectionTrafficSecrets, ProtocolVersion};

use super::failure::{Alert, TlsFailure};

/// Bytes of a record's header: type, version, length.
pub(super) const HEADER_LEN_BYTES: usize = 5;
/// The most plaintext in a record.
pub(super) const PLAINTEXT_LEN_BYTES_MAX: usize = 16 * 1024;
/// The most that a record may have behind its header: in TLS 1.2, and in TLS 1.3.
const PROTECTED_LEN_BYTES_MAX_12: usize = PLAINTEXT_LEN_BYTES_MAX + 2048;
const PROTECTED_LEN_BYTES_MAX_13: usize = PLAINTEXT_LEN_BYTES_MAX + 256;
/// The nonce that a record of AES-GCM in TLS 1.2 has in front.
const EXPLICIT_NONCE_LEN_BYTES: usize = 8;
const TAG_LEN_BYTES: usize = 16;
/// What all versions since 1.2 have in each header.
const RECORD_VERSION: [u8; 2] = [3, 3];
/// Blocks of 16 bytes that one key seals: RFC 8446 permits 2^24.5 records of 2^10 blocks.
const BLOCKS_PER_KEY_MAX: u64 = 1 << 34;

/// What a record holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Alert,
    Handshake,
    Data,
}

impl Content {
    fn code(self) -> u8 {
        match self {
            Content::Alert => 21,
            Content::Handshake => 22,
            Content::Data => 23,
        }
    }

    pub(super) fn from_code(code: u8) -> Result<Self, TlsFailure> {
        match code {
            21 => Ok(Content::Alert),
            22 => Ok(Content::Handshake),
            23 => Ok(Content::Data),
            _ => Err(TlsFailure::Broken(Alert::UnexpectedMessage)),
        }
    }
}

/// How records are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// The type is within, behind the plaintext; nothing in front.
    Tls13,
    /// AES-GCM: half of the nonce is in front.
    Tls12Gcm,
    /// ChaCha20-Poly1305: nothing is added but the tag.
    Tls12ChaCha,
}

/// One direction of a connection: its key, and how many records it has protected.
pub(super) struct Protection {
    key: LessSafeKey,
    iv: [u8; 12],
    sequence: u64,
    blocks: u64,
    layout: Layout,
}

/// A record that was opened: what it holds, the first `len_bytes` of the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Opened {
    pub(super) content: Content,
    pub(super) len_bytes: usize,
}

impl Protection {
    /// The protection by `secrets`, from record `sequence` on. `None` for what this does not know.
    pub(super) fn new(
        (sequence, secrets): (u64, ConnectionTrafficSecrets),
        version: ProtocolVersion,
    ) -> Option<Self> {
        use ConnectionTrafficSecrets::{Aes128Gcm, Aes256Gcm, Chacha20Poly1305};
        let (algorithm, key, iv) = match &secrets {
            Aes128Gcm { key, iv } => (&AES_128_GCM, key, iv),
            Aes256Gcm { key, iv } => (&AES_256_GCM, key, iv),
            Chacha20Poly1305 { key, iv } => (&CHACHA20_POLY1305, key, iv),
            _ => return None,
        };
        let layout = match version {
            ProtocolVersion::TLSv1_3 => Layout::Tls13,
            ProtocolVersion::TLSv1_2 if algorithm == &CHACHA20_POLY1305 => Layout::Tls12ChaCha,
            ProtocolVersion::TLSv1_2 => Layout::Tls12Gcm,
            _ => return None,
        };
        let key = LessSafeKey::new(UnboundKey::new(algorithm, key.as_ref()).ok()?);
        Some(Self { key, iv: iv.as_ref().try_into().ok()?, sequence, blocks: 0, layout })
    }

    /// Whether the key has protected all that it may.
    pub(super) fn is_used_up(&self) -> bool {
        self.blocks >= BLOCKS_PER_KEY_MAX
    }

    /// How many bytes the record has whose header this is, header included.
    pub(super) fn record_len_bytes(&self, header: [u8; HEADER_LEN_BYTES]) -> Result<usize, TlsFailure> {
        let [_, major, minor, high, low] = header;
        if [major, minor] != RECORD_VERSION {
            return Err(TlsFailure::Broken(Alert::UnexpectedMessage));
        }
        let len = usize::from(u16::from_be_bytes([high, low]));
        let (front, len_max) = match self.layout {
            Layout::Tls13 => (1, PROTECTED_LEN_BYTES_MAX_13),
            Layout::Tls12Gcm => (EXPLICIT_NONCE_LEN_BYTES, PROTECTED_LEN_BYTES_MAX_12),
            Layout::Tls12ChaCha => (0, PROTECTED_LEN_BYTES_MAX_12),
        };
        if len > len_max {
            return Err(TlsFailure::Broken(Alert::RecordOverflow));
        }
        if len < front + TAG_LEN_BYTES {
            return Err(TlsFailure::Broken(Alert::BadRecordMac));
        }
        Ok(HEADER_LEN_BYTES + len)
    }

    /// Opens the whole record that begins at `at` and is all that is behind it: its plaintext
    /// comes to the front of `buffer`.
    pub(super) fn open(&mut self, buffer: &mut [u8], at: usize) -> Result<Opened, TlsFailure> {
        let record = &buffer[at..];
        let header: [u8; HEADER_LEN_BYTES] =
            record[..HEADER_LEN_BYTES].try_into().expect("the record is whole");
        let mut nonce = self.nonce();
        let body = at + HEADER_LEN_BYTES;
        let mut ciphertext = body;
        if self.layout == Layout::Tls12Gcm {
            ciphertext += EXPLICIT_NONCE_LEN_BYTES;
            nonce[4..].copy_from_slice(&buffer[body..ciphertext]);
            nonce[..4].copy_from_slice(&self.iv[..4]);
        }
        let len_bytes = buffer.len() - ciphertext - TAG_LEN_BYTES;
        let nonce = Nonce::assume_unique_for_key(nonce);
        let bad_mac = |_| TlsFailure::Broken(Alert::BadRecordMac);
        let (code, len_bytes) = if self.layout == Layout::Tls13 {
            Content::from_code(header[0])?.expect_data()?;
            let plaintext =
                self.key.open_within(nonce, Aad::from(header), buffer, ciphertext..).map_err(bad_mac)?;
            // Zeros may follow the type.
            let at = plaintext.iter().rposition(|&byte| byte != 0);
            let at = at.ok_or(TlsFailure::Broken(Alert::UnexpectedMessage))?;
            (plaintext[at], at)
        } else {
            let aad = Aad::from(aad_12(self.sequence, header[0], len_bytes));
            self.key.open_within(nonce, aad, buffer, ciphertext..).map_err(bad_mac)?;
            (header[0], len_bytes)
        };
        if len_bytes > PLAINTEXT_LEN_BYTES_MAX {
            return Err(TlsFailure::Broken(Alert::RecordOverflow));
        }
        self.count(len_bytes)?;
        Ok(Opened { content: Content::from_code(code)?, len_bytes })
    }

    /// Appends a record to `out`. `fill` appends its plaintext: at most
    /// [`PLAINTEXT_LEN_BYTES_MAX`] bytes.
    pub(super) fn seal(
        &mut self,
        content: Content,
        out: &mut Vec<u8>,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), TlsFailure> {
        let start = out.len();
        let nonce = self.nonce();
        out.extend_from_slice(&[content.code(), RECORD_VERSION[0], RECORD_VERSION[1], 0, 0]);
        if self.layout == Layout::Tls12Gcm {
            out.extend_from_slice(&nonce[4..]);
        }
        let body = out.len();
        fill(out);
        let len_bytes = out.len() - body;
        assert!(len_bytes <= PLAINTEXT_LEN_BYTES_MAX, "a record of more than it may hold");
        if self.layout == Layout::Tls13 {
            out.push(content.code());
            out[start] = Content::Data.code();
        }
        let behind_header = (out.len() - start - HEADER_LEN_BYTES + TAG_LEN_BYTES) as u16;
        out[start + 3..start + HEADER_LEN_BYTES].copy_from_slice(&behind_header.to_be_bytes());
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = if self.layout == Layout::Tls13 {
            let header: [u8; HEADER_LEN_BYTES] =
                out[start..][..HEADER_LEN_BYTES].try_into().expect("the header was appended above");
            self.key.seal_in_place_separate_tag(nonce, Aad::from(header), &mut out[body..])
        } else {
            let aad = Aad::from(aad_12(self.sequence, content.code(), len_bytes));
            self.key.seal_in_place_separate_tag(nonce, aad, &mut out[body..])
        };
        let tag = tag.map_err(|_| TlsFailure::Broken(Alert::InternalError))?;
        out.extend_from_slice(tag.as_ref());
        self.count(len_bytes)
    }

    /// The nonce of the next record.
    fn nonce(&self) -> [u8; 12] {
        let mut nonce = self.iv;
        for (byte, of_sequence) in nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= of_sequence;
        }
        nonce
    }

    /// Counts a record of so much plaintext. A sequence number is never used twice.
    fn count(&mut self, len_bytes: usize) -> Result<(), TlsFailure> {
        self.sequence = self.sequence.checked_add(1).ok_or(TlsFailure::Broken(Alert::InternalError))?;
        self.blocks += len_bytes as u64 / 16 + 2;
        Ok(())
    }
}

impl Content {
    /// In TLS 1.3 all records look as if they held data.
    fn expect_data(self) -> Result<(), TlsFailure> {
        match self {
            Content::Data => Ok(()),
            Content::Alert | Content::Handshake => Err(TlsFailure::Broken(Alert::UnexpectedMessage)),
        }
    }
}

/// What TLS 1.2 authenticates beside a record of `len_bytes` of plaintext.
fn aad_12(sequence: u64, code: u8, len_bytes: usize) -> [u8; 13] {
    let mut aad = [0; 13];
    aad[..8].copy_from_slice(&sequence.to_be_bytes());
    aad[8] = code;
    aad[9..11].copy_from_slice(&RECORD_VERSION);
    aad[11..].copy_from_slice(&(len_bytes as u16).to_be_bytes());
    aad
}
