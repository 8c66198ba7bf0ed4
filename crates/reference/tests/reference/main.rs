//! The reference backend against cases computed by hand, and core's decompositions on it against formulas and numerical
//! derivatives.

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
