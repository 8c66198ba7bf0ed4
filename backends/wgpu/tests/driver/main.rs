//! The driver, if there is an adapter, and its shaders without an adapter.

mod attention;
mod contract;
mod elementwise;
mod products;
mod shaders;
mod support;
