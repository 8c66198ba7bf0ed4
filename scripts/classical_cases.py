"""Cases of ai.onnx.ml for scripts/onnxruntime_cases.py: models of scikit-learn's converter, and single nodes."""

import warnings

import numpy as np
import skl2onnx
from onnx import TensorProto, helper
from skl2onnx.common.data_types import FloatTensorType, Int64TensorType, StringTensorType
from sklearn import ensemble, impute, linear_model, neural_network, preprocessing, svm, tree
from sklearn.base import is_classifier
from sklearn.pipeline import make_pipeline

ML = "ai.onnx.ml"
FLOAT, I64 = TensorProto.FLOAT, TensorProto.INT64

rng = np.random.default_rng(11)


def models(cases):
    """Each model on rows that it was not fitted on."""
    x = rng.standard_normal((60, 4)).astype(np.float32)
    classes = (x[:, 0] + x[:, 1] > 0).astype(np.int64) + (x[:, 2] > 0.7)
    labels, two = np.array([3, 5, 9])[classes], (x[:, 0] > x[:, 1]).astype(np.int64)
    target = x @ np.array([1.0, -2.0, 0.5, 0.0]) + 0.3
    both = np.stack([target, -target], 1)
    rows = rng.standard_normal((7, 4)).astype(np.float32)

    def add(name, model, y, options=None, **more):
        model.fit(x, y)
        if options is None and is_classifier(model):
            options = {id(model): {"zipmap": False}}
        proto = skl2onnx.to_onnx(model, initial_types=[("x", FloatTensorType([None, 4]))], options=options,
                                 target_opset={"": 18, ML: 3}, **more)
        cases.keep("sklearn_" + name, proto, [rows], cases.NEAR)

    warnings.filterwarnings("ignore")
    # scikit-learn draws its random numbers from here.
    np.random.seed(0)
    add("LinearRegression", linear_model.LinearRegression(), target)
    add("LinearRegression_two", linear_model.LinearRegression(), both)
    add("LogisticRegression", linear_model.LogisticRegression(), labels)
    add("LogisticRegression_two", linear_model.LogisticRegression(), two)
    add("DecisionTreeRegressor", tree.DecisionTreeRegressor(max_depth=4), target)
    add("DecisionTreeClassifier", tree.DecisionTreeClassifier(max_depth=4), labels)
    add("RandomForestRegressor", ensemble.RandomForestRegressor(5, max_depth=3), both)
    add("RandomForestClassifier", ensemble.RandomForestClassifier(5, max_depth=3), labels)
    add("RandomForestClassifier_two", ensemble.RandomForestClassifier(5, max_depth=3), two)
    add("GradientBoostingRegressor", ensemble.GradientBoostingRegressor(n_estimators=5), target)
    add("GradientBoostingClassifier", ensemble.GradientBoostingClassifier(n_estimators=5), labels)
    add("GradientBoostingClassifier_two", ensemble.GradientBoostingClassifier(n_estimators=5), two)
    for kernel in ["linear", "rbf", "poly", "sigmoid"]:
        add(f"SVR_{kernel}", svm.SVR(kernel=kernel, C=0.1), target)
        add(f"SVC_{kernel}", svm.SVC(kernel=kernel), labels)
    add("SVC_two", svm.SVC(), two)
    add("SVC_chances", svm.SVC(probability=True, random_state=0), labels)
    add("SVC_chances_two", svm.SVC(probability=True, random_state=0), two)
    add("OneClassSVM", svm.OneClassSVM(nu=0.3), None)
    scaled = make_pipeline(preprocessing.StandardScaler(), linear_model.LogisticRegression())
    add("pipeline", scaled, labels, {id(scaled): {"zipmap": False}})
    for norm in ["max", "l1", "l2"]:
        add(f"Normalizer_{norm}", preprocessing.Normalizer(norm), None)
    add("StandardScaler", preprocessing.StandardScaler(), None)
    add("MinMaxScaler", preprocessing.MinMaxScaler(), None)
    add("Binarizer", preprocessing.Binarizer(threshold=0.2), None)
    network = neural_network.MLPClassifier((5,), max_iter=20, random_state=0)
    add("MLPClassifier", network, labels)
    holes = rows.copy()
    holes[::3, 1] = np.nan
    filler = impute.SimpleImputer().fit(x)
    proto = skl2onnx.to_onnx(filler, initial_types=[("x", FloatTensorType([None, 4]))], target_opset={"": 18, ML: 3})
    cases.keep("sklearn_SimpleImputer", proto, [holes], cases.EQUAL)
    numbers = rng.integers(0, 3, (9, 2))
    coder = preprocessing.OneHotEncoder(handle_unknown="ignore", sparse_output=False).fit(numbers)
    proto = skl2onnx.to_onnx(coder, initial_types=[("x", Int64TensorType([None, 2]))], target_opset={"": 18, ML: 3})
    cases.keep("sklearn_OneHotEncoder", proto, [rng.integers(0, 5, (6, 2))], cases.EQUAL)
    coder = preprocessing.OrdinalEncoder().fit(numbers)
    proto = skl2onnx.to_onnx(coder, initial_types=[("x", Int64TensorType([None, 2]))], target_opset={"": 18, ML: 3})
    cases.keep("sklearn_OrdinalEncoder", proto, [numbers], cases.EQUAL)


