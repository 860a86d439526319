//! saker.conf(5): the configuration file's syntax and its options.

use roff::{Inline, Roff, bold, italic, roman};
use server::config::option::{DefaultValue, Opt};
use server::config::table::THEMES;

use super::described;

/// The paragraphs of the manual page before its list of options.
const SYNTAX: &[&str] = &[
    "The file consists of lines with the name of an option and its value, separated by blanks. Blank lines \
     and lines that begin with # are ignored. Put a value with blanks in single or double quotes. Inside \
     double quotes, the escapes \\n, \\r, \\t, \\xHH and a backslash before a quote have the same meaning as \
     in C. Names are case insensitive.",
    "Sizes can have a unit: k, m and g are powers of 1000; kb, mb and gb are powers of 1024.",
    "Every option can also be set on the command line, with two dashes before its name. The command line \
     overrides the file. CONFIG GET shows options. CONFIG SET changes options at run time, if they permit it. \
     CONFIG REWRITE writes the changed options to the file.",
    "Saker accepts all options of Redis and Valkey, so that their configuration files load. If an option \
     without effect differs from its default, the server writes a warning to the log.",
];

/// The directives, which are not options: the name, the arguments and the description of each.
const DIRECTIVES: &[(&str, &str, &str)] = &[
    ("include", "file", "Reads another file at this place. The name may contain the wildcards * and ?."),
    (
        "rename-command",
        "name new-name",
        "Gives a command another name. With an empty new name (\"\") the command is disabled.",
    ),
];

/// Returns the source text of saker.conf(5), in roff.
pub fn page() -> String {
    let mut page = Roff::new();
    page.control("TH", ["saker.conf", "5", "", concat!("Saker ", env!("CARGO_PKG_VERSION")), "File formats"]);
    page.control("SH", ["NAME"]).text([roman("saker.conf - configuration file of saker-server")]);
    page.control("SH", ["SYNOPSIS"]).text([bold("/etc/saker/saker.conf")]);
    page.control("SH", ["DESCRIPTION"]);
    for (at, paragraph) in SYNTAX.iter().enumerate() {
        if at > 0 {
            page.control("PP", []);
        }
        page.text([roman(*paragraph)]);
    }
    page.control("SH", ["DIRECTIVES"]);
    for (name, value, about) in DIRECTIVES {
        tagged(&mut page, [bold(*name), roman(" "), italic(*value)], &[(*about).into()]);
    }
    for theme in THEMES {
        page.control("SH", [theme.title.to_uppercase().as_str()]);
        for group in described::groups(theme.options) {
            if let Some(why) = group.idle {
                let title = format!("Without effect: {why}");
                page.control("SS", [title.as_str()]);
            }
            group.options.iter().for_each(|option| entry(&mut page, option));
        }
    }
    page.control("SH", ["SEE ALSO"]);
    page.text([bold("saker-server"), roman("(1)")]);
    page.to_roff()
}

fn entry(page: &mut Roff, option: &Opt) {
    let default = match option.default {
        DefaultValue::Fixed("") => roman("\"\""),
        DefaultValue::Fixed(text) => roman(text),
        DefaultValue::Computed { shown, .. } => italic(shown),
    };
    let mut facts = vec![described::summary(option)];
    let values = described::values(option);
    if !values.is_empty() {
        facts.push(format!("Values: {values}."));
    }
    if !option.aliases.is_empty() {
        facts.push(format!("Also called {}.", option.aliases.join(", ")));
    }
    facts.push(described::change(option).to_owned());
    tagged(page, [bold(option.name), roman(" "), default], &facts);
}

/// Appends a tagged paragraph to `page`: the tag, then each text on its own source line.
fn tagged(page: &mut Roff, tag: [Inline; 3], text: &[String]) {
    page.control("TP", []);
    page.text(tag);
    text.iter().for_each(|line| {
        page.text([roman(line.as_str())]);
    });
}
