//! Rules about the statics that declare commands (their records), and about the scripts that test
//! commands.

use syn::visit::{self, Visit};

use super::Finding;
use super::tree::Tree;

/// Checks that each command that a crate declares has a script in `tests/cmd`, and each script a
/// command.
pub fn every_command_has_a_script(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut records = Records::default();
    for source in tree.sources.iter().filter(|source| source.path.starts_with("crates/")) {
        records.path = source.path.clone();
        records.visit_file(&source.syntax);
    }
    for record in records.found.iter().filter(|record| !records.is_subcommand(record)) {
        let script = format!("tests/cmd/{}.resp", record.name.to_ascii_lowercase());
        if tree.text(&script).is_none() {
            findings.push(Finding::new(
                &record.path,
                record.line,
                format!("{} has no {script}", record.name),
            ));
        }
    }
    let known = |name: &str| records.found.iter().any(|record| record.name.eq_ignore_ascii_case(name));
    for file in &tree.texts {
        let script = file.path.strip_prefix("tests/cmd/").and_then(|name| name.strip_suffix(".resp"));
        if script.is_some_and(|name| !known(name)) {
            findings.push(Finding::new(&file.path, 1, "no command has this name"));
        }
    }
    findings
}

/// The static that declares a command: the name of the command and its place in the sources.
struct Record {
    name: String,
    /// The identifier of the static that declares the command.
    ident: String,
    path: String,
    line: usize,
}

/// A visitor that finds `static X: Command = Command { name: "...", .. }`.
#[derive(Default)]
struct Records {
    path: String,
    found: Vec<Record>,
    /// The (file, static) of each command that another static in the same file lists as
    /// `subcommands: &[&X, ..]`.
    subcommands: Vec<(String, String)>,
}

impl Records {
    /// Returns true if the static declares a subcommand: the script of its container covers it. A
    /// subcommand in another file than its container is recognized by its static's name:
    /// `MEMORY_USAGE` is called USAGE.
    fn is_subcommand(&self, record: &Record) -> bool {
        let listed =
            self.subcommands.iter().any(|(path, ident)| *path == record.path && *ident == record.ident);
        listed || record.ident.ends_with(&format!("_{}", record.name.replace('-', "_")))
    }
}

impl Visit<'_> for Records {
    fn visit_item_static(&mut self, item: &syn::ItemStatic) {
        if let (syn::Type::Path(kind), syn::Expr::Struct(value)) = (&*item.ty, &*item.expr)
            && kind.path.segments.last().is_some_and(|segment| segment.ident == "Command")
            && let Some(name) = value.fields.iter().find_map(name_field)
        {
            let line = item.ident.span().start().line;
            let ident = item.ident.to_string();
            self.found.push(Record { name, ident, path: self.path.clone(), line });
            let listed = value.fields.iter().flat_map(subcommand_idents);
            self.subcommands.extend(listed.map(|ident| (self.path.clone(), ident)));
        }
        visit::visit_item_static(self, item);
    }

    /// Skips `mod tests`, because the statics in it are samples.
    fn visit_item_mod(&mut self, item: &syn::ItemMod) {
        if item.ident != "tests" {
            visit::visit_item_mod(self, item);
        }
    }
}

/// Returns the text of a struct's `field` if it is `name: "text"`; otherwise `None`.
fn name_field(field: &syn::FieldValue) -> Option<String> {
    match (&field.member, &field.expr) {
        (syn::Member::Named(member), syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }))
            if member == "name" =>
        {
            Some(text.value())
        }
        _ => None,
    }
}

/// Returns the names of the statics in a struct's `field` if it is `subcommands: &[&A, &B]`;
/// otherwise nothing.
fn subcommand_idents(field: &syn::FieldValue) -> Vec<String> {
    let syn::Expr::Reference(list) = &field.expr else { return Vec::new() };
    let syn::Expr::Array(array) = &*list.expr else { return Vec::new() };
    let is_list = matches!(&field.member, syn::Member::Named(member) if member == "subcommands");
    let ident = |element: &syn::Expr| match element {
        syn::Expr::Reference(reference) => match &*reference.expr {
            syn::Expr::Path(path) => path.path.segments.last().map(|segment| segment.ident.to_string()),
            _ => None,
        },
        _ => None,
    };
    array.elems.iter().filter(|_| is_list).filter_map(ident).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: (&str, &str) =
        ("crates/commands/src/zset.rs", "static ZCARD: Command = Command { name: \"ZCARD\", run: zcard };\n");

    #[test]
    fn a_command_and_its_script_go_together() {
        let script = ("tests/cmd/zcard.resp", "> ZCARD x\n:0\n");
        assert_eq!(every_command_has_a_script(&Tree::sample(&[RECORD, script])), []);
        assert_eq!(every_command_has_a_script(&Tree::sample(&[RECORD])).len(), 1);
        assert_eq!(every_command_has_a_script(&Tree::sample(&[script])).len(), 1);
    }

    #[test]
    fn the_script_of_a_container_covers_its_subcommands() {
        let records = "static CLIENT: Command = Command { name: \"CLIENT\", subcommands: &[&ID] };\n\
            static ID: Command = Command { name: \"ID\", subcommands: &[] };\n";
        let script = ("tests/cmd/client.resp", "> CLIENT ID\n");
        assert_eq!(
            every_command_has_a_script(&Tree::sample(&[("crates/server/src/a.rs", records), script])),
            []
        );
    }

    #[test]
    fn other_statics_are_no_commands() {
        let other = ("crates/a/src/lib.rs", "static LIST: &[&Command] = &[&ZCARD];\nstatic N: u8 = 1;\n");
        assert_eq!(every_command_has_a_script(&Tree::sample(&[other])), []);
    }
}
