//! Configuration: one table of options, one store of their values.
//!
//! ```text
//!   redis.conf ─► parse ─┐
//!   command line ────────┼─► ConfigStore ─► apply ─► Settings (threads), StartOptions (builder)
//!   CONFIG SET ──────────┘        │
//!                                 └─► CONFIG GET, CONFIG REWRITE, docs/options.md
//! ```
//!
//! [`table`] lists the options; [`value`] and [`words`] read and show their values. The
//! [`ConfigStore`] holds every option's value. Code reads a value through its [`handle`], for
//! example `table::memory::MAXMEMORY.of(&store)`. Requests read the typed
//! [`Settings`](engine::settings::Settings), which are derived again after each change.

pub mod apply;
pub mod choices;
pub mod fuzz;
pub mod handle;
pub mod load;
pub mod option;
pub mod parse;
pub mod readable_secrets;
pub mod renames;
pub mod rewrite;
pub mod store;
pub mod table;
pub mod value;
pub mod words;

pub use load::{LoadError, Loaded};
pub use parse::{ConfigError, Directive, parse_config};
pub use store::ConfigStore;

/// The reason why a text is not a value of an option: the sentence that a client gets.
pub type Refusal = std::borrow::Cow<'static, str>;

#[cfg(test)]
mod tests {
    use engine::secret::SECRET_OPTIONS;

    use super::table::THEMES;

    #[test]
    fn every_option_named_for_a_password_is_secret() {
        let options = THEMES.iter().flat_map(|theme| theme.options);
        let named = options.filter(|option| option.name.ends_with("pass") || option.name.ends_with("auth"));
        let missing: Vec<_> =
            named.map(|option| option.name).filter(|name| !SECRET_OPTIONS.contains(name)).collect();
        assert_eq!(missing, Vec::<&str>::new());
    }
}
