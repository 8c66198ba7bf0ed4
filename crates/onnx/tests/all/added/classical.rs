//! Invalid nodes of classical models.

use super::*;

#[test]
fn trees_that_are_wrong() {
    let x = || vec![ones(1f32, &[2, 2])];
    let tree = "TreeEnsembleRegressor";
    refused(
        ML,
        vec![
            (tree, vec![ones(1f32, &[2, 1])], stump(vec![]), "1 features of 2"),
            (
                tree,
                vec![ones(1f32, &[2, 2, 2])],
                stump(vec![]),
                "is not [F] or [N, F]",
            ),
            (
                tree,
                x(),
                stump(vec![ints("nodes_truenodeids", &[7, 0, 0])]),
                "tree 0 has no node 7",
            ),
            (
                tree,
                x(),
                stump(vec![ints("nodes_truenodeids", &[0, 0, 0])]),
                "branches of a tree go in a circle",
            ),
            (
                tree,
                x(),
                stump(vec![ints("nodes_nodeids", &[0, 1, 1])]),
                "node 1 of tree 0 is given twice",
            ),
            (
                tree,
                x(),
                stump(vec![ints("target_ids", &[0, 1])]),
                "a leaf speaks for target 1 of 1",
            ),
            (tree, x(), stump(vec![ints("target_ids", &[0])]), "ids has 1"),
            (
                tree,
                x(),
                stump(vec![ints("nodes_featureids", &[-1, 0, 0])]),
                "there is no feature -1",
            ),
            (
                tree,
                x(),
                stump(vec![texts("nodes_modes", &["BRANCH", "LEAF", "LEAF"])]),
                "no mode \"BRANCH\"",
            ),
            (
                tree,
                x(),
                stump(vec![text("aggregate_function", "MEAN")]),
                "no aggregate_function \"MEAN\"",
            ),
            (
                tree,
                x(),
                stump(vec![text("post_transform", "LOG")]),
                "no post_transform \"LOG\"",
            ),
            (
                tree,
                x(),
                stump(vec![floats("base_values", &[1.0, 2.0, 3.0])]),
                "3 base values for 1 targets",
            ),
            (
                tree,
                x(),
                stump(vec![
                    ints("nodes_treeids", &[0, 0, 0, 0]),
                    ints("nodes_nodeids", &[0, 1, 2, 3]),
                    ints("nodes_featureids", &[0, 0, 0, 0]),
                    texts("nodes_modes", &["BRANCH_LEQ", "BRANCH_LEQ", "LEAF", "LEAF"]),
                    floats("nodes_values", &[0.0; 4]),
                    ints("nodes_truenodeids", &[2, 1, 0, 0]),
                    ints("nodes_falsenodeids", &[3, 1, 0, 0]),
                ]),
                "go in a circle",
            ),
            ("TreeEnsembleClassifier", x(), vec![], "there is no tree"),
            ("TreeEnsemble", x(), vec![], "is missing"),
        ],
    );
}

#[test]
fn classical_nodes_that_are_wrong() {
    let x = || vec![ones(1f32, &[2, 3])];
    let linear = || vec![floats("coefficients", &[1.0; 6]), floats("intercepts", &[0.0; 2])];
    let with = |mut all: Attributes, more: (&'static str, Attribute)| {
        all.push(more);
        all
    };
    refused(
        ML,
        vec![
            (
                "Scaler",
                x(),
                vec![floats("scale", &[1.0; 2])],
                "scale has 2 numbers for 3 features",
            ),
            ("Normalizer", x(), vec![text("norm", "L3")], "no norm \"L3\""),
            (
                "LinearRegressor",
                x(),
                vec![floats("coefficients", &[1.0; 4])],
                "4 coefficients for 3 features",
            ),
            (
                "LinearClassifier",
                x(),
                linear(),
                "the labels of the classes are missing",
            ),
            (
                "LinearClassifier",
                x(),
                with(linear(), texts("classlabels_strings", &["a", "b"])),
                "the labels of the classes are text",
            ),
            (
                "LinearClassifier",
                x(),
                with(linear(), ints("classlabels_ints", &[1, 2, 3])),
                "3 labels for 2 scores",
            ),
            (
                "LabelEncoder",
                x(),
                vec![floats("keys_floats", &[1.0]), texts("values_strings", &["a"])],
                "is text",
            ),
            (
                "LabelEncoder",
                x(),
                vec![floats("keys_floats", &[1.0]), ints("values_int64s", &[1, 2])],
                "1 keys for 2 values",
            ),
            (
                "OneHotEncoder",
                x(),
                vec![texts("cats_strings", &["a"])],
                "the list of categories is text",
            ),
            (
                "OneHotEncoder",
                x(),
                vec![ints("cats_int64s", &[2]), int("zeros", 0)],
                "1 is none of the categories [2]",
            ),
            (
                "ArrayFeatureExtractor",
                vec![ones(1f32, &[2, 3]), ones(3i64, &[1])],
                vec![],
                "3",
            ),
            (
                "FeatureVectorizer",
                x(),
                vec![ints("inputdimensions", &[1 << 40])],
                "limit",
            ),
            (
                "Imputer",
                x(),
                vec![floats("imputed_value_floats", &[1.0; 2])],
                "2 numbers for 3 features",
            ),
            (
                "SVMRegressor",
                x(),
                vec![int("n_supports", 2), floats("coefficients", &[1.0; 2])],
                "support_vectors has 0",
            ),
            (
                "SVMClassifier",
                x(),
                vec![
                    ints("vectors_per_class", &[i64::MAX; 3]),
                    ints("classlabels_ints", &[0, 1, 2]),
                ],
                "support_vectors has 0",
            ),
            (
                "SVMClassifier",
                x(),
                vec![
                    ints("vectors_per_class", &[1, 1]),
                    ints("classlabels_ints", &[0, 1]),
                    floats("rho", &[]),
                ],
                "support_vectors has 0",
            ),
        ],
    );
}
