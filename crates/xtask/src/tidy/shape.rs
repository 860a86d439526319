//! Rules about length. The list of long functions is a ratchet: an entry may only get shorter.

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::Finding;
use super::tree::Tree;

/// Lines of a function, signature to closing brace, that fit a screen.
const FUNCTION_LINES_MAX: usize = 70;
/// Lines of a file after which the question is: what would the interface of the half be?
const FILE_LINES_MAX: usize = 1_000;

/// A function over the limit is listed in tidy.toml with a reason and its length, and does not grow.
pub fn functions_fit_a_screen(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut used = vec![false; tree.config.long_function.len()];
    for source in &tree.sources {
        let mut functions = Functions::default();
        functions.visit_file(&source.syntax);
        let long =
            |function: &&Function| function.lines > FUNCTION_LINES_MAX && !source.is_test(function.line);
        for function in functions.found.iter().filter(long) {
            let entries = &tree.config.long_function;
            let listed =
                entries.iter().position(|entry| entry.path == source.path && entry.name == function.name);
            let message = match listed {
                None => format!(
                    "{} has {} lines; over {FUNCTION_LINES_MAX} it must be split, or listed in tidy.toml with a reason",
                    function.name, function.lines
                ),
                Some(at) => {
                    used[at] = true;
                    match function.lines.cmp(&entries[at].lines) {
                        std::cmp::Ordering::Equal => continue,
                        std::cmp::Ordering::Greater => {
                            format!(
                                "{} grew from {} to {} lines",
                                function.name, entries[at].lines, function.lines
                            )
                        }
                        std::cmp::Ordering::Less => {
                            format!(
                                "{} shrank: lower its entry in tidy.toml to {}",
                                function.name, function.lines
                            )
                        }
                    }
                }
            };
            findings.push(Finding::new(&source.path, function.line, message));
        }
    }
    for (entry, _) in tree.config.long_function.iter().zip(used).filter(|(_, used)| !used) {
        let message =
            format!("{} in {} is no long function any more: drop its entry", entry.name, entry.path);
        findings.push(Finding::new("tidy.toml", 1, message));
    }
    findings
}

/// A Rust file over the limit is listed in tidy.toml with a reason.
pub fn files_stay_short(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let lines = |text: &str| text.lines().count();
    for source in tree.sources.iter().filter(|source| lines(&source.text) > FILE_LINES_MAX) {
        if !tree.config.long_file.iter().any(|entry| entry.path == source.path) {
            let message = format!("{} lines: what would the interface of the half be?", lines(&source.text));
            findings.push(Finding::new(&source.path, 1, message));
        }
    }
    for entry in &tree.config.long_file {
        if tree.text(&entry.path).is_none_or(|text| lines(text) <= FILE_LINES_MAX) {
            findings.push(Finding::new(
                "tidy.toml",
                1,
                format!("{} is no long file any more: drop its entry", entry.path),
            ));
        }
    }
    findings
}

/// A function's name (`Type::name` for methods), first line, and length.
struct Function {
    name: String,
    line: usize,
    lines: usize,
}

#[derive(Default)]
struct Functions {
    /// The types whose `impl` or `trait` we are in.
    around: Vec<String>,
    found: Vec<Function>,
}

impl Functions {
    fn add(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let line = signature.span().start().line;
        let mut name = self.around.clone();
        name.push(signature.ident.to_string());
        self.found.push(Function { name: name.join("::"), line, lines: block.span().end().line + 1 - line });
    }
}

impl Visit<'_> for Functions {
    fn visit_item_impl(&mut self, item: &syn::ItemImpl) {
        let name = match &*item.self_ty {
            syn::Type::Path(path) => path.path.segments.last().map(|segment| segment.ident.to_string()),
            _ => None,
        };
        self.around.push(name.unwrap_or_else(|| "impl".into()));
        visit::visit_item_impl(self, item);
        self.around.pop();
    }

    fn visit_item_trait(&mut self, item: &syn::ItemTrait) {
        self.around.push(item.ident.to_string());
        visit::visit_item_trait(self, item);
        self.around.pop();
    }

    fn visit_item_fn(&mut self, item: &syn::ItemFn) {
        self.add(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &syn::ImplItemFn) {
        self.add(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.add(&item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A method `Big::run` of `lines` lines.
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