def stumps(**more):
    """The attributes of two trees: one of three nodes and one of five, with a NaN for the true branch."""
    return dict(
        nodes_treeids=[0] * 3 + [1] * 5, nodes_nodeids=[0, 1, 2, 0, 1, 2, 3, 4],
        nodes_featureids=[0, 0, 0, 1, 2, 0, 0, 0],
        nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF", "BRANCH_GT", "BRANCH_LT", "LEAF", "LEAF", "LEAF"],
        nodes_values=[0.1, 0, 0, -0.3, 0.5, 0, 0, 0], nodes_truenodeids=[1, 0, 0, 1, 3, 0, 0, 0],
        nodes_falsenodeids=[2, 0, 0, 2, 4, 0, 0, 0], nodes_missing_value_tracks_true=[1, 0, 0, 0, 1, 0, 0, 0], **more)


def nodes(cases):
    x = rng.standard_normal((6, 3)).astype(np.float32)
    x[0, 0] = x[1, 2] = x[2, 1] = np.nan
    node = lambda *parts, **more: cases.node(*parts, domain=ML, **more)
    leaves = dict(treeids=[0, 0, 1, 1, 1], nodeids=[1, 2, 2, 3, 4])
    target = {f"target_{key}": value for key, value in leaves.items()}
    for name in ["SUM", "AVERAGE", "MIN", "MAX"]:
        node(f"TreeEnsembleRegressor_{name}", "TreeEnsembleRegressor", [x], n_targets=2, aggregate_function=name,
             base_values=[0.5, -0.25], target_ids=[0, 1, 1, 0, 1], target_weights=[1.0, -2.0, 0.5, 0.75, -0.125],
             **stumps(**target))
    for name in ["LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"]:
        node(f"TreeEnsembleRegressor_{name}", "TreeEnsembleRegressor", [x], n_targets=2, post_transform=name,
             target_ids=[0, 1, 1, 0, 1], target_weights=[1.0, -2.0, 0.5, 0.75, -0.125], **stumps(**target))
    node("TreeEnsembleRegressor_f64", "TreeEnsembleRegressor", [x.astype(np.float64)], n_targets=1,
         target_ids=[0] * 5, target_weights=[1.0, -2.0, 0.5, 0.75, -0.125], **stumps(**target))
    by_class = {f"class_{key}": value for key, value in leaves.items()}
    for name, ids, labels, weights, more in [
        ("one", [0] * 5, [4, 8], [0.3, 0.1, 0.4, 0.2, 0.05], {}),
        ("one_negative", [0] * 5, [4, 8], [0.3, -0.1, 0.4, -0.2, 0.05], {}),
        ("one_logistic", [0] * 5, [4, 8], [0.3, -0.1, 0.4, -0.2, 0.05], {"post_transform": "LOGISTIC"}),
        ("one_base", [0] * 5, [4, 8], [0.3, -0.1, 0.4, -0.2, 0.05],
         {"post_transform": "LOGISTIC", "base_values": [0.2]}),
        ("second", [1] * 5, [4, 8], [0.3, 0.1, 0.4, 0.2, 0.05], {}),
        ("three", [0, 1, 2, 0, 1], [4, 8, 1], [0.3, 0.1, 0.4, 0.2, 0.05], {"post_transform": "SOFTMAX"}),
        ("three_base", [0, 1, 2, 0, 1], [4, 8, 1], [0.3, 0.1, 0.4, 0.2, 0.05], {"base_values": [0.1, 0.0, 0.2]}),
    ]:
        node(f"TreeEnsembleClassifier_{name}", "TreeEnsembleClassifier", [x], (I64, FLOAT), classlabels_int64s=labels,
             class_ids=ids, class_weights=weights, **more, **stumps(**by_class))

    def tensor(kind, values):
        return helper.make_tensor("t", kind, [len(values)], values)

    whole = dict(nodes_featureids=[0, 2, 1], nodes_falsenodeids=[2, 0, 2], nodes_truenodeids=[1, 1, 3],
                 nodes_falseleafs=[0, 1, 1],
                 nodes_trueleafs=[0, 1, 1], leaf_targetids=[0, 1, 0, 1], n_targets=2)
    for name, numbers, more in [("sum", (1, 0), {}), ("average", (0, 0), {}), ("min", (2, 0), {}), ("max", (3, 0), {})]:
        node(f"TreeEnsemble_{name}", "TreeEnsemble", [x], ml=5, version=22, aggregate_function=numbers[0],
             post_transform=numbers[1],
             tree_roots=[0], nodes_modes=tensor(TensorProto.UINT8, [0, 2, 1]),
             nodes_splits=tensor(FLOAT, [0.1, -0.2, 0.4]),
             leaf_weights=tensor(FLOAT, [1.0, -0.5, 2.0, 0.25]), **whole, **more)
    members = np.array([[1.0, 0, 3], [2, 0, 0], [7, 1, 0], [4, 3, 1]], np.float32)
    node("TreeEnsemble_members", "TreeEnsemble", [members], ml=5, version=22, tree_roots=[0],
         nodes_modes=tensor(TensorProto.UINT8, [6, 4, 6]), nodes_splits=tensor(FLOAT, [0, 3.0, 0]),
         membership_values=tensor(FLOAT, [1.0, 2.0, float("nan"), 1.0, float("nan")]),
         leaf_weights=tensor(FLOAT, [1.0, -0.5, 2.0, 0.25]), **whole)

    y = rng.standard_normal((5, 3)).astype(np.float32)
    node("Scaler", "Scaler", [y], offset=[0.5, -1.0, 0.0], scale=[2.0, 0.5, 3.0])
    node("Scaler_one_i64", "Scaler", [rng.integers(-9, 9, (4, 3))], offset=[1.0], scale=[0.5])
    for norm in ["MAX", "L1", "L2"]:
        node(f"Normalizer_{norm}", "Normalizer", [np.concatenate([y, np.zeros((1, 3), np.float32), -np.abs(y[:1])])],
             norm=norm)
    coefficients = [0.3, -0.2, 0.7, 1.0, 0.1, -0.4, 0.2, 0.9, -0.8]
    for name in ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT"]:
        extra = {"post_transform": name}
        # With PROBIT, ONNX Runtime gives NaN for a single score, and for scores outside of 0 to 1.
        if name != "PROBIT":
            node(f"LinearRegressor_{name}", "LinearRegressor", [y], coefficients=coefficients, targets=3,
                 intercepts=[0.1, 0.2, -0.3], **extra)
            node(f"LinearClassifier_{name}", "LinearClassifier", [y], (I64, FLOAT), coefficients=coefficients,
                 intercepts=[0.1, 0.2, -0.3], classlabels_ints=[5, 2, 7], **extra)
            node(f"LinearClassifier_two_{name}", "LinearClassifier", [y], (I64, FLOAT), coefficients=coefficients[:3],
                 intercepts=[0.4], classlabels_ints=[5, 2], **extra)
    node("LinearRegressor_PROBIT", "LinearRegressor", [rng.random((5, 3)).astype(np.float32)],
         coefficients=[0.3, 0.2, 0.3],
         intercepts=[0.05], post_transform="PROBIT")
    node("LabelEncoder_ints", "LabelEncoder", [np.array([[3, 1], [7, 2]], np.int64)], (I64,), cases.EQUAL,
         keys_int64s=[1, 2, 3], values_int64s=[10, 20, 30], default_int64=-7)
    node("LabelEncoder_floats", "LabelEncoder", [np.array([0.5, np.nan, 1.5, 9.0], np.float32)], (FLOAT,), cases.EQUAL,
         keys_floats=[0.5, 1.5, float("nan")], values_floats=[1.25, -2.0, 4.0], default_float=0.75)
    large = 2**60
    node("LabelEncoder_large", "LabelEncoder", [np.array([large, large + 1], np.int64)], (I64,), cases.EQUAL,
         keys_int64s=[large + 1, large], values_int64s=[large + 3, 7])
    node("LabelEncoder_ints_floats", "LabelEncoder", [np.array([3, 1, 5], np.int64)], (FLOAT,), cases.EQUAL,
         keys_int64s=[1, 3], values_floats=[1.5, 2.5])
    double = TensorProto.DOUBLE
    node("LabelEncoder_tensors", "LabelEncoder", [np.array([3.5, 1.0, 5.0, np.nan])], (double,), cases.EQUAL, ml=4,
         keys_tensor=helper.make_tensor("k", double, [3], [1.0, 3.5, float("nan")]),
         values_tensor=helper.make_tensor("v", double, [3], [-4.25, 9.0, 0.5]),
         default_tensor=helper.make_tensor("d", double, [1], [77.0]))
    node("OneHotEncoder_ints", "OneHotEncoder", [np.array([[1, 4], [2, 9]], np.int64)], cats_int64s=[1, 2, 4],
         near=cases.EQUAL)
    node("OneHotEncoder_floats", "OneHotEncoder", [np.array([1.0, 4.0], np.float32)], cats_int64s=[1, 2, 4], zeros=0,
         near=cases.EQUAL)
    node("ArrayFeatureExtractor", "ArrayFeatureExtractor", [y, np.array([2, 0, 2], np.int64)], near=cases.EQUAL)
    node("ArrayFeatureExtractor_vector", "ArrayFeatureExtractor", [np.arange(5), np.array([[3]], np.int64)], (I64,),
         cases.EQUAL)
    node("Binarizer", "Binarizer", [y], threshold=0.25, near=cases.EQUAL)
    node("Imputer_floats", "Imputer", [x], near=cases.EQUAL, imputed_value_floats=[1.0, 2.0, 3.0],
         replaced_value_float=float("nan"))
    node("Imputer_ints", "Imputer", [rng.integers(0, 3, (3, 2))], (I64,), cases.EQUAL, imputed_value_int64s=[8],
         replaced_value_int64=1)
    node("FeatureVectorizer", "FeatureVectorizer", [y, rng.standard_normal((5, 2)).astype(np.float32)],
         inputdimensions=[3, 2],
         near=cases.EQUAL)
    vectors = rng.standard_normal(9).astype(np.float32).tolist()
    for kernel in ["LINEAR", "POLY", "RBF", "SIGMOID"]:
        node(f"SVMRegressor_{kernel}", "SVMRegressor", [y], kernel_type=kernel, kernel_params=[0.4, 0.5, 2.0],
             n_supports=3,
             coefficients=[0.5, -0.25, 1.0], support_vectors=vectors, rho=[0.3])
    node("SVMRegressor_bare", "SVMRegressor", [y], coefficients=[0.5, -0.25, 1.0], rho=[0.3],
         kernel_params=[0.0, 0.0, 0.0])
    node("SVMClassifier_linear", "SVMClassifier", [y], (I64, FLOAT), coefficients=coefficients, rho=[0.3, 0.1, 0.2],
         classlabels_ints=[4, 6, 8], post_transform="SOFTMAX", kernel_params=[0.0, 0.0, 0.0])


