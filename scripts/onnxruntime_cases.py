"""Records what ONNX Runtime computes for its own ops and for those of classical models, as an archive of cases.

Run it with `onnx==1.23.2`, `onnxruntime==1.32.0`, NumPy and scikit-learn's converter (`skl2onnx==1.20.0`) on the path:

    python3 scripts/onnxruntime_cases.py crates/onnx/tests/data/onnxruntime_cases.bin.gz

The archive has the format of scripts/onnx_cases.py; the tests run the cases of both. Each case is one node of
com.microsoft or ai.onnx.ml, or one that ONNX Runtime added to ai.onnx, with inputs that are drawn here.

Quantized results must be equal if scales are powers of two, since then only a quotient is rounded that every kernel
computes exactly. With other scales ONNX Runtime's own results differ by one step between kernels (a product by a
reciprocal, a fixed point), so `STEP` allows one step. Float results may differ by f32's rounding.
"""

import sys
from types import SimpleNamespace

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

import classical_cases
import onnx_cases

MS = "com.microsoft"
NEAR = (1e-4, 1e-5)
EQUAL = (0.0, 0.0)
STEP = (0.0, 1.0)

cases = []
rng = np.random.default_rng(7)


def run(model, inputs):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    return session.run(None, dict(zip(names, inputs)))


def keep(name, model, inputs, near):
    """Adds a case with ONNX Runtime's outputs for these inputs."""
    # The converter chooses a random name and order.
    model.graph.name = "case"
    model.opset_import.sort(key=lambda opset: opset.domain)
    outputs = run(model, inputs)
    types = [helper.np_dtype_to_tensor_dtype(output.dtype) for output in outputs]
    for value, kind in zip(model.graph.output, types):
        value.type.tensor_type.elem_type = kind
    rtol, atol = near
    cases.append(SimpleNamespace(name="ort_" + name, model=model, data_sets=[(inputs, outputs)], rtol=rtol, atol=atol))


def info(name, value):
    if isinstance(value, TensorProto):
        return helper.make_tensor_value_info(name, value.data_type, list(value.dims))
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), list(value.shape))


