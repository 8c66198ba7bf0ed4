//! What the library does not offer, or answers differently on purpose, in the cases that come with this crate. A case that stands here and
//! passes is a failure too.

/// These are functions of `crates/nn`, whose own tests hold them to PyTorch.
const NN: &str = "a function of crates/nn, tested there";
/// These come with the ops that the conformance suite asks for.
const LATER: &str = "not there yet (issue 3)";

/// A case's name, or its beginning up to the slash, and why it does not pass.
const KNOWN: &[(&str, &str)] = &[
    ("nn.functional.adaptive_avg_pool2d", NN),
    ("nn.functional.mse_loss", NN),
    ("nn.functional.l1_loss", NN),
    ("nn.functional.l1_loss.own", NN),
    ("nn.functional.huber_loss", NN),
    ("nn.functional.nll_loss", NN),
    ("nn.functional.binary_cross_entropy_with_logits", NN),
    ("nn.functional.binary_cross_entropy_with_logits.own", NN),
    // Logits with spatial axes, targets that are probabilities, class weights.
    ("nn.functional.cross_entropy/0", NN),
    ("nn.functional.cross_entropy/1", NN),
    ("nn.functional.cross_entropy/2", NN),
    ("nn.functional.cross_entropy/3", NN),
    ("nn.functional.cross_entropy/4", NN),
    ("nn.functional.cross_entropy/5", NN),
    ("nn.functional.cross_entropy/6", NN),
    ("nn.functional.cross_entropy/8", LATER),
    ("nn.functional.cross_entropy.own/1", NN),
    // Evaluation, with running statistics.
    ("nn.functional.batch_norm/1", NN),
    ("nn.functional.batch_norm/4", NN),
    ("nn.functional.batch_norm/6", NN),
    ("nn.functional.batch_norm/7", NN),
    ("nn.functional.batch_norm/8", NN),
    (
        "nn.functional.batch_norm/3",
        "an empty vector has no channels to normalise",
    ),
    ("nn.functional.smooth_l1_loss", LATER),
    ("nn.functional.binary_cross_entropy", LATER),
    ("nn.functional.kl_div", LATER),
    ("nn.functional.cosine_similarity", LATER),
    ("nn.functional.group_norm", LATER),
    ("nn.functional.instance_norm", LATER),
    ("nn.functional.pad.reflect", LATER),
    ("nn.functional.pad.replicate", LATER),
    ("nn.functional.pad.circular", LATER),
    ("nn.functional.interpolate.nearest", LATER),
    ("nn.functional.interpolate.nearest-exact", LATER),
    ("nn.functional.interpolate.linear", LATER),
    ("nn.functional.interpolate.bilinear", LATER),
    ("nn.functional.interpolate.own", LATER),
    // divisor_override.
    ("nn.functional.avg_pool2d/0", LATER),
    ("nn.functional.avg_pool2d/1", LATER),
    ("nn.functional.avg_pool2d/2", LATER),
    ("nn.functional.avg_pool2d/3", LATER),
    ("nn.functional.avg_pool2d/4", LATER),
    // Other answers than PyTorch's.
    ("sign.own/0", "the sign of NaN is NaN, as in NumPy; PyTorch gives 0"),
];

/// Why a case is known not to pass.
pub(crate) fn known(name: &str) -> Option<&'static str> {
    let family = name.rsplit_once('/').map_or(name, |(family, _)| family);
    let entry = KNOWN.iter().find(|(listed, _)| *listed == name || *listed == family);
    entry.map(|(_, reason)| *reason)
}

#[cfg(test)]
mod tests {
    use polygrad_tensor::DType;

    use super::*;

    #[test]
    fn every_entry_covers_a_case() {
        let cases = crate::vectors::built_in(&[DType::F64]).unwrap();
        let family = |name: &str| name.rsplit_once('/').map(|(family, _)| family.to_owned());
        for (listed, _) in KNOWN {
            let covered = cases
                .iter()
                .any(|case| case.name() == *listed || family(case.name()).as_deref() == Some(listed));
            assert!(covered, "{listed} is listed, and no case is of that name");
        }
    }
}
