//! The description of an option besides its summary, in words.

use server::config::option::{Change, Opt};
use server::config::value::Kind;

/// The options of one theme that are in effect, or that have no effect for the same reason.
pub struct Group {
    /// The reason why the options of the group have no effect; `None` for options in effect.
    pub idle: Option<&'static str>,
    /// The options of the group.
    pub options: Vec<&'static Opt>,
}

/// Groups a theme's options without the hidden ones: first those in effect, then the others by
/// reason.
pub fn groups(options: &[&'static Opt]) -> Vec<Group> {
    let mut groups = vec![Group { idle: None, options: Vec::new() }];
    for option in options.iter().copied().filter(|option| !option.hidden) {
        let idle = option.idle_reason();
        match groups.iter_mut().find(|group| group.idle == idle) {
            Some(group) => group.options.push(option),
            None => groups.push(Group { idle, options: vec![option] }),
        }
    }
    groups.retain(|group| !group.options.is_empty());
    groups
}

/// Returns the summary without the backquotes of the documentation.
pub fn summary(option: &Opt) -> String {
    option.summary.replace('`', "")
}

/// Describes the valid values of `option`; empty if the summary already describes them.
pub fn values(option: &Opt) -> String {
    match option.kind {
        Kind::Flag => "yes or no".into(),
        Kind::Integer { min, max } | Kind::Clamped { min, max } => integers(min, max),
        Kind::Octal => "an octal number, 0 to 777".into(),
        Kind::Memory { min, .. } if min > 1 => format!("a size such as 100mb or 2gb, at least {}", size(min)),
        Kind::Memory { .. } => "a size such as 100mb or 2gb".into(),
        Kind::MemoryOrPercent => "a size such as 100mb, or a percentage such as 5%".into(),
        Kind::Choice(words) => words.join(", "),
        Kind::EventLetters => "letters of event classes".into(),
        Kind::Text | Kind::Checked(_) | Kind::Words(_) => String::new(),
    }
}

/// Describes when the option can be changed.
pub fn change(option: &Opt) -> &'static str {
    match option.change {
        Change::Live => "Can be changed at run time.",
        Change::AtStart => "Can be set only at the start.",
        Change::Protected => "Can be changed at run time only if enable-protected-configs permits it.",
    }
}

/// Describes a range of integers in words. A maximum of at least `i32::MAX` counts as no maximum.
fn integers(min: i64, max: i64) -> String {
    const WIDE: i64 = i32::MAX as i64;
    match (min, max) {
        (min, max) if min <= -WIDE && max >= WIDE => "an integer".to_owned(),
        (min, max) if max >= WIDE => format!("{min} or more"),
        (min, max) => format!("{min} to {max}"),
    }
}

fn size(bytes: u64) -> String {
    let units = [(1 << 20, "mb"), (1 << 10, "kb")];
    let unit = units.iter().find(|(unit, _)| bytes.is_multiple_of(*unit));
    unit.map_or_else(|| format!("{bytes} bytes"), |(unit, name)| format!("{}{name}", bytes / unit))
}
