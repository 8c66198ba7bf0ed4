//! Polygrad's native CPU backend.