def node(name, op, operands, outputs=(TensorProto.FLOAT,), near=NEAR, domain=MS, fixed=(), version=20, ml=3,
         **attributes):
    """Adds a case of one node. Operands are arrays, or None if omitted; those in `fixed` are initializers."""
    names = ["" if value is None else f"x{i}" for i, value in enumerate(operands)]
    made = ["" if kind is None else f"y{i}" for i, kind in enumerate(outputs)]
    call = helper.make_node(op, names, made, name=name, domain=domain, **attributes)
    given = [(n, v) for i, (n, v) in enumerate(zip(names, operands)) if n and i not in fixed]
    constants = [(n, v) for i, (n, v) in enumerate(zip(names, operands)) if n and i in fixed]
    initializers = []
    for n, v in constants:
        if isinstance(v, TensorProto):
            v.name = n
            initializers.append(v)
        else:
            initializers.append(numpy_helper.from_array(v, n))
    results = [helper.make_tensor_value_info(n, kind, None) for n, kind in zip(made, outputs) if n]
    graph = helper.make_graph([call], "case", [info(n, v) for n, v in given], results, initializers)
    opsets = [helper.make_opsetid("", version), helper.make_opsetid(MS, 1), helper.make_opsetid("ai.onnx.ml", ml)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    keep(name, model, [v for _, v in given], near)


def real(*shape, scale=1.0):
    return (rng.standard_normal(shape) * scale).astype(np.float32)


def f32(value):
    return np.array(value, np.float32)


def u8(value):
    return np.array(value, np.uint8)


def i8(value):
    return np.array(value, np.int8)


def i32(value):
    return np.array(value, np.int32)


def i64(value):
    return np.array(value, np.int64)


def whole(dtype, *shape, low=None, high=None):
    limits = np.iinfo(dtype)
    return rng.integers(limits.min if low is None else low, (limits.max if high is None else high) + 1,
                        shape).astype(dtype)


U8, I8, I32, I64 = TensorProto.UINT8, TensorProto.INT8, TensorProto.INT32, TensorProto.INT64
FLOAT = TensorProto.FLOAT


def quantized_elementwise():
    exact, free = ((0.25, 0.5, 0.5), EQUAL), ((0.0173, 0.031, 0.0417), STEP)
    for op in ["QLinearAdd", "QLinearMul"]:
        for tag, ((a, b, y), near) in [("exact", exact), ("free", free)]:
            for name, dtype, kind, zeros in [("u8", np.uint8, U8, (128, 3, 100)), ("i8", np.int8, I8, (-5, 7, 0))]:
                za, zb, zy = (np.array(zero, dtype) for zero in zeros)
                operands = [whole(dtype, 3, 4, 5), f32(a), za, whole(dtype, 4, 1), f32(b), zb, f32(y), zy]
                node(f"{op}_{name}_{tag}", op, operands, (kind,), near)
        bare = [whole(np.uint8, 2, 6), f32(0.5), u8(4), whole(np.uint8, 6), f32(0.25), u8(0)]
        node(f"{op}_without_last_zero_point", op, bare + [f32(2.0)], (U8,), EQUAL)
    for op, attributes in [("QLinearSigmoid", {}), ("QLinearLeakyRelu", {"alpha": 0.125})]:
        x = [np.arange(256, dtype=np.uint8), f32(0.0625), u8(120), f32(1 / 256 if "Sig" in op else 0.125), u8(7)]
        node(f"{op}_u8", op, x, (U8,), STEP if "Sig" in op else EQUAL, fixed=(1, 2, 3, 4), **attributes)
        x = [np.arange(-128, 128, dtype=np.int8).reshape(4, 64), f32(0.031), None, f32(0.017), None]
        node(f"{op}_i8_without_zero_points", op, x, (I8,), STEP, **attributes)
    x = [whole(np.uint8, 2, 3, 5), f32(0.0431), u8(118), f32(1 / 256), u8(0)]
    for name, attributes in [("last", {"axis": -1, "opset": 13}), ("middle", {"axis": 1, "opset": 13}),
                             ("old", {"axis": 1, "opset": 11})]:
        node(f"QLinearSoftmax_{name}", "QLinearSoftmax", x, (U8,), STEP, fixed=(1, 2, 3, 4), **attributes)
    parts = []
    for i, scale in enumerate([0.5, 0.125, 0.5]):
        parts += [whole(np.uint8, 2, i + 1, 3), f32(scale), u8(20 * i)]
    node("QLinearConcat_u8", "QLinearConcat", [f32(0.25), u8(9)] + parts, (U8,), EQUAL, axis=1)
    parts = [whole(np.int8, 2, 2), f32(0.03), i8(4), whole(np.int8, 3, 2), f32(0.07), i8(-9)]
    node("QLinearConcat_i8", "QLinearConcat", [f32(0.05), i8(1)] + parts, (I8,), STEP, axis=-2)
    x = [rng.integers(0, 2, (2, 3, 4)).astype(bool), whole(np.uint8, 2, 3, 4), f32(0.5), u8(3),
         whole(np.uint8, 4), f32(0.25), u8(5), f32(0.5), u8(7)]
    node("QLinearWhere_u8", "QLinearWhere", x, (U8,), EQUAL, fixed=(2, 3, 5, 6, 7, 8))


def quantized_windows():
    for last in [0, 1]:
        shape = (2, 5, 7, 3) if last else (2, 3, 5, 7)
        x = [whole(np.uint8, *shape), f32(0.25), u8(100), f32(0.125), u8(10)]
        node(f"QLinearGlobalAveragePool_last{last}", "QLinearGlobalAveragePool", x, (U8,), STEP, channels_last=last)
        attributes = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1], "channels_last": last}
        node(f"QLinearAveragePool_last{last}", "QLinearAveragePool", x, (U8,), STEP, **attributes)
    x = [whole(np.int8, 1, 2, 6, 6), f32(0.05), i8(3), f32(0.04), i8(-2)]
    node("QLinearAveragePool_padded", "QLinearAveragePool", x, (I8,), STEP, kernel_shape=[3, 3], strides=[2, 2],
         pads=[1, 1, 1, 1], count_include_pad=1)
    node("QLinearAveragePool_ceil", "QLinearAveragePool", x, (I8,), STEP, kernel_shape=[3, 3], strides=[2, 2],
         ceil_mode=1)
    x = [whole(np.int8, 1, 2, 4, 4), f32(0.05), i8(-3), f32(0.02), i8(2)]
    node("QLinearGlobalAveragePool_i8", "QLinearGlobalAveragePool", x, (I8,), STEP)
    node("NhwcMaxPool_u8", "NhwcMaxPool", [whole(np.uint8, 2, 6, 7, 3)], (U8,), EQUAL, kernel_shape=[3, 2],
         strides=[2, 1],
         pads=[1, 0, 1, 1])
    node("NhwcMaxPool_i8", "NhwcMaxPool", [whole(np.int8, 1, 5, 5, 2)], (I8,), EQUAL, kernel_shape=[2, 2],
         dilations=[2, 2])
    for last in [0, 1]:
        shape = (2, 6, 5, 4) if last else (2, 4, 6, 5)
        w = whole(np.int8, 6, 2, 3, 3)
        x = [whole(np.uint8, *shape), f32(0.5), u8(120), w, 2.0 ** -rng.integers(4, 8, 6).astype(np.float32),
             np.zeros(6, np.int8), f32(16.0), u8(90), whole(np.int32, 6, low=-3000, high=3000)]
        node(f"QLinearConv_last{last}", "QLinearConv", x, (U8,), EQUAL, fixed=(1, 2, 3, 4, 5, 6, 7, 8), group=2,
             pads=[1, 1, 0, 1], strides=[2, 1], channels_last=last)


