//! The derive macro behind `polygrad_nn::Module`, which documents it.
//!
//! There are two macros, which only differ in the crate that the generated code names: a macro cannot know whether its
//! user depends on `polygrad-nn` or only on the facade.

mod attributes;
mod backend;
mod module;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input, parse_quote};

/// Implements `Visit` and `Module`; for users of `polygrad-nn`, which re-exports it.
#[proc_macro_derive(Module, attributes(module))]
pub fn derive_module(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    module::derive(&input, parse_quote!(::polygrad_nn))
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

/// Implements `Visit` and `Module`; for users of `polygrad`, which re-exports it as `Module`.
#[proc_macro_derive(FacadeModule, attributes(module))]
pub fn derive_facade_module(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    module::derive(&input, parse_quote!(::polygrad::nn))
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}