def texts(cases):
    """Text as labels, keys and categories."""
    x = rng.standard_normal((60, 3)).astype(np.float32)
    names = np.array(["low", "mid", "high"])[(x[:, 0] > -0.5).astype(int) + (x[:, 0] > 0.5)]
    rows = rng.standard_normal((7, 3)).astype(np.float32)
    for model in [linear_model.LogisticRegression(), ensemble.RandomForestClassifier(3, max_depth=3, random_state=0),
                  svm.SVC(), neural_network.MLPClassifier((4,), max_iter=20, random_state=0)]:
        proto = skl2onnx.to_onnx(model.fit(x, names), initial_types=[("x", FloatTensorType([None, 3]))],
                                 options={id(model): {"zipmap": False}}, target_opset={"": 18, ML: 3})
        cases.keep(f"sklearn_{type(model).__name__}_texts", proto, [rows], cases.NEAR)
    animals = np.array([["dog", "cat"], ["bird", "cow"], ["cat", "dog"]], object)
    coder = preprocessing.OneHotEncoder(handle_unknown="ignore", sparse_output=False).fit(animals)
    proto = skl2onnx.to_onnx(coder, initial_types=[("x", StringTensorType([None, 2]))], target_opset={"": 18, ML: 3})
    cases.keep("sklearn_OneHotEncoder_texts", proto, [animals[::-1].copy()], cases.EQUAL)
    node = lambda *parts, **more: cases.node(*parts, domain=ML, **more)
    text = TensorProto.STRING
    node("LabelEncoder_texts", "LabelEncoder", [animals], (text,), cases.EQUAL, keys_strings=["dog", "cat"],
         values_strings=["Hund", "Katze"], default_string="Tier")
    node("LabelEncoder_texts_floats", "LabelEncoder", [animals], (FLOAT,), cases.EQUAL, keys_strings=["cow", "cat"],
         values_floats=[1.5, -2.0])
    node("LabelEncoder_ints_texts", "LabelEncoder", [np.array([3, 1, 5], np.int64)], (text,), cases.EQUAL,
         keys_int64s=[1, 3], values_strings=["one", "three"])
    node("OneHotEncoder_texts", "OneHotEncoder", [animals], cats_strings=["cat", "cow"], near=cases.EQUAL)
    node("ArrayFeatureExtractor_texts", "ArrayFeatureExtractor", [animals, np.array([1, 0, 1], np.int64)], (text,),
         cases.EQUAL)
    # Without Gather of rows, of which ONNX Runtime returns the first element and empty text.
    for op, operands in [("Gather", [animals[0], np.array([1, 0, -1], np.int64)]), ("Concat", [animals, animals[:1]]),
                         ("Reshape", [animals, np.array([2, -1], np.int64)]), ("Transpose", [animals]),
                         ("Where", [np.array([[True], [False], [True]]), animals, animals[1:2]])]:
        more = {"axis": 0} if op in ["Gather", "Concat"] else {}
        cases.node(f"{op}_texts", op, operands, (text,), cases.EQUAL, domain="", **more)
    cases.node("Cast_texts", "Cast", [np.array(["1.5", "-3", "NaN"], object)], near=cases.EQUAL, domain="", to=FLOAT)
    cases.node("Cast_texts_ints", "Cast", [np.array(["15", "-3"], object)], (I64,), cases.EQUAL, domain="", to=I64)


