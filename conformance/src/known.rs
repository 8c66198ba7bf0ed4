//! What the library does not offer, or answers differently on purpose, in the cases that come with this crate. A case
//! that stands here and passes is a failure too.

/// PyTorch gives back an input without values before it looks for channels.
const NO_CHANNELS: &str = "an empty vector has no channels to normalise";

/// A case's name, or its beginning up to the slash, and why it does not pass.
const KNOWN: &[(&str, &str)] = &[
    ("nn.functional.batch_norm/3", NO_CHANNELS),
    ("nn.functional.batch_norm/4", NO_CHANNELS),
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
        let sets = crate::vectors::built_in().unwrap();
        let recorded = sets
            .iter()
            .map(|set| crate::vectors::recorded(set, &[DType::F64], false));
        let cases: Vec<_> = recorded.flatten().collect();
        let family = |name: &str| name.rsplit_once('/').map(|(family, _)| family.to_owned());
        for (listed, _) in KNOWN {
            let covered = cases
                .iter()
                .any(|case| case.name() == *listed || family(case.name()).as_deref() == Some(listed));
            assert!(covered, "{listed} is listed, and no case is of that name");
        }
    }
}
