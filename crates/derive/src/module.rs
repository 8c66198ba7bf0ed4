//! Generates the impls of `Visit` and `Module`.

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Data, DataEnum, DeriveInput, Error, Fields, Index, Member, Path, Result, Type};

use crate::attributes::{FieldAttributes, TypeAttributes};
use crate::backend;

pub(crate) fn derive(input: &DeriveInput, krate: Path) -> Result<TokenStream> {
    let attributes = TypeAttributes::parse(&input.attrs)?;
    let krate = attributes.krate.clone().unwrap_or(krate);
    let backend = backend::find(&attributes, &input.generics, &krate)?;
    let mut visited = Vec::new();
    let body = match &input.data {
        Data::Struct(data) => {
            let fields = visit_fields(&data.fields, &krate, &mut visited)?;
            quote! { visitor.module(self); #fields }
        }
        Data::Enum(data) => visit_variants(data, &krate, &mut visited)?,
        Data::Union(data) => {
            return Err(Error::new(
                data.union_token.span,
                "a union cannot be a module: nobody knows which of its fields is there",
            ));
        }
    };

    let unused = attributes.unused.iter();
    let unused = quote! { #(#krate::Visitor::unused(visitor, #unused);)* };
    let mut generics = input.generics.clone();
    let where_clause = generics.make_where_clause();
    for ty in visited {
        if backend::needs_bound(ty, &backend, &input.generics) {
            where_clause
                .predicates
                .push(syn::parse_quote!(#ty: #krate::Visit<#backend>));
        }
    }
    let (_, type_generics, _) = input.generics.split_for_impl();
    let (impl_generics, _, where_clause) = generics.split_for_impl();
    let name = &input.ident;
    let forward = attributes.forward.map(|span| {
        let mut generics = generics.clone();
        if !generics.params.is_empty() {
            generics
                .make_where_clause()
                .predicates
                .push(syn::parse_quote!(Self: Send + Sync));
        }
        let (_, _, where_clause) = generics.split_for_impl();
        let call = quote_spanned! { span => Self::forward(self, x) };
        let locate = quote! { #krate::derive::locate::<#backend>(self, e) };
        quote! {
            const _: () = {
                // If the type had no `forward` of its own, `Self::forward` would be the trait's method, and call
                // itself.
                use #krate::Forward as _;
                use #krate::derive::ForwardIsMissing as _;
                #[automatically_derived]
                impl #impl_generics #krate::Forward<#backend> for #name #type_generics #where_clause {
                    fn forward(
                        &self,
                        x: &#krate::derive::Tensor<#backend>,
                    ) -> #krate::derive::Result<#krate::derive::Tensor<#backend>> {
                        #call.map_err(|e| #locate)
                    }
                }
            };
        }
    });
    Ok(quote! {
        #forward
        #[automatically_derived]
        impl #impl_generics #krate::Visit<#backend> for #name #type_generics #where_clause {
            fn visit(&self, visitor: &mut #krate::Visitor<'_, #backend>) {
                let _ = &visitor;
                #body
                #unused
            }
        }
        #[automatically_derived]
        impl #impl_generics #krate::Module<#backend> for #name #type_generics #where_clause {}
    })
}

/// A visitor call for each field, under the field's name.
fn visit_fields<'a>(fields: &'a Fields, krate: &Path, visited: &mut Vec<&'a Type>) -> Result<TokenStream> {
    let mut body = TokenStream::new();
    for (i, field) in fields.iter().enumerate() {
        let attributes = FieldAttributes::parse(&field.attrs)?;
        if attributes.skip {
            continue;
        }
        let (member, own_name) = match &field.ident {
            Some(ident) => (Member::Named(ident.clone()), ident.unraw().to_string()),
            None => (Member::Unnamed(Index::from(i)), i.to_string()),
        };
        let name = attributes.rename.map_or(own_name, |name| name.value());
        let ty = &field.ty;
        visited.push(ty);
        body.extend(quote_spanned! { ty.span() =>
            #krate::Visitor::field(visitor, #name, &self.#member);
        });
    }
    Ok(body)
}

/// A variant is visited as its only field, and adds no name to the path.
fn visit_variants<'a>(data: &'a DataEnum, krate: &Path, visited: &mut Vec<&'a Type>) -> Result<TokenStream> {
    let mut arms = TokenStream::new();
    for variant in &data.variants {
        let name = &variant.ident;
        match &variant.fields {
            Fields::Unit => arms.extend(quote!(Self::#name => {})),
            Fields::Unnamed(fields) if fields.unnamed.len() == 1 => {
                let field = &fields.unnamed[0];
                if FieldAttributes::parse(&field.attrs)?.skip {
                    arms.extend(quote!(Self::#name(_) => {}));
                    continue;
                }
                let ty = &field.ty;
                let inner = format_ident!("inner");
                visited.push(ty);
                arms.extend(quote_spanned! { ty.span() =>
                    Self::#name(#inner) => #krate::Visit::visit(#inner, visitor),
                });
            }
            _ => {
                return Err(Error::new(
                    variant.span(),
                    "a variant of a module holds one module, whose parameters keep their names: `Variant(Model)`",
                ));
            }
        }
    }
    Ok(quote! { match self { #arms } })
}