def quantized_products():
    a = [whole(np.uint8, 3, 5), f32(0.5), u8(120)]
    b = [whole(np.int8, 5, 4), f32(0.25), i8(3)]
    c = whole(np.int32, 4, low=-500, high=500)
    node("QGemm_quantized", "QGemm", a + b + [c, f32(32.0), u8(100)], (U8,), EQUAL)
    node("QGemm_real", "QGemm", a + b, (FLOAT,), alpha=0.75)
    by_column = [whole(np.int8, 4, 5), f32([0.25, 0.5, 1.0, 0.125]), i8([0, 3, -2, 1])]
    at = [np.ascontiguousarray(a[0].T)] + a[1:]
    node("QGemm_turned_by_column", "QGemm", at + by_column + [c.reshape(1, 4), f32(32.0), u8(100)], (U8,),
         EQUAL, transA=1, transB=1)
    node("QGemm_signed_free", "QGemm", [whole(np.int8, 2, 6), f32(0.013), i8(-4), whole(np.int8, 6, 3),
         f32(0.021), i8(0), None, f32(0.77), i8(5)], (I8,), STEP)
    x = [whole(np.uint8, 2, 3, 5), whole(np.int8, 5, 4), f32(0.02), f32([0.1, 0.2, 0.3, 0.4]), u8(7),
         i8([1, -2, 3, 0]), real(4)]
    node("MatMulIntegerToFloat_by_column", "MatMulIntegerToFloat", x)
    node("MatMulIntegerToFloat_bare", "MatMulIntegerToFloat", x[:3] + [f32(0.05)])
    b = whole(np.uint8, 2, 5, 4)
    node("MatMulIntegerToFloat_batch", "MatMulIntegerToFloat", [x[0], b, f32(0.02), f32(0.3), None, u8(131)])
    x = [real(3, 6), whole(np.int8, 6, 5), f32(0.03), i8(2), real(5)]
    node("DynamicQuantizeMatMul_i8", "DynamicQuantizeMatMul", x)
    node("DynamicQuantizeMatMul_by_column", "DynamicQuantizeMatMul",
         [real(2, 3, 6) - 5, whole(np.uint8, 6, 5), np.abs(real(5)), whole(np.uint8, 5)])
    node("DynamicQuantizeMatMul_bare", "DynamicQuantizeMatMul", [real(3, 6), whole(np.int8, 6, 5), f32(0.5)])


