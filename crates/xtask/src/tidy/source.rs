//! A Rust file as tidy reads it: its lines, its tokens and its test code. Comments are no tokens,
//! and literals have no text.

use std::ops::{Range, RangeInclusive};

use proc_macro2::{Delimiter, LineColumn, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// A token of Rust code with its line. A string or other literal has an empty text, because no rule
/// reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// The identifier, the single punctuation character, or the bracket.
    pub text: String,
    /// The line of the token in its file, counted from 1.
    pub line: usize,
}

/// A parsed Rust file: its text, its tokens and its syntax tree.
pub struct Source {
    /// The path of the file from the repository's root, with `/`.
    pub path: String,
    /// The whole text of the Rust file.
    pub text: String,
    /// The tokens of the file in order, then the full paths that each `use` imports.
    pub tokens: Vec<Token>,
    /// The syntax tree of the Rust file.
    pub syntax: syn::File,
    test_lines: Vec<RangeInclusive<usize>>,
    /// True if the whole file is test code, not shipped code.
    is_test_file: bool,
    /// The modules in other files that this file declares as test code: `#[cfg(test)] mod name;`.
    test_modules: Vec<String>,
    /// The places of the literals in the file. The text of a doc comment is a literal, too.
    literals: Vec<Range<LineColumn>>,
}

impl Source {
    /// Parses `text` as the file at `path`. The error is the parser's message.
    pub fn parse(path: &str, text: &str) -> Result<Self, String> {
        let syntax = syn::parse_file(text).map_err(|error| error.to_string())?;
        let stream: TokenStream = text.parse().map_err(|error| format!("{error}"))?;
        let mut tokens = Vec::new();
        let mut literals = Vec::new();
        collect_literals(stream.clone(), &mut literals);
        flatten(stream, &mut tokens);
        let mut finder = Finder::default();
        finder.visit_file(&syntax);
        tokens.extend(finder.imports);
        Ok(Self {
            path: path.into(),
            text: text.into(),
            tokens,
            syntax,
            test_lines: finder.test_lines,
            is_test_file: is_test_file(path),
            test_modules: finder.test_modules,
            literals,
        })
    }

    /// Returns true if `line` is not shipped code: it is in a test, benchmark or example file, in a
    /// test function, or inside `#[cfg(test)]`. The file that declares the module may have that
    /// attribute, too.
    pub fn is_test(&self, line: usize) -> bool {
        self.is_test_file || self.test_lines.iter().any(|lines| lines.contains(&line))
    }

    /// Returns the possible paths, without `.rs` or `/mod.rs`, of the modules that this file
    /// declares as test code.
    pub fn test_module_paths(&self) -> Vec<String> {
        let (folder, file) = self.path.rsplit_once('/').unwrap_or(("", &self.path));
        let folder = match file {
            "lib.rs" | "main.rs" | "mod.rs" => folder,
            _ => self.path.strip_suffix(".rs").unwrap_or(&self.path),
        };
        self.test_modules.iter().map(|name| format!("{folder}/{name}")).collect()
    }

    /// Marks the file as test code if it is the module at `path` (without `.rs`), or lies below it.
    pub fn mark_as_test(&mut self, path: &str) {
        let rest = self.path.strip_prefix(path);
        self.is_test_file |= rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'));
    }

    /// Returns the name of the crate whose folder contains this file; `None` outside of `crates/`.
    pub fn krate(&self) -> Option<&str> {
        self.path.strip_prefix("crates/")?.split('/').next()
    }

    /// Returns the byte offset of the comment in `line` (from 1), or `None` if the line has none. A
    /// `//` in a string is no comment. Lines within a `/* */` comment count as lines without one.
    pub fn comment_start(&self, line: usize) -> Option<usize> {
        let text = self.text.lines().nth(line - 1)?;
        text.match_indices("//").map(|(at, _)| at).find(|&at| {
            let place = LineColumn { line, column: text[..at].chars().count() };
            // The literal of a doc comment begins at the same place as the comment.
            !self.literals.iter().any(|literal| literal.start < place && place < literal.end)
        })
    }

