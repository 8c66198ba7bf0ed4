//! The polygrad command.

fn main() {}
