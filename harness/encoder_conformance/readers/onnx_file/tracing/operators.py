"""What operators of a graph show by themselves, whatever they take."""

from encoder_conformance.readers.onnx_file.tracing.features import Feature

OPERATORS: dict[str, Feature] = {
    **dict.fromkeys(("AveragePool", "MaxPool", "LpPool"), "pooled"),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool"), "pooled"),
    "RotaryEmbedding": "rope",
    **dict.fromkeys(("Conv", "ConvTranspose", "FusedConv"), "convolution"),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), "recurrence"),
    **dict.fromkeys(("If", "Loop", "Scan"), "control_flow"),
    **dict.fromkeys(("MoE", "QMoE"), "experts"),
    "TopK": "largest",
    **dict.fromkeys(("ScatterND", "ScatterElements", "Scatter", "XlaDynamicUpdateSlice"), "overwritten"),
    **dict.fromkeys(("DFT", "STFT"), "fourier"),
    **dict.fromkeys(("FFT", "FFT2D", "FFTND", "RFFT", "RFFT2D", "RFFTND"), "fourier"),  # as tf2onnx leaves them
    "Pad": "padded",
    "BatchNormalization": "batch",
    **dict.fromkeys(("InstanceNormalization", "GroupNormalization", "GroupNorm"), "over_positions"),
    **dict.fromkeys(("Attention", "MultiHeadAttention", "GroupQueryAttention", "EmbedLayerNormalization"), "fused"),
    **dict.fromkeys(("QAttention", "MatMulNBits", "DynamicQuantizeMatMul", "QLinearMatMul"), "integer_product"),
}  # fmt: skip
"""An operator → what it shows."""
