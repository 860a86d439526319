//! Payloads for RESTORE: some were written by servers, some contain old value types, some are
//! damaged.

/// The payloads in hexadecimal digits. All value types in them are known to Redis 7.0.
pub(super) const PAYLOADS: &[&str] = &[
    // A number.
    "00c118fc0a004602355e70225a90",
    // A compressed string.
    "00c3091e017878e011000178780a00f0673fdf2001eb95",
    // A list.
    "12010210100000000300816102c3e802dffb02ff0a008ac7d88dcd2b3414",
    // A list of three nodes.
    "1203020d0d0000000200816102816202ff020b0b000000020001010201ff020a0a0000000100816302ff0a00e690af07a0ddee0d",
    // An intset.
    "0b140400000003000000010000002c010000701101000a00b2fdec755181b6ba",
    // A set.
    "0202016101620a00fe642125eb033d0d",
    // A hash.
    "1012120000000400816602817602816e020701ff0a00b82adea8407ffaa8",
    // A hash, field by field.
    "040201660176016ec0070a00622d07e0b30bd5ec",
    // A sorted set.
    "111d1d0000000600816102842d696e6605816202010181630283322e3504ff0a00740235d2cecf5d9c",
    // A sorted set, member by member.
    "0503016300000000000004400162000000000000f03f0161000000000000f0ff0a00bdc1b030fc148e01",
    // Of an old type: list.
    "01020161c0050600d14e1f09059a8704",
    // Of an old type: zset.
    "03030161ff016203312e350163fe0600b0661060b62f744e",
    // Of an old type: hash.
    "091a0203666f6f0300626172056172676831050268656c6c6f0000ff0600ea8703b5e441ef85",
    // Of an old type: hash.
    "0d161600000012000000040000016603f8020167030178ff06006c0f36addd9e6c16",
    // Of an old type: list.
    "0e020e0e0000000a0000000100000161ff12120000000d000000020000016203c0e803ff09007797a3fb34e9d765",
    // A string that ends too early.
    "003f68656c0a00d2d5b7212e085ca5",
    // An unknown type.
    "6301010a0009fe714670c58210",
    // No members.
    "02000a003ace39009b8939e8",
    // A node of an unknown kind.
    "1201030a0093fceaa21e3b8026",
    // A wrong checksum.
    "0001600a00bffeef9b8f367db4",
    // An unknown version.
    "000161e703de7b2ced73f086bd",
    // No footer.
    "000161",
];

/// Decodes the hexadecimal digits of a payload to its bytes.
pub(super) fn bytes_of(digits: &str) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).unwrap_or_default() as u8;
    digits
        .as_bytes()
        .chunks(2)
        .map(|pair| pair.iter().fold(0, |byte, &half| byte << 4 | digit(half)))
        .collect()
}