    /// Returns the lines of shipped code at which the tokens of `pattern` follow each other.
    /// `pattern` has Rust tokens, such as those of `std::fs`.
    pub fn lines_with(&self, pattern: &[Token]) -> Vec<usize> {
        let texts = |tokens: &[Token]| tokens.iter().map(|token| token.text.clone()).collect::<Vec<_>>();
        let wanted = texts(pattern);
        let hit = |window: &&[Token]| texts(window) == wanted && !self.is_test(window[0].line);
        let mut lines: Vec<_> =
            self.tokens.windows(pattern.len()).filter(hit).map(|hit| hit[0].line).collect();
        lines.dedup();
        lines
    }
}

/// Splits the Rust code `pattern` into tokens, for [`Source::lines_with`].
pub fn pattern(pattern: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    // A pattern that is not valid Rust matches nothing; the tests of each rule would then fail.
    flatten(pattern.parse().unwrap_or_default(), &mut tokens);
    tokens
}

fn is_test_file(path: &str) -> bool {
    let mut parts = path.split('/');
    parts.any(|part| matches!(part, "tests" | "benches" | "examples" | "tests.rs"))
}

fn flatten(stream: TokenStream, out: &mut Vec<Token>) {
    let at = |span: proc_macro2::Span| span.start().line;
    for tree in stream {
        match tree {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                out.push(Token { text: open.into(), line: at(group.span_open()) });
                flatten(group.stream(), out);
                out.push(Token { text: close.into(), line: at(group.span_close()) });
            }
            TokenTree::Ident(ident) => out.push(Token { text: ident.to_string(), line: at(ident.span()) }),
            TokenTree::Punct(punct) => {
                out.push(Token { text: punct.as_char().to_string(), line: at(punct.span()) });
            }
            TokenTree::Literal(literal) => out.push(Token { text: String::new(), line: at(literal.span()) }),
        }
    }
}

fn collect_literals(stream: TokenStream, out: &mut Vec<Range<LineColumn>>) {
    for tree in stream {
        match tree {
            TokenTree::Group(group) => collect_literals(group.stream(), out),
            TokenTree::Literal(literal) => out.push(literal.span().start()..literal.span().end()),
            TokenTree::Ident(_) | TokenTree::Punct(_) => {}
        }
    }
}

/// A visitor that collects the test code and the imports of a file.
#[derive(Default)]
struct Finder {
    test_lines: Vec<RangeInclusive<usize>>,
    test_modules: Vec<String>,
    imports: Vec<Token>,
}

impl Finder {
    fn note_if_test(&mut self, attributes: &[syn::Attribute], span: proc_macro2::Span) {
        if attributes.iter().any(is_test_attribute) {
            self.test_lines.push(span.start().line..=span.end().line);
        }
    }

    /// Adds the full paths that one `use` imports, each followed by `;`.
    fn import(&mut self, tree: &syn::UseTree, prefix: &[String]) {
        let line = tree.span().start().line;
        let mut path = prefix.to_vec();
        match tree {
            syn::UseTree::Path(step) => {
                path.push(step.ident.to_string());
                return self.import(&step.tree, &path);
            }
            syn::UseTree::Group(group) => {
                return group.items.iter().for_each(|item| self.import(item, &path));
            }
            syn::UseTree::Name(name) => path.push(name.ident.to_string()),
            syn::UseTree::Rename(rename) => path.push(rename.ident.to_string()),
            syn::UseTree::Glob(_) => path.push("*".into()),
        }
        let written = path.join("::");
        self.imports.extend(pattern(&written).into_iter().map(|token| Token { line, ..token }));
        self.imports.push(Token { text: ";".into(), line });
    }
}

