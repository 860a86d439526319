//! The sizes of the shipped functions and structs of a file; tests are left out.

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::source::Source;

/// The sizes of the functions and structs that a file ships.
#[derive(Default)]
pub struct Measured {
    /// The functions and methods of the file, in its order.
    pub functions: Vec<Function>,
    /// The structs, in the order of the file.
    pub structs: Vec<Struct>,
}

/// The size of a function or method, for the rules about size.
pub struct Function {
    /// The name of the function: `name`, or `Type::name` for a method.
    pub name: String,
    /// The line of the function's signature, counted from 1.
    pub line: usize,
    /// The number of lines from the signature to the closing brace; `None` if a trait only declares
    /// it.
    pub lines: Option<usize>,
    /// The number of parameters without `self`. It is 0 if a trait determines the signature.
    pub parameters: usize,
    /// The number of parameters of type `bool`, `&bool` or `Option<bool>`.
    pub bool_parameters: usize,
}

/// The size of a struct, for the rules about size.
pub struct Struct {
    /// The name of the struct.
    pub name: String,
    /// The line of the struct's name, counted from 1.
    pub line: usize,
    /// The number of the struct's fields.
    pub fields: usize,
}

/// Measures the shipped functions and structs of `source`. O(size of the file).
pub fn measure(source: &Source) -> Measured {
    let mut visitor = Visitor::default();
    visitor.visit_file(&source.syntax);
    let mut measured = visitor.measured;
    measured.functions.retain(|function| !source.is_test(function.line));
    measured.structs.retain(|found| !source.is_test(found.line));
    measured
}

#[derive(Default)]
struct Visitor {
    /// The types of the `impl` and `trait` blocks around the item that the visitor is in, the
    /// innermost last.
    around: Vec<String>,
    /// True while the innermost `impl` implements a trait.
    implements_trait: bool,
    measured: Measured,
}

impl Visitor {
    fn add(&mut self, signature: &syn::Signature, block: Option<&syn::Block>) {
        let line = signature.span().start().line;
        let mut name = self.around.clone();
        name.push(signature.ident.to_string());
        let mut function = Function {
            name: name.join("::"),
            line,
            lines: block.map(|block| block.span().end().line + 1 - line),
            parameters: 0,
            bool_parameters: 0,
        };
        for parameter in &signature.inputs {
            if let syn::FnArg::Typed(parameter) = parameter {
                function.parameters += 1;
                function.bool_parameters += usize::from(is_bool(&parameter.ty));
            }
        }
        self.measured.functions.push(function);
    }
}

/// Returns true if `kind` is `bool`, `&bool` or `Option<bool>`.
fn is_bool(kind: &syn::Type) -> bool {
    match kind {
        syn::Type::Reference(reference) => is_bool(&reference.elem),
        syn::Type::Path(path) => path.path.segments.last().is_some_and(|last| match &last.arguments {
            syn::PathArguments::AngleBracketed(inner) if last.ident == "Option" => inner
                .args
                .iter()
                .any(|inner| matches!(inner, syn::GenericArgument::Type(kind) if is_bool(kind))),
            _ => last.ident == "bool",
        }),
        _ => false,
    }
}

impl Visit<'_> for Visitor {
    fn visit_item_impl(&mut self, item: &syn::ItemImpl) {
        let name = match &*item.self_ty {
            syn::Type::Path(path) => path.path.segments.last().map(|segment| segment.ident.to_string()),
            _ => None,
        };
        self.around.push(name.unwrap_or_else(|| "impl".into()));
        let before = std::mem::replace(&mut self.implements_trait, item.trait_.is_some());
        visit::visit_item_impl(self, item);
        self.implements_trait = before;
        self.around.pop();
    }

    fn visit_item_trait(&mut self, item: &syn::ItemTrait) {
        self.around.push(item.ident.to_string());
        visit::visit_item_trait(self, item);
        self.around.pop();
    }

    fn visit_item_struct(&mut self, item: &syn::ItemStruct) {
        let line = item.ident.span().start().line;
        let (name, fields) = (item.ident.to_string(), item.fields.len());
        self.measured.structs.push(Struct { name, line, fields });
        visit::visit_item_struct(self, item);
    }

    fn visit_item_fn(&mut self, item: &syn::ItemFn) {
        self.add(&item.sig, Some(&item.block));
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &syn::ImplItemFn) {
        self.add(&item.sig, Some(&item.block));
        if self.implements_trait
            && let Some(function) = self.measured.functions.last_mut()
        {
            (function.parameters, function.bool_parameters) = (0, 0);
        }
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &syn::TraitItemFn) {
        self.add(&item.sig, item.default.as_ref());
        visit::visit_trait_item_fn(self, item);
    }
}
