//! Tests that run on several backends.

/// Runs each test of a run-time device on the CPU backend and on the reference. The crate of the tests has both as
/// dependencies.
#[macro_export]
macro_rules! on_backends {
    ($($test:ident),* $(,)?) => {
        $crate::on_cpu!($($test),*);
        mod reference {
            $(#[test]
            fn $test() {
                super::$test(&polygrad_tensor::Device::<polygrad_reference::Reference>::default().into_any());
            })*
        }
    };
}

/// [`on_backends`] for tests that take too long on the reference.
#[macro_export]
macro_rules! on_cpu {
    ($($test:ident),* $(,)?) => {
        mod cpu {
            $(#[test]
            fn $test() {
                super::$test(&polygrad_tensor::Device::<polygrad_cpu::Cpu>::default().into_any());
            })*
        }
    };
}
