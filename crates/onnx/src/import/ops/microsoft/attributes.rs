//! The attributes of these ops, in the notation of those of `ai.onnx`.

pub(in crate::import::ops) const ATTRIBUTES: &[(&str, &str)] = &[
    (
        "Attention",
        "do_rotary mask_filter_value num_heads! past_present_share_buffer qkv_hidden_sizes \
         rotary_embedding_dim scale unidirectional",
    ),
    ("CDist", "metric"),
    ("DequantizeLinear QuantizeLinear", "axis"),
    (
        "DynamicQuantizeLSTM",
        "activation_alpha activation_beta activations clip direction hidden_size input_forget",
    ),
    ("EmbedLayerNormalization", "epsilon mask_index_type"),
    (
        "FusedConv",
        "activation activation_params auto_pad dilations group kernel_shape pads strides",
    ),
    (
        "FusedGemm",
        "activation activation_alpha activation_beta activation_gamma alpha beta transA transB",
    ),
    ("FusedMatMul", "alpha transA transB transBatchA transBatchB"),
    ("GatherBlockQuantized", "bits block_size gather_axis quantize_axis"),
    (
        "GroupQueryAttention",
        "causal do_rotary k_norm_epsilon k_quant_type kv_cache_bit_width kv_num_heads! local_window_size \
         num_heads! q_norm_epsilon qk_norm_epsilon qk_output rotary_interleaved scale sliding_window_cache \
         smooth_softmax softcap v_quant_type",
    ),
    ("MatMulBnb4", "K! N! block_size! quant_type! training_mode transB"),
    ("MatMulNBits", "K! N! accuracy_level bits block_size! weight_prepacked"),
    (
        "MultiHeadAttention",
        "mask_filter_value num_heads! scale unidirectional",
    ),
    ("NhwcMaxPool", "auto_pad ceil_mode dilations kernel_shape! pads strides"),
    (
        "QAttention",
        "do_rotary mask_filter_value num_heads! past_present_share_buffer scale unidirectional",
    ),
    ("QGemm TransposeMatMul", "alpha transA transB"),
    (
        "QLinearAveragePool",
        "auto_pad ceil_mode channels_last count_include_pad kernel_shape! pads strides",
    ),
    ("QLinearConcat", "axis!"),
    (
        "QLinearConv",
        "auto_pad channels_last dilations group kernel_shape pads strides",
    ),
    ("QLinearGlobalAveragePool", "channels_last"),
    ("QLinearLeakyRelu QuickGelu", "alpha"),
    ("QLinearSoftmax", "axis opset!"),
    (
        "RotaryEmbedding",
        "interleaved is_packed_batching num_heads rotary_embedding_dim scale",
    ),
    ("SimplifiedLayerNormalization", "axis epsilon stash_type"),
    ("SkipLayerNormalization SkipSimplifiedLayerNormalization", "epsilon"),
];
