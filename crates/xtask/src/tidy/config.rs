//! `tidy.toml` as plain structs.

use std::collections::BTreeMap;

use serde::Deserialize;

/// What tidy is told about this repository.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// For each crate, the crates of ours that it may import.
    pub arrows: BTreeMap<String, Vec<String>>,
    /// Crates of ours that any crate may use in its tests.
    pub test_support: Vec<String>,
    /// Where unsafe code may stand: path prefixes.
    pub unsafe_rooms: Vec<String>,
    /// The crates without I/O, clock, chance and threads, and the paths they must not name.
    pub pure: Pure,
    /// Functions over the line limit.
    pub long_function: Vec<LongFunction>,
    /// Files over the line limit.
    pub long_file: Vec<LongFile>,
    /// Circles of modules over the limit.
    pub module_cycle: Vec<ModuleCycle>,
    /// Words that no file may hold.
    pub banned_word: Vec<BannedWord>,
}

/// See [`Config::pure`].
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct Pure {
    /// Names of the pure crates.
    pub crates: Vec<String>,
    /// Rust paths they must not name, such as `std::fs`.
    pub never: Vec<String>,
    /// The exceptions.
    pub except: Vec<PureException>,
}

/// A place where a pure crate may name a forbidden path.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PureException {
    /// The file.
    pub path: String,
    /// The entry of `never` that it may name.
    pub names: String,
    /// Why.
    #[expect(dead_code, reason = "the reason is for people; its presence is what is checked")]
    pub reason: String,
}

/// A function that is longer than the limit, and may not grow.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LongFunction {
    /// The file.
    pub path: String,
    /// `name`, or `Type::name` for a method.
    pub name: String,
    /// Its length now.
    pub lines: usize,
    /// Why it is that long.
    #[expect(dead_code, reason = "the reason is for people; its presence is what is checked")]
    pub reason: String,
}

/// A file that is longer than the limit.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LongFile {
    /// The file.
    pub path: String,
    /// Why it is that long.
    #[expect(dead_code, reason = "the reason is for people; its presence is what is checked")]
    pub reason: String,
}

/// Modules that import each other in a circle, and may not become more.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModuleCycle {
    /// The module that they are in, such as `server::config`; a crate's name for its own modules.
    pub within: String,
    /// How many they are now.
    pub modules: usize,
    /// Why they are that many.
    #[expect(dead_code, reason = "the reason is for people; its presence is what is checked")]
    pub reason: String,
}

/// A word that no file may hold.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BannedWord {
    /// The word, matched as it stands.
    pub word: String,
    /// Why.
    pub reason: String,
}