def lstms():
    size, width, steps, batch = 4, 5, 6, 3
    for name, directions, columns, dtype, extra in [
        ("forward", 1, False, np.uint8, {}),
        ("by_column", 1, True, np.int8, {"direction": "reverse"}),
        ("both_ways", 2, False, np.int8, {"direction": "bidirectional"}),
        ("lengths", 1, False, np.int8, {}),
    ]:
        shape = (directions, 4 * size) if columns else (directions,)
        w, r = whole(dtype, directions, width, 4 * size), whole(dtype, directions, size, 4 * size)
        zero = np.zeros(shape, dtype) if dtype is np.int8 else whole(dtype, *shape, low=110, high=140)
        scales = [np.full(shape, 0.006,
                          np.float32) * (1 + 0.1 * rng.random(shape).astype(np.float32)) for _ in range(2)]
        full = name != "forward"
        x = [real(steps, batch, width), w, r, real(directions, 8 * size, scale=0.2) if full else None,
             i32([6, 4, 1]) if name == "lengths" else None,
             real(directions, batch, size, scale=0.3) if full else None,
             real(directions, batch, size, scale=0.3) if full else None, None,
             scales[0], zero, scales[1], zero]
        # States of finished sequences count towards the quantization range here, but not in ONNX Runtime.
        near = (1e-2, 3e-3) if name == "lengths" else (1e-3, 1e-4)
        node(f"DynamicQuantizeLSTM_{name}", "DynamicQuantizeLSTM", x, (FLOAT,) * 3, near,
             fixed=(1, 2, 8, 9, 10, 11), hidden_size=size, **extra)


def fused():
    x = real(3, 4, 6)
    for op in ["Gelu", "QuickGelu"]:
        node(op, op, [real(4, 9, scale=2.0)])
    node("QuickGelu_alpha", "QuickGelu", [x], alpha=0.5)
    node("Gelu_vector", "Gelu", [real(7)])
    node("FastGelu", "FastGelu", [x])
    node("FastGelu_bias", "FastGelu", [x, real(6)])
    node("BiasGelu", "BiasGelu", [x, real(6)])
    node("BiasGelu_matrix", "BiasGelu", [real(2, 6), real(6)])
    node("FusedMatMul_alpha", "FusedMatMul", [real(2, 3, 4), real(4, 5)], alpha=0.3)
    node("TransposeMatMul", "TransposeMatMul", [real(2, 4, 3), real(5, 4)], transA=1, transB=1, alpha=0.25)
    node("FusedMatMul_turned", "FusedMatMul", [real(2, 4, 3), real(2, 5, 4)], transA=1, transB=1, alpha=2.0)
    node("FusedMatMul_batches", "FusedMatMul", [real(3, 2, 4), real(4, 2, 5)], transBatchA=1, transBatchB=1)
    node("FusedMatMul_all", "FusedMatMul", [real(4, 2, 3), real(5, 2, 4)], transBatchA=1, transBatchB=1, transA=1,
         transB=1)
    node("FusedMatMul_vector", "FusedMatMul", [real(4), real(5, 4)], transB=1, transA=1, alpha=0.5)
    for name, attributes in [
        ("Relu", {}), ("LeakyRelu", {"activation_alpha": 0.2}), ("Tanh", {}), ("Sigmoid", {}), ("Softplus", {}),
        ("HardSigmoid", {"activation_alpha": 0.3, "activation_beta": 0.4}), ("Elu", {"activation_alpha": 0.7}),
        ("Softsign", {}), ("ThresholdedRelu", {"activation_alpha": 0.4}),
    ]:
        node(f"FusedGemm_{name}", "FusedGemm", [real(3, 4), real(5, 4), real(5)], transB=1, activation=name, alpha=0.5,
             beta=2.0, **attributes)
    node("FusedGemm_bare", "FusedGemm", [real(4, 3), real(4, 5)], transA=1, activation="Relu")
    for name, params in [("Relu", None), ("LeakyRelu", [0.3]), ("Tanh", None), ("Sigmoid", None), ("Clip", [-0.5, 1.5]),
                         ("HardSigmoid", [0.3, 0.6])]:
        extra = {"activation_params": params} if params else {}
        node(f"FusedConv_{name}", "FusedConv", [real(2, 4, 6, 5), real(6, 2, 3, 3), real(6)], activation=name, group=2,
             pads=[1, 0, 1, 1], strides=[2, 1], **extra)
    node("FusedConv_added", "FusedConv", [real(1, 2, 5, 5), real(3, 2, 3, 3), real(3), real(1, 3, 5, 5)],
         activation="Relu",
         auto_pad="SAME_UPPER")
    node("FusedConv_bare", "FusedConv", [real(1, 2, 7), real(3, 2, 3)], activation="Relu", dilations=[2])