impl Visit<'_> for Finder {
    fn visit_item(&mut self, item: &syn::Item) {
        if let syn::Item::Mod(module) = item
            && module.content.is_none()
            && module.attrs.iter().any(is_test_attribute)
        {
            self.test_modules.push(module.ident.to_string());
        }
        let attributes = match item {
            syn::Item::Mod(item) => &item.attrs,
            syn::Item::Fn(item) => &item.attrs,
            syn::Item::Impl(item) => &item.attrs,
            syn::Item::Use(item) => &item.attrs,
            syn::Item::Struct(item) => &item.attrs,
            syn::Item::Enum(item) => &item.attrs,
            syn::Item::Const(item) => &item.attrs,
            syn::Item::Static(item) => &item.attrs,
            syn::Item::Macro(item) => &item.attrs,
            _ => return visit::visit_item(self, item),
        };
        self.note_if_test(attributes, item.span());
        visit::visit_item(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &syn::ImplItemFn) {
        self.note_if_test(&item.attrs, item.span());
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_item_use(&mut self, item: &syn::ItemUse) {
        self.import(&item.tree, &[]);
    }
}

/// Returns true for `#[test]`, or for a `#[cfg(...)]` that requires `test` without a `not`.
fn is_test_attribute(attribute: &syn::Attribute) -> bool {
    if attribute.path().is_ident("test") {
        return true;
    }
    let syn::Meta::List(list) = &attribute.meta else { return false };
    let mut tokens = Vec::new();
    flatten(list.tokens.clone(), &mut tokens);
    let has = |word: &str| tokens.iter().any(|token| token.text == word);
    list.path.is_ident("cfg") && has("test") && !has("not")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits(text: &str, words: &str) -> Vec<usize> {
        Source::parse("crates/a/src/lib.rs", text).unwrap().lines_with(&pattern(words))
    }

    #[test]
    fn comments_and_strings_are_not_code() {
        assert_eq!(hits("// std::fs\nconst A: &str = \"std::fs\";\n", "std::fs"), Vec::<usize>::new());
        assert_eq!(hits("/// Uses std::fs.\nfn f() { std::fs::read(p) }\n", "std::fs"), [2]);
    }

    #[test]
    fn a_comment_begins_where_code_and_strings_end() {
        let starts = |text: &str| {
            let source = Source::parse("crates/a/src/lib.rs", text).unwrap();
            (1..=text.lines().count()).map(|line| source.comment_start(line)).collect::<Vec<_>>()
        };
        assert_eq!(
            starts("//! A, see https://a.example.\n/// B // C\nfn f() {} // D\n"),
            [Some(0), Some(0), Some(10)]
        );
        assert_eq!(starts("const A: &str = \"// b\"; // ü // c\n"), [Some(24)]);
        assert_eq!(starts("const A: &str = r\"\n// b\n\";\n    // c\n"), [None, None, None, Some(4)]);
    }

    #[test]
    fn grouped_imports_are_seen_whole() {
        assert_eq!(hits("use std::{io, fs::{self, File}};\n", "std::fs"), [1]);
        assert_eq!(hits("use std::io;\nuse other::fs;\n", "std::fs"), Vec::<usize>::new());
    }

    #[test]
    fn test_code_is_left_out() {
        let text = "fn a() { x.unwrap(); }\n#[cfg(test)]\nmod tests {\n fn b() { x.unwrap(); }\n}\n";
        assert_eq!(hits(text, ".unwrap()"), [1]);
        let text = "#[cfg(not(test))]\nmod real {\n fn b() { x.unwrap(); }\n}\n";
        assert_eq!(hits(text, ".unwrap()"), [3]);
        assert!(Source::parse("crates/a/tests/it.rs", "fn f() {}").unwrap().is_test(1));
    }

    #[test]
    fn code_inside_macros_is_code() {
        assert_eq!(hits("fn f() { println!(\"{}\", x.unwrap()); }", ".unwrap()"), [1]);
    }
}
