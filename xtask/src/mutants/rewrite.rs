//! Rewrites a source file so that it holds all its mutants, each behind a question whether it is
//! the chosen one. The text is edited in place: a printer would lose the line numbers.

use std::fmt::Write;

use anyhow::{Context, Result, ensure};
use proc_macro2::Span;
use quote::ToTokens;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{
    Attribute, BinOp, Block, Expr, ExprBinary, ExprRepeat, ExprUnary, ImplItemConst, ImplItemFn, ItemConst,
    ItemFn, ItemImpl, ItemMod, ItemStatic, Pat, Signature, TraitItemFn, Type, UnOp,
};

use super::values;

/// Traits whose functions only write text for people.
const TEXT: [&str; 3] = ["Debug", "Display", "Error"];

pub struct Mutant {
    pub id: u32,
    pub file: String,
    pub line: usize,
    pub function: String,
    pub change: String,
}

/// An insertion where `start` is `end`.
struct Edit {
    start: usize,
    end: usize,
    text: String,
}

struct Rewriter<'a> {
    file: &'a str,
    text: &'a str,
    line_starts: Vec<usize>,
    /// In the order in which they apply where two are at one place.
    edits: Vec<Edit>,
    /// The names of the function and of the types and modules around it.
    function: Vec<String>,
    mutants: &'a mut Vec<Mutant>,
}

/// Returns the changed text, and adds the mutants.
pub fn rewrite(file: &str, text: &str, mutants: &mut Vec<Mutant>) -> Result<String> {
    let parsed = syn::parse_file(text)?;
    let line_starts = [0]
        .into_iter()
        .chain(text.match_indices('\n').map(|(at, _)| at + 1))
        .collect();
    let mut rewriter = Rewriter {
        file,
        text,
        line_starts,
        edits: Vec::new(),
        function: Vec::new(),
        mutants,
    };
    rewriter.visit_file(&parsed);
    apply(text, rewriter.edits)
}

fn apply(text: &str, mut edits: Vec<Edit>) -> Result<String> {
    edits.sort_by_key(|edit| edit.start);
    let mut changed = String::new();
    let mut at = 0;
    for edit in edits {
        ensure!(edit.start >= at, "two changes at byte {}", edit.start);
        changed.push_str(&text[at..edit.start]);
        changed.push_str(&edit.text);
        at = edit.end;
    }
    changed.push_str(text.get(at..).context("an edit beyond the end")?);
    Ok(changed)
}

