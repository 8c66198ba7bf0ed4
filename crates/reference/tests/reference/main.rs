//! What the conformance suite does not hold the reference to: integers that wrap, rounding once, errors, windows in
//! every combination of their settings, attention that hides whole rows, sequences of recurrent layers, and functions
//! without recorded values. Other functions and decompositions are compared with PyTorch's there.

mod attention;
mod choice;
mod conv;
mod elementwise;
mod indexing;
mod matmul;
mod movement;
mod narrow;
mod pool;
mod recurrent;
mod reduce;
mod tools;
mod window;
