//! Rules about the sizes of functions, structs and files. An entry in a list of exceptions may only
//! get smaller.

use std::cmp::Ordering;

use super::Finding;
use super::config::Oversize;
use super::measure::{Function, measure};
use super::tree::Tree;

/// The maximum number of lines of a function, from its signature to its closing brace. So many
/// lines fit a screen.
const FUNCTION_LINES_MAX: usize = 70;
/// The maximum number of parameters of a function, without `self`. More parameters should become a
/// struct.
const PARAMETERS_MAX: usize = 5;
/// The maximum number of parameters of a function that are a `bool`. A `bool` parameter should
/// become two functions, or an enum whose variants name the cases.
const BOOL_PARAMETERS_MAX: usize = 0;
/// The maximum number of fields of a struct. A struct with more fields should become several
/// structs.
const FIELDS_MAX: usize = 25;
/// The maximum number of lines of a file. A longer file should be split at a good interface.
const FILE_LINES_MAX: usize = 1_000;

/// Checks that a function over the limit of lines is listed in tidy.toml with a reason and its
/// length, and does not grow.
pub fn functions_fit_a_screen(tree: &Tree) -> Vec<Finding> {
    let limit = Limit {
        max: FUNCTION_LINES_MAX,
        unit: "lines",
        list: "long_function",
        listed: &tree.config.long_function,
        advice: "split it",
    };
    limit.findings(functions(tree, |function| function.lines.unwrap_or(0)))
}

/// Checks that a function over the limit of parameters is listed in tidy.toml with a reason and
/// their number, which may not grow.
pub fn functions_take_few_parameters(tree: &Tree) -> Vec<Finding> {
    let limit = Limit {
        max: PARAMETERS_MAX,
        unit: "parameters",
        list: "many_parameters",
        listed: &tree.config.many_parameters,
        advice: "group related parameters in a struct",
    };
    limit.findings(functions(tree, |function| function.parameters))
}

/// Checks that a function with a `bool` parameter is listed in tidy.toml with a reason.
pub fn functions_take_no_bool(tree: &Tree) -> Vec<Finding> {
    let limit = Limit {
        max: BOOL_PARAMETERS_MAX,
        unit: "bool parameters",
        list: "bool_parameter",
        listed: &tree.config.bool_parameter,
        advice: "make it two functions, or an enum with two named variants",
    };
    limit.findings(functions(tree, |function| function.bool_parameters))
}

/// Checks that a struct over the limit of fields is listed in tidy.toml with a reason and their
/// number, which may not grow.
pub fn structs_have_few_fields(tree: &Tree) -> Vec<Finding> {
    let limit = Limit {
        max: FIELDS_MAX,
        unit: "fields",
        list: "big_struct",
        listed: &tree.config.big_struct,
        advice: "split it by meaning",
    };
    let mut sized = Vec::new();
    for source in &tree.sources {
        sized.extend(measure(source).structs.into_iter().map(|found| Sized {
            path: &source.path,
            line: found.line,
            name: found.name,
            size: found.fields,
        }));
    }
    limit.findings(sized)
}

/// The size of a shipped function or struct, and its place in the sources.
struct Sized<'a> {
    path: &'a str,
    line: usize,
    name: String,
    size: usize,
}

/// Returns the size of every shipped function in the tree, as the function `size` computes it.
fn functions(tree: &Tree, size: fn(&Function) -> usize) -> Vec<Sized<'_>> {
    let mut sized = Vec::new();
    for source in &tree.sources {
        sized.extend(measure(source).functions.into_iter().map(|function| Sized {
            path: &source.path,
            line: function.line,
            size: size(&function),
            name: function.name,
        }));
    }
    sized
}

/// A limit on a size, with the exceptions that tidy.toml lists.
struct Limit<'a> {
    /// The maximum size of an item without an entry in tidy.toml.
    max: usize,
    /// The unit of the limited size, in the plural: `lines`.
    unit: &'static str,
    /// The name of the rule's list of exceptions in tidy.toml.
    list: &'static str,
    listed: &'a [Oversize],
    /// The advice that a finding about a too large item gives.
    advice: &'static str,
}