impl Rewriter<'_> {
    fn range(&self, span: Span) -> (usize, usize) {
        let at = |line: usize, column: usize| {
            let start = self.line_starts[line - 1];
            let before = self.text[start..].chars().take(column);
            start + before.map(char::len_utf8).sum::<usize>()
        };
        let (start, end) = (span.start(), span.end());
        (at(start.line, start.column), at(end.line, end.column))
    }

    fn replace(&mut self, (start, end): (usize, usize), text: impl Into<String>) {
        self.edits.push(Edit {
            start,
            end,
            text: text.into(),
        });
    }

    fn insert(&mut self, at: usize, text: impl Into<String>) {
        self.replace((at, at), text);
    }

    /// Notes a mutant and returns the question whether it was chosen.
    fn mutant(&mut self, span: Span, change: String) -> String {
        let id = u32::try_from(self.mutants.len() + 1).expect("fewer than 2^32 mutants");
        self.mutants.push(Mutant {
            id,
            file: self.file.to_owned(),
            line: span.start().line,
            function: self.function.join("::"),
            change,
        });
        format!("crate::mutants::is({id})")
    }

    fn body(&mut self, attributes: &[Attribute], signature: &Signature, block: &Block) {
        // What is constant or asynchronous is left alone.
        if is_for_tests(attributes) || signature.constness.is_some() || signature.asyncness.is_some() {
            return;
        }
        self.function.push(signature.ident.to_string());
        let mut text = String::new();
        if !block.stmts.is_empty() {
            for value in values::of_body(&signature.output) {
                let change = format!(
                    "the body becomes {}",
                    if value.is_empty() { "()" } else { &value }
                );
                let is_chosen = self.mutant(signature.ident.span(), change);
                let _ = write!(text, " if {is_chosen} {{ return {value}; }}");
            }
        }
        let open = self.range(block.brace_token.span.open()).1;
        self.insert(open, text);
        visit::visit_block(self, block);
        self.function.pop();
    }

    /// `if chosen { a - b } else if chosen { a * b } else { a + b }`, of what was bound before.
    fn choices(&mut self, operator: &BinOp, left: &str, right: &str) -> String {
        let now = operator.to_token_stream().to_string();
        let mut text = String::new();
        for other in values::of_operator(operator) {
            let is_chosen = self.mutant(operator.span(), format!("{now} becomes {other}"));
            let _ = write!(text, "if {is_chosen} {{ {left} {other} {right} }} else ");
        }
        let _ = write!(text, "{{ {left} {now} {right} }} ");
        text
    }

    /// Both operands are evaluated once, and the second one of `&&` and `||` only if it is needed.
    fn lazy(&mut self, expression: &ExprBinary) {
        let (whole, between) = self.places(expression);
        let is_and = matches!(expression.op, BinOp::And(_));
        let change = if is_and { "&& becomes ||" } else { "|| becomes &&" };
        let is_chosen = self.mutant(expression.op.span(), change.to_owned());
        let goes_on = if is_and { "!=" } else { "==" };
        self.insert(whole.0, "({ let a__: bool = ");
        self.visit_expr(&expression.left);
        self.replace(between, format!("; if a__ {goes_on} {is_chosen} {{ "));
        self.visit_expr(&expression.right);
        self.insert(whole.1, " } else { a__ } })");
    }

    fn assignment(&mut self, expression: &ExprBinary) {
        let (whole, between) = self.places(expression);
        let target = self.text[whole.0..between.0].to_owned();
        let choices = self.choices(&expression.op, &target, "b__");
        self.replace((whole.0, between.1), "{ let b__ = ");
        self.visit_expr(&expression.right);
        self.insert(whole.1, format!("; {choices}}}"));
    }

    fn arithmetic(&mut self, expression: &ExprBinary, is_comparison: bool) {
        let (whole, between) = self.places(expression);
        let choices = self.choices(&expression.op, "a__", "b__");
        // A comparison takes nothing away from what it compares.
        let (first, second, end) = match is_comparison {
            true => ("({ let (a__, b__) = (&(", "), &(", "));"),
            false => ("({ let a__ = (", "); let b__ = (", ");"),
        };
        self.insert(whole.0, first);
        self.visit_expr(&expression.left);
        self.replace(between, second);
        self.visit_expr(&expression.right);
        self.insert(whole.1, format!("{end} {choices}}})"));
    }

    /// The range of an expression, and that between its operands.
    fn places(&self, expression: &ExprBinary) -> ((usize, usize), (usize, usize)) {
        let (left, right) = (
            self.range(expression.left.span()),
            self.range(expression.right.span()),
        );
        ((left.0, right.1), (left.1, right.0))
    }
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let text = attribute.to_token_stream().to_string().replace(' ', "");
        text.starts_with("#[test") || text.starts_with("#[cfg(") && text.contains("test")
    })
}

