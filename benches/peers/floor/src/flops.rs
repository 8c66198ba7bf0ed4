//! Operations of a network's step: products and convolutions, forward and backward, a multiplication with
//! its addition as two.

/// By name, as `Case::amount` of the crate `polygrad-workloads` has them; its tests compare.
pub(crate) const FLOPS: [(&str, u64); 4] = [
    ("cnn", 1_599_700_992),
    ("resnet", 53_263_958_016),
    ("gpt", 6_039_797_760),
    ("lstm", 1_073_987_584),
];
