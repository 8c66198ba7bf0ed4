//! Option types, for layers, optimizers and other types with a builder.

/// Defines an options type with its constructor and a method for each option:
///
/// ```text
/// options! {
///     /// Options of something.
///     #[derive(Clone, Copy, Debug)]
///     pub struct SomethingConfig<const D: usize> {
///         /// What comes without options.
///         pub fn new(channels: usize, kernel_size: [usize; D] = |kernel_size: impl Extent<D>| kernel_size.extent());
///         /// Added to the variance.
///         eps: f64 = 1e-5;
///         /// Width of the keys. Default: that of the queries.
///         kdim: Option<usize> = None, from |kdim: usize| Some(kdim);
///     }
/// }
/// ```
///
/// - The arguments of `new` become fields; a field with `=` is computed from an argument of another type. After `;`
///   there may be fields without a method.
/// - An option has a name, a type and a default. Its documentation states the default in words unless it is a literal,
///   which is added automatically. `from` gives the parameters of its method, if they are not the option itself.
/// - With `const fn new` all methods are `const`. Fields are visible in the parent module.
macro_rules! options {
    ($(#[$attr:meta])* pub struct $config:ident { $($body:tt)* }) => {
        $crate::options::options! { @new [$(#[$attr])*] $config [] [] $($body)* }
    };
    ($(#[$attr:meta])* pub struct $config:ident<const $D:ident: usize> { $($body:tt)* }) => {
        $crate::options::options! { @new [$(#[$attr])*] $config [<const $D: usize>] [<$D>] $($body)* }
    };
    ($(#[$attr:meta])* pub struct $config:ident<$K:ident: $bound:ident> { $($body:tt)* }) => {
        $crate::options::options! { @new [$(#[$attr])*] $config [<$K: $bound>] [<$K>] $($body)* }
    };
    (@new $attrs:tt $config:ident $generics:tt $names:tt $(#[$doc:meta])* $vis:vis const fn $($rest:tt)*) => {
        $crate::options::options! { @all [const] $attrs $config $generics $names [$(#[$doc])* $vis const] $($rest)* }
    };
    (@new $attrs:tt $config:ident $generics:tt $names:tt $(#[$doc:meta])* $vis:vis fn $($rest:tt)*) => {
        $crate::options::options! { @all [] $attrs $config $generics $names [$(#[$doc])* $vis] $($rest)* }
    };
    (
        @all $const:tt [$($attrs:tt)*] $config:ident [$($generics:tt)*] [$($names:tt)*] [$($head:tt)*]
        $new:ident($($arg:ident: $arg_type:ty $(= |$given:ident: $given_type:ty| $kept:expr)?),* $(; $($own:ident: $own_type:ty = $value:expr),+)?);
        $($(#[$doc:meta])* $option:ident: $type:ty = $default:expr $(, from |$($x:ident: $x_type:ty),+| $made:expr)?;)*
    ) => {
        $($attrs)*
        pub struct $config $($generics)* {
            $(pub(super) $arg: $arg_type,)*
            $($(pub(super) $own: $own_type,)+)?
            $(pub(super) $option: $type,)*
        }

        impl $($generics)* $config $($names)* {
            $($head)* fn $new($($arg: $crate::options::last!(@type $arg_type $(, $given_type)?)),*) -> Self {
                Self {
                    $($arg: $crate::options::last!(@value $arg $(, $kept)?),)*
                    $($($own: $value,)+)?
                    $($option: $default,)*
                }
            }

            $(
                $crate::options::option! {
                    $const [$(#[$doc])* #[doc = $crate::options::default!($default)]]
                    $option: $type $(, |$($x: $x_type),+| $made)?
                }
            )*
        }
    };
}

/// The method of one option.
macro_rules! option {
    ($const:tt $docs:tt $option:ident: $type:ty) => {
        $crate::options::option! { $const $docs $option: $type, |$option: $type| $option }
    };
    ([$($const:ident)?] [$($docs:tt)*] $option:ident: $type:ty, |$($x:ident: $x_type:ty),+| $made:expr) => {
        $($docs)*
        #[must_use]
        pub $($const)? fn $option(mut self, $($x: $x_type),+) -> Self {
            self.$option = $made;
            self
        }
    };
}

/// The default in the documentation, if it is a literal.
macro_rules! default {
    ($default:literal) => {
        concat!("Default: ", $default, ".")
    };
    ($default:expr) => {
        ""
    };
}

/// The last of one or two items.
macro_rules! last {
    (@type $type:ty) => {
        $type
    };
    (@type $first:ty, $type:ty) => {
        $type
    };
    (@value $value:ident) => {
        $value
    };
    (@value $first:ident, $value:expr) => {
        $value
    };
}

/// Defines a struct of options and its [`Default`], in which each field is followed by its value: `pub gamma: f64 =
/// 0.99,`.
#[doc(hidden)]
#[macro_export]
macro_rules! defaults {
    ($(#[$attr:meta])* pub struct $name:ident {
        $($(#[$doc:meta])* pub $field:ident: $type:ty = $default:expr,)*
    }) => {
        $(#[$attr])*
        pub struct $name {
            $($(#[$doc])* pub $field: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }
    };
}

pub(crate) use {default, last, option, options};
