//! Polygrad.
