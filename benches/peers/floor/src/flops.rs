//! Operations of a network's step: products and convolutions, forward and backward. A multiplication with its addition
//! counts as two.

/// By name, equal to `Case::amount` of the crate `polygrad-workloads`, whose tests compare them.
pub(crate) const FLOPS: [(&str, u64); 4] = [
    ("cnn", 1_599_700_992),
    ("resnet", 53_263_958_016),
    ("gpt", 6_039_797_760),
    ("lstm", 1_073_987_584),
];
