//! The attributes of these ops, in the notation of those of `ai.onnx`.

pub(in crate::import::ops) const ATTRIBUTES: &[(&str, &str)] = &[
    ("Binarizer", "threshold"),
    ("FeatureVectorizer", "inputdimensions"),
    (
        "Imputer",
        "imputed_value_floats imputed_value_int64s replaced_value_float replaced_value_int64",
    ),
    (
        "LabelEncoder",
        "classes_strings default_float@2 default_int64 default_string default_tensor@4 keys_floats@2 \
         keys_int64s@2 keys_strings@2 keys_tensor@4 values_floats@2 values_int64s@2 values_strings@2 \
         values_tensor@4",
    ),
    (
        "LinearClassifier",
        "classlabels_ints classlabels_strings coefficients! intercepts multi_class post_transform",
    ),
    ("LinearRegressor", "coefficients intercepts post_transform targets"),
    ("Normalizer", "norm"),
    ("OneHotEncoder", "cats_int64s cats_strings zeros"),
    (
        "SVMClassifier",
        "classlabels_ints classlabels_strings coefficients kernel_params kernel_type post_transform prob_a \
         prob_b rho support_vectors vectors_per_class",
    ),
    (
        "SVMRegressor",
        "coefficients kernel_params kernel_type n_supports one_class post_transform rho support_vectors",
    ),
    ("Scaler", "offset scale"),
    (
        "TreeEnsemble",
        "aggregate_function leaf_targetids! leaf_weights! membership_values n_targets nodes_falseleafs! \
         nodes_falsenodeids! nodes_featureids! nodes_hitrates nodes_missing_value_tracks_true nodes_modes! \
         nodes_splits! nodes_trueleafs! nodes_truenodeids! post_transform tree_roots!",
    ),
    (
        "TreeEnsembleClassifier",
        "base_values base_values_as_tensor@3 class_ids class_nodeids class_treeids class_weights \
         class_weights_as_tensor@3 classlabels_int64s classlabels_strings nodes_falsenodeids nodes_featureids \
         nodes_hitrates nodes_hitrates_as_tensor@3 nodes_missing_value_tracks_true nodes_modes nodes_nodeids \
         nodes_treeids nodes_truenodeids nodes_values nodes_values_as_tensor@3 post_transform",
    ),
    ("ZipMap", "classlabels_int64s classlabels_strings"),
    (
        "TreeEnsembleRegressor",
        "aggregate_function base_values base_values_as_tensor@3 n_targets nodes_falsenodeids nodes_featureids \
         nodes_hitrates nodes_hitrates_as_tensor@3 nodes_missing_value_tracks_true nodes_modes nodes_nodeids \
         nodes_treeids nodes_truenodeids nodes_values nodes_values_as_tensor@3 post_transform target_ids \
         target_nodeids target_treeids target_weights target_weights_as_tensor@3",
    ),
];