/// A chain with `let` is no expression that could stand elsewhere.
fn has_let(expression: &Expr) -> bool {
    match expression {
        Expr::Let(_) => true,
        Expr::Binary(binary) => {
            matches!(binary.op, BinOp::And(_)) && (has_let(&binary.left) || has_let(&binary.right))
        }
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Rewriter<'_> {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        let of_trait = item.trait_.as_ref().and_then(|(_, path, _)| path.segments.last());
        let is_text = of_trait.is_some_and(|last| TEXT.iter().any(|text| last.ident == text));
        if is_text || is_for_tests(&item.attrs) {
            return;
        }
        let name = item.self_ty.to_token_stream().to_string().replace(' ', "");
        self.function.push(name);
        visit::visit_item_impl(self, item);
        self.function.pop();
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        self.body(&item.attrs, &item.sig, &item.block);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        self.body(&item.attrs, &item.sig, &item.block);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast TraitItemFn) {
        if let Some(block) = &item.default {
            self.body(&item.attrs, &item.sig, block);
        }
    }

    // What must be constant stays as it is.
    fn visit_item_const(&mut self, _: &'ast ItemConst) {}
    fn visit_item_static(&mut self, _: &'ast ItemStatic) {}
    fn visit_impl_item_const(&mut self, _: &'ast ImplItemConst) {}
    fn visit_type(&mut self, _: &'ast Type) {}
    fn visit_pat(&mut self, _: &'ast Pat) {}
    fn visit_expr_repeat(&mut self, expression: &'ast ExprRepeat) {
        self.visit_expr(&expression.expr);
    }

    fn visit_expr_unary(&mut self, expression: &'ast ExprUnary) {
        if !matches!(expression.op, UnOp::Not(_)) || self.function.is_empty() {
            return visit::visit_expr_unary(self, expression);
        }
        let is_chosen = self.mutant(expression.span(), "! is left out".to_owned());
        let (whole, inner) = (self.range(expression.span()), self.range(expression.expr.span()));
        self.replace((whole.0, inner.0), "({ let a__ = ");
        self.visit_expr(&expression.expr);
        self.insert(whole.1, format!("; if {is_chosen} {{ a__ }} else {{ !a__ }} }})"));
    }

    fn visit_expr_binary(&mut self, expression: &'ast ExprBinary) {
        let has_none = values::of_operator(&expression.op).is_empty() || self.function.is_empty();
        if has_none || has_let(&Expr::Binary(expression.clone())) {
            return visit::visit_expr_binary(self, expression);
        }
        match expression.op {
            BinOp::And(_) | BinOp::Or(_) => self.lazy(expression),
            BinOp::Eq(_) | BinOp::Ne(_) | BinOp::Lt(_) | BinOp::Le(_) | BinOp::Gt(_) | BinOp::Ge(_) => {
                self.arithmetic(expression, true);
            }
            BinOp::Add(_)
            | BinOp::Sub(_)
            | BinOp::Mul(_)
            | BinOp::Div(_)
            | BinOp::Rem(_)
            | BinOp::BitAnd(_)
            | BinOp::BitOr(_)
            | BinOp::Shl(_)
            | BinOp::Shr(_) => self.arithmetic(expression, false),
            _ => self.assignment(expression),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(text: &str) -> (String, Vec<String>) {
        let mut mutants = Vec::new();
        let changed = rewrite("a.rs", text, &mut mutants).expect("valid");
        syn::parse_file(&changed).expect("still valid");
        let listed = mutants
            .iter()
            .map(|mutant| format!("{} {} {}", mutant.line, mutant.function, mutant.change));
        (changed, listed.collect())
    }

    #[test]
    fn bodies_and_operators_are_changed_and_lines_stay() {
        let text = "impl A {\n    fn f(&self, x: u64) -> bool {\n        !self.done && x + 1 < 5\n    }\n}\n";
        let (changed, mutants) = rewritten(text);
        assert_eq!(
            mutants,
            [
                "2 A::f the body becomes true",
                "2 A::f the body becomes false",
                "3 A::f && becomes ||",
                "3 A::f ! is left out",
                "3 A::f < becomes ==",
                "3 A::f < becomes >",
                "3 A::f < becomes <=",
                "3 A::f + becomes -",
                "3 A::f + becomes *",
            ]
        );
        assert_eq!(changed.lines().count(), text.lines().count());
    }

    #[test]
    fn constants_tests_and_chains_with_let_are_left_alone() {
        for text in [
            "const A: u64 = 1 + 2;\n",
            "const fn f() -> u64 { 1 + 2 }\n",
            "#[cfg(test)]\nmod tests { fn f() -> u64 { 1 + 2 } }\n",
            "#[test]\nfn f() { assert!(1 < 2); }\n",
        ] {
            assert_eq!(rewritten(text), (text.to_owned(), Vec::new()));
        }
        let (_, mutants) = rewritten("fn f(a: Option<u8>) { if let Some(b) = a && b > 1 { g() } }\n");
        assert_eq!(mutants.len(), 4, "{mutants:?}");
    }
}
