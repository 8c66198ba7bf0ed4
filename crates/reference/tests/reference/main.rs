//! What the conformance suite does not hold the reference to: whole numbers that wrap, rounding once, errors, and
//! windows in every combination of their settings. Its functions and decompositions are compared with PyTorch's there.

mod choice;
mod conv;
mod elementwise;
mod indexing;
mod matmul;
mod movement;
mod narrow;
mod pool;
mod reduce;
mod tools;
mod window;
