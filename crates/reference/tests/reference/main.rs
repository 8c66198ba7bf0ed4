//! The reference backend on cases computed by hand, and core's decompositions, run on it, against
//! formulas and derivatives.

mod activation;
mod attention;
mod choice;
mod conv;
mod elementwise;
mod indexing;
mod linear;
mod movement;
mod narrow;
mod norm;
mod optim;
mod pool;
mod recurrent;
mod reduce;
mod softmax;
mod tools;
mod window;
