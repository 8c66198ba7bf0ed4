//! Cases of this crate that the library does not support, or answers differently on purpose. A listed case that passes
//! is a failure, too.

/// PyTorch returns an empty input before it checks for channels.
const NO_CHANNELS: &str = "an empty vector has no channels to normalise";

/// A case's name, or the part before the slash, and why it does not pass.
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
