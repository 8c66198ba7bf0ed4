//! Finds the backend that a module runs on.

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Error, GenericParam, Generics, Ident, Path, Result, Type, TypeParamBound, WherePredicate, parse_quote};

use crate::attributes::TypeAttributes;

/// The backend named by the attribute, else the one type parameter bounded by `Backend`, else `AnyBackend`.
pub(crate) fn find(attributes: &TypeAttributes, generics: &Generics, krate: &Path) -> Result<Type> {
    if let Some(backend) = &attributes.backend {
        return Ok(backend.clone());
    }
    let candidates: Vec<&Ident> = generics
        .type_params()
        .filter(|param| has_backend(&param.bounds) || is_bounded_below(generics, &param.ident))
        .map(|param| &param.ident)
        .collect();
    match candidates.as_slice() {
        [] => Ok(parse_quote!(#krate::AnyBackend)),
        [backend] => Ok(parse_quote!(#backend)),
        [_, second, ..] => Err(Error::new(
            second.span(),
            "two parameters are backends: say which one the module runs on with #[module(backend = …)]",
        )),
    }
}

fn has_backend<'a>(bounds: impl IntoIterator<Item = &'a TypeParamBound>) -> bool {
    bounds.into_iter().any(|bound| match bound {
        TypeParamBound::Trait(bound) => bound.path.segments.last().is_some_and(|last| last.ident == "Backend"),
        _ => false,
    })
}

/// Whether a `where` clause bounds the parameter by `Backend`.
fn is_bounded_below(generics: &Generics, param: &Ident) -> bool {
    generics
        .where_clause
        .iter()
        .flat_map(|clause| &clause.predicates)
        .any(|predicate| match predicate {
            WherePredicate::Type(predicate) => {
                matches!(&predicate.bounded_ty, Type::Path(path) if path.path.is_ident(param))
                    && has_backend(&predicate.bounds)
            }
            _ => false,
        })
}

/// Whether a field's type mentions a type parameter other than the backend, so that it needs a bound of its own.
pub(crate) fn needs_bound(field: &Type, backend: &Type, generics: &Generics) -> bool {
    let backend = backend.to_token_stream().to_string();
    let others: Vec<&Ident> = generics
        .params
        .iter()
        .filter_map(|param| match param {
            GenericParam::Type(param) if param.ident != backend => Some(&param.ident),
            _ => None,
        })
        .collect();
    mentions(field.to_token_stream(), &others)
}

fn mentions(tokens: TokenStream, names: &[&Ident]) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => names.iter().any(|&name| *name == ident),
        TokenTree::Group(group) => mentions(group.stream(), names),
        _ => false,
    })
}
