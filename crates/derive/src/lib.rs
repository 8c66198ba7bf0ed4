//! Derive macros of Polygrad.
