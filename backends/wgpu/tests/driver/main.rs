//! The driver on an adapter, where there is one, and its shaders without any.

mod attention;
mod contract;
mod elementwise;
mod products;
mod shaders;
mod support;
