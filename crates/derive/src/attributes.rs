//! The attributes `#[module(…)]`.

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::{Attribute, LitStr, Path, Result, Type};

/// Attributes of the type.
#[derive(Default)]
pub(crate) struct TypeAttributes {
    /// `backend = T`.
    pub(crate) backend: Option<Type>,
    /// `crate = path`.
    pub(crate) krate: Option<Path>,
    /// `forward`, with its span.
    pub(crate) forward: Option<Span>,
    /// Every `unused = "name"`.
    pub(crate) unused: Vec<LitStr>,
}

/// Attributes of a field.
#[derive(Default)]
pub(crate) struct FieldAttributes {
    /// `skip`.
    pub(crate) skip: bool,
    /// `rename = "name"`.
    pub(crate) rename: Option<LitStr>,
}

impl TypeAttributes {
    pub(crate) fn parse(attributes: &[Attribute]) -> Result<Self> {
        let mut out = Self::default();
        for attribute in ours(attributes) {
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("backend") {
                    out.backend = Some(meta.value()?.parse()?);
                    Ok(())
                } else if meta.path.is_ident("crate") {
                    out.krate = Some(meta.value()?.call(Path::parse_mod_style)?);
                    Ok(())
                } else if meta.path.is_ident("forward") {
                    out.forward = Some(meta.path.span());
                    Ok(())
                } else if meta.path.is_ident("unused") {
                    out.unused.push(meta.value()?.parse()?);
                    Ok(())
                } else {
                    Err(meta
                        .error("a module takes `forward`, `unused = \"name\"`, `backend = Type` and `crate = path`"))
                }
            })?;
        }
        Ok(out)
    }
}

impl FieldAttributes {
    pub(crate) fn parse(attributes: &[Attribute]) -> Result<Self> {
        let mut out = Self::default();
        for attribute in ours(attributes) {
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("skip") {
                    out.skip = true;
                    Ok(())
                } else if meta.path.is_ident("rename") {
                    let name: LitStr = meta.value()?.parse()?;
                    if name.value().is_empty() || name.value().contains('.') {
                        return Err(syn::Error::new(name.span(), "a name is not empty and has no dot"));
                    }
                    out.rename = Some(name);
                    Ok(())
                } else {
                    Err(meta.error("a field of a module takes `skip` and `rename = \"name\"`"))
                }
            })?;
        }
        Ok(out)
    }
}

fn ours(attributes: &[Attribute]) -> impl Iterator<Item = &Attribute> {
    attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident("module"))
}
