//! Invalid nodes of classical models.

use polygrad_onnx::graph::ValueType;

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
                with(linear(), texts("classlabels_strings", &["a", "b", "c"])),
                "3 labels for 2 scores",
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
                vec![texts("keys_strings", &["a"]), ints("values_int64s", &[1])],
                "keys are string, and operand 0 is float",
            ),
            (
                "LabelEncoder",
                vec![words(&["a"], &[1])],
                vec![ints("keys_int64s", &[0]), ints("values_int64s", &[1])],
                "keys are int64, and operand 0 is string",
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
                "the categories are text, and operand 0 is not",
            ),
            (
                "OneHotEncoder",
                vec![words(&["a", "b"], &[2])],
                vec![texts("cats_strings", &["a"]), int("zeros", 0)],
                "b is none of the categories",
            ),
            ("OneHotEncoder", x(), vec![], "the categories are missing"),
            ("ZipMap", x(), vec![ints("classlabels_int64s", &[3])], "for 1 classes"),
            ("ZipMap", x(), vec![], "the classes are neither integers nor text"),
            (
                "Normalizer",
                vec![words(&["a"], &[1, 1])],
                vec![],
                "text stands where a tensor of numbers is needed",
            ),
            (
                "ArrayFeatureExtractor",
                vec![words(&["a"], &[1, 1]), words(&["a"], &[1])],
                vec![],
                "text stands where a tensor of numbers is needed",
            ),
            (
                "OneHotEncoder",
                x(),
                vec![ints("cats_int64s", &[2]), int("zeros", 0)],
                "1 is none of the categories",
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

#[test]
fn maps_are_a_table_and_its_keys() -> Result<()> {
    let x = [host(vec![0.25f32, 0.75, 1.0, 0.0], &[2, 2])];
    let made = run(ML, "ZipMap", &x, &vec![ints("classlabels_int64s", &[7, 3])], 1)?;
    assert_eq!(made[0].keys().unwrap().host().to_vec::<i64>()?, [7, 3]);
    assert_eq!(made[0].host()?.to_vec::<f32>()?, [0.25, 0.75, 1.0, 0.0]);
    assert!(made[0].shape().is_none() && made[0].as_sequence().is_none());
    let made = run(ML, "ZipMap", &x, &vec![texts("classlabels_strings", &["no", "yes"])], 1)?;
    let keys = made[0].keys().unwrap().texts().unwrap();
    assert!(keys.iter().map(|key| &**key).eq(["no", "yes"]), "{keys:?}");
    // The file's type, a sequence of maps, is kept.
    let mut graph = graph(ML, "ZipMap", &x, &vec![ints("classlabels_int64s", &[7, 3])], 1);
    let map = ValueType::Map(
        ElementType::I64,
        Some(Box::new(ValueType::tensor(ElementType::F32, vec![]))),
    );
    let ty = ValueType::Sequence(Some(Box::new(map)));
    graph.body.values[1].ty = Some(ty.clone());
    let again = Graph::from_bytes(graph.to_bytes()?)?;
    assert_eq!(again.body.value(again.body.outputs[0]).ty, Some(ty));
    // A replay would lose the keys.
    let model = OnnxModel::from_graph(&again, &Device::<Cpu>::default().into_any(), Options::default())?;
    for _ in 0..5 {
        let given: Vec<Value> = x.iter().flatten().cloned().collect();
        let outputs = model.run_ordered(given.into_iter())?;
        assert!(outputs.iter().all(|(_, value)| value.keys().is_some()));
    }
    Ok(())
}