impl Limit<'_> {
    /// Returns the findings about `sized`: items over the limit that are not listed, items with
    /// another size than listed, and entries that are no longer needed.
    fn findings(&self, sized: Vec<Sized<'_>>) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut used = vec![false; self.listed.len()];
        for found in sized.into_iter().filter(|found| found.size > self.max) {
            let is_entry = |entry: &Oversize| entry.path == found.path && entry.name == found.name;
            let at = self.listed.iter().position(is_entry);
            at.into_iter().for_each(|at| used[at] = true);
            let message = self.message(&found, at.map(|at| self.listed[at].size));
            findings.extend(message.map(|message| Finding::new(found.path, found.line, message)));
        }
        for (entry, _) in self.listed.iter().zip(used).filter(|(_, used)| !used) {
            let message = format!(
                "{} in {} is within the limit of {} {} now: drop its entry in {}",
                entry.name, entry.path, self.max, self.unit, self.list
            );
            findings.push(Finding::new("tidy.toml", 1, message));
        }
        findings
    }

    /// Describes the violation of an item over the limit for which tidy.toml lists the size
    /// `listed`. Returns `None` if the item has exactly that size.
    fn message(&self, found: &Sized<'_>, listed: Option<usize>) -> Option<String> {
        let Self { max, unit, list, advice, .. } = self;
        let Sized { name, size, .. } = found;
        let Some(listed) = listed else {
            let unit = if *size == 1 { unit.trim_end_matches('s') } else { unit };
            return Some(format!(
                "{name} has {size} {unit}, more than {max}: {advice}, or list it in tidy.toml as {list} with a reason"
            ));
        };
        match size.cmp(&listed) {
            Ordering::Equal => None,
            Ordering::Greater => Some(format!("{name} grew from {listed} to {size} {unit}")),
            Ordering::Less => Some(format!("{name} shrank: lower its entry in {list} to {size}")),
        }
    }
}

