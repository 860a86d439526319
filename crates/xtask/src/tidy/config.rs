//! The content of `tidy.toml` as plain structs.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The settings of tidy for this repository, from `tidy.toml`.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// For each crate, the other crates of the workspace that it may import.
    pub arrows: BTreeMap<String, Vec<String>>,
    /// The workspace's crates that any crate may use in its tests.
    pub test_support: Vec<String>,
    /// The path prefixes of the files that may contain unsafe code.
    pub unsafe_rooms: Vec<String>,
    /// The files with unsafe code, each with the checks that show that it is sound.
    pub unsafe_module: Vec<UnsafeModule>,
    /// The crates without I/O, clock, randomness and threads, and the paths they must not name.
    pub pure: Pure,
    /// Functions that are over the limit of lines, with their present lengths.
    pub long_function: Vec<Oversize>,
    /// Functions that are over the limit of parameters, with their present numbers.
    pub many_parameters: Vec<Oversize>,
    /// Functions that have `bool` parameters, with their present numbers.
    pub bool_parameter: Vec<Oversize>,
    /// Structs that are over the limit of fields, with their present numbers.
    pub big_struct: Vec<Oversize>,
    /// Files that are over the limit of lines, each with a reason.
    pub long_file: Vec<LongFile>,
    /// The crates whose modules may not import each other in a circle at all.
    pub without_cycles: Vec<String>,
    /// Circles of modules that are over the limit, with their present sizes.
    pub module_cycle: Vec<ModuleCycle>,
    /// The rules for the width and the words of comments in the sources.
    pub comments: Comments,
    /// The words that no file of the repository may contain.
    pub banned_word: Vec<BannedWord>,
}

/// An entry of `tidy.toml` for a file with unsafe code.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnsafeModule {
    /// The path of the file with unsafe code.
    pub path: String,
    /// The invariant on which the proofs of the file's unsafe code rely.
    pub relies_on: String,
    /// The checks that cover the file's unsafe code: `asan`, `fuzz:TARGET`, `loom:FILE`,
    /// `shuttle:FILE`, `test:FILE`.
    pub shown_by: Vec<String>,
}

/// The rules for the width and the words of comments.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct Comments {
    /// The maximum number of columns of a line that holds a comment, its indentation included.
    /// There is no limit if absent.
    pub columns_max: Option<usize>,
    /// The crates that may still have comments wider than `columns_max`.
    pub exempt: Vec<String>,
    /// The words with which no doc comment may begin.
    pub first_words: Vec<String>,
    /// The maximum number of words in a sentence of a doc comment. If absent, neither sentences nor
    /// verbs are checked.
    pub sentence_words_max: Option<usize>,
    /// For each crate, the numbers of comments that are older than these rules.
    pub allowed: BTreeMap<String, CommentAllowance>,
}

/// The numbers of a crate's comments that are older than the rules. They may only shrink.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct CommentAllowance {
    /// The number of comments that begin with one of the `first_words`.
    pub first_word: usize,
    /// The number of comments of functions that do not begin with a verb.
    pub verb: usize,
    /// The number of comments with a sentence that is too long.
    pub sentence: usize,
}

/// The pure crates: crates without I/O, clock, randomness and threads.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct Pure {
    /// The names of the crates that must be pure.
    pub crates: Vec<String>,
    /// The Rust paths that pure crates must not name, such as `std::fs`.
    pub never: Vec<String>,
    /// The files that may name a forbidden path nevertheless.
    pub except: Vec<PureException>,
}

/// An entry of `tidy.toml` for a file in which a pure crate may name a forbidden path.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PureException {
    /// The path of the file that may name a forbidden path.
    pub path: String,
    /// The entry of [`Pure::never`] that the file may name.
    pub names: String,
    /// The reason why the file may name the forbidden path.
    #[expect(dead_code, reason = "the reason is for people; its presence is what is checked")]
    pub reason: String,
}

/// An entry of `tidy.toml` for a function or struct over a limit. It may not grow.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Oversize {
    /// The path of the file with the function or struct.
    pub path: String,
    /// The name of the function or struct: `name`, or `Type::name` for a method.
    pub name: String,
    /// The present size of the function or struct: lines, parameters or fields.
    #[serde(alias = "lines", alias = "parameters", alias = "fields")]
    pub size: usize,
    /// The reason why the function or struct may be over the limit.
    #[expect(dead_code, reason = "the reason is for people; its presence is what is checked")]
    pub reason: String,
}

/// An entry of `tidy.toml` for a file that is longer than the limit.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LongFile {
    /// The path of the long file.
    pub path: String,
    /// The reason why the file may be over the limit.
    #[expect(dead_code, reason = "the reason is for people; its presence is what is checked")]
    pub reason: String,
}

/// An entry of `tidy.toml` for a circle of modules that import each other. The number of modules in
/// it may not grow.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModuleCycle {
    /// The parent module of the modules, such as `server::config`. A crate's name stands for its
    /// root.
    pub within: String,
    /// The number of modules in the circle, as last recorded. More are an error; if there are
    /// fewer, this number must be lowered.
    pub modules: usize,
    /// The reason why the circle may be over the limit.
    #[expect(dead_code, reason = "the reason is for people; its presence is what is checked")]
    pub reason: String,
}

/// An entry of `tidy.toml` for a word that no file may contain.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BannedWord {
    /// The banned word. A word with other capitals is another word.
    pub word: String,
    /// The reason why the word is banned, which findings show.
    pub reason: String,
}
