//! Labelled images: where they are found, how they are read.

pub(crate) mod download;
pub(crate) mod files;
pub(crate) mod folder;
pub(crate) mod source;

#[cfg(test)]
mod files_tests;
#[cfg(test)]
pub(crate) mod testing;

/// The classes of Fashion-MNIST, by label.
pub(crate) const FASHION_MNIST: [&str; 10] = [
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
];
