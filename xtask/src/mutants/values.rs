//! What is changed into what.

use quote::ToTokens;
use syn::{BinOp, GenericArgument, PathArguments, ReturnType, Type};

/// The plain values that a body is replaced with; an empty one is `()`.
pub fn of_body(output: &ReturnType) -> Vec<String> {
    let ReturnType::Type(_, kind) = output else {
        return vec![String::new()];
    };
    match argument_of(kind, "Result") {
        Some(inner) => of_type(inner)
            .iter()
            .map(|value| format!("Ok({value})"))
            .collect(),
        None => of_type(kind).iter().map(|value| (*value).to_owned()).collect(),
    }
}

fn argument_of<'a>(kind: &'a Type, name: &str) -> Option<&'a Type> {
    let Type::Path(path) = kind else { return None };
    let last = path.path.segments.last().filter(|last| last.ident == name)?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else {
        return None;
    };
    arguments.args.iter().find_map(|argument| match argument {
        GenericArgument::Type(inner) => Some(inner),
        _ => None,
    })
}

fn of_type(kind: &Type) -> &'static [&'static str] {
    let text = kind.to_token_stream().to_string().replace(' ', "");
    match text.as_str() {
        "bool" => &["true", "false"],
        "u8" | "u16" | "u32" | "u64" | "usize" | "i8" | "i16" | "i32" | "i64" => &["0", "1"],
        "f32" | "f64" => &["0.0", "1.0"],
        "()" => &["()"],
        "String" => &["String::new()"],
        _ if text.starts_with("Option<") => &["None"],
        _ if text.starts_with("Vec<") => &["Vec::new()"],
        _ => &[],
    }
}

pub fn of_operator(operator: &BinOp) -> &'static [&'static str] {
    match operator {
        BinOp::Add(_) => &["-", "*"],
        BinOp::Sub(_) => &["+", "/"],
        BinOp::Mul(_) => &["+", "/"],
        BinOp::Div(_) => &["%", "*"],
        BinOp::Rem(_) => &["/", "+"],
        BinOp::Eq(_) => &["!="],
        BinOp::Ne(_) => &["=="],
        BinOp::Lt(_) => &["==", ">", "<="],
        BinOp::Gt(_) => &["==", "<", ">="],
        BinOp::Le(_) => &[">", "<"],
        BinOp::Ge(_) => &["<", ">"],
        BinOp::And(_) => &["||"],
        BinOp::Or(_) => &["&&"],
        BinOp::BitAnd(_) => &["|", "^"],
        BinOp::BitOr(_) => &["&", "^"],
        BinOp::Shl(_) => &[">>"],
        BinOp::Shr(_) => &["<<"],
        BinOp::AddAssign(_) => &["-=", "*="],
        BinOp::SubAssign(_) | BinOp::MulAssign(_) => &["+="],
        BinOp::BitOrAssign(_) => &["&="],
        BinOp::BitAndAssign(_) => &["|="],
        _ => &[],
    }
}