def shared_branches(cases):
    """Trees as LightGBM's converter writes categories, and weights that scikit-learn's repeats for each class."""
    x = np.arange(6, dtype=np.float32).reshape(6, 1)
    # 1 and 4 lead to one leaf, and all else to one branch.
    nodes = dict(
        nodes_treeids=[0] * 6, nodes_nodeids=[0, 1, 2, 3, 4, 5], nodes_featureids=[0] * 6,
        nodes_modes=["BRANCH_EQ", "BRANCH_EQ", "BRANCH_LEQ", "LEAF", "LEAF", "LEAF"], nodes_values=[1.0, 4.0, 2.0, 0.0, 0.0, 0.0],
        nodes_truenodeids=[2, 2, 4, 0, 0, 0], nodes_falsenodeids=[1, 3, 5, 0, 0, 0])
    cases.node("TreeEnsembleRegressor_shared", "TreeEnsembleRegressor", [x], domain=ML, n_targets=1,
               target_treeids=[0] * 3, target_nodeids=[3, 4, 5], target_ids=[0] * 3, target_weights=[1.0, 2.0, 3.0],
               **nodes)
    cases.node("TreeEnsembleRegressor_repeated", "TreeEnsembleRegressor", [x], domain=ML, n_targets=1,
               target_treeids=[0] * 6, target_nodeids=[3, 3, 4, 4, 5, 5], target_ids=[0] * 6,
               target_weights=[3.0, 3.0, 4.0, 4.5, 5.0, 5.0], **nodes)