/// Checks that a Rust file over the limit of lines is listed in tidy.toml with a reason.
pub fn files_stay_short(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let lines = |text: &str| text.lines().count();
    for source in tree.sources.iter().filter(|source| lines(&source.text) > FILE_LINES_MAX) {
        if !tree.config.long_file.iter().any(|entry| entry.path == source.path) {
            let message = format!("{} lines: split the file at a narrow interface", lines(&source.text));
            findings.push(Finding::new(&source.path, 1, message));
        }
    }
    for entry in &tree.config.long_file {
        if tree.text(&entry.path).is_none_or(|text| lines(text) <= FILE_LINES_MAX) {
            findings.push(Finding::new(
                "tidy.toml",
                1,
                format!("{} is no longer a long file: remove its entry", entry.path),
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Formats the code of a method `Big::run` that has `lines` lines.
    fn method(lines: usize) -> String {
        format!("struct Big;\nimpl Big {{\n    fn run() {{{}}}\n}}\n", "\n".repeat(lines - 1))
    }

    fn check(lines: usize, listed: Option<usize>) -> Vec<Finding> {
        let entry = |lines| {
            format!(
                "[[long_function]]\npath = \"crates/a/src/lib.rs\"\nname = \"Big::run\"\nlines = {lines}\nreason = \"flat\"\n"
            )
        };
        let config = listed.map_or_else(String::new, entry);
        functions_fit_a_screen(&Tree::sample(&[
            ("tidy.toml", &config),
            ("crates/a/src/lib.rs", &method(lines)),
        ]))
    }

    #[test]
    fn a_new_long_function_is_found_and_a_listed_one_is_not() {
        assert_eq!(check(70, None), []);
        assert!(check(71, None)[0].message.contains("Big::run has 71 lines"));
        assert_eq!(check(71, Some(71)), []);
    }

    #[test]
    fn the_ratchet_turns_one_way() {
        assert!(check(90, Some(80))[0].message.contains("grew from 80 to 90"));
        assert!(check(75, Some(80))[0].message.contains("to 75"));
        assert!(check(60, Some(80))[0].message.contains("drop its entry"));
    }

    #[test]
    fn long_tests_are_fine() {
        let text = format!("#[cfg(test)]\nmod tests {{\n{}\n}}\n", method(200));
        assert_eq!(functions_fit_a_screen(&Tree::sample(&[("crates/a/src/lib.rs", &text)])), []);
    }

    /// Returns the messages of the findings of `rule` in `code`, with `config` as tidy.toml.
    fn messages(rule: fn(&Tree) -> Vec<Finding>, code: &str, config: &str) -> Vec<String> {
        let tree = Tree::sample(&[("tidy.toml", config), ("crates/a/src/lib.rs", code)]);
        rule(&tree).into_iter().map(|finding| finding.message).collect()
    }

    /// Formats an entry of tidy.toml for `name` in `crates/a/src/lib.rs`, in the list `list`.
    fn entry(list: &str, name: &str, size: &str) -> String {
        format!("[[{list}]]\npath = \"crates/a/src/lib.rs\"\nname = \"{name}\"\n{size}\nreason = \"r\"\n")
    }

    #[test]
    fn six_parameters_are_a_finding_and_self_is_none_of_them() {
        let check = |code: &str, config: &str| messages(functions_take_few_parameters, code, config);
        let five = "impl A { fn f(&mut self, a: u8, b: u8, c: u8, d: u8, e: u8) {} }";
        let six = "impl A { fn f(&mut self, a: u8, b: u8, c: u8, d: u8, e: u8, f: u8) {} }";
        assert_eq!(check(five, ""), Vec::<String>::new());
        assert!(check(six, "")[0].contains("A::f has 6 parameters"));
        assert_eq!(check(six, &entry("many_parameters", "A::f", "parameters = 6")), Vec::<String>::new());
        assert!(check(six, &entry("many_parameters", "A::f", "parameters = 7"))[0].contains("to 6"));
        assert!(check(five, &entry("many_parameters", "A::f", "parameters = 6"))[0].contains("drop"));
    }

    #[test]
    fn a_bool_parameter_is_a_finding_also_behind_a_reference_or_an_option() {
        let check = |code: &str, config: &str| messages(functions_take_no_bool, code, config).len();
        for found in ["bool", "&bool", "&mut bool", "Option<bool>", "Option<&mut bool>", "&mut Option<bool>"]
        {
            assert_eq!(check(&format!("fn f(yes: {found}) {{}}"), ""), 1, "{found}");
            assert_eq!(check(&format!("trait T {{ fn f(yes: {found}); }}"), ""), 1, "{found}");
        }
        for fine in ["u8", "&[bool]", "fn(bool) -> u8", "impl Fn(u8) -> bool", "AtomicBool"] {
            assert_eq!(check(&format!("fn f(yes: {fine}) -> bool {{ true }}"), ""), 0, "{fine}");
        }
        let entry = entry("bool_parameter", "f", "parameters = 1");
        assert_eq!(check("fn f(yes: bool) {}", &entry), 0);
        assert_eq!(check("fn f(yes: bool, no: bool) {}", &entry), 1);
        assert_eq!(check("fn f() {}", &entry), 1);
    }

    #[test]
    fn a_trait_has_the_say_on_the_parameters_of_its_methods() {
        let code = "impl Serializer for A { fn serialize_bool(self, value: bool) {} }";
        assert_eq!(messages(functions_take_no_bool, code, ""), Vec::<String>::new());
    }

    #[test]
    fn a_struct_of_26_fields_is_a_finding() {
        let code = |fields: usize| {
            let fields: String = (0..fields).map(|at| format!("f{at}: u8, ")).collect();
            format!("struct Big {{ {fields} }}")
        };
        let check = |fields, config: &str| messages(structs_have_few_fields, &code(fields), config);
        assert_eq!(check(25, ""), Vec::<String>::new());
        assert!(check(26, "")[0].contains("Big has 26 fields"));
        assert_eq!(check(26, &entry("big_struct", "Big", "fields = 26")), Vec::<String>::new());
        assert!(check(27, &entry("big_struct", "Big", "fields = 26"))[0].contains("grew from 26 to 27"));
    }

    #[test]
    fn a_long_file_must_be_listed() {
        let check = |lines: usize, config: &str| {
            let text = "// x\n".repeat(lines);
            files_stay_short(&Tree::sample(&[("tidy.toml", config), ("crates/a/src/lib.rs", &text)])).len()
        };
        let listed = "[[long_file]]\npath = \"crates/a/src/lib.rs\"\nreason = \"a table\"\n";
        assert_eq!(check(1_000, ""), 0);
        assert_eq!(check(1_001, ""), 1);
        assert_eq!(check(1_001, listed), 0);
        assert_eq!(check(1_000, listed), 1);
    }
}
