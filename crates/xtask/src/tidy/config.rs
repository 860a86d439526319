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
    /// The files with unsafe code, and what shows that it is sound.
    pub unsafe_module: Vec<UnsafeModule>,
    /// The crates without I/O, clock, chance and threads, and the paths they must not name.
    pub pure: Pure,
    /// Functions over the line limit.
    pub long_function: Vec<Oversize>,
    /// Functions over the limit of parameters.
    pub many_parameters: Vec<Oversize>,
    /// Functions with parameters that are a `bool`.
    pub bool_parameter: Vec<Oversize>,
    /// Structs over the limit of fields.
    pub big_struct: Vec<Oversize>,
    /// Files over the line limit.
    pub long_file: Vec<LongFile>,
    /// Crates whose modules import each other in no circle at all.
    pub without_cycles: Vec<String>,
    /// Circles of modules over the limit.
    pub module_cycle: Vec<ModuleCycle>,
    /// The width and the words of comments.
    pub comments: Comments,
    /// Words that no file may hold.
    pub banned_word: Vec<BannedWord>,
}

/// A file with unsafe code.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnsafeModule {
    /// The file.
    pub path: String,
    /// The invariant that its proofs rest on.
    pub relies_on: String,
    /// What looks at it: `asan`, `fuzz:TARGET`, `loom:FILE`, `shuttle:FILE`, `test:FILE`.
    pub shown_by: Vec<String>,
}

/// See [`Config::comments`].
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct Comments {
    /// The columns of a line that holds a comment, its indentation included. No limit if absent.
    pub columns_max: Option<usize>,
    /// Crates that still have wider comments.
    pub exempt: Vec<String>,
    /// Words that no doc comment begins with.
    pub first_words: Vec<String>,
    /// The most words in a sentence of a doc comment. Without it, verbs are not asked for either.
    pub sentence_words_max: Option<usize>,
    /// For each crate, the comments from before these rules.
    pub allowed: BTreeMap<String, CommentAllowance>,
}

/// The numbers of comments of a crate that are from before the rules. They may only shrink.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct CommentAllowance {
    /// Comments that begin with one of the `first_words`.
    pub first_word: usize,
    /// Comments of functions that do not begin with a verb.
    pub verb: usize,
    /// Comments with a long sentence.
    pub sentence: usize,
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

/// A function or struct that is over a limit, and may not grow.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Oversize {
    /// The file.
    pub path: String,
    /// `name`, or `Type::name` for a method.
    pub name: String,
    /// Its size now.
    #[serde(alias = "lines", alias = "parameters", alias = "fields")]
    pub size: usize,
    /// Why it is that big.
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