def norms():
    x, scale = real(2, 3, 8), real(8)
    for eps in [1e-5, 0.1]:
        node(f"SimplifiedLayerNormalization_{eps}", "SimplifiedLayerNormalization", [x, scale], (FLOAT, FLOAT),
             domain="",
             epsilon=eps, version=14)
    node("SimplifiedLayerNormalization_axis", "SimplifiedLayerNormalization", [x, real(3, 8)], domain="", axis=1,
         version=17)
    node("LayerNormalization_old", "LayerNormalization", [x, scale, real(8)], domain="", axis=-1, version=12)
    sums = (FLOAT, None, None, FLOAT)
    node("SkipLayerNormalization", "SkipLayerNormalization", [x, real(2, 3, 8), scale, real(8), real(8)], sums,
         epsilon=1e-3)
    node("SkipLayerNormalization_bare", "SkipLayerNormalization", [x, real(2, 3, 8), scale])
    node("SkipLayerNormalization_shared", "SkipLayerNormalization", [x, real(1, 3, 8), scale, real(8)], sums)
    node("SkipLayerNormalization_matrix", "SkipLayerNormalization", [x, real(3, 8), scale, None, real(8)])
    op = "SkipSimplifiedLayerNormalization"
    node(op, op, [x, real(2, 3, 8), scale, real(8)], sums, epsilon=1e-3)
    node(f"{op}_bare", op, [x, real(2, 3, 8), scale])
    ids, segments = whole(np.int32, 2, 4, low=0, high=9), whole(np.int32, 2, 4, low=0, high=1)
    tables = [real(10, 8), real(6, 8), real(2, 8)]
    mask = np.array([[1, 1, 1, 0], [1, 0, 0, 0]], np.int32)
    op = "EmbedLayerNormalization"
    node(op, op, [ids, segments] + tables + [scale, real(8), mask], (FLOAT, I32, FLOAT), epsilon=1e-5)
    node(f"{op}_bare", op, [ids, None] + tables[:2] + [None, scale, real(8)], (FLOAT, I32))
    places = whole(np.int32, 2, 4, low=0, high=5)
    node(f"{op}_placed", op, [ids, None] + tables[:2] + [None, scale, real(8), None, places], (FLOAT, I32))


