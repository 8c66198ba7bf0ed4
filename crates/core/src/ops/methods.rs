//! The macros that turn a row of [the table](super::table) into methods: signatures, arguments, results, and calls.

/// A parameter's type.
#[doc(hidden)]
#[macro_export]
macro_rules! op_parameter {
    ($T:ty, tensor) => { &$T };
    ($T:ty, tensors) => { &[&$T] };
    ($T:ty, pair) => { [&$T; 2] };
    ($T:ty, optional) => { Option<&$T> };
    ($T:ty, optional_pair) => { Option<[&$T; 2]> };
    ($T:ty, ($argument:ty)) => { $argument };
    ($T:ty, $argument:ident) => { $argument };
}

/// The type of the results.
#[doc(hidden)]
#[macro_export]
macro_rules! op_results {
    ($T:ty, one) => {
        $T
    };
    ($T:ty, two) => {
        ($T, $T)
    };
    ($T:ty, one_or_two) => {
        ($T, Option<$T>)
    };
    ($T:ty, three) => {
        ($T, $T, $T)
    };
}

/// The results of a call, as the method returns them.
#[doc(hidden)]
#[macro_export]
macro_rules! op_take {
    (one $outputs:ident) => {{
        let mut outputs = $outputs;
        outputs.take(0)
    }};
    (two $outputs:ident) => {{
        let mut outputs = $outputs;
        Ok((outputs.take(0)?, outputs.take(1)?))
    }};
    (one_or_two $outputs:ident) => {{
        let mut outputs = $outputs;
        Ok((outputs.take(0)?, outputs.take_optional(1)))
    }};
    (three $outputs:ident) => {{
        let mut outputs = $outputs;
        Ok((outputs.take(0)?, outputs.take(1)?, outputs.take(2)?))
    }};
}

/// A variant as a pattern.
macro_rules! op_pattern {
    ($variant:ident ()) => { $crate::Op::$variant };
    ($variant:ident ($field:ident : $type:ty)) => { $crate::Op::$variant($field) };
    ($variant:ident { $($field:ident : $type:ty),* }) => { $crate::Op::$variant { $($field),* } };
}

/// A variant built from a method's arguments.
#[doc(hidden)]
#[macro_export]
macro_rules! op_value {
    ($variant:ident ()) => { $crate::Op::$variant };
    ($variant:ident ($field:ident : $type:ty)) => { $crate::Op::$variant($crate::Owned::owned($field)) };
    ($variant:ident { $($field:ident : $type:ty),* }) => {
        $crate::Op::$variant { $($field: $crate::Owned::owned($field)),* }
    };
}

/// The tensors among a method's parameters, as a slice: first the required, then the optional ones.
#[doc(hidden)]
#[macro_export]
macro_rules! op_tensors {
    ([$($there:expr),*] []) => { &[$($there),*] };
    ([$($there:expr),*] [$($optional:expr),+]) => { $crate::Tensors::new([$($there),*], [$($optional),+]).get() };
    ($there:tt $optional:tt ($x:ident tensors) $($rest:tt)*) => { $x };
    ([$($there:expr),*] $optional:tt ($x:ident tensor) $($rest:tt)*) => {
        $crate::op_tensors!([$($there,)* $x] $optional $($rest)*)
    };
    ([$($there:expr),*] $optional:tt ($x:ident pair) $($rest:tt)*) => {
        $crate::op_tensors!([$($there,)* $x[0], $x[1]] $optional $($rest)*)
    };
    ($there:tt [$($optional:expr),*] ($x:ident optional) $($rest:tt)*) => {
        $crate::op_tensors!($there [$($optional,)* $x] $($rest)*)
    };
    ($there:tt [$($optional:expr),*] ($x:ident optional_pair) $($rest:tt)*) => {
        $crate::op_tensors!($there [$($optional,)* $x.map(|x| x[0]), $x.map(|x| x[1])] $($rest)*)
    };
    ($there:tt $optional:tt ($x:ident $argument:tt) $($rest:tt)*) => { $crate::op_tensors!($there $optional $($rest)*) };
}

/// The methods of all ops except updates, for the body of an `impl Backend`: each makes an [`Op`](crate::Op) of its
/// arguments and passes it, with the tensors, to `Self::call(op: Op, tensors: &[&Self::Tensor]) ->
/// Result<Outputs<Self::Tensor>>`.
///
/// For backends that treat all ops alike, such as wrappers and recorders. The types in the methods' signatures must be
/// in scope.
#[macro_export]
macro_rules! call_methods {
    () => { $crate::for_each_op! { $crate::call_methods } };
    ($($(#[$doc:meta])* $kind:ident $method:ident($($x:ident : $type:tt),* $(,)?) -> $count:ident
        as $variant:ident $fields:tt, named $name:tt, for $dtypes:tt gives [$($result:expr),*] $(saves $saves:tt)? $(steps $steps:tt)?;)*) => { $(
        #[inline]
        fn $method($($x: $crate::op_parameter!(Self::Tensor, $type)),*) -> $crate::Result<$crate::op_results!(Self::Tensor, $count)> {
            let outputs = Self::call($crate::op_value!($variant $fields), $crate::op_tensors!([] [] $(($x $type))*))?;
            $crate::op_take!($count outputs)
        }
    )* };
}

/// Defines the macro that finds a row by its name.
macro_rules! find_rows {
    ($dollar:tt $($(#[$doc:meta])* $kind:ident $method:ident($($x:ident : $type:tt),* $(,)?) -> $count:ident
        as $variant:ident $fields:tt, named $name:tt, for $dtypes:tt gives $results:tt $(saves $saves:tt)? $(steps $steps:tt)?;)*) => {
        /// [`op_method!`] for the op of this name, with its parameters and the number of its results.
        #[doc(hidden)]
        #[macro_export]
        macro_rules! op_row {
            $(($method $dollar($dollar rest:tt)*) => {
                $crate::op_method! { $method [$(($x $type))*] $count $dollar($dollar rest)* }
            };)*
        }
    };
}

crate::for_each_op! { [$] find_rows }

/// The `Backend` method of a row: calls a function with its arguments, or evaluates an expression that uses given names
/// for them.
#[doc(hidden)]
#[macro_export]
macro_rules! op_method {
    ($method:ident [$(($x:ident $type:tt))*] $count:ident $attrs:tt => $function:expr) => {
        $crate::op_method! { $method [$(($x $type))*] $count $attrs ($($x),*) => $function($($x),*) }
    };
    ($method:ident [$(($x:ident $type:tt))*] $count:ident [$(#[$attr:meta])*] ($($y:tt),*) => $value:expr) => {
        $(#[$attr])*
        fn $method($($y: $crate::op_parameter!(Self::Tensor, $type)),*) -> $crate::Result<$crate::op_results!(Self::Tensor, $count)> {
            $value
        }
    };
}

/// Methods of ops, for the body of an `impl Backend`. Each calls a function with the method's arguments, or is an
/// expression of them, under the names listed after the op's.
///
/// ```text
/// backend_methods! {
///     softmax => softmax::softmax,
///     permute(x, axes) => Ok(movement::permute(x, axes)),
/// }
/// ```
///
/// The signatures come from the table, so that no backend repeats them. The types in them must be in scope.
#[macro_export]
macro_rules! backend_methods {
    ($($(#[$attr:meta])* $method:ident $(($($x:tt),*))? => $value:expr),* $(,)?) => { $(
        $crate::op_row! { $method [$(#[$attr])*] $(($($x),*))? => $value }
    )* };
}

pub(crate) use op_pattern;