def attention():
    batch, steps, width, heads = 2, 4, 8, 2
    x, w, b = real(batch, steps, width), real(width, 3 * width, scale=0.4), real(3 * width)
    lengths, ends = i32([4, 2]), i32([4, 3, 0, 1])
    raw = np.array([[1, 1, 1, 0], [0, 1, 1, 1]], np.int32)
    cube = whole(np.int32, batch, steps, steps, low=0, high=1)
    for name, mask in [("bare", None), ("lengths", lengths), ("ends", ends), ("raw", raw), ("cube", cube)]:
        node(f"Attention_{name}", "Attention", [x, w, b, mask], num_heads=heads)
    for name, mask in [("causal", None), ("causal_raw", raw), ("causal_lengths", lengths), ("causal_cube", cube)]:
        node(f"Attention_{name}", "Attention", [x, w, b, mask], num_heads=heads, unidirectional=1)
    past = real(2, batch, heads, 3, width // heads)
    node("Attention_past", "Attention", [x, w, b, None, past], (FLOAT, FLOAT), num_heads=heads, unidirectional=1)
    long = np.concatenate([np.ones((2, 3), np.int32), raw], 1)
    node("Attention_past_raw", "Attention", [x, w, b, long, past], (FLOAT, FLOAT),
         num_heads=heads, mask_filter_value=-5.0)
    node("Attention_widths", "Attention", [x, real(width, 20), real(20), None, None, real(batch, 1, steps, steps)],
         num_heads=heads, qkv_hidden_sizes=[8, 8, 4], scale=0.3)
    q = [whole(np.uint8, batch, steps, width), whole(np.int8, width, 3 * width), real(3 * width), f32(0.01), f32(0.02)]
    node("QAttention", "QAttention", q + [lengths, u8(128), i8(0)], num_heads=heads,
         fixed=(1, 2, 3, 4, 6, 7))
    q[4] = np.abs(real(3 * width, scale=0.02))
    node("QAttention_past", "QAttention", q + [None, u8(100), np.zeros(3 * width, np.int8), past], (FLOAT, FLOAT),
         num_heads=heads, unidirectional=1, fixed=(1, 2, 3, 4, 6, 7))

    op = "MultiHeadAttention"
    q, k, v = real(batch, steps, width), real(batch, 6, width), real(batch, 6, 2 * width)
    node(f"{op}_cross", op, [q, k, v], num_heads=heads)
    node(f"{op}_bias", op, [q, k, v, real(4 * width)], num_heads=heads, scale=0.2)
    keys = np.array([[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]], np.int32)
    node(f"{op}_keys", op, [q, k, v, None, keys, real(1, heads, steps, 6)], num_heads=heads)
    node(f"{op}_lengths", op, [q, k, v, None, i32([3, 6])], num_heads=heads)
    node(f"{op}_causal", op, [q, real(batch, steps, width), real(batch, steps, width)], num_heads=heads,
         unidirectional=1)
    past = [real(batch, heads, 3, 4), real(batch, heads, 3, 4)]
    new = [q, real(batch, steps, width), real(batch, steps, width)]
    node(f"{op}_past", op, new + [None, None, None] + past, (FLOAT,) * 3, num_heads=heads, unidirectional=1)
    node(f"{op}_past_bias", op, new + [None, None, real(batch, heads, steps, steps + 3)] + past, (FLOAT,) * 3,
         num_heads=heads)
    node(f"{op}_split", op, [q, real(batch, heads, 5, 4), real(batch, heads, 5, 4)], num_heads=heads)


def rotary():
    op = "RotaryEmbedding"
    cos, sin = real(10, 4), real(10, 4)
    places = np.array([[0, 3, 5], [2, 2, 9]], np.int64)
    node(op, op, [real(2, 3, 16), places, cos, sin])
    node(f"{op}_offset", op, [real(2, 3, 16), i64([4]), cos, sin], interleaved=1)
    node(f"{op}_heads_first", op, [real(2, 2, 3, 8), places, cos, sin])
    node(f"{op}_part", op, [real(2, 3, 20), places, cos, sin], num_heads=2, rotary_embedding_dim=8)


def grouped():
    op = "GroupQueryAttention"
    batch, heads, shared, size = 2, 4, 2, 16
    cos, sin = real(12, 8), real(12, 8)

    def operands(steps, total, lengths, past=0, packed=False, turn=False):
        q = real(batch, steps, (heads + 2 * shared) * size) if packed else real(batch, steps, heads * size)
        kv = [None, None] if packed else [real(batch, steps, shared * size), real(batch, steps, shared * size)]
        old = [real(batch, shared, past, size) for _ in range(2)]
        tail = [i32(lengths), i32(total)] + ([cos, sin] if turn else [])
        return [q] + kv + old + tail

    head = {"num_heads": heads, "kv_num_heads": shared}
    three = (FLOAT,) * 3
    node(f"{op}_first", op, operands(3, 3, [2, 2]), three, **head)
    node(f"{op}_first_turned", op, operands(3, 3, [2, 2], turn=True), three, do_rotary=1, **head)
    node(f"{op}_step", op, operands(1, 6, [5, 5], past=5, turn=True), three, do_rotary=1, **head)
    node(f"{op}_step_uneven", op, operands(1, 6, [5, 3], past=5, turn=True), three, do_rotary=1, rotary_interleaved=1,
         **head)
    node(f"{op}_packed", op, operands(3, 3, [2, 2], packed=True, turn=True), three, do_rotary=1, **head)
    node(f"{op}_several", op, [v[:1] if v is not None and v.ndim else v for v in operands(2, 6, [5, 5], past=4)],
         three, scale=0.2, **head)
    node(f"{op}_window", op, operands(6, 6, [5, 5]), (FLOAT,), local_window_size=2, **head)
    node(f"{op}_step_window", op, operands(1, 6, [5, 5], past=5), three, local_window_size=3, **head)
    node(f"{op}_softcap", op, operands(3, 3, [2, 2]), (FLOAT,), softcap=2.0, **head)
    node(f"{op}_smooth", op, operands(3, 3, [2, 2]), (FLOAT,), smooth_softmax=1, **head)
    bias = operands(3, 3, [2, 2]) + [None, None, None, real(1, heads, 3, 3), real(heads)]
    node(f"{op}_bias_sink", op, bias, (FLOAT,), **head)


def blocks():
    for name, k, n, bits, size, zero, near in [
        ("4", 32, 6, 4, 16, None, NEAR), ("4_zero", 40, 5, 4, 16, "packed", NEAR),
        ("4_odd", 48, 3, 4, 16, "packed", NEAR),
        ("8", 32, 4, 8, 32, "packed", NEAR), ("4_real_zero", 32, 4, 4, 32, "real", NEAR),
        ("2", 64, 4, 2, 32, "packed", NEAR),
    ]:
        count = -(-k // size)
        scales = np.abs(real(n, count, scale=0.1)) + np.float32(0.01)
        points = {None: None, "packed": whole(np.uint8, n, -(-count * bits // 8)),
                  "real": real(n, count, scale=4.0) + 8}[zero]
        x = [real(2, 3, k), whole(np.uint8, n, count, size * bits // 8), scales, points]
        node(f"MatMulNBits_{name}", "MatMulNBits", x, (FLOAT,), near, fixed=(1, 2, 3), K=k, N=n, bits=bits,
             block_size=size)
    x = [real(3, 32), whole(np.uint8, 4, 2, 8), np.abs(real(4, 2)), None, None, real(4)]
    node("MatMulNBits_bias", "MatMulNBits", x, fixed=(1, 2, 5), K=32, N=4, bits=4, block_size=16)

    op = "GatherBlockQuantized"
    index = np.array([[3, 0], [-1, 2]], np.int64)
    for name, bits, size, zero in [("u8_4", 4, 16, False), ("u8_4_zero", 4, 32, True), ("u8_8", 8, 16, True)]:
        width = 64
        count = width // size
        points = whole(np.uint8, 5, count * bits // 8) if zero else None
        x = [whole(np.uint8, 5, width * bits // 8), index, np.abs(real(5, count)), points]
        node(f"{op}_{name}", op, x, fixed=(0, 2, 3), bits=bits, block_size=size)
    def nibbles(kind, *shape):
        low, high = (-8, 7) if kind == TensorProto.INT4 else (0, 15)
        return helper.make_tensor("", kind, shape, rng.integers(low, high + 1, shape).flatten().tolist())
    for name, kind in [("i4", TensorProto.INT4), ("u4", TensorProto.UINT4)]:
        x = [nibbles(kind, 5, 3, 40), index.astype(np.int32), np.abs(real(5, 3, 3)), nibbles(kind, 5, 3, 3)]
        node(f"{op}_{name}", op, x, fixed=(0, 2, 3), block_size=16, quantize_axis=2, gather_axis=0, version=21)
        x = [nibbles(kind, 5, 32), i64([2, 0, 4]), np.abs(real(5, 2))]
        node(f"{op}_{name}_bare", op, x, fixed=(0, 2), block_size=16, quantize_axis=1, gather_axis=0, version=21)


def conversions():
    x = real(3, 5, scale=3.0)
    for name, dtype, kind in [("u8", np.uint8, U8), ("i8", np.int8, I8), ("u16", np.uint16, TensorProto.UINT16),
                              ("i16", np.int16, TensorProto.INT16)]:
        zero = whole(dtype, 1, low=1, high=100)[0]
        node(f"QuantizeLinear_{name}", "QuantizeLinear", [x, f32(0.0625), np.array(zero, dtype)], (kind,), EQUAL)
        q = whole(dtype, 3, 5)
        node(f"DequantizeLinear_{name}", "DequantizeLinear", [q, f32(0.037), np.array(zero, dtype)])
        node(f"DequantizeLinear_{name}_axis", "DequantizeLinear", [q, np.abs(real(3)), whole(dtype, 3)], axis=0)
    node("QuantizeLinear_axis", "QuantizeLinear", [x, f32([0.5, 0.25, 0.125, 1, 2]), whole(np.int8, 5)], (I8,), EQUAL,
         axis=1)
    node("DequantizeLinear_i32", "DequantizeLinear", [whole(np.int32, 4), f32(1e-5)])


def files():
    """What ONNX Runtime's tools write beside nodes: no version of the domain, defaults as attributes, functions."""
    a, b = real(4, 3), real(5, 3)
    for metric in ["sqeuclidean", "euclidean"]:
        node(f"CDist_{metric}", "CDist", [a, b], metric=metric)
    node("QuantizeLinear_no_type", "QuantizeLinear", [real(3, 4), f32(0.25), u8(7)], (U8,), EQUAL, domain="",
         version=21, output_dtype=0, axis=1, saturate=1, block_size=0)
    node("RNN_two_functions", "RNN", [real(3, 2, 4), real(1, 5, 4), real(1, 5, 5)], (FLOAT, FLOAT), domain="",
         hidden_size=5, activations=["Tanh", "Tanh"], direction="forward")
    call = helper.make_node("FusedMatMul", ["a", "b"], ["y"], domain=MS, transB=1, alpha=0.5)
    scale = helper.make_node("Scaler", ["y"], ["z"], domain="ai.onnx.ml", offset=[1.0], scale=[2.0])
    results = [helper.make_tensor_value_info("z", FLOAT, None)]
    graph = helper.make_graph([call, scale], "case", [info("a", a), info("b", b)], results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    keep("unsaid_versions", model, [a, b], NEAR)
    body = [helper.make_node("Relu", ["x"], ["t"]), helper.make_node("Softmax", ["t"], ["y"])]
    function = helper.make_function("mine", "Positive", ["x"], ["y"], body, [helper.make_opsetid("", 17)])
    call = helper.make_node("Positive", ["a"], ["z"], domain="mine")
    graph = helper.make_graph([call], "case", [info("a", a)], results)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("mine", 1)]
    keep("function_of_another_version", helper.make_model(graph, opset_imports=opsets, functions=[function],
                                                          ir_version=10), [a], NEAR)


def tables():
    for name, k, n, size, kind, fixed in [
        ("fp4", 64, 6, 16, 0, (1, 2)), ("nf4", 48, 5, 32, 1, (1, 2)), ("odd", 21, 3, 16, 1, (1, 2)),
        ("given", 32, 4, 64, 0, ()),
    ]:
        count = -(-n * k // size)
        x = [real(2, 3, k), whole(np.uint8, (n * k + 1) // 2), np.abs(real(count)) + np.float32(0.01)]
        node(f"MatMulBnb4_{name}", "MatMulBnb4", x, fixed=fixed, K=k, N=n, block_size=size, quant_type=kind)


def main():
    # These cases do not count towards the goal for official cases.
    onnx_cases.is_ordinary = lambda case: False
    for family in [quantized_elementwise, quantized_windows, quantized_products, lstms, fused, norms, attention, rotary,
                   grouped, blocks, conversions]:
        family()
    here = sys.modules[__name__]
    classical_cases.nodes(here)
    classical_cases.models(here)
    classical_cases.texts(here)
    classical_cases.shared_branches(here)
    files()
    tables()
    onnx_cases.write(sys.argv[1], cases)


if __name__ == "__main__":
    main()
